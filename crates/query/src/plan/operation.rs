//! The operations of a write on columns: assignments of `INSERT` and `UPDATE`, targets of `DELETE`.
//!
//! Always true: an operation fits the type of its column. Left out: the deletion of a part of a document.

use super::term::Term;
use crate::functions::document::Step;
use diorite_model::types::{CqlType, Frozen};

/// A change of one column.
#[derive(Debug, Clone)]
pub struct Operation {
    /// Position of the column.
    pub column: usize,
    /// The change.
    pub change: Change,
}

/// How a column changes.
#[derive(Debug, Clone)]
pub enum Change {
    /// The whole column becomes this; null deletes it.
    Set(Term),
    /// All elements of a column with several cells are deleted, also those that are written with the same timestamp.
    Delete,
    /// A counter grows by this, or shrinks (`true`).
    Count(Term, bool),
    /// A number grows by this, or shrinks (`true`).
    Sum(Term, bool),
    /// Elements are added: after a list's, into a set or map.
    Add(Term),
    /// Elements are put before a list's.
    Prepend(Term),
    /// Elements are removed: by value from lists and sets, by key from maps.
    Remove(Term),
    /// The element at a key or index becomes this; null deletes it.
    SetElement(Term, Term),
    /// A field of a user-defined type becomes this; null deletes it.
    SetField(u16, Term),
    /// A place in a document becomes this document.
    SetPath(Vec<Step>, Vec<Term>, Term),
}

impl Change {
    /// Whether its effect depends on the stored row.
    pub fn reads_row(&self, data_type: &CqlType) -> bool {
        let is_list = matches!(data_type, CqlType::List(_, Frozen::No));
        is_list && matches!(self, Change::Remove(_) | Change::SetElement(..))
            || matches!(self, Change::SetPath(..) | Change::Sum(..))
    }
}
