//! `diorite bench point`: the two figures of the efficiency target. Strong point reads in cache with 64 in flight on 4
//! connections to each node, and inserts with 256 in flight on as many, fsynced unless the server was told otherwise.
//!
//! Always true: the reads are warmed up first, so that they measure the cache; the inserts are of new keys.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use diorite_base::clock::{Clock, SystemClock};

use super::common::check;
use super::measure::Measurement;
use super::phase::PhaseSpec;
use super::published;
use super::{CommonArguments, Target};
use crate::WorkloadError;
use crate::arguments::{ConnectionArguments, DataShape, Popularity, WorkloadKind, parse_duration};
use crate::command::{Setup, client_name, epoch_s};
use crate::data::KeyFormat;
use crate::key_state::KeyState;
use crate::report::{Header, Report};
use crate::row_set::RowSet;
use crate::runner::{Executor, Plan};

const TABLE: &str = "point";
const LOAD_WRITERS: usize = 256;
/// The target of reads that two thirds of the time reach a node that does not lead, per server-CPU-second.
const SPREAD_READ_TARGET: f64 = 40_000.0;

/// `diorite bench point`.
#[derive(Debug, Clone, clap::Args)]
pub struct PointArguments {
    #[command(flatten)]
    pub common: CommonArguments,
    /// Records to load before the reads.
    #[arg(long, default_value_t = 500_000)]
    pub records: u64,
    /// How long the reads and the inserts are measured, each.
    #[arg(long, value_parser = parse_duration, default_value = "20s")]
    pub phase_duration: Duration,
    /// How long reads run before they are measured.
    #[arg(long, value_parser = parse_duration, default_value = "3s")]
    pub warm_up: Duration,
    /// Reads in flight over all connections.
    #[arg(long, default_value_t = 64)]
    pub reads_in_flight: usize,
    /// Further reads, each as IN-FLIGHT/CONNECTIONS, such as 64/32,1000/1000: how evenly many connections are served.
    #[arg(long, value_name = "SHAPES", value_delimiter = ',')]
    pub shapes: Vec<Shape>,
    /// Inserts in flight over all connections.
    #[arg(long, default_value_t = 256)]
    pub writes_in_flight: usize,
}

/// A number of reads in flight over a number of connections to each node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    in_flight: usize,
    connections: usize,
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once('/').and_then(|(in_flight, connections)| {
            Some(Self { in_flight: in_flight.parse().ok()?, connections: connections.parse().ok()? })
        });
        let has_both = parsed.filter(|shape| shape.connections > 0 && shape.in_flight >= shape.connections);
        has_both.ok_or_else(|| format!("{text:?} is not reads in flight / connections, such as 64/32"))
    }
}

/// Whether requests are routed to leaders (`None`: the client's default), and the suffix of the names of such phases.
pub(super) type Mode = (Option<bool>, &'static str);

/// Runs load, warm-up, reads and inserts against `target`; on several nodes both with a tablet-aware client and with one that
/// spreads its requests, unless the command line chose.
pub async fn run(arguments: &PointArguments, target: &Target) -> Result<Report, WorkloadError> {
    let common = &arguments.common;
    arguments.check()?;
    let modes: &[Mode] = match (common.connection.tablet_aware, target.nodes()) {
        (None, 2..) => &[(Some(true), "-tablet-aware"), (Some(false), "-spread")],
        (chosen, _) => &[(chosen, "")],
    };
    let rows = arguments.rows();
    let mut executors = Vec::new();
    for (tablet_aware, _) in modes {
        executors.push(executor(common, target, TABLE, common.tablets, *tablet_aware, &rows).await?);
    }
    for shape in &arguments.shapes {
        let connection = ConnectionArguments { connections: shape.connections, ..common.connection.clone() };
        let common = CommonArguments { connection, ..common.clone() };
        executors.push(executor(&common, target, TABLE, common.tablets, modes[0].0, &rows).await?);
    }
    let mut measurement = Measurement::new(target.sampler(), common.json);
    for (executor, phase) in phases(arguments, target, modes) {
        if measurement.phase(phase, &executors[executor]).await?.interrupted {
            break;
        }
    }
    Ok(Report::new(header(arguments, target), measurement))
}

/// Connects to the target and creates the table.
pub(super) async fn executor(
    common: &CommonArguments,
    target: &Target,
    table: &str,
    tablets: Option<u32>,
    tablet_aware: Option<bool>,
    rows: &RowSet,
) -> Result<Executor, WorkloadError> {
    let connection = ConnectionArguments { tablet_aware, ..common.connection(target) };
    let setup = Setup {
        connection: &connection,
        kind: WorkloadKind::KeyValue,
        client: common.client,
        table: Some(table),
        ttl_s: None,
        tablets,
        shape: DataShape::default(),
        key_prefix: "key",
        start_ms: SystemClock::new().wall_us() / 1_000,
    };
    setup.executor(rows).await
}

/// The phases in order, each with the executor that runs it: one for each mode, then one for each shape.
fn phases(arguments: &PointArguments, target: &Target, modes: &[Mode]) -> Vec<(usize, PhaseSpec)> {
    let mut phases = vec![(0, arguments.load())];
    for (mode, (_, suffix)) in modes.iter().enumerate() {
        phases.push((mode, arguments.warm_up()));
        let mut read = arguments.read(format!("point-read{suffix}"));
        read.reference = published::point_read();
        if *suffix == "-spread" {
            read.reference.target_per_cpu_second = Some(SPREAD_READ_TARGET);
        }
        phases.push((mode, read));
    }
    for (at, shape) in arguments.shapes.iter().enumerate() {
        let shaped = PointArguments { reads_in_flight: shape.in_flight, ..arguments.clone() };
        phases.push((modes.len() + at, shaped.warm_up()));
        let mut read =
            shaped.read_on(shape.connections, format!("point-read-{}-on-{}", shape.in_flight, shape.connections));
        read.reference = published::point_read();
        phases.push((modes.len() + at, read));
    }
    for (mode, (_, suffix)) in modes.iter().enumerate() {
        let mut insert = arguments.insert(format!("point-insert{suffix}"));
        insert.reference = published::point_write(target.replication);
        phases.push((mode, insert));
    }
    phases
}

impl PointArguments {
    /// Refuses arguments with which nothing can be measured.
    pub(super) fn check(&self) -> Result<(), WorkloadError> {
        check(&self.common, Some(self.records))?;
        if self.reads_in_flight == 0 || self.writes_in_flight == 0 {
            return Err(WorkloadError::Arguments("--reads-in-flight and --writes-in-flight must be at least 1".into()));
        }
        Ok(())
    }

    /// Rows that are not there yet.
    pub(super) fn rows(&self) -> RowSet {
        let keys = Arc::new(KeyState::new(epoch_s(&SystemClock::new()), 0, u64::MAX / 2, 256 << 20));
        let format = KeyFormat::new("key", self.common.key_size);
        RowSet::new(keys, format, self.common.value_size, Popularity::Uniform)
    }

    fn plan(&self, writers: usize, readers: usize, writes: Option<u64>, duration: Option<Duration>) -> Plan {
        Plan { writers, readers, writes, reads: None, duration, rate: None, seed: self.common.seed, until: None }
    }

    pub(super) fn load(&self) -> PhaseSpec {
        let plan = self.plan(LOAD_WRITERS, 0, Some(self.records), None);
        PhaseSpec { is_result: false, ..PhaseSpec::new("load", format!("{} records", self.records), plan) }
    }

    pub(super) fn warm_up(&self) -> PhaseSpec {
        let plan = self.plan(0, self.reads_in_flight, None, Some(self.warm_up));
        PhaseSpec { is_result: false, ..PhaseSpec::new("warm-up", "reads, not measured", plan) }
    }

    pub(super) fn read(&self, name: String) -> PhaseSpec {
        self.read_on(self.common.connection.connections, name)
    }

    fn read_on(&self, connections: usize, name: String) -> PhaseSpec {
        let reads = self.reads_in_flight;
        let description = format!("strong reads in cache, {reads} in flight on {connections} connections");
        PhaseSpec::new(name, description, self.plan(0, reads, None, Some(self.phase_duration)))
    }

    pub(super) fn insert(&self, name: String) -> PhaseSpec {
        let (writes, connections) = (self.writes_in_flight, self.common.connection.connections);
        let description = format!("inserts of new keys, {writes} in flight on {connections} connections");
        PhaseSpec::new(name, description, self.plan(writes, 0, None, Some(self.phase_duration)))
    }
}

fn header(arguments: &PointArguments, target: &Target) -> Header {
    let common = &arguments.common;
    Header {
        title: "Point reads and inserts".to_owned(),
        scenario: "point".to_owned(),
        client: client_name(common.client).to_owned(),
        connections: common.connection.connections,
        durability: target.durability.clone(),
        notes: vec![
            format!(
                "{} records of {} bytes key and {} bytes value, loaded before the reads; client and server share the machine's cores \
                 when the server was started by this command.",
                arguments.records, common.key_size, common.value_size
            ),
            super::large_dataset::replication_note(target.replication),
        ],
        omissions: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_reads_over_connections() {
        assert_eq!("64/32".parse(), Ok(Shape { in_flight: 64, connections: 32 }));
        for wrong in ["64", "64/0", "3/4", "a/1", "/"] {
            assert!(wrong.parse::<Shape>().is_err(), "{wrong}");
        }
    }
}
