//! Raising the level of the cluster ([`diorite_base::level`]), on the node that leads the catalog.
//!
//! Always true: the level is raised only if every member, in whatever state, is up, has reported lately that its
//! program knows the next level, and, from [`Level::RECORDED`] on, is registered with that. A member that is down may
//! come back with the program of the release before, so it blocks the upgrade until it is back, or is removed. The
//! command names the members that were looked at, so that one that joins meanwhile makes it fail.
//!
//! The level is raised by itself once all members have been able to go on for [`GRACE_NS`] by the monotonic clock of
//! the node that leads the catalog; another leader counts anew. It is not while an operator holds the cluster at its
//! level: the decision with the greatest number that a member reports is in force.
//!
//! Members agree to a level before it is raised ([`Noted`]). A member that has noted a hold does not agree, unless an
//! operator finishes the upgrade; one that has agreed takes no hold any more. So once a hold is answered, which every
//! node that is up has noted, the level is not raised by itself, whatever a leader had seen before.

use crate::knowledge::Known;
use crate::planted::Planted;
use diorite_base::{Hold, Level, Levels, NodeId};
use diorite_cluster::catalog::{Catalog, Command};
use std::fmt;
use thiserror::Error;

/// How long all members have been able to go on before the level is raised by itself: an hour, in which an operator
/// sees how the new programs work, nanoseconds.
pub const GRACE_NS: u64 = 3_600 * 1_000_000_000;

/// Why the level cannot be raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocker {
    /// The member is down, so its program is not known.
    Down(NodeId),
    /// The member has not reported since another node began to lead the catalog.
    Silent(NodeId),
    /// The program of the member does not know the next level.
    Below(NodeId, Levels),
    /// The catalog does not have the levels of the member's program yet.
    Unrecorded(NodeId),
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down(node) => write!(f, "node {} is down, and its program is not known", node.0),
            Self::Silent(node) => write!(f, "node {} has not reported yet", node.0),
            Self::Below(node, levels) => write!(f, "the program of node {} knows {levels}", node.0),
            Self::Unrecorded(node) => write!(f, "node {} has not registered its levels yet", node.0),
        }
    }
}

/// What is between a cluster and its next level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// The level of the cluster.
    pub level: Level,
    /// Why it cannot be raised; empty: it can.
    pub blockers: Vec<Blocker>,
    /// What an operator has decided about this level, as far as members report it.
    pub hold: Option<Hold>,
    /// All members; ascending.
    members: Vec<NodeId>,
}

impl Outlook {
    /// As known to the node that leads the catalog.
    pub fn new<D>(catalog: &Catalog, known: &Known<D>, planted: Planted) -> Self {
        let (level, planted) = (catalog.level(), planted.allowed());
        let next = level.next();
        let blocker = |node: NodeId| {
            let recorded = catalog.node(node).and_then(|node| node.description.levels);
            let is_up = known.up.get(&node).copied().unwrap_or(false);
            match known.reports.get(&node) {
                _ if !is_up && planted.raise_over_members_that_are_down => None,
                _ if !is_up => Some(Blocker::Down(node)),
                None => Some(Blocker::Silent(node)),
                Some(report) if !report.levels.contains(next) => Some(Blocker::Below(node, report.levels)),
                Some(_) if level >= Level::RECORDED && !recorded.is_some_and(|levels| levels.contains(next)) => {
                    Some(Blocker::Unrecorded(node))
                }
                Some(_) => None,
            }
        };
        let members: Vec<NodeId> = catalog.nodes().map(|node| node.id).collect();
        Self {
            level,
            blockers: members.iter().copied().filter_map(blocker).collect(),
            hold: in_force(level, known.reports.values().filter_map(|report| report.hold))
                .filter(|_| !planted.raise_although_held),
            members,
        }
    }

    /// The command that raises the level, if nothing is in the way. `known`: the levels of the program that asks.
    pub fn command(&self) -> Option<Command> {
        let can = self.blockers.is_empty() && !self.members.is_empty();
        can.then(|| Command::RaiseLevel { level: self.level.next(), members: self.members.clone() })
    }

    /// Whether an operator holds the cluster at its level.
    pub fn is_held(&self) -> bool {
        self.hold.is_some_and(|hold| hold.is_held)
    }

    /// An operator's decision, which overrules those that are known.
    pub fn decided(&self, is_held: bool) -> Hold {
        let number = self.hold.map_or(0, |hold| hold.number).saturating_add(1);
        Hold { level: self.level, number, is_held }
    }

    /// The number of the decision that a level may be raised in spite of, by itself: an operator has overruled it.
    pub fn overruled(&self) -> u64 {
        self.hold.filter(|hold| !hold.is_held).map_or(0, |hold| hold.number)
    }

    /// Whether all members have the same program as far as levels go, which knows no level beyond the cluster's.
    pub fn is_finished<D>(&self, known: &Known<D>) -> bool {
        known.reports.values().all(|report| report.levels.greatest <= self.level)
    }
}

/// The decision about a level that is in force.
fn in_force(level: Level, decided: impl Iterator<Item = Hold>) -> Option<Hold> {
    let of_level = decided.filter(|hold| hold.level == level);
    of_level.reduce(|one, other| if other.overrules(&one) { other } else { one })
}

/// What a member has noted on its disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// The highest level that it has agreed to or learned of.
    pub level: Level,
    /// An operator's decision.
    pub hold: Option<Hold>,
}

/// Why a member does not agree to a level, or takes no hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The program does not know the level.
    #[error("this program knows {0}")]
    Unknown(Levels),
    /// An operator holds the cluster at the level before.
    #[error("an operator holds the cluster at level {0}")]
    Held(Level),
    /// The member has agreed to a later level, and does not go back.
    #[error("it has agreed to level {0} already")]
    Agreed(Level),
}

impl Noted {
    /// Whether the member agrees to the level, in spite of a hold up to this number. `known`: what its program knows.
    ///
    /// # Errors
    /// Why it does not.
    pub fn agrees(&self, level: Level, overruled: u64, known: Levels, planted: Planted) -> Result<(), Refusal> {
        if !known.contains(level) {
            return Err(Refusal::Unknown(known));
        }
        if planted.allowed().raise_although_held {
            return Ok(());
        }
        match self.hold.filter(|hold| hold.level == level.previous() && hold.is_held && hold.number > overruled) {
            Some(hold) => Err(Refusal::Held(hold.level)),
            None => Ok(()),
        }
    }

    /// Whether the member takes an operator's decision.
    ///
    /// # Errors
    /// If it is to hold a level that the member does not keep.
    pub fn takes(&self, decided: Hold) -> Result<(), Refusal> {
        match decided.is_held && self.level > decided.level {
            true => Err(Refusal::Agreed(self.level)),
            false => Ok(()),
        }
    }
}

/// The time for which all members have been able to go on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deadline {
    able_since: Option<(Level, u64)>,
}

impl Deadline {
    /// Looks at the members; returns the command to propose, once the time is over.
    pub fn look(&mut self, outlook: &Outlook, now_ns: u64, grace_ns: u64) -> Option<Command> {
        let command = outlook.command().filter(|_| !outlook.is_held());
        let since_ns = match (self.able_since, &command) {
            (_, None) => {
                self.able_since = None;
                return None;
            }
            (Some((level, since_ns)), _) if level == outlook.level => since_ns,
            _ => now_ns,
        };
        self.able_since = Some((outlook.level, since_ns));
        command.filter(|_| now_ns.saturating_sub(since_ns) >= grace_ns)
    }

    /// How long until the level is raised by itself, nanoseconds; `None`: it is not to be.
    pub fn left_ns(&self, now_ns: u64, grace_ns: u64) -> Option<u64> {
        let (_, since_ns) = self.able_since?;
        Some((since_ns + grace_ns).saturating_sub(now_ns))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use crate::report::Report;
    use crate::testing::{apply, cluster, description};
    use diorite_cluster::catalog::NodeState;
    use std::sync::Arc;

    const OLD: Levels = Levels::FIRST;
    const NEW: Levels = Levels { least: Level(1), greatest: Level(2) };

    /// What nodes 1, 2, … have reported; none: they are down.
    fn known(levels: &[Option<Levels>]) -> Known {
        let reports = levels.iter().zip(1..).filter_map(|(levels, node)| {
            let report = Report { levels: (*levels)?, ..Report::default() };
            Some((NodeId(node), Arc::new(report)))
        });
        let up = levels.iter().zip(1..).map(|(levels, node)| (NodeId(node), levels.is_some()));
        Known { reports: reports.collect(), up: up.collect(), ..Known::default() }
    }

    fn outlook(catalog: &Catalog, levels: &[Option<Levels>]) -> Outlook {
        Outlook::new(catalog, &known(levels), Planted::default())
    }

    fn hold(level: u32, number: u64, is_held: bool) -> Hold {
        Hold { level: Level(level), number, is_held }
    }

    /// All of this many nodes have the new program, and the last one reports this decision.
    fn decided(catalog: &Catalog, nodes: usize, hold: Hold) -> Outlook {
        let mut known = known(&vec![Some(NEW); nodes]);
        Arc::make_mut(known.reports.get_mut(&NodeId(nodes as u64)).unwrap()).hold = Some(hold);
        Outlook::new(catalog, &known, Planted::default())
    }

    fn raise(level: u32, members: u64) -> Option<Command> {
        Some(Command::RaiseLevel { level: Level(level), members: (1..=members).map(NodeId).collect() })
    }

    #[test]
    fn every_member_has_to_know_the_next_level() {
        let catalog = cluster(3, 1);
        assert_eq!(outlook(&catalog, &[Some(NEW); 3]).command(), raise(2, 3));
        let with_an_old_one = outlook(&catalog, &[Some(NEW), Some(OLD), Some(NEW)]);
        assert_eq!(with_an_old_one.blockers, [Blocker::Below(NodeId(2), OLD)]);
        assert_eq!(with_an_old_one.command(), None);
        assert_eq!(with_an_old_one.blockers[0].to_string(), "the program of node 2 knows level 1");
    }

    /// A node that is down may come back with the program of the release before, even if it was given up.
    #[test]
    fn a_member_that_is_down_blocks_until_it_is_removed() {
        let mut catalog = cluster(4, 1);
        let idle = catalog.nodes().map(|node| node.id).find(|node| catalog.tablets_on(*node).count() == 0).unwrap();
        let mut levels = [Some(NEW); 4];
        levels[idle.0 as usize - 1] = None;
        assert_eq!(outlook(&catalog, &levels).blockers, [Blocker::Down(idle)]);
        apply(&mut catalog, Command::SetNodeState { node: idle, state: NodeState::Dead });
        assert_eq!(outlook(&catalog, &levels).command(), None);
        apply(&mut catalog, Command::RemoveNode { node: idle, only_without_vote: false });
        assert!(outlook(&catalog, &levels).command().is_some());
    }

    /// Its last report is from before it went back to the release before: heartbeats arrive, and no report yet.
    #[test]
    fn a_report_that_is_too_old_does_not_count() {
        let mut known = known(&[Some(NEW); 2]);
        known.reports.remove(&NodeId(2));
        let outlook = Outlook::new(&cluster(2, 1), &known, Planted::default());
        assert_eq!(outlook.blockers, [Blocker::Silent(NodeId(2))]);
    }

    #[test]
    fn from_the_second_level_on_the_record_has_to_say_it_too() {
        let mut catalog = cluster(2, 1);
        apply(&mut catalog, raise(2, 2).unwrap());
        let knows = Levels { least: Level(2), greatest: Level(3) };
        let reported = [Some(knows); 2];
        assert_eq!(outlook(&catalog, &reported).blockers, [1, 2].map(|node| Blocker::Unrecorded(NodeId(node))));
        for node in [1, 2] {
            let description = diorite_cluster::catalog::NodeDescription { levels: Some(knows), ..description(node) };
            apply(&mut catalog, Command::UpdateNode { node: NodeId(node), description });
        }
        assert_eq!(outlook(&catalog, &reported).command(), raise(3, 2));
    }

    #[test]
    fn the_level_is_raised_by_itself_after_the_grace_unless_it_is_held() {
        let catalog = cluster(2, 1);
        let (can, cannot) = (outlook(&catalog, &[Some(NEW); 2]), outlook(&catalog, &[Some(NEW), Some(OLD)]));
        let mut deadline = Deadline::default();
        assert_eq!((deadline.look(&can, 5, 10), deadline.left_ns(7, 10)), (None, Some(8)));
        assert_eq!((deadline.look(&cannot, 8, 10), deadline.left_ns(8, 10)), (None, None));
        assert_eq!(deadline.look(&can, 9, 10), None, "the time counts anew");
        assert_eq!(deadline.look(&can, 18, 10), None);
        assert_eq!(deadline.look(&can, 19, 10), raise(2, 2));
        let held = decided(&catalog, 2, hold(1, 3, true));
        assert!(held.is_held() && deadline.look(&held, 20, 10).is_none() && held.command().is_some());
        assert_eq!((held.overruled(), held.decided(false)), (0, hold(1, 4, false)));
    }

    /// Node 2 was down when an operator let the upgrade go on, and still has the hold.
    #[test]
    fn the_newest_decision_that_a_member_reports_is_in_force() {
        let catalog = cluster(2, 1);
        let mut known = known(&[Some(NEW); 2]);
        for (node, hold) in [(1, hold(1, 4, false)), (2, hold(1, 3, true))] {
            Arc::make_mut(known.reports.get_mut(&NodeId(node)).unwrap()).hold = Some(hold);
        }
        let outlook = Outlook::new(&catalog, &known, Planted::default());
        assert!(!outlook.is_held());
        assert_eq!((outlook.overruled(), outlook.decided(true)), (4, hold(1, 5, true)));
        let of_node_2 = Noted { level: Level(1), hold: Some(hold(1, 3, true)) };
        assert_eq!(of_node_2.agrees(Level(2), outlook.overruled(), NEW, Planted::default()), Ok(()));
    }

    #[test]
    fn a_member_agrees_to_a_level_or_holds_the_one_before_and_not_both() {
        let noted = |level, hold| Noted { level: Level(level), hold };
        let held = Some(hold(1, 3, true));
        assert_eq!(noted(1, None).agrees(Level(2), 0, NEW, Planted::default()), Ok(()));
        assert_eq!(noted(1, held).agrees(Level(2), 0, NEW, Planted::default()), Err(Refusal::Held(Level(1))));
        assert_eq!(
            noted(1, held).agrees(Level(2), u64::MAX, NEW, Planted::default()),
            Ok(()),
            "an operator finishes the upgrade"
        );
        assert_eq!(noted(1, Some(hold(1, 3, false))).agrees(Level(2), 0, NEW, Planted::default()), Ok(()));
        let next = Levels { least: Level(2), greatest: Level(3) };
        assert_eq!(noted(2, held).agrees(Level(3), 0, next, Planted::default()), Ok(()), "a hold is of one level");
        assert_eq!(noted(1, None).agrees(Level(2), 0, OLD, Planted::default()), Err(Refusal::Unknown(OLD)));
        assert_eq!(noted(2, None).takes(hold(1, 1, true)), Err(Refusal::Agreed(Level(2))));
        assert_eq!(noted(2, None).takes(hold(1, 1, false)), Ok(()));
        assert_eq!(noted(1, None).takes(hold(1, 1, true)), Ok(()));
    }

    #[test]
    fn a_hold_is_for_one_level() {
        let mut catalog = cluster(1, 1);
        apply(&mut catalog, raise(2, 1).unwrap());
        let outlook = decided(&catalog, 1, hold(1, 3, true));
        assert!(!outlook.is_held() && outlook.is_finished(&known(&[Some(NEW)])));
        assert_eq!(outlook.decided(true), hold(2, 1, true));
    }

    #[test]
    fn a_cluster_without_members_stays_as_it_is() {
        let nobody = Known::<()>::default();
        assert_eq!(Outlook::new(&Catalog::default(), &nobody, Planted::default()).command(), None);
    }
}
