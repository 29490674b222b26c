//! Plans of `INSERT`, `UPDATE` and `DELETE`.
//!
//! Always true: the keys, the operations and the condition have been checked against each other by Cassandra's rules, so execution only
//! meets errors of bound values. Left out: packing rows ([`crate::exec::write`]).

use super::condition::Condition;
use super::operation::{Change, Operation};
use super::restrictions::Restrictions;
use super::term::{JsonColumn, Term};
use crate::table::TableContext;
use std::collections::HashSet;
use std::sync::Arc;

/// The target of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Rows named by their full keys (and, beside them, static columns)
    Rows,
    /// Static columns alone
    Statics,
    /// A range of rows: only deletions do
    Range,
    /// Whole partitions: only deletions do
    Partition,
}

/// Which statement it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModifyKind {
    /// `INSERT`: writes a row marker
    Insert,
    /// `UPDATE`
    Update,
    /// `DELETE`
    Delete,
}

impl ModifyKind {
    /// Its keyword.
    pub fn name(self) -> &'static str {
        match self {
            ModifyKind::Insert => "INSERT",
            ModifyKind::Update => "UPDATE",
            ModifyKind::Delete => "DELETE",
        }
    }
}

/// A planned write.
#[derive(Debug)]
pub struct ModifyPlan {
    /// The table.
    pub table: Arc<TableContext>,
    /// Which statement it was.
    pub kind: ModifyKind,
    /// Which partitions and rows.
    pub restrictions: Restrictions,
    /// The target within the partition.
    pub scope: Scope,
    /// Changes of columns, by column id; of one column in the order of the text. Empty when whole rows are deleted.
    pub operations: Vec<Operation>,
    /// `USING TTL`, seconds
    pub ttl: Option<Term>,
    /// `USING TIMESTAMP`, microseconds
    pub timestamp: Option<Term>,
    /// `IF …`
    pub condition: Option<Condition>,
    /// An `INSERT` that names every regular column: if all are set, it replaces the row.
    pub names_every_column: bool,
    /// Some operation has to read the row (lists by index or value).
    pub reads_row: bool,
    /// Every operation sets a simple column, so that the row can be packed without gathering elements first.
    pub is_simple: bool,
    /// The form of the answer.
    pub answer: AnswerAs,
}

/// The form of the answer to a write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnswerAs {
    /// YCQL's `RETURNS STATUS AS ROW`: always by a row.
    pub status_row: bool,
    /// YCQL's `ELSE ERROR`: a condition that does not hold is an error.
    pub error: bool,
}

impl ModifyPlan {
    /// Whether some operation adds to a number that is stored: the write cannot have a timestamp of its own.
    pub fn has_sums(&self) -> bool {
        self.reads_row && self.operations.iter().any(|operation| matches!(operation.change, Change::Sum(..)))
    }

    /// Whether what it writes may change what a unique index or a view says of rows.
    #[inline]
    pub fn concerns_dependents(&self) -> bool {
        self.concerns_unique() || self.concerns_views()
    }

    /// Whether what it writes may change what a view has.
    pub fn concerns_views(&self) -> bool {
        let table = &self.table;
        let is_of_view = |operation: &Operation| table.is_of_view(table.column(operation.column).id);
        let deletes_rows = || self.kind == ModifyKind::Delete && self.operations.is_empty();
        table.has_views() && (table.views_follow_rows() || deletes_rows() || self.operations.iter().any(is_of_view))
    }

    /// Whether what it writes may change what a unique index says of rows.
    #[inline]
    pub fn concerns_unique(&self) -> bool {
        let table = &self.table;
        let is_unique = |operation: &Operation| table.is_unique_column(table.column(operation.column).id);
        let deletes_rows = || self.kind == ModifyKind::Delete && self.operations.is_empty();
        !table.unique_columns().is_empty() && (deletes_rows() || self.operations.iter().any(is_unique))
    }

    /// One of the columns of an `INSERT JSON` whose text is bound.
    pub fn json_column(&self) -> Option<&JsonColumn> {
        self.operations.iter().find_map(|operation| match &operation.change {
            Change::Set(Term::JsonColumn(column)) => Some(&**column),
            _ => None,
        })
    }

    /// Whether the condition reads only static columns (or the write is of static columns only).
    pub fn condition_is_static(&self) -> bool {
        match &self.condition {
            Some(condition) => match condition.columns() {
                Some(columns) => columns.iter().all(|column| self.table.is_static(column.column)),
                None => self.scope == Scope::Statics,
            },
            None => self.scope == Scope::Statics,
        }
    }
}

/// The columns a failed condition shows: `None` for all.
pub fn condition_columns(condition: &Condition) -> Option<Vec<usize>> {
    let columns = condition.columns()?;
    let mut seen = HashSet::new();
    Some(columns.into_iter().map(|column| column.column).filter(|column| seen.insert(*column)).collect())
}
