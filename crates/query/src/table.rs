//! A table as plans see it: its definition, how its keys are laid out, and where its rows are.
//!
//! Always true: it belongs to one version of the definition; columns are addressed by their position in it. Left out: which tablets there
//! are at the moment; executions ask the current catalog.

use diorite_cql::protocol::Consistency;
use diorite_model::Malformed;
use diorite_model::key::KeyLayout;
use diorite_model::row::LiveRow;
use diorite_model::schema::{Column, ColumnId, ColumnKind, Table};
use std::sync::Arc;

/// The table option that allows reads from followers.
pub const FOLLOWER_STALENESS: &str = "follower_read_staleness_ms";

/// The table option that allows transaction blocks.
pub const TRANSACTIONS: &str = "transactions";

/// Up to this many columns are looked through when one is looked for.
const FEW_COLUMNS: usize = 16;

/// Whether transaction blocks may write to a table.
pub fn has_transactions(table: &Table) -> bool {
    table.options.get(TRANSACTIONS).is_some_and(|literal| enables_transactions(literal))
}

/// Whether the stored value of the option enables them; it is a canonical literal of a map.
fn enables_transactions(literal: &str) -> bool {
    literal.to_ascii_lowercase().contains("'enabled': 'true'")
}

/// Where the rows of a table are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// In tablets.
    Tablets,
    /// Made up when they are asked for.
    Virtual,
}

/// A table with what planning and execution derive from it.
#[derive(Debug)]
pub struct TableContext {
    definition: Arc<Table>,
    layout: KeyLayout,
    source: Source,
    partition_columns: usize,
    clustering_columns: usize,
    static_columns: usize,
    positions: Vec<usize>,
    /// The positions by name, for tables of many columns.
    names: Vec<u32>,
    has_dropped_columns: bool,
    staleness_ms: Option<u32>,
    has_transactions: bool,
    /// The columns of unique indexes, ascending.
    unique_columns: Vec<ColumnId>,
    /// The columns that decide what views have for a row, ascending.
    view_columns: Vec<ColumnId>,
}

impl TableContext {
    /// Derives everything from the definition.
    pub fn new(definition: Arc<Table>, source: Source) -> Self {
        let mut positions = vec![usize::MAX; definition.next_column_id as usize];
        for (position, column) in definition.columns.iter().enumerate() {
            let id = column.id as usize;
            positions.resize(positions.len().max(id + 1), usize::MAX);
            positions[id] = position;
        }
        let mut names: Vec<u32> = Vec::new();
        if definition.columns.len() > FEW_COLUMNS {
            names = (0..).take(definition.columns.len()).collect();
            names.sort_unstable_by_key(|at| definition.columns[*at as usize].name.as_str());
        }
        let mut unique_columns: Vec<ColumnId> =
            definition.unique_indexes().flat_map(|(_, unique)| unique.columns.iter().copied()).collect();
        unique_columns.sort_unstable();
        unique_columns.dedup();
        let mut view_columns: Vec<ColumnId> =
            definition.views.iter().flat_map(|view| view.columns.iter().copied()).collect();
        view_columns.sort_unstable();
        view_columns.dedup();
        Self {
            unique_columns,
            view_columns,
            names,
            has_dropped_columns: positions.contains(&usize::MAX),
            positions,
            layout: KeyLayout::new(&definition),
            source,
            partition_columns: definition.partition_key().count(),
            clustering_columns: definition.clustering().count(),
            static_columns: definition.statics().count(),
            staleness_ms: definition
                .options
                .get(FOLLOWER_STALENESS)
                .and_then(|text| text.parse().ok())
                .filter(|ms| *ms > 0),
            has_transactions: definition.options.get(TRANSACTIONS).is_some_and(|text| enables_transactions(text)),
            definition,
        }
    }

    /// How old the data of a read at this consistency level may be, milliseconds: only if the table sets it
    /// (`follower_read_staleness_ms`), and only for levels that ask for one replica. `None`: the read is linearizable.
    pub fn staleness_ms(&self, consistency: Consistency) -> Option<u32> {
        self.staleness_ms.filter(|_| matches!(consistency, Consistency::One | Consistency::LocalOne))
    }

    /// Whether it may be written to in transaction blocks.
    pub fn has_transactions(&self) -> bool {
        self.has_transactions
    }

    /// The columns of unique indexes, ascending.
    pub fn unique_columns(&self) -> &[ColumnId] {
        &self.unique_columns
    }

    /// Whether a column is one of a unique index.
    pub fn is_unique_column(&self, column: ColumnId) -> bool {
        self.unique_columns.binary_search(&column).is_ok()
    }

    /// Whether it has materialized views.
    pub fn has_views(&self) -> bool {
        !self.definition.views.is_empty()
    }

    /// Whether some view has a row for each row that exists.
    pub fn views_follow_rows(&self) -> bool {
        self.definition.views.iter().any(|view| view.follows_rows)
    }

    /// Whether values of a column may decide what a view has for a row.
    pub fn is_of_view(&self, column: ColumnId) -> bool {
        self.has_views() && (self.views_follow_rows() || self.view_columns.binary_search(&column).is_ok())
    }

    /// The definition.
    pub fn table(&self) -> &Table {
        &self.definition
    }

    /// How its keys are laid out.
    pub fn layout(&self) -> &KeyLayout {
        &self.layout
    }

    /// Where its rows are.
    pub fn source(&self) -> Source {
        self.source
    }

    /// How many partition key columns it has: positions `0..n`.
    pub fn partition_columns(&self) -> usize {
        self.partition_columns
    }

    /// How many clustering columns it has: the positions after the partition key.
    pub fn clustering_columns(&self) -> usize {
        self.clustering_columns
    }

    /// How many columns are part of the primary key.
    pub fn key_columns(&self) -> usize {
        self.partition_columns + self.clustering_columns
    }

    /// Whether it has static columns.
    pub fn has_statics(&self) -> bool {
        self.static_columns > 0
    }

    /// The column at a position.
    pub fn column(&self, position: usize) -> &Column {
        &self.definition.columns[position]
    }

    /// Whether a stored row exists for readers: it has a marker or a value, of a column that was not dropped.
    #[inline]
    pub fn row_exists(&self, row: &LiveRow<'_>) -> Result<bool, Malformed> {
        if !self.has_dropped_columns || row.has_marker() {
            return row.exists();
        }
        for cell in row.cells() {
            if self.position_of(cell?.column).is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The columns that were dropped, ascending.
    pub fn dropped_columns(&self) -> Vec<ColumnId> {
        let dropped = |(id, position): (usize, &usize)| (*position == usize::MAX).then_some(id as ColumnId);
        self.positions.iter().enumerate().filter_map(dropped).collect()
    }

    /// The position of a column by its id; none for a dropped one.
    #[inline]
    pub fn position_of(&self, id: ColumnId) -> Option<usize> {
        self.positions.get(id as usize).copied().filter(|position| *position != usize::MAX)
    }

    /// The position of a column.
    pub fn position(&self, name: &str) -> Option<usize> {
        let columns = &self.definition.columns;
        if self.names.is_empty() {
            return columns.iter().position(|column| column.name == name);
        }
        let found = self.names.binary_search_by(|at| columns[*at as usize].name.as_str().cmp(name));
        found.ok().map(|at| self.names[at] as usize)
    }

    /// Whether the column at a position is static.
    pub fn is_static(&self, position: usize) -> bool {
        self.column(position).kind == ColumnKind::Static
    }

    /// `keyspace.table`, for messages.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.definition.keyspace, self.definition.name)
    }
}
