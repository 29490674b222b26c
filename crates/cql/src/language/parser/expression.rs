//! Terms and selectors.
//!
//! One grammar serves both, told apart by [`Scope`]: only a selector may name columns, take elements and fields, ask how a cell
//! was written or count rows. Addition binds weaker than multiplication, both to the left, a sign strongest.
//!
//! Always true: after any of these functions, `Parser::height` is the height of the expression that it returned.

use super::super::ast::{ArithmeticOperator, Duration, Expression, Literal, MetadataKind, QualifiedName, TypeName};
use super::super::keyword::Keyword;
use super::super::lexer::{Kind, Symbol};
use super::cursor::{Parser, Result};

/// The kind of expressions that are allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Values only.
    Term,
    /// Columns too.
    Selector,
}

impl Parser<'_> {
    /// A value without columns.
    pub(super) fn term(&mut self) -> Result<Expression> {
        self.expression(Scope::Term)
    }

    /// Anything that a `SELECT` can return.
    pub(super) fn selector_expression(&mut self) -> Result<Expression> {
        self.expression(Scope::Selector)
    }

    fn expression(&mut self, scope: Scope) -> Result<Expression> {
        self.nested(|parser| parser.addition(scope))
    }

    fn addition(&mut self, scope: Scope) -> Result<Expression> {
        let mut left = self.multiplication(scope)?;
        loop {
            let operator = match self.current.kind {
                // `SET c = x + c`: the column is the statement's and not part of a term.
                Kind::Symbol(Symbol::Plus) if scope == Scope::Term && self.column_follows() => return Ok(left),
                Kind::Symbol(Symbol::Plus) => ArithmeticOperator::Add,
                Kind::Symbol(Symbol::Minus) => ArithmeticOperator::Subtract,
                _ => return Ok(left),
            };
            self.bump();
            let left_height = self.height;
            let right = Box::new(self.multiplication(scope)?);
            self.raise(left_height)?;
            left = Expression::Arithmetic { operator, left: Box::new(left), right };
        }
    }

    /// Whether the token after this one is an identifier that does not start the call of a function.
    fn column_follows(&self) -> bool {
        Self::is_identifier(self.following.kind)
            && !matches!(self.third(), Kind::Symbol(Symbol::LeftParenthesis | Symbol::Dot))
    }

    /// A term that is no sum.
    pub(super) fn product_term(&mut self) -> Result<Expression> {
        self.multiplication(Scope::Term)
    }

    fn multiplication(&mut self, scope: Scope) -> Result<Expression> {
        let mut left = self.signed(scope)?;
        loop {
            let operator = match self.current.kind {
                Kind::Symbol(Symbol::Star) => ArithmeticOperator::Multiply,
                Kind::Symbol(Symbol::Slash) => ArithmeticOperator::Divide,
                Kind::Symbol(Symbol::Percent) => ArithmeticOperator::Modulo,
                _ => return Ok(left),
            };
            self.bump();
            let left_height = self.height;
            let right = Box::new(self.signed(scope)?);
            self.raise(left_height)?;
            left = Expression::Arithmetic { operator, left: Box::new(left), right };
        }
    }

    /// An operand with any signs before it.
    fn signed(&mut self, scope: Scope) -> Result<Expression> {
        if !self.at_symbol(Symbol::Minus) {
            return self.operand_with_parts(scope);
        }
        if Self::is_number(self.following.kind) {
            self.height = 0;
            return Ok(Expression::Literal(self.signed_constant()?));
        }
        self.bump();
        let operand = self.nested(|parser| parser.signed(scope))?;
        if let Expression::Literal(literal) = &operand
            && is_its_own_negative(literal)
        {
            return Ok(operand);
        }
        self.raise(0)?;
        Ok(Expression::Negate(Box::new(operand)))
    }

    /// An operand and, in a selector, the parts taken of it: `x[1].field->'key'`.
    fn operand_with_parts(&mut self, scope: Scope) -> Result<Expression> {
        let mut value = self.primary(scope)?;
        if scope == Scope::Term {
            return Ok(value);
        }
        loop {
            value = match self.current.kind {
                Kind::Symbol(Symbol::LeftBracket) => self.element_or_slice(value)?,
                Kind::Symbol(Symbol::Dot) => self.field_or_function(value)?,
                Kind::Symbol(Symbol::Arrow | Symbol::TextArrow) => {
                    let height = self.height;
                    let (path, as_text) = self.json_path()?;
                    self.raise(height)?;
                    Expression::JsonPath { of: Box::new(value), path, as_text }
                }
                _ => return Ok(value),
            };
        }
    }

    /// `x[key]`, `x[from..to]`
    fn element_or_slice(&mut self, of: Expression) -> Result<Expression> {
        let of = Box::new(of);
        let of_height = self.height;
        self.bump();
        self.height = 0;
        let from = if self.at_symbol(Symbol::Range) { None } else { Some(Box::new(self.term()?)) };
        let from_height = self.height;
        let result = match from {
            Some(key) if !self.at_symbol(Symbol::Range) => Expression::Element { of, key },
            from => {
                self.expect_symbol(Symbol::Range)?;
                let open = self.at_symbol(Symbol::RightBracket);
                let to = if open { None } else { Some(Box::new(self.term()?)) };
                Expression::Slice { of, from, to }
            }
        };
        self.raise(of_height.max(from_height))?;
        self.expect_symbol(Symbol::RightBracket)?;
        Ok(result)
    }

    /// `x.field`, or `keyspace.function(…)` when what came before the dot is a plain word.
    fn field_or_function(&mut self, of: Expression) -> Result<Expression> {
        let height = self.height;
        self.bump();
        let field = self.identifier("field or function name")?;
        match of {
            Expression::Column(keyspace) if self.at_symbol(Symbol::LeftParenthesis) => {
                self.call(QualifiedName { keyspace: Some(keyspace), name: field }, Scope::Selector)
            }
            of => {
                self.height = height;
                self.raise(0)?;
                Ok(Expression::Field { of: Box::new(of), field })
            }
        }
    }

    /// `->'a'->2->>'b'`: the steps, and whether the last arrow asks for text.
    pub(super) fn json_path(&mut self) -> Result<(Vec<Expression>, bool)> {
        let mut path = Vec::new();
        loop {
            let as_text = self.at_symbol(Symbol::TextArrow);
            if !as_text && !self.at_symbol(Symbol::Arrow) {
                return Ok((path, false));
            }
            self.bump();
            path.push(match self.current.kind {
                Kind::String | Kind::DollarString | Kind::Integer => Expression::Literal(self.constant(false)?),
                _ if self.at_marker() => self.marker_expression()?,
                _ => return Err(self.unexpected("a string, an integer or a bind variable")),
            });
            if as_text {
                self.height = 0;
                return Ok((path, true));
            }
            self.height = 0;
        }
    }

    /// An operand by itself.
    pub(super) fn primary(&mut self, scope: Scope) -> Result<Expression> {
        self.height = 0;
        let called = self.followed_by_symbol(Symbol::LeftParenthesis);
        match self.current.kind {
            kind if Self::is_constant(kind) => Ok(Expression::Literal(self.constant(false)?)),
            Kind::Symbol(Symbol::Question | Symbol::Colon) => self.marker_expression(),
            Kind::Symbol(Symbol::LeftBracket) => self.list_literal(scope),
            Kind::Symbol(Symbol::LeftBrace) => self.braces(scope),
            Kind::Symbol(Symbol::LeftParenthesis) => self.parentheses(scope),
            Kind::Keyword(Keyword::Cast) if called => self.cast(scope),
            Kind::Keyword(Keyword::Token) if called => {
                self.bump();
                self.call(QualifiedName::unqualified("token"), scope)
            }
            Kind::Keyword(Keyword::Count)
                if called && scope == Scope::Selector && self.third() == Kind::Symbol(Symbol::Star) =>
            {
                self.bump();
                self.bump();
                self.bump();
                self.expect_symbol(Symbol::RightParenthesis)?;
                Ok(Expression::CountAll)
            }
            Kind::Keyword(Keyword::Writetime) if called && scope == Scope::Selector => {
                self.metadata(MetadataKind::WriteTime)
            }
            Kind::Keyword(Keyword::Maxwritetime) if called && scope == Scope::Selector => {
                self.metadata(MetadataKind::MaxWriteTime)
            }
            Kind::Keyword(Keyword::Ttl) if called && scope == Scope::Selector => self.metadata(MetadataKind::Ttl),
            kind if Self::is_identifier(kind) => self.word(scope, called),
            _ => Err(self.unexpected(if scope == Scope::Term { "a term" } else { "a selector" })),
        }
    }

    /// A column or the call of a function.
    fn word(&mut self, scope: Scope, called: bool) -> Result<Expression> {
        let start = self.current;
        let qualified = scope == Scope::Term && self.followed_by_symbol(Symbol::Dot);
        if scope == Scope::Term && !called && !qualified {
            return Err(self.unexpected("a term"));
        }
        let name = self.identifier("column or function name")?;
        if called {
            return self.call(QualifiedName { keyspace: None, name }, scope);
        }
        if qualified {
            self.bump();
            let function = self.identifier("function name")?;
            if !self.at_symbol(Symbol::LeftParenthesis) {
                return Err(self.syntax_error(start, format!("no viable alternative at input '{name}.{function}'")));
            }
            return self.call(QualifiedName { keyspace: Some(name), name: function }, scope);
        }
        Ok(Expression::Column(name))
    }

    /// The arguments of a function.
    fn call(&mut self, name: QualifiedName, scope: Scope) -> Result<Expression> {
        self.expect_symbol(Symbol::LeftParenthesis)?;
        let arguments = self.expressions(scope, Symbol::RightParenthesis)?;
        Ok(Expression::Function { name, arguments })
    }

    /// Any number of expressions up to the closing symbol, which is taken; they stand one level below their owner.
    fn expressions(&mut self, scope: Scope, close: Symbol) -> Result<Vec<Expression>> {
        let mut expressions = Vec::new();
        let mut height = 0;
        if !self.at_symbol(close) {
            loop {
                expressions.push(self.expression(scope)?);
                height = height.max(self.height);
                if !self.eat_symbol(Symbol::Comma) {
                    break;
                }
            }
        }
        self.expect_symbol(close)?;
        self.height = 0;
        self.raise(height)?;
        Ok(expressions)
    }

    /// `WRITETIME(…)` and its like.
    fn metadata(&mut self, kind: MetadataKind) -> Result<Expression> {
        self.bump();
        self.bump();
        let column = Expression::Column(self.column_name()?);
        self.height = 0;
        let of = Box::new(self.column_parts(column)?);
        self.raise(0)?;
        self.expect_symbol(Symbol::RightParenthesis)?;
        Ok(Expression::Metadata { kind, of })
    }

    /// The parts taken of a column: elements, slices and fields.
    fn column_parts(&mut self, mut value: Expression) -> Result<Expression> {
        loop {
            value = match self.current.kind {
                Kind::Symbol(Symbol::LeftBracket) => self.element_or_slice(value)?,
                Kind::Symbol(Symbol::Dot) => self.field_or_function(value)?,
                _ => return Ok(value),
            };
        }
    }

    /// `CAST(x AS type)`
    fn cast(&mut self, scope: Scope) -> Result<Expression> {
        self.bump();
        self.bump();
        let value = Box::new(self.expression(scope)?);
        self.raise(0)?;
        self.expect(Keyword::As)?;
        let to = self.native_type()?;
        self.expect_symbol(Symbol::RightParenthesis)?;
        Ok(Expression::Cast { value, to })
    }

    fn list_literal(&mut self, scope: Scope) -> Result<Expression> {
        self.bump();
        Ok(Expression::List(self.expressions(scope, Symbol::RightBracket)?))
    }

    /// A set, a map or a value of a user-defined type.
    fn braces(&mut self, scope: Scope) -> Result<Expression> {
        self.bump();
        if self.eat_symbol(Symbol::RightBrace) {
            return Ok(Expression::Set(Vec::new()));
        }
        if self.at_identifier() && self.followed_by_symbol(Symbol::Colon) {
            return self.user_type_literal(scope);
        }
        let first = self.expression(scope)?;
        if self.at_symbol(Symbol::Colon) {
            return self.map_literal(first, scope);
        }
        let mut height = self.height;
        let mut elements = vec![first];
        while self.eat_symbol(Symbol::Comma) {
            elements.push(self.expression(scope)?);
            height = height.max(self.height);
        }
        self.raise(height)?;
        self.expect_symbol(Symbol::RightBrace)?;
        Ok(Expression::Set(elements))
    }

    /// The rest of a map after its first key.
    fn map_literal(&mut self, first: Expression, scope: Scope) -> Result<Expression> {
        let mut height = self.height;
        let mut entries = Vec::new();
        let mut key = first;
        loop {
            self.expect_symbol(Symbol::Colon)?;
            let value = self.expression(scope)?;
            height = height.max(self.height);
            entries.push((key, value));
            if !self.eat_symbol(Symbol::Comma) {
                break;
            }
            key = self.expression(scope)?;
            height = height.max(self.height);
        }
        self.raise(height)?;
        self.expect_symbol(Symbol::RightBrace)?;
        Ok(Expression::Map(entries))
    }

    /// The fields of a value of a user-defined type.
    fn user_type_literal(&mut self, scope: Scope) -> Result<Expression> {
        let mut height = 0;
        let fields = self.comma_separated(|parser| {
            let field = parser.identifier("field name")?;
            parser.expect_symbol(Symbol::Colon)?;
            let value = parser.expression(scope)?;
            height = height.max(parser.height);
            Ok((field, value))
        })?;
        self.raise(height)?;
        self.expect_symbol(Symbol::RightBrace)?;
        Ok(Expression::UserType(fields))
    }

    /// A tuple, parentheses or a type hint.
    fn parentheses(&mut self, scope: Scope) -> Result<Expression> {
        if let Some(hint) = self.type_hint(scope) {
            let value = Box::new(self.nested(|parser| match parser.at_symbol(Symbol::Minus) {
                true => Ok(Expression::Literal(parser.signed_constant()?)),
                false => parser.primary(scope),
            })?);
            self.raise(0)?;
            return Ok(Expression::TypeHint { hint, value });
        }
        self.bump();
        if self.at_symbol(Symbol::RightParenthesis) {
            return Err(self.unexpected("a term"));
        }
        Ok(Expression::Tuple(self.expressions(scope, Symbol::RightParenthesis)?))
    }

    /// `(type)`, if a type and then a value follow. Otherwise nothing is consumed.
    fn type_hint(&mut self, scope: Scope) -> Option<TypeName> {
        let might_be_type = match self.following.kind {
            Kind::String | Kind::DollarString | Kind::Keyword(Keyword::Set) => true,
            kind => Self::is_identifier(kind),
        };
        if !might_be_type {
            return None;
        }
        // Two common cases need no lookahead: several values, and a function call.
        if let Kind::Symbol(Symbol::Comma | Symbol::LeftParenthesis) = self.third() {
            return None;
        }
        let (bookmark, depth) = (self.bookmark(), self.depth);
        self.bump();
        if let Ok(hint) = self.type_name()
            && self.eat_symbol(Symbol::RightParenthesis)
            && self.hinted_value_starts(scope, &hint)
        {
            return Some(hint);
        }
        self.depth = depth;
        self.go_back(bookmark);
        None
    }

    /// Whether a value follows `(type)` directly. Words that may follow a whole expression do not count.
    fn hinted_value_starts(&self, scope: Scope, hint: &TypeName) -> bool {
        match self.current.kind {
            Kind::Symbol(
                Symbol::Question | Symbol::Colon | Symbol::LeftBracket | Symbol::LeftBrace | Symbol::LeftParenthesis,
            ) => true,
            Kind::Symbol(Symbol::Minus) => {
                let plain_type = !matches!(hint, TypeName::UserDefined(_) | TypeName::Custom(_));
                Self::is_number(self.following.kind) && (scope == Scope::Term || plain_type)
            }
            Kind::Keyword(Keyword::As | Keyword::Per | Keyword::Group | Keyword::Offset | Keyword::Ann) => false,
            kind if Self::is_identifier(kind) => {
                scope == Scope::Selector
                    || matches!(self.following.kind, Kind::Symbol(Symbol::LeftParenthesis | Symbol::Dot))
            }
            Kind::Keyword(Keyword::Token) => true,
            kind => Self::is_constant(kind),
        }
    }

    /// An integer constant or a marker, as limits and time stamps are.
    pub(super) fn integer_or_marker(&mut self) -> Result<Expression> {
        if self.at_marker() {
            return self.marker_expression();
        }
        let number = if self.at_symbol(Symbol::Minus) { self.following.kind } else { self.current.kind };
        if number != Kind::Integer {
            return Err(self.unexpected("an integer or a bind variable"));
        }
        self.height = 0;
        Ok(Expression::Literal(self.signed_constant()?))
    }

    /// A constant integer, as the time stamp of a dropped column is.
    pub(super) fn integer(&mut self) -> Result<Literal> {
        if self.at_marker() {
            return Err(self.unexpected("an integer"));
        }
        match self.integer_or_marker()? {
            Expression::Literal(literal) => Ok(literal),
            _ => Err(self.unexpected("an integer")),
        }
    }
}

/// Whether a constant is the same with a sign before it, so that `- -x` is written, and read, as `x`.
fn is_its_own_negative(literal: &Literal) -> bool {
    match literal {
        Literal::Float(text) => text == "NaN",
        Literal::Duration(duration) => *duration == Duration::default(),
        _ => false,
    }
}
