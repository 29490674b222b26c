//! Random schedules: requests, leaders that move, tablets that are split and replaced, catalogs that are behind, nodes
//! that go down, frames and answers that are lost, late or doubled. Each request must end once, with a true outcome.

use super::{Ask, HERE, Known, LIMITS, TIMEOUTS};
use crate::planted::Planted;
use crate::routing::{Local, Machine, Message, Output, Request};
use diorite_base::random::{Random, SplitMix64};
use diorite_base::write::{KvError, Waited};
use diorite_base::{NodeId, TabletId};
use std::collections::{BTreeMap, BTreeSet};

const OTHERS: [NodeId; 3] = [NodeId(2), NodeId(3), NodeId(4)];
const STEPS: usize = 400;
const TICK_NS: u64 = 25_000_000;
/// The number of ticks after which no request is parked, once there are leaders and no failures.
const TICKS_TO_LEADERS: u64 = 12;

/// What became of a request.
#[derive(Debug)]
struct Record {
    is_read: bool,
    deadline_ns: u64,
    /// How often it was carried out.
    carried_out: usize,
    outcomes: Vec<Result<(), KvError>>,
}

/// How often each event occurred, so that a test that no longer reaches it fails.
#[derive(Debug, Default)]
struct Reached {
    ok: usize,
    timeouts: usize,
    unavailable: usize,
    no_such_tablet: usize,
    carried_out_here: usize,
    most_parked: usize,
    /// Requests that succeeded on a successor of their tablet.
    moved: usize,
}

struct Schedule {
    random: SplitMix64,
    machine: Machine<Ask>,
    /// What this node's catalog and replicas say; it may be behind.
    known: Known,
    now_ns: u64,
    /// The actual leaders; tablets that were split or replaced are absent.
    leaders: BTreeMap<TabletId, Option<NodeId>>,
    /// Splits and replacements that this node's catalog does not show yet: a tablet, and its successors.
    unseen: Vec<(TabletId, Vec<TabletId>)>,
    next_tablet: u64,
    requests: Vec<(NodeId, Message<Ask>)>,
    answers: Vec<(NodeId, u64, Result<(), KvError>)>,
    here: Vec<Request<Ask>>,
    records: Vec<Record>,
    /// Whether the network delivers requests twice: the checks have to find that.
    doubles_requests: bool,
    /// Since when there are no failures.
    healed_ns: Option<u64>,
    reached: Reached,
}

impl Schedule {
    fn new(seed: u64, planted: Planted) -> Self {
        let mut machine = Machine::new(HERE, LIMITS, TIMEOUTS);
        machine.plant(planted);
        let mut known = Known { up: BTreeSet::from(OTHERS), ..Known::default() };
        let tablets = [10, 11, 12].map(TabletId);
        known.holders.extend(tablets.map(|tablet| (tablet, vec![HERE, OTHERS[0], OTHERS[1], OTHERS[2]])));
        Self {
            random: SplitMix64::new(seed),
            machine,
            known,
            now_ns: 0,
            leaders: tablets.map(|tablet| (tablet, None)).into(),
            unseen: Vec::new(),
            next_tablet: 20,
            requests: Vec::new(),
            answers: Vec::new(),
            here: Vec::new(),
            records: Vec::new(),
            doubles_requests: false,
            healed_ns: None,
            reached: Reached::default(),
        }
    }

    fn is_one_in(&mut self, times: u64) -> bool {
        self.random.below(times) == 0
    }

    fn other(&mut self) -> NodeId {
        OTHERS[self.random.below(3) as usize]
    }

    /// Any tablet, possibly one that no longer exists.
    fn some_tablet(&mut self) -> TabletId {
        let tablets: Vec<TabletId> = self.known.holders.keys().copied().collect();
        tablets[self.random.below(tablets.len() as u64) as usize]
    }

    fn submit(&mut self) {
        let tablet = self.some_tablet();
        let (is_read, half) = (self.is_one_in(3), self.random.below(2) as usize);
        let timeout = if is_read { TIMEOUTS.read } else { TIMEOUTS.write };
        let usual_ns = self.now_ns + timeout.as_nanos() as u64;
        let until_ns = if self.is_one_in(4) { Some(self.now_ns + self.random.below(400_000_000)) } else { None };
        let work = Ask { name: self.records.len().to_string(), is_read, half };
        let deadline_ns = until_ns.unwrap_or(usual_ns);
        self.records.push(Record { is_read, deadline_ns, carried_out: 0, outcomes: Vec::new() });
        self.machine.submit(tablet, work, until_ns, &self.known, self.now_ns);
    }

    fn record(&mut self, work: &Ask) -> &mut Record {
        &mut self.records[work.name.parse::<usize>().unwrap()]
    }

    /// The leader named by a node that does not lead: the actual one, none, or a former one.
    fn hint(&mut self, tablet: TabletId) -> Option<NodeId> {
        let truth = self.leaders.get(&tablet).copied().flatten();
        match self.random.below(5) {
            0 if self.healed_ns.is_none() => None,
            1 if self.healed_ns.is_none() => Some(self.other()),
            _ => truth,
        }
    }

    /// A node carries out a request, or refuses it.
    fn carry_out(&mut self, node: NodeId, tablet: TabletId, work: &Ask) -> Result<(), KvError> {
        let Some(leader) = self.leaders.get(&tablet).copied() else { return Err(KvError::NoSuchTablet(tablet)) };
        if leader != Some(node) {
            let leader = self.hint(tablet);
            return Err(KvError::NotLeader { tablet, leader });
        }
        let fate = if self.healed_ns.is_some() { 99 } else { self.random.below(30) };
        let is_done = match fate {
            0..=2 => false,
            3 | 4 => self.is_one_in(2),
            _ => true,
        };
        self.record(work).carried_out += usize::from(is_done);
        match fate {
            0 => Err(KvError::Unavailable(tablet)),
            1 => Err(KvError::Overloaded("")),
            2 => Err(KvError::NoSuchTablet(tablet)),
            3 => Err(KvError::Timeout(Waited::ended())),
            4 => Err(KvError::Storage("a disk".to_owned())),
            _ => Ok(()),
        }
    }

    fn deliver_request(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let at = self.random.below(self.requests.len() as u64) as usize;
        let (node, message) = self.requests.swap_remove(at);
        if self.doubles_requests {
            let _ = self.carry_out(node, message.tablet, &message.work);
        }
        let outcome = self.carry_out(node, message.tablet, &message.work);
        if outcome.is_ok() && self.next_tablet > 20 && message.tablet.0 >= 20 {
            self.reached.moved += 1;
        }
        self.answers.push((node, message.id, outcome));
    }

    fn deliver_answer(&mut self) {
        if self.answers.is_empty() {
            return;
        }
        let at = self.random.below(self.answers.len() as u64) as usize;
        let (from, id, outcome) = self.answers.swap_remove(at);
        if self.healed_ns.is_none() && self.is_one_in(20) {
            self.answers.push((from, id, outcome.clone()));
        }
        self.machine.answered(from, id, outcome, &self.known, self.now_ns);
    }

    /// Frames are sent, or lost.
    fn flush(&mut self, node: NodeId) {
        let frame = self.machine.take_frame(node);
        let Some(first) = frame.first() else { return };
        let ids = first.id..first.id + frame.len() as u64;
        let fails = self.healed_ns.is_none() && self.is_one_in(6);
        if fails {
            let is_down = !self.is_one_in(10);
            return self.machine.not_sent(node, ids, is_down);
        }
        self.requests.extend(frame.into_iter().map(|message| (node, message)));
    }

    fn serve_here(&mut self) {
        let Some(request) = self.here.pop() else { return };
        let tablet = request.tablet;
        match self.carry_out(HERE, tablet, &request.work) {
            Ok(()) => {
                self.reached.carried_out_here += 1;
                self.record(&request.work.clone()).outcomes.push(Ok(()));
            }
            Err(KvError::NotLeader { leader, .. }) => {
                self.machine.refused_here(request, leader, &self.known, self.now_ns);
            }
            Err(KvError::NoSuchTablet(_)) => self.machine.not_open_here(request, &self.known),
            Err(error) => self.record(&request.work.clone()).outcomes.push(Err(error)),
        }
    }

    /// Leaders move, and this node's replica notices or does not.
    fn move_leader(&mut self) {
        let tablet = self.some_tablet();
        let to = match self.random.below(6) {
            0 => None,
            1 => Some(HERE),
            _ => Some(self.other()),
        };
        let Some(leader) = self.leaders.get_mut(&tablet) else { return };
        *leader = to;
        if self.is_one_in(2) {
            self.notice_leader(tablet);
        }
    }

    fn notice_leader(&mut self, tablet: TabletId) {
        let local = match self.leaders.get(&tablet).copied().flatten() {
            Some(HERE) => Local::Leads,
            _ if self.is_one_in(3) => Local::Absent,
            leader => Local::Follows(leader),
        };
        self.known.local.insert(tablet, local);
    }

    /// A tablet is split, or replaced by another; this node's catalog shows that later.
    fn replace(&mut self) {
        let tablet = self.some_tablet();
        if self.leaders.remove(&tablet).is_none() {
            return;
        }
        let count = 1 + self.random.below(2);
        let successors: Vec<TabletId> = (0..count).map(|n| TabletId(self.next_tablet + n)).collect();
        self.next_tablet += count;
        self.leaders.extend(successors.iter().map(|successor| (*successor, None)));
        self.unseen.push((tablet, successors));
    }

    fn see_replacement(&mut self) {
        if self.unseen.is_empty() {
            return;
        }
        let (tablet, successors) = self.unseen.remove(0);
        for successor in &successors {
            self.known.holders.insert(*successor, self.known.holders[&tablet].clone());
        }
        match successors.len() {
            1 => drop(self.known.holders.remove(&tablet)),
            _ => {
                self.known.split.insert(tablet);
                self.known.new_children.extend(&successors);
            }
        }
        self.known.local.remove(&tablet);
        self.known.successors.insert(tablet, successors);
    }

    fn node_changes(&mut self) {
        let node = self.other();
        if self.known.up.remove(&node) {
            self.machine.node_down(node, &self.known, self.now_ns);
        } else {
            self.known.up.insert(node);
            self.machine.node_up(&self.known, self.now_ns);
        }
    }

    fn lose(&mut self) {
        if self.is_one_in(2) { drop(self.requests.pop()) } else { drop(self.answers.pop()) }
    }

    fn tick(&mut self) {
        self.now_ns += TICK_NS;
        self.machine.tick(&self.known, self.now_ns);
    }

    fn step(&mut self) -> Result<(), String> {
        match self.random.below(100) {
            0..=24 => self.submit(),
            25..=44 => self.deliver_request(),
            45..=64 => self.deliver_answer(),
            65..=76 => self.tick(),
            77..=80 => self.move_leader(),
            81..=83 => {
                let tablet = self.some_tablet();
                self.notice_leader(tablet);
            }
            84..=87 => self.node_changes(),
            88 | 89 => self.lose(),
            90 => self.replace(),
            91 | 92 => self.see_replacement(),
            _ => self.serve_here(),
        }
        if self.is_one_in(2) {
            OTHERS.into_iter().for_each(|node| self.flush(node));
        }
        self.take_outputs()
    }

    fn take_outputs(&mut self) -> Result<(), String> {
        while let Some(output) = self.machine.output() {
            let (work, outcome) = match output {
                Output::Serve(request) => {
                    self.here.push(request);
                    continue;
                }
                Output::End(work, outcome) => (work, outcome),
            };
            let healed_ns = self.healed_ns;
            let record = self.record(&work);
            if let (Err(KvError::Unavailable(_)), Some(healed_ns)) = (&outcome, healed_ns)
                && record.deadline_ns > healed_ns + TICKS_TO_LEADERS * TICK_NS
            {
                return Err(format!("request {} waited for a leader to its end though there was one", work.name));
            }
            record.outcomes.push(outcome.clone());
            match outcome {
                Ok(()) => self.reached.ok += 1,
                Err(KvError::Timeout(_)) => self.reached.timeouts += 1,
                Err(KvError::Unavailable(_)) => self.reached.unavailable += 1,
                Err(KvError::NoSuchTablet(_)) => self.reached.no_such_tablet += 1,
                Err(_) => {}
            }
        }
        self.reached.most_parked = self.reached.most_parked.max(self.machine.waiting().0);
        Ok(())
    }

    /// Ends all failures: all nodes are up, catalogs agree, and every tablet has a leader that its replicas know.
    fn heal(&mut self) -> Result<(), String> {
        while !self.unseen.is_empty() {
            self.see_replacement();
        }
        self.known.up.extend(OTHERS);
        let tablets: Vec<TabletId> = self.leaders.keys().copied().collect();
        for tablet in tablets {
            let leader = if self.is_one_in(5) { HERE } else { self.other() };
            self.leaders.insert(tablet, Some(leader));
            let local = if leader == HERE { Local::Leads } else { Local::Absent };
            self.known.local.insert(tablet, local);
        }
        self.healed_ns = Some(self.now_ns);
        self.machine.node_up(&self.known, self.now_ns);
        self.run_for(TICKS_TO_LEADERS + 2)?;
        match self.machine.waiting() {
            (0, _) => Ok(()),
            (parked, _) => Err(format!("{parked} requests still wait for a leader")),
        }
    }

    /// Runs this many ticks in which everything is delivered.
    fn run_for(&mut self, ticks: u64) -> Result<(), String> {
        for _ in 0..ticks {
            self.tick();
            loop {
                OTHERS.into_iter().for_each(|node| self.flush(node));
                self.take_outputs()?;
                if self.requests.is_empty() && self.answers.is_empty() && self.here.is_empty() {
                    break;
                }
                self.deliver_request();
                self.deliver_answer();
                self.serve_here();
            }
        }
        Ok(())
    }

    /// Checks that each request has ended once, with a true answer to its client.
    fn check(&self) -> Result<(), String> {
        if self.machine.waiting() != (0, 0) {
            return Err(format!("requests wait after all deadlines: {:?}", self.machine.waiting()));
        }
        for (number, record) in self.records.iter().enumerate() {
            let [outcome] = &record.outcomes[..] else { return Err(format!("request {number} ended: {record:?}")) };
            let is_true = record.is_read
                || match outcome {
                    Ok(()) => record.carried_out == 1,
                    Err(error) if error.is_refusal() => record.carried_out == 0,
                    Err(_) => record.carried_out <= 1,
                };
            if !is_true {
                return Err(format!("request {number}: {record:?}"));
            }
        }
        Ok(())
    }

    fn run(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            self.step()?;
        }
        self.heal()?;
        self.run_for(6_000_000_000 / TICK_NS)?;
        self.check()
    }
}

#[test]
fn every_request_ends_once_and_no_write_is_carried_out_twice() {
    let mut all = Reached::default();
    for seed in 0..1_000 {
        let mut schedule = Schedule::new(seed, Planted::default());
        schedule.run().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        let reached = schedule.reached;
        all.ok += reached.ok;
        all.timeouts += reached.timeouts;
        all.unavailable += reached.unavailable;
        all.no_such_tablet += reached.no_such_tablet;
        all.carried_out_here += reached.carried_out_here;
        all.moved += reached.moved;
        all.most_parked = all.most_parked.max(reached.most_parked);
    }
    let least =
        [all.ok, all.timeouts, all.unavailable, all.no_such_tablet, all.carried_out_here, all.moved].into_iter().min();
    assert!(least > Some(1_000) && all.most_parked > 10, "{all:?}");
}

#[test]
fn a_parked_request_that_is_never_woken_is_found() {
    let planted = Planted { parked_never_woken: true, ..Planted::default() };
    let found = (0..1_000).find(|seed| Schedule::new(*seed, planted).run().is_err());
    assert!(found.is_some_and(|seed| seed < 100), "{found:?}");
}

#[test]
fn the_checks_find_a_write_that_was_carried_out_twice() {
    let found = (0..100).find(|seed| {
        let mut schedule = Schedule::new(*seed, Planted::default());
        schedule.doubles_requests = true;
        schedule.run().is_err()
    });
    assert!(found.is_some(), "a network that delivers every request twice");
}
