//! The conformance table of `docs/cql.md`, made from the golden scripts.
//!
//! A line `---- feature: <name> | <dialects>` (in the scripts of `ddl`: `-- feature: …`) begins a feature; the
//! statements up to the next such line show it. The results below them are the engine's, which the tests of the scripts
//! verify, so the table is true: a feature whose every statement is refused counts as missing, one with a successful
//! statement as present. `UPDATE_GOLDEN=1` rewrites the table, after the scripts.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

const BEGIN: &str = "<!-- conformance table: made by the tests of crates/query, UPDATE_GOLDEN=1 rewrites it -->";
const END: &str = "<!-- end of the conformance table -->";

/// One feature, as a script shows it.
struct Feature {
    name: String,
    is_cassandra: bool,
    is_ycql: bool,
    statements: usize,
    refused: usize,
}

/// Where scripts are, how a remark begins there, and an error.
const FOLDERS: [(&str, &str, &str); 2] =
    [("src/ddl/scripts", "-- feature: ", "--> "), ("src/testing/scripts", "---- feature: ", "-- ")];

const ERRORS: [&str; 6] =
    ["Invalid: ", "SyntaxError: ", "ConfigError: ", "Unauthorized: ", "FunctionFailure: ", "AlreadyExists: "];

fn features(script: &str, remark: &str, result: &str) -> Vec<Feature> {
    let mut features: Vec<Feature> = Vec::new();
    let remark_of_any_kind = remark.trim_end_matches("feature: ");
    let mut is_open = false;
    for line in script.lines() {
        if let Some(tag) = line.strip_prefix(remark) {
            let (name, dialects) =
                tag.split_once(" |").unwrap_or_else(|| panic!("a feature names its dialects: {tag}"));
            let dialects: Vec<&str> =
                dialects.split(',').map(str::trim).filter(|dialect| !dialect.is_empty()).collect();
            assert!(dialects.iter().all(|dialect| ["cassandra", "ycql"].contains(dialect)), "unknown dialect: {tag}");
            features.push(Feature {
                name: name.trim().to_owned(),
                is_cassandra: dialects.contains(&"cassandra"),
                is_ycql: dialects.contains(&"ycql"),
                statements: 0,
                refused: 0,
            });
            is_open = true;
        } else if line.starts_with(remark_of_any_kind) && !line.starts_with(result) {
            is_open = false;
        } else if let Some(last) = features.last_mut().filter(|_| is_open) {
            let is_error = |line: &str| ERRORS.iter().any(|error| line.starts_with(error));
            if line.strip_prefix(result).is_some_and(is_error) {
                last.refused += 1;
            } else if line.ends_with(';') && !line.starts_with('|') {
                last.statements += 1;
            }
        }
    }
    features
}

fn table() -> String {
    let root = diorite_golden::crate_folder();
    let mut scripts: BTreeMap<String, Vec<Feature>> = BTreeMap::new();
    for (folder, remark, result) in FOLDERS {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().replace('_', " ");
            let found = features(&std::fs::read_to_string(&path).unwrap(), remark, result);
            if !found.is_empty() {
                scripts.entry(name).or_default().extend(found);
            }
        }
    }
    let mut out = String::new();
    let _ = writeln!(out, "| feature | Cassandra 5 | YCQL | Diorite | shown by |");
    let _ = writeln!(out, "|---|---|---|---|---|");
    let known = |is_known: bool| if is_known { "yes" } else { "–" };
    for (script, features) in &scripts {
        for feature in features {
            assert!(feature.statements > 0, "no statement shows the feature {}", feature.name);
            let there = if feature.refused >= feature.statements { "**refused by name**" } else { "yes" };
            let name = feature.name.replace('|', "\\|");
            let (cassandra, ycql) = (known(feature.is_cassandra), known(feature.is_ycql));
            let _ = writeln!(out, "| {name} | {cassandra} | {ycql} | {there} | `{}` |", script.replace(' ', "_"));
        }
    }
    out
}

#[test]
fn the_conformance_table_says_what_the_scripts_show() {
    let path: PathBuf = diorite_golden::crate_folder().join("../../docs/cql.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = document.split_once(BEGIN).expect("docs/cql.md has a place for the table");
    let (found, after) = rest.split_once(END).expect("the table ends");
    let wanted = format!("\n\n{}\n", table());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, [before, BEGIN, &wanted, END, after].concat()).unwrap();
    } else {
        assert!(found == wanted, "the table of docs/cql.md is not what the scripts show: run with UPDATE_GOLDEN=1");
    }
}

#[test]
fn a_feature_is_there_if_one_of_its_statements_is() {
    let script = "---- feature: a | cassandra\nSELECT 1;\n-- Invalid: no\nSELECT 2;\n---- feature: b | ycql\nSELECT 3;\n\
                  -- Invalid: no\n---- remark\nSELECT 4;\n";
    let found = features(script, FOLDERS[1].1, FOLDERS[1].2);
    let shown: Vec<_> =
        found.iter().map(|feature| (feature.name.as_str(), feature.statements, feature.refused)).collect();
    assert_eq!(shown, [("a", 2, 1), ("b", 1, 1)]);
}
