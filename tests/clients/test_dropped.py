"""Writes beside DROP TABLE and DROP KEYSPACE with the unmodified Python driver, which repeats nothing.

Always checked: each write is carried out, or has the error of a statement about a table that does not exist."""

import itertools
import threading

import pytest
from cassandra import InvalidRequest
from cassandra.concurrent import execute_concurrent_with_args

from conftest import READY_WITHIN_S
from test_unique import session_at

ROUNDS = 15
# So many writes are in flight at a time.
BURST = 200


def written_beside(session, insert, drop):
    """Drops a table that is written to all the time, until a write fails. Returns what became of the writes."""
    outcomes, has_begun = [], threading.Event()

    def write():
        for start in itertools.count(0, BURST):
            rows = [(start + number,) for number in range(BURST)]
            found = execute_concurrent_with_args(session, insert, rows, concurrency=BURST, raise_on_first_error=False)
            outcomes.extend(found)
            has_begun.set()
            if not all(is_done for is_done, _ in found):
                return

    writer = threading.Thread(target=write)
    writer.start()
    assert has_begun.wait(READY_WITHIN_S)
    session.execute(drop)
    writer.join(READY_WITHIN_S)
    assert not writer.is_alive()
    return outcomes


@pytest.mark.parametrize("drop", ["DROP TABLE {}.t", "DROP KEYSPACE {}"], ids=["table", "keyspace"])
def test_a_write_that_meets_a_drop_is_carried_out_or_invalid(server, drop):
    cluster, session = session_at(server.address)
    try:
        for number in range(ROUNDS):
            keyspace = f"dropped_{number}"
            session.execute(f"DROP KEYSPACE IF EXISTS {keyspace}")
            session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
            session.execute(f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY, v int)")
            insert = session.prepare(f"INSERT INTO {keyspace}.t (k, v) VALUES (?, 1)")
            outcomes = written_beside(session, insert, drop.format(keyspace))
            errors = [error for is_done, error in outcomes if not is_done]
            assert errors and len(errors) < len(outcomes)
            others = [error for error in errors if not isinstance(error, InvalidRequest) or "does not exist" not in str(error)]
            assert not others, (len(others), others[0])
            session.execute(f"DROP KEYSPACE IF EXISTS {keyspace}")
    finally:
        cluster.shutdown()
