//! The result of a benchmark as data, and as a table on the terminal and as JSON.
//!
//! Always true: numbers that were not measured are `None`, `null` and a dash.

use std::borrow::Cow;

use serde::Serialize;

use crate::bench::phase::PhaseSpec;
use crate::bench::published::Reference;
use crate::bench::watch::NodesSample;
use crate::latency::Summary;
use crate::process::{Environment, Usage};
use crate::runner::{Interval, Outcome};
use crate::status::{bytes, count, duration_us, table};

/// The head of a report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Header {
    pub title: String,
    pub scenario: String,
    pub client: String,
    pub connections: usize,
    /// How the servers acknowledge writes.
    pub durability: String,
    pub notes: Vec<String>,
    /// Parts of the scenario that this run left out, with the reason.
    pub omissions: Vec<String>,
}

/// One benchmark run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    pub format: u32,
    #[serde(flatten)]
    pub header: Header,
    /// The version of this program.
    pub version: &'static str,
    /// UTC.
    pub started_at: String,
    pub command_line: String,
    pub environment: Environment,
    /// Other numbers, in order of importance; many scenarios have none.
    pub figures: Vec<Figure>,
    pub phases: Vec<PhaseResult>,
    pub samples: Vec<Sample>,
    /// The bytes and leaders of each node, once a second; empty if they were not sampled.
    pub nodes: Vec<NodesSample>,
    /// The parts that did not complete. Empty in a good run.
    pub unfinished: Vec<String>,
}

/// The result of one phase. Server numbers are over all server processes and are absent if those are not known.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PhaseResult {
    pub name: String,
    pub description: String,
    pub is_result: bool,
    pub expects_errors: bool,
    pub start_s: f64,
    pub end_s: f64,
    pub writers: usize,
    pub readers: usize,
    pub reads: Summary,
    pub writes: Summary,
    pub server_cpu_seconds: Option<f64>,
    pub server_cpu_cores: Option<f64>,
    pub operations_per_server_cpu_second: Option<f64>,
    pub server_resident_bytes: Option<u64>,
    pub disk_read_bytes: Option<u64>,
    pub disk_write_bytes: Option<u64>,
    /// Reads of the whole device.
    pub device_reads: Option<u64>,
    pub device_writes: Option<u64>,
    pub sst_bytes: Option<u64>,
    pub reference: Reference,
}

impl PhaseResult {
    /// The differences between the two ends of a phase.
    pub fn new(spec: &PhaseSpec, start_s: f64, end_s: f64, outcome: &Outcome, before: &Usage, after: &Usage) -> Self {
        let reads = outcome.tallies.reads.summary(outcome.seconds);
        let writes = outcome.tallies.writes.summary(outcome.seconds);
        let cpu_seconds = difference(before.cpu_seconds, after.cpu_seconds);
        let operations = (reads.operations + writes.operations) as f64;
        Self {
            name: spec.name.clone(),
            description: spec.description.clone(),
            is_result: spec.is_result,
            expects_errors: spec.expects_errors,
            start_s,
            end_s,
            writers: spec.plan.writers,
            readers: spec.plan.readers,
            server_cpu_seconds: cpu_seconds,
            server_cpu_cores: cpu_seconds.map(|used| used / outcome.seconds),
            operations_per_server_cpu_second: cpu_seconds.filter(|&used| used > 0.0).map(|used| operations / used),
            server_resident_bytes: after.resident_bytes,
            disk_read_bytes: increase(before.disk_read_bytes, after.disk_read_bytes),
            disk_write_bytes: increase(before.disk_write_bytes, after.disk_write_bytes),
            device_reads: increase(before.device_reads, after.device_reads),
            device_writes: increase(before.device_writes, after.device_writes),
            sst_bytes: after.sst_bytes,
            reads,
            writes,
            reference: spec.reference.clone(),
        }
    }

    /// Operations per second of both kinds.
    pub fn operations_per_second(&self) -> f64 {
        self.reads.operations_per_second + self.writes.operations_per_second
    }

    /// The kind of operation that the phase is about: the one with more requests in flight. The tables show its latencies.
    pub fn main_kind(&self) -> &Summary {
        if self.readers > self.writers { &self.reads } else { &self.writes }
    }

    /// The phase in one line.
    pub fn summary_line(&self) -> String {
        let main = self.main_kind();
        format!(
            "{:.0} reads/s, {:.0} writes/s, p50 {}, p99 {}, p99.9 {}; per server-CPU-second {}, {} cores; errors {}",
            self.reads.operations_per_second,
            self.writes.operations_per_second,
            duration_us(main.p50_us as f64),
            duration_us(main.p99_us as f64),
            duration_us(main.p999_us as f64),
            optional(self.operations_per_server_cpu_second, count),
            optional(self.server_cpu_cores, |cores| format!("{cores:.2}")),
            self.reads.errors + self.writes.errors,
        )
    }
}

/// A number that is not a rate or a latency of a phase.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    pub name: String,
    /// `None` could not be measured.
    pub value: Option<f64>,
    pub unit: &'static str,
    /// The goal, in words.
    pub goal: Cow<'static, str>,
}

impl Figure {
    /// A number without a goal.
    pub fn new(name: impl Into<String>, value: impl Into<Option<f64>>, unit: &'static str) -> Self {
        Self { name: name.into(), value: value.into(), unit, goal: Cow::Borrowed("") }
    }

    /// The same figure with a goal.
    pub fn with_goal(self, goal: impl Into<Cow<'static, str>>) -> Self {
        Self { goal: goal.into(), ..self }
    }
}

/// The measurements of one second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sample {
    /// The end of the second.
    pub at_s: f64,
    /// Which of the phases, from 0.
    pub phase: usize,
    pub reads: Summary,
    pub writes: Summary,
    pub server_cpu_cores: Option<f64>,
    pub server_resident_bytes: Option<f64>,
    pub disk_read_bytes_per_second: Option<f64>,
    pub disk_write_bytes_per_second: Option<f64>,
    pub device_reads_per_second: Option<f64>,
    pub device_writes_per_second: Option<f64>,
    pub sst_bytes: Option<f64>,
}

impl Sample {
    /// The interval and the change of the servers' usage during it.
    pub fn new(at_s: f64, phase: usize, interval: &Interval, before: &Usage, after: &Usage) -> Self {
        let rate = |before: Option<u64>, after: Option<u64>| {
            increase(before, after).map(|change| change as f64 / interval.seconds)
        };
        Self {
            at_s,
            phase,
            reads: interval.tallies.reads.summary(interval.seconds),
            writes: interval.tallies.writes.summary(interval.seconds),
            server_cpu_cores: difference(before.cpu_seconds, after.cpu_seconds).map(|used| used / interval.seconds),
            server_resident_bytes: after.resident_bytes.map(|size| size as f64),
            disk_read_bytes_per_second: rate(before.disk_read_bytes, after.disk_read_bytes),
            disk_write_bytes_per_second: rate(before.disk_write_bytes, after.disk_write_bytes),
            device_reads_per_second: rate(before.device_reads, after.device_reads),
            device_writes_per_second: rate(before.device_writes, after.device_writes),
            sst_bytes: after.sst_bytes.map(|size| size as f64),
        }
    }
}

fn difference(before: Option<f64>, after: Option<f64>) -> Option<f64> {
    Some((after? - before?).max(0.0))
}

fn increase(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    Some(after?.saturating_sub(before?))
}

/// How many decimals `value` is printed with: about three significant digits.
fn decimals(value: f64) -> usize {
    match value.abs() {
        0.0 | 100.0.. => 0,
        10.0..100.0 => 1,
        _ => 2,
    }
}

pub(super) fn optional<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), show)
}

impl Report {
    /// The same report with these figures.
    pub fn with_figures(self, figures: Vec<Figure>) -> Self {
        Self { figures, ..self }
    }

    /// The same report with the changes that did not end in time.
    pub fn with_unfinished(self, unfinished: Vec<String>) -> Self {
        Self { unfinished, ..self }
    }

    /// Whether something did not end, or a request failed in a phase in which none may.
    pub fn has_failed(&self) -> bool {
        let strict = self.phases.iter().filter(|phase| !phase.expects_errors);
        !self.unfinished.is_empty() || strict.into_iter().any(|phase| phase.reads.errors + phase.writes.errors > 0)
    }

    /// The report as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report has string keys and finite numbers only")
    }

    /// The cells of the result table, header first: measured numbers, then the published ones and the targets.
    pub(super) fn cells(&self) -> Vec<Vec<String>> {
        const HEADER: [&str; 10] = [
            "phase",
            "ops/s",
            "per server-CPU-s",
            "p50",
            "p99",
            "p99.9",
            "CPU cores",
            "published ops/s",
            "published per vCPU-s",
            "target per CPU-s",
        ];
        let rows = self.phases.iter().filter(|phase| phase.is_result).map(|phase| {
            let main = phase.main_kind();
            vec![
                phase.name.clone(),
                count(phase.operations_per_second()),
                optional(phase.operations_per_server_cpu_second, count),
                duration_us(main.p50_us as f64),
                duration_us(main.p99_us as f64),
                duration_us(main.p999_us as f64),
                optional(phase.server_cpu_cores, |cores| format!("{cores:.2}")),
                if phase.reference.published.is_empty() { "–" } else { phase.reference.published }.to_owned(),
                optional(phase.reference.published_per_cpu_second, count),
                optional(phase.reference.target_per_cpu_second, count),
            ]
        });
        std::iter::once(HEADER.map(str::to_owned).to_vec()).chain(rows).collect()
    }

    /// The cells of the table of figures, header first; empty without figures.
    pub(super) fn figure_cells(&self) -> Vec<Vec<String>> {
        if self.figures.is_empty() {
            return Vec::new();
        }
        let rows = self.figures.iter().map(|figure| {
            // A value without a unit is a count.
            let places = |value: f64| if figure.unit.is_empty() && value.fract() == 0.0 { 0 } else { decimals(value) };
            let value = optional(figure.value, |value| format!("{:.*} {}", places(value), value, figure.unit));
            vec![figure.name.clone(), value, figure.goal.clone().into_owned()]
        });
        std::iter::once(["figure", "value", "goal"].map(str::to_owned).to_vec()).chain(rows).collect()
    }

    /// Whether any phase stands in the result table.
    pub(super) fn has_phases(&self) -> bool {
        self.phases.iter().any(|phase| phase.is_result)
    }

    /// The clusters that the published numbers come from, each once.
    pub(super) fn clusters(&self) -> Vec<String> {
        let mut lines = Vec::<String>::new();
        for phase in self.phases.iter().filter(|phase| phase.is_result && !phase.reference.cluster.is_empty()) {
            let cluster = phase.reference.cluster;
            match lines.iter_mut().find(|line| line.starts_with(cluster)) {
                Some(line) => {
                    line.push_str(", ");
                    line.push_str(&phase.name);
                }
                None => lines.push(format!("{cluster}: {}", phase.name)),
            }
        }
        lines
    }

    /// The result for a terminal.
    pub fn table(&self) -> String {
        let phases = if self.has_phases() { table(&self.cells()) } else { String::new() };
        let mut text = format!("\n{}\n\n{phases}", self.header.title);
        if self.has_phases() && !self.figures.is_empty() {
            text.push('\n');
        }
        text.push_str(&table(&self.figure_cells()));
        for unfinished in &self.unfinished {
            text.push_str(&format!("\nnot finished: {unfinished}\n"));
        }
        text.push_str(&format!("\ndurability: {}\n", self.header.durability));
        let (environment, header) = (&self.environment, &self.header);
        text.push_str(&format!(
            "machine: {} × {}, {} memory, {}\nclient: {}, {} connections\n",
            environment.cores,
            environment.processor,
            bytes(environment.memory_bytes as f64),
            environment.kernel,
            header.client,
            header.connections,
        ));
        for cluster in self.clusters() {
            text.push_str(&format!("published on {cluster}\n"));
        }
        for omission in &self.header.omissions {
            text.push_str(&format!("left out: {omission}\n"));
        }
        text
    }
}
