//! The guards of simulated nodes.

use crate::dice::Dice;
use diorite_base::NodeId;

/// A life of a node has ended, as another node is notified.
#[derive(Clone, Copy, Debug)]
pub struct EndNotice {
    /// Who is notified.
    pub to: NodeId,
    /// Whose process has ended.
    pub from: NodeId,
    /// The life that has ended, by the number in its heartbeats.
    pub incarnation: u64,
}

/// The state of the guards.
pub struct Guards {
    pub(crate) dice: Dice,
    /// A bug: nodes take the end of any life of another for the end of its current one.
    pub(crate) believes_any_end: bool,
}

impl Guards {
    /// With decisions of their own.
    pub fn new(dice: Dice, believes_any_end: bool) -> Self {
        Self { dice, believes_any_end }
    }
}
