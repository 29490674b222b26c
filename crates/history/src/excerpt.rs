//! Reduces a key's history without a valid order to a small part that has none either, for people to read.
//!
//! An operation is left out only if its absence cannot make a possible history impossible: reads and unapplied
//! compare-and-sets always; all operations that wrote or saw a value together, if no remaining unapplied
//! compare-and-set might have needed that value in between. So the excerpt is a proof by itself. It is small, not
//! minimal, and the work on it is bounded.

use crate::key::{Verdict, check_key};
use crate::operation::{Action, Operation, Value};
use std::collections::BTreeMap;

/// Operations that are checked again, over all attempts.
const MOST_WORK: usize = 4_000_000;

struct Shrinking {
    operations: Vec<Operation>,
    budget: usize,
    work: usize,
}

/// Leaves out operations that a contradiction does not need. `end_ns` is the end of the operation that no order
/// reaches.
pub(crate) fn shrink(operations: Vec<Operation>, end_ns: Option<u64>, budget: usize) -> Vec<Operation> {
    let mut shrinking = Shrinking { operations, budget, work: 0 };
    shrinking.try_without(|operation| end_ns.is_some_and(|end_ns| operation.start_ns > end_ns));
    let is_conflict = |op: &Operation| matches!(op.action, Action::CompareAndSet { applied: Some(false), .. });
    let is_read = |op: &Operation| matches!(op.action, Action::Read(_));
    shrinking.leave_out(|operations| singles(operations, is_conflict));
    if !shrinking.operations.iter().any(is_conflict) {
        shrinking.leave_out(clusters);
    }
    shrinking.leave_out(|operations| singles(operations, is_read));
    shrinking.operations
}

/// A label for each operation that may be left out with all others of its label.
type Labels = Vec<Option<usize>>;

fn singles(operations: &[Operation], choose: impl Fn(&Operation) -> bool) -> Labels {
    operations.iter().enumerate().map(|(place, op)| choose(op).then_some(place)).collect()
}

/// One label for all operations that are tied to each other by the values that they wrote or saw.
fn clusters(operations: &[Operation]) -> Labels {
    let mut owner_of: BTreeMap<Value, usize> = BTreeMap::new();
    let mut parents: Vec<usize> = (0..operations.len()).collect();
    fn root(parents: &mut [usize], mut place: usize) -> usize {
        while parents[place] != place {
            parents[place] = parents[parents[place]];
            place = parents[place];
        }
        place
    }
    for (place, operation) in operations.iter().enumerate() {
        let (first, second) = match operation.action {
            Action::Read(value) | Action::Write(value) => (value, value),
            Action::CompareAndSet { expected, new, .. } => (expected, new),
        };
        for value in [first, second] {
            let owner = *owner_of.entry(value).or_insert(place);
            let (mine, theirs) = (root(&mut parents, place), root(&mut parents, owner));
            parents[mine] = theirs;
        }
    }
    (0..operations.len()).map(|place| Some(root(&mut parents, place))).collect()
}

impl Shrinking {
    /// Keeps the rest if it is still impossible.
    fn try_without(&mut self, leave_out: impl Fn(&Operation) -> bool) -> bool {
        let rest: Vec<Operation> = self.operations.iter().filter(|op| !leave_out(op)).copied().collect();
        self.try_rest(rest)
    }

    fn try_rest(&mut self, rest: Vec<Operation>) -> bool {
        if rest.len() == self.operations.len() || self.work + rest.len() > MOST_WORK {
            return false;
        }
        self.work += rest.len();
        let is_impossible =
            matches!(check_key(&rest, self.budget), Err(Verdict::Contradiction(_) | Verdict::NoOrder(_)));
        if is_impossible {
            self.operations = rest;
        }
        is_impossible
    }

    /// Leaves out labels: many at a time first, then fewer.
    fn leave_out(&mut self, label: impl Fn(&[Operation]) -> Labels) {
        let mut share = 2;
        loop {
            let labels = label(&self.operations);
            let mut names: Vec<usize> = labels.iter().flatten().copied().collect();
            names.sort_unstable();
            names.dedup();
            let chunk = names.len().div_ceil(share);
            if chunk == 0 {
                return;
            }
            let left_out = names.chunks(chunk).any(|chunk| {
                let stays = |name: &Option<usize>| name.is_none_or(|name| chunk.binary_search(&name).is_err());
                let rest = self.operations.iter().zip(&labels).filter(|(_, name)| stays(name)).map(|(op, _)| *op);
                let rest = rest.collect();
                self.try_rest(rest)
            });
            if left_out {
                share = share.saturating_sub(1).max(2);
            } else if chunk == 1 {
                return;
            } else {
                share = (share * 2).min(names.len());
            }
        }
    }
}
