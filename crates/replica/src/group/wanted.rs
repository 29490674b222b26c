//! The members that a tablet is to have.

use diorite_base::NodeId;

/// The members that the catalog wants a tablet to have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// The replicas with a vote; the first should lead.
    pub voters: Vec<NodeId>,
    /// The replicas that only follow.
    pub learners: Vec<NodeId>,
}

impl Members {
    pub(crate) fn contains(&self, node: u64) -> bool {
        self.voters.iter().chain(&self.learners).any(|member| member.0 == node)
    }
}
