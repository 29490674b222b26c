//! Requests on their way through the nodes' routers, which are those of `diorite_control::routing`.
//!
//! Always true: the asked node holds the request until it ends; a node answers a request of another to that node, and
//! never forwards it.

use crate::program::{self, Value};
use diorite_base::mutation::{Body, Mutation, MutationRef};
use diorite_base::write::{KvError, WriteReply};
use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::Catalog;
use diorite_control::replicas::CATALOG_TABLET;
use diorite_control::routing::{self, Limits, Local, Timeouts, View};
use diorite_model::key::token_of;
use diorite_query::kv::{Fetch, Fetched};
use diorite_replica::{Leadership, Liveness, TabletHandle};
use diorite_storage::MemoryTablet;
use diorite_transact::version::DataVersion;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The first token of requests that nodes carry out.
pub const FIRST_SERVED: u64 = 1 << 56;

/// Frames of requests begin with this byte.
pub const REQUESTS: u8 = 2;

/// Frames of answers begin with this byte.
pub const ANSWERS: u8 = 3;

/// The interval at which requests that wait are retried, nanoseconds.
pub const TICK_NS: u64 = 25_000_000;

/// How long requests wait: as in production.
pub const TIMEOUTS: Timeouts =
    Timeouts { read: Duration::from_secs(5), write: Duration::from_secs(2), missing: Duration::from_secs(1) };

/// What may wait for one node, or for leaders.
pub const LIMITS: Limits = Limits { requests: 32 << 10, bytes: 64 << 20 };

/// A request for a tablet.
#[derive(Clone, Debug)]
pub enum Question {
    /// What does a key hold?
    Read(u64),
    /// A read of rows.
    Fetch(Arc<Fetch>),
    /// A write.
    Write(Mutation),
}

/// A request, and who waits for it.
#[derive(Clone, Debug)]
pub struct Work {
    /// Names it among all of the run.
    pub token: u64,
    /// The request.
    pub question: Question,
}

impl routing::Work for Work {
    fn is_read(&self) -> bool {
        !matches!(self.question, Question::Write(_))
    }

    fn size_bytes(&self) -> usize {
        match &self.question {
            Question::Read(_) => program::key(0).len(),
            Question::Fetch(_) => 64,
            Question::Write(mutation) => mutation.size_bytes(),
        }
    }
}

/// A tablet's answer.
#[derive(Clone, Debug)]
pub enum Given {
    /// The value of a key.
    Value(Value),
    /// Rows.
    Fetched(Fetched),
    /// The answer to a write.
    Written(WriteReply),
}

/// What becomes of a request.
pub type Ended = Result<Given, KvError>;

/// Who waits for what a replica carries out.
#[derive(Clone, Debug)]
pub enum Waits {
    /// A request of this node's clients, which ends then, on the monotonic clock, if that is given.
    Here(Work, Option<u64>),
    /// A process of another node, which has given it this number.
    There(NodeId, u64, u64),
}

/// A request that a replica carries out.
#[derive(Clone, Debug)]
pub struct Serving {
    /// Where.
    pub node: NodeId,
    /// Of which tablet.
    pub tablet: TabletId,
    /// What.
    pub question: Question,
    /// For whom.
    pub waits: Waits,
    /// Of a read that asks for it, the version of the data from before the read.
    pub version: Option<DataVersion>,
}

/// A request between two nodes: who asks, in which process, who is asked, and its number.
pub type Hop = (NodeId, u64, NodeId, u64);

/// Requests on their way between nodes, and those that nodes carry out. Frames refer to them by token and may be lost.
pub struct Routed {
    /// Requests.
    pub requests: BTreeMap<Hop, (TabletId, Work)>,
    /// Answers.
    pub answers: BTreeMap<Hop, Ended>,
    /// The requests that are carried out, by token.
    pub serving: BTreeMap<u64, Serving>,
    /// The next token.
    pub next: u64,
}

impl Default for Routed {
    fn default() -> Self {
        let (requests, answers, serving) = Default::default();
        Self { requests, answers, serving, next: FIRST_SERVED }
    }
}

impl Routed {
    /// A process has ended: its own requests have no receiver any more, and those that it carried out are not answered.
    pub fn forget(&mut self, node: NodeId) {
        self.requests.retain(|hop, _| hop.0 != node);
        self.answers.retain(|hop, _| hop.0 != node);
        self.serving.retain(|_, serving| serving.node != node);
    }
}

/// What routing asks about a node.
pub struct NodeView<'a> {
    /// Its replicas.
    pub handles: &'a BTreeMap<TabletId, Arc<TabletHandle<MemoryTablet>>>,
    /// Its side of the heartbeats.
    pub liveness: &'a Liveness,
    /// The snapshot that it serves.
    pub served: &'a Catalog,
}

impl View<Work> for NodeView<'_> {
    fn local(&self, tablet: TabletId) -> Local {
        match self.handles.get(&tablet).map(|handle| handle.leadership()) {
            None => Local::Absent,
            Some(Leadership::Here) => Local::Leads,
            Some(Leadership::Elsewhere(node)) => Local::Follows(Some(node)),
            Some(Leadership::Unknown) => Local::Follows(None),
        }
    }

    fn is_up(&self, node: NodeId) -> bool {
        self.liveness.is_up(node)
    }

    fn holders(&self, tablet: TabletId) -> Option<Vec<NodeId>> {
        match self.served.placement(tablet) {
            Some(placement) => Some(placement.holders().collect()),
            None if tablet == CATALOG_TABLET => Some(self.served.nodes().map(|node| node.id).collect()),
            None => None,
        }
    }

    fn is_split(&self, tablet: TabletId) -> bool {
        self.served.placement(tablet).is_some_and(|placement| placement.split.is_some_and(|split| split.is_served))
    }

    fn is_new_child(&self, tablet: TabletId) -> bool {
        self.served.placement(tablet).is_some_and(|placement| placement.origin.is_some())
    }

    /// The tablet that follows `tablet`, found by the tokens of the keys written, if all are of one tablet, as in production.
    fn successor(&self, tablet: TabletId, work: &Work) -> Option<TabletId> {
        let Question::Write(mutation) = &work.question else { return None };
        let entry = self.served.table_of(tablet)?;
        let read = MutationRef::decode(mutation.as_bytes()).ok()?;
        let Body::Blind(operations) = read.body() else { return None };
        let mut successor = None;
        for operation in operations {
            let at = entry.tablet_of(token_of(operation.ok()?.key).ok()?);
            if successor.replace(at).is_some_and(|before| before != at) {
                return None;
            }
        }
        successor
    }
}
