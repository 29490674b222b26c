//! The values of restrictions and comparisons.
//!
//! Always true: every term has been checked against the type of its column. Left out: what the values are for
//! ([`super::restrictions`], [`super::condition`]).

use super::term::Term;

/// The values a column is restricted to.
#[derive(Debug, Clone)]
pub enum Values {
    /// `= term`
    One(Term),
    /// `IN (terms)`
    Many(Vec<Term>),
    /// `IN ?`: a list
    List(Term),
}

/// A value for several columns.
#[derive(Debug, Clone)]
pub enum TupleTerm {
    /// One term per column.
    Terms(Vec<Term>),
    /// A marker (or the like) bound to a tuple.
    Whole(Term),
}

/// The values several columns together are restricted to.
#[derive(Debug, Clone)]
pub enum TupleValues {
    /// `= tuple`, `IN (tuples)`
    Many(Vec<TupleTerm>),
    /// `IN ?`: a list of tuples
    List(Term),
}

/// One end of a range.
#[derive(Debug, Clone)]
pub struct SliceBound {
    /// Where.
    pub value: TupleTerm,
    /// Whether it belongs to the range.
    pub is_inclusive: bool,
}
