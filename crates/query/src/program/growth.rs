//! By how much the operations of a program may let rows, partition headers and indexes grow, and whether it maintains
//! unique indexes and views, for the leader that is to propose it.
//!
//! Always true: no operation adds more than is told here, but for the timestamps that stored elements are given of their own. Left out: conditions, which change
//! nothing.

use super::codec::planned_version;
use super::definition::{ListEdit, PathStep, Program, ProgramOperation};
use diorite_base::limits::MAX_NUMBER_BYTES;
use diorite_base::mutation::{Effect, Growth};
use diorite_base::row_index::RowIndexes;
use diorite_model::types::CqlType;
use diorite_model::{entry, key};

/// What a deletion, an element or a step of a path takes beside its bytes, at most.
const FEW_BYTES: usize = 32;

/// The bytes of index entries that follow from an operation; of one with more than `most`, some number greater than it.
pub(super) fn index_bytes(operation: &ProgramOperation, indexes: &dyn RowIndexes, most: usize) -> usize {
    match operation {
        ProgramOperation::Row { key, value, .. } => indexes.size_bytes(key, value, most),
        // One value of one column.
        ProgramOperation::List { key, edit: ListEdit::Set(_, Some(_)), .. }
        | ProgramOperation::Document { key, .. }
        | ProgramOperation::Sum { key, .. } => indexes.most_bytes(key.len(), 1),
        ProgramOperation::List { .. } | ProgramOperation::Delete { .. } => 0,
    }
}

/// Whether a program may change what a unique index or a view says of a row, and was planned without it.
pub(crate) fn is_unmaintained(program: &[u8], indexes: &dyn RowIndexes) -> bool {
    // The number of an index or a view is the version of the table that had it first.
    let version = planned_version(program);
    if indexes.dependents().last().is_none_or(|newest| version.is_some_and(|version| version >= *newest)) {
        return false;
    }
    // Steps of an index change no rows; what is proposed decodes.
    let Ok(program) = Program::decode(program) else { return false };
    program.operations.iter().any(|operation| match operation {
        ProgramOperation::Row { is_overwrite, value, .. } => *is_overwrite || indexes.concerns_dependents(value),
        ProgramOperation::Delete { .. } => true,
        ProgramOperation::Sum { column, .. }
        | ProgramOperation::List { column, .. }
        | ProgramOperation::Document { column, .. } => indexes.is_watched(*column),
    })
}

/// Calls `see` with the key that an operation writes to.
pub(super) fn of(operation: &ProgramOperation, see: &mut dyn FnMut(Growth<'_>)) {
    match operation {
        ProgramOperation::Row { is_overwrite, is_stamped, key, value, .. } => {
            let effect = if *is_overwrite && *is_stamped { Effect::Replaces } else { entry::effect(value) };
            see(Growth { key, effect, bytes: key.len() + value.len() });
        }
        ProgramOperation::Delete { partition, range, .. } => {
            let mut header = partition.clone();
            key::push_header(&mut header);
            let (effect, bytes) = match range {
                None => (Effect::Shrinks, FEW_BYTES),
                // It may cut another range in two.
                Some((start, end)) => (Effect::Grows, 2 * (start.len() + end.len() + FEW_BYTES)),
            };
            see(Growth { key: &header, effect, bytes });
        }
        ProgramOperation::List { key, edit, .. } => {
            let (effect, bytes) = match edit {
                ListEdit::Set(_, Some(value)) => (Effect::Grows, value.len() + FEW_BYTES),
                // Only elements that are there, of which less stays than they were.
                ListEdit::Set(_, None) | ListEdit::Remove(_) => (Effect::RemovesElements, FEW_BYTES),
            };
            see(Growth { key, effect, bytes });
        }
        ProgramOperation::Document { key, edits, .. } => {
            let step = |step: &PathStep| match step {
                PathStep::Member(name) => name.len() + FEW_BYTES,
                PathStep::Element(_) => FEW_BYTES,
            };
            let edit = |(path, text): &(Vec<PathStep>, Vec<u8>)| text.len() + path.iter().map(step).sum::<usize>();
            see(Growth { key, effect: Effect::Grows, bytes: edits.iter().map(edit).sum::<usize>() + FEW_BYTES });
        }
        ProgramOperation::Sum { key, data_type, .. } => {
            // A sum may be longer than both numbers: decimals are brought to one scale.
            let number_bytes = match data_type {
                CqlType::Varint | CqlType::Decimal => MAX_NUMBER_BYTES,
                _ => size_of::<u64>(),
            };
            see(Growth { key, effect: Effect::Grows, bytes: number_bytes + FEW_BYTES });
        }
    }
}
