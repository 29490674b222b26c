"""Covering indexes with the unmodified Python driver: on one node, and on a cluster of three whose nodes are killed and paused.

Always checked: a read by a covering index gives what the table has, in every read of what one client writes alone, and for all rows in the end; a read shows
each row at most once; the index's hidden view has exactly what follows from the rows."""

import os
import random
import signal
import time

import pytest
from cassandra import InvalidRequest
from cassandra.query import SimpleStatement

from conftest import READY_WITHIN_S, cluster_of, while_it_lives
import test_unique as unique
from test_unique import ENABLED, compared, insert_all, once, prepared, session_at, settled, status


# How often a statement is tried that says more if what it waits for takes less than five seconds.
TRIES = 5


def is_index_only(session, read):
    return any("Index Only Scan" in row[0] for row in session.execute(f"EXPLAIN {read}"))


def created(server, session, index, definition, read):
    """Creates a covering index, and waits until reads use it."""
    answer = session.execute_async(f"CREATE INDEX {index} {definition}", timeout=READY_WITHIN_S)
    answer.result()
    if answer.warnings:
        assert f"are still being added to the covering index {index}" in answer.warnings[0], answer.warnings
    once("the index covers its columns", lambda: is_index_only(session, read))
    once("the view is complete", lambda: status(server, f"{session.keyspace}.{index}.covering"), lambda one: one and one["state"] == "ready")


@pytest.fixture(scope="module")
def session(server):
    cluster, session = session_at(server.address)
    session.execute("CREATE KEYSPACE IF NOT EXISTS covered WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.set_keyspace("covered")
    yield session
    cluster.shutdown()


@pytest.fixture(scope="module")
def people(server, session):
    session.execute(f"CREATE TABLE people (id int PRIMARY KEY, city text, age int, tags set<text>, note text) WITH {ENABLED} AND tablets = 4")
    created(server, session, "by_city", "ON people (city) INCLUDE (age, tags)", "SELECT id FROM people WHERE city = 'x'")
    return session


def in_city(session, city):
    return sorted(row.id for row in session.execute("SELECT id FROM people WHERE city = %s", (city,)))


def test_an_index_follows_its_table(people):
    insert = people.prepare("INSERT INTO people (id, city, age) VALUES (?, ?, ?)")
    for row in ((1, "Bern", 30), (2, "Bern", 40), (3, "Rome", 50), (4, None, 60)):
        people.execute(insert, row)
    assert in_city(people, "Bern") == [1, 2] and in_city(people, "Rome") == [3]
    people.execute("UPDATE people SET city = 'Rome' WHERE id = 1")
    people.execute("UPDATE people SET tags = tags + {'x', 'y'}, age = 31 WHERE id = 1")
    assert in_city(people, "Bern") == [2] and in_city(people, "Rome") == [1, 3]
    select = people.prepare("SELECT id, age, tags, city FROM people WHERE city = ?")
    rows = {row.id: (row.age, row.tags, row.city) for row in people.execute(select, ("Rome",))}
    assert rows == {1: (31, {"x", "y"}, "Rome"), 3: (50, None, "Rome")}
    # It is routed by the partitions of the index.
    assert [column.table_name for column in select.column_metadata] == ["people.by_city.covering"] and select.routing_key_indexes == [0]
    people.execute("BEGIN TRANSACTION UPDATE people SET city = 'Oslo' WHERE id = 1; UPDATE people SET city = 'Bern' WHERE id = 4; END TRANSACTION;")
    people.execute("DELETE FROM people WHERE id = 2")
    assert in_city(people, "Bern") == [4] and in_city(people, "Oslo") == [1]
    # A column that the index does not have, and keys that it cannot have.
    assert people.execute("SELECT note FROM people WHERE city = 'Oslo'").one().note is None
    people.execute("UPDATE people SET city = '' WHERE id = 1")
    assert in_city(people, "") == [1] and in_city(people, "Oslo") == []
    nice = lambda ttl: people.execute(f"UPDATE people USING TTL {ttl} SET city = 'Nice' WHERE id = 1")
    assert while_it_lives(nice, lambda: in_city(people, "Nice"))[1] == [1]
    once("the value has expired", lambda: in_city(people, "Nice"), lambda ids: ids == [])
    people.execute("TRUNCATE people")
    assert in_city(people, "Bern") == []
    people.execute(insert, (1, "Bern", 30))
    assert in_city(people, "Bern") == [1]


def test_what_is_refused_and_shown(people):
    for statement, why in {
        "ALTER TABLE people DROP note": "with the covering index by_city",
        "ALTER TABLE people WITH transactions = {'enabled': false}": "the covering index by_city needs",
        "INSERT INTO people (id, city) VALUES (1, 'x') USING TIMESTAMP 5": "USING TIMESTAMP is not supported",
    }.items():
        with pytest.raises(InvalidRequest, match=why):
            people.execute(statement)
    with pytest.raises(InvalidRequest, match="in the key of the covering index by_city"):
        people.execute("INSERT INTO people (id, city) VALUES (9, %s)", ("x" * 70_000,))
    people.cluster.refresh_schema_metadata()
    keyspace = people.cluster.metadata.keyspaces["covered"]
    assert "people" in keyspace.tables and not keyspace.views and all("." not in name for name in keyspace.tables)
    [text] = [row.create_statement for row in people.execute("DESCRIBE INDEX by_city")]
    assert text == "CREATE INDEX by_city ON covered.people (city) INCLUDE (age, tags);"


def test_pages(session):
    session.execute(f"CREATE TABLE pages (id int PRIMARY KEY, v int, w int) WITH {ENABLED} AND tablets = 4")
    insert_all(session, "INSERT INTO pages (id, v, w) VALUES (?, ?, ?)", [(n, n % 2, n) for n in range(600)])
    read = SimpleStatement("SELECT id, w FROM pages WHERE v = 1", fetch_size=50)
    of_table = session.execute("SELECT id, w FROM pages WHERE v = 1 ALLOW FILTERING")
    expected = sorted(tuple(row) for row in of_table)
    session.execute("CREATE INDEX pages_v ON pages (v) INCLUDE (w)", timeout=READY_WITHIN_S)
    once("the index is used", lambda: is_index_only(session, "SELECT id, w FROM pages WHERE v = 1"))
    first = session.execute(read)
    state = first.paging_state
    assert sorted(tuple(row) for row in first) == expected
    session.execute("DROP INDEX pages_v", timeout=READY_WITHIN_S)
    again = SimpleStatement("SELECT id, w FROM pages WHERE v = 1 ALLOW FILTERING", fetch_size=50)
    with pytest.raises(InvalidRequest, match="an index that is not used now"):
        session.execute(again, paging_state=state)
    assert sorted(tuple(row) for row in session.execute(again)) == expected


def test_rows_that_were_there_before_the_index(server, session):
    session.execute(f"CREATE TABLE early (id int, c int, v int, w text, PRIMARY KEY (id, c)) WITH {ENABLED} AND tablets = 4")
    insert_all(session, "INSERT INTO early (id, c, v, w) VALUES (?, ?, ?, ?)", [(n % 100, n, n % 17 or None, f"w{n}") for n in range(800)])
    created(server, session, "early_v", "ON early (v, c) INCLUDE (w)", "SELECT id FROM early WHERE v = 1 AND c = 1")
    by_value = lambda v: sorted(tuple(row) for row in session.execute(f"SELECT id, c, w FROM early WHERE v = {v}"))
    for v in range(1, 17):
        assert by_value(v) == sorted((n % 100, n, f"w{n}") for n in range(800) if n % 17 == v)
    session.execute("DELETE FROM early WHERE id = 3")
    session.execute("DELETE FROM early WHERE id = 4 AND c > 300")
    for v in range(1, 17):
        assert by_value(v) == sorted((n % 100, n, f"w{n}") for n in range(800) if n % 17 == v and n % 100 != 3 and (n % 100 != 4 or n <= 300))
    session.execute("DROP INDEX early_v", timeout=READY_WITHIN_S)
    once("the view is gone", lambda: status(server, "covered.early_v.covering"), lambda one: one is None)
    # Nothing keeps columns any more.
    session.execute("ALTER TABLE early DROP w")


def test_a_row_that_cannot_be_in_the_view_leaves_a_local_index(server, session):
    session.execute(f"CREATE TABLE wide (id int PRIMARY KEY, v text, w int) WITH {ENABLED}")
    session.execute("INSERT INTO wide (id, v) VALUES (7, %s)", ("x" * 70_000,))
    for _ in range(TRIES):
        answer = session.execute_async("CREATE INDEX wide_v ON wide (v) INCLUDE (w)", timeout=READY_WITHIN_S)
        answer.result()
        if "are still being added" not in answer.warnings[0]:
            break
        # It took longer than the five seconds for which the statement waits.
        session.execute("DROP INDEX wide_v")
    assert "the row (7)" in answer.warnings[0] and "reads by it ask all tablets" in answer.warnings[0], answer.warnings
    assert status(server, "covered.wide_v.covering") is None
    session.execute("SELECT id FROM wide WHERE v = 'a' ALLOW FILTERING")
    assert not is_index_only(session, "SELECT id, w FROM wide WHERE v = 'a'")


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    if os.environ.get("DIORITE_TEST_ADDRESS"):
        pytest.skip("a cluster of its own is needed")
    servers = cluster_of(tmp_path_factory.mktemp("covering"))
    yield servers
    for server in servers:
        if server.process.poll() is None:
            server.stop()


@pytest.fixture
def cluster_session(servers):
    cluster, session = session_at(servers[0].address)
    session.execute("CREATE KEYSPACE IF NOT EXISTS three WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}")
    session.set_keyspace("three")
    yield session
    cluster.shutdown()


class Writers(unique.Writers):
    """Threads that write few rows, all of them the same ones; threads that read them by the index; and one that follows rows of its own."""

    THREADS, ROWS, VALUES = 6, 12, 5

    def __init__(self, servers, table):
        super().__init__(servers, table, f"{table}_v", self.VALUES, is_unique=False)

    def start(self):
        for number in range(self.THREADS):
            dice = random.Random(number)
            self.begin(number, lambda session, dice=dice: self.write(session, dice))
        self.begin(0, self.read)
        self.begin(1, self.read)
        self.begin(2, self.follow)

    def write(self, session, dice):
        k, other, v, w = dice.randrange(self.ROWS), dice.randrange(self.ROWS), dice.randrange(self.VALUES), dice.randrange(1000)
        table = self.table
        statement = dice.choice([
            f"INSERT INTO {table} (k, v, w) VALUES ({k}, {v}, {w})",
            f"UPDATE {table} SET v = {v} WHERE k = {k}",
            f"UPDATE {table} SET w = {w} WHERE k = {k}",
            f"UPDATE {table} SET v = {v}, w = {w} WHERE k = {k} IF w > 500",
            f"DELETE v FROM {table} WHERE k = {k}",
            f"DELETE FROM {table} WHERE k = {k}",
            f"INSERT INTO {table} (k, v, w) VALUES ({k}, {v}, {w}) USING TTL 2",
            f"BEGIN BATCH DELETE FROM {table} WHERE k = {k}; INSERT INTO {table} (k, v, w) VALUES ({other}, {v}, {w}); APPLY BATCH",
            f"BEGIN TRANSACTION UPDATE {table} SET v = {v} WHERE k = {k}; UPDATE {table} SET v = {v}, w = {w} WHERE k = {other}; END TRANSACTION;",
        ])
        session.execute(statement)
        self.done["writes"] += 1

    def read(self, session):
        v = random.randrange(self.VALUES)
        keys = [row.k for row in session.execute(f"SELECT k, v, w FROM {self.table} WHERE v = {v} ALLOW FILTERING")]
        if len(keys) > len(set(keys)):
            self.wrong.append(f"a row is twice under {v}: {sorted(keys)}")
        self.done["reads"] += 1
        time.sleep(0.01)

    def follow(self, session):
        # A row whose write has an unknown outcome is not written again.
        self.done["followed"] += 1
        k = 1_000 + self.done["followed"]
        session.execute(f"INSERT INTO {self.table} (k, v, w) VALUES ({k}, {k}, 1)")
        self.check(session, k, k, [1])
        session.execute(f"UPDATE {self.table} SET v = {-k} WHERE k = {k}")
        self.check(session, k, k, [])
        self.check(session, k, -k, [1])
        self.done["moves"] += 1

    def check(self, session, k, v, expected):
        found = [row.w for row in session.execute(f"SELECT k, w FROM {self.table} WHERE v = {v} ALLOW FILTERING")]
        if found != expected:
            self.wrong.append(f"row {k} under {v}: a read by the index has {found} and not {expected}")


def check_in_the_end(servers, writers):
    assert writers.wrong == [], writers.wrong[:5]
    once("all transactions have ended", lambda: [prepared(server) for server in servers], lambda counts: not any(counts))
    # What has a TTL expires.
    time.sleep(3)
    rows = [tuple(row) for row in settled(servers, f"SELECT k, v, w FROM {writers.table}")]
    expected = sorted(row for row in rows if row[1] is not None)
    plan = settled(servers, f"EXPLAIN SELECT k, v, w FROM {writers.table} WHERE v = 1")
    assert any("Index Only Scan" in row[0] for row in plan), plan
    found = [row for v in {row[1] for row in expected} for row in settled(servers, f"SELECT k, v, w FROM {writers.table} WHERE v = {v}")]
    assert sorted(tuple(row) for row in found) == expected and len(expected) > 20
    counted = compared(servers[0], f"three.{writers.table}_v.covering")
    assert [counted[part] for part in ("values", "entries", "right")] == 3 * [len(expected)], counted


def test_an_index_is_right_while_nodes_are_killed_and_paused(servers, cluster_session):
    cluster_session.execute(f"CREATE TABLE busy (k int PRIMARY KEY, v int, w int) WITH {ENABLED} AND tablets = 4")
    created(servers[0], cluster_session, "busy_v", "ON busy (v) INCLUDE (w)", "SELECT k, w FROM busy WHERE v = 1")
    writers = Writers(servers, "busy")
    writers.start()
    try:
        for turn in range(4):
            time.sleep(1)
            victim, other = servers[turn % 3], servers[(turn + 1) % 3]
            victim.process.kill()
            victim.process.wait()
            time.sleep(1)
            victim.start()
            time.sleep(1)
            other.process.send_signal(signal.SIGSTOP)
            time.sleep(1.5)
            other.process.send_signal(signal.SIGCONT)
        time.sleep(3)
        writers.wait_for(writes=50, reads=20, moves=20)
    finally:
        writers.stop()
    print(dict(writers.done))
    check_in_the_end(servers, writers)


def test_an_index_is_created_and_dropped_while_rows_are_written_and_read(servers, cluster_session):
    cluster_session.execute(f"CREATE TABLE late (k int PRIMARY KEY, v int, w int) WITH {ENABLED} AND tablets = 4")
    writers = Writers(servers, "late")
    writers.start()
    try:
        for again in (True, True, False):
            time.sleep(1)
            created(servers[0], cluster_session, "late_v", "ON late (v) INCLUDE (w)", "SELECT k, w FROM late WHERE v = 1")
            time.sleep(2)
            if again:
                cluster_session.execute("DROP INDEX late_v", timeout=READY_WITHIN_S)
        # What is being written does not look like a difference.
        found = compared(servers[0], "three.late_v.covering")
        assert found["missing"] == found.get("surplus", 0) == found["stale"] == 0 < found["right"], found
        writers.wait_for(writes=50, followed=20)
    finally:
        writers.stop()
    print(dict(writers.done))
    check_in_the_end(servers, writers)
