"""What a driver is told when too few replicas answer: the kind of the error, the level that was asked for, and true numbers of replicas. Two of three nodes are stopped in the middle of
a write (SIGSTOP: they neither answer nor refuse)."""

import contextlib
import json
import os
import signal
import time
import urllib.request

import pytest
from cassandra import ConsistencyLevel, OperationTimedOut, ReadTimeout, Unavailable, WriteTimeout
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import FallthroughRetryPolicy, WhiteListRoundRobinPolicy
from cassandra.query import BatchStatement, BatchType, SimpleStatement
from conftest import cluster_of

if os.environ.get("DIORITE_TEST_ADDRESS"):
    pytest.skip("a cluster of its own is needed", allow_module_level=True)

WITHIN_S = 240
SIMPLE, BATCH, UNLOGGED, COUNTER, CAS = 0, 1, 2, 3, 5


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    servers = cluster_of(tmp_path_factory.mktemp("paused"))
    with session_at(servers[0]) as session:
        session.execute("CREATE KEYSPACE ks")
        session.execute("CREATE TABLE ks.t (k int PRIMARY KEY, v int) WITH tablets = 1")
        session.execute("CREATE TABLE ks.n (k int PRIMARY KEY, v counter) WITH tablets = 1")
        works_again(session, "INSERT INTO ks.t (k, v) VALUES (1, 1)")
    yield servers
    for server in servers:
        server.process.send_signal(signal.SIGCONT)
        server.stop()


@contextlib.contextmanager
def session_at(server, level=ConsistencyLevel.QUORUM):
    """A session that reaches one node only and does not try anything twice."""
    profile = ExecutionProfile(
        request_timeout=30,
        consistency_level=level,
        serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
        retry_policy=FallthroughRetryPolicy(),
        load_balancing_policy=WhiteListRoundRobinPolicy([server.address]),
    )
    cluster = Cluster([server.address], protocol_version=4, execution_profiles={EXEC_PROFILE_DEFAULT: profile}, idle_heartbeat_interval=0)
    try:
        yield cluster.connect()
    finally:
        cluster.shutdown()


def ask(server, path):
    with urllib.request.urlopen(f"http://{server.address}:7000{path}", timeout=30) as answer:
        return json.loads(answer.read())


def wait_for(what, look, is_so):
    deadline = time.monotonic() + WITHIN_S
    while True:
        seen = look()
        if is_so(seen):
            return seen
        assert time.monotonic() < deadline, f"{what}: {seen}"
        time.sleep(0.1)


def leaders_of(servers):
    """The addresses of the nodes that lead the tables, which have one tablet each."""
    nodes = {node["node"]: node["cql_address"].rsplit(":", 1)[0] for node in ask(servers[0], "/api/v1/nodes")}

    def leaders():
        tablets = ask(servers[0], "/api/v1/tablets")["tablets"]
        return {tablet["table"]: nodes.get(tablet["leader"]) for tablet in tablets if tablet["keyspace"] == "ks"}

    return wait_for("two leaders", leaders, lambda seen: len(seen) == 2 and None not in seen.values())


@contextlib.contextmanager
def paused(*servers):
    for server in servers:
        server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for server in servers:
            server.process.send_signal(signal.SIGCONT)


def failure(future):
    try:
        return future.result()
    except Exception as error:  # noqa: BLE001 - the kind is what is looked at
        return error


def at(servers, address):
    return next(server for server in servers if server.address == address)


def works_again(session, statement):
    def tried():
        try:
            return list(session.execute(statement))
        except (Unavailable, WriteTimeout, ReadTimeout, OperationTimedOut, NoHostAvailable) as error:
            return error

    return wait_for("the cluster works again", tried, lambda seen: isinstance(seen, list))


def statements_of(session, table):
    """Writes of every kind, with the type that a timeout of each is to have."""
    if table == "n":
        return [(COUNTER, "UPDATE ks.n SET v = v + 1 WHERE k = 1")]
    statement = "INSERT INTO ks.t (k, v) VALUES (2, 2)"
    logged, unlogged = BatchStatement(BatchType.LOGGED), BatchStatement(BatchType.UNLOGGED)
    logged.add(SimpleStatement(statement))
    unlogged.add(SimpleStatement(statement))
    prepared = session.prepare("INSERT INTO ks.t (k, v) VALUES (?, ?)").bind([4, 4])
    conditional = "INSERT INTO ks.t (k, v) VALUES (3, 3) IF NOT EXISTS"
    return [(SIMPLE, statement), (SIMPLE, prepared), (BATCH, logged), (UNLOGGED, unlogged), (CAS, conditional)]


def without_a_quorum(servers, table):
    """What writes and reads at a table's leader end with while the other two nodes are stopped; none if it ceased to lead before, as leaders do for a while after a failure."""
    leader = at(servers, leaders_of(servers)[table])
    with session_at(leader) as session:
        statements = statements_of(session, table)
        reads = [f"SELECT * FROM ks.{table} WHERE k = 1", f"SELECT count(*) FROM ks.{table}", statements[0][1]]
        with paused(*[server for server in servers if server is not leader]):
            # The leader has a lease for a moment yet, so it takes them all.
            writing = [(kind, session.execute_async(each)) for kind, each in statements]
            written = [(kind, failure(future)) for kind, future in writing]
            # Now it has lost it.
            read = [(each, failure(session.execute_async(each))) for each in reads]
        works_again(session, statements[0][1])
    has_led = all(isinstance(error, WriteTimeout) and error.received_responses > 0 for _, error in written)
    return (written, read) if has_led else None


@pytest.mark.parametrize("table", ["t", "n"])
def test_a_write_that_only_its_leader_holds_has_one_response_of_two(servers, table):
    written, read = wait_for("a leader that stays", lambda: without_a_quorum(servers, table), lambda seen: seen is not None)
    for kind, error in written:
        level = ConsistencyLevel.LOCAL_SERIAL if kind == CAS else ConsistencyLevel.QUORUM
        found = (error.write_type, error.consistency, error.received_responses, error.required_responses)
        assert found == (kind, level, 1, 2), error
        assert "Operation timed out - received only 1 responses." in str(error)
    # Nothing was done any more, and one replica was known to be up.
    for statement, error in read:
        assert isinstance(error, Unavailable), (statement, error)
        assert (error.consistency, error.required_replicas, error.alive_replicas) == (ConsistencyLevel.QUORUM, 2, 1)
        assert "Cannot achieve consistency level QUORUM" in str(error)


def with_a_silent_leader(servers):
    """What a write ends with whose leader is stopped, asked of another node; none if another leads by then."""
    leader = at(servers, leaders_of(servers)["t"])
    asked = next(server for server in servers if server is not leader)
    with session_at(asked, ConsistencyLevel.ALL) as session:
        statement = "INSERT INTO ks.t (k, v) VALUES (5, 5)"
        # The node that is asked knows who leads.
        works_again(session, statement)
        with paused(leader):
            error = failure(session.execute_async(statement))
            # Two of three go on with another leader.
            works_again(session, statement)
            assert [row.v for row in works_again(session, "SELECT v FROM ks.t WHERE k = 5")] == [5]
    return error if isinstance(error, Exception) else None


def test_a_write_whose_leader_is_silent_has_no_response_that_anybody_knows_of(servers):
    error = wait_for("a leader that stays", lambda: with_a_silent_leader(servers), lambda seen: seen is not None)
    assert isinstance(error, WriteTimeout), error
    found = (error.write_type, error.consistency, error.received_responses, error.required_responses)
    assert found == (SIMPLE, ConsistencyLevel.ALL, 0, 2), error
