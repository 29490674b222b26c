//! Reads that may be old, in a table that says by how much: followers answer them, while their leader is paused as well, and never with what is older
//! than that. Reads at any other consistency level are the leader's.
//!
//! What a read may miss is judged by the client's own clock: a value that was acknowledged longer than the bound before the read was sent has to be
//! seen. That holds however slow the machine is, so nothing here depends on time.

use crate::client::Client;
use crate::cluster::{Cluster, RECOVERY};
use crate::network::Policy;
use crate::session::{number, prepare};
use crate::turn;
use diorite_cql::protocol::client::{BoundValues, ClientPrepared, ClientRequest, ClientResponse, Parameters};
use diorite_cql::protocol::{Consistency, Value};
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// Enough that every tablet has some.
const KEYS: u64 = 60;

/// How old an answer may be: long enough that a follower that has just asked may answer for a while.
const BOUND: Duration = Duration::from_secs(6);

const KEYSPACE: &str =
    "CREATE KEYSPACE IF NOT EXISTS old WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}";

/// Reads that are sent together.
const MOST_AT_ONCE: usize = 500;

/// The table of these tests.
const TABLE: &str = "old.values";

/// A connection to one node.
struct Reader {
    client: Client,
    read: ClientPrepared,
    insert: ClientPrepared,
}

impl Reader {
    fn connect(address: &str, table: &str) -> io::Result<Self> {
        let mut client = Client::connect_within(address, Duration::from_secs(20))?;
        let read = prepare(&mut client, &format!("SELECT v FROM {table} WHERE k = ?"))?;
        let insert = prepare(&mut client, &format!("INSERT INTO {table} (k, v) VALUES (?, ?)"))?;
        Ok(Self { client, read, insert })
    }

    fn send(&mut self, stream: usize, key: u64, consistency: Consistency) {
        let bytes = key.to_be_bytes();
        let values = [Value::Set(&bytes)];
        let parameters = Parameters { consistency, values: BoundValues::Positional(&values), ..Parameters::default() };
        let execute = ClientRequest::Execute { id: &self.read.id, result_metadata_id: &[], parameters };
        self.client.send(stream as i16, &execute);
    }

    /// Reads every key of a list at once; `None` for a read that failed.
    fn read(&mut self, keys: &[u64], consistency: Consistency) -> io::Result<Vec<(u64, Option<u64>)>> {
        keys.iter().enumerate().for_each(|(stream, key)| self.send(stream, *key, consistency));
        self.client.flush()?;
        let answer = |client: &mut Client| {
            let (stream, response) = client.receive()?;
            let key = keys[stream as usize];
            match response {
                ClientResponse::Rows(rows) => Ok((key, rows.rows.first().map(|row| number(&row[0])))),
                ClientResponse::Error(_) => Ok((key, None)),
                other => panic!("{other:?}"),
            }
        };
        keys.iter().map(|_| answer(&mut self.client)).collect()
    }

    /// Writes every key; those that were not acknowledged are left.
    fn write(&mut self, keys: &mut Vec<u64>, value: u64) -> io::Result<()> {
        for key in keys.iter() {
            let values = [key.to_be_bytes(), value.to_be_bytes()];
            self.client.execute(*key as i16, &self.insert.id, &values.each_ref().map(|bytes| Value::Set(bytes)));
        }
        self.client.flush()?;
        for _ in 0..keys.len() {
            if let (key, ClientResponse::Void) = self.client.receive()? {
                keys.retain(|open| *open != key as u64);
            }
        }
        Ok(())
    }
}

/// Writes every key through a node, again and again until each is acknowledged.
fn write_all(cluster: &Cluster, node: usize, value: u64) {
    let mut open: Vec<u64> = (0..KEYS).collect();
    cluster.wait_for(&format!("all keys to be written through node {node}"), || {
        // An error ends only this attempt.
        let _ = Reader::connect(&cluster.addresses[node], TABLE).and_then(|mut reader| reader.write(&mut open, value));
        open.is_empty()
    });
}

/// Requests of a node's clients, by where they were answered: by its own replica though it follows, and by another node.
fn followed_and_forwarded(cluster: &Cluster, node: usize) -> (u64, u64) {
    let count = |led| {
        let mut count = None;
        cluster.wait_for(&format!("the metrics of node {node}"), || {
            count = cluster.metric(node, "diorite_routed_requests_total", led);
            count.is_some()
        });
        count.expect("waited for")
    };
    (count("led=\"elsewhere, answered here\""), count("led=\"elsewhere\""))
}

fn cluster(bound: Duration) -> Cluster {
    let cluster = Cluster::start(3, &["--tablets-per-node", "2"]);
    cluster.run(0, KEYSPACE);
    let table = "CREATE TABLE IF NOT EXISTS old.values (k bigint PRIMARY KEY, v bigint)";
    cluster.run(0, &format!("{table} WITH follower_read_staleness_ms = {}", bound.as_millis()));
    write_all(&cluster, 0, 1);
    cluster
}

/// Reads the keys at a level through a node until each is answered without another node's help, and at least one by a replica that follows: from then on
/// those replicas hold all that had been acknowledged.
pub fn wait_until_followed(cluster: &Cluster, node: usize, table: &str, keys: &[u64], consistency: Consistency) {
    cluster.wait_for(&format!("node {node} to answer all keys of {table} by itself"), || {
        let Ok(mut reader) = Reader::connect(&cluster.addresses[node], table) else { return false };
        let before = followed_and_forwarded(cluster, node);
        let Ok(found) = reader.read(keys, consistency) else { return false };
        let after = followed_and_forwarded(cluster, node);
        found.iter().all(|(_, value)| value.is_some()) && after.1 == before.1 && after.0 > before.0
    });
}

/// Waits until a node answers all keys by itself, with what they are to hold; a key that is not there is `None`.
pub fn wait_until_held(cluster: &Cluster, node: usize, table: &str, keys: &[u64], held: &[Option<u64>]) {
    cluster.wait_for(&format!("node {node} to hold by itself what {table} is to hold"), || {
        let Ok(mut reader) = Reader::connect(&cluster.addresses[node], table) else { return false };
        let before = followed_and_forwarded(cluster, node);
        let found: io::Result<Vec<_>> =
            keys.chunks(MOST_AT_ONCE).map(|keys| reader.read(keys, Consistency::One)).collect();
        let Ok(found) = found else { return false };
        let is_own = followed_and_forwarded(cluster, node).1 == before.1;
        let found: BTreeMap<u64, Option<u64>> = found.into_iter().flatten().collect();
        is_own && keys.iter().zip(held).all(|(key, held)| found[key] == *held)
    });
}

fn wait_until_all_followed(cluster: &Cluster, node: usize, consistency: Consistency) {
    wait_until_followed(cluster, node, TABLE, &(0..KEYS).collect::<Vec<_>>(), consistency);
}

#[test]
fn followers_answer_what_may_be_old_and_nothing_else() {
    let _turn = turn();
    let cluster = cluster(Duration::from_secs(60));
    let keys: Vec<u64> = (0..KEYS).collect();
    for node in 0..cluster.len() {
        for level in [Consistency::One, Consistency::LocalOne] {
            wait_until_all_followed(&cluster, node, level);
        }
        let mut reader = Reader::connect(&cluster.addresses[node], TABLE).unwrap();
        for level in [Consistency::Quorum, Consistency::LocalQuorum, Consistency::All, Consistency::Serial] {
            let before = followed_and_forwarded(&cluster, node);
            let found = reader.read(&keys, level).unwrap();
            assert!(found.iter().all(|(_, value)| *value == Some(1)), "{level:?}: {found:?}");
            let after = followed_and_forwarded(&cluster, node);
            assert_eq!(after.0, before.0, "{level:?}: no read may be answered by a follower");
        }
    }
}

#[test]
fn followers_answer_while_their_leader_is_paused() {
    let _turn = turn();
    let cluster = cluster(Duration::from_secs(60));
    let mut leader = None;
    cluster.wait_for("a node that leads", || {
        leader = cluster.leader_of_most();
        leader.is_some()
    });
    let leader = leader.expect("waited for");
    let followers: Vec<usize> = (0..cluster.len()).filter(|node| *node != leader).collect();
    followers.iter().for_each(|node| wait_until_all_followed(&cluster, *node, Consistency::One));
    let keys: Vec<u64> = (0..KEYS).collect();
    cluster.pause(leader);
    for node in followers {
        // From the first moment on, when nobody knows yet that the leader is gone, until long after others have been elected.
        let mut reader = Reader::connect(&cluster.addresses[node], TABLE).unwrap();
        let before = followed_and_forwarded(&cluster, node);
        for round in 0..50 {
            let found = reader.read(&keys, Consistency::One).unwrap();
            assert!(found.iter().all(|(_, value)| *value == Some(1)), "node {node}, round {round}: {found:?}");
        }
        let after = followed_and_forwarded(&cluster, node);
        assert!(after.0 > before.0, "node {node} answered nothing that it does not lead");
    }
    cluster.resume(leader);
}

/// Whatever node `node` answers to reads sent after `written` may be `old` only within the bound. Returns how many were, until the bound has passed.
fn read_past_the_bound(cluster: &Cluster, node: usize, written: Instant, old: u64, new: u64) -> usize {
    let keys: Vec<u64> = (0..KEYS).collect();
    let mut seen_old = 0;
    let mut reader = None;
    while written.elapsed() < BOUND + Duration::from_secs(1) {
        if reader.is_none() {
            reader = Reader::connect(&cluster.addresses[node], TABLE).ok();
        }
        let Some(connected) = &mut reader else { continue };
        let sent = Instant::now();
        let Ok(found) = connected.read(&keys, Consistency::One) else {
            reader = None;
            continue;
        };
        for (key, value) in found.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            assert!([old, new].contains(&value), "key {key} was {old} and is {new}, not {value}");
            let since = sent.duration_since(written);
            assert!(value == new || since <= BOUND, "key {key} was read {since:?} after it was overwritten");
            seen_old += usize::from(value == old);
        }
    }
    seen_old
}

#[test]
fn a_follower_that_is_cut_off_answers_for_no_longer_than_it_may() {
    let _turn = turn();
    let cluster = cluster(BOUND);
    let (node, others) = (2, 0);
    let start = Instant::now();
    let mut value = 1;
    // An old answer has to be seen once, or nothing has been tested; how soon depends on who leads and how busy the machine is.
    for round in 0.. {
        wait_until_all_followed(&cluster, node, Consistency::One);
        cluster.network.isolate(node, Policy::Hold);
        value += 1;
        write_all(&cluster, others, value);
        let written = Instant::now();
        let mut strong = Reader::connect(&cluster.addresses[node], TABLE).unwrap();
        (0..KEYS).for_each(|key| strong.send(key as usize, key, Consistency::Quorum));
        strong.client.flush().unwrap();
        let seen_old = read_past_the_bound(&cluster, node, written, value - 1, value);
        cluster.network.heal();
        for _ in 0..KEYS {
            // Sent after the write was acknowledged: it fails, or is forwarded when the node is back.
            if let (key, ClientResponse::Rows(rows)) = strong.client.receive().unwrap() {
                assert_eq!(
                    rows.rows.first().map(|row| number(&row[0])),
                    Some(value),
                    "a strong read of key {key} is old"
                );
            }
        }
        println!("round {round}: {seen_old} answers were old");
        if seen_old > 0 {
            break;
        }
        assert!(start.elapsed() < RECOVERY, "no follower ever answered by itself while it was cut off");
    }
    let keys: Vec<u64> = (0..KEYS).collect();
    cluster.wait_for("the follower to have caught up", || {
        let Ok(mut reader) = Reader::connect(&cluster.addresses[node], TABLE) else { return false };
        let Ok(found) = reader.read(&keys, Consistency::One) else { return false };
        found.iter().all(|(_, found)| *found == Some(value))
    });
}
