"""What compactions remove once `gc_grace_seconds` are over: nothing that is there comes to be missing, and nothing that was
deleted comes back."""

import os
import time

import pytest

from test_unique import admin, session_at

if os.environ.get("DIORITE_TEST_ADDRESS"):
    pytest.skip("a server of its own is needed", allow_module_level=True)

# Deletions are purged at the earliest a second after they were made, by a compaction that knows of later writes.
ROUNDS = 6


def test_a_row_that_a_batch_deletes_and_writes_stays_deleted(server):
    cluster, session = session_at(server.address)
    try:
        session.use_client_timestamp = False
        session.execute("CREATE KEYSPACE purged WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.set_keyspace("purged")
        session.execute("CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c)) WITH gc_grace_seconds = 1 AND tablets = 1")
        for c in range(5):
            session.execute("INSERT INTO t (k, c, v) VALUES (1, %s, %s)", (c, c))
        # The deletion and the row have one timestamp, so that the deletion counts.
        session.execute(
            "BEGIN UNLOGGED BATCH DELETE FROM t WHERE k = 1 AND c >= 1 AND c < 4;"
            " INSERT INTO t (k, c, v) VALUES (1, 1, 10); INSERT INTO t (k, c, v) VALUES (1, 4, 40); APPLY BATCH"
        )
        session.execute("BEGIN UNLOGGED BATCH INSERT INTO t (k, c, v) VALUES (2, 1, 1); DELETE FROM t WHERE k = 2; APPLY BATCH")
        # What is written after it is there.
        session.execute("INSERT INTO t (k, c, v) VALUES (1, 2, 20)")
        for number in range(ROUNDS):
            found = {(row.k, row.c): row.v for row in session.execute("SELECT k, c, v FROM t WHERE k IN (1, 2)")}
            assert found == {(1, 0): 0, (1, 2): 20, (1, 4): 40}, f"after {number} compactions"
            time.sleep(1)
            session.execute("INSERT INTO t (k, c, v) VALUES (3, %s, 0)", (number,))
            admin(server, "compact", "--wait")
    finally:
        cluster.shutdown()
