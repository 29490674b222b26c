//! A planned `WHERE`: partitions, rows within them, and filters for each row.
//!
//! Always true: conditions that key ranges express are not filtered again; all others are in `filters`, also those that
//! an index serves. Left out: `LIKE`, `IS NOT NULL`, user-defined expressions.

use super::index::IndexPlan;
use super::predicate::RowPredicate;
use super::term::Term;
use super::values::{SliceBound, TupleTerm, TupleValues, Values};
use crate::table::TableContext;
use diorite_cql::language::ast::ComparisonOperator;

/// A restriction on clustering columns.
#[derive(Debug, Clone)]
pub enum ClusteringRestriction {
    /// One column has one of these values.
    Values(Values),
    /// This many columns together have one of these values.
    Tuples(usize, TupleValues),
    /// Columns from here on lie in a range; always the last restriction.
    Slice {
        /// Lower end
        lower: Option<SliceBound>,
        /// Upper end
        upper: Option<SliceBound>,
    },
}

/// Which partitions are read.
#[derive(Debug, Clone)]
pub enum PartitionRestriction {
    /// Those with these keys: one entry per partition key column.
    Keys(Vec<Values>),
    /// Those with tokens in a range; `true` with a bound that belongs to it.
    Tokens {
        /// Lower end
        lower: Option<(Term, bool)>,
        /// Upper end
        upper: Option<(Term, bool)>,
    },
    /// All.
    All,
}

/// A condition that a row must fulfil beyond being in the range.
#[derive(Debug, Clone)]
pub enum Filter {
    /// A comparison of one column.
    Compare(usize, ComparisonOperator, Term),
    /// One column is among values.
    In(usize, Values),
    /// A collection has an element (of a map: a value).
    Contains(usize, Term),
    /// A map has a key.
    ContainsKey(usize, Term),
    /// A map's value at a key is this.
    Entry(usize, Term, Term),
    /// A comparison of several columns, from this position on, lexicographically.
    CompareTuple(usize, ComparisonOperator, TupleTerm),
    /// Several columns together are among values.
    InTuples(usize, usize, TupleValues),
    /// Anything else.
    Predicate(RowPredicate),
}

/// A planned `WHERE`.
#[derive(Debug, Clone)]
pub struct Restrictions {
    /// Which partitions.
    pub partition: PartitionRestriction,
    /// Which rows: restrictions of a prefix of the clustering columns, in order.
    pub clustering: Vec<ClusteringRestriction>,
    /// How many clustering columns `clustering` fixes to values.
    pub fixed_clustering: usize,
    /// The remaining conditions.
    pub filters: Vec<Filter>,
    /// Whether any clustering column is restricted at all.
    pub restricts_clustering: bool,
    /// Whether any column outside the primary key is restricted.
    pub restricts_regular: bool,
    /// Positions of columns with `=`.
    pub equal_columns: Vec<usize>,
    /// Whether some clustering column is restricted by `IN`.
    pub has_clustering_in: bool,
    /// The partial indexes whose predicates stand in the `WHERE`, by their numbers.
    pub implied_indexes: Vec<u64>,
    /// The index that names the rows; all filters are applied to them.
    pub index: Option<IndexPlan>,
}

impl Restrictions {
    /// Whether one or several partitions are named by their keys.
    pub fn has_keys(&self) -> bool {
        matches!(self.partition, PartitionRestriction::Keys(_))
    }

    /// Whether a partition key column is restricted by `IN`.
    pub fn has_partition_in(&self) -> bool {
        match &self.partition {
            PartitionRestriction::Keys(keys) => keys.iter().any(|values| !matches!(values, Values::One(_))),
            _ => false,
        }
    }

    /// Whether the clustering restriction is a range.
    pub fn has_slice(&self) -> bool {
        matches!(self.clustering.last(), Some(ClusteringRestriction::Slice { .. }))
    }
}

/// Visits every column that a filter reads.
fn visit_filter(filter: &Filter, visit: &mut dyn FnMut(usize)) {
    match filter {
        Filter::Compare(at, ..)
        | Filter::In(at, _)
        | Filter::Contains(at, _)
        | Filter::ContainsKey(at, _)
        | Filter::Entry(at, ..)
        | Filter::CompareTuple(at, _, TupleTerm::Whole(_)) => visit(*at),
        Filter::CompareTuple(at, _, TupleTerm::Terms(terms)) => (*at..*at + terms.len()).for_each(visit),
        Filter::InTuples(at, columns, _) => (*at..*at + columns).for_each(visit),
        Filter::Predicate(predicate) => predicate.visit_columns(visit),
    }
}

/// Whether a filter reads static columns.
pub fn filters_static(filter: &Filter, context: &TableContext) -> bool {
    let mut found = false;
    visit_filter(filter, &mut |at| found |= context.is_static(at));
    found
}

/// Whether a filter reads columns that differ from row to row.
pub fn filters_regular(filter: &Filter, context: &TableContext) -> bool {
    let mut found = false;
    visit_filter(filter, &mut |at| found |= at >= context.partition_columns() && !context.is_static(at));
    found
}

/// Marks the columns that a filter reads.
pub fn mark_filter_reads(filter: &Filter, reads: &mut [bool]) {
    visit_filter(filter, &mut |at| reads[at] = true);
}
