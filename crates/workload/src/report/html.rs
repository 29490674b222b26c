//! The report as one HTML file that needs nothing else: styles and charts are in it, scripts there are none.
//!
//! Always true: everything variable is escaped (by `maud`, or by the chart module); the page follows the reader's choice
//! of a light or dark scheme.

use std::collections::BTreeSet;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::chart::{Axis, COLOURS, Chart, Join, Series};
use super::results::{PhaseResult, Report, Sample, optional};
use crate::bench::watch::{NodeSample, NodesSample};
use crate::latency::Summary;
use crate::status::{bytes, count, duration_us};

const STYLE: &str = include_str!("report.css");

/// The page.
pub fn render(report: &Report) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Diorite · " (report.header.title) " · " (report.started_at) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (report.header.title) }
                    p.subtitle { "Diorite " (report.version) " · " (report.started_at) " UTC · durability: " strong { (report.header.durability) } }
                }
                (highlights(report))
                section {
                    h2 { "Result" }
                    @for unfinished in &report.unfinished { p.warning { "Not finished: " (unfinished) "." } }
                    (cell_table(&report.figure_cells()))
                    @if report.has_phases() { (cell_table(&report.cells())) }
                    (notes(report))
                }
                @if !report.samples.is_empty() { section { h2 { "Over time" } (charts(report)) } }
                @if !report.phases.is_empty() { section { h2 { "Phases in detail" } (detail_table(report)) } }
                section { h2 { "Environment" } (environment(report)) }
            }
        }
    };
    page.into_string()
}

/// The two numbers per phase that matter most.
fn highlights(report: &Report) -> Markup {
    html! {
        div.tiles {
            @for phase in report.phases.iter().filter(|phase| phase.is_result) {
                div.tile {
                    div.name { (phase.name) }
                    div.value { (count(phase.operations_per_second())) span.unit { " ops/s" } }
                    div.sub {
                        @if let Some(rate) = phase.operations_per_server_cpu_second {
                            (count(rate)) " per server-CPU-second"
                            @if let Some(published) = phase.reference.published_per_cpu_second {
                                " · " (format!("{:.1}", rate / published)) " × published"
                            }
                        } @else {
                            "server CPU not measured"
                        }
                    }
                    div.sub { "p99 " (duration_us(phase.main_kind().p99_us as f64)) }
                }
            }
        }
    }
}

/// A table, header first; nothing without rows.
fn cell_table(cells: &[Vec<String>]) -> Markup {
    if cells.is_empty() {
        return html! {};
    }
    html! {
        div.scroll { table {
            @for (index, row) in cells.iter().enumerate() {
                tr { @for cell in row { @if index == 0 { th { (cell) } } @else { td { (cell) } } } }
            }
        } }
    }
}

fn notes(report: &Report) -> Markup {
    html! {
        ul.notes {
            @for omission in &report.header.omissions { li { strong { "Left out: " } (omission) "." } }
            @for note in &report.header.notes { li { (note) } }
            @for cluster in report.clusters() { li { "Published on " (cluster) "." } }
            @if report.has_phases() { li {
                "Per server-CPU-second: operations divided by user and system seconds of all server processes; the load generator is \
                 not counted. Published per busy vCPU-second: operations divided by all vCPUs of the cluster and their utilization, \
                 taken from the runs on 50 nodes."
            } }
            @if report.has_phases() {
                li { "Latencies are those of the kind of operation that a phase has more of in flight, seen by the client, with the queue." }
            }
        }
    }
}

fn detail_table(report: &Report) -> Markup {
    let rows = report.phases.iter().flat_map(|phase| {
        [("reads", &phase.reads), ("writes", &phase.writes)]
            .into_iter()
            .filter(|(_, summary)| summary.operations + summary.errors > 0)
            .map(move |(kind, summary)| (phase, kind, summary))
    });
    html! {
        div.scroll { table {
            tr { @for name in ["phase", "", "operations", "ops/s", "mean", "p50", "p95", "p99", "p99.9", "max", "errors"] { th { (name) } } }
            @for (phase, kind, summary) in rows { (latency_row(phase, kind, summary)) }
        } }
        div.scroll { table {
            tr { @for name in ["phase", "what", "seconds", "CPU seconds", "memory", "read from disk", "written to disk", "device reads", "device writes", "SSTables"] { th { (name) } } }
            @for phase in &report.phases { (server_row(phase)) }
        } }
    }
}

fn latency_row(phase: &PhaseResult, kind: &str, summary: &Summary) -> Markup {
    let latencies = [summary.p50_us, summary.p95_us, summary.p99_us, summary.p999_us, summary.max_us];
    html! {
        tr {
            td { (phase.name) } td { (kind) } td { (summary.operations) } td { (count(summary.operations_per_second)) }
            td { (duration_us(summary.mean_us)) }
            @for latency_us in latencies { td { (duration_us(latency_us as f64)) } }
            td { (summary.errors) }
        }
    }
}

fn server_row(phase: &PhaseResult) -> Markup {
    let size = |value: Option<u64>| optional(value, |value| bytes(value as f64));
    let number = |value: Option<u64>| optional(value, |value| count(value as f64));
    html! {
        tr {
            td { (phase.name) } td { (phase.description) } td { (format!("{:.1}", phase.end_s - phase.start_s)) }
            td { (optional(phase.server_cpu_seconds, |seconds| format!("{seconds:.1}"))) }
            td { (size(phase.server_resident_bytes)) }
            td { (size(phase.disk_read_bytes)) } td { (size(phase.disk_write_bytes)) }
            td { (number(phase.device_reads)) } td { (number(phase.device_writes)) }
            td { (size(phase.sst_bytes)) }
        }
    }
}

fn environment(report: &Report) -> Markup {
    let (environment, header) = (&report.environment, &report.header);
    let rows = [
        ("durability", header.durability.clone()),
        ("processor", format!("{} × {}", environment.cores, environment.processor)),
        ("memory", bytes(environment.memory_bytes as f64)),
        ("kernel", environment.kernel.clone()),
        ("system", environment.system.clone()),
        ("version", report.version.to_owned()),
        ("client", format!("{}, {} connections", header.client, header.connections)),
        ("command line", report.command_line.clone()),
    ];
    html! { div.scroll { table.facts { @for (name, value) in rows { tr { th { (name) } td { (value) } } } } } }
}

/// A chart of some series.
struct ChartOf {
    title: &'static str,
    note: &'static str,
    axis: Axis,
    join: Join,
    show: fn(f64) -> String,
    times_s: Vec<f64>,
    series: Vec<Series>,
    /// Why it may be empty.
    missing: &'static str,
}

fn charts(report: &Report) -> Markup {
    let phases: Vec<(String, f64, f64)> =
        report.phases.iter().map(|phase| (phase.name.clone(), phase.start_s, phase.end_s)).collect();
    let all = chart_list(report);
    let rendered = all.iter().map(|of| {
        let chart = Chart {
            title: of.title,
            axis: of.axis,
            join: of.join,
            show: of.show,
            times_s: &of.times_s,
            series: of.series.clone(),
            phases: &phases,
        };
        (of, chart)
    });
    html! {
        @if phases.len() > 1 {
            p.phases {
                "Phases: "
                @for (index, (name, start_s, end_s)) in phases.iter().enumerate() {
                    span { b { (index + 1) } " " (name) " (" (format!("{:.0}", end_s - start_s)) " s)" }
                }
            }
        }
        @for (of, chart) in rendered {
            figure {
                figcaption {
                    strong { (chart.title) } span.note { " " (of.note) }
                    span.legend {
                        @for (index, series) in chart.series.iter().enumerate() {
                            span.key { i class={ "swatch s" (index % COLOURS) } {} (series.name) }
                        }
                    }
                }
                @if chart.has_data() { div.plot { (PreEscaped(chart.render())) } } @else { p.none { "not measured: " (of.missing) } }
            }
        }
    }
}

fn chart_list(report: &Report) -> Vec<ChartOf> {
    let mut charts = client_charts(&report.samples);
    charts.extend(server_charts(&report.samples));
    let times_s: Vec<f64> = report.samples.iter().map(|sample| sample.at_s).collect();
    charts.iter_mut().for_each(|chart| chart.times_s.clone_from(&times_s));
    charts.extend(node_charts(&report.nodes));
    charts
}

/// One line of a chart.
fn series(samples: &[Sample], name: &'static str, value: impl Fn(&Sample) -> Option<f64>) -> Series {
    Series { name: name.into(), values: samples.iter().map(value).collect() }
}

/// A chart whose times are still to be filled in.
fn linear(title: &'static str, note: &'static str, show: fn(f64) -> String, series: Vec<Series>) -> ChartOf {
    let missing = "no server process or directory was given";
    ChartOf { title, note, axis: Axis::Linear, join: Join::Mean, show, times_s: Vec::new(), series, missing }
}

fn binary(title: &'static str, note: &'static str, show: fn(f64) -> String, series: Vec<Series>) -> ChartOf {
    ChartOf { axis: Axis::LinearBinary, ..linear(title, note, show, series) }
}

fn per_second(number: f64) -> String {
    format!("{}/s", count(number))
}

fn client_charts(samples: &[Sample]) -> Vec<ChartOf> {
    let latency = |title, kind: fn(&Sample) -> &Summary| {
        let lines = vec![
            series(samples, "p50", |sample| percentile(kind(sample), |summary| summary.p50_us)),
            series(samples, "p99", |sample| percentile(kind(sample), |summary| summary.p99_us)),
            series(samples, "p99.9", |sample| percentile(kind(sample), |summary| summary.p999_us)),
        ];
        let chart = linear(title, "seen by the client, logarithmic", duration_us, lines);
        ChartOf { axis: Axis::Logarithmic, join: Join::Max, missing: "there were no such operations", ..chart }
    };
    let throughput = vec![
        series(samples, "reads", |sample| Some(sample.reads.operations_per_second)),
        series(samples, "writes", |sample| Some(sample.writes.operations_per_second)),
    ];
    vec![
        linear("Throughput", "operations per second", per_second, throughput),
        latency("Read latency", |sample| &sample.reads),
        latency("Write latency", |sample| &sample.writes),
    ]
}

fn server_charts(samples: &[Sample]) -> Vec<ChartOf> {
    let one = |name, value: fn(&Sample) -> Option<f64>| vec![series(samples, name, value)];
    let disk_bytes = vec![
        series(samples, "read", |sample| sample.disk_read_bytes_per_second),
        series(samples, "written", |sample| sample.disk_write_bytes_per_second),
    ];
    let disk_operations = vec![
        series(samples, "reads", |sample| sample.device_reads_per_second),
        series(samples, "writes", |sample| sample.device_writes_per_second),
    ];
    let bytes_per_second: fn(f64) -> String = |number| format!("{}/s", bytes(number));
    let cores: fn(f64) -> String = |cores| format!("{cores:.2} cores");
    let cpu = one("user + system", |sample| sample.server_cpu_cores);
    vec![
        linear("Server CPU", "cores in use by the server processes", cores, cpu),
        binary("Server memory", "resident", bytes, one("resident", |sample| sample.server_resident_bytes)),
        binary("Disk bytes", "of the server processes, at the block device", bytes_per_second, disk_bytes),
        linear("Disk operations", "of the whole device", per_second, disk_operations),
        binary("SSTables on disk", "all *.sst files", bytes, one("SSTables", |sample| sample.sst_bytes)),
    ]
}

/// Charts of the stored bytes and led tablets of each node; none if they were not sampled.
fn node_charts(samples: &[NodesSample]) -> Vec<ChartOf> {
    if samples.is_empty() {
        return Vec::new();
    }
    let nodes: BTreeSet<u64> = samples.iter().flat_map(|sample| sample.nodes.iter().map(|node| node.node)).collect();
    let lines = |value: fn(&NodeSample) -> Option<f64>| -> Vec<Series> {
        let at = |sample: &NodesSample, node| sample.nodes.iter().find(|found| found.node == node).and_then(value);
        let line = |&node: &u64| Series {
            name: format!("node {node}").into(),
            values: samples.iter().map(|sample| at(sample, node)).collect(),
        };
        nodes.iter().map(line).collect()
    };
    let are_here = samples.iter().any(|sample| sample.nodes.iter().any(|node| node.sst_bytes.is_some()));
    let sizes = if are_here {
        let sizes = lines(|node| node.sst_bytes.map(|size| size as f64));
        binary("SSTable bytes per node", "all *.sst files of each node that is up", bytes, sizes)
    } else {
        let sizes = lines(|node| node.tablet_bytes.map(|size| size as f64));
        binary(
            "SSTable bytes per node",
            "as the nodes report: live SSTables, and what is still in memory",
            bytes,
            sizes,
        )
    };
    let replicas = lines(|node| Some(node.replicas as f64));
    let leaders = lines(|node| node.leaders.map(|leaders| leaders as f64));
    let mut charts = vec![
        sizes,
        linear("Tablets per node", "replicas that each node holds or is given", count, replicas),
        linear("Leaders per node", "tablets that each node leads", count, leaders),
    ];
    let times_s: Vec<f64> = samples.iter().map(|sample| sample.at_s).collect();
    charts.iter_mut().for_each(|chart| {
        chart.times_s.clone_from(&times_s);
        chart.missing = "no node said so";
    });
    charts
}

/// A percentile, if there were operations to have one.
fn percentile(summary: &Summary, of: fn(&Summary) -> u64) -> Option<f64> {
    (summary.operations > 0).then(|| of(summary) as f64)
}
