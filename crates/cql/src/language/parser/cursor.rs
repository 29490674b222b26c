//! A text and how far it has been read: the small steps of the parser.
//!
//! Always true: the parser holds the current token and the one after it; recursion is at most [`MAX_DEPTH`] deep. Left out: grammar.

use super::super::error::{ParseError, ParseErrorKind, Quoted};
use super::super::keyword::Keyword;
use super::super::lexer::{Kind, Lexer, Symbol, Token};
pub(super) use diorite_base::limits::{self, MAX_BATCH_STATEMENTS, MAX_MARKERS, MAX_SELECTORS};
use diorite_base::limits::{Limit, MAX_CONDITION_DEPTH, MAX_STATEMENT_PARTS};

/// How deep expressions, conditions and types may be nested.
pub use diorite_base::limits::MAX_NESTING as MAX_DEPTH;

/// Errors are boxed: they are rare, and results pass through many hands.
pub(super) type Result<T> = std::result::Result<T, Box<ParseError>>;

/// A text and how far it has been read.
pub(super) struct Parser<'a> {
    pub(super) text: &'a str,
    pub(super) lexer: Lexer<'a>,
    pub(super) current: Token,
    pub(super) following: Token,
    pub(super) markers: Vec<Option<String>>,
    /// Of the recursion.
    pub(super) depth: usize,
    /// Of the expression that was parsed last.
    pub(super) height: usize,
    /// Of the tree of the condition that was parsed last.
    pub(super) condition_height: usize,
    /// How much of [`limits::STATEMENT_PARTS`] there is so far.
    pub(super) parts: usize,
}

/// A position to return to. Markers are not part of it.
#[derive(Clone, Copy)]
pub(super) struct Bookmark<'a> {
    lexer: Lexer<'a>,
    current: Token,
    following: Token,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Parser<'a> {
        let mut lexer = Lexer::new(text);
        let current = lexer.next();
        let following = lexer.next();
        Parser {
            text,
            lexer,
            current,
            following,
            markers: Vec::new(),
            depth: 0,
            height: 0,
            condition_height: 0,
            parts: 0,
        }
    }

    /// Takes the current token.
    pub(super) fn bump(&mut self) -> Token {
        let next = self.lexer.next();
        std::mem::replace(&mut self.current, std::mem::replace(&mut self.following, next))
    }

    pub(super) fn bookmark(&self) -> Bookmark<'a> {
        Bookmark { lexer: self.lexer, current: self.current, following: self.following }
    }

    pub(super) fn go_back(&mut self, bookmark: Bookmark<'a>) {
        (self.lexer, self.current, self.following) = (bookmark.lexer, bookmark.current, bookmark.following);
    }

    /// The kind of the third token.
    pub(super) fn third(&self) -> Kind {
        let mut lexer = self.lexer;
        lexer.next().kind
    }

    pub(super) fn token_text(&self, token: Token) -> &'a str {
        &self.text[token.start..token.end]
    }

    pub(super) fn at(&self, keyword: Keyword) -> bool {
        self.current.kind == Kind::Keyword(keyword)
    }

    pub(super) fn at_symbol(&self, symbol: Symbol) -> bool {
        self.current.kind == Kind::Symbol(symbol)
    }

    pub(super) fn followed_by(&self, keyword: Keyword) -> bool {
        self.following.kind == Kind::Keyword(keyword)
    }

    pub(super) fn followed_by_symbol(&self, symbol: Symbol) -> bool {
        self.following.kind == Kind::Symbol(symbol)
    }

    /// Takes the keyword if it is next.
    pub(super) fn eat(&mut self, keyword: Keyword) -> bool {
        let found = self.at(keyword);
        if found {
            self.bump();
        }
        found
    }

    /// Takes the symbol if it is next.
    pub(super) fn eat_symbol(&mut self, symbol: Symbol) -> bool {
        let found = self.at_symbol(symbol);
        if found {
            self.bump();
        }
        found
    }

    pub(super) fn expect(&mut self, keyword: Keyword) -> Result<()> {
        if self.eat(keyword) { Ok(()) } else { Err(self.unexpected(&keyword.text().to_ascii_uppercase())) }
    }

    pub(super) fn expect_symbol(&mut self, symbol: Symbol) -> Result<()> {
        if self.eat_symbol(symbol) { Ok(()) } else { Err(self.unexpected(&format!("'{}'", symbol.text()))) }
    }

    /// Takes `IF NOT EXISTS` if it is next.
    pub(super) fn if_not_exists(&mut self) -> Result<bool> {
        if !self.eat(Keyword::If) {
            return Ok(false);
        }
        self.expect(Keyword::Not)?;
        self.expect(Keyword::Exists)?;
        Ok(true)
    }

    /// Takes `IF EXISTS` if it is next.
    pub(super) fn if_exists(&mut self) -> Result<bool> {
        if !self.eat(Keyword::If) {
            return Ok(false);
        }
        self.expect(Keyword::Exists)?;
        Ok(true)
    }

    /// `TABLE` or its old name.
    pub(super) fn eat_table_keyword(&mut self) -> bool {
        self.eat(Keyword::Table) || self.eat(Keyword::Columnfamily)
    }

    /// `KEYSPACE` or its other name.
    pub(super) fn eat_keyspace_keyword(&mut self) -> bool {
        self.eat(Keyword::Keyspace) || self.eat(Keyword::Schema)
    }

    /// One or more items with commas between them.
    pub(super) fn comma_separated<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.eat_symbol(Symbol::Comma) {
            self.part()?;
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// One or more items with `AND` between them.
    pub(super) fn and_separated<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.eat(Keyword::And) {
            self.part()?;
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// `(`, one or more items with commas between them, `)`.
    pub(super) fn parenthesised<T>(&mut self, item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.expect_symbol(Symbol::LeftParenthesis)?;
        let items = self.comma_separated(item)?;
        self.expect_symbol(Symbol::RightParenthesis)?;
        Ok(items)
    }

    /// `(`, any number of items with commas between them, `)`.
    pub(super) fn parenthesised_or_empty<T>(&mut self, item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        if self.at_symbol(Symbol::LeftParenthesis) && self.followed_by_symbol(Symbol::RightParenthesis) {
            self.bump();
            self.bump();
            return Ok(Vec::new());
        }
        self.parenthesised(item)
    }

    /// One level deeper.
    pub(super) fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_DEPTH {
            return Err(self.too_deep());
        }
        self.part()?;
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// Sets the height of the last expression to one above the higher of itself and one of height `other`.
    pub(super) fn raise(&mut self, other: usize) -> Result<()> {
        self.height = self.height.max(other) + 1;
        if self.height > MAX_DEPTH { Err(self.too_deep()) } else { Ok(()) }
    }

    /// Sets the height of a condition's tree.
    pub(super) fn stands(&mut self, height: usize) -> Result<()> {
        self.condition_height = height;
        self.within(&limits::CONDITION_DEPTH, height, MAX_CONDITION_DEPTH)
    }

    /// Counts a part of the statement, for each of which the tree takes some memory.
    pub(super) fn part(&mut self) -> Result<()> {
        self.parts += 1;
        self.within(&limits::STATEMENT_PARTS, self.parts, MAX_STATEMENT_PARTS)
    }

    /// Compares with a limit.
    #[inline]
    pub(super) fn within(&self, limit: &Limit, found: usize, most: usize) -> Result<()> {
        if found <= most {
            return Ok(());
        }
        let (of, unit, name) = (limit.of.trim_end_matches('.'), limit.unit, limit.name);
        Err(self.invalid(self.current, format!("more than {most} {unit} ({name}): {of}")))
    }

    #[cold]
    pub(super) fn too_deep(&self) -> Box<ParseError> {
        self.syntax_error(self.current, format!("nested more than {MAX_DEPTH} deep"))
    }

    /// A syntax error at the current token.
    #[cold]
    pub(super) fn unexpected(&self, expected: &str) -> Box<ParseError> {
        let found = Quoted(self.token_text(self.current));
        let message = match self.current.kind {
            Kind::Invalid(reason) => format!("{reason} at input {found}"),
            Kind::Symbol(Symbol::Question) if expected.ends_with("name") => {
                format!("bind variables cannot be used for a {expected}")
            }
            Kind::Keyword(keyword) if expected.ends_with("name") && keyword.is_reserved() => {
                format!(
                    "mismatched input {found} expecting {expected} (it is a reserved word: write it in double quotes)"
                )
            }
            _ => format!("mismatched input {found} expecting {expected}"),
        };
        self.syntax_error(self.current, message)
    }

    #[cold]
    pub(super) fn syntax_error(&self, token: Token, message: String) -> Box<ParseError> {
        ParseError::at(ParseErrorKind::Syntax, self.text, token.start, message)
    }

    #[cold]
    pub(super) fn invalid(&self, token: Token, message: String) -> Box<ParseError> {
        ParseError::at(ParseErrorKind::Invalid, self.text, token.start, message)
    }
}
