//! `CREATE` of schema objects, and the options that follow `WITH`.
//!
//! Always true: a table has exactly one primary key. What is left out: whether key columns exist, whether options are known.

use super::super::ast::{
    ColumnDefinition, CreateAggregate, CreateFunction, CreateIndex, CreateKeyspace, CreateMaterializedView,
    CreateTable, CreateTrigger, CreateType, Direction, IndexColumn, PrimaryKey, Statement, TableOptions, TypeName,
};
use super::super::keyword::Keyword;
use super::super::lexer::{Kind, Symbol, Token};
use super::access::{create_role, create_user};
use super::clauses::{column_mask, property, with_properties};
use super::cursor::{Parser, Result};
use super::select::{direction, selection};

pub(super) fn create(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.expect(Keyword::Create)?;
    if parser.eat(Keyword::Or) {
        parser.expect(Keyword::Replace)?;
        return match parser.current.kind {
            Kind::Keyword(Keyword::Function) => create_function(parser, true),
            Kind::Keyword(Keyword::Aggregate) => create_aggregate(parser, true),
            _ => Err(parser.unexpected("FUNCTION or AGGREGATE")),
        };
    }
    let Kind::Keyword(keyword) = parser.current.kind else { return Err(parser.unexpected("what to create")) };
    match keyword {
        Keyword::Keyspace | Keyword::Schema => create_keyspace(parser),
        Keyword::Table | Keyword::Columnfamily => create_table(parser),
        Keyword::Type => create_type(parser),
        Keyword::Index | Keyword::Unique | Keyword::Deferred | Keyword::Custom => create_index(parser),
        Keyword::Materialized => create_materialized_view(parser),
        Keyword::Function => create_function(parser, false),
        Keyword::Aggregate => create_aggregate(parser, false),
        Keyword::Trigger => create_trigger(parser),
        Keyword::Role => create_role(parser),
        Keyword::User => create_user(parser),
        _ => Err(parser.unexpected("what to create")),
    }
}

fn create_keyspace(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.bump();
    let if_not_exists = parser.if_not_exists()?;
    let name = parser.identifier("keyspace name")?;
    let properties = if parser.at(Keyword::With) { with_properties(parser)? } else { Vec::new() };
    Ok(Statement::CreateKeyspace(CreateKeyspace { name, if_not_exists, properties }))
}

fn create_table(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.bump();
    let if_not_exists = parser.if_not_exists()?;
    let start = parser.current;
    let name = parser.qualified_name("table name")?;
    let mut columns = Vec::new();
    let mut primary_key = None;
    parser.parenthesised(|parser| table_element(parser, &mut columns, &mut primary_key))?;
    let Some(primary_key) = primary_key else {
        return Err(parser.invalid(start, format!("no PRIMARY KEY specified for table '{}'", name.name)));
    };
    let options = table_options(parser)?;
    Ok(Statement::CreateTable(Box::new(CreateTable { name, if_not_exists, columns, primary_key, options })))
}

/// A column or the primary key of `CREATE TABLE`.
fn table_element(
    parser: &mut Parser<'_>,
    columns: &mut Vec<ColumnDefinition>,
    key: &mut Option<PrimaryKey>,
) -> Result<()> {
    let start = parser.current;
    let found = if parser.at(Keyword::Primary) {
        Some(primary_key(parser)?)
    } else {
        let column = column_definition(parser)?;
        let inline = parser.at(Keyword::Primary).then(|| PrimaryKey::of(&column.name));
        if inline.is_some() {
            parser.bump();
            parser.expect(Keyword::Key)?;
        }
        columns.push(column);
        inline
    };
    if found.is_some() && key.is_some() {
        return Err(parser.invalid(start, "multiple PRIMARY KEYs specified (exactly one required)".to_owned()));
    }
    *key = found.or(key.take());
    Ok(())
}

/// `name type [STATIC] [MASKED WITH …]`
pub(super) fn column_definition(parser: &mut Parser<'_>) -> Result<ColumnDefinition> {
    let name = parser.column_name()?;
    let data_type = parser.type_name()?;
    let is_static = parser.eat(Keyword::Static);
    let mask = if parser.at(Keyword::Masked) { Some(column_mask(parser)?) } else { None };
    Ok(ColumnDefinition { name, data_type, is_static, mask })
}

/// `PRIMARY KEY (…)`
fn primary_key(parser: &mut Parser<'_>) -> Result<PrimaryKey> {
    parser.expect(Keyword::Primary)?;
    parser.expect(Keyword::Key)?;
    parser.expect_symbol(Symbol::LeftParenthesis)?;
    let partition = match parser.at_symbol(Symbol::LeftParenthesis) {
        true => parser.column_names()?,
        false => vec![parser.column_name()?],
    };
    let mut clustering = Vec::new();
    while parser.eat_symbol(Symbol::Comma) {
        clustering.push(parser.column_name()?);
    }
    parser.expect_symbol(Symbol::RightParenthesis)?;
    Ok(PrimaryKey { partition, clustering })
}

/// `WITH …` of a table, view or index, if it is next.
fn table_options(parser: &mut Parser<'_>) -> Result<TableOptions> {
    let mut options = TableOptions::default();
    if !parser.eat(Keyword::With) {
        return Ok(options);
    }
    parser.and_separated(|parser| {
        if parser.at(Keyword::Compact) && parser.followed_by(Keyword::Storage) {
            parser.bump();
            parser.bump();
            options.compact_storage = true;
        } else if parser.at(Keyword::Clustering) && parser.followed_by(Keyword::Order) {
            parser.bump();
            parser.bump();
            parser.expect(Keyword::By)?;
            let order = parser.parenthesised(|parser| {
                let column = parser.column_name()?;
                Ok((column, direction(parser)))
            })?;
            options.clustering_order.extend::<Vec<(String, Direction)>>(order);
        } else {
            options.properties.push(property(parser)?);
        }
        Ok(())
    })?;
    Ok(options)
}

fn create_type(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.bump();
    let if_not_exists = parser.if_not_exists()?;
    let name = parser.qualified_name("type name")?;
    let fields = parser.parenthesised(|parser| Ok((parser.identifier("field name")?, parser.type_name()?)))?;
    Ok(Statement::CreateType(CreateType { name, if_not_exists, fields }))
}

fn create_index(parser: &mut Parser<'_>) -> Result<Statement> {
    let unique = parser.eat(Keyword::Unique);
    let deferred = parser.eat(Keyword::Deferred);
    let custom = parser.eat(Keyword::Custom);
    parser.expect(Keyword::Index)?;
    let if_not_exists = parser.if_not_exists()?;
    let name = if parser.at(Keyword::On) { None } else { Some(parser.identifier("index name")?) };
    parser.expect(Keyword::On)?;
    let table = parser.qualified_name("table name")?;
    let (partition, clustering) = index_columns(parser)?;
    let mut index = CreateIndex {
        name,
        if_not_exists,
        unique,
        deferred,
        custom,
        table,
        partition,
        clustering,
        include: Vec::new(),
        using: None,
        options: TableOptions::default(),
        where_clause: Vec::new(),
    };
    index_clauses(parser, &mut index)?;
    Ok(Statement::CreateIndex(Box::new(index)))
}

/// `(a, b)` or `((a, b), c)`
fn index_columns(parser: &mut Parser<'_>) -> Result<(Vec<IndexColumn>, Vec<IndexColumn>)> {
    parser.expect_symbol(Symbol::LeftParenthesis)?;
    let partition = match parser.at_symbol(Symbol::LeftParenthesis) {
        true => parser.parenthesised(index_column)?,
        false => vec![index_column(parser)?],
    };
    let mut clustering = Vec::new();
    while parser.eat_symbol(Symbol::Comma) {
        clustering.push(index_column(parser)?);
    }
    parser.expect_symbol(Symbol::RightParenthesis)?;
    Ok((partition, clustering))
}

fn index_column(parser: &mut Parser<'_>) -> Result<IndexColumn> {
    let part_of: Option<fn(String) -> IndexColumn> = match parser.current.kind {
        _ if !parser.followed_by_symbol(Symbol::LeftParenthesis) => None,
        Kind::Keyword(Keyword::Values) => Some(IndexColumn::Values),
        Kind::Keyword(Keyword::Keys) => Some(IndexColumn::Keys),
        Kind::Keyword(Keyword::Entries) => Some(IndexColumn::Entries),
        Kind::Keyword(Keyword::Full) => Some(IndexColumn::Full),
        _ => None,
    };
    if let Some(part_of) = part_of {
        parser.bump();
        parser.bump();
        let column = parser.column_name()?;
        parser.expect_symbol(Symbol::RightParenthesis)?;
        return Ok(part_of(column));
    }
    let column = parser.column_name()?;
    let start = parser.current;
    let markers = parser.markers.len();
    let (path, as_text) = parser.json_path()?;
    check_no_markers(parser, start, markers)?;
    if path.is_empty() { Ok(IndexColumn::Column(column)) } else { Ok(IndexColumn::JsonPath { column, path, as_text }) }
}

/// Refuses markers in what was parsed since there were `markers` of them.
fn check_no_markers(parser: &Parser<'_>, start: Token, markers: usize) -> Result<()> {
    match parser.markers.len() > markers {
        true => Err(parser.syntax_error(start, "bind variables cannot be used in an index".to_owned())),
        false => Ok(()),
    }
}

/// The clauses after the columns of an index, in any order, each at most once.
fn index_clauses(parser: &mut Parser<'_>, index: &mut CreateIndex) -> Result<()> {
    loop {
        let covering = parser.at(Keyword::Include) || parser.at(Keyword::Covering);
        if covering && index.include.is_empty() {
            parser.bump();
            index.include = parser.column_names()?;
        } else if index.using.is_none() && parser.eat(Keyword::Using) {
            index.using = Some(parser.string("a class name in quotes")?);
        } else if index.options.is_empty() && parser.at(Keyword::With) {
            index.options = table_options(parser)?;
        } else if index.where_clause.is_empty() && parser.at(Keyword::Where) {
            let start = parser.current;
            let markers = parser.markers.len();
            index.where_clause = parser.where_clause()?;
            check_no_markers(parser, start, markers)?;
        } else {
            return Ok(());
        }
    }
}

fn create_materialized_view(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.bump();
    parser.expect(Keyword::View)?;
    let if_not_exists = parser.if_not_exists()?;
    let name = parser.qualified_name("view name")?;
    parser.expect(Keyword::As)?;
    parser.expect(Keyword::Select)?;
    let selection = selection(parser)?;
    parser.expect(Keyword::From)?;
    let base = parser.qualified_name("table name")?;
    let where_clause = parser.optional_where_clause()?;
    let primary_key = primary_key(parser)?;
    let options = table_options(parser)?;
    Ok(Statement::CreateMaterializedView(Box::new(CreateMaterializedView {
        name,
        if_not_exists,
        selection,
        base,
        where_clause,
        primary_key,
        options,
    })))
}

fn create_function(parser: &mut Parser<'_>, or_replace: bool) -> Result<Statement> {
    parser.bump();
    let if_not_exists = parser.if_not_exists()?;
    let name = parser.qualified_name("function name")?;
    let arguments =
        parser.parenthesised_or_empty(|parser| Ok((parser.identifier("argument name")?, parser.type_name()?)))?;
    let called_on_null = parser.eat(Keyword::Called);
    if !called_on_null {
        parser.expect(Keyword::Returns)?;
        parser.expect(Keyword::Null)?;
    }
    for keyword in [Keyword::On, Keyword::Null, Keyword::Input, Keyword::Returns] {
        parser.expect(keyword)?;
    }
    let returns = parser.type_name()?;
    parser.expect(Keyword::Language)?;
    let language = parser.identifier("language name")?;
    parser.expect(Keyword::As)?;
    let body = parser.string("the body of the function as a string")?;
    Ok(Statement::CreateFunction(Box::new(CreateFunction {
        name,
        or_replace,
        if_not_exists,
        arguments,
        called_on_null,
        returns,
        language,
        body,
    })))
}

fn create_aggregate(parser: &mut Parser<'_>, or_replace: bool) -> Result<Statement> {
    parser.bump();
    let if_not_exists = parser.if_not_exists()?;
    let name = parser.qualified_name("aggregate name")?;
    let argument_types: Vec<TypeName> = parser.parenthesised_or_empty(Parser::type_name)?;
    parser.expect(Keyword::Sfunc)?;
    let state_function = parser.identifier("function name")?;
    parser.expect(Keyword::Stype)?;
    let state_type = parser.type_name()?;
    let final_function = if parser.eat(Keyword::Finalfunc) { Some(parser.identifier("function name")?) } else { None };
    let initial_condition = if parser.eat(Keyword::Initcond) { Some(parser.term()?) } else { None };
    Ok(Statement::CreateAggregate(Box::new(CreateAggregate {
        name,
        or_replace,
        if_not_exists,
        argument_types,
        state_function,
        state_type,
        final_function,
        initial_condition,
    })))
}

fn create_trigger(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.bump();
    let if_not_exists = parser.if_not_exists()?;
    let name = parser.identifier("trigger name")?;
    parser.expect(Keyword::On)?;
    let table = parser.qualified_name("table name")?;
    parser.expect(Keyword::Using)?;
    let class = parser.string("a class name in quotes")?;
    Ok(Statement::CreateTrigger(CreateTrigger { name, if_not_exists, table, class }))
}

impl PrimaryKey {
    /// A key of one column.
    fn of(column: &str) -> PrimaryKey {
        PrimaryKey { partition: vec![column.to_owned()], clustering: Vec::new() }
    }
}
