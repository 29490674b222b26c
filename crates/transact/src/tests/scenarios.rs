//! What is explored, with which bounds, and the bugs that have to be found.

use super::client::{Client, Reader, ReaderStage, Writer, WriterStage};
use super::explore::{Explored, explore};
use super::invariants::Past;
use super::moves::{Model, Move, Reached};
use super::quiet::Quiet;
use super::snapshots::{SnapshotReader, SnapshotStage};
use super::tablet::{Tablet, program, targets};
use super::world::{Budget, World};
use crate::coordinator::{Part, Plan};
use crate::ids::Participant;
use crate::planted::Planted;
use crate::timing::Timing;
use diorite_base::{TableId, TabletId};
use std::rc::Rc;
use std::sync::Arc;

const LIMIT: usize = 3_000_000;

/// What was explored and reached; or what is broken, with the moves that lead to it.
type Found = Result<(Explored, Reached), (String, Vec<Move>)>;

/// Tablet, key, increment, and the least value of the row.
type Increment = (usize, u8, i8, i8);

/// A small cluster and what is asked of it.
#[derive(Clone)]
struct Scenario {
    name: &'static str,
    tablets: usize,
    /// Of each transaction: its parts, and which of them is nearest.
    transactions: Vec<(Vec<Increment>, Option<usize>)>,
    /// Tablet and key.
    writers: Vec<(usize, u8)>,
    readers: Vec<(usize, u8)>,
    /// The tablets of reads at one stamp, the first stamp that is tried, and how often.
    snapshots: Vec<(Vec<usize>, i64, u32)>,
    budget: Budget,
    attempts: u32,
    has_former_leaders: bool,
    readers_ask: bool,
    /// The homes of the first attempts have issued ids in advance.
    in_advance: bool,
    /// The second transaction begins with the number that the answer to the first one's commit brings.
    next: bool,
    /// Steps share entries.
    shares_entries: bool,
}

impl Scenario {
    fn timing(&self) -> Timing {
        Timing { ask_ns: 0, sweep_ns: 0, attempts: self.attempts, ..Timing::default() }
    }

    fn world(&self, planted: Planted) -> World {
        let timing = self.timing();
        // The clocks of the first tablets are behind.
        let tablet =
            |at: usize| Rc::new(Tablet::new(TabletId(at as u64 + 1), at as i64 * 10, &[0, 1], timing, planted));
        let mut tablets: Vec<Rc<Tablet>> = (0..self.tablets).map(tablet).collect();
        let mut past = Past::default();
        let mut issued = |client: usize, home: Option<usize>| {
            let home = Rc::make_mut(&mut tablets[home.filter(|_| self.in_advance)?]);
            home.leader.resume_in_advance();
            let id = home.leader.issue_in_advance(0)?;
            home.leader.stop_in_advance(0);
            past.issued(id, client).expect("a new id");
            Some(id)
        };
        let client = |(at, (parts, nearest)): (usize, &(Vec<Increment>, Option<usize>))| {
            let home = nearest.map(|nearest| parts[nearest].0);
            let in_advance = issued(at, home);
            let part = |&(tablet, key, by, least): &Increment| Part {
                participant: Participant { table: TableId(1), tablet: TabletId(tablet as u64 + 1), key: vec![key] },
                targets: targets(key),
                program: program(key, by, least),
                readers_ask: self.readers_ask,
            };
            let plan = Plan { parts: parts.iter().map(part).collect(), nearest: *nearest };
            Rc::new(match self.next && at > 0 {
                true => Client::next(Arc::new(plan)),
                false => Client::new(Arc::new(plan), timing, planted, in_advance),
            })
        };
        let writer = |&(tablet, key): &(usize, u8)| Writer { tablet, key, value: 50, stage: WriterStage::New };
        let reader =
            |&(tablet, key): &(usize, u8)| Reader { tablet, key, stage: ReaderStage::New, at_least_us: i64::MIN };
        let snapshot = |(tablets, first_us, rounds): &(Vec<usize>, i64, u32)| SnapshotReader {
            tablets: tablets.clone(),
            first_us: *first_us,
            rounds: *rounds,
            stage: SnapshotStage::New,
        };
        let mut world = World {
            clients: self.transactions.iter().enumerate().map(client).collect(),
            tablets,
            writers: self.writers.iter().map(writer).collect(),
            readers: self.readers.iter().map(reader).collect(),
            snapshots: self.snapshots.iter().map(snapshot).collect(),
            network: Vec::new(),
            now_ns: 0,
            budget: self.budget,
            past: Rc::new(past),
            planted,
            timing,
        };
        if self.shares_entries {
            world.tablets.iter_mut().for_each(|tablet| Rc::make_mut(tablet).shares_entries = true);
        }
        if self.next {
            world.tablets.iter_mut().for_each(|tablet| Rc::make_mut(tablet).issue_in_advance());
        }
        for client in (0..world.clients.len()).filter(|client| !self.next || *client == 0) {
            let started = Rc::make_mut(&mut world.clients[client]);
            started.has_started = true;
            if let Some(coordinator) = &mut started.coordinator {
                coordinator.start(0);
            }
            world.run_coordinator(client).expect("nothing has happened yet");
        }
        world
    }

    /// Whether nothing can fail, so that nobody has to wait for a timeout.
    fn is_without_faults(&self) -> bool {
        self.budget.faults == 0 && self.budget.leader_changes == 0
    }

    fn explore(&self, planted: Planted, read_before_look: bool) -> Found {
        let mut model = Model::new(Quiet::new(!self.is_without_faults()), self.has_former_leaders, read_before_look);
        match explore(&mut model, self.world(planted), LIMIT) {
            Ok(explored) => Ok((explored, model.reached)),
            Err(finding) => Err((finding.broken, finding.schedule)),
        }
    }
}

const fn budget(faults: u8, leader_changes: u8, sweeps: u8, jumps: u8) -> Budget {
    Budget { faults, leader_changes, sweeps, jumps }
}

/// One transaction over two tablets.
fn one(name: &'static str, budget: Budget) -> Scenario {
    Scenario {
        name,
        tablets: 2,
        transactions: vec![(vec![(0, 0, 1, 0), (1, 0, 2, 0)], Some(0))],
        writers: Vec::new(),
        readers: Vec::new(),
        snapshots: Vec::new(),
        budget,
        attempts: 2,
        has_former_leaders: false,
        readers_ask: true,
        in_advance: false,
        next: false,
        shares_entries: false,
    }
}

/// Two transactions over the same rows, with different homes.
fn two(name: &'static str, budget: Budget) -> Scenario {
    let second = (vec![(0, 0, 4, 0), (1, 0, 8, 0)], Some(1));
    let first = one(name, budget);
    Scenario { transactions: vec![first.transactions[0].clone(), second], ..first }
}

/// One transaction over three tablets.
fn over_three(name: &'static str, budget: Budget) -> Scenario {
    let parts = vec![(0, 0, 1, 0), (1, 0, 2, 0), (2, 0, 4, 0)];
    Scenario { tablets: 3, transactions: vec![(parts, Some(1))], ..one(name, budget) }
}

/// Three transactions, each over two of three tablets, which could wait for each other in a circle.
fn circle(name: &'static str, budget: Budget, first: Option<usize>) -> Scenario {
    let parts = |one, other| vec![(one, 0, 1, 0), (other, 0, 2, 0)];
    let transactions = vec![(parts(0, 1), first), (parts(1, 2), first), (parts(0, 2), first.map(|_| 1))];
    Scenario { tablets: 3, transactions, ..one(name, budget) }
}

/// Two transactions over four tablets that need the same two tablets beside their homes.
fn crossing(name: &'static str, budget: Budget) -> Scenario {
    let parts = |home| vec![(home, 0, 1, 0), (2, 0, 2, 0), (3, 0, 4, 0)];
    Scenario { tablets: 4, transactions: vec![(parts(0), None), (parts(1), None)], ..one(name, budget) }
}

/// One transaction, and a write that is none to one of its rows.
fn written(name: &'static str, budget: Budget, tablet: usize) -> Scenario {
    Scenario { writers: vec![(tablet, 0)], ..one(name, budget) }
}

/// One transaction, and a reader of each of its rows.
fn read(name: &'static str, budget: Budget) -> Scenario {
    Scenario { readers: vec![(0, 0), (1, 0)], ..one(name, budget) }
}

/// A transaction over three tablets whose home has the slowest clock, and a read of some of its rows at one stamp.
fn pinned(name: &'static str, budget: Budget, tablets: &[usize], first_us: i64, rounds: u32) -> Scenario {
    let over_three = over_three(name, budget);
    let transactions = vec![(over_three.transactions[0].0.clone(), Some(0))];
    Scenario { transactions, snapshots: vec![(tablets.to_vec(), first_us, rounds)], ..over_three }
}

/// As [`pinned`], with a transaction over two tablets.
fn pinned_of_two(name: &'static str, budget: Budget, tablets: &[usize], first_us: i64, rounds: u32) -> Scenario {
    Scenario { snapshots: vec![(tablets.to_vec(), first_us, rounds)], ..one(name, budget) }
}

/// A read of the participant, whose clock is behind that of the home.
fn pinned_behind(name: &'static str, budget: Budget) -> Scenario {
    let behind = pinned_of_two(name, budget, &[0], 5, 1);
    Scenario { transactions: vec![(behind.transactions[0].0.clone(), Some(1))], ..behind }
}

/// Requests may reach the replica that led before.
fn misrouted(scenario: Scenario) -> Scenario {
    Scenario { has_former_leaders: true, ..scenario }
}

/// Readers of its tables do not ask what has become of what is prepared.
fn logged(scenario: Scenario) -> Scenario {
    Scenario { readers_ask: false, ..scenario }
}

/// The first attempts have ids in advance.
fn in_advance(scenario: Scenario) -> Scenario {
    Scenario { in_advance: true, ..scenario }
}

/// Steps that are appended one after the other share an entry.
fn shared(scenario: Scenario) -> Scenario {
    Scenario { shares_entries: true, ..scenario }
}

/// Two transactions over different rows of the same tablets, with different homes.
fn beside(name: &'static str, budget: Budget) -> Scenario {
    let second = (vec![(0, 1, 4, 0), (1, 1, 8, 0)], Some(1));
    let first = one(name, budget);
    Scenario { transactions: vec![first.transactions[0].clone(), second], ..first }
}

/// Two transactions of one home, one after the other.
fn next(name: &'static str, budget: Budget) -> Scenario {
    let first = one(name, budget);
    let second = (vec![(0, 0, 4, 0), (1, 0, 8, 0)], Some(0));
    Scenario { transactions: vec![first.transactions[0].clone(), second], next: true, ..first }
}

/// Each bug, and a scenario in which it has to be found.
fn bugs() -> Vec<(Planted, Scenario)> {
    let none = Planted::default();
    vec![
        (Planted { finish_before_commit: true, ..none }, one("finish before commit", budget(0, 0, 0, 0))),
        (Planted { forget_before_all_finished: true, ..none }, over_three("forget early", budget(0, 0, 1, 0))),
        (Planted { status_without_lease: true, ..none }, misrouted(one("status without lease", budget(0, 1, 1, 0)))),
        (Planted { finish_without_lease: true, ..none }, misrouted(one("finish without lease", budget(0, 1, 1, 0)))),
        (Planted { commit_without_lease: true, ..none }, misrouted(one("commit without lease", budget(1, 1, 0, 0)))),
        (Planted { write_before_ready: true, ..none }, written("write before ready", budget(0, 1, 0, 0), 1)),
        (Planted { status_before_ready: true, ..none }, one("status before ready", budget(0, 1, 1, 0))),
        (Planted { reservation_survives: true, ..none }, one("reservation survives", budget(0, 1, 1, 0))),
        (Planted { commit_below_prepares: true, ..none }, one("commit below prepares", budget(0, 0, 0, 0))),
        (Planted { write_through_lock: true, ..none }, written("write through lock", budget(0, 0, 0, 0), 1)),
        (Planted { evaluate_in_flight: true, ..none }, written("evaluate in flight", budget(0, 0, 0, 0), 0)),
        (Planted { any_prepare_is_covered: true, ..none }, one("any prepare is covered", budget(1, 0, 1, 0))),
        (Planted { believe_late_answers: true, ..none }, one("late answers", budget(1, 0, 2, 1))),
        (Planted { forget_young_records: true, ..none }, one("young records", budget(1, 0, 2, 0))),
        (Planted { wait_out_of_order: true, ..none }, crossing("out of order", budget(0, 0, 0, 0))),
        (Planted { never_ask: true, ..none }, one("never ask", budget(1, 0, 0, 0))),
        (Planted { believe_promises: true, ..none }, pinned_of_two("promises", budget(0, 1, 0, 0), &[0, 1], 25, 1)),
        (Planted { promise_not_logged: true, ..none }, pinned_of_two("transfer", budget(0, 1, 0, 0), &[0, 1], 25, 1)),
        (Planted { resolve_without_stamp: true, ..none }, pinned("no stamp", budget(0, 0, 0, 0), &[1, 2], 25, 1)),
        (Planted { finish_below_commit: true, ..none }, pinned_behind("finish below", budget(0, 0, 0, 0))),
        (Planted { believe_aborted: true, ..none }, pinned_of_two("forgotten", budget(0, 0, 1, 0), &[1], 12, 1)),
        (Planted { miss_later_commits: true, ..none }, pinned("later commits", budget(0, 0, 0, 0), &[1], 15, 1)),
        (Planted { answer_before_finished: true, ..none }, logged(one("answer early", budget(0, 0, 0, 0)))),
        (Planted { aborted_while_in_advance: true, ..none }, in_advance(one("aborted in advance", budget(0, 0, 1, 0)))),
        (Planted { any_number_is_in_advance: true, ..none }, in_advance(one("any number", budget(1, 0, 1, 0)))),
        (Planted { number_of_another_term: true, ..none }, next("another term", budget(1, 1, 0, 0))),
        (Planted { wait_at_the_commit: true, ..none }, in_advance(two("wait at the commit", budget(0, 0, 0, 0)))),
        (Planted { aborted_while_reserved: true, ..none }, one("aborted while reserved", budget(0, 0, 1, 0))),
        (Planted { unlock_at_the_end: true, ..none }, shared(two("unlock at the end", budget(0, 0, 0, 0)))),
    ]
}

/// A transaction with a condition that holds only after a write that is none.
fn conditional(name: &'static str, budget: Budget) -> Scenario {
    let transactions = vec![(vec![(0, 0, 1, 0), (1, 0, 2, 50)], Some(0))];
    Scenario { transactions, ..written(name, budget, 1) }
}

/// What is explored each time.
fn short() -> Vec<Scenario> {
    vec![
        one("two faults, a sweep", budget(2, 0, 1, 0)),
        one("three faults", budget(3, 0, 0, 0)),
        one("a fault, a change of leader", budget(1, 1, 0, 0)),
        one("a fault, two sweeps, a jump", budget(1, 0, 2, 1)),
        misrouted(one("a former leader is asked", budget(1, 1, 0, 0))),
        over_three("three tablets, a fault", budget(1, 0, 0, 0)),
        over_three("three tablets, a sweep, a jump", budget(0, 0, 1, 1)),
        two("two transactions, a sweep", budget(0, 0, 1, 0)),
        circle("three transactions in order", budget(0, 0, 0, 0), None),
        crossing("two transactions in order over four tablets", budget(0, 0, 0, 0)),
        logged(one("a batch, two faults, a sweep", budget(2, 0, 1, 0))),
        logged(one("a batch, a fault, a change of leader", budget(1, 1, 0, 0))),
        logged(over_three("a batch over three tablets, a fault", budget(1, 0, 0, 0))),
        misrouted(logged(one("a batch, a former leader is asked", budget(1, 1, 0, 0)))),
        conditional("a condition, a fault", budget(1, 0, 0, 0)),
        conditional("a condition, a change of leader", budget(0, 1, 0, 0)),
        written("a write at home, a change of leader", budget(0, 1, 0, 0), 0),
        read("two readers, a fault", budget(1, 0, 0, 0)),
        read("two readers, a sweep", budget(0, 0, 1, 0)),
        in_advance(one("in advance, two faults, a sweep", budget(2, 0, 1, 0))),
        in_advance(one("in advance, a fault, a change of leader", budget(1, 1, 0, 0))),
        in_advance(one("in advance, a fault, two sweeps, a jump", budget(1, 0, 2, 1))),
        next("one after the other, a change of leader", budget(0, 1, 0, 0)),
        next("one after the other, a fault", budget(1, 0, 0, 0)),
        in_advance(misrouted(one("in advance, a former leader is asked", budget(1, 1, 0, 0)))),
        in_advance(over_three("in advance, three tablets, a sweep, a jump", budget(0, 0, 1, 1))),
        in_advance(two("in advance, two transactions, a sweep", budget(0, 0, 1, 0))),
        in_advance(logged(one("in advance, a batch, a fault, a change of leader", budget(1, 1, 0, 0)))),
        in_advance(conditional("in advance, a condition, a fault", budget(1, 0, 0, 0))),
        in_advance(written("in advance, a write at home, a change of leader", budget(0, 1, 0, 0), 0)),
        in_advance(read("in advance, two readers, a sweep", budget(0, 0, 1, 0))),
        in_advance(pinned("in advance, a read at one stamp", budget(0, 0, 0, 0), &[1, 2], 21, 2)),
        in_advance(pinned_of_two("in advance, a read at one stamp, a sweep", budget(0, 0, 1, 0), &[0, 1], 11, 2)),
        shared(beside("shared entries, a fault", budget(1, 0, 0, 0))),
        shared(in_advance(beside("shared entries, in advance", budget(0, 0, 0, 0)))),
        shared(two("shared entries, the same rows, a sweep", budget(0, 0, 1, 0))),
        shared(written("shared entries, a write, a change of leader", budget(0, 1, 0, 0), 1)),
        shared(pinned_of_two("shared entries, a read at one stamp, a sweep", budget(0, 0, 1, 0), &[0, 1], 11, 2)),
        pinned("a read at one stamp", budget(0, 0, 0, 0), &[1, 2], 21, 2),
        pinned_of_two("a read at one stamp, a sweep", budget(0, 0, 1, 0), &[0, 1], 11, 2),
        pinned_of_two("a read at one stamp, a fault", budget(1, 0, 0, 0), &[0, 1], 25, 1),
    ]
}

/// What is explored for a release: minutes.
fn long() -> Vec<Scenario> {
    vec![
        one("a fault, a change of leader, a sweep, a jump", budget(1, 1, 1, 1)),
        one("a fault, two changes of leader", budget(1, 2, 0, 0)),
        in_advance(one("in advance, a fault, a change of leader, a sweep, a jump", budget(1, 1, 1, 1))),
        in_advance(one("in advance, a fault, two changes of leader", budget(1, 2, 0, 0))),
        in_advance(over_three("in advance, three tablets, a change of leader", budget(0, 1, 0, 0))),
        in_advance(two("in advance, two transactions, a fault", budget(1, 0, 0, 0))),
        in_advance(two("in advance, two transactions, a change of leader", budget(0, 1, 0, 0))),
        in_advance(circle("in advance, three transactions", budget(0, 0, 0, 0), Some(0))),
        in_advance(read("in advance, two readers, a change of leader", budget(0, 1, 0, 0))),
        shared(beside("shared entries, two faults", budget(2, 0, 0, 0))),
        shared(beside("shared entries, a change of leader", budget(0, 1, 0, 0))),
        shared(in_advance(two("shared entries, the same rows, in advance, a fault", budget(1, 0, 0, 0)))),
        Scenario {
            snapshots: vec![(vec![0, 1], 14, 1)],
            ..shared(beside("shared entries, a read", budget(0, 0, 0, 0)))
        },
        over_three("three tablets, a change of leader", budget(0, 1, 0, 0)),
        logged(one("a batch, a fault, a change of leader, a sweep, a jump", budget(1, 1, 1, 1))),
        two("two transactions, a fault", budget(1, 0, 0, 0)),
        two("two transactions, a change of leader", budget(0, 1, 0, 0)),
        circle("three transactions, first in parallel", budget(0, 0, 0, 0), Some(0)),
        circle("three transactions in order, a fault", budget(1, 0, 0, 0), None),
        read("two readers, a change of leader", budget(0, 1, 0, 0)),
        pinned("a read of all three tablets", budget(0, 0, 0, 0), &[0, 1, 2], 22, 1),
        Scenario { snapshots: vec![(vec![0, 1], 14, 1)], ..two("two transactions, a read", budget(0, 0, 0, 0)) },
        written("a write at a participant, a fault, a change of leader", budget(1, 1, 0, 0), 1),
    ]
}

/// Explores scenarios, prints how many states each has, and returns what clients were answered.
fn explore_all(scenarios: Vec<Scenario>) -> Reached {
    let mut reached = Reached::default();
    let mut states = 0;
    for scenario in scenarios {
        match scenario.explore(Planted::default(), false) {
            Ok((explored, of_scenario)) => {
                println!("{}: {explored:?}", scenario.name);
                states += explored.states;
                reached.extend(of_scenario);
            }
            Err((broken, schedule)) => panic!("{}: {broken}, after {schedule:?}", scenario.name),
        }
    }
    println!("{states} states, and clients were answered {reached:?}");
    reached
}

#[test]
fn invariants_hold_in_every_state() {
    let reached = explore_all(short());
    let all = ["Applied", "ConditionFailed", "Conflict", "Unavailable", "Unknown", "read of a staged row", "snapshot"];
    assert_eq!(reached, Reached::from(all), "the scenarios reach everything");
}

#[test]
#[ignore = "minutes: run before a change of the protocol is merged"]
fn invariants_hold_in_every_state_of_larger_scenarios() {
    explore_all(long());
}

#[test]
fn every_bug_is_found_and_nothing_without_it() {
    let all = format!("{:?}", Planted::default()).matches("false").count();
    assert_eq!(bugs().len(), all, "a bug without a scenario");
    let mut states = 0;
    for (planted, scenario) in bugs() {
        let found = scenario.explore(planted, false);
        let (broken, schedule) = found.err().unwrap_or_else(|| panic!("{} is not found", scenario.name));
        println!("{}: {broken}, after {} moves", scenario.name, schedule.len());
        let (explored, _) = scenario
            .explore(Planted::default(), false)
            .unwrap_or_else(|(broken, _)| panic!("{}: {broken}, without the bug", scenario.name));
        states += explored.states;
    }
    println!("{states} states without the bugs");
}

#[test]
fn a_row_that_is_read_before_its_lock_is_looked_at_is_found() {
    let scenario = read("read before look", budget(0, 0, 0, 0));
    let (broken, _) = scenario.explore(Planted::default(), true).expect_err("a stale read");
    assert!(broken.contains("a read of row 0"), "{broken}");
    assert!(scenario.explore(Planted::default(), false).is_ok());
}
