"""Every command in README works as written: each line of each fenced block is run here or is a make target that CI runs."""

import os
import re
import shlex
import subprocess

import conftest

ROOT = conftest.HERE.parent.parent
# What .ci/run covers: `make test` runs these very tests, `make bench` runs at its smallest scale and does what `make build` does.
MAKE_LINES = {"make test", "make build", "make bench"}
START_LINE = "diorite start --data-dir /var/lib/diorite"
UP_LINE = "diorite local up --nodes 3 --rf 3"


def commands():
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def test_make_lines_are_known():
    found = {line for line in commands() if line.startswith("make ")}
    assert found == MAKE_LINES


def test_the_server_is_started_as_readme_says():
    # The fixture starts the server with this line, and an address so that it can run beside another server.
    assert START_LINE in commands()


def test_every_other_line_runs(server, venv_program, tmp_path):
    # The cqlsh of README, with more patience than it has by itself.
    patient = tmp_path / "bin"
    patient.mkdir()
    (patient / "cqlsh").write_text(f'#!/bin/sh\nexec {shlex.quote(str(venv_program("cqlsh")))} {" ".join(conftest.CQLSH_PATIENCE)} "$@"\n')
    (patient / "cqlsh").chmod(0o755)
    programs = [str(conftest.binary().parent), str(patient), os.environ["PATH"]]
    # The cluster of README lives in this test's folder, and beside whatever runs on the addresses that README names.
    environment = {**os.environ, "PATH": ":".join(programs), "XDG_DATA_HOME": str(tmp_path)}
    assert UP_LINE in commands()
    beside = f"{UP_LINE} --address {conftest.free_address(neighbours=3)}"
    lines = [line for line in commands() if line not in MAKE_LINES and line != START_LINE]
    assert lines
    try:
        for line in lines:
            here = beside if line == UP_LINE else line.replace("127.0.0.1", server.address)
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", here], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900
            )
            assert done.returncode == 0, f"{here}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
            if here.endswith('LIMIT 10"'):
                assert "12.5" in done.stdout and "(1 rows)" in done.stdout, done.stdout
    finally:
        # After a line that failed its nodes would run on.
        subprocess.run([conftest.binary(), "local", "destroy", "--yes"], env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
    assert not (tmp_path / "diorite" / "local").exists()


def test_nothing_is_written_into_the_checkout():
    status = subprocess.run(
        ["git", "-c", "safe.directory=*", "status", "--porcelain", "--ignored", "tests"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    left = [line for line in status.stdout.splitlines() if line.startswith(("!!", "??"))]
    assert left == [], left
