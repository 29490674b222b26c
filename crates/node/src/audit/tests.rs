//! The audit log in a journal: a socket of the test's own stands for the system's.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(clippy::disallowed_methods, reason = "tests measure how long serving would have waited")]

use super::changes::Audit as _;
use super::*;
use clap::{Args as _, FromArgMatches as _};
use diorite_base::SystemClock;
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Instant;

fn log(journal: &Path) -> Arc<AuditLog> {
    let command = StartOptions::augment_args(clap::Command::new("start"));
    let arguments = ["start", "--data-dir", "d", "--audit", "journal", "--audit-tables", "ks.t"];
    let options = StartOptions::from_arg_matches(&command.try_get_matches_from(arguments).unwrap()).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    AuditLog::begin(Output::journal_at(journal).unwrap(), &options, &clock).unwrap()
}

fn login(log: &AuditLog, role: &str) {
    log.login(role, "10.0.0.9".parse().unwrap(), "cql", LoginOutcome::Accepted);
}

fn read(log: &AuditLog) -> (u64, u64) {
    let counters = log.counters();
    (counters.written.load(Ordering::Relaxed), counters.dropped.load(Ordering::Relaxed))
}

fn wait_for(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// More than a busy machine takes for what does not wait; whoever waited a second for each of many entries would take
/// far longer.
const WITHOUT_WAITING: Duration = Duration::from_secs(60);

/// The fields of the next message, each of which is a line.
fn fields(journal: &UnixDatagram) -> BTreeMap<String, String> {
    let mut bytes = vec![0; 1 << 20];
    let length = journal.recv(&mut bytes).unwrap();
    let text = String::from_utf8(bytes[..length].to_vec()).unwrap();
    assert!(text.ends_with('\n'), "{text}");
    let field = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.lines().map(|line| field(line).unwrap_or_else(|| panic!("{text}"))).collect()
}

#[test]
fn a_journal_gets_an_entry_in_its_own_protocol() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("socket");
    let journal = UnixDatagram::bind(&path).unwrap();
    journal.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let log = log(&path);
    login(&log, "ann=\nPRIORITY=0");
    // As long as an entry is, with whatever takes most space as JSON.
    log.changed(Changed {
        category: Category::Data,
        role: None,
        client: None,
        keyspace: Some("ks".to_owned()),
        statement: "\u{1}".repeat(4_000),
        outcome: changes::Outcome::Done,
        was_planned: true,
    });
    let first = fields(&journal);
    let names: Vec<&str> = first.keys().map(String::as_str).collect();
    assert_eq!(names, ["MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER"]);
    assert_eq!((first["PRIORITY"].as_str(), first["SYSLOG_IDENTIFIER"].as_str()), ("5", "diorite-audit"));
    let entry: Value = serde_json::from_str(&first["MESSAGE"]).unwrap();
    assert_eq!((entry["category"].as_str(), entry["outcome"].as_str()), (Some("logins"), Some("done")));
    assert_eq!(entry["role"].as_str(), Some("ann=\nPRIORITY=0"), "no name makes a field");
    let entry: Value = serde_json::from_str(&fields(&journal)["MESSAGE"]).unwrap();
    assert_eq!(entry["what"].as_str().map(str::len), Some(4_000));
    log.close();
    assert_eq!(read(&log), (2, 0));
}

#[test]
fn a_journal_that_is_not_there_loses_entries_until_it_is() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("socket");
    let log = log(&path);
    let begun = Instant::now();
    (0..1_000).for_each(|at| login(&log, &format!("r{at}")));
    assert!(begun.elapsed() < WITHOUT_WAITING, "nobody waits");
    wait_for(|| read(&log) == (0, 1_000));
    for round in 1..=2 {
        // It is started, and started again: another socket, at the same place.
        let journal = UnixDatagram::bind(&path).unwrap();
        journal.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        login(&log, "ann");
        assert!(fields(&journal)["MESSAGE"].contains("\"ann\""));
        wait_for(|| read(&log) == (round, 999 + round));
        drop(journal);
        std::fs::remove_file(&path).unwrap();
        login(&log, "bob");
        wait_for(|| read(&log) == (round, 1_000 + round));
    }
    log.close();
}

#[test]
fn a_journal_that_does_not_read_holds_up_nobody() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("socket");
    let journal = UnixDatagram::bind(&path).unwrap();
    let log = log(&path);
    let begun = Instant::now();
    (0..40_000).for_each(|at| login(&log, &format!("r{at}")));
    assert!(begun.elapsed() < WITHOUT_WAITING, "nobody waits: {:?}", begun.elapsed());
    wait_for(|| read(&log).1 > 20_000);
    let closing = Instant::now();
    log.close();
    assert!(closing.elapsed() < CLOSE_TIMEOUT + WITHOUT_WAITING, "nor does the end of the node");
    drop(journal);
}
