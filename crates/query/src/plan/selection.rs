//! The result columns of a `SELECT`: for each, how it is computed from a row, or from many.
//!
//! Always true: a selector names columns by position and its type is known; which columns have to be read follows from it. Left out: how one
//! expression becomes a selector ([`crate::bind`]).

use super::term::Term;
use crate::functions::Function;
use diorite_cql::language::ast::MetadataKind;
use diorite_cql::protocol::ResultMetadata;
use diorite_model::types::CqlType;
use std::sync::Arc;

/// How a result column is computed.
#[derive(Debug, Clone)]
pub enum Selector {
    /// A column.
    Column(usize),
    /// A value that is equal for every row.
    Term(Term),
    /// A function of other selectors.
    Call(Function, Vec<Selector>),
    /// `writetime(column)`, `maxwritetime(column)`, `ttl(column)`
    Metadata(MetadataKind, usize),
    /// The same of one element of a map or set
    ElementMetadata(MetadataKind, usize, Term),
    /// The same of one field of a user-defined type
    FieldMetadata(MetadataKind, usize, u16),
    /// The value of a map at a key, the element of a set, or that of a list or vector at an index; with the type of the collection
    Element(Box<Selector>, CqlType, Term),
    /// The elements of a set, or entries of a map, between two bounds
    Slice(Box<Selector>, CqlType, Option<Term>, Option<Term>),
    /// A field of a user-defined type
    Field(Box<Selector>, u16),
    /// A collection, tuple, user type or vector of this type, made of other selectors
    Build(CqlType, Vec<Selector>),
    /// An aggregate, by its number.
    Aggregate(usize),
}

impl Selector {
    /// How many selectors it is made of.
    pub fn nodes(&self) -> usize {
        1 + match self {
            Selector::Call(_, parts) | Selector::Build(_, parts) => parts.iter().map(Self::nodes).sum(),
            Selector::Element(of, ..) | Selector::Slice(of, ..) | Selector::Field(of, _) => of.nodes(),
            Selector::Column(_)
            | Selector::Term(_)
            | Selector::Metadata(..)
            | Selector::ElementMetadata(..)
            | Selector::FieldMetadata(..)
            | Selector::Aggregate(_) => 0,
        }
    }
}

/// An aggregate function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AggregateKind {
    /// `count(*)`
    CountRows,
    /// `count(x)`
    Count,
    /// `min(x)`
    Min,
    /// `max(x)`
    Max,
    /// `sum(x)`
    Sum,
    /// `avg(x)`
    Avg,
}

/// An aggregate to be computed.
#[derive(Debug, Clone)]
pub struct Aggregate {
    /// Which.
    pub kind: AggregateKind,
    /// The argument; `None` for `count(*)`.
    pub argument: Option<Selector>,
    /// The type of the argument.
    pub argument_type: CqlType,
}

/// The planned selection.
#[derive(Debug)]
pub struct SelectionPlan {
    /// One per result column.
    pub selectors: Vec<Selector>,
    /// The aggregates that selectors refer to.
    pub aggregates: Vec<Aggregate>,
    /// The result's columns.
    pub metadata: Arc<ResultMetadata>,
    /// `SELECT JSON`: the names and types of the selectors, whose values become one text.
    pub json: Option<Vec<(String, CqlType)>>,
    /// For each column of the table whether its value is needed.
    pub reads: Vec<bool>,
    /// For each column of the table whether its value is needed beside the arguments of aggregates.
    pub shows: Vec<bool>,
    /// The selected columns, when nothing but columns is selected.
    pub plain_columns: Option<Vec<usize>>,
}

impl SelectionPlan {
    /// Whether rows are aggregated into one.
    pub fn is_aggregate(&self) -> bool {
        !self.aggregates.is_empty()
    }

    /// Whether columns of a row are shown beside aggregates.
    pub fn shows_columns(&self) -> bool {
        self.shows.contains(&true)
    }
}

impl Selector {
    /// Visits every column that it reads.
    pub fn visit_columns(&self, visit: &mut dyn FnMut(usize)) {
        match self {
            Selector::Column(at)
            | Selector::Metadata(_, at)
            | Selector::ElementMetadata(_, at, _)
            | Selector::FieldMetadata(_, at, _) => visit(*at),
            Selector::Element(of, ..) | Selector::Slice(of, ..) | Selector::Field(of, _) => of.visit_columns(visit),
            Selector::Call(_, parts) | Selector::Build(_, parts) => {
                parts.iter().for_each(|part| part.visit_columns(visit));
            }
            Selector::Term(_) | Selector::Aggregate(_) => {}
        }
    }
}

/// Marks the columns that a selector reads.
pub fn mark_reads(selector: &Selector, reads: &mut [bool]) {
    selector.visit_columns(&mut |at| reads[at] = true);
}

/// Whether a selector asks how elements of a column were written.
pub fn uses_metadata(selector: &Selector) -> bool {
    match selector {
        Selector::Metadata(..) | Selector::ElementMetadata(..) | Selector::FieldMetadata(..) => true,
        Selector::Element(of, ..) | Selector::Slice(of, ..) | Selector::Field(of, _) => uses_metadata(of),
        Selector::Call(_, parts) | Selector::Build(_, parts) => parts.iter().any(uses_metadata),
        Selector::Column(_) | Selector::Term(_) | Selector::Aggregate(_) => false,
    }
}
