//! JSON texts: read with their numbers as they are written, and written back.
//!
//! Always true: reading is bounded in depth ([`MAX_DEPTH`]) and never panics; a number keeps its digits, so that `decimal` and `varint` lose
//! nothing; of two members with the same name the later counts. Left out: what a value means for a CQL type
//! ([`crate::value::json`]).
//!
//! Not `serde_json`: its feature that keeps digits (`arbitrary_precision`) would change how every JSON text of the program is read.

pub mod place;

use crate::value::ValueError;
use std::fmt::Write;

/// How deep arrays and objects may be nested.
pub const MAX_DEPTH: usize = 128;

/// A JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Json {
    /// `null`
    Null,
    /// `true`, `false`
    Boolean(bool),
    /// A number, by its digits
    Number(String),
    /// A string, unescaped
    String(String),
    /// `[…]`
    Array(Vec<Json>),
    /// `{…}`, in the order of the text
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads a text that is one value.
    pub fn parse(text: &str) -> Result<Json, ValueError> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(MAX_DEPTH)?;
        reader.skip_space();
        if reader.at < text.len() {
            return Err(reader.error("nothing may follow the value"));
        }
        Ok(value)
    }

    /// The member of an object.
    pub fn member(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Object(members) => members.iter().rfind(|(known, _)| known == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The element of an array.
    pub fn element(&self, index: i64) -> Option<&Json> {
        match self {
            Json::Array(elements) => elements.get(usize::try_from(index).ok()?),
            _ => None,
        }
    }

    /// The depth of nesting: 1 for anything other than an array or object.
    pub fn depth(&self) -> usize {
        let within = match self {
            Json::Array(elements) => elements.iter().map(Json::depth).max(),
            Json::Object(members) => members.iter().map(|(_, value)| value.depth()).max(),
            _ => None,
        };
        1 + within.unwrap_or(0)
    }

    /// Sorts the members of all objects by name and removes duplicates, so that the texts of equal documents are equal.
    pub fn sorted(self) -> Json {
        match self {
            Json::Array(elements) => Json::Array(elements.into_iter().map(Json::sorted).collect()),
            Json::Object(members) => {
                let mut sorted: Vec<(String, Json)> = Vec::with_capacity(members.len());
                sorted.extend(members.into_iter().map(|(name, value)| (name, value.sorted())));
                sorted.sort_by(|(one, _), (other, _)| one.cmp(other));
                sorted.dedup_by(|later, kept| {
                    let is_same = later.0 == kept.0;
                    if is_same {
                        std::mem::swap(later, kept);
                    }
                    is_same
                });
                Json::Object(sorted)
            }
            other => other,
        }
    }

    /// Appends the text, without spaces.
    pub fn write(&self, out: &mut String) {
        match self {
            Json::Null => out.push_str("null"),
            Json::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
            Json::Number(digits) => out.push_str(digits),
            Json::String(text) => write_string(text, out),
            Json::Array(elements) => {
                out.push('[');
                for (at, element) in elements.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    element.write(out);
                }
                out.push(']');
            }
            Json::Object(members) => {
                out.push('{');
                for (at, (name, value)) in members.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    write_string(name, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }

    /// Appends the bytes of the text, without spaces.
    pub fn write_into(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.text().as_bytes());
    }

    /// The text, without spaces.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }
}

/// Appends a string in quotes, escaped.
pub fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            control if control < ' ' => {
                // Writing to a string does not fail.
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn error(&self, what: &str) -> ValueError {
        ValueError(format!("Could not decode JSON string: {what} (at byte {})", self.at))
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn word(&mut self, word: &str, value: Json) -> Result<Json, ValueError> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.error("a value is expected"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn value(&mut self, depth: usize) -> Result<Json, ValueError> {
        let depth = depth.checked_sub(1).ok_or_else(|| self.error("it is nested too deep"))?;
        self.skip_space();
        match self.peek() {
            Some(b'n') => self.word("null", Json::Null),
            Some(b't') => self.word("true", Json::Boolean(true)),
            Some(b'f') => self.word("false", Json::Boolean(false)),
            Some(b'"') => self.string().map(Json::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'[') => self.array(depth),
            Some(b'{') => self.object(depth),
            _ => Err(self.error("a value is expected")),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json, ValueError> {
        self.at += 1;
        let mut elements = Vec::new();
        self.skip_space();
        if self.eat(b']') {
            return Ok(Json::Array(elements));
        }
        loop {
            elements.push(self.value(depth)?);
            self.skip_space();
            if self.eat(b']') {
                return Ok(Json::Array(elements));
            }
            if !self.eat(b',') {
                return Err(self.error("',' or ']' is expected"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, ValueError> {
        self.at += 1;
        let mut members = Vec::new();
        self.skip_space();
        if self.eat(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.error("the name of a member is expected"));
            }
            let name = self.string()?;
            self.skip_space();
            if !self.eat(b':') {
                return Err(self.error("':' is expected"));
            }
            members.push((name, self.value(depth)?));
            self.skip_space();
            if self.eat(b'}') {
                return Ok(Json::Object(members));
            }
            if !self.eat(b',') {
                return Err(self.error("',' or '}' is expected"));
            }
        }
    }

    fn digits(&mut self) -> Result<(), ValueError> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { Err(self.error("a digit is expected")) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<Json, ValueError> {
        let start = self.at;
        self.eat(b'-');
        let has_leading_zero = self.peek() == Some(b'0');
        let first = self.at;
        self.digits()?;
        if has_leading_zero && self.at - first > 1 {
            return Err(self.error("a number does not begin with 0"));
        }
        if self.eat(b'.') {
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            let _ = self.eat(b'+') || self.eat(b'-');
            self.digits()?;
        }
        Ok(Json::Number(self.text[start..self.at].to_owned()))
    }

    fn string(&mut self) -> Result<String, ValueError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.bytes().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..=31)).count();
            out.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.escape()?);
                }
                _ => return Err(self.error("a string is not closed, or has a control character")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, ValueError> {
        let letter = self.peek().ok_or_else(|| self.error("a string is not closed"))?;
        self.at += 1;
        Ok(match letter {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.unit()?;
                let is_pair = (0xD800..0xDC00).contains(&first) && self.text[self.at..].starts_with("\\u");
                let units = if is_pair {
                    self.at += 2;
                    vec![first, self.unit()?]
                } else {
                    vec![first]
                };
                let mut letters = char::decode_utf16(units);
                match (letters.next(), letters.next()) {
                    (Some(Ok(letter)), None) => letter,
                    _ => return Err(self.error("an escape is no character")),
                }
            }
            _ => return Err(self.error("an unknown escape")),
        })
    }

    fn unit(&mut self) -> Result<u16, ValueError> {
        let digits = self.text.get(self.at..self.at + 4).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let unit = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
        let unit = unit.ok_or_else(|| self.error("four hexadecimal digits are expected"))?;
        self.at += 4;
        Ok(unit)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]
    use super::*;
    use proptest::prelude::*;

    pub(super) fn json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::Boolean),
            "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?".prop_map(Json::Number),
            ".{0,5}".prop_map(Json::String),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Json::Array),
                prop::collection::vec((".{0,3}", inner), 0..4).prop_map(Json::Object),
            ]
        })
    }

    #[test]
    fn escapes_and_spaces_are_read() {
        let text = " { \"a\\u00e9\\n\" : [ 1.50 , -0 , \"\\ud83d\\ude00\" ] , \"b\" : null } ";
        assert_eq!(Json::parse(text).unwrap().text(), "{\"aé\\n\":[1.50,-0,\"😀\"],\"b\":null}");
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in ["", "{", "[1,]", "{\"a\"}", "01", "1.", "\"\\x\"", "\"\\ud800\"", "nul", "1 2", "\"a", "{a:1}"] {
            assert!(Json::parse(text).is_err(), "{text}");
        }
        assert!(Json::parse(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn sorting_keeps_the_later_of_two_members() {
        let sorted = Json::parse("{\"b\":1,\"a\":{\"y\":1,\"x\":2},\"b\":3}").unwrap().sorted();
        assert_eq!(sorted.text(), "{\"a\":{\"x\":2,\"y\":1},\"b\":3}");
    }

    proptest! {
        #[test]
        fn values_are_read_back(value in json()) {
            prop_assert_eq!(Json::parse(&value.text()).unwrap(), value);
        }

        #[test]
        fn no_input_panics(text in ".{0,40}") {
            let _ = Json::parse(&text);
        }
    }
}
