//! A recursive-descent parser of CQL.
//!
//! A [`Parser`] holds the current token and the one after it; almost every choice is made by these two. Going back happens only
//! to tell a type hint, `(int) x`, from parentheses, and never over a marker, so markers are numbered as they are met.
//! Each statement family has its file below this one; this file holds the entry, the choice of statement and the small steps.
//!
//! Always true: no input makes it panic; recursion is at most [`MAX_DEPTH`] deep and so is the tree that it makes, long chains of
//! operators included. What is left out: recovering from an error to report a second one.

mod access;
mod alteration;
mod creation;
mod describe;
mod expression;
mod modification;
mod names;
mod relation;
mod select;
mod types;

use super::ast::{Parsed, Statement};
use super::error::{ParseError, ParseErrorKind, Quoted};
use super::keyword::Keyword;
use super::lexer::{Kind, Lexer, Symbol, Token};

/// How deep expressions, conditions and types may be nested.
pub use diorite_base::limits::MAX_NESTING as MAX_DEPTH;
use diorite_base::limits::{
    self, Limit, MAX_BATCH_STATEMENTS, MAX_CONDITION_DEPTH, MAX_MARKERS, MAX_SELECTORS, MAX_STATEMENT_PARTS,
};

/// Errors are boxed: they are rare, and results pass through many hands.
type Result<T> = std::result::Result<T, Box<ParseError>>;

/// Parses one statement, which may end in a semicolon.
pub fn parse(text: &str) -> std::result::Result<Parsed, ParseError> {
    let mut parser = Parser::new(text);
    parser.request().map_err(|error| *error)
}

/// A text and how far it has been read.
struct Parser<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    current: Token,
    following: Token,
    markers: Vec<Option<String>>,
    /// Of the recursion.
    depth: usize,
    /// Of the expression that was parsed last.
    height: usize,
    /// Of the tree of the condition that was parsed last.
    condition_height: usize,
    /// How much of [`limits::STATEMENT_PARTS`] there is so far.
    parts: usize,
}

/// A place to go back to. Markers are not part of it.
#[derive(Clone, Copy)]
struct Bookmark<'a> {
    lexer: Lexer<'a>,
    current: Token,
    following: Token,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Parser<'a> {
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

    /// The whole text.
    fn request(&mut self) -> Result<Parsed> {
        let statement = self.statement()?;
        while self.eat_symbol(Symbol::Semicolon) {}
        if self.current.kind != Kind::End {
            return Err(self.unexpected("end of statement"));
        }
        Ok(Parsed { statement, markers: std::mem::take(&mut self.markers) })
    }

    fn statement(&mut self) -> Result<Statement> {
        let Kind::Keyword(keyword) = self.current.kind else { return Err(self.unexpected("a statement")) };
        match keyword {
            Keyword::Select => self.select(),
            Keyword::Insert => Ok(Statement::Insert(Box::new(self.insert()?))),
            Keyword::Update => Ok(Statement::Update(Box::new(self.update()?))),
            Keyword::Delete => Ok(Statement::Delete(Box::new(self.delete()?))),
            Keyword::Begin | Keyword::Start => self.begin(),
            Keyword::Explain => self.explain(),
            Keyword::Use => {
                self.bump();
                Ok(Statement::Use(self.identifier("keyspace name")?))
            }
            Keyword::Truncate => {
                self.bump();
                self.eat_table_keyword();
                Ok(Statement::Truncate(self.qualified_name("table name")?))
            }
            Keyword::Create => self.create(),
            Keyword::Alter => self.alter(),
            Keyword::Drop => self.drop_object(),
            Keyword::Grant | Keyword::Revoke => self.grant_or_revoke(),
            Keyword::List => self.list(),
            Keyword::Add => self.add_identity(),
            Keyword::Describe | Keyword::Desc => self.describe(),
            _ => Err(self.unexpected("a statement")),
        }
    }

    /// `EXPLAIN statement`
    fn explain(&mut self) -> Result<Statement> {
        self.bump();
        match self.current.kind {
            Kind::Keyword(Keyword::Select | Keyword::Insert | Keyword::Update | Keyword::Delete) => {
                Ok(Statement::Explain(Box::new(self.statement()?)))
            }
            _ => Err(self.unexpected("SELECT, INSERT, UPDATE or DELETE")),
        }
    }

    /// Takes the current token.
    fn bump(&mut self) -> Token {
        let next = self.lexer.next();
        std::mem::replace(&mut self.current, std::mem::replace(&mut self.following, next))
    }

    fn bookmark(&self) -> Bookmark<'a> {
        Bookmark { lexer: self.lexer, current: self.current, following: self.following }
    }

    fn go_back(&mut self, bookmark: Bookmark<'a>) {
        (self.lexer, self.current, self.following) = (bookmark.lexer, bookmark.current, bookmark.following);
    }

    /// The kind of the third token.
    fn third(&self) -> Kind {
        let mut lexer = self.lexer;
        lexer.next().kind
    }

    fn token_text(&self, token: Token) -> &'a str {
        &self.text[token.start..token.end]
    }

    fn at(&self, keyword: Keyword) -> bool {
        self.current.kind == Kind::Keyword(keyword)
    }

    fn at_symbol(&self, symbol: Symbol) -> bool {
        self.current.kind == Kind::Symbol(symbol)
    }

    fn followed_by(&self, keyword: Keyword) -> bool {
        self.following.kind == Kind::Keyword(keyword)
    }

    fn followed_by_symbol(&self, symbol: Symbol) -> bool {
        self.following.kind == Kind::Symbol(symbol)
    }

    /// Takes the keyword if it is next.
    fn eat(&mut self, keyword: Keyword) -> bool {
        let found = self.at(keyword);
        if found {
            self.bump();
        }
        found
    }

    /// Takes the symbol if it is next.
    fn eat_symbol(&mut self, symbol: Symbol) -> bool {
        let found = self.at_symbol(symbol);
        if found {
            self.bump();
        }
        found
    }

    fn expect(&mut self, keyword: Keyword) -> Result<()> {
        if self.eat(keyword) { Ok(()) } else { Err(self.unexpected(&keyword.text().to_ascii_uppercase())) }
    }

    fn expect_symbol(&mut self, symbol: Symbol) -> Result<()> {
        if self.eat_symbol(symbol) { Ok(()) } else { Err(self.unexpected(&format!("'{}'", symbol.text()))) }
    }

    /// Takes `IF NOT EXISTS` if it is next.
    fn if_not_exists(&mut self) -> Result<bool> {
        if !self.eat(Keyword::If) {
            return Ok(false);
        }
        self.expect(Keyword::Not)?;
        self.expect(Keyword::Exists)?;
        Ok(true)
    }

    /// Takes `IF EXISTS` if it is next.
    fn if_exists(&mut self) -> Result<bool> {
        if !self.eat(Keyword::If) {
            return Ok(false);
        }
        self.expect(Keyword::Exists)?;
        Ok(true)
    }

    /// `TABLE` or its old name.
    fn eat_table_keyword(&mut self) -> bool {
        self.eat(Keyword::Table) || self.eat(Keyword::Columnfamily)
    }

    /// `KEYSPACE` or its other name.
    fn eat_keyspace_keyword(&mut self) -> bool {
        self.eat(Keyword::Keyspace) || self.eat(Keyword::Schema)
    }

    /// One or more items with commas between them.
    fn comma_separated<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.eat_symbol(Symbol::Comma) {
            self.part()?;
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// One or more items with `AND` between them.
    fn and_separated<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.eat(Keyword::And) {
            self.part()?;
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// `(`, one or more items with commas between them, `)`.
    fn parenthesised<T>(&mut self, item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.expect_symbol(Symbol::LeftParenthesis)?;
        let items = self.comma_separated(item)?;
        self.expect_symbol(Symbol::RightParenthesis)?;
        Ok(items)
    }

    /// `(`, any number of items with commas between them, `)`.
    fn parenthesised_or_empty<T>(&mut self, item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        if self.at_symbol(Symbol::LeftParenthesis) && self.followed_by_symbol(Symbol::RightParenthesis) {
            self.bump();
            self.bump();
            return Ok(Vec::new());
        }
        self.parenthesised(item)
    }

    /// One level deeper.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_DEPTH {
            return Err(self.too_deep());
        }
        self.part()?;
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// Says that the expression parsed last stands one above the higher of itself and one of height `other`.
    fn raise(&mut self, other: usize) -> Result<()> {
        self.height = self.height.max(other) + 1;
        if self.height > MAX_DEPTH { Err(self.too_deep()) } else { Ok(()) }
    }

    /// Says how high the tree of a condition is.
    fn stands(&mut self, height: usize) -> Result<()> {
        self.condition_height = height;
        self.within(&limits::CONDITION_DEPTH, height, MAX_CONDITION_DEPTH)
    }

    /// Counts a part of the statement, for each of which the tree takes some memory.
    fn part(&mut self) -> Result<()> {
        self.parts += 1;
        self.within(&limits::STATEMENT_PARTS, self.parts, MAX_STATEMENT_PARTS)
    }

    /// Compares with a limit.
    #[inline]
    fn within(&self, limit: &Limit, found: usize, most: usize) -> Result<()> {
        if found <= most {
            return Ok(());
        }
        let (of, unit, name) = (limit.of.trim_end_matches('.'), limit.unit, limit.name);
        Err(self.invalid(self.current, format!("more than {most} {unit} ({name}): {of}")))
    }

    #[cold]
    fn too_deep(&self) -> Box<ParseError> {
        self.syntax_error(self.current, format!("nested more than {MAX_DEPTH} deep"))
    }

    /// An error at the current token, which is not what had to come.
    #[cold]
    fn unexpected(&self, expected: &str) -> Box<ParseError> {
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
    fn syntax_error(&self, token: Token, message: String) -> Box<ParseError> {
        ParseError::at(ParseErrorKind::Syntax, self.text, token.start, message)
    }

    #[cold]
    fn invalid(&self, token: Token, message: String) -> Box<ParseError> {
        ParseError::at(ParseErrorKind::Invalid, self.text, token.start, message)
    }
}
