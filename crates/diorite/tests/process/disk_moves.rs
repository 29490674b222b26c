//! Replicas move between the disks of a node while it serves: here to one that was added, of another size.

use crate::client::{Client, count};
use crate::disks::skip;
use crate::server::{Server, TIMEOUT, wait_for};
use diorite_base::random::{Random, SplitMix64};
use diorite_cql::protocol::Value;
use diorite_cql::protocol::client::ClientResponse;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// A disk in memory; unmounted when dropped.
struct Disk(PathBuf);

impl Disk {
    /// `None` where that takes rights that the test does not have.
    fn new(path: PathBuf, megabytes: u64) -> Option<Self> {
        std::fs::create_dir(&path).unwrap();
        let size = format!("size={megabytes}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&path).output();
        mounted.is_ok_and(|mounted| mounted.status.success()).then_some(Self(path))
    }

    fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    fn tablets(&self) -> usize {
        let tablets = std::fs::read_dir(self.data().join("tablets")).unwrap();
        tablets.filter(|entry| !entry.as_ref().unwrap().file_name().to_string_lossy().contains('.')).count()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Inserts rows of 16 KB that cannot be compressed; every one has to be acknowledged.
fn insert(client: &mut Client, numbers: std::ops::Range<u64>) {
    let insert = client.prepare("INSERT INTO ks.t (k, v) VALUES (?, ?)");
    let mut random = SplitMix64::new(numbers.start);
    for number in numbers {
        let mut value = vec![0; 16 << 10];
        value.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&random.next_u64().to_le_bytes()));
        client.execute(0, &insert.id, &[Value::Set(&number.to_be_bytes()), Value::Set(&value)]);
        client.flush().unwrap();
        match client.receive().unwrap().1 {
            ClientResponse::Void => {}
            other => panic!("row {number}: {other:?}"),
        }
    }
}

/// The used shares of the node's disks, and how many replicas it has moved between them.
fn state(server: &Server) -> (Vec<f64>, u64) {
    let metrics = server.get("/metrics").unwrap();
    let values = |name: &str| -> Vec<f64> {
        let lines = metrics.lines().filter(|line| line.starts_with(name));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
    };
    let (free, total) = (values("diorite_disk_free_bytes{"), values("diorite_disk_total_bytes{"));
    let used = free.iter().zip(&total).map(|(free, total)| 1.0 - free / total).collect();
    (used, values("diorite_replica_disk_moves_total")[0] as u64)
}

#[test]
fn replicas_move_to_a_disk_that_was_added_while_rows_are_written() {
    let home = tempfile::tempdir().unwrap();
    let disk = |name: &str, megabytes| Disk::new(Path::new(home.path()).join(name), megabytes);
    let (Some(small), Some(large)) = (disk("small", 512), disk("large", 853)) else {
        skip("mounting disks needs root");
        return;
    };
    let limits = ["--disk-reserve", "4MiB", "--memory-limit", "256MiB", "--replay-limit", "16MiB"];
    let server = Server::start(&small.data(), &limits);
    let mut client = Client::connect(&server.address).unwrap();
    client.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    client.run("CREATE TABLE ks.t (k blob PRIMARY KEY, v blob) WITH tablets = 16");
    insert(&mut client, 0..9_000);
    assert!(server.stop().success());

    let second = large.data();
    let both = [&limits[..], &["--data-dir", second.to_str().unwrap()]].concat();
    let server = Server::start(&small.data(), &both);
    let mut client = Client::connect(&server.address).unwrap();
    let (start, mut rows) = (Instant::now(), 9_000);
    let mut seen = (0, 0);
    // Until nothing has moved for a while: every write is taken meanwhile.
    while seen.0 == 0 || seen.1 < 300 {
        let row = rows.min(9_499);
        insert(&mut client, row..row + 1);
        rows = row + 1;
        let (used, moves) = state(&server);
        // Replicas are moved at a lower priority than anything else that a busy machine does.
        assert!(start.elapsed() < 3 * TIMEOUT, "{moves} moves, used {used:?}");
        let is_even = (used[0] - used[1]).abs() < 0.12;
        seen = if is_even && moves == seen.0 { (moves, seen.1 + 1) } else { (moves, 0) };
    }
    let moved = seen.0;
    assert!(large.tablets() as u64 >= moved && small.tablets() > 1, "{} and {}", large.tablets(), small.tablets());
    // A move that takes long may go on; while it ends its replica is on both for a moment.
    wait_for("each is on one disk", || small.tablets() + large.tablets() == 17);
    assert_eq!(count(&mut client, "ks.t"), rows as i64);
    server.kill();

    let server = Server::start(&small.data(), &both);
    let mut client = Client::connect(&server.address).unwrap();
    assert_eq!(count(&mut client, "ks.t"), rows as i64, "also after a crash");
}
