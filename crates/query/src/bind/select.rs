//! From `SELECT` to its plan.
//!
//! Always true: what a plan reads follows from what it selects, restricts, orders and groups by. Left out: `ORDER BY … ANN OF`.

use super::binder::Binder;
use super::index::index_plans;
use super::predicate::bind_predicate;
use super::receiver::Receiver;
use super::restrictions::{WhereOf, bind_where};
use super::selection::bind_selection;
use super::selector::SelectorBinder;
use crate::error::{invalid, not_supported};
use crate::plan::index::IndexPlan;
use crate::plan::restrictions::{Filter, Restrictions, filters_regular, filters_static};
use crate::plan::select::{Pushdown, RowLimits, SelectPlan, check_limit};
use crate::plan::selection::{SelectionPlan, Selector};
use crate::plan::term::Term;
use crate::table::Source;
use diorite_cql::language::ast::{self, Direction, Expression, Ordering, OrderingKind, Parsed, Statement};
use diorite_cql::protocol::CqlError;
use diorite_model::schema::{ColumnKind, Order};
use diorite_model::types::CqlType;

/// Plans a `SELECT` of the table that the binder has.
pub(super) fn bind_select(binder: &mut Binder<'_>, select: &ast::Select) -> Result<SelectPlan, CqlError> {
    if select.order_by.iter().any(|ordering| matches!(ordering.kind, OrderingKind::NearestNeighbours(_))) {
        return Err(not_supported("ORDER BY … ANN OF"));
    }
    let selection = bind_selection(binder, &select.selection, select.json)?;
    let mut restrictions = bind_where(binder, &select.where_clause, WhereOf::Select(select.allow_filtering))?;
    if let Some(filter) = &select.filter {
        let predicate = bind_predicate(binder, filter)?;
        restrictions.filters.push(Filter::Predicate(predicate));
    }
    let grouping = grouping(binder, &select.group_by, &restrictions, select.distinct)?;
    let is_reversed = ordering(binder, &select.order_by, &restrictions)?;
    if select.distinct {
        check_distinct(binder, &selection, &restrictions)?;
    }
    let per_partition_limit = bind_limit(binder, select.limits.per_partition.as_ref(), "[per_partition_limit]")?;
    let limit = bind_limit(binder, select.limits.total.as_ref(), "[limit]")?;
    if per_partition_limit.is_some() && select.distinct {
        return Err(invalid("PER PARTITION LIMIT is not allowed with SELECT DISTINCT queries"));
    }
    let offset = bind_limit(binder, select.limits.offset.as_ref(), "[offset]")?;
    if per_partition_limit.is_some() && selection.is_aggregate() && grouping.is_none() {
        return Err(invalid("PER PARTITION LIMIT is not allowed with aggregate queries."));
    }
    let context = binder.shared_context();
    let mut ordering = Vec::new();
    if !select.order_by.is_empty() && restrictions.has_partition_in() {
        ordering = post_ordering(binder, &select.order_by)?;
    }
    // Static columns decide whether a partition without rows is shown, so a full read of partitions needs them too.
    let reads_statics = context.has_statics()
        && (selection.reads.iter().enumerate().any(|(at, read)| *read && context.is_static(at))
            || restrictions.filters.iter().any(|filter| filters_static(filter, &context))
            || (!restrictions.restricts_clustering && !restrictions.restricts_regular));
    let is_aggregated = selection.is_aggregate() || grouping.is_some();
    let pushdown = match is_aggregated && context.source() == Source::Tablets {
        true => pushdown(binder, select)?,
        false => None,
    };
    let mut indexes = index_plans(&context, &restrictions, select).into_iter();
    restrictions.index = indexes.next();
    let other_indexes: Vec<IndexPlan> = indexes.collect();
    binder.budget.charge(other_indexes.iter().map(IndexPlan::size_bytes).sum())?;
    Ok(SelectPlan {
        table: context,
        selection,
        restrictions,
        other_indexes,
        is_reversed,
        ordering,
        limits: RowLimits { total: limit, per_partition: per_partition_limit, offset },
        is_distinct: select.distinct,
        reads_statics,
        grouping,
        pushdown,
        covering: None,
    })
}

/// The statement for the leaders of tablets. Where it does not read back, the rows are fetched and aggregated here.
fn pushdown(binder: &mut Binder<'_>, select: &ast::Select) -> Result<Option<Pushdown>, CqlError> {
    let mut select = select.clone();
    select.from.keyspace = Some(binder.context().table().keyspace.clone());
    let parsed = Parsed { statement: Statement::Select(Box::new(select)), markers: binder.names.to_vec() };
    let pushdown = Pushdown::prove(binder.keyspace, &parsed);
    binder.budget.charge(pushdown.as_ref().map_or(0, |pushdown| pushdown.statement().len()))?;
    Ok(pushdown)
}

/// The selectors of `GROUP BY`: columns of the primary key in their order, the last one possibly through a function.
fn grouping(
    binder: &mut Binder<'_>,
    group_by: &[Expression],
    restrictions: &Restrictions,
    is_distinct: bool,
) -> Result<Option<Vec<Selector>>, CqlError> {
    if group_by.is_empty() {
        return Ok(None);
    }
    let order = "Group by currently only supports groups of columns following their declared order in the PRIMARY KEY";
    let context = binder.shared_context();
    let mut next = 0;
    let mut grouping = Vec::with_capacity(group_by.len());
    for (number, expression) in group_by.iter().enumerate() {
        let selector = SelectorBinder::new(binder).selector(expression, None)?.selector;
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
            return Err(invalid("Group by functions are only supported on clustering columns, as the last element"));
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
    // All rows of a group are of one partition, so its columns need not be compared.
    grouping.retain(|selector| !matches!(selector, Selector::Column(at) if *at < context.partition_columns()));
    Ok(Some(grouping))
}

fn bind_limit(binder: &mut Binder<'_>, expression: Option<&Expression>, name: &str) -> Result<Option<Term>, CqlError> {
    let Some(expression) = expression else { return Ok(None) };
    let term = binder.term(expression, &Receiver::new(name, &CqlType::Int))?;
    if let Term::Constant(value) = &term {
        check_limit(value.as_deref(), name)?;
    }
    Ok(Some(term))
}

/// Whether rows have to be read backwards.
fn ordering(binder: &Binder<'_>, order_by: &[Ordering], restrictions: &Restrictions) -> Result<bool, CqlError> {
    if order_by.is_empty() {
        return Ok(false);
    }
    if !restrictions.has_keys() {
        return Err(invalid("ORDER BY is only supported when the partition key is restricted by an EQ or an IN."));
    }
    let context = binder.context();
    let mut next = context.partition_columns();
    let mut reversed: Option<bool> = None;
    for ordering in order_by {
        let (at, is_descending) = ordered_column(binder, ordering)?;
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

fn ordered_column(binder: &Binder<'_>, ordering: &Ordering) -> Result<(usize, bool), CqlError> {
    let OrderingKind::Value(direction) = ordering.kind else { return Err(not_supported("ORDER BY … ANN OF")) };
    let Expression::Column(name) = &ordering.expression else {
        return Err(not_supported("ORDER BY of anything but columns"));
    };
    Ok((binder.column_position(name)?, direction == Direction::Descending))
}

fn post_ordering(binder: &Binder<'_>, order_by: &[Ordering]) -> Result<Vec<(usize, bool)>, CqlError> {
    order_by.iter().map(|ordering| ordered_column(binder, ordering)).collect()
}

fn check_distinct(binder: &Binder<'_>, selection: &SelectionPlan, restrictions: &Restrictions) -> Result<(), CqlError> {
    let context = binder.context();
    if restrictions.restricts_clustering || restrictions.filters.iter().any(|filter| filters_regular(filter, context)) {
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
    let selects =
        |at: usize| selection.selectors.iter().any(|selector| matches!(selector, Selector::Column(of) if *of == at));
    let any_static = selection.reads.iter().enumerate().any(|(at, read)| *read && context.is_static(at));
    match (0..partition_columns).find(|&at| !selects(at)) {
        Some(missing) if !any_static || partition_columns > 0 => Err(invalid(format!(
            "SELECT DISTINCT queries must request all the partition key columns (missing {})",
            context.column(missing).name
        ))),
        _ => Ok(()),
    }
}
