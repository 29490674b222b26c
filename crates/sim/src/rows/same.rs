//! A program has the same result wherever and whenever it is applied, for a reader: on each replica, and in each
//! replay.

use super::seen::VisibleReply;
use diorite_base::TabletId;
use diorite_base::mutation::{EvaluationContext, EvaluationFailed, Evaluator, TabletChanges, TabletView};
use diorite_base::program::LoggedProgram;
use diorite_query::index::IndexStep;
use diorite_query::program::TabletEvaluator;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One application of a program: tablet, stamp and program. No two writes of a row have the same stamp.
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
    fn inner(&self) -> Option<&dyn Evaluator> {
        Some(&TabletEvaluator)
    }

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
}
