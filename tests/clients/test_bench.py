"""`diorite bench large-dataset`, the job of `make bench`, at its smallest scale: every phase runs without an error, a table is
printed, and a report in HTML and JSON is written where it was asked for.
"""

import json
import subprocess

import conftest

PHASES = ["load", "random-read-heavy", "recent-read-heavy", "write-heavy"]


def bench(folder, *arguments):
    report = folder / "report"
    command = [str(conftest.binary()), "bench", "large-dataset", "--scale", "tiny", "--report", str(report), *arguments]
    command += ["--listen", conftest.free_address()]
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, report


def test_table_and_report(tmp_path):
    table, report = bench(tmp_path)
    for phase in PHASES:
        assert phase in table, table
    assert "published" in table and "durability: fsync" in table
    page = (report / "report.html").read_text()
    assert "<html" in page and all(phase in page for phase in PHASES)
    # The page works without a network.
    assert "<script src=" not in page and "<link rel=\"stylesheet\" href=\"http" not in page
    assert json.loads((report / "report.json").read_text())


def test_json_alone_on_standard_output(tmp_path):
    text, _ = bench(tmp_path, "--json")
    assert isinstance(json.loads(text), dict)
