//! Predicates over a row, with their values bound.
//!
//! Always true: null makes a comparison neither true nor false, whatever its operator; a row is accepted only if its predicate is true. Left
//! out: where predicates come from ([`crate::plan::predicate`]).

use super::evaluate::Scope;
use super::keys::values_of;
use super::row::RowData;
use crate::plan::predicate::RowPredicate;
use crate::plan::selection::Selector;
use crate::plan::term::{Bound, Evaluated};
use crate::steps::among as steps_among;
use crate::values::{contains, frozen, satisfies};
use diorite_cql::language::ast::ComparisonOperator;
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;
use diorite_model::value;
use std::borrow::Cow;

/// A predicate with its values.
#[derive(Debug)]
pub enum BoundPredicate<'a> {
    /// A comparison; a value of null is never fulfilled.
    Compare(&'a Selector, CqlType, ComparisonOperator, Option<Cow<'a, [u8]>>),
    /// Among values, which are in order, or not.
    In(&'a Selector, CqlType, Vec<Cow<'a, [u8]>>, bool),
    /// Has an element or key, or not.
    Contains {
        /// The collection
        of: &'a Selector,
        /// Its type
        data_type: &'a CqlType,
        /// The value to look for
        wanted: Option<Cow<'a, [u8]>>,
        /// Among keys
        is_key: bool,
        /// It must not be there
        is_negated: bool,
    },
    /// All hold.
    And(Vec<BoundPredicate<'a>>),
    /// One holds.
    Or(Vec<BoundPredicate<'a>>),
    /// It does not hold.
    Not(Box<BoundPredicate<'a>>),
}

/// Evaluates the values of a predicate.
pub fn bind<'a>(predicate: &'a RowPredicate, bound: &Bound<'a>) -> Result<BoundPredicate<'a>, CqlError> {
    let all = |parts: &'a [RowPredicate]| parts.iter().map(|part| bind(part, bound)).collect::<Result<Vec<_>, _>>();
    let value = |term: &'a crate::plan::term::Term| match term.evaluate(bound)? {
        Evaluated::Unset => Err(crate::error::invalid("Invalid unset value in a condition")),
        other => Ok(other.bytes()),
    };
    Ok(match predicate {
        RowPredicate::Compare(of, data_type, operator, term) => {
            BoundPredicate::Compare(of, frozen(data_type), *operator, value(term)?)
        }
        RowPredicate::In(of, data_type, values, is_negated) => {
            let data_type = frozen(data_type);
            let mut values = values_of(values, bound, "in a condition")?;
            values.sort_unstable_by(|a, b| value::compare(&data_type, a, b));
            BoundPredicate::In(of, data_type, values, *is_negated)
        }
        RowPredicate::Contains { of, data_type, wanted, is_key, is_negated } => {
            BoundPredicate::Contains { of, data_type, wanted: value(wanted)?, is_key: *is_key, is_negated: *is_negated }
        }
        RowPredicate::And(parts) => BoundPredicate::And(all(parts)?),
        RowPredicate::Or(parts) => BoundPredicate::Or(all(parts)?),
        RowPredicate::Not(inner) => BoundPredicate::Not(Box::new(bind(inner, bound)?)),
    })
}

impl BoundPredicate<'_> {
    /// The most passes over each byte of a row.
    pub fn steps(&self) -> usize {
        match self {
            BoundPredicate::Compare(of, ..) | BoundPredicate::Contains { of, .. } => of.nodes(),
            BoundPredicate::In(of, _, values, _) => of.nodes() + steps_among(values.len()),
            BoundPredicate::And(parts) | BoundPredicate::Or(parts) => parts.iter().map(Self::steps).sum(),
            BoundPredicate::Not(inner) => inner.steps(),
        }
    }

    /// Whether it holds for a row; `None` if that is unknown because of a null.
    pub fn holds(&self, scope: &Scope<'_>, row: &RowData) -> Result<Option<bool>, CqlError> {
        scope.bound.environment.budget.check()?;
        Ok(match self {
            BoundPredicate::Compare(of, data_type, operator, wanted) => match (scope.evaluate(of, row)?, wanted) {
                (Some(found), Some(wanted)) => Some(satisfies(*operator, value::compare(data_type, &found, wanted))),
                _ => None,
            },
            BoundPredicate::In(of, data_type, values, is_negated) => scope.evaluate(of, row)?.map(|found| {
                values.binary_search_by(|wanted| value::compare(data_type, wanted, &found)).is_ok() != *is_negated
            }),
            BoundPredicate::Contains { of, data_type, wanted, is_key, is_negated } => {
                match (scope.evaluate(of, row)?, wanted) {
                    (Some(found), Some(wanted)) => Some(contains(data_type, &found, wanted, *is_key)? != *is_negated),
                    _ => None,
                }
            }
            BoundPredicate::And(parts) => {
                let mut all = Some(true);
                for part in parts {
                    match part.holds(scope, row)? {
                        Some(true) => {}
                        Some(false) => return Ok(Some(false)),
                        None => all = None,
                    }
                }
                all
            }
            BoundPredicate::Or(parts) => {
                let mut any = Some(false);
                for part in parts {
                    match part.holds(scope, row)? {
                        Some(true) => return Ok(Some(true)),
                        Some(false) => {}
                        None => any = None,
                    }
                }
                any
            }
            BoundPredicate::Not(inner) => inner.holds(scope, row)?.map(|holds| !holds),
        })
    }
}
