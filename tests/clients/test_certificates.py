"""Certificates of the cluster's authority on the ports for CQL and HTTP: TLS, and roles that are known by a certificate."""

import http.client
import json
import ssl
import subprocess
import time

import pytest
from cassandra import Unauthorized
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import WhiteListRoundRobinPolicy
from conftest import READY_WITHIN_S, Server, binary, free_address


def certs(folder, *command):
    subprocess.run([str(binary()), "certs", *command, "--dir", str(folder)], check=True, capture_output=True)


class Certified:
    """A node with logins and certificates, and the certificates of clients."""

    def __init__(self, folder):
        self.folder = folder / "certs"
        address = free_address()
        certs(self.folder, "init")
        certs(self.folder, "node", address)
        for role in ["cassandra", "ann", "nobody"]:
            certs(self.folder, "client", role)
        self.node = self.folder / "nodes" / address
        options = ["--auth", "--certs", str(self.node), "--tls-certificate", str(self.node / "node.pem"), "--tls-key", str(self.node / "node.key"),
                   "--tls-client-authorities", str(self.node / "ca.pem"), "--tls-client-roles", "true", "--http-tls", "true"]
        self.server = Server(folder, address, options).start()

    def directory(self, role):
        return self.folder / "clients" / role

    def context(self, role):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(str(self.folder / "ca.pem"))
        if role == "the node":
            context.load_cert_chain(str(self.node / "node.pem"), str(self.node / "node.key"))
        elif role:
            context.load_cert_chain(str(self.directory(role) / "client.pem"), str(self.directory(role) / "client.key"))
        return context

    def cluster(self, role, password_of=None):
        context = self.context(role)
        profile = ExecutionProfile(request_timeout=30, load_balancing_policy=WhiteListRoundRobinPolicy([self.server.address]))
        provider = PlainTextAuthProvider(*password_of) if password_of else None
        # Checks that the certificate covers the address.
        return Cluster([self.server.address], auth_provider=provider, ssl_context=context, ssl_options={"server_hostname": self.server.address},
                       protocol_version=4, execution_profiles={EXEC_PROFILE_DEFAULT: profile})

    def ask(self, role, method, path, body=None):
        connection = http.client.HTTPSConnection(self.server.address, 7000, context=self.context(role), timeout=30)
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def admin(self, role, *command):
        done = subprocess.run([str(binary()), "admin", "--host", self.server.address, "--certs", str(self.directory(role)), *command],
                              capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    certified = Certified(tmp_path_factory.mktemp("certified"))
    # The first role is made in the background once the node serves.
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        cluster = certified.cluster("cassandra")
        try:
            session = cluster.connect()
            break
        except NoHostAvailable:
            cluster.shutdown()
            assert time.monotonic() < deadline, certified.server.log_tail()
            time.sleep(0.2)
    session.execute("CREATE ROLE ann WITH PASSWORD = 'sesame' AND LOGIN = true")
    session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE ks.t (k int PRIMARY KEY, v int)")
    certified.superuser = session
    yield certified
    cluster.shutdown()
    assert certified.server.stop() == 0


def test_a_certificate_logs_its_role_in_with_the_permissions_of_that_role_only(certified):
    cluster = certified.cluster("ann")
    session = cluster.connect()
    with pytest.raises(Unauthorized):
        session.execute("SELECT * FROM ks.t")
    certified.superuser.execute("GRANT SELECT ON ks.t TO ann")
    assert list(session.execute("SELECT * FROM ks.t")) == []
    with pytest.raises(Unauthorized):
        session.execute("INSERT INTO ks.t (k, v) VALUES (1, 1)")
    cluster.shutdown()


def test_a_certificate_of_no_role_is_refused_and_one_of_a_node_needs_a_password(certified):
    unknown = certified.cluster("nobody")
    with pytest.raises(NoHostAvailable, match="there is no role nobody"):
        unknown.connect()
    unknown.shutdown()
    node = certified.cluster("the node")
    with pytest.raises(NoHostAvailable):
        node.connect()
    node.shutdown()
    with_password = certified.cluster("the node", ("ann", "sesame"))
    with_password.connect()
    with_password.shutdown()
    without = certified.cluster(None)
    with pytest.raises(NoHostAvailable):
        without.connect()
    without.shutdown()


def test_a_role_that_may_not_log_in_any_more_is_disconnected_and_stays_out(certified):
    certs(certified.folder, "client", "gone")
    certified.superuser.execute("CREATE ROLE gone WITH LOGIN = true")
    cluster = certified.cluster("gone")
    session = cluster.connect()
    certified.superuser.execute("ALTER ROLE gone WITH LOGIN = false")
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            session.execute("SELECT cluster_name FROM system.local")
        except Exception:
            break
        assert time.monotonic() < deadline
        time.sleep(0.1)
    cluster.shutdown()
    again = certified.cluster("gone")
    with pytest.raises(NoHostAvailable, match="not permitted to log in"):
        again.connect()
    again.shutdown()


def test_the_http_port_speaks_tls_only_and_knows_roles_by_their_certificates(certified):
    plain = http.client.HTTPConnection(certified.server.address, 7000, timeout=30)
    plain.request("GET", "/health/ready")
    answer = plain.getresponse()
    assert (answer.status, answer.read()) == (400, b"this port speaks TLS: use https://\n")
    plain.close()
    assert certified.ask(None, "GET", "/health/ready")[0] == 200, "no certificate of the client is needed"
    assert certified.ask(None, "GET", "/api/v1/status")[0] == 401
    assert certified.ask("nobody", "GET", "/api/v1/status")[0] == 401
    assert certified.ask("the node", "GET", "/api/v1/status")[0] == 401
    assert certified.ask("ann", "GET", "/api/v1/status")[0] == 403
    status, body = certified.ask("cassandra", "GET", "/api/v1/status")
    assert status == 200 and json.loads(body)


def test_admin_asks_by_tls_and_is_the_role_of_its_certificate(certified):
    code, said = certified.admin("cassandra", "status")
    assert code == 0 and "between nodes" in said, said
    code, said = certified.admin("ann", "status")
    assert code != 0 and "ann has no DESCRIBE permission" in said, said
    done = subprocess.run([str(binary()), "admin", "--host", certified.server.address, "status"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "speaks TLS: name a directory with certificates with --certs" in done.stderr, done.stderr
    other = certified.folder.parent / "others"
    certs(other, "init")
    certs(other, "client", "cassandra")
    done = subprocess.run([str(binary()), "admin", "--host", certified.server.address, "--certs", str(other / "clients" / "cassandra"), "status"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "certificate" in done.stderr, "the node's certificate is of another authority: " + done.stderr


def test_options_that_need_others_are_refused_in_one_line(tmp_path):
    for options, why in [(["--http-tls", "true"], "--http-tls needs --tls-certificate and --tls-key"),
                         (["--tls-client-roles", "true"], "--tls-client-roles needs --tls-client-authorities")]:
        done = subprocess.run([str(binary()), "start", "--data-dir", str(tmp_path / "data"), "--listen", free_address(), *options],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode != 0 and why in done.stdout + done.stderr, done.stdout + done.stderr
