//! A program answers the same wherever and whenever it is applied: on each replica, and again in each replay.
//!
//! The rows in an answer are compared as a reader sees them: compaction may have let go of what no reader sees.

use diorite_base::mutation::{EvaluationContext, EvaluationFailed, Evaluator, TabletChanges, TabletView};
use diorite_base::{Horizon, TabletId};
use diorite_model::row::{LiveContent, LiveRow};
use diorite_query::program::{ProgramReply, SeenRow, TabletEvaluator};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One application of a program: tablet, stamp and program. No two writes of a tablet have the same stamp.
type Application = (TabletId, i64, Vec<u8>);

/// What programs have answered.
#[derive(Default)]
pub struct Said(Mutex<BTreeMap<Application, String>>);

/// What a reader sees of a row: its key, whether it has a marker, and its cells. Nothing of a row that is not there.
fn seen(row: &SeenRow, now_s: u32) -> Option<String> {
    let live = LiveRow::new(&row.value, now_s, row.deleted_us).expect("a stored row");
    if !live.exists().expect("a stored row") {
        return None;
    }
    let mut shown = format!("{:?} {}", row.key, live.has_marker());
    for cell in live.cells() {
        let cell = cell.expect("a stored cell");
        shown.push_str(&match cell.content {
            LiveContent::Value(value) => format!(" {} {} {value:?} {:?}", cell.column, cell.timestamp_us, cell.expiry),
            LiveContent::Counter(sum) => format!(" {} {sum}", cell.column),
            LiveContent::Complex(complex) => {
                let elements = complex.elements().map(|element| {
                    let element = element.expect("a stored element");
                    format!(" {:?} {} {:?} {:?}", element.path, element.timestamp_us, element.value, element.expiry)
                });
                format!(" {}{}", cell.column, elements.collect::<String>())
            }
        });
    }
    Some(shown)
}

/// An answer, as far as clients see it.
fn shown(reply: &[u8]) -> String {
    match ProgramReply::decode(reply).expect("the evaluator's own encoding") {
        ProgramReply::Refused(found) => {
            let rows = found.static_row.iter().chain(&found.rows);
            let rows: Vec<String> = rows.filter_map(|row| seen(row, found.now_s)).collect();
            format!("refused at {} for {:?}: {rows:?}", found.now_s, found.partition)
        }
        other => format!("{other:?}"),
    }
}

/// The server's evaluator, which is looked at.
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
        let key = (self.tablet, context.stamp_us, program.to_vec());
        let mut said = self.said.0.lock();
        let shown = shown(&reply);
        let known = said.entry(key).or_insert_with(|| shown.clone());
        assert!(
            *known == shown,
            "a program of {} with stamp {} answers {shown}, and has answered {known}",
            self.tablet,
            context.stamp_us
        );
        drop(said);
        Ok(reply)
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
}
