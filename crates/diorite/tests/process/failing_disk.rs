//! One of a node's disks fails: only its replicas are lost, and they are rebuilt on the node's other disk from the other nodes.

use crate::client::{Client, count};
use crate::disks::skip;
use crate::server::{Server, TIMEOUT, fresh_address, fresh_addresses, refusal, wait_for};
use diorite_cql::protocol::client::ClientResponse;
use diorite_cql::protocol::{ErrorCode, Value};
use diorite_history::check_counter;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A file system of its own in a file, that can be made to fail; unmounted when dropped.
pub struct Disk {
    pub path: PathBuf,
    device: String,
}

impl Disk {
    /// `None` where that takes rights that the test does not have.
    pub fn new(home: &Path, name: &str, megabytes: u64) -> Option<Self> {
        let (image, path) = (home.join(format!("{name}.image")), home.join(name));
        std::fs::File::create(&image).unwrap().set_len(megabytes << 20).unwrap();
        std::fs::create_dir(&path).unwrap();
        let run = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let is_made = run(Command::new("mkfs.ext4").arg("-q").arg(&image))
            && run(Command::new("mount").args(["-o", "loop,errors=remount-ro"]).arg(&image).arg(&path));
        if !is_made {
            return None;
        }
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        let line = mounts.lines().find(|line| line.split(' ').nth(1) == path.to_str())?;
        let device = line.split(' ').next()?.trim_start_matches("/dev/").to_owned();
        Some(Self { path, device })
    }

    /// From now on nothing can be written any more.
    pub fn fail(&self) {
        std::fs::write(format!("/sys/fs/ext4/{}/trigger_fs_error", self.device), "a test").unwrap();
        assert!(std::fs::write(self.path.join("probe"), "x").is_err(), "the disk has failed");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// Inserts rows, each until it is acknowledged: what met the disk as it failed may have to be sent again.
fn insert(client: &mut Client, numbers: std::ops::Range<u64>) {
    let insert = client.prepare("INSERT INTO ks.t (k, v) VALUES (?, ?)");
    let start = Instant::now();
    for number in numbers {
        loop {
            client.execute(0, &insert.id, &[Value::Set(&key(number)), Value::Set(&number.to_be_bytes())]);
            client.flush().unwrap();
            match client.receive().unwrap().1 {
                ClientResponse::Void => break,
                ClientResponse::Error(error) => {
                    assert!(start.elapsed() < TIMEOUT, "row {number}: {error:?}");
                    std::thread::sleep(Duration::from_millis(20));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Whether the other replicas of every tablet hold all that its leader knows to be committed. A directory of a tablet says less: it is there before its data is.
fn are_whole(server: &Server) -> bool {
    let ask = |path: &str| server.get(path).and_then(|answer| serde_json::from_str::<Json>(&answer).ok());
    let is_whole = |tablet: &Json| {
        let detail = ask(&format!("/api/v1/tablets/{}", tablet["tablet"]));
        let replicas = detail.as_ref().and_then(|detail| detail["replicas"].as_array());
        let leader = replicas.into_iter().flatten().find(|replica| replica["holds_lease"] == true);
        leader.is_some_and(|leader| {
            let matched = leader["matched"].as_array().map(Vec::as_slice).unwrap_or_default();
            matched.len() == 2 && matched.iter().all(|of| of[1].as_u64() >= leader["commit_index"].as_u64())
        })
    };
    let page = ask("/api/v1/tablets").unwrap_or_default();
    page["tablets"].as_array().is_some_and(|tablets| tablets.len() >= 13 && tablets.iter().all(is_whole))
}

/// Three nodes, of which the last has two disks, and how that one is started.
struct Three {
    addresses: Vec<String>,
    one: Server,
    two: Server,
    three: Server,
    flags: Vec<String>,
}

impl Three {
    fn start(home: &Path, first: &Disk, second: &Disk) -> Self {
        let addresses = fresh_addresses(3);
        let limits = ["--disk-reserve", "1MiB", "--memory-limit", "256MiB", "--replay-limit", "16MiB"];
        let one = Server::start_on(&addresses[0], &home.join("one"), &[&limits[..], &["--rf", "3"]].concat());
        let mut flags = [&limits[..], &["--join", &addresses[0]]].concat();
        let two = Server::start_on(&addresses[1], &home.join("two"), &flags);
        let second_data = second.path.join("data");
        flags.extend(["--data-dir", second_data.to_str().unwrap()]);
        let three = Server::start_on(&addresses[2], &first.path.join("data"), &flags);
        let flags = flags.into_iter().map(str::to_owned).collect();
        Self { addresses, one, two, three, flags }
    }
}

/// How many tablets have a directory on a disk.
fn tablets_on(disk: &Disk) -> usize {
    std::fs::read_dir(disk.path.join("data").join("tablets")).unwrap().count()
}

/// Two file systems for the node with two disks; `None` where the test may not make any.
fn two_disks(home: &Path) -> Option<(Disk, Disk)> {
    let disks = Disk::new(home, "first", 640).zip(Disk::new(home, "second", 600));
    if disks.is_none() {
        skip("a file system that can fail needs root and loop devices");
    }
    disks
}

/// One of the two disks of the last of three nodes fails. The catalog's replica is on the first, which has more room.
fn fail_a_disk(holds_catalog: bool) {
    let home = tempfile::tempdir().unwrap();
    let Some((first, second)) = two_disks(home.path()) else { return };
    let Three { addresses, one, two: _two, mut three, flags } = Three::start(home.path(), &first, &second);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();

    let mut client = Client::connect(&one.address).unwrap();
    client.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}");
    client.run("CREATE TABLE ks.t (k blob PRIMARY KEY, v blob) WITH tablets = 12");
    insert(&mut client, 0..500);
    let (failing, working) = if holds_catalog { (&first, &second) } else { (&second, &first) };
    // The other nodes take rows before the third has made its replicas.
    wait_for("the catalog is where there was most room", || first.path.join("data/tablets/1").is_dir());
    wait_for("both disks hold tablets", || tablets_on(failing) >= 3);

    failing.fail();
    insert(&mut client, 500..1_000);
    // That is written by the catalog's group, and served by all.
    client.run("CREATE TABLE ks.later (k blob PRIMARY KEY, v blob) WITH tablets = 1");
    assert!(three.is_running(), "the node goes on");
    wait_for("the node says that its disk has failed", || {
        one.get("/api/v1/nodes").is_some_and(|answer| answer.contains("\"has_failed\":true"))
    });
    // Twelve and one, and the catalog's.
    wait_for("all replicas are on the disk that works", || tablets_on(working) >= 14);
    wait_for("they have been rebuilt", || are_whole(&one));

    // Now they are needed: without the first node nothing can be written that they do not hold, and no table made.
    one.kill();
    let mut client = Client::connect(&three.address).unwrap();
    insert(&mut client, 1_000..1_300);
    assert_eq!(count(&mut client, "ks.t"), 1_300, "nothing was lost");
    wait_for("a table can be made", || {
        client.query("CREATE TABLE IF NOT EXISTS ks.last (k blob PRIMARY KEY, v blob) WITH tablets = 1").is_ok()
    });
    assert!(three.stop().success());

    // What was on the failed disk is not needed any more.
    let three = Server::start_on(&addresses[2], &first.path.join("data"), &flags);
    let mut client = Client::connect(&three.address).unwrap();
    wait_for("the node serves", || {
        ["ks.last", "ks.t"].iter().all(|table| client.query(&format!("SELECT k FROM {table}")).is_ok())
    });
    assert_eq!(count(&mut client, "ks.t"), 1_300, "nothing was lost");
    wait_for("the disk that was left out is named", || {
        three.get("/api/v1/nodes").is_some_and(|answer| answer.contains("\"has_failed\":true"))
    });
    assert!(three.stop().success());
    // The other one is.
    let said = refusal(&fresh_address(), &failing.path.join("data"), &[]);
    assert!(said.contains("data directory"), "it is named: {said}");
}

#[test]
fn a_failing_disk_takes_only_its_replicas_out_and_they_are_rebuilt() {
    fail_a_disk(false);
}

#[test]
fn a_node_goes_on_when_the_disk_with_its_copy_of_the_catalog_fails() {
    fail_a_disk(true);
}

/// Sets what it holds when it is dropped, so also when the test fails.
struct StopWhenDropped<'a>(&'a AtomicBool);

impl Drop for StopWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a client has been told of its increments.
#[derive(Default)]
struct Increments {
    acknowledged: AtomicU64,
    /// It was told that nobody knows.
    unknown: AtomicU64,
}

/// Increments a counter of its own, one increment after another, and repeats each that has failed for another reason than a timeout, as drivers do.
fn increment(address: &str, counter: i32, told: &Increments, stop: &AtomicBool) {
    let mut client = Client::connect(address).unwrap();
    let update = client.prepare("UPDATE ks.n SET n = n + 1 WHERE k = ?");
    while !stop.load(Ordering::Relaxed) {
        client.execute(0, &update.id, &[Value::Set(&counter.to_be_bytes())]);
        client.flush().unwrap();
        match client.receive().unwrap().1 {
            ClientResponse::Void => {
                told.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            ClientResponse::Error(error) if error.code() == ErrorCode::WriteTimeout => {
                told.unknown.fetch_add(1, Ordering::Relaxed);
            }
            // It was certainly not carried out: what comes next repeats it.
            ClientResponse::Error(_) => std::thread::sleep(Duration::from_millis(5)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn who_repeats_all_but_timeouts_counts_nothing_twice_while_a_disk_fails() {
    const COUNTERS: usize = 24;
    let home = tempfile::tempdir().unwrap();
    let Some((first, second)) = two_disks(home.path()) else { return };
    let Three { addresses, one, two: _two, mut three, .. } = Three::start(home.path(), &first, &second);
    let mut client = Client::connect(&one.address).unwrap();
    client.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}");
    client.run("CREATE TABLE ks.n (k int PRIMARY KEY, n counter) WITH tablets = 12");
    wait_for("the disk that fails holds tablets", || tablets_on(&second) >= 3);

    let (stop, told) = (AtomicBool::new(false), Vec::from_iter((0..COUNTERS).map(|_| Increments::default())));
    let acknowledged = |counter: usize| told[counter].acknowledged.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let _stop = StopWhenDropped(&stop);
        for (counter, told) in told.iter().enumerate() {
            let (address, stop) = (&addresses[counter % addresses.len()], &stop);
            scope.spawn(move || increment(address, counter as i32, told, stop));
        }
        wait_for("everything is counted", || (0..COUNTERS).all(|counter| acknowledged(counter) >= 20));
        let before: Vec<u64> = (0..COUNTERS).map(acknowledged).collect();
        second.fail();
        wait_for("everything is counted again", || {
            (0..COUNTERS).all(|counter| acknowledged(counter) >= before[counter] + 20)
        });
    });
    assert!(three.is_running(), "the node goes on");
    for address in &addresses {
        let mut client = Client::connect(address).unwrap();
        for (counter, told) in told.iter().enumerate() {
            let mut found = None;
            wait_for("the counter can be read", || {
                let answer = client.query(&format!("SELECT n FROM ks.n WHERE k = {counter}"));
                if let Ok(ClientResponse::Rows(answer)) = answer {
                    let bytes = answer.rows[0][0].as_deref().unwrap();
                    found = Some(u64::from_be_bytes(bytes.try_into().unwrap()));
                }
                found.is_some()
            });
            let (acknowledged, unknown) =
                (told.acknowledged.load(Ordering::Relaxed), told.unknown.load(Ordering::Relaxed));
            let verdict = check_counter(acknowledged, unknown, found.unwrap());
            assert!(verdict.is_ok(), "counter {counter}, asked of {address}: {}", verdict.unwrap_err());
        }
    }
}
