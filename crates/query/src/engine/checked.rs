//! Compares rows with what a unique index or a materialized view has of them, and the other way round.
//!
//! Always true: nothing is written. A difference is given only if the row or entry that was compared is stored
//! unchanged afterwards: so both were as they were read at one moment. Left out: which rows and entries, and when (the node).

use super::compared::{Comparing, FIRST_PAUSE_NS, MAX_PAUSE_NS, OfView, RowComparer, TRIES};
use crate::budget::Budget;
use crate::error::corrupt;
use crate::exec::modify::unique::{index_key, owner_of, stored_key, unique_values};
use crate::exec::raw::{RawRead, RawRow};
use crate::kv::Kv;
use crate::table::TableContext;
use crate::view::ViewRow;
use diorite_base::TableId;
use diorite_cluster::catalog::Catalog;
use diorite_cql::protocol::CqlError;
use diorite_model::key::{RowKind, kind_of};
use diorite_model::row::now_seconds;
use std::sync::Arc;

/// What a row, or an entry, was found to be. Entries are the rows of the index's table, or of the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// The row has no entry, and is to have none; or the entry is not there any more.
    Nothing,
    /// The row has its entry, or the entry its row.
    Right,
    /// The row is without the entry with this key, or a view has other values for it.
    Missing(Vec<u8>),
    /// The row that an entry of an index names does not have the values: that does no harm.
    Stale(Vec<u8>),
    /// The view has a row that does not follow from the row with this key.
    Surplus(Vec<u8>),
}

/// A unique index or a view.
enum Dependent<'c> {
    Unique(Comparing<'c>),
    View(Box<OfView<'c>>),
}

impl<'c> Dependent<'c> {
    fn new(catalog: &'c Catalog, table: TableId, id: u64, now_s: u32) -> Result<Self, CqlError> {
        match OfView::new(catalog, table, id, now_s) {
            Some(mut view) => {
                view.derivation = view.derivation.for_comparisons();
                Ok(Self::View(Box::new(view)))
            }
            None => Comparing::new(catalog, table, id).map(Self::Unique),
        }
    }

    fn table(&self) -> &Arc<TableContext> {
        match self {
            Self::Unique(of) => &of.table,
            Self::View(of) => &of.table,
        }
    }

    fn entries(&self) -> &Arc<TableContext> {
        match self {
            Self::Unique(of) => &of.index_table,
            Self::View(of) => &of.derivation.view,
        }
    }

    /// The entry that a row is to have; for an index without a value. `None`: none.
    fn entry_of(&self, key: &[u8], row: &RawRow) -> Result<Option<ViewRow>, CqlError> {
        match self {
            Self::View(of) => of.derivation.row(key, &row.live_at(of.derivation.now_s())?),
            Self::Unique(of) => {
                let Some(entry) = index_key(&of.table, of.unique, &unique_values(&of.table, &row.live()?)?)? else {
                    return Ok(None);
                };
                Ok(Some(ViewRow { token: 0, key: stored_key(of.index_entry, &entry)?, value: Vec::new() }))
            }
        }
    }

    /// Whether a stored entry is that of a row.
    fn is_of(&self, stored: &RawRow, key: &[u8], wanted: &ViewRow) -> Result<bool, CqlError> {
        match self {
            Self::View(of) => Ok(of.derivation.stored(&stored.live()?)?.as_ref() == Some(&wanted.value)),
            Self::Unique(_) => Ok(owner_of(&stored.live()?)?.as_deref() == Some(key)),
        }
    }

    /// The key of the row of which a stored entry is; `None`: it is of none, as it was deleted.
    fn row_of(&self, entry: &[u8], stored: &RawRow) -> Result<Option<Vec<u8>>, CqlError> {
        match self {
            Self::View(of) if of.derivation.stored(&stored.live()?)?.is_some() => {
                of.derivation.base_key(entry).map(Some)
            }
            Self::View(_) => Ok(None),
            Self::Unique(_) => owner_of(&stored.live()?),
        }
    }
}

impl<K: Kv> RowComparer<K> {
    /// Looks whether a row has the entry that follows from it; or, of an entry (`is_entry`), whether it follows from its
    /// row.
    ///
    /// # Errors
    /// If something cannot be read at the moment, or changes all the time.
    pub async fn check(
        &self,
        (table, id): (TableId, u64),
        key: &[u8],
        is_entry: bool,
        budget: &Arc<Budget>,
    ) -> Result<Checked, CqlError> {
        for tries in 0..TRIES {
            budget.check()?;
            let catalog = self.kv.catalog();
            let dependent = || Dependent::new(&catalog, table, id, now_seconds(self.kv.now_us()));
            let found = match is_entry {
                true => self.check_entry(dependent, key, budget).await?,
                false => self.check_row(dependent, key, budget).await?,
            };
            if let Some(found) = found {
                return Ok(found);
            }
            self.kv.pause((FIRST_PAUSE_NS << tries.min(16)).min(MAX_PAUSE_NS)).await;
        }
        Err(CqlError::overloaded("others change the row at the same time"))
    }

    /// `dependent`: the index or view, as of now. `None`: the row has changed meanwhile.
    async fn check_row<'c>(
        &self,
        dependent: impl Fn() -> Result<Dependent<'c>, CqlError>,
        row: &[u8],
        budget: &Budget,
    ) -> Result<Option<Checked>, CqlError> {
        let of = dependent()?;
        let partition_len = of.table().layout().partition_len(row).map_err(corrupt)?;
        if kind_of(row, partition_len).map_err(corrupt)? != RowKind::Regular {
            return Ok(Some(Checked::Nothing));
        }
        let Some(found) = self.read(of.table(), row, budget).await? else { return Ok(Some(Checked::Nothing)) };
        // What is too long for the key of an entry cannot have one.
        let Ok(wanted) = of.entry_of(row, &found) else { return Ok(Some(Checked::Missing(Vec::new()))) };
        let Some(wanted) = wanted else { return Ok(Some(Checked::Nothing)) };
        if let Some(stored) = self.read(of.entries(), &wanted.key, budget).await?
            && of.is_of(&stored, row, &wanted)?
        {
            return Ok(Some(Checked::Right));
        }
        let Some(again) = self.read(of.table(), row, budget).await? else { return Ok(None) };
        let is_unchanged = again.is_same(&found) && dependent()?.entry_of(row, &again)?.as_ref() == Some(&wanted);
        Ok(is_unchanged.then_some(Checked::Missing(wanted.key)))
    }

    /// As [`Self::check_row`].
    async fn check_entry<'c>(
        &self,
        dependent: impl Fn() -> Result<Dependent<'c>, CqlError>,
        entry: &[u8],
        budget: &Budget,
    ) -> Result<Option<Checked>, CqlError> {
        let of = dependent()?;
        let Some(stored) = self.read(of.entries(), entry, budget).await? else { return Ok(Some(Checked::Nothing)) };
        let Some(row) = of.row_of(entry, &stored)? else { return Ok(Some(Checked::Nothing)) };
        if let Some(found) = self.read(of.table(), &row, budget).await?
            && let Ok(Some(wanted)) = of.entry_of(&row, &found)
            && wanted.key == entry
            && of.is_of(&stored, &row, &wanted)?
        {
            return Ok(Some(Checked::Right));
        }
        let Some(again) = self.read(of.entries(), entry, budget).await? else { return Ok(None) };
        let is_unchanged = again.is_same(&stored) && dependent()?.row_of(entry, &again)?.as_ref() == Some(&row);
        let difference = match of {
            Dependent::Unique(_) => Checked::Stale(row),
            Dependent::View(_) => Checked::Surplus(row),
        };
        Ok(is_unchanged.then_some(difference))
    }

    async fn read(&self, table: &Arc<TableContext>, key: &[u8], budget: &Budget) -> Result<Option<RawRow>, CqlError> {
        RawRead { kv: &self.kv, table, budget }.row(key).await
    }
}
