//! What the connections of a node share: the engine, counters, and limits on what they take on together.

use crate::kv::NodeKv;
use crate::tls::Tls;
use diorite_base::random::{Random, SplitMix64};
use diorite_query::QueryEngine;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::Semaphore;

/// Requests by kind, since start.
#[derive(Default)]
pub(crate) struct RequestCounters {
    pub(crate) executes: AtomicU64,
    /// EXECUTEs that could not be answered at once.
    pub(crate) executes_waiting: AtomicU64,
    pub(crate) queries: AtomicU64,
    pub(crate) prepares: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) protocol_errors: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    /// Requests refused because too many bytes of requests were being worked on.
    pub(crate) overloaded: AtomicU64,
}

/// Bytes of requests that are being worked on, over all connections. Given back when dropped.
pub(crate) struct InWork {
    shared: Arc<Shared>,
    bytes: usize,
}

impl InWork {
    /// Takes `bytes`, unless that is over the node's limit.
    pub(crate) fn take(shared: &Arc<Shared>, bytes: usize) -> Option<Self> {
        let before = shared.work_bytes.fetch_add(bytes, Ordering::Relaxed);
        let taken = Self { shared: Arc::clone(shared), bytes };
        (before + bytes <= shared.work_limit_bytes).then_some(taken)
    }
}

impl Drop for InWork {
    fn drop(&mut self) {
        self.shared.work_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// How much the connections together may take on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) connections: usize,
    /// Requests that run at a time, beside point reads from memory and single-row writes.
    pub(crate) running: usize,
    /// Bytes of such requests, running or waiting for their turn.
    pub(crate) work_bytes: usize,
}

/// How clients get in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    /// They have to log in.
    pub(crate) asks_passwords: bool,
    /// They have to speak TLS.
    pub(crate) tls: Option<Arc<Tls>>,
}

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) kv: Arc<NodeKv>,
    pub(crate) engine: Arc<QueryEngine<NodeKv>>,
    pub(crate) counters: RequestCounters,
    pub(crate) connections: AtomicUsize,
    pub(crate) max_connections: usize,
    /// Clients have to log in.
    pub(crate) asks_passwords: bool,
    /// Clients have to speak TLS.
    pub(crate) tls: Option<Arc<Tls>>,
    /// One permit for each request that may run at a time: what a request gathers for its answer is bounded by a page, so this bounds them all.
    pub(crate) turns: Semaphore,
    work_bytes: AtomicUsize,
    work_limit_bytes: usize,
    random: Mutex<SplitMix64>,
}

impl Shared {
    pub(crate) fn new(
        kv: Arc<NodeKv>,
        engine: Arc<QueryEngine<NodeKv>>,
        limits: ConnectionLimits,
        access: Access,
    ) -> Self {
        Self {
            kv,
            engine,
            counters: RequestCounters::default(),
            connections: AtomicUsize::new(0),
            max_connections: limits.connections,
            asks_passwords: access.asks_passwords,
            tls: access.tls,
            turns: Semaphore::new(limits.running),
            work_bytes: AtomicUsize::new(0),
            work_limit_bytes: limits.work_bytes,
            random: Mutex::new(SplitMix64::from_entropy()),
        }
    }

    /// The id of a trace that a client asked for.
    pub(crate) fn tracing_id(&self) -> [u8; 16] {
        let mut random = self.random.lock();
        let bits = (u128::from(random.next_u64()) << 64) | u128::from(random.next_u64());
        uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid().into_bytes()
    }
}
