//! Compares rows with what a unique index or a materialized view has of them, and the other way round.
//!
//! Always true: nothing is written. A difference is given only if the row or entry that was compared is stored
//! unchanged afterwards: so both were as they were read at one moment. Both are judged as of the same second, which lies
//! so far ahead that what expires soon does not count: the clocks of those who wrote them may differ. Left out: which
//! rows and entries, and when (the node).

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
use diorite_model::row::{LiveRow, now_seconds};
use std::sync::Arc;

/// Values that expire so soon are not looked for.
const EXPIRES_SOON_S: u32 = 60;

/// What a row, or an entry, was found to be. Entries are the rows of the index table, or of the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// The row has no entry, and is to have none; or the entry is not there any more; or it changed each time that it was
    /// looked at.
    Nothing,
    /// The row has its entry, or the entry its row.
    Right,
    /// The row is without the entry with this key, or a view has other values for it.
    Missing(Vec<u8>),
    /// The row that an entry of an index names does not have the values: that does no harm.
    Stale(Vec<u8>),
    /// The view has a row that does not follow from the row with this key.
    Surplus(Vec<u8>),
    /// What is stored as an entry is none.
    Unreadable,
}

/// A unique index or a view.
enum Dependent<'c> {
    /// With the second of which rows and entries are judged.
    Unique(Comparing<'c>, u32),
    /// The derivation has that second.
    View(Box<OfView<'c>>),
}

impl<'c> Dependent<'c> {
    fn new(catalog: &'c Catalog, table: TableId, id: u64, judged_s: u32) -> Result<Self, CqlError> {
        match OfView::new(catalog, table, id, judged_s) {
            Some(mut view) => {
                view.derivation = view.derivation.for_comparisons();
                Ok(Self::View(Box::new(view)))
            }
            None => Ok(Self::Unique(Comparing::new(catalog, table, id)?, judged_s)),
        }
    }

    fn table(&self) -> &Arc<TableContext> {
        match self {
            Self::Unique(of, _) => &of.table,
            Self::View(of) => &of.table,
        }
    }

    fn entries(&self) -> &Arc<TableContext> {
        match self {
            Self::Unique(of, _) => &of.index_table,
            Self::View(of) => &of.derivation.view,
        }
    }

    fn live<'r>(&self, row: &'r RawRow) -> Result<LiveRow<'r>, CqlError> {
        match self {
            Self::Unique(_, judged_s) => row.live_at(*judged_s),
            Self::View(of) => row.live_at(of.derivation.now_s()),
        }
    }

    /// The entry that a row is to have; for an index without a value. `None`: none.
    fn entry_of(&self, key: &[u8], row: &RawRow) -> Result<Option<ViewRow>, CqlError> {
        let live = self.live(row)?;
        match self {
            Self::View(of) => of.derivation.row(key, &live),
            Self::Unique(of, _) => {
                let Some(entry) = index_key(&of.table, of.unique, &unique_values(&of.table, &live)?)? else {
                    return Ok(None);
                };
                Ok(Some(ViewRow { token: 0, key: stored_key(of.index_entry, &entry)?, value: Vec::new() }))
            }
        }
    }

    /// Whether a stored entry is that of a row.
    fn is_of(&self, stored: &RawRow, key: &[u8], wanted: &ViewRow) -> Result<bool, CqlError> {
        let live = self.live(stored)?;
        match self {
            Self::View(of) => Ok(of.derivation.stored(&live)?.as_ref() == Some(&wanted.value)),
            Self::Unique(..) => Ok(owner_of(&live)?.as_deref() == Some(key)),
        }
    }

    /// The key of the row of which a stored entry is; `None`: readers do not see it.
    fn row_of(&self, entry: &[u8], stored: &RawRow) -> Result<Option<Vec<u8>>, CqlError> {
        let live = self.live(stored)?;
        match self {
            Self::View(of) if live.exists().map_err(corrupt)? => of.derivation.base_key(entry).map(Some),
            Self::View(_) => Ok(None),
            Self::Unique(..) => owner_of(&live),
        }
    }
}

impl<K: Kv> RowComparer<K> {
    /// Looks whether a row has the entry that follows from it; or, of an entry (`is_entry`), whether it follows from its
    /// row.
    ///
    /// # Errors
    /// If something cannot be read at the moment.
    pub async fn check(
        &self,
        (table, id): (TableId, u64),
        key: &[u8],
        is_entry: bool,
        budget: &Arc<Budget>,
    ) -> Result<Checked, CqlError> {
        for tries in 0..TRIES {
            budget.check()?;
            let (catalog, before_bytes) = (self.kv.catalog(), budget.meter().used_bytes());
            let judged_s = now_seconds(self.kv.now_us()).saturating_add(EXPIRES_SOON_S);
            let of = Dependent::new(&catalog, table, id, judged_s)?;
            let found = match is_entry {
                true => self.check_entry(&of, key, budget).await?,
                false => self.check_row(&of, key, budget).await?,
            };
            if let Some(found) = found {
                return Ok(found);
            }
            // Nothing of the try is kept.
            budget.give(budget.meter().used_bytes().saturating_sub(before_bytes));
            self.kv.pause((FIRST_PAUSE_NS << tries.min(16)).min(MAX_PAUSE_NS)).await;
        }
        Ok(Checked::Nothing)
    }

    /// `None`: the row has changed meanwhile.
    async fn check_row(&self, of: &Dependent<'_>, row: &[u8], budget: &Budget) -> Result<Option<Checked>, CqlError> {
        let partition_len = of.table().layout().partition_len(row).map_err(corrupt)?;
        if kind_of(row, partition_len).map_err(corrupt)? != RowKind::Regular {
            return Ok(Some(Checked::Nothing));
        }
        let Some(found) = self.read(of.table(), row, budget).await? else { return Ok(Some(Checked::Nothing)) };
        // What is damaged, or too long for the key of an entry, cannot have one.
        let Ok(wanted) = of.entry_of(row, &found) else { return Ok(Some(Checked::Missing(Vec::new()))) };
        let Some(wanted) = wanted else { return Ok(Some(Checked::Nothing)) };
        if let Some(stored) = self.read(of.entries(), &wanted.key, budget).await?
            && of.is_of(&stored, row, &wanted).unwrap_or(false)
        {
            return Ok(Some(Checked::Right));
        }
        let again = self.read(of.table(), row, budget).await?;
        Ok(again.is_some_and(|again| again.is_same(&found)).then_some(Checked::Missing(wanted.key)))
    }

    /// As [`Self::check_row`].
    async fn check_entry(
        &self,
        of: &Dependent<'_>,
        entry: &[u8],
        budget: &Budget,
    ) -> Result<Option<Checked>, CqlError> {
        let Some(stored) = self.read(of.entries(), entry, budget).await? else { return Ok(Some(Checked::Nothing)) };
        let Ok(row) = of.row_of(entry, &stored) else { return Ok(Some(Checked::Unreadable)) };
        let Some(row) = row else { return Ok(Some(Checked::Nothing)) };
        if let Some(found) = self.read(of.table(), &row, budget).await?
            && let Ok(Some(wanted)) = of.entry_of(&row, &found)
            && wanted.key == entry
            && of.is_of(&stored, &row, &wanted).unwrap_or(false)
        {
            return Ok(Some(Checked::Right));
        }
        let difference = match of {
            Dependent::Unique(..) => Checked::Stale(row),
            Dependent::View(_) => Checked::Surplus(row),
        };
        let again = self.read(of.entries(), entry, budget).await?;
        Ok(again.is_some_and(|again| again.is_same(&stored)).then_some(difference))
    }

    /// A malformed row is a finding.
    async fn read(&self, table: &Arc<TableContext>, key: &[u8], budget: &Budget) -> Result<Option<RawRow>, CqlError> {
        RawRead { kv: &self.kv, table, budget }.unchecked_row(key).await
    }
}
