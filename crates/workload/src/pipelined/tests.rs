//! The lean client and the runner against a small responder that keeps rows in memory and can be told to lie.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::arguments::{Popularity, WorkloadKind};
use crate::data::KeyFormat;
use crate::key_state::KeyState;
use crate::runner::{Executor, Interval, Observer, Outcome, Plan, drive};
use crate::workloads::Problem;

/// What the responder does wrong, from the given read on.
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
    rows: std::sync::Mutex<Rows>,
    fault: Fault,
    from_read: u64,
    reads: AtomicU64,
    connections: AtomicUsize,
}

impl Responder {
    async fn start(fault: Fault, from_read: u64) -> (Arc<Self>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (rows, reads, connections) = Default::default();
        let responder = Arc::new(Self { rows, fault, from_read, reads, connections });
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
        loop {
            while received.len() >= 9 {
                let length = 9 + u32::from_be_bytes(received[5..9].try_into().unwrap()) as usize;
                if received.len() < length {
                    break;
                }
                let frame = received.split_to(length);
                let Some((opcode, body)) = self.answer(frame[4], &frame[9..]) else { return };
                let mut out = vec![0x84, 0, frame[2], frame[3], opcode];
                out.extend_from_slice(&(body.len() as u32).to_be_bytes());
                out.extend_from_slice(&body);
                stream.write_all(&out).await.unwrap();
            }
            if stream.read_buf(&mut received).await.unwrap_or(0) == 0 {
                return;
            }
        }
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
    let statements = Statements::new(WorkloadKind::KeyValue, "t", None, None);
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
    (plan.writes, plan.duration) = (None, Some(Duration::from_millis(1_300)));
    let outcome = drive(&executor, &plan, &mut count).await.unwrap();
    assert!((1.2..3.0).contains(&outcome.seconds), "{}", outcome.seconds);
    assert!(count.0 >= 2);
}
