//! A cluster of one node: every command of `diorite local`, and what it refuses.

use crate::client::{Client, count, make_table};
use crate::server::wait_for;
use crate::{Local, process_exists};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Stdio;

#[test]
fn a_cluster_is_started_looked_at_killed_started_stopped_and_destroyed() {
    let local = Local::fresh();
    let said = local.up(1, &["--", "--log-level", "info"]);
    assert!(said.contains("ready") && said.contains(&format!("cqlsh {}", local.first_address)), "{said}");
    let mut client = Client::connect(&local.first_address).unwrap();
    make_table(&mut client);
    client.run("INSERT INTO ks.t (k, v) VALUES ('a', 0x01)");

    let (pid, state) = local.node(1);
    let pid = pid.unwrap();
    assert_eq!(state, "ready");
    assert!(local.run(&["status"]).contains(&pid.to_string()));
    local.up(1, &[]);
    assert_eq!(local.node(1).0, Some(pid), "what runs is left alone");
    assert!(local.run(&["start", "1"]).contains("was running already"));

    assert_eq!(local.run(&["kill", "1"]), "node 1 is killed\n");
    assert!(!process_exists(pid));
    assert_eq!(local.node(1), (None, "stopped".to_owned()));
    assert_eq!(local.refusal(&["kill", "1"]), "diorite: node 1 is not running\n");

    assert_eq!(local.run(&["start", "1"]), "node 1 is started\n");
    assert_eq!(count(&mut Client::connect(&local.first_address).unwrap(), "ks.t"), 1, "its data is there");
    assert_eq!(local.run(&["stop"]), "node 1 is stopped\n");
    assert_eq!(local.run(&["stop", "1"]), "node 1 was not running\n");
    let log = local.run(&["logs", "1"]);
    assert!(log.matches("ready").count() >= 2 && log.contains("stopped"), "the log goes on over restarts: {log}");
    assert_eq!(local.run(&["logs", "1", "--lines", "1"]).lines().count(), 1);

    local.up(1, &[]);
    let pid = local.node(1).0.unwrap();
    assert!(local.refusal(&["destroy"]).contains("--yes"));
    assert_eq!(local.run(&["destroy", "--yes"]), "the cluster is destroyed\n");
    assert!(!process_exists(pid) && !local.directory().exists());
    assert!(local.refusal(&["status"]).contains("no local cluster"));
}

#[test]
fn a_paused_node_is_seen_as_such_and_goes_on() {
    let local = Local::fresh();
    local.up(1, &[]);
    local.run(&["pause", "1"]);
    assert_eq!(local.node(1).1, "paused");
    local.run(&["resume", "1"]);
    wait_for("the node goes on", || local.node(1).1 == "ready");
    local.run(&["pause", "1"]);
    assert_eq!(local.run(&["stop", "1"]), "node 1 is stopped\n", "a paused node can be stopped");
}

#[test]
fn the_log_is_followed_while_it_grows() {
    let local = Local::fresh();
    local.up(1, &[]);
    let mut following = local.command(&["logs", "1", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut wait_for = |word: &str| lines.find(|line| line.as_ref().is_ok_and(|line| line.contains(word))).unwrap();
    wait_for("ready").unwrap();
    local.run(&["stop", "1"]);
    wait_for("stopped").unwrap();
    following.kill().unwrap();
    following.wait().unwrap();
}

#[test]
fn flags_with_which_a_node_ends_are_forgotten_and_others_are_not() {
    let local = Local::fresh();
    let fails = |flags: &[&str]| {
        let up = ["up", "--nodes", "1", "--address", &local.first_address, "--"];
        let output = local.output(&[&up[..], flags].concat());
        assert!(!output.status.success(), "{flags:?}: {}", String::from_utf8_lossy(&output.stdout));
    };
    let remembered = || std::fs::read_to_string(local.directory().join("cluster.json")).unwrap();
    fails(&["--tls-certificate", "/none/chain.pem", "--tls-key", "/none/key.pem"]);
    assert!(!remembered().contains("--tls-certificate"), "{}", remembered());
    // A port that is taken says nothing of the flags.
    let taken = TcpListener::bind((local.first_address.as_str(), 7100)).unwrap();
    fails(&["--log-level", "debug"]);
    drop(taken);
    assert!(remembered().contains("--log-level"), "{}", remembered());
    local.up(1, &[]);
    fails(&["--log-level", "debug", "--no-such-flag"]);
    assert!(remembered().contains("--log-level") && !remembered().contains("--no-such-flag"), "{}", remembered());
}

#[test]
fn what_cannot_work_is_refused_in_one_line_and_leaves_nothing() {
    let local = Local::fresh();
    let taken = TcpListener::bind((local.first_address.as_str(), 7100)).unwrap();
    let up = ["up", "--nodes", "1", "--address", &local.first_address];
    assert!(local.refusal(&up).contains(&format!("port 7100 on {}", local.first_address)));
    assert!(!local.directory().exists());
    drop(taken);
    assert!(local.refusal(&["up", "--address", "192.0.2.1"]).contains("192.0.2.1 is not an address of this machine"));
    assert!(local.refusal(&[&up[..], &["--", "--listen", "127.0.0.1"]].concat()).contains("--listen"));
    assert!(local.refusal(&["destroy", "--yes"]).contains("no local cluster"));
    std::fs::create_dir(local.directory()).unwrap();
    std::fs::write(local.directory().join("letter.txt"), "dear").unwrap();
    assert!(local.refusal(&up).contains("holds other files"));
    assert_eq!(std::fs::read_dir(local.directory()).unwrap().count(), 1, "nothing was added");
    std::fs::remove_file(local.directory().join("letter.txt")).unwrap();
    let wrong = local.refusal(&[&up[..], &["--", "--no-such-flag"]].concat());
    assert!(wrong.contains("unexpected argument '--no-such-flag' found"), "{wrong}");
    let wrong = local.refusal(&[&up[..], &["--", "--tls-key", "/nowhere", "--tls-certificate", "/nowhere"]].concat());
    assert!(wrong.contains("ended with exit status: 1") && wrong.contains("/nowhere"), "{wrong}");
    local.up(1, &[]);
    assert_eq!(local.node(1).1, "ready", "the flags are not remembered");
}
