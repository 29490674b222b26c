//! From relations to predicates over rows.
//!
//! Always true: a predicate contains no aggregate. Left out: `EXISTS`, as a row that is read exists.

use super::binder::Binder;
use super::receiver::Receiver;
use super::selector::{Named, SelectorBinder};
use crate::error::{invalid, not_supported};
use crate::plan::predicate::RowPredicate;
use diorite_cql::language::ast::{ComparisonOperator, Expression, Operand, Predicate, QualifiedName, Relation, Target};
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;

/// The left side of a relation as what a `SELECT` would return for it.
fn as_expression(operand: &Operand) -> Expression {
    let column = |name: &String| Box::new(Expression::Column(name.clone()));
    match operand {
        Operand::Target(Target::Column(name)) => Expression::Column(name.clone()),
        Operand::Target(Target::Element { column: name, key }) => {
            Expression::Element { of: column(name), key: Box::new(key.clone()) }
        }
        Operand::Target(Target::Field { column: name, field }) => {
            Expression::Field { of: column(name), field: field.clone() }
        }
        Operand::Target(Target::JsonPath { column: name, path }) => {
            Expression::JsonPath { of: column(name), path: path.clone(), as_text: false }
        }
        Operand::JsonText { column: name, path } => {
            Expression::JsonPath { of: column(name), path: path.clone(), as_text: true }
        }
        Operand::Token(columns) => Expression::Function {
            name: QualifiedName::unqualified("token"),
            arguments: columns.iter().map(|name| Expression::Column(name.clone())).collect(),
        },
        Operand::Tuple(columns) => {
            Expression::Tuple(columns.iter().map(|name| Expression::Column(name.clone())).collect())
        }
        Operand::Function(function) => function.clone(),
    }
}

/// Plans a boolean expression over relations.
pub(super) fn bind_predicate(binder: &mut Binder<'_>, predicate: &Predicate) -> Result<RowPredicate, CqlError> {
    Ok(match predicate {
        Predicate::Relation(relation) => bind_relation(binder, relation)?,
        Predicate::And(parts) => {
            RowPredicate::And(parts.iter().map(|part| bind_predicate(binder, part)).collect::<Result<_, _>>()?)
        }
        Predicate::Or(parts) => {
            RowPredicate::Or(parts.iter().map(|part| bind_predicate(binder, part)).collect::<Result<_, _>>()?)
        }
        Predicate::Not(inner) => RowPredicate::Not(Box::new(bind_predicate(binder, inner)?)),
        Predicate::Exists | Predicate::NotExists => return Err(not_supported("EXISTS in the IF of a SELECT")),
    })
}

/// The left side of a relation, with its type and name.
fn compared(binder: &mut Binder<'_>, operand: &Operand) -> Result<Named, CqlError> {
    let mut selectors = SelectorBinder::new(binder);
    let named = selectors.selector(&as_expression(operand), None)?;
    if !selectors.aggregates.is_empty() {
        return Err(invalid("aggregate functions are not supported in WHERE and IF clauses"));
    }
    Ok(named)
}

/// Plans one relation as a predicate.
pub(super) fn bind_relation(binder: &mut Binder<'_>, relation: &Relation) -> Result<RowPredicate, CqlError> {
    binder.budget.step()?;
    binder.budget.charge(size_of::<RowPredicate>())?;
    Ok(match relation {
        Relation::Compare { left, operator, right } => {
            let compared = compared(binder, left)?;
            compare(binder, &compared, *operator, right)?
        }
        Relation::Between { left, negated, from, to } => {
            let compared = compared(binder, left)?;
            let parts = vec![
                compare(binder, &compared, ComparisonOperator::GreaterOrEqual, from)?,
                compare(binder, &compared, ComparisonOperator::LessOrEqual, to)?,
            ];
            let within = RowPredicate::And(parts);
            if *negated { RowPredicate::Not(Box::new(within)) } else { within }
        }
        Relation::In { left, negated, values } => {
            let Named { selector: of, data_type, name } = compared(binder, left)?;
            let values = binder.in_values(values, &name, &data_type)?;
            RowPredicate::In(of, data_type, values, *negated)
        }
        Relation::Contains { left, negated, value } => {
            let Named { selector: of, data_type, name } = compared(binder, left)?;
            let element = match &data_type {
                CqlType::List(element, _) | CqlType::Set(element, _) | CqlType::Map(_, element, _) => element,
                _ => return Err(invalid(format!("Cannot use CONTAINS on non-collection column {name}"))),
            };
            let wanted = binder.term(value, &Receiver::new(format!("value({name})"), element))?;
            RowPredicate::Contains { of, wanted, data_type, is_key: false, is_negated: *negated }
        }
        Relation::ContainsKey { left, negated, key } => {
            let Named { selector: of, data_type, name } = compared(binder, left)?;
            let CqlType::Map(key_type, ..) = &data_type else {
                return Err(invalid(format!("Cannot use CONTAINS KEY on non-map column {name}")));
            };
            let wanted = binder.term(key, &Receiver::new(format!("key({name})"), key_type))?;
            RowPredicate::Contains { of, wanted, data_type, is_key: true, is_negated: *negated }
        }
        Relation::Like { .. } => return Err(not_supported("LIKE")),
        Relation::IsNotNull(_) => return Err(not_supported("IS NOT NULL")),
        Relation::IndexExpression { .. } => return Err(not_supported("expr(index, value)")),
    })
}

fn compare(
    binder: &mut Binder<'_>,
    compared: &Named,
    operator: ComparisonOperator,
    right: &Expression,
) -> Result<RowPredicate, CqlError> {
    let Named { selector, data_type, name } = compared;
    let is_equality = matches!(operator, ComparisonOperator::Equal | ComparisonOperator::NotEqual);
    if *data_type == CqlType::Duration && !is_equality {
        return Err(invalid("Slice restrictions are not supported on duration columns"));
    }
    let term = binder.term(right, &Receiver::new(name.as_str(), data_type))?;
    Ok(RowPredicate::Compare(selector.clone(), data_type.clone(), operator, term))
}
