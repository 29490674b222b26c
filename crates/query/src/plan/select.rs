//! Plans of `SELECT`.
//!
//! Always true: a plan that needs to check rows beyond its key ranges was allowed to by `ALLOW FILTERING`, has an index for them, or is YCQL's `IF`. Left out: search
//! for vectors that are alike, which needs an index.

use super::index::IndexPlan;
use super::restrictions::Restrictions;
use super::selection::{SelectionPlan, Selector};
use super::term::Term;
use crate::error::invalid;
use crate::table::{Source, TableContext};
use diorite_cql::language::ast::Parsed;
use diorite_cql::language::format::format;
use diorite_cql::language::parse;
use diorite_cql::protocol::CqlError;
use std::sync::Arc;

/// A planned read.
#[derive(Debug)]
pub struct SelectPlan {
    /// The table.
    pub table: Arc<TableContext>,
    /// The result columns.
    pub selection: SelectionPlan,
    /// Of which rows.
    pub restrictions: Restrictions,
    /// Indexes that name the rows where that of the restrictions is still being built, the best first.
    pub other_indexes: Vec<IndexPlan>,
    /// Whether rows of a partition are read from its end.
    pub is_reversed: bool,
    /// Several partitions are put in one order: the positions of the columns, and whether each is descending.
    pub ordering: Vec<(usize, bool)>,
    /// How many rows.
    pub limits: RowLimits,
    /// One row per partition.
    pub is_distinct: bool,
    /// Static columns are needed.
    pub reads_statics: bool,
    /// `GROUP BY`: neighbouring rows of a partition for which these give the same become one. Empty but present: one row per partition.
    pub grouping: Option<Vec<Selector>>,
    /// The statement for the leaders of tablets, if they are to aggregate the rows.
    pub pushdown: Option<Pushdown>,
    /// The same read of a covering index, for a statement that uses only what the index has.
    pub covering: Option<Box<CoveringPlan>>,
}

/// How many rows a read returns.
#[derive(Debug, Clone)]
pub struct RowLimits {
    /// The most rows.
    pub total: Option<Term>,
    /// The most rows of each partition.
    pub per_partition: Option<Term>,
    /// YCQL's `OFFSET`: how many rows are left out first.
    pub offset: Option<Term>,
}

/// A read of the hidden view of a covering index in place of one of the table: it gives the same, once the index is ready.
#[derive(Debug)]
pub struct CoveringPlan {
    /// The name of the index.
    pub index: String,
    /// The view has what follows from all rows. Otherwise only those reads go on in it that have begun in it.
    pub is_ready: bool,
    /// The plan for the view, with the result columns of the table.
    pub plan: SelectPlan,
}

/// A statement as text that other nodes can bind again, at the same version of its table: proven to read back as the same statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushdown {
    keyspace: String,
    statement: String,
}

impl Pushdown {
    /// The text of a statement whose unqualified names belong to `keyspace`; `None` if it does not read back as the same.
    pub fn prove(keyspace: Option<&str>, parsed: &Parsed) -> Option<Self> {
        let statement = format(parsed);
        let is_proven = parse(&statement).is_ok_and(|read| read == *parsed);
        is_proven.then(|| Self { keyspace: keyspace.unwrap_or_default().to_owned(), statement })
    }

    /// The keyspace that unqualified names belong to; empty if there is none.
    pub fn keyspace(&self) -> &str {
        &self.keyspace
    }

    /// The text.
    pub fn statement(&self) -> &str {
        &self.statement
    }
}

impl SelectPlan {
    /// The covering index from which it can be answered, if there is one that is complete.
    pub fn ready_covering(&self) -> Option<&CoveringPlan> {
        self.covering.as_deref().filter(|covering| covering.is_ready)
    }

    /// The read by whose partitions drivers route the statement: that of the covering index, or its own.
    pub fn routed(&self) -> &Self {
        self.ready_covering().map_or(self, |covering| &covering.plan)
    }

    /// Whether all rows are aggregated into one.
    pub fn is_one_row(&self) -> bool {
        self.selection.is_aggregate() && self.grouping.is_none()
    }

    /// The warning for a query that reads many partitions.
    pub fn warning(&self) -> Option<&'static str> {
        if !self.selection.is_aggregate() || self.table.source() == Source::Virtual {
            return None;
        }
        match (self.restrictions.has_keys(), self.restrictions.has_partition_in()) {
            (false, _) => Some("Aggregation query used without partition key"),
            (true, true) => Some("Aggregation query used on multiple partition keys (IN restriction)"),
            (true, false) => None,
        }
    }
}

/// The number in a `LIMIT`.
pub fn check_limit(value: Option<&[u8]>, name: &str) -> Result<u32, CqlError> {
    let clause = match name {
        "[limit]" => "LIMIT",
        "[offset]" => "OFFSET",
        _ => "PER PARTITION LIMIT",
    };
    let value = value.ok_or_else(|| invalid(format!("Invalid null value of {}", clause.to_lowercase())))?;
    let value: [u8; 4] = value.try_into().map_err(|_| invalid(format!("Invalid {} value", clause.to_lowercase())))?;
    match i32::from_be_bytes(value) {
        limit if limit > 0 => Ok(limit as u32),
        0 if clause == "OFFSET" => Ok(0),
        _ if clause == "OFFSET" => Err(invalid("OFFSET must not be negative")),
        _ => Err(invalid(format!("{clause} must be strictly positive"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_statement_that_reads_back_as_it_was_is_pushed_down() {
        let parsed = |text: &str| parse(text).expect("it parses");
        let counted = parsed("SELECT count(*) FROM ks.t WHERE k IN (?, :n)");
        let proven = Pushdown::prove(Some("ks"), &counted).expect("it reads back");
        assert_eq!((parsed(proven.statement()), proven.keyspace()), (counted.clone(), "ks"));
        let with_a_marker_too_many = Parsed { markers: vec![None; 3], ..counted };
        assert_eq!(Pushdown::prove(None, &with_a_marker_too_many), None);
    }
}
