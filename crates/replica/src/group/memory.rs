//! What must be remembered of a replica beyond its life on this node.

use diorite_raft::{HardState, LogPosition};

/// What a replica must remember should it be opened again.
pub type Memory = (HardState, LogPosition);
