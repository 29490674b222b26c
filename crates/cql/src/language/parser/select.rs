//! `SELECT`.
//!
//! Always true: clauses come in the one order that the grammar has, each at most once (YCQL's `LIMIT` and `OFFSET` in either).

use super::super::ast::{
    Direction, Expression, Literal, Ordering, OrderingKind, Select, Selection, Selector, Statement,
};
use super::super::keyword::Keyword;
use super::super::lexer::{Kind, Symbol};
use super::{MAX_SELECTORS, Parser, Result, limits};

impl Parser<'_> {
    pub(super) fn select(&mut self) -> Result<Statement> {
        self.expect(Keyword::Select)?;
        let json = self.eat_modifier(Keyword::Json);
        let distinct = self.eat_modifier(Keyword::Distinct);
        let selection = self.selection()?;
        self.expect(Keyword::From)?;
        let from = self.qualified_name("table name")?;
        let where_clause = self.optional_where_clause()?;
        let filter = if self.eat(Keyword::If) { Some(self.predicate()?) } else { None };
        let group_by = self.group_by()?;
        let order_by = self.order_by()?;
        let per_partition_limit = self.per_partition_limit()?;
        let (limit, offset) = self.limit_and_offset()?;
        let allow_filtering = self.eat(Keyword::Allow);
        if allow_filtering {
            self.expect(Keyword::Filtering)?;
        }
        let timeout = if self.eat(Keyword::Using) { Some(self.timeout()?) } else { None };
        Ok(Statement::Select(Box::new(Select {
            json,
            distinct,
            selection,
            from,
            where_clause,
            filter,
            group_by,
            order_by,
            per_partition_limit,
            limit,
            offset,
            allow_filtering,
            timeout,
        })))
    }

    /// Whether ScyllaDB's `TIMEOUT` is next, which is no keyword anywhere else.
    pub(super) fn at_timeout(&self) -> bool {
        self.token_text(self.current).eq_ignore_ascii_case("timeout")
    }

    /// `TIMEOUT 30s` or `TIMEOUT ?`
    pub(super) fn timeout(&mut self) -> Result<Expression> {
        if !self.at_timeout() {
            return Err(self.unexpected("TIMEOUT"));
        }
        self.bump();
        if self.at_marker() {
            return self.marker_expression();
        }
        let token = self.current;
        match self.constant(false)? {
            Literal::Duration(duration) if duration.months == 0 && duration.days >= 0 && duration.nanoseconds >= 0 => {
                Ok(Expression::Literal(Literal::Duration(duration)))
            }
            _ => Err(self.syntax_error(token, "a timeout is a duration without months, such as 30s".to_owned())),
        }
    }

    /// `JSON` or `DISTINCT`, unless what follows shows that it is a column of that name.
    fn eat_modifier(&mut self, modifier: Keyword) -> bool {
        let is_column = matches!(
            self.following.kind,
            Kind::Keyword(Keyword::From | Keyword::As)
                | Kind::Symbol(
                    Symbol::Comma
                        | Symbol::Dot
                        | Symbol::Plus
                        | Symbol::Slash
                        | Symbol::Percent
                        | Symbol::Arrow
                        | Symbol::TextArrow
                )
        );
        !is_column && self.eat(modifier)
    }

    /// `*` or selectors.
    pub(super) fn selection(&mut self) -> Result<Selection> {
        if self.eat_symbol(Symbol::Star) {
            return Ok(Selection::All);
        }
        let mut count = 0;
        Ok(Selection::Selectors(self.comma_separated(|parser| {
            count += 1;
            parser.within(&limits::SELECTORS, count, MAX_SELECTORS)?;
            let expression = parser.selector_expression()?;
            let alias = if parser.eat(Keyword::As) { Some(parser.identifier("alias name")?) } else { None };
            Ok(Selector { expression, alias })
        })?))
    }

    fn group_by(&mut self) -> Result<Vec<Expression>> {
        if !self.eat(Keyword::Group) {
            return Ok(Vec::new());
        }
        self.expect(Keyword::By)?;
        self.comma_separated(Self::selector_expression)
    }

    fn order_by(&mut self) -> Result<Vec<Ordering>> {
        if !self.eat(Keyword::Order) {
            return Ok(Vec::new());
        }
        self.expect(Keyword::By)?;
        self.comma_separated(|parser| {
            let expression = parser.selector_expression()?;
            let kind = if parser.eat(Keyword::Ann) {
                parser.expect(Keyword::Of)?;
                OrderingKind::NearestNeighbours(parser.term()?)
            } else {
                OrderingKind::Value(parser.direction())
            };
            Ok(Ordering { expression, kind })
        })
    }

    /// `ASC`, `DESC` or nothing, which is ascending.
    pub(super) fn direction(&mut self) -> Direction {
        if self.eat(Keyword::Desc) {
            return Direction::Descending;
        }
        self.eat(Keyword::Asc);
        Direction::Ascending
    }

    fn per_partition_limit(&mut self) -> Result<Option<Expression>> {
        if !self.eat(Keyword::Per) {
            return Ok(None);
        }
        self.expect(Keyword::Partition)?;
        self.expect(Keyword::Limit)?;
        Ok(Some(self.integer_or_marker()?))
    }

    fn limit_and_offset(&mut self) -> Result<(Option<Expression>, Option<Expression>)> {
        let (mut limit, mut offset) = (None, None);
        loop {
            if limit.is_none() && self.eat(Keyword::Limit) {
                limit = Some(self.integer_or_marker()?);
            } else if offset.is_none() && self.eat(Keyword::Offset) {
                offset = Some(self.integer_or_marker()?);
            } else {
                return Ok((limit, offset));
            }
        }
    }
}
