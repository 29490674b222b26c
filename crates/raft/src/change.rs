//! Changes of a group's members, and their form in the log.

use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2};

/// A change of a group's members. Voters change only by way of a joint configuration, in which the old and the new
/// voters decide together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberChange {
    /// The replica becomes a learner: it is sent the log and has no vote.
    AddLearner(u64),
    /// The learner is removed from the group.
    RemoveLearner(u64),
    /// From the time that this is applied, the old and the new voters decide together.
    EnterJoint {
        /// Replicas that become voters.
        add: Vec<u64>,
        /// Voters that become learners.
        demote: Vec<u64>,
        /// Voters that are removed from the group.
        remove: Vec<u64>,
    },
    /// From the time that this is applied, the new voters decide alone. The layer above proposes it. The consensus core
    /// could propose it by itself, but forgets to if the leader changes in between.
    LeaveJoint,
}

impl MemberChange {
    pub(crate) fn encode(&self) -> ConfChangeV2 {
        let mut changes = Vec::new();
        let mut push = |kind, replicas: &[u64]| {
            for replica in replicas {
                let mut change = ConfChangeSingle { node_id: *replica, ..ConfChangeSingle::default() };
                change.set_change_type(kind);
                changes.push(change);
            }
        };
        let mut encoded = ConfChangeV2::default();
        match self {
            Self::AddLearner(replica) => push(ConfChangeType::AddLearnerNode, &[*replica]),
            Self::RemoveLearner(replica) => push(ConfChangeType::RemoveNode, &[*replica]),
            Self::EnterJoint { add, demote, remove } => {
                push(ConfChangeType::AddNode, add);
                push(ConfChangeType::AddLearnerNode, demote);
                push(ConfChangeType::RemoveNode, remove);
                encoded.set_transition(ConfChangeTransition::Explicit);
            }
            Self::LeaveJoint => {}
        }
        encoded.set_changes(changes.into());
        encoded
    }
}
