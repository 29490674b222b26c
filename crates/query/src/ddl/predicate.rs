//! The predicate of a partial index or of a materialized view: comparisons of columns with constants, all of which hold.
//!
//! Always true: a constant is kept as the one literal that CQL shows for its value, so conditions are the same if and only
//! if they are equal; a predicate has a limited size. Left out: which statements say the same (`bind::implied`), and
//! leaving entries out of the index: they follow from each write alone, which seldom has all columns of a predicate, so
//! a partial index has the entries of a whole one, and readers filter the rows.

use super::text::{identifier, raw};
use crate::error::{in_place, invalid, not_supported, value_error};
use diorite_cql::language::ast::{ComparisonOperator, Expression, Literal, Operand, Relation, Target};
use diorite_cql::protocol::CqlError;
use diorite_model::schema::{Column, IndexCondition, IndexOperator, Table};
use diorite_model::types::CqlType;
use diorite_model::value::literal::{self, LiteralError};
use diorite_model::value::literal_text;

/// The most conditions of a predicate.
const MAX_CONDITIONS: usize = 16;
/// The most bytes of a constant, as it is shown.
const MAX_CONSTANT_BYTES: usize = 1_024;

/// The words for the predicate of an index.
pub(super) const OF_INDEX: &str = "an index predicate";

/// The conditions of a `WHERE`; messages call them `what`.
pub(super) fn conditions(table: &Table, relations: &[Relation], what: &str) -> Result<Vec<IndexCondition>, CqlError> {
    if relations.len() > MAX_CONDITIONS {
        return Err(invalid(format!("{what} has at most {MAX_CONDITIONS} conditions")));
    }
    let mut conditions = Vec::with_capacity(relations.len());
    for relation in relations {
        let condition = condition(table, relation, what)?;
        if !conditions.contains(&condition) {
            conditions.push(condition);
        }
    }
    Ok(conditions)
}

fn condition(table: &Table, relation: &Relation, what: &str) -> Result<IndexCondition, CqlError> {
    let Relation::Compare { left: Operand::Target(Target::Column(name)), operator, right } = relation else {
        return Err(not_supported(format!("{what} that is more than comparisons of columns with constants")));
    };
    let column = table.column(name).ok_or_else(|| invalid(format!("Column '{name}' doesn't exist")))?;
    if !is_comparable(&column.data_type) {
        let data_type = &column.data_type;
        return Err(not_supported(format!("{what} on column {name} of type {data_type}")));
    }
    let literal = match right {
        Expression::Literal(Literal::Null) => return Err(not_supported(format!("null in {what}"))),
        Expression::Literal(literal) => constant(column, literal, what)?,
        _ => return Err(not_supported(format!("{what} with anything but constants"))),
    };
    Ok(IndexCondition { column: column.id, operator: operator_of(*operator), literal })
}

/// Whether predicates may be about columns of a type.
fn is_comparable(data_type: &CqlType) -> bool {
    use CqlType::{Bigint, Boolean, Int, Smallint, Text, Tinyint, Varint};
    matches!(data_type, Tinyint | Smallint | Int | Bigint | Varint | Boolean | Text)
}

/// A constant for a column, as it is kept.
fn constant(column: &Column, constant: &Literal, what: &str) -> Result<String, CqlError> {
    let Column { name, data_type, .. } = column;
    let refused = |kind: &str| {
        let text = raw(constant);
        invalid(format!("Invalid {kind} constant ({text}) for \"{name}\" of type {data_type}"))
    };
    let given = match constant {
        Literal::String(text) => literal::Literal::String(text),
        Literal::Integer(digits) => literal::Literal::Integer(digits),
        Literal::Float(digits) => literal::Literal::Float(digits),
        Literal::Boolean(value) => literal::Literal::Boolean(*value),
        Literal::Blob(_) => return Err(refused("HEX")),
        Literal::Uuid(_) => return Err(refused("UUID")),
        Literal::Duration(_) => return Err(refused("DURATION")),
        Literal::Null => return Err(refused("NULL")),
    };
    let mut wire = Vec::new();
    literal::from_literal(data_type, &given, &mut wire).map_err(|error| match error {
        LiteralError::WrongKind(kind, _) => refused(kind),
        LiteralError::Invalid(error) => in_place(value_error(error), format_args!("\"{name}\" of type {data_type}")),
    })?;
    literal_of(data_type, &wire)
        .ok_or_else(|| invalid(format!("a constant of {what} has at most {MAX_CONSTANT_BYTES} bytes")))
}

/// A value as a condition has it; `None` if no condition has it.
pub fn literal_of(data_type: &CqlType, wire: &[u8]) -> Option<String> {
    if !is_comparable(data_type) || wire.len() > MAX_CONSTANT_BYTES {
        return None;
    }
    let mut text = String::new();
    literal_text(data_type, wire, &mut text).ok()?;
    (text.len() <= MAX_CONSTANT_BYTES).then_some(text)
}

/// An operator as a condition has it.
pub fn operator_of(operator: ComparisonOperator) -> IndexOperator {
    match operator {
        ComparisonOperator::Equal => IndexOperator::Equal,
        ComparisonOperator::NotEqual => IndexOperator::NotEqual,
        ComparisonOperator::Less => IndexOperator::Less,
        ComparisonOperator::LessOrEqual => IndexOperator::LessOrEqual,
        ComparisonOperator::Greater => IndexOperator::Greater,
        ComparisonOperator::GreaterOrEqual => IndexOperator::GreaterOrEqual,
    }
}

/// The operator of a condition.
pub fn comparison_of(operator: IndexOperator) -> ComparisonOperator {
    match operator {
        IndexOperator::Equal => ComparisonOperator::Equal,
        IndexOperator::NotEqual => ComparisonOperator::NotEqual,
        IndexOperator::Less => ComparisonOperator::Less,
        IndexOperator::LessOrEqual => ComparisonOperator::LessOrEqual,
        IndexOperator::Greater => ComparisonOperator::Greater,
        IndexOperator::GreaterOrEqual => ComparisonOperator::GreaterOrEqual,
    }
}

/// The value of a constant as a condition has it; `None` if no condition has it.
pub fn wire_of(data_type: &CqlType, constant: &str) -> Option<Vec<u8>> {
    let text;
    let given = match data_type {
        CqlType::Text => {
            text = constant.strip_prefix('\'')?.strip_suffix('\'')?.replace("''", "'");
            literal::Literal::String(&text)
        }
        CqlType::Boolean => literal::Literal::Boolean(constant.parse().ok()?),
        _ => literal::Literal::Integer(constant),
    };
    let mut wire = Vec::new();
    literal::from_literal(data_type, &given, &mut wire).ok()?;
    Some(wire)
}

/// Whether two predicates have the same conditions.
pub(super) fn is_same(one: &[IndexCondition], other: &[IndexCondition]) -> bool {
    // No condition is there twice.
    one.len() == other.len() && one.iter().all(|condition| other.contains(condition))
}

/// A predicate as CQL text.
pub fn text(table: &Table, predicate: &[IndexCondition]) -> String {
    let shown = predicate.iter().map(|IndexCondition { column, operator, literal }| {
        let column = table.column_by_id(*column).map(|column| identifier(&column.name)).unwrap_or_default();
        let operator = match operator {
            IndexOperator::Equal => "=",
            IndexOperator::NotEqual => "!=",
            IndexOperator::Less => "<",
            IndexOperator::LessOrEqual => "<=",
            IndexOperator::Greater => ">",
            IndexOperator::GreaterOrEqual => ">=",
        };
        format!("{column} {operator} {literal}")
    });
    shown.collect::<Vec<_>>().join(" AND ")
}
