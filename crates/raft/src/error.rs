//! Why consensus refused a request.

use crate::log::LogReadError;
use thiserror::Error;

/// Why consensus refused a request.
#[derive(Debug, Error)]
pub enum GroupError {
    /// This replica does not lead the group: ask the leader.
    #[error("not the leader")]
    NotLeader,
    /// This replica leads, but took nothing: too much of its log waits for a quorum, or another change of members is
    /// under way.
    #[error("the proposal was dropped")]
    Dropped,
    /// The log or a message contradicts the state of consensus: the replica must stop.
    #[error("consensus failed: {0}")]
    Broken(#[from] raft::Error),
    /// The leader's log has another entry in a place that is committed here. Either entries that were acknowledged here
    /// have been lost elsewhere, or this replica's data is damaged.
    #[error("the leader's log contradicts entry {index} of term {term}, which is committed here")]
    Diverged {
        /// Index of the last entry that is committed here.
        index: u64,
        /// Its term.
        term: u64,
    },
}

impl GroupError {
    /// Whether the error shows that stored data is damaged, as opposed to unreadable at the moment.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Broken(raft::Error::Store(raft::StorageError::Other(source))) => {
                !matches!(source.downcast_ref(), Some(LogReadError::Failed(_)))
            }
            Self::Broken(_) | Self::Diverged { .. } => true,
            Self::NotLeader | Self::Dropped => false,
        }
    }
}
