"""`diorite bench large-dataset`, the job of `make bench`, at its smallest scale: every phase runs without an error, a table is
printed, and a report in HTML and JSON is written where it was asked for. Then the benchmarks of clusters, just as small, on
three nodes.
"""

import json
import subprocess

import conftest

PHASES = ["load", "random-read-heavy", "recent-read-heavy", "write-heavy"]


SHORT = ["--phase-duration", "1s"]
SMALL = ["--records", "2000", "--warm-up", "500ms", *SHORT]


def bench(folder, *arguments, scenario=("large-dataset", "--scale", "tiny"), nodes=1):
    report = folder / "report"
    command = [str(conftest.binary()), "bench", *scenario, "--report", str(report), *arguments]
    command += ["--listen", conftest.free_address(nodes)]
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


def cluster_report(folder, *scenario):
    text, report = bench(folder, "--nodes", "3", "--rf", "3", "--json", scenario=scenario, nodes=3)
    result = json.loads(text)
    assert "fsync on a quorum" in result["durability"]
    assert not (report / "data").exists()
    return result


def test_point_on_three_nodes_with_and_without_knowing_who_leads(tmp_path):
    result = cluster_report(tmp_path, "point", *SMALL)
    phases = {phase["name"]: phase for phase in result["phases"] if phase["is_result"]}
    assert sorted(phases) == ["point-insert-spread", "point-insert-tablet-aware", "point-read-spread", "point-read-tablet-aware"]
    assert all(phase["server_cpu_seconds"] > 0 for phase in phases.values())


def test_few_and_many_tablets(tmp_path):
    result = cluster_report(tmp_path, "tablets", "--tablets-per-node", "2,8", *SMALL)
    assert {"read-2", "insert-8"} <= {phase["name"] for phase in result["phases"]}
    assert any("with 8 tablets per node" in figure["name"] and figure["value"] > 0 for figure in result["figures"])


def test_idle_tablets(tmp_path):
    result = cluster_report(tmp_path, "idle", "--replicas", "20", "--settle", "1s", *SHORT)
    figures = {figure["name"]: figure["value"] for figure in result["figures"]}
    assert figures["CPU of a node with 20 idle tablet replicas"] < 100 and "node 3: memory with tablets" in figures


def test_failover(tmp_path):
    result = cluster_report(tmp_path, "failover", "--kills", "2", "--settle", "1s", "--rate", "200", "--tablets", "6")
    figures = {figure["name"]: figure["value"] for figure in result["figures"]}
    assert figures["every tablet takes writes again, median"] > 0
    assert sum(name.startswith("kill ") for name in figures) == 4
