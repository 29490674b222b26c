//! The writes of one statement or batch: each tablet is sent its part, and their answers become one answer.
//!
//! Always true: a part that has taken effect is not sent again; after the first tablet that refuses its part nothing more is sent, unless the part is
//! to be planned again, for which there is a time ([`super::again`]); [`Progress`](crate::exec::parts::Progress),
//! which knows what has been done, decides on the error. Left out: planning, and the parts themselves ([`crate::exec::modify`]).

use super::again::Again;
use super::request::{OwnedRequest, Reply};
use super::state::QueryEngine;
use crate::budget::Budget;
use crate::error::invalid;
use crate::exec::keys::written_count;
use crate::exec::modify::transaction::TransactionPart;
use crate::exec::modify::{Defaults, Write, Writes};
use crate::exec::outcome;
use crate::exec::parts::{Failure, Means};
use crate::exec::table_part::TablePart;
use crate::kv::{Kv, KvError};
use crate::plan::modify::ModifyPlan;
use crate::plan::term::Bound;
use crate::program::ProgramReply;
use crate::trace::not_carried_out;
use diorite_base::TabletId;
use diorite_base::limits::MAX_SHOWN_BYTES;
use diorite_cql::language::ast;
use diorite_cql::protocol::{Consistency, CqlError, Response, WriteType};
use futures::future::{join_all, poll_immediate};

/// The parts of a statement or batch, one for each tablet.
#[derive(Default)]
pub(super) struct Gathered {
    parts: Vec<Write>,
    /// In place of these: the parts of a transaction over several tablets.
    pub(super) transaction: Vec<TransactionPart>,
    /// Partitions that are written, counted per statement.
    partitions: usize,
    pub(super) is_conditional: bool,
}

/// The answer of a tablet to its part.
struct Answer {
    part: TablePart,
    is_evaluated: bool,
    outcome: Result<Vec<u8>, KvError>,
}

/// The answer to a write, and whether rows were left out of it.
pub(super) struct WriteAnswer {
    pub(super) response: Response,
    /// Not all rows are shown.
    pub(super) is_cut: bool,
}

/// The answers to a write so far.
#[derive(Default)]
pub(super) struct Answers {
    /// The parts that have taken effect.
    written: Vec<TablePart>,
    /// The replies of programs, encoded.
    pub(super) replies: Vec<(TabletId, Vec<u8>)>,
}

impl Answers {
    /// Adds the answer to one part; returns its error, if it has failed.
    fn take<K: Kv>(&mut self, answer: Answer, kv: &K, means: Means<'_>) -> Option<Failure> {
        let (Answer { part, is_evaluated, outcome }, progress) = (answer, means.progress);
        match outcome {
            Ok(reply) => {
                progress.answered(is_evaluated && ProgramReply::is_refusal(&reply));
                let tablet = part.tablet;
                self.written.push(part);
                if !is_evaluated {
                    return None;
                }
                // Once as it is, once decoded.
                let charged = means.budget.take(2 * reply.len());
                self.replies.push((tablet, reply));
                charged.err().map(Failure::Statement)
            }
            Err(error) => {
                if !error.is_of_plan() {
                    progress.failed(kv, part.tablet, &error);
                }
                Some(Failure::Tablet(part.tablet, error))
            }
        }
    }
}

/// Whether the part has to be planned again.
fn is_outdated(failure: &Failure) -> bool {
    matches!(failure, Failure::Tablet(_, error) if error.is_of_plan())
}

pub(super) fn is_unmaintained(failure: &Failure) -> bool {
    matches!(failure, Failure::Tablet(_, KvError::Unmaintained))
}

/// Notes in the trace what a tablet has answered, or that it will not.
fn note_answer(budget: &Budget, tablet: TabletId, outcome: &Result<Vec<u8>, KvError>) {
    if let Some(trace) = budget.trace() {
        trace.note(match outcome {
            Ok(_) => format!("Tablet {} has written its part", tablet.0),
            Err(error) => not_carried_out("write", tablet, error),
        });
    }
}

/// The writes of one statement or batch while they are carried out.
pub(super) struct Writing<'a, K> {
    pub(super) engine: &'a QueryEngine<K>,
    pub(super) plans: &'a [&'a ModifyPlan],
    pub(super) write_type: WriteType,
    pub(super) means: Means<'a>,
    /// A transaction block: the answer has no rows.
    pub(super) is_block: bool,
    /// All tablets take effect together, or none does: a block, or a batch that asks for that.
    pub(super) is_atomic: bool,
}

impl<K> Clone for Writing<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Writing<'_, K> {}

impl<K: Kv> Writing<'_, K> {
    pub(super) fn gathered(&self, writes: Writes) -> Result<Gathered, CqlError> {
        if writes.strays_from_condition() {
            return Err(invalid("Batch with conditions cannot span multiple partitions"));
        }
        let (partitions, is_conditional) = (writes.partitions, writes.is_conditional());
        if self.is_atomic && writes.tablet_count() > 1 {
            let transaction = writes.into_transaction()?;
            return Ok(Gathered { transaction, partitions, is_conditional, ..Gathered::default() });
        }
        Ok(Gathered { parts: writes.finish()?, partitions, is_conditional, ..Gathered::default() })
    }

    /// Whether rows or columns of unique indexes or views are written.
    fn concerns_dependents(&self) -> bool {
        self.plans.iter().any(|plan| plan.concerns_dependents())
    }

    /// Sends the parts that `gather` returns and makes the answer.
    pub(super) async fn write(
        &self,
        gather: impl Fn(&[TablePart]) -> Result<Writes, CqlError> + Send + Sync,
    ) -> Result<Reply, CqlError> {
        let (means, progress) = (self.means, self.means.progress);
        if self.concerns_dependents() {
            progress.start(self.write_type);
            means.budget.note("Writing with unique indexes or views");
            let outcome = self.write_maintaining(gather).await;
            return self.reply(outcome, Vec::new());
        }
        let gathered = self.engine.work(means.work, || self.gathered(gather(&[])?)).await?;
        let is_transaction = !gathered.transaction.is_empty();
        let mut warnings = Vec::new();
        if means.is_batch && !is_transaction && gathered.partitions > self.engine.config.batch_partitions_warning {
            let partitions = gathered.partitions;
            warnings.push(format!("the batch touches {partitions} partitions; it is atomic per tablet only"));
        }
        progress.start(self.write_type);
        let outcome = match is_transaction {
            true => self.transact(gathered, gather).await,
            false => self.write_gathered(gathered, gather).await,
        };
        self.reply(outcome, warnings)
    }

    /// What the client gets.
    fn reply(&self, outcome: Result<WriteAnswer, Failure>, mut warnings: Vec<String>) -> Result<Reply, CqlError> {
        let answered = outcome.map_err(|failure| self.means.progress.answer(&*self.engine.kv, failure))?;
        if answered.is_cut {
            warnings.push(format!(
                "not all rows of the conditions are shown: they are more than {MAX_SHOWN_BYTES} bytes (SHOWN_BYTES)"
            ));
        }
        Ok(Reply { warnings, ..Reply::plain(answered.response) })
    }

    /// Waits before parts that were refused because of their plans are planned again. Returns false if they are not: there is no
    /// time left, or the plans themselves are outdated.
    pub(super) async fn may_plan_again(&self, again: &mut Option<Again>, is_unmaintained: bool) -> bool {
        let kv = &*self.engine.kv;
        let version = kv.catalog_version();
        if is_unmaintained && self.lacks_maintenance() {
            return false;
        }
        let is_first = again.is_none();
        let again = again.get_or_insert_with(|| Again::of(kv, &self.means));
        // The catalog mostly has the tablets that replace one which does not exist any more.
        is_first && !is_unmaintained || again.pause(kv, version).await
    }

    /// Whether parts that were refused because their tablets maintain more will always be: the tables have something that
    /// the plans lack. Otherwise the tables have lost it, and the tablets are about to drop it; or this node does not know it yet.
    fn lacks_maintenance(&self) -> bool {
        let catalog = self.engine.kv.catalog();
        self.plans.iter().any(|plan| {
            let planned = plan.table.table();
            let is_planned = |id: u64| planned.maintained().any(|(known, _)| known == id);
            let entry = catalog.table_by_id(planned.id);
            entry.is_some_and(|entry| {
                entry.table.maintained().any(|(id, _)| !is_planned(id)) || planned.lacks_views_of(&entry.table)
            })
        })
    }

    /// Sends the parts; if tablets do not exist any more, or are about to drop what they maintain, plans the rest again for
    /// the current ones.
    pub(super) async fn write_gathered(
        &self,
        gathered: Gathered,
        gather: impl Fn(&[TablePart]) -> Result<Writes, CqlError> + Send + Sync,
    ) -> Result<WriteAnswer, Failure> {
        let (means, progress) = (self.means, self.means.progress);
        let is_conditional = gathered.is_conditional;
        progress.begin(is_conditional);
        let mut answers = Answers::default();
        let mut outdated = self.send(gathered.parts, &mut answers).await?;
        let mut again = None;
        // A tablet does not exist any more: the table has others by now, or was dropped. Or it is about to drop an index or
        // a view. Parts that took effect are not sent again.
        while !outdated.is_empty() && self.may_plan_again(&mut again, outdated.iter().any(is_unmaintained)).await {
            outdated.iter().for_each(|_| progress.replanned());
            let before_bytes = means.budget.meter().used_bytes();
            let rest = self.engine.finish(means.work, || self.gathered(gather(&answers.written)?)).await?;
            let rest_bytes = means.budget.meter().used_bytes().saturating_sub(before_bytes);
            if !rest.transaction.is_empty() {
                // The one tablet of a transaction has become several, and has done nothing.
                return self.transact_boxed(rest, gather).await;
            }
            outdated = self.send(rest.parts, &mut answers).await?;
            // The parts are gone: they may be planned again several times.
            means.budget.give(rest_bytes);
        }
        match outdated.pop() {
            Some(failure) => Err(failure),
            None => Ok(self.answer(answers.replies, is_conditional).await?),
        }
    }

    /// Sends the parts up to the first that is refused, and waits for all answers. If nothing else failed, returns the failures of parts that have to
    /// be planned again.
    pub(super) async fn send(&self, parts: Vec<Write>, answers: &mut Answers) -> Result<Vec<Failure>, Failure> {
        let (kv, means, progress) = (&*self.engine.kv, self.means, self.means.progress);
        let (mut waiting, mut failures, mut has_failed) = (Vec::new(), Vec::new(), false);
        let deadline_ns = means.budget.deadline();
        for Write { part, mutation, is_evaluated } in parts {
            progress.add_part();
            // The write has failed: no further part of it should take effect.
            if has_failed {
                continue;
            }
            progress.send();
            if let Some(trace) = means.budget.trace() {
                let place = trace.place(kv.leader(part.tablet));
                trace.note(format!("Writing to tablet {} {place}", part.tablet.0));
            }
            let mut writing = Box::pin(kv.write(part.tablet, mutation, deadline_ns));
            match poll_immediate(&mut writing).await {
                Some(outcome) => {
                    note_answer(means.budget, part.tablet, &outcome);
                    let failure = answers.take(Answer { part, is_evaluated, outcome }, kv, means);
                    has_failed |= failure.as_ref().is_some_and(|failure| !is_outdated(failure));
                    failures.extend(failure);
                }
                None => waiting.push(async move {
                    let outcome = writing.await;
                    note_answer(means.budget, part.tablet, &outcome);
                    Answer { part, is_evaluated, outcome }
                }),
            }
        }
        for answer in join_all(waiting).await {
            failures.extend(answers.take(answer, kv, means));
        }
        match failures.iter().position(|failure| !is_outdated(failure)) {
            Some(first) => Err(failures.swap_remove(first)),
            None => Ok(failures),
        }
    }

    /// A batch whose statements return their status: each is executed by itself, in order, and returns one row.
    pub(super) async fn statuses<'v>(
        &self,
        bound: impl Fn(usize) -> Bound<'v> + Send + Sync,
        defaults: Defaults,
    ) -> Result<Reply, CqlError> {
        let each = Writing { is_atomic: false, ..*self };
        let Writing { engine, plans, means, write_type, .. } = each;
        let (table, progress) = (&plans[0].table, means.progress);
        if plans.iter().any(|plan| !plan.answer.status_row) {
            return Err(invalid(
                "batch execution mixing statements with and without RETURNS STATUS AS ROW is not supported",
            ));
        }
        if plans.iter().any(|plan| plan.table.table().id != table.table().id) {
            return Err(invalid(
                "batch execution with RETURNS STATUS AS ROW of statements on different tables is not supported",
            ));
        }
        let gather = |at: usize, written: &[TablePart]| {
            let plan = plans[at];
            let mut writes = Writes::besides(written);
            writes.add(plan, &bound(at), &engine.entry_to_write(&plan.table)?.tablets, defaults)?;
            Ok(writes)
        };
        // Every error that can be found without writing is found before anything is written.
        let all = || (0..plans.len()).map(|at| gather(at, &[]).and_then(|writes| each.gathered(writes))).collect();
        let gathered: Result<Vec<Gathered>, CqlError> = engine.work(means.work, all).await;
        let mut rows = outcome::status_rows(table);
        progress.start(write_type);
        for (at, gathered) in gathered?.into_iter().enumerate() {
            let again = |written: &[TablePart]| gather(at, written);
            let one = Writing { plans: &plans[at..=at], means: Means { is_batch: false, ..means }, ..each };
            let written = match one.concerns_dependents() {
                true => one.write_maintaining(again).await,
                false => one.write_gathered(gathered, again).await,
            };
            let response = written.and_then(|WriteAnswer { response, .. }| {
                // Reserved before the answer is final, so that a lack of memory does not hide the effect of the write.
                if let Response::Rows(one) = &response {
                    means.budget.reserve(&mut rows.body, one.body.len())?;
                }
                Ok(response)
            });
            let response = response.map_err(|failure| progress.answer(&*engine.kv, failure))?;
            if let Response::Rows(one) = response {
                rows.body.extend_from_slice(&one.body);
                rows.row_count += one.row_count;
            }
        }
        Ok(Reply::plain(Response::Rows(rows)))
    }
}

/// The work of making the mutations of a write, in bytes: its size, times the rows that its `IN`s may name.
pub(super) fn work_of<'a>(
    request: &OwnedRequest,
    statements: impl IntoIterator<Item = (&'a ModifyPlan, &'a Bound<'a>)>,
) -> usize {
    let rows = statements.into_iter().map(|(plan, bound)| written_count(&plan.restrictions, bound)).max();
    request.body.len().saturating_mul(rows.unwrap_or(1))
}

pub(super) fn batch_write_type(kind: ast::BatchKind) -> WriteType {
    match kind {
        ast::BatchKind::Logged => WriteType::Batch,
        ast::BatchKind::Unlogged => WriteType::UnloggedBatch,
        ast::BatchKind::Counter => WriteType::Counter,
    }
}

pub(super) fn check_write_consistency(consistency: Consistency) -> Result<(), CqlError> {
    if consistency.is_serial() {
        return Err(invalid("You must use conditional updates for serializable writes"));
    }
    Ok(())
}
