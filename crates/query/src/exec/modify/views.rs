//! What a statement's writes change in materialized views, and the parts of their transaction that write it.
//!
//! Always true: a transaction that writes what a view has for a row tests that the row is as it was read, and that its
//! tablet knows the view; so what the view has follows from the row at each moment. A row of a view is written whole,
//! or deleted. Left out: reading the rows (the engine), and what the view has for a row ([`crate::view`]).

use super::{Pending, Writes};
use crate::error::corrupt;
use crate::exec::raw::RawRow;
use crate::exec::table_part::TablePart;
use crate::program::{After, KnownView, ProgramOperation, RowCondition, RowTest, RowsDigest, Unchanged, deleted};
use crate::table::TableContext;
use crate::view::{Derivation, ViewRow, copied};
use diorite_base::TableId;
use diorite_base::mutation::EvaluationContext;
use diorite_cluster::catalog::Catalog;
use diorite_cql::protocol::CqlError;
use diorite_model::key::{RowKind, kind_of};
use diorite_model::row::{Deletion, LiveRow, RowReader, RowWriter, UNSTAMPED, now_seconds};
use diorite_model::schema::ColumnId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A key and a row.
pub type KeyedRow = (Vec<u8>, RawRow);

/// A row or a range of rows that has to be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watched {
    /// A row, by its key.
    Row(Vec<u8>),
    /// The rows of a partition from one key to before another.
    Range(Vec<u8>, Vec<u8>),
}

/// What has been read: the rows of each watched row or range.
#[derive(Debug, Default)]
pub struct Seen(BTreeMap<(TableId, Watched), Vec<KeyedRow>>);

impl Seen {
    /// Adds what was read.
    pub fn add(&mut self, table: TableId, watched: Watched, rows: Vec<KeyedRow>) {
        self.0.insert((table, watched), rows);
    }
}

/// What a view is to have: under these keys of the view these rows, or none.
type Changes = BTreeMap<(usize, Vec<u8>), Option<ViewRow>>;

impl Writes {
    /// The rows and ranges of tables with views that have to be read.
    ///
    /// # Errors
    /// If a key is damaged.
    pub fn watched(&self) -> Result<Vec<(Arc<TableContext>, Watched)>, CqlError> {
        let mut watched = BTreeMap::new();
        for pending in self.pending.iter().filter(|pending| pending.table.has_views()) {
            for one in pending.watched()? {
                watched.insert((pending.table.table().id, one), Arc::clone(&pending.table));
            }
        }
        Ok(watched.into_iter().map(|((_, watched), table)| (table, watched)).collect())
    }

    /// Adds what the views are to have after the writes. Returns false if the tables have changed since the writes were
    /// gathered.
    ///
    /// # Errors
    /// If values are too long for the key of a view.
    pub fn maintain_views(&mut self, catalog: &Catalog, seen: &Seen, now_us: i64) -> Result<bool, CqlError> {
        let mut written: Vec<(Arc<Derivation>, Changes)> = Vec::new();
        let is_block = self.is_block;
        for pending in self.pending.iter_mut().filter(|pending| pending.table.has_views()) {
            let Some(derivations) = pending.derivations(catalog, now_seconds(now_us)) else { return Ok(false) };
            let changes = pending.maintain(&derivations, seen, now_us, is_block)?;
            for (at, derivation) in derivations.into_iter().enumerate() {
                let of_view = changes.iter().filter(|((of, _), _)| *of == at);
                written.push((derivation, of_view.map(|(key, row)| (key.clone(), row.clone())).collect()));
            }
        }
        for (derivation, changes) in written {
            for ((_, key), row) in changes {
                self.write_view(&derivation, key, row, now_seconds(now_us))?;
            }
        }
        Ok(true)
    }

    /// Writes a row of a view, or deletes it.
    fn write_view(
        &mut self,
        derivation: &Derivation,
        key: Vec<u8>,
        row: Option<ViewRow>,
        now_s: u32,
    ) -> Result<(), CqlError> {
        let token = diorite_model::key::token_of(&key).map_err(corrupt)?;
        let part = TablePart::holding(token, derivation.entry.table.id, &derivation.entry.tablets);
        let pending = self.pending(part, &derivation.view);
        pending.deletes_only &= row.is_none();
        let value = row.map_or_else(|| removed(now_s), |row| row.value);
        let (is_overwrite, is_stamped, is_unplaced) = (true, true, false);
        pending.program.operations.push(ProgramOperation::Row { is_overwrite, is_stamped, is_unplaced, key, value });
        Ok(())
    }

    /// A transaction after which a view has what follows from a row, if the row is as it was read.
    ///
    /// # Errors
    /// If the row is malformed.
    pub fn adding_to_view(
        part: TablePart,
        table: &Arc<TableContext>,
        derivation: &Derivation,
        (key, row): (&[u8], &RawRow),
        added: ViewRow,
    ) -> Result<Self, CqlError> {
        let mut writes = Self::default();
        let pending = writes.pending(part, table);
        let counts = Counting { views: vec![known(derivation)], columns: counting(table, std::iter::empty()) };
        let watched = Watched::Row(key.to_vec());
        let guard = guard(table, &counts, &watched, std::iter::once((key, row)), derivation.now_s())?;
        pending.maintained().guards.push(guard);
        pending.program.dropped_columns = table.dropped_columns();
        let view_key = added.key.clone();
        // A row that is written contains the time at which it was made.
        writes.write_view(derivation, view_key, Some(added), 0)?;
        Ok(writes)
    }
}

impl Pending {
    /// How the rows of the table's views follow; `None` if the definition or the tablets have changed.
    fn derivations(&self, catalog: &Catalog, now_s: u32) -> Option<Vec<Arc<Derivation>>> {
        let entry = catalog.table_by_id(self.table.table().id)?;
        let is_current = entry.table.views == self.table.table().views
            && entry.tablets.iter().any(|range| range.tablet == self.part.tablet);
        let views = self.table.table().views.iter().filter(|_| is_current);
        let derivations =
            views.map(|view| Derivation::new(catalog, &self.table, view, now_s).map(Arc::new)).collect::<Option<_>>();
        derivations.filter(|_| is_current)
    }

    /// What of this part has to be read before.
    fn watched(&self) -> Result<BTreeSet<Watched>, CqlError> {
        let mut watched = BTreeSet::new();
        for operation in &self.program.operations {
            watched.extend(watched_by(&self.table, operation)?);
        }
        Ok(watched)
    }

    /// Adds the tests of what was read, and returns what the views are to have.
    fn maintain(
        &mut self,
        derivations: &[Arc<Derivation>],
        seen: &Seen,
        now_us: i64,
        is_block: bool,
    ) -> Result<Changes, CqlError> {
        let table = Arc::clone(&self.table);
        let counts = Counting {
            views: derivations.iter().map(|derivation| known(derivation)).collect(),
            columns: counting(&table, self.program.operations.iter().filter_map(edited)),
        };
        // All rows are judged at one second, which a guard that holds confirms.
        let now_s = now_seconds(now_us);
        let (mut before, mut rows, mut stamp_us) = (BTreeMap::new(), BTreeMap::new(), now_us);
        for watched in self.watched()? {
            let found = seen.0.get(&(table.table().id, watched.clone())).map(Vec::as_slice).unwrap_or_default();
            let of_rows = found.iter().map(|(key, row)| (key.as_slice(), row));
            let guard = guard(&table, &counts, &watched, of_rows, now_s)?;
            self.maintained().guards.push(guard);
            if let Watched::Row(key) = watched {
                rows.insert(key, None);
            }
            for (key, row) in found {
                let live = row.live_at(now_s)?;
                let (value, newest_us) = copied(&live).map_err(corrupt)?;
                // Deletions are stamped before what is written.
                stamp_us = stamp_us.max(newest_us.saturating_add(2));
                before.insert(key.clone(), value);
                rows.insert(key.clone(), Some(live));
            }
        }
        self.maintained();
        if self.program.dropped_columns.is_empty() {
            self.program.dropped_columns = table.dropped_columns();
        }
        let mut program = self.program.clone();
        program.turns = self.order.turns(&program, is_block);
        super::together::write_together(&mut program);
        let context = EvaluationContext { now_s, ..EvaluationContext::new(stamp_us, i64::MIN) };
        let after = After::of(program, context, before).map_err(|error| CqlError::server(error.to_string()))?;
        // What is impossible changes nothing.
        let Some(after) = after else { return Ok(Changes::new()) };
        changes(&table, derivations, &rows, &after)
    }
}

/// What views are to have for these rows, some of which existed before.
fn changes(
    table: &TableContext,
    derivations: &[Arc<Derivation>],
    rows: &BTreeMap<Vec<u8>, Option<LiveRow<'_>>>,
    after: &After,
) -> Result<Changes, CqlError> {
    let mut changes = Changes::new();
    for (key, live) in rows {
        let (partition, row) = key.split_at(table.layout().partition_len(key).map_err(corrupt)?);
        for (at, derivation) in derivations.iter().enumerate() {
            // What was too long before the view is not in it.
            let old = live.as_ref().and_then(|live| derivation.row(key, live).ok().flatten());
            let new = after.row(partition, row, |live| derivation.row(key, live));
            let new = new.map_err(|error| CqlError::server(error.to_string()))?.transpose()?.flatten();
            if old == new {
                continue;
            }
            if let Some(old) = old {
                changes.insert((at, old.key), None);
            }
            if let Some(new) = new {
                changes.insert((at, new.key.clone()), Some(new));
            }
        }
    }
    Ok(changes)
}

/// What guards ask for.
struct Counting {
    /// The views that the tablet has to know, as they are here.
    views: Vec<KnownView>,
    /// The columns that have to be as they were read; `None`: the whole row.
    columns: Option<Vec<ColumnId>>,
}

fn known(derivation: &Derivation) -> KnownView {
    KnownView { id: derivation.id, columns_since: derivation.columns_since }
}

/// The columns on which depends what the views of a table have, and these others.
fn counting(table: &TableContext, others: impl Iterator<Item = ColumnId>) -> Option<Vec<ColumnId>> {
    if table.views_follow_rows() {
        return None;
    }
    let of_views = table.table().views.iter().flat_map(|view| view.columns.iter().copied());
    let columns: BTreeSet<ColumnId> = of_views.chain(others).collect();
    Some(columns.into_iter().collect())
}

/// The column on which depends what an operation does.
fn edited(operation: &ProgramOperation) -> Option<ColumnId> {
    match operation {
        ProgramOperation::Sum { column, .. }
        | ProgramOperation::List { column, .. }
        | ProgramOperation::Document { column, .. } => Some(*column),
        ProgramOperation::Row { .. } | ProgramOperation::Delete { .. } => None,
    }
}

/// That rows are as they were read, and that the tablet knows the views.
fn guard<'r>(
    table: &TableContext,
    counts: &Counting,
    watched: &Watched,
    rows: impl Iterator<Item = (&'r [u8], &'r RawRow)>,
    now_s: u32,
) -> Result<RowCondition, CqlError> {
    let Counting { views, columns } = counts;
    let mut digest = RowsDigest::new(columns.as_deref());
    for (key, row) in rows {
        digest.add(key, &row.live_at(now_s)?, |column| table.position_of(column).is_none()).map_err(corrupt)?;
    }
    let (start, end) = match watched {
        Watched::Row(key) => (key, None),
        Watched::Range(start, end) => (start, Some(end)),
    };
    let partition_len = table.layout().partition_len(start).map_err(corrupt)?;
    let (partition, row) = start.split_at(partition_len);
    let end = end.map(|end| end[partition_len..].to_vec());
    let (views, columns, rows) = (views.clone(), columns.clone(), digest.rows());
    let test = RowTest::Unchanged(Unchanged { views, columns, end, rows, digest: digest.finish() });
    Ok(RowCondition { partition: partition.to_vec(), row: row.to_vec(), test })
}

/// What an operation may change of what views have for rows, or what it depends on.
fn watched_by(table: &TableContext, operation: &ProgramOperation) -> Result<Option<Watched>, CqlError> {
    let (key, concerns) = match operation {
        // What they do depends on the row, also where no view has the column.
        ProgramOperation::Sum { key, .. }
        | ProgramOperation::List { key, .. }
        | ProgramOperation::Document { key, .. } => (key, true),
        ProgramOperation::Delete { partition, range, .. } => {
            let (start, end) = deleted(partition, range.as_ref());
            return Ok(Some(Watched::Range(start, end)));
        }
        ProgramOperation::Row { key, value, .. } => {
            let row = RowReader::new(value).map_err(corrupt)?;
            let concerns = table.views_follow_rows()
                || row.deletion().is_some()
                || row.cells().map_while(Result::ok).any(|cell| table.is_of_view(cell.column));
            let partition_len = table.layout().partition_len(key).map_err(corrupt)?;
            let is_regular = kind_of(key, partition_len).map_err(corrupt)? == RowKind::Regular;
            (key, concerns && is_regular)
        }
    };
    Ok(concerns.then(|| Watched::Row(key.clone())))
}

/// A row of a view that is deleted.
fn removed(now_s: u32) -> Vec<u8> {
    let mut value = Vec::new();
    RowWriter::new(&mut value, UNSTAMPED).deletion(Deletion { timestamp_us: UNSTAMPED, local_s: now_s });
    value
}
