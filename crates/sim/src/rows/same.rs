//! A program has the same result wherever and whenever it is applied, for a reader: on each replica, and in each
//! replay.

use super::seen::VisibleReply;
use diorite_base::mutation::{
    Effect, EvaluationContext, EvaluationFailed, Evaluator, Growth, SeeTarget, TabletChanges, TabletView,
};
use diorite_base::program::{LoggedProgram, Unprovable};
use diorite_base::row_index::RowIndexes;
use diorite_base::{Horizon, TabletId};
use diorite_query::index::IndexStep;
use diorite_query::program::TabletEvaluator;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One application of a program: tablet, stamp and program. No two writes of a tablet have the same stamp.
type Application = (TabletId, i64, Vec<u8>);

/// What programs have answered.
#[derive(Default)]
pub struct Said(Mutex<BTreeMap<Application, VisibleReply>>);

/// The server's evaluator, which is under test.
pub struct SameAnswers {
    tablet: TabletId,
    said: Arc<Said>,
}

impl SameAnswers {
    /// For a replica of this tablet; all of them share `said`.
    pub fn new(tablet: TabletId, said: Arc<Said>) -> Self {
        Self { tablet, said }
    }
}

impl Evaluator for SameAnswers {
    fn evaluate(
        &self,
        program: &[u8],
        context: EvaluationContext,
        view: &dyn TabletView,
        changes: &mut dyn TabletChanges,
    ) -> Result<Vec<u8>, EvaluationFailed> {
        let reply = TabletEvaluator.evaluate(program, context, view, changes)?;
        if IndexStep::decode(program).is_ok() {
            // A step that is repeated has been overtaken, by itself.
            return Ok(reply);
        }
        let key = (self.tablet, context.stamp_us, program.to_vec());
        let visible = VisibleReply::of(&reply);
        let mut said = self.said.0.lock();
        let known = said.entry(key).or_insert_with(|| visible.clone());
        assert!(
            *known == visible,
            "a program of {} with stamp {} answers {visible:?}, and has answered {known:?}",
            self.tablet,
            context.stamp_us
        );
        drop(said);
        Ok(reply)
    }

    fn reply(
        &self,
        program: &[u8],
        context: EvaluationContext,
        view: &dyn TabletView,
    ) -> Result<Vec<u8>, EvaluationFailed> {
        // Only the leader asks, and a later question may have another answer.
        TabletEvaluator.reply(program, context, view)
    }

    fn targets(&self, program: &[u8], see: &mut SeeTarget<'_>) -> Result<(), Unprovable> {
        TabletEvaluator.targets(program, see)
    }

    fn has_applied(&self, reply: &[u8]) -> bool {
        TabletEvaluator.has_applied(reply)
    }

    fn without_conditions(&self, program: &[u8]) -> Option<Vec<u8>> {
        TabletEvaluator.without_conditions(program)
    }

    fn merged(&self, stored: Option<&[u8]>, written: &[u8]) -> Result<Vec<u8>, EvaluationFailed> {
        TabletEvaluator.merged(stored, written)
    }

    fn bounded(&self, value: &[u8], horizon: Horizon) -> Option<Vec<u8>> {
        TabletEvaluator.bounded(value, horizon)
    }

    fn place(&self, value: &mut [u8], stamp_us: i64, nth: u32) {
        TabletEvaluator.place(value, stamp_us, nth);
    }

    fn taken_over(&self, value: &[u8]) -> Option<Vec<u8>> {
        TabletEvaluator.taken_over(value)
    }

    fn effect(&self, value: &[u8]) -> Effect {
        TabletEvaluator.effect(value)
    }

    fn growth(&self, program: &[u8], see: &mut dyn FnMut(Growth<'_>)) {
        TabletEvaluator.growth(program, see);
    }

    fn row_indexes(&self, flags: u64, view: &dyn TabletView) -> Result<Option<Arc<dyn RowIndexes>>, EvaluationFailed> {
        TabletEvaluator.row_indexes(flags, view)
    }

    fn changes_indexes(&self, program: &[u8]) -> bool {
        TabletEvaluator.changes_indexes(program)
    }

    fn compare_again(&self, view: &dyn TabletView, changes: &mut dyn TabletChanges) -> Result<(), EvaluationFailed> {
        TabletEvaluator.compare_again(view, changes)
    }

    fn adopt(
        &self,
        key: &[u8],
        value: &[u8],
        view: &dyn TabletView,
        changes: &mut dyn TabletChanges,
    ) -> Result<(), EvaluationFailed> {
        TabletEvaluator.adopt(key, value, view, changes)
    }

    fn is_unmaintained(&self, program: &[u8], indexes: &dyn RowIndexes) -> bool {
        TabletEvaluator.is_unmaintained(program, indexes)
    }

    fn index_bytes(&self, program: &[u8], indexes: &dyn RowIndexes, most: usize) -> usize {
        TabletEvaluator.index_bytes(program, indexes, most)
    }

    fn index_again(
        &self,
        from: &[u8],
        view: &dyn TabletView,
        changes: &mut dyn TabletChanges,
    ) -> Result<(), EvaluationFailed> {
        TabletEvaluator.index_again(from, view, changes)
    }
}
