"""Parts of the language that drivers see in a shape of their own: user-defined types, tuples, vectors, durations, documents, JSON, grouping page by page."""

import collections
import json

import pytest
from cassandra import InvalidRequest
from cassandra.query import SimpleStatement
from cassandra.util import Duration
from test_python import connect

KEYSPACE = "language_checks"
Point = collections.namedtuple("Point", "x y")


@pytest.fixture(scope="module")
def session(server):
    cluster, session = connect(server, 5)
    session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
    session.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
    session.set_keyspace(KEYSPACE)
    session.execute("CREATE TYPE point (x int, y int)")
    session.execute("CREATE TYPE shape (name text, corners frozen<list<frozen<point>>>)")
    cluster.register_user_type(KEYSPACE, "point", Point)
    yield session
    cluster.shutdown()


def test_user_defined_types_go_there_and_back(session):
    session.execute("CREATE TABLE udts (k int PRIMARY KEY, p point, f frozen<point>, s frozen<shape>, m map<text, frozen<point>>)")
    insert = session.prepare("INSERT INTO udts (k, p, f, s, m) VALUES (?, ?, ?, ?, ?)")
    shape = collections.namedtuple("Shape", "name corners")("triangle", [Point(0, 0), Point(1, 0), Point(0, None)])
    session.execute(insert, [1, Point(1, 2), Point(3, None), shape, {"a": Point(5, 6)}])
    row = session.execute("SELECT * FROM udts WHERE k = 1").one()
    assert (row.p, row.f, dict(row.m)) == (Point(1, 2), Point(3, None), {"a": Point(5, 6)})
    assert (row.s.name, list(row.s.corners)) == ("triangle", [Point(0, 0), Point(1, 0), Point(0, None)])
    session.execute("UPDATE udts SET p.y = 9 WHERE k = 1 IF p.x = 1")
    assert session.execute("SELECT p.x, p.y FROM udts").one() == (1, 9)
    session.execute("ALTER TYPE point ADD z int")
    assert session.execute("SELECT p.z FROM udts").one()[0] is None


def test_tuples_vectors_and_durations(session):
    session.execute("CREATE TABLE odd (k tuple<int, text> PRIMARY KEY, v vector<float, 3>, t vector<text, 2>, d duration, n tuple<int, frozen<list<text>>>)")
    insert = session.prepare("INSERT INTO odd (k, v, t, d, n) VALUES (?, ?, ?, ?, ?)")
    session.execute(insert, [(1, "a"), [1.0, -2.5, 0.0], ["x", "yy"], Duration(1, 2, 3), (7, ["b"])])
    row = session.execute(session.prepare("SELECT * FROM odd WHERE k = ?"), [(1, "a")]).one()
    assert (row.k, list(row.v), list(row.t), row.d, row.n) == ((1, "a"), [1.0, -2.5, 0.0], ["x", "yy"], Duration(1, 2, 3), (7, ["b"]))
    alike = session.execute("SELECT similarity_cosine(v, [1, -2.5, 0]) AS alike FROM odd").one().alike
    assert abs(alike - 1.0) < 1e-6


def test_json_goes_in_and_comes_out(session):
    session.execute('CREATE TABLE texts (k int PRIMARY KEY, "Name" text, l list<int>, m map<text, frozen<list<int>>>, d decimal)')
    document = {"k": 1, '"Name"': 'quo"ted', "l": [1, 2], "m": {"a": [3]}, "d": 1.5}
    session.execute(session.prepare("INSERT INTO texts JSON ?"), [json.dumps(document)])
    assert json.loads(session.execute("SELECT JSON * FROM texts WHERE k = 1").one()[0]) == document
    session.execute(session.prepare("INSERT INTO texts JSON ? DEFAULT UNSET"), [json.dumps({"k": 1, "l": None})])
    row = session.execute('SELECT l, "Name", to_json(m) AS m FROM texts').one()
    assert (row.l, row.Name, json.loads(row.m)) == (None, 'quo"ted', {"a": [3]})


def test_documents_are_texts_to_drivers(session):
    session.execute("CREATE TABLE documents (k int PRIMARY KEY, j jsonb)")
    session.execute(session.prepare("INSERT INTO documents (k, j) VALUES (?, ?)"), [1, '{"b": [1, {"c": 2.50}], "a": "x"}'])
    assert session.execute("SELECT j FROM documents").one().j == '{"a":"x","b":[1,{"c":2.50}]}'
    update = session.prepare("UPDATE documents SET j->'b'->1->'c' = ? WHERE k = ? IF j->>'a' = ?")
    assert session.execute(update, ['"new"', 1, "x"]).was_applied
    found = session.execute(session.prepare("SELECT j->'b'->1->>'c' AS c FROM documents WHERE j->>'a' = ? ALLOW FILTERING"), ["x"])
    assert found.one().c == "new"


def test_groups_filters_and_offsets_page_by_page(session):
    session.execute("CREATE TABLE grouped (k int, a int, b int, v int, PRIMARY KEY (k, a, b))")
    insert = session.prepare("INSERT INTO grouped (k, a, b, v) VALUES (?, ?, ?, ?)")
    rows = [(k, a, b, k + a + b) for k in range(3) for a in range(5) for b in range(4)]
    for row in rows:
        session.execute(insert, row)

    def paged(text, size):
        return [tuple(row) for row in session.execute(SimpleStatement(text, fetch_size=size))]

    wanted = sorted((k, a, 4, sum(v for (k2, a2, _, v) in rows if (k2, a2) == (k, a))) for k in range(3) for a in range(5))
    for size in [1, 2, 7, 100]:
        assert sorted(paged("SELECT k, a, count(*), sum(v) FROM grouped GROUP BY k, a", size)) == wanted
        filtered = [row for row in rows if row[3] % 2 == 0 and row[1] != 2]
        text = "SELECT * FROM grouped WHERE a != 2 AND v IN (0, 2, 4, 6, 8) ALLOW FILTERING"
        assert sorted(paged(text, size)) == sorted(filtered)
        assert len(paged("SELECT * FROM grouped LIMIT 20 OFFSET 35", size)) == 20
        assert len(paged("SELECT * FROM grouped OFFSET 55", size)) == 5
        assert len(paged("SELECT * FROM grouped PER PARTITION LIMIT 2", size)) == 6
        assert len(paged("SELECT JSON DISTINCT k FROM grouped", size)) == 3


def test_arithmetic_and_functions_of_bound_values(session):
    session.execute("CREATE TABLE sums (k int PRIMARY KEY, v bigint, d double)")
    session.execute("INSERT INTO sums (k, v, d) VALUES (1, 10, 2.5)")
    row = session.execute(session.prepare("SELECT v * (bigint) ? AS product, d / 2 AS half, -v AS minus FROM sums"), [3]).one()
    assert (row.product, row.half, row.minus) == (30, 1.25, -10)
    with pytest.raises(InvalidRequest, match="use type hint to disambiguate"):
        session.prepare("SELECT v + ? FROM sums")


def test_a_row_says_what_became_of_a_write(session):
    session.execute("CREATE TABLE status (h int, r int, v text, PRIMARY KEY (h, r))")
    row = session.execute("INSERT INTO status (h, r, v) VALUES (1, 1, 'a') RETURNS STATUS AS ROW").one()
    assert tuple(row) == (True, None, None, None, None)
    row = session.execute("UPDATE status SET v = 'b' WHERE h = 1 AND r = 1 IF v = 'x' RETURNS STATUS AS ROW").one()
    assert tuple(row) == (False, None, 1, 1, "a")
