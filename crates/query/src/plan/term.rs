//! Terms: the values in a statement, typed and checked, to be evaluated with bound values.
//!
//! Always true: a term has been checked against the type that it is for, so evaluation fails only on bound values; constants are wire
//! bytes already; collections are in their stored order. Left out: selectors, which may name columns ([`super::selection`]), and how an
//! expression becomes a term ([`crate::bind`]).

use crate::error::{in_place, invalid, value_error};
use crate::functions::document::{self, JsonRow, Member};
use crate::functions::{Environment, Function};
use crate::steps;
use diorite_base::account::Held;
use diorite_cql::protocol::{CqlError, Value};
use diorite_model::types::CqlType;
use diorite_model::value::{self, collection};
use std::borrow::Cow;
use std::sync::Arc;

/// A term.
#[derive(Debug, Clone)]
pub enum Term {
    /// Wire bytes, or null.
    Constant(Option<Box<[u8]>>),
    /// A bound value of this type.
    Marker {
        /// Which one.
        index: u16,
        /// Its type.
        data_type: CqlType,
    },
    /// A function call.
    Call(Box<Call>),
    /// A collection, tuple, user type or vector that is not constant.
    Compound(Box<Compound>),
    /// A column of an `INSERT JSON`.
    JsonColumn(Box<JsonColumn>),
}

/// The value of a column in a JSON text that is bound.
#[derive(Debug, Clone)]
pub struct JsonColumn {
    /// The text.
    pub json: Arc<Term>,
    /// The column's name.
    pub name: String,
    /// Its type.
    pub data_type: CqlType,
    /// All names that the text may have.
    pub columns: Arc<[String]>,
    /// A column that the text does not name is unset.
    pub default_unset: bool,
}

/// A function applied to terms.
#[derive(Debug, Clone)]
pub struct Call {
    /// The function.
    pub function: Function,
    /// Its arguments.
    pub arguments: Vec<Term>,
}

/// A value built of terms.
#[derive(Debug, Clone)]
pub struct Compound {
    /// The type of the value.
    pub data_type: CqlType,
    /// Elements; of maps keys and values in turn; of tuples and user types the fields.
    pub parts: Vec<Term>,
}

/// The value of a term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evaluated<'a> {
    /// Wire bytes.
    Set(Cow<'a, [u8]>),
    /// Null.
    Null,
    /// An unset marker.
    Unset,
}

impl<'a> Evaluated<'a> {
    /// The bytes; `None` for null and unset.
    pub fn bytes(self) -> Option<Cow<'a, [u8]>> {
        match self {
            Evaluated::Set(bytes) => Some(bytes),
            Evaluated::Null | Evaluated::Unset => None,
        }
    }
}

/// Bound values and what functions need, for one execution.
#[derive(Debug, Clone, Copy)]
pub struct Bound<'a> {
    /// One value per marker.
    pub values: &'a [Value<'a>],
    /// Time and randomness.
    pub environment: Environment<'a>,
}

impl Term {
    /// A constant null.
    pub const NULL: Term = Term::Constant(None);

    /// The memory that it takes, without the terms in it.
    pub(crate) fn own_bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Term::Constant(bytes) => bytes.as_ref().map_or(0, |bytes| bytes.len()),
                Term::Marker { .. } => 0,
                Term::Call(_) => size_of::<Call>(),
                Term::Compound(_) => size_of::<Compound>(),
                Term::JsonColumn(column) => size_of::<JsonColumn>() + column.name.len(),
            }
    }

    /// The marker, if the term is a marker alone.
    pub fn as_marker(&self) -> Option<u16> {
        match self {
            Term::Marker { index, .. } => Some(*index),
            _ => None,
        }
    }

    /// Whether it is the token of a `partition_hash`.
    pub fn is_token_of_hash(&self) -> bool {
        matches!(self, Term::Call(call) if matches!(call.function, Function::TokenOfHash(_)))
    }

    /// The value.
    #[inline]
    pub fn evaluate<'a>(&'a self, bound: &Bound<'a>) -> Result<Evaluated<'a>, CqlError> {
        match self {
            Term::Constant(Some(bytes)) => Ok(Evaluated::Set(Cow::Borrowed(bytes))),
            Term::Constant(None) => Ok(Evaluated::Null),
            Term::Marker { index, data_type } => {
                let value = bound.values[usize::from(*index)];
                // A document is parsed to bring it to its stored form.
                let _parsed = match (data_type, &value) {
                    (CqlType::Jsonb, Value::Set(bytes)) => {
                        Some(bound.environment.budget.hold(bytes.len().saturating_mul(document::PARSED_BYTES))?)
                    }
                    _ => None,
                };
                bound_value(value, data_type)
            }
            Term::Call(call) => call.evaluate(bound),
            Term::Compound(compound) => compound.evaluate(bound),
            Term::JsonColumn(column) => column.evaluate(bound),
        }
    }

    /// The value of a term that may be neither null nor unset; `what` names it.
    #[inline]
    pub fn require<'a>(&'a self, bound: &Bound<'a>, what: &str) -> Result<Cow<'a, [u8]>, CqlError> {
        match self.evaluate(bound).map_err(|error| in_place(error, format_args!("in condition for column {what}")))? {
            Evaluated::Set(bytes) => Ok(bytes),
            Evaluated::Null => Err(invalid(format!("Invalid null value in condition for column {what}"))),
            Evaluated::Unset => Err(invalid(format!("Invalid unset value for column {what}"))),
        }
    }
}

/// Checks a bound value and brings it to its stored form.
#[inline]
pub fn bound_value<'a>(value: Value<'a>, data_type: &CqlType) -> Result<Evaluated<'a>, CqlError> {
    match value {
        Value::Set(bytes) => {
            data_type.validate(bytes).map_err(value_error)?;
            if matches!(
                data_type,
                CqlType::Set(..)
                    | CqlType::Map(..)
                    | CqlType::List(..)
                    | CqlType::Tuple(_)
                    | CqlType::UserDefined(..)
                    | CqlType::Jsonb
            ) {
                return value::canonical(data_type, bytes).map(Evaluated::Set).map_err(value_error);
            }
            Ok(Evaluated::Set(Cow::Borrowed(bytes)))
        }
        Value::Null => Ok(Evaluated::Null),
        Value::Unset => Ok(Evaluated::Unset),
    }
}

impl JsonColumn {
    /// The row of the text, and the memory that it holds; columns find it in [`Environment::json`].
    pub fn parse<'b>(&self, bound: &Bound<'b>) -> Result<(JsonRow, Held<'b>), CqlError> {
        let json = self.json.require(bound, "[json]")?;
        let held = bound.environment.budget.hold(json.len().saturating_mul(document::PARSED_BYTES))?;
        steps::count(json.len());
        Ok((document::parse_row(&json, self.columns.iter().map(String::as_str))?, held))
    }

    fn evaluate<'a>(&'a self, bound: &Bound<'a>) -> Result<Evaluated<'a>, CqlError> {
        let parsed;
        let row = match bound.environment.json {
            Some(row) => row,
            None => {
                parsed = self.parse(bound)?;
                &parsed.0
            }
        };
        Ok(match document::member(row, &self.name, &self.data_type)? {
            Member::Value(Some(wire)) => Evaluated::Set(Cow::Owned(wire)),
            Member::Absent if self.default_unset => Evaluated::Unset,
            Member::Value(None) | Member::Absent => Evaluated::Null,
        })
    }
}

impl Call {
    fn evaluate<'a>(&'a self, bound: &Bound<'a>) -> Result<Evaluated<'a>, CqlError> {
        let mut arguments = Vec::with_capacity(self.arguments.len());
        for argument in &self.arguments {
            match argument.evaluate(bound)? {
                Evaluated::Set(bytes) => arguments.push(Some(bytes)),
                Evaluated::Null => arguments.push(None),
                Evaluated::Unset => return Err(invalid("Invalid unset value for an argument of a function")),
            }
        }
        let result = self.function.call(&arguments, &bound.environment)?;
        Ok(result.map_or(Evaluated::Null, |bytes| Evaluated::Set(Cow::Owned(bytes))))
    }
}

impl Compound {
    fn evaluate<'a>(&'a self, bound: &Bound<'a>) -> Result<Evaluated<'a>, CqlError> {
        let budget = bound.environment.budget;
        let mut parts = Vec::with_capacity(self.parts.len());
        // The parts, which may be one value many times, are put together and then brought to their stored form.
        let mut working = budget.hold(self.parts.len() * size_of::<Evaluated<'_>>())?;
        for part in &self.parts {
            let part = part.evaluate(bound)?;
            let part_bytes = if let Evaluated::Set(bytes) = &part { bytes.len() } else { 0 };
            working.grow(part_bytes.saturating_add(4).saturating_mul(3)).map_err(crate::budget::refused)?;
            parts.push(part);
        }
        let wire = self.assemble(&parts)?;
        let stored = value::canonical(&self.data_type, &wire).map_err(value_error)?.into_owned();
        Ok(Evaluated::Set(Cow::Owned(stored)))
    }

    pub(crate) fn assemble(&self, parts: &[Evaluated<'_>]) -> Result<Vec<u8>, CqlError> {
        let mut wire = Vec::new();
        let allows_null = matches!(self.data_type, CqlType::Tuple(_) | CqlType::UserDefined(..));
        match &self.data_type {
            CqlType::List(..) | CqlType::Set(..) => collection::push_count(parts.len(), &mut wire),
            CqlType::Map(..) => collection::push_count(parts.len() / 2, &mut wire),
            _ => {}
        }
        for part in parts {
            match (part, &self.data_type) {
                (Evaluated::Set(bytes), CqlType::Vector(element, _)) => {
                    collection::push_vector_element(element, bytes, &mut wire);
                }
                (Evaluated::Set(bytes), _) => collection::push_element(Some(bytes), &mut wire),
                (Evaluated::Null, _) if allows_null => collection::push_element(None, &mut wire),
                (Evaluated::Null, _) => return Err(invalid("null is not supported inside collections")),
                (Evaluated::Unset, _) => return Err(invalid("unset value is not supported inside collections")),
            }
        }
        Ok(wire)
    }
}
