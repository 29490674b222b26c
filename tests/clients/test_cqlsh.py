"""cqlsh, unmodified: DESCRIBE, SELECT, INSERT, COPY TO and COPY FROM, scripts and errors."""

import subprocess

import conftest
import pytest

KEYSPACE = "cqlsh_checks"


class Shell:
    def __init__(self, program, address):
        self.command = [str(program), address, "9042", "--no-color", *conftest.CQLSH_PATIENCE]

    def fails(self, text, *arguments):
        done = subprocess.run(
            [*self.command, *arguments, "-e", text.strip().removesuffix(";")], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
        )
        # It greets a server of another version than its own with a warning on standard output.
        output = "".join(line for line in done.stdout.splitlines(True) if not line.startswith("WARNING: cqlsh was built against"))
        return done.returncode, output, done.stderr

    def __call__(self, text, *arguments):
        status, output, errors = self.fails(text, *arguments)
        assert status == 0, f"cqlsh ended with {status}: {output}\n{errors}"
        return output


@pytest.fixture(scope="module")
def cqlsh(server, venv_program):
    shell = Shell(venv_program("cqlsh"), server.address)
    shell(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
    shell(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
    shell(
        f"CREATE TABLE {KEYSPACE}.people (town text, name text, born date, tags set<text>, scores map<text, int>, height float,"
        " nick text static, PRIMARY KEY (town, name)) WITH CLUSTERING ORDER BY (name DESC) AND comment = 'who lives where'"
    )
    return shell


def cells(output):
    """The rows of cqlsh's table, as tuples of trimmed text."""
    lines = [line for line in output.splitlines() if " | " in line or line.startswith(" ")]
    return [tuple(cell.strip() for cell in line.split("|")) for line in lines]


def test_describe_keyspaces(cqlsh):
    names = cqlsh("DESCRIBE KEYSPACES").split()
    assert KEYSPACE in names and "system" in names and "system_schema" in names


def test_describe_tables(cqlsh):
    assert cqlsh("DESCRIBE TABLES", "-k", KEYSPACE).split() == ["people"]
    everywhere = cqlsh("DESCRIBE TABLES")
    assert f"Keyspace {KEYSPACE}" in everywhere and "people" in everywhere


def test_describe_table_gives_a_statement_that_creates_it(cqlsh):
    text = cqlsh(f"DESCRIBE TABLE {KEYSPACE}.people")
    assert f"CREATE TABLE {KEYSPACE}.people (" in text
    for column in ("town text", "name text", "born date", "tags set<text>", "scores map<text, int>", "height float", "nick text static"):
        assert column in text, text
    assert "PRIMARY KEY (town, name)" in text
    assert "CLUSTERING ORDER BY (name DESC)" in text
    assert "comment = 'who lives where'" in text
    cqlsh(text.replace(f"{KEYSPACE}.people", f"{KEYSPACE}.people_again"))
    again = cqlsh(f"DESCRIBE TABLE {KEYSPACE}.people_again")
    assert again.replace("people_again", "people") == text
    cqlsh(f"DROP TABLE {KEYSPACE}.people_again")


def test_describe_keyspace_holds_its_tables(cqlsh):
    text = cqlsh(f"DESCRIBE KEYSPACE {KEYSPACE}")
    assert f"CREATE KEYSPACE {KEYSPACE} WITH replication = " in text and "SimpleStrategy" in text
    assert f"CREATE TABLE {KEYSPACE}.people (" in text


def test_describe_schema_and_cluster(cqlsh):
    assert f"CREATE TABLE {KEYSPACE}.people (" in cqlsh("DESCRIBE SCHEMA")
    assert "Murmur3Partitioner" in cqlsh("DESCRIBE CLUSTER")


def test_describe_of_what_is_absent_says_so(cqlsh):
    _, output, errors = cqlsh.fails(f"DESCRIBE TABLE {KEYSPACE}.absent")
    assert "absent" in output + errors and "not found" in output + errors


def test_show_names_the_server(cqlsh):
    assert "CQL spec" in cqlsh("SHOW VERSION") and "Native protocol v5" in cqlsh("SHOW VERSION")
    assert "Connected to" in cqlsh("SHOW HOST")


def test_insert_and_select(cqlsh):
    cqlsh(
        f"TRUNCATE {KEYSPACE}.people;"
        f" INSERT INTO {KEYSPACE}.people (town, name, born, tags, scores, height) VALUES"
        " ('Oslo', 'Ada', '1990-12-10', {'x', 'a'}, {'chess': 3}, 1.75);"
        f" INSERT INTO {KEYSPACE}.people (town, name, nick) VALUES ('Oslo', 'Bo', 'the tiger');"
    )
    output = cqlsh(f"SELECT town, name, nick, born, height, scores, tags FROM {KEYSPACE}.people")
    assert cells(output) == [
        ("town", "name", "nick", "born", "height", "scores", "tags"),
        ("Oslo", "Bo", "the tiger", "null", "null", "null", "null"),
        ("Oslo", "Ada", "the tiger", "1990-12-10", "1.75", "{'chess': 3}", "{'a', 'x'}"),
    ], output
    assert "(2 rows)" in output
    assert "(1 rows)" in cqlsh(f"SELECT * FROM {KEYSPACE}.people WHERE town = 'Oslo' AND name = 'Ada'")


def test_literals_of_every_type(cqlsh):
    cqlsh(
        f"CREATE TABLE IF NOT EXISTS {KEYSPACE}.literals (k int PRIMARY KEY, a ascii, b bigint, c blob, d boolean, e date, f decimal,"
        " g double, h duration, i float, j inet, l smallint, m text, n time, o timestamp, p timeuuid, q tinyint, r uuid, s varint)"
    )
    cqlsh(
        f"INSERT INTO {KEYSPACE}.literals (k, a, b, c, d, e, f, g, h, i, j, l, m, n, o, p, q, r, s) VALUES (1, 'a', -9223372036854775808,"
        " 0xCAFE, true, '2026-01-31', 1.50, 1e10, 1mo2d3h, -1.5, '::1', -32768, 'it''s', '23:59:59.000000001', '2026-01-31 12:00:00+0000',"
        " 50554d6e-29bb-11e5-b345-feff819cdc9f, -128, ffffffff-ffff-4fff-bfff-ffffffffffff, 123456789012345678901234567890)"
    )
    output = cqlsh(f"SELECT b, c, d, e, f, g, h, j, m, n, o, s FROM {KEYSPACE}.literals WHERE k = 1")
    assert cells(output)[1] == (
        "-9223372036854775808", "0xcafe", "True", "2026-01-31", "1.50", "1e+10", "1mo2d3h", "::1", "it's",
        "23:59:59.000000001", "2026-01-31 12:00:00.000000+0000", "123456789012345678901234567890",
    ), output  # fmt: skip
    functions = cqlsh(f"SELECT k, token(k), writetime(a) FROM {KEYSPACE}.literals")
    assert "-4069959284402364209" in functions, functions


def test_a_prepared_looking_script_from_a_file(cqlsh, tmp_path):
    script = tmp_path / "script.cql"
    script.write_text(
        f"-- a comment\nUSE {KEYSPACE};\nCREATE TABLE IF NOT EXISTS scripted (k int PRIMARY KEY, v text);\n"
        "/* another\n comment */ BEGIN BATCH\n INSERT INTO scripted (k, v) VALUES (1, 'one');\n"
        " INSERT INTO scripted (k, v) VALUES (2, 'two');\nAPPLY BATCH;\nSELECT v FROM scripted WHERE k = 2;\n"
    )
    done = subprocess.run([*cqlsh.command, "-f", str(script)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert cells(done.stdout)[1] == ("two",), done.stdout


def test_conditional_statements_show_what_is_there(cqlsh):
    cqlsh(f"CREATE TABLE IF NOT EXISTS {KEYSPACE}.conditional (k int PRIMARY KEY, v text); TRUNCATE {KEYSPACE}.conditional")
    assert "True" in cqlsh(f"INSERT INTO {KEYSPACE}.conditional (k, v) VALUES (1, 'a') IF NOT EXISTS")
    output = cqlsh(f"INSERT INTO {KEYSPACE}.conditional (k, v) VALUES (1, 'b') IF NOT EXISTS")
    assert cells(output)[1] == ("False", "1", "a"), output


def test_errors_are_shown_and_fail_the_command(cqlsh):
    for text, wanted in {
        "SELEKT": "SyntaxException",
        f"SELECT * FROM {KEYSPACE}.absent": "absent",
        f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}": "AlreadyExists",
    }.items():
        status, output, errors = cqlsh.fails(text)
        assert status != 0 and wanted in output + errors, (text, output, errors)


def test_tracing_and_consistency_commands(cqlsh):
    output = cqlsh(f"CONSISTENCY QUORUM; SELECT COUNT(*) FROM {KEYSPACE}.people")
    assert "Consistency level set to QUORUM" in output and "count" in output


def test_tracing_on_shows_the_steps_of_each_statement(cqlsh):
    cqlsh(f"CREATE TABLE IF NOT EXISTS {KEYSPACE}.traced (k int PRIMARY KEY, v text)")
    output = cqlsh(
        f"TRACING ON; INSERT INTO {KEYSPACE}.traced (k, v) VALUES (1, 'one'); SELECT v FROM {KEYSPACE}.traced WHERE k = 1; TRACING OFF"
    )
    assert output.count("Tracing session: ") == 2, output
    steps = [step for step, *_ in cells(output)]
    for wanted in ("Execute CQL3 query", f"Insert on {KEYSPACE}.traced", f"Primary Key Lookup on {KEYSPACE}.traced", "Request complete"):
        assert any(step.startswith(wanted) for step in steps), (wanted, output)
    assert "Request complete: 1 rows" in output and "one" in output, output


def test_copy_to_and_from_bring_every_row_back(cqlsh, tmp_path):
    rows = 6_000
    source, back = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("".join(f'{n % 11},{n},"value, {n}","[{n}, 1]",{n / 4}\n' for n in range(rows)))
    cqlsh(f"DROP TABLE IF EXISTS {KEYSPACE}.copied")
    cqlsh(f"CREATE TABLE {KEYSPACE}.copied (p int, c bigint, v text, l list<int>, d double, PRIMARY KEY (p, c))")
    output = cqlsh(f"COPY {KEYSPACE}.copied (p, c, v, l, d) FROM '{source}' WITH NUMPROCESSES = 1")
    assert f"{rows} rows imported" in output, output
    assert cells(cqlsh(f"SELECT COUNT(*) FROM {KEYSPACE}.copied"))[-1] == (str(rows),)
    output = cqlsh(f"COPY {KEYSPACE}.copied (p, c, v, l, d) TO '{back}' WITH NUMPROCESSES = 1 AND DOUBLEPRECISION = 12")
    assert f"{rows} rows exported" in output, output
    number = lambda line: int(line.split(",")[1])
    returned = sorted(back.read_text().splitlines(), key=number)
    assert len(returned) == rows
    for n in (0, 1, 4_321, rows - 1):
        assert returned[n] == f'{n % 11},{n},"value, {n}","[{n}, 1]",{n / 4:g}', returned[n]
