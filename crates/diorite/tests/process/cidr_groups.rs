//! Groups of networks from which roles may connect: operators change them, and open connections feel it.

use crate::client::Client;
use crate::server::{Server, TIMEOUT, get, wait_for};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

/// `diorite admin cidr-groups` as a role, whose password is the same for all.
fn admin(server: &Server, role: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diorite"));
    command.args(["admin", "--host", &server.address, "--user", role, "cidr-groups"]).args(arguments);
    command.env("DIORITE_PASSWORD", "sesame").output().unwrap()
}

fn done(server: &Server, arguments: &[&str]) -> String {
    let output = admin(server, "root", arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(server: &Server, role: &str, arguments: &[&str]) -> String {
    let output = admin(server, role, arguments);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A node that asks for passwords, and whose audit log is in a file; its superuser `root`, and `ops`, who may change
/// settings.
fn guarded(home: &Path, audit: &Path) -> (Server, Client) {
    let server = Server::start(home, &["--auth", "--audit", &audit.display().to_string()]);
    wait_for("there is no first role", || Client::log_in(&server.address, "cassandra", "cassandra").is_ok());
    let mut first = Client::log_in(&server.address, "cassandra", "cassandra").unwrap();
    first.run("ALTER ROLE cassandra WITH PASSWORD = 'changed'");
    first.run("CREATE ROLE root WITH PASSWORD = 'sesame' AND LOGIN = true AND SUPERUSER = true");
    first.run("CREATE ROLE ops WITH PASSWORD = 'sesame' AND LOGIN = true");
    for permission in ["ALTER", "DESCRIBE"] {
        first.run(&format!("GRANT {permission} ON ALL KEYSPACES TO ops"));
    }
    (server, first)
}

fn can_log_in(server: &Server, role: &str) -> bool {
    Client::log_in(&server.address, role, "sesame").is_ok()
}

/// The connection ends, whatever is asked on it.
fn ends(client: &mut Client) {
    let begun = Instant::now();
    while client.try_query("SELECT key FROM system.local").is_ok() {
        assert!(begun.elapsed() < TIMEOUT, "the connection goes on");
    }
}

/// Whether the audit log has an operation.
fn was_logged(audit: &Path, what: &str, outcome: &str, role: &str) -> bool {
    let text = std::fs::read_to_string(audit).unwrap();
    text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).any(|entry| {
        entry["category"] == "operations"
            && (&entry["what"], &entry["outcome"], &entry["role"]) == (&json!(what), &json!(outcome), &json!(role))
    })
}

#[test]
fn roles_connect_from_groups_that_operators_change() {
    let (home, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let audit = logs.path().join("audit");
    let (server, mut superuser) = guarded(home.path(), &audit);
    let unknown =
        "CREATE ROLE ann WITH PASSWORD = 'sesame' AND LOGIN = true AND ACCESS FROM CIDRS {'here', '10.0.0.0/8'}";
    let error = superuser.query(unknown).unwrap_err();
    assert_eq!(error.message, "Invalid CIDR group(s): [here]. Available CIDR Groups are: []");
    assert!(done(&server, &["set", "here", "127.0.0.0/8", "::1/128"]).contains("CIDR group here has 2 networks"));
    done(&server, &["set", "far", "10.0.0.0/8"]);
    superuser.run(unknown);
    let mut ann = Client::log_in(&server.address, "ann", "sesame").unwrap();
    ann.run("SELECT key FROM system.local");
    done(&server, &["set", "far", "10.0.0.0/8", "172.16.0.0/12"]);
    ann.run("SELECT key FROM system.local");

    let listed: Value = serde_json::from_str(&done(&server, &["list", "--json"])).unwrap();
    let expected = json!([
        {"name": "far", "cidrs": ["10.0.0.0/8", "172.16.0.0/12"], "roles": []},
        {"name": "here", "cidrs": ["127.0.0.0/8", "::1/128"], "roles": ["ann"]},
    ]);
    assert_eq!(listed, expected);
    for (table, rows) in [("cidr_groups", 2), ("cidr_permissions", 1)] {
        assert_eq!(superuser.run(&format!("SELECT * FROM system_auth.{table}")).rows.len(), rows, "{table}");
    }

    // A group that a role names stays; others see the reason, and what is no network or no name.
    let said = refused(&server, "root", &["drop", "here"]);
    assert!(said.contains("CIDR group here is used by roles: ann"), "{said}");
    for (arguments, reason) in [
        (&["drop", "nowhere"][..], "there is no CIDR group 'nowhere'"),
        (&["set", "far", "10.0.0.1/8"], "'10.0.0.1/8' is no network"),
        (&["set", "a/b", "10.0.0.0/8"], "the name of a CIDR group"),
    ] {
        let said = refused(&server, "root", arguments);
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
    // Whoever changes them decides who gets in.
    assert!(refused(&server, "ops", &["set", "far", "10.0.0.0/8"]).contains("ops is not a superuser"));
    assert!(admin(&server, "ops", &["list"]).status.success());
    assert_eq!(get(&server.address, "/api/v1/cidr-groups"), None);

    // A longer network in another group takes the address away.
    done(&server, &["set", "far", "10.0.0.0/8", "127.0.0.0/9"]);
    ends(&mut ann);
    assert!(!can_log_in(&server, "ann"));
    done(&server, &["set", "far", "10.0.0.0/8"]);
    let mut ann = Client::log_in(&server.address, "ann", "sesame").unwrap();
    done(&server, &["set", "here", "10.1.0.0/16"]);
    ends(&mut ann);
    assert!(!can_log_in(&server, "ann"));
    superuser.run("ALTER ROLE ann WITH ACCESS FROM CIDRS {'127.0.0.0/8'}");
    assert!(can_log_in(&server, "ann"));
    done(&server, &["drop", "here"]);

    assert!(server.stop().success());
    for (path, outcome, role) in [
        ("here", "done", "root"),
        ("here/drop", "failed", "root"),
        ("here/drop", "done", "root"),
        ("far", "refused", "ops"),
    ] {
        assert!(was_logged(&audit, &format!("POST /api/v1/cidr-groups/{path}"), outcome, role), "{path} {outcome}");
    }
    // They are stored.
    let again = Server::start(home.path(), &["--auth"]);
    assert!(done(&again, &["list"]).contains("10.0.0.0/8"));
    assert!(again.stop().success());
}
