//! The nemesis: chooses the faults of a run, and ends them.

use crate::dice::Dice;
use crate::faults::FaultKind;
use crate::scenario::Scenario;
use diorite_base::NodeId;

const SECOND: u64 = 1_000_000_000;

/// Something that goes wrong, or is mended.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The next thing goes wrong.
    Next,
    /// Nothing goes wrong any more, and everything is mended.
    MendAll,
    /// A node's process is started.
    Start(NodeId),
    /// A node that was stopped in an orderly way ends.
    End(NodeId),
    /// A paused process goes on.
    Resume(NodeId),
    /// The partition of this number ends.
    Heal(u64),
    /// A disk is as fast as usual.
    DiskMended(NodeId),
}

/// Decides which faults are injected, and when.
pub struct Nemesis {
    /// What there is.
    pub kinds: Vec<FaultKind>,
    /// The longest time between two, nanoseconds.
    pub every_ns: u64,
    /// How far clocks' rates may be off.
    pub rate_error_ppm: i64,
    /// How long a sync usually takes, microseconds.
    pub sync_us: u64,
    /// Decisions of its own.
    pub dice: Dice,
    /// Counts partitions.
    pub partitions: u64,
    /// Nothing goes wrong any more.
    pub has_ended: bool,
    /// How many faults there were.
    pub faults: u64,
}

impl Nemesis {
    /// The faults of a scenario.
    pub fn new(scenario: &Scenario, rate_error_ppm: i64, dice: Dice) -> Self {
        Self {
            kinds: scenario.kinds.clone(),
            every_ns: scenario.fault_every_ns,
            rate_error_ppm,
            sync_us: scenario.sync_us,
            dice,
            partitions: 0,
            has_ended: false,
            faults: 0,
        }
    }

    /// When the first thing goes wrong, nanoseconds: usually after there are leaders.
    pub fn first_ns(&mut self) -> u64 {
        self.dice.range(0, 2 * SECOND)
    }

    /// How long a node stays down, nanoseconds.
    pub fn down_ns(&mut self) -> u64 {
        if self.dice.chance(300) { self.dice.milliseconds(1, 100) } else { self.dice.milliseconds(100, 2_500) }
    }

    /// How long something lasts, nanoseconds.
    pub fn lasting_ns(&mut self) -> u64 {
        self.dice.milliseconds(50, 2_500)
    }

    /// Directed pairs between which nothing passes.
    pub fn partition(&mut self, nodes: &[NodeId]) -> Vec<(NodeId, NodeId)> {
        let pairs = || nodes.iter().flat_map(|one| nodes.iter().map(move |other| (*one, *other)));
        let lonely = *self.dice.pick(nodes);
        let another = *self.dice.pick(nodes);
        match self.dice.range(0, 6) {
            0 | 1 => pairs().filter(|(from, to)| (*from == lonely) != (*to == lonely)).collect(),
            2 => pairs().filter(|(from, to)| *from == lonely && *to != lonely).collect(),
            3 => pairs().filter(|(from, to)| *from != lonely && *to == lonely).collect(),
            4 => pairs().filter(|pair| *pair == (lonely, another) || *pair == (another, lonely)).collect(),
            _ => {
                let side = self.dice.bits();
                let is_left = |node: &NodeId| side >> node.0 & 1 == 1;
                pairs().filter(|(from, to)| is_left(from) != is_left(to)).collect()
            }
        }
    }
}
