//! Golden scripts (`scripts/*.cql`): statements end with `;` at the end of a line; their results are below them as
//! comments. A line `-- advance 10` moves the clock by seconds. `UPDATE_GOLDEN=1` rewrites the scripts.

use super::{Database, rendered_rows};
use diorite_cql::protocol::client::ClientResponse;
use std::fmt::Write;

fn outcome(database: &Database, statement: &str) -> String {
    let mut out = String::new();
    match database.run(statement) {
        Err(error) => {
            let _ = writeln!(out, "-- {:?}: {}", error.code(), error.message);
        }
        Ok(ClientResponse::Rows(rows)) => {
            if rows.rows.is_empty() {
                let names: Vec<&str> = rows.metadata.columns.iter().map(|column| column.name.as_str()).collect();
                let _ = writeln!(out, "-- no rows of {}", names.join(", "));
            }
            for row in rendered_rows(&rows) {
                let _ = writeln!(out, "-- {row}");
            }
        }
        Ok(_) => {}
    }
    out
}

fn replay(script: &str) -> String {
    let database = Database::with_keyspace();
    let (mut out, mut statement) = (String::new(), String::new());
    for line in script.lines() {
        if let Some(seconds) = line.strip_prefix("-- advance ") {
            database.kv.advance_s(seconds.parse().unwrap());
            let _ = writeln!(out, "{line}");
            continue;
        }
        // Results are made anew; remarks have two more dashes.
        if line.starts_with("-- ") {
            continue;
        }
        let _ = writeln!(out, "{line}");
        if line.starts_with("---- ") || line.is_empty() {
            continue;
        }
        statement.push_str(line);
        statement.push('\n');
        let last = match statement.split_whitespace().next() {
            Some("BEGIN") if statement.starts_with("BEGIN TRANSACTION") => "TRANSACTION;",
            Some("BEGIN") => "APPLY BATCH;",
            Some("START") => "COMMIT;",
            _ => ";",
        };
        if line.ends_with(last) {
            out.push_str(&outcome(&database, &statement));
            statement.clear();
        }
    }
    out
}

#[test]
fn scripts_give_what_they_say() {
    let folder = diorite_golden::crate_folder().join("src/testing/scripts");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    let mut wrong = String::new();
    for path in paths {
        let script = std::fs::read_to_string(&path).unwrap();
        let replayed = replay(&script);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &replayed).unwrap();
        } else if replayed != script {
            let first = replayed.lines().zip(script.lines()).find(|(now, before)| now != before);
            let _ = writeln!(wrong, "{}: first difference (now, before): {first:?}", path.display());
        }
    }
    assert!(wrong.is_empty(), "{wrong}run with UPDATE_GOLDEN=1 and look at the difference");
}
