//! Clients of a cluster under torture: some work on a few registers and record what they see, some insert rows that must not be lost.
//!
//! Always true: a client has one request at a time; after an outcome that is not known it takes another connection. Values are written
//! once, so that a read tells which write it saw.

use crate::cluster::Cluster;
use crate::session::{Session, number};
use diorite_base::random::{Random, SplitMix64};
use diorite_cql::protocol::Consistency;
use diorite_cql::protocol::client::{ClientRequest, ClientResponse, Parameters};
use diorite_history::{Insert, Outcome, Recorder, Request};
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A row as it was answered.
pub type Row = Vec<Option<Vec<u8>>>;

/// Registers.
pub const KEYS: u64 = 30;

/// What all clients of one run share.
pub struct Load<'a> {
    pub cluster: &'a Cluster,
    pub recorder: &'a Recorder,
    pub inserts: Mutex<Vec<Insert>>,
    /// Requests that were certainly not carried out.
    pub refused: AtomicU64,
    /// Requests of which nobody knows what became: timeouts, broken connections.
    pub unknown: AtomicU64,
    /// What nodes answered instead of carrying out a request or preparing it, and how often.
    pub errors: Mutex<BTreeMap<String, u64>>,
    stop: AtomicBool,
    next_value: AtomicU64,
}

/// Sets what it holds when it is dropped, so also when a test fails.
pub struct StopWhenDropped<'a>(pub &'a AtomicBool);

impl Drop for StopWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A client's connection, on some node.
struct Caller<'a> {
    load: &'a Load<'a>,
    random: SplitMix64,
    session: Option<Session>,
}

impl<'a> Load<'a> {
    pub fn new(cluster: &'a Cluster, recorder: &'a Recorder) -> Self {
        Self {
            cluster,
            recorder,
            inserts: Mutex::default(),
            refused: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            errors: Mutex::default(),
            stop: AtomicBool::new(false),
            next_value: AtomicU64::new(1),
        }
    }

    /// Ends the clients when it is dropped, so also when the test fails.
    pub fn stop_when_dropped(&'a self) -> StopWhenDropped<'a> {
        StopWhenDropped(&self.stop)
    }

    /// A value that nobody writes again.
    pub fn fresh_value(&self) -> u64 {
        self.next_value.fetch_add(1, Ordering::Relaxed)
    }

    fn note_error(&self, error: impl std::fmt::Debug) {
        *self.errors.lock().unwrap().entry(format!("{error:?}")).or_insert(0) += 1;
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn caller(&'a self, random: SplitMix64) -> Caller<'a> {
        Caller { load: self, random, session: None }
    }

    /// Works on the registers until the end.
    pub fn work_on_registers(&'a self, client: u32, random: SplitMix64) {
        let mut caller = self.caller(random);
        let mut seen: HashMap<u64, Option<u64>> = HashMap::new();
        while !self.is_over() {
            let key = caller.random.below(KEYS);
            let request = match caller.random.below(10) {
                0..4 => Request::Read,
                4..6 => Request::Write(Some(self.fresh_value())),
                _ => {
                    let expected = seen.get(&key).copied().flatten();
                    Request::CompareAndSet { expected, new: Some(self.fresh_value()) }
                }
            };
            if let Some(found) = caller.ask(client, key, request) {
                seen.insert(key, found);
            }
            caller.think();
        }
    }

    /// Inserts rows until the end.
    pub fn insert_rows(&'a self, client: u64, random: SplitMix64) {
        let mut caller = self.caller(random);
        for row in 0.. {
            if self.is_over() {
                return;
            }
            let (key, value) = (client << 32 | row, self.fresh_value());
            let Some(session) = caller.session() else {
                caller.think();
                continue;
            };
            let outcome = session.insert(key, value).unwrap_or(Outcome::Unknown);
            if let Some(error) = session.take_error() {
                self.note_error(error.code());
            }
            caller.judge(outcome);
            if outcome != Outcome::NotDone {
                let insert = Insert { key, value, acknowledged: outcome == Outcome::Done };
                self.inserts.lock().unwrap().push(insert);
            }
            caller.think();
        }
    }
}

impl Caller<'_> {
    /// A connection, if a node takes one. Timeouts differ: some clients give up while the cluster still works on it.
    fn session(&mut self) -> Option<&mut Session> {
        if self.session.is_none() {
            let node = self.random.below(self.load.cluster.len() as u64) as usize;
            let timeout = Duration::from_millis(200 + self.random.below(6_000));
            match Session::connect(&self.load.cluster.addresses[node], timeout) {
                Ok(session) => self.session = Some(session),
                // What is answered, but not as it should be.
                Err(error) if error.kind() == std::io::ErrorKind::Other => self.load.note_error(error.to_string()),
                Err(_) => {}
            }
        }
        self.session.as_mut()
    }

    /// Now and then another connection is taken without need.
    fn judge(&mut self, outcome: Outcome) {
        let failures = match outcome {
            Outcome::NotDone => Some(&self.load.refused),
            Outcome::Unknown => Some(&self.load.unknown),
            _ => None,
        };
        if let Some(failures) = failures {
            failures.fetch_add(1, Ordering::Relaxed);
        }
        if failures.is_some() || self.random.below(200) == 0 {
            self.session = None;
        }
    }

    fn think(&mut self) {
        std::thread::sleep(Duration::from_micros(500 + self.random.below(6_000)));
    }

    /// Asks and records; returns what the register holds, as far as this client knows now.
    fn ask(&mut self, client: u32, key: u64, request: Request) -> Option<Option<u64>> {
        let recorder = self.load.recorder;
        let session = self.session()?;
        let Ok(ticket) = recorder.begin(client, key, request) else {
            self.load.stop.store(true, Ordering::Relaxed);
            return None;
        };
        let outcome = session.ask(key, request).unwrap_or(Outcome::Unknown);
        recorder.finish(ticket, outcome);
        self.judge(outcome);
        match (request, outcome) {
            (_, Outcome::Found(found) | Outcome::Conflict(found)) => Some(found),
            (Request::Write(value) | Request::CompareAndSet { new: value, .. }, Outcome::Done) => Some(value),
            _ => None,
        }
    }
}

/// All rows of the table that is only inserted, asked of one node.
pub fn read_inserts(cluster: &Cluster, node: usize) -> BTreeMap<u64, u64> {
    let rows = read_all(cluster, node, "SELECT k, v FROM torture.inserts");
    rows.iter().map(|row| (number(&row[0]), number(&row[1]))).collect()
}

/// All rows of a statement, asked of one healthy node page by page.
pub fn read_all(cluster: &Cluster, node: usize, statement: &str) -> Vec<Row> {
    let mut found = Vec::new();
    cluster.wait_for(&format!("node {node} to answer {statement}"), || {
        found.clear();
        read_pages(cluster, node, statement, &mut found).is_some()
    });
    found
}

fn read_pages(cluster: &Cluster, node: usize, statement: &str, found: &mut Vec<Row>) -> Option<()> {
    let mut client = cluster.client(node);
    let mut paging_state: Option<Vec<u8>> = None;
    loop {
        let parameters = Parameters {
            consistency: Consistency::Quorum,
            page_size: Some(5_000),
            paging_state: paging_state.as_deref(),
            ..Parameters::default()
        };
        let ClientResponse::Rows(rows) = client.call(&ClientRequest::Query { statement, parameters }).ok()? else {
            return None;
        };
        found.extend(rows.rows);
        paging_state = rows.metadata.paging_state;
        if paging_state.is_none() {
            return Some(());
        }
    }
}
