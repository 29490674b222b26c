"""Drivers against a cluster of three: who the nodes are, schema agreement, statements prepared before a change of their table, events of nodes,
requests that go to the leaders, and what applications meet when a node is lost."""

import collections
import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
import urllib.request

import pytest
from cassandra import InvalidRequest, OperationTimedOut, ReadTimeout, Unavailable, WriteTimeout
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import RetryPolicy, RoundRobinPolicy, WhiteListRoundRobinPolicy

from conftest import HERE, READY_WITHIN_S, binary, clients_folder, cluster_of

if os.environ.get("DIORITE_TEST_ADDRESS"):
    pytest.skip("a cluster of its own is needed", allow_module_level=True)

SCYLLA_DRIVER = "scylla-driver==3.29.12"


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    servers = cluster_of(tmp_path_factory.mktemp("cluster"))
    yield servers
    for server in servers:
        if server.process.poll() is None:
            server.stop()


def connect(servers, **options):
    profile = ExecutionProfile(request_timeout=30, **options)
    cluster = Cluster([servers[0].address], protocol_version=4, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
    return cluster, cluster.connect()


def test_all_nodes_are_known_and_share_the_ring(servers):
    cluster, _ = connect(servers, load_balancing_policy=RoundRobinPolicy())
    try:
        hosts = {host.address: host for host in cluster.metadata.all_hosts()}
        assert set(hosts) == {server.address for server in servers}
        assert len({host.host_id for host in hosts.values()}) == 3
        owners = list(cluster.metadata.token_map.token_to_host_owner.values())
        counts = [owners.count(host) for host in hosts.values()]
        assert counts[0] > 0 and counts == [counts[0]] * 3
    finally:
        cluster.shutdown()


def test_a_change_of_the_schema_is_served_everywhere_when_it_is_answered(servers):
    clusters = [
        Cluster(
            [server.address],
            protocol_version=4,
            schema_metadata_enabled=False,
            execution_profiles={
                EXEC_PROFILE_DEFAULT: ExecutionProfile(
                    request_timeout=30, load_balancing_policy=WhiteListRoundRobinPolicy([server.address])
                )
            },
        )
        for server in servers
    ]
    try:
        sessions = [cluster.connect() for cluster in clusters]
        warned = sessions[0].execute_async(
            "CREATE KEYSPACE agreed WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        warned.result()
        assert any("raised to the cluster's minimum of 3" in warning for warning in warned.warnings)
        for round_number in range(10):
            sessions[round_number % 3].execute(f"CREATE TABLE agreed.t{round_number} (k int PRIMARY KEY, v int)")
            for session in sessions:
                session.execute(f"INSERT INTO agreed.t{round_number} (k, v) VALUES (1, {round_number})")
                rows = list(session.execute(f"SELECT v FROM agreed.t{round_number} WHERE k = 1"))
                assert [row.v for row in rows] == [round_number]
            versions = {
                row.schema_version
                for session in sessions
                for table in ("local", "peers")
                for row in session.execute(f"SELECT schema_version FROM system.{table}")
            }
            assert len(versions) == 1
    finally:
        for cluster in clusters:
            cluster.shutdown()


@contextlib.contextmanager
def session_per_node(servers, version):
    """A session that reaches only one node, for each."""
    with contextlib.ExitStack() as stack:
        sessions = []
        for server in servers:
            policy = WhiteListRoundRobinPolicy([server.address])
            profile = ExecutionProfile(request_timeout=60, load_balancing_policy=policy)
            cluster = Cluster([server.address], protocol_version=version, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
            stack.callback(cluster.shutdown)
            sessions.append(cluster.connect())
        yield sessions


def test_a_trace_is_found_from_every_node(servers):
    with session_per_node(servers, 4) as sessions:
        sessions[0].execute("CREATE KEYSPACE IF NOT EXISTS traces")
        sessions[0].execute("CREATE TABLE traces.t (k int PRIMARY KEY, v int) WITH tablets = 3")
        for asked, server in zip(sessions, servers):
            future = asked.execute_async("SELECT * FROM traces.t", trace=True)
            future.result()
            [trace_id] = future.get_query_trace_ids()
            own = [row.activity for row in asked.execute("SELECT activity FROM system_traces.events WHERE session_id = %s", (trace_id,))]
            assert any("at node" in activity or "here" in activity for activity in own), own
            for other in sessions:
                # A node is given a second to answer another one, which is little on a busy machine.
                deadline = time.monotonic() + 30
                while not (found := list(other.execute("SELECT * FROM system_traces.sessions WHERE session_id = %s", (trace_id,)))):
                    assert time.monotonic() < deadline, "the trace is not found"
                assert (found[0].coordinator, found[0].command, found[0].duration > 0) == (server.address, "QUERY", True)
                while not (events := list(other.execute("SELECT * FROM system_traces.events WHERE session_id = %s", (trace_id,)))):
                    assert time.monotonic() < deadline, "the events are not found"
                assert [event.activity for event in events] == own
                assert {event.source for event in events} == {server.address}


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_statement_prepared_before_a_change_has_the_new_columns_at_every_node_at_once(servers, version):
    table = f"altered.of_{version}"
    with session_per_node(servers, version) as sessions:
        sessions[0].execute("CREATE KEYSPACE IF NOT EXISTS altered")
        sessions[0].execute(f"CREATE TABLE {table} (k int PRIMARY KEY, v int) WITH tablets = 3")
        inserts = [session.prepare(f"INSERT INTO {table} (k, v) VALUES (?, ?)") for session in sessions]
        points = [session.prepare(f"SELECT * FROM {table} WHERE k = ?") for session in sessions]
        scans = [session.prepare(f"SELECT * FROM {table}") for session in sessions]
        for number, (session, insert) in enumerate(zip(sessions, inserts)):
            session.execute(insert, (number, number))

        def expect(columns):
            for session, point, scan in zip(sessions, points, scans):
                # Twice: the second answer may come another way than the first one after a change.
                for _ in range(2):
                    found = {row.k: row._asdict() for row in session.execute(scan)}
                    assert found == {number: {"k": number, "v": number, **columns(number)} for number in range(3)}
                    for number in range(3):
                        assert session.execute(point, (number,)).one()._asdict() == found[number]

        expect(lambda number: {})
        for column in ["a", "w", "b"]:
            sessions[0].execute(f"ALTER TABLE {table} ADD {column} text")
            expect(lambda number: {column: None})
            for number, session in enumerate(sessions):
                session.execute(f"UPDATE {table} SET {column} = '{number}' WHERE k = {number}")
            expect(lambda number: {column: str(number)})
            sessions[1].execute(f"ALTER TABLE {table} DROP {column}")
            expect(lambda number: {})
        sessions[2].execute(f"ALTER TABLE {table} DROP v")
        for session, insert in zip(sessions, inserts):
            with pytest.raises(InvalidRequest):
                session.execute(insert, (1, 1))


@pytest.mark.parametrize("version", [4, 5])
def test_what_was_prepared_on_one_node_before_a_change_is_right_on_another(servers, version):
    """The other node learns the statement from somebody who prepares it after the change."""
    table = f"altered.elsewhere_{version}"
    with session_per_node(servers, version) as sessions:
        sessions[0].execute("CREATE KEYSPACE IF NOT EXISTS altered")
        sessions[0].execute(f"CREATE TABLE {table} (k int PRIMARY KEY, v int) WITH tablets = 3")
        sessions[0].execute(f"INSERT INTO {table} (k, v) VALUES (1, 2)")
        text = f"SELECT * FROM {table} WHERE k = ?"
        profile = ExecutionProfile(request_timeout=30, load_balancing_policy=RoundRobinPolicy())
        roaming = Cluster(
            [servers[0].address],
            protocol_version=version,
            prepare_on_all_hosts=False,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        )
        try:
            session = roaming.connect()
            hosts = roaming.metadata.all_hosts()
            select = session.prepare(text)
            sessions[0].execute(f"ALTER TABLE {table} ADD a text")
            sessions[0].execute(f"UPDATE {table} SET a = 'added' WHERE k = 1")
            for other in sessions:
                other.prepare(text)
            for host in [*hosts, *hosts]:
                assert session.execute(select, (1,), host=host).one()._asdict() == {"k": 1, "a": "added", "v": 2}
        finally:
            roaming.shutdown()


def metric(server, name):
    page = urllib.request.urlopen(f"http://{server.address}:7000/metrics", timeout=READY_WITHIN_S).read().decode()
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in page.splitlines() if line.split("{")[0].split(" ")[0] == name)


def test_the_load_generator_sends_requests_to_the_nodes_that_lead(servers):
    """With the Rust driver, which learns each tablet's leader from the first answers."""
    cluster, session = connect(servers)
    session.execute("CREATE KEYSPACE IF NOT EXISTS led")
    keys = ["--nodes", servers[0].address, "--keyspace", "led", "--nouuid", "--num_unique_keys", "500", "--tablets", "6"]

    def run(*more):
        before = hops()
        command = [str(binary()), "workload", "--workload", "CassandraKeyValue", *keys, *more]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return [now - then for now, then in zip(hops(), before)]

    def hops():
        return [sum(routed(server, led) for server in servers) for led in ("elsewhere", "here")]

    def routed(server, led):
        page = urllib.request.urlopen(f"http://{server.address}:7000/metrics", timeout=READY_WITHIN_S).read().decode()
        named = f'diorite_routed_requests_total{{led="{led}"}} '
        return next(int(float(line[len(named) :])) for line in page.splitlines() if line.startswith(named))

    try:
        elsewhere, here = run("--num_writes", "2000", "--num_threads_read", "0")
        assert elsewhere < 500 and here + elsewhere >= 2000, (elsewhere, here)
        elsewhere, here = run("--read_only", "--num_reads", "3000")
        assert elsewhere < 600 and here + elsewhere >= 3000, (elsewhere, here)
        elsewhere, here = run("--read_only", "--num_reads", "3000", "--tablet-aware=false")
        assert elsewhere > 1000, (elsewhere, here)
    finally:
        cluster.shutdown()


def test_a_lost_leader_costs_applications_only_timeouts_that_they_may_try_again(servers):
    """The driver with its own retry policy and idempotent statements, while the node that leads most is killed and comes back."""
    cluster, session = connect(servers, load_balancing_policy=RoundRobinPolicy(), retry_policy=RetryPolicy())
    met, done, stop = collections.Counter(), collections.Counter(), threading.Event()
    allowed = {WriteTimeout, ReadTimeout, OperationTimedOut, Unavailable}

    def kind(error):
        # The driver asks one more node after an Unavailable, and has none left if that was the last one of its plan.
        answers = error.errors.values() if isinstance(error, NoHostAvailable) else []
        return next((type(answer) for answer in answers if type(answer) in allowed), type(error))

    session.execute("CREATE KEYSPACE IF NOT EXISTS failover")
    session.execute("CREATE TABLE failover.t (k int PRIMARY KEY, v int) WITH tablets = 12")
    insert = session.prepare("INSERT INTO failover.t (k, v) VALUES (?, ?)")
    select = session.prepare("SELECT v FROM failover.t WHERE k = ?")
    insert.is_idempotent = select.is_idempotent = True
    written = {}

    def work(worker):
        number = 0
        while not stop.is_set():
            number += 1
            key = worker * 1_000_000 + number
            try:
                session.execute(insert, (key, number))
                written[key] = number
                done[worker] += 1
                assert session.execute(select, (key,)).one().v == number
            except Exception as error:
                met[kind(error)] += 1

    def wait_for_progress():
        before = dict(done)
        deadline = time.monotonic() + 120
        while any(done[worker] < before.get(worker, 0) + 50 for worker in range(len(workers))):
            assert time.monotonic() < deadline, f"no progress; met {met}"
            time.sleep(0.02)

    workers = [threading.Thread(target=work, args=(worker,)) for worker in range(6)]
    try:
        for worker in workers:
            worker.start()
        for _ in range(3):
            wait_for_progress()
            victim = max(servers, key=lambda server: metric(server, "diorite_tablets_led"))
            victim.process.kill()
            victim.process.wait()
            wait_for_progress()
            victim.start().wait_until_it_serves()
            wait_for_progress()
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert set(met) <= allowed, f"applications met {met}"
    for key, number in written.items():
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            try:
                assert session.execute(select, (key,)).one().v == number
                break
            except Exception as error:
                assert kind(error) in allowed and time.monotonic() < deadline, error
    cluster.shutdown()


def test_a_driver_that_learns_tablets_goes_to_their_leaders(servers):
    """Scylla's driver takes the place of Cassandra's in a Python of its own."""
    folder = clients_folder("scylla-python")
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", SCYLLA_DRIVER], check=True)
    addresses = [server.address for server in servers]
    subprocess.run([str(python), str(HERE / "scylla" / "tablets.py"), *addresses], check=True, timeout=1_200)


def test_nodes_that_go_and_come_are_told(servers):
    cluster, _ = connect(servers, load_balancing_policy=RoundRobinPolicy())
    told = queue.Queue()
    try:
        connection = cluster.connection_factory(next(host for host in cluster.metadata.all_hosts() if host.address == servers[0].address).endpoint)
        connection.register_watchers({"STATUS_CHANGE": told.put, "TOPOLOGY_CHANGE": told.put})
        victim = servers[2]
        victim.process.kill()
        victim.process.wait()

        def until_told(change_type):
            # A node that did not run for two seconds, or that the test before has started again, is told of as well.
            told_of, deadline = [], time.monotonic() + READY_WITHIN_S
            while (change_type, (victim.address, 9042)) not in told_of:
                assert time.monotonic() < deadline, f"{change_type} is not told: {told_of}"
                with contextlib.suppress(queue.Empty):
                    event = told.get(timeout=1)
                    told_of.append((event["change_type"], event["address"]))

        until_told("DOWN")
        victim.start()
        until_told("UP")
        connection.close()
    finally:
        cluster.shutdown()
