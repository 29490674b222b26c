//! The order of the conditions and operations of a write to one tablet, where it makes a difference.
//!
//! Always true: recording it costs nothing for a single statement without a condition. The statements of a transaction
//! block follow one another, and so do those of a batch with arithmetic, whose conditions are about what was there
//! before it. Left out: running programs ([`crate::program`]).

use crate::program::{Program, ProgramOperation, RowCondition, Turn};
use diorite_model::key::{RowKind, kind_of};
use std::collections::HashSet;

/// See the top of this module.
#[derive(Debug, Default)]
pub(super) struct Order {
    conditions: Vec<Tested>,
    /// Where the operations of statements after the first one begin.
    starts: Vec<usize>,
}

/// The turn of a condition.
#[derive(Debug, Clone, Copy)]
struct Tested {
    /// It comes before this operation.
    before: usize,
    /// It ends in `ELSE ERROR`.
    is_error: bool,
}

impl Order {
    /// Begins a statement, whose first operation has this number.
    pub(super) fn begin(&mut self, begins_at: usize) {
        if begins_at > 0 && self.starts.last() != Some(&begins_at) {
            self.starts.push(begins_at);
        }
    }

    /// Adds a condition that comes before this operation.
    pub(super) fn condition(&mut self, before: usize, is_error: bool) {
        self.conditions.push(Tested { before, is_error });
    }

    /// Whether the statements of a program see those before them. Those of a batch without arithmetic do not, whatever
    /// indexes and views the table has.
    pub(super) fn is_in_turns(&self, program: &Program, is_block: bool) -> bool {
        let operations = &program.operations;
        let sums = operations.iter().any(|operation| matches!(operation, ProgramOperation::Sum { .. }));
        sums || is_block && self.follows(operations)
    }

    /// The turns of a program; `None` if all its parts may see the tablet as it was before.
    pub(super) fn turns(&self, program: &Program, is_block: bool) -> Option<Vec<Turn>> {
        if !self.is_in_turns(program, is_block) {
            return None;
        }
        let operations = &program.operations;
        let mut conditions = self.conditions.iter().peekable();
        let mut starts = self.starts.iter().peekable();
        let mut turns = Vec::with_capacity(self.conditions.len() + operations.len());
        for at in 0..=operations.len() {
            let mut begins = starts.next_if(|start| **start == at).is_some() || at == 0;
            while let Some(tested) = conditions.next_if(|tested| tested.before <= at) {
                turns.push(if tested.is_error { Turn::ConditionElseError } else { Turn::Condition });
                begins = true;
            }
            if at < operations.len() {
                turns.push(if begins { Turn::Operation } else { Turn::SameStatement });
            }
        }
        Some(turns)
    }

    /// For each condition, whether it sees the tablet as it was: no statement before it changes what it reads.
    pub(super) fn see_what_was(&self, program: &Program) -> Vec<bool> {
        let sees_what_was = |(tested, condition): (&Tested, &RowCondition)| {
            let mut before = program.operations.iter().take(tested.before);
            !before.any(|operation| may_change(operation, condition))
        };
        self.conditions.iter().zip(&program.conditions).map(sees_what_was).collect()
    }

    /// Whether the statements of a block have to follow one another: not if there is one, nor if each writes other
    /// rows.
    fn follows(&self, operations: &[ProgramOperation]) -> bool {
        !self.conditions.is_empty() || !self.are_apart(operations)
    }

    /// Whether there is one statement, or each writes other rows.
    fn are_apart(&self, operations: &[ProgramOperation]) -> bool {
        let mut seen: HashSet<&[u8], ahash::RandomState> = HashSet::default();
        self.starts.is_empty()
            || operations.iter().all(|operation| match operation {
                ProgramOperation::Row { key, .. } => seen.insert(key),
                _ => false,
            })
    }
}

/// Whether an operation may change what a condition reads: its row, or the static row of the partition.
fn may_change(operation: &ProgramOperation, condition: &RowCondition) -> bool {
    let (place, partition_len) = (operation.place(), condition.partition.len());
    place.starts_with(&condition.partition)
        && (matches!(operation, ProgramOperation::Delete { .. })
            || place[partition_len..] == condition.row[..]
            || kind_of(place, partition_len) != Ok(RowKind::Regular))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Maintained, RowTest};

    fn row(key: u8) -> ProgramOperation {
        let key = vec![key];
        ProgramOperation::Row { is_overwrite: false, is_stamped: true, is_unplaced: false, key, value: Vec::new() }
    }

    fn program(operations: Vec<ProgramOperation>) -> Program {
        Program { operations, ..Program::default() }
    }

    #[test]
    fn only_what_could_tell_the_difference_has_turns() {
        let mut order = Order::default();
        order.begin(0);
        let deletion = ProgramOperation::Delete { partition: vec![1], range: None, explicit_us: None };
        assert_eq!(order.turns(&program(vec![row(1), row(2), row(1), deletion.clone()]), true), None, "one statement");
        order.begin(2);
        assert_eq!(order.turns(&program(vec![row(1), row(2), row(3)]), true), None, "other rows");
        assert_eq!(order.turns(&program(vec![row(1), row(2), row(1)]), false), None, "no block");
        let maintained = Some(Maintained::default());
        let maintaining = Program { maintained, ..program(vec![row(1), row(2), row(1), deletion.clone()]) };
        assert_eq!(order.turns(&maintaining, false), None, "a batch is one, whatever the table has");
        let operation = Turn::Operation;
        let turns = vec![operation, Turn::SameStatement, operation];
        assert_eq!(order.turns(&program(vec![row(1), row(2), row(1)]), true), Some(turns.clone()));
        assert_eq!(order.turns(&program(vec![row(1), row(2), deletion]), true), Some(turns));
        order.condition(2, true);
        order.begin(3);
        order.condition(3, false);
        let turns = vec![operation, Turn::SameStatement, Turn::ConditionElseError, operation, Turn::Condition];
        assert_eq!(order.turns(&program(vec![row(1), row(2), row(3)]), true), Some(turns));
    }

    #[test]
    fn a_condition_after_a_change_of_its_row_does_not_see_what_was() {
        let regular = RowKind::Regular as u8;
        let row = |partition: u8, clustering: u8| ProgramOperation::Row {
            is_overwrite: false,
            is_stamped: true,
            is_unplaced: false,
            key: vec![partition, regular, clustering],
            value: Vec::new(),
        };
        let condition = |partition: u8, clustering: u8| RowCondition {
            partition: vec![partition],
            row: vec![regular, clustering],
            test: RowTest::Exists,
        };
        let mut order = Order::default();
        order.condition(0, true);
        order.condition(1, true);
        order.condition(1, true);
        order.condition(2, true);
        let deletion = ProgramOperation::Delete { partition: vec![2], range: None, explicit_us: None };
        let conditions = vec![condition(1, 1), condition(1, 1), condition(1, 2), condition(2, 1)];
        let program = Program { conditions, operations: vec![row(1, 1), deletion, row(2, 1)], ..Program::default() };
        assert_eq!(order.see_what_was(&program), [true, false, true, false]);
    }
}
