//! `DESCRIBE`.
//!
//! Always true: a word that names a kind of object is read as that kind wherever the grammar of Cassandra reads it so; anything
//! else is the name of an object of any kind.

use super::super::ast::{Describe, DescribedObject, Statement};
use super::super::keyword::Keyword;
use super::super::lexer::Kind;
use super::cursor::{Parser, Result};

pub(super) fn describe(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.bump();
    let object = described_object(parser)?;
    let with_internals = parser.eat(Keyword::With);
    if with_internals {
        parser.expect(Keyword::Internals)?;
    }
    Ok(Statement::Describe(Describe { object, with_internals }))
}

fn described_object(parser: &mut Parser<'_>) -> Result<DescribedObject> {
    let Kind::Keyword(keyword) = parser.current.kind else { return described_by_name(parser) };
    let whole = match keyword {
        Keyword::Cluster => DescribedObject::Cluster,
        Keyword::Schema => DescribedObject::Schema { full: false },
        Keyword::Keyspaces => DescribedObject::Keyspaces,
        Keyword::Tables | Keyword::Columnfamilies => DescribedObject::Tables,
        Keyword::Types => DescribedObject::Types,
        Keyword::Functions => DescribedObject::Functions,
        Keyword::Aggregates => DescribedObject::Aggregates,
        _ => return described_by_kind(parser, keyword),
    };
    parser.bump();
    Ok(whole)
}

/// `TABLE name` and its like.
fn described_by_kind(parser: &mut Parser<'_>, keyword: Keyword) -> Result<DescribedObject> {
    if !matches!(
        keyword,
        Keyword::Full
            | Keyword::Only
            | Keyword::Keyspace
            | Keyword::Table
            | Keyword::Columnfamily
            | Keyword::Type
            | Keyword::Function
            | Keyword::Aggregate
            | Keyword::Index
            | Keyword::Materialized
    ) {
        return described_by_name(parser);
    }
    parser.bump();
    match keyword {
        Keyword::Full => {
            parser.expect(Keyword::Schema)?;
            Ok(DescribedObject::Schema { full: true })
        }
        Keyword::Only => {
            parser.expect(Keyword::Keyspace)?;
            Ok(DescribedObject::Keyspace { only: true, name: optional_keyspace(parser)? })
        }
        Keyword::Keyspace => Ok(DescribedObject::Keyspace { only: false, name: optional_keyspace(parser)? }),
        Keyword::Type => Ok(DescribedObject::Type(parser.qualified_name("type name")?)),
        Keyword::Function => Ok(DescribedObject::Function(parser.qualified_name("function name")?)),
        Keyword::Aggregate => Ok(DescribedObject::Aggregate(parser.qualified_name("aggregate name")?)),
        Keyword::Index => Ok(DescribedObject::Index(parser.qualified_name("index name")?)),
        Keyword::Materialized => {
            parser.expect(Keyword::View)?;
            Ok(DescribedObject::MaterializedView(parser.qualified_name("view name")?))
        }
        _ => Ok(DescribedObject::Table(parser.qualified_name("table name")?)),
    }
}

fn optional_keyspace(parser: &mut Parser<'_>) -> Result<Option<String>> {
    if parser.at_identifier() { Ok(Some(parser.identifier("keyspace name")?)) } else { Ok(None) }
}

fn described_by_name(parser: &mut Parser<'_>) -> Result<DescribedObject> {
    Ok(DescribedObject::Any(parser.qualified_name("what to describe, or its name")?))
}
