//! Which partial indexes a `WHERE` may use: those whose predicates it says, condition by condition, with the same
//! constants.
//!
//! Always true: what is bound to a marker says nothing, as the plan is made without it. Left out: conclusions from one
//! comparison to another (`v = 5` does not say `v > 0`).

use super::relation::{Rule, RuleKind};
use crate::ddl::predicate::{literal_of, operator_of};
use crate::plan::predicate::RowPredicate;
use crate::plan::restrictions::Filter;
use crate::plan::selection::Selector;
use crate::plan::term::Term;
use crate::plan::values::{SliceBound, TupleTerm};
use crate::table::TableContext;
use diorite_cql::language::ast::ComparisonOperator;
use diorite_model::schema::{ColumnId, Index, IndexCondition};
use std::collections::HashSet;

/// A comparison of a column, by its position, with a term.
type Comparison<'t> = (usize, ComparisonOperator, &'t Term);

/// The numbers of the partial indexes whose predicates the rules of a `WHERE` say.
pub(super) fn implied_indexes<'r>(table: &TableContext, rules: impl Iterator<Item = &'r Rule>) -> Vec<u64> {
    let partial = || table.table().indexes.iter().filter(|index| !index.predicate.is_empty());
    let columns: HashSet<ColumnId> = partial().flat_map(|index| &index.predicate).map(|of| of.column).collect();
    if columns.is_empty() {
        return Vec::new();
    }
    let known: HashSet<&IndexCondition> = partial().flat_map(|index| &index.predicate).collect();
    let mut said = HashSet::new();
    for rule in rules {
        visit_rule(rule, &mut |comparison| {
            let condition = condition(table, comparison, |column| columns.contains(&column));
            said.extend(condition.and_then(|condition| known.get(&condition).copied()));
        });
    }
    let is_said = |index: &&Index| index.predicate.iter().all(|condition| said.contains(condition));
    partial().filter(is_said).map(|index| index.id).collect()
}

/// Whether a filter says a condition of an index's predicate.
pub(super) fn says(table: &TableContext, index: &Index, filter: &Filter) -> bool {
    let comparison = match filter {
        Filter::Compare(at, operator, term) => Some((*at, *operator, term)),
        Filter::CompareTuple(at, operator, TupleTerm::Terms(terms)) => match terms.as_slice() {
            [term] => Some((*at, *operator, term)),
            _ => None,
        },
        Filter::Predicate(predicate) => of_predicate(predicate),
        _ => None,
    };
    let is_in = |column| index.predicate.iter().any(|condition| condition.column == column);
    let condition = comparison.and_then(|comparison| condition(table, comparison, is_in));
    condition.is_some_and(|condition| index.predicate.contains(&condition))
}

/// A comparison with a constant as a condition, if a predicate may be about the column.
fn condition(
    table: &TableContext,
    (at, operator, term): Comparison<'_>,
    is_asked: impl Fn(ColumnId) -> bool,
) -> Option<IndexCondition> {
    let column = table.column(at);
    let Term::Constant(Some(wire)) = term else { return None };
    if !is_asked(column.id) {
        return None;
    }
    let literal = literal_of(&column.data_type, wire)?;
    Some(IndexCondition { column: column.id, operator: operator_of(operator), literal })
}

/// Visits the comparisons of single columns that a rule makes.
fn visit_rule<'r>(rule: &'r Rule, visit: &mut dyn FnMut(Comparison<'r>)) {
    use ComparisonOperator::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual};
    if rule.is_token || rule.is_tuple {
        return;
    }
    let mut bound = |bound: &'r Option<SliceBound>, inclusive, exclusive| {
        let Some(SliceBound { value: TupleTerm::Terms(terms), is_inclusive }) = bound else { return };
        if let [term] = terms.as_slice() {
            visit((rule.first, if *is_inclusive { inclusive } else { exclusive }, term));
        }
    };
    match &rule.kind {
        RuleKind::Slice { lower, upper } => {
            bound(lower, GreaterOrEqual, Greater);
            bound(upper, LessOrEqual, Less);
        }
        RuleKind::Equal(term) => visit((rule.first, Equal, term)),
        RuleKind::Predicate(predicate) => of_predicate(predicate).into_iter().for_each(visit),
        _ => {}
    }
}

/// The comparison of a column that a predicate is.
fn of_predicate(predicate: &RowPredicate) -> Option<Comparison<'_>> {
    match predicate {
        RowPredicate::Compare(Selector::Column(at), _, operator, term) => Some((*at, *operator, term)),
        _ => None,
    }
}
