//! From `EXPLAIN` to its plan.
//!
//! Always true: the statement is planned as if it were to be carried out, so it is refused with the same errors; each of
//! its relations is told once, as the statement has it, as what the plan makes of it: a key or a filter. Left out:
//! choosing a plan ([`super::index`], [`super::restrictions`]).

use super::binder::Binder;
use super::covering::bind_read;
use super::index::{Use, left_by, unserved, unspoken, usable};
use super::modify::{bind_delete, bind_insert, bind_update};
use super::relation::needs_predicate;
use super::timeout::bind_timeout;
use crate::ddl::index::place_text;
use crate::error::not_supported;
use crate::plan::explain::{ExplainPlan, Explained, joined};
use crate::plan::index::IndexPlan;
use crate::plan::restrictions::{Filter, PartitionRestriction, Restrictions};
use crate::table::TableContext;
use diorite_cql::language::ast::{
    ComparisonOperator, Condition, ConditionTest, Operand, Predicate, Relation, Select, Statement, Target,
};
use diorite_cql::language::format::{format_predicate, format_relation, quote_identifier};
use diorite_cql::protocol::{ColumnSpec, CqlError, NativeType, ResultMetadata, TypeOption};
use diorite_model::schema::{Index, IndexTarget};

/// The columns of the answer: YCQL's.
pub(super) fn result_columns() -> ResultMetadata {
    ResultMetadata::new(vec![ColumnSpec {
        keyspace: "system".to_owned(),
        table: "explain".to_owned(),
        name: "QUERY PLAN".to_owned(),
        type_option: TypeOption::Native(NativeType::Varchar),
    }])
}

/// Plans an `EXPLAIN` of this statement.
pub(super) fn bind_explain(binder: &mut Binder<'_>, inner: &Statement) -> Result<ExplainPlan, CqlError> {
    let (of, relations, condition) = match inner {
        Statement::Select(select) => {
            let plan = bind_read(binder, select)?;
            (Explained::Select(Box::new(plan)), select.where_clause.as_slice(), None)
        }
        Statement::Insert(insert) => {
            let plan = bind_insert(binder, insert)?;
            (Explained::Modify(Box::new(plan)), [].as_slice(), insert.condition.as_ref())
        }
        Statement::Update(update) => {
            let plan = bind_update(binder, update)?;
            (Explained::Modify(Box::new(plan)), update.where_clause.as_slice(), update.condition.as_ref())
        }
        Statement::Delete(delete) => {
            let plan = bind_delete(binder, delete)?;
            (Explained::Modify(Box::new(plan)), delete.where_clause.as_slice(), delete.condition.as_ref())
        }
        other => return Err(not_supported(format_args!("EXPLAIN of {}", other.kind()))),
    };
    // Only for its errors: nothing waits that could take too long.
    bind_timeout(binder, inner)?;
    let mut told = ExplainPlan { of, keys: Vec::new(), filters: Vec::new(), condition: None, indexes: Vec::new() };
    tell_relations(binder, relations, &mut told)?;
    told.condition = condition.map(|condition| condition_text(condition, binder.names));
    if let Statement::Select(select) = inner {
        if let Some(filter) = &select.filter {
            told.filters.extend(conjuncts_text(filter, binder.names));
        }
        told.indexes = match told.of.covering() {
            Some(covering) => {
                let name = quote_identifier(&covering.index);
                vec![format!("Index: {name}, which has all columns that the statement uses")]
            }
            None => index_lines(binder.context(), told.of.restrictions(), select),
        };
    }
    let texts = told.keys.iter().chain(&told.filters).chain(&told.condition).chain(&told.indexes);
    let bytes: usize = texts.map(|text| text.len() + size_of::<String>()).sum();
    binder.budget.charge(bytes)?;
    Ok(told)
}

/// Divides the relations of a `WHERE` into keys, in the order of their columns with that of the index last, and filters.
fn tell_relations(binder: &Binder<'_>, relations: &[Relation], told: &mut ExplainPlan) -> Result<(), CqlError> {
    // What a covering index takes as keys would be filters of the table.
    let (table, restrictions) = match told.of.covering() {
        Some(covering) => (&*covering.plan.table, &covering.plan.restrictions),
        None => (binder.context(), told.of.restrictions()),
    };
    let (mut keys, mut filters) = (Vec::new(), Vec::new());
    let mut is_served = false;
    for relation in relations {
        let text = format_relation(relation, binder.names);
        let is_range = matches!(relation, Relation::Between { .. })
            || matches!(relation, Relation::Compare { operator, .. } if *operator != ComparisonOperator::Equal);
        if let Some(at) = key_place(table, restrictions, relation) {
            keys.push((at, text));
        } else if (is_range || !is_served) && is_indexed(table, restrictions, (relation, &text)) {
            // Of several questions about a collection the index is asked the first.
            is_served = true;
            keys.push((usize::MAX, text));
        } else {
            filters.push(text);
        }
    }
    keys.sort_by_key(|(at, _)| *at);
    told.keys = keys.into_iter().map(|(_, text)| text).collect();
    told.filters = filters;
    Ok(())
}

/// The place of the column that a relation restricts, if ranges of keys express that.
fn key_place(table: &TableContext, restrictions: &Restrictions, relation: &Relation) -> Option<usize> {
    let left = match relation {
        _ if needs_predicate(relation) => return None,
        Relation::Compare { left, .. } | Relation::In { left, .. } | Relation::Between { left, .. } => left,
        _ => return None,
    };
    let column = match left {
        Operand::Token(_) | Operand::Function(_) => {
            return matches!(restrictions.partition, PartitionRestriction::Tokens { .. }).then_some(0);
        }
        Operand::Tuple(columns) => columns.first()?,
        Operand::Target(Target::Column(column)) => column,
        Operand::Target(_) | Operand::JsonText { .. } => return None,
    };
    let at = table.position(column)?;
    let ranged = table.partition_columns() + restrictions.fixed_clustering + usize::from(restrictions.has_slice());
    (restrictions.has_keys() && at < ranged && at < table.key_columns()).then_some(at)
}

/// Whether the index of the plan is asked for what a relation says.
fn is_indexed(table: &TableContext, restrictions: &Restrictions, (relation, text): (&Relation, &str)) -> bool {
    let Some(IndexPlan { id, filters, .. }) = &restrictions.index else { return false };
    let index = table.table().indexes.iter().find(|index| index.id == *id);
    if let Some(index) = index.filter(|index| !index.path.is_empty()) {
        return says_place(&place_text(table.table(), index), relation, text);
    }
    let mut asked = filters.iter().filter_map(|at| restrictions.filters.get(*at));
    asked.any(|filter| is_of(table, filter, relation))
}

/// Whether a relation says what is at a place in documents.
fn says_place(place: &str, relation: &Relation, text: &str) -> bool {
    let is_asked = matches!(
        relation,
        Relation::Compare { operator: ComparisonOperator::Equal, .. } | Relation::In { negated: false, .. }
    );
    is_asked && text.strip_prefix(place).is_some_and(|rest| rest.starts_with([' ', '=']))
}

/// Whether a filter is what a relation became.
fn is_of(table: &TableContext, filter: &Filter, relation: &Relation) -> bool {
    use ComparisonOperator::Equal;
    let is_about = |left: &Operand, at: usize| match left {
        Operand::Target(Target::Column(column)) => table.position(column) == Some(at),
        Operand::Tuple(columns) => matches!(&columns[..], [column] if table.position(column) == Some(at)),
        _ => false,
    };
    match (filter, relation) {
        (Filter::Entry(at, ..), Relation::Compare { left, operator: Equal, .. }) => {
            matches!(left, Operand::Target(Target::Element { column, .. }) if table.position(column) == Some(*at))
        }
        (Filter::Compare(at, of, _) | Filter::CompareTuple(at, of, _), Relation::Compare { left, operator, .. }) => {
            of == operator && is_about(left, *at)
        }
        (Filter::In(at, _), Relation::In { left, negated: false, .. })
        | (Filter::CompareTuple(at, ..), Relation::Between { left, negated: false, .. })
        | (Filter::Contains(at, _), Relation::Contains { left, negated: false, .. })
        | (Filter::ContainsKey(at, _), Relation::ContainsKey { left, negated: false, .. }) => is_about(left, *at),
        _ => false,
    }
}

fn condition_text(condition: &Condition, markers: &[Option<String>]) -> String {
    let mut text = match &condition.test {
        ConditionTest::Exists => "EXISTS".to_owned(),
        ConditionTest::NotExists => "NOT EXISTS".to_owned(),
        ConditionTest::If(predicate) => joined(&conjuncts_text(predicate, markers)),
    };
    if condition.else_error {
        text.push_str(" ELSE ERROR");
    }
    text
}

/// The parts of an expression that are joined by `AND`, each as CQL.
fn conjuncts_text(predicate: &Predicate, markers: &[Option<String>]) -> Vec<String> {
    match predicate.conjuncts() {
        Some(relations) => relations.into_iter().map(|relation| format_relation(relation, markers)).collect(),
        None => vec![format_predicate(predicate, markers)],
    }
}

/// What an index is asked for.
fn use_text(table: &TableContext, index: &Index, of: Use) -> String {
    let name = place_text(table.table(), index);
    match (index.target, of) {
        (IndexTarget::Keys, _) => format!("a key of {name}"),
        (IndexTarget::Values, _) => format!("an element of {name}"),
        (IndexTarget::Entries, _) => format!("an entry of {name}"),
        (_, Use::OneValue) => format!("equality on {name}"),
        (_, Use::SeveralValues) => format!("several values of {name}"),
        (_, Use::Range) => format!("a range of {name}"),
    }
}

/// The index that is used, and for each other one that could serve the read why it is not.
fn index_lines(table: &TableContext, restrictions: &Restrictions, select: &Select) -> Vec<String> {
    let usable: Vec<(Use, &Index)> = usable(table, restrictions).collect();
    let chosen_id = restrictions.index.as_ref().map(|plan| plan.id);
    let chosen = usable.iter().find(|(_, index)| Some(index.id) == chosen_id).copied();
    let mut lines = Vec::with_capacity(usable.len());
    if let Some((of, index)) = chosen {
        lines.push(format!("Index: {}, {}", quote_identifier(&index.name), use_text(table, index, of)));
    }
    let unserved = if select.allow_filtering { Vec::new() } else { unserved(table, restrictions) };
    let left = |index: &Index| left_by(table, index, &unserved);
    for (of, index) in usable.iter().copied().filter(|(_, index)| Some(index.id) != chosen_id) {
        let why = match chosen {
            Some((best, first)) if best == of && first.predicate.len() > index.predicate.len() => {
                format!("the predicate of {} says more", quote_identifier(&first.name))
            }
            Some((best, _)) if best < of => "it is not as narrow".to_owned(),
            Some((_, first)) if left(first) < left(index) => "a read by it needs ALLOW FILTERING".to_owned(),
            Some((_, first)) => format!("{} was made first", quote_identifier(&first.name)),
            None if !select.order_by.is_empty() => "ORDER BY takes rows by their keys".to_owned(),
            None => "the keys name the rows".to_owned(),
        };
        let (name, what) = (quote_identifier(&index.name), use_text(table, index, of));
        lines.push(format!("Not used: {name}, {what}: {why}"));
    }
    for (of, index) in unspoken(table, restrictions) {
        let (name, what) = (quote_identifier(&index.name), use_text(table, index, of));
        lines.push(format!("Not used: {name}, {what}: WHERE does not say all of its predicate"));
    }
    lines
}
