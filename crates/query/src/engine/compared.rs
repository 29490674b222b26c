//! Rows that were there before a unique index are compared with all others: each is named by the index's table, unless
//! that names another row with the same values. Rows that were there before a materialized view are added to it.
//!
//! Always true: a row is named only while it has the values, by a transaction that tests them; a duplicate is two rows
//! that had the values at one moment; a row is added to a view only as it is. Left out: which rows, and when (the node),
//! which tries again what could not be compared.

use super::state::QueryEngine;
use super::transaction::{Coordinating, Ended, attempt};
use crate::budget::Budget;
use crate::error::{corrupt, invalid};
use crate::exec::modify::unique::{Believed, UniqueValues, index_key, owner_of, stored_key, unique_values};
use crate::exec::modify::{Write, Writes};
use crate::exec::raw::RawRead;
use crate::exec::table_part::TablePart;
use crate::kv::Kv;
use crate::program::ProgramReply;
use crate::table::{Source, TableContext};
use crate::view::Derivation;
use diorite_base::TableId;
use diorite_cluster::catalog::Catalog;
use diorite_cql::protocol::CqlError;
use diorite_model::key::{DecodedKey, RowKind, kind_of, token_of};
use diorite_model::row::now_seconds;
use diorite_model::schema::{TableEntry, Unique};
use diorite_model::types::CqlType;
use diorite_model::value::literal_text;
use diorite_transact::coordinator::Outcome;
use std::sync::Arc;

/// How often a row is tried that others change at the same time.
pub(super) const TRIES: u32 = 24;
pub(super) const FIRST_PAUSE_NS: u64 = 1_000_000;
pub(super) const MAX_PAUSE_NS: u64 = 64_000_000;
/// A row that has a value with a timestamp in the future, but not farther than this, is compared when that time comes.
const AWAITED_US: i64 = 60_000_000;

/// What a comparison has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Comparison {
    /// The row is named, or lacks a value; a view has what follows from it.
    Alone,
    /// Another row has the same values: both keys and the values, for people.
    Duplicate(String),
    /// The row cannot be in the index or view: why.
    Impossible(String),
}

/// A unique index with all that is needed to compare rows.
pub(super) struct Comparing<'c> {
    entry: &'c TableEntry,
    pub(super) table: Arc<TableContext>,
    pub(super) unique: &'c Unique,
    pub(super) index_entry: &'c TableEntry,
    pub(super) index_table: Arc<TableContext>,
}

impl<'c> Comparing<'c> {
    pub(super) fn new(catalog: &'c Catalog, table: TableId, index: u64) -> Result<Self, CqlError> {
        let gone = || invalid("the table or its index was dropped");
        let entry = catalog.table_by_id(table).ok_or_else(gone)?;
        let (_, unique) = entry.table.unique_indexes().find(|(of, _)| of.id == index).ok_or_else(gone)?;
        let index_entry = catalog.table_by_id(unique.table).ok_or_else(gone)?;
        let context = |entry: &TableEntry| Arc::new(TableContext::new(Arc::clone(&entry.table), Source::Tablets));
        Ok(Self { entry, table: context(entry), unique, index_entry, index_table: context(index_entry) })
    }

    fn duplicate(&self, one: &[u8], other: &[u8], values: &UniqueValues) -> String {
        let shown = |key: &[u8]| shortened(shown_key(&self.table, key));
        let values = self.unique.columns.iter().filter_map(|id| {
            let column = self.table.table().column_by_id(*id)?;
            Some(literal(&column.data_type, values.get(id)?))
        });
        let values = shortened(values.collect::<Vec<_>>().join(", "));
        format!("the rows ({}) and ({}) both have ({values})", shown(one), shown(other))
    }
}

/// A materialized view with all that is needed to compare rows with it.
pub(super) struct OfView<'c> {
    entry: &'c TableEntry,
    pub(super) table: Arc<TableContext>,
    pub(super) derivation: Derivation,
}

impl<'c> OfView<'c> {
    /// `None` if the table has no view with this number.
    pub(super) fn new(catalog: &'c Catalog, table: TableId, view: u64, now_s: u32) -> Option<Self> {
        let entry = catalog.table_by_id(table)?;
        let of = entry.table.views.iter().find(|of| of.id == view)?;
        let table = Arc::new(TableContext::new(Arc::clone(&entry.table), Source::Tablets));
        let derivation = Derivation::new(catalog, &table, of, now_s)?;
        Some(Self { entry, table, derivation })
    }
}

/// Texts for people have so many bytes at most.
const SHOWN_BYTES: usize = 256;

fn shortened(mut shown: String) -> String {
    if shown.len() > SHOWN_BYTES {
        shown.truncate(shown.floor_char_boundary(SHOWN_BYTES));
        shown.push('…');
    }
    shown
}

fn literal(data_type: &CqlType, wire: &[u8]) -> String {
    let mut shown = String::new();
    match literal_text(data_type, wire, &mut shown) {
        Ok(()) => shown,
        Err(_) => "?".to_owned(),
    }
}

/// The columns of a row's key, as CQL literals.
fn shown_key(table: &TableContext, key: &[u8]) -> String {
    let mut decoded = DecodedKey::default();
    if table.layout().decode(key, &mut decoded).is_err() {
        return "?".to_owned();
    }
    let wire = |at: usize| match at.checked_sub(table.partition_columns()) {
        None => Some(decoded.partition(at)),
        Some(at) => decoded.clustering(at),
    };
    let shown = (0..table.key_columns())
        .map(|at| wire(at).map_or_else(String::new, |wire| literal(&table.column(at).data_type, wire)));
    shown.collect::<Vec<_>>().join(", ")
}

/// Compares rows, as a node of the cluster.
pub struct RowComparer<K> {
    pub(super) kv: Arc<K>,
    node: Coordinating<K>,
}

impl<K: Kv> RowComparer<K> {
    /// On the node of an engine.
    pub fn of(engine: &QueryEngine<K>) -> Self {
        Self { kv: Arc::clone(&engine.kv), node: Coordinating::of(engine) }
    }

    /// Compares a row with what a dependent says of it: with all other rows, for a unique index, and has the index's
    /// table name it; with its row in a materialized view, which is written if it differs.
    ///
    /// # Errors
    /// If something cannot be read or written at the moment.
    pub async fn compare_row(
        &self,
        table: TableId,
        index: u64,
        row: &[u8],
        budget: &Arc<Budget>,
    ) -> Result<Comparison, CqlError> {
        for tries in 0..TRIES {
            budget.check()?;
            let catalog = self.kv.catalog();
            if let Some(comparing) = OfView::new(&catalog, table, index, now_seconds(self.kv.now_us())) {
                if let Some(found) = self.compared_with_view(&comparing, row, budget).await? {
                    return Ok(found);
                }
                self.kv.pause((FIRST_PAUSE_NS << tries.min(16)).min(MAX_PAUSE_NS)).await;
                continue;
            }
            let comparing = Comparing::new(&catalog, table, index)?;
            let layout = comparing.table.layout();
            let kind = layout.partition_len(row).and_then(|partition_len| kind_of(row, partition_len));
            if kind.map_err(corrupt)? != RowKind::Regular {
                return Ok(Comparison::Alone);
            }
            if let Some(found) = self.compared(&comparing, row, budget).await? {
                return Ok(found);
            }
            self.kv.pause((FIRST_PAUSE_NS << tries.min(16)).min(MAX_PAUSE_NS)).await;
        }
        Err(CqlError::overloaded("others change the row at the same time, or its timestamps are in the future"))
    }

    /// Compares a row with its row in a view once; `None`: something has changed meanwhile.
    async fn compared_with_view(
        &self,
        of: &OfView<'_>,
        row: &[u8],
        budget: &Arc<Budget>,
    ) -> Result<Option<Comparison>, CqlError> {
        let partition_len = of.table.layout().partition_len(row).map_err(corrupt)?;
        if kind_of(row, partition_len).map_err(corrupt)? != RowKind::Regular {
            return Ok(Some(Comparison::Alone));
        }
        let Some(found) = (RawRead { kv: &self.kv, table: &of.table, budget }).row(row).await? else {
            return Ok(Some(Comparison::Alone));
        };
        let derived = match of.derivation.row(row, &found.live_at(of.derivation.now_s())?) {
            Ok(Some(derived)) => derived,
            // A view that does not know of a row has nothing for it.
            Ok(None) => return Ok(Some(Comparison::Alone)),
            Err(error) => {
                let shown = shortened(shown_key(&of.table, row));
                return Ok(Some(Comparison::Impossible(format!("the row ({shown}): {}", error.message))));
            }
        };
        let stored = RawRead { kv: &self.kv, table: &of.derivation.view, budget }.row(&derived.key).await?;
        if let Some(stored) = stored
            && of.derivation.stored(&stored.live()?)?.as_ref() == Some(&derived.value)
        {
            return Ok(Some(Comparison::Alone));
        }
        let token = token_of(row).map_err(corrupt)?;
        let part = TablePart::holding(token, of.entry.table.id, &of.entry.tablets);
        let writes = Writes::adding_to_view(part, &of.table, &of.derivation, (row, &found), derived)?;
        self.once((&of.table, row), writes, Comparison::Alone, budget).await
    }

    /// Carries out, once, what compares a row of a table, and gives what was found if that succeeds. `None`: something has
    /// changed meanwhile.
    async fn once(
        &self,
        (table, row): (&TableContext, &[u8]),
        writes: Writes,
        found: Comparison,
        budget: &Arc<Budget>,
    ) -> Result<Option<Comparison>, CqlError> {
        let reply = if writes.tablet_count() > 1 {
            let (ended, _) = attempt(&self.node, writes.into_transaction()?, budget).await?;
            tracing::trace!(table = %table.table().name, ?ended, "a row was compared");
            match ended {
                Ended::Answered(Outcome::Applied(_)) => return Ok(Some(found)),
                Ended::Refused(_, reply) => reply,
                Ended::Answered(_) | Ended::Impossible(..) => return Ok(None),
            }
        } else {
            let Some(Write { part, mutation, .. }) = writes.finish()?.into_iter().next() else { return Ok(None) };
            let written = self.kv.write(part.tablet, mutation, budget.deadline()).await;
            let Ok(reply) = written else { return Ok(None) };
            reply
        };
        Ok(match ProgramReply::decode(&reply) {
            Ok(ProgramReply::Applied) => Some(found),
            // Trying again would not help.
            Ok(ProgramReply::Failed(why)) => {
                let shown = shortened(shown_key(table, row));
                Some(Comparison::Impossible(format!("the row ({shown}): {why}")))
            }
            Ok(ProgramReply::Refused(_) | ProgramReply::Outdated) | Err(_) => None,
        })
    }

    async fn values_of(&self, of: &Arc<TableContext>, row: &[u8], budget: &Budget) -> Result<UniqueValues, CqlError> {
        let found = RawRead { kv: &self.kv, table: of, budget }.row(row).await?;
        found.map_or(Ok(UniqueValues::new()), |found| unique_values(of, &found.live()?))
    }

    /// Compares once; `None`: something has changed meanwhile.
    async fn compared(
        &self,
        of: &Comparing<'_>,
        row: &[u8],
        budget: &Arc<Budget>,
    ) -> Result<Option<Comparison>, CqlError> {
        let values = self.values_of(&of.table, row, budget).await?;
        let key = match index_key(&of.table, of.unique, &values) {
            Ok(Some(key)) => key,
            Ok(None) => return Ok(Some(Comparison::Alone)),
            Err(error) => {
                let shown = shortened(shown_key(&of.table, row));
                return Ok(Some(Comparison::Impossible(format!("the row ({shown}): {}", error.message))));
            }
        };
        let stored = stored_key(of.index_entry, &key)?;
        let found = RawRead { kv: &self.kv, table: &of.index_table, budget }.row(&stored).await?;
        let owner = found.map(|found| owner_of(&found.live()?)).transpose()?.flatten();
        let mut believed = Believed::default();
        let former = match owner {
            Some(owner) if owner == row => return Ok(Some(Comparison::Alone)),
            Some(owner) => {
                let others = self.values_of(&of.table, &owner, budget).await?;
                if index_key(&of.table, of.unique, &others).is_ok_and(|other| other.as_ref() == Some(&key)) {
                    let why = Comparison::Duplicate(of.duplicate(&owner, row, &values));
                    believed.rows.insert((of.entry.table.id, owner.clone()), others);
                    believed.rows.insert((of.entry.table.id, row.to_vec()), values);
                    // Whether both have them, at one moment.
                    let rows = [row, &owner[..]];
                    let (mut writes, tests) = Writes::testing((of.entry, &of.table), rows.into_iter())?;
                    writes.add_upkeep(tests, &believed, now_seconds(self.kv.now_us()))?;
                    let found = self.once((&of.table, row), writes, why, budget).await?;
                    return self.unless_awaited(of, &rows, found, budget).await;
                }
                believed.rows.insert((of.entry.table.id, owner.clone()), others);
                Some(owner)
            }
            None => None,
        };
        believed.rows.insert((of.entry.table.id, row.to_vec()), values);
        let (mut writes, upkeep) = Writes::naming((of.entry, &of.table), of.index_entry, &key, row, former.as_deref())?;
        writes.add_upkeep(upkeep, &believed, now_seconds(self.kv.now_us()))?;
        let found = self.once((&of.table, row), writes, Comparison::Alone, budget).await?;
        let rows: Vec<&[u8]> = std::iter::once(row).chain(former.as_deref()).collect();
        self.unless_awaited(of, &rows, found, budget).await
    }

    /// What was found; `None` if rows could not be compared because of a timestamp that is a little in the future.
    async fn unless_awaited(
        &self,
        of: &Comparing<'_>,
        rows: &[&[u8]],
        found: Option<Comparison>,
        budget: &Arc<Budget>,
    ) -> Result<Option<Comparison>, CqlError> {
        if !matches!(found, Some(Comparison::Impossible(_))) {
            return Ok(found);
        }
        let mut newest_us: Option<i64> = None;
        for row in rows {
            let stored = RawRead { kv: &self.kv, table: &of.table, budget }.row(row).await?;
            let Some(stored) = stored else { continue };
            for cell in stored.live()?.cells() {
                let cell = cell.map_err(corrupt)?;
                if of.table.is_unique_column(cell.column) {
                    newest_us = newest_us.max(Some(cell.timestamp_us));
                }
            }
        }
        Ok(found.filter(|_| !may_be_awaited(newest_us, self.kv.now_us())))
    }
}

/// Whether a row may be compared in vain because its newest value had a timestamp that was a little in the future. It may
/// be in the past by now: the row is read after it was compared, and clocks differ. A row without values has changed.
fn may_be_awaited(newest_us: Option<i64>, now_us: i64) -> bool {
    newest_us.is_none_or(|newest_us| newest_us.abs_diff(now_us) < AWAITED_US.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_that_has_passed_since_the_row_was_compared_was_waited_for() {
        let now_us = 1_700_000_000_000_000;
        for (ahead_us, is_awaited) in [
            (AWAITED_US, false),
            (AWAITED_US - 1, true),
            (0, true),
            // The row was compared before its time, and is read after it.
            (-1, true),
            (-2_000_000, true),
            // Something else is in the way.
            (-AWAITED_US, false),
            (-3_600_000_000, false),
        ] {
            assert_eq!(may_be_awaited(Some(now_us + ahead_us), now_us), is_awaited, "{ahead_us}");
        }
        assert!(may_be_awaited(None, now_us), "its values were deleted meanwhile");
    }
}
