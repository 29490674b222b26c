//! The report's three forms from a made-up run: everything is in them, nothing foreign, nothing from outside.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use super::*;
use crate::bench::published::{self, Reference};
use crate::bench::watch::{NodeSample, NodesSample};
use crate::latency::Summary;

fn summary(operations: u64) -> Summary {
    Summary {
        operations,
        rows: operations,
        errors: 0,
        operations_per_second: operations as f64,
        mean_us: 200.0,
        p50_us: 180,
        p95_us: 400,
        p99_us: 1_500,
        p999_us: 9_000,
        max_us: 70_000,
    }
}

fn sample(second: usize, phase: usize) -> Sample {
    Sample {
        at_s: second as f64,
        phase,
        reads: summary(if phase == 0 { 0 } else { 150_000 }),
        writes: summary(if phase == 0 { 90_000 } else { 0 }),
        server_cpu_cores: Some(1.2),
        server_resident_bytes: Some(5e8),
        disk_read_bytes_per_second: Some(0.0),
        disk_write_bytes_per_second: Some(4e7),
        device_reads_per_second: None,
        device_writes_per_second: None,
        sst_bytes: Some(second as f64 * 2e7),
    }
}

fn phase(name: &str, start_s: f64, reads: u64, writes: u64, reference: Reference) -> PhaseResult {
    PhaseResult {
        name: name.into(),
        description: "a <phase>".into(),
        is_result: true,
        expects_errors: false,
        start_s,
        end_s: start_s + 10.0,
        writers: if writes > reads { 256 } else { 2 },
        readers: if writes > reads { 0 } else { 64 },
        reads: summary(reads),
        writes: summary(writes),
        server_cpu_seconds: Some(12.0),
        server_cpu_cores: Some(1.2),
        operations_per_server_cpu_second: Some((reads + writes) as f64 / 1.2),
        server_resident_bytes: Some(500_000_000),
        disk_read_bytes: Some(0),
        disk_write_bytes: Some(400_000_000),
        device_reads: None,
        device_writes: None,
        sst_bytes: Some(200_000_000),
        reference,
    }
}

fn report() -> Report {
    Report {
        format: FORMAT,
        header: Header {
            title: "Large dataset".into(),
            scenario: "large-dataset".into(),
            client: "driver".into(),
            connections: 4,
            durability: "fsync <always>".into(),
            notes: vec!["a note".into()],
            omissions: Vec::new(),
        },
        version: "0.1.0",
        started_at: "2026-11-21 01:02:03".into(),
        command_line: "diorite bench large-dataset --scale tiny".into(),
        environment: Environment {
            cores: 2,
            processor: "a processor".into(),
            memory_bytes: 16 << 30,
            kernel: "Linux 6".into(),
            system: "Debian".into(),
        },
        figures: Vec::new(),
        phases: vec![
            phase("load", 0.0, 0, 90_000, published::load(1)),
            phase("random-read-heavy", 10.0, 150_000, 0, published::random_read()),
        ],
        samples: (1..=20).map(|second| sample(second, usize::from(second > 10))).collect(),
        nodes: Vec::new(),
        unfinished: Vec::new(),
    }
}

/// Five nodes, of which the last comes after five seconds and is gone after fifteen.
fn nodes(second: usize) -> NodesSample {
    let node = |node: u64| NodeSample {
        node,
        is_up: node < 5 || second <= 15,
        replicas: 12,
        leaders: Some(4),
        tablet_bytes: Some(node << 20),
        sst_bytes: (node < 5 || second <= 15).then_some((node * 3) << 20),
    };
    let there = if second < 5 { 4 } else { 5 };
    NodesSample { at_s: second as f64 + 0.5, nodes: (1..=there).map(node).collect() }
}

#[test]
fn the_table_sets_measured_published_and_target_side_by_side() {
    let text = report().table();
    for part in ["load", "75.0k", "85k inserts/s", "2.0k", "100k", "random-read-heavy", "125k", "150k", "1.50 ms"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(text.contains("durability: fsync <always>"));
    assert!(text.contains("4 × (32 vCPU, 240 GB, 4 × 1.9 TB NVMe), RF 3: load, random-read-heavy"), "{text}");
}

#[test]
fn the_page_holds_every_series_and_nothing_from_outside() {
    let page = html::render(&report());
    for title in
        ["Throughput", "Read latency", "Write latency", "Server CPU", "Server memory", "Disk bytes", "SSTables on disk"]
    {
        assert!(page.contains(title), "no chart of {title}");
    }
    assert_eq!(page.matches("<svg").count(), 7, "disk operations were not measured");
    assert!(page.contains("not measured"));
    assert!(page.matches(r#"class="line s"#).count() >= 12, "lines are missing");
    assert!(page.contains("reads: 150k/s") && page.contains("p99.9: 9.00 ms"), "tooltips name the values");
    assert!(page.contains("fsync &lt;always&gt;") && !page.contains("fsync <always>"), "text is escaped");
    for foreign in ["<script", "src=", "href=", "url("] {
        assert!(!page.contains(foreign), "the page must stand alone but has {foreign}");
    }
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert_eq!(
        page.matches("<rect").count(),
        page.matches("/>").count() - other_empty_tags(&page) + page.matches("</rect>").count()
    );
}

fn other_empty_tags(page: &str) -> usize {
    ["<line", "<path", "<circle"].iter().map(|tag| page.matches(tag).count()).sum()
}

#[test]
fn the_json_can_be_read_back_and_has_every_sample() {
    let value: serde_json::Value = serde_json::from_str(&report().to_json()).unwrap();
    assert_eq!(value["durability"], "fsync <always>");
    assert_eq!(value["samples"].as_array().unwrap().len(), 20);
    assert_eq!(value["phases"][0]["reference"]["published_per_cpu_second"], 2_000.0);
    assert!(value["samples"][0]["device_reads_per_second"].is_null());
}

#[test]
fn figures_stand_in_all_three_forms_with_or_without_phases() {
    let figures = vec![
        Figure::new("CPU <idle>", 1.234, "% of a core").with_goal("at most 2"),
        Figure::new("memory", None, "KiB"),
    ];
    let mut report = report().with_figures(figures);
    assert!(report.table().contains("CPU <idle>  1.23 % of a core") && report.table().contains("random-read-heavy"));
    (report.phases, report.samples) = Default::default();
    let text = report.table();
    assert!(text.contains("at most 2") && text.contains("–") && !text.contains("published"), "{text}");
    let page = html::render(&report);
    assert!(page.contains("CPU &lt;idle&gt;") && !page.contains("Over time"), "{page}");
    let value: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(value["figures"][0]["value"], 1.234);
}

#[test]
fn charts_per_node_have_a_line_for_each_that_begins_and_ends_with_it() {
    let mut report = report();
    report.nodes = (1..=20).map(nodes).collect();
    let page = html::render(&report);
    for title in ["SSTable bytes per node", "Tablets per node", "Leaders per node"] {
        let chart = page.split("<figure>").find(|chart| chart.contains(title)).unwrap();
        assert_eq!(chart.matches(r#"class="line s"#).count(), 5, "{title}");
        assert!(chart.contains("node 5") && chart.contains(r#"class="line s4""#), "{title}");
    }
    let chart = page.split("<figure>").find(|chart| chart.contains("SSTable bytes per node")).unwrap();
    assert!(
        chart.contains("node 5: 15.0 MiB") && chart.contains("node 5: –"),
        "it is not there at first, and not in the end"
    );
    let fifth = chart.split(r#"class="line s4" d=""#).nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(fifth.matches(['M', 'L']).count(), 11, "{fifth}");
    let value: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(value["nodes"][19]["nodes"][4]["replicas"], 12);
    // Servers on other machines: only their own reports are known.
    report.nodes.iter_mut().flat_map(|sample| &mut sample.nodes).for_each(|node| node.sst_bytes = None);
    let page = html::render(&report);
    assert!(page.contains("as the nodes report") && page.contains("node 5: 5.0 MiB"));
}

#[test]
fn what_was_left_out_or_did_not_end_is_said_and_errors_count_where_none_may_be() {
    let mut report = report();
    assert!(!report.has_failed());
    report.phases[1].reads.errors = 3;
    assert!(report.has_failed());
    report.phases[1].expects_errors = true;
    assert!(!report.has_failed());
    report.header.omissions.push("adding a <node>: no".into());
    assert!(report.table().contains("left out: adding a <node>: no"));
    assert!(html::render(&report).contains("adding a &lt;node&gt;: no"));
    let report = report.with_unfinished(vec!["adding a node has made no progress".into()]);
    assert!(report.has_failed());
    assert!(report.table().contains("not finished: adding a node has made no progress"));
    assert!(html::render(&report).contains("Not finished: adding a node has made no progress"));
}

#[test]
fn both_files_are_written() {
    let directory = tempfile::tempdir().unwrap();
    report().write(&directory.path().join("run")).unwrap();
    assert!(directory.path().join("run/report.html").exists());
    assert!(directory.path().join("run/report.json").exists());
}
