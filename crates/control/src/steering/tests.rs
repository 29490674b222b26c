//! The tasks of the steering, tick by tick.

#![allow(clippy::unwrap_used, reason = "test data is known")]

use super::*;
use crate::report::{DiskReport, TabletReport};
use crate::testing::{apply, cluster};
use diorite_base::TabletId;
use diorite_cluster::catalog::Setting;

const TICK_NS: u64 = 500_000_000;
const DOWN: NodeId = NodeId(4);

/// A node that may lead the catalog, with its surroundings.
struct World {
    steering: Steering,
    catalog: Arc<Catalog>,
    now_ns: u64,
    leads: bool,
    down: Vec<NodeId>,
}

impl World {
    fn new(nodes: u64) -> Self {
        let catalog = Arc::new(cluster(nodes, 6));
        Self { steering: Steering::default(), catalog, now_ns: 1_000_000_000_000, leads: true, down: Vec::new() }
    }

    fn on(&mut self, event: Event) -> Task {
        let is_up = |node| !self.down.contains(&node);
        let moment =
            Moment { now_ns: self.now_ns, wall_ms: 0, leads: self.leads, catalog: &self.catalog, is_up: &is_up };
        self.steering.on(event, &moment)
    }

    fn tick(&mut self) -> Task {
        self.now_ns += TICK_NS;
        self.on(Event::Tick)
    }

    /// Every node that is up reports.
    fn report(&mut self) {
        for node in self.catalog.nodes().map(|node| node.id).filter(|node| !self.down.contains(node)) {
            let tablets = self.catalog.tablets_on(node).map(|(tablet, placement)| TabletReport {
                tablet,
                bytes: 1 << 30,
                disk: 0,
                leads: placement.replicas[0] == node,
                files: crate::report::Files::default(),
            });
            let disk = DiskReport { total_bytes: 1 << 40, free_bytes: 1 << 39, ..DiskReport::default() };
            let report = Report { disks: vec![disk], tablets: tablets.collect(), ..Report::default() };
            self.steering.learn(node, report, self.now_ns);
        }
    }

    /// Ticks until this node has led for long enough and the first summary is made.
    fn lead_long_enough(&mut self) {
        for _ in 0..4 {
            assert!(matches!(self.tick(), Task::Rest), "others are given time to show that they live");
        }
        assert!(matches!(self.tick(), Task::Summarize));
    }

    /// Carries out all tasks, as a shell does; returns the proposals.
    fn run(&mut self, mut task: Task) -> Vec<Command> {
        let mut proposed = Vec::new();
        loop {
            let event = match task {
                Task::Rest | Task::Retire => return proposed,
                Task::Summarize => Event::Summarized,
                Task::Propose(proposal) => {
                    let (next, outcome) = self.catalog.apply(&proposal.command);
                    self.catalog = Arc::new(next);
                    proposed.push(proposal.command);
                    Event::Proposed(Some(outcome))
                }
                Task::Decide(deciding) => Event::Decided(deciding.decide()),
            };
            task = self.on(event);
        }
    }
}

#[test]
fn nothing_is_moved_before_all_that_are_up_have_reported() {
    let mut world = World::new(4);
    world.lead_long_enough();
    assert!(matches!(world.on(Event::Summarized), Task::Rest), "nobody has reported");
    world.report();
    let looked =
        (0..Timing::default().idle_ticks).map(|_| world.tick()).filter(|task| matches!(task, Task::Decide(_))).count();
    assert_eq!(looked, 1, "one look while nothing happens");
}

#[test]
fn a_node_that_leads_the_catalog_no_more_forgets_what_it_was_told() {
    let mut world = World::new(4);
    world.lead_long_enough();
    world.report();
    world.leads = false;
    assert!(matches!(world.tick(), Task::Retire));
    assert!(world.steering.last().is_empty());
    assert!(matches!(world.tick(), Task::Rest));
    world.leads = true;
    assert!(matches!(world.tick(), Task::Rest), "the others get their time anew");
}

#[test]
fn a_silent_node_is_dead_before_its_replicas_are_made_anew_and_alive_when_its_heartbeats_arrive() {
    let mut world = World::new(5);
    let mut catalog = Catalog::clone(&world.catalog);
    apply(&mut catalog, Command::Set { setting: Setting::ReplaceAfter { milliseconds: 10_000 } });
    world.catalog = Arc::new(catalog);
    world.down = vec![DOWN];
    let first_ns = world.now_ns;
    let mut dead = None;
    for _ in 0..60 {
        world.report();
        let task = world.tick();
        let proposed = world.run(task);
        let moves = proposed.iter().filter(|command| matches!(command, Command::Place { .. })).count();
        if let Some(at) = proposed
            .iter()
            .position(|command| matches!(command, Command::SetNodeState { node: DOWN, state: NodeState::Dead }))
        {
            assert_eq!(at, 0, "before anything is moved: {proposed:?}");
            assert!(dead.replace(world.now_ns).is_none(), "once");
            assert!(moves > 0, "its replicas are made anew");
        }
    }
    let dead_ns = dead.unwrap() - first_ns;
    assert!((10_000_000_000..16_000_000_000).contains(&dead_ns), "silent from the first look on: {dead_ns}");
    let holds = |world: &World| world.catalog.tablets().filter(|(_, found)| found.replicas.contains(&DOWN)).count();
    assert_eq!(holds(&world), 0, "it holds no replica that is wanted");
    world.down.clear();
    let mut revived = false;
    for _ in 0..Timing::default().idle_ticks {
        world.report();
        let task = world.tick();
        revived |= world.run(task).contains(&Command::SetNodeState { node: DOWN, state: NodeState::Active });
    }
    assert!(revived);
}

/// The balancer's proposals after a node is lost, and the world with them.
fn with_moves() -> (World, Vec<Proposal>) {
    let mut world = World::new(5);
    let mut catalog = Catalog::clone(&world.catalog);
    apply(&mut catalog, Command::SetNodeState { node: DOWN, state: NodeState::Dead });
    world.catalog = Arc::new(catalog);
    world.down = vec![DOWN];
    world.lead_long_enough();
    world.report();
    let Task::Decide(deciding) = world.on(Event::Summarized) else { panic!("everything is known") };
    let decision = deciding.decide();
    assert!(decision.proposals.len() > 1, "{decision:?}");
    (world, decision.proposals)
}

#[test]
fn nothing_follows_what_the_catalog_could_not_be_told() {
    let (mut world, proposals) = with_moves();
    let task = world.on(Event::Decided(Decision { proposals: proposals.clone() }));
    assert!(matches!(task, Task::Propose(first) if first == proposals[0]));
    assert!(matches!(world.on(Event::Proposed(None)), Task::Rest));
    let task = world.tick();
    assert!(!matches!(task, Task::Propose(_)), "what was decided then counts no more: {task:?}");
    assert_eq!(world.steering.decided().values().sum::<u64>(), 1, "the others were not proposed");
}

#[test]
fn what_two_nodes_decide_on_the_same_state_is_carried_out_once() {
    let (mut world, proposals) = with_moves();
    let placements = |catalog: &Catalog| -> Vec<(TabletId, Vec<NodeId>)> {
        catalog.tablets().map(|(tablet, placement)| (tablet, placement.replicas.clone())).collect()
    };
    let before = placements(&world.catalog);
    let task = world.on(Event::Decided(Decision { proposals: proposals.clone() }));
    world.run(task);
    let (once, version) = (placements(&world.catalog), world.catalog.version());
    assert_ne!(once, before, "replicas are moved");
    for proposal in proposals {
        let (next, _) = world.catalog.apply(&proposal.command);
        assert_eq!(next.version(), version, "the other node's {proposal:?}");
    }
    assert_eq!(placements(&world.catalog), once);
}

/// The first look at a cluster of an earlier version, whose nodes ask for logins or do not.
fn decided(settings: [bool; 3]) -> Vec<Command> {
    let mut world = World::new(3);
    world.lead_long_enough();
    world.report();
    for (requires_login, node) in settings.into_iter().zip(1..) {
        let report = Report { requires_login: Some(requires_login), ..Report::default() };
        world.steering.learn(NodeId(node), report, world.now_ns);
    }
    let mut proposed = Vec::new();
    for _ in 0..2 * Timing::default().idle_ticks {
        let task = world.tick();
        proposed.extend(world.run(task));
    }
    proposed.into_iter().filter(|command| matches!(command, Command::RequireLogin { .. })).collect()
}

#[test]
fn a_cluster_of_an_earlier_version_decides_once_whether_clients_log_in() {
    let decision = |required| vec![Command::RequireLogin { required, if_undecided: true }];
    assert_eq!(decided([false, false, false]), decision(false));
    assert_eq!(decided([false, false, true]), decision(true));
}
