//! A recursive-descent parser of CQL.
//!
//! A [`cursor::Parser`] holds the current token and the next one; almost every choice depends on these two.
//! Backtracking only distinguishes a type hint, `(int) x`, from parentheses, and never passes a marker, so markers are
//! numbered as they are read. Each family of statements has its own file; this file holds the entry point and the
//! choice of statement, [`cursor`] the small steps.
//!
//! Always true: no input makes it panic; recursion is at most [`MAX_DEPTH`] deep and so is the tree that it makes, long chains of
//! operators included. What is left out: recovering from an error to report a second one.

mod access;
mod alteration;
mod clauses;
mod creation;
mod cursor;
mod describe;
mod expression;
mod modification;
mod names;
mod relation;
mod select;
mod types;

pub use cursor::MAX_DEPTH;

use super::ast::{Parsed, Statement};
use super::error::ParseError;
use super::keyword::Keyword;
use super::lexer::{Kind, Symbol};
use access::{add_identity, grant_or_revoke, list};
use alteration::{alter, drop_object};
use creation::create;
use cursor::{Parser, Result};
use describe::describe;
use modification::{begin, delete, insert, update};
use select::select;

/// Parses one statement, which may end in a semicolon.
pub fn parse(text: &str) -> std::result::Result<Parsed, ParseError> {
    let mut parser = Parser::new(text);
    request(&mut parser).map_err(|error| *error)
}

/// The whole text.
fn request(parser: &mut Parser<'_>) -> Result<Parsed> {
    let statement = statement(parser)?;
    while parser.eat_symbol(Symbol::Semicolon) {}
    if parser.current.kind != Kind::End {
        return Err(parser.unexpected("end of statement"));
    }
    Ok(Parsed { statement, markers: std::mem::take(&mut parser.markers) })
}

fn statement(parser: &mut Parser<'_>) -> Result<Statement> {
    let Kind::Keyword(keyword) = parser.current.kind else { return Err(parser.unexpected("a statement")) };
    match keyword {
        Keyword::Select => select(parser),
        Keyword::Insert => Ok(Statement::Insert(Box::new(insert(parser)?))),
        Keyword::Update => Ok(Statement::Update(Box::new(update(parser)?))),
        Keyword::Delete => Ok(Statement::Delete(Box::new(delete(parser)?))),
        Keyword::Begin | Keyword::Start => begin(parser),
        Keyword::Explain => explain(parser),
        Keyword::Use => {
            parser.bump();
            Ok(Statement::Use(parser.identifier("keyspace name")?))
        }
        Keyword::Truncate => {
            parser.bump();
            parser.eat_table_keyword();
            Ok(Statement::Truncate(parser.qualified_name("table name")?))
        }
        Keyword::Create => create(parser),
        Keyword::Alter => alter(parser),
        Keyword::Drop => drop_object(parser),
        Keyword::Grant | Keyword::Revoke => grant_or_revoke(parser),
        Keyword::List => list(parser),
        Keyword::Add => add_identity(parser),
        Keyword::Describe | Keyword::Desc => describe(parser),
        _ => Err(parser.unexpected("a statement")),
    }
}

/// `EXPLAIN statement`: of any statement but another `EXPLAIN`, so that recursion ends here.
fn explain(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.bump();
    if parser.current.kind == Kind::Keyword(Keyword::Explain) {
        return Err(parser.invalid(parser.current, "EXPLAIN of EXPLAIN is not supported yet".to_owned()));
    }
    Ok(Statement::Explain(Box::new(statement(parser)?)))
}
