//! A full disk refuses writes with a clear error, still answers reads, and takes writes again when there is room.

use crate::client::{Client, count, make_table};
use crate::disks::skip;
use crate::server::{Server, TIMEOUT};
use diorite_base::random::{Random, SplitMix64};
use diorite_cql::protocol::client::ClientResponse;
use diorite_cql::protocol::{CqlError, ErrorCode, Value};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// A small disk in memory; unmounted when dropped.
struct Disk<'a>(&'a Path);

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

/// How many rows were written until a disk was full.
struct Filled {
    acknowledged: i64,
    /// Rows that were timed out, as on a busy machine, and refused when they were sent again: they may be there.
    unknown: i64,
    refused: CqlError,
}

/// Inserts rows that cannot be compressed until one is refused.
fn fill(client: &mut Client) -> Filled {
    let insert = client.prepare("INSERT INTO ks.t (k, v) VALUES (?, ?)");
    let mut random = SplitMix64::new(1);
    let (mut acknowledged, mut unknown) = (0, 0);
    loop {
        assert!(acknowledged < 100_000, "a disk of 256 MB has to fill up");
        let row = |stream: i16| {
            let mut value = vec![0; 4_096];
            value.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&random.next_u64().to_le_bytes()));
            (format!("{acknowledged}-{stream}"), value)
        };
        let rows: Vec<(String, Vec<u8>)> = (0..64).map(row).collect();
        let (mut open, mut is_again, mut refused) = (Vec::from_iter(0..64i16), false, None);
        let start = Instant::now();
        while !open.is_empty() {
            assert!(start.elapsed() < TIMEOUT, "rows are timed out again and again");
            for stream in &open {
                let (key, value) = &rows[*stream as usize];
                client.execute(*stream, &insert.id, &[Value::Set(key.as_bytes()), Value::Set(value)]);
            }
            client.flush().unwrap();
            let mut late = Vec::new();
            for _ in &open {
                match client.receive().unwrap() {
                    (_, ClientResponse::Void) => acknowledged += 1,
                    (stream, ClientResponse::Error(error)) if error.code() == ErrorCode::WriteTimeout => {
                        late.push(stream);
                    }
                    (_, ClientResponse::Error(error)) => {
                        unknown += i64::from(is_again);
                        refused = Some(error);
                    }
                    (_, other) => panic!("{other:?}"),
                }
            }
            (open, is_again) = (late, true);
        }
        if let Some(refused) = refused {
            return Filled { acknowledged, unknown, refused };
        }
    }
}

#[test]
fn a_full_disk_refuses_writes_and_loses_nothing() {
    let home = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=256m", "tmpfs"]).arg(home.path()).output();
    if !mounted.is_ok_and(|mounted| mounted.status.success()) {
        skip("mounting a small disk needs root");
        return;
    }
    let _disk = Disk(home.path());
    let data = home.path().join("data");
    let limits = ["--disk-reserve", "100MiB", "--memory-limit", "128MiB", "--replay-limit", "16MiB"];
    let server = Server::start(&data, &limits);
    let mut client = Client::connect(&server.address).unwrap();
    make_table(&mut client);
    let Filled { acknowledged, unknown, refused } = fill(&mut client);
    assert_eq!(refused.code(), ErrorCode::WriteFailure);
    assert!(refused.message.contains("disk full"), "{}", refused.message);
    let found = count(&mut client, "ks.t");
    assert!((acknowledged..=acknowledged + unknown).contains(&found), "reads go on: {found}, not {acknowledged}");
    let delete = client.prepare("DELETE FROM ks.t WHERE k = ?");
    client.execute(0, &delete.id, &[Value::Set(b"0-0")]);
    client.flush().unwrap();
    assert!(matches!(client.receive().unwrap().1, ClientResponse::Void), "deletes go on");
    client.run("BEGIN BATCH DELETE FROM ks.t WHERE k = '0-1'; DELETE FROM ks.t WHERE k = '0-2'; APPLY BATCH");
    let left = found - 3;
    assert_eq!(count(&mut client, "ks.t"), left, "what was deleted is gone");
    server.kill();

    let server = Server::start(&data, &["--disk-reserve", "1MiB", "--memory-limit", "128MiB"]);
    let mut client = Client::connect(&server.address).unwrap();
    assert_eq!(count(&mut client, "ks.t"), left, "nothing was damaged");
    client.run("INSERT INTO ks.t (k, v) VALUES ('room again', 0x00)");
    server.kill();

    // What fills a disk can be dropped; then there is room.
    let server = Server::start(&data, &limits);
    let mut client = Client::connect(&server.address).unwrap();
    client.run("TRUNCATE ks.t");
    let start = Instant::now();
    while client.query("INSERT INTO ks.t (k, v) VALUES ('again', 0x00)").is_err() {
        assert!(start.elapsed() < TIMEOUT, "space returns");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}
