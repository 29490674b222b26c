//! The merges that nodes carry out.

use crate::dice::Dice;
use diorite_base::NodeId;
use diorite_control::merging::Asked;
use diorite_replica::{MergeAction, MergeDriver};
use std::collections::BTreeMap;

/// One node's attempt at a merge.
pub struct Drive {
    /// Which.
    pub node: NodeId,
    /// The process that drives; nothing is left of it in the next.
    pub life: u64,
    /// The merge.
    pub merge: Asked,
    /// Decides on the steps.
    pub driver: MergeDriver,
    /// The next step.
    pub action: MergeAction,
    /// How often that was tried.
    pub tries: u32,
}

/// The merges that nodes carry out.
pub struct Drives {
    /// Decisions of these.
    pub dice: Dice,
    /// A bug: tablets are copied as if they had been sealed.
    pub never_close: bool,
    /// By number.
    pub under_way: BTreeMap<u64, Drive>,
    /// The next number.
    pub next: u64,
}

impl Drives {
    /// None.
    pub fn new(dice: Dice, never_close: bool) -> Self {
        Self { dice, never_close, under_way: BTreeMap::new(), next: 1 }
    }
}
