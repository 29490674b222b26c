"""Passwords and values are in no log, page, metric or audit entry of a node; the audit log says who did what."""

import base64
import contextlib
import http.client
import json
import pathlib
import re
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
from cassandra.cluster import NoHostAvailable
from conftest import READY_WITHIN_S, Server
from test_access import cluster_at

# Parts of texts, so that they are found wherever they are written.
SECRETS = {
    "the password of a superuser": "Qz7superuser",
    "the password of a role": "Qz7ofarole",
    "its next password": "Qz7next",
    "a wrong password": "Qz7wrong",
    "a password over HTTP that is wrong": "Qz7webwrong",
    "the token for metrics": "Qz7tokenformetrics",
    "a value in a text": "Qz7literal",
    "a value that is bound": "Qz7bound",
    "a value of a statement that fails": "Qz7failed",
    "an option of a role": "Qz7option",
}
GETS = [
    "/", "/nodes", "/nodes/1", "/tables", "/tables/ks/t", "/tablets", "/moves", "/transactions", "/queries", "/memory", "/logs?level=trace&limit=100000", "/config", "/metrics",
    "/api/v1/status", "/api/v1/nodes", "/api/v1/tables", "/api/v1/tables/ks/t", "/api/v1/tablets", "/api/v1/moves", "/api/v1/transactions", "/api/v1/cluster/history", "/api/v1/history",
    "/api/v1/queries", "/api/v1/memory", "/api/v1/config", "/api/v1/logs?level=trace&limit=100000", "/api/v1/logging",
]


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secrets")
    token = folder / "token"
    token.write_text(SECRETS["the token for metrics"] + "\n")
    options = ["--auth", "--audit", str(folder / "audit"), "--audit-tables", "ks.t,ks.read", "--metrics-access", "token", "--metrics-token-file", str(token)]
    server = Server(folder, options=[*options, "--log-level", "debug,diorite_node=trace,diorite_query=trace,diorite_admin=trace", "--slow-query", "0"]).start()
    server.audit = folder / "audit"
    yield server
    assert server.stop() == 0


def entries(node):
    return [json.loads(line) for line in node.audit.read_text().splitlines()]


def until_audited(node, is_there):
    deadline = time.monotonic() + READY_WITHIN_S
    while not any(is_there(entry) for entry in entries(node)):
        assert time.monotonic() < deadline, entries(node)
        time.sleep(0.05)


def first_session(node):
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            cluster = cluster_at(node, "cassandra", "cassandra")
            return cluster, cluster.connect()
        except NoHostAvailable:
            cluster.shutdown()
            assert time.monotonic() < deadline, node.log_tail()
            time.sleep(0.2)


def ask(node, path, login=None, body=None, **headers):
    if login:
        headers["authorization"] = "Basic " + base64.b64encode(":".join(login).encode()).decode()
    connection = http.client.HTTPConnection(node.address, 7000, timeout=60)
    connection.request("GET" if body is None else "POST", path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_secrets_are_written_nowhere(node):
    secret = SECRETS
    cluster, session = first_session(node)
    session.execute(f"ALTER ROLE cassandra WITH PASSWORD = '{secret['the password of a superuser']}'")
    session.execute(f"CREATE ROLE ann WITH PASSWORD = '{secret['the password of a role']}' AND LOGIN = true")
    session.execute(f"ALTER ROLE ann WITH PASSWORD = '{secret['its next password']}'")
    for statement in [
        f"CREATE ROLE x WITH PASSWORD = '{secret['the password of a role']}' AND OPTIONS = {{'key': '{secret['an option of a role']}'}}",
        f"CREATE ROLE ann WITH PASSWORD = '{secret['the password of a role']}'",
        f"CREATE ROLE x WITH HASHED PASSWORD = '{secret['a value of a statement that fails']}'",
        f"SELEKT '{secret['a value of a statement that fails']}'",
    ]:
        with pytest.raises(Exception):
            session.execute(statement)
    session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE ks.t (k text PRIMARY KEY, v text)")
    session.execute(f"INSERT INTO ks.t (k, v) VALUES ('k', '{secret['a value in a text']}')")
    session.execute(session.prepare("INSERT INTO ks.t (k, v) VALUES (?, ?)"), ["b", secret["a value that is bound"]])
    session.execute(f"SELECT * FROM ks.t WHERE v = '{secret['a value in a text']}' ALLOW FILTERING", trace=True)
    session.execute(session.prepare("SELECT * FROM ks.t WHERE k = ?"), [secret["a value that is bound"]], trace=True)
    session.execute(f"ALTER ROLE ann WITH PASSWORD = '{secret['its next password']}'", trace=True)
    with pytest.raises(Exception):
        session.execute(f"INSERT INTO ks.t (k, v) VALUES (1, '{secret['a value of a statement that fails']}')", trace=True)
    hashes = [row.salted_hash for row in session.execute("SELECT salted_hash FROM system_auth.roles") if row.salted_hash]
    assert len(hashes) == 2
    with pytest.raises(NoHostAvailable):
        cluster_at(node, "ann", secret["a wrong password"]).connect()
    superuser = ("cassandra", secret["the password of a superuser"])
    assert ask(node, "/", ("cassandra", secret["a password over HTTP that is wrong"]))[0] == 401
    form = urllib.parse.urlencode({"user": "cassandra", "password": superuser[1]})
    assert ask(node, "/login", body=form, content_type="application/x-www-form-urlencoded")[0] == 303
    wrong = urllib.parse.urlencode({"user": "cassandra", "password": secret["a password over HTTP that is wrong"]})
    assert ask(node, "/login", body=wrong, content_type="application/x-www-form-urlencoded")[0] == 401
    assert ask(node, "/metrics", authorization=f"Bearer {secret['the token for metrics']}")[0] == 200
    assert ask(node, "/api/v1/settings", superuser, json.dumps({"balancing_is_paused": False}), content_type="application/json")[0] == 200
    until_audited(node, lambda entry: entry["category"] == "operations")
    written = {path: ask(node, path, superuser) for path in GETS}
    assert {path for path, (status, _) in written.items() if status != 200} == set()
    everything = {path: text for path, (_, text) in written.items()}
    everything["the log"] = node.log.read_text()
    everything["the audit log"] = node.audit.read_text()
    traces = [str(row) for table in ("sessions", "events") for row in session.execute(f"SELECT * FROM system_traces.{table}")]
    assert len(traces) > 8, traces
    everything["the traces"] = "\n".join(traces)
    with open(f"/proc/{node.process.pid}/cmdline") as arguments:
        everything["the command line"] = arguments.read()
    assert "CREATE ROLE" in everything["the audit log"] and "slow" in everything["the log"]
    found = [(what, place) for what, text in [*secret.items(), *(("a hash", text) for text in hashes)] for place, content in everything.items() if text in content]
    assert found == []
    cluster.shutdown()


def test_neither_a_node_nor_its_guard_leaves_a_core_dump(node):
    processes = [str(node.process.pid)]
    for children in pathlib.Path(f"/proc/{node.process.pid}/task").glob("*/children"):
        # A thread may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            processes += children.read_text().split()
    assert len(processes) == 2, processes
    for process in processes:
        limits = pathlib.Path(f"/proc/{process}/limits").read_text()
        soft, hard = re.search(r"^Max core file size +(\S+) +(\S+)", limits, re.MULTILINE).groups()
        # 1 byte is too little for a file, and keeps the system from piping the dump to a program; 0 does only the first.
        assert soft == ("0" if hard == "0" else "1"), limits


def test_the_audit_log_says_who_did_what_and_from_where(node):
    until_audited(node, lambda entry: entry["category"] == "schema")
    found = entries(node)
    def has(**wanted):
        return any(all(entry.get(name) == value for name, value in wanted.items()) for entry in found)
    assert has(category="logins", role="cassandra", port="cql", outcome="done")
    assert has(category="logins", role="ann", port="cql", outcome="failed")
    assert has(category="logins", role="cassandra", port="http", outcome="failed")
    assert has(category="logins", role="cassandra", port="http", outcome="done")
    assert has(category="roles", role="cassandra", what="CREATE ROLE ann WITH PASSWORD = '***' AND LOGIN = true", outcome="done")
    assert has(category="roles", role="cassandra", outcome="failed", error="Invalid")
    tables = [entry for entry in found if entry["category"] == "schema" and entry["what"].startswith("CREATE TABLE ks.t")]
    assert [(entry["role"], entry["outcome"]) for entry in tables] == [("cassandra", "done")], found
    assert has(category="operations", role="cassandra", what="POST /api/v1/settings", outcome="done")
    assert all(entry["client"].startswith("127.") for entry in found)
    assert node.audit.stat().st_mode & 0o777 == 0o600


def test_a_flood_of_wrong_passwords_pushes_nothing_out(node):
    before = entries(node)
    for _ in range(200):
        ask(node, "/", ("cassandra", "no"))
    after = entries(node)
    assert after[: len(before)] == before and len(after) < len(before) + 100


def test_reads_and_writes_of_chosen_tables_are_in_the_audit_log_without_their_values(node):
    cluster = cluster_at(node, "cassandra", SECRETS["the password of a superuser"])
    session = cluster.connect()
    session.execute("CREATE TABLE ks.read (k int PRIMARY KEY, v text)")
    insert = session.prepare("INSERT INTO ks.read (k, v) VALUES (?, ?)")
    session.execute(insert, [1, "Qz7audited"])
    session.execute("SELECT v FROM ks.read WHERE k = 1")
    until_audited(node, lambda entry: entry["category"] == "data" and entry["what"].startswith("SELECT v FROM ks.read"))
    found = [(entry["role"], entry["what"], entry["outcome"]) for entry in entries(node) if entry["category"] == "data" and "ks.read" in entry["what"]]
    assert found == [
        ("cassandra", "INSERT INTO ks.read (k, v) VALUES (?, ?)", "done"),
        ("cassandra", "SELECT v FROM ks.read WHERE k = ?", "done"),
    ]
    assert "Qz7audited" not in node.audit.read_text()
    cluster.shutdown()
