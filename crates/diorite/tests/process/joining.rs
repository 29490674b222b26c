//! A node that the members of a cluster cannot take says why in one line; one that they can becomes a member and stays one. Left out: clocks and versions that differ, which one
//! machine's processes cannot have; the transport's own tests refuse them.

use crate::client::Client;
use crate::server::{Server, fresh_address, refusal};
use std::path::Path;
use std::process::Command;
use tempfile::tempdir;

/// Starts a first node and one that joins it.
fn two_nodes(first: &Path, second: &Path) -> (Server, Server) {
    let one = Server::start(first, &[]);
    let two = Server::start(second, &["--join", &one.address]);
    (one, two)
}

fn members(address: &str) -> usize {
    let mut client = Client::connect(address).unwrap();
    client.run("SELECT peer FROM system.peers").rows.len() + 1
}

#[test]
fn a_node_that_joins_is_a_member_for_all_and_after_a_restart_without_being_told_where() {
    let (first, second) = (tempdir().unwrap(), tempdir().unwrap());
    let (one, two) = two_nodes(first.path(), second.path());
    assert_eq!((members(&one.address), members(&two.address)), (2, 2));
    let mut client = Client::connect(&two.address).unwrap();
    client.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    client.run("CREATE TABLE ks.t (k text PRIMARY KEY, v blob)");
    client.run("INSERT INTO ks.t (k, v) VALUES ('a', 0x01)");
    let address = two.address.clone();
    assert!(two.stop().success());
    let two = Server::start_on(&address, second.path(), &[]);
    assert_eq!(members(&two.address), 2);
    let rows = Client::connect(&two.address).unwrap().run("SELECT v FROM ks.t WHERE k = 'a'").rows;
    assert_eq!(rows.len(), 1);
}

#[test]
fn a_node_of_another_cluster() {
    let (ours, theirs) = (tempdir().unwrap(), tempdir().unwrap());
    let one = Server::start(ours.path(), &[]);
    assert!(Server::start(theirs.path(), &[]).stop().success());
    let said = refusal(&fresh_address(), theirs.path(), &["--join", &one.address]);
    assert!(said.contains("cluster"), "{said}");
}

#[test]
fn a_second_process_with_a_copy_of_a_members_directory() {
    let (first, second, copy) = (tempdir().unwrap(), tempdir().unwrap(), tempdir().unwrap());
    let (one, _two) = two_nodes(first.path(), second.path());
    let copied = Command::new("cp").arg("-a").arg(second.path().join(".")).arg(copy.path()).status().unwrap();
    assert!(copied.success());
    let said = refusal(&fresh_address(), copy.path(), &["--join", &one.address]);
    assert!(said.contains("another process runs as node"), "{said}");
    assert_eq!(members(&one.address), 2);
}

#[test]
fn another_replication_factor_than_the_clusters() {
    let (first, second) = (tempdir().unwrap(), tempdir().unwrap());
    let one = Server::start(first.path(), &["--rf", "1"]);
    let said = refusal(&fresh_address(), second.path(), &["--join", &one.address, "--rf", "3"]);
    assert!(said.contains("this cluster was first started with --rf 1"), "{said}");
}
