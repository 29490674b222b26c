//! `diorite bench dense`: much data on little memory: the blocks that a read of a cold row reads, the memory of index
//! and filters, the bytes that are written and stored.
//!
//! A table is loaded in three steps, each compacted, so that the part that grows with the data can be separated from
//! the rest. Then, on all of it: random reads, reads of the newest rows, reads of absent keys, overwrites of a fifth
//! and reads after them, a restart; then deleted and expired rows and one hot row ([`queue`]), and rows in time windows
//! ([`windows`]). The block cache is half of the data divided by `--ratio`. A block that is not in it is a read of the
//! disk, as the servers use direct I/O or have the page cache in their memory control group. If neither is so, the
//! report says it.
//!
//! Always true: reads are counted by the servers' own counters, by kind of block, and by Linux's counters of their
//! processes; nothing else runs while they are counted: flushes and compactions have ended. Every value read is
//! checked. Latencies are those of this machine and are not scaled.
//! Left out: more than one node unless asked for.

pub mod counters;
mod memory_group;
pub mod queue;
pub mod windows;

use std::sync::Arc;
use std::time::Duration;

use diorite_base::clock::{Clock, SystemClock};
use diorite_base::random::{Random, SplitMix64};
use futures::future::try_join_all;
use scylla::statement::Consistency;

use super::common::check;
use super::large_dataset::{Scale, replication_note};
use super::measure::Measurement;
use super::operator::Operator;
use super::phase::PhaseSpec;
use super::point::executor;
use super::servers::Servers;
use super::{CommonArguments, Target};
use crate::WorkloadError;
use crate::arguments::{Popularity, parse_duration};
use crate::command::{client_name, epoch_s};
use crate::data::KeyFormat;
use crate::key_state::KeyState;
use crate::report::{Figure, Header, Report};
use crate::row_set::RowSet;
use crate::runner::{Executor, Plan};
use crate::session::{connect, prepare, use_keyspace};
use crate::timer::pause;
use counters::{Counted, Counters, Held};
use memory_group::{MemoryGroup, NoGroup};
use queue::QueueSizes;

const TABLE: &str = "dense";
const LOAD_WRITERS: usize = 256;
const READERS: usize = 64;
const OVERWRITERS: usize = 64;
/// The steps of the load, as shares of all rows.
const STEPS: [f64; 3] = [0.25, 0.5, 1.0];
const RECENT_PERCENT: f64 = 5.0;
/// One row of so many is overwritten.
const OVERWRITTEN: u64 = 5;
/// The least block cache, and the least memory limit of a server.
const LEAST_CACHE: u64 = 2 << 20;
const LEAST_MEMORY: u64 = 64 << 20;
/// A memory limit below this leaves no space for the memory that does not depend on the data: then there is no control
/// group.
const LEAST_GROUP: u64 = 384 << 20;
/// How often servers are asked whether they are done, and how often in vain.
const LOOK: Duration = Duration::from_millis(500);
const LOOKS: u32 = 7_200;
/// The number of checks in a row without activity after which it counts as over.
const QUIET_LOOKS: u32 = 4;
const TB: f64 = 1e12;
const GB: f64 = 1e9;

/// `diorite bench dense`.
#[derive(Debug, Clone, clap::Args)]
pub struct DenseArguments {
    #[command(flatten)]
    pub common: CommonArguments,
    /// tiny, small, a factor of three million records, or the size of all records such as 60GB.
    #[arg(long, default_value = "2GB")]
    pub scale: Scale,
    /// Data for each byte of memory; half of that memory is the block cache.
    #[arg(long, default_value_t = 150)]
    pub ratio: u64,
    /// How long each phase of reads runs.
    #[arg(long, value_parser = parse_duration)]
    pub phase_duration: Option<Duration>,
    /// Only the reads of cold rows: without the queue, the rows that expire and the hot row.
    #[arg(long)]
    pub only_reads: bool,
}

impl DenseArguments {
    fn record_bytes(&self) -> usize {
        self.common.key_size + self.common.value_size
    }

    fn records(&self) -> u64 {
        self.scale.records(self.record_bytes())
    }

    fn memory_bytes(&self) -> u64 {
        self.records() * self.record_bytes() as u64 / self.ratio.max(1)
    }

    /// Arguments of the servers that are started.
    pub(super) fn server_arguments(&self) -> Vec<String> {
        let memory = self.memory_bytes();
        let (limit, cache) = (memory.max(LEAST_MEMORY), (memory / 2).max(LEAST_CACHE));
        ["--memory-limit", &limit.to_string(), "--block-cache", &cache.to_string()].map(str::to_owned).to_vec()
    }

    fn phase_duration(&self) -> Duration {
        let short = if self.scale == Scale::Tiny { Duration::from_secs(2) } else { Duration::from_secs(15) };
        self.phase_duration.unwrap_or(short)
    }
}

/// Runs all phases against `target`; it is restarted only if these are `servers` started here.
pub async fn run(
    arguments: &DenseArguments,
    target: &Target,
    servers: Option<&mut Servers>,
) -> Result<Report, WorkloadError> {
    check(&arguments.common, Some(arguments.records()))?;
    let group = group_of(arguments, target, servers.is_some());
    let operator = Operator::of_contact_points(&target.contact_points).await;
    let counted = Counted { addresses: operator.addresses().to_vec(), process_ids: target.process_ids.clone() };
    let mut dense = Dense {
        arguments,
        target,
        operator,
        counted,
        rows: rows(arguments),
        measurement: Measurement::new(target.sampler(), arguments.common.json),
        figures: Vec::new(),
        per_tb: Vec::new(),
    };
    let unfinished = dense.run(servers).await?;
    let is_direct = dense.operator.reads_directly().await == Some(true);
    let no_group = group.as_ref().err().map(ToString::to_string);
    let header = header(arguments, target, no_group.as_deref(), is_direct);
    let report = Report::new(header, dense.measurement).with_figures(dense.figures);
    Ok(report.with_unfinished(unfinished))
}

/// The control group of the servers, or why there is none.
fn group_of(arguments: &DenseArguments, target: &Target, is_ours: bool) -> Result<MemoryGroup, NoGroup> {
    let limit = arguments.memory_bytes();
    if !is_ours {
        return Err(NoGroup::Foreign);
    }
    if limit < LEAST_GROUP {
        return Err(NoGroup::TooSmall(limit / 1_000_000));
    }
    let group = MemoryGroup::new(limit)?;
    target.process_ids.iter().try_for_each(|id| group.add(*id))?;
    Ok(group)
}

fn rows(arguments: &DenseArguments) -> RowSet {
    let common = &arguments.common;
    let keys = Arc::new(KeyState::new(epoch_s(&SystemClock::new()), 0, arguments.records(), 256 << 20));
    RowSet::new(keys, KeyFormat::new("key", common.key_size), common.value_size, Popularity::Uniform)
}

/// A run.
struct Dense<'run> {
    arguments: &'run DenseArguments,
    target: &'run Target,
    operator: Operator,
    counted: Counted,
    rows: RowSet,
    measurement: Measurement,
    figures: Vec<Figure>,
    /// Index and filter, and readers, GB per TB of data, after each step of the load.
    per_tb: Vec<[f64; 2]>,
}

impl Dense<'_> {
    async fn run(&mut self, servers: Option<&mut Servers>) -> Result<Vec<String>, WorkloadError> {
        let common = &self.arguments.common;
        let executor = executor(common, self.target, TABLE, common.tablets, None, &self.rows).await?;
        if self.load(&executor).await? {
            return Ok(vec!["interrupted while loading".to_owned()]);
        }
        self.reads(&executor, "random-read", "any row, compacted", 1.02).await?;
        self.rows.set_popularity(Popularity::Recent { percent: RECENT_PERCENT });
        self.reads(&executor, "recent-read", "the newest 5 %, compacted", 1.02).await?;
        self.rows.set_popularity(Popularity::Uniform);
        self.absent().await?;
        self.overwrite(&executor).await?;
        drop(executor);
        if let Some(servers) = servers {
            self.restart(servers).await?;
        }
        if !self.arguments.only_reads {
            let sizes = if self.arguments.scale == Scale::Tiny { QueueSizes::TINY } else { QueueSizes::WHOLE };
            let connection = common.connection(self.target);
            self.figures.extend(queue::run(&connection, &self.counted, sizes, common.json).await?);
        }
        Ok(Vec::new())
    }

    fn plan(&self, writers: usize, readers: usize, writes: Option<u64>, duration: Option<Duration>) -> Plan {
        let seed = self.arguments.common.seed;
        Plan { writers, readers, writes, reads: None, duration, rate: None, seed, until: None }
    }

    /// Loads in steps, each compacted; whether it was interrupted.
    async fn load(&mut self, executor: &Executor) -> Result<bool, WorkloadError> {
        let (records, mut loaded) = (self.arguments.records(), 0);
        for (number, share) in (1..).zip(STEPS) {
            let wanted = (records as f64 * share) as u64;
            let before = self.counters().await?;
            let plan = self.plan(LOAD_WRITERS, 0, Some(wanted - loaded), None);
            let name = format!("load-{number}");
            let spec = PhaseSpec::new(name, format!("inserts of new rows, up to {wanted}"), plan);
            if self.measurement.phase(spec, executor).await?.interrupted {
                return Ok(true);
            }
            loaded = wanted;
            self.wait_until_idle().await?;
            let written = self.counters().await?.since(&before);
            self.compact().await?;
            let held = self.held().await?;
            self.note_per_tb(
                &format!("after {:.2} GB", loaded as f64 * self.arguments.record_bytes() as f64 / GB),
                &held,
            );
            if number == STEPS.len() {
                let amplification =
                    Figure::new("write amplification of the last step of the load", written.write_amplification(), "");
                self.figures.push(amplification.with_goal("at most 3"));
            } else {
                let name = format!("random-read-{number}");
                let spec = PhaseSpec { is_result: false, ..self.read_spec(&name, "any row so far, compacted") };
                self.counted_reads(executor, spec, None).await?;
            }
        }
        self.note_flatness();
        Ok(false)
    }

    fn read_spec(&self, name: &str, description: &str) -> PhaseSpec {
        let plan = self.plan(0, READERS, None, Some(self.arguments.phase_duration()));
        PhaseSpec::new(name, format!("{READERS} readers of {description}"), plan)
    }

    async fn reads(
        &mut self,
        executor: &Executor,
        name: &str,
        description: &str,
        goal: f64,
    ) -> Result<(), WorkloadError> {
        let spec = self.read_spec(name, description);
        self.counted_reads(executor, spec, Some(goal)).await
    }

    /// Runs a phase of reads and counts the blocks that it reads.
    async fn counted_reads(
        &mut self,
        executor: &Executor,
        spec: PhaseSpec,
        goal: Option<f64>,
    ) -> Result<(), WorkloadError> {
        let name = spec.name.clone();
        // Index and filter blocks that stay cached are loaded first.
        let warm = PhaseSpec { is_result: false, name: format!("{name}-first"), ..spec.clone() };
        self.measurement.phase(warm, executor).await?;
        let before = self.counters().await?;
        let outcome = self.measurement.phase(spec, executor).await?;
        let counted = self.counters().await?.since(&before);
        let reads = outcome.tallies.reads.summary(outcome.seconds).operations as f64;
        self.note_reads(&name, reads, &counted, goal);
        Ok(())
    }

    fn note_reads(&mut self, name: &str, reads: f64, counted: &Counters, goal: Option<f64>) {
        let per_read = |count: f64| (reads > 0.0).then_some(count / reads);
        let all = Figure::new(format!("{name}: disk reads per read"), per_read(counted.read.all()), "");
        self.figures.push(match goal {
            Some(goal) => all.with_goal(format!("at most {goal}")),
            None => all,
        });
        let kinds = [("data", counted.read.data), ("index", counted.read.index), ("filter", counted.read.filter)];
        for (kind, count) in kinds {
            self.figures.push(Figure::new(format!("{name}: of these, blocks of {kind}"), per_read(count), ""));
        }
        let bytes = counted.read_bytes.and_then(per_read);
        let bytes =
            Figure::new(format!("{name}: bytes read from the disk per read"), bytes.map(|bytes| bytes / 1024.0), "KiB");
        self.figures.push(bytes.with_goal("at most 12: 1.5 blocks of 8 KiB"));
    }

    /// Reads of keys that were never written, through the driver.
    async fn absent(&mut self) -> Result<(), WorkloadError> {
        let connection = self.arguments.common.connection(self.target);
        let session = connect(&connection, connection.connections).await?;
        use_keyspace(&session, &connection).await?;
        let select = prepare(&session, &format!("SELECT k FROM {TABLE} WHERE k = ?"), Consistency::Quorum).await?;
        let clock = SystemClock::new();
        let end_ns = clock.monotonic_ns() + self.arguments.phase_duration().as_nanos() as u64;
        let before = self.counters().await?;
        let reader = async |number: u64| {
            let mut random = SplitMix64::new(number);
            let mut reads = 0_u64;
            while clock.monotonic_ns() < end_ns {
                let key = format!("absent:{}", random.next_u64());
                let found = session.execute_unpaged(&select, (&key,)).await;
                let found = found.map_err(|error| WorkloadError::Server(format!("reading {key}: {error}")))?;
                let found = found.into_rows_result().map_err(|error| WorkloadError::Server(error.to_string()))?;
                if found.rows_num() > 0 {
                    return Err(WorkloadError::Server(format!("{key} was never written, and is there")));
                }
                reads += 1;
            }
            Ok(reads)
        };
        let reads: u64 = try_join_all((0..READERS as u64).map(reader)).await?.iter().sum();
        let counted = self.counters().await?.since(&before);
        self.note_reads("absent-read", reads as f64, &counted, Some(1.02));
        Ok(())
    }

    /// Overwrites a fifth, then reads, before and after all is merged again.
    async fn overwrite(&mut self, executor: &Executor) -> Result<(), WorkloadError> {
        let compact_bytes = self.held().await?.file_bytes;
        let before = self.counters().await?;
        let plan = self.plan(OVERWRITERS, 0, Some(self.arguments.records() / OVERWRITTEN), None);
        let spec = PhaseSpec::new("overwrite", format!("{OVERWRITERS} writers overwrite a fifth of the rows"), plan);
        self.measurement.phase(spec, executor).await?;
        self.wait_until_idle().await?;
        let written = self.counters().await?.since(&before);
        let steady = Figure::new("write amplification of the overwrites", written.write_amplification(), "");
        self.figures.push(steady.with_goal("at most 8"));
        let held = self.held().await?;
        self.reads(executor, "read-overwritten", "any row, a fifth overwritten since", 1.10).await?;
        self.note_per_tb("with a fifth overwritten", &held);
        let space = Figure::new("space, a fifth overwritten", held.file_bytes / compact_bytes, "× of what is live");
        self.figures.push(space.with_goal("at most 1.25"));
        let peak = self.compact().await?;
        let peak =
            Figure::new("space at the peak of a compaction of everything", peak / compact_bytes, "× of what is live");
        self.figures.push(peak.with_goal("at most 1.25 and the fifth"));
        let held = self.held().await?;
        let space = Figure::new("space after it", held.file_bytes / compact_bytes, "× of what is live");
        self.figures.push(space.with_goal("at most 1.10"));
        Ok(())
    }

    async fn restart(&mut self, servers: &mut Servers) -> Result<(), WorkloadError> {
        let clock = SystemClock::new();
        let files = self.held().await?.files;
        let mut slowest_s = 0.0_f64;
        for index in 0..servers.count() {
            servers.kill(index).await?;
            let began_ns = clock.monotonic_ns();
            servers.restart(index).await?;
            slowest_s = slowest_s.max((clock.monotonic_ns() - began_ns) as f64 / 1e9);
        }
        self.counted.process_ids = servers.process_ids();
        self.figures
            .push(Figure::new("restart after kill -9, until reads are served", slowest_s, "s").with_goal("at most 5"));
        self.figures.push(Figure::new("files at the restart", files, ""));
        Ok(())
    }

    fn note_per_tb(&mut self, when: &str, held: &Held) {
        let per_tb = |bytes: f64| bytes / held.blocks.data.max(1.0) * TB / GB;
        let metadata = per_tb(held.blocks.index + held.blocks.filter);
        let figure = Figure::new(format!("index and filter per TB, {when}"), metadata, "GB");
        self.figures.push(figure.with_goal("at most 2"));
        let readers = per_tb(held.reader_bytes);
        let figure = Figure::new(format!("memory of table readers per TB, {when}"), readers, "GB");
        self.figures.push(figure.with_goal("at most 0.1"));
        self.per_tb.push([metadata, readers]);
    }

    /// How far the figures per TB of the steps are apart.
    fn note_flatness(&mut self) {
        let apart = |values: Vec<f64>| {
            let (least, most) =
                values.iter().fold((f64::MAX, 0.0_f64), |(least, most), value| (least.min(*value), most.max(*value)));
            (least > 0.0).then(|| (most / least - 1.0) * 100.0)
        };
        let metadata = apart(self.per_tb.iter().map(|[metadata, _]| *metadata).collect());
        let figure = Figure::new("index and filter per TB: difference between the three scales", metadata, "%");
        self.figures.push(figure.with_goal("at most 3"));
    }

    async fn counters(&self) -> Result<Counters, WorkloadError> {
        let unknown = || WorkloadError::Server("the servers do not show their counters".to_owned());
        self.counted.counters().await.ok_or_else(unknown)
    }

    /// The contents of the servers' files, once they have measured them.
    async fn held(&self) -> Result<Held, WorkloadError> {
        for _ in 0..LOOKS {
            if let Some(held) = self.counted.held().await {
                return Ok(held);
            }
            pause(LOOK).await;
        }
        Err(WorkloadError::Server("the servers do not show what their files hold".to_owned()))
    }

    /// Waits until no flush and no compaction runs, and the files do not change, for several checks in a row.
    async fn wait_until_idle(&self) -> Result<(), WorkloadError> {
        let (mut quiet, mut before) = (0, Held::default());
        for _ in 0..LOOKS {
            pause(LOOK).await;
            let held = self.held().await?;
            let is_quiet = held.busy == 0.0 && (held.files, held.file_bytes) == (before.files, before.file_bytes);
            (quiet, before) = (if is_quiet { quiet + 1 } else { 0 }, held);
            if quiet == QUIET_LOOKS {
                return Ok(());
            }
        }
        Err(WorkloadError::Server("flushes and compactions do not end".to_owned()))
    }

    /// Compacts everything; returns the most bytes of files that were seen meanwhile.
    async fn compact(&self) -> Result<f64, WorkloadError> {
        self.operator.compact().await?;
        let mut most = 0.0_f64;
        for _ in 0..LOOKS {
            let bytes = self.measurement.sampler().sample().sst_bytes.unwrap_or(0) as f64;
            most = most.max(bytes);
            if !self.operator.is_compacting().await? {
                self.wait_until_idle().await?;
                return Ok(most);
            }
            pause(LOOK / 5).await;
        }
        Err(WorkloadError::Server("the compaction does not end".to_owned()))
    }
}

fn header(arguments: &DenseArguments, target: &Target, no_group: Option<&str>, is_direct: bool) -> Header {
    let common = &arguments.common;
    let group = match (no_group, is_direct) {
        (None, _) => "The servers and their page cache are in a memory control group of that size.".to_owned(),
        (Some(why), true) => {
            format!("No memory control group ({why}): the servers read past the page cache (direct reads).")
        }
        (Some(why), false) => format!(
            "No memory control group ({why}), and the servers read through the page cache: bytes read from the disk and latencies are not those of a cold disk."
        ),
    };
    let mut notes = vec![
        format!(
            "{} records of {} bytes key and {} bytes value, 1/{} of that for memory, half of it for the block cache. {group}",
            arguments.records(),
            common.key_size,
            common.value_size,
            arguments.ratio
        ),
        "Reads are counted by the blocks that come into the block caches, by kind, and by /proc/<pid>/io, while no flush and no compaction runs. Latencies are of this disk, \
         and are not scaled to a larger one."
            .to_owned(),
        replication_note(target.replication),
    ];
    if !common.server_arg.is_empty() {
        notes.push(format!("Server arguments: {}", common.server_arg.join(" ")));
    }
    Header {
        title: "Dense nodes".to_owned(),
        scenario: "dense".to_owned(),
        client: client_name(common.client).to_owned(),
        connections: common.connection.connections,
        durability: target.durability.clone(),
        notes,
        omissions: if arguments.only_reads {
            vec!["queue, expiring rows, hot row: --only-reads".to_owned()]
        } else {
            Vec::new()
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        dense: DenseArguments,
    }

    fn arguments(of: &[&str]) -> DenseArguments {
        Command::parse_from(["bench"].iter().chain(of)).dense
    }

    #[test]
    fn memory_follows_the_data() {
        let dense = arguments(&["--scale", "60GB"]);
        let cache = dense.server_arguments()[3].parse::<u64>().unwrap();
        assert!((199_000_000..=200_000_000).contains(&cache), "{cache}");
        assert!((399_000_000..=400_000_000).contains(&dense.memory_bytes()));
        let small = arguments(&["--scale", "tiny"]).server_arguments();
        assert_eq!((small[1].parse(), small[3].parse()), (Ok(LEAST_MEMORY), Ok(LEAST_CACHE)));
    }
}
