"""`diorite bench large-dataset`, the job of `make bench`, at its smallest scale: every phase runs, with a node more and a node less, and without an
error where there may be none; a table is printed, and a report in HTML and JSON is written where it was asked for. The same on servers that run
already, and on one. Then the benchmarks of clusters, just as small, on three nodes.
"""

import json
import pathlib
import subprocess

import conftest

PHASES = ["load", "random-read-heavy", "recent-read-heavy", "write-heavy", "mixed-load"]
CHANGES = ["add-node", "mixed-load-again", "lose-node"]
CHARTS = ["Throughput", "Read latency", "Server CPU", "Server memory", "Disk operations", "SSTable bytes per node", "Tablets per node", "Leaders per node"]

BENCHES = pathlib.Path(__file__).resolve().parents[2] / "benches"

# Phases have a length, but nodes that start, move tablets and stop beside other tests take as long as they take.
BENCH_WITHIN_S = 1_200
SHORT = ["--phase-duration", "1s"]
SMALL = ["--records", "2000", "--warm-up", "500ms", *SHORT]


def bench(folder, *arguments, scenario=("large-dataset", "--scale", "tiny"), nodes=5, starts=True):
    report = folder / "report"
    command = [str(conftest.binary()), "bench", *scenario, "--report", str(report), *arguments]
    if starts:
        command += ["--listen", conftest.free_address(nodes)]
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BENCH_WITHIN_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, report


def errors_of(phase):
    return phase["reads"]["errors"] + phase["writes"]["errors"]


def test_the_whole_scenario(tmp_path):
    table, report = bench(tmp_path)
    page = (report / "report.html").read_text()
    for phase in PHASES + CHANGES:
        assert phase in table and phase in page, table
    assert "published" in table and "durability: fsync on a quorum" in table
    assert "26 TB in about 8 h" in table and "2 h 10 min" in table and "left out" not in table
    # The page works without a network.
    assert "<html" in page and "<script src=" not in page and "<link rel=\"stylesheet\" href=\"http" not in page
    assert all(chart in page for chart in CHARTS)
    result = json.loads((report / "report.json").read_text())
    phases = {phase["name"]: phase for phase in result["phases"]}
    assert list(phases) == PHASES + CHANGES and result["unfinished"] == []
    for name, phase in phases.items():
        assert phase["server_cpu_seconds"] > 0, name
        assert errors_of(phase) == 0 or name == "lose-node", name
        assert phase["reads"]["operations"] > 0 or name in ("load", "write-heavy"), name
    assert phases["load"]["writes"]["operations"] == 20_000
    check_changes({figure["name"]: figure["value"] for figure in result["figures"]})
    check_nodes(result["nodes"], phases["lose-node"]["end_s"])
    assert not (report / "data").exists()


def check_changes(figures):
    assert figures["add: failed requests"] == 0
    assert 0 < figures["add: the new node leads its first tablet"] <= figures["add: balanced, nothing moves"]
    assert 0 < figures["add: the new node has its first replica"] <= figures["add: balanced, nothing moves"]
    assert figures["add: bytes copied"] > 0 and figures["add: limit of copies, per node"] == 10
    # 20 tablets on five nodes: four each, or one more or less.
    assert figures["add: leaders per node, farthest from the mean"] <= 25
    assert figures["add: bytes per node, farthest from the mean"] is not None
    assert figures["add: p99 of writes, of that of the mixed load alone"] > 0
    assert 0 < figures["lose: every tablet takes writes again"] < 30_000
    # It is missed at once, but given up only later.
    assert figures["lose: every tablet has all its replicas again"] > figures["lose: a silent node is given up after"] == 2
    assert figures["lose: bytes copied"] > 0 and figures["lose: failed requests"] >= 0


def check_nodes(samples, end_s):
    assert [node["node"] for node in samples[0]["nodes"]] == [1, 2, 3, 4]
    assert 0 < samples[0]["at_s"] < samples[-1]["at_s"] <= end_s + 2
    fifth = [node for sample in samples for node in sample["nodes"] if node["node"] == 5]
    assert 10 <= max(node["replicas"] for node in fifth) <= 14 and fifth[-1]["replicas"] == 0
    assert any(node["sst_bytes"] and node["tablet_bytes"] and node["leaders"] for node in fifth)
    assert not fifth[-1]["is_up"] and fifth[-1]["sst_bytes"] is None


def test_json_alone_on_standard_output_and_one_node_on_its_own(tmp_path):
    text, _ = bench(tmp_path, "--nodes", "1", "--json", nodes=1)
    result = json.loads(text)
    assert [phase["name"] for phase in result["phases"]] == PHASES and result["figures"] == []
    assert [omission.split(":")[0] for omission in result["omissions"]] == ["adding a node", "losing a node"]


def test_servers_that_run_already(server, tmp_path):
    table, report = bench(tmp_path, "--nodes", server.address, "--keyspace", "bench_of_others", starts=False)
    assert "left out: adding a node: the servers were not started by the benchmark" in table
    result = json.loads((report / "report.json").read_text())
    assert [phase["name"] for phase in result["phases"]] == PHASES
    # Nobody said which processes the servers are.
    assert all(phase["operations_per_server_cpu_second"] is None and errors_of(phase) == 0 for phase in result["phases"])
    assert any(node["tablet_bytes"] for sample in result["nodes"] for node in sample["nodes"])


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
    result = cluster_report(tmp_path, "idle", "--replicas", "20", "--rest", "1s", *SHORT)
    figures = {figure["name"]: figure["value"] for figure in result["figures"]}
    assert figures["CPU of a node with 20 idle tablet replicas"] < 100 and "node 3: memory with tablets" in figures


def test_hostile_clients(tmp_path):
    """Every class is sent and answered, and others are served beside it; how quickly is for machines that are otherwise idle."""
    scenario = ("hostile", "--class-duration", "600ms", "--records", "500", "--rate", "200", "--attackers", "2")
    table, report = bench(tmp_path, scenario=scenario, nodes=1)
    result = json.loads((report / "report.json").read_text())
    phases = {phase["name"]: phase for phase in result["phases"]}
    classes = [name for name in phases if name not in ("load", "alone", "alone again")]
    assert len(classes) == 20, classes
    assert all(phase["reads"]["operations"] > 0 for name, phase in phases.items() if name != "load"), table
    answers = dict(note.split(": ", 1) for note in result["notes"][1:])
    assert sorted(answers) == sorted(classes)
    assert any(figure["name"] == "resident memory, most" and figure["value"] > 0 for figure in result["figures"])


def test_failover(tmp_path):
    result = cluster_report(tmp_path, "failover", "--kills", "2", "--rest", "1s", "--rate", "200", "--tablets", "6")
    figures = {figure["name"]: figure["value"] for figure in result["figures"]}
    assert figures["every tablet takes writes again, median"] > 0
    assert sum(name.startswith("kill ") for name in figures) == 4


def test_transactions(tmp_path):
    """Every step runs in every round and is checked; what it costs is for machines that are otherwise idle."""
    sizes = ("--records", "400", "--rounds", "2", "--phase-duration", "500ms", "--warm-up", "200ms", "--in-flight", "8", "--tablets", "4")
    table, report = bench(tmp_path, scenario=("transactions", *sizes), nodes=1)
    result = json.loads((report / "report.json").read_text())
    phases = {phase["name"]: phase for phase in result["phases"]}
    steps = [name for name, phase in phases.items() if phase["is_result"]]
    assert steps == [
        "insert", "insert-transactional", "insert-indexed", "insert-indexed-transactional",
        "insert-unique-indexed", "insert-viewed", "insert-covering-indexed", "insert-five-indexes",
        "block", "batch-logged", "batch-unlogged",
        "read", "read-transactional", "read-in", "read-in-transactional", "read-by-index",
        "read-by-covering-index", "hot-row",
    ]
    for name in steps:
        rounds = [phases[f"{name}-{number}"] for number in (1, 2)]
        operations = [phase["reads"]["operations"] + phase["writes"]["operations"] for phase in [phases[name], *rounds]]
        assert operations[0] == sum(operations[1:]) > 0, name
        assert errors_of(phases[name]) == 0 or name == "hot-row", name
        assert phases[name]["server_cpu_seconds"] > 0, name
    assert phases["load"]["writes"]["rows"] == phases["load-transactional"]["writes"]["rows"] == 400
    assert result["unfinished"] == []
    figures = {figure["name"]: figure["value"] for figure in result["figures"]}
    assert figures["block: server CPU per operation, of that of insert"] > 0 and figures["block: p50, of that of insert"] > 0
    assert figures["read-in-transactional: server CPU per operation, of that of read-in"] > 0
    assert figures["hot-row: transactions of 8 clients"] > 0
    assert figures["hot-row: transactions of the client with the fewest, of the mean"] > 0
    assert "at most 3.5" in table and "about 3k transactions/s" in table and "durability: fsync before" in table


def test_dense_in_small(tmp_path):
    table, report = bench(tmp_path, scenario=("dense", "--scale", "tiny", "--phase-duration", "1s"), nodes=1)
    result = json.loads((report / "report.json").read_text())
    figures = {figure["name"]: figure["value"] for figure in result["figures"]}
    phases = [phase["name"] for phase in result["phases"]]
    assert [name for name in phases if not name.endswith("-first")] == [
        "load-1", "random-read-1", "load-2", "random-read-2", "load-3", "random-read", "recent-read", "overwrite", "read-overwritten",
    ]
    assert all(errors_of(phase) == 0 for phase in result["phases"]) and result["unfinished"] == []
    assert figures["random-read: disk reads per read"] >= 0 and figures["absent-read: disk reads per read"] >= 0
    assert 0 < figures["index and filter per TB, with a fifth overwritten"] < 20
    assert figures["queue: dead rows that reads went past"] > 0
    assert figures["hot row: conditional updates of 8 clients"] > 0
    assert figures["restart after kill -9, until reads are served"] > 0
    assert "at most 1.02" in table


def test_two_builds_are_compared_in_pairs(tmp_path):
    """Here with itself: only that all is counted."""
    binary, result = str(conftest.binary()), tmp_path / "pairs.json"
    common = "--workload CassandraKeyValue --nouuid --tablets 1 --num-threads-read 4 --num-unique-keys 100"
    command = [BENCHES / "pairs", binary, binary, "--load", f"{common} --num-writes 100", "--run", f"{common} --read-only --num-reads -1", "--address", conftest.free_address(2)]
    command += ["--rounds", "3", "--seconds", "1", "--json", result]
    done = subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BENCH_WITHIN_S)
    assert done.returncode == 0 and "server CPU per operation: " in done.stdout, done.stdout + done.stderr
    found = json.loads(result.read_text())
    assert found["rounds"] == 2 and len(found["each_round"]) == 3
    assert all(half["operations"] > 0 and half["us"] > 0 for pair in found["each_round"] for half in pair)
    ratios = [after["us"] / before["us"] for before, after in found["each_round"][1:]]
    assert min(ratios) <= found["ratio_median"] <= max(ratios) and found["ratio_standard_error"] >= 0
