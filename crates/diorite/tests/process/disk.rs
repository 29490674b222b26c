//! A full disk refuses writes with a clear error, still answers reads, and takes writes again when there is room.

use crate::client::{Client, count, make_table};
use crate::disks::skip;
use crate::server::Server;
use diorite_cql::protocol::client::ClientResponse;
use diorite_cql::protocol::{ErrorCode, Value};
use std::path::Path;
use std::process::Command;

/// A small disk in memory; unmounted when dropped.
struct Disk<'a>(&'a Path);

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
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
    let insert = client.prepare("INSERT INTO ks.t (k, v) VALUES (?, ?)");
    let mut random = diorite_base::random::SplitMix64::new(1);
    let mut acknowledged = 0;
    let refused = 'full: loop {
        for stream in 0..64 {
            let mut value = vec![0; 4_096];
            value.chunks_mut(8).for_each(|chunk| {
                chunk.copy_from_slice(&diorite_base::random::Random::next_u64(&mut random).to_le_bytes());
            });
            let key = format!("{}-{stream}", acknowledged);
            client.execute(stream, &insert.id, &[Value::Set(key.as_bytes()), Value::Set(&value)]);
        }
        client.flush().unwrap();
        let mut refused = None;
        for _ in 0..64 {
            match client.receive().unwrap().1 {
                ClientResponse::Void => acknowledged += 1,
                ClientResponse::Error(error) => refused = Some(error),
                other => panic!("{other:?}"),
            }
        }
        if let Some(refused) = refused {
            break 'full refused;
        }
        assert!(acknowledged < 100_000, "a disk of 256 MB has to fill up");
    };
    assert_eq!(refused.code(), ErrorCode::WriteFailure);
    assert!(refused.message.contains("disk full"), "{}", refused.message);
    assert_eq!(count(&mut client, "ks.t"), acknowledged, "reads go on");
    let delete = client.prepare("DELETE FROM ks.t WHERE k = ?");
    client.execute(0, &delete.id, &[Value::Set(b"0-0")]);
    client.flush().unwrap();
    assert!(matches!(client.receive().unwrap().1, ClientResponse::Void), "deletes go on");
    client.run("BEGIN BATCH DELETE FROM ks.t WHERE k = '0-1'; DELETE FROM ks.t WHERE k = '0-2'; APPLY BATCH");
    acknowledged -= 3;
    assert_eq!(count(&mut client, "ks.t"), acknowledged, "what was deleted is gone");
    server.kill();

    let server = Server::start(&data, &["--disk-reserve", "1MiB", "--memory-limit", "128MiB"]);
    let mut client = Client::connect(&server.address).unwrap();
    assert_eq!(count(&mut client, "ks.t"), acknowledged, "nothing was damaged");
    client.run("INSERT INTO ks.t (k, v) VALUES ('room again', 0x00)");
    server.kill();

    // What fills a disk can be dropped; then there is room.
    let server = Server::start(&data, &limits);
    let mut client = Client::connect(&server.address).unwrap();
    client.run("TRUNCATE ks.t");
    let start = std::time::Instant::now();
    while client.query("INSERT INTO ks.t (k, v) VALUES ('again', 0x00)").is_err() {
        assert!(start.elapsed() < crate::server::TIMEOUT, "space returns");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}
