//! CQL as text: a syntax tree, a parser that makes it and a formatter that writes it back.
//!
//! The grammar is that of CQL 3.4.7 (Cassandra 5.0) with the extensions of YugabyteDB's YCQL, so that the planner can
//! refuse an unsupported statement by name, in place of a syntax error from the parser.
//!
//! Always true: parsing any input ends with a tree or a [`ParseError`], in time linear in the input and with bounded recursion;
//! `parse(format(parse(text)))` gives the same tree as `parse(text)`. What is left out: whether a name exists or a value fits a
//! type, which only a schema can tell; Cassandra 5.1's `CONSTRAINT` checks and `CREATE TABLE … LIKE`.

pub mod ast;
mod duration;
mod error;
pub mod format;
mod keyword;
mod lexer;
mod named;
mod parser;
mod redacted;

pub use error::{ParseError, ParseErrorKind};
pub use named::{NamedTables, named_tables};
pub use parser::{MAX_DEPTH, parse};
pub use redacted::redacted;

#[cfg(test)]
mod tests;
