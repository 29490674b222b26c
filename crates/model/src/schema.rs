//! Schema objects: keyspaces, tables, columns. Plain data, serialised into the catalog as JSON.
//!
//! Always true: columns are ordered partition key, clustering, static, regular (within the last two by name), column ids are
//! unique in a table and never reused, so that data of a dropped column stays invisible to a later one of the same name.

mod covering;

use crate::json::place::PathStep;
use crate::types::CqlType;
use diorite_base::{TableId, TabletId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// A keyspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keyspace {
    /// Stored form of its name.
    pub name: String,
    /// Replication options as CQL shows them: `class` and its parameters.
    pub replication: BTreeMap<String, String>,
    /// Accepted and shown; every write is durable.
    pub durable_writes: bool,
}

/// Sort direction of a clustering column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Ascending
    Asc,
    /// Descending
    Desc,
}

/// The part a column plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnKind {
    /// Part of the partition key
    PartitionKey,
    /// A clustering column
    Clustering(Order),
    /// One value per partition
    Static,
    /// One value per row
    Regular,
}

/// A column's number within its table; stored in rows in place of its name.
pub type ColumnId = u32;

/// A column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Never reused within the table.
    pub id: ColumnId,
    /// Stored form of its name.
    pub name: String,
    /// Its type.
    pub data_type: CqlType,
    /// The part it plays.
    pub kind: ColumnKind,
}

/// The part of a column that an index is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexTarget {
    /// The value of a column that has one value.
    Value,
    /// The elements of a list or set, the values of a map.
    Values,
    /// The keys of a map.
    Keys,
    /// The pairs of key and value of a map.
    Entries,
    /// A frozen collection as a whole.
    Full,
}

/// How a condition of an index compares a column with its constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexOperator {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// A part of the predicate of a partial index.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct IndexCondition {
    /// The column.
    pub column: ColumnId,
    /// How it is compared.
    pub operator: IndexOperator,
    /// The constant, as the CQL literal that shows it; each value of a column's type has one such literal.
    pub literal: String,
}

/// What makes an index unique: no two rows have the same values in these columns. Rows that lack one of them are not
/// compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unique {
    /// The columns, in the order of the statement.
    pub columns: Vec<ColumnId>,
    /// The index table: for each combination of values, which row has it. Zero until the catalog has made it.
    pub table: TableId,
}

/// A clustering column of a hidden view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clustered {
    /// The column.
    pub column: ColumnId,
    /// Its order.
    pub order: Order,
}

/// What may be done with a hidden view. It changes once at most, so that a node with an older catalog only reads more
/// than it would have to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CoveringState {
    /// It may lack rows: it is written, and not read.
    #[default]
    Building,
    /// It has what follows from all rows.
    Ready,
    /// It could not be made, and was removed: why.
    Failed(String),
}

impl CoveringState {
    fn is_building(&self) -> bool {
        *self == CoveringState::Building
    }
}

/// What makes an index covering.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covering {
    /// The partition key of the view.
    pub partition: Vec<ColumnId>,
    /// The clustering columns that follow; after these the columns of the table's key come that are not there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clustering: Vec<Clustered>,
    /// The further columns.
    pub included: Vec<ColumnId>,
    /// The number of the view within the table. Zero until the catalog has made it.
    pub view: u64,
    /// What may be done with the view.
    #[serde(default, skip_serializing_if = "CoveringState::is_building")]
    pub state: CoveringState,
}

/// A local secondary index: each tablet holds the entries of its own rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// The version of the table that had it first; never reused within the table.
    pub id: u64,
    /// Stored form of its name.
    pub name: String,
    /// The column whose values it finds.
    pub column: ColumnId,
    /// The part of that column.
    pub target: IndexTarget,
    /// Of a column of documents the place whose text it finds; else empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<PathStep>,
    /// Further columns that the statement named: rows are filtered by them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filtered: Vec<ColumnId>,
    /// The class that a `CREATE CUSTOM INDEX` or `USING` named, as CQL shows it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Its options, as CQL shows them again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
    /// Its predicate, of which all conditions hold: only statements that say the same use it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub predicate: Vec<IndexCondition>,
    /// Of a unique index, what is unique.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<Unique>,
    /// Of a covering index, what its hidden view is made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covering: Option<Box<Covering>>,
}

/// A materialized view, as the table that it is of knows it: writes to rows of the table maintain the view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewOf {
    /// The version of the table that had it first. Indexes have such numbers, too; none is used twice within the table.
    pub id: u64,
    /// Stored form of its name.
    pub name: String,
    /// Its table. Zero until the catalog has made it.
    pub table: TableId,
    /// The regular columns of the table that decide what the view has for a row; ascending.
    pub columns: Vec<ColumnId>,
    /// Of a view of all columns, the version of the table that has added the last ones since the view was made; no other
    /// view or index has that number. Zero: none were added.
    #[serde(default, skip_serializing_if = "is_no_version")]
    pub columns_since: u64,
    /// The view has a row for each row that exists: whatever is written to a row may decide that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub follows_rows: bool,
    /// Of the hidden view of a covering index, the number of the index. Statements cannot name the view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
}

/// What makes a table a materialized view: its rows follow from those of another table. A column of it has the id of
/// the column of that table from which its values are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The table.
    pub base: TableId,
    /// It was defined by `SELECT *`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub selects_all: bool,
    /// What its rows fulfil, beside that all columns of the view's key have values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub predicate: Vec<IndexCondition>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Diorite's number for it.
    pub id: TableId,
    /// The id that CQL clients see.
    pub uuid: Uuid,
    /// The keyspace it belongs to.
    pub keyspace: String,
    /// Stored form of its name.
    pub name: String,
    /// Grows with every change of the definition.
    pub version: u64,
    /// All columns: partition key, clustering, static, regular.
    pub columns: Vec<Column>,
    /// The next column id to hand out.
    pub next_column_id: ColumnId,
    /// `default_time_to_live`, seconds; 0 is none.
    pub default_ttl_s: u32,
    /// `gc_grace_seconds`
    pub gc_grace_s: u32,
    /// Every other `WITH` option, as CQL text to be shown again: name → literal.
    pub options: BTreeMap<String, String>,
    /// Its secondary indexes, in the order in which they were made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<Index>,
    /// Indexes that are defined and wait for the next one that is not deferred. Nothing maintains or reads them, and those
    /// that are unique or covering have no table yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deferred_indexes: Vec<Index>,
    /// Of the table of a unique index, and of the hidden view of a covering one, the table that the index is of.
    /// Statements cannot name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_of: Option<TableId>,
    /// Its materialized views, in the order in which they were made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<ViewOf>,
    /// Of a materialized view, what makes it one. Statements cannot write to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<Box<View>>,
}

/// The columns of the table of a unique index.
pub const INDEX_TABLE_KEY: ColumnId = 0;
/// The key of the row, in the table of a unique index.
pub const INDEX_TABLE_ROW: ColumnId = 1;

fn clone_pair((name, value): (&String, &String)) -> (String, String) {
    (name.clone(), value.clone())
}

impl Table {
    /// The partition key columns, in order.
    pub fn partition_key(&self) -> impl Iterator<Item = &Column> + Clone {
        self.columns.iter().filter(|column| column.kind == ColumnKind::PartitionKey)
    }

    /// The clustering columns, in order.
    pub fn clustering(&self) -> impl Iterator<Item = &Column> + Clone {
        self.columns.iter().filter(|column| matches!(column.kind, ColumnKind::Clustering(_)))
    }

    /// The static columns.
    pub fn statics(&self) -> impl Iterator<Item = &Column> + Clone {
        self.columns.iter().filter(|column| column.kind == ColumnKind::Static)
    }

    /// The regular columns.
    pub fn regulars(&self) -> impl Iterator<Item = &Column> + Clone {
        self.columns.iter().filter(|column| column.kind == ColumnKind::Regular)
    }

    /// The column called `name`, in its stored form.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The column with an id.
    pub fn column_by_id(&self, id: ColumnId) -> Option<&Column> {
        self.columns.iter().find(|column| column.id == id)
    }

    /// The index called `name`, in its stored form; it may be a deferred one.
    pub fn index(&self, name: &str) -> Option<&Index> {
        self.defined_indexes().find(|index| index.name == name)
    }

    /// All indexes that statements have defined, deferred ones too.
    pub fn defined_indexes(&self) -> impl Iterator<Item = &Index> {
        self.indexes.iter().chain(&self.deferred_indexes)
    }

    /// The table of a unique index of this table: its key is the encoded values, its one column the key of the row that
    /// has them.
    pub fn index_table(&self, index: &Index, id: TableId) -> Table {
        let column = |id, name: &str, kind| Column { id, name: name.to_owned(), data_type: CqlType::Blob, kind };
        Table {
            id,
            uuid: Uuid::from_u128(self.uuid.as_u128() ^ (u128::from(index.id) << 64)),
            keyspace: self.keyspace.clone(),
            // A name with a dot is none that a statement can give to a table.
            name: format!("{}.{}", self.name, index.name),
            version: 1,
            columns: vec![
                column(INDEX_TABLE_KEY, "key", ColumnKind::PartitionKey),
                column(INDEX_TABLE_ROW, "row", ColumnKind::Regular),
            ],
            next_column_id: INDEX_TABLE_ROW + 1,
            default_ttl_s: 0,
            gc_grace_s: self.gc_grace_s,
            options: self.options.iter().filter(|(name, _)| *name == "transactions").map(clone_pair).collect(),
            indexes: Vec::new(),
            deferred_indexes: Vec::new(),
            index_of: Some(self.id),
            views: Vec::new(),
            view: None,
        }
    }

    /// The unique indexes, with what is unique.
    pub fn unique_indexes(&self) -> impl Iterator<Item = (&Index, &Unique)> {
        self.indexes.iter().filter_map(|index| Some((index, index.unique.as_ref()?)))
    }

    /// The ids and names of what its tablets maintain: indexes, and materialized views.
    pub fn maintained(&self) -> impl Iterator<Item = (u64, &str)> {
        let indexes = self.indexes.iter().map(|index| (index.id, index.name.as_str()));
        indexes.chain(self.views.iter().map(|view| (view.id, view.name.as_str())))
    }

    /// Whether its tablets maintain indexes or materialized views.
    pub fn is_maintaining(&self) -> bool {
        !self.indexes.is_empty() || !self.views.is_empty()
    }

    /// Whether its regular columns are counters.
    pub fn is_counter(&self) -> bool {
        self.regulars().chain(self.statics()).any(|column| column.data_type == CqlType::Counter)
    }
}

/// A tablet's place in its table's token range: tokens from `first_token` up to the next tablet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TabletRange {
    /// Its id.
    pub tablet: TabletId,
    /// The smallest token in it. The first tablet's is `i64::MIN`.
    pub first_token: i64,
}

/// A table with its tablets, sorted by `first_token`, as the catalog publishes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableEntry {
    /// The definition.
    pub table: Arc<Table>,
    /// Its tablets.
    pub tablets: Vec<TabletRange>,
    /// The number of tablets at which merging stops: those that the table was created with, and one more for each split
    /// that an operator asked for; 0: not recorded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub least_tablets: u32,
}

fn is_no_version(version: &u64) -> bool {
    *version == 0
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl TableEntry {
    /// The tablet that holds `token`.
    pub fn tablet_of(&self, token: i64) -> TabletId {
        let after = self.tablets.partition_point(|range| range.first_token <= token);
        self.tablets[after.saturating_sub(1)].tablet
    }
}
