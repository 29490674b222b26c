//! Predicates over rows: YCQL's `IF` of a `SELECT`, and those relations of a `WHERE` that no key range can express and that are about more
//! than a column as it is (fields, elements, places in documents, functions, negated operators).
//!
//! Always true: what stands left is a [`Selector`], what stands right a term that fits its type. Left out: existence, which a row that is
//! read always has.

use super::Planner;
use super::restrictions::Values;
use super::selection::Selector;
use super::term::{Receiver, Term};
use crate::error::{invalid, not_supported};
use diorite_cql::language::ast::{ComparisonOperator, Expression, Operand, Predicate, QualifiedName, Relation, Target};
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;

/// What must hold of a row.
#[derive(Debug, Clone)]
pub enum RowPredicate {
    /// A comparison of a selector's value, of this type.
    Compare(Selector, CqlType, ComparisonOperator, Term),
    /// It is among values (or, `true`, is not).
    In(Selector, CqlType, Values, bool),
    /// A collection has an element or, if so said, a key.
    Contains {
        /// The collection.
        of: Selector,
        /// Its type.
        data_type: CqlType,
        /// What it has.
        wanted: Term,
        /// A key is meant.
        is_key: bool,
        /// It does not have it.
        is_negated: bool,
    },
    /// All hold.
    And(Vec<RowPredicate>),
    /// One holds.
    Or(Vec<RowPredicate>),
    /// It does not hold.
    Not(Box<RowPredicate>),
}

impl RowPredicate {
    /// Names every column that is looked at.
    pub fn visit_columns(&self, visit: &mut dyn FnMut(usize)) {
        match self {
            RowPredicate::Compare(of, ..) | RowPredicate::In(of, ..) | RowPredicate::Contains { of, .. } => {
                of.visit_columns(visit);
            }
            RowPredicate::And(parts) | RowPredicate::Or(parts) => {
                parts.iter().for_each(|part| part.visit_columns(visit));
            }
            RowPredicate::Not(inner) => inner.visit_columns(visit),
        }
    }
}

/// The left side of a relation as what a `SELECT` would return for it.
pub fn as_expression(operand: &Operand) -> Expression {
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

impl Planner<'_> {
    /// Plans a boolean expression over relations.
    pub fn row_predicate(&mut self, predicate: &Predicate) -> Result<RowPredicate, CqlError> {
        Ok(match predicate {
            Predicate::Relation(relation) => self.row_relation(relation)?,
            Predicate::And(parts) => {
                RowPredicate::And(parts.iter().map(|part| self.row_predicate(part)).collect::<Result<_, _>>()?)
            }
            Predicate::Or(parts) => {
                RowPredicate::Or(parts.iter().map(|part| self.row_predicate(part)).collect::<Result<_, _>>()?)
            }
            Predicate::Not(inner) => RowPredicate::Not(Box::new(self.row_predicate(inner)?)),
            Predicate::Exists | Predicate::NotExists => return Err(not_supported("EXISTS in the IF of a SELECT")),
        })
    }

    /// The left side of a relation, with its type and name.
    fn compared(&mut self, operand: &Operand) -> Result<(Selector, CqlType, String), CqlError> {
        let mut aggregates = Vec::new();
        let named = self.selector(&as_expression(operand), None, &mut aggregates)?;
        if !aggregates.is_empty() {
            return Err(invalid("aggregate functions are not supported in WHERE and IF clauses"));
        }
        Ok((named.selector, named.data_type, named.name))
    }

    /// Plans one relation as a predicate.
    pub fn row_relation(&mut self, relation: &Relation) -> Result<RowPredicate, CqlError> {
        self.budget.step()?;
        self.budget.charge(size_of::<RowPredicate>())?;
        Ok(match relation {
            Relation::Compare { left, operator, right } => {
                let (of, data_type, name) = self.compared(left)?;
                self.compare(of, data_type, &name, *operator, right)?
            }
            Relation::Between { left, negated, from, to } => {
                let (of, data_type, name) = self.compared(left)?;
                let parts = vec![
                    self.compare(of.clone(), data_type.clone(), &name, ComparisonOperator::GreaterOrEqual, from)?,
                    self.compare(of, data_type, &name, ComparisonOperator::LessOrEqual, to)?,
                ];
                let within = RowPredicate::And(parts);
                if *negated { RowPredicate::Not(Box::new(within)) } else { within }
            }
            Relation::In { left, negated, values } => {
                let (of, data_type, name) = self.compared(left)?;
                let values = self.in_values(values, &name, &data_type)?;
                RowPredicate::In(of, data_type, values, *negated)
            }
            Relation::Contains { left, negated, value } => {
                let (of, data_type, name) = self.compared(left)?;
                let element = match &data_type {
                    CqlType::List(element, _) | CqlType::Set(element, _) | CqlType::Map(_, element, _) => element,
                    _ => return Err(invalid(format!("Cannot use CONTAINS on non-collection column {name}"))),
                };
                let wanted = self.term(value, &Receiver::new(format!("value({name})"), element))?;
                RowPredicate::Contains { of, wanted, data_type, is_key: false, is_negated: *negated }
            }
            Relation::ContainsKey { left, negated, key } => {
                let (of, data_type, name) = self.compared(left)?;
                let CqlType::Map(key_type, ..) = &data_type else {
                    return Err(invalid(format!("Cannot use CONTAINS KEY on non-map column {name}")));
                };
                let wanted = self.term(key, &Receiver::new(format!("key({name})"), key_type))?;
                RowPredicate::Contains { of, wanted, data_type, is_key: true, is_negated: *negated }
            }
            Relation::Like { .. } => return Err(not_supported("LIKE")),
            Relation::IsNotNull(_) => return Err(not_supported("IS NOT NULL")),
            Relation::IndexExpression { .. } => return Err(not_supported("expr(index, value)")),
        })
    }

    fn compare(
        &mut self,
        of: Selector,
        data_type: CqlType,
        name: &str,
        operator: ComparisonOperator,
        right: &Expression,
    ) -> Result<RowPredicate, CqlError> {
        let is_equality = matches!(operator, ComparisonOperator::Equal | ComparisonOperator::NotEqual);
        if data_type == CqlType::Duration && !is_equality {
            return Err(invalid("Slice restrictions are not supported on duration columns"));
        }
        let term = self.term(right, &Receiver::new(name, &data_type))?;
        Ok(RowPredicate::Compare(of, data_type, operator, term))
    }
}
