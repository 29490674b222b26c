"""CQL answered as Apache Cassandra 5.0 answers it: every script in conformance/ holds statements and, under each, what Cassandra gave.

A recorded answer is `-- ok`, rows (`-- column | column`, then one line per row), or `-- error: <kind>`; messages are each database's
own. With DIORITE_RECORD=1 and DIORITE_TEST_ADDRESS naming a Cassandra, the scripts are rewritten with what it answers.
Scripts hold only what Diorite claims to do; what it rejects by name is not here.
"""

import os
import pathlib

import cassandra
import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import FallthroughRetryPolicy, WhiteListRoundRobinPolicy
from cassandra.protocol import ErrorMessage
from cassandra.util import SortedSet

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = sorted((HERE / "conformance").glob("*.cql"))
RECORDING = os.environ.get("DIORITE_RECORD") == "1"


def statements(text):
    """(line number, statement, recorded answer) of each statement; a statement ends with `;` at the end of a line."""
    found, statement, answer, start = [], [], [], 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("-- ") or not line:
            answer.append(line)
            continue
        if statement and statement[-1].endswith(";"):
            found.append((start, "\n".join(statement), answer))
            statement = []
        if not statement:
            # Comments before a statement begin with `--#`, so that they are no answer.
            start, answer = number, []
        statement.append(line)
    found.append((start, "\n".join(statement), answer))
    return found


def shown(value):
    """One value, the same for every way the driver may hold it."""
    if isinstance(value, (set, SortedSet)):
        return "{" + ", ".join(shown(item) for item in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    if hasattr(value, "items"):
        return "{" + ", ".join(f"{shown(key)}: {shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, bytes):
        return "0x" + value.hex()
    return repr(value) if isinstance(value, str) else str(value)


def answered(session, statement):
    lines = statement.splitlines()
    text = "\n".join(line for line in lines if not line.startswith("--#"))
    try:
        result = session.execute(text.rstrip(";"))
    except (cassandra.DriverException, ErrorMessage) as error:
        return [f"-- error: {type(error).__name__}"]
    if not result.column_names:
        return ["-- ok"]
    return [f"-- {line}" for line in [" | ".join(result.column_names), *(" | ".join(map(shown, row)) for row in result)]]


@pytest.fixture(scope="module")
def session(server):
    profile = ExecutionProfile(
        request_timeout=30,
        load_balancing_policy=WhiteListRoundRobinPolicy([server.address]),
        retry_policy=FallthroughRetryPolicy(),
        row_factory=lambda names, rows: rows,
    )
    cluster = Cluster(
        [server.address],
        protocol_version=4,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        schema_metadata_enabled=False,
    )
    yield cluster.connect()
    cluster.shutdown()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_conformance(session, script):
    keyspace = f"conformance_{script.stem}"
    session.execute(f"DROP KEYSPACE IF EXISTS {keyspace}")
    session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
    session.execute(f"USE {keyspace}")
    differences, recorded = [], []
    for number, statement, expected in statements(script.read_text()):
        answer = answered(session, statement)
        recorded.append("\n".join([statement, *answer]))
        if answer != [line for line in expected if line]:
            wanted = "\n".join(line for line in expected if line)
            got = "\n".join(answer)
            differences.append(f"{script.name}:{number}\n{statement}\nwanted\n{wanted}\ngot\n{got}")
    if RECORDING:
        script.write_text("\n\n".join(recorded) + "\n")
        return
    assert not differences, f"{len(differences)} answers differ\n\n" + "\n\n".join(differences)
