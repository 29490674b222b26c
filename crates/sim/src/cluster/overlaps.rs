//! Moves that overlap splits and merges: operators ask for them at any moment of these, and shortly after.
//!
//! The catalog refuses to move a tablet that is being split or merged, and to split or merge one that is being moved.
//! These overlaps remain: requests, one of which is refused; a tablet that is free again (its split or merge is over,
//! or was cancelled) while its relatives are not, or while nodes still carry out what is over; replicas that were moved
//! away and are still open on their former nodes.

use crate::cluster::{Cluster, Event};
use crate::errands::Purpose;
use crate::operators::OperatorEvent;
use diorite_base::TabletId;
use diorite_cluster::catalog::{Merge, Outcome, Rejection};

/// The most moves that are asked for during one split or merge.
const MOVES: u64 = 6;

impl Cluster {
    /// A split or merge of these tablets begins: operators may move them meanwhile.
    pub fn will_move(&mut self, tablets: &[TabletId]) {
        if !self.scenario.moves_reshaping {
            return;
        }
        for _ in 0..self.operators.dice.range(0, MOVES) {
            let tablet = *self.operators.dice.pick(tablets);
            let after_ns = self.operators.dice.milliseconds(0, 2_500);
            self.later(after_ns, Event::Operator(OperatorEvent::Move(tablet)));
        }
    }

    /// Asks to move a tablet, or one of its relatives.
    pub fn move_reshaping(&mut self, tablet: TabletId) {
        let mut meant = self.relatives(tablet);
        meant.retain(|tablet| self.setting.newest.placement(*tablet).is_some());
        if !meant.is_empty() {
            let tablet = *self.operators.dice.pick(&meant);
            self.relocate_one(tablet, true, Purpose::Move(tablet));
        }
    }

    /// The catalog has answered a move that was asked for during a split or merge.
    pub fn move_decided(&mut self, tablet: TabletId, outcome: Option<Outcome>) {
        match outcome {
            Some(Outcome::Rejected { rejection: Rejection::Conflict, .. }) => self.reached.moves_refused += 1,
            Some(Outcome::Applied { .. }) => {
                let newest = &self.setting.newest;
                let is_reshaping = |tablet: &TabletId| newest.placement(*tablet).is_some_and(|it| it.is_reshaping());
                if self.relatives(tablet).iter().any(is_reshaping) {
                    self.reached.moves_beside += 1;
                }
            }
            _ => {}
        }
    }

    /// A step of a split or merge of this tablet is taken: is one of those that it concerns being moved?
    pub fn note_reshaping(&mut self, tablet: TabletId) {
        if self.relatives(tablet).into_iter().any(|tablet| self.is_move_open(tablet)) {
            self.reached.steps_in_moves += 1;
        }
    }

    /// Whether replicas of a tablet are not where the newest catalog wants them, and only there.
    fn is_move_open(&self, tablet: TabletId) -> bool {
        let Some(placement) = self.setting.newest.placement(tablet) else { return false };
        let holds =
            |node: &crate::node::Node| node.life.as_ref().is_some_and(|life| life.handles.contains_key(&tablet));
        placement.is_moving() || self.nodes.values().any(|node| holds(node) && !placement.is_held_by(node.id))
    }

    /// A tablet, and those that a split or merge of it concerns.
    fn relatives(&self, tablet: TabletId) -> Vec<TabletId> {
        let newest = &self.setting.newest;
        let mut found = vec![tablet];
        let Some(placement) = newest.placement(tablet) else { return found };
        if let Some(parent) = placement.origin.map(|origin| origin.parent) {
            found.push(parent);
            let split = newest.placement(parent).and_then(|placement| placement.split);
            found.extend(split.into_iter().flat_map(|split| split.children).filter(|child| *child != tablet));
        }
        found.extend(placement.split.into_iter().flat_map(|split| split.children));
        found.extend(placement.merge.map(|merge| match merge {
            Merge::Into(other) | Merge::Of(other) => other,
        }));
        // A sibling that needs the parent tablet still.
        let siblings = newest
            .tablets()
            .filter(|(_, other)| other.split.is_some_and(|split| split.is_served && split.children.contains(&tablet)));
        found.extend(siblings.flat_map(|(parent, other)| {
            std::iter::once(parent).chain(other.split.into_iter().flat_map(|split| split.children))
        }));
        found.sort_unstable();
        found.dedup();
        found
    }
}
