//! `diorite certs` as a person runs it: what the documentation shows, and what goes wrong.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn certs(home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diorite"));
    command.arg("certs").args(arguments).current_dir(home).stdin(Stdio::null()).output().unwrap()
}

/// Its standard output; it succeeds.
fn done(home: &Path, arguments: &[&str]) -> String {
    let output = certs(home, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Its one line of error; it fails.
fn refused(home: &Path, arguments: &[&str]) -> String {
    let output = certs(home, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.matches('\n').count(), 1, "{said}");
    said
}

/// Every `diorite certs` command of the page, in its order and in one directory.
#[test]
fn the_commands_of_the_documentation_work() {
    let home = tempfile::tempdir().unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tls.md");
    let page = std::fs::read_to_string(page).unwrap();
    let commands: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("diorite certs ")).collect();
    for kind in ["init", "node", "client", "renew", "authority add", "authority remove", "show"] {
        assert!(commands.iter().any(|command| command.starts_with(kind)), "the page does not show {kind}");
    }
    for command in commands {
        done(home.path(), &command.split_whitespace().collect::<Vec<_>>());
    }
}

#[test]
fn certificates_are_made_and_shown() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    assert_eq!(done(home, &["init", "--dir", "c"]), "c/ca.pem\n");
    assert_eq!(done(home, &["node", "10.0.0.5", "db-1", "--dir", "c"]), "c/nodes/10.0.0.5\n");
    assert_eq!(done(home, &["client", "app", "--dir", "c", "--days", "30"]), "c/clients/app\n");
    let table = done(home, &["show", "--dir", "c"]);
    let line = |with: &str| table.lines().find(|line| line.contains(with)).unwrap();
    assert!(line("nodes/10.0.0.5/node.pem").contains("10.0.0.5, db-1"), "{table}");
    assert!(line("clients/app/client.pem").contains("client"), "{table}");
    let shown: Value = serde_json::from_str(&done(home, &["show", "--dir", "c", "--json"])).unwrap();
    let client = shown.as_array().unwrap().iter().find(|shown| shown["kind"] == "client").unwrap();
    assert_eq!(client["role"], "app");
    assert!(matches!(client["days_left"].as_i64(), Some(29 | 30)), "{client}");
    assert_eq!(done(home, &["renew", "--dir", "c", "--within", "60"]), "c/clients/app\n");
    assert_eq!(done(home, &["renew", "--dir", "c", "--within", "60"]), "no certificate has to be renewed\n");
    assert_eq!(done(home, &["renew", "10.0.0.5", "--dir", "c"]), "c/nodes/10.0.0.5\n");
}

#[test]
fn what_cannot_be_done_is_said_in_one_line() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    assert!(refused(home, &["show", "--dir", "c"]).contains("c: there are no certificates in it"));
    assert!(refused(home, &["node", "10.0.0.5", "--dir", "c"]).contains("c/ca.key: there is no authority's key"));
    assert!(!home.join("c").exists(), "nothing was made");
    done(home, &["init", "--dir", "c"]);
    assert!(refused(home, &["init", "--dir", "c"]).contains("c/ca.pem: it exists already; --overwrite replaces it"));
    done(home, &["node", "10.0.0.5", "--dir", "c"]);
    let said = refused(home, &["node", "10.0.0.5", "--dir", "c"]);
    assert!(said.contains("c/nodes/10.0.0.5/node.pem: it exists already"), "{said}");
    assert!(refused(home, &["client", "", "--dir", "c"]).contains("the name of a role is not empty"));
    assert!(refused(home, &["renew", "app", "--dir", "c"]).contains("there is no certificate of 'app'"));
    assert_eq!(certs(home, &["node", "10.0.0.5:7100", "--dir", "c"]).status.code(), Some(2), "no address");
    std::fs::write(home.join("c/ca.key"), "nothing").unwrap();
    assert!(refused(home, &["client", "app", "--dir", "c"]).contains("c/ca.key: "));
}
