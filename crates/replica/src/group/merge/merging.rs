//! The evaluator of a tablet's mutations: steps of merges, and what an inner evaluator carries out.
//!
//! Always true: what is no step reaches the inner evaluator unchanged. Left out: the steps' effects ([`super`]).

use super::{MARK, MergeReply, MergeStep, adopts, carry_out};
use diorite_base::Horizon;
use diorite_base::mutation::{
    Effect, EvaluationContext, EvaluationFailed, Evaluator, Growth, SeeTarget, TabletChanges, TabletView,
};
use diorite_base::program::Unprovable;
use diorite_base::row_index::RowIndexes;
use std::sync::Arc;

/// Carries out the steps of merges, and passes all other programs to the inner evaluator.
#[derive(Debug, Default, Clone, Copy)]
pub struct Merging<E>(pub E);

impl<E: Evaluator> Evaluator for Merging<E> {
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

    fn reply(
        &self,
        program: &[u8],
        context: EvaluationContext,
        view: &dyn TabletView,
    ) -> Result<Vec<u8>, EvaluationFailed> {
        self.0.reply(program, context, view)
    }

    fn targets(&self, program: &[u8], see: &mut SeeTarget<'_>) -> Result<(), Unprovable> {
        self.0.targets(program, see)
    }

    fn has_applied(&self, reply: &[u8]) -> bool {
        self.0.has_applied(reply)
    }

    fn without_conditions(&self, program: &[u8]) -> Option<Vec<u8>> {
        self.0.without_conditions(program)
    }

    fn merged(&self, stored: Option<&[u8]>, written: &[u8]) -> Result<Vec<u8>, EvaluationFailed> {
        self.0.merged(stored, written)
    }

    fn explicit_us(&self, program: &[u8]) -> Option<i64> {
        self.0.explicit_us(program)
    }

    fn bounded(&self, value: &[u8], horizon: Horizon) -> Option<Vec<u8>> {
        self.0.bounded(value, horizon)
    }

    fn place(&self, value: &mut [u8], stamp_us: i64, nth: u32) {
        self.0.place(value, stamp_us, nth);
    }

    fn taken_over(&self, value: &[u8]) -> Option<Vec<u8>> {
        self.0.taken_over(value)
    }

    fn effect(&self, value: &[u8]) -> Effect {
        self.0.effect(value)
    }

    /// Rows that are taken over are not counted: the tablet that they were written to has limited their size.
    fn growth(&self, program: &[u8], see: &mut dyn FnMut(Growth<'_>)) {
        if program.first() != Some(&MARK) {
            self.0.growth(program, see);
        }
    }

    fn row_indexes(&self, flags: u64, view: &dyn TabletView) -> Result<Option<Arc<dyn RowIndexes>>, EvaluationFailed> {
        self.0.row_indexes(flags, view)
    }

    fn changes_indexes(&self, program: &[u8]) -> bool {
        adopts(program) || self.0.changes_indexes(program)
    }

    fn adopt(
        &self,
        key: &[u8],
        value: &[u8],
        view: &dyn TabletView,
        changes: &mut dyn TabletChanges,
    ) -> Result<(), EvaluationFailed> {
        self.0.adopt(key, value, view, changes)
    }

    fn compare_again(&self, view: &dyn TabletView, changes: &mut dyn TabletChanges) -> Result<(), EvaluationFailed> {
        self.0.compare_again(view, changes)
    }

    /// Rows that are taken over were maintained by the tablet that they were written to.
    fn is_unmaintained(&self, program: &[u8], indexes: &dyn RowIndexes) -> bool {
        program.first() != Some(&MARK) && self.0.is_unmaintained(program, indexes)
    }

    /// Rows that are taken over are not refused: what is too much is indexed later.
    fn index_bytes(&self, program: &[u8], indexes: &dyn RowIndexes, most: usize) -> usize {
        if program.first() == Some(&MARK) { 0 } else { self.0.index_bytes(program, indexes, most) }
    }

    fn index_again(
        &self,
        from: &[u8],
        view: &dyn TabletView,
        changes: &mut dyn TabletChanges,
    ) -> Result<(), EvaluationFailed> {
        self.0.index_again(from, view, changes)
    }
}
