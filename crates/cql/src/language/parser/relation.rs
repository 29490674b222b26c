//! Relations, the parts of `WHERE` and `IF`.
//!
//! Always true: the left side is a column, a part of one, several columns, their token or a function of columns; the right side
//! is a term, which cannot name columns.

use super::super::ast::{
    ComparisonOperator, Condition, ConditionTest, Expression, InValues, Operand, Predicate, Relation, Target,
};
use super::super::keyword::Keyword;
use super::super::lexer::{Kind, Symbol};
use super::cursor::{Parser, Result};

impl Parser<'_> {
    /// `WHERE relation AND …`, if it is next.
    pub(super) fn optional_where_clause(&mut self) -> Result<Vec<Relation>> {
        if self.at(Keyword::Where) { self.where_clause() } else { Ok(Vec::new()) }
    }

    /// `WHERE relation AND …`
    pub(super) fn where_clause(&mut self) -> Result<Vec<Relation>> {
        self.expect(Keyword::Where)?;
        self.and_separated(Self::relation)
    }

    /// A relation, possibly in parentheses.
    fn relation(&mut self) -> Result<Relation> {
        if self.at_symbol(Symbol::LeftParenthesis) && !self.column_tuple_starts() {
            self.bump();
            let relation = self.nested(Self::relation)?;
            self.expect_symbol(Symbol::RightParenthesis)?;
            return Ok(relation);
        }
        if self.at(Keyword::Expr) && self.followed_by_symbol(Symbol::LeftParenthesis) {
            return self.index_expression();
        }
        let left = self.operand()?;
        self.relation_after(left)
    }

    /// Whether the parenthesis at hand opens `(column, …)`.
    fn column_tuple_starts(&self) -> bool {
        Self::is_identifier(self.following.kind)
            && matches!(self.third(), Kind::Symbol(Symbol::Comma | Symbol::RightParenthesis))
    }

    /// `expr(index, value)`
    fn index_expression(&mut self) -> Result<Relation> {
        self.bump();
        self.bump();
        let index = self.qualified_name("index name")?;
        self.expect_symbol(Symbol::Comma)?;
        let value = self.term()?;
        self.expect_symbol(Symbol::RightParenthesis)?;
        Ok(Relation::IndexExpression { index, value })
    }

    /// The left side of a relation.
    fn operand(&mut self) -> Result<Operand> {
        let called = self.followed_by_symbol(Symbol::LeftParenthesis);
        if self.at(Keyword::Token) && called {
            self.bump();
            return Ok(Operand::Token(self.column_names()?));
        }
        if self.at_symbol(Symbol::LeftParenthesis) {
            return Ok(Operand::Tuple(self.column_names()?));
        }
        if called && self.at_identifier() {
            let start = self.current;
            return match self.nested(|parser| parser.primary(super::expression::Scope::Selector))? {
                Expression::CountAll => {
                    Err(self.syntax_error(start, "rows cannot be counted in a relation".to_owned()))
                }
                function => Ok(Operand::Function(function)),
            };
        }
        let column = self.column_name()?;
        if self.at_symbol(Symbol::Arrow) || self.at_symbol(Symbol::TextArrow) {
            let (path, as_text) = self.json_path()?;
            return Ok(match as_text {
                true => Operand::JsonText { column, path },
                false => Operand::Target(Target::JsonPath { column, path }),
            });
        }
        Ok(Operand::Target(self.part_of(column)?))
    }

    /// A column, `column[key]` or `column.field`.
    pub(super) fn part_of(&mut self, column: String) -> Result<Target> {
        if self.eat_symbol(Symbol::LeftBracket) {
            let key = self.term()?;
            self.expect_symbol(Symbol::RightBracket)?;
            return Ok(Target::Element { column, key });
        }
        if self.eat_symbol(Symbol::Dot) {
            return Ok(Target::Field { column, field: self.identifier("field name")? });
        }
        Ok(Target::Column(column))
    }

    /// The right side of a relation.
    fn relation_after(&mut self, left: Operand) -> Result<Relation> {
        if let Some(operator) = Self::comparison(self.current.kind) {
            self.bump();
            return Ok(Relation::Compare { left, operator, right: self.term()? });
        }
        if self.eat(Keyword::Is) {
            self.expect(Keyword::Not)?;
            self.expect(Keyword::Null)?;
            return Ok(Relation::IsNotNull(left));
        }
        let negated = self.eat(Keyword::Not);
        if self.eat(Keyword::In) {
            return Ok(Relation::In { left, negated, values: self.in_values()? });
        }
        if self.eat(Keyword::Contains) {
            return Ok(match self.eat(Keyword::Key) {
                true => Relation::ContainsKey { left, negated, key: self.term()? },
                false => Relation::Contains { left, negated, value: self.term()? },
            });
        }
        if self.eat(Keyword::Like) {
            return Ok(Relation::Like { left, negated, pattern: self.term()? });
        }
        if self.eat(Keyword::Between) {
            let from = self.term()?;
            self.expect(Keyword::And)?;
            return Ok(Relation::Between { left, negated, from, to: self.term()? });
        }
        Err(self.unexpected(if negated { "IN, CONTAINS, LIKE or BETWEEN" } else { "an operator" }))
    }

    fn comparison(kind: Kind) -> Option<ComparisonOperator> {
        let Kind::Symbol(symbol) = kind else { return None };
        Some(match symbol {
            Symbol::Equal => ComparisonOperator::Equal,
            Symbol::NotEqual => ComparisonOperator::NotEqual,
            Symbol::Less => ComparisonOperator::Less,
            Symbol::LessOrEqual => ComparisonOperator::LessOrEqual,
            Symbol::Greater => ComparisonOperator::Greater,
            Symbol::GreaterOrEqual => ComparisonOperator::GreaterOrEqual,
            _ => return None,
        })
    }

    /// `(a, b)`, or a marker for the whole tuple.
    fn in_values(&mut self) -> Result<InValues> {
        if self.at_marker() {
            return Ok(InValues::Marker(self.marker()?));
        }
        Ok(InValues::List(self.parenthesised_or_empty(Self::term)?))
    }

    /// `IF …` of a write, if it is next.
    pub(super) fn condition(&mut self) -> Result<Option<Condition>> {
        if !self.eat(Keyword::If) {
            return Ok(None);
        }
        let test = match self.predicate()? {
            Predicate::Exists => ConditionTest::Exists,
            Predicate::NotExists => ConditionTest::NotExists,
            predicate => ConditionTest::If(predicate),
        };
        let else_error = self.eat(Keyword::Else);
        if else_error {
            self.expect(Keyword::Error)?;
        }
        Ok(Some(Condition { test, else_error }))
    }

    /// Relations joined by `OR` and `AND`, which binds stronger.
    pub(super) fn predicate(&mut self) -> Result<Predicate> {
        self.nested(|parser| {
            let first = parser.conjunction()?;
            if !parser.at(Keyword::Or) {
                return Ok(first);
            }
            let mut parts = Vec::new();
            // The height of the highest part, where parts of the same kind are flattened.
            let add = |parts: &mut Vec<Predicate>, part, height: usize| match part {
                Predicate::Or(inner) => {
                    parts.extend(inner);
                    height - 1
                }
                part => {
                    parts.push(part);
                    height
                }
            };
            let mut height = add(&mut parts, first, parser.condition_height);
            while parser.eat(Keyword::Or) {
                let part = parser.conjunction()?;
                height = height.max(add(&mut parts, part, parser.condition_height));
            }
            parser.stands(height + 1)?;
            Ok(Predicate::Or(parts))
        })
    }

    fn conjunction(&mut self) -> Result<Predicate> {
        let first = self.negation()?;
        if !self.at(Keyword::And) {
            return Ok(first);
        }
        let mut parts = Vec::new();
        let add = |parts: &mut Vec<Predicate>, part, height: usize| match part {
            Predicate::And(inner) => {
                parts.extend(inner);
                height - 1
            }
            part => {
                parts.push(part);
                height
            }
        };
        let mut height = add(&mut parts, first, self.condition_height);
        while self.eat(Keyword::And) {
            let part = self.negation()?;
            height = height.max(add(&mut parts, part, self.condition_height));
        }
        self.stands(height + 1)?;
        Ok(Predicate::And(parts))
    }

    fn negation(&mut self) -> Result<Predicate> {
        if self.eat(Keyword::Not) {
            let negated = match self.nested(Self::negation)? {
                Predicate::Exists => Predicate::NotExists,
                Predicate::NotExists => Predicate::Exists,
                predicate => Predicate::Not(Box::new(predicate)),
            };
            // The missing operators are planned as negations of the existing ones.
            let below = if negated == Predicate::Exists { 0 } else { self.condition_height };
            self.stands(below + 1)?;
            return Ok(negated);
        }
        if self.at(Keyword::Exists) && !self.relation_follows() {
            self.bump();
            self.stands(1)?;
            return Ok(Predicate::Exists);
        }
        let exists_in_parentheses = self.followed_by(Keyword::Exists);
        if self.at_symbol(Symbol::LeftParenthesis) && (!self.column_tuple_starts() || exists_in_parentheses) {
            self.bump();
            let predicate = self.predicate()?;
            self.expect_symbol(Symbol::RightParenthesis)?;
            return Ok(predicate);
        }
        let relation = self.relation()?;
        // A range is planned as two comparisons.
        self.stands(if matches!(relation, Relation::Between { .. }) { 2 } else { 1 })?;
        self.part()?;
        Ok(Predicate::Relation(Box::new(relation)))
    }

    /// Whether the current word is a column: a token follows that can stand between a column and a value.
    fn relation_follows(&self) -> bool {
        Self::comparison(self.following.kind).is_some()
            || matches!(
                self.following.kind,
                Kind::Keyword(Keyword::In | Keyword::Contains | Keyword::Like | Keyword::Between | Keyword::Is)
                    | Kind::Symbol(Symbol::LeftBracket | Symbol::Dot | Symbol::Arrow | Symbol::TextArrow)
            )
    }
}
