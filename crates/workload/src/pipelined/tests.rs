//! The lean client and the runner against a small responder that keeps rows in memory and can be told to lie.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::BytesMut;
use scylla::routing::partitioner::{Murmur3Partitioner, Partitioner};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::arguments::{IndexShape, Popularity, WorkloadKind};
use crate::data::KeyFormat;
use crate::error::Problem;
use crate::key_state::KeyState;
use crate::runner::{Executor, Interval, Observer, Outcome, Plan, drive};

/// The faults of the responder, each from the given read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    LoseRow,
    FlipBit,
    AnswerFirstVersion,
    RefuseWrites,
    CloseConnection,
}

#[derive(Default)]
struct Rows {
    /// All values ever written, by key.
    values: HashMap<Vec<u8>, Vec<Vec<u8>>>,
}

struct Responder {
    rows: Arc<std::sync::Mutex<Rows>>,
    fault: Fault,
    from_read: u64,
    reads: AtomicU64,
    connections: AtomicUsize,
    /// The node's place and the number of nodes; each leads one part of the ring.
    place: (usize, usize),
    /// Requests for tablets that another node leads.
    misdirected: AtomicU64,
}

impl Responder {
    async fn start(fault: Fault, from_read: u64) -> (Arc<Self>, String) {
        Self::start_one_of(fault, from_read, (0, 1), Arc::default()).await
    }

    async fn start_one_of(
        fault: Fault,
        from_read: u64,
        place: (usize, usize),
        rows: Arc<std::sync::Mutex<Rows>>,
    ) -> (Arc<Self>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (reads, connections, misdirected) = Default::default();
        let responder = Arc::new(Self { rows, fault, from_read, reads, connections, place, misdirected });
        let serving = Arc::clone(&responder);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serving.connections.fetch_add(1, Ordering::Relaxed);
                let responder = Arc::clone(&serving);
                tokio::spawn(async move { responder.serve(stream).await });
            }
        });
        (responder, address)
    }

    async fn serve(&self, mut stream: TcpStream) {
        let mut received = BytesMut::new();
        let mut tells_tablets = false;
        loop {
            while received.len() >= 9 {
                let length = 9 + u32::from_be_bytes(received[5..9].try_into().unwrap()) as usize;
                if received.len() < length {
                    break;
                }
                let frame = received.split_to(length);
                let Some((opcode, body)) = self.answer(frame[4], &frame[9..]) else { return };
                tells_tablets |= frame[4] == frames::OPCODE_STARTUP && frame.ends_with(b"TABLETS_ROUTING_V1\0\0");
                let payload = self.payload(&frame).filter(|_| tells_tablets);
                let flags = if payload.is_some() { 0x04 } else { 0 };
                let body = [payload.unwrap_or_default(), body].concat();
                let mut out = vec![0x84, flags, frame[2], frame[3], opcode];
                out.extend_from_slice(&(body.len() as u32).to_be_bytes());
                out.extend_from_slice(&body);
                stream.write_all(&out).await.unwrap();
            }
            if stream.read_buf(&mut received).await.unwrap_or(0) == 0 {
                return;
            }
        }
    }

    /// The tablet of a request that another node should have got, as a custom payload.
    fn payload(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let (place, nodes) = self.place;
        if frame[4] != frames::OPCODE_EXECUTE || nodes == 1 {
            return None;
        }
        let part = u64::MAX / nodes as u64;
        let token = Murmur3Partitioner.hash_one(&values(&frame[9..])[0]).value();
        let leader = ((token as u64 ^ 1 << 63) / part).min(nodes as u64 - 1);
        if leader == place as u64 {
            return None;
        }
        self.misdirected.fetch_add(1, Ordering::Relaxed);
        let bound = |number: u64| ((number * part) ^ 1 << 63) as i64;
        let last = if leader + 1 == nodes as u64 { i64::MAX } else { bound(leader + 1) - 1 };
        let after = if leader == 0 { i64::MIN } else { bound(leader) - 1 };
        let cell = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat();
        let replica = [cell(&[leader as u8; 16]), cell(&[0; 4])].concat();
        let replicas = [&1_u32.to_be_bytes()[..], &cell(&replica)].concat();
        let tablet = [cell(&after.to_be_bytes()), cell(&last.to_be_bytes()), cell(&replicas)].concat();
        Some([&[0, 1, 0, 18][..], b"tablets-routing-v1", &cell(&tablet)].concat())
    }

    fn answer(&self, opcode: u8, body: &[u8]) -> Option<(u8, Vec<u8>)> {
        match opcode {
            frames::OPCODE_STARTUP => Some((frames::OPCODE_READY, Vec::new())),
            frames::OPCODE_QUERY => Some((frames::OPCODE_RESULT, vec![0, 0, 0, 1])),
            frames::OPCODE_PREPARE => {
                let id = if body[4..].starts_with(b"INSERT") { b'w' } else { b'r' };
                Some((frames::OPCODE_RESULT, vec![0, 0, 0, 4, 0, 1, id]))
            }
            frames::OPCODE_EXECUTE if body[2] == b'w' => self.write(&values(body)),
            frames::OPCODE_EXECUTE => self.read(&values(body)[0]),
            other => panic!("opcode {other} is not expected"),
        }
    }

    fn write(&self, values: &[Vec<u8>]) -> Option<(u8, Vec<u8>)> {
        if self.fault == Fault::RefuseWrites {
            return Some((frames::OPCODE_ERROR, vec![0, 0, 0x10, 0x01, 0, 4, b'f', b'u', b'l', b'l']));
        }
        self.rows.lock().unwrap().values.entry(values[0].clone()).or_default().push(values[1].clone());
        Some((frames::OPCODE_RESULT, vec![0, 0, 0, 1]))
    }

    fn read(&self, key: &[u8]) -> Option<(u8, Vec<u8>)> {
        let rows = self.rows.lock().unwrap();
        let versions = rows.values.get(key);
        let fault = if self.reads.fetch_add(1, Ordering::Relaxed) >= self.from_read { self.fault } else { Fault::None };
        let mut value = match fault {
            Fault::CloseConnection => return None,
            Fault::LoseRow => None,
            Fault::AnswerFirstVersion => versions.and_then(|versions| versions.first().cloned()),
            _ => versions.and_then(|versions| versions.last().cloned()),
        };
        if let (Fault::FlipBit, Some(value)) = (fault, &mut value) {
            value[100] ^= 4;
        }
        let mut body = [0_u32, 2, 4, 2, u32::from(value.is_some())][1..]
            .iter()
            .flat_map(|word| word.to_be_bytes())
            .collect::<Vec<_>>();
        if let Some(value) = value {
            for cell in [key, &value] {
                body.extend_from_slice(&(cell.len() as u32).to_be_bytes());
                body.extend_from_slice(cell);
            }
        }
        Some((frames::OPCODE_RESULT, body))
    }
}

fn values(body: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = &body[2 + 1 + 2 + 1 + 2..];
    let mut values = Vec::new();
    while !rest.is_empty() {
        let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
        values.push(rest[4..4 + length].to_vec());
        rest = &rest[4 + length..];
    }
    values
}

struct Quiet;

impl Observer for Quiet {
    fn observe(&mut self, _: &Interval) {}
}

fn rows(unique: u64) -> RowSet {
    let keys = Arc::new(KeyState::new(1_700_000_000, 0, unique, unique));
    RowSet::new(keys, KeyFormat::new("key", 50), 256, Popularity::Uniform)
}

fn plan(writers: usize, readers: usize, writes: u64) -> Plan {
    Plan { writers, readers, writes: Some(writes), reads: None, duration: None, rate: None, seed: 7, until: None }
}

async fn executor(address: &str, unique: u64, connections: usize) -> Executor {
    let statements = Statements::new(WorkloadKind::KeyValue, "t", None, None, IndexShape::default());
    let nodes = [NodeAddress::anonymous(address)];
    let pipelined = Pipelined::connect(&nodes, "ks", connections, &statements, rows(unique), false).await.unwrap();
    Executor::Pipelined(Arc::new(pipelined))
}

/// Loads 500 keys, then overwrites them while reading, 5,000 writes in all.
async fn run(fault: Fault) -> (Arc<Responder>, Result<Outcome, WorkloadError>) {
    let (responder, address) = Responder::start(fault, 1_000).await;
    let executor = executor(&address, 500, 4).await;
    let outcome = drive(&executor, &plan(32, 32, 5_000), &mut Quiet).await;
    (responder, outcome)
}

async fn problem(fault: Fault) -> (String, Problem) {
    match run(fault).await.1 {
        Err(WorkloadError::Violation(violation)) => (violation.key.clone(), violation.problem.clone()),
        other => panic!("no violation but {:?}", other.map(|outcome| outcome.errors)),
    }
}

#[tokio::test]
async fn a_correct_server_passes_on_exactly_four_connections() {
    let (responder, outcome) = run(Fault::None).await;
    let outcome = outcome.unwrap();
    let (reads, writes) = (outcome.tallies.reads.summary(1.0), outcome.tallies.writes.summary(1.0));
    assert_eq!((writes.operations, writes.errors, reads.errors), (5_000, 0, 0));
    assert!(reads.operations > 1_000);
    assert_eq!(responder.connections.load(Ordering::Relaxed), 4);
    let written: usize = responder.rows.lock().unwrap().values.values().map(Vec::len).sum();
    assert_eq!(written, 5_000);
}

/// Requests and how many of them went to a node that does not lead, on a cluster of three.
async fn requests_to_three_nodes(tablet_aware: bool) -> (u64, u64) {
    let rows_of_all = Arc::default();
    let (mut responders, mut nodes) = (Vec::new(), Vec::new());
    for place in 0..3 {
        let (responder, address) = Responder::start_one_of(Fault::None, 0, (place, 3), Arc::clone(&rows_of_all)).await;
        responders.push(responder);
        nodes.push(NodeAddress { address, host_id: [place as u8; 16] });
    }
    let statements = Statements::new(WorkloadKind::KeyValue, "t", None, None, IndexShape::default());
    let pipelined = Pipelined::connect(&nodes, "ks", 2, &statements, rows(500), tablet_aware).await.unwrap();
    let executor = Executor::Pipelined(Arc::new(pipelined));
    let outcome = drive(&executor, &plan(16, 16, 3_000), &mut Quiet).await.unwrap();
    let (reads, writes) = (outcome.tallies.reads.summary(1.0), outcome.tallies.writes.summary(1.0));
    assert_eq!((reads.errors, writes.errors), (0, 0));
    assert!(responders.iter().all(|responder| responder.connections.load(Ordering::Relaxed) == 2));
    let misdirected = responders.iter().map(|responder| responder.misdirected.load(Ordering::Relaxed)).sum();
    (reads.operations + writes.operations, misdirected)
}

#[tokio::test]
async fn a_tablet_aware_client_sends_to_leaders_once_it_was_told() {
    let (requests, misdirected) = requests_to_three_nodes(true).await;
    assert!(misdirected < 100, "{misdirected} of {requests}: no more than what was in flight before the first answers");
}

#[tokio::test]
async fn a_client_that_is_not_uses_all_nodes_alike() {
    let (requests, misdirected) = requests_to_three_nodes(false).await;
    let share = misdirected as f64 / requests as f64;
    assert!(
        (0.6..0.73).contains(&share),
        "{misdirected} of {requests} went to a node that does not lead, not two thirds"
    );
}

#[tokio::test]
async fn a_lost_row_stops_the_run_and_is_named() {
    let (key, problem) = problem(Fault::LoseRow).await;
    assert_eq!(problem, Problem::Missing);
    assert!(key.starts_with("key:") && key.len() == 50, "{key}");
}

#[tokio::test]
async fn a_flipped_bit_stops_the_run() {
    assert!(matches!(problem(Fault::FlipBit).await.1, Problem::Wrong(_)));
}

#[tokio::test]
async fn an_old_version_stops_the_run() {
    assert!(matches!(problem(Fault::AnswerFirstVersion).await.1, Problem::Stale { .. }));
}

#[tokio::test]
async fn refused_writes_are_counted_not_hidden() {
    let (_, address) = Responder::start(Fault::RefuseWrites, 0).await;
    let executor = executor(&address, 50, 2).await;
    let outcome = drive(&executor, &plan(8, 0, 50), &mut Quiet).await.unwrap();
    assert_eq!(outcome.tallies.writes.errors, 50);
    assert_eq!(outcome.errors.get("error 0x1001: full"), Some(&50));
}

#[tokio::test]
async fn a_closed_connection_fails_its_requests_and_ends() {
    let outcome = run(Fault::CloseConnection).await.1.unwrap();
    assert!(outcome.tallies.reads.errors > 0);
}

#[tokio::test]
async fn a_run_for_a_duration_ends_in_time_and_shows_each_second() {
    let (_, address) = Responder::start(Fault::None, 0).await;
    let executor = executor(&address, 100, 2).await;
    struct Count(usize);
    impl Observer for Count {
        fn observe(&mut self, _: &Interval) {
            self.0 += 1;
        }
    }
    let mut count = Count(0);
    let mut plan = plan(4, 4, 0);
    (plan.writes, plan.duration) = (None, Some(Duration::from_millis(2_300)));
    let outcome = drive(&executor, &plan, &mut count).await.unwrap();
    // Without a duration it would go on for good; how late it ends is the machine's affair.
    assert!((2.2..60.0).contains(&outcome.seconds), "{}", outcome.seconds);
    // Three, of which a machine that is busy for a while may take two together.
    assert!(count.0 >= 2);
}
