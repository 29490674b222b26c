//! Point statements: reads and writes of single rows that can be carried out without waiting.
//!
//! Always true: a point plan has one term for each key column, each a marker or a constant, so that the key is encoded without evaluating
//! anything else. A read of a covering index counts if it gives all rows whose keys begin so. Left out: carrying it out ([`crate::engine`]).

use super::modify::{AnswerAs, ModifyPlan, Scope};
use super::restrictions::{ClusteringRestriction, PartitionRestriction, Restrictions};
use super::select::{RowLimits, SelectPlan};
use super::statement::Plan;
use super::term::Term;
use super::values::Values;
use crate::table::{Source, TableContext};

/// The most bind markers of a point statement.
pub const MAX_VALUES: usize = 64;

/// The most key columns of a point statement.
pub const MAX_KEY_COLUMNS: usize = 16;

/// How a point statement finds its row.
#[derive(Debug)]
pub struct PointPlan {
    /// One term per key column: partition key, then clustering; of a view, those with which the keys of its rows begin.
    pub keys: Vec<Term>,
    /// All rows of the hidden view of a covering index are read whose keys begin so.
    pub is_of_view: bool,
}

/// How a plan is carried out without waiting; `None` if it may have to wait.
pub fn point_plan(plan: &Plan, marker_count: usize) -> Option<PointPlan> {
    if marker_count > MAX_VALUES {
        return None;
    }
    match plan {
        Plan::Select(select) => match select.ready_covering() {
            Some(covering) => view_terms(&covering.plan),
            None if is_point_select(select) => key_terms(&select.table, &select.restrictions),
            None => None,
        },
        Plan::Modify(modify) if is_point_modify(modify) => key_terms(&modify.table, &modify.restrictions),
        _ => None,
    }
}

fn is_point_select(plan: &SelectPlan) -> bool {
    let selects_statics = plan.selection.reads.iter().enumerate().any(|(at, read)| *read && plan.table.is_static(at));
    plan.table.source() == Source::Tablets
        && plan.selection.plain_columns.is_some()
        && plan.restrictions.filters.is_empty()
        && plan.ordering.is_empty()
        && plan.grouping.is_none()
        && plan.limits.offset.is_none()
        && !plan.is_distinct
        && !selects_statics
        && plan.restrictions.fixed_clustering == plan.table.clustering_columns()
        && matches!(plan.limits.total, None | Some(Term::Constant(_)))
        && matches!(plan.limits.per_partition, None | Some(Term::Constant(_)))
}

fn is_point_modify(plan: &ModifyPlan) -> bool {
    plan.condition.is_none()
        && plan.answer == AnswerAs::default()
        && plan.scope == Scope::Rows
        && !plan.reads_row
        && !plan.operations.iter().any(|operation| plan.table.is_static(operation.column))
}

/// The beginning of the keys of rows of a view that are all shown.
fn view_terms(plan: &SelectPlan) -> Option<PointPlan> {
    let RowLimits { total, per_partition, offset } = &plan.limits;
    let shows_all = [total, per_partition, offset].into_iter().all(Option::is_none)
        && plan.restrictions.filters.is_empty()
        && plan.selection.plain_columns.is_some();
    if !shows_all || plan.table.key_columns() > MAX_KEY_COLUMNS {
        return None;
    }
    begun(&plan.table, &plan.restrictions).map(|keys| PointPlan { keys, is_of_view: true })
}

fn key_terms(table: &TableContext, restrictions: &Restrictions) -> Option<PointPlan> {
    let keys = begun(table, restrictions)?;
    let fits = keys.len() == table.key_columns() && keys.len() <= MAX_KEY_COLUMNS;
    fits.then_some(PointPlan { keys, is_of_view: false })
}

/// The terms of the first key columns, each of which has one value.
fn begun(table: &TableContext, restrictions: &Restrictions) -> Option<Vec<Term>> {
    let PartitionRestriction::Keys(partition) = &restrictions.partition else { return None };
    let mut keys = Vec::with_capacity(table.key_columns());
    for values in partition {
        let Values::One(term) = values else { return None };
        keys.push(term.clone());
    }
    for restriction in &restrictions.clustering {
        let ClusteringRestriction::Values(Values::One(term)) = restriction else { return None };
        keys.push(term.clone());
    }
    let is_scalar = |at: usize| table.column(at).data_type.native_name().is_some();
    let is_direct = |term: &Term| matches!(term, Term::Marker { .. } | Term::Constant(Some(_)));
    ((0..keys.len()).all(is_scalar) && keys.iter().all(is_direct)).then_some(keys)
}
