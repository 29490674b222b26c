//! What a `SELECT` returns: for each result column how it is computed from a row, or from many.
//!
//! Always true: a selector names columns by position and its type is known; which columns have to be read follows from it. Left out: how one
//! expression becomes a selector ([`super::selector`]).

use super::Planner;
use super::term::Term;
use crate::error::exceeded;
use crate::functions::Function;
use crate::types::type_option;
use diorite_base::limits;
use diorite_cql::language::ast::{self, MetadataKind};
use diorite_cql::protocol::{ColumnSpec, CqlError, NativeType, ResultMetadata};
use diorite_model::types::CqlType;
use std::sync::Arc;

/// How a result column is computed.
#[derive(Debug, Clone)]
pub enum Selector {
    /// A column as it is.
    Column(usize),
    /// The same for every row.
    Term(Term),
    /// A function of other selectors.
    Call(Function, Vec<Selector>),
    /// `writetime(column)`, `maxwritetime(column)`, `ttl(column)`
    Metadata(MetadataKind, usize),
    /// The same of one element of a map or set
    ElementMetadata(MetadataKind, usize, Term),
    /// The same of one field of a user-defined type
    FieldMetadata(MetadataKind, usize, u16),
    /// The value of a map at a key, the element of a set, or that of a list or vector at an index; with the type of what it is taken from
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
    /// Of what; absent for `count(*)`.
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
    /// Whether rows are folded into one.
    pub fn is_aggregate(&self) -> bool {
        !self.aggregates.is_empty()
    }

    /// Whether anything is shown of a row beside aggregates.
    pub fn shows_columns(&self) -> bool {
        self.shows.contains(&true)
    }
}

/// A selector with its type and the name that its result column gets.
pub(super) struct Named {
    pub selector: Selector,
    pub data_type: CqlType,
    pub name: String,
}

impl Planner<'_> {
    /// Plans the selection of a `SELECT`.
    pub fn selection(&mut self, selection: &ast::Selection, is_json: bool) -> Result<SelectionPlan, CqlError> {
        let context = self.shared_context();
        let mut aggregates = Vec::new();
        let mut named = Vec::new();
        match selection {
            ast::Selection::All => {
                for (at, column) in context.table().columns.iter().enumerate() {
                    let (data_type, name) = (column.data_type.clone(), column.name.clone());
                    named.push(Named { selector: Selector::Column(at), data_type, name });
                }
            }
            ast::Selection::Selectors(selectors) => {
                limits::check(&limits::SELECTORS, selectors.len(), || "a selection".to_owned()).map_err(exceeded)?;
                for selector in selectors {
                    let mut planned = self.selector(&selector.expression, None, &mut aggregates)?;
                    if let Some(alias) = &selector.alias {
                        planned.name.clone_from(alias);
                    }
                    named.push(planned);
                }
            }
        }
        for named in &named {
            named.data_type.check_limits().map_err(exceeded)?;
            self.budget.step()?;
            let of_table = context.table().keyspace.len() + context.table().name.len();
            self.budget.charge(size_of::<Named>() + size_of::<ColumnSpec>() + 2 * named.name.len() + of_table)?;
            if !is_json {
                self.charge_told(&named.data_type)?;
            }
        }
        let mut reads = vec![false; context.table().columns.len()];
        named.iter().for_each(|named| mark_reads(&named.selector, &mut reads));
        let shows = reads.clone();
        aggregates.iter().filter_map(|aggregate: &Aggregate| aggregate.argument.as_ref()).for_each(|argument| {
            mark_reads(argument, &mut reads);
        });
        let spec = |name: &str, type_option| ColumnSpec {
            keyspace: context.table().keyspace.clone(),
            table: context.table().name.clone(),
            name: name.to_owned(),
            type_option,
        };
        let columns: Vec<ColumnSpec> = match is_json {
            true => vec![spec("[json]", NativeType::Varchar.into())],
            false => named.iter().map(|named| spec(&named.name, type_option(&named.data_type))).collect(),
        };
        let metadata = Arc::new(ResultMetadata::new(columns));
        let plain = |named: &Named| if let Selector::Column(at) = named.selector { Some(at) } else { None };
        let plain_columns = if is_json { None } else { named.iter().map(plain).collect() };
        let json = is_json.then(|| named.iter().map(|named| (named.name.clone(), named.data_type.clone())).collect());
        let selectors = named.into_iter().map(|named| named.selector).collect();
        Ok(SelectionPlan { selectors, aggregates, metadata, json, reads, shows, plain_columns })
    }
}

impl Selector {
    /// Names every column that is looked at.
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

/// Marks the columns that a selector looks at.
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
