//! A lean CQL client for key-value load on a machine that client and servers share: per connection one task, which
//! writes all requests that are due in one system call, reads whatever answers are there, checks them, and goes on.
//!
//! It exists because a general driver costs the client more CPU per request than the server spends on it, and on shared
//! cores that is taken from the server. It measures the same thing: prepared statements, protocol version 4, one request
//! in flight per slot, every value checked.
//!
//! Always true: exactly the connections asked for are open, on the first contact point; a stream id is the index of
//! its slot, so answers may come in any order; a request whose connection fails has an unknown outcome and its key is
//! given up.
//!
//! Left out: authentication, compression, reconnecting, more than one node, open loop. The driver has those.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use diorite_base::clock::Clock;
use diorite_base::random::SplitMix64;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::WorkloadError;
use crate::data::{Version, write_value};
use crate::key_state::WriteTicket;
use crate::latency::OperationKind;
use crate::runner::{Shared, pause};
use crate::session::Statements;
use crate::workloads::{RowSet, Violation};

mod frames;

use frames::Answer;

/// How long a connection waits for any answer before its requests have failed.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(12);

/// Open, prepared connections and the rows they work on.
pub struct Pipelined {
    connections: Vec<Mutex<Connection>>,
    rows: RowSet,
}

struct Connection {
    stream: TcpStream,
    received: BytesMut,
    insert_id: Vec<u8>,
    select_id: Vec<u8>,
    /// Set when a request failed in a way that leaves the stream unusable.
    is_broken: bool,
}

/// One request in flight.
enum InFlight {
    Idle,
    Read { number: u64, oldest: Version, start_ns: u64 },
    Write { ticket: WriteTicket, start_ns: u64 },
}

impl Pipelined {
    /// Opens `connections` to `node` and prepares the statements on each. The table must exist.
    pub async fn connect(
        node: &str,
        keyspace: &str,
        connections: usize,
        statements: &Statements,
        rows: RowSet,
    ) -> Result<Self, WorkloadError> {
        let mut opened = Vec::new();
        for _ in 0..connections {
            opened.push(Mutex::new(Connection::open(node, keyspace, statements).await?));
        }
        Ok(Self { connections: opened, rows })
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// The slots of one connection: writers and readers dealt out over all connections in turn.
    pub fn slots(&self, connection: usize, writers: usize, readers: usize) -> Vec<OperationKind> {
        let kinds =
            std::iter::repeat_n(OperationKind::Write, writers).chain(std::iter::repeat_n(OperationKind::Read, readers));
        kinds.skip(connection).step_by(self.connections.len()).collect()
    }

    /// Keeps the slots of one connection busy until the run ends.
    pub async fn run(&self, index: usize, slots: Vec<OperationKind>, shared: &Shared, seed: u64) {
        let mut connection = self.connections[index].lock().await;
        let mut run = ConnectionRun {
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
            outgoing: Vec::new(),
        };
        if connection.is_broken {
            return shared.request_failed(index, OperationKind::Read, "the connection broke in an earlier phase");
        }
        if let Err(message) = run.run(&mut connection).await {
            connection.is_broken = true;
            run.give_up_all(&message);
        }
    }
}

/// The state of one connection during one run.
struct ConnectionRun<'run> {
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
    outgoing: Vec<u8>,
}

impl ConnectionRun<'_> {
    async fn run(&mut self, connection: &mut Connection) -> Result<(), String> {
        let mut pending = 0;
        loop {
            pending += self.fill(connection);
            if !self.outgoing.is_empty() {
                connection.stream.write_all(&self.outgoing).await.map_err(|error| format!("send: {error}"))?;
                self.outgoing.clear();
            }
            if pending > 0 {
                connection.receive().await?;
                pending -= self.take_answers(connection)?;
            } else if self.waiting.is_empty() {
                return Ok(());
            } else {
                pause(Duration::from_millis(2)).await;
            }
            self.due.append(&mut self.waiting);
        }
    }

    /// Puts a request into every due slot; returns how many were sent.
    fn fill(&mut self, connection: &Connection) -> usize {
        let start_ns = self.shared.clock.monotonic_ns();
        let mut sent = 0;
        while let Some(slot) = self.due.pop() {
            let kind = self.slots[slot];
            if self.shared.is_stopped() || !self.shared.claim(kind) {
                continue;
            }
            if self.start(slot, kind, connection, start_ns) {
                sent += 1;
            } else {
                self.shared.unclaim(kind);
                self.waiting.push(slot);
            }
        }
        sent
    }

    fn start(&mut self, slot: usize, kind: OperationKind, connection: &Connection, start_ns: u64) -> bool {
        match kind {
            OperationKind::Read => {
                let Some((number, oldest)) = self.rows.next_read(&mut self.random) else { return false };
                self.rows.format.write(number, &mut self.key);
                frames::execute(&mut self.outgoing, slot as u16, &connection.select_id, &[self.key.as_bytes()]);
                self.in_flight[slot] = InFlight::Read { number, oldest, start_ns };
            }
            OperationKind::Write => {
                let Some(ticket) = self.rows.next_write(&mut self.random) else { return false };
                self.rows.format.write(ticket.number, &mut self.key);
                write_value(ticket.number, ticket.version, self.rows.value_size, &mut self.value);
                let values = [self.key.as_bytes(), self.value.as_slice()];
                frames::execute(&mut self.outgoing, slot as u16, &connection.insert_id, &values);
                self.in_flight[slot] = InFlight::Write { ticket, start_ns };
            }
        }
        true
    }

    /// Handles every complete answer received; returns how many.
    fn take_answers(&mut self, connection: &mut Connection) -> Result<usize, String> {
        let now_ns = self.shared.clock.monotonic_ns();
        let mut taken = 0;
        while let Some((header, length)) = frames::complete(&connection.received)? {
            let slot = usize::try_from(header.stream).unwrap_or(usize::MAX);
            let body = &connection.received[frames::HEADER_BYTES..length];
            let answer = frames::parse_answer(header.opcode, body)?;
            let in_flight = self.in_flight.get_mut(slot).ok_or("an answer to a request that was never sent")?;
            match std::mem::replace(in_flight, InFlight::Idle) {
                InFlight::Idle => return Err(format!("a second answer on stream {slot}")),
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

impl Connection {
    async fn open(node: &str, keyspace: &str, statements: &Statements) -> Result<Self, WorkloadError> {
        let refuse = |detail: String| WorkloadError::Setup(format!("cannot set up a connection to {node}: {detail}"));
        let stream = TcpStream::connect(node).await.map_err(|error| refuse(error.to_string()))?;
        stream.set_nodelay(true).map_err(|error| refuse(error.to_string()))?;
        let received = BytesMut::with_capacity(256 << 10);
        let mut connection = Self { stream, received, insert_id: Vec::new(), select_id: Vec::new(), is_broken: false };
        connection.request(frames::startup, frames::OPCODE_READY).await.map_err(refuse)?;
        let use_keyspace = format!("USE {keyspace}");
        connection.request(|frame| frames::query(frame, &use_keyspace), frames::OPCODE_RESULT).await.map_err(refuse)?;
        connection.insert_id = connection.prepare(&statements.insert).await.map_err(refuse)?;
        connection.select_id = connection.prepare(&statements.select).await.map_err(refuse)?;
        Ok(connection)
    }

    async fn prepare(&mut self, statement: &str) -> Result<Vec<u8>, String> {
        let body = self.request(|frame| frames::prepare(frame, statement), frames::OPCODE_RESULT).await?;
        frames::parse_prepared(&body)
    }

    /// Sends one request and returns the body of its answer, which must have the given opcode.
    async fn request(&mut self, write: impl FnOnce(&mut Vec<u8>), opcode: u8) -> Result<BytesMut, String> {
        let mut frame = Vec::new();
        write(&mut frame);
        self.stream.write_all(&frame).await.map_err(|error| format!("send: {error}"))?;
        loop {
            if let Some((header, length)) = frames::complete(&self.received)? {
                let mut body = self.received.split_to(length);
                body.advance(frames::HEADER_BYTES);
                return match header.opcode {
                    found if found == opcode => Ok(body),
                    frames::OPCODE_ERROR => Err(frames::parse_error(&body)),
                    found => Err(format!("opcode {found:#04x} instead of {opcode:#04x}")),
                };
            }
            self.receive().await?;
        }
    }

    /// Reads what is there, at least one byte.
    async fn receive(&mut self) -> Result<(), String> {
        self.received.reserve(64 << 10);
        match tokio::time::timeout(ANSWER_TIMEOUT, self.stream.read_buf(&mut self.received)).await {
            Ok(Ok(0)) => Err("the server closed the connection".into()),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(format!("receive: {error}")),
            Err(_) => Err(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs())),
        }
    }
}

/// Asks `address` for its CQL options: whether a server is up and answers.
pub async fn answers_options(address: &str) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        let mut frame = Vec::new();
        frames::options(&mut frame);
        stream.write_all(&frame).await.ok()?;
        let mut header = [0_u8; frames::HEADER_BYTES];
        stream.read_exact(&mut header).await.ok()?;
        Some(header[4] == frames::OPCODE_SUPPORTED)
    };
    matches!(tokio::time::timeout(Duration::from_secs(2), ask).await, Ok(Some(true)))
}

#[cfg(test)]
mod tests;
