//! Records the requests and answers of several clients, on one clock.
//!
//! Always true: an operation's start is taken before [`Recorder::begin`] returns, and its end when [`Recorder::finish`]
//! is called. So if the request is sent after the first call and the answer is read before the second, the interval
//! contains the moment at which the operation took effect. An operation that was begun and never finished has an
//! unknown outcome. The number of operations is bounded: beyond it `begin` fails, and the client must stop, since an
//! operation that is not recorded makes the history of its key worthless.

use crate::operation::{Action, Operation, Value};
use diorite_base::Clock;
use parking_lot::Mutex;
use std::sync::Arc;
use thiserror::Error;

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Read the key.
    Read,
    /// Write this value.
    Write(Value),
    /// Write `new` if the key holds `expected`.
    CompareAndSet {
        /// The expected value.
        expected: Value,
        /// The new value.
        new: Value,
    },
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A read found this.
    Found(Value),
    /// A write was acknowledged, or a compare-and-set applied.
    Done,
    /// A compare-and-set was not applied, for an unknown reason.
    NotApplied,
    /// A compare-and-set was not applied because the key held this value, which is recorded as a read. The caller has
    /// checked that it is not the expected one.
    Conflict(Value),
    /// The request certainly had no effect and never will have one, as if it had not been sent.
    NotDone,
    /// Unknown: a timeout, or a broken connection.
    Unknown,
}

/// The history is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the history is full at {0} operations")]
pub struct Full(pub usize);

/// An operation that was begun.
#[derive(Debug)]
#[must_use = "an operation that is not finished has an unknown outcome"]
pub struct Ticket(usize);

/// A history that is being recorded, shared by all clients.
pub struct Recorder {
    clock: Arc<dyn Clock>,
    capacity: usize,
    operations: Mutex<Vec<Entry>>,
}

#[derive(Clone, Copy)]
struct Entry {
    key: u64,
    client: u32,
    start_ns: u64,
    request: Request,
    answer: Option<(u64, Outcome)>,
}

impl Recorder {
    /// An empty history of at most `capacity` operations.
    pub fn new(clock: Arc<dyn Clock>, capacity: usize) -> Self {
        Self { clock, capacity, operations: Mutex::new(Vec::new()) }
    }

    /// Begins an operation. Call it before the request is sent.
    pub fn begin(&self, client: u32, key: u64, request: Request) -> Result<Ticket, Full> {
        let mut operations = self.operations.lock();
        if operations.len() >= self.capacity {
            return Err(Full(self.capacity));
        }
        let start_ns = self.clock.monotonic_ns();
        operations.push(Entry { key, client, start_ns, request, answer: None });
        Ok(Ticket(operations.len() - 1))
    }

    /// Ends an operation. Call it after the answer was read.
    pub fn finish(&self, ticket: Ticket, outcome: Outcome) {
        let end_ns = self.clock.monotonic_ns();
        self.operations.lock()[ticket.0].answer = Some((end_ns, outcome));
    }

    /// How many operations were begun.
    pub fn len(&self) -> usize {
        self.operations.lock().len()
    }

    /// Whether no operation was begun.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The history so far. An operation that was not finished has an unknown outcome.
    pub fn operations(&self) -> Vec<Operation> {
        self.operations.lock().iter().filter_map(Entry::operation).collect()
    }
}

impl Entry {
    /// `None` for an operation without information: one that was not done, or a read without an answer.
    fn operation(&self) -> Option<Operation> {
        let Entry { key, client, start_ns, request, answer } = *self;
        let (end_ns, outcome) = match answer {
            None | Some((_, Outcome::Unknown)) => (None, Outcome::Unknown),
            Some((end_ns, outcome)) => (Some(end_ns), outcome),
        };
        let action = match (request, outcome) {
            (_, Outcome::NotDone) | (Request::Read, Outcome::Unknown) => return None,
            (Request::Read, Outcome::Found(value)) => Action::Read(value),
            (Request::Write(value), Outcome::Done | Outcome::Unknown) => Action::Write(value),
            (Request::CompareAndSet { .. }, Outcome::Conflict(value)) => Action::Read(value),
            (Request::CompareAndSet { expected, new }, Outcome::Done | Outcome::NotApplied | Outcome::Unknown) => {
                let applied = end_ns.map(|_| outcome == Outcome::Done);
                Action::CompareAndSet { expected, new, applied }
            }
            (request, outcome) => panic!("{request:?} cannot be answered {outcome:?}"),
        };
        Some(Operation { key, client, start_ns, end_ns, action })
    }
}
