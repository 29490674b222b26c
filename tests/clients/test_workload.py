"""`diorite workload` against the server: every workload for a few hundred operations. It checks each row that it reads
itself, so the exit status says whether all were right.
"""

import json
import subprocess

import conftest
import pytest
from cassandra import InvalidRequest
from test_python import connect

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
    "CassandraSecondaryIndex": ["--num_unique_keys", "50"],
    "CassandraUniqueSecondaryIndex": ["--num_unique_keys", "50"],
    "CassandraInserts": ["--num_unique_keys", "50", "--num_indexes", "3"],
    "CassandraEventData": ["--num_devices", "3", "--num_event_types", "4", "--value_size", "100"],
}
# Further ways to run them. Each has a keyspace of its own, as the names of indexes do not contain the table's.
VARIANTS = {
    "batches by value": ["CassandraSecondaryIndex", "--num_unique_keys", "100", "--batch_write", "--batch_size", "5"],
    "by value without transactions": ["CassandraSecondaryIndex", "--num_unique_keys", "50", "--non_transactional_index"],
    "batches of unique values": ["CassandraUniqueSecondaryIndex", "--num_unique_keys", "100", "--batch_write", "--batch_size", "5"],
    "inserts without indexes": ["CassandraInserts", "--num_unique_keys", "50"],
    "batches without transactions": [
        *["CassandraInserts", "--num_unique_keys", "100", "--num_indexes", "2"],
        *["--batch_write", "--batch_size", "5", "--non_transactional_index"],
    ],
}
WRITES, READS = 200, 300


def workload(*arguments):
    command = [str(conftest.binary()), "workload", *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1_200)


def check_run(server, keyspace, name, *arguments):
    limits = ["--num_writes", str(WRITES), "--num_reads", str(READS), "--keyspace", keyspace, "--json"]
    done = workload("--workload", name, "--nodes", server.address, *limits, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["workload"] == name
    for kind, operations in (("reads", READS), ("writes", WRITES)):
        assert result[kind]["operations"] == operations and result[kind]["errors"] == 0, result


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_row_is_right(server, name):
    check_run(server, "workloads", name, *WORKLOADS[name])


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_row_is_right_in_a_variant(server, variant):
    check_run(server, f"workload_{list(VARIANTS).index(variant)}", *VARIANTS[variant])


@pytest.mark.parametrize("name", ["CassandraSecondaryIndex", "CassandraUniqueSecondaryIndex"])
def test_rows_of_an_earlier_run_are_found_by_value(server, name):
    keys = ["--workload", name, "--nouuid", "--num_unique_keys", "20", "--nodes", server.address]
    keys += ["--keyspace", "workload_again"]
    for more in (["--num_writes", "60", "--num_threads_read", "0"], ["--read_only", "--num_reads", "100"]):
        done = workload(*keys, *more)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_value_that_two_rows_have_is_a_violation(server):
    keys = ["--workload", "CassandraSecondaryIndex", "--nouuid", "--num_unique_keys", "5", "--nodes", server.address]
    keys += ["--keyspace", "workload_wrong"]
    done = workload(*keys, "--num_writes", "5", "--num_threads_read", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    cluster, session = connect(server, keyspace="workload_wrong")
    try:
        value = session.execute("SELECT v FROM CassandraSecondaryIndex WHERE k = 'key:3'").one().v
        session.execute("INSERT INTO CassandraSecondaryIndex (k, v) VALUES ('other', %s)", (value,))
    finally:
        cluster.shutdown()
    done = workload(*keys, "--read_only", "--num_reads", "1000")
    assert done.returncode == 2 and "key:3, read by its v" in done.stderr, done.stdout + done.stderr


def test_a_value_of_another_row_is_refused_where_the_index_is_unique(server):
    name, keyspace = "CassandraUniqueSecondaryIndex", "workload_unique"
    keys = ["--workload", name, "--nouuid", "--num_unique_keys", "5", "--nodes", server.address, "--keyspace", keyspace]
    done = workload(*keys, "--num_writes", "5", "--num_threads_read", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    cluster, session = connect(server, keyspace=keyspace)
    try:
        value = session.execute(f"SELECT v FROM {name} WHERE k = 'key:3'").one().v
        with pytest.raises(InvalidRequest, match=f"Duplicate value disallowed by unique index {name.lower()}byvalue"):
            session.execute(f"INSERT INTO {name} (k, v) VALUES ('other', %s)", (value,))
    finally:
        cluster.shutdown()
    done = workload(*keys, "--read_only", "--num_reads", "1000")
    assert done.returncode == 0, done.stdout + done.stderr
