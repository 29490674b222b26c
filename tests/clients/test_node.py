"""The Node.js driver, unmodified. The checks are in node/checks.js."""

import filecmp
import shutil

import conftest
import pytest

CHECKS = [
    "connect", "metadata", "scalars", "nulls", "collections", "paging", "simple", "batches", "conditions", "errors", "after_alter",
    "versions", "events",
]  # fmt: skip


@pytest.fixture(scope="module")
def program(server):
    source, folder = conftest.HERE / "node", conftest.clients_folder("node")
    installed = folder / "installed-package-lock.json"
    if not (installed.exists() and filecmp.cmp(source / "package-lock.json", installed, shallow=False)):
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, folder / name)
        conftest.build(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder=folder)
        shutil.copy(source / "package-lock.json", installed)
    modules = {"NODE_PATH": str(folder / "node_modules")}
    return conftest.Program(["node", source / "checks.js", server.address], environment=modules)


@pytest.mark.parametrize("check", CHECKS)
def test_node(program, check):
    program.expect(check)


def test_no_other_checks(program):
    program.expect_exactly(CHECKS)
