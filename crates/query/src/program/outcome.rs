//! What a program would change, without changing it.
//!
//! Always true: the changes are those that a replica makes which applies the program with the same timestamp to the
//! same rows, in the same order. Left out: carrying them out.

use super::definition::{Program, ProgramReply};
use super::evaluate::Run;
use diorite_base::mutation::{EvaluationContext, EvaluationFailed, TabletChanges, TabletView};

/// A change of a tablet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The value replaces what is stored.
    Put(Vec<u8>, Vec<u8>),
    /// The value is merged with what is stored.
    Merge(Vec<u8>, Vec<u8>),
    /// A key is removed.
    Delete(Vec<u8>),
    /// The keys from the first to the second, exclusive, are removed.
    DeleteRange(Vec<u8>, Vec<u8>),
    /// Flags of the tablet are set.
    Flags(u64),
    /// Timestamps of the tablet are raised: the greatest of all, and of those that clients gave.
    Stamps(i64, i64),
}

/// The reply of a program, and its changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The reply.
    pub reply: ProgramReply,
    /// The changes, in order; none unless the reply is that it was applied.
    pub changes: Vec<Change>,
}

/// What a program does to the rows of `view`.
///
/// # Errors
/// If the rows cannot be read.
pub fn evaluate(
    program: &Program,
    context: EvaluationContext,
    view: &dyn TabletView,
) -> Result<Outcome, EvaluationFailed> {
    let mut recorded = Recorded::default();
    let reply = Run::new(program, context, view).program(program, &mut recorded)?;
    Ok(Outcome { reply, changes: recorded.0 })
}

#[derive(Default)]
struct Recorded(Vec<Change>);

impl TabletChanges for Recorded {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.0.push(Change::Put(key.to_vec(), value.to_vec()));
    }

    fn merge(&mut self, key: &[u8], value: &[u8]) {
        self.0.push(Change::Merge(key.to_vec(), value.to_vec()));
    }

    fn delete(&mut self, key: &[u8]) {
        self.0.push(Change::Delete(key.to_vec()));
    }

    fn delete_range(&mut self, start: &[u8], end: &[u8]) {
        self.0.push(Change::DeleteRange(start.to_vec(), end.to_vec()));
    }

    fn raise_flags(&mut self, flags: u64) {
        self.0.push(Change::Flags(flags));
    }

    fn raise_stamps(&mut self, newest_us: i64, newest_explicit_us: i64) {
        self.0.push(Change::Stamps(newest_us, newest_explicit_us));
    }
}
