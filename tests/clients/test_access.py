"""Who gets in, and what they may do: passwords, roles and permissions, TLS and its certificates, with the unmodified Python driver."""

import base64
import concurrent.futures
import contextlib
import http.client
import json
import os
import random
import re
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
from cassandra import AuthenticationFailed, InvalidRequest, Unauthorized
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import WhiteListRoundRobinPolicy
from conftest import READY_WITHIN_S, Attached, Server, binary


def cluster_at(server, user=None, password=None, **options):
    profile = ExecutionProfile(request_timeout=30, load_balancing_policy=WhiteListRoundRobinPolicy([server.address]))
    provider = PlainTextAuthProvider(user, password) if user else None
    return Cluster([server.address], auth_provider=provider, protocol_version=options.pop("version", 4), execution_profiles={EXEC_PROFILE_DEFAULT: profile}, **options)


def refused(server, user, password):
    cluster = cluster_at(server, user, password)
    with pytest.raises(NoHostAvailable) as raised:
        cluster.connect()
    cluster.shutdown()
    return [type(error) for error in raised.value.errors.values()], str(raised.value)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("guarded"), options=["--auth"]).start()
    # The first role is made in the background once the node serves.
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            cluster = cluster_at(server, "cassandra", "cassandra")
            cluster.connect().execute("ALTER ROLE cassandra WITH PASSWORD = 'changed'")
            cluster.shutdown()
            break
        except NoHostAvailable:
            assert time.monotonic() < deadline, server.log_tail()
            time.sleep(0.2)
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def superuser(guarded):
    cluster = cluster_at(guarded, "cassandra", "changed")
    session = cluster.connect()
    session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE ks.t (k int PRIMARY KEY, v int)")
    session.execute("CREATE ROLE ann WITH PASSWORD = 'sesame' AND LOGIN = true")
    session.execute("CREATE ROLE reader")
    yield session
    cluster.shutdown()


@pytest.fixture
def ann(guarded, superuser):
    cluster = cluster_at(guarded, "ann", "sesame", version=5)
    yield cluster.connect()
    cluster.shutdown()


def test_a_wrong_password_and_an_unknown_user_are_refused_alike(guarded, superuser):
    for user, password in [("cassandra", "cassandra"), ("nobody", "x"), ("ann", "")]:
        kinds, text = refused(guarded, user, password)
        assert kinds == [AuthenticationFailed] and f"Provided username {user} and/or password are incorrect" in text


def test_a_client_without_credentials_is_told_that_they_are_needed(guarded):
    cluster = cluster_at(guarded)
    with pytest.raises(NoHostAvailable) as raised:
        cluster.connect()
    cluster.shutdown()
    assert "requires authentication" in str(raised.value) or "AuthenticationFailed" in str(raised.value)


def test_a_role_that_may_not_log_in_does_not(guarded, superuser):
    superuser.execute("CREATE ROLE IF NOT EXISTS mute WITH PASSWORD = 'x'")
    kinds, text = refused(guarded, "mute", "x")
    assert kinds == [AuthenticationFailed] and "not permitted to log in" in text


def test_permissions_are_checked_at_each_statement_and_revoked_at_once(superuser, ann):
    read = "SELECT * FROM ks.t WHERE k = 1"
    with pytest.raises(Unauthorized, match="User ann has no SELECT permission on <table ks.t> or any of its parents"):
        ann.execute(read)
    superuser.execute("GRANT SELECT ON ks.t TO reader")
    superuser.execute("GRANT reader TO ann")
    assert list(ann.execute(read)) == []
    prepared = ann.prepare("SELECT * FROM ks.t WHERE k = ?")
    for _ in range(3):
        assert list(ann.execute(prepared, [1])) == []
    with pytest.raises(Unauthorized, match="no MODIFY permission on <table ks.t>"):
        ann.prepare("INSERT INTO ks.t (k, v) VALUES (?, ?)")
    superuser.execute("GRANT MODIFY ON KEYSPACE ks TO ann")
    insert = ann.prepare("INSERT INTO ks.t (k, v) VALUES (?, ?)")
    for value in range(3):
        ann.execute(insert, [1, value])
    superuser.execute("REVOKE MODIFY ON KEYSPACE ks FROM ann")
    with pytest.raises(Unauthorized, match="no MODIFY permission"):
        ann.execute(insert, [1, 9])
    superuser.execute("REVOKE reader FROM ann")
    with pytest.raises(Unauthorized, match="no SELECT permission"):
        ann.execute(prepared, [1])


def test_what_a_role_makes_is_its_own_and_nothing_else(superuser, ann):
    with pytest.raises(Unauthorized, match="no CREATE permission on <keyspace ks>"):
        ann.execute("CREATE TABLE ks.mine (k int PRIMARY KEY)")
    superuser.execute("GRANT CREATE ON KEYSPACE ks TO ann")
    ann.execute("CREATE TABLE ks.mine (k int PRIMARY KEY)")
    ann.execute("INSERT INTO ks.mine (k) VALUES (1)")
    assert ann.execute("SELECT count(*) FROM ks.mine").one().count == 1
    ann.execute("DROP TABLE ks.mine")
    for statement in ["DROP TABLE ks.t", "TRUNCATE ks.t", "CREATE ROLE x", "LIST ALL PERMISSIONS", "SELECT * FROM system_auth.roles"]:
        with pytest.raises(Unauthorized):
            ann.execute(statement)
    with pytest.raises(Unauthorized, match="Only superusers"):
        ann.execute("ALTER ROLE cassandra WITH PASSWORD = 'mine'")


def ready(server):
    deadline = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"http://{server.address}:7000/health/ready", timeout=60).close()
            return
        except urllib.error.URLError:
            # An answer that it is not; or the port for HTTP is not bound yet, a moment after that for clients.
            assert time.monotonic() < deadline, server.log_tail()
            time.sleep(0.05)


def over_http(server, path, login=None, body=None):
    """The status of an answer of the HTTP port."""
    headers = {} if body is None else {"content-type": "application/json"}
    if login:
        headers["authorization"] = "Basic " + base64.b64encode(":".join(login).encode()).decode()
    data = None if body is None else json.dumps(body).encode()
    try:
        # Passwords are checked one after another, and a check takes its time.
        with urllib.request.urlopen(urllib.request.Request(f"http://{server.address}:7000{path}", data, headers), timeout=READY_WITHIN_S) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        assert error.code != 401 or error.headers["www-authenticate"].startswith("Basic ")
        return error.code


def test_the_http_port_asks_for_the_same_roles(guarded, superuser):
    status, settings, change = "/api/v1/status", "/api/v1/settings", {"balancing_is_paused": False}
    bob = ("bob", "secret")
    superuser.execute("CREATE ROLE bob WITH PASSWORD = 'secret' AND LOGIN = true")
    for login in [None, ("bob", "Secret"), ("nobody", "")]:
        assert over_http(guarded, status, login) == 401 and over_http(guarded, settings, login, change) == 401
    assert over_http(guarded, "/", None) == 401
    assert over_http(guarded, "/health/ready") == over_http(guarded, "/metrics") == 200
    assert over_http(guarded, status, ("cassandra", "changed")) == 200
    assert over_http(guarded, settings, ("cassandra", "changed"), change) == 200
    assert over_http(guarded, status, bob) == 403
    superuser.execute("GRANT DESCRIBE ON ALL KEYSPACES TO bob")
    assert over_http(guarded, status, bob) == over_http(guarded, "/", bob) == 200
    assert over_http(guarded, settings, bob, change) == 403
    superuser.execute("GRANT ALTER ON ALL KEYSPACES TO bob")
    assert over_http(guarded, settings, bob, change) == 200
    superuser.execute("ALTER ROLE bob WITH PASSWORD = 'other'")
    assert over_http(guarded, status, bob) == 401, "it was right a moment ago"
    bob = ("bob", "other")
    assert over_http(guarded, status, bob) == 200
    superuser.execute("REVOKE ALTER ON ALL KEYSPACES FROM bob")
    assert over_http(guarded, settings, bob, change) == 403 and over_http(guarded, status, bob) == 200
    superuser.execute("DROP ROLE bob")
    assert over_http(guarded, status, bob) == 401


def test_a_browser_logs_in_on_a_page(guarded, superuser):
    superuser.execute("CREATE ROLE dan WITH PASSWORD = 'secret & more' AND LOGIN = true")
    superuser.execute("GRANT DESCRIBE ON ALL KEYSPACES TO dan")
    superuser.execute("GRANT ALTER ON ALL KEYSPACES TO dan")
    base = f"http://{guarded.address}:7000"

    def ask(path, cookie=None, body=None, **headers):
        connection = http.client.HTTPConnection(guarded.address, 7000, timeout=30)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if cookie:
            headers["cookie"] = cookie
        connection.request("GET" if body is None else "POST", path, body, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer, text

    def log_in(password, **headers):
        form = urllib.parse.urlencode({"user": "dan", "password": password, "next": "/nodes"})
        return ask("/login", body=form, content_type="application/x-www-form-urlencoded", **headers)

    answer, _ = ask("/nodes", accept="text/html")
    assert (answer.status, answer.headers["location"]) == (303, "/login?next=%2Fnodes")
    answer, page = ask("/login?next=/nodes")
    assert answer.status == 200 and "password" in page
    style = re.search(r'href="(/assets/ui.css[^"]*)"', page).group(1)
    assert ask(style)[0].status == 200
    assert log_in("secret")[0].status == 401
    assert log_in("secret & more", origin="http://evil.example")[0].status == 403, "another site logs nobody in"
    answer, _ = log_in("secret & more", origin=base)
    assert (answer.status, answer.headers["location"]) == (303, "/nodes")
    given = answer.headers["set-cookie"]
    assert "HttpOnly" in given and "SameSite=Strict" in given
    cookie = given.split(";")[0]
    answer, page = ask("/nodes", cookie, accept="text/html")
    assert answer.status == 200 and "logged in as dan" in page
    token = re.search(r'name="token" value="([0-9a-f]+)"', page).group(1)
    change = json.dumps({"balancing_is_paused": False})
    settings = lambda **headers: ask("/api/v1/settings", cookie, change, content_type="application/json", **headers)[0].status
    assert settings() == 403 and settings(x_diorite_token="0" * 64) == 403, "the cookie alone changes nothing"
    assert settings(x_diorite_token=token) == 200
    superuser.execute("REVOKE ALTER ON ALL KEYSPACES FROM dan")
    assert settings(x_diorite_token=token) == 403
    # The session ends with its password, and by logging out with the token.
    ask("/logout", cookie, "token=0", content_type="application/x-www-form-urlencoded")
    assert ask("/nodes", cookie)[0].status == 200
    ask("/logout", cookie, f"token={token}", content_type="application/x-www-form-urlencoded")
    assert ask("/nodes", cookie)[0].status == 401
    cookie = log_in("secret & more")[0].headers["set-cookie"].split(";")[0]
    assert ask("/nodes", cookie)[0].status == 200
    superuser.execute("ALTER ROLE dan WITH PASSWORD = 'other'")
    assert ask("/nodes", cookie)[0].status == 401
    superuser.execute("DROP ROLE dan")


def test_metrics_for_a_token(tmp_path):
    token = tmp_path / "token"
    token.write_text("short\n")
    server = Server(tmp_path, options=["--auth", "--metrics-access", "token", "--metrics-token-file", str(token)])
    with pytest.raises(AssertionError, match="at least 16 are needed"):
        server.start()
    token.write_text("a-long-and-secret-token\n")
    server.start()
    ready(server)
    ask = lambda path, token: urllib.request.urlopen(urllib.request.Request(f"http://{server.address}:7000{path}", headers={"authorization": f"Bearer {token}"}), timeout=30)
    assert b"diorite_ready" in ask("/metrics", "a-long-and-secret-token").read()
    for path, given in [("/metrics", "a-long-and-secret-toke"), ("/metrics", ""), ("/api/v1/status", "a-long-and-secret-token")]:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            ask(path, given)
    assert server.stop() == 0


def test_admin_logs_in(guarded, superuser, tmp_path):
    def admin(*arguments, **environment):
        command = [str(binary()), "admin", "--host", guarded.address, "status", *arguments]
        environment = {**os.environ, **environment}
        return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, start_new_session=True)

    unnamed = admin()
    assert unnamed.returncode == 1 and "--user" in unnamed.stderr
    nothing = admin("--user", "cassandra")
    assert nothing.returncode == 1 and "DIORITE_PASSWORD" in nothing.stderr
    assert admin("--user", "cassandra", DIORITE_PASSWORD="changed").returncode == 0
    assert admin(DIORITE_USER="cassandra", DIORITE_PASSWORD="changed").returncode == 0
    password = tmp_path / "password"
    password.write_text("changed\n")
    assert admin("--user", "cassandra", "--password-file", str(password)).returncode == 0


def test_anybody_may_change_their_own_password(guarded, superuser, ann):
    ann.execute("ALTER ROLE ann WITH PASSWORD = 'other'")
    assert refused(guarded, "ann", "sesame")[0] == [AuthenticationFailed]
    superuser.execute("ALTER ROLE ann WITH PASSWORD = 'sesame'")
    with pytest.raises(InvalidRequest, match="Cannot DROP primary role"):
        superuser.execute("DROP ROLE cassandra")


def test_listings(superuser):
    names = [row.role for row in superuser.execute("LIST ROLES")]
    assert {"ann", "cassandra", "reader"} <= set(names)
    superuser.execute("GRANT SELECT ON ks.t TO reader")
    permissions = [(row.role, row.resource, row.permission) for row in superuser.execute("LIST ALL PERMISSIONS OF reader")]
    assert ("reader", "<table ks.t>", "SELECT") in permissions


def test_of_many_wrong_passwords_most_are_not_even_checked(guarded, superuser):
    status, eve = "/api/v1/status", ("eve", "secret")
    superuser.execute("CREATE ROLE eve WITH PASSWORD = 'secret' AND LOGIN = true")
    superuser.execute("GRANT DESCRIBE ON ALL KEYSPACES TO eve")
    # One that was right within the last minute is not held back. This one was not checked before, so its minute begins now.
    assert over_http(guarded, status, eve) == 200
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        wrong = list(pool.map(lambda number: over_http(guarded, status, ("cassandra", str(number))), range(40)))
    assert set(wrong) == {401, 429}
    assert over_http(guarded, status, eve) == 200
    superuser.execute("DROP ROLE eve")


def outer_address():
    """An address of this machine that others might reach it at; none if it has only loopback. No packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        found = probe.getsockname()[0]
    return None if found.startswith("127.") else found


def listens(address, port):
    try:
        socket.create_connection((address, port), timeout=5).close()
        return True
    except ConnectionRefusedError:
        return False


def free_ports(count):
    """Ports that nobody has on any address: a server on every address meets all others of the machine.

    They are below those that the system gives to whoever asks for any, as other tests do before the server is started again."""
    found = []
    for port in random.sample(range(12_000, 32_000), 1_000):
        with contextlib.suppress(OSError):
            socket.create_server(("0.0.0.0", port)).close()
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no ports are free")


@pytest.mark.skipif(outer_address() is None, reason="this machine has no address beside loopback")
@pytest.mark.parametrize("listen", ["one address", "every address"])
def test_a_node_listens_beyond_loopback_only_once_the_first_password_is_changed(tmp_path, listen):
    outer = outer_address()
    cql, http, node = free_ports(3)
    ports = ["--cql-port", str(cql), "--http-port", str(http), "--node-port", str(node)]
    listened = outer if listen == "one address" else "0.0.0.0"
    if listen == "one address":
        certs = tmp_path / "certs"
        for command in (["init"], ["node", outer, "127.0.0.1"]):
            subprocess.run([str(binary()), "certs", *command, "--dir", str(certs)], check=True, capture_output=True)
        node_tls = ["--certs", str(certs / "nodes" / outer)]
    else:
        node_tls = ["--insecure"]
    server = Server(tmp_path, listened, ["--auth", *node_tls, *ports])
    here = Attached("127.0.0.1")

    def change(password):
        # The first role is made in the background once the node serves.
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            cluster = cluster_at(here, "cassandra", "cassandra", port=cql)
            try:
                cluster.connect().execute(f"ALTER ROLE cassandra WITH PASSWORD = '{password}'")
                return
            except NoHostAvailable:
                assert time.monotonic() < deadline, server.log_tail()
                time.sleep(0.2)
            finally:
                cluster.shutdown()

    server.start(listening_at=("127.0.0.1", cql))
    try:
        with urllib.request.urlopen(f"http://{outer}:{http}/health/ready", timeout=30) as answer:
            assert answer.status == 200
        assert not listens(outer, cql)
        change("changed")
        deadline = time.monotonic() + READY_WITHIN_S
        while not listens(outer, cql):
            assert time.monotonic() < deadline, server.log_tail()
            time.sleep(0.05)
        cluster = cluster_at(Attached(outer), "cassandra", "changed", port=cql)
        assert cluster.connect().execute("SELECT role FROM system_auth.roles").one().role == "cassandra"
        cluster.shutdown()
        assert listens("127.0.0.1", cql) == (listened == "0.0.0.0"), "where it was told to, from then on, and nowhere else"
        assert server.stop() == 0
        # The password is the cluster's, not the process's.
        said = len(server.log.read_text())
        server.start(listening_at=(outer, cql))
        assert "only clients on this machine" not in server.log.read_text()[said:]
    finally:
        server.stop()


def certificate(folder, name):
    """A self-signed certificate for this name, written over the one before."""
    key, chain = folder / "key.pem", folder / "chain.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}",
         "-keyout", str(key), "-out", str(chain)],
        check=True, capture_output=True,
    )
    return chain, key


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl to make certificates with")
def test_tls_and_a_new_certificate_without_a_restart(tmp_path):
    chain, key = certificate(tmp_path, "first")
    server = Server(tmp_path, options=["--tls-certificate", str(chain), "--tls-key", str(key)]).start()

    def connect():
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(str(chain))
        cluster = cluster_at(server, ssl_context=context, version=5)
        return cluster, cluster.connect()

    old, session = connect()
    session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE ks.t (k int PRIMARY KEY, v blob)")
    insert = session.prepare("INSERT INTO ks.t (k, v) VALUES (?, ?)")
    for number in range(50):
        session.execute(insert, [number, bytes([number]) * 100_000])
    assert {len(row.v) for row in session.execute("SELECT v FROM ks.t")} == {100_000}

    plain = cluster_at(server)
    with pytest.raises(NoHostAvailable):
        plain.connect()
    plain.shutdown()

    certificate(tmp_path, "second")
    deadline = time.monotonic() + READY_WITHIN_S
    while not re.search(r"CN ?= ?second\b", shown_certificate(server, chain)):
        assert time.monotonic() < deadline, server.log_tail()
        time.sleep(0.5)
    new, again = connect()
    assert again.execute("SELECT count(*) FROM ks.t").one().count == 50
    assert session.execute("SELECT count(*) FROM ks.t").one().count == 50, "connections that are open stay"
    old.shutdown()
    new.shutdown()
    assert server.stop() == 0


def shown_certificate(server, chain):
    """What openssl says of the certificate that the server shows, its subject (CN) among it."""
    done = subprocess.run(["openssl", "s_client", "-connect", f"{server.address}:9042", "-CAfile", str(chain)], input=b"", capture_output=True, timeout=20)
    return done.stdout.decode(errors="replace")
