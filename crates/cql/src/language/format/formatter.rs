//! The text of a statement as it grows: separators, quotes, and the order of markers.

use super::super::ast::QualifiedName;
use super::super::keyword::{self, Keyword};
use std::borrow::Cow;

/// An identifier as CQL: in double quotes if it would not be read back unchanged without them.
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
pub(super) fn quoted(text: &str, quote: char) -> String {
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
pub(super) struct Formatter<'a> {
    pub(super) out: String,
    /// Names of markers; one past the end is positional.
    pub(super) markers: &'a [Option<String>],
    /// The first marker written since [`Formatter::aside`] began.
    pub(super) first_marker: Option<u16>,
}

impl<'a> Formatter<'a> {
    pub(super) fn new(markers: &'a [Option<String>]) -> Formatter<'a> {
        Formatter { out: String::new(), markers, first_marker: None }
    }

    pub(super) fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Writes elsewhere: the text and the first marker in it.
    pub(super) fn aside(&mut self, write: impl FnOnce(&mut Self)) -> (String, Option<u16>) {
        let outer = (std::mem::take(&mut self.out), self.first_marker.take());
        write(self);
        let inner = (std::mem::take(&mut self.out), self.first_marker.take());
        (self.out, self.first_marker) = outer;
        inner
    }

    /// Writes two texts, the second before the first only if the order of their markers asks for it.
    pub(super) fn in_marker_order<const PARTS: usize>(
        &mut self,
        parts: [(String, Option<u16>); PARTS],
        separator: &str,
    ) {
        // Clauses with markers keep their order among each other.
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
    pub(super) fn separated<T>(&mut self, items: &[T], separator: &str, mut write: impl FnMut(&mut Self, &T)) {
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.push(separator);
            }
            write(self, item);
        }
    }

    /// `(a, b)`
    pub(super) fn parenthesised<T>(&mut self, items: &[T], write: impl FnMut(&mut Self, &T)) {
        self.push("(");
        self.separated(items, ", ", write);
        self.push(")");
    }

    /// An identifier, quoted also where the grammar would take the word for something else.
    pub(super) fn name(&mut self, name: &str) {
        // Words with a meaning of their own where a column may stand too.
        let ambiguous = matches!(name, "json" | "distinct" | "exists" | "as" | "per" | "group" | "offset" | "ann");
        if ambiguous { self.push(&quoted(name, '"')) } else { self.push(&quote_identifier(name)) }
    }

    /// The names of columns in parentheses.
    pub(super) fn names(&mut self, names: &[String]) {
        self.parenthesised(names, |formatter, name| formatter.name(name));
    }

    pub(super) fn qualified(&mut self, name: &QualifiedName) {
        if let Some(keyspace) = &name.keyspace {
            self.name(keyspace);
            self.push(".");
        }
        self.name(&name.name);
    }

    pub(super) fn string(&mut self, text: &str) {
        self.push(&quote_string(text));
    }

    pub(super) fn marker(&mut self, index: u16) {
        self.first_marker = self.first_marker.or(Some(index));
        match self.markers.get(usize::from(index)) {
            Some(Some(name)) => {
                self.push(":");
                self.name(name);
            }
            _ => self.push("?"),
        }
    }

    pub(super) fn flag(&mut self, set: bool, text: &str) {
        if set {
            self.push(text);
        }
    }
}
