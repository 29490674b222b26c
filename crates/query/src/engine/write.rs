//! Writes of one statement or batch: what is for each tablet is sent to it, and what they answer becomes one answer.
//!
//! Always true: a part that has taken effect is not sent again; after the first tablet that refuses its part nothing more is sent; how a failure is told
//! is decided by [`Progress`], which knows what has been done. Left out: planning, and what is gathered for a tablet ([`crate::exec::modify`]).

use super::{QueryEngine, REPLANS, Reply};
use crate::error::invalid;
use crate::exec::modify::{Defaults, TablePart, Write, Writes};
use crate::exec::outcome;
use crate::exec::parts::{Failure, Means, Progress};
use crate::kv::{Kv, KvError};
use crate::plan::modify::ModifyPlan;
use crate::plan::term::Bound;
use crate::program::ProgramReply;
use diorite_cql::protocol::{CqlError, Response, WriteType};
use futures::future::{join_all, poll_immediate};

/// What is to be written for a statement or batch, by tablet.
struct Gathered {
    parts: Vec<Write>,
    /// Partitions that are written, counted per statement.
    partitions: usize,
    is_conditional: bool,
}

impl TryFrom<Writes> for Gathered {
    type Error = CqlError;

    fn try_from(writes: Writes) -> Result<Self, CqlError> {
        if writes.strays_from_condition() {
            return Err(invalid("Batch with conditions cannot span multiple partitions"));
        }
        let (partitions, is_conditional) = (writes.partitions, writes.is_conditional());
        Ok(Self { parts: writes.finish()?, partitions, is_conditional })
    }
}

/// What was answered to a write.
#[derive(Default)]
struct Answers {
    /// By which tablets.
    written: Vec<TablePart>,
    /// What programs said.
    replies: Vec<ProgramReply>,
}

impl Answers {
    /// Takes in what became of one part; the failure that stands in the way of an answer, if it is one.
    fn take<K: Kv>(
        &mut self,
        part: TablePart,
        is_evaluated: bool,
        outcome: Result<Vec<u8>, KvError>,
        kv: &K,
        progress: &Progress,
    ) -> Option<Failure> {
        match outcome {
            Ok(reply) => {
                let reply = is_evaluated.then(|| ProgramReply::decode(&reply)).transpose();
                self.written.push(part);
                progress.answered(reply.as_ref().ok().and_then(Option::as_ref));
                match reply {
                    Ok(reply) => self.replies.extend(reply),
                    Err(_) => {
                        let error = CqlError::server("the answer of a conditional write cannot be decoded");
                        return Some(Failure::Statement(error));
                    }
                }
                None
            }
            Err(error) => {
                if !matches!(error, KvError::NoSuchTablet(_)) {
                    progress.failed(kv, part.tablet, &error);
                }
                Some(Failure::Tablet(part.tablet, error))
            }
        }
    }
}

/// Whether a part is to be planned again, for the tablets that there are now.
fn is_missing(failure: &Failure) -> bool {
    matches!(failure, Failure::Tablet(_, KvError::NoSuchTablet(_)))
}

impl<K: Kv> QueryEngine<K> {
    /// Sends what `gather` gives to the tablets and makes the answer.
    pub(super) async fn write(
        &self,
        gather: impl Fn(&[TablePart]) -> Result<Writes, CqlError> + Send + Sync,
        plans: &[&ModifyPlan],
        write_type: WriteType,
        means: Means<'_>,
    ) -> Result<Reply, CqlError> {
        let progress = means.progress;
        let gathered = self.work(means.work, || Gathered::try_from(gather(&[])?)).await?;
        let mut warnings = Vec::new();
        if means.is_batch && gathered.partitions > self.config.batch_partitions_warning {
            let partitions = gathered.partitions;
            warnings.push(format!("the batch touches {partitions} partitions; it is atomic per tablet only"));
        }
        progress.start(write_type);
        let outcome = self.write_gathered(gathered, gather, plans, means).await;
        let response = outcome.map_err(|failure| progress.answer(&*self.kv, failure))?;
        Ok(Reply { warnings, ..Reply::plain(response) })
    }

    /// Sends what was gathered, and what `gather` gives besides where tablets have gone meanwhile.
    async fn write_gathered(
        &self,
        gathered: Gathered,
        gather: impl Fn(&[TablePart]) -> Result<Writes, CqlError> + Send + Sync,
        plans: &[&ModifyPlan],
        means: Means<'_>,
    ) -> Result<Response, Failure> {
        let progress = means.progress;
        let is_conditional = gathered.is_conditional;
        progress.begin(is_conditional);
        let mut answers = Answers::default();
        let mut missing = self.send(gathered.parts, &mut answers, means).await?;
        // Refused, as a tablet is gone: the table has others by now, or is gone as well. What took effect elsewhere is not sent again.
        for _ in 0..REPLANS {
            if missing.is_empty() {
                break;
            }
            missing.iter().for_each(|_| progress.replanned());
            let again = self.work(means.work, || Gathered::try_from(gather(&answers.written)?)).await?;
            missing = self.send(again.parts, &mut answers, means).await?;
        }
        match missing.pop() {
            Some(failure) => Err(failure),
            None => Ok(write_response(answers.replies, plans, means.is_batch, is_conditional)?),
        }
    }

    /// Sends to each tablet what is for it, up to the first that refuses, and waits for all that was sent. Gives the failures of tablets that do not
    /// exist, if that is all that is wrong.
    async fn send(&self, parts: Vec<Write>, answers: &mut Answers, means: Means<'_>) -> Result<Vec<Failure>, Failure> {
        let (kv, progress, mut waiting, mut failures) = (&*self.kv, means.progress, Vec::new(), Vec::new());
        let deadline_ns = means.budget.deadline();
        for Write { part, mutation, is_evaluated } in parts {
            progress.add_part();
            // The write has failed: the less of it is done the better.
            if failures.iter().any(|failure| !is_missing(failure)) {
                continue;
            }
            progress.send();
            let mut writing = Box::pin(kv.write(part.tablet, mutation, deadline_ns));
            match poll_immediate(&mut writing).await {
                Some(outcome) => failures.extend(answers.take(part, is_evaluated, outcome, kv, progress)),
                None => waiting.push(async move { (part, is_evaluated, writing.await) }),
            }
        }
        for (part, is_evaluated, outcome) in join_all(waiting).await {
            failures.extend(answers.take(part, is_evaluated, outcome, kv, progress));
        }
        match failures.iter().position(|failure| !is_missing(failure)) {
            Some(first) => Err(failures.swap_remove(first)),
            None => Ok(failures),
        }
    }

    /// A batch whose statements return their status: each is carried out by itself, in order, and gives one row.
    pub(super) async fn status_batch<'v>(
        &self,
        plans: &[&ModifyPlan],
        bound: impl Fn(usize) -> Bound<'v> + Send + Sync,
        defaults: Defaults,
        write_type: WriteType,
        means: Means<'_>,
    ) -> Result<Reply, CqlError> {
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
            writes.add(plan, &bound(at), &self.entry(&plan.table)?.tablets, defaults)?;
            Ok(writes)
        };
        // What can be seen to be wrong is seen before anything is done.
        let all = || (0..plans.len()).map(|at| gather(at, &[]).and_then(Gathered::try_from)).collect();
        let gathered: Result<Vec<Gathered>, CqlError> = self.work(means.work, all).await;
        let mut rows = outcome::status_rows(table);
        progress.start(write_type);
        for (at, gathered) in gathered?.into_iter().enumerate() {
            let again = |written: &[TablePart]| gather(at, written);
            let means = Means { is_batch: false, ..means };
            let written = self.write_gathered(gathered, again, &plans[at..=at], means).await;
            let response = written.and_then(|response| {
                // Taken in here, so that running out of memory does not hide what was done.
                if let Response::Rows(one) = &response {
                    means.budget.reserve(&mut rows.body, one.body.len())?;
                }
                Ok(response)
            });
            let response = response.map_err(|failure| progress.answer(&*self.kv, failure))?;
            if let Response::Rows(one) = response {
                rows.body.extend_from_slice(&one.body);
                rows.row_count += one.row_count;
            }
        }
        Ok(Reply::plain(Response::Rows(rows)))
    }
}

/// The answer to a write that all tablets have answered.
fn write_response(
    replies: Vec<ProgramReply>,
    plans: &[&ModifyPlan],
    is_batch: bool,
    is_conditional: bool,
) -> Result<Response, CqlError> {
    let answer = plans.first().map(|plan| plan.answer).unwrap_or_default();
    let mut response = match answer.status_row && !is_batch {
        true => Response::Rows(outcome::status(&plans[0].table, true, None, None)?),
        false => Response::Void,
    };
    for reply in replies {
        match reply {
            ProgramReply::Failed(message) if answer.status_row && !is_batch => {
                response = Response::Rows(outcome::status(&plans[0].table, false, Some(&message), None)?);
            }
            ProgramReply::Failed(message) => return Err(invalid(message)),
            ProgramReply::Applied if answer.status_row && !is_batch => {}
            ProgramReply::Refused(_) if plans.iter().any(|plan| plan.answer.error) => {
                return Err(invalid(format!("Condition on table {} was not satisfied.", plans[0].table.full_name())));
            }
            ProgramReply::Refused(seen) if answer.status_row && !is_batch => {
                let mut shown = outcome::shown_columns(plans, true);
                shown.sort_unstable();
                let seen = Some((shown.as_slice(), &seen));
                response = Response::Rows(outcome::status(&plans[0].table, false, None, seen)?);
            }
            ProgramReply::Applied if is_conditional => {
                response = Response::Rows(outcome::applied(&plans[0].table));
            }
            ProgramReply::Applied => {}
            ProgramReply::Refused(seen) => {
                let shown = outcome::shown_columns(plans, is_batch);
                response = Response::Rows(outcome::refused(&plans[0].table, &shown, &seen)?);
            }
        }
    }
    Ok(response)
}
