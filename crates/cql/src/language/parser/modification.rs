//! `INSERT`, `UPDATE`, `DELETE`, and the batches and transactions made of them.
//!
//! Always true: an `INSERT` has as many values as columns; `c = c + x` and `c += x` come out the same, and the column on the
//! right is the one on the left.

use super::super::ast::{
    Assignment, AssignmentOperation, Batch, BatchKind, Delete, Expression, Insert, InsertSource, JsonDefault,
    Modification, Statement, Target, Transaction, Update, Using,
};
use super::super::keyword::Keyword;
use super::super::lexer::Symbol;
use super::{MAX_BATCH_STATEMENTS, Parser, Result, limits};

impl Parser<'_> {
    pub(super) fn insert(&mut self) -> Result<Insert> {
        self.expect(Keyword::Insert)?;
        self.expect(Keyword::Into)?;
        let table = self.qualified_name("table name")?;
        let source = if self.eat(Keyword::Json) { self.json_source()? } else { self.values_source()? };
        let mut condition = self.condition()?;
        let using = self.using()?;
        // YCQL has the clauses in this order too.
        if condition.is_none() && !using.is_empty() {
            condition = self.condition()?;
        }
        let returns_status = self.returns_status()?;
        Ok(Insert { table, source, using, condition, returns_status })
    }

    /// `(columns) VALUES (values)`
    fn values_source(&mut self) -> Result<InsertSource> {
        let start = self.current;
        let columns = self.column_names()?;
        self.expect(Keyword::Values)?;
        self.expect_symbol(Symbol::LeftParenthesis)?;
        let mut values = Vec::with_capacity(columns.len());
        loop {
            values.push(self.term()?);
            if !self.eat_symbol(Symbol::Comma) {
                break;
            }
        }
        self.expect_symbol(Symbol::RightParenthesis)?;
        if columns.len() != values.len() {
            let message = format!("unmatched column names/values: {} columns, {} values", columns.len(), values.len());
            return Err(self.invalid(start, message));
        }
        Ok(InsertSource::Values { columns, values })
    }

    /// What follows `JSON`.
    fn json_source(&mut self) -> Result<InsertSource> {
        let value = if self.at_marker() {
            self.marker_expression()?
        } else if self.at_string() {
            Expression::Literal(self.constant(false)?)
        } else {
            return Err(self.unexpected("a string or a bind variable"));
        };
        let mut default = JsonDefault::Null;
        if self.eat(Keyword::Default) && !self.eat(Keyword::Null) {
            self.expect(Keyword::Unset)?;
            default = JsonDefault::Unset;
        }
        Ok(InsertSource::Json { value, default })
    }

    /// `USING TIMESTAMP t AND TTL s AND TIMEOUT d`, if it is next.
    fn using(&mut self) -> Result<Using> {
        let mut using = Using::default();
        if !self.eat(Keyword::Using) {
            return Ok(using);
        }
        self.and_separated(|parser| {
            if parser.at_timeout() && using.timeout.is_none() {
                using.timeout = Some(parser.timeout()?);
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
    fn returns_status(&mut self) -> Result<bool> {
        if !self.eat(Keyword::Returns) {
            return Ok(false);
        }
        self.expect(Keyword::Status)?;
        self.expect(Keyword::As)?;
        self.expect(Keyword::Row)?;
        Ok(true)
    }

    pub(super) fn update(&mut self) -> Result<Update> {
        self.expect(Keyword::Update)?;
        let table = self.qualified_name("table name")?;
        let using = self.using()?;
        self.expect(Keyword::Set)?;
        let assignments = self.comma_separated(Self::assignment)?;
        let where_clause = self.where_clause()?;
        let condition = self.condition()?;
        let returns_status = self.returns_status()?;
        Ok(Update { table, using, assignments, where_clause, condition, returns_status })
    }

    fn assignment(&mut self) -> Result<Assignment> {
        let target = self.target()?;
        if let Target::Column(column) = &target {
            let operation = self.column_operation(column)?;
            return Ok(Assignment { target, operation });
        }
        self.expect_symbol(Symbol::Equal)?;
        Ok(Assignment { target, operation: AssignmentOperation::Set(self.term()?) })
    }

    /// A column or a part of one that is written or deleted.
    fn target(&mut self) -> Result<Target> {
        let start = self.current;
        let column = self.column_name()?;
        if !self.at_symbol(Symbol::Arrow) && !self.at_symbol(Symbol::TextArrow) {
            return self.part_of(column);
        }
        match self.json_path()? {
            (path, false) => Ok(Target::JsonPath { column, path }),
            (_, true) => {
                Err(self.syntax_error(start, "a place in a jsonb column is written with '->' only".to_owned()))
            }
        }
    }

    /// What is done with a whole column.
    fn column_operation(&mut self, column: &str) -> Result<AssignmentOperation> {
        if self.eat_symbol(Symbol::PlusEqual) {
            return Ok(AssignmentOperation::Add(self.term()?));
        }
        if self.eat_symbol(Symbol::MinusEqual) {
            return Ok(AssignmentOperation::Subtract(self.term()?));
        }
        if !self.eat_symbol(Symbol::Equal) {
            return Err(self.unexpected("'=', '+=' or '-='"));
        }
        if self.at_identifier() && (self.followed_by_symbol(Symbol::Plus) || self.followed_by_symbol(Symbol::Minus)) {
            self.same_column(column)?;
            if self.eat_symbol(Symbol::Plus) {
                return Ok(AssignmentOperation::Add(self.term()?));
            }
            self.bump();
            // Not a sum: `c - 1 - 2` would read as `c - (1 - 2)`.
            return Ok(AssignmentOperation::Subtract(self.nested(|parser| parser.product_term())?));
        }
        let value = self.term()?;
        if !self.eat_symbol(Symbol::Plus) {
            return Ok(AssignmentOperation::Set(value));
        }
        self.same_column(column)?;
        Ok(AssignmentOperation::Prepend(value))
    }

    /// Takes the column on the right side, which has to be the one on the left.
    fn same_column(&mut self, column: &str) -> Result<()> {
        let token = self.current;
        if self.column_name()? == column {
            return Ok(());
        }
        let message = format!("only '{column}' itself may be added to or subtracted from in an assignment to it");
        Err(self.syntax_error(token, message))
    }

    pub(super) fn delete(&mut self) -> Result<Delete> {
        self.expect(Keyword::Delete)?;
        let targets = if self.at(Keyword::From) { Vec::new() } else { self.comma_separated(Self::target)? };
        self.expect(Keyword::From)?;
        let table = self.qualified_name("table name")?;
        let (mut timestamp, mut timeout) = (None, None);
        if self.eat(Keyword::Using) {
            self.and_separated(|parser| {
                if parser.at_timeout() && timeout.is_none() {
                    timeout = Some(parser.timeout()?);
                } else if parser.at(Keyword::Timestamp) && timestamp.is_none() {
                    parser.bump();
                    timestamp = Some(parser.integer_or_marker()?);
                } else {
                    return Err(parser.unexpected("TIMESTAMP or TIMEOUT, each at most once"));
                }
                Ok(())
            })?;
        }
        let where_clause = self.where_clause()?;
        let condition = self.condition()?;
        let returns_status = self.returns_status()?;
        Ok(Delete { targets, table, timestamp, timeout, where_clause, condition, returns_status })
    }

    /// `BEGIN BATCH`, `BEGIN TRANSACTION` or `START TRANSACTION`.
    pub(super) fn begin(&mut self) -> Result<Statement> {
        let is_start = self.at(Keyword::Start);
        self.bump();
        if is_start {
            self.expect(Keyword::Transaction)?;
            return self.transaction(true);
        }
        if self.eat(Keyword::Transaction) {
            return self.transaction(false);
        }
        let kind = if self.eat(Keyword::Unlogged) {
            BatchKind::Unlogged
        } else if self.eat(Keyword::Counter) {
            BatchKind::Counter
        } else {
            self.eat(Keyword::Logged);
            BatchKind::Logged
        };
        self.expect(Keyword::Batch)?;
        let using = self.using()?;
        let statements = self.modifications("INSERT, UPDATE, DELETE or APPLY BATCH", Keyword::Apply)?;
        self.expect(Keyword::Apply)?;
        self.expect(Keyword::Batch)?;
        Ok(Statement::Batch(Box::new(Batch { kind, using, statements })))
    }

    /// What follows the first two words; a transaction ends the way it began.
    fn transaction(&mut self, is_start: bool) -> Result<Statement> {
        self.eat_symbol(Symbol::Semicolon);
        let (last_word, expected) = match is_start {
            true => (Keyword::Commit, "INSERT, UPDATE, DELETE or COMMIT"),
            false => (Keyword::End, "INSERT, UPDATE, DELETE or END TRANSACTION"),
        };
        let end = self.current;
        let statements = self.modifications(expected, last_word)?;
        if statements.is_empty() {
            return Err(self.invalid(end, "a transaction needs at least one statement".to_owned()));
        }
        self.expect(last_word)?;
        if !is_start {
            self.expect(Keyword::Transaction)?;
        }
        Ok(Statement::Transaction(Transaction { statements }))
    }

    /// Statements up to the word that ends them; semicolons between them are optional.
    fn modifications(&mut self, expected: &str, last_word: Keyword) -> Result<Vec<Modification>> {
        let mut statements = Vec::new();
        while !self.at(last_word) {
            self.part()?;
            self.within(&limits::BATCH_STATEMENTS, statements.len() + 1, MAX_BATCH_STATEMENTS)?;
            statements.push(if self.at(Keyword::Insert) {
                Modification::Insert(self.insert()?)
            } else if self.at(Keyword::Update) {
                Modification::Update(self.update()?)
            } else if self.at(Keyword::Delete) {
                Modification::Delete(self.delete()?)
            } else {
                return Err(self.unexpected(expected));
            });
            self.eat_symbol(Symbol::Semicolon);
        }
        Ok(statements)
    }
}
