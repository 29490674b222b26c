//! The definition of linearizability, by brute force: every order of every choice of the operations with unknown
//! outcomes. The checker is compared with it on many small random histories of all kinds, most of them impossible.

use super::generated::Shape;
use crate::operation::{Action, Operation, Value};
use crate::{Violation, check_linearizable};
use diorite_base::random::{Random, SplitMix64};

/// Whether an order exists, by trying all.
pub fn has_order(operations: &[Operation]) -> bool {
    try_orders(operations, 0, None)
}

fn try_orders(operations: &[Operation], done: u32, state: Value) -> bool {
    let is_open = |place: usize| done & (1 << place) == 0;
    let required = |place: usize| is_open(place) && !operations[place].is_unknown();
    if !(0..operations.len()).any(required) {
        return true;
    }
    // The first end limits which operation may come next.
    let bound =
        (0..operations.len()).filter(|&place| required(place)).filter_map(|place| operations[place].end_ns).min();
    (0..operations.len()).filter(|&place| is_open(place)).any(|place| {
        let operation = operations[place];
        bound.is_none_or(|bound| operation.start_ns <= bound)
            && after(state, &operation).is_some_and(|state| try_orders(operations, done | (1 << place), state))
    })
}

fn after(state: Value, operation: &Operation) -> Option<Value> {
    match operation.action {
        Action::Read(value) => (value == state || operation.is_unknown()).then_some(state),
        Action::Write(value) => Some(value),
        Action::CompareAndSet { expected, new, applied } => {
            let would = expected == state;
            applied.is_none_or(|applied| applied == would).then_some(if would { new } else { state })
        }
    }
}

/// Operations with random intervals and answers. If there are few values, several operations write each of them.
fn random_history(random: &mut SplitMix64, shape: &Shape) -> Vec<Operation> {
    let length = 1 + random.below(shape.operations) as usize;
    let mut operations = Vec::new();
    for place in 0..length as u64 {
        let any = |random: &mut SplitMix64| random.below(shape.values + 1).checked_sub(1);
        let fresh = |random: &mut SplitMix64| match shape.is_unique {
            true => Some(place + 10),
            false => random.below(shape.values + 1).checked_sub(1),
        };
        let written: Vec<Value> = operations.iter().filter_map(Operation::produces).chain([None]).collect();
        let seen = match shape.is_unique {
            true => written[random.below(written.len() as u64) as usize],
            false => any(random),
        };
        let action = match random.below(5) {
            0 | 1 => Action::Read(seen),
            2 | 3 => Action::Write(fresh(random)),
            _ => {
                let applied = [Some(true), Some(false), None][random.below(3) as usize];
                Action::CompareAndSet { expected: seen, new: fresh(random), applied }
            }
        };
        let start_ns = random.below(shape.time_ns);
        let end_ns = (random.below(4) > 0).then(|| start_ns + random.below(shape.time_ns / 2 + 1));
        let is_told = !matches!(action, Action::CompareAndSet { applied, .. } if applied.is_none() == end_ns.is_some());
        let end_ns = if is_told { end_ns } else { None };
        let action = match (action, end_ns) {
            (Action::CompareAndSet { expected, new, .. }, None) => {
                Action::CompareAndSet { expected, new, applied: None }
            }
            (action, _) => action,
        };
        operations.push(Operation { key: 1, client: place as u32, start_ns, end_ns, action });
    }
    operations
}

#[test]
fn the_checker_says_what_brute_force_says() {
    let mut random = SplitMix64::new(3);
    let mut verdicts = [0, 0];
    for round in 0..200_000u64 {
        let shape = Shape {
            operations: 3 + round % 6,
            values: 1 + random.below(3),
            time_ns: 4 + random.below(30),
            is_unique: round % 2 == 0,
        };
        let history = random_history(&mut random, &shape);
        let expected = has_order(&history);
        verdicts[usize::from(expected)] += 1;
        let said = check_linearizable(&history);
        let listing = || history.iter().map(|op| format!("{op}\n")).collect::<String>();
        match said {
            Ok(()) => assert!(expected, "accepted, yet impossible:\n{}", listing()),
            Err(Violation::NotLinearizable { excerpt, reason, .. }) => {
                assert!(!expected, "refused, yet possible: {reason}\n{}", listing());
                assert!(!excerpt.is_empty());
            }
            Err(other) => panic!("{other}\n{}", listing()),
        }
    }
    assert!(verdicts.iter().all(|count| *count > 20_000), "both verdicts are tried: {verdicts:?}");
}

#[test]
fn an_excerpt_is_impossible_by_itself() {
    let mut random = SplitMix64::new(4);
    for _ in 0..30_000 {
        let shape = Shape { operations: 8, values: 2, time_ns: 20, is_unique: false };
        let history = random_history(&mut random, &shape);
        if let Err(Violation::NotLinearizable { excerpt, reason, .. }) = check_linearizable(&history)
            && reason.starts_with("no order")
        {
            assert!(!has_order(&excerpt));
        }
    }
}
