//! The state of a replica that must outlive its life on this node.

use diorite_raft::{HardState, LogPosition};

/// Term and vote, and the last position that may have been acknowledged: what a replica must remember if it is opened
/// again.
pub type Memory = (HardState, LogPosition);
