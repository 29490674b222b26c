//! Syntax trees back into CQL.
//!
//! One canonical spelling for each tree: keywords in capitals, one space, clauses in the order of the grammar, nothing that says
//! what would hold without it. `DESCRIBE`, logs and tests use it.
//!
//! Always true: parsing the text of a tree that the parser made gives that tree again, markers and their numbers included; where
//! a statement's clauses may change places, they are written in the order of their markers. What is left out: line breaks and
//! indentation, which whoever shows a schema to people adds.

mod access;
mod definition;
mod expression;
mod formatter;
mod statement;

pub use formatter::{quote_identifier, quote_string};

use super::ast::{Expression, Literal, Parsed, Predicate, Relation, Statement, TypeName};
use formatter::Formatter;

/// A request as CQL.
pub fn format(parsed: &Parsed) -> String {
    let mut formatter = Formatter::new(&parsed.markers);
    formatter.statement(&parsed.statement);
    formatter.out
}

/// A statement as CQL; its markers are all written `?`.
pub fn format_statement(statement: &Statement) -> String {
    let mut formatter = Formatter::new(&[]);
    formatter.statement(statement);
    formatter.out
}

/// A type as CQL.
pub fn format_type(name: &TypeName) -> String {
    let mut formatter = Formatter::new(&[]);
    formatter.type_name(name);
    formatter.out
}

/// A constant as CQL.
pub fn format_literal(literal: &Literal) -> String {
    let mut formatter = Formatter::new(&[]);
    formatter.literal(literal);
    formatter.out
}

/// A term or selector as CQL; its markers are all written `?`.
pub fn format_expression(expression: &Expression) -> String {
    let mut formatter = Formatter::new(&[]);
    formatter.expression(expression);
    formatter.out
}

/// A relation as CQL; `markers` are those of its statement.
pub fn format_relation(relation: &Relation, markers: &[Option<String>]) -> String {
    let mut formatter = Formatter::new(markers);
    formatter.relation(relation);
    formatter.out
}

/// A boolean expression over relations as CQL; `markers` are those of its statement.
pub fn format_predicate(predicate: &Predicate, markers: &[Option<String>]) -> String {
    let mut formatter = Formatter::new(markers);
    formatter.predicate(predicate);
    formatter.out
}
