//! The evaluator of a tablet's mutations: steps of merges, and what an inner evaluator carries out.
//!
//! Always true: what is no step reaches the inner evaluator unchanged. Left out: the steps' effects ([`super`]).

use super::{MARK, MergeReply, MergeStep, adopts, carry_out};
use diorite_base::mutation::{EvaluationContext, EvaluationFailed, Evaluator, Growth, TabletChanges, TabletView};
use diorite_base::row_index::RowIndexes;

/// Carries out the steps of merges, and passes all other programs to the inner evaluator.
#[derive(Debug, Default, Clone, Copy)]
pub struct Merging<E>(pub E);

impl<E: Evaluator> Evaluator for Merging<E> {
    fn inner(&self) -> Option<&dyn Evaluator> {
        Some(&self.0)
    }

    fn evaluate(
        &self,
        program: &[u8],
        context: EvaluationContext,
        view: &dyn TabletView,
        changes: &mut dyn TabletChanges,
    ) -> Result<Vec<u8>, EvaluationFailed> {
        if program.first() != Some(&MARK) {
            return self.0.evaluate(program, context, view, changes);
        }
        let step = MergeStep::decode(program)
            .map_err(|_| EvaluationFailed("a step of a merge is malformed or of a newer version".to_owned()))?;
        let taken_over = |value: Vec<u8>| self.0.taken_over(&value).unwrap_or(value);
        let takes_over = matches!(step, MergeStep::Finish { .. });
        let adopt = |key: &[u8], value: &[u8], changes: &mut dyn TabletChanges| self.0.adopt(key, value, view, changes);
        let reply = carry_out(step, (&taken_over, &adopt), view, changes)?;
        if takes_over && reply == MergeReply::Done {
            self.0.compare_again(view, changes)?;
        }
        Ok(reply.encode())
    }

    /// Rows that are taken over are not counted: the tablet that they were written to has limited their size.
    fn growth(&self, program: &[u8], see: &mut dyn FnMut(Growth<'_>)) {
        if program.first() != Some(&MARK) {
            self.0.growth(program, see);
        }
    }

    fn changes_indexes(&self, program: &[u8]) -> bool {
        adopts(program) || self.0.changes_indexes(program)
    }

    /// Rows that are taken over were maintained by the tablet that they were written to.
    fn is_unmaintained(&self, program: &[u8], indexes: &dyn RowIndexes) -> bool {
        program.first() != Some(&MARK) && self.0.is_unmaintained(program, indexes)
    }

    /// Rows that are taken over are not refused: what is too much is indexed later.
    fn index_bytes(&self, program: &[u8], indexes: &dyn RowIndexes, most: usize) -> usize {
        if program.first() == Some(&MARK) { 0 } else { self.0.index_bytes(program, indexes, most) }
    }
}
