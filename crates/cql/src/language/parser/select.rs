//! `SELECT`.
//!
//! Always true: clauses come in the one order that the grammar has, each at most once (YCQL's `LIMIT` and `OFFSET` in either).

use super::super::ast::{
    Direction, Expression, Literal, Ordering, OrderingKind, RowLimits, Select, Selection, Selector, Statement,
};
use super::super::keyword::Keyword;
use super::super::lexer::{Kind, Symbol};
use super::cursor::{MAX_SELECTORS, Parser, Result, limits};

pub(super) fn select(parser: &mut Parser<'_>) -> Result<Statement> {
    parser.expect(Keyword::Select)?;
    let json = eat_modifier(parser, Keyword::Json);
    let distinct = eat_modifier(parser, Keyword::Distinct);
    let selection = selection(parser)?;
    parser.expect(Keyword::From)?;
    let from = parser.qualified_name("table name")?;
    let where_clause = parser.optional_where_clause()?;
    let filter = if parser.eat(Keyword::If) { Some(parser.predicate()?) } else { None };
    let group_by = group_by(parser)?;
    let order_by = order_by(parser)?;
    let per_partition = per_partition_limit(parser)?;
    let (total, offset) = limit_and_offset(parser)?;
    let allow_filtering = parser.eat(Keyword::Allow);
    if allow_filtering {
        parser.expect(Keyword::Filtering)?;
    }
    let timeout = if parser.eat(Keyword::Using) { Some(using_timeout(parser)?) } else { None };
    Ok(Statement::Select(Box::new(Select {
        json,
        distinct,
        selection,
        from,
        where_clause,
        filter,
        group_by,
        order_by,
        limits: RowLimits { per_partition, total, offset },
        allow_filtering,
        timeout,
    })))
}

/// Whether ScyllaDB's `TIMEOUT` is next, which is no keyword anywhere else.
pub(super) fn at_timeout(parser: &Parser<'_>) -> bool {
    parser.token_text(parser.current).eq_ignore_ascii_case("timeout")
}

/// `TIMEOUT 30s` or `TIMEOUT ?`
pub(super) fn using_timeout(parser: &mut Parser<'_>) -> Result<Expression> {
    if !at_timeout(parser) {
        return Err(parser.unexpected("TIMEOUT"));
    }
    parser.bump();
    if parser.at_marker() {
        return parser.marker_expression();
    }
    let token = parser.current;
    match parser.constant(false)? {
        Literal::Duration(duration) if duration.months == 0 && duration.days >= 0 && duration.nanoseconds >= 0 => {
            Ok(Expression::Literal(Literal::Duration(duration)))
        }
        _ => Err(parser.syntax_error(token, "a timeout is a duration without months, such as 30s".to_owned())),
    }
}

/// `JSON` or `DISTINCT`, unless the following token shows that it is a column of that name.
fn eat_modifier(parser: &mut Parser<'_>, modifier: Keyword) -> bool {
    let is_column = matches!(
        parser.following.kind,
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
    !is_column && parser.eat(modifier)
}

/// `*` or selectors.
pub(super) fn selection(parser: &mut Parser<'_>) -> Result<Selection> {
    if parser.eat_symbol(Symbol::Star) {
        return Ok(Selection::All);
    }
    let mut count = 0;
    Ok(Selection::Selectors(parser.comma_separated(|parser| {
        count += 1;
        parser.within(&limits::SELECTORS, count, MAX_SELECTORS)?;
        let expression = parser.selector_expression()?;
        let alias = if parser.eat(Keyword::As) { Some(parser.identifier("alias name")?) } else { None };
        Ok(Selector { expression, alias })
    })?))
}

fn group_by(parser: &mut Parser<'_>) -> Result<Vec<Expression>> {
    if !parser.eat(Keyword::Group) {
        return Ok(Vec::new());
    }
    parser.expect(Keyword::By)?;
    parser.comma_separated(Parser::selector_expression)
}

fn order_by(parser: &mut Parser<'_>) -> Result<Vec<Ordering>> {
    if !parser.eat(Keyword::Order) {
        return Ok(Vec::new());
    }
    parser.expect(Keyword::By)?;
    parser.comma_separated(|parser| {
        let expression = parser.selector_expression()?;
        let kind = if parser.eat(Keyword::Ann) {
            parser.expect(Keyword::Of)?;
            OrderingKind::NearestNeighbours(parser.term()?)
        } else {
            OrderingKind::Value(direction(parser))
        };
        Ok(Ordering { expression, kind })
    })
}

/// `ASC`, `DESC` or nothing, which is ascending.
pub(super) fn direction(parser: &mut Parser<'_>) -> Direction {
    if parser.eat(Keyword::Desc) {
        return Direction::Descending;
    }
    parser.eat(Keyword::Asc);
    Direction::Ascending
}

fn per_partition_limit(parser: &mut Parser<'_>) -> Result<Option<Expression>> {
    if !parser.eat(Keyword::Per) {
        return Ok(None);
    }
    parser.expect(Keyword::Partition)?;
    parser.expect(Keyword::Limit)?;
    Ok(Some(parser.integer_or_marker()?))
}

fn limit_and_offset(parser: &mut Parser<'_>) -> Result<(Option<Expression>, Option<Expression>)> {
    let (mut limit, mut offset) = (None, None);
    loop {
        if limit.is_none() && parser.eat(Keyword::Limit) {
            limit = Some(parser.integer_or_marker()?);
        } else if offset.is_none() && parser.eat(Keyword::Offset) {
            offset = Some(parser.integer_or_marker()?);
        } else {
            return Ok((limit, offset));
        }
    }
}
