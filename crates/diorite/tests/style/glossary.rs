//! One word for each idea: `docs/glossary.md` names the project's terms and, after `Not:`, the words that they replace.
//!
//! Documents contain none of the retired words. Code still contains some: `retired_words.txt` lists how often, as
//! `crate count phrase`. A count may only shrink, and the list follows it: `UPDATE_GOLDEN=1` lowers the counts, never
//! raises them. Names and comments are read alike: `make_way` and `MakeWay` are the words "make way".
//! Left out: words whose retired meaning no pattern can tell from a proper one (`token` of a completion, `close`), and names in
//! formats, which stay as they are: what stands in `#[serde(rename = …)]` and its like.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::documents::prose;
use crate::{committed_files, expect_none, read, root};

const GLOSSARY: &str = "docs/glossary.md";
const LIST: &str = "crates/diorite/tests/style/retired_words.txt";
const DOCUMENTS_ONLY: &str = "## Refused in documents only";

/// A mark between words that belong to different clauses, so that no phrase is found across them.
const CLAUSE_END: &str = "";

/// A term of the glossary.
struct Term {
    name: String,
    places: Vec<String>,
    retired: Vec<String>,
    documents_only: bool,
}

/// What stands in backquotes.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn term(item: &str, documents_only: bool) -> Term {
    let (text, retired) = item.split_once(" Not: ").unwrap_or((item, ""));
    let (_, places) = text.split_once(" In: ").unwrap_or((text, ""));
    let name = item.split("**").nth(1).unwrap_or_default().to_owned();
    Term { name, places: quoted(places), retired: quoted(retired), documents_only }
}

/// The items of the glossary's lists, each with its continuation lines.
fn terms() -> Vec<Term> {
    let text = read(GLOSSARY);
    let (common, documents_only) = text.split_once(DOCUMENTS_ONLY).expect("the glossary has a section for documents");
    let items = |part: &str, documents_only| -> Vec<Term> {
        let mut items: Vec<String> = Vec::new();
        for line in part.lines() {
            if line.starts_with("* ") {
                items.push(line.to_owned());
            } else if let (Some(rest), Some(item)) = (line.strip_prefix("  "), items.last_mut()) {
                item.push(' ');
                item.push_str(rest);
            }
        }
        items.iter().map(|item| term(item, documents_only)).collect()
    };
    items(common, false).into_iter().chain(items(documents_only, true)).collect()
}

/// The words of a text in lower case, names taken apart, with a mark where a clause ends.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut previous = ' ';
    for c in text.chars() {
        if !c.is_alphabetic() || (c.is_uppercase() && previous.is_lowercase()) {
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            if ".,;:`|()[]{}<>=+?\"".contains(c) && words.last().is_some_and(|last| last != CLAUSE_END) {
                words.push(CLAUSE_END.to_owned());
            }
        }
        if c.is_alphabetic() {
            word.extend(c.to_lowercase());
        }
        previous = c;
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

/// Code without the names that it gives its fields and variants in formats: what is quoted in attributes of serde.
fn without_stored_names(code: &str) -> String {
    let shown = |line: &str| match line.trim_start().starts_with("#[serde(") {
        true => line.split('"').step_by(2).collect::<Vec<_>>().join("\""),
        false => line.to_owned(),
    };
    code.split_inclusive('\n').map(shown).collect()
}

/// Whether `word` is what `pattern` asks for; a pattern that ends in `*` asks for a beginning.
fn is_match(pattern: &str, word: &str) -> bool {
    pattern.strip_suffix('*').map_or(word == pattern, |beginning| word.starts_with(beginning))
}

/// How often each phrase occurs, by its place in `phrases`.
fn occurrences(phrases: &[Vec<String>], words: &[String]) -> Vec<usize> {
    let mut counts = vec![0; phrases.len()];
    for start in 0..words.len() {
        for (phrase, count) in phrases.iter().zip(&mut counts) {
            let window = words.get(start..start + phrase.len());
            let found = window.is_some_and(|window| phrase.iter().zip(window).all(|(p, word)| is_match(p, word)));
            *count += usize::from(found);
        }
    }
    counts
}

/// The retired phrases, as written and as words.
fn phrases(also_documents_only: bool) -> (Vec<String>, Vec<Vec<String>>) {
    let written: Vec<String> = terms()
        .into_iter()
        .filter(|term| also_documents_only || !term.documents_only)
        .flat_map(|term| term.retired)
        .collect();
    let apart = written.iter().map(|phrase| phrase.split([' ', '-']).map(str::to_owned).collect()).collect();
    (written, apart)
}

#[test]
fn documents_use_no_retired_word() {
    let (written, phrases) = phrases(true);
    let mut findings = Vec::new();
    for path in committed_files().into_iter().filter(|path| path.ends_with(".md")) {
        let text: String = prose(&read(&path)).into_iter().fold(String::new(), |text, (_, line)| text + &line + "\n");
        let counts = occurrences(&phrases, &words(&text));
        for (phrase, count) in written.iter().zip(counts).filter(|(_, count)| *count > 0) {
            findings.push(format!("{path}: {phrase} ({count})"));
        }
    }
    expect_none("retired words in documents (docs/glossary.md says what to write instead):", &findings);
}

/// Crate and phrase, and how often the one contains the other.
type Counts = BTreeMap<(String, String), usize>;

fn counts_in_code() -> Counts {
    let (written, phrases) = phrases(false);
    let mut counts = Counts::new();
    for path in committed_files() {
        let Some((name, _)) = path.strip_prefix("crates/").and_then(|rest| rest.split_once('/')) else { continue };
        if !path.ends_with(".rs") || path.ends_with("tests/style/glossary.rs") {
            continue;
        }
        for (phrase, count) in written.iter().zip(occurrences(&phrases, &words(&without_stored_names(&read(&path))))) {
            *counts.entry((name.to_owned(), phrase.clone())).or_default() += count;
        }
    }
    counts.retain(|_, count| *count > 0);
    counts
}

fn listed() -> Counts {
    let line = |line: &str| {
        let mut fields = line.splitn(3, ' ');
        let mut next = || fields.next().unwrap_or_else(|| panic!("{LIST}: {line}: `crate count phrase`"));
        let (name, count, phrase) = (next(), next(), next());
        ((name.to_owned(), phrase.to_owned()), count.parse().unwrap_or_else(|_| panic!("{LIST}: {line}: no count")))
    };
    read(LIST).lines().map(line).collect()
}

#[test]
fn retired_words_in_code_only_become_fewer() {
    let (found, listed) = (counts_in_code(), listed());
    let allowed = |key: &(String, String)| listed.get(key).copied().unwrap_or(0);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let text = found.iter().fold(String::new(), |mut text, (key, count)| {
            let count = *count.min(&allowed(key));
            if count > 0 {
                writeln!(text, "{} {count} {}", key.0, key.1).unwrap();
            }
            text
        });
        std::fs::write(root().join(LIST), text).unwrap();
    }
    let more = found.iter().filter(|(key, count)| **count > allowed(key)).map(|(key, count)| {
        format!("crates/{}: `{}` {count} times, at most {}: see {GLOSSARY}", key.0, key.1, allowed(key))
    });
    expect_none("retired words that were added to code:", &more.collect::<Vec<_>>());
    let fewer = listed.iter().filter(|(key, count)| found.get(key).is_none_or(|found| found < count));
    let fewer: Vec<String> = fewer.map(|((name, phrase), count)| format!("{name} {count} {phrase}")).collect();
    let is_updated = std::env::var_os("UPDATE_GOLDEN").is_some();
    assert!(is_updated || fewer.is_empty(), "{LIST} allows more than there is; run with UPDATE_GOLDEN=1:\n{fewer:#?}");
}

#[test]
fn terms_are_defined_once_and_name_modules_that_exist() {
    let mut findings = Vec::new();
    let mut seen = BTreeMap::new();
    for term in terms() {
        if seen.insert(term.name.clone(), ()).is_some() && !term.documents_only {
            findings.push(format!("{}: defined twice", term.name));
        }
        for place in &term.places {
            let path = place.replacen("::", "/src/", 1).replace("::", "/");
            let exists =
                root().join(format!("crates/{path}.rs")).exists() || root().join("crates").join(&path).is_dir();
            findings.extend((!exists).then(|| format!("{}: no module {place}", term.name)));
        }
    }
    expect_none("terms of the glossary:", &findings);
}

#[test]
fn phrases_are_found_in_names_and_sentences_and_not_across_clauses() {
    let count =
        |phrase: &str, text: &str| occurrences(&[phrase.split(' ').map(str::to_owned).collect()], &words(text))[0];
    assert_eq!(count("make* way", "fn make_way() {} // it makes\n// way; MakeWay"), 3);
    assert_eq!(count("hand* over", "at hand. Over there, by hand (over), overhand"), 0);
    assert_eq!(count("pace", "workspace, namespace, pace_of"), 1);
    assert_eq!(
        without_stored_names("  #[serde(rename = \"pace\")]\n  rate: \"pace\""),
        "  #[serde(rename = \")]\n  rate: \"pace\""
    );
}
