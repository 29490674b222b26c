"""The Java driver java-driver-core 4.x, unmodified. The checks are in java/src/main/java/checks/Checks.java."""

import conftest
import pytest

CHECKS = [
    "connect", "metadata", "scalars", "nulls", "collections", "paging", "simple", "batches", "conditions", "errors", "after_alter",
    "versions",
]  # fmt: skip


@pytest.fixture(scope="module")
def program(server):
    return conftest.java_program("java", "checks.Checks", server.address)


@pytest.mark.parametrize("check", CHECKS)
def test_java(program, check):
    program.expect(check)


def test_no_other_checks(program):
    program.expect_exactly(CHECKS)
