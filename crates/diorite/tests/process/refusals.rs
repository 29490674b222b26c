//! A node that must not start says why in one line, and damages nothing.

use crate::client::{Client, count, make_table};
use crate::disks::skip;
use crate::server::{Server, fresh_address, refusal};
use std::fs;
use std::process::Command;

#[test]
fn a_second_process_on_the_same_directory() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &[]);
    let said = refusal(&fresh_address(), home.path(), &[]);
    assert!(said.contains("in use by another process"), "{said}");
    make_table(&mut Client::connect(&server.address).unwrap());
    assert!(server.stop().success());
}

#[test]
fn a_taken_port() {
    let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::start(home.path(), &[]);
    let said = refusal(&server.address, other.path(), &[]);
    assert!(said.contains("cannot listen for CQL"), "{said}");
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0, "nothing was written");
}

#[test]
fn a_directory_that_is_not_ours_or_of_a_newer_format() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("accounts.xls"), "theirs").unwrap();
    let said = refusal(&fresh_address(), home.path(), &[]);
    assert!(said.contains("accounts.xls"), "{said}");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);

    let newer = tempfile::tempdir().unwrap();
    fs::write(newer.path().join("DIORITE"), r#"{"format": 3}"#).unwrap();
    let said = refusal(&fresh_address(), newer.path(), &[]);
    assert!(said.contains("is at level 3"), "{said}");
}

#[test]
fn directories_of_different_nodes() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    assert!(Server::start(one.path(), &[]).stop().success());
    assert!(Server::start(two.path(), &[]).stop().success());
    let second = ["--data-dir", two.path().to_str().unwrap()];
    let said = refusal(&fresh_address(), one.path(), &second);
    assert!(said.contains("belongs to host"), "{said}");
}

#[test]
fn a_disk_that_is_not_mounted() {
    let (home, away) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (one, two) = (home.path().join("one"), home.path().join("two"));
    let more = ["--data-dir", two.to_str().unwrap()];
    let server = Server::start(&one, &more);
    make_table(&mut Client::connect(&server.address).unwrap());
    assert!(server.stop().success());
    fs::rename(&two, away.path().join("two")).unwrap();
    for more in [&more[..], &[]] {
        let said = refusal(&fresh_address(), &one, more);
        assert!(said.contains("is missing") && said.contains(two.to_str().unwrap()), "{said}");
    }
    // Where it is mounted does not matter.
    let elsewhere = away.path().join("two");
    let server = Server::start(&one, &["--data-dir", elsewhere.to_str().unwrap()]);
    assert_eq!(count(&mut Client::connect(&server.address).unwrap(), "ks.t"), 0);
}

#[test]
fn a_directory_on_a_read_only_disk() {
    let home = tempfile::tempdir().unwrap();
    let disk = home.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "ro,size=1m", "tmpfs"]).arg(&disk).output();
    if !mounted.is_ok_and(|mounted| mounted.status.success()) {
        // Read-only permissions do not stop root, which CI runs as, so only a mount makes the case.
        skip("mounting a read-only disk needs root");
        return;
    }
    let said = refusal(&fresh_address(), &disk.join("data"), &[]);
    assert!(Command::new("umount").arg(&disk).status().unwrap().success());
    assert!(said.contains("data directory") && said.contains("ead-only"), "{said}");
}

#[test]
fn a_stopped_node_has_nothing_to_replay_and_everything_to_serve() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &[]);
    let mut client = Client::connect(&server.address).unwrap();
    make_table(&mut client);
    for n in 0..100 {
        client.run(&format!("INSERT INTO ks.t (k, v) VALUES ('{n}', 0x{n:04x})"));
    }
    assert!(server.stop().success());
    let server = Server::start(home.path(), &[]);
    assert_eq!(count(&mut Client::connect(&server.address).unwrap(), "ks.t"), 100);
}

#[test]
fn several_disks_share_the_tablets() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let more = ["--data-dir", two.path().to_str().unwrap()];
    let server = Server::start(one.path(), &more);
    let mut client = Client::connect(&server.address).unwrap();
    make_table(&mut client);
    for n in 0..200 {
        client.run(&format!("INSERT INTO ks.t (k, v) VALUES ('{n}', 0x00)"));
    }
    let tablets = |home: &tempfile::TempDir| fs::read_dir(home.path().join("tablets")).unwrap().count();
    // Eight of the table and the catalog's own.
    assert_eq!(tablets(&one) + tablets(&two), 9);
    assert!(tablets(&one).abs_diff(tablets(&two)) <= 2, "{} and {}", tablets(&one), tablets(&two));
    server.kill();
    let server = Server::start(one.path(), &more);
    assert_eq!(count(&mut Client::connect(&server.address).unwrap(), "ks.t"), 200);
}
