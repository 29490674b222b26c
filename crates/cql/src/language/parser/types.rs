//! Type names and constants.
//!
//! Always true: a constant comes out in a checked shape (digits are digits, blobs have whole bytes, durations fit), but numbers
//! keep their text, since only a type can say how large they may be.

use super::super::ast::{Duration, Literal, NativeType, TypeName};
use super::super::duration;
use super::super::keyword::Keyword;
use super::super::lexer::{Kind, Symbol, Token};
use super::cursor::{Parser, Result};

impl Parser<'_> {
    /// Any type.
    pub(super) fn type_name(&mut self) -> Result<TypeName> {
        if self.at_string() {
            return Ok(TypeName::Custom(self.string("type")?));
        }
        let parameterised = self.followed_by_symbol(Symbol::Less);
        match self.current.kind {
            Kind::Keyword(Keyword::Set) if parameterised => self.nested(|parser| parser.parameterised_type("set")),
            Kind::Identifier | Kind::Keyword(_) if parameterised => {
                let word = self.token_text(self.current).to_ascii_lowercase();
                self.nested(|parser| parser.parameterised_type(&word))
            }
            Kind::Identifier | Kind::Keyword(_) if !self.followed_by_symbol(Symbol::Dot) => {
                match self.native_type_at_hand() {
                    Some(native) => {
                        self.bump();
                        Ok(TypeName::Native(native))
                    }
                    None => Ok(TypeName::UserDefined(self.qualified_name("type name")?)),
                }
            }
            _ => Ok(TypeName::UserDefined(self.qualified_name("type name")?)),
        }
    }

    /// The native type that the current word names.
    fn native_type_at_hand(&self) -> Option<NativeType> {
        let text = self.token_text(self.current);
        // Lower-cased on the stack: the longest name has nine letters.
        let mut lower = [0; 9];
        let lower = lower.get_mut(..text.len())?;
        lower.copy_from_slice(text.as_bytes());
        lower.make_ascii_lowercase();
        NativeType::from_name(std::str::from_utf8(lower).ok()?)
    }

    /// The type of a `CAST`.
    pub(super) fn native_type(&mut self) -> Result<NativeType> {
        // YCQL's other name of it; elsewhere it is the name of a user-defined type.
        if self.current.kind == Kind::Identifier && self.token_text(self.current).eq_ignore_ascii_case("integer") {
            self.bump();
            return Ok(NativeType::Int);
        }
        match self.current.kind {
            Kind::Identifier | Kind::Keyword(_) => match self.native_type_at_hand() {
                Some(native) => {
                    self.bump();
                    Ok(native)
                }
                None => Err(self.unexpected("a native type")),
            },
            _ => Err(self.unexpected("a native type")),
        }
    }

    /// `word<…>`
    fn parameterised_type(&mut self, word: &str) -> Result<TypeName> {
        let start = self.current;
        if !matches!(word, "list" | "set" | "map" | "tuple" | "frozen" | "vector") {
            return Err(self.unexpected("a type"));
        }
        self.bump();
        self.expect_symbol(Symbol::Less)?;
        let first = self.type_name()?;
        let result = match word {
            "list" => TypeName::List(Box::new(first)),
            "set" => TypeName::Set(Box::new(first)),
            "frozen" => TypeName::Frozen(Box::new(first)),
            "map" => {
                self.expect_symbol(Symbol::Comma)?;
                TypeName::Map(Box::new(first), Box::new(self.type_name()?))
            }
            "vector" => {
                self.expect_symbol(Symbol::Comma)?;
                TypeName::Vector(Box::new(first), self.vector_dimension(start)?)
            }
            _ => {
                let mut elements = vec![first];
                while self.eat_symbol(Symbol::Comma) {
                    self.part()?;
                    elements.push(self.type_name()?);
                }
                TypeName::Tuple(elements)
            }
        };
        self.expect_symbol(Symbol::Greater)?;
        Ok(result)
    }

    fn vector_dimension(&mut self, vector: Token) -> Result<u32> {
        if self.current.kind != Kind::Integer {
            return Err(self.unexpected("an integer"));
        }
        let token = self.bump();
        match self.token_text(token).parse() {
            Ok(dimension) if dimension > 0 => Ok(dimension),
            _ => {
                Err(self.invalid(vector, "vectors must have a dimension of at least 1 and at most 2^32 - 1".to_owned()))
            }
        }
    }

    /// Whether a constant starts here, its sign aside.
    pub(super) fn is_constant(kind: Kind) -> bool {
        Self::is_number(kind)
            || matches!(
                kind,
                Kind::String
                    | Kind::DollarString
                    | Kind::Blob
                    | Kind::Uuid
                    | Kind::Keyword(Keyword::Null | Keyword::True | Keyword::False)
            )
    }

    /// Whether a constant that may have a sign starts here.
    pub(super) fn is_number(kind: Kind) -> bool {
        matches!(kind, Kind::Integer | Kind::Float | Kind::Duration | Kind::Keyword(Keyword::Nan | Keyword::Infinity))
    }

    /// A constant with its sign.
    pub(super) fn signed_constant(&mut self) -> Result<Literal> {
        if self.at_symbol(Symbol::Minus) && Self::is_number(self.following.kind) {
            self.bump();
            return self.constant(true);
        }
        if !Self::is_constant(self.current.kind) {
            return Err(self.unexpected("a constant"));
        }
        self.constant(false)
    }

    /// The constant at hand; the caller has seen that there is one.
    pub(super) fn constant(&mut self, negative: bool) -> Result<Literal> {
        let token = self.bump();
        let text = self.token_text(token);
        let signed = |text: &str| if negative { format!("-{text}") } else { text.to_owned() };
        Ok(match token.kind {
            Kind::String | Kind::DollarString => Literal::String(self.string_text(token)),
            Kind::Integer => Literal::Integer(signed(text)),
            Kind::Float => Literal::Float(signed(text)),
            Kind::Keyword(Keyword::Nan) => Literal::Float("NaN".to_owned()),
            Kind::Keyword(Keyword::Infinity) => Literal::Float(signed("Infinity")),
            Kind::Blob => Literal::Blob(hexadecimal(&text[2..])),
            Kind::Uuid => {
                let mut uuid = [0; 16];
                uuid.copy_from_slice(&hexadecimal(text));
                Literal::Uuid(uuid)
            }
            Kind::Duration => Literal::Duration(self.duration(token, negative)?),
            Kind::Keyword(Keyword::True) => Literal::Boolean(true),
            Kind::Keyword(Keyword::False) => Literal::Boolean(false),
            _ => Literal::Null,
        })
    }

    fn duration(&self, token: Token, negative: bool) -> Result<Duration> {
        duration::parse(self.token_text(token), negative).map_err(|wrong| match wrong {
            duration::Wrong::Range => {
                let limit = "months and days must fit in 32 bits, nanoseconds in 64";
                self.invalid(token, format!("duration {} is out of range: {limit}", self.token_text(token)))
            }
            duration::Wrong::Order(message) => self.invalid(token, message),
        })
    }
}

/// The bytes that pairs of hexadecimal digits stand for; dashes between them do not count.
fn hexadecimal(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() / 2);
    let mut high = None;
    for digit in text.chars().filter_map(|character| character.to_digit(16)) {
        match high.take() {
            None => high = Some(digit),
            Some(high) => bytes.push((high << 4 | digit) as u8),
        }
    }
    bytes
}
