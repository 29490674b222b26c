//! Materialized views: what rows a view has follows from the rows of its table, one from one.
//!
//! Always true: what a view has for a row is a function of the live values of that row, with their expiries, and of the
//! two definitions. It expires when the row ends to fulfil what the view asks for. Left out: who writes it
//! ([`crate::exec::modify::views`]).

mod contents;

pub use contents::{copied, packed};

use crate::ddl::predicate;
use crate::error::{corrupt, invalid, key_error};
use crate::table::{Source, TableContext};
use crate::values::satisfies;
use contents::sooner;
use diorite_base::limits::MAX_KEY_BYTES;
use diorite_cluster::catalog::Catalog;
use diorite_cql::language::ast::ComparisonOperator;
use diorite_cql::protocol::CqlError;
use diorite_model::key::{self, DecodedKey, KeyError};
use diorite_model::row::{Expiry, LiveContent, LiveRow};
use diorite_model::schema::{ColumnId, TableEntry, View, ViewOf};
use diorite_model::types::{CqlType, Frozen};
use diorite_model::value::compare;
use std::sync::Arc;

/// From where a column of the view's key has its values.
#[derive(Debug, Clone, Copy)]
enum KeySource {
    /// A column of the table's key, by its position.
    Key(usize),
    Cell(ColumnId),
}

/// A condition of the view.
#[derive(Debug)]
struct Test {
    source: KeySource,
    data_type: CqlType,
    operator: ComparisonOperator,
    wanted: Vec<u8>,
}

/// A row of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewRow {
    /// Its token.
    pub token: i64,
    /// Its key.
    pub key: Vec<u8>,
    /// The packed row, to be stamped.
    pub value: Vec<u8>,
}

/// How the rows of a view follow from those of its table.
#[derive(Debug)]
pub struct Derivation {
    /// The number of the view within the table.
    pub id: u64,
    /// The version of the table that has added columns to the view last; zero, if none has.
    pub columns_since: u64,
    /// The view with its tablets.
    pub entry: Arc<TableEntry>,
    /// The view.
    pub view: Arc<TableContext>,
    base: Arc<TableContext>,
    key: Vec<KeySource>,
    tests: Vec<Test>,
    /// The columns that are copied, ascending.
    copied: Vec<ColumnId>,
    follows_rows: bool,
    now_s: u32,
    /// Elements of these columns are numbered, for comparisons.
    numbered: Vec<ColumnId>,
}

impl Derivation {
    /// How the rows of a view follow that are written now; `None` if the view was dropped.
    pub fn new(catalog: &Catalog, base: &Arc<TableContext>, of: &ViewOf, now_s: u32) -> Option<Self> {
        let entry = Arc::clone(catalog.table_by_id(of.table)?);
        let View { predicate, .. } = entry.table.view.as_deref()?;
        let source = |id: ColumnId| match base.position_of(id) {
            Some(position) if position < base.key_columns() => KeySource::Key(position),
            _ => KeySource::Cell(id),
        };
        let view = Arc::new(TableContext::new(Arc::clone(&entry.table), Source::Tablets));
        let key = entry.table.partition_key().chain(entry.table.clustering()).map(|column| source(column.id));
        let tests = predicate.iter().map(|condition| {
            let data_type = base.table().column_by_id(condition.column)?.data_type.clone();
            let wanted = predicate::wire_of(&data_type, &condition.literal)?;
            let operator = predicate::comparison_of(condition.operator);
            Some(Test { source: source(condition.column), data_type, operator, wanted })
        });
        let mut copied: Vec<ColumnId> = entry.table.regulars().map(|column| column.id).collect();
        copied.sort_unstable();
        let (key, tests) = (key.collect(), tests.collect::<Option<_>>()?);
        let base = Arc::clone(base);
        let (id, columns_since, follows_rows) = (of.id, of.columns_since, of.follows_rows);
        let numbered = Vec::new();
        Some(Self { id, columns_since, key, tests, copied, follows_rows, view, base, entry, now_s, numbered })
    }

    /// The same for comparisons: elements of lists count by their order alone. A row and its view have been given
    /// different places for them.
    #[must_use]
    pub fn for_comparisons(mut self) -> Self {
        let is_list = |data_type: &CqlType| matches!(data_type, CqlType::List(_, Frozen::No));
        let lists = self.entry.table.regulars().filter(|column| is_list(&column.data_type));
        self.numbered = lists.map(|column| column.id).collect();
        self
    }

    /// The row that the view has for a row of the table; `None`: it has none.
    ///
    /// # Errors
    /// If values are too long for the view's key.
    pub fn row(&self, key: &[u8], row: &LiveRow<'_>) -> Result<Option<ViewRow>, CqlError> {
        if !self.base.row_exists(row).map_err(corrupt)? {
            return Ok(None);
        }
        let mut decoded = DecodedKey::default();
        self.base.layout().decode(key, &mut decoded).map_err(corrupt)?;
        let mut expiry = if self.follows_rows { self.last_expiry(row)? } else { None };
        let mut wire = |source: KeySource| -> Result<Option<Vec<u8>>, CqlError> {
            let partition = self.base.partition_columns();
            let id = match source {
                KeySource::Key(at) if at < partition => return Ok(Some(decoded.partition(at).to_vec())),
                KeySource::Key(at) => return Ok(decoded.clustering(at - partition).map(<[u8]>::to_vec)),
                KeySource::Cell(id) => id,
            };
            let Some(cell) = row.cell(id).map_err(corrupt)? else { return Ok(None) };
            let LiveContent::Value(wire) = cell.content else { return Ok(None) };
            expiry = sooner(expiry, cell.expiry);
            Ok(Some(wire.to_vec()))
        };
        for test in &self.tests {
            let Some(found) = wire(test.source)? else { return Ok(None) };
            if !satisfies(test.operator, compare(&test.data_type, &found, &test.wanted)) {
                return Ok(None);
            }
        }
        let mut values = Vec::with_capacity(self.key.len());
        for source in &self.key {
            let Some(found) = wire(*source)? else { return Ok(None) };
            values.push(found);
        }
        let Some((token, key)) = self.encoded(&values)? else { return Ok(None) };
        let value = self.packed(row, expiry)?;
        Ok(Some(ViewRow { token, key, value }))
    }

    /// The second at which rows are written.
    pub fn now_s(&self) -> u32 {
        self.now_s
    }

    /// What a stored row of the view has, as [`Self::row`] has it.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn stored(&self, row: &LiveRow<'_>) -> Result<Option<Vec<u8>>, CqlError> {
        let Some(marker) = row.marker() else { return Ok(None) };
        self.packed(row, marker.expiry).map(Some)
    }

    fn packed(&self, row: &LiveRow<'_>, expiry: Option<Expiry>) -> Result<Vec<u8>, CqlError> {
        packed(row, (&self.copied, &self.numbered), expiry, self.now_s).map_err(corrupt)
    }

    /// The key of the row of which a row of the view is, by the latter's key.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn base_key(&self, view_key: &[u8]) -> Result<Vec<u8>, CqlError> {
        let mut decoded = DecodedKey::default();
        self.view.layout().decode(view_key, &mut decoded).map_err(corrupt)?;
        let partition = self.view.partition_columns();
        let wire = |at: usize| {
            let is_it = |source: &KeySource| matches!(source, KeySource::Key(of) if *of == at);
            match self.key.iter().position(is_it) {
                Some(at) if at < partition => decoded.partition(at),
                Some(at) => decoded.clustering(at - partition).unwrap_or_default(),
                None => &[],
            }
        };
        let (layout, partition, mut key) = (self.base.layout(), self.base.partition_columns(), Vec::new());
        layout.encode_partition((0..partition).map(wire), &mut key).map_err(key_error)?;
        key::push_row(&mut key);
        layout.push_clusterings((partition..self.base.key_columns()).map(wire), &mut key).map_err(key_error)?;
        Ok(key)
    }

    /// The key of the view's row with these values; `None`: rows with an empty key do not exist.
    fn encoded(&self, values: &[Vec<u8>]) -> Result<Option<(i64, Vec<u8>)>, CqlError> {
        let (partition, clustering) = values.split_at(self.view.partition_columns());
        let (layout, mut key) = (self.view.layout(), Vec::new());
        let of_view = |error: KeyError| {
            let mut error = key_error(error);
            let title = self.entry.table.view_title();
            error.message = format!("{} (in the key of the {title})", error.message).into();
            error
        };
        let token = match layout.encode_partition(partition.iter().map(Vec::as_slice), &mut key) {
            Err(KeyError::Empty) => return Ok(None),
            token => token.map_err(of_view)?,
        };
        key::push_row(&mut key);
        layout.push_clusterings(clustering.iter().map(Vec::as_slice), &mut key).map_err(of_view)?;
        if key.len() > MAX_KEY_BYTES {
            let (title, bytes) = (self.entry.table.view_title(), key.len());
            let what = format!("the key of the {title} takes {bytes} bytes, at most {MAX_KEY_BYTES}");
            return Err(invalid(what));
        }
        Ok(Some((token, key)))
    }

    /// When the last thing by which a row exists expires.
    fn last_expiry(&self, row: &LiveRow<'_>) -> Result<Option<Expiry>, CqlError> {
        let is_known = |column: ColumnId| self.base.position_of(column).is_some();
        contents::last_expiry(row, is_known).map_err(corrupt)
    }
}
