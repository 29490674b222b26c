//! A leader that was paused, or cut off while clients still reach it, never answers with what was overwritten meanwhile.
//!
//! In each round the node that leads most tablets is put out of touch, other nodes write every key anew, and the old leader is asked: by
//! requests that waited in its socket, and by new ones. It may fail or forward; what it returns must be what was written last.
//! Left out: a leader whose clock is slow. A process cannot be given such a clock simply; the simulation tests it.

use crate::client::Client;
use crate::cluster::Cluster;
use crate::network::Policy;
use crate::session::{KEYSPACE, TABLES, number, prepare};
use crate::turn;
use diorite_cql::protocol::client::{BoundValues, ClientPrepared, ClientRequest, ClientResponse, Parameters};
use diorite_cql::protocol::{Consistency, Value};
use std::io;
use std::time::{Duration, Instant};

/// Enough that every tablet has some.
const KEYS: u64 = 100;

/// A connection on which many reads wait at once.
struct Reader {
    client: Client,
    read: ClientPrepared,
}

impl Reader {
    fn connect(address: &str) -> io::Result<Self> {
        let mut client = Client::connect_within(address, Duration::from_secs(20))?;
        let read = prepare(&mut client, "SELECT v FROM torture.registers WHERE k = ?")?;
        Ok(Self { client, read })
    }

    /// Sends a read of every key.
    fn ask_all(&mut self) -> io::Result<()> {
        for key in 0..KEYS {
            let bytes = key.to_be_bytes();
            let values = [Value::Set(&bytes)];
            let parameters = Parameters {
                consistency: Consistency::Quorum,
                values: BoundValues::Positional(&values),
                ..Parameters::default()
            };
            let execute = ClientRequest::Execute { id: &self.read.id, result_metadata_id: &[], parameters };
            self.client.send(key as i16, &execute);
        }
        self.client.flush()
    }

    /// Takes the answers; each must be `expected` or an error. Returns how many were answered.
    fn expect_all(&mut self, expected: u64, when: &str) -> io::Result<usize> {
        let mut answered = 0;
        for _ in 0..KEYS {
            let (key, response) = self.client.receive()?;
            match response {
                ClientResponse::Rows(rows) => {
                    let found = rows.rows.first().map(|row| number(&row[0]));
                    assert_eq!(found, Some(expected), "{when}: the old leader's answer for key {key} is stale");
                    answered += 1;
                }
                ClientResponse::Error(_) => {}
                other => panic!("{other:?}"),
            }
        }
        Ok(answered)
    }
}

/// Writes every key through a node other than `victim`, again and again until each write is acknowledged.
fn write_all(cluster: &Cluster, victim: usize, value: u64) {
    let mut acknowledged = vec![false; KEYS as usize];
    cluster.wait_for(&format!("all keys to be written without node {victim}"), || {
        // An error ends only this attempt.
        let _ = write_open(cluster, victim, value, &mut acknowledged);
        !acknowledged.contains(&false)
    });
}

fn write_open(cluster: &Cluster, victim: usize, value: u64, acknowledged: &mut [bool]) -> io::Result<()> {
    let address = &cluster.addresses[(victim + 1) % cluster.len()];
    let mut client = Client::connect_within(address, Duration::from_secs(2))?;
    let insert = prepare(&mut client, "INSERT INTO torture.registers (k, v) VALUES (?, ?)")?;
    let open: Vec<u64> = (0..KEYS).filter(|key| !acknowledged[*key as usize]).collect();
    for key in &open {
        client.execute(*key as i16, &insert.id, &[Value::Set(&key.to_be_bytes()), Value::Set(&value.to_be_bytes())]);
    }
    client.flush()?;
    for _ in open {
        if let (key, ClientResponse::Void) = client.receive()? {
            acknowledged[key as usize] = true;
        }
    }
    Ok(())
}

fn cluster() -> Cluster {
    let cluster = Cluster::start(3, &[]);
    cluster.run(0, KEYSPACE);
    TABLES.iter().for_each(|table| cluster.run(0, table));
    write_all(&cluster, 0, 1);
    cluster
}

/// The node that leads most tablets, and a reader there that has been answered.
fn leader_and_reader(cluster: &Cluster, value: u64) -> (usize, Reader) {
    let mut found = None;
    cluster.wait_for("a leader that answers", || {
        let Some(leader) = cluster.leader_of_most() else { return false };
        let Ok(mut reader) = Reader::connect(&cluster.addresses[leader]) else { return false };
        let answered = reader.ask_all().and_then(|()| reader.expect_all(value, "before"));
        found = Some((leader, reader));
        answered.is_ok_and(|answered| answered == KEYS as usize)
    });
    found.expect("waited for")
}

/// Asks the old leader again and again for a while.
fn ask_for(reader: &mut Reader, address: &str, value: u64, when: &str) -> usize {
    let start = Instant::now();
    let mut answered = 0;
    while start.elapsed() < Duration::from_millis(500) {
        match reader.ask_all().and_then(|()| reader.expect_all(value, when)) {
            Ok(count) => answered += count,
            Err(_) => match Reader::connect(address) {
                Ok(again) => *reader = again,
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            },
        }
    }
    answered
}

#[test]
fn a_leader_that_was_paused_does_not_answer_with_what_was_overwritten_meanwhile() {
    let _turn = turn();
    let cluster = cluster();
    for round in 0..8 {
        let value = 2 + round;
        let (leader, mut queued) = leader_and_reader(&cluster, value - 1);
        let mut fresh = Reader::connect(&cluster.addresses[leader]).unwrap();
        cluster.pause(leader);
        write_all(&cluster, leader, value);
        // These wait in the socket of a process that still believes in its lease.
        queued.ask_all().unwrap();
        cluster.resume(leader);
        let waited = queued.expect_all(value, "queued").unwrap_or(0);
        let address = &cluster.addresses[leader];
        let after = ask_for(&mut fresh, address, value, "right after");
        println!("round {round}: node {leader} answered {waited} queued reads, {after} right after");
    }
}

#[test]
fn a_leader_that_is_cut_off_from_the_others_does_not_answer_with_what_was_overwritten_meanwhile() {
    let _turn = turn();
    let cluster = cluster();
    let mut value = 1;
    for policy in [Policy::Hold, Policy::Cut] {
        for shape in ["both ways", "outwards", "inwards"] {
            let (leader, mut reader) = leader_and_reader(&cluster, value);
            value += 1;
            cluster.network.set_all(|from, to| match shape {
                "outwards" if from == leader => policy,
                "inwards" if to == leader => policy,
                "both ways" if from == leader || to == leader => policy,
                _ => Policy::Pass,
            });
            write_all(&cluster, leader, value);
            let when = format!("{policy:?} {shape}");
            let address = &cluster.addresses[leader];
            let cut_off = ask_for(&mut reader, address, value, &when);
            cluster.network.heal();
            let healed = ask_for(&mut reader, address, value, "healed");
            println!("{when}: node {leader} answered {cut_off} reads cut off, {healed} right after");
            write_all(&cluster, leader, value);
            if shape == "both ways" {
                assert_eq!(cut_off, 0, "nobody can have told a node that is cut off what was written");
            }
        }
    }
}
