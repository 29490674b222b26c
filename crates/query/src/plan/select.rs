//! Plans of `SELECT`.
//!
//! Always true: a plan that needs to check rows beyond its key ranges was allowed to by `ALLOW FILTERING`. Left out: `GROUP BY`, `JSON`,
//! vector search, YCQL's `IF` filter and `OFFSET`.

use super::Planner;
use super::restrictions::{Restrictions, WhereOf};
use super::selection::{SelectionPlan, Selector};
use super::term::{Receiver, Term};
use crate::error::{invalid, not_supported};
use crate::table::{Source, TableContext};
use diorite_cql::language::ast::{self, Direction, Expression, Ordering, OrderingKind};
use diorite_cql::protocol::{CqlError, ResultMetadata};
use diorite_model::schema::{ColumnKind, Order};
use diorite_model::types::CqlType;
use std::sync::Arc;

/// A planned read.
#[derive(Debug)]
pub struct SelectPlan {
    /// The table.
    pub table: Arc<TableContext>,
    /// What is returned.
    pub selection: SelectionPlan,
    /// Of which rows.
    pub restrictions: Restrictions,
    /// Rows of a partition come from its end.
    pub is_reversed: bool,
    /// Several partitions are put in one order: the positions of the columns, and whether each is descending.
    pub ordering: Vec<(usize, bool)>,
    /// The most rows.
    pub limit: Option<Term>,
    /// The most rows of each partition.
    pub per_partition_limit: Option<Term>,
    /// One row per partition.
    pub is_distinct: bool,
    /// Static columns are needed.
    pub reads_statics: bool,
}

impl SelectPlan {
    /// What a client should be told about a query that reads much.
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

impl Planner<'_> {
    /// Plans a `SELECT`.
    pub fn select(&mut self, select: &ast::Select) -> Result<(SelectPlan, Arc<ResultMetadata>), CqlError> {
        refuse_unsupported(select)?;
        self.use_table(&select.from)?;
        let selection = self.selection(&select.selection)?;
        let restrictions = self.restrictions(&select.where_clause, WhereOf::Select(select.allow_filtering))?;
        let is_reversed = self.ordering(&select.order_by, &restrictions)?;
        if select.distinct {
            self.check_distinct(&selection, &restrictions)?;
        }
        let per_partition_limit = self.limit(select.per_partition_limit.as_ref(), "[per_partition_limit]")?;
        let limit = self.limit(select.limit.as_ref(), "[limit]")?;
        if per_partition_limit.is_some() && select.distinct {
            return Err(invalid("PER PARTITION LIMIT is not allowed with SELECT DISTINCT queries"));
        }
        if per_partition_limit.is_some() && selection.is_aggregate() {
            return Err(invalid("PER PARTITION LIMIT is not allowed with aggregate queries."));
        }
        let context = self.shared_context();
        let mut ordering = Vec::new();
        if !select.order_by.is_empty() && restrictions.has_partition_in() {
            ordering = self.post_ordering(&select.order_by)?;
        }
        // Static columns decide whether a partition without rows is shown, so a full read of partitions needs them too.
        let reads_statics = context.has_statics()
            && (selection.reads.iter().enumerate().any(|(at, read)| *read && context.is_static(at))
                || restrictions.filters.iter().any(|filter| filters_static(filter, &context))
                || (!restrictions.restricts_clustering && !restrictions.restricts_regular));
        let metadata = Arc::clone(&selection.metadata);
        let plan = SelectPlan {
            table: context,
            selection,
            restrictions,
            is_reversed,
            ordering,
            limit,
            per_partition_limit,
            is_distinct: select.distinct,
            reads_statics,
        };
        Ok((plan, metadata))
    }

    fn limit(&mut self, expression: Option<&Expression>, name: &str) -> Result<Option<Term>, CqlError> {
        let Some(expression) = expression else { return Ok(None) };
        let term = self.term(expression, &Receiver::new(name, &CqlType::Int))?;
        if let Term::Constant(value) = &term {
            check_limit(value.as_deref(), name)?;
        }
        Ok(Some(term))
    }

    /// Whether rows have to be read backwards.
    fn ordering(&self, order_by: &[Ordering], restrictions: &Restrictions) -> Result<bool, CqlError> {
        if order_by.is_empty() {
            return Ok(false);
        }
        if !restrictions.has_keys() {
            return Err(invalid("ORDER BY is only supported when the partition key is restricted by an EQ or an IN."));
        }
        let context = self.context();
        let mut next = context.partition_columns();
        let mut reversed: Option<bool> = None;
        for ordering in order_by {
            let (at, is_descending) = self.ordered_column(ordering)?;
            let ColumnKind::Clustering(order) = context.column(at).kind else {
                return Err(invalid(format!(
                    "Order by is currently only supported on the clustered columns of the PRIMARY KEY, got {}",
                    context.column(at).name
                )));
            };
            while next < at && restrictions.equal_columns.contains(&next) {
                next += 1;
            }
            if next != at {
                return Err(invalid(
                    "Order by currently only supports the ordering of columns following their declared order in the PRIMARY KEY",
                ));
            }
            next += 1;
            let is_against = is_descending != (order == Order::Desc);
            if reversed.is_some_and(|reversed| reversed != is_against) {
                return Err(invalid("Unsupported order by relation"));
            }
            reversed = Some(is_against);
        }
        Ok(reversed.unwrap_or(false))
    }

    fn ordered_column(&self, ordering: &Ordering) -> Result<(usize, bool), CqlError> {
        let OrderingKind::Value(direction) = ordering.kind else { return Err(not_supported("ORDER BY … ANN OF")) };
        let Expression::Column(name) = &ordering.expression else {
            return Err(not_supported("ORDER BY of anything but columns"));
        };
        Ok((self.column_position(name)?, direction == Direction::Descending))
    }

    fn post_ordering(&self, order_by: &[Ordering]) -> Result<Vec<(usize, bool)>, CqlError> {
        order_by.iter().map(|ordering| self.ordered_column(ordering)).collect()
    }

    fn check_distinct(&self, selection: &SelectionPlan, restrictions: &Restrictions) -> Result<(), CqlError> {
        let context = self.context();
        if restrictions.restricts_clustering
            || restrictions.filters.iter().any(|filter| filters_regular(filter, context))
        {
            return Err(invalid(
                "SELECT DISTINCT with WHERE clause only supports restriction by partition key and/or static columns.",
            ));
        }
        let partition_columns = context.partition_columns();
        for (at, _) in selection.reads.iter().enumerate().filter(|(_, read)| **read) {
            if at >= partition_columns && !context.is_static(at) {
                return Err(invalid(format!(
                    "SELECT DISTINCT queries must only request partition key columns and/or static columns (not {})",
                    context.column(at).name
                )));
            }
        }
        let selects = |at: usize| {
            selection.selectors.iter().any(|selector| matches!(selector, Selector::Column(of) if *of == at))
        };
        let any_static = selection.reads.iter().enumerate().any(|(at, read)| *read && context.is_static(at));
        match (0..partition_columns).find(|&at| !selects(at)) {
            Some(missing) if !any_static || partition_columns > 0 => Err(invalid(format!(
                "SELECT DISTINCT queries must request all the partition key columns (missing {})",
                context.column(missing).name
            ))),
            _ => Ok(()),
        }
    }
}

fn refuse_unsupported(select: &ast::Select) -> Result<(), CqlError> {
    let unsupported = [
        (select.json, "SELECT JSON"),
        (!select.group_by.is_empty(), "GROUP BY"),
        (select.filter.is_some(), "IF in SELECT"),
        (select.offset.is_some(), "OFFSET"),
    ];
    match unsupported.iter().find(|(is_used, _)| *is_used) {
        Some((_, feature)) => Err(not_supported(feature)),
        None => Ok(()),
    }
}

fn filter_columns(filter: &super::restrictions::Filter) -> std::ops::Range<usize> {
    use super::restrictions::{Filter, TupleTerm};
    match filter {
        Filter::Compare(at, ..)
        | Filter::In(at, _)
        | Filter::Contains(at, _)
        | Filter::ContainsKey(at, _)
        | Filter::Entry(at, ..)
        | Filter::CompareTuple(at, _, TupleTerm::Whole(_)) => *at..*at + 1,
        Filter::CompareTuple(at, _, TupleTerm::Terms(terms)) => *at..*at + terms.len(),
        Filter::InTuples(at, columns, _) => *at..*at + columns,
    }
}

/// Whether a filter looks at static columns.
pub fn filters_static(filter: &super::restrictions::Filter, context: &TableContext) -> bool {
    filter_columns(filter).any(|at| context.is_static(at))
}

/// Whether a filter looks at columns that differ from row to row.
pub fn filters_regular(filter: &super::restrictions::Filter, context: &TableContext) -> bool {
    filter_columns(filter).any(|at| at >= context.partition_columns() && !context.is_static(at))
}

/// Marks the columns that a filter looks at.
pub fn mark_filter_reads(filter: &super::restrictions::Filter, reads: &mut [bool]) {
    filter_columns(filter).for_each(|at| reads[at] = true);
}

/// The number in a `LIMIT`.
pub fn check_limit(value: Option<&[u8]>, name: &str) -> Result<u32, CqlError> {
    let clause = if name == "[limit]" { "LIMIT" } else { "PER PARTITION LIMIT" };
    let value = value.ok_or_else(|| invalid(format!("Invalid null value of {}", clause.to_lowercase())))?;
    let value: [u8; 4] = value.try_into().map_err(|_| invalid(format!("Invalid {} value", clause.to_lowercase())))?;
    match i32::from_be_bytes(value) {
        limit if limit > 0 => Ok(limit as u32),
        _ => Err(invalid(format!("{clause} must be strictly positive"))),
    }
}
