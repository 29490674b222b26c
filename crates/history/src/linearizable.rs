//! Checks whether each key of a history behaved like one register that is read, written, and compared and set, one
//! operation at a time.
//!
//! Keys are independent (linearizability composes), so each is checked alone ([`crate::key`]). Always true: every key
//! begins absent; a definite violation of one key is reported before another key's "undecided".

use crate::excerpt::shrink;
use crate::key::{Verdict, check_key};
use crate::operation::Operation;
use crate::prepare::Failure;
use crate::violation::Violation;
use std::collections::BTreeMap;

/// The configurations that [`check_linearizable`] may visit per key: a few hundred megabytes at most.
const BUDGET: usize = 2_000_000;

/// Checks every key of a history; the order of `operations` does not matter.
pub fn check_linearizable(operations: &[Operation]) -> Result<(), Violation> {
    check_linearizable_within(operations, BUDGET)
}

/// As [`check_linearizable`], visiting at most `budget` configurations per key.
pub fn check_linearizable_within(operations: &[Operation], budget: usize) -> Result<(), Violation> {
    let mut keys: BTreeMap<u64, Vec<Operation>> = BTreeMap::new();
    for operation in operations {
        if operation.end_ns.is_some_and(|end_ns| end_ns < operation.start_ns) {
            return Err(Violation::Malformed(format!("an operation ends before it starts: {operation}")));
        }
        keys.entry(operation.key).or_default().push(*operation);
    }
    let mut undecided = None;
    for (key, mut operations) in keys {
        operations.sort_by_key(|operation| operation.start_ns);
        match check_key(&operations, budget) {
            Ok(()) => {}
            Err(Verdict::Undecided) => undecided = undecided.or(Some(Violation::Undecided { key, budget })),
            Err(verdict) => return Err(explain(key, operations, verdict, budget)),
        }
    }
    undecided.map_or(Ok(()), Err)
}

fn explain(key: u64, operations: Vec<Operation>, verdict: Verdict, budget: usize) -> Violation {
    match verdict {
        Verdict::Undecided => Violation::Undecided { key, budget },
        Verdict::Contradiction(Failure { reason, witnesses }) => {
            let mut excerpt: Vec<Operation> = witnesses.into_iter().map(|place| operations[place]).collect();
            excerpt.sort_by_key(|operation| operation.start_ns);
            Violation::NotLinearizable { key, reason, excerpt }
        }
        Verdict::NoOrder(place) => {
            let last = operations[place];
            let excerpt = shrink(operations, last.end_ns, budget);
            let reason = "no order of these operations agrees with all answers and with real time".to_owned();
            Violation::NotLinearizable { key, reason, excerpt }
        }
    }
}
