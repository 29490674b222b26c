"""Unique indexes with the unmodified Python driver: on one node, and on a cluster of three whose nodes are killed and paused.

Always checked: no two rows have the same values in the columns of a unique index, in no read and not in the end; what was acknowledged is there, unless a
later write of the same row has replaced it; a value is refused exactly if another row has it; a read by the index gives what a scan gives.

A row whose write has an unknown outcome (a timeout, a lost connection) is not written again: that write may still take effect."""

import collections
import itertools
import json
import os
import random
import re
import signal
import subprocess
import threading
import time
import urllib.request

import pytest
from cassandra import DriverException, InvalidRequest, OperationTimedOut, ReadTimeout, RequestExecutionException, Unavailable, WriteTimeout
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.policies import FallthroughRetryPolicy, WhiteListRoundRobinPolicy
from cassandra.protocol import ErrorMessage, OverloadedErrorMessage
from cassandra.query import BatchStatement

from conftest import READY_WITHIN_S, binary, cluster_of, write_all

DUPLICATE = "Execution Error. Duplicate value disallowed by unique index "
ENABLED = "transactions = {'enabled': true}"
# Nothing was done.
REFUSALS = (Unavailable, OverloadedErrorMessage)
# Whether something was done is not known.
UNKNOWN = (WriteTimeout, ReadTimeout, OperationTimedOut, NoHostAvailable, ConnectionException)
FAILURES = (RequestExecutionException, DriverException, NoHostAvailable, ErrorMessage, ConnectionException)


def session_at(address, request_timeout=READY_WITHIN_S):
    """A session at one node. The driver's time-out of a statement that changes the schema includes that it reads the schema again."""
    policy = WhiteListRoundRobinPolicy([address])
    profile = ExecutionProfile(load_balancing_policy=policy, retry_policy=FallthroughRetryPolicy(), request_timeout=request_timeout)
    cluster = Cluster([address], protocol_version=4, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
    try:
        return cluster, cluster.connect()
    except BaseException:
        cluster.shutdown()
        raise


def admin(server, *arguments):
    command = [str(binary()), "admin", *arguments, "--host", server.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=READY_WITHIN_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def once(what, look, is_so=bool):
    deadline = time.monotonic() + READY_WITHIN_S
    while not is_so(seen := look()):
        assert time.monotonic() < deadline, f"{what}: {seen!r}"
        time.sleep(0.1)
    return seen


def status(server, index):
    """What `diorite admin indexes` shows of an index, by its keyspace and name; `None`: there is none. Other modules have others of its name."""
    listed = json.loads(admin(server, "indexes", "--json"))["indexes"]
    return next((one for one in listed if f"{one['keyspace']}.{one['name']}" == index), None)


def created(server, session, index, on):
    """Creates a unique index, and waits until the rows that there are have been compared; returns why it was dropped, if two are alike."""
    answer = session.execute_async(f"CREATE UNIQUE INDEX {index} ON {on}", timeout=READY_WITHIN_S)
    try:
        answer.result()
    except InvalidRequest as error:
        return str(error)
    if answer.warnings:
        # The rows are compared for longer than the statement waits.
        assert "still being compared" in answer.warnings[0]
        seen = once("the rows are compared", lambda: status(server, f"{session.keyspace}.{index}"), lambda one: one and one["state"] in ("ready", "failed"))
        if seen["state"] == "failed":
            session.execute(f"DROP INDEX {index}")
            return f"{DUPLICATE}{index}: {seen['failure']}"
    return None


def refused(session, index, statement, *parameters):
    with pytest.raises(InvalidRequest) as error:
        session.execute(statement, *parameters)
    assert str(error.value) == f'Error from server: code=2200 [Invalid query] message="{DUPLICATE}{index}"'


def once_dropped(session, statement):
    """Carries out a write to a table one of whose indexes was dropped: it is refused until the tablet has dropped the index, too."""
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            return session.execute(statement)
        except OverloadedErrorMessage as error:
            assert time.monotonic() < deadline, error
            time.sleep(0.05)


@pytest.fixture(scope="module")
def session(server):
    cluster, session = session_at(server.address)
    session.execute("CREATE KEYSPACE IF NOT EXISTS alone WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.set_keyspace("alone")
    yield session
    cluster.shutdown()


def found(session, email):
    return [row.id for row in session.execute("SELECT id FROM person WHERE email = %s", (email,))]


@pytest.fixture(scope="module")
def people(session):
    session.execute(f"CREATE TABLE person (id int PRIMARY KEY, email text, name text, age int) WITH {ENABLED}")
    session.execute("CREATE UNIQUE INDEX by_email ON person (email)")
    session.execute("CREATE UNIQUE INDEX by_both ON person (name, age)")
    return session


def test_a_value_that_another_row_has_is_refused(people):
    insert = people.prepare("INSERT INTO person (id, email, name) VALUES (?, ?, ?)")
    people.execute(insert, (1, "ann@x", "Ann"))
    # The driver sends timestamps, which count for nothing in these columns.
    people.execute(insert, (2, "bob@x", "Bob"))
    refused(people, "by_email", insert, (3, "ann@x", "Cid"))
    refused(people, "by_email", "UPDATE person SET email = 'ann@x' WHERE id = 2")
    assert found(people, "ann@x") == [1] and found(people, "bob@x") == [2]
    assert people.execute("SELECT * FROM person WHERE id = 3").one() is None, "nothing of a refused write is there"
    # The row itself may have the value again.
    people.execute(insert, (1, "ann@x", "Anna"))
    # A value that has moved, and one that was deleted, is free.
    people.execute("UPDATE person SET email = 'anna@x' WHERE id = 1")
    people.execute(insert, (3, "ann@x", "Cid"))
    people.execute("DELETE FROM person WHERE id = 2")
    people.execute(insert, (4, "bob@x", "Dan"))
    people.execute("DELETE email FROM person WHERE id = 4")
    people.execute("UPDATE person SET email = 'bob@x' WHERE id = 3")
    assert found(people, "ann@x") == [] and found(people, "bob@x") == [3] and found(people, "anna@x") == [1]
    # Rows that lack a value are not compared.
    for id in (5, 6):
        people.execute(insert, (id, None, "Eve"))
    people.execute("INSERT INTO person (id, name, age) VALUES (7, 'Fay', 30)")
    people.execute("UPDATE person SET name = 'Fay' WHERE id = 5")
    refused(people, "by_both", "UPDATE person SET age = 30 WHERE id = 5")
    people.execute("UPDATE person SET age = 31 WHERE id = 5")


def test_conditional_writes_batches_and_blocks(people):
    people.execute("INSERT INTO person (id, email) VALUES (20, 'gus@x')")
    assert people.execute("INSERT INTO person (id, email) VALUES (21, 'hal@x') IF NOT EXISTS").was_applied
    # A condition that does not hold counts before a duplicate.
    assert not people.execute("INSERT INTO person (id, email) VALUES (21, 'gus@x') IF NOT EXISTS").was_applied
    refused(people, "by_email", "INSERT INTO person (id, email) VALUES (22, 'gus@x') IF NOT EXISTS")
    assert not people.execute("UPDATE person SET email = 'gus@x' WHERE id = 21 IF email = 'no'").was_applied
    refused(people, "by_email", "UPDATE person SET email = 'gus@x' WHERE id = 21 IF email = 'hal@x'")
    assert people.execute("UPDATE person SET email = 'ida@x' WHERE id = 21 IF email = 'hal@x'").was_applied
    batch = BatchStatement()
    insert = people.prepare("INSERT INTO person (id, email) VALUES (?, ?)")
    for id, email in ((23, "joe@x"), (24, "gus@x"), (25, "kim@x")):
        batch.add(insert, (id, email))
    refused(people, "by_email", batch)
    assert found(people, "joe@x") == found(people, "kim@x") == [], "a batch is refused as a whole"
    two = "BEGIN TRANSACTION INSERT INTO person (id, email) VALUES (23, %s); INSERT INTO person (id, email) VALUES (24, %s); END TRANSACTION;"
    refused(people, "by_email", two, ("joe@x", "joe@x"))
    people.execute(two, ("joe@x", "kim@x"))
    # What a block frees, it may give to another row: two rows exchange their values.
    exchange = "BEGIN TRANSACTION UPDATE person SET email = 'kim@x' WHERE id = 23; UPDATE person SET email = 'joe@x' WHERE id = 24; END TRANSACTION;"
    people.execute(exchange)
    assert found(people, "kim@x") == [23] and found(people, "joe@x") == [24]


def test_what_is_refused(people):
    for statement, why in {
        "INSERT INTO person (id, email) VALUES (90, 'z@x') USING TIMESTAMP 5": "USING TIMESTAMP is not supported",
        "DELETE FROM person USING TIMESTAMP 5 WHERE id = 1": "USING TIMESTAMP is not supported",
        "UPDATE person SET age = age + 1 WHERE id = 1": "arithmetic on column age",
        "ALTER TABLE person WITH transactions = {'enabled': false}": "needs the transactions of the table",
        "ALTER TABLE person DROP email": "dependent secondary indexes",
        "CREATE UNIQUE INDEX ON person (id)": "the only partition key column",
        "CREATE UNIQUE INDEX ON person (email) WHERE age > 3": "not supported yet",
    }.items():
        with pytest.raises(InvalidRequest, match=why):
            people.execute(statement)
    people.execute("CREATE TABLE plain (id int PRIMARY KEY, v int)")
    with pytest.raises(InvalidRequest, match="a unique index needs transactions"):
        people.execute("CREATE UNIQUE INDEX ON plain (v)")


def test_drivers_see_the_index_and_not_its_table(people):
    people.cluster.refresh_schema_metadata()
    keyspaces = people.cluster.metadata.keyspaces
    assert set(keyspaces["alone"].tables) >= {"person"} and not any("." in name for name in keyspaces["alone"].tables)
    indexes = keyspaces["alone"].tables["person"].indexes
    assert {name: (index.kind, dict(index.index_options)) for name, index in indexes.items()} == {
        "by_email": ("COMPOSITES", {"target": "email", "unique": "true"}),
        "by_both": ("COMPOSITES", {"target": "name, age", "unique": "true"}),
    }
    statement = "CREATE UNIQUE INDEX by_email ON alone.person (email);"
    assert [row.create_statement for row in people.execute("DESCRIBE INDEX alone.by_email")] == [statement]
    assert statement in [row.create_statement for row in people.execute("DESCRIBE TABLE person")]
    for keyspace in ("system", "system_schema"):
        for table in keyspaces[keyspace].tables:
            for row in people.execute(f'SELECT * FROM {keyspace}."{table}"'):
                assert not any(str(value).startswith("person.by_") for value in row), (keyspace, table, row)
    for statement in (
        'SELECT * FROM "person.by_email"',
        "INSERT INTO \"person.by_email\" (key, row) VALUES (0x00, 0x00)",
        'TRUNCATE "person.by_email"',
        'DROP TABLE "person.by_email"',
        "ALTER TABLE \"person.by_email\" WITH comment = 'x'",
        'CREATE INDEX ON "person.by_email" (row)',
        'DESCRIBE TABLE "person.by_email"',
    ):
        with pytest.raises(InvalidRequest):
            people.execute(statement)
    refused(people, "by_email", "INSERT INTO person (id, email) VALUES (91, 'kim@x')")


def insert_all(session, statement, rows):
    write_all(session, statement, rows, concurrency=32)


def test_rows_that_were_there_before_the_index(server, session):
    session.execute(f"CREATE TABLE early (id int PRIMARY KEY, v int) WITH {ENABLED} AND tablets = 4")
    insert_all(session, "INSERT INTO early (id, v) VALUES (?, ?)", [(n, n) for n in range(500)])
    assert created(server, session, "early_v", "early (v)") is None
    one = once("it is ready", lambda: status(server, "alone.early_v"), lambda one: one["state"] == "ready")
    assert (one["target"], one["tablets_complete"], one["failure"]) == ("unique v", 4, None)
    for n in range(0, 500, 7):
        refused(session, "early_v", f"INSERT INTO early (id, v) VALUES ({1000 + n}, {n})")
    session.execute("TRUNCATE early")
    session.execute("INSERT INTO early (id, v) VALUES (1, 3)")
    refused(session, "early_v", "INSERT INTO early (id, v) VALUES (2, 3)")
    session.execute("DROP TABLE early")
    assert status(server, "alone.early_v") is None
    session.execute(f"CREATE TABLE early (id int PRIMARY KEY, v int) WITH {ENABLED}")
    for n in range(2):
        session.execute(f"INSERT INTO early (id, v) VALUES ({n}, 3)")


def test_two_rows_that_were_alike_before_the_index_are_named(server, session):
    session.execute(f"CREATE TABLE alike (id int, c text, v text, PRIMARY KEY (id, c)) WITH {ENABLED} AND tablets = 4")
    insert_all(session, "INSERT INTO alike (id, c, v) VALUES (?, ?, ?)", [(n, "it's", f"v{n % 40}") for n in range(41)])
    why = created(server, session, "alike_v", "alike (v)")
    named = re.search(re.escape(f"{DUPLICATE}alike_v: ") + r"the rows \((\d+), 'it''s'\) and \((\d+), 'it''s'\) both have \('v0'\)", why or "")
    assert named and sorted(named.groups(), key=int) == ["0", "40"], why
    assert status(server, "alone.alike_v") is None
    assert list(session.execute("SELECT * FROM system_schema.indexes WHERE keyspace_name = 'alone' AND table_name = 'alike'")) == []
    once_dropped(session, "INSERT INTO alike (id, c, v) VALUES (50, 'it''s', 'v1')")
    once_dropped(session, "DELETE FROM alike WHERE id = 50")
    once_dropped(session, "UPDATE alike SET v = 'v40' WHERE id = 40 AND c = 'it''s'")
    assert created(server, session, "alike_v", "alike (v)") is None
    refused(session, "alike_v", "UPDATE alike SET v = 'v0' WHERE id = 40 AND c = 'it''s'")
    once("it is ready", lambda: status(server, "alone.alike_v"), lambda one: one["state"] == "ready")


def test_a_value_with_a_timestamp_in_the_future_fails_the_index(server, session):
    session.execute(f"CREATE TABLE ahead (id int PRIMARY KEY, v int) WITH {ENABLED}")
    session.execute("INSERT INTO ahead (id, v) VALUES (1, 1) USING TIMESTAMP 99999999999999999")
    why = created(server, session, "ahead_v", "ahead (v)")
    assert "the row (1): a column of a unique index has a value with a timestamp in the future" in (why or ""), why
    assert status(server, "alone.ahead_v") is None


def test_an_index_that_fails_after_its_statement_was_answered(server, session):
    session.execute(f"CREATE TABLE slow (id int PRIMARY KEY, v int, filler text) WITH {ENABLED} AND tablets = 4")
    rows = [(n, n, "x" * 8000) for n in range(3000)] + [(3000, 7, "y")]
    insert_all(session, "INSERT INTO slow (id, v, filler) VALUES (?, ?, ?)", rows)
    # So slow that the statement does not wait for the end.
    admin(server, "set-index-rate", "1MiB")
    try:
        answer = session.execute_async("CREATE UNIQUE INDEX slow_v ON slow (v)", timeout=READY_WITHIN_S)
        answer.result()
        assert answer.warnings and "still being compared for the unique index slow_v" in answer.warnings[0]
        assert status(server, "alone.slow_v")["state"] != "ready"
        # New rows are compared already.
        session.execute("INSERT INTO slow (id, v) VALUES (4000, 4000)")
        refused(session, "slow_v", "INSERT INTO slow (id, v) VALUES (4001, 4000)")
    finally:
        admin(server, "set-index-rate", "0")
    one = once("it has failed", lambda: status(server, "alone.slow_v"), lambda one: one["state"] == "failed")
    named = re.fullmatch(r"the rows \((\d+)\) and \((\d+)\) both have \(7\)", one["failure"])
    assert named and sorted(named.groups(), key=int) == ["7", "3000"] and one["tablets_complete"] < one["tablets"], one
    assert f"failed: alone.slow_v: {one['failure']}" in admin(server, "indexes")
    closer = json.loads(admin(server, "indexes", "alone.slow_v", "--json"))
    assert closer["failure"] == one["failure"] and closer["unanswered"] == []
    session.execute("DROP INDEX slow_v")
    once_dropped(session, "DELETE FROM slow WHERE id = 3000")
    assert created(server, session, "slow_v", "slow (v)") is None
    refused(session, "slow_v", "INSERT INTO slow (id, v) VALUES (3000, 7)")


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    if os.environ.get("DIORITE_TEST_ADDRESS"):
        pytest.skip("a cluster of its own is needed")
    servers = cluster_of(tmp_path_factory.mktemp("unique"))
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


class Unknown(Exception):
    """A write may have taken effect, or may do so later."""


class Writers:
    """Threads that each hold on to one node and write rows of their own, with values that others write too."""

    THREADS, ROWS = 6, 4

    def __init__(self, servers, table, index, values, is_unique):
        self.servers, self.table, self.index, self.values = servers, table, index, values
        # From the beginning: two rows are never alike.
        self.is_unique = is_unique
        self.stopped, self.lock = threading.Event(), threading.Lock()
        self.threads, self.wrong, self.done = [], [], collections.Counter()
        # The values that each row may have; `None`: no value.
        self.possible = {}
        # Rows that are not written again may keep their values: for each there is one more.
        self.retired = 0

    def all_values(self):
        return range(self.values + self.retired)

    def start(self):
        for number in range(self.THREADS):
            rows = itertools.count(number, self.THREADS)
            mine = [next(rows) for _ in range(self.ROWS)]
            dice = random.Random(number)
            self.begin(number, lambda session, dice=dice, mine=mine, rows=rows: self.write(session, dice, mine, rows))
        for number in range(2):
            self.begin(number, self.read)

    def begin(self, number, action):
        thread = threading.Thread(target=self.run, args=(self.servers[number % len(self.servers)].address, action))
        self.threads.append(thread)
        thread.start()

    def wait_for(self, **counts):
        """Waits until everything has been done more often than that, or something is wrong; then it may end."""
        is_enough = lambda done: self.wrong or all(done[what] > count for what, count in counts.items())
        once("enough is done", lambda: self.done.copy(), is_enough)

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()

    def run(self, address, action):
        while not self.stopped.is_set():
            try:
                cluster, session = session_at(address, request_timeout=15)
            except FAILURES:
                # The node is down.
                time.sleep(0.1)
                continue
            try:
                session.set_keyspace("three")
                while not self.stopped.is_set():
                    action(session)
            except Unknown:
                pass
            except UNKNOWN:
                # Of a read, or of USE.
                pass
            except REFUSALS:
                time.sleep(0.05)
            except Exception as error:
                self.wrong.append(error)
                return
            finally:
                cluster.shutdown()

    def planned(self, dice, mine):
        """An action with its statement and the values that rows have afterwards."""
        (row, other), table = dice.sample(mine, 2), self.table
        [known] = self.possible.setdefault(row, {None})
        self.possible.setdefault(other, {None})
        value = dice.randrange(self.values + self.retired)
        insert = f"INSERT INTO {table} (k, v) VALUES ({row}, {value})"
        actions = [("insert", insert, {row: value})] * 4
        actions.append(("update", f"UPDATE {table} SET v = {value}, w = {value} WHERE k = {row}", {row: value}))
        actions.append(("if not exists", f"{insert} IF NOT EXISTS", {row: value}))
        actions.append(("delete", f"DELETE FROM {table} WHERE k = {row}", {row: None}))
        actions.append(("clear", f"DELETE v FROM {table} WHERE k = {row}", {row: None}))
        if known is not None:
            moved = f"UPDATE {table} SET v = null WHERE k = {row}; INSERT INTO {table} (k, v) VALUES ({other}, {known});"
            actions.append(("move", f"BEGIN TRANSACTION {moved} END TRANSACTION;", {row: None, other: known}))
            actions.append(("again", f"INSERT INTO {table} (k, v) VALUES ({row}, {known})", {row: known}))
        return dice.choice(actions)

    def write(self, session, dice, mine, rows):
        action, statement, after = self.planned(dice, mine)
        try:
            answer = session.execute(statement)
        except InvalidRequest as error:
            # No other row can have what the row itself has.
            is_duplicate = str(error).endswith(f'"{DUPLICATE}{self.index}"')
            if not is_duplicate or (self.is_unique and action in ("move", "again", "delete", "clear")):
                self.wrong.append((statement, error))
            self.done["duplicates"] += 1
            return
        except REFUSALS:
            self.done["refusals"] += 1
            time.sleep(0.02)
            return
        except UNKNOWN:
            with self.lock:
                for row, value in after.items():
                    self.possible[row].add(value)
                    mine[mine.index(row)] = next(rows)
                self.retired += len(after)
            raise Unknown() from None
        if action != "if not exists" or answer.was_applied:
            self.possible.update({row: {value} for row, value in after.items()})
        self.done[action] += 1

    def read(self, session):
        values = ", ".join(map(str, self.all_values()))
        for by in ("", f" WHERE v IN ({values})") if self.is_unique else ("",):
            rows = list(session.execute(f"SELECT k, v FROM {self.table}{by}"))
            if self.is_unique and alike(rows):
                self.wrong.append(f"alike: {alike(rows)}, read with {by!r}")
            self.done["reads"] += 1
        time.sleep(0.01)


def alike(rows):
    """The values that several rows have."""
    counted = collections.Counter(row.v for row in rows if row.v is not None)
    return [value for value, rows in counted.items() if rows > 1]


def settled(servers, statement):
    """The rows of a statement that is repeated until the cluster has recovered; or the error, if it is refused."""
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        cluster = None
        try:
            cluster, session = session_at(servers[0].address, request_timeout=15)
            session.set_keyspace("three")
            return list(session.execute(statement))
        except InvalidRequest as error:
            return error
        except FAILURES as error:
            assert time.monotonic() < deadline, error
            time.sleep(0.2)
        finally:
            if cluster is not None:
                cluster.shutdown()


def prepared(server):
    """How many transactions are prepared in the replicas of a node."""
    with urllib.request.urlopen(f"http://{server.address}:7000/metrics", timeout=READY_WITHIN_S) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if re.match(r"diorite_transactions_prepared[ {]", line))


def compared(server, name):
    """What a comparison of a unique index or a view with its table has found, which has to be right."""
    report = json.loads(admin(server, "check-index", name, "--json"))
    found = report["total"]
    assert found["entries"] == sum(found.get(part, 0) for part in ["right", "stale", "surplus", "of_other_tablets", "unreadable"]), report
    assert any(tablet.get("of_entries") for tablet in report["tablets"]) and not all(tablet.get("of_entries") for tablet in report["tablets"]), report
    return found


def check_in_the_end(servers, writers):
    assert writers.wrong == [], writers.wrong[:5]
    once("all transactions have ended", lambda: [prepared(server) for server in servers], lambda counts: not any(counts))
    rows = settled(servers, f"SELECT k, v FROM {writers.table}")
    assert alike(rows) == []
    seen = {row.k: row.v for row in rows}
    assert seen.keys() <= writers.possible.keys()
    lost = {row: (values, seen.get(row)) for row, values in writers.possible.items() if seen.get(row) not in values}
    assert lost == {}, "rows, the values that they may have, and what they have"
    held = {value for value in seen.values() if value is not None}
    assert held <= set(writers.all_values())
    values = ", ".join(map(str, writers.all_values()))
    by_index = settled(servers, f"SELECT k, v FROM {writers.table} WHERE v IN ({values})")
    assert {row.k: row.v for row in by_index} == {row: value for row, value in seen.items() if value is not None}
    # Each value has an entry in the local index and one in the hidden table.
    found = compared(servers[0], f"three.{writers.table}_v")
    assert (found["values"], found["missing"], found["unreadable"]) == (2 * len(by_index), 0, 0), found
    # Exactly what a row has is refused to others.
    probe = 1_000_000
    tried = list(writers.all_values())[:100] + sorted(held)
    for value in dict.fromkeys(tried):
        outcome = settled(servers, f"INSERT INTO {writers.table} (k, v) VALUES ({probe + value}, {value})")
        is_refused = isinstance(outcome, InvalidRequest)
        assert is_refused == (value in held), (value, outcome)
        assert not is_refused or f"{DUPLICATE}{writers.index}" in str(outcome), outcome


def test_no_two_rows_are_alike_while_nodes_are_killed_and_paused(servers, cluster_session):
    cluster_session.execute(f"CREATE TABLE busy (k int PRIMARY KEY, v int, w int) WITH {ENABLED} AND tablets = 4")
    assert created(servers[0], cluster_session, "busy_v", "busy (v)") is None
    writers = Writers(servers, "busy", "busy_v", values=12, is_unique=True)
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
        writers.wait_for(insert=20, duplicates=20, reads=20)
    finally:
        writers.stop()
    print(dict(writers.done), f"{writers.retired} rows with unknown outcomes")
    check_in_the_end(servers, writers)


def test_an_index_is_created_while_rows_are_written(servers, cluster_session):
    cluster_session.execute(f"CREATE TABLE late (k int PRIMARY KEY, v int, w int) WITH {ENABLED} AND tablets = 4")
    writers = Writers(servers, "late", "late_v", values=300, is_unique=False)
    writers.start()
    failures = []
    try:
        for again in (True, True, False):
            time.sleep(1)
            # Two of the few rows are sometimes alike.
            while why := created(servers[0], cluster_session, "late_v", "late (v)"):
                failures.append(why)
                assert f"{DUPLICATE}late_v: the rows (" in why and len(failures) < 100, why
            time.sleep(1)
            if again:
                cluster_session.execute("DROP INDEX late_v")
    finally:
        writers.stop()
    print(dict(writers.done), f"{len(failures)} times two rows were alike")
    check_in_the_end(servers, writers)
    assert status(servers[0], "three.late_v")["state"] == "ready"
