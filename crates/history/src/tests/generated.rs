//! Histories of a real register: each operation takes effect at one moment within its interval, some answers are lost,
//! some operations too. These histories are always accepted. Then one answer is changed, and the verdict is compared
//! with brute force.

use super::brute_force::has_order;
use crate::operation::{Action, Operation, Value};
use crate::{Violation, check_linearizable};
use diorite_base::random::{Random, SplitMix64};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The shape of a random history.
pub struct Shape {
    pub operations: u64,
    pub values: u64,
    pub time_ns: u64,
    pub is_unique: bool,
}

/// The behaviour of a simulated cluster and its clients.
pub struct Life {
    pub keys: u64,
    pub clients: u64,
    pub operations: u64,
    /// The share of operations with an unknown outcome, percent.
    pub unknown: u64,
    /// Values from this range; `None`: every value is written once.
    pub values: Option<u64>,
    /// Whether compare-and-sets that were not applied are recorded as such, or as the equivalent reads.
    pub conflicts: bool,
}

struct Planned {
    operation: Operation,
    effect_ns: u64,
    happens: bool,
}

/// Clients with one request at a time, each of which takes effect at a moment before its answer (or long after, if its
/// outcome stays unknown).
fn plan(random: &mut SplitMix64, life: &Life) -> Vec<Planned> {
    let mut now_ns = vec![0; life.clients as usize];
    let mut planned = Vec::new();
    for number in 0..life.operations {
        let client = random.below(life.clients);
        let start_ns = now_ns[client as usize] + random.below(200);
        let effect_ns = start_ns + random.below(1_000);
        let end_ns = effect_ns + random.below(1_000);
        now_ns[client as usize] = end_ns + 1;
        let value = |random: &mut SplitMix64, fresh| match life.values {
            Some(values) => random.below(values + 1).checked_sub(1),
            None => Some(fresh),
        };
        let action = match random.below(10) {
            0..4 => Action::Read(None),
            4..7 => Action::Write(value(random, number)),
            _ => Action::CompareAndSet { expected: None, new: value(random, number), applied: None },
        };
        let is_known = random.below(100) >= life.unknown;
        let late_ns = if is_known || random.below(2) == 0 { 0 } else { random.below(life.operations * 100) };
        let operation = Operation {
            key: random.below(life.keys),
            client: client as u32,
            start_ns,
            end_ns: is_known.then_some(end_ns),
            action,
        };
        planned.push(Planned { operation, effect_ns: effect_ns + late_ns, happens: is_known || random.below(3) > 0 });
    }
    planned
}

/// Applies the operations in the order of these moments.
pub fn live(random: &mut SplitMix64, life: &Life) -> Vec<Operation> {
    let mut planned = plan(random, life);
    planned.sort_by_key(|plan| plan.effect_ns);
    let mut states: BTreeMap<u64, Value> = BTreeMap::new();
    let mut history = Vec::new();
    for Planned { mut operation, happens, .. } in planned {
        let state = states.entry(operation.key).or_insert(None);
        let is_known = operation.end_ns.is_some();
        match &mut operation.action {
            Action::Read(_) if !is_known => continue,
            Action::Read(value) => *value = *state,
            Action::Write(value) if happens => *state = *value,
            Action::Write(_) => {}
            Action::CompareAndSet { expected, new, applied } => {
                // Usually the value that the client read last.
                *expected = if random.below(4) > 0 { *state } else { Some(random.below(life.operations)) };
                let applies = *expected == *state;
                *applied = is_known.then_some(applies);
                if applies && happens {
                    *state = *new;
                }
                if is_known && !applies && !life.conflicts {
                    operation.action = Action::Read(*state);
                }
            }
        }
        history.push(operation);
    }
    history
}

fn accepted(seed: u64, life: &Life) {
    let history = live(&mut SplitMix64::new(seed), life);
    if let Err(violation) = check_linearizable(&history) {
        panic!("seed {seed}: {violation}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_a_register_did_is_accepted(
        seed: u64,
        clients in 1..24u64,
        operations in 1..2_000u64,
        unknown in 0..30u64,
        conflicts: bool,
    ) {
        accepted(seed, &Life { keys: 3, clients, operations, unknown, values: None, conflicts });
    }

    #[test]
    fn also_when_values_come_back_and_keys_are_deleted(
        seed: u64,
        clients in 1..8u64,
        operations in 1..400u64,
        unknown in 0..8u64,
        values in 1..4u64,
        conflicts: bool,
    ) {
        accepted(seed, &Life { keys: 2, clients, operations, unknown, values: Some(values), conflicts });
    }
}

#[test]
fn a_changed_read_is_refused_exactly_when_no_order_is_left() {
    let mut random = SplitMix64::new(11);
    let mut verdicts = [0, 0];
    for round in 0..20_000u64 {
        let values = (round % 2 == 0).then_some(2);
        let life =
            Life { keys: 1, clients: 1 + round % 4, operations: 9, unknown: 15, values, conflicts: round % 3 == 0 };
        let mut history = live(&mut random, &life);
        assert!(has_order(&history));
        assert_eq!(check_linearizable(&history), Ok(()));
        let written: Vec<Value> = history.iter().filter_map(Operation::produces).chain([None]).collect();
        let reads: Vec<usize> =
            (0..history.len()).filter(|&place| matches!(history[place].action, Action::Read(_))).collect();
        if reads.is_empty() {
            continue;
        }
        let place = reads[random.below(reads.len() as u64) as usize];
        history[place].action = Action::Read(written[random.below(written.len() as u64) as usize]);
        let expected = has_order(&history);
        verdicts[usize::from(expected)] += 1;
        assert_eq!(check_linearizable(&history).is_ok(), expected, "round {round}");
    }
    assert!(verdicts.iter().all(|count| *count > 2_000), "both verdicts are tried: {verdicts:?}");
}

#[test]
fn half_a_million_operations_of_many_clients_are_decided() {
    let life = Life { keys: 40, clients: 64, operations: 500_000, unknown: 2, values: None, conflicts: false };
    accepted(1, &life);
}

#[test]
fn so_are_those_with_conflicts_that_only_unknown_writes_explain() {
    let life = Life { keys: 60, clients: 16, operations: 60_000, unknown: 2, values: None, conflicts: true };
    accepted(2, &life);
}

#[test]
fn one_stale_read_among_many_operations_is_found_and_shown_in_few_lines() {
    let life = Life { keys: 5, clients: 16, operations: 50_000, unknown: 2, values: None, conflicts: false };
    let mut history = live(&mut SplitMix64::new(5), &life);
    let read = 40_000 + history[40_000..].iter().position(|op| matches!(op.action, Action::Read(Some(_)))).unwrap();
    let of_key = history[..read].iter().filter(|op| op.key == history[read].key && !op.is_unknown());
    let old = of_key.rev().skip(200).find_map(Operation::produces).unwrap();
    history[read].action = Action::Read(old);
    let Err(Violation::NotLinearizable { key, excerpt, .. }) = check_linearizable(&history) else {
        panic!("a stale read was not found");
    };
    assert_eq!(key, history[read].key);
    assert!(excerpt.contains(&history[read]) && excerpt.len() <= 6, "{excerpt:?}");
}
