//! Changes of a group's members, and their form in the log.

use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2};

/// A change of a group's members. Voters change only by way of a joint configuration, in which both the old and the new ones decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberChange {
    /// Sends the log to the replica, which has no vote.
    AddLearner(u64),
    /// The learner is no longer a member.
    RemoveLearner(u64),
    /// From now on the present voters and the coming ones decide together.
    EnterJoint {
        /// Replicas that get a vote.
        add: Vec<u64>,
        /// Voters that become learners.
        demote: Vec<u64>,
        /// Voters that are members no longer.
        remove: Vec<u64>,
    },
    /// From now on the coming voters decide alone. It is not left to consensus to do this by itself: it would forget it when the leader changes in between.
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
