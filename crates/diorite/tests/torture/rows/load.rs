//! Clients that write and read rows of all kinds and keep what they were told.
//!
//! Always true: a client has one request at a time, sends it once, and takes another connection after an outcome that is not known. Every number is
//! written once.

use super::Told;
use crate::client::Client;
use crate::cluster::Cluster;
use crate::session::{applied, number, prepare, refusal};
use diorite_base::random::{Random, SplitMix64};
use diorite_base::{Clock, SystemClock};
use diorite_cql::protocol::client::{
    BoundValues, ClientPrepared, ClientRequest, ClientResponse, ClientRows, Parameters,
};
use diorite_cql::protocol::{Consistency, Value};
use diorite_history::{Append, Ended, Expiring, Look, Outcome, Recorder, Request, Several, check_whole};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The tables, each with a few tablets that can be split, and merged again.
pub const TABLES: [&str; 5] = [
    "CREATE TABLE IF NOT EXISTS torture.counters (k bigint PRIMARY KEY, n counter) WITH tablets = 2",
    "CREATE TABLE IF NOT EXISTS torture.lists (k bigint PRIMARY KEY, l list<bigint>) WITH tablets = 2",
    "CREATE TABLE IF NOT EXISTS torture.batches (k bigint, c bigint, PRIMARY KEY (k, c)) WITH tablets = 3",
    "CREATE TABLE IF NOT EXISTS torture.expiring (k bigint PRIMARY KEY, v bigint) WITH tablets = 2",
    "CREATE TABLE IF NOT EXISTS torture.whole (k bigint, c bigint, s bigint static, v bigint, PRIMARY KEY (k, c)) WITH tablets = 2",
];

/// Statements that are prepared: the short ways of EXECUTE are used as well.
const PREPARED: [&str; 6] = [
    "UPDATE torture.counters SET n = n + 1 WHERE k = ?",
    "UPDATE torture.lists SET l = l + [?] WHERE k = ?",
    "SELECT v FROM torture.expiring WHERE k = ?",
    "SELECT s, v FROM torture.whole WHERE k = ? AND c IN (1, 2)",
    "DELETE FROM torture.whole WHERE k = ?",
    "BEGIN BATCH INSERT INTO torture.batches (k, c) VALUES (?, ?); INSERT INTO torture.batches (k, c) VALUES (?, ?); \
     INSERT INTO torture.batches (k, c) VALUES (?, ?); APPLY BATCH",
];
const INCREMENT: usize = 0;
const APPEND: usize = 1;
const LOOK: usize = 2;
const READ_WHOLE: usize = 3;
const DELETE_WHOLE: usize = 4;
const BATCH: usize = 5;

/// Counters.
pub const COUNTERS: u64 = 8;
/// Appends to one list.
pub const LIST_LENGTH: u64 = 150;
/// Partitions that one batch writes to.
pub const PLACES: usize = 3;
/// Partitions of the table of batches, for each place.
const PARTITIONS: u64 = 5;
/// Partitions of which static column and rows are of one write.
const WHOLE_KEYS: u64 = 6;
/// What a lifetime may be off by: it is told in whole seconds.
pub const MARGIN: Duration = Duration::from_millis(1_500);
/// Cells that are looked at: those written last.
const RECENT: usize = 400;
/// Operations of one round on what is whole: more than clients can ask for.
const MOST_OPERATIONS: usize = 4_000_000;

/// The list that a number is appended to.
pub fn list_of(append: u64) -> u64 {
    append / LIST_LENGTH
}

/// What all clients share.
pub struct Rows<'a> {
    pub cluster: &'a Cluster,
    /// Operations on partitions that are whole, as on registers.
    pub recorder: Recorder,
    pub stop: AtomicBool,
    clock: Arc<SystemClock>,
    next: AtomicU64,
    appends: AtomicU64,
    told: Mutex<Told>,
    recent: Mutex<VecDeque<u64>>,
}

/// A connection with its prepared statements.
struct Connection {
    client: Client,
    prepared: Vec<ClientPrepared>,
}

/// What a client does, on its connection to some node.
struct Caller<'a> {
    rows: &'a Rows<'a>,
    number: u32,
    random: SplitMix64,
    connection: Option<Connection>,
    /// What each whole partition held when it was last known.
    seen: HashMap<u64, Option<u64>>,
}

/// What is asked.
enum Asked<'a> {
    Prepared(usize, &'a [u64]),
    Text(&'a str),
}

/// What is known of a request that was sent, and the rows of its answer.
struct Answer {
    ended: Ended,
    rows: Option<ClientRows>,
    sent_ns: u64,
    answered_ns: u64,
}

impl<'a> Rows<'a> {
    pub fn new(cluster: &'a Cluster) -> Self {
        let clock = Arc::new(SystemClock::new());
        let told = Told {
            counts: BTreeMap::new(),
            appends: BTreeMap::new(),
            batches: Vec::new(),
            expiring: Vec::new(),
            looks: Vec::new(),
            errors: BTreeMap::new(),
            reads_of_whole: 0,
        };
        Self {
            cluster,
            recorder: Recorder::new(Arc::clone(&clock) as Arc<dyn Clock>, MOST_OPERATIONS),
            stop: AtomicBool::new(false),
            clock,
            next: AtomicU64::new(1),
            appends: AtomicU64::new(0),
            told: Mutex::new(told),
            recent: Mutex::default(),
        }
    }

    /// What clients were told so far.
    pub fn told(&self) -> Told {
        self.told.lock().unwrap().clone()
    }

    fn fresh(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Writes and reads until the end.
    pub fn work(&self, number: u32, random: SplitMix64) {
        let mut caller = Caller { rows: self, number, random, connection: None, seen: HashMap::new() };
        while !self.stop.load(Ordering::Relaxed) {
            match caller.random.below(12) {
                0 | 1 => caller.increment(),
                2 => caller.increment_two(),
                3 | 4 => caller.append(),
                5 => caller.batch(),
                6 => caller.expire(),
                7 => caller.look(),
                8 => caller.write_whole(),
                9 => caller.compare_and_set_whole(),
                _ => caller.read_whole(),
            };
            std::thread::sleep(Duration::from_micros(500 + caller.random.below(6_000)));
        }
    }

    /// A healed cluster answers everything again: a write and a read of each whole partition through each node, recorded like all others.
    pub fn read_whole_everywhere(&self) {
        for node in 0..self.cluster.len() {
            let random = SplitMix64::new(node as u64);
            let mut caller =
                Caller { rows: self, number: 1_000 + node as u32, random, connection: None, seen: HashMap::new() };
            for key in 0..WHOLE_KEYS {
                for is_write in [true, false] {
                    self.cluster.wait_for(&format!("node {node} to answer for partition {key}"), || {
                        caller.connection =
                            Connection::open(&self.cluster.addresses[node], Duration::from_secs(10)).ok();
                        let done = if is_write { caller.write_whole_at(key) } else { caller.read_whole_at(key) };
                        done == Some(Ended::Done)
                    });
                }
            }
        }
    }

    /// Waits until no lifetime lasts any more, and looks at what was written last.
    pub fn look_at_what_has_expired(&self) {
        let last_ns = self.told.lock().unwrap().expiring.iter().map(|cell| cell.answered_ns + cell.lifetime_ns).max();
        let is_over = || self.clock.monotonic_ns() > last_ns.unwrap_or(0) + MARGIN.as_nanos() as u64;
        self.cluster.wait_for("the end of all lifetimes", is_over);
        let random = SplitMix64::new(0);
        let mut caller = Caller { rows: self, number: 2_000, random, connection: None, seen: HashMap::new() };
        let recent: Vec<u64> = self.recent.lock().unwrap().iter().copied().collect();
        for key in recent {
            self.cluster.wait_for("a look at a cell", || caller.look_at(key) == Some(Ended::Done));
        }
    }
}

impl Connection {
    fn open(address: &str, timeout: Duration) -> io::Result<Self> {
        let mut client = Client::connect_within(address, timeout)?;
        let prepared = PREPARED.iter().map(|statement| prepare(&mut client, statement)).collect::<io::Result<_>>()?;
        Ok(Self { client, prepared })
    }

    fn ask(&mut self, asked: &Asked<'_>) -> io::Result<ClientResponse> {
        let parameters = |values| Parameters {
            consistency: Consistency::Quorum,
            serial_consistency: Some(Consistency::Serial),
            values,
            ..Parameters::default()
        };
        match asked {
            Asked::Text(statement) => {
                let parameters = parameters(BoundValues::None);
                self.client.call(&ClientRequest::Query { statement, parameters })
            }
            Asked::Prepared(which, values) => {
                let bytes: Vec<[u8; 8]> = values.iter().map(|value| value.to_be_bytes()).collect();
                let values: Vec<Value<'_>> = bytes.iter().map(|bytes| Value::Set(bytes)).collect();
                let parameters = parameters(BoundValues::Positional(&values));
                let id = &self.prepared[*which].id;
                self.client.call(&ClientRequest::Execute { id, result_metadata_id: &[], parameters })
            }
        }
    }
}

impl Caller<'_> {
    /// Sends a request once; `None` if there was nobody to send it to.
    fn ask(&mut self, asked: &Asked<'_>) -> Option<Answer> {
        if self.connection.is_none() {
            let node = self.random.below(self.rows.cluster.len() as u64) as usize;
            // Some clients give up while the cluster still works on it.
            let timeout = Duration::from_millis(200 + self.random.below(6_000));
            self.connection = Connection::open(&self.rows.cluster.addresses[node], timeout).ok();
        }
        let connection = self.connection.as_mut()?;
        let sent_ns = self.rows.clock.monotonic_ns();
        let answered = connection.ask(asked);
        let answered_ns = self.rows.clock.monotonic_ns();
        let (ended, rows) = match answered {
            Ok(ClientResponse::Error(error)) => {
                let name = format!("{:?}", error.code());
                *self.rows.told.lock().unwrap().errors.entry(name).or_insert(0) += 1;
                (if refusal(&error) == Outcome::NotDone { Ended::NotDone } else { Ended::Unknown }, None)
            }
            Ok(ClientResponse::Rows(rows)) => (Ended::Done, Some(rows)),
            Ok(_) => (Ended::Done, None),
            Err(_) => (Ended::Unknown, None),
        };
        // Now and then another connection is taken without need.
        if ended != Ended::Done || self.random.below(200) == 0 {
            self.connection = None;
        }
        Some(Answer { ended, rows, sent_ns, answered_ns })
    }

    fn count(&self, counter: u64, ended: Ended) {
        let mut told = self.rows.told.lock().unwrap();
        let count = told.counts.entry(counter).or_default();
        count.0 += u64::from(ended == Ended::Done);
        count.1 += u64::from(ended == Ended::Unknown);
    }

    fn increment(&mut self) -> Option<Ended> {
        let counter = self.random.below(COUNTERS);
        let ended = self.ask(&Asked::Prepared(INCREMENT, &[counter]))?.ended;
        self.count(counter, ended);
        Some(ended)
    }

    fn increment_two(&mut self) -> Option<Ended> {
        let one = self.random.below(COUNTERS);
        let other = (one + 1 + self.random.below(COUNTERS - 1)) % COUNTERS;
        let update = |counter| format!("UPDATE torture.counters SET n = n + 1 WHERE k = {counter};");
        let batch = format!("BEGIN COUNTER BATCH {} {} APPLY BATCH", update(one), update(other));
        let ended = self.ask(&Asked::Text(&batch))?.ended;
        self.count(one, ended);
        self.count(other, ended);
        Some(ended)
    }

    fn append(&mut self) -> Option<Ended> {
        let value = self.rows.appends.fetch_add(1, Ordering::Relaxed);
        let answer = self.ask(&Asked::Prepared(APPEND, &[value, list_of(value)]))?;
        let Answer { ended, sent_ns, answered_ns, .. } = answer;
        let mut told = self.rows.told.lock().unwrap();
        told.appends.entry(list_of(value)).or_default().push(Append { value, ended, sent_ns, answered_ns });
        Some(ended)
    }

    fn batch(&mut self) -> Option<Ended> {
        let number = self.rows.fresh();
        let place = |at: u64| at * PARTITIONS + number % PARTITIONS;
        let values = [place(0), number, place(1), number, place(2), number];
        let ended = self.ask(&Asked::Prepared(BATCH, &values))?.ended;
        self.rows.told.lock().unwrap().batches.push(Several { number, ended });
        Some(ended)
    }

    fn expire(&mut self) -> Option<Ended> {
        let (key, lifetime_s) = (self.rows.fresh(), 3 + self.random.below(4));
        let insert = format!("INSERT INTO torture.expiring (k, v) VALUES ({key}, {key}) USING TTL {lifetime_s}");
        let Answer { ended, sent_ns, answered_ns, .. } = self.ask(&Asked::Text(&insert))?;
        let lifetime_ns = lifetime_s * 1_000_000_000;
        self.rows.told.lock().unwrap().expiring.push(Expiring { key, lifetime_ns, ended, sent_ns, answered_ns });
        let mut recent = self.rows.recent.lock().unwrap();
        recent.push_back(key);
        while recent.len() > RECENT {
            recent.pop_front();
        }
        Some(ended)
    }

    fn look(&mut self) -> Option<Ended> {
        let key = {
            let recent = self.rows.recent.lock().unwrap();
            let count = recent.len() as u64;
            (count > 0).then(|| recent[self.random.below(count) as usize])?
        };
        self.look_at(key)
    }

    fn look_at(&mut self, key: u64) -> Option<Ended> {
        let answer = self.ask(&Asked::Prepared(LOOK, &[key]))?;
        if let Some(rows) = &answer.rows {
            let is_seen = !rows.rows.is_empty();
            let Answer { sent_ns, answered_ns, .. } = answer;
            self.rows.told.lock().unwrap().looks.push(Look { key, is_seen, sent_ns, answered_ns });
        }
        Some(answer.ended)
    }

    fn write_whole(&mut self) -> Option<Ended> {
        let key = self.random.below(WHOLE_KEYS);
        if self.random.below(6) > 0 {
            return self.write_whole_at(key);
        }
        self.record(key, Request::Write(None), &Asked::Prepared(DELETE_WHOLE, &[key]))
    }

    /// Static column and rows of a partition, in one batch.
    fn write_whole_at(&mut self, key: u64) -> Option<Ended> {
        let number = self.rows.fresh();
        let batch = whole_batch(key, number, "");
        self.record(key, Request::Write(Some(number)), &Asked::Text(&batch))
    }

    fn compare_and_set_whole(&mut self) -> Option<Ended> {
        let (key, number) = (self.random.below(WHOLE_KEYS), self.rows.fresh());
        let expected = self.seen.get(&key).copied().flatten();
        let condition = expected.map_or("IF s = null".to_owned(), |expected| format!("IF s = {expected}"));
        let batch = whole_batch(key, number, &condition);
        self.record(key, Request::CompareAndSet { expected, new: Some(number) }, &Asked::Text(&batch))
    }

    fn read_whole(&mut self) -> Option<Ended> {
        let key = self.random.below(WHOLE_KEYS);
        self.read_whole_at(key)
    }

    fn read_whole_at(&mut self, key: u64) -> Option<Ended> {
        self.record(key, Request::Read, &Asked::Prepared(READ_WHOLE, &[key]))
    }

    /// Asks about a whole partition and records what was answered.
    fn record(&mut self, key: u64, request: Request, asked: &Asked<'_>) -> Option<Ended> {
        let ticket =
            self.rows.recorder.begin(self.number, key, request).expect("fewer operations than there is room for");
        let Some(answer) = self.ask(asked) else {
            self.rows.recorder.finish(ticket, Outcome::NotDone);
            return None;
        };
        let outcome = match (answer.ended, request, &answer.rows) {
            (Ended::NotDone, ..) => Outcome::NotDone,
            (Ended::Unknown, ..) => Outcome::Unknown,
            (Ended::Done, Request::Read, Some(rows)) => {
                self.rows.told.lock().unwrap().reads_of_whole += 1;
                Outcome::Found(self.whole(key, rows))
            }
            (Ended::Done, Request::CompareAndSet { expected, .. }, Some(rows)) => applied(rows, "s", expected),
            (Ended::Done, Request::Write(_), None) => Outcome::Done,
            (Ended::Done, request, rows) => panic!("{request:?} of partition {key} was answered {rows:?}"),
        };
        self.rows.recorder.finish(ticket, outcome);
        let known = match (request, outcome) {
            (_, Outcome::Found(found) | Outcome::Conflict(found)) => Some(found),
            (Request::Write(value) | Request::CompareAndSet { new: value, .. }, Outcome::Done) => Some(value),
            _ => None,
        };
        if let Some(known) = known {
            self.seen.insert(key, known);
        }
        Some(answer.ended)
    }

    /// What a read of a whole partition found: nothing, or its static column and both rows, of one write.
    fn whole(&self, key: u64, rows: &ClientRows) -> Option<u64> {
        let cell = |row: &Vec<Option<Vec<u8>>>, at: usize| row[at].as_ref().map(|bytes| number(&Some(bytes.clone())));
        let mut parts: Vec<Option<u64>> = rows.rows.iter().flat_map(|row| [cell(row, 0), cell(row, 1)]).collect();
        // A row that is missing beside one that is there.
        parts.resize(4.max(parts.len()), None);
        let whole = check_whole(key, &parts);
        whole.unwrap_or_else(|violation| panic!("{violation}{}", self.rows.cluster.logs()))
    }
}

/// One write of all that a whole partition has.
fn whole_batch(key: u64, number: u64, condition: &str) -> String {
    format!(
        "BEGIN BATCH UPDATE torture.whole SET s = {number} WHERE k = {key} {condition}; \
         INSERT INTO torture.whole (k, c, v) VALUES ({key}, 1, {number}); \
         INSERT INTO torture.whole (k, c, v) VALUES ({key}, 2, {number}); APPLY BATCH"
    )
}
