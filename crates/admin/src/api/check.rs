//! A comparison of an index with its table, asked part by part: nodes keep nothing of it between two requests.
//!
//! Always true: a part is of one tablet; a difference is of one moment. Left out: the sum of the parts
//! (whoever asks adds them).

use super::IndexId;
use diorite_base::{NodeId, TabletId};
use serde::{Deserialize, Serialize};

/// The most differences of each kind that are named of a tablet.
pub const MOST_NAMED: usize = 20;

/// The next part of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WantedPart {
    /// The tablet with which the comparison begins, the first one of the table if not given.
    pub tablet: Option<TabletId>,
    /// The `next` of the answer before.
    pub from: Option<ComparedUpTo>,
}

/// The next part of the comparison of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedCheck {
    /// The keyspace of the index.
    pub keyspace: String,
    /// Its name.
    pub name: String,
    /// Which part.
    pub part: WantedPart,
}

/// How far a comparison is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComparedUpTo {
    /// The tablets of all smaller tokens are compared.
    pub first_token: i64,
    /// The tablet that begins with that token.
    pub tablet: TabletId,
    /// A place in it; without it, or if another tablet has the token by now, the tablet is compared from its begin.
    pub place: Option<String>,
}

/// What the leader of a tablet is asked to compare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartHere {
    /// The index.
    pub of: IndexId,
    /// The tablet.
    pub tablet: TabletId,
    /// The place from which on it is compared; nothing: all.
    pub place: Option<String>,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

/// A part of a tablet that was compared with an index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ComparedPart {
    /// The node that leads the tablet.
    pub leader: Option<NodeId>,
    /// Rows and headers of partitions that were read.
    pub rows: u64,
    /// Values of them, each of which has to have an entry.
    pub values: u64,
    /// Those that have none, or one that expires before they do.
    pub missing: u64,
    /// Entries that were read.
    pub entries: u64,
    /// Those whose rows have the value.
    pub right: u64,
    /// Those whose rows do not have it (any more).
    pub stale: u64,
    /// Of a view: rows that do not follow from rows of its table.
    #[serde(skip_serializing_if = "is_none")]
    pub surplus: u64,
    /// Those of rows that another tablet has, since a split.
    pub of_other_tablets: u64,
    /// Those that cannot be read.
    pub unreadable: u64,
    /// The bytes of all that was read.
    pub bytes: u64,
    /// At most [`MOST_NAMED`] differences of each kind.
    pub named: Vec<NamedDifference>,
    /// Where the next part begins; nothing: the tablet is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// How long to wait before the next part is asked for, milliseconds.
    pub wait_ms: u64,
}

/// A part of an index that was compared with its table, or why it was not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexPart {
    /// The tablet.
    pub tablet: TabletId,
    /// Its first token.
    pub first_token: i64,
    /// What was compared of it before, in other parts, does not count.
    pub is_begin: bool,
    /// It is a tablet of the index table, or of the view: of a unique index or a view, these come after the tablets of the table.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_entries: bool,
    /// Why nothing was compared: the tablet has no leader, for example, or its index is not built yet.
    pub failure: Option<String>,
    /// What was found.
    #[serde(flatten)]
    pub found: ComparedPart,
    /// Where the next part begins, in this tablet or the one after it; nothing: all tablets are compared.
    pub next: Option<ComparedUpTo>,
}

/// A difference between an index and its table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedDifference {
    /// What it is.
    pub difference: IndexDifference,
    /// The key of the row, as conditions of CQL; of an entry that cannot be read, its key in hexadecimal digits.
    pub row: String,
    /// The value as the index has it, in hexadecimal digits, cut after 32 bytes.
    pub value: String,
}

/// How an index and its table differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexDifference {
    /// A row has a value without its entry.
    Missing,
    /// What is stored as an entry is none.
    Unreadable,
    /// The row that an entry names does not have the value (any more).
    Stale,
    /// A view has a row that does not follow from the row that this one names.
    Surplus,
}
