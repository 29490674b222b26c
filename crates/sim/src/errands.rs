//! Writes of nodes' own (commands of the catalog, steps of merges) on their way to the tablet's leader, and back, as a
//! node's router would carry them, with at most one hop.
//!
//! Always true: a write is sent again only if it was certainly not carried out; the waiting process is answered after a
//! timeout, whatever the outcome.

use crate::client::Answer;
use diorite_base::mutation::Mutation;
use diorite_base::write::{KvError, WriteReply};
use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::Outcome;
use diorite_control::merging::Asked;
use diorite_transact::peer::PeerCall;
use std::collections::BTreeMap;

/// The first token of nodes' own writes.
pub const FIRST_ERRAND: u64 = 1 << 48;

/// How long one is under way at most.
pub const TIMEOUT_MS: u64 = 2_000;

/// The purpose of a write.
#[derive(Clone, Debug)]
pub enum Purpose {
    /// No process waits for it; it is repeated if it is lost.
    Nothing,
    /// The cluster is set up.
    SetUp,
    /// The balancer's.
    Steering,
    /// To learn the version of the catalog's leader.
    Ask,
    /// A client's change of the schema.
    Ddl(u32),
    /// This tablet is to be moved.
    Move(TabletId),
    /// A node is to become a member.
    Join(u64),
    /// A step of a merge, or its end.
    Merge(u64),
    /// Copies made for a cancelled merge are removed.
    UndoMerge(Asked),
    /// The leader of a tablet calls that of another one for a transaction.
    Transaction(TabletId, TabletId, PeerCall),
}

/// A write on its way.
pub struct Errand {
    /// The node that waits for it.
    pub node: NodeId,
    /// The process that waits for it.
    pub life: u64,
    /// Where it goes.
    pub tablet: TabletId,
    /// The write.
    pub mutation: Mutation,
    /// Its purpose.
    pub purpose: Purpose,
    /// It is waited for until then, nanoseconds of true time.
    pub until_ns: u64,
    /// Whether it was sent to a node that has not answered, so that it may still be carried out.
    pub may_be_done: bool,
    /// The leader named by the last refusal.
    pub hint: Option<NodeId>,
}

/// Something that happens to one.
#[derive(Clone, Debug)]
pub enum ErrandEvent {
    /// It is sent.
    Send(u64),
    /// It is waited for no longer.
    GiveUp(u64),
}

/// All of them.
pub struct Errands {
    /// By token.
    pub under_way: BTreeMap<u64, Errand>,
    /// Answers on their way.
    pub answers: BTreeMap<u64, Answer>,
    /// The next token.
    pub next: u64,
}

impl Default for Errands {
    fn default() -> Self {
        Self { under_way: BTreeMap::new(), answers: BTreeMap::new(), next: FIRST_ERRAND }
    }
}

/// The result of a write.
pub type Ended = Result<WriteReply, KvError>;

/// The outcome of a command, if it is known.
pub fn outcome(ended: &Ended) -> Option<Outcome> {
    ended.as_ref().ok().map(|reply| Outcome::decode(reply).expect("the catalog answers with outcomes"))
}
