//! Golden bytes: what each level writes of a format, in files that no later program may fail to read.
//!
//! `testdata/level-N/<format>.txt` of a crate has a paragraph for each case: its name and the bytes (JSON as it is),
//! then what they mean, as the code shows a decoded value.
//!
//! ```text
//! released = 01e807020402
//!     [(GroupId(1000), Released { term: Term(4), candidate: 2 })]
//! ```
//!
//! Always true: a case never changes once a release knows its level: with `UPDATE_GOLDEN=1` cases are only added. A
//! level has only the cases that it changes or adds; otherwise it writes what the level before does. Each
//! variant of a format's types has a case: [`crate::kinds`] lists them, and does not compile while one is missing.
//! Left out: how bytes become values and values bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// What the code makes of the bytes of a case.
pub struct Decoded {
    /// The variants in it, as [`crate::kinds`] names them.
    pub kinds: Vec<&'static str>,
    /// The value as text.
    pub shown: String,
    /// The value encoded again; `None` for a form that is read and no longer written.
    pub encoded: Option<Vec<u8>>,
}

/// The bytes of a format.
pub struct Golden<'a> {
    /// The highest level that there is.
    pub level: u32,
    /// The name of the format: of the files, without their ending.
    pub format: &'a str,
    /// All variants of its types.
    pub kinds: &'a [&'a [&'a str]],
}

/// Names the variants of an enum in a constant, and makes the function that names that of a value: `kinds!(CONSTANT,
/// function(Type): First, Second)`. The list is complete, or it does not compile.
#[macro_export]
macro_rules! kinds {
    ($list:ident, $of:ident($type:ident): $($variant:ident),+ $(,)?) => {
        const $list: &[&str] = &[$(concat!(stringify!($type), "::", stringify!($variant))),+];
        fn $of(value: &$type) -> &'static str {
            match value { $($type::$variant { .. } => concat!(stringify!($type), "::", stringify!($variant))),+ }
        }
    };
}

impl Golden<'_> {
    /// Checks every case of every level: its bytes are decoded to the value in the file, and the value is encoded to
    /// the same bytes. `written` are the cases that the code writes now, which must be in the newest file that has
    /// them, with these bytes. `decode` is given the name of the case too.
    ///
    /// # Panics
    /// If a case differs, or a variant has none.
    pub fn check(&self, written: &[(&str, Vec<u8>)], decode: impl Fn(&str, &[u8]) -> Decoded) {
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            self.add(written, &decode);
        }
        self.verify(written, decode);
    }

    fn verify(&self, written: &[(&str, Vec<u8>)], decode: impl Fn(&str, &[u8]) -> Decoded) {
        let levels = self.levels();
        let newest: BTreeMap<_, _> = levels.iter().flat_map(|path| cases(path)).collect();
        for (name, bytes) in written {
            let case = newest.get(*name).unwrap_or_else(|| {
                panic!("{}: no bytes of `{name}` (UPDATE_GOLDEN=1 adds them)", self.format);
            });
            assert_eq!(written_form(bytes), case.0, "{}: `{name}` is written in another way", self.format);
        }
        let mut found = BTreeSet::new();
        for path in &levels {
            let at = path.display();
            for (name, (bytes, shown)) in &cases(path) {
                let decoded = decode(name, &bytes_of(bytes));
                assert_eq!(decoded.shown, *shown, "{at}: `{name}` is read as something else");
                if let Some(encoded) = decoded.encoded {
                    assert_eq!(
                        written_form(&encoded),
                        *bytes,
                        "{at}: `{name}` is written in another way than it was read"
                    );
                }
                found.extend(decoded.kinds);
            }
        }
        let all: BTreeSet<&str> = self.kinds.iter().flat_map(|kinds| kinds.iter().copied()).collect();
        assert_eq!(found, all, "{}: every variant has golden bytes", self.format);
    }

    /// The files of all levels that have one.
    fn levels(&self) -> Vec<PathBuf> {
        (1..=self.level).map(|level| self.path(level)).filter(|path| path.exists()).collect()
    }

    fn path(&self, level: u32) -> PathBuf {
        crate::crate_folder().join(format!("testdata/level-{level}/{}.txt", self.format))
    }

    /// Adds the cases that the newest file lacks.
    fn add(&self, written: &[(&str, Vec<u8>)], decode: &impl Fn(&str, &[u8]) -> Decoded) {
        let path = self.levels().pop().unwrap_or_else(|| self.path(1));
        let known: BTreeMap<_, _> = self.levels().iter().flat_map(|path| cases(path)).collect();
        let mut text = String::new();
        for (name, bytes) in written.iter().filter(|(name, _)| !known.contains_key(*name)) {
            let _ = writeln!(
                text,
                "{name} = {}\n    {}\n",
                written_form(bytes),
                decode(name, bytes).shown.replace('\n', "\n    ")
            );
        }
        std::fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder can be made");
        let mut file =
            std::fs::File::options().append(true).create(true).open(path).expect("a file that can be written");
        file.write_all(text.as_bytes()).expect("the file can be written");
    }
}

/// The cases of a file: name, bytes and meaning.
fn cases(path: &Path) -> BTreeMap<String, (String, String)> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut found = BTreeMap::new();
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let (head, shown) = paragraph.split_once('\n').expect("a paragraph has a line about the meaning");
        let (name, bytes) = head.split_once(" =").expect("a paragraph begins with a name and bytes");
        let lines: Vec<&str> = shown.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
        let before = found.insert(name.to_owned(), (bytes.trim().to_owned(), lines.join("\n")));
        assert!(before.is_none(), "two cases are called `{name}`");
    }
    found
}

/// JSON as it is, all other bytes in hexadecimal digits.
fn written_form(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.starts_with(JSON) && !text.contains(char::is_control) => text.to_owned(),
        _ => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

fn bytes_of(written: &str) -> Vec<u8> {
    if written.starts_with(JSON) {
        return written.as_bytes().to_vec();
    }
    let digit = |digit: char| digit.to_digit(16).expect("a hexadecimal digit") as u8;
    let digits: Vec<u8> = written.chars().map(digit).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// How JSON begins.
const JSON: [char; 3] = ['{', '[', '"'];

#[cfg(test)]
mod tests {
    use super::*;

    enum Shape {
        Point,
        Line { _length: u8 },
    }

    kinds!(SHAPES, shape(Shape): Point, Line);

    fn decode(_: &str, bytes: &[u8]) -> Decoded {
        let value = if bytes == [0] { Shape::Point } else { Shape::Line { _length: bytes[1] } };
        Decoded { kinds: vec![shape(&value)], shown: format!("{bytes:?}"), encoded: Some(bytes.to_vec()) }
    }

    const GOLDEN: Golden<'_> = Golden { level: 7, format: "shapes", kinds: &[SHAPES] };

    #[test]
    fn the_bytes_of_every_level_hold() {
        GOLDEN.verify(&[("point", vec![0]), ("line", vec![1, 9])], decode);
        assert_eq!(GOLDEN.levels().len(), 2);
    }

    #[test]
    #[should_panic(expected = "`square` is written in another way")]
    fn what_is_written_now_has_the_bytes_of_the_newest_level() {
        GOLDEN.verify(&[("square", vec![1, 3])], decode);
    }

    #[test]
    #[should_panic(expected = "every variant has golden bytes")]
    fn a_variant_without_bytes_is_found() {
        GOLDEN.verify(&[], |name, bytes| Decoded { kinds: vec![SHAPES[0]], ..decode(name, bytes) });
    }

    #[test]
    #[should_panic(expected = "`line` is written in another way")]
    fn changed_bytes_are_found() {
        GOLDEN.verify(&[("line", vec![1, 8])], decode);
    }

    #[test]
    #[should_panic(expected = "`point` is read as something else")]
    fn a_changed_meaning_is_found() {
        GOLDEN.verify(&[], |name, bytes| Decoded { shown: "[]".to_owned(), ..decode(name, bytes) });
    }

    #[test]
    #[should_panic(expected = "`point` is written in another way than it was read")]
    fn what_is_encoded_to_other_bytes_is_found() {
        GOLDEN.verify(&[], |name, bytes| Decoded { encoded: Some(vec![]), ..decode(name, bytes) });
    }

    #[test]
    #[should_panic(expected = "no bytes of `circle`")]
    fn a_case_without_bytes_is_found() {
        GOLDEN.verify(&[("circle", vec![2])], decode);
    }
}
