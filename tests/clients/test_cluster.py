"""Drivers against a cluster of three: who the nodes are, schema agreement, events of nodes, and requests that go to the leaders."""

import os
import queue
import subprocess
import sys
import time

import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import RoundRobinPolicy, WhiteListRoundRobinPolicy

from conftest import HERE, clients_folder, cluster_of

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


def test_a_driver_that_learns_tablets_goes_to_their_leaders(servers):
    """Scylla's driver takes the place of Cassandra's in a Python of its own."""
    folder = clients_folder("scylla-python")
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", SCYLLA_DRIVER], check=True)
    addresses = [server.address for server in servers]
    subprocess.run([str(python), str(HERE / "scylla" / "tablets.py"), *addresses], check=True, timeout=300)


def test_nodes_that_go_and_come_are_told(servers):
    cluster, _ = connect(servers, load_balancing_policy=RoundRobinPolicy())
    told = queue.Queue()
    try:
        connection = cluster.connection_factory(next(host for host in cluster.metadata.all_hosts() if host.address == servers[0].address).endpoint)
        connection.register_watchers({"STATUS_CHANGE": told.put, "TOPOLOGY_CHANGE": told.put})
        victim = servers[2]
        victim.process.kill()
        victim.process.wait()
        event = told.get(timeout=10)
        assert (event["change_type"], event["address"]) == ("DOWN", (victim.address, 9042))
        victim.start()
        deadline = time.monotonic() + 20
        while event["change_type"] != "UP" and time.monotonic() < deadline:
            event = told.get(timeout=20)
        assert (event["change_type"], event["address"]) == ("UP", (victim.address, 9042))
        connection.close()
    finally:
        cluster.shutdown()
