//! Where the replicas of tablets are wanted, as a catalog would say; and what each node has heard of that.
//!
//! Always true: a placement that is later has a greater version, and a node that has heard of it never goes back to an earlier one. A node that is no longer
//! wanted keeps its replica until whoever leads the tablet says that it is not needed; nothing keeps the catalog from wanting it back before the
//! node has heard of that.

use crate::dice::Dice;
use crate::scenario::Scenario;
use diorite_base::{NodeId, TabletId};
use diorite_raft::LogPosition;
use diorite_replica::{Members, Split};
use std::collections::BTreeMap;

/// That a tablet is, or was, to be split.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Where, and into which.
    pub split: Split,
    /// Whether the children have taken its place.
    pub is_served: bool,
}

/// That a tablet is to be merged with a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// It goes: that one takes it in.
    Into(TabletId),
    /// It stays, and takes that one in.
    Of(TabletId),
}

/// Where one tablet is.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Counts the changes.
    pub version: u64,
    /// The members that are wanted.
    pub members: Members,
    /// Nodes that hold a replica which is to go.
    pub leaving: Vec<NodeId>,
    /// Whether it is to be split.
    pub split: Option<Planned>,
    /// Of a child that may need its parent still: that, and index and term of the entry that split it.
    pub origin: Option<(TabletId, u64, u64)>,
    /// Whether it is to be merged.
    pub merge: Option<Merge>,
    /// It was split, or taken in by another, and is needed no more.
    pub is_dropped: bool,
}

impl Placement {
    /// Whether the node holds a replica, or is to.
    pub fn is_on(&self, node: NodeId) -> bool {
        !self.is_dropped && (self.members.voters.contains(&node) || self.leaving.contains(&node))
    }

    /// What a replica of a child must hold before it votes, if it does not begin with its parent's data.
    pub fn floor(&self) -> Option<LogPosition> {
        self.origin.map(|(_, index, term)| LogPosition::new(index, term))
    }

    /// Whether requests go to it.
    pub fn is_served(&self) -> bool {
        !self.is_dropped && self.split.as_ref().is_none_or(|planned| !planned.is_served)
    }

    /// Whether it is being split, or was split off and not settled yet.
    pub fn is_splitting(&self) -> bool {
        self.split.is_some() || self.origin.is_some()
    }

    /// Whether it is being split or merged: it does not move.
    pub fn is_reshaping(&self) -> bool {
        self.is_splitting() || self.merge.is_some()
    }

    /// Wants other voters. Whoever has held a replica until now keeps it for a while.
    pub fn want(&mut self, voters: Vec<NodeId>) {
        self.version += 1;
        let before = std::mem::replace(&mut self.members.voters, voters);
        for node in before {
            if !self.leaving.contains(&node) {
                self.leaving.push(node);
            }
        }
        let members = &self.members;
        self.leaving.retain(|node| !members.voters.contains(node));
    }

    /// The voters have settled: others are not needed any more.
    pub fn settle(&mut self, voters: &[NodeId]) {
        let wanted = &self.members.voters;
        if wanted.len() == voters.len() && wanted.iter().all(|node| voters.contains(node)) {
            self.version += 1;
            self.leaving.clear();
        }
    }

    /// Other voters, at random: usually one is replaced, often by one that was here before.
    pub fn other_voters(&self, nodes: &[NodeId], dice: &mut Dice) -> Vec<NodeId> {
        let mut voters = self.members.voters.clone();
        let others: Vec<NodeId> = nodes.iter().copied().filter(|node| !voters.contains(node)).collect();
        if !others.is_empty() && dice.chance(600) {
            let at = dice.range(0, voters.len() as u64) as usize;
            voters[at] = *dice.pick(&others);
            return voters;
        }
        let mut chosen = nodes.to_vec();
        let turns = dice.range(0, nodes.len() as u64) as usize;
        chosen.rotate_left(turns);
        let many = *dice.pick(&[1, 3, 3, 3, 5]);
        chosen.truncate(many);
        if chosen.len().is_multiple_of(2) {
            chosen.pop();
        }
        chosen
    }
}

/// The placements in the beginning.
pub fn first(scenario: &Scenario, dice: &mut Dice) -> (BTreeMap<TabletId, Placement>, BTreeMap<TabletId, Vec<NodeId>>) {
    let (mut wanted, mut founders) = (BTreeMap::new(), BTreeMap::new());
    for tablet in &scenario.tablets {
        let mut voters = scenario.nodes.clone();
        let turns = dice.range(0, voters.len() as u64) as usize;
        voters.rotate_left(turns);
        voters.truncate(scenario.replicas);
        let first = if dice.chance(700) { voters.len() } else { dice.range(1, voters.len() as u64 + 1) as usize };
        founders.insert(*tablet, voters[..first].to_vec());
        let members = Members { voters, learners: Vec::new() };
        let placement = Placement {
            version: 1,
            members,
            leaving: Vec::new(),
            split: None,
            origin: None,
            merge: None,
            is_dropped: false,
        };
        wanted.insert(*tablet, placement);
    }
    (wanted, founders)
}
