//! The rows that a program reads or writes, for locks.
//!
//! Always true: what a program reads or writes is a function of these rows and of its context. A deletion of a
//! partition, or of a range of its rows, is in the partition's header, which every reader of the partition reads.

use super::definition::{Program, ProgramOperation, RowCondition, RowTest, TestTree, Turn, Unchanged};
use diorite_base::mutation::SeeTarget;
use diorite_base::program::{self, Unprovable};
use diorite_model::key;
use diorite_model::row::RowReader;

/// Why a program does not reach the log.
pub(super) fn malformed_row() -> Unprovable {
    Unprovable::Unreadable("a row is malformed".to_owned())
}

/// Decodes a program that is to reach the log: replicas can read it, and whatever it writes.
pub(super) fn admitted(bytes: &[u8]) -> Result<Program, Unprovable> {
    let program = program::decode::<Program>(bytes)?;
    match program.operations.iter().all(ProgramOperation::is_well_formed) {
        true => Ok(program),
        false => Err(malformed_row()),
    }
}

/// Calls `see` with each key, and each range of keys, from its start to before its end.
pub(crate) fn of(program: &Program, see: &mut SeeTarget<'_>) {
    let guards = program.maintained.iter().flat_map(|maintained| &maintained.guards);
    for condition in program.conditions.iter().chain(guards) {
        of_condition(condition, see);
    }
    for operation in &program.operations {
        match operation {
            ProgramOperation::Row { key, .. } => see(key, None),
            ProgramOperation::List { key, .. }
            | ProgramOperation::Document { key, .. }
            | ProgramOperation::Sum { key, .. } => see(key, None),
            ProgramOperation::Delete { partition, range, .. } => {
                let (start, end) = deleted(partition, range.as_ref());
                see(&start, Some(&end));
                let mut header = partition.clone();
                key::push_header(&mut header);
                see(&header, None);
            }
        }
    }
}

/// A condition reads its row, the static row of its partition, or both.
fn of_condition(condition: &RowCondition, see: &mut SeeTarget<'_>) {
    let reads_static = match &condition.test {
        RowTest::Exists | RowTest::NotExists => false,
        RowTest::Columns(columns) => columns.iter().any(|column| column.is_static),
        RowTest::Tree(tree) => has_static(tree),
        RowTest::Unchanged(Unchanged { end: None, .. }) => false,
        RowTest::Unchanged(Unchanged { end: Some(end), .. }) => {
            let whole = |part: &[u8]| [condition.partition.as_slice(), part].concat();
            see(&whole(&condition.row), Some(&whole(end)));
            let mut header = condition.partition.clone();
            key::push_header(&mut header);
            see(&header, None);
            return;
        }
    };
    if reads_static || condition.row.is_empty() {
        let mut static_row = condition.partition.clone();
        key::push_static(&mut static_row);
        see(&static_row, None);
    }
    if !condition.row.is_empty() {
        see(&[condition.partition.as_slice(), &condition.row].concat(), None);
    }
}

fn has_static(tree: &TestTree) -> bool {
    match tree {
        TestTree::Exists => false,
        TestTree::Column(test) => test.is_static,
        TestTree::Not(inner) => has_static(inner),
        TestTree::All(parts) | TestTree::Any(parts) => parts.iter().any(has_static),
    }
}

/// The latest timestamp that the client has given for something that the program writes.
pub(super) fn explicit_us(program: &Program) -> Option<i64> {
    let of_operation = |operation: &ProgramOperation| match operation {
        ProgramOperation::List { explicit_us, .. }
        | ProgramOperation::Document { explicit_us, .. }
        | ProgramOperation::Delete { explicit_us, .. } => *explicit_us,
        ProgramOperation::Row { is_stamped: false, value, .. } => RowReader::new(value).ok().map(|row| row.base_us()),
        ProgramOperation::Row { .. } | ProgramOperation::Sum { .. } => None,
    };
    program.operations.iter().filter_map(of_operation).max()
}

/// A program that does what this one does whose conditions hold.
pub(super) fn without_conditions(mut program: Program) -> Program {
    program.conditions.clear();
    program.maintained.iter_mut().for_each(|maintained| maintained.guards.clear());
    if let Some(turns) = &mut program.turns {
        turns.retain(|turn| matches!(turn, Turn::Operation | Turn::SameStatement));
    }
    program
}

/// The keys that a deletion covers: from the first to the second, exclusive.
pub(crate) fn deleted(partition: &[u8], range: Option<&(Vec<u8>, Vec<u8>)>) -> (Vec<u8>, Vec<u8>) {
    let (mut start, mut end) = (partition.to_vec(), partition.to_vec());
    match range {
        None => {
            key::push_static(&mut start);
            key::push_partition_end(&mut end);
        }
        Some((first, last)) => {
            key::push_row(&mut start);
            start.extend_from_slice(first);
            key::push_row(&mut end);
            end.extend_from_slice(last);
        }
    }
    (start, end)
}
