//! The state of a replica between two turns of its core, for operators.
//!
//! Always true: the core answers on its own thread, so that the numbers are of one moment and cost writes nothing.

use crate::group::replica::Replica;
use diorite_base::NodeId;
use diorite_storage::Engine;

/// The state of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaState {
    /// Its Raft term.
    pub term: u64,
    /// The leader's node, as far as the replica knows.
    pub leader: Option<NodeId>,
    /// Whether its lease is in force: it may answer reads alone.
    pub holds_lease: bool,
    /// How long the lease lasts unless it is renewed, nanoseconds; `None` also for the lease of a sole voter, which
    /// does not end.
    pub lease_left_ns: Option<u64>,
    /// The first index that is still in its log.
    pub first_index: u64,
    /// The last index in its log.
    pub last_index: u64,
    /// Its commit index.
    pub commit_index: u64,
    /// Its applied index.
    pub applied_index: u64,
    /// The voters, as far as the replica knows.
    pub voters: Vec<NodeId>,
    /// The former voters, in a joint configuration.
    pub outgoing: Vec<NodeId>,
    /// The learners.
    pub learners: Vec<NodeId>,
    /// For a leader: the index up to which each other member holds its log.
    pub matched: Vec<(NodeId, u64)>,
    /// Entries proposed here that writers wait for.
    pub waiting_entries: usize,
    /// Whether it is below its floor.
    pub is_recovering: bool,
    /// Why it has failed, if it has.
    pub failure: Option<String>,
}

/// The current state of a replica.
pub(crate) fn state_of<E: Engine>(replica: &Replica<E>, now_ns: u64) -> ReplicaState {
    let group = &replica.group;
    let nodes = |ids: &[u64]| ids.iter().copied().map(NodeId).collect();
    let lease = replica.handle.lease.left_ns(now_ns);
    let members = group.members();
    ReplicaState {
        term: group.term().0,
        leader: Some(NodeId(group.leader())).filter(|leader| leader.0 != 0),
        holds_lease: lease.is_some(),
        lease_left_ns: lease.flatten(),
        first_index: replica.handle.log_start() + 1,
        last_index: group.last_index(),
        commit_index: group.commit_index(),
        applied_index: replica.applied.index,
        voters: nodes(&members.voters),
        outgoing: nodes(&members.voters_outgoing),
        learners: nodes(&members.learners),
        matched: group.progress().map(|member| (NodeId(member.replica), member.matched)).collect(),
        waiting_entries: replica.writes.waiting.len(),
        is_recovering: group.is_recovering(),
        failure: replica.failure.clone(),
    }
}
