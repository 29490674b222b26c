//! Filters: restrictions that are checked row by row, as `ALLOW FILTERING` permits.
//!
//! Always true: null fulfils no filter. Bound values are evaluated once, when the filters are prepared. Left out: anything that key ranges
//! express already.

use super::evaluate::Scope;
use super::keys::{tuples_of, values_of};
use super::predicate::{self, BoundPredicate};
use super::row::RowData;
use crate::error::value_error;
use crate::plan::restrictions::Filter;
use crate::plan::term::Bound;
use crate::plan::values::TupleTerm;
use crate::steps::among as steps_among;
use crate::table::TableContext;
use crate::values::{contains, element_of, satisfies};
use diorite_cql::language::ast::ComparisonOperator;
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;
use diorite_model::value::{self, collection};
use std::borrow::Cow;
use std::cmp::Ordering;

/// A filter with its values.
#[derive(Debug)]
pub enum BoundFilter<'a> {
    /// One column is among values, which are in order.
    In(usize, Vec<Cow<'a, [u8]>>),
    /// A collection has an element or key.
    Contains(usize, Cow<'a, [u8]>, bool),
    /// A map's value at a key.
    Entry(usize, Cow<'a, [u8]>, Cow<'a, [u8]>),
    /// Columns from a position on compare to values.
    Compare(usize, ComparisonOperator, Vec<Cow<'a, [u8]>>),
    /// Columns from a position on are among tuples.
    InTuples(usize, Vec<Vec<Cow<'a, [u8]>>>),
    /// Anything else.
    Predicate(BoundPredicate<'a>),
}

/// Evaluates the values of filters.
pub fn prepare<'a>(
    table: &TableContext,
    filters: &'a [Filter],
    bound: &Bound<'a>,
) -> Result<Vec<BoundFilter<'a>>, CqlError> {
    let name = |at: usize| table.column(at).name.as_str();
    let mut prepared = Vec::with_capacity(filters.len());
    for filter in filters {
        prepared.push(match filter {
            Filter::Compare(at, operator, term) => {
                BoundFilter::Compare(*at, *operator, vec![term.require(bound, name(*at))?])
            }
            Filter::In(at, values) => {
                let mut values = values_of(values, bound, name(*at))?;
                values.sort_unstable_by(|a, b| value::compare(&table.column(*at).data_type, a, b));
                BoundFilter::In(*at, values)
            }
            Filter::Contains(at, term) => BoundFilter::Contains(*at, term.require(bound, name(*at))?, false),
            Filter::ContainsKey(at, term) => BoundFilter::Contains(*at, term.require(bound, name(*at))?, true),
            Filter::Entry(at, key, value) => {
                BoundFilter::Entry(*at, key.require(bound, name(*at))?, value.require(bound, name(*at))?)
            }
            Filter::CompareTuple(at, operator, TupleTerm::Terms(terms)) => {
                let values = terms.iter().map(|term| term.require(bound, name(*at))).collect::<Result<_, _>>()?;
                BoundFilter::Compare(*at, *operator, values)
            }
            Filter::CompareTuple(at, operator, TupleTerm::Whole(term)) => {
                let tuple = term.require(bound, name(*at))?;
                let mut values = Vec::new();
                for field in collection::fields(&tuple) {
                    values.push(Cow::Owned(field.map_err(value_error)?.unwrap_or_default().to_vec()));
                }
                BoundFilter::Compare(*at, *operator, values)
            }
            Filter::InTuples(at, columns, values) => BoundFilter::InTuples(*at, tuples_of(values, bound, *columns)?),
            Filter::Predicate(predicate) => BoundFilter::Predicate(predicate::bind(predicate, bound)?),
        });
    }
    Ok(prepared)
}

impl BoundFilter<'_> {
    /// The most passes over each byte of a row.
    pub fn steps(&self) -> usize {
        match self {
            BoundFilter::In(_, values) => steps_among(values.len()),
            BoundFilter::InTuples(_, tuples) => tuples.len(),
            BoundFilter::Predicate(predicate) => predicate.steps(),
            BoundFilter::Contains(..) | BoundFilter::Entry(..) | BoundFilter::Compare(..) => 1,
        }
    }

    /// Whether a row fulfils it.
    pub fn accepts(&self, scope: &Scope<'_>, row: &RowData) -> Result<bool, CqlError> {
        let table = scope.table;
        Ok(match self {
            BoundFilter::Predicate(predicate) => predicate.holds(scope, row)? == Some(true),
            BoundFilter::Compare(first, operator, values) => {
                compare_columns(table, row, *first, values).is_some_and(|ordering| satisfies(*operator, ordering))
            }
            BoundFilter::In(at, values) => row.value(*at).is_some_and(|found| {
                values.binary_search_by(|value| value::compare(&table.column(*at).data_type, value, found)).is_ok()
            }),
            BoundFilter::InTuples(first, tuples) => {
                tuples.iter().any(|tuple| compare_columns(table, row, *first, tuple) == Some(Ordering::Equal))
            }
            BoundFilter::Contains(at, wanted, is_key) => match row.value(*at) {
                Some(wire) => contains(&table.column(*at).data_type, wire, wanted, *is_key)?,
                None => false,
            },
            BoundFilter::Entry(at, key, wanted) => {
                let data_type = &table.column(*at).data_type;
                let found = match row.value(*at) {
                    Some(wire) => element_of(data_type, wire, key)?,
                    None => None,
                };
                let CqlType::Map(_, value_type, _) = data_type else { return Ok(false) };
                found.is_some_and(|found| value::compare(value_type, found, wanted).is_eq())
            }
        })
    }
}

/// Compares columns from `first` on with values, the first the most significant; `None` if one is null.
fn compare_columns(table: &TableContext, row: &RowData, first: usize, values: &[Cow<'_, [u8]>]) -> Option<Ordering> {
    for (offset, wanted) in values.iter().enumerate() {
        let found = row.value(first + offset)?;
        match value::compare(&table.column(first + offset).data_type, found, wanted) {
            Ordering::Equal => {}
            other => return Some(other),
        }
    }
    Some(Ordering::Equal)
}
