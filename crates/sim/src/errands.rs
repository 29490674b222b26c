//! Writes of nodes' own (commands of the catalog, steps of merges) on their way to whoever leads the tablet, and back: what a node's router does with them,
//! with at most one hop.
//!
//! Always true: a write is sent again only if it certainly was not carried out; whoever waits for it is told after a while, whatever has become of it.

use crate::client::Answer;
use diorite_base::mutation::Mutation;
use diorite_base::write::{KvError, WriteReply};
use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::Outcome;
use diorite_control::merging::Asked;
use std::collections::BTreeMap;

/// Writes of nodes have tokens from here on.
pub const FIRST_ERRAND: u64 = 1 << 48;

/// How long one is under way at most.
pub const TIMEOUT_MS: u64 = 2_000;

/// What a write is for.
#[derive(Clone, Debug)]
pub enum Purpose {
    /// Nobody waits for it: it is said again if it is lost.
    Nothing,
    /// The cluster is set up.
    SetUp,
    /// The balancer's.
    Steering,
    /// To learn which version the catalog's leader is at.
    Ask,
    /// A client's change of the schema.
    Ddl(u32),
    /// This tablet is wanted elsewhere.
    Move(TabletId),
    /// A node is to become a member.
    Join(u64),
    /// A step of a merge, or its end.
    Merge(u64),
    /// What a merge that was cancelled has copied is removed.
    UndoMerge(Asked),
}

/// A write on its way.
pub struct Errand {
    /// The node that waits for it.
    pub node: NodeId,
    /// The process that waits for it.
    pub life: u64,
    /// Where it goes.
    pub tablet: TabletId,
    /// What is written.
    pub mutation: Mutation,
    /// What it is for.
    pub purpose: Purpose,
    /// It is waited for until then, nanoseconds of true time.
    pub until_ns: u64,
    /// It was sent to a node that has not answered: it may be done still.
    pub may_be_done: bool,
    /// Where it was said to be led when it was refused.
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

/// How one ended.
pub type Ended = Result<WriteReply, KvError>;

/// The outcome of a command, if it is known.
pub fn outcome(ended: &Ended) -> Option<Outcome> {
    ended.as_ref().ok().map(|reply| Outcome::decode(reply).expect("the catalog answers with outcomes"))
}
