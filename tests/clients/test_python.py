"""The Python driver, unmodified: protocol versions, compression, schema metadata, types, paging, batches, conditions, errors."""

import datetime
import decimal
import ipaddress
import math
import time
import uuid

import pytest
from cassandra import AlreadyExists, ConsistencyLevel, InvalidRequest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import WhiteListRoundRobinPolicy
from cassandra.protocol import SyntaxException
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, SimpleStatement
from cassandra.util import Date, Duration, SortedSet, Time
from conftest import READY_WITHIN_S, while_it_lives, write_all

# Every scalar type of the native protocol with values at its edges, as the driver gives them back.
SCALARS = {
    "ascii": ["", "plain ascii"],
    "bigint": [0, 2**63 - 1, -(2**63)],
    "blob": [b"", b"\x00\xff" * 500],
    "boolean": [True, False],
    "date": [Date(0), Date(datetime.date(2026, 2, 28)), Date(-719162)],
    "decimal": [decimal.Decimal("0"), decimal.Decimal("-123456789012345678901234567890.0987654321"), decimal.Decimal("1E+40")],
    "double": [0.0, -1.5e300, math.inf, -math.inf],
    "duration": [Duration(0, 0, 0), Duration(14, 3, 10**9), Duration(-1, -2, -3)],
    "float": [0.0, 1.5, -math.inf],
    "inet": ["127.0.0.1", "2001:db8::1"],
    "int": [0, 2**31 - 1, -(2**31)],
    "smallint": [0, 2**15 - 1, -(2**15)],
    "text": ["", "größer 水 🪨", "x" * 70_000],
    "time": [Time(0), Time(86_399_999_999_999)],
    "timestamp": [datetime.datetime(1970, 1, 1), datetime.datetime(2026, 1, 31, 23, 59, 59, 999000), datetime.datetime(1900, 1, 1)],
    "timeuuid": [uuid.UUID("50554d6e-29bb-11e5-b345-feff819cdc9f")],
    "tinyint": [0, 127, -128],
    "uuid": [uuid.UUID(int=0), uuid.UUID("ffffffff-ffff-4fff-bfff-ffffffffffff")],
    "varchar": ["varchar"],
    "varint": [0, 255, -256, 10**60, -(10**60)],
}

VERSIONS = [(3, None), (3, "lz4"), (3, "snappy"), (4, None), (4, "lz4"), (4, "snappy"), (5, None), (5, "lz4")]


def connect(server, version=4, compression=False, keyspace=None, **options):
    profile = ExecutionProfile(request_timeout=30, load_balancing_policy=WhiteListRoundRobinPolicy([server.address]))
    cluster = Cluster(
        [server.address],
        protocol_version=version,
        compression=compression or False,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        **options,
    )
    return cluster, cluster.connect(keyspace)


@pytest.fixture(scope="module", params=VERSIONS, ids=lambda pair: f"v{pair[0]}-{pair[1] or 'plain'}")
def versioned(request, server):
    """A session per protocol version and compression, each with a keyspace of its own."""
    version, compression = request.param
    cluster, session = connect(server, version, compression)
    keyspace = f"py_v{version}_{compression or 'plain'}"
    session.execute(f"DROP KEYSPACE IF EXISTS {keyspace}")
    session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
    session.set_keyspace(keyspace)
    columns = ", ".join(f"c_{name} {name}" for name in SCALARS)
    session.execute(f"CREATE TABLE scalars (id int PRIMARY KEY, {columns})")
    session.execute("CREATE TABLE paged (p int, c int, v text, PRIMARY KEY (p, c))")
    session.execute(
        "CREATE TABLE collections (id int PRIMARY KEY, l list<int>, s set<text>, m map<text, bigint>, fl frozen<list<int>>,"
        " fs frozen<set<text>>, fm frozen<map<text, bigint>>, deep map<text, frozen<list<frozen<set<int>>>>>)"
    )
    yield cluster, session
    cluster.shutdown()


@pytest.fixture(scope="module")
def cluster_and_session(server):
    cluster, session = connect(server)
    session.execute("DROP KEYSPACE IF EXISTS py_checks")
    session.execute("CREATE KEYSPACE py_checks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.set_keyspace("py_checks")
    yield cluster, session
    cluster.shutdown()


@pytest.fixture(scope="module")
def session(cluster_and_session):
    return cluster_and_session[1]


@pytest.fixture(scope="module")
def cluster(cluster_and_session):
    return cluster_and_session[0]


def one(result):
    rows = list(result)
    assert len(rows) == 1, rows
    return rows[0]


# --- every protocol version and compression --------------------------------------------------------------------------


def test_the_version_and_compression_asked_for_are_used(versioned):
    cluster, session = versioned
    assert cluster.protocol_version in (3, 4, 5)
    connection = next(iter(session.get_pools())).host
    assert connection.is_up
    wanted = bool(cluster.compression)
    pool = next(iter(session.get_pools()))
    for open_connection in [pool._connection] if hasattr(pool, "_connection") else pool._connections:
        assert (open_connection.compressor is not None) == (wanted and cluster.protocol_version < 5) or cluster.protocol_version == 5


def test_every_scalar_survives_a_round_trip(versioned):
    _, session = versioned
    number = 0
    for name, values in SCALARS.items():
        insert = session.prepare(f"INSERT INTO scalars (id, c_{name}) VALUES (?, ?)")
        select = session.prepare(f"SELECT c_{name} FROM scalars WHERE id = ?")
        for value in values:
            number += 1
            session.execute(insert, (number, value))
            found = one(session.execute(select, (number,)))[0]
            assert found == value and type(found) is type(value), (name, value, found)


def test_nan_survives_a_round_trip(versioned):
    _, session = versioned
    session.execute(session.prepare("INSERT INTO scalars (id, c_double, c_float) VALUES (-1, ?, ?)"), (math.nan, math.nan))
    row = one(session.execute("SELECT c_double, c_float FROM scalars WHERE id = -1"))
    assert math.isnan(row[0]) and math.isnan(row[1])


def test_every_scalar_in_one_statement_and_null_again(versioned):
    _, session = versioned
    names = list(SCALARS)
    columns = ", ".join(f"c_{name}" for name in names)
    marks = ", ".join("?" for _ in names)
    insert = session.prepare(f"INSERT INTO scalars (id, {columns}) VALUES (?, {marks})")
    select = session.prepare(f"SELECT {columns} FROM scalars WHERE id = ?")
    values = [SCALARS[name][-1] for name in names]
    session.execute(insert, [1000, *values])
    assert list(one(session.execute(select, (1000,)))) == values
    session.execute(insert, [1000, *[None for _ in names]])
    assert list(one(session.execute(select, (1000,)))) == [None for _ in names]


def test_collections_survive_a_round_trip(versioned):
    _, session = versioned
    insert = session.prepare("INSERT INTO collections (id, l, s, m, fl, fs, fm, deep) VALUES (?, ?, ?, ?, ?, ?, ?, ?)")
    select = session.prepare("SELECT l, s, m, fl, fs, fm, deep FROM collections WHERE id = ?")
    session.execute(insert, (1, [3, 1, 3], {"b", "a"}, {"k": 2**40}, [], {"z"}, {"x": -1, "a": 1}, {"d": [{1, 2}, {3}]}))
    row = one(session.execute(select, (1,)))
    assert row.l == [3, 1, 3]
    assert row.s == SortedSet(["a", "b"])
    assert dict(row.m) == {"k": 2**40}
    assert row.fl == []
    assert row.fs == SortedSet(["z"])
    assert list(row.fm.items()) == [("a", 1), ("x", -1)]
    assert [[set(inner) for inner in outer] for outer in row.deep.values()] == [[{1, 2}, {3}]]
    session.execute(insert, (1, None, None, None, None, None, None, None))
    assert list(one(session.execute(select, (1,)))) == [None] * 7
    # An empty collection that is not frozen is no collection at all.
    session.execute(insert, (2, [], set(), {}, [], set(), {}, {}))
    row = one(session.execute(select, (2,)))
    assert (row.l, row.s, row.m, row.deep) == (None, None, None, None)
    assert (row.fl, set(row.fs), dict(row.fm)) == ([], set(), {})


def test_paging_reads_every_row_once(versioned):
    _, session = versioned
    rows = 5_500
    write_all(session, "INSERT INTO paged (p, c, v) VALUES (?, ?, ?)", [(n % 7, n, f"value {n}") for n in range(rows)], concurrency=128)
    everything = SimpleStatement("SELECT p, c, v FROM paged", fetch_size=500)
    result = session.execute(everything)
    assert len(result.current_rows) == 500 and result.has_more_pages
    assert sorted(row.c for row in result) == list(range(rows))
    # The default page of 5,000 rows too.
    assert len(list(session.execute("SELECT c FROM paged"))) == rows


# --- schema ----------------------------------------------------------------------------------------------------------


def test_the_cluster_describes_itself(cluster):
    assert cluster.metadata.cluster_name
    assert cluster.metadata.partitioner.endswith("Murmur3Partitioner")
    host = one(cluster.metadata.all_hosts())
    assert host.is_up and host.datacenter and host.rack and host.release_version and host.host_id
    assert cluster.metadata.token_map is not None and cluster.metadata.token_map.ring


def test_schema_metadata_is_complete(cluster, session):
    session.execute(
        "CREATE TABLE events (a text, b int, c timestamp, d uuid, s text static, v map<text, frozen<list<int>>>,"
        ' "Quoted Name" double, PRIMARY KEY ((a, b), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC)'
        " AND comment = 'it''s a table' AND default_time_to_live = 86400 AND gc_grace_seconds = 3600"
    )
    table = cluster.metadata.keyspaces["py_checks"].tables["events"]
    assert [column.name for column in table.partition_key] == ["a", "b"]
    assert [(column.name, column.cql_type, column.is_reversed) for column in table.clustering_key] == [
        ("c", "timestamp", True),
        ("d", "uuid", False),
    ]
    types = {name: column.cql_type for name, column in table.columns.items()}
    assert types == {
        "a": "text",
        "b": "int",
        "c": "timestamp",
        "d": "uuid",
        "s": "text",
        "v": "map<text, frozen<list<int>>>",
        "Quoted Name": "double",
    }
    assert table.columns["s"].is_static and not table.columns["v"].is_static
    assert table.options["comment"] == "it's a table"
    assert table.options["default_time_to_live"] == 86400
    assert table.options["gc_grace_seconds"] == 3600
    # What the driver would write to create the table again is accepted.
    text = table.export_as_string()
    session.execute("DROP TABLE events")
    assert "events" not in cluster.metadata.keyspaces["py_checks"].tables
    for statement in text.split(";"):
        if statement.strip():
            session.execute(statement)
    again = cluster.metadata.keyspaces["py_checks"].tables["events"]
    assert again.export_as_string() == text


def test_every_type_has_its_name_in_the_schema(cluster, session):
    columns = ", ".join(f"c_{name} {name}" for name in SCALARS)
    session.execute(f"CREATE TABLE all_types (id int PRIMARY KEY, {columns})")
    found = {name: column.cql_type for name, column in cluster.metadata.keyspaces["py_checks"].tables["all_types"].columns.items()}
    expected = {f"c_{name}": "text" if name == "varchar" else name for name in SCALARS}
    assert found == {"id": "int", **expected}


def test_keyspace_metadata_follows_alter_and_drop(cluster, session):
    session.execute("CREATE KEYSPACE py_other WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    keyspace = cluster.metadata.keyspaces["py_other"]
    assert keyspace.durable_writes and keyspace.replication_strategy.name == "SimpleStrategy"
    session.execute("ALTER KEYSPACE py_other WITH durable_writes = false")
    assert not cluster.metadata.keyspaces["py_other"].durable_writes
    session.execute("DROP KEYSPACE py_other")
    assert "py_other" not in cluster.metadata.keyspaces


def test_alter_table_adds_drops_and_renames(cluster, session):
    session.execute("CREATE TABLE altered (k int, c int, v int, PRIMARY KEY (k, c))")
    session.execute("INSERT INTO altered (k, c, v) VALUES (1, 1, 1)")
    session.execute("ALTER TABLE altered ADD w text")
    session.execute("UPDATE altered SET w = 'new' WHERE k = 1 AND c = 1")
    session.execute("ALTER TABLE altered DROP v")
    session.execute("ALTER TABLE altered RENAME c TO renamed")
    assert one(session.execute("SELECT * FROM altered"))._asdict() == {"k": 1, "renamed": 1, "w": "new"}
    assert list(cluster.metadata.keyspaces["py_checks"].tables["altered"].columns) == ["k", "renamed", "w"]


def test_another_clients_schema_change_arrives_as_an_event(server, session):
    watcher, _ = connect(server)
    try:
        session.execute("CREATE TABLE py_checks.announced (k int PRIMARY KEY)")
        deadline = time.monotonic() + READY_WITHIN_S
        while "announced" not in watcher.metadata.keyspaces["py_checks"].tables:
            assert time.monotonic() < deadline, "no schema event"
            time.sleep(0.05)
    finally:
        watcher.shutdown()


def test_tokens_are_those_of_the_driver(cluster, session):
    session.execute("CREATE TABLE tokens (a int, b text, PRIMARY KEY ((a, b)))")
    insert = session.prepare("INSERT INTO tokens (a, b) VALUES (?, ?)")
    for number in range(50):
        session.execute(insert, (number, "key" * number))
    token_class = cluster.metadata.token_map.token_class
    for row in session.execute("SELECT a, b, token(a, b) AS t FROM tokens"):
        bound = insert.bind((row.a, row.b))
        assert token_class.from_key(bound.routing_key).value == row.t
    rows = list(session.execute("SELECT token(a, b) AS t FROM tokens"))
    assert len(rows) == 50 and [row.t for row in rows] == sorted(row.t for row in rows)
    middle = rows[25].t
    assert len(list(session.execute("SELECT a FROM tokens WHERE token(a, b) > %s", (middle,)))) == 24
    assert len(list(session.execute("SELECT a FROM tokens WHERE token(a, b) <= %s", (middle,)))) == 26


# --- statements ------------------------------------------------------------------------------------------------------


def test_parts_of_collections_can_be_changed(session):
    session.execute("CREATE TABLE parts (k int PRIMARY KEY, l list<text>, s set<int>, m map<text, int>)")
    session.execute("INSERT INTO parts (k, l, s, m) VALUES (1, ['b'], {2}, {'b': 2})")
    for change in (
        "UPDATE parts SET l = l + ['c', 'c'] WHERE k = 1",
        "UPDATE parts SET l = ['a'] + l WHERE k = 1",
        "UPDATE parts SET l[1] = 'B' WHERE k = 1",
        "UPDATE parts SET s = s + {1, 3} WHERE k = 1",
        "UPDATE parts SET s = s - {2} WHERE k = 1",
        "UPDATE parts SET m = m + {'a': 1}, m['c'] = 3 WHERE k = 1",
        "DELETE m['b'] FROM parts WHERE k = 1",
    ):
        session.execute(change)
    row = one(session.execute("SELECT l, s, m FROM parts"))
    assert row.l == ["a", "B", "c", "c"] and list(row.s) == [1, 3] and dict(row.m) == {"a": 1, "c": 3}
    session.execute("UPDATE parts SET l = l - ['c'] WHERE k = 1")
    session.execute("DELETE l[0] FROM parts WHERE k = 1")
    assert one(session.execute("SELECT l FROM parts")).l == ["B"]


def test_an_unset_value_leaves_the_column_alone(session):
    session.execute("CREATE TABLE unset (k int PRIMARY KEY, a int, b int)")
    insert = session.prepare("INSERT INTO unset (k, a, b) VALUES (?, ?, ?)")
    session.execute(insert, (1, 10, 20))
    session.execute(insert, (1, UNSET_VALUE, 21))
    assert tuple(one(session.execute("SELECT a, b FROM unset WHERE k = 1"))) == (10, 21)


def test_values_can_be_bound_by_name(session):
    session.execute("CREATE TABLE named (k int PRIMARY KEY, v text)")
    insert = session.prepare("INSERT INTO named (k, v) VALUES (:key, :value)")
    assert [column.name for column in insert.column_metadata] == ["key", "value"]
    session.execute(insert, {"value": "by name", "key": 7})
    select = session.prepare("SELECT v FROM named WHERE k IN :keys LIMIT :most")
    assert one(session.execute(select, {"keys": [7, 8], "most": 5})).v == "by name"


def test_clustering_ranges_order_and_limit(session):
    session.execute("CREATE TABLE ranges (k int, c int, d text, s text static, PRIMARY KEY (k, c, d)) WITH CLUSTERING ORDER BY (c ASC, d DESC)")
    insert = session.prepare("INSERT INTO ranges (k, c, d) VALUES (1, ?, ?)")
    for c in range(10):
        for d in "xyz":
            session.execute(insert, (c, d))
    session.execute("INSERT INTO ranges (k, s) VALUES (1, 'static')")
    pick = lambda where: [(row.c, row.d) for row in session.execute(f"SELECT c, d FROM ranges WHERE k = 1 {where}")]
    assert pick("AND c = 3") == [(3, "z"), (3, "y"), (3, "x")]
    assert pick("AND c >= 8 AND c < 9 ORDER BY c DESC, d ASC") == [(8, "x"), (8, "y"), (8, "z")]
    assert pick("AND c = 2 AND d < 'z'") == [(2, "y"), (2, "x")]
    assert pick("AND c IN (1, 9) AND d = 'x'") == [(1, "x"), (9, "x")]
    assert pick("AND (c, d) = (4, 'y')") == [(4, "y")]
    assert pick("ORDER BY c DESC LIMIT 2") == [(9, "x"), (9, "y")]
    assert {row.s for row in session.execute("SELECT s FROM ranges WHERE k = 1")} == {"static"}
    assert one(session.execute("SELECT COUNT(*) FROM ranges"))[0] == 30
    session.execute("DELETE FROM ranges WHERE k = 1 AND c > 0 AND c <= 8")
    assert one(session.execute("SELECT COUNT(*) FROM ranges WHERE k = 1"))[0] == 6
    session.execute("DELETE FROM ranges WHERE k = 1")
    assert list(session.execute("SELECT * FROM ranges WHERE k = 1")) == []


def test_time_to_live_and_timestamps(session):
    session.execute("CREATE TABLE times (k int PRIMARY KEY, v text, w text)")
    session.execute("INSERT INTO times (k, v) VALUES (1, 'old') USING TIMESTAMP 2000 AND TTL 1000")
    session.execute("INSERT INTO times (k, v) VALUES (1, 'older') USING TIMESTAMP 1000")
    row = one(session.execute("SELECT v, writetime(v) AS at, ttl(v) AS left, ttl(w) AS none FROM times WHERE k = 1"))
    assert row.v == "old" and row.at == 2000 and 900 < row.left <= 1000 and row.none is None
    before = time.time() * 1e6
    short = lambda ttl: session.execute(f"UPDATE times USING TTL {ttl} SET w = 'short' WHERE k = 1")
    ttl, row = while_it_lives(short, lambda: one(session.execute("SELECT w, writetime(w) AS at FROM times WHERE k = 1")))
    assert row.w == "short" and before - 5e6 < row.at < time.time() * 1e6 + 5e6
    time.sleep(ttl + 0.1)
    assert one(session.execute("SELECT w FROM times WHERE k = 1")).w is None


def test_prepared_paging_can_be_resumed_and_reversed(session):
    session.execute("CREATE TABLE pages (p int, c int, PRIMARY KEY (p, c))")
    write_all(session, "INSERT INTO pages (p, c) VALUES (?, ?)", [(1, n) for n in range(6_000)], concurrency=128)
    select = session.prepare("SELECT c FROM pages WHERE p = ? ORDER BY c DESC")
    select.fetch_size = 1_000
    first = session.execute(select, (1,))
    assert [row.c for row in first.current_rows] == list(range(5_999, 4_999, -1))
    resumed = session.execute(select, (1,), paging_state=first.paging_state)
    assert [row.c for row in resumed] == list(range(4_999, -1, -1))


def test_batches_of_every_kind(session):
    session.execute("CREATE TABLE batched (k int PRIMARY KEY, v text)")
    session.execute("CREATE TABLE counted (k int PRIMARY KEY, hits counter, misses counter)")
    insert = session.prepare("INSERT INTO batched (k, v) VALUES (?, ?)")
    for kind in (BatchType.LOGGED, BatchType.UNLOGGED):
        batch = BatchStatement(kind)
        for number in range(200):
            batch.add(insert, (number, kind.name))
        batch.add(SimpleStatement("DELETE FROM batched WHERE k = 0"))
        batch.add("INSERT INTO batched (k, v) VALUES (%s, %s)", (200, kind.name))
        session.execute(batch)
        rows = {row.k: row.v for row in session.execute("SELECT k, v FROM batched")}
        assert rows == {number: kind.name for number in range(1, 201)}
    add = session.prepare("UPDATE counted SET hits = hits + ?, misses = misses - ? WHERE k = ?")
    for _ in range(3):
        counters = BatchStatement(BatchType.COUNTER)
        for number in range(10):
            counters.add(add, (5, 2, number))
        session.execute(counters)
    assert {tuple(row) for row in session.execute("SELECT k, hits, misses FROM counted")} == {(n, 15, -6) for n in range(10)}
    session.execute("BEGIN BATCH INSERT INTO batched (k, v) VALUES (1, 'text'); UPDATE batched SET v = 'text' WHERE k = 2; APPLY BATCH")
    assert {row.v for row in session.execute("SELECT v FROM batched WHERE k IN (1, 2)")} == {"text"}
    with pytest.raises(InvalidRequest):
        mixed = BatchStatement(BatchType.LOGGED)
        mixed.add(add, (1, 1, 1))
        mixed.add(insert, (1, "mixed"))
        session.execute(mixed)


def test_conditions_apply_or_answer_what_is_there(session):
    session.execute("CREATE TABLE conditions (k int PRIMARY KEY, v text, n int)")
    insert = session.prepare("INSERT INTO conditions (k, v, n) VALUES (?, ?, ?) IF NOT EXISTS")
    assert session.execute(insert, (1, "first", 1)).was_applied
    refused = session.execute(insert, (1, "second", 2))
    assert not refused.was_applied
    assert one(refused)._asdict() == {"applied": False, "k": 1, "v": "first", "n": 1}
    update = session.prepare("UPDATE conditions SET v = ? WHERE k = ? IF n = ?")
    refused = session.execute(update, ("third", 1, 2))
    assert not refused.was_applied and one(refused)._asdict() == {"applied": False, "n": 1}
    assert session.execute(update, ("third", 1, 1)).was_applied
    assert session.execute("UPDATE conditions SET n = 9 WHERE k = 1 IF n > 0 AND v IN ('third', 'x')").was_applied
    assert session.execute("UPDATE conditions SET n = 10 WHERE k = 1 IF n != 8").was_applied
    assert not session.execute("UPDATE conditions SET v = 'ghost' WHERE k = 2 IF EXISTS").was_applied
    assert session.execute("UPDATE conditions SET v = null WHERE k = 1 IF EXISTS").was_applied
    assert session.execute("UPDATE conditions SET v = 'again' WHERE k = 1 IF v = null").was_applied
    assert not session.execute("DELETE FROM conditions WHERE k = 2 IF EXISTS").was_applied
    assert session.execute("DELETE FROM conditions WHERE k = 1 IF EXISTS").was_applied
    assert list(session.execute("SELECT * FROM conditions")) == []


def test_a_conditional_batch_on_one_partition(session):
    session.execute("CREATE TABLE conditional_batch (k int, c int, v text, PRIMARY KEY (k, c))")
    session.execute("INSERT INTO conditional_batch (k, c, v) VALUES (1, 1, 'one')")
    batch = "BEGIN BATCH UPDATE conditional_batch SET v = '{0}' WHERE k = 1 AND c = 1 IF v = '{1}'; INSERT INTO conditional_batch (k, c, v) VALUES (1, 2, '{0}'); APPLY BATCH"
    assert not session.execute(batch.format("two", "zero")).was_applied
    assert [row.v for row in session.execute("SELECT v FROM conditional_batch WHERE k = 1")] == ["one"]
    assert session.execute(batch.format("two", "one")).was_applied
    assert [row.v for row in session.execute("SELECT v FROM conditional_batch WHERE k = 1")] == ["two", "two"]


def test_truncate_empties_the_table(session):
    session.execute("CREATE TABLE truncated (k int PRIMARY KEY)")
    for number in range(10):
        session.execute("INSERT INTO truncated (k) VALUES (%s)", (number,))
    session.execute("TRUNCATE truncated")
    assert one(session.execute("SELECT COUNT(*) FROM truncated"))[0] == 0


def test_a_tracing_id_is_returned(session):
    session.execute("CREATE TABLE traced (k int PRIMARY KEY)")
    future = session.execute_async("SELECT * FROM traced", trace=True)
    future.result()
    assert len(future.get_query_trace_ids()) == 1


@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_trace_has_the_steps_of_its_request_and_no_values(server, session, is_prepared):
    table = f"traced_{'prepared' if is_prepared else 'text'}"
    session.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, v text)")

    def traced(statement, *values):
        if is_prepared:
            return session.execute(session.prepare(statement), values, trace=True).get_query_trace()
        return session.execute(statement.replace("?", "%s"), values, trace=True).get_query_trace()

    write = traced(f"INSERT INTO {table} (k, v) VALUES (?, ?)", 1, "hidden")
    read = traced(f"SELECT v FROM {table} WHERE k = ?", 1)
    first = "Found the plan of the prepared statement" if is_prepared else "Parsed and planned the statement"
    for trace, path in ((write, "Insert on"), (read, "Primary Key Lookup on")):
        assert trace.request_type == ("Execute CQL3 prepared query" if is_prepared else "Execute CQL3 query")
        assert trace.coordinator == server.address and ipaddress.ip_address(trace.client).is_loopback
        assert trace.duration > datetime.timedelta(0)
        # The clock of the machine may be set meanwhile, but not by minutes.
        assert abs(datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None) - trace.started_at) < datetime.timedelta(minutes=5)
        assert set(trace.parameters) >= {"query", "consistency_level"} and "?" in trace.parameters["query"]
        steps = [event.description for event in trace.events]
        assert steps[0] == first and steps[1].startswith(path) and steps[-1].startswith("Request complete: "), steps
        assert any(" tablet " in step for step in steps), steps
        elapsed = [event.source_elapsed for event in trace.events]
        assert elapsed == sorted(elapsed) and elapsed[-1] <= trace.duration
        assert all(event.source == server.address and event.thread_name for event in trace.events)
        assert "hidden" not in f"{trace.parameters}{steps}"
    assert read.events[-1].description.startswith("Request complete: 1 rows, ")


def test_every_consistency_level_is_served(session):
    session.execute("CREATE TABLE levels (k int PRIMARY KEY, v int)")
    for number, level in enumerate(["ONE", "QUORUM", "ALL", "LOCAL_QUORUM", "LOCAL_ONE"]):
        value = getattr(ConsistencyLevel, level)
        session.execute(SimpleStatement(f"INSERT INTO levels (k, v) VALUES (1, {number})", consistency_level=value))
        assert one(session.execute(SimpleStatement("SELECT v FROM levels WHERE k = 1", consistency_level=value))).v == number
    serial = SimpleStatement("SELECT v FROM levels WHERE k = 1", consistency_level=ConsistencyLevel.SERIAL)
    assert one(session.execute(serial)).v == 4


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["SELEKT 1", "SELECT FROM t", "INSERT INTO t (k) VALUES (1", "SELECT * FROM t WHERE", "", "SELECT 'unended"])
def test_a_syntax_error_is_one(session, text):
    with pytest.raises(SyntaxException):
        session.execute(text)


def test_an_invalid_request_names_the_thing(session):
    session.execute("CREATE TABLE strict (k int, c int, v int, PRIMARY KEY (k, c))")
    for text, names in {
        "SELECT * FROM absent": "absent",
        "SELECT absent FROM strict": "absent",
        "SELECT * FROM absent_keyspace.t": "absent_keyspace",
        "INSERT INTO strict (k, c, absent) VALUES (1, 1, 1)": "absent",
        "INSERT INTO strict (k) VALUES (1)": "c",
        "INSERT INTO strict (k, c, v) VALUES (1, 1, 'text')": "v",
        "SELECT * FROM strict WHERE c = 1": "ALLOW FILTERING",
        "UPDATE strict SET k = 1 WHERE k = 1 AND c = 1": "k",
        "CREATE TABLE strict2 (k int)": "PRIMARY KEY",
        "DROP TABLE absent": "absent",
        "USE absent_keyspace": "absent_keyspace",
    }.items():
        with pytest.raises((InvalidRequest, SyntaxException)) as refusal:
            session.execute(text)
        assert names.lower() in str(refusal.value).lower(), (text, str(refusal.value))


def test_what_exists_already_is_named(session):
    session.execute("CREATE TABLE twice (k int PRIMARY KEY)")
    with pytest.raises(AlreadyExists) as refusal:
        session.execute("CREATE TABLE twice (k int PRIMARY KEY)")
    assert (refusal.value.keyspace, refusal.value.table) == ("py_checks", "twice")
    session.execute("CREATE TABLE IF NOT EXISTS twice (k int PRIMARY KEY)")
    with pytest.raises(AlreadyExists) as refusal:
        session.execute("CREATE KEYSPACE py_checks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    assert refusal.value.keyspace == "py_checks" and not refusal.value.table


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_statement_prepared_before_an_alter_still_runs(server, session, version):
    table = f"evolving_{version}"
    session.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, v int)")
    cluster, other = connect(server, version, keyspace="py_checks")
    try:
        insert = other.prepare(f"INSERT INTO {table} (k, v) VALUES (?, ?)")
        select = other.prepare(f"SELECT * FROM {table} WHERE k = ?")
        other.execute(insert, (1, 1))
        assert one(other.execute(select, (1,)))._asdict() == {"k": 1, "v": 1}
        session.execute(f"ALTER TABLE {table} ADD a text")
        session.execute(f"UPDATE {table} SET a = 'added' WHERE k = 1")
        other.execute(insert, (1, 2))
        assert one(other.execute(select, (1,)))._asdict() == {"k": 1, "a": "added", "v": 2}
        session.execute(f"ALTER TABLE {table} DROP v")
        assert one(other.execute(select, (1,)))._asdict() == {"k": 1, "a": "added"}
        with pytest.raises(InvalidRequest):
            other.execute(insert, (1, 3))
        session.execute(f"DROP TABLE {table}")
        with pytest.raises(InvalidRequest):
            other.execute(select, (1,))
    finally:
        cluster.shutdown()


def test_a_count_of_many_and_odd_pages(session):
    session.execute("CREATE TABLE many (k bigint PRIMARY KEY, v blob)")
    write_all(session, "INSERT INTO many (k, v) VALUES (?, ?)", [(n, n.to_bytes(8, "big")) for n in range(5_001)], concurrency=256)
    assert one(session.execute("SELECT COUNT(*) FROM many"))[0] == 5_001
    rows = session.execute(SimpleStatement("SELECT k, v FROM many", fetch_size=777))
    assert {row.k: row.v for row in rows} == {n: n.to_bytes(8, "big") for n in range(5_001)}
