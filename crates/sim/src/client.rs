//! Simulated clients: their requests, and how they record the answers.
//!
//! Each has one request at a time. Registers of a tablet are read, written, deleted, compared and set, and judged as a
//! history; counters are incremented, and keys inserted once each, to be checked in the end. A client without an answer
//! gives up after a while and continues: the outcome of its request is unknown.

use crate::checkers::acknowledged::{Counter, Losses};
use crate::clock::TrueTime;
use crate::dice::Dice;
use crate::program::{self, Value, Verdict};
use crate::ranges::{COUNTER, KeyRange, SECOND_INSERTS};
use diorite_base::mutation::Mutation;
use diorite_base::write::{KvError, WriteReply};
use diorite_base::{NodeId, TabletId};
use diorite_history::{Insert, Operation, Outcome, Recorder, Request, Ticket};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Registers per tablet.
pub const REGISTERS: u64 = 2;

/// Keys from here on are inserted once.
pub const INSERTS: u64 = 1_000;

/// The keys of different tablets differ by a multiple of this in a history.
const TABLET_KEYS: u64 = 10_000_000;

/// The most operations of one run.
const HISTORY_OPERATIONS: usize = 1_000_000;

/// A client's request.
#[derive(Clone, Copy, Debug)]
pub enum Ask {
    /// Read the register.
    Read(u64),
    /// Set the register, whatever it holds.
    Write(u64, u64),
    /// Remove the register.
    Delete(u64),
    /// Set the register if it holds this.
    CompareAndSet(u64, Value, Value),
    /// Add one to the counter.
    Increment,
    /// Insert a key that no other request writes.
    Insert(u64, u64),
    /// Insert several keys that no other request writes, possibly in several tablets.
    Batch(u64),
}

/// The keys and values of a batch.
pub fn batch_entries(value: u64) -> [(u64, u64); 2] {
    [INSERTS + value, INSERTS + SECOND_INSERTS + value].map(|key| (key, value))
}

impl Ask {
    /// The key of the request.
    pub fn key(&self) -> u64 {
        match *self {
            Ask::Read(key)
            | Ask::Write(key, _)
            | Ask::Delete(key)
            | Ask::CompareAndSet(key, ..)
            | Ask::Insert(key, _) => key,
            Ask::Increment => COUNTER,
            Ask::Batch(value) => batch_entries(value)[0].0,
        }
    }

    /// The mutation of a write; `None` for a read.
    pub fn mutation(&self) -> Option<Mutation> {
        Some(match *self {
            Ask::Read(_) => return None,
            Ask::Write(key, value) | Ask::Insert(key, value) => program::put(key, value),
            Ask::Delete(key) => program::delete(key),
            Ask::CompareAndSet(key, expected, new) => program::compare_and_set(key, expected, new),
            Ask::Increment => program::increment(COUNTER),
            Ask::Batch(value) => program::put_all(&batch_entries(value)),
        })
    }
}

/// A node's answer.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The value that was read.
    Found(Value),
    /// The reply to a write.
    Written(WriteReply),
    /// The request failed, or its outcome is unknown.
    Failed(KvError),
    /// The node's process does not run.
    Refused,
}

/// A request that has no answer yet.
struct Open {
    request: u64,
    tablet: TabletId,
    target: TabletId,
    ask: Ask,
    ticket: Option<Ticket>,
}

#[derive(Default)]
struct Client {
    open: Option<Open>,
    /// The last known value of each register.
    known: BTreeMap<(TabletId, u64), Value>,
    /// The last known leader of each tablet.
    leaders: BTreeMap<TabletId, NodeId>,
}

/// The number of requests by outcome.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Reads answered.
    pub reads: u64,
    /// Writes acknowledged.
    pub writes: u64,
    /// Requests refused by a node that does not lead, or is not there.
    pub refused: u64,
    /// Requests with an unknown outcome.
    pub unknown: u64,
}

/// All clients, and their observations.
pub struct Clients {
    clients: Vec<Client>,
    recorder: Recorder,
    time: TrueTime,
    /// Inserts, with the time of the answer.
    inserts: BTreeMap<TabletId, Vec<(u64, Insert)>>,
    /// Increments: the time of the answer, and whether it is known that they were done.
    counters: BTreeMap<TabletId, Vec<(u64, bool)>>,
    next_value: u64,
    next_request: u64,
    /// How many requests ended how.
    pub tally: Tally,
}

/// A request on its way to a node.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Its number.
    pub request: u64,
    /// Who asks.
    pub client: u32,
    /// The tablet: an initial one, or one that was split from it.
    pub target: TabletId,
    /// Where.
    pub node: NodeId,
    /// What.
    pub ask: Ask,
}

impl Clients {
    /// `count` clients that have not asked anything.
    pub fn new(count: u32, time: TrueTime) -> Self {
        Self {
            clients: (0..count).map(|_| Client::default()).collect(),
            recorder: Recorder::new(Arc::new(time.clone()), HISTORY_OPERATIONS),
            time,
            inserts: BTreeMap::new(),
            counters: BTreeMap::new(),
            next_value: 0,
            next_request: 0,
            tally: Tally::default(),
        }
    }

    fn fresh(&mut self) -> u64 {
        self.next_value += 1;
        self.next_value
    }

    /// The next request of `client` to `tablet`, at random.
    pub fn choose(&mut self, client: u32, tablet: TabletId, dice: &mut Dice) -> Ask {
        let register = dice.range(0, REGISTERS);
        let value = self.fresh();
        let known = self.clients[client as usize].known.get(&(tablet, register)).copied().flatten();
        match dice.range(0, 100) {
            0..40 => Ask::Read(register),
            40..60 => Ask::Write(register, value),
            60..63 => Ask::Delete(register),
            63..80 => Ask::CompareAndSet(register, known, if dice.chance(50) { None } else { Some(value) }),
            80..90 => Ask::Increment,
            90..94 => Ask::Batch(value),
            _ => self.insert(),
        }
    }

    /// An insert of a key that was not there before.
    pub fn insert(&mut self) -> Ask {
        let value = self.fresh();
        Ask::Insert(INSERTS + value + value % 2 * SECOND_INSERTS, value)
    }

    /// A write of a key of the range, of which it has one.
    pub fn write_within(&mut self, range: &KeyRange) -> Ask {
        let value = self.fresh();
        let insert = [INSERTS + value, INSERTS + SECOND_INSERTS + value].into_iter().find(|key| range.contains(*key));
        match (insert, (0..REGISTERS).find(|key| range.contains(*key))) {
            (Some(key), _) => Ask::Insert(key, value),
            (None, Some(key)) => Ask::Write(key, value),
            (None, None) => Ask::Increment,
        }
    }

    /// The tablet that the client waits for.
    pub fn target(&self, client: u32) -> Option<TabletId> {
        self.clients[client as usize].open.as_ref().map(|open| open.target)
    }

    /// Whether the client waits for an answer.
    pub fn is_busy(&self, client: u32) -> bool {
        self.clients[client as usize].open.is_some()
    }

    /// Sends a request of `client`, usually to the last known leader of the tablet.
    pub fn ask(
        &mut self,
        client: u32,
        (tablet, target): (TabletId, TabletId),
        ask: Ask,
        nodes: &[NodeId],
        dice: &mut Dice,
    ) -> Asked {
        self.next_request += 1;
        let request = self.next_request;
        let known = self.clients[client as usize].leaders.get(&target).copied();
        let node = known.filter(|_| dice.chance(900)).unwrap_or_else(|| *dice.pick(nodes));
        let ticket = self.begin(client, tablet, ask);
        self.clients[client as usize].open = Some(Open { request, tablet, target, ask, ticket });
        Asked { request, client, target, node, ask }
    }

    fn begin(&mut self, client: u32, tablet: TabletId, ask: Ask) -> Option<Ticket> {
        let (key, request) = match ask {
            Ask::Read(key) => (key, Request::Read),
            Ask::Write(key, value) => (key, Request::Write(Some(value))),
            Ask::Delete(key) => (key, Request::Write(None)),
            Ask::CompareAndSet(key, expected, new) => (key, Request::CompareAndSet { expected, new }),
            Ask::Increment | Ask::Insert(..) | Ask::Batch(_) => return None,
        };
        let begun = self.recorder.begin(client, tablet.0 * TABLET_KEYS + key, request);
        assert!(begun.is_ok(), "a run is short");
        begun.ok()
    }

    /// Whether `client` still waits for the answer to this request.
    pub fn is_waiting(&self, client: u32, request: u64) -> bool {
        self.clients[client as usize].open.as_ref().is_some_and(|open| open.request == request)
    }

    /// `client` receives its answer, or gives up (`None`). Returns whether the request is known to be done.
    pub fn answered(&mut self, client: u32, answer: Option<&Answer>, nodes: &[NodeId], dice: &mut Dice) -> bool {
        let Some(open) = self.clients[client as usize].open.take() else { return false };
        let outcome = outcome(&open.ask, answer);
        self.learn(client, &open, answer, outcome, nodes, dice);
        self.count(&open, outcome);
        if let Some(ticket) = open.ticket {
            self.recorder.finish(ticket, outcome);
        }
        matches!(outcome, Outcome::Found(_) | Outcome::Done)
    }

    /// The run is over: requests without an answer have an unknown outcome.
    pub fn give_up(&mut self, nodes: &[NodeId], dice: &mut Dice) {
        for client in 0..self.clients.len() as u32 {
            self.answered(client, None, nodes, dice);
        }
    }

    fn learn(
        &mut self,
        client: u32,
        open: &Open,
        answer: Option<&Answer>,
        outcome: Outcome,
        nodes: &[NodeId],
        dice: &mut Dice,
    ) {
        let client = &mut self.clients[client as usize];
        match answer {
            Some(Answer::Failed(KvError::NotLeader { leader: Some(leader), .. })) => {
                client.leaders.insert(open.target, *leader);
            }
            Some(Answer::Found(_) | Answer::Written(_)) => {}
            _ => {
                client.leaders.insert(open.target, *dice.pick(nodes));
            }
        }
        let seen = match (open.ask, outcome) {
            (Ask::Read(key), Outcome::Found(value)) => (key, value),
            (Ask::Write(key, value), Outcome::Done) => (key, Some(value)),
            (Ask::CompareAndSet(key, _, new), Outcome::Done) => (key, new),
            (Ask::CompareAndSet(key, ..), Outcome::Conflict(value)) => (key, value),
            _ => return,
        };
        client.known.insert((open.tablet, seen.0), seen.1);
    }

    fn count(&mut self, open: &Open, outcome: Outcome) {
        let known = match outcome {
            Outcome::NotDone => {
                self.tally.refused += 1;
                return;
            }
            Outcome::Unknown => {
                self.tally.unknown += 1;
                false
            }
            Outcome::Found(_) => {
                self.tally.reads += 1;
                return;
            }
            _ => {
                self.tally.writes += 1;
                true
            }
        };
        match open.ask {
            Ask::Insert(key, value) => {
                let insert = (self.time.now_ns(), Insert { key, value, acknowledged: known });
                self.inserts.entry(open.tablet).or_default().push(insert);
            }
            Ask::Batch(value) => {
                let inserts = batch_entries(value)
                    .map(|(key, value)| (self.time.now_ns(), Insert { key, value, acknowledged: known }));
                self.inserts.entry(open.tablet).or_default().extend(inserts);
            }
            Ask::Increment => {
                self.counters.entry(open.tablet).or_default().push((self.time.now_ns(), known));
            }
            _ => {}
        }
    }

    /// The history of all registers.
    pub fn history(&self) -> Vec<Operation> {
        self.recorder.operations()
    }

    /// The inserts into a tablet. Those that a loss of power may have destroyed count as not acknowledged.
    pub fn inserts(&self, tablet: TabletId, losses: &Losses) -> Vec<Insert> {
        let inserts = self.inserts.get(&tablet).into_iter().flatten();
        let judged = inserts.map(|(at_ns, insert)| {
            let acknowledged = insert.acknowledged && !losses.may_have_taken(*at_ns);
            Insert { acknowledged, ..*insert }
        });
        judged.collect()
    }

    /// The counters of a tablet, by key; increments that a loss of power may have destroyed count as not acknowledged.
    pub fn counters(&self, tablet: TabletId, losses: &Losses) -> BTreeMap<u64, Counter> {
        let mut counter = Counter::default();
        for (at_ns, known) in self.counters.get(&tablet).into_iter().flatten() {
            let is_acknowledged = *known && !losses.may_have_taken(*at_ns);
            *(if is_acknowledged { &mut counter.acknowledged } else { &mut counter.unknown }) += 1;
        }
        BTreeMap::from([(COUNTER, counter)])
    }
}

fn outcome(ask: &Ask, answer: Option<&Answer>) -> Outcome {
    match (ask, answer) {
        (_, None) => Outcome::Unknown,
        (_, Some(Answer::Refused)) => Outcome::NotDone,
        // These errors promise that nothing was done, so that a client may try again.
        (
            _,
            Some(Answer::Failed(
                KvError::NotLeader { .. } | KvError::NoSuchTablet(_) | KvError::Overloaded(_) | KvError::Unavailable(_),
            )),
        ) => Outcome::NotDone,
        (Ask::Read(_), Some(Answer::Failed(_))) => Outcome::NotDone,
        (_, Some(Answer::Failed(_))) => Outcome::Unknown,
        (_, Some(Answer::Found(value))) => Outcome::Found(*value),
        (Ask::CompareAndSet(_, expected, _), Some(Answer::Written(reply))) => match program::verdict(reply) {
            Some(Verdict::Applied) => Outcome::Done,
            Some(Verdict::Conflict(found)) => {
                assert!(found != *expected, "a conflict is with another value");
                Outcome::Conflict(found)
            }
            None => Outcome::Unknown,
        },
        (_, Some(Answer::Written(_))) => Outcome::Done,
    }
}
