//! Whether a node's clients have to log in, and the decision for a cluster of an earlier version.
//!
//! The catalog decides. A catalog of an earlier version does not: there each node has its own setting, which it reports. The node that leads the
//! catalog decides once, by the reports.
//!
//! Always true: nobody gets in without a login because one node was started with another setting, was away, or leads the catalog at the wrong
//! moment. One node that asks for logins is enough for the decision that all do; for the decision that none does, every member has to have
//! said so. A node that does not know the catalog, or does not know whether its copy is current while nothing is decided in it, requires logins.
//! Left out: what operators decide ([`Command::RequireLogin`] without `if_undecided`), and logging in.

use crate::knowledge::Known;
use diorite_cluster::catalog::{Catalog, Command, NodeState};

/// A node's own part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Whether it was started with the wish for logins.
    pub requires_login: bool,
    /// Whether its copy of the catalog has been current since it was started.
    pub was_current: bool,
}

/// Whether a node that serves this catalog asks its clients to log in.
pub fn requires_login(served: &Catalog, own: Setting) -> bool {
    let is_known = served.identity().cluster_id.is_some();
    match served.requires_login() {
        Some(decided) => decided,
        None => !is_known || own.requires_login || !own.was_current,
    }
}

/// The decision for an undecided catalog, as soon as the members' reports allow one.
pub fn decision<D>(catalog: &Catalog, known: &Known<D>) -> Option<Command> {
    if catalog.requires_login().is_some() || catalog.nodes().next().is_none() {
        return None;
    }
    let reported = |node| known.reports.get(&node).and_then(|report| report.requires_login);
    let settings: Vec<(NodeState, Option<bool>)> =
        catalog.nodes().map(|node| (node.state, reported(node.id))).collect();
    let required = settings.iter().any(|(_, setting)| *setting == Some(true));
    // A node that is given up has no say, and gets none when it returns: by then it is decided.
    let all_are_open = settings.iter().all(|(state, setting)| *setting == Some(false) || *state == NodeState::Dead);
    (required || all_are_open).then_some(Command::RequireLogin { required, if_undecided: true })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use crate::report::Report;
    use crate::testing::{apply, cluster};
    use diorite_base::NodeId;
    use std::sync::Arc;

    const OPEN: Setting = Setting { requires_login: false, was_current: true };
    const CLOSED: Setting = Setting { requires_login: true, was_current: true };

    /// What nodes 1, 2, … have reported; none: nothing, as a node that is down.
    fn known(settings: &[Option<bool>]) -> Known {
        let reports = settings.iter().zip(1..).filter_map(|(setting, node)| {
            let report = Report { requires_login: Some((*setting)?), ..Report::default() };
            Some((NodeId(node), Arc::new(report)))
        });
        Known { reports: reports.collect(), ..Known::default() }
    }

    fn decided(catalog: &Catalog, settings: &[Option<bool>]) -> Option<bool> {
        match decision(catalog, &known(settings))? {
            Command::RequireLogin { required, if_undecided: true } => Some(required),
            other => panic!("{other:?}"),
        }
    }

    fn decide(catalog: &mut Catalog, required: bool) {
        apply(catalog, Command::RequireLogin { required, if_undecided: true });
    }

    #[test]
    fn the_catalog_counts_and_not_the_nodes_own_setting() {
        for required in [false, true] {
            let mut catalog = cluster(3, 1);
            decide(&mut catalog, required);
            for own in [OPEN, CLOSED, Setting { was_current: false, ..OPEN }] {
                assert_eq!(requires_login(&catalog, own), required, "{own:?}");
            }
        }
        assert!(requires_login(&Catalog::default(), OPEN), "a node without a catalog lets nobody in");
    }

    #[test]
    fn while_nothing_is_decided_each_node_does_as_before() {
        let catalog = cluster(3, 1);
        assert!(requires_login(&catalog, CLOSED) && !requires_login(&catalog, OPEN));
    }

    /// The cluster has decided to ask for logins while this node was away. It comes back without the option, and cannot ask the catalog's leader:
    /// its copy says nothing.
    #[test]
    fn a_copy_that_may_be_old_opens_nothing() {
        assert!(requires_login(&cluster(3, 1), Setting { was_current: false, ..OPEN }));
    }

    /// A cluster that asks for logins is upgraded. The node that leads the catalog first was started without the option by mistake: if its own setting
    /// counted, everybody could get in everywhere.
    #[test]
    fn one_node_that_asks_for_logins_is_enough() {
        let catalog = cluster(3, 1);
        assert_eq!(decided(&catalog, &[Some(false), Some(true), Some(false)]), Some(true));
        assert_eq!(decided(&catalog, &[Some(false), Some(true), None]), Some(true));
    }

    /// The same, and the nodes that ask for logins are not up yet.
    #[test]
    fn a_member_that_has_not_reported_may_ask_for_logins() {
        let mut catalog = cluster(3, 1);
        assert_eq!(decided(&catalog, &[Some(false), Some(false), None]), None);
        assert_eq!(decided(&catalog, &[Some(false), Some(false), Some(false)]), Some(false));
        apply(&mut catalog, Command::SetNodeState { node: NodeId(3), state: NodeState::Dead });
        assert_eq!(decided(&catalog, &[Some(false), Some(false), None]), Some(false), "it was given up");
        assert_eq!(decided(&catalog, &[Some(false), Some(false), Some(true)]), Some(true), "it is back");
    }

    /// Somebody who is no member says that nobody has to log in, or that everybody has to.
    #[test]
    fn strangers_decide_nothing() {
        let catalog = cluster(2, 1);
        for strange in [false, true] {
            assert_eq!(decided(&catalog, &[Some(false), None, Some(strange)]), None);
        }
    }

    /// Two nodes lead the catalog one after the other and know different reports; the decision of the former comes late.
    #[test]
    fn of_two_decisions_the_first_one_counts() {
        let mut catalog = cluster(2, 1);
        let first = decision(&catalog, &known(&[Some(false), Some(true)])).unwrap();
        let second = decision(&catalog, &known(&[Some(false), Some(false)])).unwrap();
        apply(&mut catalog, first);
        apply(&mut catalog, second);
        assert_eq!(catalog.requires_login(), Some(true));
        assert_eq!(decision(&catalog, &known(&[Some(false), Some(false)])), None, "once");
    }
}
