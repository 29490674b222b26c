//! `ALTER` and `DROP` of schema objects.
//!
//! Always true: an `ALTER` changes at least one thing.

use super::super::ast::{
    AlterKeyspace, AlterMaterializedView, AlterTable, AlterType, Drop, DroppedObject, Statement, TableChange,
    TypeChange,
};
use super::super::keyword::Keyword;
use super::super::lexer::{Kind, Symbol};
use super::access::{alter_role, alter_user, drop_identity, drop_role};
use super::clauses::{column_mask, function_signature, with_properties};
use super::creation::column_definition;
use super::cursor::{Parser, Result};

pub(super) fn alter(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.expect(Keyword::Alter)?;
    let Kind::Keyword(keyword) = parser.current.kind else { return Err(parser.unexpected("what to alter")) };
    match keyword {
        Keyword::Keyspace | Keyword::Schema => {
            parser.bump();
            let if_exists = parser.if_exists()?;
            let name = parser.identifier("keyspace name")?;
            let properties = with_properties(parser)?;
            Ok(Statement::AlterKeyspace(AlterKeyspace { name, if_exists, properties }))
        }
        Keyword::Table | Keyword::Columnfamily => alter_table(parser),
        Keyword::Type => alter_type(parser),
        Keyword::Materialized => {
            parser.bump();
            parser.expect(Keyword::View)?;
            let if_exists = parser.if_exists()?;
            let name = parser.qualified_name("view name")?;
            let properties = with_properties(parser)?;
            Ok(Statement::AlterMaterializedView(AlterMaterializedView { name, if_exists, properties }))
        }
        Keyword::Role => alter_role(parser),
        Keyword::User => alter_user(parser),
        _ => Err(parser.unexpected("what to alter")),
    }
}

fn alter_table(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.bump();
    let if_exists = parser.if_exists()?;
    let name = parser.qualified_name("table name")?;
    let mut changes = Vec::new();
    loop {
        let change = match parser.current.kind {
            Kind::Keyword(Keyword::Add) => add_columns(parser)?,
            Kind::Keyword(Keyword::Drop) => drop_columns(parser)?,
            Kind::Keyword(Keyword::Rename) => {
                parser.bump();
                let if_exists = parser.if_exists()?;
                TableChange::Rename { if_exists, columns: renames(parser, "column name")? }
            }
            Kind::Keyword(Keyword::Alter) => alter_column(parser)?,
            Kind::Keyword(Keyword::With) => TableChange::With(with_properties(parser)?),
            _ if changes.is_empty() => return Err(parser.unexpected("ADD, ALTER, DROP, RENAME or WITH")),
            _ => return Ok(Statement::AlterTable(AlterTable { name, if_exists, changes })),
        };
        changes.push(change);
    }
}

fn add_columns(parser: &mut Parser<'_>) -> Result<TableChange> {
    parser.bump();
    let if_not_exists = parser.if_not_exists()?;
    let columns = match parser.at_symbol(Symbol::LeftParenthesis) {
        true => parser.parenthesised(column_definition)?,
        false => parser.comma_separated(column_definition)?,
    };
    Ok(TableChange::Add { if_not_exists, columns })
}

fn drop_columns(parser: &mut Parser<'_>) -> Result<TableChange> {
    parser.bump();
    if parser.at(Keyword::Compact) && parser.followed_by(Keyword::Storage) {
        parser.bump();
        parser.bump();
        return Ok(TableChange::DropCompactStorage);
    }
    let if_exists = parser.if_exists()?;
    let columns = match parser.at_symbol(Symbol::LeftParenthesis) {
        true => parser.column_names()?,
        false => parser.comma_separated(Parser::column_name)?,
    };
    let mut timestamp = None;
    if parser.eat(Keyword::Using) {
        parser.expect(Keyword::Timestamp)?;
        timestamp = Some(parser.integer()?);
    }
    Ok(TableChange::Drop { if_exists, columns, timestamp })
}

/// `old TO new AND …`; YCQL has commas.
fn renames(parser: &mut Parser<'_>, expected: &str) -> Result<Vec<(String, String)>> {
    let mut renames = Vec::new();
    loop {
        let old = parser.identifier(expected)?;
        parser.expect(Keyword::To)?;
        renames.push((old, parser.identifier(expected)?));
        if !parser.eat(Keyword::And) && !parser.eat_symbol(Symbol::Comma) {
            return Ok(renames);
        }
    }
}

fn alter_column(parser: &mut Parser<'_>) -> Result<TableChange> {
    parser.bump();
    let if_exists = parser.if_exists()?;
    let column = parser.column_name()?;
    if parser.eat(Keyword::Type) {
        return Ok(TableChange::AlterType { if_exists, column, data_type: parser.type_name()? });
    }
    if parser.eat(Keyword::Drop) {
        parser.expect(Keyword::Masked)?;
        return Ok(TableChange::AlterMask { if_exists, column, mask: None });
    }
    if !parser.at(Keyword::Masked) {
        return Err(parser.unexpected("TYPE, MASKED or DROP MASKED"));
    }
    Ok(TableChange::AlterMask { if_exists, column, mask: Some(column_mask(parser)?) })
}

fn alter_type(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.bump();
    let if_exists = parser.if_exists()?;
    let name = parser.qualified_name("type name")?;
    let change = if parser.eat(Keyword::Add) {
        let if_not_exists = parser.if_not_exists()?;
        let field = parser.identifier("field name")?;
        TypeChange::Add { if_not_exists, field, data_type: parser.type_name()? }
    } else if parser.eat(Keyword::Rename) {
        let if_exists = parser.if_exists()?;
        TypeChange::Rename { if_exists, fields: renames(parser, "field name")? }
    } else if parser.eat(Keyword::Alter) {
        let if_exists = parser.if_exists()?;
        let field = parser.identifier("field name")?;
        parser.expect(Keyword::Type)?;
        TypeChange::AlterType { if_exists, field, data_type: parser.type_name()? }
    } else {
        return Err(parser.unexpected("ADD, ALTER or RENAME"));
    };
    Ok(Statement::AlterType(AlterType { name, if_exists, change }))
}

pub(super) fn drop_object(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.expect(Keyword::Drop)?;
    let Kind::Keyword(keyword) = parser.current.kind else { return Err(parser.unexpected("what to drop")) };
    match keyword {
        Keyword::Role | Keyword::User => return drop_role(parser),
        Keyword::Identity => return drop_identity(parser),
        _ => {}
    }
    let known = parser.eat_keyspace_keyword()
        || parser.eat_table_keyword()
        || parser.eat(Keyword::Type)
        || parser.eat(Keyword::Index)
        || parser.eat(Keyword::Function)
        || parser.eat(Keyword::Aggregate)
        || parser.eat(Keyword::Trigger);
    if !known {
        if !parser.eat(Keyword::Materialized) {
            return Err(parser.unexpected("what to drop"));
        }
        parser.expect(Keyword::View)?;
    }
    let if_exists = parser.if_exists()?;
    let object = match keyword {
        Keyword::Keyspace | Keyword::Schema => DroppedObject::Keyspace(parser.identifier("keyspace name")?),
        Keyword::Type => DroppedObject::Type(parser.qualified_name("type name")?),
        Keyword::Index => DroppedObject::Index(parser.qualified_name("index name")?),
        Keyword::Function => DroppedObject::Function(function_signature(parser, "function name")?),
        Keyword::Aggregate => DroppedObject::Aggregate(function_signature(parser, "aggregate name")?),
        Keyword::Materialized => DroppedObject::MaterializedView(parser.qualified_name("view name")?),
        Keyword::Trigger => {
            let name = parser.identifier("trigger name")?;
            parser.expect(Keyword::On)?;
            DroppedObject::Trigger { name, table: parser.qualified_name("table name")? }
        }
        _ => DroppedObject::Table(parser.qualified_name("table name")?),
    };
    Ok(Statement::Drop(Drop { object, if_exists }))
}
