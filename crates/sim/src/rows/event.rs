//! What happens to statements.

use super::kv::Answered;
use diorite_base::NodeId;

/// Writes of statements have tokens from here on.
pub const FIRST_ROW_TOKEN: u64 = 1 << 52;

/// Something that happens to a statement.
#[derive(Clone, Debug)]
pub enum RowEvent {
    /// A client sends its next.
    Act(u32),
    /// A statement's request to a tablet arrives at the router of the node that carries the statement out.
    Arrive(u64, NodeId),
    /// A node's answer comes back.
    Answer(u64, Answered),
    /// It is waited for no longer.
    GiveUp(u64),
}

impl RowEvent {
    /// The node at which it happens.
    pub fn place(&self) -> Option<NodeId> {
        match self {
            RowEvent::Arrive(_, node) => Some(*node),
            _ => None,
        }
    }
}
