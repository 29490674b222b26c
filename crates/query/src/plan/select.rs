//! Plans of `SELECT`.
//!
//! Always true: a plan that needs to check rows beyond its key ranges was allowed to by `ALLOW FILTERING`, or is YCQL's `IF`. Left out: search
//! for vectors that are alike, which needs an index.

use super::Planner;
use super::restrictions::{Filter, Restrictions, TupleTerm, WhereOf};
use super::selection::{SelectionPlan, Selector};
use super::term::{Receiver, Term};
use crate::error::{invalid, not_supported};
use crate::table::{Source, TableContext};
use diorite_cql::language::ast::{self, Direction, Expression, Ordering, OrderingKind, Parsed, Statement};
use diorite_cql::language::format::format;
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
    /// `GROUP BY`: neighbouring rows of a partition for which these give the same become one. Empty but present: one row per partition.
    pub grouping: Option<Vec<Selector>>,
    /// YCQL's `OFFSET`: so many rows are left out first.
    pub offset: Option<Term>,
    /// How the nodes that lead tablets are asked to fold rows, if they are folded.
    pub folded_by: Option<FoldedBy>,
}

/// A statement as other nodes can plan it again, at the same version of its table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoldedBy {
    /// The keyspace that unqualified names belong to; empty if there is none.
    pub keyspace: String,
    /// Its text.
    pub statement: String,
}

impl SelectPlan {
    /// Whether all rows are folded into one.
    pub fn is_folded(&self) -> bool {
        self.selection.is_aggregate() && self.grouping.is_none()
    }

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
        self.use_table(&select.from)?;
        if select.order_by.iter().any(|ordering| matches!(ordering.kind, OrderingKind::NearestNeighbours(_))) {
            return Err(not_supported("ORDER BY … ANN OF"));
        }
        let selection = self.selection(&select.selection, select.json)?;
        let mut restrictions = self.restrictions(&select.where_clause, WhereOf::Select(select.allow_filtering))?;
        if let Some(filter) = &select.filter {
            let predicate = self.row_predicate(filter)?;
            restrictions.filters.push(Filter::Predicate(predicate));
        }
        let grouping = self.grouping(&select.group_by, &restrictions, select.distinct)?;
        let is_reversed = self.ordering(&select.order_by, &restrictions)?;
        if select.distinct {
            self.check_distinct(&selection, &restrictions)?;
        }
        let per_partition_limit = self.limit(select.per_partition_limit.as_ref(), "[per_partition_limit]")?;
        let limit = self.limit(select.limit.as_ref(), "[limit]")?;
        if per_partition_limit.is_some() && select.distinct {
            return Err(invalid("PER PARTITION LIMIT is not allowed with SELECT DISTINCT queries"));
        }
        let offset = self.limit(select.offset.as_ref(), "[offset]")?;
        if per_partition_limit.is_some() && selection.is_aggregate() && grouping.is_none() {
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
        let is_folded = selection.is_aggregate() || grouping.is_some();
        let folded_by = (is_folded && context.source() == Source::Tablets).then(|| self.folded_by(select));
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
            grouping,
            offset,
            folded_by,
        };
        Ok((plan, metadata))
    }

    fn folded_by(&self, select: &ast::Select) -> FoldedBy {
        let mut select = select.clone();
        select.from.keyspace = Some(self.context().table().keyspace.clone());
        let parsed = Parsed { statement: Statement::Select(Box::new(select)), markers: self.names.to_vec() };
        FoldedBy { keyspace: self.keyspace.unwrap_or_default().to_owned(), statement: format(&parsed) }
    }

    /// What `GROUP BY` groups by: columns of the primary key in their order, the last perhaps through a function.
    fn grouping(
        &mut self,
        group_by: &[Expression],
        restrictions: &Restrictions,
        is_distinct: bool,
    ) -> Result<Option<Vec<Selector>>, CqlError> {
        if group_by.is_empty() {
            return Ok(None);
        }
        let order =
            "Group by currently only supports groups of columns following their declared order in the PRIMARY KEY";
        let context = self.shared_context();
        let mut next = 0;
        let mut grouping = Vec::with_capacity(group_by.len());
        for (number, expression) in group_by.iter().enumerate() {
            let selector = self.selector(expression, None, &mut Vec::new())?.selector;
            let mut columns = Vec::new();
            selector.visit_columns(&mut |at| columns.push(at));
            let ([at], true) = (columns.as_slice(), !matches!(selector, Selector::Aggregate(_))) else {
                return Err(invalid("Group by functions must have one and only one column as argument"));
            };
            if *at >= context.key_columns() {
                return Err(invalid(format!(
                    "Group by is currently only supported on the columns of the PRIMARY KEY, got {}",
                    context.column(*at).name
                )));
            }
            let is_function = !matches!(selector, Selector::Column(_));
            if is_function && (*at < context.partition_columns() || number + 1 < group_by.len()) {
                return Err(invalid(
                    "Group by functions are only supported on clustering columns, as the last element",
                ));
            }
            while next < *at && restrictions.equal_columns.contains(&next) {
                next += 1;
            }
            if next != *at {
                return Err(invalid(order));
            }
            next += 1;
            grouping.push(selector);
        }
        while next < context.partition_columns() && restrictions.equal_columns.contains(&next) {
            next += 1;
        }
        if next < context.partition_columns() {
            return Err(invalid("Group by is not supported on only a part of the partition key"));
        }
        if is_distinct && next > context.partition_columns() {
            return Err(invalid("Grouping on clustering columns is not allowed for SELECT DISTINCT queries"));
        }
        // All rows of a group are of one partition, whose columns need no second look.
        grouping.retain(|selector| !matches!(selector, Selector::Column(at) if *at < context.partition_columns()));
        Ok(Some(grouping))
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

/// Names every column that a filter looks at.
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

/// Whether a filter looks at static columns.
pub fn filters_static(filter: &Filter, context: &TableContext) -> bool {
    let mut found = false;
    visit_filter(filter, &mut |at| found |= context.is_static(at));
    found
}

/// Whether a filter looks at columns that differ from row to row.
pub fn filters_regular(filter: &Filter, context: &TableContext) -> bool {
    let mut found = false;
    visit_filter(filter, &mut |at| found |= at >= context.partition_columns() && !context.is_static(at));
    found
}

/// Marks the columns that a filter looks at.
pub fn mark_filter_reads(filter: &Filter, reads: &mut [bool]) {
    visit_filter(filter, &mut |at| reads[at] = true);
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
