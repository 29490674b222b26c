//! Which secondary index a read uses.
//!
//! Always true: an index is used only where its restriction stays a filter, so the answer does not depend on the choice.
//! An index with which a read needs no `ALLOW FILTERING` comes first, unless the statement has it: so another index
//! never makes a read be refused. Then equality is preferred to a range of values, then the index whose predicate says
//! more, and of two alike the one that was made first. Left out: how many rows have a value, which nobody knows.

use super::implied::says;
use crate::ddl::index::has_ranges;
use crate::functions::Function;
use crate::functions::document::Step;
use crate::plan::index::IndexPlan;
use crate::plan::predicate::RowPredicate;
use crate::plan::restrictions::{Filter, Restrictions};
use crate::plan::selection::Selector;
use crate::plan::term::Term;
use crate::plan::values::TupleTerm;
use crate::table::{Source, TableContext};
use diorite_cql::language::ast::{ComparisonOperator, Select};
use diorite_model::json::place::PathStep;
use diorite_model::schema::{ColumnKind, Index, IndexTarget};
use std::cmp::Reverse;

/// How an index narrows down the rows, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Use {
    OneValue,
    SeveralValues,
    Range,
}

/// Whether a selector is the text at the place that an index is about.
fn is_place(table: &TableContext, index: &Index, selector: &Selector) -> bool {
    let Selector::Call(Function::JsonPath(steps, true), parts) = selector else { return false };
    let Some((Selector::Column(at), parts)) = parts.split_first() else { return false };
    let is_step = |((step, part), wanted): ((&Step, &Selector), &PathStep)| {
        let Selector::Term(Term::Constant(Some(wire))) = part else { return false };
        match (step, wanted) {
            (Step::Member, PathStep::Member(name)) => name.as_bytes() == &**wire,
            (Step::Element, PathStep::Element(index)) => index.to_be_bytes() == **wire,
            _ => false,
        }
    };
    table.column(*at).id == index.column
        && (steps.len(), parts.len()) == (index.path.len(), index.path.len())
        && steps.iter().zip(parts).zip(&index.path).all(is_step)
}

/// How an index serves a filter, if it does.
fn use_of(table: &TableContext, index: &Index, filter: &Filter) -> Option<Use> {
    if !index.path.is_empty() {
        return match filter {
            Filter::Predicate(RowPredicate::Compare(of, _, ComparisonOperator::Equal, _)) => {
                is_place(table, index, of).then_some(Use::OneValue)
            }
            Filter::Predicate(RowPredicate::In(of, _, _, false)) => {
                is_place(table, index, of).then_some(Use::SeveralValues)
            }
            _ => None,
        };
    }
    let is_of = |at: usize| table.column(at).id == index.column;
    let is_value = matches!(index.target, IndexTarget::Value | IndexTarget::Full);
    match filter {
        Filter::Compare(at, ComparisonOperator::Equal, _) if is_of(*at) && is_value => Some(Use::OneValue),
        Filter::In(at, _) if is_of(*at) && is_value => Some(Use::SeveralValues),
        Filter::Contains(at, _) if is_of(*at) && index.target == IndexTarget::Values => Some(Use::OneValue),
        Filter::ContainsKey(at, _) if is_of(*at) && index.target == IndexTarget::Keys => Some(Use::OneValue),
        Filter::Entry(at, ..) if is_of(*at) && index.target == IndexTarget::Entries => Some(Use::OneValue),
        Filter::CompareTuple(at, _, TupleTerm::Terms(terms))
            if terms.len() == 1 && is_of(*at) && index.target == IndexTarget::Value && has_ranges(index) =>
        {
            Some(Use::Range)
        }
        _ => None,
    }
}

/// Whether a filter is about a column that the statement of an index named beside the indexed one.
fn is_beside(table: &TableContext, index: &Index, filter: &Filter) -> bool {
    let at = match filter {
        Filter::Compare(at, ..) | Filter::In(at, _) => *at,
        Filter::CompareTuple(at, _, TupleTerm::Terms(terms)) if terms.len() == 1 => *at,
        _ => return false,
    };
    index.filtered.contains(&table.column(at).id)
}

/// How an index serves a read best.
fn best_use(table: &TableContext, restrictions: &Restrictions, index: &Index) -> Option<Use> {
    restrictions.filters.iter().filter_map(|filter| use_of(table, index, filter)).min()
}

fn may_use(restrictions: &Restrictions, index: &Index) -> bool {
    index.predicate.is_empty() || restrictions.implied_indexes.contains(&index.id)
}

/// The indexes that a statement may use.
fn permitted<'t>(table: &'t TableContext, restrictions: &'t Restrictions) -> impl Iterator<Item = &'t Index> {
    table.table().indexes.iter().filter(move |index| may_use(restrictions, index))
}

/// The filters that no index serves.
pub(super) fn unserved<'t>(table: &'t TableContext, restrictions: &'t Restrictions) -> Vec<&'t Filter> {
    let indexes: Vec<&Index> = permitted(table, restrictions).collect();
    let is_served = |filter: &Filter| indexes.iter().any(|index| use_of(table, index, filter).is_some());
    restrictions.filters.iter().filter(|filter| !is_served(filter)).collect()
}

/// How many of the filters that no index serves are about other columns than those that an index names beside its own,
/// and not said by its predicate: a read by it needs `ALLOW FILTERING` for them.
pub(super) fn left_by(table: &TableContext, index: &Index, unserved: &[&Filter]) -> usize {
    unserved.iter().filter(|filter| !is_beside(table, index, filter) && !says(table, index, filter)).count()
}

/// Whether a read by some index needs no `ALLOW FILTERING`: no other rows than those asked for are read, or nearly so.
pub(super) fn serves_all(table: &TableContext, restrictions: &Restrictions) -> bool {
    let unserved = unserved(table, restrictions);
    usable(table, restrictions).any(|(_, index)| left_by(table, index, &unserved) == 0)
}

/// The indexes that could serve a read, in the order in which they were made, and how.
pub(super) fn usable<'t>(
    table: &'t TableContext,
    restrictions: &'t Restrictions,
) -> impl Iterator<Item = (Use, &'t Index)> {
    let indexes = permitted(table, restrictions);
    indexes.filter_map(move |index| Some((best_use(table, restrictions, index)?, index)))
}

/// The indexes that could serve a read if it said all of their predicates, and how.
pub(super) fn unspoken<'t>(
    table: &'t TableContext,
    restrictions: &'t Restrictions,
) -> impl Iterator<Item = (Use, &'t Index)> {
    let others = table.table().indexes.iter().filter(move |index| !may_use(restrictions, index));
    others.filter_map(move |index| Some((best_use(table, restrictions, index)?, index)))
}

/// The indexes that a read may use, the best first.
fn choose<'t>(table: &'t TableContext, restrictions: &'t Restrictions, may_scan: bool) -> Vec<&'t Index> {
    // With ALLOW FILTERING the narrowest index is the best one, whatever is left to be filtered.
    let unserved = if may_scan { Vec::new() } else { unserved(table, restrictions) };
    let mut ranked: Vec<(usize, Use, &Index)> =
        usable(table, restrictions).map(|(of, index)| (left_by(table, index, &unserved), of, index)).collect();
    // Those that are alike stay in the order in which they were made.
    ranked.sort_by_key(|(left, of, index)| (*left, *of, Reverse(index.predicate.len())));
    let least = ranked.first().map(|(left, ..)| *left);
    ranked.retain(|(left, ..)| Some(*left) == least);
    ranked.into_iter().map(|(.., index)| index).collect()
}

/// The indexes by which a `SELECT` may read, the best first. Another one takes its place where it is still being built.
pub(super) fn index_plans(table: &TableContext, restrictions: &Restrictions, select: &Select) -> Vec<IndexPlan> {
    let names_rows =
        restrictions.has_keys() && (!restrictions.clustering.is_empty() || table.clustering_columns() == 0);
    // What is put in order is read in that order, and filtered.
    if names_rows || table.source() != Source::Tablets || !select.order_by.is_empty() {
        return Vec::new();
    }
    let may_scan = select.allow_filtering;
    // With ALLOW FILTERING, tablets in which it is not built are read row by row.
    let most = if may_scan { 1 } else { usize::MAX };
    let chosen = choose(table, restrictions, may_scan).into_iter().take(most);
    chosen.filter_map(|index| index_plan(table, restrictions, index, may_scan)).collect()
}

/// How a read uses an index. `may_scan`: `ALLOW FILTERING`.
fn index_plan(table: &TableContext, restrictions: &Restrictions, index: &Index, may_scan: bool) -> Option<IndexPlan> {
    let column = table.position_of(index.column)?;
    let uses = |filter: &Filter| use_of(table, index, filter);
    let best = restrictions.filters.iter().filter_map(uses).min()?;
    let mut filters: Vec<usize> = restrictions
        .filters
        .iter()
        .enumerate()
        .filter(|(_, filter)| uses(filter) == Some(best))
        .map(|(at, _)| at)
        .collect();
    if best != Use::Range {
        filters.truncate(1);
    }
    let whole_partitions = table.column(column).kind == ColumnKind::Static;
    let (id, name, target) = (index.id, index.name.clone(), index.target);
    Some(IndexPlan { id, name, column, target, filters, whole_partitions, may_scan })
}
