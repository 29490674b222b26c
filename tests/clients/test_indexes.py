"""Secondary indexes with the unmodified Python driver: on one node, and on a cluster that splits, is killed and started again."""

import collections
import json
import signal
import subprocess
import time
import urllib.request

import pytest
from cassandra import InvalidRequest, OperationTimedOut, ReadTimeout, Unavailable
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.query import SimpleStatement

from conftest import binary, cluster_of, repeated, while_it_lives, write_all

BUILT_WITHIN_S = 120


def connect(servers):
    profile = ExecutionProfile(request_timeout=60)
    addresses = [server.address for server in servers]
    return Cluster(addresses, execution_profiles={EXEC_PROFILE_DEFAULT: profile})


def once_built(session, statement, within_s=BUILT_WITHIN_S):
    """The rows of a statement, once its index is complete."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            return list(session.execute(statement))
        except InvalidRequest as error:
            assert "still being built" in str(error) and time.monotonic() < deadline, error
        except (NoHostAvailable, Unavailable, ReadTimeout, OperationTimedOut) as error:
            # A leader was lost.
            assert time.monotonic() < deadline, error
        time.sleep(0.1)


@pytest.fixture(scope="module")
def session(server):
    with connect([server]) as cluster:
        session = cluster.connect()
        session.execute("CREATE KEYSPACE IF NOT EXISTS indexed WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.set_keyspace("indexed")
        yield session


def test_rows_are_found_by_value(session):
    session.execute("CREATE TABLE people (id int PRIMARY KEY, city text, born int, tags set<text>, marks map<text, int>)")
    write_all(session, "INSERT INTO people (id, city, born) VALUES (?, ?, ?)", [(n, f"city{n % 7}", 1900 + n % 100) for n in range(1000)])
    session.execute("CREATE INDEX people_by_city ON people (city)")
    session.execute("CREATE CUSTOM INDEX people_by_year ON people (born) USING 'StorageAttachedIndex'")
    found = once_built(session, "SELECT id FROM people WHERE city = 'city3'")
    assert sorted(row.id for row in found) == [n for n in range(1000) if n % 7 == 3]
    found = once_built(session, "SELECT id FROM people WHERE born >= 1995")
    assert sorted(row.id for row in found) == [n for n in range(1000) if n % 100 >= 95]
    # A value that is overwritten is found no more, and the new one at once.
    session.execute("UPDATE people SET city = 'elsewhere' WHERE id = 3")
    assert 3 not in {row.id for row in session.execute("SELECT id FROM people WHERE city = 'city3'")}
    assert [row.id for row in session.execute("SELECT id FROM people WHERE city = 'elsewhere'")] == [3]
    session.execute("DELETE FROM people WHERE id = 10")
    assert 10 not in {row.id for row in session.execute("SELECT id FROM people WHERE city = 'city3'")}
    assert session.execute("SELECT count(*) FROM people WHERE city = 'city3'").one()[0] == len([n for n in range(1000) if n % 7 == 3]) - 2
    paged = SimpleStatement("SELECT id FROM people WHERE city = 'city4'", fetch_size=10)
    assert sorted(row.id for row in session.execute(paged)) == [n for n in range(1000) if n % 7 == 4]
    assert len(list(session.execute("SELECT id FROM people WHERE city = 'city4' LIMIT 5"))) == 5
    both = session.execute("SELECT id FROM people WHERE city = 'city4' AND born = 1911")
    assert sorted(row.id for row in both) == [n for n in range(1000) if n % 7 == 4 and n % 100 == 11]
    with pytest.raises(InvalidRequest, match="ALLOW FILTERING"):
        session.execute("SELECT id FROM people WHERE city = 'city4' AND tags CONTAINS 'a'")
    session.execute("TRUNCATE people")
    assert list(session.execute("SELECT id FROM people WHERE city = 'city4'")) == []
    write_all(session, "INSERT INTO people (id, city) VALUES (?, ?)", [(n, "again") for n in range(50)])
    assert len(once_built(session, "SELECT id FROM people WHERE city = 'again'")) == 50


def test_values_that_expire(session):
    session.execute("CREATE TABLE brief (id int PRIMARY KEY, v int)")
    session.execute("CREATE INDEX ON brief (v)")
    assert once_built(session, "SELECT id FROM brief WHERE v = 1") == []

    def write(ttl):
        session.execute(f"INSERT INTO brief (id, v) VALUES (1, 1) USING TTL {ttl}")
        session.execute("INSERT INTO brief (id, v) VALUES (2, 1)")
        session.execute("INSERT INTO brief (id, v) VALUES (3, 1)")
        session.execute(f"INSERT INTO brief (id, v) VALUES (3, 1) USING TTL {ttl}")

    ttl, found = while_it_lives(write, lambda: sorted(row.id for row in session.execute("SELECT id FROM brief WHERE v = 1")))
    assert found == [1, 2, 3]
    time.sleep(ttl + 1)
    assert [row.id for row in session.execute("SELECT id FROM brief WHERE v = 1")] == [2]


def test_drivers_see_indexes(session):
    session.execute("CREATE TABLE described (k int, c int, v int, m map<text, int>, PRIMARY KEY (k, c))")
    session.execute("CREATE INDEX described_v ON described (v)")
    session.execute("CREATE INDEX described_m ON described (ENTRIES(m))")
    session.execute("CREATE CUSTOM INDEX described_c ON described (c) USING 'sai'")
    session.execute("CREATE INDEX described_p ON described (v) WHERE c >= 3 AND v != 4")
    session.cluster.refresh_table_metadata("indexed", "described")
    indexes = session.cluster.metadata.keyspaces["indexed"].tables["described"].indexes
    assert {name: (index.kind, index.index_options["target"]) for name, index in indexes.items()} == {
        "described_v": ("COMPOSITES", "v"),
        "described_m": ("COMPOSITES", "entries(m)"),
        "described_c": ("CUSTOM", "c"),
        "described_p": ("COMPOSITES", "v"),
    }
    assert "CREATE INDEX described_v ON indexed.described (v)" in indexes["described_v"].as_cql_query()
    described = [row.create_statement for row in session.execute("DESCRIBE TABLE described")]
    assert "CREATE INDEX described_m ON indexed.described (entries(m));" in described
    assert "CREATE CUSTOM INDEX described_c ON indexed.described (c) USING 'sai';" in described
    assert "CREATE INDEX described_p ON indexed.described (v) WHERE c >= 3 AND v != 4;" in described
    for statement in described[1:]:
        name = statement.split("INDEX ")[1].split(" ")[0]
        session.execute(f"DROP INDEX {name}")
        session.execute(statement)
    with pytest.raises(InvalidRequest, match="dependent secondary indexes"):
        session.execute("ALTER TABLE described DROP v")
    session.execute("DROP INDEX indexed.described_v")
    with pytest.raises(InvalidRequest, match="ALLOW FILTERING"):
        session.execute("SELECT * FROM described WHERE v = 1")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE INDEX ON refused (v) WHERE v IN (3, 4)",
        "CREATE INDEX ON refused (j->'a')",
        "CREATE CUSTOM INDEX ON refused (v) USING 'org.apache.cassandra.index.sasi.SASIIndex'",
    ],
)
def test_what_is_not_there_is_refused_by_name(session, statement):
    session.execute("CREATE TABLE IF NOT EXISTS refused (k int PRIMARY KEY, v int, j jsonb)")
    with pytest.raises(InvalidRequest, match="not supported yet"):
        session.execute(statement)


def admin(server, *arguments):
    command = [str(binary()), "admin", *arguments, "--host", server.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def compared(server, index, *arguments, code=0):
    """The report of a comparison of an index with its table."""
    command = [str(binary()), "admin", "check-index", index, *arguments, "--json", "--host", server.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    report = json.loads(done.stdout)
    for found in [report["total"], *report["tablets"]]:
        assert found["entries"] == sum(
            found.get(part, 0) for part in ["right", "stale", "surplus", "of_other_tablets", "unreadable"]
        ), report
    return report


def tablets_of(server, table):
    return [tablet["tablet"] for tablet in json.loads(admin(server, "tablets", table, "--json"))]


def fetch(server, path):
    with urllib.request.urlopen(f"http://{server.address}:7000{path}", timeout=30) as answer:
        return answer.read().decode()


def metrics(server):
    """The values of metrics, by name with labels."""
    lines = (line for line in fetch(server, "/metrics").splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def once(what, look, is_so=bool, within_s=BUILT_WITHIN_S):
    deadline = time.monotonic() + within_s
    while True:
        seen = look()
        if is_so(seen):
            return seen
        assert time.monotonic() < deadline, f"{what}: {seen!r}"
        time.sleep(0.1)


def test_operators_see_how_far_an_index_is(server, session):
    session.execute("CREATE TABLE shown (id int PRIMARY KEY, v int, filler text) WITH tablets = 4")
    rows = 20_000
    write_all(session, "INSERT INTO shown (id, v, filler) VALUES (?, ?, ?)", [(n, n % 10, "x" * 800) for n in range(rows)])
    before = metrics(server)
    # So slow that it is watched before it is done, even if this process does not run for some seconds: it takes 16 of them.
    limits = json.loads(admin(server, "set-index-rate", "1MiB", "--json"))
    assert [(node["rate_bytes"], node["failure"]) for node in limits] == [(1 << 20, None)]
    assert metrics(server)["diorite_index_rate_limit_bytes"] == 1 << 20
    seen = []

    def status():
        (one,) = (one for one in json.loads(admin(server, "indexes", "--json"))["indexes"] if one["name"] == "shown_by_v")
        assert one["state"] in ("unknown", "not_begun", "building", "ready"), one
        seen.append(one)
        return one

    try:
        began = time.monotonic()
        session.execute("CREATE INDEX shown_by_v ON shown (v)")
        once("it is seen while it is built", status, lambda one: one["state"] == "building" and 0 < one["done_permille"] < 1000 and one["rate_rows"] > 0)
        admin(server, "set-index-rate", "8MiB")
        one = once("the index is built", status, lambda one: one["state"] == "ready")
        assert time.monotonic() - began > 2
    finally:
        admin(server, "set-index-rate", "0")
    assert any(one["state"] == "building" and 0 < one["done_permille"] < 1000 and one["rate_rows"] > 0 for one in seen), seen
    assert [one["done_permille"] for one in seen] == sorted(one["done_permille"] for one in seen)
    named = {"keyspace": "indexed", "table": "shown", "name": "shown_by_v", "target": "v", "state": "ready"}
    counted = {"tablets": 4, "tablets_complete": 4, "tablets_unknown": 0, "done_permille": 1000, "rate_rows": 0, "rate_bytes": 0}
    assert one == {**named, **counted, "eta_seconds": None, "failure": None}
    assert any(line.split()[:4] == ["indexed.shown_by_v", "shown", "v", "ready"] for line in admin(server, "indexes").splitlines())
    closer = json.loads(admin(server, "indexes", "indexed.shown_by_v", "--json"))
    assert closer["state"] == "ready" and closer["unanswered"] == []
    assert sorted(tablet["tablet"] for tablet in closer["listed"]) == sorted(tablets_of(server, "indexed.shown"))
    assert all(tablet["state"] == "ready" and tablet["leader"] for tablet in closer["listed"]), closer
    command = [str(binary()), "admin", "indexes", "indexed.none", "--host", server.address]
    missing = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert missing.returncode != 0 and "there is no index indexed.none" in missing.stderr, missing

    once("nothing is left", lambda: metrics(server)["diorite_index_tablets_left"], lambda left: left == 0)
    after = metrics(server)
    assert after["diorite_indexes_building"] == 0
    grown = {name: after[name] - before[name] for name in before if name.startswith("diorite_index_") and name in after}
    assert grown["diorite_index_built_rows_total"] >= rows and grown["diorite_index_built_bytes_total"] >= 800 * rows, grown
    assert grown['diorite_index_steps_total{step="define"}'] >= 4 and grown['diorite_index_steps_total{step="build"}'] >= 4, grown
    once("the log says so", lambda: fetch(server, "/api/v1/logs"), lambda log: "shown_by_v" in log and "an index is complete" in log)

    stale = "diorite_index_stale_entries_total"
    session.execute("UPDATE shown SET v = 1000 WHERE id = 3")
    assert 3 not in {row.id for row in session.execute("SELECT id FROM shown WHERE v = 3")}
    once("the stale entry is removed", lambda: metrics(server)[stale], lambda removed: removed > before[stale])
    session.execute("DROP INDEX shown_by_v")
    once("it is gone", lambda: admin(server, "indexes"), lambda shown: "shown_by_v" not in shown)


def test_an_index_is_compared_with_its_table(server, session):
    session.execute("CREATE TABLE compared (k int, c text, v int, tags set<text>, PRIMARY KEY (k, c)) WITH tablets = 3")
    session.execute("CREATE INDEX compared_by_v ON compared (v)")
    session.execute("CREATE INDEX compared_by_tag ON compared (tags)")
    rows = 5_000
    values = [(n, f"it's {n}", n % 10, {f"tag{n % 7}", f"tag{n % 11}x"}) for n in range(rows)]
    write_all(session, "INSERT INTO compared (k, c, v, tags) VALUES (?, ?, ?, ?)", values)
    once_built(session, "SELECT k FROM compared WHERE v = 3")
    once_built(session, "SELECT k FROM compared WHERE tags CONTAINS 'tag1'")
    report = compared(server, "indexed.compared_by_v")
    total = report["total"]
    assert (total["rows"], total["values"], total["entries"], total["right"]) == (rows, rows, rows, rows), report
    assert (total["missing"], total["stale"], report["failed"]) == (0, 0, 0), report
    assert sorted(tablet["tablet"] for tablet in report["tablets"]) == sorted(tablets_of(server, "indexed.compared"))
    assert all(tablet["leader"] and tablet["failure"] is None for tablet in report["tablets"]), report
    assert compared(server, "indexed.compared_by_tag")["total"]["values"] == 2 * rows

    # Stale entries are counted and named, and are no error.
    session.execute("UPDATE compared SET v = 1000 WHERE k = 17 AND c = 'it''s 17'")
    session.execute("DELETE FROM compared WHERE k = 18 AND c = 'it''s 18'")
    report = compared(server, "indexed.compared_by_v")
    total = report["total"]
    assert (total["missing"], total["entries"]) == (0, rows + 1), report
    named = [one for tablet in report["tablets"] for one in tablet["named"]]
    assert total["stale"] == len(named) >= 1 and all(one["difference"] == "stale" for one in named), report
    assert "k = 17 AND c = 'it''s 17'" in [one["row"] for one in named], report
    shown = admin(server, "check-index", "indexed.compared_by_v")
    assert "k = 17 AND c = 'it''s 17' does not have the value" in shown and shown.splitlines()[4].split()[0] == "all", shown

    # One tablet, and what cannot be compared.
    (one,) = compared(server, "indexed.compared_by_v", "--tablet", str(tablets_of(server, "indexed.compared")[1]))["tablets"]
    assert 0 < one["values"] < rows
    for index, reason in [("indexed.none", "there is no index indexed.none"), ("indexed.compared", "there is no index")]:
        command = [str(binary()), "admin", "check-index", index, "--host", server.address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode != 0 and reason in done.stderr, done
    try:
        admin(server, "set-index-rate", "1MiB")
        session.execute("CREATE TABLE slow (id int PRIMARY KEY, v int, filler text) WITH tablets = 1")
        write_all(session, "INSERT INTO slow (id, v, filler) VALUES (?, ?, ?)", [(n, n, "x" * 500) for n in range(20_000)])
        session.execute("CREATE INDEX slow_by_v ON slow (v)")
        report = compared(server, "indexed.slow_by_v", code=1)
        (tablet,) = report["tablets"]
        assert report["failed"] == 1 and "is not built" in tablet["failure"], report
    finally:
        admin(server, "set-index-rate", "0")
    session.execute("DROP TABLE slow")


def wait_for_copies(server, table):
    """Waits until all replicas of a table have applied what their leaders have."""
    deadline = time.monotonic() + 2 * BUILT_WITHIN_S
    while True:
        shown = [json.loads(admin(server, "tablet", str(tablet), "--json"))["replicas"] for tablet in tablets_of(server, table)]
        applied = [{replica["applied_index"] for replica in replicas} for replicas in shown]
        if all(len(replicas) == 3 for replicas in shown) and all(len(indexes) == 1 for indexes in applied):
            return
        assert time.monotonic() < deadline, applied
        time.sleep(0.5)


def test_a_cluster_that_splits_and_is_killed_in_the_midst_of_a_build(tmp_path):
    servers = cluster_of(tmp_path, 3)
    try:
        with connect(servers) as cluster:
            session = cluster.connect()
            session.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}")
            session.set_keyspace("ks")
            session.execute("CREATE TABLE t (k int PRIMARY KEY, v int, filler text) WITH tablets = 2")
            rows = 40_000
            write_all(session, "INSERT INTO t (k, v, filler) VALUES (?, ?, ?)", [(n, n % 100, "x" * 100) for n in range(rows)])
            expected = collections.defaultdict(set)
            for n in range(rows):
                expected[n % 100].add(n)
            session.execute("CREATE INDEX ON t (v)")
            servers[2].process.send_signal(signal.SIGKILL)
            servers[2].process.wait()
            for tablet in tablets_of(servers[0], "ks.t"):
                admin(servers[0], "split", str(tablet))
            changed = session.prepare("UPDATE t SET v = ? WHERE k = ?")
            for n in range(0, rows, 40):
                # A leader was lost a moment ago.
                repeated(lambda: session.execute(changed, (1_000, n)))
                expected[n % 100].discard(n)
                expected[1_000].add(n)
            servers[2].start()
            for value in (0, 7, 20, 99, 1_000):
                found = once_built(session, f"SELECT k FROM t WHERE v = {value}")
                assert collections.Counter(row.k for row in found) == collections.Counter(expected[value]), value
            deadline = time.monotonic() + 2 * BUILT_WITHIN_S
            while len(tablets_of(servers[0], "ks.t")) < 4:
                assert time.monotonic() < deadline, "the tablets are not split"
                # Each token is compared, in whichever tablet it is.
                total = compared(servers[1], "ks.t_v_idx")["total"]
                assert (total["values"], total["missing"]) == (rows, 0), total
                time.sleep(0.5)
            for value in (0, 20, 1_000):
                found = once_built(session, f"SELECT k FROM t WHERE v = {value}")
                assert collections.Counter(row.k for row in found) == collections.Counter(expected[value]), value
            total = compared(servers[0], "ks.t_v_idx")["total"]
            assert (total["values"], total["missing"], total["unreadable"]) == (rows, 0, 0), total
            # A replica that was copied has the entries too.
            wait_for_copies(servers[0], "ks.t")
            servers[0].process.send_signal(signal.SIGKILL)
            servers[0].process.wait()
            for value in (7, 20, 1_000):
                found = once_built(session, f"SELECT k FROM t WHERE v = {value}")
                assert collections.Counter(row.k for row in found) == collections.Counter(expected[value]), value
            servers[0].start()
    finally:
        for server in servers:
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait()
