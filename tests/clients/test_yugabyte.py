"""YugabyteDB's fork of the Java driver with the statements of yb-sample-apps: every workload that needs neither a secondary
index nor a transaction over several partitions. The workloads are in yugabyte/src/main/java/checks/Workloads.java.
"""

import conftest
import pytest

CHECKS = [
    "connect", "key_value", "key_value_with_ttl", "batch_key_value", "batch_timeseries", "hello_world", "personalization",
    "range_key_value", "stock_ticker", "timeseries", "user_id", "concurrent_key_value",
    "transactional_restart_read", "transaction_block", "drop",
]  # fmt: skip


@pytest.fixture(scope="module")
def program(server):
    return conftest.java_program("yugabyte", "checks.Workloads", server.address)


@pytest.mark.parametrize("check", CHECKS)
def test_yugabyte(program, check):
    program.expect(check)


def test_no_other_checks(program):
    program.expect_exactly(CHECKS)
