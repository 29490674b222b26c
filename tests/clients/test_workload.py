"""`diorite workload` against the server: every workload for a few hundred operations. It checks each row that it reads
itself, so the exit status says whether all were right. Workloads that cannot run are refused before anything connects.
"""

import json
import subprocess

import conftest
import pytest

# With what makes rows be written again and read across batches within so few operations.
WORKLOADS = {
    "CassandraKeyValue": ["--num_unique_keys", "50"],
    "CassandraRangeKeyValue": ["--num_unique_keys", "50"],
    "CassandraBatchKeyValue": ["--num_unique_keys", "200"],
    "CassandraTimeseries": [],
    "CassandraBatchTimeseries": ["--batch_size", "50"],
    "CassandraTransactionalKeyValue": ["--num_unique_keys", "50"],
    "CassandraTransactionalRestartRead": [],
    "CassandraPersonalization": ["--num_unique_keys", "50", "--num_stores", "3"],
    "CassandraStockTicker": ["--num_ticker_symbols", "2"],
    "CassandraUserId": ["--num_unique_keys", "50"],
}
WRITES, READS = 200, 300


def workload(*arguments):
    command = [str(conftest.binary()), "workload", *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_row_is_right(server, name):
    limits = ["--num_writes", str(WRITES), "--num_reads", str(READS), "--keyspace", "workloads", "--json"]
    done = workload("--workload", name, "--nodes", server.address, *limits, *WORKLOADS[name])
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["workload"] == name
    for kind, operations in (("reads", READS), ("writes", WRITES)):
        assert result[kind]["operations"] == operations and result[kind]["errors"] == 0, result


@pytest.mark.parametrize("name", ["CassandraSecondaryIndex", "CassandraEventData"])
def test_a_workload_with_global_indexes_is_refused_by_name(name):
    done = workload("--workload", name)
    assert done.returncode != 0 and "needs global indexes" in done.stderr, done.stderr
