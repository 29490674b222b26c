//! The audit log of a node in the journal of the system, which the machines of tests usually lack.

use crate::client::Client;
use crate::server::{Server, wait_for};
use std::path::Path;

fn counted(server: &Server, name: &str) -> u64 {
    let metrics = server.get("/metrics").unwrap();
    let values = metrics.lines().filter(|line| line.starts_with(name)).filter_map(|line| line.rsplit(' ').next());
    values.map(|value| value.parse::<u64>().unwrap()).sum()
}

#[test]
fn a_node_serves_with_and_without_a_journal_and_counts_its_entries() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &["--audit", "journal", "--log-level", "off"]);
    let mut client = Client::connect(&server.address).unwrap();
    client.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    client.run("CREATE TABLE ks.t (k int PRIMARY KEY)");
    let has_journal = Path::new("/run/systemd/journal/socket").exists();
    let name = if has_journal { "diorite_audit_entries_total" } else { "diorite_audit_dropped_total" };
    wait_for("two entries are counted", || counted(&server, name) == 2);
    assert!(server.stop().success());
}
