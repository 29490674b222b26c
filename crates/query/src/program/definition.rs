//! A decoded program, and its reply.
//!
//! Always true: a program contains everything that it needs: ids, types, keys, values. Left out: its bytes ([`super::codec`]), running it
//! ([`mod@super::evaluate`]).

use super::digest::Digest;
use diorite_base::mutation::LEAST_STAMPED_BYTES;
use diorite_base::row_index::is_of_rows;
use diorite_cql::language::ast::ComparisonOperator;
use diorite_cql::protocol::CqlError;
use diorite_model::entry;
pub use diorite_model::json::place::PathStep;
use diorite_model::row::Expiry;
use diorite_model::schema::ColumnId;
use diorite_model::types::CqlType;
use diorite_model::value::ValueError;

/// Flag of a tablet: some partition has a header, so reads have to look for it.
pub const PARTITION_DELETIONS: u64 = 1;

/// A program, decoded.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Program {
    /// All must hold.
    pub conditions: Vec<RowCondition>,
    /// Take effect together.
    pub operations: Vec<ProgramOperation>,
    /// Columns that conditions on existence must not see, because the table dropped them; ascending.
    pub dropped_columns: Vec<ColumnId>,
    /// The order in which conditions are tested and operations take effect, each seeing those before it: each turn is
    /// that of the next condition or operation. `None`: all see the tablet as it was.
    pub turns: Option<Vec<Turn>>,
    /// Of a program that maintains unique indexes or views.
    pub maintained: Option<Maintained>,
}

/// How a program maintains unique indexes and views.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Maintained {
    /// The version of the table with which it was planned: that has all indexes and views of this and earlier
    /// versions, but for those that were dropped.
    pub version: u64,
    /// What was read when it was planned. If that has changed, the program is outdated, before anything else of it counts.
    pub guards: Vec<RowCondition>,
}

/// One turn of a program whose parts follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The next operation takes effect.
    Operation,
    /// So does the next one, which is of the same statement: it sees the tablet as the one before did.
    SameStatement,
    /// The next condition must hold.
    Condition,
    /// The same, and if it does not hold, no rows are shown: YCQL's `ELSE ERROR`.
    ConditionElseError,
}

/// A condition on one row.
#[derive(Debug, Clone, PartialEq)]
pub struct RowCondition {
    /// Token and partition columns.
    pub partition: Vec<u8>,
    /// The rest of the row's key, from the row-kind byte on; empty when only static columns are read.
    pub row: Vec<u8>,
    /// The test.
    pub test: RowTest,
}

/// A test of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum RowTest {
    /// It exists.
    Exists,
    /// It does not exist.
    NotExists,
    /// Its columns have certain values.
    Columns(Vec<ColumnTest>),
    /// A boolean expression of tests.
    Tree(TestTree),
    /// It is as it was, or all rows of a range are. Only guards ask for that.
    Unchanged(Unchanged),
}

/// What was read when a program was planned that maintains views.
#[derive(Debug, Clone, PartialEq)]
pub struct Unchanged {
    /// The views that it maintains: the tablet has to know them as they are here.
    pub views: Vec<KnownView>,
    /// The columns that count, ascending; `None`: the whole row, and whether it exists.
    pub columns: Option<Vec<ColumnId>>,
    /// The end of a range of rows that begins at the condition's row, without the partition; `None`: it is one row.
    pub end: Option<Vec<u8>>,
    /// How many live rows have something that counts.
    pub rows: u64,
    /// The digest of these.
    pub digest: Digest,
}

/// A view as whoever has planned a program knows it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KnownView {
    /// Its number.
    pub id: u64,
    /// The version of the table that has added columns to it last; zero, if none has.
    pub columns_since: u64,
}

impl std::fmt::Debug for KnownView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.columns_since {
            0 => write!(f, "{}", self.id),
            since => write!(f, "{} since {since}", self.id),
        }
    }
}

/// A boolean expression of questions about a row.
#[derive(Debug, Clone, PartialEq)]
pub enum TestTree {
    /// A column has a certain value.
    Column(Box<ColumnTest>),
    /// All hold.
    All(Vec<TestTree>),
    /// One holds.
    Any(Vec<TestTree>),
    /// It does not hold.
    Not(Box<TestTree>),
    /// The row exists.
    Exists,
}

/// A test of a column.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnTest {
    /// The column.
    pub column: ColumnId,
    /// In the static row.
    pub is_static: bool,
    /// The type of the column.
    pub data_type: CqlType,
    /// The part of the column.
    pub part: TestedPart,
    /// The test.
    pub test: ValueTest,
}

/// The part of a column that a condition reads.
#[derive(Debug, Clone, PartialEq)]
pub enum TestedPart {
    /// All of it.
    Whole,
    /// The element at a key (maps) or index (lists).
    Element(Vec<u8>),
    /// A field of a user-defined type.
    Field(u16),
    /// A place in a document; as text (`true`) or as a document.
    Path(Vec<PathStep>, bool),
}

/// A test of a value. Null is `None`.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueTest {
    /// A comparison.
    Compare(ComparisonOperator, Option<Vec<u8>>),
    /// One of several.
    In(Vec<Option<Vec<u8>>>),
    /// An element, or value of a map.
    Contains(Vec<u8>),
    /// A key of a map.
    ContainsKey(Vec<u8>),
}

/// A change of the tablet.
#[derive(Debug, Clone, PartialEq)]
pub enum ProgramOperation {
    /// A packed row.
    Row {
        /// Whether it is the whole row.
        is_overwrite: bool,
        /// It has a stamp slot to be filled.
        is_stamped: bool,
        /// It has elements of lists whose places the log decides.
        is_unplaced: bool,
        /// Its key.
        key: Vec<u8>,
        /// The packed row.
        value: Vec<u8>,
    },
    /// The deletion of a partition (no bounds) or of a range of its rows.
    Delete {
        /// Token and partition columns.
        partition: Vec<u8>,
        /// Key bytes after the row-kind byte, `[start, end)`.
        range: Option<(Vec<u8>, Vec<u8>)>,
        /// `USING TIMESTAMP`
        explicit_us: Option<i64>,
    },
    /// A change of a list that depends on its elements.
    List {
        /// The row's key.
        key: Vec<u8>,
        /// The length of token and partition columns in it.
        partition_len: usize,
        /// The column.
        column: ColumnId,
        /// The edit.
        edit: ListEdit,
        /// `USING TIMESTAMP`
        explicit_us: Option<i64>,
        /// `USING TTL`
        expiry: Option<Expiry>,
    },
    /// Changes of places in a document.
    Document {
        /// The row's key.
        key: Vec<u8>,
        /// The length of token and partition columns in it.
        partition_len: usize,
        /// The column.
        column: ColumnId,
        /// The paths and the texts of their new values, in the order in which they are applied.
        edits: Vec<(Vec<PathStep>, Vec<u8>)>,
        /// `USING TIMESTAMP`
        explicit_us: Option<i64>,
        /// `USING TTL`
        expiry: Option<Expiry>,
    },
    /// A number is added to a column, or taken from it. Null stays null.
    Sum {
        /// The row's key.
        key: Vec<u8>,
        /// The length of token and partition columns in it.
        partition_len: usize,
        /// The column.
        column: ColumnId,
        /// Its type, which is one of numbers.
        data_type: CqlType,
        /// Whether the number is taken from it.
        subtracts: bool,
        /// The number.
        number: Vec<u8>,
        /// `USING TTL`
        expiry: Option<Expiry>,
    },
}

impl ProgramOperation {
    /// The key of its row, or the partition in which it deletes.
    pub fn place(&self) -> &[u8] {
        match self {
            Self::Row { key, .. } | Self::List { key, .. } | Self::Document { key, .. } | Self::Sum { key, .. } => key,
            Self::Delete { partition, .. } => partition,
        }
    }

    /// Whether replicas can carry it out whatever they store: it is about rows, and what is stamped has room for the
    /// stamp. Asked before a program reaches the log. What the log has is decoded without it, as it always was.
    pub(super) fn is_applicable(&self) -> bool {
        let has_slot = match self {
            Self::Row { is_stamped: true, value, .. } => value.len() >= LEAST_STAMPED_BYTES,
            Self::Row { .. } | Self::Delete { .. } | Self::List { .. } | Self::Document { .. } | Self::Sum { .. } => {
                true
            }
        };
        has_slot && is_of_rows(self.place())
    }

    /// Whether what it writes to a row is well formed. Asked of what another node has made, or may have, before it
    /// reaches the log: what is merged later with a row that is not would stop the tablet, on all replicas.
    pub fn is_well_formed(&self) -> bool {
        match self {
            Self::Row { is_unplaced, value, .. } => entry::may_be_written(value, *is_unplaced),
            Self::Delete { .. } | Self::List { .. } | Self::Document { .. } | Self::Sum { .. } => true,
        }
    }

    /// Whether it writes a value that it makes of the stored one, which may be of any length.
    pub fn edits_stored(&self) -> bool {
        match self {
            Self::List { .. } | Self::Document { .. } => true,
            Self::Row { .. } | Self::Delete { .. } | Self::Sum { .. } => false,
        }
    }
}

/// A change of a list that depends on its elements.
#[derive(Debug, Clone, PartialEq)]
pub enum ListEdit {
    /// The element at an index becomes this, or is removed.
    Set(i32, Option<Vec<u8>>),
    /// All elements equal to one of these are removed.
    Remove(Vec<Vec<u8>>),
}

impl ListEdit {
    /// Memory of its values.
    pub fn size_bytes(&self) -> usize {
        match self {
            ListEdit::Set(_, value) => value.as_ref().map_or(0, Vec::len),
            ListEdit::Remove(values) => values.iter().map(|value| size_of::<Vec<u8>>() + value.len()).sum(),
        }
    }
}

/// An operation or a condition is impossible, or does not fit the stored value: the message for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impossible(pub String);

impl From<CqlError> for Impossible {
    fn from(error: CqlError) -> Self {
        Self(error.message.into_owned())
    }
}

impl From<ValueError> for Impossible {
    fn from(error: ValueError) -> Self {
        Self(error.0)
    }
}

/// The reply of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramReply {
    /// All conditions held, all operations took effect.
    Applied,
    /// A condition did not hold, nothing took effect.
    Refused(Seen),
    /// The operations are impossible, nothing took effect: a message for the client.
    Failed(String),
    /// What was read when the program was planned has changed. Nothing took effect: it is planned again.
    Outdated,
}

/// The rows that conditions have read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// The second at which they were read.
    pub now_s: u32,
    /// Token and partition columns.
    pub partition: Vec<u8>,
    /// The static row, if it was found.
    pub static_row: Option<SeenRow>,
    /// The live rows, in key order.
    pub rows: Vec<SeenRow>,
    /// There are more, which would be too much to show.
    pub is_cut: bool,
}

impl Seen {
    /// The memory of the rows in it.
    pub fn size_bytes(&self) -> usize {
        let rows = self.static_row.iter().chain(&self.rows);
        self.partition.len() + rows.map(|row| size_of::<SeenRow>() + row.key.len() + row.value.len()).sum::<usize>()
    }
}

/// The live cells of a row, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenRow {
    /// Its key from the row-kind byte on.
    pub key: Vec<u8>,
    /// The timestamp of the partition or range deletion over it.
    pub deleted_us: i64,
    /// The packed row.
    pub value: Vec<u8>,
}
