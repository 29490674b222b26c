//! From the text of a CQL constant to wire bytes, with Cassandra's rules for which constant fits which type.
//!
//! Always true: the text is what stands between the quotes (strings), after `0x` (blobs), or the token itself. Left out: collections,
//! tuples and bind markers, which the planner takes apart; function calls.

use super::ValueError;
use crate::types::CqlType;
use thiserror::Error;

/// A constant as the grammar sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Literal<'a> {
    /// `-12`
    Integer(&'a str),
    /// `1.5`, `1e3`, `NaN`, `-Infinity`
    Float(&'a str),
    /// `'text'`, without quotes and with `''` already undone
    String(&'a str),
    /// `true`, `false`
    Boolean(bool),
    /// `123e4567-…`
    Uuid(&'a str),
    /// `0xCAFE`, without the `0x`
    Hex(&'a str),
    /// `1h30m`, `P1Y`, …
    Duration(&'a str),
}

/// Why a constant does not give a value of a type.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LiteralError {
    /// This kind of constant never fits this type; the planner words it as `Invalid STRING constant (…) for "column" of type int`.
    #[error("invalid {0} constant for type {1}")]
    WrongKind(&'static str, String),
    /// The kind fits, the text does not.
    #[error(transparent)]
    Invalid(#[from] ValueError),
}

impl Literal<'_> {
    /// Cassandra's name of the kind, as in its error messages: `INTEGER`, `STRING`, …
    pub fn kind_name(&self) -> &'static str {
        unreachable!()
    }
}

/// Whether Cassandra accepts this kind of constant for a type at all (also used to choose between overloads of a function).
pub fn accepts(data_type: &CqlType, literal: &Literal<'_>) -> bool {
    let _ = (data_type, literal);
    unreachable!()
}

/// Appends the wire bytes of `literal` as a value of `data_type`.
pub fn from_literal(data_type: &CqlType, literal: &Literal<'_>, out: &mut Vec<u8>) -> Result<(), LiteralError> {
    let _ = (data_type, literal, out);
    unreachable!()
}

/// Appends the wire bytes that Cassandra's `fromString` of the type gives (JSON, casts from text); native types only.
pub fn from_text(data_type: &CqlType, text: &str, out: &mut Vec<u8>) -> Result<(), ValueError> {
    let _ = (data_type, text, out);
    unreachable!()
}
