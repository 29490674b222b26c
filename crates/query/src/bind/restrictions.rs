//! From the relations of a `WHERE` to restrictions.
//!
//! Always true: the messages are Cassandra's. Left out: one relation ([`super::relation`]).

use super::binder::Binder;
use super::implied::implied_indexes;
use super::index::serves_all;
use super::relation::{Rule, RuleKind, rules_of};
use crate::error::invalid;
use crate::plan::restrictions::{ClusteringRestriction, Filter, PartitionRestriction, Restrictions};
use crate::plan::values::{SliceBound, TupleTerm, TupleValues, Values};
use diorite_cql::language::ast::{ComparisonOperator, Relation};
use diorite_cql::protocol::CqlError;
use std::collections::{HashMap, HashSet};

/// Cassandra's error for a query that would have to read more rows than it returns.
pub const ALLOW_FILTERING_MESSAGE: &str = "Cannot execute this query as it might involve data filtering and thus may have unpredictable performance. If you want to execute this query despite the performance unpredictability, use ALLOW FILTERING";

/// What kind of statement the `WHERE` belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhereOf {
    /// `SELECT`; whether filtering is allowed
    Select(bool),
    /// `UPDATE`
    Update,
    /// `DELETE`
    Delete,
}

impl WhereOf {
    fn allows_filtering(self) -> bool {
        self == WhereOf::Select(true)
    }

    fn is_select(self) -> bool {
        matches!(self, WhereOf::Select(_))
    }

    fn name(self) -> &'static str {
        match self {
            WhereOf::Select(_) => "SELECT",
            WhereOf::Update => "UPDATE",
            WhereOf::Delete => "DELETE",
        }
    }
}

/// Plans a `WHERE` clause.
pub(super) fn bind_where(
    binder: &mut Binder<'_>,
    relations: &[Relation],
    of: WhereOf,
) -> Result<Restrictions, CqlError> {
    let mut rules = Rules::default();
    let mut predicates = Vec::new();
    for relation in relations {
        for rule in rules_of(binder, relation)? {
            match rule.kind {
                RuleKind::Predicate(_) => predicates.push(rule),
                _ => rules.add(rule, binder)?,
            }
        }
    }
    let implied = match of.is_select() {
        true => implied_indexes(binder.context(), rules.all.iter().chain(&predicates)),
        false => Vec::new(),
    };
    let may_use_index = of == WhereOf::Select(false) && !binder.context().table().indexes.is_empty();
    let others = may_use_index.then(|| (rules.all.clone(), predicates.clone()));
    let planned = plan_rules(binder, rules.all, predicates, of);
    let (refused, (all, predicates)) = match (planned, others) {
        (Err(refused), Some(others)) => (refused, others),
        (planned, _) => return planned.map(|plan| Restrictions { implied_indexes: implied, ..plan }),
    };
    let plan = plan_rules(binder, all, predicates, WhereOf::Select(true)).map_err(|_| refused.clone())?;
    let plan = Restrictions { implied_indexes: implied, ..plan };
    if serves_all(binder.context(), &plan) { Ok(plan) } else { Err(refused) }
}

/// Plans the rules of a `WHERE`.
fn plan_rules(
    binder: &Binder<'_>,
    rules: Vec<Rule>,
    predicates: Vec<Rule>,
    of: WhereOf,
) -> Result<Restrictions, CqlError> {
    let context = binder.context();
    let (partition_columns, key_columns) = (context.partition_columns(), context.key_columns());
    let mut plan = Restrictions {
        partition: PartitionRestriction::All,
        clustering: Vec::new(),
        fixed_clustering: 0,
        filters: Vec::new(),
        restricts_clustering: false,
        restricts_regular: false,
        equal_columns: Vec::new(),
        has_clustering_in: false,
        implied_indexes: Vec::new(),
        index: None,
    };
    let (mut partition, mut clustering, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for rule in rules {
        if let RuleKind::Equal(_) | RuleKind::EqualTuple(_) = rule.kind {
            plan.equal_columns.extend(rule.first..rule.first + rule.columns);
        }
        match rule.first {
            _ if rule.is_token => partition.push(rule),
            first if first < partition_columns => partition.push(rule),
            first if first < key_columns => clustering.push(rule),
            _ => others.push(rule),
        }
    }
    plan_partition(binder, partition, of, &mut plan)?;
    clustering.sort_by_key(|rule| rule.first);
    plan.restricts_clustering = !clustering.is_empty();
    plan_clustering(binder, clustering, of, &mut plan)?;
    plan.restricts_regular = !others.is_empty();
    plan_others(binder, others, of, &mut plan)?;
    plan_predicates(binder, predicates, of, &mut plan)?;
    Ok(plan)
}

fn plan_predicates(
    binder: &Binder<'_>,
    rules: Vec<Rule>,
    of: WhereOf,
    plan: &mut Restrictions,
) -> Result<(), CqlError> {
    let context = binder.context();
    for rule in rules {
        if !of.is_select() {
            let name = &context.column(rule.first).name;
            return Err(invalid(format!("Unsupported relation on {name} in the WHERE of {} statements", of.name())));
        }
        if !of.allows_filtering() {
            return Err(invalid(ALLOW_FILTERING_MESSAGE));
        }
        let RuleKind::Predicate(predicate) = rule.kind else { continue };
        predicate.visit_columns(&mut |at| {
            plan.restricts_clustering |= (context.partition_columns()..context.key_columns()).contains(&at);
            plan.restricts_regular |= at >= context.key_columns();
        });
        plan.filters.push(Filter::Predicate(predicate));
    }
    Ok(())
}

fn plan_partition(binder: &Binder<'_>, rules: Vec<Rule>, of: WhereOf, plan: &mut Restrictions) -> Result<(), CqlError> {
    let context = binder.context();
    if rules.iter().any(|rule| rule.is_token) {
        return plan_tokens(rules, of, plan);
    }
    let count = context.partition_columns();
    let mut keys: Vec<Option<Values>> = vec![None; count];
    let mut rest = Vec::new();
    for rule in rules {
        match rule.kind {
            RuleKind::Equal(term) => keys[rule.first] = Some(Values::One(term)),
            RuleKind::In(values) => keys[rule.first] = Some(values),
            _ => rest.push(rule),
        }
    }
    let restricted: HashSet<usize> = rest.iter().map(|rule| rule.first).collect();
    let missing: Vec<&str> = (0..count)
        .filter(|&at| keys[at].is_none() && !restricted.contains(&at))
        .map(|at| context.column(at).name.as_str())
        .collect();
    if !of.is_select() {
        if !missing.is_empty() {
            return Err(invalid(format!("Some partition key parts are missing: {}", missing.join(", "))));
        }
        if !rest.is_empty() {
            return Err(invalid(format!(
                "Only EQ and IN relation are supported on the partition key (unless you use the token() function) for {} statements",
                of.name()
            )));
        }
    }
    if rest.is_empty() && missing.is_empty() {
        plan.partition = PartitionRestriction::Keys(keys.into_iter().flatten().collect());
        return Ok(());
    }
    if missing.len() == count {
        return Ok(());
    }
    if !of.allows_filtering() {
        return Err(invalid(ALLOW_FILTERING_MESSAGE));
    }
    for (at, values) in keys.into_iter().enumerate() {
        match values {
            Some(Values::One(term)) => plan.filters.push(Filter::Compare(at, ComparisonOperator::Equal, term)),
            Some(values) => plan.filters.push(Filter::In(at, values)),
            None => {}
        }
    }
    rest.into_iter().for_each(|rule| push_filters(rule, &mut plan.filters));
    Ok(())
}

fn plan_clustering(
    binder: &Binder<'_>,
    rules: Vec<Rule>,
    of: WhereOf,
    plan: &mut Restrictions,
) -> Result<(), CqlError> {
    let context = binder.context();
    let base = context.partition_columns();
    let by_key = plan.has_keys();
    if !by_key && !rules.is_empty() && !of.allows_filtering() {
        return Err(invalid(ALLOW_FILTERING_MESSAGE));
    }
    let (mut next, mut slice_at) = (base, None);
    for rule in rules {
        plan.has_clustering_in |= matches!(rule.kind, RuleKind::In(_) | RuleKind::InTuples(_));
        let is_usable = by_key && rule.first == next && slice_at.is_none() && !rule.is_filter_only();
        if !is_usable {
            if !of.allows_filtering() {
                return Err(unusable_clustering(binder, &rule, next, slice_at));
            }
            push_filters(rule, &mut plan.filters);
            continue;
        }
        let (first, columns) = (rule.first, rule.columns);
        match rule.kind {
            RuleKind::Equal(term) => plan.clustering.push(ClusteringRestriction::Values(Values::One(term))),
            RuleKind::In(values) => plan.clustering.push(ClusteringRestriction::Values(values)),
            RuleKind::EqualTuple(term) => {
                plan.clustering.push(ClusteringRestriction::Tuples(columns, TupleValues::Many(vec![term])));
            }
            RuleKind::InTuples(values) => plan.clustering.push(ClusteringRestriction::Tuples(columns, values)),
            RuleKind::Slice { lower, upper } => {
                slice_at = Some(first);
                plan.clustering.push(ClusteringRestriction::Slice { lower, upper });
                continue;
            }
            RuleKind::Contains(_) | RuleKind::ContainsKey(_) | RuleKind::Entry(..) | RuleKind::Predicate(_) => {
                unreachable!("filters only")
            }
        }
        next = first + columns;
    }
    plan.fixed_clustering = next - base;
    Ok(())
}

/// Why a restriction of a clustering column does not narrow down the keys.
fn unusable_clustering(binder: &Binder<'_>, rule: &Rule, next: usize, slice_at: Option<usize>) -> CqlError {
    let context = binder.context();
    let name = &context.column(rule.first).name;
    if rule.is_filter_only() {
        return invalid("Clustering columns can only be restricted with CONTAINS with a secondary index or filtering");
    }
    match slice_at {
        Some(slice) => invalid(format!(
            "Clustering column \"{name}\" cannot be restricted (preceding column \"{}\" is restricted by a non-EQ relation)",
            context.column(slice).name
        )),
        None => invalid(format!(
            "PRIMARY KEY column \"{name}\" cannot be restricted as preceding column \"{}\" is not restricted",
            context.column(next).name
        )),
    }
}

fn plan_others(binder: &Binder<'_>, rules: Vec<Rule>, of: WhereOf, plan: &mut Restrictions) -> Result<(), CqlError> {
    if rules.is_empty() {
        return Ok(());
    }
    if !of.is_select() {
        let names: Vec<&str> = rules.iter().map(|rule| binder.context().column(rule.first).name.as_str()).collect();
        return Err(invalid(format!("Non PRIMARY KEY columns found in where clause: {} ", names.join(", "))));
    }
    if !of.allows_filtering() {
        return Err(invalid(ALLOW_FILTERING_MESSAGE));
    }
    for rule in rules {
        let column = binder.context().column(rule.first);
        let compares = matches!(rule.kind, RuleKind::Equal(_) | RuleKind::In(_) | RuleKind::Slice { .. });
        if compares && column.data_type.is_multi_cell() {
            return Err(invalid(format!(
                "Collection column '{}' ({}) cannot be restricted by a '{}' relation",
                column.name,
                column.data_type,
                rule.symbol()
            )));
        }
        push_filters(rule, &mut plan.filters);
    }
    Ok(())
}

fn plan_tokens(rules: Vec<Rule>, of: WhereOf, plan: &mut Restrictions) -> Result<(), CqlError> {
    if !of.is_select() {
        return Err(invalid(format!(
            "The token function cannot be used in WHERE clauses for {} statements",
            of.name()
        )));
    }
    let (mut lower, mut upper) = (None, None);
    let single = |bound: SliceBound| match bound.value {
        TupleTerm::Terms(mut terms) if terms.len() == 1 => Some((terms.remove(0), bound.is_inclusive)),
        _ => None,
    };
    for rule in rules {
        match rule.kind {
            _ if !rule.is_token => {
                if !of.allows_filtering() {
                    return Err(invalid(ALLOW_FILTERING_MESSAGE));
                }
                push_filters(rule, &mut plan.filters);
            }
            RuleKind::Equal(term) => {
                lower = Some((term.clone(), true));
                upper = Some((term, true));
            }
            RuleKind::Slice { lower: new_lower, upper: new_upper } => {
                lower = new_lower.and_then(single).or(lower);
                upper = new_upper.and_then(single).or(upper);
            }
            _ => return Err(invalid("IN is not supported on the token function")),
        }
    }
    plan.partition = PartitionRestriction::Tokens { lower, upper };
    Ok(())
}

fn push_filters(rule: Rule, filters: &mut Vec<Filter>) {
    let at = rule.first;
    match rule.kind {
        RuleKind::Equal(term) => filters.push(Filter::Compare(at, ComparisonOperator::Equal, term)),
        RuleKind::In(values) => filters.push(Filter::In(at, values)),
        RuleKind::EqualTuple(term) => filters.push(Filter::InTuples(at, rule.columns, TupleValues::Many(vec![term]))),
        RuleKind::InTuples(values) => filters.push(Filter::InTuples(at, rule.columns, values)),
        RuleKind::Predicate(predicate) => filters.push(Filter::Predicate(predicate)),
        RuleKind::Contains(terms) => filters.extend(terms.into_iter().map(|term| Filter::Contains(at, term))),
        RuleKind::ContainsKey(terms) => filters.extend(terms.into_iter().map(|term| Filter::ContainsKey(at, term))),
        RuleKind::Entry(entries) => {
            filters.extend(entries.into_iter().map(|(key, value)| Filter::Entry(at, key, value)));
        }
        RuleKind::Slice { lower, upper } => {
            use ComparisonOperator::{Greater, GreaterOrEqual, Less, LessOrEqual};
            let mut push = |bound: Option<SliceBound>, inclusive, exclusive| {
                let Some(bound) = bound else { return };
                let operator = if bound.is_inclusive { inclusive } else { exclusive };
                filters.push(Filter::CompareTuple(at, operator, bound.value));
            };
            push(lower, GreaterOrEqual, Greater);
            push(upper, LessOrEqual, Less);
        }
    }
}

/// The rules of a `WHERE`.
#[derive(Default)]
struct Rules {
    all: Vec<Rule>,
    /// The first rule that is about a column, or (`true`) about a column as part of the token.
    first: HashMap<(bool, usize), usize>,
}

impl Rules {
    /// Adds a rule, together with an earlier one on the same columns where the two make a range.
    fn add(&mut self, rule: Rule, binder: &Binder<'_>) -> Result<(), CqlError> {
        let (is_token, columns) = (rule.is_token, rule.first..rule.first + rule.columns);
        let known = columns.clone().filter_map(|column| self.first.get(&(is_token, column)).copied()).min();
        match known {
            Some(known) => {
                if let Some(other) = merge_rule(&mut self.all[known], rule, binder)? {
                    self.all.push(other);
                }
            }
            None => self.all.push(rule),
        }
        let at = known.unwrap_or(self.all.len() - 1);
        for column in columns {
            self.first.entry((is_token, column)).or_insert(at);
        }
        Ok(())
    }
}

/// Adds a rule to an earlier one on the same columns, or returns it if it must stay a rule of its own.
fn merge_rule(known: &mut Rule, rule: Rule, binder: &Binder<'_>) -> Result<Option<Rule>, CqlError> {
    let name = || match rule.is_token {
        true => "token".to_owned(),
        false => binder.context().column(rule.first).name.clone(),
    };
    if known.is_tuple != rule.is_tuple {
        return Err(invalid(
            "Mixing single column relations and multi column relations on clustering columns is not allowed",
        ));
    }
    match (&mut known.kind, rule.kind) {
        (RuleKind::Slice { lower, upper }, RuleKind::Slice { lower: new_lower, upper: new_upper }) => {
            for (old, new, which) in [(lower, new_lower, "start"), (upper, new_upper, "end")] {
                if new.is_some() && old.is_some() {
                    return Err(invalid(format!(
                        "More than one restriction was found for the {which} bound on {}",
                        name()
                    )));
                }
                *old = new.or(old.take());
            }
            known.columns = known.columns.max(rule.columns);
            Ok(None)
        }
        (RuleKind::Contains(terms), RuleKind::Contains(new))
        | (RuleKind::ContainsKey(terms), RuleKind::ContainsKey(new)) => {
            terms.extend(new);
            Ok(None)
        }
        (RuleKind::Entry(entries), RuleKind::Entry(new)) => {
            entries.extend(new);
            Ok(None)
        }
        (RuleKind::Contains(_) | RuleKind::ContainsKey(_) | RuleKind::Entry(_), kind)
        | (_, kind @ (RuleKind::Contains(_) | RuleKind::ContainsKey(_) | RuleKind::Entry(_))) => {
            let other = Rule { kind, ..rule };
            // Different questions about one collection stay separate rules.
            let is_question =
                |kind: &RuleKind| matches!(kind, RuleKind::Contains(_) | RuleKind::ContainsKey(_) | RuleKind::Entry(_));
            if !is_question(&known.kind) || !is_question(&other.kind) {
                return Err(invalid(format!(
                    "Collection column {} can only be restricted by CONTAINS, CONTAINS KEY, or map-entry equality if it already restricted by one of those",
                    binder.context().column(other.first).name
                )));
            }
            Ok(Some(other))
        }
        (RuleKind::Equal(_) | RuleKind::EqualTuple(_), _) | (_, RuleKind::Equal(_) | RuleKind::EqualTuple(_)) => {
            Err(invalid(format!("{} cannot be restricted by more than one relation if it includes an Equal", name())))
        }
        _ => Err(invalid(format!("{} cannot be restricted by more than one relation if it includes a IN", name()))),
    }
}
