//! The members that the catalog wants a tablet to have.

use diorite_base::NodeId;

/// The members that the catalog wants a tablet to have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// The voters; the first is the preferred leader.
    pub voters: Vec<NodeId>,
    /// The learners.
    pub learners: Vec<NodeId>,
}

impl Members {
    pub(crate) fn contains(&self, node: u64) -> bool {
        self.voters.iter().chain(&self.learners).any(|member| member.0 == node)
    }
}
