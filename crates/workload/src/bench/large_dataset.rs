//! `diorite bench large-dataset`: the published scenario of tens of billions of records, scaled to one machine.
//!
//! On one table: load new records with many writers; read any of them at random with a few writers beside; read a hot subset, the newest
//! records; overwrite at random. Then a mixed load at a fixed rate goes on to the end, while a node is added and killed for good. Every value
//! read is checked.
//!
//! Always true: the first four phases are closed loops through the lean client, the mixed load is an open loop through the driver, which follows nodes
//! that come and go, without retries; a failed request fails the run, except after the kill.
//!
//! Left out: the one reader beside the published load (on shared cores a reader in a closed loop would do as many reads as
//! the writers do writes, and the load would no longer be a measure of inserts); a wait for compactions between phases: as in the
//! published runs, a phase begins while those of the one before may still run, and pays for them. On servers that were not started here nodes are
//! neither added nor killed.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use diorite_base::clock::{Clock, SystemClock};
use diorite_base::text::Size;

use super::changes::{ChangeOptions, Changes, Stage};
use super::common::check;
use super::measure::Measurement;
use super::operator::Operator;
use super::phase::PhaseSpec;
use super::probes::Probes;
use super::published::{self, Reference};
use super::servers::Servers;
use super::watch::Watcher;
use super::{CommonArguments, Target};
use crate::WorkloadError;
use crate::arguments::{ClientKind, ConnectionArguments, DataShape, Popularity, WorkloadKind, parse_duration};
use crate::command::{Setup, client_name, epoch_s};
use crate::data::KeyFormat;
use crate::key_state::KeyState;
use crate::report::{Header, Report};
use crate::row_set::RowSet;
use crate::runner::{Executor, Plan};

/// The table of this scenario.
const TABLE: &str = "large_dataset";
/// The hot subset of the recent-read-heavy phase.
const RECENT_PERCENT: f64 = 5.0;
/// Records at `--scale 1`: 0.9 GB with keys of 50 and values of 256 bytes, before replication.
const RECORDS_AT_SCALE_1: f64 = 3_000_000.0;
/// Writers of the load, readers, writers beside the readers, writers of the last phase.
const LOAD_WRITERS: usize = 256;
const READERS: usize = 64;
const FEW_WRITERS: usize = 2;
const OVERWRITERS: usize = 64;
/// Readers and writers of the mixed load, each: the most requests in flight.
const MIXED_TASKS: usize = 64;
/// Unless told otherwise, copies are limited so that a new node's share takes about so long, as hours do in the published runs; within these bounds.
/// There 200 MB/s were 12.5 MB/s for each processor of a node; here several nodes share one.
const COPY_S: f64 = 60.0;
const COPY_RATES: std::ops::RangeInclusive<f64> = 1e7..=2e8;

/// How large a run is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// 20,000 records and phases of 1.5 s, for tests.
    Tiny,
    /// 500,000 records and phases of 10 s.
    Small,
    /// This many times three million records.
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
            Self::Small => Duration::from_secs(10),
            Self::Times(_) | Self::Bytes(_) => Duration::from_secs(30),
        }
    }

    /// Tablets of the table per node at its beginning: as many as in the published run, except in tests.
    fn tablets_per_node(self) -> u32 {
        if self == Self::Tiny { 5 } else { 20 }
    }

    /// Operations of the mixed load per second. Every node is a process on the same cores here, the one that joins too: twice as many take two cores to
    /// their limit before anything changes, and then show how a queue grows, not what a change costs.
    fn rate(self) -> f64 {
        if self == Self::Tiny { 200.0 } else { 1_000.0 }
    }

    /// How long a lost node is waited for.
    fn replace_after(self) -> Duration {
        Duration::from_secs(if self == Self::Tiny { 2 } else { 5 })
    }

    /// How long nothing may move in a cluster that is not evenly spread.
    fn quiet_for(self) -> Duration {
        Duration::from_secs(if self == Self::Tiny { 3 } else { 15 })
    }

    /// How long a change may make no progress.
    fn timeout(self) -> Duration {
        Duration::from_secs(if self == Self::Tiny { 60 } else { 600 })
    }
}

/// `diorite bench large-dataset`.
#[derive(Debug, Clone, clap::Args)]
pub struct LargeDatasetArguments {
    #[command(flatten)]
    pub common: CommonArguments,
    /// tiny, small, a factor of three million records, or the size of all records such as 2GB.
    #[arg(long, default_value = "1")]
    pub scale: Scale,
    /// Records to load, instead of what --scale says.
    #[arg(long)]
    pub records: Option<u64>,
    /// How long each phase after the load runs, instead of what --scale says.
    #[arg(long, value_parser = parse_duration)]
    pub phase_duration: Option<Duration>,
    /// Operations per second of the mixed load while nodes are added and killed [default: 1000, tiny 200].
    #[arg(long)]
    pub rate: Option<f64>,
    /// Rate limit of copies to a new node, per second and node [default: so that they take about a minute; from 10MB to 200MB].
    #[arg(long, value_name = "SIZE")]
    pub copy_rate: Option<Size>,
    /// How long the killed node is waited for before its replicas are rebuilt [default: 5s, tiny 2s].
    #[arg(long, value_parser = parse_duration)]
    pub replace_after: Option<Duration>,
}

/// Runs all phases against `target`; nodes come and go only if these are `servers` of our own.
pub async fn run(
    arguments: &LargeDatasetArguments,
    target: &Target,
    servers: Option<&mut Servers>,
) -> Result<Report, WorkloadError> {
    let scenario = Scenario::new(arguments, target, servers.is_some())?;
    let mut measurement = Measurement::new(target.sampler(), arguments.common.json);
    let operator = Operator::of_contact_points(&target.contact_points).await;
    let directories = match &servers {
        Some(servers) => std::iter::zip(servers.addresses(), servers.data_directories()).collect(),
        None => Vec::new(),
    };
    let watcher = Watcher::new(operator.clone(), directories, measurement.stopwatch());
    let changes = tokio::select! {
        changes = scenario.run(&operator, &watcher, servers, &mut measurement) => changes?,
        never = watcher.run() => match never {},
    };
    measurement.nodes = watcher.into_samples();
    let report = Report::new(scenario.header(), measurement).with_figures(changes.figures);
    Ok(report.with_unfinished(changes.unfinished))
}

/// A run: its sizes, and the cluster under test.
struct Scenario<'run> {
    arguments: &'run LargeDatasetArguments,
    target: &'run Target,
    records: u64,
    rows: RowSet,
    /// `None`: as many as the server sees fit.
    tablets: Option<u32>,
    /// Why no node is added, and why none is killed.
    not_added: Option<&'static str>,
    not_lost: Option<&'static str>,
}

impl<'run> Scenario<'run> {
    fn new(arguments: &'run LargeDatasetArguments, target: &'run Target, is_ours: bool) -> Result<Self, WorkloadError> {
        let (common, scale) = (&arguments.common, arguments.scale);
        check(common, arguments.records)?;
        if arguments.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            return Err(WorkloadError::Arguments("--rate must be above 0 operations a second".into()));
        }
        if arguments.copy_rate == Some(Size(0)) {
            return Err(WorkloadError::Arguments("--copy-rate must be above 0".into()));
        }
        let records = arguments.records.unwrap_or_else(|| scale.records(common.key_size + common.value_size));
        let keys = Arc::new(KeyState::new(epoch_s(&SystemClock::new()), 0, records, 256 << 20));
        let rows = RowSet::new(keys, KeyFormat::new("key", common.key_size), common.value_size, Popularity::Uniform);
        let ours = is_ours && target.nodes() > 1;
        let tablets = common.tablets.or(ours.then(|| scale.tablets_per_node() * target.nodes()));
        let (not_added, not_lost) = omissions(is_ours, target);
        Ok(Self { arguments, target, records, rows, tablets, not_added, not_lost })
    }

    async fn run(
        &self,
        operator: &Operator,
        watcher: &Watcher,
        servers: Option<&mut Servers>,
        measurement: &mut Measurement,
    ) -> Result<Changes, WorkloadError> {
        let mut changes = Changes::default();
        let common = &self.arguments.common;
        let duration = self.arguments.phase_duration.unwrap_or_else(|| self.arguments.scale.phase_duration());
        let tablet_aware = common.connection.tablet_aware.or((self.target.nodes() > 1).then_some(true));
        let executor = self.executor(common.client, tablet_aware).await?;
        for (popularity, phase) in phases(common, self.target.replication, self.records, duration) {
            self.rows.set_popularity(popularity);
            if measurement.phase(phase, &executor).await?.interrupted {
                return Ok(changes);
            }
        }
        // Its connections would only be in the way.
        drop(executor);
        let executor = self.executor(ClientKind::Driver, common.connection.tablet_aware).await?;
        let options = self.change_options(duration);
        let stage = Stage { options: &options, operator, watcher, executor: &executor };
        if stage.alone(measurement).await? {
            return Ok(changes);
        }
        let Some(servers) = servers.filter(|_| self.not_added.is_none()) else { return Ok(changes) };
        // Before there is a node that could be lost: every tablet has its probe.
        let tablets = self.tablets.unwrap_or(self.target.nodes());
        let probes = Probes::connect(&self.connection(None), TABLE, tablets).await?;
        if stage.add_node(servers, measurement, &mut changes).await? || self.not_lost.is_some() {
            return Ok(changes);
        }
        let newest = servers.count() - 1;
        stage.lose_node(newest, &probes, servers, measurement, &mut changes).await?;
        Ok(changes)
    }

    fn connection(&self, tablet_aware: Option<bool>) -> ConnectionArguments {
        ConnectionArguments { tablet_aware, ..self.arguments.common.connection(self.target) }
    }

    /// Connects, and makes the table if it is not there.
    async fn executor(&self, client: ClientKind, tablet_aware: Option<bool>) -> Result<Executor, WorkloadError> {
        let connection = self.connection(tablet_aware);
        let setup = Setup {
            connection: &connection,
            kind: WorkloadKind::KeyValue,
            client,
            table: Some(TABLE),
            ttl_s: None,
            tablets: self.tablets,
            shape: DataShape::default(),
            key_prefix: "key",
            start_ms: SystemClock::new().wall_us() / 1_000,
        };
        setup.executor(&self.rows).await
    }

    fn change_options(&self, phase_duration: Duration) -> ChangeOptions {
        let (arguments, scale) = (self.arguments, self.arguments.scale);
        let copy_rate_bytes = arguments.copy_rate.map_or_else(|| self.copy_rate_bytes(), |rate| rate.0);
        ChangeOptions {
            rate: arguments.rate.unwrap_or_else(|| scale.rate()),
            tasks: MIXED_TASKS,
            alone: phase_duration.min(Duration::from_secs(20)),
            quiet_for: scale.quiet_for(),
            timeout: scale.timeout(),
            copy_rate_bytes,
            replace_after: arguments.replace_after.unwrap_or_else(|| scale.replace_after()),
            seed: arguments.common.seed,
            json: arguments.common.json,
        }
    }

    fn copy_rate_bytes(&self) -> u64 {
        let record_bytes = (self.arguments.common.key_size + self.arguments.common.value_size) as f64;
        let all_bytes = self.records as f64 * record_bytes * f64::from(self.target.replication);
        let share_bytes = all_bytes / f64::from(self.target.nodes() + 1);
        (share_bytes / COPY_S).clamp(*COPY_RATES.start(), *COPY_RATES.end()) as u64
    }

    fn header(&self) -> Header {
        let rate = self.arguments.rate.unwrap_or_else(|| self.arguments.scale.rate());
        let mut header = header(&self.arguments.common, self.target, self.records);
        header.notes.push(format!(
            "From the mixed load on, {rate} operations/s are started however long they take, through the driver (Rust `scylla`) and without \
             retries; latencies run from the intended start. A failed request is a result after the kill, and a failure of the run before."
        ));
        let add = self.not_added.map(|why| format!("adding a node: {why}"));
        let lose = self.not_lost.map(|why| format!("losing a node: {why}"));
        header.omissions.extend(add.into_iter().chain(lose));
        header
    }
}

/// Why no node is added, and why none is killed.
fn omissions(is_ours: bool, target: &Target) -> (Option<&'static str>, Option<&'static str>) {
    let not_added = if !is_ours {
        Some("the servers were not started by the benchmark (see `diorite admin` for how to do it)")
    } else if target.nodes() == 1 {
        Some("a node on its own is measured as such (give --nodes 2 or more)")
    } else {
        None
    };
    let is_safe = target.replication >= 3 && target.nodes() >= target.replication;
    let not_lost = not_added.or((!is_safe).then_some("it needs --rf 3, and as many nodes without the lost one"));
    (not_added, not_lost)
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
        reference,
        ..PhaseSpec::new(name, description, plan)
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
        omissions: Vec::new(),
    }
}

/// A note on the differences from the published clusters that make the comparison uneven.
pub(super) fn replication_note(replication: u32) -> String {
    match replication {
        1 => "The published clusters keep three replicas of each record, so their CPU-seconds do the writes three times and cross a \
              network; a single node keeps one copy."
            .to_owned(),
        _ => format!("Each record has {replication} replicas, on processes of one machine: no network is crossed."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_names_factors_or_sizes() {
        assert_eq!("tiny".parse(), Ok(Scale::Tiny));
        assert_eq!("0.5".parse::<Scale>().map(|scale| scale.records(306)), Ok(1_500_000));
        assert_eq!("2GB".parse::<Scale>().map(|scale| scale.records(306)), Ok(6_535_947));
        assert!("0".parse::<Scale>().is_err());
        assert!("3 parsecs".parse::<Scale>().is_err());
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: LargeDatasetArguments,
    }

    fn target(nodes: usize, replication: u32) -> Target {
        let contact_points = (1..=nodes).map(|host| format!("127.0.0.{host}:9042")).collect();
        let durability = "not stated".to_owned();
        Target { contact_points, process_ids: Vec::new(), data_directories: Vec::new(), durability, replication }
    }

    #[test]
    fn nodes_are_added_and_lost_only_where_that_is_ours_to_do_and_safe() {
        let reasons = |is_ours, nodes, replication| {
            let (add, lose) = omissions(is_ours, &target(nodes, replication));
            (add.is_none(), lose.is_none())
        };
        assert_eq!(reasons(true, 4, 3), (true, true));
        assert_eq!(reasons(true, 3, 3), (true, true));
        assert_eq!(reasons(true, 4, 2), (true, false), "two replicas have no quorum without one");
        assert_eq!(reasons(true, 1, 1), (false, false));
        assert_eq!(reasons(false, 4, 3), (false, false));
    }

    #[test]
    fn copies_are_limited_in_proportion_to_the_data() {
        use clap::Parser;
        let of = |line: &[&str]| {
            let line = Line::parse_from([&["bench"], line].concat());
            let (four, default) = (target(4, 3), Duration::from_secs(30));
            let scenario = Scenario::new(&line.arguments, &four, true).map(|scenario| {
                let options = scenario.change_options(default);
                (options.copy_rate_bytes, options.rate, scenario.tablets)
            });
            scenario.map_err(|error| error.to_string())
        };
        // 9 million records of 306 bytes, three times, a fifth of it in 60 s.
        assert_eq!(of(&["--scale", "3"]), Ok((27_540_000, 1_000.0, Some(80))));
        assert_eq!(of(&[]), Ok((10_000_000, 1_000.0, Some(80))));
        assert_eq!(of(&["--scale", "tiny"]), Ok((10_000_000, 200.0, Some(20))));
        assert_eq!(of(&["--scale", "1TB", "--tablets", "64"]), Ok((200_000_000, 1_000.0, Some(64))));
        assert_eq!(of(&["--copy-rate", "50MB/s", "--rate", "9"]), Ok((50_000_000, 9.0, Some(80))));
        assert!(of(&["--rate", "0"]).is_err() && of(&["--copy-rate", "0"]).is_err());
    }
}
