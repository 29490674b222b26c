"""Materialized views with the unmodified Python driver: on one node, and on a cluster of three whose nodes are killed and paused.

Always checked: a view shows each row of its table at most once, in every read; a write that was answered is in the view; in the end, and whenever nothing
is written, the view has exactly what follows from the rows of its table."""

import contextlib
import os
import random
import signal
import threading
import time

import pytest
from cassandra import InvalidRequest

from conftest import READY_WITHIN_S, cluster_of, while_it_lives
import test_unique as unique
from test_unique import ENABLED, compared, insert_all, once, prepared, session_at, settled, status


def created(server, session, view, definition):
    """Creates a view, and waits until the rows that there are have been added."""
    answer = session.execute_async(f"CREATE MATERIALIZED VIEW {view} AS {definition}", timeout=READY_WITHIN_S)
    answer.result()
    if answer.warnings:
        assert f"are still being added to the materialized view {view}" in answer.warnings[0], answer.warnings
    once("the view is complete", lambda: status(server, f"{session.keyspace}.{view}"), lambda one: one and one["state"] == "ready")


def shown(session, columns, table):
    return sorted(tuple(row) for row in session.execute(f"SELECT {columns} FROM {table}"))


@pytest.fixture(scope="module")
def session(server):
    cluster, session = session_at(server.address)
    session.execute("CREATE KEYSPACE IF NOT EXISTS seen WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.set_keyspace("seen")
    yield session
    cluster.shutdown()


@pytest.fixture(scope="module")
def people(server, session):
    session.execute(f"CREATE TABLE people (id int PRIMARY KEY, city text, age int, tags set<text>, note text) WITH {ENABLED}")
    definition = "SELECT id, city, age, tags FROM people WHERE city IS NOT NULL AND id IS NOT NULL PRIMARY KEY (city, id) WITH CLUSTERING ORDER BY (id DESC)"
    created(server, session, "by_city", definition)
    return session


def in_city(session, city):
    return [row.id for row in session.execute("SELECT id FROM by_city WHERE city = %s", (city,))]


def test_a_view_follows_its_table(people):
    insert = people.prepare("INSERT INTO people (id, city, age) VALUES (?, ?, ?)")
    for row in ((1, "Bern", 30), (2, "Bern", 40), (3, "Rome", 50), (4, None, 60)):
        people.execute(insert, row)
    assert in_city(people, "Bern") == [2, 1] and in_city(people, "Rome") == [3]
    people.execute("UPDATE people SET city = 'Rome' WHERE id = 1")
    people.execute("UPDATE people SET tags = tags + {'x', 'y'}, age = 31 WHERE id = 1")
    assert in_city(people, "Bern") == [2] and in_city(people, "Rome") == [3, 1]
    row = people.execute("SELECT * FROM by_city WHERE city = 'Rome' AND id = 1").one()
    assert (row.age, row.tags) == (31, {"x", "y"}) and not hasattr(row, "note")
    people.execute("DELETE city FROM people WHERE id = 3")
    people.execute("UPDATE people SET city = 'Oslo' WHERE id = 4")
    people.execute("DELETE FROM people WHERE id = 2")
    assert in_city(people, "Bern") == [] and in_city(people, "Rome") == [1] and in_city(people, "Oslo") == [4]
    assert not people.execute("UPDATE people SET city = 'Bern' WHERE id = 1 IF age = 99").was_applied
    assert people.execute("UPDATE people SET city = 'Bern' WHERE id = 1 IF age = 31").was_applied
    block = "BEGIN TRANSACTION UPDATE people SET city = 'Oslo' WHERE id = 1; UPDATE people SET city = 'Bern' WHERE id = 4; END TRANSACTION;"
    people.execute(block)
    assert in_city(people, "Bern") == [4] and in_city(people, "Oslo") == [1]
    people.execute("TRUNCATE people")
    assert shown(people, "*", "by_city") == []
    people.execute(insert, (1, "Bern", 30))
    assert in_city(people, "Bern") == [1]


def test_a_row_of_a_view_expires_with_the_value_in_its_key(people):
    people.execute("INSERT INTO people (id, city, age) VALUES (70, 'Lyon', 1)")

    def look():
        left = people.execute("SELECT ttl(age) AS left FROM by_city WHERE city = 'Nice' AND id = 70")
        return in_city(people, "Nice"), in_city(people, "Lyon"), [row.left for row in left]

    ttl, (nice, lyon, left) = while_it_lives(lambda ttl: people.execute(f"UPDATE people USING TTL {ttl} SET city = 'Nice' WHERE id = 70"), look)
    assert (nice, lyon, len(left)) == ([70], [], 1) and 1 <= left[0] <= ttl, (nice, lyon, left)
    once("the row has expired", lambda: in_city(people, "Nice"), lambda ids: ids == [])
    assert people.execute("SELECT age FROM people WHERE id = 70").one().age == 1


def test_what_is_refused(people):
    for statement, why in {
        "INSERT INTO by_city (city, id) VALUES ('x', 1)": "Cannot directly modify a materialized view",
        "UPDATE by_city SET age = 1 WHERE city = 'x' AND id = 1": "Cannot directly modify a materialized view",
        "DELETE FROM by_city WHERE city = 'x'": "Cannot directly modify a materialized view",
        "TRUNCATE by_city": "Cannot TRUNCATE materialized view directly",
        "DROP TABLE by_city": "Please use DROP MATERIALIZED VIEW instead",
        "DROP TABLE people": "materialized views still depend on it",
        "ALTER TABLE by_city ADD x int": "use ALTER MATERIALIZED VIEW instead",
        "ALTER TABLE people DROP note": "with materialized views",
        "ALTER TABLE people WITH transactions = {'enabled': false}": "transactions",
        "CREATE INDEX ON by_city (age)": "Secondary indexes on materialized views aren't supported",
        "INSERT INTO people (id, city) VALUES (1, 'x') USING TIMESTAMP 5": "USING TIMESTAMP is not supported",
        "DELETE FROM people USING TIMESTAMP 5 WHERE id = 1": "USING TIMESTAMP is not supported",
    }.items():
        with pytest.raises(InvalidRequest, match=why):
            people.execute(statement)
    people.execute("CREATE TABLE plain (id int PRIMARY KEY, v int)")
    with pytest.raises(InvalidRequest, match="needs transactions"):
        people.execute("CREATE MATERIALIZED VIEW pv AS SELECT * FROM plain WHERE v IS NOT NULL AND id IS NOT NULL PRIMARY KEY (v, id)")


def test_drivers_see_views(server, people):
    people.cluster.refresh_schema_metadata()
    keyspace = people.cluster.metadata.keyspaces["seen"]
    assert "by_city" not in keyspace.tables and "by_city" in keyspace.views
    view = keyspace.views["by_city"]
    assert view.base_table_name == "people" and list(view.columns) == ["city", "id", "age", "tags"]
    assert [column.name for column in view.partition_key] == ["city"] and [column.name for column in view.clustering_key] == ["id"]
    assert "by_city" in keyspace.tables["people"].views
    for statement in ("DESCRIBE MATERIALIZED VIEW by_city", "DESCRIBE by_city", "DESCRIBE TABLE people", "DESCRIBE KEYSPACE seen"):
        texts = [row.create_statement for row in people.execute(statement)]
        assert any(text.startswith("CREATE MATERIALIZED VIEW seen.by_city AS") for text in texts), (statement, texts)
    # What is described can be carried out.
    [text] = [row.create_statement for row in people.execute("DESCRIBE MATERIALIZED VIEW by_city")]
    before = shown(people, "*", "by_city")
    people.execute("DROP MATERIALIZED VIEW by_city")
    with pytest.raises(InvalidRequest):
        people.execute("SELECT * FROM by_city")
    people.execute(text, timeout=READY_WITHIN_S)
    # The statement waits for five seconds at most.
    once("the view is complete", lambda: status(server, "seen.by_city"), lambda one: one and one["state"] == "ready")
    assert shown(people, "*", "by_city") == before
    plan = [row[0] for row in people.execute("EXPLAIN UPDATE people SET city = 'x' WHERE id = 1")]
    assert any("with the materialized views (by_city)" in line for line in plan), plan


def test_rows_that_were_there_before_the_view(server, session):
    session.execute(f"CREATE TABLE early (id int, c int, v int, w text, PRIMARY KEY (id, c)) WITH {ENABLED} AND tablets = 4")
    insert_all(session, "INSERT INTO early (id, c, v, w) VALUES (?, ?, ?, ?)", [(n % 100, n, n % 17 or None, f"w{n}") for n in range(800)])
    created(server, session, "early_v", "SELECT v, id, c, w FROM early WHERE id IS NOT NULL AND c IS NOT NULL AND v IS NOT NULL PRIMARY KEY (v, id, c)")
    expected = sorted(tuple(row) for row in session.execute("SELECT v, id, c, w FROM early") if row.v is not None)
    assert len(expected) == 800 - len(range(0, 800, 17))
    assert shown(session, "v, id, c, w", "early_v") == expected
    one = status(server, "seen.early_v")
    assert (one["table"], one["target"], one["tablets_complete"], one["failure"]) == ("early", "materialized view", 4, None)
    # A partition is deleted with its rows in the view.
    session.execute("DELETE FROM early WHERE id = 3")
    session.execute("DELETE FROM early WHERE id = 4 AND c > 300")
    expected = sorted(tuple(row) for row in session.execute("SELECT v, id, c, w FROM early") if row.v is not None)
    assert shown(session, "v, id, c, w", "early_v") == expected
    session.execute("DROP MATERIALIZED VIEW early_v")
    assert status(server, "seen.early_v") is None


def test_a_row_that_cannot_be_in_a_view_fails_it(server, session):
    session.execute(f"CREATE TABLE wide (id int PRIMARY KEY, v text) WITH {ENABLED}")
    session.execute("INSERT INTO wide (id, v) VALUES (7, %s)", ("x" * 70_000,))
    with pytest.raises(InvalidRequest, match=r"the row \(7\)"):
        for _ in range(5):
            answer = session.execute_async("CREATE MATERIALIZED VIEW wide_v AS SELECT * FROM wide WHERE v IS NOT NULL AND id IS NOT NULL PRIMARY KEY (v, id)")
            answer.result()
            # It took longer than the five seconds for which the statement waits.
            assert answer.warnings and "are still being added" in answer.warnings[0], answer.warnings
            session.execute("DROP MATERIALIZED VIEW wide_v")
    assert status(server, "seen.wide_v") is None
    # The tablet has forgotten the view by then.
    session.execute("DELETE FROM wide WHERE id = 7")
    created(server, session, "wide_v", "SELECT * FROM wide WHERE v IS NOT NULL AND id IS NOT NULL PRIMARY KEY (v, id)")


def test_writes_go_on_when_a_view_or_a_unique_index_was_dropped(server, session):
    session.execute(f"CREATE TABLE brief (k int PRIMARY KEY, v int) WITH {ENABLED} AND tablets = 4")
    for n in range(6):
        created(server, session, "brief_v", "SELECT * FROM brief WHERE v IS NOT NULL AND k IS NOT NULL PRIMARY KEY (v, k)")
        session.execute("DROP MATERIALIZED VIEW brief_v")
        session.execute(f"INSERT INTO brief (k, v) VALUES ({n}, {n})")
        assert unique.created(server, session, "brief_u", "brief (v)") is None
        session.execute("DROP INDEX brief_u")
        session.execute(f"UPDATE brief SET v = {100 + n} WHERE k = {n}")


def test_no_write_is_refused_while_views_and_unique_indexes_come_and_go(server, session):
    """The session's retry policy repeats nothing. Prepared writes of single rows take the short way, others do not."""
    session.execute(f"CREATE TABLE busy (k int PRIMARY KEY, v int) WITH {ENABLED} AND tablets = 4")
    insert, failures, has_ended, written = session.prepare("INSERT INTO busy (k, v) VALUES (?, ?)"), [], threading.Event(), [0, 0]
    batch = "BEGIN BATCH INSERT INTO busy (k, v) VALUES ({0}, {0}); INSERT INTO busy (k, v) VALUES ({1}, {1}); APPLY BATCH"

    def write(number):
        # Each row has values of its own, so that no unique index is in the way.
        k = 1_000_000 * (1 + number)
        while not has_ended.is_set() and not failures:
            k += 2
            try:
                session.execute(insert, (k, k)) if number == 0 else session.execute(batch.format(k, k + 1))
                written[number] += 1
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(4):
            created(server, session, "busy_v", "SELECT * FROM busy WHERE v IS NOT NULL AND k IS NOT NULL PRIMARY KEY (v, k)")
            session.execute("DROP MATERIALIZED VIEW busy_v")
            assert unique.created(server, session, "busy_u", "busy (v)") is None
            session.execute("DROP INDEX busy_u")
    finally:
        has_ended.set()
        for thread in threads:
            thread.join()
    assert failures == [] and all(written), (failures, written)


def test_views_of_all_columns_get_those_that_their_table_gets(server, session):
    session.execute(f"CREATE TABLE grown (id int PRIMARY KEY, v int, w text) WITH {ENABLED}")
    key = "WHERE v IS NOT NULL AND id IS NOT NULL PRIMARY KEY (v, id)"
    created(server, session, "grown_v", f"SELECT * FROM grown {key}")
    created(server, session, "grown_few", f"SELECT id, v FROM grown {key}")
    insert = session.prepare("INSERT INTO grown (id, v, w) VALUES (?, ?, ?)")
    of_view = session.prepare("SELECT * FROM grown_v WHERE v = ? AND id = ?")
    session.execute(insert, (1, 10, "a"))
    assert tuple(session.execute(of_view, (10, 1)).one()) == (10, 1, "a")
    session.execute("ALTER TABLE grown ADD (x int, m map<int, text>)")
    # The driver was told that the table and the view have changed.
    columns = lambda view: list(session.cluster.metadata.keyspaces["seen"].views[view].columns)
    once("the driver knows the columns", lambda: columns("grown_v"), lambda names: names == ["v", "id", "m", "w", "x"])
    assert columns("grown_few") == ["v", "id"]
    assert session.execute("SELECT include_all_columns FROM system_schema.views WHERE keyspace_name = 'seen' AND view_name = 'grown_v'").one().include_all_columns
    session.execute("UPDATE grown SET x = 5, m = {1: 'one'} WHERE id = 1")
    session.execute(insert, (2, 20, "b"))
    rows = {row.id: (row.v, row.w, row.x, row.m) for row in session.execute("SELECT v, id, w, x, m FROM grown_v")}
    assert rows == {1: (10, "a", 5, {1: "one"}), 2: (20, "b", None, None)}
    # A statement that was prepared before, and moves the row.
    session.execute(insert, (1, 11, "c"))
    row = session.execute(of_view, (11, 1)).one()
    assert (row.w, row.x, row.m) == ("c", 5, {1: "one"}) and not list(session.execute(of_view, (10, 1)))
    text = session.execute("DESCRIBE MATERIALIZED VIEW grown_v").one().create_statement
    assert "SELECT *" in text, text
    found = compared(server, "seen.grown_v")
    assert [found[part] for part in ("values", "entries", "right")] == [2, 2, 2], found
    with pytest.raises(InvalidRequest, match="with materialized views"):
        session.execute("ALTER TABLE grown DROP x")


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    if os.environ.get("DIORITE_TEST_ADDRESS"):
        pytest.skip("a cluster of its own is needed")
    servers = cluster_of(tmp_path_factory.mktemp("views"))
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
    """Threads that write few rows, all of them the same ones, and threads that read the view."""

    THREADS, ROWS, VALUES = 6, 12, 5

    def __init__(self, servers, table, view):
        super().__init__(servers, table, view, self.VALUES, is_unique=False)
        self.view, self.has_view, self.reading, self.changed = view, False, 0, threading.Condition()

    @contextlib.contextmanager
    def reading_view(self):
        """Yields whether the view may be read; `end_reading` waits until it has been."""
        with self.changed:
            reads = self.has_view
            self.reading += reads
        try:
            yield reads
        finally:
            with self.changed:
                self.reading -= reads
                self.changed.notify_all()

    def begin_reading(self):
        with self.changed:
            self.has_view = True

    def end_reading(self):
        """Waits for the reads that have begun; no other one begins, so that the view can be dropped."""
        with self.changed:
            self.has_view = False
            self.changed.wait_for(lambda: self.reading == 0)

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
            f"INSERT INTO {table} (k, v) VALUES ({k}, {v})",
            f"UPDATE {table} SET v = {v} WHERE k = {k}",
            f"UPDATE {table} SET w = {w} WHERE k = {k}",
            f"UPDATE {table} SET v = {v}, l = l + [{w}] WHERE k = {k} IF w > 500",
            f"UPDATE {table} SET l = [{w}, {v}] WHERE k = {k}",
            f"DELETE v FROM {table} WHERE k = {k}",
            f"DELETE FROM {table} WHERE k = {k}",
            f"INSERT INTO {table} (k, v, w) VALUES ({k}, {v}, {w}) USING TTL 2",
            f"BEGIN BATCH DELETE FROM {table} WHERE k = {k}; INSERT INTO {table} (k, v, w) VALUES ({other}, {v}, {w}); APPLY BATCH",
            f"BEGIN TRANSACTION UPDATE {table} SET v = {v} WHERE k = {k}; UPDATE {table} SET v = {v}, w = {w} WHERE k = {other}; END TRANSACTION;",
        ])
        session.execute(statement)
        self.done["writes"] += 1

    def read(self, session):
        with self.reading_view() as has_view:
            if has_view:
                keys = [row.k for row in session.execute(f"SELECT k, v FROM {self.view}")]
                if len(keys) > len(set(keys)):
                    self.wrong.append(f"a row is twice in the view: {sorted(keys)}")
                self.done["reads"] += 1
        time.sleep(0.01)

    def follow(self, session):
        # A row whose write has an unknown outcome is not written again.
        self.done["followed"] += 1
        k, v = 1_000 + self.done["followed"], random.randrange(self.VALUES)
        session.execute(f"INSERT INTO {self.table} (k, v, w) VALUES ({k}, {v}, 1)")
        self.check(session, k, v, [1])
        session.execute(f"UPDATE {self.table} SET v = {v + 1} WHERE k = {k}")
        self.check(session, k, v, [])
        self.check(session, k, v + 1, [1])
        self.done["moves"] += 1

    def check(self, session, k, v, expected):
        with self.reading_view() as has_view:
            if not has_view:
                return
            found = [row.w for row in session.execute(f"SELECT w FROM {self.view} WHERE v = {v} AND k = {k}")]
            if found != expected:
                self.wrong.append(f"row {k} under {v}: the view has {found} and not {expected}")


def check_in_the_end(servers, writers):
    assert writers.wrong == [], writers.wrong[:5]
    once("all transactions have ended", lambda: [prepared(server) for server in servers], lambda counts: not any(counts))
    # What has a TTL expires.
    time.sleep(3)
    expected, found = sorted_rows(servers, writers.table), sorted_rows(servers, writers.view)
    assert found == expected and len(found) > 20
    counted = compared(servers[0], f"three.{writers.view}")
    assert [counted[part] for part in ("values", "entries", "right")] == 3 * [len(found)], counted


def sorted_rows(servers, table):
    rows = [(row.v, row.k, row.w, tuple(row.l or ())) for row in settled(servers, f"SELECT v, k, w, l FROM {table}") if row.v is not None]
    return sorted(rows, key=lambda row: row[:2])


DEFINITION = "SELECT v, k, w, l FROM {} WHERE v IS NOT NULL AND k IS NOT NULL PRIMARY KEY (v, k)"


def test_a_view_is_right_while_nodes_are_killed_and_paused(servers, cluster_session):
    cluster_session.execute(f"CREATE TABLE busy (k int PRIMARY KEY, v int, w int, l list<int>) WITH {ENABLED} AND tablets = 4")
    created(servers[0], cluster_session, "busy_v", DEFINITION.format("busy"))
    writers = Writers(servers, "busy", "busy_v")
    writers.begin_reading()
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


def test_a_view_is_created_while_rows_are_written(servers, cluster_session):
    cluster_session.execute(f"CREATE TABLE late (k int PRIMARY KEY, v int, w int, l list<int>) WITH {ENABLED} AND tablets = 4")
    writers = Writers(servers, "late", "late_v")
    writers.start()
    try:
        for again in (True, True, False):
            time.sleep(1)
            created(servers[0], cluster_session, "late_v", DEFINITION.format("late"))
            writers.begin_reading()
            time.sleep(1)
            if again:
                writers.end_reading()
                cluster_session.execute("DROP MATERIALIZED VIEW late_v")
        # What is being written does not look like a difference.
        found = compared(servers[0], "three.late_v")
        assert found["missing"] == found.get("surplus", 0) == found["stale"] == 0 < found["right"], found
        writers.wait_for(writes=50, followed=20)
    finally:
        writers.stop()
    print(dict(writers.done))
    check_in_the_end(servers, writers)


def test_columns_are_added_while_rows_are_written(servers, cluster_session):
    cluster_session.execute(f"CREATE TABLE grows (k int PRIMARY KEY, v int, w int, l list<int>) WITH {ENABLED} AND tablets = 4")
    created(servers[0], cluster_session, "grows_v", "SELECT * FROM grows WHERE v IS NOT NULL AND k IS NOT NULL PRIMARY KEY (v, k)")
    writers = Writers(servers, "grows", "grows_v")
    writers.begin_reading()
    writers.start()
    names = ["x0", "x1", "x2"]
    try:
        for number, name in enumerate(names):
            time.sleep(1)
            # It is answered once all nodes know the column.
            cluster_session.execute(f"ALTER TABLE grows ADD {name} int")
            dice = random.Random(number)

            def write(session, name=name, dice=dice):
                session.execute(f"UPDATE grows SET {name} = {dice.randrange(1000)} WHERE k = {dice.randrange(Writers.ROWS)}")
                writers.done[name] += 1

            writers.begin(number, write)
        writers.wait_for(writes=50, moves=20, **dict.fromkeys(names, 20))
    finally:
        writers.stop()
    print(dict(writers.done))
    check_in_the_end(servers, writers)
    of_table, of_view = (with_value(servers, f"SELECT v, k, {', '.join(names)} FROM {table}") for table in ("grows", "grows_v"))
    assert of_table == of_view and any(value is not None for row in of_table for value in row[2:]), (of_table, of_view)


def with_value(servers, statement):
    rows = [tuple(row) for row in settled(servers, statement) if row.v is not None]
    return sorted(rows, key=lambda row: row[:2])
