//! Places in documents: what `->>` gives for a stored one, without reading the rest of it into memory.
//!
//! Always true: for a document as it is stored (without spaces) the text is that of the value which [`super::Json::member`] and
//! [`super::Json::element`] find; it follows from document and path alone; nothing here panics. Left out: whether the rest of the
//! text is a document, and changing one (crate `query`).

use super::Reader;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The most steps of the path of an index, and the most bytes of its names together.
pub const MAX_INDEXED_STEPS: usize = 32;
/// See [`MAX_INDEXED_STEPS`].
pub const MAX_INDEXED_NAMES_BYTES: usize = 1_024;

/// One step into a document.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathStep {
    /// To a member of an object.
    Member(String),
    /// To an element of an array.
    Element(i32),
}

/// Whether an index may have this path.
pub fn is_indexable(path: &[PathStep]) -> bool {
    let names = path.iter().map(|step| if let PathStep::Member(name) = step { name.len() } else { 0 });
    (1..=MAX_INDEXED_STEPS).contains(&path.len()) && names.sum::<usize>() <= MAX_INDEXED_NAMES_BYTES
}

/// The text at a place of a stored document: of a string its characters, of anything else its JSON. Each byte is looked at
/// once, and those of the place twice, however long the path is.
pub fn text_at(document: &[u8], path: &[PathStep]) -> Option<String> {
    let mut reader = Reader { text: std::str::from_utf8(document).ok()?, at: 0 };
    let found = reader.locate(path)??;
    if reader.text.as_bytes().get(found.start) == Some(&b'"') {
        return Reader { text: reader.text, at: found.start }.string().ok();
    }
    reader.text.get(found).map(str::to_owned)
}

impl Reader<'_> {
    /// Goes behind the value at hand; returns where in it the path leads. It calls itself once for each step of the path, of
    /// which there are few. The outer `None`: this is no document.
    fn locate(&mut self, path: &[PathStep]) -> Option<Option<Range<usize>>> {
        self.skip_space();
        match (path.split_first(), self.peek()) {
            (Some((PathStep::Member(name), rest)), Some(b'{')) => self.locate_member(name, rest),
            (Some((PathStep::Element(index), rest)), Some(b'[')) => self.locate_element(*index, rest),
            (Some(_), _) => self.skip_value().map(|()| None),
            (None, _) => {
                let start = self.at;
                self.skip_value()?;
                Some(Some(start..self.at))
            }
        }
    }

    /// The same from a member of the object at hand; of several with the same name from the last.
    fn locate_member(&mut self, wanted: &str, rest: &[PathStep]) -> Option<Option<Range<usize>>> {
        let mut found = None;
        self.at += 1;
        self.skip_space();
        if self.eat(b'}') {
            return Some(None);
        }
        loop {
            self.skip_space();
            let is_wanted = self.skip_name(wanted)?;
            self.skip_space();
            if !self.eat(b':') {
                return None;
            }
            match is_wanted {
                true => found = self.locate(rest)?,
                false => self.skip_value()?,
            }
            self.skip_space();
            if !self.eat(b',') {
                return self.eat(b'}').then_some(found);
            }
        }
    }

    /// The same from an element of the array at hand.
    fn locate_element(&mut self, wanted: i32, rest: &[PathStep]) -> Option<Option<Range<usize>>> {
        let mut found = None;
        self.at += 1;
        self.skip_space();
        if self.eat(b']') {
            return Some(None);
        }
        for index in 0_i32.. {
            match index == wanted {
                true => found = self.locate(rest)?,
                false => self.skip_value()?,
            }
            self.skip_space();
            if !self.eat(b',') {
                return self.eat(b']').then_some(found);
            }
        }
        None
    }

    /// Goes behind a name; whether it is the wanted one.
    fn skip_name(&mut self, wanted: &str) -> Option<bool> {
        let start = self.at;
        self.skip_string()?;
        let raw = self.text.get(start + 1..self.at - 1)?;
        if !raw.contains('\\') {
            return Some(raw == wanted);
        }
        let mut name = Reader { text: self.text, at: start };
        Some(name.string().ok()? == wanted)
    }

    /// Goes behind a string.
    fn skip_string(&mut self) -> Option<()> {
        if !self.eat(b'"') {
            return None;
        }
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
    }

    /// Goes behind a value, however deep.
    fn skip_value(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            self.skip_space();
            match self.peek()? {
                b'"' => self.skip_string()?,
                b'{' | b'[' => {
                    self.at += 1;
                    depth += 1;
                    continue;
                }
                b'}' | b']' => {
                    self.at += 1;
                    depth = depth.checked_sub(1)?;
                }
                b',' | b':' => {
                    self.at += 1;
                    // Only between the parts of a value.
                    depth.checked_sub(1)?;
                    continue;
                }
                _ => {
                    let rest = self.text.as_bytes().get(self.at..)?;
                    self.at += rest.iter().take_while(|byte| !b"\",:{}[] \t\r\n".contains(byte)).count();
                }
            }
            if depth == 0 {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]
    use super::super::Json;
    use super::super::tests::json;
    use super::*;
    use proptest::prelude::*;

    /// What a path leads to in a document that has been read.
    fn found(document: &Json, path: &[PathStep]) -> Option<String> {
        let found = path.iter().try_fold(document, |found, step| match step {
            PathStep::Member(name) => found.member(name),
            PathStep::Element(index) => found.element(i64::from(*index)),
        })?;
        Some(if let Json::String(text) = found { text.clone() } else { found.text() })
    }

    /// All paths of a document, and some that lead nowhere.
    fn paths(document: &Json, path: &mut Vec<PathStep>, into: &mut Vec<Vec<PathStep>>) {
        into.push(path.clone());
        let mut below = vec![
            (PathStep::Member("no such".to_owned()), &Json::Null),
            (PathStep::Element(-1), &Json::Null),
            (PathStep::Element(0), &Json::Null),
        ];
        match document {
            Json::Array(elements) => {
                below.extend(elements.iter().zip(0..).map(|(element, at)| (PathStep::Element(at), element)));
                below.push((PathStep::Element(elements.len() as i32), &Json::Null));
            }
            Json::Object(members) => {
                below.extend(members.iter().map(|(name, value)| (PathStep::Member(name.clone()), value)));
            }
            _ => {}
        }
        for (step, value) in below {
            path.push(step);
            if matches!(value, Json::Array(_) | Json::Object(_)) {
                paths(value, path, into);
            } else {
                into.push(path.clone());
            }
            path.pop();
        }
    }

    #[test]
    fn paths_of_indexes_are_limited() {
        let member = |bytes| PathStep::Member("x".repeat(bytes));
        assert!(is_indexable(&[member(1_024), PathStep::Element(7)]) && is_indexable(&vec![PathStep::Element(0); 32]));
        for path in [vec![], vec![member(1_025)], vec![member(1_024), member(1)], vec![PathStep::Element(0); 33]] {
            assert!(!is_indexable(&path));
        }
    }

    #[test]
    fn deep_documents_take_no_stack() {
        let deep = format!("{{\"a\":{}}}", "[".repeat(1 << 20));
        assert_eq!(text_at(deep.as_bytes(), &[PathStep::Member("b".to_owned())]), None);
    }

    proptest! {
        #[test]
        fn the_text_is_that_of_the_document_that_is_read(document in json()) {
            let stored = document.clone().sorted();
            for document in [document, stored] {
                let (text, mut all) = (document.text(), Vec::new());
                paths(&document, &mut Vec::new(), &mut all);
                for path in all {
                    prop_assert_eq!(text_at(text.as_bytes(), &path), found(&document, &path), "{} {:?}", text, path);
                }
            }
        }

        #[test]
        fn no_input_panics(text in "[\\[\\]{}\",:\\\\aé1 ]{0,24}", index in -1i32..3) {
            for path in [vec![], vec![PathStep::Element(index)], vec![PathStep::Member("a".to_owned())]] {
                let _ = text_at(text.as_bytes(), &path);
            }
        }
    }
}
