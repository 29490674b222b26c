//! What happens to statements.

use super::kv::Answered;
use diorite_base::NodeId;
use diorite_replica::Term;

/// Writes of statements have tokens from here on.
pub const FIRST_ROW_TOKEN: u64 = 1 << 52;

/// Something that happens to a statement.
#[derive(Clone, Debug)]
pub enum RowEvent {
    /// A client sends its next.
    Act(u32),
    /// What one asks of a tablet comes to a node.
    Arrive(u64, NodeId),
    /// A read that has begun in this term takes its value and ends.
    Read(u64, NodeId, Term),
    /// A node's answer comes back.
    Answer(u64, Answered),
    /// What one asks of a tablet is asked again.
    Again(u64),
    /// It is waited for no longer.
    GiveUp(u64),
}

impl RowEvent {
    /// The node at which it happens.
    pub fn place(&self) -> Option<NodeId> {
        match self {
            RowEvent::Arrive(_, node) | RowEvent::Read(_, node, _) => Some(*node),
            _ => None,
        }
    }
}
