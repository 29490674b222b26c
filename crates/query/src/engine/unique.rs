//! Writes that unique indexes or views depend on: what the rows have is read, and the transaction that follows tests
//! it.
//!
//! Always true: nothing was done while a write is tried again; an error that names a duplicate is given only if another
//! row was seen to have the values. Left out: what the transaction consists of ([`crate::exec::modify::unique`]).

use super::again::Again;
use super::transaction::{CONFLICT, Ended};
use super::write::{Answers, WriteAnswer, Writing, is_unmaintained};
use crate::error::invalid;
use crate::exec::modify::unique::{Believed, Planned, Unread, duplicate, owner_of, unique_values};
use crate::exec::modify::views::{Seen, Watched};
use crate::exec::modify::{Write, Writes};
use crate::exec::outcome;
use crate::exec::parts::Failure;
use crate::exec::raw::{RawRead, RawRow};
use crate::exec::table_part::TablePart;
use crate::kv::Kv;
use crate::program::ProgramReply;
use crate::table::{Source, TableContext};
use diorite_base::{TableId, TabletId};
use diorite_cql::protocol::{CqlError, Response};
use diorite_model::row::now_seconds;
use diorite_transact::coordinator::Outcome;
use futures::future::join_all;
use futures::stream::{FuturesOrdered, StreamExt};
use std::sync::Arc;

/// How often a write is tried at least whose rows others change at the same time, or whose tablets do not know the columns of
/// views yet: the two look alike.
const TRIES: u32 = 24;
/// The first wait before a further try, and the longest.
const FIRST_PAUSE_NS: u64 = 1_000_000;
const MAX_PAUSE_NS: u64 = 64_000_000;

/// Copies of a row that are made to find out what it is after a write.
const COPIES: usize = 2;

/// How many rows that views follow are read at a time.
const READS: usize = 16;

/// What a plan changes in a table that views follow, and the rows that are there before.
struct WatchedRows {
    table: Arc<TableContext>,
    watched: Watched,
    rows: Vec<(Vec<u8>, RawRow)>,
}

/// What has become of a try.
enum Tried {
    Done(WriteAnswer),
    /// A condition of the statement does not hold in this tablet, or an operation is impossible: the reply.
    Refused(TabletId, Vec<u8>),
    /// What was read has changed, or a tablet has refused its part because it does not exist any more, or maintains what
    /// its table has lost: nothing was done.
    Outdated(Option<Failure>),
}

/// What has become of the condition of a statement.
enum Own {
    Holds,
    /// It does not hold in this tablet: the reply.
    Refused(TabletId, Vec<u8>),
    /// The rows have changed.
    Outdated,
}

fn of_refusal(tablet: TabletId, reply: Vec<u8>) -> Tried {
    match ProgramReply::decode(&reply) {
        Ok(ProgramReply::Outdated) => Tried::Outdated(None),
        _ => Tried::Refused(tablet, reply),
    }
}

impl<K: Kv> Writing<'_, K> {
    /// Carries out a write to rows or columns of unique indexes or views, and answers the client.
    pub(super) async fn write_maintaining(
        &self,
        gather: impl Fn(&[TablePart]) -> Result<Writes, CqlError> + Send + Sync,
    ) -> Result<WriteAnswer, Failure> {
        let (means, progress) = (self.means, self.means.progress);
        let gathered = || {
            let writes = gather(&[])?;
            match writes.strays_from_condition() {
                true => Err(invalid("Batch with conditions cannot span multiple partitions")),
                false => Ok(writes),
            }
        };
        let first = self.engine.work(means.work, gathered).await?;
        let is_conditional = first.is_conditional();
        progress.begin(is_conditional);
        let (mut writes, mut again, mut changes, mut is_careful) = (Some(first), None, 0, false);
        loop {
            let before_bytes = means.budget.meter().used_bytes();
            let mut of_try = match writes.take() {
                Some(writes) => writes,
                None => self.engine.finish(means.work, gathered).await.map_err(|error| self.refused(error))?,
            };
            let mut refusal = None;
            let planned = self.planned(&mut of_try, is_careful).await;
            if let Some(index) = planned.map_err(|error| self.refused(error))? {
                match self.own_condition(of_try).await? {
                    Own::Holds => return self.answer_duplicate(&index),
                    Own::Refused(tablet, reply) => return self.answer_refused(tablet, reply).await,
                    Own::Outdated => {}
                }
            } else if self.views_maintained(&mut of_try).await.map_err(|error| self.refused(error))? {
                match self.tried(of_try).await? {
                    Tried::Done(answer) => return Ok(answer),
                    Tried::Refused(tablet, reply) => return self.answer_refused(tablet, reply).await,
                    Tried::Outdated(failure) => refusal = failure,
                }
            }
            // Nothing of the try is kept, and what it has assumed may be wrong.
            means.budget.give(means.budget.meter().used_bytes().saturating_sub(before_bytes));
            is_careful = true;
            let goes_on = match refusal.as_ref().map(is_unmaintained) {
                Some(is_unmaintained) => self.may_plan_again(&mut again, is_unmaintained).await,
                None => self.waits_for_others(&mut again, changes).await,
            };
            if !goes_on {
                return Err(refusal.unwrap_or_else(|| self.refused(CqlError::overloaded(CONFLICT))));
            }
            changes += u32::from(refusal.is_none());
        }
    }

    /// Waits before a further try of a write whose rows have changed so often. Returns false if it was tried often and long
    /// enough.
    async fn waits_for_others(&self, again: &mut Option<Again>, changes: u32) -> bool {
        let kv = &*self.engine.kv;
        let again = again.get_or_insert_with(|| Again::of(kv, &self.means));
        if changes + 1 >= TRIES && !again.has_time(kv) {
            return false;
        }
        if changes > 0 {
            kv.pause((FIRST_PAUSE_NS << changes.min(16)).min(MAX_PAUSE_NS)).await;
        }
        true
    }

    /// Reads what has to be known, and adds what keeps the tables of indexes up to date. Returns the index that has another
    /// row with the same values, if one has: then only what tests the rows that were read is added.
    async fn planned(&self, writes: &mut Writes, is_careful: bool) -> Result<Option<String>, CqlError> {
        let budget = self.means.budget;
        let catalog = self.engine.kv.catalog();
        let mut believed = Believed::default();
        let mut unread = writes.unread(&mut believed, is_careful)?;
        loop {
            budget.check()?;
            for missing in unread {
                self.read_unique(missing, &mut believed).await?;
            }
            let (upkeep, duplicate) = match writes.upkeep(&catalog, &believed, is_careful)? {
                Planned::Read(more) => {
                    unread = more;
                    continue;
                }
                Planned::Upkeep(upkeep) => (upkeep, None),
                Planned::Duplicate(index, tests) => (tests, Some(index)),
            };
            for (table, key) in upkeep.tested() {
                if let Some(entry) = catalog.table_by_id(*table) {
                    writes.add_tested(entry, key)?;
                }
            }
            writes.add_upkeep(upkeep, &believed, now_seconds(self.engine.kv.now_us()))?;
            return Ok(duplicate);
        }
    }

    /// Reads the rows that views follow, and adds what the views are to have. Returns false if the tables have changed
    /// since the writes were gathered.
    async fn views_maintained(&self, writes: &mut Writes) -> Result<bool, CqlError> {
        let (budget, mut seen, mut work) = (self.means.budget, Seen::default(), 0usize);
        let mut rest = writes.watched()?.into_iter();
        let mut reads: FuturesOrdered<_> = rest.by_ref().take(READS).map(|(of, at)| self.rows_of(of, at)).collect();
        while let Some(read) = reads.next().await {
            budget.check()?;
            reads.extend(rest.next().map(|(of, at)| self.rows_of(of, at)));
            let WatchedRows { table, watched, rows } = read?;
            // Each row is copied for the evaluation, once before and once after it, and packed again for each view.
            let bytes: usize = rows.iter().map(|(key, row)| key.len() + row.size_bytes()).sum();
            let copied = bytes.saturating_mul(COPIES + 2 * table.table().views.len());
            budget.take(copied)?;
            work = work.saturating_add(copied);
            seen.add(table.table().id, watched, rows);
        }
        let (catalog, now_us) = (self.engine.kv.catalog(), self.engine.kv.now_us());
        self.engine.finish(work, || writes.maintain_views(&catalog, &seen, now_us)).await
    }

    async fn rows_of(&self, table: Arc<TableContext>, watched: Watched) -> Result<WatchedRows, CqlError> {
        let read = self.raw(&table);
        let rows = match &watched {
            Watched::Row(key) => read.row(key).await?.map(|row| (key.clone(), row)).into_iter().collect(),
            Watched::Range(start, end) => read.rows(start, end).await?,
        };
        Ok(WatchedRows { table, watched, rows })
    }

    /// Whether the conditions of a statement hold for which another row has the values. Each tablet is asked for itself: a
    /// condition that does not hold at one moment is answer enough.
    async fn own_condition(&self, mut writes: Writes) -> Result<Own, Failure> {
        if !writes.is_conditional() {
            return Ok(Own::Holds);
        }
        writes.only_test();
        let (kv, deadline_ns) = (&*self.engine.kv, self.means.budget.deadline());
        let mut asked = Vec::new();
        for Write { part, mutation, .. } in writes.finish().map_err(|error| self.refused(error))? {
            let answer = kv.write(part.tablet, mutation, deadline_ns);
            asked.push(async move { (part.tablet, answer.await) });
        }
        let mut is_outdated = false;
        for (tablet, answer) in join_all(asked).await {
            // Nothing is written, so whatever fails is only tried again.
            let reply = answer.unwrap_or_default();
            match ProgramReply::decode(&reply) {
                Ok(ProgramReply::Applied) => {}
                Ok(ProgramReply::Outdated) | Err(_) => is_outdated = true,
                Ok(ProgramReply::Refused(_) | ProgramReply::Failed(_)) => return Ok(Own::Refused(tablet, reply)),
            }
        }
        Ok(if is_outdated { Own::Outdated } else { Own::Holds })
    }

    /// The answer to a write whose values another row has.
    fn answer_duplicate(&self, index: &str) -> Result<WriteAnswer, Failure> {
        let error = duplicate(index);
        let has_status = self.plans.first().is_some_and(|plan| plan.answer.status_row) && !self.means.is_batch;
        if !has_status {
            return Err(self.refused(error));
        }
        self.means.progress.answered(true);
        let status = outcome::status(&self.plans[0].table, false, Some(&error.message), None, self.means.budget)?;
        Ok(WriteAnswer { response: Response::Rows(status), is_cut: false })
    }

    async fn read_unique(&self, missing: Unread, believed: &mut Believed) -> Result<(), CqlError> {
        let budget = self.means.budget;
        match missing {
            Unread::Row(row) => {
                let table = self.table_of(row.0)?;
                let found = self.raw(&table).row(&row.1).await?;
                let values = found.map(|found| unique_values(&table, &found.live()?)).transpose()?;
                budget.take(row.1.len() + values.iter().flatten().map(|(_, value)| value.len()).sum::<usize>())?;
                believed.rows.insert(row, values.unwrap_or_default());
            }
            Unread::Owner(row) => {
                let found = match self.table_of(row.0) {
                    Ok(table) => self.raw(&table).row(&row.1).await,
                    Err(error) => Err(error),
                };
                let found = match found {
                    // The index was dropped meanwhile: the transaction finds no tablet, and is planned without it.
                    Err(_) if self.engine.kv.catalog().table_by_id(row.0).is_none() => None,
                    found => found?,
                };
                let owner = found.map(|found| owner_of(&found.live()?)).transpose()?.flatten();
                budget.take(row.1.len() + owner.as_ref().map_or(0, Vec::len))?;
                believed.owners.insert(row, owner);
            }
            Unread::Range(id, start, end) => {
                let table = self.table_of(id)?;
                let mut keys = Vec::new();
                for (key, found) in self.raw(&table).rows(&start, &end).await? {
                    let values = unique_values(&table, &found.live()?)?;
                    // A row without values concerns no index.
                    if !values.is_empty() {
                        budget.take(2 * key.len() + values.values().map(Vec::len).sum::<usize>())?;
                        believed.rows.insert((id, key.clone()), values);
                        keys.push(key);
                    }
                }
                believed.ranges.insert((id, start, end), keys);
            }
        }
        Ok(())
    }

    fn raw<'r>(&'r self, table: &'r Arc<TableContext>) -> RawRead<'r, K> {
        RawRead { kv: &self.engine.kv, table, budget: self.means.budget }
    }

    /// A table as it is now.
    fn table_of(&self, id: TableId) -> Result<Arc<TableContext>, CqlError> {
        let catalog = self.engine.kv.catalog();
        let entry = catalog.table_by_id(id).ok_or_else(|| invalid("the table, or an index of it, was dropped"))?;
        Ok(Arc::new(TableContext::new(Arc::clone(&entry.table), Source::Tablets)))
    }

    /// The answer to a write whose own condition does not hold in a tablet.
    async fn answer_refused(&self, tablet: TabletId, reply: Vec<u8>) -> Result<WriteAnswer, Failure> {
        let is_refused = !matches!(ProgramReply::decode(&reply), Ok(ProgramReply::Failed(_)));
        if self.is_block && is_refused {
            // YCQL's words.
            let table = self.plans.iter().find(|plan| plan.condition.is_some()).map(|plan| &plan.table.table().name);
            let table = table.map_or("", String::as_str);
            return Err(
                self.refused(invalid(format!("Execution Error. Condition on table {table} was not satisfied.")))
            );
        }
        Ok(self.answer(vec![(tablet, reply)], true).await?)
    }

    /// The answer to a write that has taken effect.
    async fn answer_applied(&self, tablet: TabletId, is_conditional: bool) -> Result<WriteAnswer, Failure> {
        Ok(self.answer(vec![(tablet, ProgramReply::Applied.encode())], is_conditional).await?)
    }

    /// Carries out the parts once.
    async fn tried(&self, writes: Writes) -> Result<Tried, Failure> {
        let (progress, is_conditional) = (self.means.progress, writes.is_conditional());
        if writes.tablet_count() > 1 {
            progress.add_part();
            progress.send();
            let parts = writes.into_transaction().map_err(|error| self.refused(error))?;
            let (ended, tables) = self.attempt(parts).await.map_err(|error| self.refused(error))?;
            return match ended {
                Ended::Refused(tablet, reply) => {
                    progress.answered(true);
                    Ok(of_refusal(tablet, reply))
                }
                Ended::Impossible(tablet, error) if error.is_of_plan() => {
                    progress.replanned();
                    Ok(Tried::Outdated(Some(Failure::Tablet(tablet, error))))
                }
                Ended::Answered(Outcome::Applied(_)) => {
                    progress.answered(false);
                    self.engine.outcomes.note(ended.kind());
                    let first = tables.first().map_or(TabletId(0), |(tablet, _)| *tablet);
                    self.answer_applied(first, is_conditional).await.map(Tried::Done)
                }
                ended => self.answer_transaction(ended, &tables).map(Tried::Done),
            };
        }
        let parts = writes.finish().map_err(|error| self.refused(error))?;
        let mut answers = Answers::default();
        let mut outdated = self.send(parts, &mut answers).await?;
        if let Some(failure) = outdated.pop() {
            progress.replanned();
            return Ok(Tried::Outdated(Some(failure)));
        }
        let refused = answers.replies.iter().position(|(_, reply)| ProgramReply::is_refusal(reply));
        match refused {
            Some(at) => {
                let (tablet, reply) = answers.replies.swap_remove(at);
                Ok(of_refusal(tablet, reply))
            }
            None => {
                let first = answers.replies.first().map_or(TabletId(0), |(tablet, _)| *tablet);
                self.answer_applied(first, is_conditional).await.map(Tried::Done)
            }
        }
    }
}
