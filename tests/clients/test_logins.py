"""Whether clients have to log in is a property of the cluster: no node's option lets anybody in, and a change takes effect on open connections."""

import json
import os
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from cassandra import AuthenticationFailed
from cassandra.cluster import NoHostAvailable
from conftest import READY_WITHIN_S, Server, binary, cluster_of, free_address
from test_access import cluster_at, ready


def admin(server, *arguments, login=None):
    environment = {**os.environ, "DIORITE_USER": login[0], "DIORITE_PASSWORD": login[1]} if login else os.environ
    command = [str(binary()), "admin", "--host", server.address, *arguments]
    return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, start_new_session=True)


def eventually(what, within_s=READY_WITHIN_S):
    deadline = time.monotonic() + within_s
    while True:
        try:
            return what()
        except (NoHostAvailable, AssertionError, urllib.error.URLError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def asks_for_logins(server):
    cluster = cluster_at(server)
    try:
        cluster.connect()
        return False
    except NoHostAvailable as refused:
        assert any("AuthenticationFailed" in type(error).__name__ or "authentication" in str(error) for error in refused.errors.values()), refused.errors
        return True
    finally:
        cluster.shutdown()


def change_first_password(server):
    def change():
        cluster = cluster_at(server, "cassandra", "cassandra")
        try:
            cluster.connect().execute("ALTER ROLE cassandra WITH PASSWORD = 'changed'")
        finally:
            cluster.shutdown()

    eventually(change)


def test_no_node_of_a_cluster_that_requires_logins_can_opt_out(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    first = free_address(neighbours=2)
    start, last = first.rsplit(".", 1)
    one = Server(tmp_path / "one", first, ["--auth"]).start()
    change_first_password(one)
    two = Server(tmp_path / "two", f"{start}.{int(last) + 1}", ["--join", first]).start()
    ready(two)
    assert asks_for_logins(one) and asks_for_logins(two), "a node that joins without --auth"
    assert two.log.read_text().count("clients have to log in: the cluster requires it") == 1
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"http://{two.address}:7000/api/v1/status", timeout=30)
    assert one.stop() == 0
    one.options = []
    one.start()
    ready(one)
    assert asks_for_logins(one), "a member that comes back without --auth"
    cluster = cluster_at(two, "cassandra", "changed")
    assert cluster.connect().execute("SELECT role FROM system_auth.roles").one().role == "cassandra"
    cluster.shutdown()
    shown = admin(one, "auth", login=("cassandra", "changed"))
    assert shown.returncode == 0 and shown.stdout.split() == ["logins", "required"]
    assert one.stop() == two.stop() == 0


def test_an_operator_requires_logins_and_ends_that(tmp_path):
    server = Server(tmp_path).start()
    ready(server)
    assert server.stop() == 0
    server.options = ["--auth"]
    server.start()
    ready(server)
    assert "--auth has no effect" in server.log.read_text()
    cluster = cluster_at(server)
    session = cluster.connect()
    assert not asks_for_logins(server)
    assert "not required" in admin(server, "status").stdout
    refused = admin(server, "auth", "on")
    assert refused.returncode == 1 and "CREATE ROLE" in refused.stderr, refused
    session.execute("CREATE ROLE ann WITH PASSWORD = 'sesame' AND LOGIN = true AND SUPERUSER = true")
    session.execute("CREATE ROLE bob WITH PASSWORD = 'secret' AND LOGIN = true")
    session.execute("GRANT ALL ON ALL KEYSPACES TO bob")
    assert admin(server, "auth", "on").returncode == 0
    # The connection that was open is no longer, and the driver finds no way back.
    begun = time.monotonic()
    while True:
        try:
            session.execute("SELECT key FROM system.local")
        except Exception:
            break
        assert time.monotonic() < begun + READY_WITHIN_S, "an open connection outlives the change"
        time.sleep(0.02)
    cluster.shutdown()
    assert asks_for_logins(server)
    assert admin(server, "status").returncode == 1
    assert json.loads(admin(server, "auth", "--json", login=("ann", "sesame")).stdout) == {"required": True}
    # Who may change everything else may not open the cluster to everybody.
    assert admin(server, "pause", "balancing", login=("bob", "secret")).returncode == 0
    refused = admin(server, "auth", "off", login=("bob", "secret"))
    assert refused.returncode == 1 and "superuser" in refused.stderr, refused
    assert asks_for_logins(server)
    assert admin(server, "auth", "off", login=("ann", "sesame")).returncode == 0
    eventually(lambda: cluster_at(server).connect())
    assert server.stop() == 0


def test_all_nodes_follow_a_change_at_once(tmp_path):
    servers = cluster_of(tmp_path)
    cluster = cluster_at(servers[0])
    cluster.connect().execute("CREATE ROLE ann WITH PASSWORD = 'sesame' AND LOGIN = true AND SUPERUSER = true")
    cluster.shutdown()
    assert not any(asks_for_logins(server) for server in servers)
    assert admin(servers[1], "auth", "on").returncode == 0
    assert all(asks_for_logins(server) for server in servers), "the change is answered once all nodes serve it"
    assert all(server.stop() == 0 for server in servers)
