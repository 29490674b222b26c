//! One run from a seed to its report: chaos, then a time without faults, in which the cluster has to recover, then
//! final checks.

use crate::checkers::recovery::State;
use crate::checkers::{Finding, acknowledged, linearizable, recovery};
use crate::client::{REGISTERS, Tally};
use crate::cluster::{Cluster, Event, Phase};
use crate::options::Options;
use crate::program;
use crate::reached::Reached;
use diorite_base::{NodeId, TabletId};
use diorite_control::replicas::{CATALOG_TABLET, Members};
use diorite_replica::Permit;
use diorite_storage::{MemoryTablet, ScanRange, TabletData};
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};

const MS: u64 = 1_000_000;

/// How long a cluster may take to recover once everything is mended, nanoseconds.
const RECOVERY_NS: u64 = 20_000 * MS;

/// How often it is looked whether it has, nanoseconds.
const LOOK_NS: u64 = 50 * MS;

/// The most events of a run: one with more makes no progress.
const EVENTS: u64 = 5_000_000;

/// The outcome of a run.
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
    /// Counts of the events that the run is to exercise.
    pub reached: Reached,
    /// How long after the last fault the cluster had recovered, nanoseconds of true time.
    pub recovery_ns: Option<u64>,
    /// The violation, if one was found.
    pub finding: Option<Finding>,
}

/// Runs a seed.
pub fn run(seed: u64, options: &Options) -> Report {
    let mut cluster = Cluster::new(seed, options);
    let mut recovery_ns = None;
    let played = panic::catch_unwind(AssertUnwindSafe(|| play(&mut cluster, &mut recovery_ns)));
    let played = played.unwrap_or_else(|payload| Err(panicked(cluster.now_ns(), &*payload)));
    let present = cluster.present();
    cluster.clients.give_up(&present, &mut cluster.dice);
    let finding = played.and_then(|()| judge(&mut cluster)).err();
    Report {
        seed,
        hash: cluster.trace.hash(),
        events: cluster.trace.events(),
        faults: cluster.nemesis.faults,
        tally: cluster.clients.tally,
        reached: Reached {
            rows: u64::from(cluster.rows.is_some()),
            levels_raised: u64::from(cluster.setting.newest.level().0 - 1),
            ..cluster.reached
        },
        recovery_ns,
        finding,
    }
}

/// A panic of a node is a finding: it has met a state that must not occur.
fn panicked(at_ns: u64, payload: &(dyn Any + Send)) -> Finding {
    let text = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
    Finding { checker: "panic", at_ns, message: text.unwrap_or("a node panicked").to_owned() }
}

fn play(cluster: &mut Cluster, recovery_ns: &mut Option<u64>) -> Result<(), Finding> {
    while let Some(stepped) = cluster.step() {
        stepped?;
        let (now_ns, end_ns) = (cluster.now_ns(), cluster.scenario.chaos_ns);
        if cluster.phase == Phase::Inspection {
            recovery_ns.get_or_insert(now_ns - end_ns);
            if cluster.to_read.values().all(Vec::is_empty) {
                return Ok(());
            }
        }
        if (cluster.phase != Phase::Chaos && now_ns > end_ns + RECOVERY_NS) || cluster.trace.events() > EVENTS {
            break;
        }
    }
    recovery::check(cluster.now_ns(), &states(cluster))?;
    let message = match cluster.pending_control_work() {
        Some(why) => format!("the tablets have recovered, but {why}"),
        None => "recovered, but does not answer all reads".to_owned(),
    };
    Err(Finding { checker: "recovery", at_ns: cluster.now_ns(), message })
}

/// The states of all tablets.
fn states(cluster: &Cluster) -> Vec<State> {
    let newest = &cluster.setting.newest;
    let of_catalog = Members::of_catalog(newest).unwrap_or_default();
    let catalog = (CATALOG_TABLET, of_catalog.voters, of_catalog.learners, true);
    // Of rows, the partitions of the first tablets are written to once more, whichever tablet has them then.
    let clients = if cluster.rows.is_some() { cluster.scenario.tablets.clone() } else { cluster.client_tablets() };
    let tables = newest.tables().flat_map(|entry| &entry.tablets).filter_map(|range| {
        let voters = newest.placement(range.tablet)?.replicas.clone();
        let takes_writes = !clients.contains(&range.tablet) || cluster.recovered.contains(&range.tablet);
        Some((range.tablet, voters, Vec::new(), takes_writes))
    });
    let state = |(tablet, voters, learners, takes_writes): (TabletId, Vec<NodeId>, Vec<NodeId>, bool)| {
        let handles =
            || cluster.nodes.values().filter_map(|node| Some((node.id, node.life.as_ref()?.handles.get(&tablet)?)));
        let is_same = |found: &[NodeId], wanted: &[NodeId]| {
            found.len() == wanted.len() && found.iter().all(|node| wanted.contains(node))
        };
        let holders: Vec<NodeId> = handles().map(|(node, _)| node).collect();
        let all: Vec<NodeId> = voters.iter().chain(&learners).copied().collect();
        State {
            tablet,
            has_leaseholder: handles().any(|(_, handle)| handle.check(Permit::Lease).is_ok()),
            is_placed: is_same(&holders, &all)
                && handles().any(|(_, handle)| handle.committed_voters().is_some_and(|found| is_same(&found, &voters))),
            applied: handles()
                .map(|(_, handle)| handle.data().applied_state().map_or(0, |state| state.index))
                .collect(),
            takes_writes,
            holds_rows: handles().any(|(_, handle)| !handle.prepared_transactions().is_empty()),
        }
    };
    std::iter::once(catalog).chain(tables).map(state).collect()
}

impl Cluster {
    /// The work that the control plane still has, if any.
    pub fn pending_control_work(&self) -> Option<String> {
        let newest = &self.setting.newest;
        let lags = |node: &&crate::node::Node| {
            let life = node.life.as_ref();
            !node.is_gone && life.is_none_or(|life| life.ready.is_none() || life.served().version() < newest.version())
        };
        if let Some((tablet, _)) =
            newest.tablets().find(|(_, placement)| placement.is_moving() || placement.is_reshaping())
        {
            return Some(format!("{tablet} is being moved, split or merged"));
        }
        if let Some((tablet, placement)) = newest.dropped_tablets().next() {
            return Some(format!("{tablet} was dropped and is on {:?} still", placement.replicas));
        }
        if let Some(node) = self.nodes.values().find(lags) {
            return Some(format!("{} is not ready, or does not serve version {}", node.id, newest.version()));
        }
        if !self.are_members_in_touch() {
            return Some("members exchange no heartbeats, or a node runs that is no member".to_owned());
        }
        if !self.is_nothing_lost() {
            return Some("a machine that is lost is a member still".to_owned());
        }
        (!self.schema.has_recovered()).then(|| "no change of the schema is answered".to_owned())
    }

    /// Looks whether the cluster has recovered; if so, everything is read once more.
    pub fn look(&mut self) {
        if self.phase != Phase::Recovery {
            return;
        }
        let now_ns = self.now_ns();
        if !states(self).iter().all(recovery::has_recovered) || self.pending_control_work().is_some() {
            // Decisions from before the last fault may have left too few nodes.
            self.fill_up();
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

/// Judges all answers that clients got, and the final data.
fn judge(cluster: &mut Cluster) -> Result<(), Finding> {
    let now_ns = cluster.now_ns();
    for (id, node) in cluster.nodes.iter().filter(|_| !cluster.clients_only) {
        for (tablet, handle) in node.life.iter().flat_map(|life| &life.handles) {
            cluster.replicas.compare(now_ns, *id, *tablet, handle.data())?;
        }
    }
    cluster.schema.judge(now_ns, &cluster.setting.newest)?;
    for root in cluster.scenario.tablets.iter().filter(|_| cluster.rows.is_none()) {
        let mut found = BTreeMap::new();
        let parts = cluster.served_of(*root);
        let mut led = 0;
        for tablet in &parts {
            // The leader has everything that was acknowledged; followers are compared with it while they apply.
            let mut lives = cluster.nodes.values().filter_map(|node| node.life.as_ref());
            let leads = |life: &crate::life::Life| {
                life.handles.get(tablet).filter(|handle| handle.check(Permit::Lease).is_ok()).cloned()
            };
            let Some(handle) = lives.find_map(leads) else { continue };
            led += 1;
            let (mut held, range) = (contents(handle.data()), cluster.setting.ranges.of(*tablet));
            // Rows that a merge under way has copied do not count yet.
            let takes_in = cluster.setting.newest.placement(*tablet).is_some_and(|placement| placement.merge.is_some());
            if let Some(key) = held.keys().find(|key| !range.contains(**key) && !takes_in) {
                let message = format!("{tablet} holds key {key}, which is not its own");
                return Err(Finding { checker: "acknowledged", at_ns: now_ns, message });
            }
            held.retain(|key, _| range.contains(*key));
            found.extend(held);
        }
        if led == parts.len() {
            let losses = &cluster.losses;
            let (inserts, counters) = (cluster.clients.inserts(*root, losses), cluster.clients.counters(*root, losses));
            acknowledged::check(now_ns, &inserts, &counters, &found)?;
        }
    }
    if cluster.rows.is_some() {
        cluster.reached.whole_views += u64::from(cluster.has_whole_views());
        cluster.reached.covered +=
            u64::from(cluster.rows.as_ref().is_some_and(|rows| rows.world.kv.is_covering_complete()));
        return cluster.judge_rows();
    }
    if cluster.losses.are_any() {
        // A register that was written goes back.
        return Ok(());
    }
    linearizable::check(now_ns, &cluster.clients.history())
}

/// The contents of a tablet other than registers.
fn contents(data: &MemoryTablet) -> BTreeMap<u64, u64> {
    let mut found = BTreeMap::new();
    let range = ScanRange {
        start: &program::key(REGISTERS),
        end: &program::key(u64::MAX),
        reverse: false,
        expected_entries: usize::MAX,
    };
    let scanned = data.scan(&range, &mut |key, value| {
        if let (Some(key), Some(value)) = (program::number_of(key), program::decode(value)) {
            found.insert(key, value);
        }
        true
    });
    assert!(scanned.is_ok(), "memory can be read");
    found
}
