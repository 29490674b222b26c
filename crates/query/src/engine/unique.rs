//! Writes to the columns of unique indexes: what the rows have is read, and the transaction that follows tests it.
//!
//! Always true: nothing was done while a write is tried again; an error that names a duplicate is given only if another
//! row was seen to have the values. Left out: what the transaction consists of ([`crate::exec::modify::unique`]).

use super::transaction::{CONFLICT, Ended};
use super::write::{Answers, WriteAnswer, Writing};
use crate::error::invalid;
use crate::exec::modify::Writes;
use crate::exec::modify::unique::{Believed, Planned, RowId, Unread, owner_of, unique_values};
use crate::exec::parts::Failure;
use crate::exec::raw::RawRead;
use crate::exec::table_part::TablePart;
use crate::kv::{Kv, KvError};
use crate::program::ProgramReply;
use crate::table::{Source, TableContext};
use diorite_base::{TableId, TabletId};
use diorite_cql::protocol::CqlError;
use diorite_model::row::now_seconds;
use diorite_model::schema::TableEntry;
use diorite_transact::coordinator::Outcome;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How often a write is tried whose rows others change at the same time.
const TRIES: u32 = 24;
/// The first wait before a further try, and the longest.
const FIRST_PAUSE_NS: u64 = 1_000_000;
const MAX_PAUSE_NS: u64 = 64_000_000;

/// What has become of a try.
enum Tried {
    Done(WriteAnswer),
    /// A condition did not hold in this tablet: its reply.
    Refused(TabletId, Vec<u8>),
    /// A tablet does not exist any more.
    Missing,
}

impl<K: Kv> Writing<'_, K> {
    /// Carries out a write to rows or columns of unique indexes, and answers the client.
    pub(super) async fn write_unique(
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
        let (mut writes, mut believed) = (Some(first), Believed::default());
        // The part that was refused last, and what it was planned with.
        let mut refused: Option<(TabletId, Vec<u8>, BTreeMap<RowId, _>)> = None;
        let mut is_careful = false;
        for tries in 0..TRIES {
            let mut of_try = match writes.take() {
                Some(writes) => writes,
                None => self.engine.finish(means.work, gathered).await.map_err(|error| self.refused(error))?,
            };
            let planned = self.planned(&mut of_try, &mut believed, tries > 0, is_careful).await;
            let of_index = planned.map_err(|error| self.refused(error))?;
            if let Some((tablet, reply, before)) = refused.take()
                && is_conditional
                && before == believed.rows
            {
                // What was planned with is as it was: it was the statement's own condition.
                return self.answer_refused(tablet, reply).await;
            }
            match self.tried(of_try).await? {
                Tried::Done(answer) => return Ok(answer),
                Tried::Missing => is_careful = true,
                Tried::Refused(tablet, reply) => {
                    if let Ok(ProgramReply::Failed(message)) = ProgramReply::decode(&reply) {
                        return Err(self.refused(invalid(message)));
                    }
                    match of_index.contains(&tablet) {
                        true => is_careful = true,
                        false => refused = Some((tablet, reply, std::mem::take(&mut believed.rows))),
                    }
                }
            }
            believed = Believed::default();
            if tries > 0 {
                self.engine.kv.pause((FIRST_PAUSE_NS << tries.min(16)).min(MAX_PAUSE_NS)).await;
            }
        }
        Err(self.refused(CqlError::overloaded(CONFLICT)))
    }

    /// Reads what has to be known, and adds what keeps the tables of indexes up to date; returns the tablets of these.
    async fn planned(
        &self,
        writes: &mut Writes,
        believed: &mut Believed,
        reads_all: bool,
        is_careful: bool,
    ) -> Result<Vec<TabletId>, CqlError> {
        let budget = self.means.budget;
        let catalog = self.engine.kv.catalog();
        let mut unread = writes.unread(believed, reads_all)?;
        loop {
            budget.check()?;
            for missing in unread {
                self.read_unique(missing, believed).await?;
            }
            match writes.upkeep(&catalog, believed, is_careful)? {
                Planned::Read(more) => unread = more,
                Planned::Upkeep(upkeep) => {
                    for (table, key) in upkeep.tested() {
                        if let Some(entry) = catalog.table_by_id(*table) {
                            writes.add_tested(entry, key)?;
                        }
                    }
                    let before = writes.tablets();
                    writes.add_upkeep(upkeep, believed, now_seconds(self.engine.kv.now_us()))?;
                    let mut after = writes.tablets();
                    after.retain(|tablet| !before.contains(tablet));
                    return Ok(after);
                }
            }
        }
    }

    async fn read_unique(&self, missing: Unread, believed: &mut Believed) -> Result<(), CqlError> {
        let budget = self.means.budget;
        match missing {
            Unread::Row(row) => {
                let (table, entry) = self.table_of(row.0)?;
                let found = self.raw(&table).row(&row.1).await?;
                let values = found.map(|found| unique_values(&table, &found.live()?)).transpose()?;
                budget.take(row.1.len() + values.iter().flatten().map(|(_, value)| value.len()).sum::<usize>())?;
                drop(entry);
                believed.rows.insert(row, values.unwrap_or_default());
            }
            Unread::Owner(row) => {
                let (table, _) = self.table_of(row.0)?;
                let found = self.raw(&table).row(&row.1).await?;
                let owner = found.map(|found| owner_of(&found.live()?)).transpose()?.flatten();
                budget.take(row.1.len() + owner.as_ref().map_or(0, Vec::len))?;
                believed.owners.insert(row, owner);
            }
            Unread::Range(id, start, end) => {
                let (table, _) = self.table_of(id)?;
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
    fn table_of(&self, id: TableId) -> Result<(Arc<TableContext>, Arc<TableEntry>), CqlError> {
        let catalog = self.engine.kv.catalog();
        let entry = catalog.table_by_id(id).ok_or_else(|| invalid("the table, or an index of it, was dropped"))?;
        Ok((Arc::new(TableContext::new(Arc::clone(&entry.table), Source::Tablets)), Arc::clone(entry)))
    }

    /// The answer to a write whose own condition does not hold in a tablet.
    async fn answer_refused(&self, tablet: TabletId, reply: Vec<u8>) -> Result<WriteAnswer, Failure> {
        if self.is_block {
            // YCQL's words.
            let table = self.plans.iter().find(|plan| plan.condition.is_some()).map(|plan| &plan.table.table().name);
            let table = table.map_or("", String::as_str);
            return Err(self.refused(invalid(format!("Execution Error. Condition on table {table} was not satisfied."))));
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
                    Ok(Tried::Refused(tablet, reply))
                }
                Ended::Impossible(_, KvError::NoSuchTablet(_)) => {
                    progress.replanned();
                    Ok(Tried::Missing)
                }
                Ended::Answered(Outcome::Applied(_)) => {
                    progress.answered(false);
                    let first = tables.first().map_or(TabletId(0), |(tablet, _)| *tablet);
                    self.answer_applied(first, is_conditional).await.map(Tried::Done)
                }
                ended => self.answer_transaction(ended, &tables).map(Tried::Done),
            };
        }
        let parts = writes.finish().map_err(|error| self.refused(error))?;
        let mut answers = Answers::default();
        let missing = self.send(parts, &mut answers).await?;
        if !missing.is_empty() {
            progress.replanned();
            return Ok(Tried::Missing);
        }
        let refused = answers.replies.iter().position(|(_, reply)| ProgramReply::is_refusal(reply));
        match refused {
            Some(at) => {
                let (tablet, reply) = answers.replies.swap_remove(at);
                Ok(Tried::Refused(tablet, reply))
            }
            None => {
                let first = answers.replies.first().map_or(TabletId(0), |(tablet, _)| *tablet);
                self.answer_applied(first, is_conditional).await.map(Tried::Done)
            }
        }
    }
}
