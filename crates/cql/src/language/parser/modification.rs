//! `INSERT`, `UPDATE`, `DELETE`, and the batches and transactions made of them.
//!
//! Always true: an `INSERT` has as many values as columns; `c = c + x` and `c += x` come out the same, and the column on the
//! right is the one on the left.

use super::super::ast::{
    Assignment, AssignmentOperation, Batch, BatchKind, Delete, Expression, Insert, InsertSource, JsonDefault,
    Modification, Statement, Target, Transaction, Update, Using,
};
use super::super::error::ParseError;
use super::super::keyword::Keyword;
use super::super::lexer::Symbol;
use super::cursor::{MAX_BATCH_STATEMENTS, Parser, Result, limits};
use super::select::{at_timeout, using_timeout};

pub(super) fn insert(parser: &mut Parser<'_>) -> Result<Insert> {
    parser.expect(Keyword::Insert)?;
    parser.expect(Keyword::Into)?;
    let table = parser.qualified_name("table name")?;
    let source = if parser.eat(Keyword::Json) { json_source(parser)? } else { values_source(parser)? };
    let mut condition = parser.condition()?;
    let using = using(parser)?;
    // YCQL has the clauses in this order too.
    if condition.is_none() && !using.is_empty() {
        condition = parser.condition()?;
    }
    let returns_status = returns_status(parser)?;
    Ok(Insert { table, source, using, condition, returns_status })
}

/// `(columns) VALUES (values)`
fn values_source(parser: &mut Parser<'_>) -> Result<InsertSource> {
    let start = parser.current;
    let columns = parser.column_names()?;
    parser.expect(Keyword::Values)?;
    parser.expect_symbol(Symbol::LeftParenthesis)?;
    let mut values = Vec::with_capacity(columns.len());
    loop {
        values.push(parser.term()?);
        if !parser.eat_symbol(Symbol::Comma) {
            break;
        }
    }
    parser.expect_symbol(Symbol::RightParenthesis)?;
    if columns.len() != values.len() {
        let message = format!("unmatched column names/values: {} columns, {} values", columns.len(), values.len());
        return Err(parser.invalid(start, message));
    }
    Ok(InsertSource::Values { columns, values })
}

/// The clauses after `JSON`.
fn json_source(parser: &mut Parser<'_>) -> Result<InsertSource> {
    let value = if parser.at_marker() {
        parser.marker_expression()?
    } else if parser.at_string() {
        Expression::Literal(parser.constant(false)?)
    } else {
        return Err(parser.unexpected("a string or a bind variable"));
    };
    let mut default = JsonDefault::Null;
    if parser.eat(Keyword::Default) && !parser.eat(Keyword::Null) {
        parser.expect(Keyword::Unset)?;
        default = JsonDefault::Unset;
    }
    Ok(InsertSource::Json { value, default })
}

/// `USING TIMESTAMP t AND TTL s AND TIMEOUT d`, if it is next.
fn using(parser: &mut Parser<'_>) -> Result<Using> {
    let mut using = Using::default();
    if !parser.eat(Keyword::Using) {
        return Ok(using);
    }
    parser.and_separated(|parser| {
        if at_timeout(parser) && using.timeout.is_none() {
            using.timeout = Some(using_timeout(parser)?);
            return Ok(());
        }
        let slot = if parser.at(Keyword::Timestamp) && using.timestamp.is_none() {
            &mut using.timestamp
        } else if parser.at(Keyword::Ttl) && using.ttl.is_none() {
            &mut using.ttl
        } else {
            return Err(parser.unexpected("TIMESTAMP, TTL or TIMEOUT, each at most once"));
        };
        parser.bump();
        *slot = Some(parser.integer_or_marker()?);
        Ok(())
    })?;
    Ok(using)
}

/// `RETURNS STATUS AS ROW`, if it is next.
fn returns_status(parser: &mut Parser<'_>) -> Result<bool> {
    if !parser.eat(Keyword::Returns) {
        return Ok(false);
    }
    parser.expect(Keyword::Status)?;
    parser.expect(Keyword::As)?;
    parser.expect(Keyword::Row)?;
    Ok(true)
}

pub(super) fn update(parser: &mut Parser<'_>) -> Result<Update> {
    parser.expect(Keyword::Update)?;
    let table = parser.qualified_name("table name")?;
    let using = using(parser)?;
    parser.expect(Keyword::Set)?;
    let assignments = parser.comma_separated(assignment)?;
    let where_clause = parser.where_clause()?;
    let condition = parser.condition()?;
    let returns_status = returns_status(parser)?;
    Ok(Update { table, using, assignments, where_clause, condition, returns_status })
}

fn assignment(parser: &mut Parser<'_>) -> Result<Assignment> {
    let target = target(parser)?;
    if let Target::Column(column) = &target {
        let operation = column_operation(parser, column)?;
        return Ok(Assignment { target, operation });
    }
    parser.expect_symbol(Symbol::Equal)?;
    Ok(Assignment { target, operation: AssignmentOperation::Set(parser.term()?) })
}

/// A column or a part of one that is written or deleted.
fn target(parser: &mut Parser<'_>) -> Result<Target> {
    let start = parser.current;
    let column = parser.column_name()?;
    if !parser.at_symbol(Symbol::Arrow) && !parser.at_symbol(Symbol::TextArrow) {
        return parser.part_of(column);
    }
    match parser.json_path()? {
        (path, false) => Ok(Target::JsonPath { column, path }),
        (_, true) => Err(parser.syntax_error(start, "a place in a jsonb column is written with '->' only".to_owned())),
    }
}

/// The assignment of a whole column.
fn column_operation(parser: &mut Parser<'_>, column: &str) -> Result<AssignmentOperation> {
    if parser.eat_symbol(Symbol::PlusEqual) {
        return Ok(AssignmentOperation::Add(parser.term()?));
    }
    if parser.eat_symbol(Symbol::MinusEqual) {
        return Ok(AssignmentOperation::Subtract(parser.term()?));
    }
    if !parser.eat_symbol(Symbol::Equal) {
        return Err(parser.unexpected("'=', '+=' or '-='"));
    }
    if parser.at_identifier() && (parser.followed_by_symbol(Symbol::Plus) || parser.followed_by_symbol(Symbol::Minus)) {
        same_column(parser, column)?;
        if parser.eat_symbol(Symbol::Plus) {
            return Ok(AssignmentOperation::Add(parser.term()?));
        }
        parser.bump();
        // Not a sum: `c - 1 - 2` would read as `c - (1 - 2)`.
        return Ok(AssignmentOperation::Subtract(parser.nested(|parser| parser.product_term())?));
    }
    let value = parser.term()?;
    if !parser.eat_symbol(Symbol::Plus) {
        return Ok(AssignmentOperation::Set(value));
    }
    same_column(parser, column)?;
    Ok(AssignmentOperation::Prepend(value))
}

/// Takes the column on the right side, which has to be the one on the left.
fn same_column(parser: &mut Parser<'_>, column: &str) -> Result<()> {
    let token = parser.current;
    if parser.column_name()? == column {
        return Ok(());
    }
    let message = format!("only '{column}' itself may be added to or subtracted from in an assignment to it");
    Err(parser.syntax_error(token, message))
}

pub(super) fn delete(parser: &mut Parser<'_>) -> Result<Delete> {
    parser.expect(Keyword::Delete)?;
    let targets = if parser.at(Keyword::From) { Vec::new() } else { parser.comma_separated(target)? };
    parser.expect(Keyword::From)?;
    let table = parser.qualified_name("table name")?;
    let (mut timestamp, mut timeout) = (None, None);
    if parser.eat(Keyword::Using) {
        parser.and_separated(|parser| {
            if at_timeout(parser) && timeout.is_none() {
                timeout = Some(using_timeout(parser)?);
            } else if parser.at(Keyword::Timestamp) && timestamp.is_none() {
                parser.bump();
                timestamp = Some(parser.integer_or_marker()?);
            } else {
                return Err(parser.unexpected("TIMESTAMP or TIMEOUT, each at most once"));
            }
            Ok(())
        })?;
    }
    let where_clause = parser.where_clause()?;
    let condition = parser.condition()?;
    let returns_status = returns_status(parser)?;
    Ok(Delete { targets, table, timestamp, timeout, where_clause, condition, returns_status })
}

/// `BEGIN BATCH`, `BEGIN TRANSACTION` or `START TRANSACTION`.
pub(super) fn begin(parser: &mut Parser<'_>) -> Result<Statement> {
    let is_start = parser.at(Keyword::Start);
    parser.bump();
    if is_start {
        parser.expect(Keyword::Transaction)?;
        return transaction(parser, true);
    }
    if parser.eat(Keyword::Transaction) {
        return transaction(parser, false);
    }
    let kind = if parser.eat(Keyword::Unlogged) {
        BatchKind::Unlogged
    } else if parser.eat(Keyword::Counter) {
        BatchKind::Counter
    } else {
        parser.eat(Keyword::Logged);
        BatchKind::Logged
    };
    parser.expect(Keyword::Batch)?;
    let using = using(parser)?;
    let statements = modifications(parser, "INSERT, UPDATE, DELETE or APPLY BATCH", Keyword::Apply)?;
    parser.expect(Keyword::Apply)?;
    parser.expect(Keyword::Batch)?;
    Ok(Statement::Batch(Box::new(Batch { kind, using, statements })))
}

/// The part after the first two words; a transaction ends the way it began.
fn transaction(parser: &mut Parser<'_>, is_start: bool) -> Result<Statement> {
    while parser.eat_symbol(Symbol::Semicolon) {}
    let (last_word, expected) = match is_start {
        true => (Keyword::Commit, "INSERT, UPDATE, DELETE or COMMIT"),
        false => (Keyword::End, "INSERT, UPDATE, DELETE or END TRANSACTION"),
    };
    let end = parser.current;
    let statements = modifications(parser, expected, last_word).map_err(|error| other_transaction(parser, error))?;
    if statements.is_empty() {
        return Err(parser.invalid(end, "a transaction needs at least one statement".to_owned()));
    }
    parser.expect(last_word)?;
    if !is_start {
        parser.expect(Keyword::Transaction)?;
    }
    Ok(Statement::Transaction(Transaction { statements }))
}

/// The error for a transaction of another kind than blocks are, or `error`.
fn other_transaction(parser: &Parser<'_>, error: Box<ParseError>) -> Box<ParseError> {
    let token = parser.current;
    let is_let = parser.at_identifier() && parser.token_text(token).eq_ignore_ascii_case("let");
    let is_commit = parser.at(Keyword::Commit) && parser.followed_by(Keyword::Transaction);
    if is_let || is_commit || parser.at(Keyword::If) {
        let message = "Cassandra's transactions (LET, IF … THEN … END IF, COMMIT TRANSACTION) are not supported, \
                       only blocks of INSERT, UPDATE and DELETE that end in END TRANSACTION";
        return parser.invalid(token, message.to_owned());
    }
    if parser.at(Keyword::Select) {
        // YCQL's words.
        let message = "Only insert, update, and delete statements are allowed in a statement batch";
        return parser.invalid(token, message.to_owned());
    }
    error
}

/// Statements up to the word that ends them; semicolons between them are optional.
fn modifications(parser: &mut Parser<'_>, expected: &str, last_word: Keyword) -> Result<Vec<Modification>> {
    let mut statements = Vec::new();
    while !parser.at(last_word) {
        parser.part()?;
        parser.within(&limits::BATCH_STATEMENTS, statements.len() + 1, MAX_BATCH_STATEMENTS)?;
        statements.push(if parser.at(Keyword::Insert) {
            Modification::Insert(insert(parser)?)
        } else if parser.at(Keyword::Update) {
            Modification::Update(update(parser)?)
        } else if parser.at(Keyword::Delete) {
            Modification::Delete(delete(parser)?)
        } else {
            return Err(parser.unexpected(expected));
        });
        // YCQL passes over empty statements in a block of this form.
        while parser.eat_symbol(Symbol::Semicolon) && last_word == Keyword::Commit {}
    }
    Ok(statements)
}
