//! Splits, step by step, as a node that holds replicas carries them out; and the end of parent tablets.
//!
//! Always true: a node splits one tablet at a time: a second would wait for the first, and its clients with it. A
//! tablet is split only after the catalog has recorded that the split can no longer be cancelled, and after its child
//! tablets have been prepared here and, within a timeout, on the other nodes that are up. Lost messages are repeated at
//! the next call.

use crate::replicas::{Replicas, SplitEntry};
use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::{Catalog, Command, FinishedTablet, Split};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often [`Splitting::next`] and [`Splitting::finished`] are to be called.
pub const INTERVAL: Duration = Duration::from_millis(250);
/// After this many calls, a split continues without the nodes that have not done their part.
const PREPARING_ROUNDS: u32 = 40;
/// The most tablets that are reported to the catalog at a time.
const AT_ONCE: usize = 1_000;

/// A step of a split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitStep {
    /// Notify the leader of a tablet that its child tablets have been prepared here.
    TellPrepared(TabletId),
    /// Propose to the catalog.
    Propose(Command),
    /// Propose this to the catalog: the split can no longer be cancelled. Call [`Splitting::next`] again when the node
    /// serves the outcome.
    Commit(Command),
    /// Split this tablet, which is led here.
    Split(TabletId, Split),
}

/// The command by which the child tablets of a tablet that was split take its place.
pub fn serve_split(tablet: TabletId, SplitEntry { index, term }: SplitEntry) -> Command {
    Command::ServeSplit { tablet, index, term }
}

/// See the top of this module.
#[derive(Debug)]
pub struct Splitting {
    node: NodeId,
    /// The tablet that is split next here, and how often it has waited for other nodes.
    waited_for: Option<(TabletId, u32)>,
    /// New child tablets that are led here, and how often one was found with a replica that has not begun.
    waited_for_children: BTreeMap<TabletId, u32>,
}

impl Splitting {
    /// No tablet waits.
    pub fn new(node: NodeId) -> Self {
        Self { node, waited_for: None, waited_for_children: BTreeMap::new() }
    }

    /// The steps that are due for tablets to be split.
    pub fn next(&mut self, served: &Catalog, replicas: &dyn Replicas) -> Vec<SplitStep> {
        let asked: Vec<(TabletId, Split)> =
            served.tablets_on(self.node).filter_map(|(tablet, placement)| Some((tablet, placement.split?))).collect();
        let (mut steps, mut is_busy, mut next) = (Vec::new(), false, None);
        for (tablet, split) in &asked {
            let Some(entry) = replicas.split_entry(*tablet) else { continue };
            is_busy |= !split.is_served || split.children.iter().any(|child| !replicas.is_open(*child));
            if !split.is_served {
                // The former leader may have failed before it notified the catalog.
                steps.push(SplitStep::Propose(serve_split(*tablet, entry)));
            }
        }
        for (tablet, split) in asked.iter().filter(|(_, split)| !split.is_served) {
            if replicas.leads(*tablet) {
                next = next.or(Some((*tablet, *split)));
            } else if replicas.have_prepared(*tablet, split) {
                steps.push(SplitStep::TellPrepared(*tablet));
            }
        }
        let Some((tablet, split)) = next.filter(|_| !is_busy) else { return steps };
        if replicas.have_prepared(tablet, &split) && self.others_have_prepared(tablet, served, replicas) {
            steps.push(match split.is_committed {
                true => SplitStep::Split(tablet, split),
                false => SplitStep::Commit(Command::CommitSplit { tablet, children: split.children }),
            });
        }
        steps
    }

    /// Whether the other nodes have prepared the child tablets of a tablet, or were waited for long enough.
    fn others_have_prepared(&mut self, tablet: TabletId, served: &Catalog, replicas: &dyn Replicas) -> bool {
        let prepared = replicas.prepared_elsewhere(tablet);
        let others = served.placement(tablet).map(|placement| placement.replicas.clone()).unwrap_or_default();
        let rounds = self.waited_for.filter(|(awaited, _)| *awaited == tablet).map_or(0, |(_, rounds)| rounds);
        self.waited_for = Some((tablet, rounds + 1));
        let is_awaited = |node: &NodeId| *node != self.node && !prepared.contains(node) && replicas.is_up(*node);
        rounds >= PREPARING_ROUNDS || !others.iter().any(is_awaited)
    }

    /// The command that reports to the catalog the tablets led here whose groups are as it wants them: moves that are
    /// complete, and child tablets that no longer need their parent tablet.
    pub fn finished(&mut self, served: &Catalog, replicas: &dyn Replicas) -> Option<Command> {
        let begun = self.begun_children(served, replicas);
        let moving =
            served.tablets_on(self.node).filter(|(_, placement)| placement.is_moving() || placement.origin.is_some());
        let due = moving.filter(|(tablet, placement)| placement.origin.is_none() || begun.contains(tablet));
        let finished = due.filter_map(|(tablet, placement)| {
            let voters = replicas.voters_in_place(tablet)?;
            Some(FinishedTablet { tablet, voters, move_number: Some(placement.move_number) })
        });
        let tablets: Vec<FinishedTablet> = finished.take(AT_ONCE).collect();
        (!tablets.is_empty()).then_some(Command::FinishMoves { tablets })
    }

    /// The new child tablets led here that no longer need their parent tablet: every replica on a node that is up has
    /// begun, or was waited for long enough. A replica that has not begun when the parent tablet is dropped receives a
    /// copy.
    fn begun_children(&mut self, served: &Catalog, replicas: &dyn Replicas) -> BTreeSet<TabletId> {
        let children = served.tablets_on(self.node).filter_map(|(tablet, placement)| Some((tablet, placement.origin?)));
        let led: Vec<_> = children.filter(|(tablet, _)| replicas.leads(*tablet)).collect();
        self.waited_for_children.retain(|tablet, _| led.iter().any(|(led, _)| led == tablet));
        let mut begun = BTreeSet::new();
        for (tablet, origin) in led {
            let rounds = self.waited_for_children.entry(tablet).or_insert(0);
            *rounds += 1;
            let has_begun = |(node, matched): &(NodeId, u64)| *matched >= origin.index || !replicas.is_up(*node);
            let Some(matched) = replicas.matched(tablet) else { continue };
            if *rounds > PREPARING_ROUNDS || matched.iter().all(has_begun) {
                begun.insert(tablet);
            }
        }
        begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Local, apply, cluster};

    const A: NodeId = NodeId(1);

    /// A cluster with a tablet that is to be split, and the replicas of the node that is to lead it.
    fn asked() -> (Catalog, TabletId, Local) {
        let mut catalog = cluster(3, 1);
        let tablet = catalog.tablets().next().map(|(tablet, _)| tablet).unwrap_or(TabletId(0));
        apply(&mut catalog, Command::BeginSplit { tablet, at: 0, stays: true });
        let mut local = Local::default();
        local.open.insert(tablet);
        local.leads.insert(tablet);
        local.up.extend([A, NodeId(2), NodeId(3)]);
        (catalog, tablet, local)
    }

    #[test]
    fn a_tablet_is_split_only_once_the_catalog_says_that_it_cannot_be_cancelled() {
        let (mut catalog, tablet, mut local) = asked();
        let mut splitting = Splitting::new(A);
        assert_eq!(splitting.next(&catalog, &local), [], "nothing is prepared here");
        local.prepared.insert(tablet);
        assert_eq!(splitting.next(&catalog, &local), [], "nor elsewhere");
        local.prepared_elsewhere.extend([NodeId(2), NodeId(3)]);
        let [SplitStep::Commit(commit)] = &splitting.next(&catalog, &local)[..] else { panic!("it is prepared") };
        apply(&mut catalog, commit.clone());
        assert!(matches!(splitting.next(&catalog, &local)[..], [SplitStep::Split(split, _)] if split == tablet));
    }

    #[test]
    fn nodes_that_are_down_are_not_waited_for_and_others_not_for_ever() {
        let (catalog, tablet, mut local) = asked();
        local.prepared.insert(tablet);
        local.prepared_elsewhere.insert(NodeId(2));
        let mut splitting = Splitting::new(A);
        let rounds = (0..).take_while(|_| splitting.next(&catalog, &local).is_empty()).count();
        assert_eq!(rounds, PREPARING_ROUNDS as usize);
        local.up.remove(&NodeId(3));
        assert!(!Splitting::new(A).next(&catalog, &local).is_empty());
    }

    #[test]
    fn the_catalog_is_told_again_of_a_split_until_it_knows() {
        let (mut catalog, tablet, mut local) = asked();
        let entry = SplitEntry { index: 7, term: 2 };
        local.split.insert(tablet, entry);
        local.leads.clear();
        let mut splitting = Splitting::new(A);
        let serve = serve_split(tablet, entry);
        assert_eq!(splitting.next(&catalog, &local), [SplitStep::Propose(serve.clone())]);
        apply(&mut catalog, serve);
        assert_eq!(splitting.next(&catalog, &local), []);
    }

    #[test]
    fn a_child_does_without_its_parent_when_all_that_are_up_have_begun() {
        let (mut catalog, tablet, mut local) = asked();
        apply(&mut catalog, serve_split(tablet, SplitEntry { index: 7, term: 2 }));
        let child = TabletId(catalog.identity().next_tablet().0 - 1);
        local.leads.insert(child);
        local.in_place.insert(child, catalog.placement(child).map(|it| it.replicas.clone()).unwrap_or_default());
        local.matched.insert(child, vec![(NodeId(2), 7), (NodeId(3), 6)]);
        let mut splitting = Splitting::new(A);
        assert_eq!(splitting.finished(&catalog, &local), None);
        local.up.remove(&NodeId(3));
        let Some(Command::FinishMoves { tablets }) = splitting.finished(&catalog, &local) else {
            panic!("it has begun")
        };
        assert_eq!(tablets.first().map(|finished| finished.tablet), Some(child));
    }
}
