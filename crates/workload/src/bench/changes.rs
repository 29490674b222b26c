//! A node is added, and a node is lost, during the mixed load: duration, copies, and the effect on clients.
//!
//! Always true: time runs from the start of the added process and from the kill, not from their discovery. A change has
//! ended when nothing is moving, waiting to move or missing any more; if that does not happen, the result says so
//! instead of a number. Bytes copied are those of replicas that have come to stay. Leaders are known from the nodes'
//! reports, about once a second, so times are that coarse.
//!
//! Left out: clusters that were not started here, since nodes are started and killed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use diorite_base::clock::{Clock, SystemClock};

use super::failover::errors_by_kind;
use super::measure::Measurement;
use super::operator::{Operator, Sight, arrived, voters};
use super::phase::PhaseSpec;
use super::probes::Probes;
use super::published;
use super::servers::Servers;
use super::stopwatch::Stopwatch;
use super::watch::Watcher;
use crate::WorkloadError;
use crate::process::Sampler;
use crate::report::{Figure, PhaseResult};
use crate::runner::{Executor, Outcome, Plan};
use crate::status::{bytes, say};
use crate::timer::pause;

/// How often the cluster is looked at.
const STEP: Duration = Duration::from_millis(250);
/// The phases in which nothing changes.
const ALONE: &str = "mixed-load";
const ALONE_AGAIN: &str = "mixed-load-again";
/// The largest deviation from the mean that counts as even, in % of the mean.
const EVEN_PERCENT: f64 = 10.0;
/// How often a node is asked how much it was sent, seconds: it has all of its metrics to put together for that.
const METERED_EVERY_S: f64 = 1.0;
/// How long nothing may move before an evenly spread cluster is done: nodes report about once a second.
const REST_S: f64 = 1.5;

/// How the changes are made.
#[derive(Debug, Clone)]
pub struct ChangeOptions {
    /// Operations of the mixed load per second.
    pub rate: f64,
    /// Its readers and writers, each: the most requests in flight.
    pub tasks: usize,
    /// How long the load is measured while nothing changes, each time.
    pub alone: Duration,
    /// How long nothing may move before a cluster is done that is not evenly spread.
    pub quiet_for: Duration,
    /// How long a change may make no progress.
    pub timeout: Duration,
    /// The rate limit of copies, bytes per second and node.
    pub copy_rate_bytes: u64,
    /// How long a lost node is waited for.
    pub replace_after: Duration,
    pub seed: u64,
    pub json: bool,
}

/// The inputs of the changes.
pub struct Stage<'run> {
    pub options: &'run ChangeOptions,
    pub operator: &'run Operator,
    pub watcher: &'run Watcher,
    pub executor: &'run Executor,
}

/// The results of the changes.
#[derive(Debug, Default)]
pub struct Changes {
    pub figures: Vec<Figure>,
    /// The changes that did not complete.
    pub unfinished: Vec<String>,
}

impl Stage<'_> {
    /// The mixed load alone, for the comparison; whether it was interrupted.
    pub async fn alone(&self, measurement: &mut Measurement) -> Result<bool, WorkloadError> {
        let plan = Plan { duration: Some(self.options.alone), ..self.plan(None) };
        let name = if alone(measurement).is_empty() { ALONE } else { ALONE_AGAIN };
        let spec = PhaseSpec::new(name, self.describe("nothing changes"), plan);
        Ok(measurement.phase(spec, self.executor).await?.interrupted)
    }

    /// Adds a node, and then measures the load alone once more, as the rest of a machine changes within minutes.
    /// Returns whether that was interrupted.
    pub async fn add_node(
        &self,
        servers: &mut Servers,
        measurement: &mut Measurement,
        changes: &mut Changes,
    ) -> Result<bool, WorkloadError> {
        self.operator.set(&serde_json::json!({ "copy_rate_bytes": self.options.copy_rate_bytes })).await?;
        let over = Arc::new(AtomicBool::new(false));
        let limit = bytes(self.options.copy_rate_bytes as f64);
        let what = format!("node {} joins, copies limited to {limit}/s", servers.count() + 1);
        let plan = self.plan(Some(&over));
        let spec =
            PhaseSpec { reference: published::add_node(), ..PhaseSpec::new("add-node", self.describe(&what), plan) };
        let growth = self.grow(servers, measurement.sampler(), &over);
        let (outcome, growth) = self.under_load(measurement, spec, &over, growth).await?;
        changes.unfinished.extend(growth.unfinished.clone());
        let phase = measurement.phases.last().cloned();
        let is_interrupted = outcome.interrupted || self.alone(measurement).await?;
        changes.figures.extend(growth_figures(&growth, phase.as_ref(), &alone(measurement)));
        Ok(is_interrupted)
    }

    /// Kills the server with this index for good; whether that was interrupted.
    pub async fn lose_node(
        &self,
        index: usize,
        probes: &Probes,
        servers: &mut Servers,
        measurement: &mut Measurement,
        changes: &mut Changes,
    ) -> Result<bool, WorkloadError> {
        let replace_after_ms = self.options.replace_after.as_millis() as u64;
        self.operator.set(&serde_json::json!({ "replace_after_ms": replace_after_ms })).await?;
        let over = Arc::new(AtomicBool::new(false));
        let what = format!("kill -9 of one node, replaced after {:.0} s", self.options.replace_after.as_secs_f64());
        let plan = self.plan(Some(&over));
        let spec = PhaseSpec::new("lose-node", self.describe(&what), plan);
        let spec = PhaseSpec { reference: published::lose_node(), expects_errors: true, ..spec };
        let healing = self.heal(index, probes, servers, measurement.sampler(), &over);
        let (outcome, healing) = self.under_load(measurement, spec, &over, healing).await?;
        changes.unfinished.extend(healing.unfinished.clone());
        let errors = errors_by_kind(&outcome.errors);
        let (phase, alone) = (measurement.phases.last(), alone(measurement));
        changes.figures.extend(healing_figures(&healing, replace_after_ms, &errors, phase, &alone));
        Ok(outcome.interrupted)
    }

    fn plan(&self, until: Option<&Arc<AtomicBool>>) -> Plan {
        Plan {
            writers: self.options.tasks,
            readers: self.options.tasks,
            writes: None,
            reads: None,
            duration: None,
            rate: Some(self.options.rate),
            seed: self.options.seed,
            until: until.cloned(),
        }
    }

    fn describe(&self, what: &str) -> String {
        format!("{} operations/s, half of them reads; {what}", self.options.rate)
    }

    /// Lets the load run until the change has ended; a load that ends earlier ends the change.
    async fn under_load<T>(
        &self,
        measurement: &mut Measurement,
        spec: PhaseSpec,
        over: &AtomicBool,
        change: impl Future<Output = Result<T, WorkloadError>>,
    ) -> Result<(Outcome, T), WorkloadError> {
        let load = async {
            let outcome = measurement.phase(spec, self.executor).await;
            over.store(true, Ordering::Relaxed);
            outcome
        };
        let change = async {
            let result = change.await;
            over.store(true, Ordering::Relaxed);
            result
        };
        let (outcome, result) = tokio::join!(load, change);
        Ok((outcome?, result?))
    }

    async fn grow(&self, servers: &mut Servers, sampler: Sampler, over: &AtomicBool) -> Result<Growth, WorkloadError> {
        let before = self.voters().await;
        let since = Stopwatch::default();
        let index = servers.spawn_next()?;
        let (address, directory) = (servers.addresses()[index], servers.data_directories()[index].clone());
        sampler.add(servers.process_ids()[index], directory.clone());
        self.watcher.add(address, directory);
        servers.ready(index).await?;
        let mut growth = Growth::default();
        let mut progress = Progress::new(self.options);
        loop {
            let sight = self.operator.sight().await;
            let at_s = since.elapsed_s();
            if let Some(sight) = &sight {
                growth.look(sight, address, at_s);
                if growth.is_to_be_metered(at_s) {
                    let received = self.operator.copied_to(address).await;
                    growth.meter(since.elapsed_s(), received);
                }
                if let (Some(node), None) = (growth.node, growth.first_replica_s) {
                    let there = self.operator.tablets(Some(node)).await.unwrap_or_default();
                    let has_voter = voters(&there).iter().any(|&(_, on)| on == node);
                    growth.first_replica_s = has_voter.then(|| since.elapsed_s());
                }
            }
            let is_even = sight.as_ref().is_some_and(|sight| is_even(sight, address));
            match progress.look(sight.as_ref(), is_even, at_s) {
                Verdict::GoesOn if over.load(Ordering::Relaxed) => {
                    growth.unfinished = Some("adding a node was interrupted".to_owned());
                }
                Verdict::GoesOn => {
                    pause(STEP).await;
                    continue;
                }
                Verdict::Ended { at_s } => growth.balanced_s = Some(at_s),
                Verdict::Stalled => growth.unfinished = Some(progress.stalled("adding a node", sight.as_ref())),
            }
            break;
        }
        growth.arrived = self.arrived(before.as_ref()).await;
        say(self.options.json, &growth.line());
        Ok(growth)
    }

    async fn heal(
        &self,
        index: usize,
        probes: &Probes,
        servers: &mut Servers,
        sampler: Sampler,
        over: &AtomicBool,
    ) -> Result<Healing, WorkloadError> {
        let before = self.voters().await;
        // The process's usage until now stays in the sums.
        sampler.sample();
        let (clock, since) = (SystemClock::new(), Stopwatch::default());
        let killed_ns = clock.monotonic_ns();
        let lost = servers.lose(index).await?;
        sampler.forget_directory(&lost.data_directory);
        let (writable_ms, healing) =
            tokio::join!(probes.all_writable_ms(&clock, killed_ns), self.until_whole(lost.address, &since, over));
        let mut healing = healing;
        match writable_ms {
            Ok(writable_ms) => healing.writable_ms = writable_ms.into_iter().reduce(f64::max),
            Err(error) => healing.unfinished = Some(error.to_string()),
        }
        healing.arrived = self.arrived(before.as_ref()).await;
        say(self.options.json, &healing.line());
        Ok(healing)
    }

    async fn until_whole(&self, lost: IpAddr, since: &Stopwatch, over: &AtomicBool) -> Healing {
        let mut healing = Healing::default();
        let mut progress = Progress::new(self.options);
        loop {
            let sight = self.operator.sight().await;
            let at_s = since.elapsed_s();
            let is_whole = sight.as_ref().is_some_and(|sight| is_whole_without(sight, lost));
            if is_whole && healing.whole_s.is_none() {
                healing.whole_s = Some(at_s);
            }
            // Before the node is missed all seems well.
            let seen = sight.as_ref().filter(|_| healing.whole_s.is_some());
            match progress.look(seen, true, at_s) {
                Verdict::Ended { .. } => break,
                Verdict::Stalled => {
                    healing.unfinished = Some(progress.stalled("replacing a lost node", sight.as_ref()))
                }
                Verdict::GoesOn if over.load(Ordering::Relaxed) => {
                    healing.unfinished = Some("replacing a lost node was interrupted".to_owned());
                }
                Verdict::GoesOn => {
                    progress.note(sight.as_ref(), at_s);
                    pause(STEP).await;
                    continue;
                }
            }
            break;
        }
        healing
    }

    async fn voters(&self) -> Option<BTreeSet<(u64, u64)>> {
        self.operator.tablets(None).await.map(|tablets| voters(&tablets))
    }

    async fn arrived(&self, before: Option<&BTreeSet<(u64, u64)>>) -> Option<BTreeMap<u64, u64>> {
        Some(arrived(before?, &self.operator.tablets(None).await?))
    }
}

/// Whether bytes and leaders are spread evenly, or as evenly as whole tablets can be, over all nodes with the new one.
fn is_even(sight: &Sight, address: IpAddr) -> bool {
    let within = |spread: Option<f64>| spread.is_some_and(|percent| percent <= EVEN_PERCENT);
    let leaders = || sight.nodes.iter().filter(|node| node.is_up).map(|node| node.leaders);
    let differ_by = leaders().max().unwrap_or(0) - leaders().min().unwrap_or(0);
    let has_its_share = sight.node_on(address).is_some_and(|node| node.replicas > 0 && node.leaders > 0);
    has_its_share && within(sight.byte_spread_percent()) && (differ_by <= 1 || within(sight.leader_spread_percent()))
}

/// Whether nothing is counted on the lost node any more, and nothing is missing.
fn is_whole_without(sight: &Sight, lost: IpAddr) -> bool {
    let is_empty = sight.node_on(lost).is_none_or(|node| !node.is_up && node.replicas == 0);
    is_empty && sight.cluster.under_replicated == 0
}

/// The text on a change.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    GoesOn,
    /// Nothing has moved since.
    Ended {
        at_s: f64,
    },
    /// Nothing moves, and there is something to be done.
    Stalled,
}

/// Decides when a change has ended, and when it has stalled.
struct Progress {
    quiet_s: f64,
    timeout_s: f64,
    quiet_since_s: Option<f64>,
    even_since_s: Option<f64>,
    /// The last state, and since when it has been so.
    last: Vec<u64>,
    last_s: f64,
}

impl Progress {
    fn new(options: &ChangeOptions) -> Self {
        let (quiet_s, timeout_s) = (options.quiet_for.as_secs_f64(), options.timeout.as_secs_f64());
        Self { quiet_s, timeout_s, quiet_since_s: None, even_since_s: None, last: Vec::new(), last_s: 0.0 }
    }

    /// Records the state, and whether it is as even as it should be.
    fn look(&mut self, sight: Option<&Sight>, is_even: bool, at_s: f64) -> Verdict {
        self.note(sight, at_s);
        self.even_since_s = is_even.then(|| self.even_since_s.unwrap_or(at_s));
        if !sight.is_some_and(Sight::is_quiet) {
            self.quiet_since_s = None;
            return if at_s - self.last_s > self.timeout_s { Verdict::Stalled } else { Verdict::GoesOn };
        }
        let quiet_since_s = *self.quiet_since_s.get_or_insert(at_s);
        // Leadership is transferred after the last replica has moved.
        let (since_s, needed_s) = match self.even_since_s {
            Some(even_since_s) => (quiet_since_s.max(even_since_s), REST_S),
            None => (quiet_since_s, self.quiet_s),
        };
        if at_s - since_s >= needed_s { Verdict::Ended { at_s: since_s } } else { Verdict::GoesOn }
    }

    /// Records whether there is progress.
    fn note(&mut self, sight: Option<&Sight>, at_s: f64) {
        let Some(sight) = sight else { return };
        let cluster = &sight.cluster;
        let nodes = sight.nodes.iter().flat_map(|node| [node.node, node.replicas, node.leaders]);
        let rest = [cluster.under_replicated, cluster.leaderless, cluster.balancer.moves, cluster.balancer.bytes_left];
        let now: Vec<u64> = nodes.chain(rest).collect();
        if now != self.last {
            (self.last, self.last_s) = (now, at_s);
        }
    }

    /// The lines of a report.
    fn stalled(&self, what: &str, sight: Option<&Sight>) -> String {
        let found = sight.map_or_else(
            || "nobody answers".to_owned(),
            |sight| {
                let (cluster, state) = (&sight.cluster, &sight.cluster.balancer.state);
                let (short, leaderless) = (cluster.under_replicated, cluster.leaderless);
                format!(
                    "the balancer is {state}, {} replicas move, {short} tablets are under-replicated, {leaderless} have no leader",
                    cluster.balancer.moves
                )
            },
        );
        format!("{what} has made no progress for {:.0} s: {found}", self.timeout_s)
    }
}

/// The result of adding a node. Times from the start of its process.
#[derive(Debug, Clone, Default, PartialEq)]
struct Growth {
    node: Option<u64>,
    first_replica_s: Option<f64>,
    first_leader_s: Option<f64>,
    /// The number of bytes of copies that the new node had received, and when it was asked.
    metered: Vec<(f64, f64)>,
    balanced_s: Option<f64>,
    /// Bytes per second and node.
    limit_bytes: Option<u64>,
    /// Bytes by node.
    arrived: Option<BTreeMap<u64, u64>>,
    byte_spread_percent: Option<f64>,
    leader_spread_percent: Option<f64>,
    unfinished: Option<String>,
}

impl Growth {
    fn look(&mut self, sight: &Sight, address: IpAddr, at_s: f64) {
        let node = sight.node_on(address);
        self.node = node.map(|node| node.node).or(self.node);
        if self.first_leader_s.is_none() && node.is_some_and(|node| node.leaders > 0) {
            self.first_leader_s = Some(at_s);
        }
        self.limit_bytes = Some(sight.cluster.balancer.copy_rate_bytes);
        self.byte_spread_percent = sight.byte_spread_percent();
        self.leader_spread_percent = sight.leader_spread_percent();
    }

    fn is_to_be_metered(&self, at_s: f64) -> bool {
        self.node.is_some() && self.metered.last().is_none_or(|(last_s, _)| at_s >= last_s + METERED_EVERY_S)
    }

    fn meter(&mut self, at_s: f64, received: Option<f64>) {
        self.metered.extend(received.map(|bytes| (at_s, bytes)));
    }

    /// The mean rate of copies to the new node, in % of the limit: from the first received bytes to the last missing
    /// ones.
    fn rate_percent(&self) -> Option<f64> {
        let (_, last) = *self.metered.last()?;
        let mut while_they_came = self.metered.iter().filter(|(_, bytes)| (1.0..last).contains(bytes));
        let (first_s, first) = while_they_came.next()?;
        let (last_s, last) = while_they_came.next_back()?;
        Some((last - first) / (last_s - first_s) / self.limit_bytes? as f64 * 100.0)
    }

    fn line(&self) -> String {
        let seconds = |at_s: Option<f64>| at_s.map_or_else(|| "–".to_owned(), |at_s| format!("{at_s:.1} s"));
        format!(
            "  first tablet served after {}, balanced after {}",
            seconds(self.first_leader_s),
            seconds(self.balanced_s)
        )
    }
}

/// The result of losing a node. Times from the kill.
#[derive(Debug, Clone, Default, PartialEq)]
struct Healing {
    /// Until the last tablet took a write again.
    writable_ms: Option<f64>,
    whole_s: Option<f64>,
    arrived: Option<BTreeMap<u64, u64>>,
    unfinished: Option<String>,
}

impl Healing {
    fn line(&self) -> String {
        match self.whole_s {
            Some(whole_s) => format!("  every tablet has all its replicas again after {whole_s:.1} s"),
            None => "  not every tablet has all its replicas again".to_owned(),
        }
    }
}

fn megabytes(bytes: Option<u64>) -> Option<f64> {
    bytes.map(|bytes| bytes as f64 / 1e6)
}

fn errors(phase: &PhaseResult) -> f64 {
    (phase.reads.errors + phase.writes.errors) as f64
}

/// The phases of the load alone.
fn alone(measurement: &Measurement) -> Vec<&PhaseResult> {
    measurement.phases.iter().filter(|phase| [ALONE, ALONE_AGAIN].contains(&phase.name.as_str())).collect()
}

/// The latencies of `phase` as multiples of those of the load alone, averaged over its phases.
fn tail_figures(change: &str, phase: Option<&PhaseResult>, alone: &[&PhaseResult]) -> Vec<Figure> {
    let ratio = |of: fn(&PhaseResult) -> u64| {
        let sum: u64 = alone.iter().map(|phase| of(phase)).sum();
        (sum > 0).then_some(of(phase?) as f64 * alone.len() as f64 / sum as f64)
    };
    vec![
        Figure::new(format!("{change}: p99 of reads, of that of the mixed load alone"), ratio(|p| p.reads.p99_us), "×")
            .with_goal("at most 2"),
        Figure::new(
            format!("{change}: p99 of writes, of that of the mixed load alone"),
            ratio(|p| p.writes.p99_us),
            "×",
        )
        .with_goal("at most 2"),
    ]
}

fn growth_figures(growth: &Growth, phase: Option<&PhaseResult>, alone: &[&PhaseResult]) -> Vec<Figure> {
    let copied = growth.arrived.as_ref().map(|arrived| arrived.values().sum());
    let limit = megabytes(growth.limit_bytes);
    let mut figures = vec![
        Figure::new("add: failed requests", phase.map(errors), "").with_goal("0"),
        Figure::new("add: the new node leads its first tablet", growth.first_leader_s, "s"),
        Figure::new("add: the new node has its first replica", growth.first_replica_s, "s"),
        Figure::new("add: balanced, nothing moves", growth.balanced_s, "s"),
        Figure::new("add: bytes copied", megabytes(copied), "MB"),
        Figure::new("add: limit of copies, per node", limit, "MB/s"),
        Figure::new("add: rate of copies to the new node, of the limit", growth.rate_percent(), "%")
            .with_goal("at most 105"),
        Figure::new("add: bytes per node, farthest from the mean", growth.byte_spread_percent, "%")
            .with_goal("at most 10"),
        Figure::new("add: leaders per node, farthest from the mean", growth.leader_spread_percent, "%")
            .with_goal("at most 10"),
    ];
    figures.splice(1..1, tail_figures("add", phase, alone));
    figures
}

fn healing_figures(
    healing: &Healing,
    replace_after_ms: u64,
    kinds: &BTreeMap<&'static str, u64>,
    phase: Option<&PhaseResult>,
    alone: &[&PhaseResult],
) -> Vec<Figure> {
    let copied = healing.arrived.as_ref().map(|arrived| arrived.values().sum());
    let mut figures = vec![
        Figure::new("lose: every tablet takes writes again", healing.writable_ms, "ms").with_goal("at most 1,500"),
        Figure::new("lose: a silent node is given up after", replace_after_ms as f64 / 1e3, "s"),
        Figure::new("lose: every tablet has all its replicas again", healing.whole_s, "s"),
        Figure::new("lose: bytes copied", megabytes(copied), "MB"),
        Figure::new("lose: failed requests", phase.map(errors), ""),
    ];
    figures.extend(
        kinds.iter().map(|(kind, &times)| Figure::new(format!("lose: failed requests: {kind}"), times as f64, "")),
    );
    figures.extend(tail_figures("lose", phase, alone));
    figures
}

#[cfg(test)]
mod tests;
