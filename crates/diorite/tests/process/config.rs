//! A node that takes its options from a file and from the environment.

use crate::server::{Server, get, wait_for};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn diorite(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_diorite")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn json(server: &Server, path: &str) -> Value {
    serde_json::from_str(&get(&server.address, path).unwrap()).unwrap()
}

#[test]
fn a_file_is_read_checked_and_read_again() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("diorite.toml");
    let path = file.to_str().unwrap();
    let write = |slow_query: &str| {
        let text = format!("tablets-per-node = 3\ncluster-name = \"of the file\"\nslow-query = \"{slow_query}\"\n");
        std::fs::write(&file, text).unwrap();
    };
    write("1000ms");
    let server = Server::start(&home.path().join("data"), &["--config", path, "--cluster-name", "of the command line"]);
    let options = json(&server, "/api/v1/config");
    assert_eq!((&options["tablets_per_node"], &options["cluster_name"]), (&3.into(), &"of the command line".into()));
    let slow_query = || json(&server, "/api/v1/logging")["slow_query"].as_str().map(str::to_owned);
    assert_eq!(slow_query().as_deref(), Some("1000ms"));
    let read_again = || {
        let id = server.process_id().to_string();
        assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
    };
    write("not a time");
    read_again();
    write("2000ms");
    read_again();
    wait_for("the threshold of the file is in force", || slow_query().as_deref() == Some("2000ms"));
    assert!(server.stop().success());
}

#[test]
fn a_file_that_is_wrong_is_told_by_name_and_starts_nothing() {
    let home = tempfile::tempdir().unwrap();
    let (file, data) = (home.path().join("diorite.toml"), home.path().join("data"));
    let path = file.to_str().unwrap();
    let check = |text: &str, arguments: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let output = diorite(arguments);
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code(), said)
    };
    let good = format!("data-dir = {:?}\nauth = true\n", data.display().to_string());
    let (code, said) = check(&good, &["config", "check", "--config", path, "--json"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["auth"], Value::Bool(true));
    for arguments in [&["config", "check", "--config", path][..], &["start", "--config", path]] {
        let (code, said) = check(&format!("{good}cql_port = 9\n"), arguments);
        assert_eq!(code, Some(1));
        assert_eq!(said, format!("diorite: {path}: there is no option 'cql_port'; it is called 'cql-port'\n"));
    }
    assert!(!Path::new(&data).exists());
}
