"""The Go driver gocql, unmodified. The checks are in go/main.go."""

import conftest
import pytest

CHECKS = [
    "connect", "metadata", "scalars", "nulls", "collections", "paging", "batches", "conditions", "errors", "after_alter", "versions",
    "tracing", "concurrency",
]  # fmt: skip


@pytest.fixture(scope="module")
def program(server):
    compiled = conftest.clients_folder("go") / "checks"
    conftest.build(["go", "build", "-o", compiled, "."], folder=conftest.HERE / "go", environment={"GOFLAGS": "-mod=readonly -buildvcs=false"})
    return conftest.Program([compiled, server.address])


@pytest.mark.parametrize("check", CHECKS)
def test_gocql(program, check):
    program.expect(check)


def test_no_other_checks(program):
    program.expect_exactly(CHECKS)
