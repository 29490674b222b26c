//! Whether a write takes notice of the unique indexes and the materialized views of its tablet.
//!
//! Always true: a write that was planned without one of them, and may change what it says of a row, is found. Left
//! out: who refuses it (the leader, from the entry of the log on that specifies the index or the view).

use crate::message::Program;
use crate::wire::Call;
use diorite_base::mutation::{Body, Evaluator, Mutation, MutationRef, OperationKind};
use diorite_base::row_index::RowIndexes;

/// Whether a write may change what a unique index or a view says of a row, and was planned without it.
pub fn is_unmaintained(mutation: &Mutation, indexes: &dyn RowIndexes, evaluator: &dyn Evaluator) -> bool {
    if indexes.dependents().is_empty() {
        return false;
    }
    let Ok(decoded) = MutationRef::decode(mutation.as_bytes()) else { return false };
    match decoded.body() {
        // What replaces a row removes values of columns that whoever has planned it may not know.
        Body::Blind(operations) => operations.flatten().any(|operation| {
            operation.kind == OperationKind::Overwrite || indexes.concerns_dependents(operation.value)
        }),
        Body::Evaluated(program) => evaluator.is_unmaintained(program, indexes),
        Body::Request(call) => {
            Call::program_of(call).is_some_and(|Program(program)| evaluator.is_unmaintained(&program, indexes))
        }
        // What was prepared or reserved before.
        Body::Step(_) => false,
    }
}
