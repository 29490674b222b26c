//! Prepares the operations of a program that all have one timestamp: those of a batch, which do not see each other.
//!
//! Always true: nothing is stored that a deletion of the same program covers. Left out: programs whose parts follow one
//! another ([`crate::exec::turns`]).

use crate::program::{Program, ProgramOperation, deleted};
use std::collections::{HashMap, HashSet};

/// Several writes of one row in a batch have the same timestamp: they are merged, in any order, so none of them may
/// overwrite the row, and a deletion of a range wins over all of them. What programs write in turns is merged in any case.
pub(super) fn write_together(program: &mut Program) {
    if program.turns.is_some() {
        program.operations.iter_mut().for_each(merge_instead);
    } else if program.operations.len() > 1 {
        drop_covered(program);
        merge_repeated(program);
    }
}

/// Drops what a deletion of a range covers. A replica writes the deletion to the header of the partition, and removes what
/// is stored in the range; a row that is written after that would be hidden only as long as the header is kept, and would
/// come back once it is purged.
fn drop_covered(program: &mut Program) {
    let ranges = deleted_ranges(&program.operations);
    if ranges.is_empty() {
        return;
    }
    let is_covered = |key: &[u8]| {
        let after = ranges.partition_point(|(start, _)| start.as_slice() <= key);
        after.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|(_, end)| key < end.as_slice())
    };
    program.operations.retain(|operation| match operation {
        ProgramOperation::Row { key, is_stamped: true, .. }
        | ProgramOperation::List { key, explicit_us: None, .. }
        | ProgramOperation::Document { key, explicit_us: None, .. } => !is_covered(key),
        _ => true,
    });
}

/// The ranges that operations without a timestamp of their own delete, in order, none overlapping the next.
fn deleted_ranges(operations: &[ProgramOperation]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let of_deletion = |operation: &ProgramOperation| match operation {
        ProgramOperation::Delete { partition, range, explicit_us: None } => Some(deleted(partition, range.as_ref())),
        _ => None,
    };
    let mut found: Vec<(Vec<u8>, Vec<u8>)> = operations.iter().filter_map(of_deletion).collect();
    found.sort_unstable();
    let mut ranges: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(found.len());
    for (start, end) in found {
        match ranges.last_mut() {
            Some((_, last)) if start <= *last => {
                if end > *last {
                    *last = end;
                }
            }
            _ => ranges.push((start, end)),
        }
    }
    ranges
}

fn merge_repeated(program: &mut Program) {
    let mut seen: HashMap<&[u8], usize, ahash::RandomState> =
        HashMap::with_capacity_and_hasher(program.operations.len(), ahash::RandomState::default());
    for operation in &program.operations {
        if let ProgramOperation::Row { key, .. } = operation {
            *seen.entry(key).or_default() += 1;
        }
    }
    if seen.values().all(|count| *count == 1) {
        return;
    }
    let repeated: HashSet<Vec<u8>, ahash::RandomState> =
        seen.into_iter().filter(|(_, count)| *count > 1).map(|(key, _)| key.to_vec()).collect();
    for operation in &mut program.operations {
        if let ProgramOperation::Row { key, is_overwrite, .. } = operation
            && repeated.contains(key)
        {
            *is_overwrite = false;
        }
    }
}

/// Lets an operation be merged with the row, which it would have overwritten.
fn merge_instead(operation: &mut ProgramOperation) {
    if let ProgramOperation::Row { is_overwrite, .. } = operation {
        *is_overwrite = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(partition: &[u8], row: &[u8], is_stamped: bool) -> ProgramOperation {
        let (_, mut key) = deleted(partition, Some(&(Vec::new(), Vec::new())));
        key.extend_from_slice(row);
        ProgramOperation::Row { is_overwrite: true, is_stamped, is_unplaced: false, key, value: Vec::new() }
    }

    fn deletion(partition: &[u8], range: Option<(&[u8], &[u8])>, explicit_us: Option<i64>) -> ProgramOperation {
        let range = range.map(|(start, end)| (start.to_vec(), end.to_vec()));
        ProgramOperation::Delete { partition: partition.to_vec(), range, explicit_us }
    }

    fn left(operations: Vec<ProgramOperation>) -> Vec<ProgramOperation> {
        let mut program = Program { operations, ..Program::default() };
        write_together(&mut program);
        program.operations
    }

    #[test]
    fn nothing_is_written_that_a_deletion_of_the_batch_covers() {
        let (one, other) = (b"partition".as_slice(), b"qartition".as_slice());
        let whole = deletion(one, None, None);
        let elsewhere = row(other, b"a", true);
        let kept = vec![whole.clone(), elsewhere.clone()];
        for order in [
            vec![row(one, b"a", true), whole.clone(), elsewhere.clone()],
            vec![whole.clone(), row(one, b"a", true), elsewhere.clone()],
        ] {
            assert_eq!(left(order), kept);
        }
        let ranges = [deletion(one, Some((b"b", b"d")), None), deletion(one, Some((b"c", b"f")), None)];
        let rows = ["a", "b", "e", "f"].map(|name| row(one, name.as_bytes(), true));
        let all: Vec<_> = rows.iter().chain(&ranges).cloned().collect();
        assert_eq!(left(all), [&rows[..1], &rows[3..], &ranges[..]].concat());
    }

    #[test]
    fn what_has_a_timestamp_of_its_own_is_decided_by_that() {
        let partition = b"partition".as_slice();
        let by_client = vec![row(partition, b"a", false), deletion(partition, None, None)];
        assert_eq!(left(by_client.clone()), by_client);
        let deleted_by_client = vec![row(partition, b"a", true), deletion(partition, None, Some(7))];
        assert_eq!(left(deleted_by_client.clone()), deleted_by_client);
        let mut in_turns = Program { operations: vec![row(partition, b"a", true)], ..Program::default() };
        in_turns.operations.push(deletion(partition, None, None));
        in_turns.turns = Some(Vec::new());
        write_together(&mut in_turns);
        assert_eq!(in_turns.operations.len(), 2);
    }
}
