//! One run from a seed to its report: chaos, then calm, in which the cluster has to recover, then a last look at everything.

use crate::checkers::recovery::State;
use crate::checkers::{Finding, acknowledged, linearizable, recovery};
use crate::client::{REGISTERS, Tally};
use crate::cluster::{Cluster, Event, Phase};
use crate::program;
use crate::scenario::FaultKind;
use diorite_base::{NodeId, TabletId};
use diorite_replica::{Permit, Planted};
use diorite_storage::{MemoryTablet, ScanRange, TabletData};
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};

const MS: u64 = 1_000_000;

/// How long a cluster may take to recover once everything is mended, nanoseconds.
const RECOVERY_NS: u64 = 10_000 * MS;

/// How often it is looked whether it has, nanoseconds.
const LOOK_NS: u64 = 50 * MS;

/// The most events of a run: one that has more goes round in circles.
const EVENTS: u64 = 5_000_000;

/// A bug that a test plants, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planting {
    /// The log is written, but not synced.
    SkipFsync,
    /// A node that was restarted votes and campaigns at once.
    IgnoreRestartWait,
    /// After a restart the last entry that was applied is applied again.
    ApplyTwice,
    /// A node that led answers reads until it hears of another leader.
    AnswerWithoutLease,
    /// Clocks are off by more than leases allow for.
    FastClock,
    /// A replica that was moved away and has come back, without its log, votes and campaigns at once.
    ForgetFloor,
    /// A tablet that is split keeps its lease, and answers on.
    KeepLeaseWhenSplit,
    /// A child begins without what its parent's log got since it was prepared.
    ForgetParentsLog,
    /// A tablet that is taken in by another is not closed before what has changed is copied.
    NeverClose,
}

impl Planting {
    /// All of them, with the names by which they are asked for.
    pub const ALL: [(&'static str, Planting); 9] = [
        ("skip-fsync", Planting::SkipFsync),
        ("ignore-restart-wait", Planting::IgnoreRestartWait),
        ("apply-twice", Planting::ApplyTwice),
        ("answer-without-lease", Planting::AnswerWithoutLease),
        ("fast-clock", Planting::FastClock),
        ("forget-floor", Planting::ForgetFloor),
        ("keep-lease-when-split", Planting::KeepLeaseWhenSplit),
        ("forget-parents-log", Planting::ForgetParentsLog),
        ("never-close", Planting::NeverClose),
    ];

    pub(crate) fn in_the_core(self) -> Planted {
        Planted {
            skip_fsync: self == Planting::SkipFsync,
            ignore_restart_wait: self == Planting::IgnoreRestartWait,
            apply_twice: self == Planting::ApplyTwice,
            answer_without_lease: self == Planting::AnswerWithoutLease,
            forget_floor: self == Planting::ForgetFloor,
            keep_lease_when_split: self == Planting::KeepLeaseWhenSplit,
            forget_parents_log: self == Planting::ForgetParentsLog,
        }
    }
}

/// How to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A bug to plant.
    pub bug: Option<Planting>,
    /// Whether to print every event.
    pub print: bool,
    /// Whether to judge only by what clients see: answers, and what is there in the end.
    pub clients_only: bool,
    /// Whether no tablet is split, whatever the seed says, and so none merged.
    pub without_splits: bool,
    /// Whether no tablet is merged, whatever the seed says.
    pub without_merges: bool,
    /// Whether tablets hold real rows in every seed.
    pub rows: bool,
    /// A kind of fault that is in every seed, though not in the usual mix.
    pub further: Option<FaultKind>,
    /// Whether every seed acknowledges writes before they are durable (`--durability interval`).
    pub interval: bool,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The hash over everything that happened.
    pub hash: u64,
    /// How many events that were.
    pub events: u64,
    /// How many faults there were.
    pub faults: u64,
    /// How many requests ended how.
    pub tally: Tally,
    /// How long after the last fault the cluster had recovered, nanoseconds of true time.
    pub recovery_ns: Option<u64>,
    /// What is wrong, if anything.
    pub finding: Option<Finding>,
}

/// Runs a seed.
pub fn run(seed: u64, options: &Options) -> Report {
    let mut cluster = Cluster::new(seed, options);
    let mut recovery_ns = None;
    let played = panic::catch_unwind(AssertUnwindSafe(|| play(&mut cluster, &mut recovery_ns)));
    let played = played.unwrap_or_else(|payload| Err(panicked(cluster.now_ns(), &*payload)));
    cluster.clients.give_up(&cluster.scenario.nodes, &mut cluster.dice);
    let finding = played.and_then(|()| judge(&mut cluster)).err();
    Report {
        seed,
        hash: cluster.trace.hash(),
        events: cluster.trace.events(),
        faults: cluster.nemesis.faults,
        tally: cluster.clients.tally,
        recovery_ns,
        finding,
    }
}

/// A node that panics has met what must not be.
fn panicked(at_ns: u64, payload: &(dyn Any + Send)) -> Finding {
    let text = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
    Finding { checker: "panic", at_ns, message: text.unwrap_or("a node panicked").to_owned() }
}

fn play(cluster: &mut Cluster, recovery_ns: &mut Option<u64>) -> Result<(), Finding> {
    let calm_ns = cluster.scenario.chaos_ns;
    while let Some(stepped) = cluster.step() {
        stepped?;
        let now_ns = cluster.now_ns();
        if cluster.phase == Phase::Inspection {
            recovery_ns.get_or_insert(now_ns - calm_ns);
            if cluster.to_read.values().all(Vec::is_empty) {
                return Ok(());
            }
        }
        if now_ns > calm_ns + RECOVERY_NS || cluster.trace.events() > EVENTS {
            break;
        }
    }
    recovery::check(cluster.now_ns(), &states(cluster))?;
    let message = "recovered, but does not answer all reads".to_owned();
    Err(Finding { checker: "recovery", at_ns: cluster.now_ns(), message })
}

/// What all tablets look like.
fn states(cluster: &Cluster) -> Vec<State> {
    let state = |tablet: &TabletId| {
        let placement = &cluster.setting.tablets[tablet];
        let handles =
            || cluster.nodes.values().filter_map(|node| Some((node.id, node.life.as_ref()?.handles.get(tablet)?)));
        let holders: Vec<NodeId> = handles().map(|(node, _)| node).collect();
        let wanted = &placement.members.voters;
        let is_wanted =
            |nodes: &[NodeId]| nodes.len() == wanted.len() && nodes.iter().all(|node| wanted.contains(node));
        State {
            tablet: *tablet,
            has_leaseholder: handles().any(|(_, handle)| handle.check(Permit::Lease).is_ok()),
            is_placed: is_wanted(&holders)
                && handles().any(|(_, handle)| handle.settled().is_some_and(|voters| is_wanted(&voters))),
            applied: handles()
                .map(|(_, handle)| handle.data().applied_state().map_or(0, |state| state.index))
                .collect(),
            takes_writes: cluster.recovered.contains(tablet),
        }
    };
    cluster.setting.served().iter().map(state).collect()
}

impl Cluster {
    /// Looks whether the cluster has recovered; if so, everything is read once more.
    pub fn look(&mut self) {
        if self.phase != Phase::Recovery {
            return;
        }
        let now_ns = self.now_ns();
        if !states(self).iter().all(recovery::has_recovered)
            || !self.setting.are_splits_done()
            || !self.setting.are_merges_done()
        {
            self.queue.schedule(now_ns + LOOK_NS, Event::Look);
            return;
        }
        self.phase = Phase::Inspection;
        for at in 0..self.scenario.tablets.len() as u32 {
            let client = self.scenario.clients + at;
            let registers = if self.rows.is_some() { 0 } else { REGISTERS };
            self.to_read.insert(client, (0..registers).collect());
            self.queue.schedule(now_ns, Event::Act(client));
        }
    }
}

/// Judges everything that the clients saw, and what is there in the end.
fn judge(cluster: &mut Cluster) -> Result<(), Finding> {
    let now_ns = cluster.now_ns();
    for tablet in cluster.setting.served().into_iter().filter(|_| !cluster.clients_only) {
        for (id, node) in &cluster.nodes {
            let handle = node.life.as_ref().and_then(|life| life.handles.get(&tablet));
            let Some(handle) = handle else { continue };
            cluster.replicas.compare(now_ns, *id, tablet, handle.data())?;
        }
    }
    for root in cluster.scenario.tablets.iter().filter(|_| cluster.rows.is_none()) {
        let mut found = BTreeMap::new();
        let parts = cluster.setting.served_of(*root);
        let mut led = 0;
        for tablet in &parts {
            // Whoever leads has everything that was acknowledged; what followers have is compared with that while it is applied.
            let mut lives = cluster.nodes.values().filter_map(|node| node.life.as_ref());
            let leads = |life: &crate::node::Life| {
                life.handles.get(tablet).filter(|handle| handle.check(Permit::Lease).is_ok()).cloned()
            };
            let Some(handle) = lives.find_map(leads) else { continue };
            led += 1;
            let (held, range) = (contents(handle.data()), cluster.setting.ranges[tablet]);
            if let Some(key) = held.keys().find(|key| !range.contains(**key)) {
                let message = format!("{tablet} holds key {key}, which is not its own");
                return Err(Finding { checker: "acknowledged", at_ns: now_ns, message });
            }
            found.extend(held);
        }
        if led == parts.len() {
            let losses = &cluster.losses;
            let (inserts, counters) = (cluster.clients.inserts(*root, losses), cluster.clients.counters(*root, losses));
            acknowledged::check(now_ns, &inserts, &counters, &found)?;
        }
    }
    if cluster.rows.is_some() {
        return cluster.judge_rows();
    }
    if cluster.losses.are_any() {
        // A register that was written goes back.
        return Ok(());
    }
    linearizable::check(now_ns, &cluster.clients.history())
}

/// What a tablet holds beside registers.
fn contents(data: &MemoryTablet) -> BTreeMap<u64, u64> {
    let mut found = BTreeMap::new();
    let range = ScanRange {
        start: &program::key(REGISTERS),
        end: &program::key(u64::MAX),
        reverse: false,
        expected_entries: usize::MAX,
    };
    let scanned = data.scan(&range, &mut |key, value| {
        let key = key.try_into().map(u64::from_be_bytes);
        if let (Ok(key), Some(value)) = (key, program::decode(value)) {
            found.insert(key, value);
        }
        true
    });
    assert!(scanned.is_ok(), "memory can be read");
    found
}
