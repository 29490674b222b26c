"""What is too large is refused with Cassandra's code and words, what just fits is taken, and the connection goes on: the unmodified Python driver over each limit of docs/cql.md."""

import time

import pytest
from cassandra import InvalidRequest, WriteTimeout
from cassandra.cluster import NoHostAvailable
from cassandra.protocol import ConfigurationException, SyntaxException
from cassandra.query import BatchStatement, BatchType, SimpleStatement
from conftest import repeated
from test_python import connect

KEYSPACE = "limit_checks"
KEY = 65_535
MUTATION = 16 << 20
FRAME = 32 << 20


@pytest.fixture(scope="module", params=[(4, None), (4, "lz4"), (5, None)], ids=lambda pair: f"v{pair[0]}-{pair[1] or 'plain'}")
def session(request, server):
    """A session whose only connection must live through the whole module: every refusal is an answer, none a closed connection."""
    version, compression = request.param
    cluster, session = connect(server, version, compression)
    session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
    session.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
    session.set_keyspace(KEYSPACE)
    session.execute("CREATE TABLE one (k text PRIMARY KEY, v int)")
    session.execute("CREATE TABLE two (a text, b text, v int, PRIMARY KEY ((a, b)))")
    session.execute("CREATE TABLE rows (k int, c text, d text, v int, PRIMARY KEY (k, c, d))")
    session.execute("CREATE TABLE collections (k int PRIMARY KEY, s set<text>, m map<text, text>, l list<text>, f frozen<map<text, text>>)")
    session.execute("CREATE TABLE blobs (k int PRIMARY KEY, v blob)")
    yield session
    pool = next(iter(session.get_pools()))
    assert not pool._connection.is_closed and not pool._connection.is_defunct
    cluster.shutdown()


def refused(session, statement, values=None):
    """The text of the refusal, whether the statement is sent as text or prepared."""
    if values is None:
        with pytest.raises(InvalidRequest) as raised:
            session.execute(SimpleStatement(statement))
    else:
        with pytest.raises(InvalidRequest) as raised:
            session.execute(session.prepare(statement), values)
    told = str(raised.value)
    assert "code=2200" in told, told
    return told.split('message="', 1)[1].rsplit('"', 1)[0]


def test_partition_keys(session):
    fits, long = "x" * KEY, "x" * (KEY + 1)
    session.execute(session.prepare("INSERT INTO one (k, v) VALUES (?, 1)"), [fits])
    session.execute(f"INSERT INTO one (k, v) VALUES ('{'y' * KEY}', 2)")
    assert session.execute(session.prepare("SELECT v FROM one WHERE k = ?"), [fits]).one().v == 1
    wanted = "Key length of 65536 is longer than maximum of 65535 (partition key k of limit_checks.one)"
    for statement in ["INSERT INTO one (k, v) VALUES (%s, 1)", "UPDATE one SET v = 1 WHERE k = %s", "DELETE FROM one WHERE k = %s", "SELECT v FROM one WHERE k = %s",
                      "SELECT v FROM one WHERE k IN (%s)", "INSERT INTO one (k, v) VALUES (%s, 1) IF NOT EXISTS"]:
        assert refused(session, statement % "?", [long]) == wanted
        assert refused(session, statement % f"'{long}'") == wanted
    assert refused(session, "INSERT INTO one (k, v) VALUES (?, 1)", [""]) == "Key may not be empty (partition key k of limit_checks.one)"
    # Of several columns all count, with two bytes for the length of each and one after it.
    half = "x" * 33_000
    told = refused(session, "INSERT INTO two (a, b, v) VALUES (?, ?, 1)", [half, half])
    assert told == "Key length of 66006 is longer than maximum of 65535 (partition key a, b of limit_checks.two)"
    session.execute(session.prepare("INSERT INTO two (a, b, v) VALUES (?, ?, 1)"), [half, ""])


def test_clustering_columns(session):
    fits, long, half = "x" * KEY, "x" * (KEY + 1), "x" * 33_000
    insert = "INSERT INTO rows (k, c, d, v) VALUES (?, ?, ?, 1)"
    session.execute(session.prepare(insert), [1, fits, ""])
    assert session.execute(session.prepare("SELECT v FROM rows WHERE k = 1 AND c = ?"), [fits]).one().v == 1
    for values, length in [([1, half, half], 66_000), ([1, long, ""], 65_536)]:
        wanted = f"Key length of {length} is longer than maximum of 65535 (clustering columns c, d of limit_checks.rows)"
        assert refused(session, insert, values) == wanted
        assert refused(session, "DELETE FROM rows WHERE k = ? AND c = ? AND d = ?", values) == wanted
    for statement in ["SELECT v FROM rows WHERE k = 1 AND c > ?", "DELETE FROM rows WHERE k = 1 AND c < ?", "SELECT v FROM rows WHERE k = 1 AND c IN (?)"]:
        assert "clustering columns c, d of limit_checks.rows" in refused(session, statement, [long])


def test_elements_of_collections(session):
    fits, long = "x" * KEY, "x" * (KEY + 1)
    session.execute(session.prepare("UPDATE collections SET s = ?, m = ?, l = ?, f = ? WHERE k = 1"), [{fits}, {fits: long}, [long], {long: long}])
    row = session.execute("SELECT * FROM collections WHERE k = 1").one()
    assert (set(row.s), dict(row.m), row.l, dict(row.f)) == ({fits}, {fits: long}, [long], {long: long})
    wanted = "Set value is too long. Set values are limited to 65535 bytes but 65536 bytes were provided (column s)"
    for statement in ["UPDATE collections SET s = ? WHERE k = 1", "UPDATE collections SET s = s + ? WHERE k = 1", "UPDATE collections SET s = s - ? WHERE k = 1"]:
        assert refused(session, statement, [{long}]) == wanted
    assert refused(session, f"UPDATE collections SET s = s + {{'{long}'}} WHERE k = 1") == wanted
    assert refused(session, "DELETE s[?] FROM collections WHERE k = 1", [long]) == wanted
    wanted = "Map key is too long. Map keys are limited to 65535 bytes but 65536 bytes were provided (column m)"
    assert refused(session, "UPDATE collections SET m = ? WHERE k = 1", [{long: "v"}]) == wanted
    assert refused(session, "UPDATE collections SET m[?] = 'v' WHERE k = 1", [long]) == wanted
    assert refused(session, f"INSERT INTO collections (k, m) VALUES (1, {{'{long}': 'v'}})") == wanted


def test_collections_of_many_elements(session):
    """There is no limit of elements beside that of what a statement writes, as in Cassandra since its protocol 3."""
    many = [str(number) for number in range(100_000)]
    update = session.prepare("UPDATE collections SET s = ?, l = ?, f = ? WHERE k = 2")
    repeated(lambda: session.execute(update, [set(many), many, {word: word for word in many}]), WriteTimeout)
    row = session.execute("SELECT s, l, f FROM collections WHERE k = 2").one()
    assert (len(row.s), row.l, len(row.f)) == (100_000, many, 100_000)
    big = ["x" * 65_000] * 300
    told = refused(session, "UPDATE collections SET l = ? WHERE k = 3", [big])
    assert told.startswith("Mutation of 195") and told.endswith("bytes is too large for the maximum size of 16777216 (table limit_checks.collections)")


def test_writes(session):
    fits, long = b"x" * (MUTATION - 1_000), b"x" * MUTATION
    insert = session.prepare("INSERT INTO blobs (k, v) VALUES (?, ?)")
    # Nearly 16 MiB may take longer to be written and synced than the 1.8 s that a write has.
    repeated(lambda: session.execute(insert, [1, fits]), WriteTimeout)
    assert len(session.execute("SELECT v FROM blobs WHERE k = 1").one().v) == len(fits)
    told = refused(session, "INSERT INTO blobs (k, v) VALUES (?, ?)", [2, long])
    assert told.startswith("Mutation of 167772") and told.endswith("bytes is too large for the maximum size of 16777216 (table limit_checks.blobs)")
    told = refused(session, "INSERT INTO blobs (k, v) VALUES (?, ?) IF NOT EXISTS", [2, long])
    assert "over the limit of 16777216 bytes" in told
    # One partition is one tablet, so the batch is one write.
    batch = BatchStatement(BatchType.UNLOGGED)
    half = b"x" * (MUTATION // 2)
    batch.add(insert, [3, half])
    batch.add(session.prepare("INSERT INTO blobs (k, v) VALUES (?, ?) USING TTL 1000"), [3, half])
    with pytest.raises(InvalidRequest, match=r"167\d+ bytes is (too large for the maximum size|over the limit) of 16777216"):
        session.execute(batch)
    assert list(session.execute("SELECT k FROM blobs WHERE k IN (2, 3)")) == []


def goes_on(session):
    """The answer is there before the driver has sent the rest, which the server passes over; until then the driver takes its connection for overloaded."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return session.execute("SELECT count(*) FROM blobs WHERE k = 4").one().count
        except NoHostAvailable as error:
            assert "is overloaded" in str(error) and time.monotonic() < deadline, error
            time.sleep(0.05)


def test_requests(session):
    """A frame that is over the limit is answered, not met by a closed connection, and the next request is served."""
    long = b"x" * FRAME
    told = refused(session, "INSERT INTO blobs (k, v) VALUES (?, ?)", [4, long])
    assert told.startswith("Request is too big: length 3355") and told.endswith(f"exceeds maximum allowed length {FRAME}."), told
    assert goes_on(session) == 0
    told = refused(session, f"SELECT * FROM one WHERE k = '{'x' * FRAME}'")
    assert told.startswith("Request is too big: length 3355"), told
    assert goes_on(session) == 0


def test_markers_and_named_keys(session):
    markers = ", ".join("?" * KEY)
    session.prepare(f"SELECT * FROM one WHERE k IN ({markers})")
    with pytest.raises(InvalidRequest, match=r"Too many markers\(\?\). 65536 markers exceed the allowed maximum of 65535"):
        session.prepare(f"SELECT * FROM one WHERE k IN ({markers}, ?)")
    numbers = ", ".join(str(number) for number in range(KEY + 1))
    with pytest.raises(InvalidRequest, match="65535"):
        session.execute(f"SELECT * FROM blobs WHERE k IN ({numbers})")


def test_names(session):
    with pytest.raises((InvalidRequest, ConfigurationException), match="48"):
        session.execute(f"CREATE TABLE {'t' * 49} (k int PRIMARY KEY)")
    with pytest.raises((InvalidRequest, ConfigurationException), match="48"):
        session.execute(f"CREATE KEYSPACE {'t' * 49} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
    session.execute(f"CREATE TABLE {'t' * 48} (k int PRIMARY KEY)")
    assert "is too long: 65536 bytes, the maximum is 65535" in refused(session, f"ALTER TABLE blobs ADD {'c' * (KEY + 1)} int")
    with pytest.raises(InvalidRequest, match="65535|8192|dimension"):
        session.execute("CREATE TABLE vectors (k int PRIMARY KEY, v vector<float, 8193>)")


def test_nesting(session):
    """What would need a deep stack is refused by the parser."""
    with pytest.raises((SyntaxException, InvalidRequest), match="nest|deep"):
        session.execute(f"INSERT INTO blobs (k, v) VALUES ({'(' * 10_000}1{')' * 10_000}, 0x)")
    with pytest.raises((SyntaxException, InvalidRequest), match="nest|deep"):
        session.execute(f"CREATE TABLE deep (k int PRIMARY KEY, v {'frozen<list<' * 5_000}int{'>>' * 5_000})")


def test_lengths_that_lie(session):
    """A collection's count that its bytes do not bear out is a refusal, whatever the count claims."""
    for wire in [b"\x7f\xff\xff\xff", b"\x00\x00\x00\x02\x00\x00\x00\x01x", b"\x00\x00\x00\x01\x7f\xff\xff\xffx", b"\xff\xff\xff\xff"]:
        statement = session.prepare("UPDATE collections SET l = ? WHERE k = 9")
        bound = statement.bind([[]])
        bound.values[0] = wire
        with pytest.raises(InvalidRequest):
            session.execute(bound)
    assert list(session.execute("SELECT l FROM collections WHERE k = 9")) == []
