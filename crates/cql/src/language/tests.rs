//! Tests of the language as a whole: golden scripts, properties and limits.
//!
//! A golden script (`golden/*.txt`) is a list of cases, each a block of lines with an empty line after it: the
//! statement, then its results. `=> ` is its canonical form, `=: ` its markers, `=# ` its tree (only if the first line
//! of the case is `@tree`), `=! ` the error. Blocks of lines that start with `# ` are comments. With `UPDATE_GOLDEN=1`
//! the scripts are rewritten; review the difference.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod properties;

use super::ast::Parsed;
use super::{MAX_DEPTH, ParseErrorKind, format, parse};
use std::path::PathBuf;
use std::sync::LazyLock;

fn scripts() -> Vec<PathBuf> {
    let directory = diorite_seeds::crate_folder().join("src/language/golden");
    let mut scripts: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.sort();
    scripts
}

/// The statements of all golden scripts, good and bad.
static STATEMENTS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut statements = Vec::new();
    for script in scripts() {
        let text = std::fs::read_to_string(script).unwrap();
        let blocks = text.split("\n\n").filter(|block| !block.starts_with("# ") && !block.trim().is_empty());
        statements.extend(blocks.map(|block| input_of(block).0));
    }
    statements
});

/// The statement of a case, and whether its tree is to be shown.
fn input_of(block: &str) -> (String, bool) {
    let (tree, block) = match block.trim_start_matches('\n').strip_prefix("@tree\n") {
        Some(rest) => (true, rest),
        None => (false, block.trim_start_matches('\n')),
    };
    let is_output = |line: &&str| ["=> ", "=: ", "=# ", "=! "].iter().any(|prefix| line.starts_with(prefix));
    (block.lines().take_while(|line| !is_output(line)).collect::<Vec<_>>().join("\n"), tree)
}

/// A case as it should be.
fn render(block: &str) -> String {
    let (input, tree) = input_of(block);
    let mut result = if tree { format!("@tree\n{input}\n") } else { format!("{input}\n") };
    match parse(&input) {
        Err(error) => {
            let kind = if error.kind == ParseErrorKind::Invalid { "invalid: " } else { "" };
            result.push_str(&format!("=! {kind}{error}\n"));
        }
        Ok(parsed) => {
            result.push_str(&format!("=> {}\n", round_trip(&parsed)));
            if !parsed.markers.is_empty() {
                let names: Vec<&str> = parsed.markers.iter().map(|name| name.as_deref().unwrap_or("?")).collect();
                result.push_str(&format!("=: {}\n", names.join(" ")));
            }
            if tree {
                result.push_str(&format!("=# {:?}\n", parsed.statement));
            }
        }
    }
    result
}

/// The canonical text of a tree, checked to give the same tree and the same text again.
fn round_trip(parsed: &Parsed) -> String {
    let text = format::format(parsed);
    let again = parse(&text).unwrap_or_else(|error| panic!("{error} in {text}"));
    assert_eq!(again, *parsed, "{text}");
    assert_eq!(format::format(&again), text);
    text
}

#[test]
fn golden_scripts_hold() {
    for script in scripts() {
        let text = std::fs::read_to_string(&script).unwrap();
        let blocks: Vec<String> = text
            .split("\n\n")
            .map(|block| block.trim_matches('\n'))
            .filter(|block| !block.is_empty())
            .map(|block| if block.starts_with("# ") { format!("{block}\n") } else { render(block) })
            .collect();
        let expected = blocks.join("\n");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&script, expected).unwrap();
        } else {
            for (found, expected) in text.split("\n\n").zip(expected.split("\n\n")) {
                assert_eq!(found.trim(), expected.trim(), "in {}", script.display());
            }
            assert_eq!(text, expected, "{}", script.display());
        }
    }
}

#[test]
fn nesting_is_bounded_everywhere() {
    let repeated = |open: &str, middle: &str, close: &str, count: usize| {
        format!("{}{middle}{}", open.repeat(count), close.repeat(count))
    };
    let bombs: Vec<Box<dyn Fn(usize) -> String>> = vec![
        Box::new(move |count| format!("INSERT INTO t (a) VALUES ({})", repeated("(", "1", ")", count))),
        Box::new(move |count| format!("INSERT INTO t (a) VALUES ({})", repeated("[", "1", "]", count))),
        Box::new(move |count| format!("INSERT INTO t (a) VALUES ({})", repeated("{1:", "1", "}", count))),
        Box::new(move |count| format!("INSERT INTO t (a) VALUES ({})", repeated("{f:", "1", "}", count))),
        Box::new(move |count| format!("INSERT INTO t (a) VALUES ({})", repeated("(int) ", "1", "", count))),
        Box::new(move |count| format!("INSERT INTO t (a) VALUES ({})", repeated("f(", "", ")", count))),
        Box::new(move |count| format!("INSERT INTO t (a) VALUES ({}1)", "1 + ".repeat(count))),
        Box::new(move |count| format!("INSERT INTO t (a) VALUES ({}1)", "1 * ".repeat(count))),
        Box::new(move |count| format!("INSERT INTO t (a) VALUES ({}1)", "- ".repeat(count))),
        Box::new(move |count| format!("SELECT {} FROM t", repeated("(", "a", ")", count))),
        Box::new(move |count| format!("SELECT a{} FROM t", "[1]".repeat(count))),
        Box::new(move |count| format!("SELECT a{} FROM t", ".f".repeat(count))),
        Box::new(move |count| format!("SELECT {} FROM t", repeated("CAST(", "a", " AS int)", count))),
        Box::new(move |count| format!("SELECT a FROM t WHERE {}", repeated("(", "a = 1", ")", count))),
        Box::new(move |count| format!("SELECT a FROM t IF {}a = 1", "NOT ".repeat(count))),
        Box::new(move |count| format!("SELECT a FROM t IF {}", repeated("(", "a = 1 OR b = 2", ")", count))),
        Box::new(move |count| format!("CREATE TABLE t (a {} PRIMARY KEY)", repeated("list<", "int", ">", count))),
        Box::new(move |count| format!("SELECT ({}) a FROM t", repeated("frozen<", "int", ">", count))),
    ];
    for bomb in bombs {
        let shallow = bomb(MAX_DEPTH / 2 - 2);
        assert!(parse(&shallow).is_ok(), "{:?} {shallow}", parse(&shallow));
        for count in [MAX_DEPTH, MAX_DEPTH + 1, 100_000] {
            let error = parse(&bomb(count + 1)).expect_err("too deep");
            assert!(error.to_string().starts_with("line 1:"), "{error}");
        }
    }
}

#[test]
fn markers_are_bounded() {
    let text = |count: usize| format!("SELECT a FROM t WHERE a IN ({}?)", "?,".repeat(count - 1));
    assert_eq!(parse(&text(65_535)).unwrap().markers.len(), 65_535);
    let error = parse(&text(65_536)).unwrap_err();
    assert_eq!(error.kind, ParseErrorKind::Invalid);
    assert!(
        error.message.contains("Too many markers(?). 65536 markers exceed the allowed maximum of 65535"),
        "{error}"
    );
}

#[test]
fn positions_count_lines_and_characters() {
    let error = parse("SELECT 'é'\n  , a\n\tFROM ü").unwrap_err();
    assert_eq!((error.line, error.column), (3, 6));
    assert_eq!(error.to_string(), "line 3:6 unknown character at input 'ü'");
    let error = parse(&format!("SELECT '{}", "x".repeat(1_000))).unwrap_err();
    assert!(error.to_string().len() < 150, "{error}");
}

#[test]
fn identifiers_and_strings_are_quoted_only_where_needed() {
    for plain in ["a", "a_1", "key", "type", "timestamp", "json"] {
        assert_eq!(format::quote_identifier(plain), plain);
    }
    for (name, quoted) in [
        ("", "\"\""),
        ("A", "\"A\""),
        ("1a", "\"1a\""),
        ("select", "\"select\""),
        ("token", "\"token\""),
        ("a b", "\"a b\""),
        ("a\"b", "\"a\"\"b\""),
        ("é", "\"é\""),
    ] {
        assert_eq!(format::quote_identifier(name), quoted);
    }
    assert_eq!(format::quote_string("it's"), "'it''s'");
}
