//! Programs of several releases: nodes are upgraded and go back, and the level of the cluster is raised.

use crate::dice::Dice;
use crate::options::Planting;
use diorite_base::{Hold, Level, NodeId};
use diorite_cluster::catalog::Command;
use std::collections::{BTreeMap, BTreeSet};

/// In how many of 1,000 seeds there are programs of several releases.
const UPGRADES: u64 = 500;

/// The highest level that a program knows here: two after that of the beginning.
pub const HIGHEST: Level = Level(3);

/// Something that happens in an upgrade.
#[derive(Clone, Debug)]
pub enum LevelEvent {
    /// An operator does something.
    Next,
    /// An operator gives a node that does not start a program that knows its level.
    Replace(NodeId),
    /// The member at this place of a command's list is asked to agree to the level.
    Agree(Box<Raise>, usize),
    /// The node at this place of a decision's list is asked to note it.
    Note(Box<Decision>, usize),
}

/// The level is to be raised by a process of a node.
#[derive(Clone, Debug)]
pub struct Raise {
    /// The node that leads the catalog.
    pub leader: NodeId,
    /// Its process.
    pub life: u64,
    /// The command.
    pub command: Command,
    /// Whether the node's balancer waits for the end.
    pub is_for_steering: bool,
    /// Members agree in spite of a hold up to this number.
    pub overruled: u64,
}

/// What an operator has decided about the next level, as a process of a node spreads it.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The node that leads the catalog.
    pub leader: NodeId,
    /// Its process.
    pub life: u64,
    /// The decision.
    pub hold: Hold,
    /// The nodes that are to note it.
    pub nodes: Vec<NodeId>,
}

/// What operators were answered about holds.
#[derive(Clone, Debug, Default)]
pub struct Holds {
    /// The last hold that was answered and not ended, and the nodes that have it.
    pub answered: Option<(Hold, Vec<NodeId>)>,
    /// The last decision to end a hold that was begun.
    pub ended: Option<Hold>,
    /// The levels from which operators have begun to finish the upgrade.
    pub finished: BTreeSet<Level>,
}

impl Holds {
    /// A decision is about to be spread.
    pub fn begin(&mut self, hold: Hold) {
        if !hold.is_held {
            self.answered = self.answered.take().filter(|(answered, _)| !hold.overrules(answered));
            self.ended = Some(hold);
        }
    }

    /// A decision was noted by all these nodes.
    pub fn answer(&mut self, hold: Hold, nodes: Vec<NodeId>) {
        let is_ended = self.ended.is_some_and(|ended| ended.overrules(&hold));
        let is_newer = self.answered.as_ref().is_none_or(|(answered, _)| hold.overrules(answered));
        if hold.is_held && !is_ended && is_newer {
            self.answered = Some((hold, nodes));
        }
    }

    /// The hold that a cluster of this level breaks, which no operator has finished or ended, while one of these
    /// members has it.
    pub fn broken(&self, level: Level, is_member: impl Fn(&NodeId) -> bool) -> Option<Hold> {
        let (hold, nodes) = self.answered.as_ref()?;
        let is_broken = level > hold.level && !self.finished.contains(&hold.level) && nodes.iter().any(is_member);
        is_broken.then_some(*hold)
    }
}

/// The programs of a run.
pub struct Upgrades {
    /// Whether there are any but those of the first level.
    pub is_on: bool,
    /// Decisions of their own, so that other seeds keep their runs.
    pub dice: Dice,
    /// A planted bug: members that are down need not agree.
    pub passes_over_nodes_that_are_down: bool,
    /// What operators were answered about holds.
    pub holds: Holds,
    programs: BTreeMap<u64, Level>,
}

impl Upgrades {
    /// The programs of a seed.
    pub fn new(mut dice: Dice, bug: Option<Planting>) -> Self {
        let passes_over_nodes_that_are_down = bug == Some(Planting::RaiseOverDown);
        let is_on =
            dice.chance(UPGRADES) || passes_over_nodes_that_are_down || bug == Some(Planting::RaiseAlthoughHeld);
        Self { is_on, dice, passes_over_nodes_that_are_down, holds: Holds::default(), programs: BTreeMap::new() }
    }

    /// The highest level that the program of a new host knows.
    pub fn program_of(&mut self, host: u64) -> Level {
        if !self.is_on {
            return Level::FIRST;
        }
        let choices = if host <= 5 { [1, 1, 1, 2] } else { [1, 2, 2, 3] };
        let dice = &mut self.dice;
        *self.programs.entry(host).or_insert_with(|| Level(*dice.pick(&choices)))
    }

    /// A host is refused with its program, and gets the next one.
    pub fn refused(&mut self, host: u64) {
        if let Some(program) = self.programs.get_mut(&host).filter(|program| **program < HIGHEST) {
            *program = program.next();
        }
    }
}
