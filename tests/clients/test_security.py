"""Running nodes, with default options and with logins, are held against docs/security.md: each row of "Who can do what on which
port", the modes of files, and the metrics of the checklist."""

import base64
import json
import os
import pathlib
import re
import socket
import stat
import struct
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from cassandra import Unauthorized
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import WhiteListRoundRobinPolicy
from conftest import READY_WITHIN_S, Server, binary, free_address

if os.environ.get("DIORITE_TEST_ADDRESS"):
    pytest.skip("nodes of its own are needed", allow_module_level=True)

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "security.md"
SUPERUSER = ("cassandra", "changed")
OPTIONS, STARTUP, QUERY = 5, 1, 7
ERROR, AUTHENTICATE, SUPPORTED = 0, 3, 6


def section(title):
    text = DOCUMENT.read_text()
    assert f"\n## {title}\n" in text
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def table():
    """The rows of the table, as {port: (without logins, with logins)}."""
    rows = [line.strip("| ").split(" | ") for line in section("Who can do what on which port").splitlines() if line.startswith("| ")]
    assert rows[0] == ["port", "for", "without logins", "with logins"]
    return {port: (without, with_logins) for port, _, without, with_logins in rows[1:]}


def session_of(server, login=None):
    profile = ExecutionProfile(request_timeout=30, load_balancing_policy=WhiteListRoundRobinPolicy([server.address]))
    provider = PlainTextAuthProvider(*login) if login else None
    cluster = Cluster([server.address], auth_provider=provider, protocol_version=4, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
    return cluster.connect()


def http(server, path, login=None, change=None):
    """The status of an answer over HTTP."""
    headers = {}
    if login:
        headers["authorization"] = "Basic " + base64.b64encode(":".join(login).encode()).decode()
    body = None if change is None else json.dumps(change).encode()
    if body is not None:
        headers["content-type"] = "application/json"
    request = urllib.request.Request(f"http://{server.address}:7000{path}", body, headers)
    try:
        return urllib.request.urlopen(request, timeout=30).status
    except urllib.error.HTTPError as error:
        return error.code


def first_answer(server, *frames):
    """The operation codes of the answers to frames of protocol version 4, sent without a login."""
    answers = []
    with socket.create_connection((server.address, 9042), timeout=30) as connection:
        for operation, body in frames:
            connection.sendall(struct.pack(">BBhBi", 4, 0, 1, operation, len(body)) + body)
            header = connection.recv(9, socket.MSG_WAITALL)
            answers.append(header[4])
            connection.recv(struct.unpack(">i", header[5:])[0], socket.MSG_WAITALL)
    return answers


@pytest.fixture(scope="module")
def open_node(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("open")).start()
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    home = tmp_path_factory.mktemp("guarded")
    server = Server(home, options=["--auth", "--audit", str(home / "audit.log")]).start()
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            session = session_of(server, ("cassandra", "cassandra"))
            session.execute("ALTER ROLE cassandra WITH PASSWORD = 'changed'")
            session.cluster.shutdown()
            break
        except NoHostAvailable:
            # The first role is made in the background once the node serves.
            assert time.monotonic() < deadline, server.log_tail()
            time.sleep(0.2)
    session = session_of(server, SUPERUSER)
    for role in ["nobody", "looks", "changes"]:
        session.execute(f"CREATE ROLE {role} WITH PASSWORD = 'secret' AND LOGIN = true")
    session.execute("GRANT DESCRIBE ON ALL KEYSPACES TO looks")
    session.execute("GRANT DESCRIBE ON ALL KEYSPACES TO changes")
    session.execute("GRANT ALTER ON ALL KEYSPACES TO changes")
    session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE ks.t (k int PRIMARY KEY)")
    session.cluster.shutdown()
    yield server
    assert server.stop() == 0


LOOKS, CHANGES, NOBODY = ("looks", "secret"), ("changes", "secret"), ("nobody", "secret")
SETTINGS, CHANGE = "/api/v1/settings", {"balancing_is_paused": False}


def cql(open_node, guarded):
    startup = struct.pack(">h", 1) + b"\x00\x0bCQL_VERSION\x00\x053.0.0"
    statement = b"SELECT key FROM system.local"
    query = struct.pack(">i", len(statement)) + statement + struct.pack(">hB", 1, 0)
    session = session_of(open_node)
    session.execute("CREATE ROLE made_by_anybody")
    session.execute("DROP ROLE made_by_anybody")
    session.cluster.shutdown()
    assert first_answer(guarded, (OPTIONS, b""), (STARTUP, startup), (QUERY, query)) == [SUPPORTED, AUTHENTICATE, ERROR]
    session = session_of(guarded, NOBODY)
    for statement in ["SELECT * FROM ks.t", "INSERT INTO ks.t (k) VALUES (1)", "CREATE ROLE other", "DROP TABLE ks.t"]:
        with pytest.raises(Unauthorized):
            session.execute(statement)
    session.cluster.shutdown()


def for_everybody(open_node, guarded):
    for server in [open_node, guarded]:
        for path in ["/health/live", "/health/ready", "/assets/ui.css"]:
            assert http(server, path) == 200, path
    assert http(guarded, "/login") == 200


def metrics(open_node, guarded):
    assert http(open_node, "/metrics") == http(guarded, "/metrics") == 200


def pages(open_node, guarded):
    for path in ["/", "/nodes", "/tables", "/api/v1/status", "/api/v1/nodes", "/api/v1/tables"]:
        assert http(open_node, path) == 200, path
        asked = [http(guarded, path, login) for login in [None, NOBODY, LOOKS, SUPERUSER]]
        assert asked == [401, 403, 200, 200], path


def changes(open_node, guarded):
    assert http(open_node, SETTINGS, None, CHANGE) == 200, "this is the node's own machine"
    asked = [http(guarded, SETTINGS, login, CHANGE) for login in [None, NOBODY, LOOKS, CHANGES, SUPERUSER]]
    assert asked == [401, 403, 403, 200, 200]


def who_gets_in(open_node, guarded):
    for path, change in [("/api/v1/auth", {"required": True}), ("/api/v1/cidr-groups/office", {"cidrs": ["10.0.0.0/8"]})]:
        asked = [http(guarded, path, login, change) for login in [None, NOBODY, LOOKS, CHANGES, SUPERUSER]]
        assert asked == [401, 403, 403, 403, 200], path


def said_to_a_stranger(server):
    """The answer of port 7100 to bytes that are no TLS."""
    answer = b""
    with socket.create_connection((server.address, 7100), timeout=30) as connection:
        connection.sendall(b"DIORITE\0\x02\0\0\0\x10\0\0\0")
        try:
            while piece := connection.recv(4096):
                answer += piece
        except ConnectionResetError:
            pass
    return answer


def between_nodes(open_node, guarded):
    for server in [open_node, guarded]:
        assert server.address.startswith("127.")
        assert "all addresses are loopback" in server.log.read_text(), "it says that it is open"


def with_certificates(open_node, guarded):
    folder = guarded.data.parent / "certs"
    address = free_address()
    for command in [["init"], ["node", address]]:
        subprocess.run([str(binary()), "certs", *command, "--dir", str(folder)], check=True, capture_output=True)
    home = guarded.data.parent / "with-certificates"
    home.mkdir()
    server = Server(home, address, ["--certs", str(folder / "nodes" / address)]).start()
    try:
        answer = said_to_a_stranger(server)
        assert answer == b"" or (answer[0] == 21 and len(answer) == 7), f"an alert of TLS at most: {answer!r}"
    finally:
        assert server.stop() == 0


CHECKS = {
    "9042": cql,
    "7000 `/health/…`, `/assets/…`, `/login`": for_everybody,
    "7000 `/metrics`": metrics,
    "7000 pages, `GET /api/v1/…`": pages,
    "7000 changes": changes,
    "7000 `/api/v1/auth`, changes under `/api/v1/cidr-groups/`": who_gets_in,
    "7100, with `--certs`": with_certificates,
    "7100, with `--insecure`, or on loopback without `--certs`": between_nodes,
}


def test_each_row_of_the_document_is_checked():
    assert list(table()) == list(CHECKS)


@pytest.mark.parametrize("port", CHECKS)
def test_a_default_node_does_what_the_document_says(open_node, guarded, port):
    CHECKS[port](open_node, guarded)


def test_files_are_for_the_owner_only(guarded):
    seen = 0
    for folder, folders, files in os.walk(guarded.data):
        for name in folders + files:
            path = os.path.join(folder, name)
            try:
                mode = stat.S_IMODE(os.lstat(path).st_mode)
            except FileNotFoundError:
                continue
            assert mode & 0o077 == 0, f"{path}: {mode:o}"
            seen += 1
    assert seen > 20
    assert stat.S_IMODE(os.stat(guarded.data).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(guarded.data.parent / "audit.log").st_mode) == 0o600


def test_the_metrics_of_the_checklist_exist(guarded):
    text = urllib.request.urlopen(f"http://{guarded.address}:7000/metrics", timeout=30).read().decode()
    names = re.findall(r"`(diorite_\w+)", section("Checklist"))
    assert len(names) >= 3
    for name in names:
        assert re.search(rf"^{name}[{{ ]", text, re.MULTILINE), name
