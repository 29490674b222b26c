//! Names, strings and markers.
//!
//! Always true: an unquoted identifier comes out in lower case, a quoted one as written; a reserved word is no identifier.

use super::super::ast::{Expression, QualifiedName};
use super::super::lexer::{Kind, Symbol, Token};
use super::cursor::{MAX_MARKERS, Parser, Result};

impl Parser<'_> {
    /// Whether a token of this kind may be an identifier.
    pub(super) fn is_identifier(kind: Kind) -> bool {
        match kind {
            Kind::Identifier | Kind::QuotedName => true,
            Kind::Keyword(keyword) => !keyword.is_reserved(),
            _ => false,
        }
    }

    pub(super) fn at_identifier(&self) -> bool {
        Self::is_identifier(self.current.kind)
    }

    /// An identifier; `expected` says in an error what it should have named.
    pub(super) fn identifier(&mut self, expected: &str) -> Result<String> {
        if !self.at_identifier() {
            return Err(self.unexpected(expected));
        }
        let token = self.bump();
        self.identifier_text(token)
    }

    /// The stored form of a token that may be an identifier.
    pub(super) fn identifier_text(&self, token: Token) -> Result<String> {
        let text = self.token_text(token);
        if token.kind != Kind::QuotedName {
            return Ok(text.to_ascii_lowercase());
        }
        if text.len() <= 2 {
            return Err(self.syntax_error(token, "a quoted name may not be empty".to_owned()));
        }
        Ok(unquote(text, '"'))
    }

    pub(super) fn column_name(&mut self) -> Result<String> {
        self.identifier("column name")
    }

    /// `(column, …)`
    pub(super) fn column_names(&mut self) -> Result<Vec<String>> {
        self.parenthesised(Self::column_name)
    }

    /// `[keyspace.]name`
    pub(super) fn qualified_name(&mut self, expected: &str) -> Result<QualifiedName> {
        let name = self.identifier(expected)?;
        if !self.eat_symbol(Symbol::Dot) {
            return Ok(QualifiedName { keyspace: None, name });
        }
        Ok(QualifiedName { keyspace: Some(name), name: self.identifier(expected)? })
    }

    pub(super) fn at_string(&self) -> bool {
        matches!(self.current.kind, Kind::String | Kind::DollarString)
    }

    /// A string constant; `expected` says in an error what it should have been.
    pub(super) fn string(&mut self, expected: &str) -> Result<String> {
        if !self.at_string() {
            return Err(self.unexpected(expected));
        }
        let token = self.bump();
        Ok(self.string_text(token))
    }

    /// The text of a string token.
    pub(super) fn string_text(&self, token: Token) -> String {
        let text = self.token_text(token);
        match token.kind {
            Kind::DollarString => text[2..text.len() - 2].to_owned(),
            _ => unquote(text, '\''),
        }
    }

    pub(super) fn at_marker(&self) -> bool {
        self.at_symbol(Symbol::Question) || self.at_symbol(Symbol::Colon)
    }

    /// `?` or `:name`, given the next number.
    pub(super) fn marker(&mut self) -> Result<u16> {
        let token = self.bump();
        let name = match token.kind {
            Kind::Symbol(Symbol::Colon) => Some(self.identifier("bind variable name")?),
            _ => None,
        };
        if self.markers.len() == MAX_MARKERS {
            let count = MAX_MARKERS + 1;
            let told = format!("Too many markers(?). {count} markers exceed the allowed maximum of {MAX_MARKERS}");
            return Err(self.invalid(token, told));
        }
        self.markers.push(name);
        Ok((self.markers.len() - 1) as u16)
    }

    /// A marker as an expression.
    pub(super) fn marker_expression(&mut self) -> Result<Expression> {
        self.height = 0;
        Ok(Expression::Marker(self.marker()?))
    }
}

/// The text between quotes, with quotes inside it, which are doubled, made single.
fn unquote(text: &str, quote: char) -> String {
    let inner = &text[1..text.len() - 1];
    if !inner.contains(quote) {
        return inner.to_owned();
    }
    let mut result = String::with_capacity(inner.len());
    for (index, part) in inner.split(quote).enumerate() {
        // Every other part is the empty one between the two halves of a doubled quote.
        if index % 2 == 1 {
            result.push(quote);
        } else {
            result.push_str(part);
        }
    }
    result
}
