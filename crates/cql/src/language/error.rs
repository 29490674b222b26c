//! What is wrong with a text, and where.
//!
//! Always true: a message starts with `line N:M`, as tools expect (lines from 1, columns in characters from 0, as Cassandra
//! counts), and quotes at most [`MAX_QUOTED_CHARACTERS`] of the text.

use std::fmt;

/// The most of the offending text that a message repeats.
const MAX_QUOTED_CHARACTERS: usize = 40;

/// Whether a text is not CQL or CQL that can never be carried out; the protocol has a code for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseErrorKind {
    /// Not a statement of the grammar.
    Syntax,
    /// A statement that contradicts itself whatever the schema: a table without a key, more values than columns.
    Invalid,
}

/// Why a text is not a statement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}:{column} {message}")]
pub struct ParseError {
    /// What sort of fault it is.
    pub kind: ParseErrorKind,
    /// From 1.
    pub line: u32,
    /// In characters, from 0.
    pub column: u32,
    /// What was found, and what was expected.
    pub message: String,
}

impl ParseError {
    /// An error at a byte offset of the text.
    pub(crate) fn at(kind: ParseErrorKind, text: &str, offset: usize, message: String) -> Box<ParseError> {
        let before = &text[..text.floor_char_boundary(offset)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = 1 + before.bytes().filter(|byte| *byte == b'\n').count() as u32;
        let column = before[line_start..].chars().count() as u32;
        Box::new(ParseError { kind, line, column, message })
    }
}

/// Text of the request as a message shows it: in quotes, on one line, cut when long; `<EOF>` stands for its end.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return out.write_str("'<EOF>'");
        }
        out.write_str("'")?;
        let mut characters = self.0.chars();
        for character in characters.by_ref().take(MAX_QUOTED_CHARACTERS) {
            write!(out, "{}", if character.is_control() { ' ' } else { character })?;
        }
        out.write_str(if characters.next().is_some() { "…'" } else { "'" })
    }
}
