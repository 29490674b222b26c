"""What operators see of a cluster of three with the tools they have: metrics by promtool and Prometheus, the dashboard and the alerts under deploy/,
health, the last hour, statements, memory, logs and their levels, and the state of data at risk."""

import base64
import json
import pathlib
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import WhiteListRoundRobinPolicy

from conftest import HERE, Server, binary, cluster_of

DEPLOY = HERE.parent.parent / "deploy"
DEADLINE_S = 120
OPEN_METRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
METRIC = re.compile(r"\b(?:diorite|process)_[a-z0-9_]+")
SECRET = "correct-horse-battery"


def fetch(server, path, accept=None, body=None, login=None):
    """Status, content type and body."""
    data = None if body is None else json.dumps(body).encode()
    headers = {} if data is None else {"content-type": "application/json"}
    request = urllib.request.Request(f"http://{server.address}:7000{path}", data=data, headers=headers)
    if accept:
        request.add_header("Accept", accept)
    if login:
        request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def wait_for(what, look, is_so=bool):
    deadline = time.monotonic() + DEADLINE_S
    while True:
        seen = look()
        if is_so(seen):
            return seen
        assert time.monotonic() < deadline, f"{what}: {seen!r}"
        time.sleep(0.2)


def ask(server, path):
    # A node that another one asks and that does not run for two or three seconds has not answered: 503.
    status, _, text = wait_for(path, lambda: fetch(server, path), lambda seen: seen[0] != 503)
    assert status == 200, f"{path}: {status} {text}"
    return json.loads(text)


def admin(server, *arguments):
    command = [str(binary()), "admin", "--host", server.address, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def connect(server, **options):
    profile = ExecutionProfile(
        request_timeout=30, load_balancing_policy=WhiteListRoundRobinPolicy([server.address])
    )
    cluster = Cluster(
        [server.address], protocol_version=4, execution_profiles={EXEC_PROFILE_DEFAULT: profile}, **options
    )
    return cluster, cluster.connect()


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """A cluster that has done a little of everything."""
    servers = cluster_of(tmp_path_factory.mktemp("observed"))
    cluster, session = connect(servers[0])
    session.execute("CREATE KEYSPACE seen WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}")
    session.execute("CREATE TABLE seen.t (k int, c int, v text, PRIMARY KEY (k, c)) WITH tablets = 6")
    insert = session.prepare("INSERT INTO seen.t (k, c, v) VALUES (?, ?, ?)")
    select = session.prepare("SELECT v FROM seen.t WHERE k = ? AND c = ?")
    for key in range(200):
        session.execute(insert, (key, 1, "value"))
        assert session.execute(select, (key, 1)).one().v == "value"
    session.execute("INSERT INTO seen.t (k, c, v) VALUES (1, 2, 'x') IF NOT EXISTS")
    session.execute("BEGIN BATCH INSERT INTO seen.t (k, c, v) VALUES (2, 3, 'y'); DELETE FROM seen.t WHERE k = 9 AND c = 9; APPLY BATCH")
    assert session.execute("SELECT COUNT(*) FROM seen.t").one()[0] == 202
    assert len(list(session.execute("SELECT * FROM seen.t"))) == 202
    cluster.shutdown()
    yield servers
    for server in servers:
        if server.process.poll() is None:
            server.stop()


def samples(text):
    """The names of all samples, and the families that HELP and TYPE announce."""
    named, helped, typed = set(), set(), {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            helped.add(line.split(" ", 3)[2])
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in typed, f"{name} is announced twice"
            typed[name] = kind
        elif not line.startswith("#"):
            named.add(re.split(r"[{ ]", line, maxsplit=1)[0])
    return named, helped, typed


SUFFIXES = ("_total", "_bucket", "_sum", "_count", "_info")


def test_open_metrics_is_given_to_those_who_ask_for_it(servers):
    status, kind, text = fetch(servers[0], "/metrics", accept=OPEN_METRICS)
    assert status == 200 and kind == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert text.endswith("# EOF\n")
    named, helped, typed = samples(text)
    for name in named:
        families = [name] + [name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)]
        assert any(family in typed and family in helped for family in families), f"{name} has no HELP and TYPE"
    assert typed["diorite_cql_request_duration_seconds"] == "histogram"
    assert typed["diorite_raft_proposals"] == "counter"
    assert "diorite_cql_request_duration_seconds_bucket" in named


@pytest.mark.parametrize("accept", [None, "text/plain"])
def test_promtool_finds_nothing_to_say_about_the_metrics(servers, accept):
    for server in servers:
        status, kind, text = fetch(server, "/metrics", accept=accept)
        assert status == 200 and kind.startswith("text/plain; version=0.0.4")
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
        assert checked.returncode == 0 and not (checked.stdout + checked.stderr).strip(), checked.stdout + checked.stderr


def value(server, name, labels=""):
    """The sum of a metric's samples that have all of these labels."""
    lines = fetch(server, "/metrics")[2].splitlines()
    found = [line for line in lines if re.match(re.escape(name) + r"[{ ]", line)]
    found = [line for line in found if all(label in line for label in labels.split(","))]
    assert found, f"no {name} with {labels}"
    return sum(float(line.rsplit(" ", 1)[1]) for line in found)


def test_what_clients_did_is_in_the_metrics(servers):
    first = servers[0]
    duration = "diorite_cql_request_duration_seconds_count"
    for operation, at_least in [("read", 200), ("write", 200), ("conditional", 1), ("batch", 1), ("aggregate", 1), ("scan", 1), ("schema", 2), ("prepare", 2)]:
        assert value(first, duration, f'operation="{operation}"') >= at_least, operation
    buckets = value(first, "diorite_cql_request_duration_seconds_bucket", 'operation="write",le="+Inf"')
    assert buckets == value(first, duration, 'operation="write"')
    # A write counts once, where its tablet is led.
    assert sum(value(server, "diorite_table_writes_total", 'keyspace="seen",table="t"') for server in servers) >= 202
    # Nodes open replicas in the background, and a tablet whose leader did not run for a second is led by nobody for a moment.
    wait_for("all replicas", lambda: sum(value(server, "diorite_table_tablets", 'keyspace="seen",table="t"') for server in servers), lambda seen: seen == 18)
    wait_for("all leaders", lambda: sum(value(server, "diorite_tablets_led") for server in servers), lambda seen: seen >= 7)
    assert sum(value(server, "diorite_raft_proposals_total") for server in servers) >= 202
    for server in servers:
        assert value(server, "diorite_raft_entries_committed_total") > 0
        assert value(server, "diorite_raft_lease_renewals_total") > 0
        assert value(server, "diorite_raft_log_sync_duration_seconds_count") > 0
        assert value(server, "process_resident_memory_bytes") > 1 << 20
        assert value(server, "process_open_fds") > 10
        assert value(server, "diorite_ready") == 1
        assert value(server, "diorite_build_info", 'version="') == 1


def queries_of_deploy():
    """Every expression in the alert rules and the dashboard, with where it is."""
    rules = (DEPLOY / "prometheus" / "diorite-alerts.yml").read_text()
    for expression in re.findall(r"^ +expr: (.*)$", rules, flags=re.MULTILINE):
        yield "diorite-alerts.yml", expression
    dashboard = json.loads((DEPLOY / "grafana" / "diorite.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["definition"]


def test_the_dashboard_and_the_alerts_name_only_metrics_that_exist(servers):
    # What only the leader of the catalog tells, it tells when it has looked around.
    wait_for("the cluster's metrics", lambda: any("diorite_cluster_nodes" in fetch(server, "/metrics")[2] for server in servers))
    existing = set()
    for server in servers:
        named, helped, _ = samples(fetch(server, "/metrics")[2])
        # A family that has had nothing to count yet is announced all the same.
        existing |= named | helped
    asked = list(queries_of_deploy())
    assert len(asked) > 50
    for place, expression in asked:
        names = METRIC.findall(expression)
        # Prometheus itself says whether a target is up.
        assert names or expression.startswith("up{"), f"{place}: {expression}"
        for name in names:
            assert name in existing, f"{place} asks for {name}, which no node has"


def test_promtool_accepts_the_alerts_and_the_configuration():
    for arguments in (["rules", "diorite-alerts.yml"], ["config", "prometheus.yml"]):
        command = ["promtool", "check", *arguments]
        checked = subprocess.run(command, cwd=DEPLOY / "prometheus", capture_output=True, text=True, timeout=60)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_prometheus_scrapes_the_cluster(servers, tmp_path):
    configuration = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    targets = "\n".join(f"          - {server.address}:7000" for server in servers)
    configuration = configuration.replace("          - 127.0.0.1:7000", targets).replace("15s", "1s")
    (tmp_path / "prometheus.yml").write_text(configuration)
    shutil.copy(DEPLOY / "prometheus" / "diorite-alerts.yml", tmp_path)
    address = f"{servers[0].address}:9090"
    command = [
        "prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address={address}",
    ]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def query(path):
        assert process.poll() is None, (tmp_path / "log").read_text()[-4000:]
        try:
            with urllib.request.urlopen(f"http://{address}/api/v1/{path}", timeout=10) as answer:
                return json.load(answer)["data"]
        except OSError:
            # It does not listen, or does not answer yet.
            return None

    try:
        def healthy():
            targets = (query("targets") or {}).get("activeTargets", [])
            return [(target["health"], target["lastError"]) for target in targets]

        wait_for("three targets that are up", healthy, lambda seen: seen == [("up", "")] * 3)
        total = urllib.request.quote('sum(diorite_cql_request_duration_seconds_count{operation="write"})')
        found = wait_for("the writes", lambda: (query(f"query?query={total}") or {}).get("result"))
        assert float(found[0]["value"][1]) >= 200

        def evaluated():
            groups = (query("rules") or {}).get("groups", [])
            return [(rule["name"], rule["health"], rule["state"]) for group in groups for rule in group["rules"]]

        rules = wait_for("the rules", evaluated, lambda seen: seen and all(health == "ok" for _, health, _ in seen))
        assert not [name for name, _, state in rules if state == "firing"], rules
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def test_every_node_tells_the_last_hour_of_every_other(servers):
    nodes = ask(servers[0], "/api/v1/nodes")
    assert len(nodes) == 3
    for server in servers:
        for node in nodes:
            path = f"/api/v1/nodes/{node['node']}/history"
            shown = wait_for("a point", lambda: ask(server, path), lambda shown: shown["series"]["cpu_cores"])
            assert shown["step_seconds"] == 5 and shown["end_unix_seconds"] % 5 == 0
            assert abs(shown["end_unix_seconds"] - time.time()) < 60
            assert len({len(values) for values in shown["series"].values()}) == 1
            assert shown["series"]["resident_bytes"][-1] > 1 << 20
    # The node that clients talked to has seen them.
    reads = ask(servers[0], "/api/v1/history")["series"]["reads_per_second"]
    assert max(read for read in reads if read is not None) > 0
    assert fetch(servers[0], "/api/v1/nodes/77/history")[0] == 404


def test_statements_are_told_apart_without_their_values(servers):
    shown = ask(servers[0], "/api/v1/queries")
    by_text = {query["statement"]: query for query in shown["queries"]}
    insert = by_text["INSERT INTO seen.t (k, c, v) VALUES (?, ?, ?)"]
    assert insert["count"] == 200 and insert["errors"] == 0
    assert 0 < insert["mean_seconds"] <= insert["max_seconds"] and insert["p99_seconds"] <= insert["max_seconds"]
    assert abs(insert["last_unix_seconds"] - time.time()) < 600
    select = by_text["SELECT v FROM seen.t WHERE k = ? AND c = ?"]
    assert (select["count"], select["rows"]) == (200, 200)
    assert by_text["INSERT INTO seen.t (k, c, v) VALUES (?, ?, ?) IF NOT EXISTS"]["count"] == 1
    assert any(text and text.startswith("BEGIN BATCH") for text in by_text)
    totals = [query["total_seconds"] for query in shown["queries"]]
    assert totals == sorted(totals, reverse=True)
    assert shown["running"] == [] and shown["running_count"] == 0


def test_memory_adds_up(servers):
    shown = ask(servers[1], "/api/v1/memory")
    allocator = shown["allocator"]
    assert 0 < allocator["allocated"] <= allocator["active"] <= allocator["resident"]
    names = [component["name"] for component in shown["components"]]
    assert len(set(names)) == len(names) and any("block cache" in name for name in names)
    total = sum(component["bytes"] for component in shown["components"])
    assert total == pytest.approx(shown["resident_bytes"], rel=0.1)


def test_kept_traces_are_shown_with_their_memory(servers):
    name = "traces of requests"
    traces = lambda: next(part for part in ask(servers[1], "/api/v1/memory")["components"] if part["name"] == name)
    kept, before = value(servers[1], "diorite_traces_kept"), traces()
    assert 0 <= before["bytes"] <= before["limit_bytes"] == 4 << 20
    cluster, session = connect(servers[1])
    for _ in range(10):
        session.execute("SELECT v FROM seen.t WHERE k = 7 AND c = 1", trace=True)
    cluster.shutdown()
    assert value(servers[1], "diorite_traces_kept") == kept + 10
    taken = traces()["bytes"]
    assert taken > before["bytes"] and value(servers[1], "diorite_traces_kept_bytes") == taken


def test_levels_and_the_slow_query_threshold_change_while_the_node_runs(servers):
    nodes = {node["http_address"]: node["node"] for node in ask(servers[0], "/api/v1/nodes")}
    third = nodes[f"{servers[2].address}:7000"]
    before = json.loads(admin(servers[0], "logging", "--node", str(third), "--json").stdout)
    assert before == {"levels": "info", "slow_query": "500ms", "format": "text"}
    changed = admin(servers[0], "logging", "--node", str(third), "--levels", "info,diorite_node=debug", "--slow-query", "0")
    assert changed.returncode == 0 and "info,diorite_node=debug" in changed.stdout, changed
    assert ask(servers[2], "/api/v1/logging")["slow_query"] == "0ms"
    assert ask(servers[0], "/api/v1/logging")["slow_query"] == "500ms"
    cluster, session = connect(servers[2])

    def slow():
        # What the driver asks for by itself counts too.
        session.execute("SELECT v FROM seen.t WHERE k = 7 AND c = 424242")
        lines = ask(servers[0], f"/api/v1/nodes/{third}/logs?level=warn&limit=1000")
        return [line for line in lines if line["fields"].get("statement") == "SELECT v FROM seen.t WHERE k = ? AND c = ?"]

    lines = wait_for("a slow query", slow)
    assert {line["level"] for line in lines} == {"warn"}
    assert {line["fields"]["event"] for line in lines} == {"slow_query"}
    assert {line["fields"]["operation"] for line in lines} == {"read"}
    cluster.shutdown()
    assert "424242" not in servers[2].log.read_text(errors="replace")
    assert admin(servers[0], "logging", "--node", str(third), "--slow-query", "off").returncode == 0
    refused = admin(servers[0], "logging", "--node", str(third), "--levels", "diorite_node=loud")
    assert refused.returncode == 1 and "levels" in refused.stderr
    assert ask(servers[2], "/api/v1/logging") == {"levels": "info,diorite_node=debug", "slow_query": "off", "format": "text"}
    assert fetch(servers[0], "/api/v1/logs?level=loud")[0] == 400
    newest = ask(servers[0], "/api/v1/logs?limit=3")
    assert len(newest) == 3 and newest == sorted(newest, key=lambda line: line["unix_seconds"])


def test_changes_of_leaders_are_events_in_the_log(servers):
    events = [ask(server, "/api/v1/logs?limit=5000") for server in servers]
    leaders = [line for lines in events for line in lines if line["fields"].get("event") == "leader"]
    assert len(leaders) >= 7, "six tablets and the catalog have got leaders"


def test_no_password_is_ever_in_the_log(tmp_path):
    server = Server(tmp_path, options=["--auth", "--log-level", "trace", "--log-format", "json", "--slow-query", "0"]).start()
    try:
        root = PlainTextAuthProvider("cassandra", "cassandra")
        cluster, session = wait_for("the first role", lambda: try_connect(server, root))
        session.execute(f"CREATE ROLE ann WITH PASSWORD = '{SECRET}' AND LOGIN = true")
        session.execute(session.prepare(f"ALTER ROLE ann WITH PASSWORD = '{SECRET}'"))
        cluster.shutdown()
        cluster, session = connect(server, auth_provider=PlainTextAuthProvider("ann", SECRET))
        session.execute("SELECT * FROM system.local")
        cluster.shutdown()
        assert try_connect(server, PlainTextAuthProvider("ann", SECRET + "-wrong")) is None
        shown = [fetch(server, path, login="cassandra:cassandra")[2] for path in ("/api/v1/logs?level=trace&limit=5000", "/api/v1/queries", "/metrics", "/api/v1/config")]
        assert "CREATE ROLE ann WITH PASSWORD = ?" in shown[1]
    finally:
        server.stop()
    log = server.log.read_text(errors="replace")
    lines = log.splitlines()
    assert len(lines) > 20
    for line in lines:
        assert json.loads(line)["level"] in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR")
    for text in [log, *shown]:
        assert SECRET not in text


def try_connect(server, provider):
    try:
        return connect(server, auth_provider=provider)
    except Exception:  # noqa: BLE001 - the driver wraps what the server says in one of several errors
        return None


def test_status_and_readiness_tell_of_a_node_and_of_a_majority_that_is_down(servers):
    def status():
        seen = admin(servers[0], "status", "--json")
        return seen.returncode, json.loads(seen.stdout or "null")

    wait_for("a healthy cluster", status, lambda seen: seen[0] == 0)
    for server in servers:
        assert fetch(server, "/health/live")[0] == 200
        assert fetch(server, "/health/ready")[0] == 200
    servers[2].process.kill()
    servers[2].process.wait()
    code, seen = wait_for("a cluster at risk", status, lambda seen: seen[0] == 2 and seen[1] and seen[1]["live_nodes"] == 2)
    assert (code, seen["nodes"]) == (2, 3) and seen["under_replicated"] >= 6
    assert any("is down" in warning for warning in seen["warnings"])
    # The node that was killed may have led the catalog.
    wait_for("two nodes that are ready", lambda: [fetch(server, "/health/ready")[0] for server in servers[:2]], lambda seen: seen == [200, 200])
    servers[1].process.kill()
    servers[1].process.wait()
    wait_for("a node that is not ready", lambda: fetch(servers[0], "/health/ready"), lambda seen: seen[0] == 503)
    assert "catalog" in fetch(servers[0], "/health/ready")[2]
    assert fetch(servers[0], "/health/live")[0] == 200
    assert value(servers[0], "diorite_ready") == 0
    servers[1].start()
    wait_for("a node that is ready again", lambda: fetch(servers[0], "/health/ready")[0], lambda seen: seen == 200)
    servers[2].start()
    wait_for("a healthy cluster", status, lambda seen: seen[0] == 0)
