//! What is done to a cluster: kills, pauses, restarts and broken networks, one after the other and at times at once, all from one seed.
//!
//! Always true: the same seed plans the same faults for the same cluster, except where a fault goes to the node that leads most tablets;
//! when a run ends, everything is healed. Left out: slow clocks, which a process cannot be given simply; the simulation has them.

use crate::cluster::{Cluster, State};
use crate::network::Policy;
use diorite_base::random::{Random, SplitMix64};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The most faults at one time.
const AT_ONCE: usize = 2;

/// What is done, until it is undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// `kill -9`; undone by a start.
    Kill(usize),
    /// SIGTERM; undone by a start.
    Stop(usize),
    /// SIGSTOP; undone by SIGCONT.
    Pause(usize),
    /// Messages along these links are held or cut.
    Break { shape: &'static str, links: Vec<(usize, usize)>, policy: Policy },
}

impl Fault {
    fn name(&self) -> &'static str {
        match self {
            Fault::Kill(_) => "kill",
            Fault::Stop(_) => "stop",
            Fault::Pause(_) => "pause",
            Fault::Break { shape, .. } => shape,
        }
    }
}

/// Chooses a fault and how long it lasts. `leader` is the node that leads most tablets, if that is known.
pub fn choose(random: &mut SplitMix64, nodes: usize, leader: Option<usize>) -> (Fault, Duration) {
    let any = random.below(nodes as u64) as usize;
    // Drawn in any case, so that what is known of the leader does not change the rest of the plan.
    let goes_to_leader = random.below(2) == 0;
    let node = leader.filter(|_| goes_to_leader).unwrap_or(any);
    let kind = random.below(10);
    let is_long = random.below(2) == 0;
    let (fault, least_ms, most_ms) = match kind {
        0 | 1 => (Fault::Kill(node), 0, 3_000),
        2 => (Fault::Stop(node), 0, 2_000),
        // Support lasts 800 ms: pauses that leases survive, and pauses that they do not.
        3 | 4 if is_long => (Fault::Pause(node), 900, 4_000),
        3 | 4 => (Fault::Pause(node), 20, 700),
        _ => (broken(random, nodes, node), 200, 5_000),
    };
    (fault, Duration::from_millis(least_ms + random.below(most_ms - least_ms)))
}

fn broken(random: &mut SplitMix64, nodes: usize, node: usize) -> Fault {
    let all = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to))).filter(|(from, to)| from != to);
    let other = (node + 1 + random.below(nodes as u64 - 1) as usize) % nodes;
    // A minority around the chosen node.
    let size = 1 + random.below((nodes as u64 - 1) / 2) as usize;
    let minority: Vec<usize> = (0..size).map(|step| (node + step) % nodes).collect();
    let is_inside = |node: usize| minority.contains(&node);
    let (shape, links): (_, Vec<_>) = match random.below(6) {
        0 => ("isolate one node", all.filter(|&(from, to)| from == node || to == node).collect()),
        1 => ("split off a minority", all.filter(|&(from, to)| is_inside(from) != is_inside(to)).collect()),
        2 => ("one way, out of one node", all.filter(|&(from, _)| from == node).collect()),
        3 => ("one way, into one node", all.filter(|&(_, to)| to == node).collect()),
        4 => ("one link, one way", vec![(node, other)]),
        _ => ("one link", vec![(node, other), (other, node)]),
    };
    let policy = if random.below(3) == 0 { Policy::Cut } else { Policy::Hold };
    Fault::Break { shape, links, policy }
}

/// Breaks a cluster and mends it.
pub struct Nemesis<'a> {
    cluster: &'a Cluster,
    random: SplitMix64,
    active: Vec<(Instant, Fault)>,
    done: BTreeMap<&'static str, u32>,
}

impl<'a> Nemesis<'a> {
    pub fn new(cluster: &'a Cluster, random: SplitMix64) -> Self {
        Self { cluster, random, active: Vec::new(), done: BTreeMap::new() }
    }

    /// One fault after the other until `end`; then heals everything. Returns how often each kind was done.
    pub fn run(mut self, end: Instant) -> BTreeMap<&'static str, u32> {
        while Instant::now() < end {
            self.begin();
            // Sometimes the next comes soon, to overlap; more often the cluster finds itself again first.
            let pause_ms = if self.random.below(3) == 0 { 100 } else { 1_500 } + self.random.below(2_500);
            let next = (Instant::now() + Duration::from_millis(pause_ms)).min(end);
            while Instant::now() < next {
                self.end_due();
                self.cluster.expect_alive();
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.active.clear();
        self.cluster.heal();
        self.done
    }

    fn begin(&mut self) {
        let (fault, duration) = choose(&mut self.random, self.cluster.len(), self.cluster.leader_of_most());
        if self.active.len() >= AT_ONCE || !self.is_possible(&fault) {
            return;
        }
        *self.done.entry(fault.name()).or_insert(0) += 1;
        println!("  {fault:?} for {} ms", duration.as_millis());
        match &fault {
            Fault::Kill(node) => self.cluster.kill(*node),
            Fault::Stop(node) => self.cluster.stop(*node),
            Fault::Pause(node) => self.cluster.pause(*node),
            Fault::Break { .. } => {}
        }
        self.active.push((Instant::now() + duration, fault));
        self.set_network();
    }

    fn is_possible(&self, fault: &Fault) -> bool {
        match fault {
            Fault::Kill(node) => self.cluster.state(*node) != State::Down,
            Fault::Stop(node) | Fault::Pause(node) => self.cluster.state(*node) == State::Running,
            Fault::Break { .. } => true,
        }
    }

    fn end_due(&mut self) {
        let now = Instant::now();
        let (due, active) = std::mem::take(&mut self.active).into_iter().partition(|(until, _)| *until <= now);
        self.active = active;
        let due: Vec<(Instant, Fault)> = due;
        for (_, fault) in &due {
            match fault {
                Fault::Kill(node) | Fault::Stop(node) => self.cluster.start_node(*node),
                // It may have been killed meanwhile.
                Fault::Pause(node) if self.cluster.state(*node) == State::Paused => self.cluster.resume(*node),
                Fault::Pause(_) | Fault::Break { .. } => {}
            }
        }
        if !due.is_empty() {
            self.set_network();
        }
    }

    /// A link that several faults break gets the worst of it.
    fn set_network(&self) {
        self.cluster.network.set_all(|from, to| {
            let policies = self.active.iter().filter_map(|(_, fault)| match fault {
                Fault::Break { links, policy, .. } if links.contains(&(from, to)) => Some(*policy),
                _ => None,
            });
            policies.max().unwrap_or(Policy::Pass)
        });
    }
}

#[test]
fn a_seed_plans_the_same_faults_again_and_all_kinds_come() {
    let plan = |seed, leader| {
        let mut random = SplitMix64::new(seed);
        (0..500).map(|_| choose(&mut random, 5, leader)).collect::<Vec<_>>()
    };
    assert_eq!(plan(1, None), plan(1, None));
    assert_ne!(plan(1, None), plan(2, None));
    let with_leader = plan(1, Some(3));
    let durations = |plan: &[(Fault, Duration)]| plan.iter().map(|(_, duration)| *duration).collect::<Vec<_>>();
    assert_eq!(durations(&plan(1, None)), durations(&with_leader), "only the target depends on the leader");
    let names: std::collections::BTreeSet<_> = with_leader.iter().map(|(fault, _)| fault.name()).collect();
    assert_eq!(names.len(), 9, "{names:?}");
    for (fault, _) in with_leader {
        if let Fault::Break { links, shape: "split off a minority", .. } = fault {
            assert!([8, 12].contains(&links.len()), "one or two of five are split off: {links:?}");
        }
    }
}
