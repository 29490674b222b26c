//! How a replica is, at one moment between two turns of its core, for operators.
//!
//! Always true: the core is asked and answers in its own thread, so that the numbers belong together and writes pay nothing for them.

use crate::group::replica::Replica;
use diorite_base::NodeId;
use diorite_storage::Engine;

/// How a replica is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaState {
    /// Its Raft term.
    pub term: u64,
    /// Who leads, as far as it knows.
    pub leader: Option<NodeId>,
    /// Whether its lease is in force: it may answer reads alone.
    pub holds_lease: bool,
    /// For how long, nanoseconds, if nobody renews it; `None` also for the lease of a sole voter, which does not end.
    pub lease_left_ns: Option<u64>,
    /// The first index that is still in its log.
    pub first_index: u64,
    /// The last one.
    pub last_index: u64,
    /// The last one that it knows to be committed.
    pub commit_index: u64,
    /// The last one that is applied to its data.
    pub applied_index: u64,
    /// The group's voters, as it knows them.
    pub voters: Vec<NodeId>,
    /// The voters before, while both decide.
    pub outgoing: Vec<NodeId>,
    /// The learners.
    pub learners: Vec<NodeId>,
    /// Of a leader: up to which index each of the others holds its log.
    pub matched: Vec<(NodeId, u64)>,
    /// Proposed writes that wait for a quorum, as entries.
    pub waiting_entries: usize,
    /// Whether it has lost what it had acknowledged and does not hold as much again yet.
    pub is_recovering: bool,
    /// Why it cannot go on, if so.
    pub failure: Option<String>,
}

/// How the replica is now.
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
