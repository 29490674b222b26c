//! The answer to a write once all tablets have answered, in particular the rows that a refused condition shows.
//!
//! Always true: an answer is charged to its request before it is made, and a long one is made beside the serving
//! threads. The write itself is decided, whatever fails here. Conditions on static columns alone show the first row of
//! a partition. Replicas do not search for it, as the cost depends on what each of them has compacted; it is read here,
//! like any other row, after the write was refused. Left out: which rows a refusal shows ([`crate::program`]).

use super::write::{WriteAnswer, Writing};
use crate::error::{corrupt, in_tablet, invalid};
use crate::exec::outcome;
use crate::exec::read::{CHUNK_BYTES, CHUNK_ENTRIES};
use crate::exec::source::Source;
use crate::kv::{Fetch, FetchRows, Fetched, Kv, ScanRequest};
use crate::program::{DAMAGED, PARTITION_DELETIONS, ProgramReply, Seen, SeenRow};
use crate::table::TableContext;
use diorite_base::TabletId;
use diorite_cql::protocol::{CqlError, Response};
use diorite_model::deletions::Deletions;
use diorite_model::row::LiveRow;
use diorite_model::{Malformed, key};

/// How many entries are read first; most often the first lives.
const FIRST_ENTRIES: usize = 4;

impl<K: Kv> Writing<'_, K> {
    /// The answer, from the programs' replies.
    pub(super) async fn answer(
        &self,
        replies: Vec<(TabletId, Vec<u8>)>,
        is_conditional: bool,
    ) -> Result<WriteAnswer, CqlError> {
        let bytes = replies.iter().map(|(_, reply)| reply.len()).sum();
        let decode = || replies.iter().map(|(tablet, reply)| ProgramReply::decode(reply).map(|reply| (*tablet, reply)));
        let decoded = self.engine.finish(bytes, || decode().collect::<Result<Vec<_>, _>>()).await;
        let mut decoded = decoded.map_err(|_| {
            self.means.progress.doubt();
            CqlError::server("the answer of a conditional write cannot be decoded")
        })?;
        for (tablet, reply) in &mut decoded {
            if let ProgramReply::Refused(seen) = reply
                && self.shows_first_row(seen)
            {
                seen.rows.extend(self.first_row(*tablet, seen).await?);
            }
        }
        self.engine.finish(bytes, || self.respond(decoded, is_conditional)).await
    }

    fn respond(&self, replies: Vec<(TabletId, ProgramReply)>, is_conditional: bool) -> Result<WriteAnswer, CqlError> {
        let (plans, budget) = (self.plans, self.means.budget);
        let is_batch = self.means.is_batch;
        let answer = plans.first().map(|plan| plan.answer).unwrap_or_default();
        let (mut response, mut is_cut) = match answer.status_row && !is_batch {
            true => (Response::Rows(outcome::status(&plans[0].table, true, None, None, budget)?), false),
            false => (Response::Void, false),
        };
        for (tablet, reply) in replies {
            let malformed = |error| self.in_tablet(error, tablet);
            match reply {
                ProgramReply::Failed(message) if message == DAMAGED => return Err(malformed(corrupt(Malformed))),
                ProgramReply::Failed(message) if answer.status_row && !is_batch => {
                    let status = outcome::status(&plans[0].table, false, Some(&message), None, budget)?;
                    response = Response::Rows(status);
                }
                ProgramReply::Failed(message) => return Err(invalid(message)),
                ProgramReply::Applied if answer.status_row && !is_batch => {}
                ProgramReply::Refused(_) if plans.iter().any(|plan| plan.answer.error) => {
                    // YCQL's words.
                    let table = &plans[0].table.table().name;
                    return Err(invalid(format!("Execution Error. Condition on table {table} was not satisfied.")));
                }
                ProgramReply::Refused(seen) if answer.status_row && !is_batch => {
                    let mut shown = outcome::shown_columns(plans, true);
                    shown.sort_unstable();
                    let seen = Some((shown.as_slice(), &seen));
                    let status = outcome::status(&plans[0].table, false, None, seen, budget);
                    response = Response::Rows(status.map_err(malformed)?);
                }
                ProgramReply::Applied if is_conditional && !self.is_block => {
                    response = Response::Rows(outcome::applied(&plans[0].table));
                }
                ProgramReply::Applied => {}
                // Whoever plans such programs plans them again.
                ProgramReply::Outdated => return Err(CqlError::server("a write was planned with rows that changed")),
                ProgramReply::Refused(seen) => {
                    let shown = outcome::shown_columns(plans, is_batch);
                    let refused = outcome::refused(&plans[0].table, &shown, &seen, budget);
                    response = Response::Rows(refused.map_err(malformed)?);
                    is_cut |= seen.is_cut;
                }
            }
        }
        Ok(WriteAnswer { response, is_cut })
    }

    /// An error about rows of a tablet, with their place if one is malformed.
    fn in_tablet(&self, error: CqlError, tablet: TabletId) -> CqlError {
        in_tablet(&*self.engine.kv, error, self.plans[0].table.table(), tablet)
    }

    /// Whether the answer depends on the first row of the partition, which replicas leave out. Earlier versions have it in their replies.
    fn shows_first_row(&self, seen: &Seen) -> bool {
        let mut conditional = self.plans.iter().filter(|plan| plan.condition.is_some());
        if !seen.rows.is_empty()
            || self.plans.iter().any(|plan| plan.answer.error)
            || !conditional.all(|plan| plan.condition_is_static())
        {
            return false;
        }
        let table = &self.plans[0].table;
        let is_of_partition = |at: &usize| *at < table.partition_columns() || table.is_static(*at);
        let shows_keys = self.means.is_batch || self.plans[0].answer.status_row;
        // A static row can be shown; without one, a row shows that the partition is not empty.
        seen.static_row.is_none() || !outcome::shown_columns(self.plans, shows_keys).iter().all(is_of_partition)
    }

    /// The first live row of the partition, as of now.
    async fn first_row(&self, tablet: TabletId, seen: &Seen) -> Result<Option<SeenRow>, CqlError> {
        let (table, budget) = (&self.plans[0].table, self.means.budget);
        let source = Source::tablets(&*self.engine.kv, false, None, budget);
        let with = |push: fn(&mut Vec<u8>)| {
            let mut key = seen.partition.clone();
            push(&mut key);
            key
        };
        let (header, mut start, end) = (with(key::push_header), with(key::push_row), with(key::push_partition_end));
        let mut max_entries = FIRST_ENTRIES;
        loop {
            budget.check()?;
            let range = ScanRequest { start, end: end.clone(), reverse: false, max_entries, max_bytes: CHUNK_BYTES };
            let header = Some((PARTITION_DELETIONS, header.clone()));
            let fetch = Fetch { header, rows: FetchRows::Range(range), ..Fetch::default() };
            let fetched = source.fetch(tablet, fetch).await?;
            let bytes = fetched.size_bytes();
            let _held = budget.hold(2 * bytes)?;
            let found = self.engine.finish(bytes, || first_live(table, seen, &fetched)).await;
            let found = found.map_err(|error| self.in_tablet(error, tablet))?;
            let last = fetched.chunk.entries().last().filter(|_| found.is_none() && !fetched.chunk.exhausted);
            let Some((last, _)) = last else { return Ok(found) };
            start = [last, &[0]].concat();
            max_entries = (4 * max_entries).min(CHUNK_ENTRIES);
        }
    }
}

/// The first of some entries of a partition that is a row for readers.
fn first_live(table: &TableContext, seen: &Seen, fetched: &Fetched) -> Result<Option<SeenRow>, CqlError> {
    let deletions = fetched.header.as_deref().map(Deletions::decode).transpose().map_err(corrupt)?.unwrap_or_default();
    for (key, value) in fetched.chunk.entries() {
        let row = key.strip_prefix(seen.partition.as_slice()).unwrap_or_default();
        let (_, clustering) = row.split_first().ok_or(Malformed).map_err(corrupt)?;
        let deleted_us = deletions.deletion_for(clustering, value);
        let live = LiveRow::new(value, seen.now_s, deleted_us).map_err(corrupt)?;
        if table.row_exists(&live).map_err(corrupt)? {
            return Ok(Some(SeenRow { key: row.to_vec(), deleted_us, value: value.to_vec() }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use crate::table::Source;
    use crate::testing::Database;
    use std::sync::Arc;

    #[test]
    fn a_key_of_another_partition_is_malformed() {
        let database = Database::with_keyspace();
        database.run("CREATE TABLE t (p int, c int, s int STATIC, PRIMARY KEY (p, c))").unwrap();
        let definition = Arc::clone(&database.kv.catalog().table("ks", "t").unwrap().table);
        let table = TableContext::new(definition, Source::Tablets);
        let partition = vec![0x80, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1];
        let seen = Seen { now_s: 1, partition: partition.clone(), static_row: None, rows: Vec::new(), is_cut: false };
        for key in [&partition[..], &partition[..3], b"another partition", b""] {
            let mut fetched = Fetched::default();
            fetched.chunk.push(key, &[0x40, 0, 0, 0, 0, 0, 0, 0, 0]);
            assert!(first_live(&table, &seen, &fetched).is_err(), "{key:?}");
        }
    }
}
