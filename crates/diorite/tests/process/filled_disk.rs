//! A disk that something else fills to its last byte, under one node of three: nothing that was acknowledged is lost, the other nodes serve, monitors are told, and when there is
//! room again the node has everything.

use crate::client::{Client, try_count};
use crate::disks::{Medium, skip};
use crate::server::{Server, command, fresh_addresses, get, wait_for};
use diorite_base::random::{Random, SplitMix64};
use diorite_cql::protocol::Value;
use diorite_cql::protocol::client::ClientResponse;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Rows that are written before, and while there is no room.
const ROWS: u64 = 300;

/// Bytes of a value that cannot be compressed: more than the node's log has room for without a new file.
const VALUE_BYTES: usize = 64 << 10;

/// A node that may end by itself when its only disk fails, and is started again then, as by an operator's tools.
struct Supervised<'a> {
    address: &'a str,
    data: &'a Path,
    flags: Vec<&'a str>,
    process: Option<Child>,
    starts: usize,
}

impl Supervised<'_> {
    fn keep_up(&mut self) {
        if let Some(process) = &mut self.process
            && process.try_wait().unwrap().is_some()
        {
            self.process = None;
        }
        if self.process.is_none() {
            let mut command = command(self.address, self.data, &self.flags);
            self.process = Some(command.stderr(Stdio::inherit()).spawn().unwrap());
            self.starts += 1;
        }
    }
}

impl Drop for Supervised<'_> {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Fills what is left, to the last block.
fn fill(disk: &Path) {
    let mut filler = std::fs::File::create(disk.join("filler")).unwrap();
    for size in [1 << 20, 4 << 10, 1] {
        while filler.write_all(&vec![0x55; size]).is_ok() {}
    }
    // Given out for good, not only promised.
    let _ = filler.sync_all();
}

/// Inserts rows once each; returns those that were acknowledged.
fn insert(client: &mut Client, numbers: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let insert = client.prepare("INSERT INTO ks.t (k, v) VALUES (?, ?)");
    let mut acknowledged = Vec::new();
    for number in numbers {
        let mut random = SplitMix64::new(number);
        let value: Vec<u8> = (0..VALUE_BYTES / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect();
        client.execute(0, &insert.id, &[Value::Set(&number.to_be_bytes()), Value::Set(&value)]);
        client.flush().unwrap();
        match client.receive().unwrap().1 {
            ClientResponse::Void => acknowledged.push(number),
            ClientResponse::Error(_) => {}
            other => panic!("row {number}: {other:?}"),
        }
    }
    acknowledged
}

fn status(address: &str) -> Option<i32> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diorite"));
    command.args(["admin", "--host", address, "status"]).output().unwrap().status.code()
}

#[test]
fn a_disk_that_something_else_fills_costs_nothing_that_was_acknowledged() {
    let home = tempfile::tempdir().unwrap();
    let medium = Medium::new(home.path(), "medium", 500);
    let Some((_medium, disk)) = medium.and_then(|medium| medium.disk("disk", 400).map(|disk| (medium, disk))) else {
        skip("a disk that can be filled needs root and loop devices");
        return;
    };
    let addresses = fresh_addresses(3);
    let data = disk.path().join("data");
    let limits =
        ["--disk-reserve", "1MiB", "--memory-limit", "96MiB", "--replay-limit", "4MiB", "--request-timeout", "4s"];
    let one = Server::start_on(&addresses[0], &home.path().join("one"), &[&limits[..], &["--rf", "3"]].concat());
    let joining = [&limits[..], &["--join", &addresses[0]]].concat();
    let two = Server::start_on(&addresses[1], &home.path().join("two"), &joining);
    let mut three =
        Supervised { address: &addresses[2], data: &data, flags: joining.clone(), process: None, starts: 0 };
    three.keep_up();
    wait_for("three nodes", || get(&addresses[2], "/health/ready").is_some());
    let mut client = Client::connect(&one.address).unwrap();
    client.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}");
    client.run("CREATE TABLE ks.t (k bigint PRIMARY KEY, v blob) WITH tablets = 6");
    wait_for("all is well", || status(&one.address) == Some(0));
    let mut acknowledged: Vec<u64> = Vec::new();
    // On a busy machine a row may have to be sent again.
    wait_for("all rows are written", || {
        let open: Vec<u64> = (0..ROWS).filter(|row| !acknowledged.contains(row)).collect();
        acknowledged.extend(insert(&mut client, open));
        acknowledged.len() as u64 == ROWS
    });

    fill(disk.path());
    acknowledged.extend(insert(&mut client, ROWS..2 * ROWS));
    assert!(acknowledged.len() as u64 > ROWS, "what the others lead is written");
    wait_for("monitors are told", || status(&one.address) == Some(2));
    let have = |client: &mut Client| {
        let select = client.prepare("SELECT k FROM ks.t WHERE k = ?");
        acknowledged.iter().all(|number| {
            client.execute(0, &select.id, &[Value::Set(&number.to_be_bytes())]);
            client.flush().unwrap();
            matches!(client.receive().unwrap().1, ClientResponse::Rows(rows) if rows.rows.len() == 1)
        })
    };
    wait_for("everything that was acknowledged can be read", || have(&mut client));

    std::fs::remove_file(disk.path().join("filler")).unwrap();
    wait_for("all is well again", || {
        three.keep_up();
        status(&one.address) == Some(0)
    });
    println!("the node was started {} times", three.starts);
    // Now it is needed.
    assert!(two.stop().success());
    wait_for("everything is there with the node that had no room", || have(&mut client));
    let written = insert(&mut client, 2 * ROWS..2 * ROWS + 20);
    assert!(!written.is_empty(), "and can be written to");
    let mut counted = None;
    wait_for("its rows can be counted", || {
        counted = try_count(&mut client, "ks.t");
        counted.is_some()
    });
    assert!(counted.unwrap() as usize >= acknowledged.len(), "{counted:?} of {}", acknowledged.len());
}
