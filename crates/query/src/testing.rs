//! For tests: a node without a network, a log or a disk.
//!
//! [`MemoryKv`] keeps tablets in ordered maps and merges by the model's own fold; [`Database`] is an engine over it with one session, driven
//! through the protocol's bytes, so that tests see what a driver would.
//!
//! Always true: every future is ready at once; time stands still unless a test moves it. Left out: failures.

#![allow(clippy::unwrap_used, reason = "for tests only, whose data is known")]

#[cfg(test)]
mod account;
#[cfg(test)]
mod audited;
#[cfg(test)]
mod blocks;
#[cfg(test)]
mod changes;
#[cfg(test)]
mod checked;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod covering;
#[cfg(test)]
mod differential;
#[cfg(test)]
mod ended;
#[cfg(test)]
mod explained;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod in_part;
#[cfg(test)]
mod indexes;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod lists;
#[cfg(test)]
mod made_up_states;
#[cfg(test)]
mod malformed;
mod memory;
#[cfg(test)]
mod moments;
#[cfg(test)]
mod pages_over_changes;
#[cfg(test)]
mod paging;
#[cfg(test)]
mod prepared;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod refused;
#[cfg(test)]
mod replanned;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod silent;
#[cfg(test)]
mod traced;
#[cfg(test)]
mod transactions;
#[cfg(test)]
mod unique;
#[cfg(test)]
mod view_columns;
#[cfg(test)]
mod view_roles;
#[cfg(test)]
mod views;

pub use memory::MemoryKv;

use crate::budget::Budget;
use crate::engine::{
    Comparison, EngineConfig, ExecuteNow, OwnedRequest, QueryEngine, Reply, ReplyTo, RowComparer, held_bytes_of,
    slot_of, submitted_error,
};
use crate::index::{Compared, IndexStep};
use crate::kv::{Completion, WriteSink};
use crate::session::Session;
use diorite_base::NodeId;
use diorite_base::account::Meter;
use diorite_base::level::{Level, Levels};
use diorite_cql::protocol::client::{
    BoundValues, ClientPrepared, ClientRequest, ClientResponse, ClientRows, Parameters, RequestHead, decode_response,
    encode_request,
};
use diorite_cql::protocol::envelope::HEADER_BYTES;
use diorite_cql::protocol::request::{Message, Request};
use diorite_cql::protocol::response::{self, ReplyHead};
use diorite_cql::protocol::{CqlError, Envelope, ErrorCode, NativeType, Opcode, TypeOption, Value, Version};
use diorite_model::types::{CqlType, Frozen, UserType};
use diorite_model::value::literal_text;
use parking_lot::Mutex;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Runs a future that is always ready soon.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(std::task::Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

/// An engine with one session.
pub struct Database {
    pub kv: Arc<MemoryKv>,
    pub engine: Arc<QueryEngine<MemoryKv>>,
    pub session: Arc<Session>,
    pub version: Version,
    /// The budget of every request.
    pub budget: Arc<Budget>,
}

/// Keeps the outcomes of submitted writes.
#[derive(Default)]
pub struct Sink(pub Mutex<Vec<Completion>>);

impl WriteSink for Sink {
    fn complete(&self, done: &mut Vec<Completion>) {
        self.0.lock().append(done);
    }
}

/// One message, as it stands on the wire.
fn envelope(bytes: &[u8]) -> Envelope<'_> {
    Envelope {
        version: Version::from_number(bytes[0] & 0x7F).unwrap(),
        flags: bytes[1],
        stream: i16::from_be_bytes([bytes[2], bytes[3]]),
        opcode: Opcode::ALL.into_iter().find(|opcode| *opcode as u8 == bytes[4]).unwrap(),
        body: &bytes[HEADER_BYTES..],
    }
}

fn unlimited() -> Arc<Budget> {
    Arc::new(Budget::new(Meter::alone(usize::MAX), u64::MAX))
}

impl Database {
    /// An empty database.
    pub fn new() -> Self {
        Self::at_level(Levels::OWN.greatest)
    }

    /// An empty database of a cluster at this level.
    pub fn at_level(level: Level) -> Self {
        let kv = Arc::new(MemoryKv::at_level(level));
        let config = EngineConfig { tablets_per_node: 3, ..EngineConfig::default() };
        let engine = QueryEngine::new(Arc::clone(&kv), config);
        Self { kv, engine, session: Session::new(), version: Version::V5, budget: unlimited() }
    }

    /// An empty database with a keyspace in use.
    pub fn with_keyspace() -> Self {
        let database = Self::new();
        database.run("CREATE KEYSPACE ks").unwrap();
        database.run("USE ks").unwrap();
        database
    }

    /// Another connection.
    pub fn another(&self) -> Self {
        let (kv, engine) = (Arc::clone(&self.kv), Arc::clone(&self.engine));
        Self { kv, engine, session: Session::new(), version: self.version, budget: unlimited() }
    }

    /// Sends a request by the general path.
    pub fn send(&self, request: &ClientRequest<'_>) -> Result<ClientResponse, CqlError> {
        self.decoded(self.reply(request)?)
    }

    /// Sends a request that the point path has declined because its row is not in memory.
    pub fn send_to_disk(&self, request: &ClientRequest<'_>) -> Result<ClientResponse, CqlError> {
        self.decoded(self.answer(request, true)?)
    }

    fn decoded(&self, reply: Reply) -> Result<ClientResponse, CqlError> {
        let mut out = Vec::new();
        reply.encode(&mut out, &ReplyHead::new(self.version, 7));
        Ok(decode_response(&envelope(&out)).unwrap().response)
    }

    /// The answer to a request on the general path, before it is encoded.
    pub fn reply(&self, request: &ClientRequest<'_>) -> Result<Reply, CqlError> {
        self.answer(request, false)
    }

    /// A request as the engine gets it, which counts on `budget`.
    fn owned(&self, request: &ClientRequest<'_>, budget: Arc<Budget>) -> OwnedRequest {
        let mut bytes = Vec::new();
        encode_request(&mut bytes, &RequestHead::new(self.version, 7), request);
        let request = envelope(&bytes);
        OwnedRequest {
            opcode: request.opcode,
            version: request.version,
            flags: request.flags,
            body: request.body.to_vec(),
            needs_disk: false,
            client: None,
            arrived_ns: 0,
            budget,
        }
    }

    fn answer(&self, request: &ClientRequest<'_>, needs_disk: bool) -> Result<Reply, CqlError> {
        let owned = OwnedRequest { needs_disk, ..self.owned(request, Arc::clone(&self.budget)) };
        let answered = block_on(self.engine.answer(Arc::clone(&self.session), owned));
        self.compare_rows();
        answered.outcome
    }

    /// Compares the rows of tables with new unique indexes, as nodes do.
    fn compare_rows(&self) {
        while let Some(memory::Uncompared { table, index, rows, tablet, step }) = self.kv.next_comparison() {
            let mut compared = step;
            for row in rows {
                let outcome = block_on(RowComparer::of(&self.engine).compare_row(table, index, &row, &self.budget));
                let found = match outcome {
                    // A node tries again later.
                    Err(error) if error.code() == ErrorCode::Overloaded => return self.finish_covering(),
                    found => found.unwrap(),
                };
                if let (Comparison::Duplicate(why) | Comparison::Impossible(why), IndexStep::Compare { to, .. }) =
                    (found, &mut compared)
                {
                    *to = Compared::Failed(why);
                    break;
                }
            }
            self.kv.take_step(tablet, &compared);
            // What comes after it may be a step without rows.
            self.kv.keep_indexes();
        }
        self.finish_covering();
    }

    /// Finishes covering indexes, as nodes do.
    fn finish_covering(&self) {
        let catalog = crate::kv::Kv::catalog(&*self.kv);
        for entry in catalog.tables() {
            for (view, _) in entry.table.hidden_views() {
                block_on(RowComparer::of(&self.engine).finish_covering(entry.table.id, view.id, true)).unwrap();
            }
        }
    }

    /// Sends EXECUTE on the point path; the general path must give the same answer. `None` if it was declined.
    pub fn execute_now(&self, request: &ClientRequest<'_>) -> Option<Result<ClientResponse, CqlError>> {
        self.execute_now_within(request, &Meter::alone(usize::MAX - 1))
    }

    /// As [`Self::execute_now`], with the meter for submitted writes.
    pub fn execute_now_within(
        &self,
        request: &ClientRequest<'_>,
        meter: &Meter,
    ) -> Option<Result<ClientResponse, CqlError>> {
        let held_before = meter.used_bytes();
        let mut bytes = Vec::new();
        encode_request(&mut bytes, &RequestHead::new(self.version, 7), request);
        let envelope_in = envelope(&bytes);
        let message = Message::decode(&envelope_in).unwrap();
        let Request::Execute(execute) = &message.request else { panic!("not an EXECUTE") };
        let sink = Arc::new(Sink::default());
        let shared: Arc<dyn WriteSink> = Arc::clone(&sink) as Arc<dyn WriteSink>;
        let reply = ReplyTo { version: self.version, stream: 7, sink: &shared, meter, kept_bytes: 0, token: 9 };
        let mut out = Vec::new();
        let outcome = self.engine.execute_now(&self.session, execute, reply, &mut out);
        let held = meter.used_bytes() - held_before;
        assert_eq!(held > 0, outcome == ExecuteNow::Submitted, "what is not submitted holds nothing");
        match outcome {
            ExecuteNow::NeedsWait | ExecuteNow::NeedsDisk => {
                assert!(out.is_empty(), "a declined request leaves nothing behind");
                return None;
            }
            ExecuteNow::Replied { .. } | ExecuteNow::Refused => {}
            ExecuteNow::Submitted => {
                let (token, outcome) = sink.0.lock().pop().unwrap();
                assert_eq!(token & 0xFFFF, 9);
                assert_eq!(held_bytes_of(token), held);
                meter.give(held);
                let statement = self.engine.activity().statement(slot_of(token));
                assert!(statement.is_some(), "a write says which statement it is of");
                let head = ReplyHead::new(self.version, 7);
                match outcome {
                    Ok(reply) => {
                        assert!(reply.is_empty(), "a blind write has no reply");
                        response::encode_void(&mut out, &head);
                    }
                    // As a connection does.
                    Err(error) if error.is_of_plan() => return Some(self.send(request)),
                    Err(error) => {
                        let asked = execute.parameters.consistency;
                        let error = submitted_error(&self.engine, token, &error, asked);
                        response::encode_error(&mut out, &head, &error);
                    }
                }
            }
        }
        Some(match decode_response(&envelope(&out)).unwrap().response {
            ClientResponse::Error(error) => Err(error),
            other => Ok(other),
        })
    }

    /// Runs a statement given as text.
    pub fn run(&self, text: &str) -> Result<ClientResponse, CqlError> {
        self.send(&ClientRequest::Query { statement: text, parameters: Parameters::default() })
    }

    /// The rows of a statement, rendered.
    pub fn rows(&self, text: &str) -> Vec<String> {
        match self.run(text) {
            Ok(ClientResponse::Rows(rows)) => rendered_rows(&rows),
            other => panic!("{text}: {other:?}"),
        }
    }

    /// The cells of a statement's rows, as literals.
    #[cfg(test)]
    pub fn shown(&self, text: &str) -> Vec<Vec<String>> {
        let rows = match self.run(text) {
            Ok(ClientResponse::Rows(rows)) => rows,
            other => panic!("{text}: {other:?}"),
        };
        let shown = |(cell, at): (&Option<Vec<u8>>, usize)| {
            let mut text = String::new();
            match cell {
                Some(wire) => {
                    literal_text(&type_of(&rows.metadata.columns[at].type_option), wire, &mut text).unwrap();
                }
                None => text.push_str("null"),
            }
            text
        };
        rows.rows.iter().map(|row| row.iter().zip(0..).map(shown).collect()).collect()
    }

    /// Prepares a statement.
    pub fn prepare(&self, text: &str) -> Result<ClientPrepared, CqlError> {
        match self.send(&ClientRequest::Prepare { statement: text, keyspace: None })? {
            ClientResponse::Prepared(prepared) => Ok(prepared),
            other => panic!("{text}: {other:?}"),
        }
    }

    /// Executes a prepared statement all ways where that is harmless, and compares.
    pub fn execute(&self, prepared: &ClientPrepared, values: &[Value<'_>]) -> Result<ClientResponse, CqlError> {
        let request = self.execute_request(prepared, values, false);
        match self.execute_now(&request) {
            Some(now) => {
                if let Ok(ClientResponse::Rows(_)) = &now {
                    assert_eq!(now, self.send(&request), "both ways give the same");
                    assert_eq!(now, self.send_to_disk(&request), "so does the way by the disk");
                    let leader = self.kv.leader.lock().replace(NodeId(2));
                    assert_eq!(now, self.send_to_disk(&request), "and the way by the node that leads the tablet");
                    *self.kv.leader.lock() = leader;
                }
                now
            }
            None => self.send(&request),
        }
    }

    /// An EXECUTE.
    pub fn execute_request<'a>(
        &self,
        prepared: &'a ClientPrepared,
        values: &'a [Value<'a>],
        skip_metadata: bool,
    ) -> ClientRequest<'a> {
        let parameters = Parameters { values: BoundValues::Positional(values), skip_metadata, ..Parameters::default() };
        let result_metadata_id = prepared.result_metadata_id.as_deref().unwrap_or_default();
        ClientRequest::Execute { id: &prepared.id, result_metadata_id, parameters }
    }
}

/// A type as the protocol tells it.
pub fn type_of(option: &TypeOption) -> CqlType {
    let boxed = |option: &TypeOption| Arc::new(type_of(option));
    match option {
        TypeOption::Native(NativeType::Varchar) => CqlType::Text,
        TypeOption::Native(native) => CqlType::from_native_name(&format!("{native:?}").to_lowercase()).unwrap(),
        TypeOption::List(element) => CqlType::List(boxed(element), Frozen::No),
        TypeOption::Set(element) => CqlType::Set(boxed(element), Frozen::No),
        TypeOption::Map(key, value) => CqlType::Map(boxed(key), boxed(value), Frozen::No),
        TypeOption::Tuple(elements) => CqlType::Tuple(elements.iter().map(type_of).collect()),
        TypeOption::UserDefined(user) => {
            let fields = user.fields.iter().map(|(name, field)| (name.clone(), type_of(field))).collect();
            let user = UserType { keyspace: user.keyspace.clone(), name: user.name.clone(), fields };
            CqlType::UserDefined(Arc::new(user), Frozen::No)
        }
        // Vectors: shown as their bytes.
        TypeOption::Custom(_) => CqlType::Blob,
    }
}

/// Each row as text: `name=literal`, without the name where the column is not known.
pub fn rendered_rows(rows: &ClientRows) -> Vec<String> {
    let render = |row: &Vec<Option<Vec<u8>>>| {
        let cells = row.iter().zip(&rows.metadata.columns).map(|(cell, column)| {
            let mut text = String::new();
            match cell {
                None => text.push_str("null"),
                Some(wire) => {
                    // A list with null in it, as `ttl` of a collection may be, has no literal.
                    if literal_text(&type_of(&column.type_option), wire, &mut text).is_err() {
                        text = format!("0x{}", crate::functions::hex(wire));
                    }
                }
            }
            format!("{}={text}", column.name)
        });
        cells.collect::<Vec<_>>().join(" ")
    };
    rows.rows.iter().map(render).collect()
}
