//! `diorite bench point`: the two figures of the efficiency target. Strong point reads in cache with 64 in flight on 4
//! connections, and inserts with 256 in flight on 4 connections, fsynced unless the server was told otherwise.
//!
//! Always true: the reads are warmed up first, so that they measure the cache; the inserts are of new keys.

use std::sync::Arc;
use std::time::Duration;

use diorite_base::clock::{Clock, SystemClock};

use super::large_dataset::{check, sampler};
use super::measure::{Measurement, PhaseSpec};
use super::published;
use super::{CommonArguments, Target};
use crate::WorkloadError;
use crate::arguments::{ConnectionArguments, Popularity, WorkloadKind, parse_duration};
use crate::command::{Setup, client_name, epoch_s};
use crate::data::KeyFormat;
use crate::key_state::KeyState;
use crate::report::{Header, Report};
use crate::runner::Plan;
use crate::workloads::RowSet;

const TABLE: &str = "point";
const LOAD_WRITERS: usize = 256;

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
    /// Inserts in flight over all connections.
    #[arg(long, default_value_t = 256)]
    pub writes_in_flight: usize,
}

/// Runs load, warm-up, reads and inserts against `target`.
pub async fn run(arguments: &PointArguments, target: &Target) -> Result<Report, WorkloadError> {
    let common = &arguments.common;
    check(common, Some(arguments.records))?;
    if arguments.reads_in_flight == 0 || arguments.writes_in_flight == 0 {
        return Err(WorkloadError::Arguments("--reads-in-flight and --writes-in-flight must be at least 1".into()));
    }
    let clock = SystemClock::new();
    let keys = Arc::new(KeyState::new(epoch_s(&clock), 0, u64::MAX / 2, 256 << 20));
    let rows = RowSet::new(keys, KeyFormat::new("key", common.key_size), common.value_size, Popularity::Uniform);
    let connection = ConnectionArguments { nodes: target.contact_points.clone(), ..common.connection.clone() };
    let setup = Setup {
        connection: &connection,
        kind: WorkloadKind::KeyValue,
        client: common.client,
        table: Some(TABLE),
        ttl_s: None,
        tablets: common.tablets,
        batch_size: 1,
        key_prefix: "key",
        start_ms: clock.wall_us() / 1_000,
    };
    let executor = setup.executor(&rows).await?;
    let mut measurement = Measurement::new(sampler(target), common.json);
    for phase in phases(arguments) {
        if measurement.phase(phase, &executor).await?.interrupted {
            break;
        }
    }
    Ok(Report::new(header(arguments, target), measurement))
}

fn phases(arguments: &PointArguments) -> [PhaseSpec; 4] {
    let common = &arguments.common;
    let connections = common.connection.connections;
    let plan = |writers, readers, writes, duration| Plan {
        writers,
        readers,
        writes,
        reads: None,
        duration,
        rate: None,
        seed: common.seed,
    };
    let replication = common.connection.replication;
    let (reads, writes) = (arguments.reads_in_flight, arguments.writes_in_flight);
    let mut load = PhaseSpec::new(
        "load",
        format!("{} records", arguments.records),
        plan(LOAD_WRITERS, 0, Some(arguments.records), None),
    );
    load.is_result = false;
    let mut warm_up = PhaseSpec::new("warm-up", "reads, not measured", plan(0, reads, None, Some(arguments.warm_up)));
    warm_up.is_result = false;
    let mut read = PhaseSpec::new(
        "point-read",
        format!("strong reads in cache, {reads} in flight on {connections} connections"),
        plan(0, reads, None, Some(arguments.phase_duration)),
    );
    read.reference = published::point_read();
    let mut insert = PhaseSpec::new(
        "point-insert",
        format!("inserts of new keys, {writes} in flight on {connections} connections"),
        plan(writes, 0, None, Some(arguments.phase_duration)),
    );
    insert.reference = published::point_write(replication);
    [load, warm_up, read, insert]
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
            super::large_dataset::REPLICATION_NOTE.to_owned(),
        ],
    }
}
