//! `diorite bench large-dataset`: the published scenario of tens of billions of records, scaled to one machine.
//!
//! Four phases on one table: load new records with many writers; read any of them at random with a few writers beside;
//! read a hot subset, the newest records; overwrite at random. Every value read is checked.
//!
//! Left out: the one reader beside the published load (on shared cores a reader in a closed loop would do as many reads as
//! the writers do writes, and the load would no longer be a measure of inserts); adding and losing nodes, which need a cluster, and a wait for compactions between phases: as in the
//! published runs, a phase begins while those of the one before may still run, and pays for them.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use diorite_base::clock::{Clock, SystemClock};

use super::measure::{Measurement, PhaseSpec};
use super::published::{self, Reference};
use super::{CommonArguments, Target};
use crate::WorkloadError;
use crate::arguments::{Popularity, WorkloadKind, parse_duration};
use crate::command::{Setup, client_name, epoch_s};
use crate::data::{KeyFormat, MIN_VALUE_BYTES};
use crate::key_state::KeyState;
use crate::report::{Header, Report};
use crate::runner::Plan;
use crate::workloads::RowSet;

/// The table of this scenario.
const TABLE: &str = "large_dataset";
/// The hot subset of the recent-read-heavy phase.
const RECENT_PERCENT: f64 = 5.0;
/// Records at `--scale 1`: 1.8 GB with keys of 50 and values of 256 bytes.
const RECORDS_AT_SCALE_1: f64 = 6_000_000.0;
/// Writers of the load, readers, writers beside the readers, writers of the last phase.
const LOAD_WRITERS: usize = 256;
const READERS: usize = 64;
const FEW_WRITERS: usize = 2;
const OVERWRITERS: usize = 64;

/// How large a run is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// 20,000 records and phases of 1.5 s, for tests.
    Tiny,
    /// 500,000 records and phases of 15 s.
    Small,
    /// This many times six million records.
    Times(f64),
    /// Records of this many bytes in all.
    Bytes(f64),
}

impl FromStr for Scale {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let lower = text.trim().to_ascii_lowercase();
        let digits = lower.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let unit = match &lower[digits.len()..] {
            "tiny" if digits.is_empty() => return Ok(Self::Tiny),
            "small" if digits.is_empty() => return Ok(Self::Small),
            "" => None,
            "mb" => Some(1e6),
            "gb" => Some(1e9),
            "tb" => Some(1e12),
            "mib" => Some(1_048_576.0),
            "gib" => Some(1_073_741_824.0),
            _ => {
                return Err(format!(
                    "{text:?} is not a scale: tiny, small, a factor such as 0.5, or a size such as 2GB"
                ));
            }
        };
        match digits.parse::<f64>() {
            Ok(number) if number > 0.0 && number.is_finite() => {
                Ok(unit.map_or(Self::Times(number), |unit| Self::Bytes(number * unit)))
            }
            _ => Err(format!("{text:?} is not a scale above 0")),
        }
    }
}

impl Scale {
    /// Records, given the bytes of one.
    pub fn records(self, record_bytes: usize) -> u64 {
        match self {
            Self::Tiny => 20_000,
            Self::Small => 500_000,
            Self::Times(factor) => (RECORDS_AT_SCALE_1 * factor).max(1_000.0) as u64,
            Self::Bytes(bytes) => (bytes / record_bytes as f64).max(1_000.0) as u64,
        }
    }

    /// How long each phase after the load runs.
    pub fn phase_duration(self) -> Duration {
        match self {
            Self::Tiny => Duration::from_millis(1_500),
            Self::Small => Duration::from_secs(15),
            Self::Times(_) | Self::Bytes(_) => Duration::from_secs(45),
        }
    }
}

/// `diorite bench large-dataset`.
#[derive(Debug, Clone, clap::Args)]
pub struct LargeDatasetArguments {
    #[command(flatten)]
    pub common: CommonArguments,
    /// tiny, small, a factor of six million records, or the size of all records such as 2GB.
    #[arg(long, default_value = "1")]
    pub scale: Scale,
    /// Records to load, instead of what --scale says.
    #[arg(long)]
    pub records: Option<u64>,
    /// How long each phase after the load runs, instead of what --scale says.
    #[arg(long, value_parser = parse_duration)]
    pub phase_duration: Option<Duration>,
}

/// Runs the four phases against `target`.
pub async fn run(arguments: &LargeDatasetArguments, target: &Target) -> Result<Report, WorkloadError> {
    let common = &arguments.common;
    check(common, arguments.records)?;
    let records = arguments.records.unwrap_or_else(|| arguments.scale.records(common.key_size + common.value_size));
    let clock = SystemClock::new();
    let keys = Arc::new(KeyState::new(epoch_s(&clock), 0, records, 256 << 20));
    let rows = RowSet::new(keys, KeyFormat::new("key", common.key_size), common.value_size, Popularity::Uniform);
    let connection = common.connection(target);
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
    let mut measurement = Measurement::new(target.sampler(), common.json);
    let duration = arguments.phase_duration.unwrap_or_else(|| arguments.scale.phase_duration());
    for (popularity, phase) in phases(common, target.replication, records, duration) {
        rows.set_popularity(popularity);
        if measurement.phase(phase, &executor).await?.interrupted {
            break;
        }
    }
    Ok(Report::new(header(common, target, records), measurement))
}

/// The phases in order, each with the keys it picks.
fn phases(
    common: &CommonArguments,
    replication: u32,
    records: u64,
    duration: Duration,
) -> Vec<(Popularity, PhaseSpec)> {
    let plan = |writers, readers, writes: Option<u64>| Plan {
        writers,
        readers,
        writes,
        reads: None,
        duration: writes.is_none().then_some(duration),
        rate: None,
        seed: common.seed,
        until: None,
    };
    let phase = |name: &str, description: String, plan: Plan, reference: Reference| PhaseSpec {
        name: name.to_owned(),
        description,
        plan,
        reference,
        is_result: true,
    };
    let read = |what: &str| format!("{READERS} readers of {what}, {FEW_WRITERS} writers");
    vec![
        (
            Popularity::Uniform,
            phase(
                "load",
                format!("{records} new records, {LOAD_WRITERS} writers"),
                plan(LOAD_WRITERS, 0, Some(records)),
                published::load(replication),
            ),
        ),
        (
            Popularity::Uniform,
            phase("random-read-heavy", read("any record"), plan(FEW_WRITERS, READERS, None), published::random_read()),
        ),
        (
            Popularity::Recent { percent: RECENT_PERCENT },
            phase(
                "recent-read-heavy",
                read(&format!("the newest {RECENT_PERCENT} %")),
                plan(FEW_WRITERS, READERS, None),
                published::recent_read(),
            ),
        ),
        (
            Popularity::Uniform,
            phase(
                "write-heavy",
                format!("{OVERWRITERS} writers of any record"),
                plan(OVERWRITERS, 0, None),
                published::write_heavy(replication),
            ),
        ),
    ]
}

fn header(common: &CommonArguments, target: &Target, records: u64) -> Header {
    let record_bytes = common.key_size + common.value_size;
    Header {
        title: "Large dataset".to_owned(),
        scenario: "large-dataset".to_owned(),
        client: client_name(common.client).to_owned(),
        connections: common.connection.connections,
        durability: target.durability.clone(),
        notes: vec![
            format!(
                "{records} records of {record_bytes} bytes (key {}, value {}, hardly compressible): {} before replication and overhead.",
                common.key_size,
                common.value_size,
                crate::status::bytes((records * record_bytes as u64) as f64),
            ),
            "The published runs hold 26 TB on four nodes, 150 times their memory; a small data set stays in memory, so its \
             reads are comparable per CPU-second, not per disk read."
                .to_owned(),
            replication_note(target.replication),
        ],
    }
}

/// What makes the comparison with the published clusters uneven.
pub(super) fn replication_note(replication: u32) -> String {
    match replication {
        1 => "The published clusters keep three replicas of each record, so their CPU-seconds do the writes three times and cross a \
              network; a single node keeps one copy."
            .to_owned(),
        _ => format!("Each record has {replication} replicas, on processes of one machine: no network is crossed."),
    }
}

/// What all scenarios require of their arguments.
pub(super) fn check(common: &CommonArguments, records: Option<u64>) -> Result<(), WorkloadError> {
    if common.value_size < MIN_VALUE_BYTES {
        let message = format!("--value-size {} is too small: a value needs {MIN_VALUE_BYTES} bytes", common.value_size);
        return Err(WorkloadError::Arguments(message));
    }
    if common.connection.connections == 0 || records == Some(0) {
        return Err(WorkloadError::Arguments("--connections and --records must be at least 1".into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_names_factors_or_sizes() {
        assert_eq!("tiny".parse(), Ok(Scale::Tiny));
        assert_eq!("0.5".parse::<Scale>().map(|scale| scale.records(306)), Ok(3_000_000));
        assert_eq!("2GB".parse::<Scale>().map(|scale| scale.records(306)), Ok(6_535_947));
        assert!("0".parse::<Scale>().is_err());
        assert!("3 parsecs".parse::<Scale>().is_err());
    }
}
