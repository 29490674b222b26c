//! A node that the members of a cluster cannot take says why in one line; one that they can becomes a member and stays one. Clocks and protocol versions
//! that differ, which one machine's processes cannot have, are made by a [`Meddler`] between the two nodes.

use crate::client::Client;
use crate::meddler::{Meddler, Meddling};
use crate::server::{Server, TIMEOUT, command, fresh_address, fresh_addresses, refusal};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
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
    let (one, two) = two_nodes(first.path(), second.path());
    let address = two.address.clone();
    // A running node renames and deletes files while they are copied.
    assert!(two.stop().success());
    let copied = Command::new("cp").arg("-a").arg(second.path().join(".")).arg(copy.path()).status().unwrap();
    assert!(copied.success());
    let _two = Server::start_on(&address, second.path(), &[]);
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

/// What is said of a clock that is behind, of one that is ahead, and of another version. The clock of whoever dials is
/// compared when its opening is read: no delay between two processes makes up for so large a difference.
const CANNOT_BE_TAKEN: [(Meddling, &str); 3] = [
    (Meddling::ClockOff { microseconds: -400_000_000 }, "ms apart, at most 500 ms are allowed"),
    (Meddling::ClockOff { microseconds: 400_000_000 }, "ms apart, at most 500 ms are allowed"),
    (Meddling::Version(7), "protocol version 7 is not spoken here, 2 is: run the same version of diorite on all nodes"),
];

/// Before the first node of a cluster of one, which tells others to dial it there.
fn first_behind_a_meddler(data: &Path) -> (Server, Meddler) {
    let mut addresses = fresh_addresses(2);
    let (address, own) = (addresses.remove(0), addresses.remove(0));
    let meddler = Meddler::new(address, &own);
    let one = Server::start_on(&own, data, &["--advertise-node-address", &meddler.address]);
    (one, meddler)
}

#[test]
fn a_newcomer_whose_clock_or_version_is_another() {
    let (first, second) = (tempdir().unwrap(), tempdir().unwrap());
    let (one, meddler) = first_behind_a_meddler(first.path());
    for (meddling, reason) in CANNOT_BE_TAKEN {
        meddler.set(meddling);
        let said = refusal(&fresh_address(), second.path(), &["--join", &meddler.address]);
        assert!(said.contains(reason), "{meddling:?}: {said}");
        assert_eq!(members(&one.address), 1, "it has not become a member");
    }
    meddler.set(Meddling::Nothing);
    let two = Server::start(second.path(), &["--join", &meddler.address]);
    assert_eq!((members(&one.address), members(&two.address)), (2, 2), "what was refused left nothing behind");
}

#[test]
fn a_member_that_comes_back_with_another_clock_or_version() {
    let (first, second) = (tempdir().unwrap(), tempdir().unwrap());
    let (one, meddler) = first_behind_a_meddler(first.path());
    let address = fresh_address();
    let two = Server::start_on(&address, second.path(), &["--join", &meddler.address]);
    assert!(two.stop().success());
    for (meddling, reason) in CANNOT_BE_TAKEN {
        meddler.set(meddling);
        let said = refusal(&address, second.path(), &[]);
        assert!(said.contains(reason), "{meddling:?}: {said}");
    }
    meddler.set(Meddling::Nothing);
    let two = Server::start_on(&address, second.path(), &[]);
    assert_eq!((members(&one.address), members(&two.address)), (2, 2));
}

#[test]
fn of_two_that_ask_at_once_from_one_address_the_second() {
    let homes = [tempdir().unwrap(), tempdir().unwrap(), tempdir().unwrap()];
    let one = Server::start(homes[0].path(), &[]);
    let (claimed, join) = (fresh_address(), one.address.clone());
    let mut newcomers: Vec<_> = homes[1..]
        .iter()
        .map(|home| {
            let more = ["--join", &join, "--advertise-node-address", &claimed];
            command(&fresh_address(), home.path(), &more).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let start = Instant::now();
    let (refused, status) = loop {
        let ended = (0..newcomers.len()).find_map(|at| Some((at, newcomers[at].try_wait().unwrap()?)));
        if let Some(ended) = ended {
            break ended;
        }
        assert!(start.elapsed() < TIMEOUT, "neither is refused");
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    let mut said = String::new();
    newcomers[refused].stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!status.success() && said.trim().lines().count() == 1, "one clear line: {said}");
    assert!(said.contains(&format!("address {claimed}:7100")) && said.contains("belongs to node n2"), "{said}");
    assert_eq!(members(&one.address), 2);
    let mut other = newcomers.remove(1 - refused);
    other.kill().unwrap();
    other.wait().unwrap();
}
