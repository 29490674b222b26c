//! Nodes that become members: they ask one that is, which asks the catalog, and start when they have their number.

use diorite_base::NodeId;

/// Something that happens to a node that is not a member yet.
#[derive(Clone, Debug)]
pub enum JoinEvent {
    /// The host with this number asks a member.
    Ask(u64),
    /// A member answers it.
    Answer(u64, NodeId),
}
