//! Text into tokens, one at a time.
//!
//! Always true: every byte of the text is looked at a bounded number of times; a token is a kind and a range of the text, and
//! costs no allocation; a character or constant that makes no sense is a token too ([`Kind::Invalid`]), so that the parser
//! reports it where it stands. A minus sign is a token of its own: the parser makes it part of a number.

use super::keyword::{self, Keyword};

/// A piece of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    /// Byte offset of its first byte.
    pub(crate) start: usize,
    /// Byte offset after its last byte.
    pub(crate) end: usize,
}

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// After the last token.
    End,
    /// A word without a meaning in the grammar.
    Identifier,
    /// A word with one; most may be identifiers all the same.
    Keyword(Keyword),
    /// `"name"`
    QuotedName,
    /// `'text'`
    String,
    /// `$$text$$`
    DollarString,
    /// Digits
    Integer,
    /// Digits with a fraction or exponent
    Float,
    /// `0x…`
    Blob,
    /// A uuid
    Uuid,
    /// A duration in any of its notations
    Duration,
    /// Punctuation
    Symbol(Symbol),
    /// Nothing that CQL knows, and why.
    Invalid(&'static str),
}

/// Punctuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "`Symbol::text` shows each")]
pub(crate) enum Symbol {
    Arrow,
    Colon,
    Comma,
    Dot,
    Equal,
    Greater,
    GreaterOrEqual,
    LeftBrace,
    LeftBracket,
    LeftParenthesis,
    Less,
    LessOrEqual,
    Minus,
    MinusEqual,
    NotEqual,
    Percent,
    Plus,
    PlusEqual,
    Question,
    Range,
    RightBrace,
    RightBracket,
    RightParenthesis,
    Semicolon,
    Slash,
    Star,
    TextArrow,
}

impl Symbol {
    /// As written.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Symbol::Arrow => "->",
            Symbol::Colon => ":",
            Symbol::Comma => ",",
            Symbol::Dot => ".",
            Symbol::Equal => "=",
            Symbol::Greater => ">",
            Symbol::GreaterOrEqual => ">=",
            Symbol::LeftBrace => "{",
            Symbol::LeftBracket => "[",
            Symbol::LeftParenthesis => "(",
            Symbol::Less => "<",
            Symbol::LessOrEqual => "<=",
            Symbol::Minus => "-",
            Symbol::MinusEqual => "-=",
            Symbol::NotEqual => "!=",
            Symbol::Percent => "%",
            Symbol::Plus => "+",
            Symbol::PlusEqual => "+=",
            Symbol::Question => "?",
            Symbol::Range => "..",
            Symbol::RightBrace => "}",
            Symbol::RightBracket => "]",
            Symbol::RightParenthesis => ")",
            Symbol::Semicolon => ";",
            Symbol::Slash => "/",
            Symbol::Star => "*",
            Symbol::TextArrow => "->>",
        }
    }
}

/// Cuts a text into tokens. A copy of it is a bookmark to go back to.
#[derive(Clone, Copy)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, position: 0 }
    }

    /// The byte at an offset from the position; zero after the end (a NUL in the text is no valid token either).
    fn peek(&self, offset: usize) -> u8 {
        self.text.as_bytes().get(self.position + offset).copied().unwrap_or(0)
    }

    /// The rest of the text.
    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    /// The next token; after the last one [`Kind::End`] for ever.
    pub(crate) fn next(&mut self) -> Token {
        if let Some(invalid) = self.skip_blanks_and_comments() {
            return invalid;
        }
        let start = self.position;
        let kind = match self.peek(0) {
            0 if start >= self.text.len() => Kind::End,
            b'\'' => self.quoted(b'\'', Kind::String, "string is not closed"),
            b'"' => self.quoted(b'"', Kind::QuotedName, "quoted name is not closed"),
            b'$' if self.peek(1) == b'$' => self.dollar_string(),
            b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F' if is_uuid(self.rest().as_bytes()) => {
                self.position += UUID_LENGTH;
                self.ends_constant(Kind::Uuid)
            }
            b'0'..=b'9' => self.number(),
            b'a'..=b'z' | b'A'..=b'Z' => self.word(),
            byte => self.symbol(byte),
        };
        Token { kind, start, end: self.position }
    }

    /// Moves to the next thing that counts; a comment that never ends is a token.
    fn skip_blanks_and_comments(&mut self) -> Option<Token> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (b' ' | b'\t' | b'\n' | b'\r', _) => self.position += 1,
                (b'-', b'-') | (b'/', b'/') => {
                    self.position = self.rest().find(['\n', '\r']).map_or(self.text.len(), |end| self.position + end);
                }
                (b'/', b'*') => match self.rest()[2..].find("*/") {
                    Some(end) => self.position += 2 + end + 2,
                    None => {
                        let start = std::mem::replace(&mut self.position, self.text.len());
                        return Some(Token { kind: Kind::Invalid("comment is not closed"), start, end: self.position });
                    }
                },
                _ => return None,
            }
        }
    }

    /// A string or name in quotes that are doubled inside.
    fn quoted(&mut self, quote: u8, kind: Kind, unclosed: &'static str) -> Kind {
        self.position += 1;
        loop {
            match self.text.as_bytes()[self.position..].iter().position(|byte| *byte == quote) {
                None => {
                    self.position = self.text.len();
                    return Kind::Invalid(unclosed);
                }
                Some(end) => self.position += end + 1,
            }
            if self.peek(0) != quote {
                return kind;
            }
            self.position += 1;
        }
    }

    /// `$$…$$`
    fn dollar_string(&mut self) -> Kind {
        match self.rest()[2..].find("$$") {
            Some(end) => {
                self.position += 2 + end + 2;
                Kind::DollarString
            }
            None => {
                self.position = self.text.len();
                Kind::Invalid("string is not closed")
            }
        }
    }

    fn skip_digits(&mut self) {
        while self.peek(0).is_ascii_digit() {
            self.position += 1;
        }
    }

    /// Whatever starts with a digit and is no uuid.
    fn number(&mut self) -> Kind {
        if self.peek(0) == b'0' && matches!(self.peek(1), b'x' | b'X') {
            return self.blob();
        }
        let duration = duration_length(self.rest().as_bytes());
        if duration > 0 {
            self.position += duration;
            return self.ends_constant(Kind::Duration);
        }
        self.skip_digits();
        let mut kind = Kind::Integer;
        // `1..2` is an integer and a range, `1...2` a float and a range.
        if self.peek(0) == b'.' && (self.peek(1) != b'.' || self.peek(2) == b'.') {
            kind = Kind::Float;
            self.position += 1;
            self.skip_digits();
        }
        if matches!(self.peek(0), b'e' | b'E') {
            let sign = usize::from(matches!(self.peek(1), b'+' | b'-'));
            if self.peek(1 + sign).is_ascii_digit() {
                kind = Kind::Float;
                self.position += 1 + sign;
                self.skip_digits();
            }
        }
        self.ends_constant(kind)
    }

    /// `0x` and digits, two for each byte.
    fn blob(&mut self) -> Kind {
        self.position += 2;
        let start = self.position;
        while self.peek(0).is_ascii_hexdigit() {
            self.position += 1;
        }
        let even = (self.position - start).is_multiple_of(2);
        match self.ends_constant(Kind::Blob) {
            Kind::Blob if !even => Kind::Invalid("blob needs an even number of hexadecimal digits"),
            kind => kind,
        }
    }

    /// A constant may not run into a word: `12abc` is neither.
    fn ends_constant(&mut self, kind: Kind) -> Kind {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
        if !is_word(self.peek(0)) {
            return kind;
        }
        while is_word(self.peek(0)) {
            self.position += 1;
        }
        Kind::Invalid("malformed constant")
    }

    /// A keyword, an identifier or a duration such as `P1Y2M`.
    fn word(&mut self) -> Kind {
        if self.peek(0) == b'P' {
            let duration = iso_duration_length(self.rest().as_bytes());
            if duration > 0 {
                self.position += duration;
                return Kind::Duration;
            }
        }
        let start = self.position;
        let bytes = self.text.as_bytes();
        while bytes.get(self.position).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
            self.position += 1;
        }
        keyword::find(&self.text[start..self.position]).map_or(Kind::Identifier, Kind::Keyword)
    }

    /// Punctuation, the longest that fits.
    fn symbol(&mut self, first: u8) -> Kind {
        let (symbol, length) = match (first, self.peek(1), self.peek(2)) {
            (b'-', b'>', b'>') => (Symbol::TextArrow, 3),
            (b'-', b'>', _) => (Symbol::Arrow, 2),
            (b'-', b'=', _) => (Symbol::MinusEqual, 2),
            (b'+', b'=', _) => (Symbol::PlusEqual, 2),
            (b'<', b'=', _) => (Symbol::LessOrEqual, 2),
            (b'>', b'=', _) => (Symbol::GreaterOrEqual, 2),
            (b'!', b'=', _) | (b'<', b'>', _) => (Symbol::NotEqual, 2),
            (b'.', b'.', _) => (Symbol::Range, 2),
            (b'-', ..) => (Symbol::Minus, 1),
            (b'+', ..) => (Symbol::Plus, 1),
            (b'<', ..) => (Symbol::Less, 1),
            (b'>', ..) => (Symbol::Greater, 1),
            (b'.', ..) => (Symbol::Dot, 1),
            (b':', ..) => (Symbol::Colon, 1),
            (b',', ..) => (Symbol::Comma, 1),
            (b'=', ..) => (Symbol::Equal, 1),
            (b'{', ..) => (Symbol::LeftBrace, 1),
            (b'[', ..) => (Symbol::LeftBracket, 1),
            (b'(', ..) => (Symbol::LeftParenthesis, 1),
            (b'%', ..) => (Symbol::Percent, 1),
            (b'?', ..) => (Symbol::Question, 1),
            (b'}', ..) => (Symbol::RightBrace, 1),
            (b']', ..) => (Symbol::RightBracket, 1),
            (b')', ..) => (Symbol::RightParenthesis, 1),
            (b';', ..) => (Symbol::Semicolon, 1),
            (b'/', ..) => (Symbol::Slash, 1),
            (b'*', ..) => (Symbol::Star, 1),
            _ => {
                self.position += self.rest().chars().next().map_or(1, char::len_utf8);
                return Kind::Invalid("unknown character");
            }
        };
        self.position += length;
        Kind::Symbol(symbol)
    }
}

/// Bytes of a uuid's text.
const UUID_LENGTH: usize = 36;

/// Whether the text starts with a uuid.
fn is_uuid(text: &[u8]) -> bool {
    text.len() >= UUID_LENGTH
        && text[8] == b'-'
        && text[..UUID_LENGTH].iter().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// Bytes of the units of a duration in Cassandra's own notation, such as `1y2mo3ns`; zero when the text has none.
fn duration_length(text: &[u8]) -> usize {
    let mut length = 0;
    loop {
        let digits = leading_digits(&text[length..]);
        let unit = unit_length(&text[length + digits..]);
        if digits == 0 || unit == 0 {
            return length;
        }
        length += digits + unit;
    }
}

/// How many digits the text starts with.
fn leading_digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Bytes of the unit that the text starts with.
pub(crate) fn unit_length(text: &[u8]) -> usize {
    let at = |index: usize| text.get(index).map_or(0, u8::to_ascii_lowercase);
    match (at(0), at(1), at(2)) {
        (0xc2, 0xb5, b's') => 3,
        (b'm', b'o' | b's', _) | (b'u' | b'n', b's', _) => 2,
        (b'y' | b'w' | b'd' | b'h' | b'm' | b's', ..) => 1,
        _ => 0,
    }
}

/// Bytes of a duration in one of ISO 8601's notations, `P1Y2M3DT4H5M6S`, `P7W` or `P0001-02-03T04:05:06`; zero when the text
/// does not start with one, or runs on as a word.
fn iso_duration_length(text: &[u8]) -> usize {
    if is_iso_alternative(text) {
        return ISO_ALTERNATIVE.len();
    }
    let weeks = leading_digits(&text[1..]);
    let mut length = 1;
    if weeks > 0 && text.get(1 + weeks) == Some(&b'W') {
        length += weeks + 1;
    } else {
        length += ordered_units_length(&text[1..], b"YMD");
        if text.get(length) == Some(&b'T') {
            let time = ordered_units_length(&text[length + 1..], b"HMS");
            length += if time > 0 { 1 + time } else { 0 };
        }
    }
    let runs_on = text.get(length).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    if length == 1 || runs_on { 0 } else { length }
}

/// Bytes of numbers each followed by one of the units, which may be left out but not change places.
fn ordered_units_length(text: &[u8], mut units: &[u8]) -> usize {
    let mut length = 0;
    loop {
        let digits = leading_digits(&text[length..]);
        let unit = text.get(length + digits).filter(|_| digits > 0);
        let Some(place) = unit.and_then(|unit| units.iter().position(|known| known == unit)) else { return length };
        units = &units[place + 1..];
        length += digits + 1;
    }
}

/// Shape of ISO 8601's alternative notation; each zero is any digit.
const ISO_ALTERNATIVE: &[u8] = b"P0000-00-00T00:00:00";

fn is_iso_alternative(text: &[u8]) -> bool {
    text.len() >= ISO_ALTERNATIVE.len()
        && ISO_ALTERNATIVE
            .iter()
            .zip(text)
            .all(|(shape, byte)| if *shape == b'0' { byte.is_ascii_digit() } else { shape == byte })
}
