//! Predicates over rows: YCQL's `IF` of a `SELECT`, and those relations of a `WHERE` that no key range can express and that are about more
//! than a column as it is (fields, elements, places in documents, functions, negated operators).
//!
//! Always true: the left side is a [`Selector`], the right side a term that fits its type.

use super::selection::Selector;
use super::term::Term;
use super::values::Values;
use diorite_cql::language::ast::ComparisonOperator;
use diorite_model::types::CqlType;

/// A predicate on a row.
#[derive(Debug, Clone)]
pub enum RowPredicate {
    /// A comparison of a selector's value, of this type.
    Compare(Selector, CqlType, ComparisonOperator, Term),
    /// It is among values (or, `true`, is not).
    In(Selector, CqlType, Values, bool),
    /// A collection has an element, or a key if `is_key`.
    Contains {
        /// The collection.
        of: Selector,
        /// Its type.
        data_type: CqlType,
        /// The value to look for.
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
    /// Visits every column that it reads.
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
