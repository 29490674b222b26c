//! A lean CQL client for key-value load on a machine that client and servers share: per lane one task, which writes all
//! requests that are due on a connection in one system call, reads whatever answers are there, checks them, and goes on.
//!
//! It exists because a general driver costs the client more CPU per request than the server spends on it, and on shared
//! cores that is taken from the server. It measures the same thing: prepared statements, protocol version 4, one request
//! in flight per slot, every value checked.
//!
//! A lane has one connection to each node; [`routing`] chooses among them: each node in turn, or the tablet's leader.
//!
//! Always true: exactly the connections asked for are open on every node; a stream id is the index of its slot in the lane, so
//! answers may come in any order; a request whose connection fails has an unknown outcome and its key is given up.
//!
//! Left out: authentication, compression, reconnecting (a lane ends with its first connection that breaks), open loop. The
//! driver has those.

use std::time::Duration;

use bytes::Buf;
use diorite_base::clock::Clock;
use diorite_base::random::SplitMix64;
use tokio::sync::Mutex;

use crate::WorkloadError;
use crate::data::{Version, write_value};
use crate::error::Violation;
use crate::key_state::WriteTicket;
use crate::latency::OperationKind;
use crate::row_set::RowSet;
use crate::runner::shared::Shared;
use crate::statements::Statements;
use crate::timer::pause;

mod connection;
pub(crate) mod frames;
mod routing;

use connection::{Connection, ConnectionError, receive};
use frames::Answer;
pub use routing::NodeAddress;
use routing::Router;

/// Open, prepared connections and the rows they work on.
pub struct Pipelined {
    lanes: Vec<Mutex<Lane>>,
    rows: RowSet,
}

/// One connection to each node, and the choice among them.
struct Lane {
    connections: Vec<Connection>,
    router: Router,
    /// Set when a request failed in a way that leaves a stream unusable.
    is_broken: bool,
}

/// One request in flight.
enum InFlight {
    Idle,
    Read { number: u64, oldest: Version, start_ns: u64 },
    Write { ticket: WriteTicket, start_ns: u64 },
}

impl Pipelined {
    /// Opens `connections` to each of `nodes` and prepares the statements on each. The table must exist. With `tablet_aware`,
    /// requests go to the leader of their tablet as soon as that is known.
    pub async fn connect(
        nodes: &[NodeAddress],
        keyspace: &str,
        connections: usize,
        statements: &Statements,
        rows: RowSet,
        tablet_aware: bool,
    ) -> Result<Self, WorkloadError> {
        let mut lanes = Vec::new();
        for lane in 0..connections {
            let mut opened = Vec::new();
            for node in nodes {
                opened.push(Connection::open(&node.address, keyspace, statements, tablet_aware).await?);
            }
            let router = Router::new(nodes, tablet_aware, lane);
            lanes.push(Mutex::new(Lane { connections: opened, router, is_broken: false }));
        }
        Ok(Self { lanes, rows })
    }

    /// How many lanes there are: connections to each node.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// The slots of one lane: writers and readers dealt out over all lanes in turn.
    pub fn slots(&self, lane: usize, writers: usize, readers: usize) -> Vec<OperationKind> {
        let kinds =
            std::iter::repeat_n(OperationKind::Write, writers).chain(std::iter::repeat_n(OperationKind::Read, readers));
        kinds.skip(lane).step_by(self.lanes.len()).collect()
    }

    /// Keeps the slots of one lane busy until the run ends.
    pub async fn run(&self, index: usize, slots: Vec<OperationKind>, shared: &Shared, seed: u64) {
        let mut lane = self.lanes[index].lock().await;
        let mut run = LaneRun {
            rows: &self.rows,
            shared,
            task: index,
            in_flight: slots.iter().map(|_| InFlight::Idle).collect(),
            due: (0..slots.len()).collect(),
            waiting: Vec::new(),
            slots,
            random: SplitMix64::new(seed),
            key: String::new(),
            value: Vec::new(),
        };
        if lane.is_broken {
            return shared.request_failed(index, OperationKind::Read, "a connection broke in an earlier phase");
        }
        if let Err(error) = run.run(&mut lane).await {
            lane.is_broken = true;
            run.give_up_all(&error.to_string());
        }
    }
}

/// The state of one lane during one run.
struct LaneRun<'run> {
    rows: &'run RowSet,
    shared: &'run Shared,
    task: usize,
    slots: Vec<OperationKind>,
    in_flight: Vec<InFlight>,
    /// Slots to fill.
    due: Vec<usize>,
    /// Slots that found nothing to do; tried again with the next answers.
    waiting: Vec<usize>,
    random: SplitMix64,
    key: String,
    value: Vec<u8>,
}

impl LaneRun<'_> {
    async fn run(&mut self, lane: &mut Lane) -> Result<(), ConnectionError> {
        let mut pending = 0;
        loop {
            pending += self.fill(lane);
            for connection in &mut lane.connections {
                connection.send().await?;
            }
            if pending > 0 {
                receive(&mut lane.connections).await?;
                for connection in &mut lane.connections {
                    pending -= self.take_answers(connection, &mut lane.router)?;
                }
            } else if self.waiting.is_empty() {
                return Ok(());
            } else {
                pause(Duration::from_millis(2)).await;
            }
            self.due.append(&mut self.waiting);
        }
    }

    /// Puts a request into every due slot; returns how many were sent.
    fn fill(&mut self, lane: &mut Lane) -> usize {
        let start_ns = self.shared.clock.monotonic_ns();
        let mut sent = 0;
        while let Some(slot) = self.due.pop() {
            let kind = self.slots[slot];
            if self.shared.is_stopped() || !self.shared.claim(kind) {
                continue;
            }
            if self.start(slot, kind, lane, start_ns) {
                sent += 1;
            } else {
                self.shared.unclaim(kind);
                self.waiting.push(slot);
            }
        }
        sent
    }

    fn start(&mut self, slot: usize, kind: OperationKind, lane: &mut Lane, start_ns: u64) -> bool {
        match kind {
            OperationKind::Read => {
                let Some((number, oldest)) = self.rows.next_read(&mut self.random) else { return false };
                self.rows.format.write(number, &mut self.key);
                let connection = &mut lane.connections[lane.router.node(self.key.as_bytes())];
                frames::execute(&mut connection.outgoing, slot as u16, &connection.select_id, &[self.key.as_bytes()]);
                self.in_flight[slot] = InFlight::Read { number, oldest, start_ns };
            }
            OperationKind::Write => {
                let Some(ticket) = self.rows.next_write(&mut self.random) else { return false };
                self.rows.format.write(ticket.number, &mut self.key);
                write_value(ticket.number, ticket.version, self.rows.value_size, &mut self.value);
                let values = [self.key.as_bytes(), self.value.as_slice()];
                let connection = &mut lane.connections[lane.router.node(self.key.as_bytes())];
                frames::execute(&mut connection.outgoing, slot as u16, &connection.insert_id, &values);
                self.in_flight[slot] = InFlight::Write { ticket, start_ns };
            }
        }
        true
    }

    /// Handles every complete answer received; returns how many.
    fn take_answers(&mut self, connection: &mut Connection, router: &mut Router) -> Result<usize, ConnectionError> {
        let now_ns = self.shared.clock.monotonic_ns();
        let mut taken = 0;
        while let Some((header, length)) = frames::complete(&connection.received)? {
            let slot = usize::try_from(header.stream).unwrap_or(usize::MAX);
            let body = &connection.received[frames::HEADER_BYTES..length];
            let (payload, body) = frames::split_extras(header.flags, body)?;
            if let Some(payload) = payload {
                router.learn(payload)?;
            }
            let answer = frames::parse_answer(header.opcode, body)?;
            let in_flight = self.in_flight.get_mut(slot).ok_or(ConnectionError::UnknownStream)?;
            match std::mem::replace(in_flight, InFlight::Idle) {
                InFlight::Idle => return Err(ConnectionError::SecondAnswer(slot)),
                InFlight::Read { number, oldest, start_ns } => {
                    self.finish_read(number, oldest, now_ns - start_ns, &answer);
                }
                InFlight::Write { ticket, start_ns } => self.finish_write(ticket, now_ns - start_ns, &answer),
            }
            self.due.push(slot);
            taken += 1;
            connection.received.advance(length);
        }
        Ok(taken)
    }

    fn finish_read(&mut self, number: u64, oldest: Version, latency_ns: u64, answer: &Answer<'_>) {
        let checked = match answer {
            Answer::Error(message) => return self.shared.request_failed(self.task, OperationKind::Read, message),
            Answer::Done => Err(self.rows.shape(number, "an acknowledgement instead of rows")),
            Answer::Rows { count: 0, .. } => self.rows.check(number, oldest, None),
            Answer::Rows { count: 1, cells: [Some(key), Some(value)] } => self.check_row(number, oldest, key, value),
            Answer::Rows { count, .. } => Err(self.rows.shape(number, format!("{count} rows, or a null in one"))),
        };
        match checked {
            Ok(()) => self.shared.succeeded(self.task, OperationKind::Read, latency_ns, 1),
            Err(violation) => self.shared.fail(violation),
        }
    }

    fn check_row(&mut self, number: u64, oldest: Version, key: &[u8], value: &[u8]) -> Result<(), Violation> {
        self.rows.format.write(number, &mut self.key);
        if key != self.key.as_bytes() {
            return Err(self.rows.shape(number, format!("the row of {}", String::from_utf8_lossy(key))));
        }
        self.rows.check(number, oldest, Some(value))
    }

    fn finish_write(&mut self, ticket: WriteTicket, latency_ns: u64, answer: &Answer<'_>) {
        if let Answer::Done = answer {
            self.rows.keys.acknowledge(ticket);
            return self.shared.succeeded(self.task, OperationKind::Write, latency_ns, 1);
        }
        self.rows.keys.give_up(ticket);
        let message = if let Answer::Error(message) = answer { message.as_str() } else { "rows in answer to a write" };
        self.shared.request_failed(self.task, OperationKind::Write, message);
    }

    fn give_up_all(&mut self, message: &str) {
        for in_flight in std::mem::take(&mut self.in_flight) {
            let kind = match in_flight {
                InFlight::Idle => continue,
                InFlight::Read { .. } => OperationKind::Read,
                InFlight::Write { ticket, .. } => {
                    self.rows.keys.give_up(ticket);
                    OperationKind::Write
                }
            };
            self.shared.request_failed(self.task, kind, message);
        }
    }
}

#[cfg(test)]
mod tests;
