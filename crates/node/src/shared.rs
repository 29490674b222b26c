//! State that the connections of a node share: the engine, counters, and common limits.

use crate::entrance::Entrance;
use crate::kv::NodeKv;
use crate::logging::{Logging, SlowQuery};
use crate::observe::Latencies;
use crate::observe::history::History;
use crate::passwords::Passwords;
use crate::tls::Tls;
use diorite_base::account::Account;
use diorite_base::measure::Counter;
use diorite_cql::protocol::CqlError;
use diorite_query::activity::{Done, Note, OTHERS, Slot, StatementActivity};
use diorite_query::{Operation, QueryEngine};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use tokio::sync::Semaphore;

/// Requests by kind, since start.
#[derive(Default)]
pub(crate) struct RequestCounters {
    pub(crate) executes: Counter,
    /// EXECUTEs that ran as futures.
    pub(crate) executes_waiting: Counter,
    pub(crate) queries: Counter,
    pub(crate) prepares: Counter,
    pub(crate) batches: Counter,
    pub(crate) protocol_errors: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    /// Requests refused for lack of memory.
    pub(crate) overloaded: AtomicU64,
}

/// The kind of an error, without its message, which may quote values.
fn error_name(error: &CqlError) -> String {
    let kind = format!("{:?}", error.kind);
    kind.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

/// Limits for all connections together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) connections: usize,
    /// Requests that may run as futures at a time.
    pub(crate) running: usize,
    /// The deadline of a request, nanoseconds after it was read.
    pub(crate) request_timeout_ns: u64,
}

/// How clients get in.
#[derive(Clone)]
pub(crate) struct Access {
    /// Whether they have to log in, and which of them are there.
    pub(crate) entrance: Arc<Entrance>,
    /// Checks their passwords.
    pub(crate) passwords: Arc<Passwords>,
    /// They have to speak TLS.
    pub(crate) tls: Option<Arc<Tls>>,
    /// A client's certificate that names a role logs that role in.
    pub(crate) has_certificate_roles: bool,
}

/// The parts of [`Shared`].
pub(crate) struct SharedParts {
    pub(crate) kv: Arc<NodeKv>,
    pub(crate) engine: Arc<QueryEngine<NodeKv>>,
    /// The account for requests and the buffers of connections.
    pub(crate) account: Arc<Account>,
    pub(crate) limits: ConnectionLimits,
    pub(crate) access: Access,
    pub(crate) logging: Arc<Logging>,
}

/// State that all connections share.
pub(crate) struct Shared {
    pub(crate) kv: Arc<NodeKv>,
    pub(crate) engine: Arc<QueryEngine<NodeKv>>,
    pub(crate) counters: RequestCounters,
    pub(crate) latencies: Latencies,
    pub(crate) logging: Arc<Logging>,
    pub(crate) history: History,
    pub(crate) connections: AtomicUsize,
    pub(crate) limits: ConnectionLimits,
    pub(crate) access: Access,
    /// One permit for each request that may run at a time. The rows of an answer are bounded by a page, so the permits
    /// bound the rows of all running requests.
    pub(crate) turns: Arc<Semaphore>,
    /// The account for requests and the buffers of connections.
    pub(crate) account: Arc<Account>,
    /// The limit of one connection within the account, bytes.
    pub(crate) connection_limit_bytes: usize,
}

impl Shared {
    pub(crate) fn new(parts: SharedParts) -> Self {
        let SharedParts { kv, engine, account, limits, access, logging } = parts;
        Self {
            kv,
            engine,
            counters: RequestCounters::default(),
            latencies: Latencies::default(),
            logging,
            history: History::default(),
            connections: AtomicUsize::new(0),
            access,
            turns: Arc::new(Semaphore::new(limits.running)),
            connection_limit_bytes: account.limit_bytes() / 4 * 3,
            account,
            limits,
        }
    }

    /// Records requests of one statement that were answered together.
    #[inline]
    pub(crate) fn observe(&self, operation: Operation, slot: Slot, done: &Done, client: Option<SocketAddr>) {
        if done.count == 0 {
            return;
        }
        self.latencies.record(operation, done.elapsed_ns, done.count);
        self.engine.activity().record(slot, done);
        if self.logging.slow.is_slow(done.elapsed_ns) {
            let statement = self.engine.activity().statement(slot);
            self.tell_slow(operation, statement.as_deref(), done, client, None);
        }
    }

    /// Records a request that ran as a future.
    pub(crate) fn observe_one(&self, note: &Note, done: &Done, client: Option<SocketAddr>, error: Option<&CqlError>) {
        self.latencies.record(note.operation, done.elapsed_ns, done.count);
        let statement = note.statement.as_deref();
        self.engine.activity().record(statement.map_or(OTHERS, StatementActivity::slot), done);
        if self.logging.slow.is_slow(done.elapsed_ns) {
            self.tell_slow(note.operation, statement, done, client, error);
        }
    }

    #[cold]
    fn tell_slow(
        &self,
        operation: Operation,
        statement: Option<&StatementActivity>,
        done: &Done,
        client: Option<SocketAddr>,
        error: Option<&CqlError>,
    ) {
        let slow = SlowQuery {
            statement: statement.map_or("", |statement| &statement.text),
            keyspace: statement.and_then(|statement| statement.keyspace.as_deref()),
            operation: operation.name(),
            client,
            elapsed_ns: done.elapsed_ns,
            error: error.map(error_name),
        };
        self.logging.slow.tell(&slow, done.now_ns);
    }
}
