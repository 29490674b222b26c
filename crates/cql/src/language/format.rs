//! Syntax trees back into CQL.
//!
//! One canonical spelling for each tree: keywords in capitals, one space, clauses in the order of the grammar, nothing that says
//! what would hold without it. `DESCRIBE`, logs and tests use it.
//!
//! Always true: parsing the text of a tree that the parser made gives that tree again, markers and their numbers included; where
//! a statement's clauses may change places, they are written in the order of their markers. What is left out: line breaks and
//! indentation, which whoever shows a schema to people adds.

mod access;
mod definition;
mod expression;
mod statement;

use super::ast::{Expression, Literal, Parsed, QualifiedName, Statement, TypeName};
use super::keyword::{self, Keyword};
use std::borrow::Cow;

/// A request as CQL.
pub fn format(parsed: &Parsed) -> String {
    let mut formatter = Formatter::new(&parsed.markers);
    formatter.statement(&parsed.statement);
    formatter.out
}

/// A statement as CQL; its markers are all written `?`.
pub fn format_statement(statement: &Statement) -> String {
    let mut formatter = Formatter::new(&[]);
    formatter.statement(statement);
    formatter.out
}

/// A type as CQL.
pub fn format_type(name: &TypeName) -> String {
    let mut formatter = Formatter::new(&[]);
    formatter.type_name(name);
    formatter.out
}

/// A constant as CQL.
pub fn format_literal(literal: &Literal) -> String {
    let mut formatter = Formatter::new(&[]);
    formatter.literal(literal);
    formatter.out
}

/// A term or selector as CQL; its markers are all written `?`.
pub fn format_expression(expression: &Expression) -> String {
    let mut formatter = Formatter::new(&[]);
    formatter.expression(expression);
    formatter.out
}

/// An identifier as CQL: in double quotes if it would not come out the same without them.
pub fn quote_identifier(name: &str) -> Cow<'_, str> {
    let plain = name.as_bytes().first().is_some_and(u8::is_ascii_lowercase)
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && !keyword::find(name).is_some_and(Keyword::is_reserved);
    if plain { Cow::Borrowed(name) } else { Cow::Owned(quoted(name, '"')) }
}

/// A text as a CQL string, in single quotes.
pub fn quote_string(text: &str) -> String {
    quoted(text, '\'')
}

/// A text in quotes, with those inside it doubled.
fn quoted(text: &str, quote: char) -> String {
    let mut result = String::with_capacity(text.len() + 2);
    result.push(quote);
    for character in text.chars() {
        if character == quote {
            result.push(quote);
        }
        result.push(character);
    }
    result.push(quote);
    result
}

/// Text as it grows.
struct Formatter<'a> {
    out: String,
    /// Names of markers; one past the end is positional.
    markers: &'a [Option<String>],
    /// The first marker written since [`Formatter::aside`] began.
    first_marker: Option<u16>,
}

impl<'a> Formatter<'a> {
    fn new(markers: &'a [Option<String>]) -> Formatter<'a> {
        Formatter { out: String::new(), markers, first_marker: None }
    }

    fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Writes elsewhere: the text and the first marker in it.
    fn aside(&mut self, write: impl FnOnce(&mut Self)) -> (String, Option<u16>) {
        let outer = (std::mem::take(&mut self.out), self.first_marker.take());
        write(self);
        let inner = (std::mem::take(&mut self.out), self.first_marker.take());
        (self.out, self.first_marker) = outer;
        inner
    }

    /// Writes two texts, the second before the first only if the order of their markers asks for it.
    fn in_marker_order<const PARTS: usize>(&mut self, parts: [(String, Option<u16>); PARTS], separator: &str) {
        // Those with markers keep to the places of such.
        let places: Vec<usize> = (0..PARTS).filter(|at| parts[*at].1.is_some()).collect();
        let mut marked = places.clone();
        marked.sort_by_key(|at| parts[*at].1);
        let mut order: [usize; PARTS] = std::array::from_fn(|at| at);
        places.into_iter().zip(marked).for_each(|(place, at)| order[place] = at);
        let mut is_first = true;
        for at in order {
            let (text, marker) = &parts[at];
            if !text.is_empty() && !std::mem::replace(&mut is_first, false) {
                self.push(separator);
            }
            self.push(text);
            self.first_marker = self.first_marker.or(*marker);
        }
    }

    /// Items with a separator between them.
    fn separated<T>(&mut self, items: &[T], separator: &str, mut write: impl FnMut(&mut Self, &T)) {
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.push(separator);
            }
            write(self, item);
        }
    }

    /// `(a, b)`
    fn parenthesised<T>(&mut self, items: &[T], write: impl FnMut(&mut Self, &T)) {
        self.push("(");
        self.separated(items, ", ", write);
        self.push(")");
    }

    /// An identifier, quoted also where the grammar would take the word for something else.
    fn name(&mut self, name: &str) {
        // Words that mean something where a column may stand too.
        let ambiguous = matches!(name, "json" | "distinct" | "exists" | "as" | "per" | "group" | "offset" | "ann");
        if ambiguous { self.push(&quoted(name, '"')) } else { self.push(&quote_identifier(name)) }
    }

    /// The names of columns in parentheses.
    fn names(&mut self, names: &[String]) {
        self.parenthesised(names, |formatter, name| formatter.name(name));
    }

    fn qualified(&mut self, name: &QualifiedName) {
        if let Some(keyspace) = &name.keyspace {
            self.name(keyspace);
            self.push(".");
        }
        self.name(&name.name);
    }

    fn string(&mut self, text: &str) {
        self.push(&quote_string(text));
    }

    fn marker(&mut self, index: u16) {
        self.first_marker = self.first_marker.or(Some(index));
        match self.markers.get(usize::from(index)) {
            Some(Some(name)) => {
                self.push(":");
                self.name(name);
            }
            _ => self.push("?"),
        }
    }

    fn flag(&mut self, set: bool, text: &str) {
        if set {
            self.push(text);
        }
    }
}
