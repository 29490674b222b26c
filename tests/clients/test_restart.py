"""All nodes of a cluster are restarted, one after another, as `diorite admin restart-plan` says, while a driver writes and reads:
no request fails, and nothing is lost.

Only a node that says that it did not run for a second, as happens where others take all processors, may cost time-outs and the
leadership of the catalog. Nothing else is excused by that."""

import json
import os
import subprocess
import threading
import time

import pytest
from cassandra import ReadTimeout, Unavailable, WriteTimeout
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import RoundRobinPolicy

from conftest import READY_WITHIN_S, binary, cluster_of, repeated

if os.environ.get("DIORITE_TEST_ADDRESS"):
    pytest.skip("a cluster of its own is needed", allow_module_level=True)

ALL_RESTARTED = 3
WRITERS = 4


@pytest.fixture
def servers(tmp_path):
    servers = cluster_of(tmp_path)
    yield servers
    for server in servers:
        if server.process.poll() is None:
            server.stop()


def admin(servers, *arguments):
    hosts = [f"--host={server.address}" for server in servers]
    return subprocess.run([str(binary()), "admin", *hosts, *arguments], capture_output=True, text=True, timeout=2 * READY_WITHIN_S)


def plan(servers, *arguments):
    asked = admin(servers, "restart-plan", "--json", *arguments)
    assert asked.returncode == 0, asked.stderr
    return json.loads(asked.stdout)


def leader_of(servers):
    """The node that leads the catalog."""
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        shown = admin(servers, "status", "--json").stdout
        if shown and (leader := json.loads(shown)["leader"]) is not None:
            return leader
        assert time.monotonic() < deadline, "nobody leads the catalog"
        time.sleep(0.2)


def first_order(servers, begun):
    """The order of the plan, and the node that led the catalog while it was made."""
    while True:
        leader = leader_of(servers)
        order = [node["node"] for node in plan(servers, "--begun", begun, "--wait")["nodes"]]
        if leader_of(servers) == leader:
            return order, leader


def did_not_run(servers):
    """What nodes have said of themselves."""
    return [line for server in servers for line in server.log.read_text(errors="replace").splitlines() if "this process did not run" in line]


class Load:
    """Threads that write rows and read them back; what failed, and how many rows were acknowledged."""

    def __init__(self, session):
        self.session = session
        self.insert = session.prepare("INSERT INTO restarted.t (k, v) VALUES (?, ?)")
        self.select = session.prepare("SELECT v FROM restarted.t WHERE k = ?")
        # Both may be repeated; a driver does that only with what it is told of.
        self.insert.is_idempotent = self.select.is_idempotent = True
        self.failures = []
        self.acknowledged = [0] * WRITERS
        self.ends = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(writer,)) for writer in range(WRITERS)]
        for thread in self.threads:
            thread.start()

    def run(self, writer):
        while not self.ends.is_set():
            number = self.acknowledged[writer]
            try:
                self.session.execute(self.insert, (f"{writer}-{number}", number))
                row = self.session.execute(self.select, (f"{writer}-{number}",)).one()
                assert row is not None and row.v == number, f"row {writer}-{number} is {row}"
                self.acknowledged[writer] += 1
            except Exception as error:
                self.failures.append((f"row {writer}-{number}: {error!r}", isinstance(error, (ReadTimeout, Unavailable, WriteTimeout))))

    def finish(self):
        self.ends.set()
        for thread in self.threads:
            thread.join()


def test_all_nodes_are_restarted_in_the_order_of_the_plan_without_a_failed_request(servers):
    profile = ExecutionProfile(request_timeout=30, load_balancing_policy=RoundRobinPolicy())
    cluster = Cluster([server.address for server in servers], protocol_version=5, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
    try:
        session = cluster.connect()
        session.execute("CREATE KEYSPACE restarted WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}")
        session.execute("CREATE TABLE restarted.t (k text PRIMARY KEY, v int) WITH tablets = 12")
        load = Load(session)
        # A node that was started in the same second would count as restarted.
        time.sleep(1)
        begun = str(int(time.time()))
        nodes = {node["node"]: node["cql_address"].rsplit(":", 1)[0] for node in json.loads(admin(servers, "nodes", "--json").stdout)}
        order, leader = first_order(servers, begun)
        assert sorted(order) == sorted(nodes) and order[-1] == leader
        restarted, leaders = [], set()
        while True:
            leads = leader_of(servers)
            asked = admin(servers, "restart-plan", "--begun", begun, "--wait", "--next")
            if asked.returncode == ALL_RESTARTED:
                break
            assert asked.returncode == 0, asked.stderr
            number = int(asked.stdout)
            assert number not in restarted, f"node {number} is restarted again"
            leaders.add(leads)
            [server] = [server for server in servers if server.address == nodes[number]]
            assert server.stop() == 0
            others = [other for other in servers if other is not server]
            waits = plan(others, "--begun", begun)
            assert not waits["may_go"] and any("does not answer" in reason for reason in waits["waits_for"]), waits
            refused = admin(others, "restart-plan", "--begun", begun, "--next")
            assert refused.returncode == 1 and "does not answer" in refused.stderr, refused
            server.start()
            restarted.append(number)
        load.finish()
        pauses = did_not_run(servers)
        # Without such a pause the first leader of the catalog leads until it is restarted, as the last one.
        assert restarted == order or (pauses and leaders != {leader} and sorted(restarted) == sorted(order)), (restarted, order, leaders)
        assert [failure for failure, is_timeout in load.failures if not (is_timeout and pauses)] == [], pauses
        assert all(count > 0 for count in load.acknowledged)
        for writer, count in enumerate(load.acknowledged):
            for number in range(count):
                row = repeated(lambda: session.execute(load.select, (f"{writer}-{number}",)).one(), (ReadTimeout, Unavailable))
                assert row is not None and row.v == number, f"row {writer}-{number} is {row}"
        shown = admin(servers, "restart-plan", "--begun", begun)
        assert "all nodes have been restarted" in shown.stdout and shown.stdout.count("restarted") >= 4
        # Without a time, none counts as restarted.
        assert [node["turn"] for node in plan(servers)["nodes"]] == ["next", "later", "later"]
    finally:
        cluster.shutdown()
