//! A disk on which writes and syncs hang: what its node led is led by others within seconds, which take writes while it still hangs, and the node goes on when it does.
//!
//! How long that takes is printed as one line of JSON and not asserted: a time is a benchmark's figure. `DIORITE_TRIALS` says how often (2).

use crate::client::Client;
use crate::cluster::Cluster;
use crate::disks::{Disk, Medium, skip};
use crate::session::KEYSPACE;
use crate::turn;
use diorite_cql::protocol::Value;
use diorite_cql::protocol::client::ClientResponse;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const NODES: usize = 3;

/// Writers, each of one row: enough that each node leads the tablets of some.
const WRITERS: u64 = 12;

/// How long a writer waits before it sends its row anew, over another connection.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(250);

/// After so many attempts in vain it waits longer by as much: on a busy machine each may take longer than that.
const ATTEMPTS: u32 = 20;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS torture.hanging (k bigint PRIMARY KEY, v bigint) WITH tablets = 12";

/// When each writer's row was acknowledged last, and the longest time between two acknowledgements.
struct Progress {
    last: Vec<Mutex<(Instant, Duration)>>,
    stop: AtomicBool,
}

impl Progress {
    fn new() -> Self {
        Self {
            last: (0..WRITERS).map(|_| Mutex::new((Instant::now(), Duration::ZERO))).collect(),
            stop: AtomicBool::new(false),
        }
    }

    fn note(&self, writer: u64) {
        let mut last = self.last[writer as usize].lock().unwrap();
        *last = (Instant::now(), last.1.max(last.0.elapsed()));
    }

    /// All have been acknowledged since.
    fn is_past(&self, since: Instant) -> bool {
        self.last.iter().all(|last| last.lock().unwrap().0 > since)
    }

    fn longest(&self) -> Duration {
        self.last.iter().map(|last| last.lock().unwrap().1).max().unwrap_or_default()
    }

    /// Writes one row again and again.
    fn write(&self, writer: u64, address: &str) {
        let (mut connected, mut failed) = (None, 0);
        while !self.stop.load(Ordering::Relaxed) {
            let acknowledged = (|| {
                if connected.is_none() {
                    let timeout = ATTEMPT_TIMEOUT * (1 + failed / ATTEMPTS);
                    let mut client = Client::connect_within(address, timeout)?;
                    let insert =
                        crate::session::prepare(&mut client, "INSERT INTO torture.hanging (k, v) VALUES (?, 1)")?;
                    connected = Some((client, insert));
                }
                let (client, insert) = connected.as_mut().expect("just connected");
                client.execute(0, &insert.id, &[Value::Set(&writer.to_be_bytes())]);
                client.flush()?;
                std::io::Result::Ok(matches!(client.receive()?.1, ClientResponse::Void))
            })();
            match acknowledged {
                Ok(true) => {
                    self.note(writer);
                    failed = 0;
                }
                Ok(false) => {}
                Err(_) => (connected, failed) = (None, failed + 1),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Has the disk of the node that leads most hang until every row was written again, and then waits until that node leads again.
fn hang(cluster: &Cluster, media: &[Medium]) -> Duration {
    let mut leader = None;
    cluster.wait_for("a node that leads", || {
        leader = cluster.leader_of_most();
        leader.is_some()
    });
    let leader = leader.expect("waited for");
    let progress = Progress::new();
    std::thread::scope(|scope| {
        let _stop = crate::load::StopWhenDropped(&progress.stop);
        let address = &cluster.addresses[(leader + 1) % NODES];
        for writer in 0..WRITERS {
            let progress = &progress;
            scope.spawn(move || progress.write(writer, address));
        }
        let start = Instant::now();
        cluster.wait_for("all rows to be written", || progress.is_past(start));
        let frozen = media[leader].freeze();
        // What was on its way may still be acknowledged; what comes a second later is written without the node.
        let hanging = Instant::now() + Duration::from_secs(1);
        cluster.wait_for("all rows to be written while the disk hangs", || progress.is_past(hanging));
        let longest = progress.longest();
        drop(frozen);
        longest
    })
}

#[test]
fn others_take_writes_while_the_disk_of_a_leading_node_hangs() {
    let _turn = turn();
    let trials =
        std::env::var("DIORITE_TRIALS").ok().map_or(2, |text| text.parse().expect("DIORITE_TRIALS is a number"));
    let home = tempfile::tempdir().unwrap();
    let media = (0..NODES).map(|node| Medium::new(home.path(), &format!("medium-{node}"), 1_000));
    let Some(media) = media.collect::<Option<Vec<Medium>>>() else {
        skip("a disk that hangs needs root and loop devices");
        return;
    };
    let disks: Vec<Disk> = media.iter().map(|medium| medium.disk("disk", 900).expect("as the medium")).collect();
    let data = disks.iter().map(|disk| disk.path().join("data")).collect();
    let options = ["--replay-limit", "1MiB", "--memory-limit", "96MiB", "--disk-reserve", "1MiB"];
    let cluster = Cluster::start_on(data, &options);
    cluster.run(0, KEYSPACE);
    cluster.run(1, TABLE);
    let mut times = Vec::new();
    for _ in 0..trials {
        times.push(hang(&cluster, &media));
        cluster.wait_for("each node to lead again", || {
            (0..NODES).all(|node| cluster.metric(node, "diorite_tablets_led", "").is_some_and(|led| led > 0))
        });
    }
    times.sort_unstable();
    let milliseconds: Vec<u128> = times.iter().map(Duration::as_millis).collect();
    println!(
        "{{\"benchmark\":\"disk-hang\",\"trials\":{trials},\"median_ms\":{},\"times_ms\":{milliseconds:?}}}",
        milliseconds[milliseconds.len() / 2]
    );
}
