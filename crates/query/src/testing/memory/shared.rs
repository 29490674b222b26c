//! What the tablets in memory share of their transactions: requests without an answer, and work that outlives requests.
//!
//! Left out: what becomes of it ([`super::leaders`]).

use crate::kv::{KvError, WriteReply, WriteSink};
use diorite_base::TabletId;
use diorite_base::mutation::Mutation;
use diorite_transact::TransactionId;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// Who receives a reply.
pub enum To {
    Client,
    /// A tablet that has asked about this prepare.
    Learns(TabletId, TransactionId, i64),
    /// A home that has asked this participant to finish.
    Finishes(TabletId, TabletId),
}

/// A write that waits for rows.
pub struct Waiting {
    pub mutation: Mutation,
    pub sink: Option<(Arc<dyn WriteSink>, u64)>,
}

/// What is known of the versions of tablets. If they are, reads of several need no snapshots.
#[derive(Debug, Default, Clone, Copy)]
pub enum Versions {
    #[default]
    Unknown,
    Known,
    /// They stay the same when tablets change: a bug.
    Kept,
    /// Another node leads the tablets, and its answers say the versions.
    Elsewhere,
    /// With the same bug.
    KeptElsewhere,
}

#[derive(Default)]
pub struct Shared {
    pub askers: HashMap<u64, To>,
    pub answers: HashMap<u64, Result<WriteReply, KvError>>,
    pub waiting: HashMap<u64, Waiting>,
    pub swept_us: i64,
}

/// See the top of this module.
#[derive(Default)]
pub struct Transactions {
    pub next: AtomicU64,
    pub shared: Mutex<Shared>,
    pub spawned: Mutex<Vec<BoxFuture<'static, ()>>>,
    /// As if this node died whenever work is to outlive its request.
    pub drops_spawned: AtomicBool,
    /// How many snapshots were taken.
    pub pins: AtomicU64,
    pub versions: Mutex<Versions>,
    /// How often a cold read of every other tablet is polled in vain, beside once.
    pub cold_polls: AtomicUsize,
}
