//! Operators' changes of the cluster, and the reasons to refuse them.
//!
//! Always true: no allowed change takes away a quorum; a refusal says what has to be done first.

use crate::replicas::Members;
use crate::tokens::Tokens;
use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::{CancelledMerge, Catalog, Command, Node, NodeState, Placement};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An operator's request that depends on the state of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Moves everything off a node.
    Drain {
        /// The node.
        node: NodeId,
    },
    /// Lets a node that is being drained hold replicas again.
    Undrain {
        /// The node.
        node: NodeId,
    },
    /// Ends the membership of a node that holds no replicas.
    Remove {
        /// The node.
        node: NodeId,
    },
    /// Rebuilds the replicas of a node that is down on other nodes, now.
    Replace {
        /// The node.
        node: NodeId,
    },
    /// Transfers leadership from a node to others.
    MoveLeaders {
        /// The node.
        node: NodeId,
        /// Lets the node lead again instead.
        back: bool,
    },
    /// Puts a node into a zone.
    SetZone {
        /// The node.
        node: NodeId,
        /// The zone; `None`: the one in the node's own configuration.
        zone: Option<String>,
    },
    /// Splits a tablet in two.
    Split {
        /// The tablet.
        tablet: TabletId,
    },
    /// Merges a tablet into a neighbour.
    Merge {
        /// The tablet that closes.
        tablet: TabletId,
        /// The tablet that stays; `None`: the next one.
        into: Option<TabletId>,
    },
    /// Cancels a split before the tablet is sealed.
    CancelSplit {
        /// The tablet.
        tablet: TabletId,
    },
    /// Cancels a merge.
    CancelMerge {
        /// Either of the two tablets.
        tablet: TabletId,
    },
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such node or tablet.
    NotFound(String),
    /// It would do harm.
    Refused(String),
}

fn refused(message: impl Into<String>) -> Refusal {
    Refusal::Refused(message.into())
}

fn not_found(message: impl Into<String>) -> Refusal {
    Refusal::NotFound(message.into())
}

/// The state of the cluster, as seen by the node that leads the catalog.
pub struct Judge<'a> {
    /// This node.
    pub node: NodeId,
    /// The newest snapshot that it knows.
    pub catalog: &'a Catalog,
    /// Whether heartbeats of a node arrive, or it is this node.
    pub is_up: &'a dyn Fn(NodeId) -> bool,
    /// The sets of voters in the catalog's group, a majority of each decides: one set, or two in a joint configuration.
    pub catalog_voters: &'a [Vec<NodeId>],
    /// The wall clock, milliseconds.
    pub wall_ms: i64,
}

/// A keyspace whose tablets have more replicas than nodes are left.
struct Lacking<'a> {
    keyspace: &'a str,
    replicas: usize,
    left: usize,
}

impl Judge<'_> {
    /// The command to propose for a request, and the text of the answer once it is committed.
    pub fn command_of(&self, request: Request) -> Result<(Command, String), Refusal> {
        let catalog = self.catalog;
        Ok(match request {
            Request::Drain { node } => {
                self.check_drain(node)?;
                (
                    Command::SetNodeState { node, state: NodeState::Draining },
                    format!("node {node} is being drained; it serves until its replicas are moved"),
                )
            }
            Request::Undrain { node } => {
                let found = member(catalog, node)?;
                if found.state != NodeState::Draining {
                    return Err(refused(format!("node {node} is not being drained")));
                }
                (
                    Command::SetNodeState { node, state: NodeState::Active },
                    format!("node {node} may hold replicas again"),
                )
            }
            Request::Remove { node } => {
                self.check_remove(node)?;
                let done = format!("node {node} is no member of the cluster any more");
                (Command::RemoveNode { node, only_without_vote: true }, done)
            }
            Request::Replace { node } => {
                self.check_replace(node)?;
                (Command::SetNodeState { node, state: NodeState::Dead }, self.rebuilding(node))
            }
            Request::MoveLeaders { node, back } => {
                member(catalog, node)?;
                let leads_nothing = !back;
                if leads_nothing {
                    self.check_others_lead(node)?;
                }
                (Command::SetLeading { node, leads_nothing }, self.leading(node, leads_nothing))
            }
            Request::SetZone { node, zone } => {
                member(catalog, node)?;
                let message = match &zone {
                    Some(zone) => format!("node {node} is in zone {zone}"),
                    None => format!("node {node} is in the zone of its own --zone"),
                };
                (Command::AssignZone { node, zone }, message)
            }
            Request::Split { tablet } => {
                let at = middle(catalog, tablet)?;
                (Command::BeginSplit { tablet, at, stays: true }, format!("{tablet} is being split at token {at}"))
            }
            Request::Merge { tablet, into } => {
                let into = match into {
                    Some(into) => into,
                    None => next_neighbour(catalog, tablet)?,
                };
                (Command::BeginMerge { tablet, into }, format!("{tablet} is being merged into {into}"))
            }
            Request::CancelMerge { tablet } => {
                let reason = "an operator has cancelled it".to_owned();
                let cancelled = CancelledMerge { reason, unix_ms: self.wall_ms };
                let message = format!("the merge of {tablet} is cancelled; what it has done is being undone");
                (Command::CancelMerge { tablet, number: None, cancelled }, message)
            }
            Request::CancelSplit { tablet } => (Command::CancelSplit { tablet }, format!("{tablet} is not split")),
        })
    }

    /// What is so once a node leads nothing, or leads again.
    fn leading(&self, node: NodeId, leads_nothing: bool) -> String {
        let until = format!("until `diorite admin move-leaders {} --back`", node.0);
        match (leads_nothing, (self.is_up)(node)) {
            (false, _) => format!("node {node} leads again"),
            (true, true) => format!("node {node} transfers what it leads, and leads nothing {until}"),
            (true, false) => format!("node {node} is down; when it returns, it leads nothing {until}"),
        }
    }

    fn check_drain(&self, node: NodeId) -> Result<(), Refusal> {
        member(self.catalog, node)?;
        match self.lacking_without(node, |_| true) {
            Some(Lacking { keyspace, replicas, left }) => Err(refused(format!(
                "without node {node}, {left} active nodes are up, and keyspace {keyspace} has {replicas} replicas of \
                 each tablet: add a node first, or lower its replication factor"
            ))),
            None => Ok(()),
        }
    }

    /// What is so once the replicas of a node are rebuilt. Those for which there is no node now are no reason to refuse
    /// that: the others are rebuilt meanwhile.
    fn rebuilding(&self, node: NodeId) -> String {
        let begun = format!("the replicas of node {node} are being rebuilt on other nodes");
        match self.lacking_without(node, |placement| placement.is_held_by(node)) {
            Some(Lacking { keyspace, replicas, left }) => format!(
                "{begun}; keyspace {keyspace} has {replicas} replicas of each tablet and {left} other active nodes are \
                 up: the rest waits for another node"
            ),
            None => begun,
        }
    }

    /// A keyspace whose tablets have more replicas than nodes are left, of those tablets that are looked at.
    fn lacking_without(&self, node: NodeId, is_looked_at: impl Fn(&Placement) -> bool) -> Option<Lacking<'_>> {
        let catalog = self.catalog;
        let left = catalog
            .nodes()
            .filter(|other| other.id != node && other.state.is_active() && (self.is_up)(other.id))
            .count();
        let mut lacking: BTreeMap<&str, usize> = BTreeMap::new();
        for entry in catalog.tables() {
            let keyspace = entry.table.keyspace.as_str();
            let held = entry.tablets.iter().filter_map(|range| catalog.placement(range.tablet));
            let held = held.filter(|placement| is_looked_at(placement));
            let most = held.map(|placement| placement.replicas.len()).max().unwrap_or(0);
            if most > left {
                lacking.insert(keyspace, most);
            }
        }
        lacking.into_iter().next().map(|(keyspace, replicas)| Lacking { keyspace, replicas, left })
    }

    fn check_remove(&self, node: NodeId) -> Result<(), Refusal> {
        let catalog = self.catalog;
        let found = member(catalog, node)?;
        let held = catalog.tablets_on(node).count();
        if held > 0 {
            let first = match (found.state, (self.is_up)(node)) {
                (NodeState::Draining, _) => "wait until it is drained",
                (NodeState::Dead, _) => "wait until they are rebuilt on other nodes",
                (NodeState::Active, true) => "drain it first",
                (NodeState::Active, false) => "replace it first",
            };
            return Err(refused(format!("node {node} holds replicas of {held} tablets: {first}")));
        }
        if node == self.node {
            return Err(refused(format!(
                "node {node} leads the catalog at the moment: stop its process, then remove it through another node"
            )));
        }
        // A removed node stops at once. If its vote had still to be taken, that change would be decided without it, and
        // one more node that is lost meanwhile would leave the catalog without a quorum for ever.
        let wanted = Members::of_catalog(catalog).map(|members| members.voters);
        if self.catalog_voters.iter().chain(&wanted).any(|voters| voters.contains(&node)) {
            let first = match (found.state, (self.is_up)(node)) {
                (NodeState::Active, true) => "drain it, and wait until it has no vote",
                (NodeState::Active, false) => "replace it, and wait until it has no vote",
                (NodeState::Draining | NodeState::Dead, _) => {
                    "wait until it has no vote; a quorum of the catalog's voters must be up for that"
                }
            };
            return Err(refused(format!("node {node} votes in the catalog's group: {first}")));
        }
        Ok(())
    }

    fn check_replace(&self, node: NodeId) -> Result<(), Refusal> {
        let catalog = self.catalog;
        let found = member(catalog, node)?;
        if (self.is_up)(node) {
            return Err(refused(format!("node {node} is up: drain it instead")));
        }
        if found.state == NodeState::Dead {
            return Err(refused(format!("node {node} is being replaced already")));
        }
        // The node's data may be the last copy of some tablets: while it may come back, the tablets must stay placed
        // there.
        let lost = catalog.tablets_on(node).filter(|(_, placement)| {
            let live = placement.replicas.iter().filter(|replica| (self.is_up)(**replica)).count();
            live <= placement.replicas.len() / 2
        });
        match lost.count() {
            0 => Ok(()),
            lost => Err(refused(format!(
                "{lost} tablets have no quorum without node {node}, and cannot be rebuilt: start it, or other nodes, first"
            ))),
        }
    }

    fn check_others_lead(&self, node: NodeId) -> Result<(), Refusal> {
        let catalog = self.catalog;
        let alone = catalog.tablets_on(node).filter(|(_, placement)| {
            !placement.replicas.iter().any(|replica| *replica != node && (self.is_up)(*replica))
        });
        match alone.count() {
            0 => Ok(()),
            alone => Err(refused(format!("{alone} tablets have no other replica that is up and could lead"))),
        }
    }
}

/// The token in the middle of a tablet's range.
fn middle(catalog: &Catalog, tablet: TabletId) -> Result<i64, Refusal> {
    let tokens = Tokens::of(catalog, tablet).ok_or_else(|| not_found(format!("there is no {tablet}")))?;
    tokens.middle().ok_or_else(|| refused(format!("{tablet} holds a single token")))
}

/// The tablet after a tablet in its table.
fn next_neighbour(catalog: &Catalog, tablet: TabletId) -> Result<TabletId, Refusal> {
    let ranges = catalog.table_of(tablet).map(|entry| entry.tablets.as_slice()).unwrap_or_default();
    let place = ranges.iter().position(|range| range.tablet == tablet);
    let place = place.ok_or_else(|| not_found(format!("there is no {tablet}")))?;
    let next = ranges.get(place + 1).map(|range| range.tablet);
    next.ok_or_else(|| refused(format!("{tablet} is the last of its table: name the neighbour that takes its rows")))
}

fn member(catalog: &Catalog, node: NodeId) -> Result<&Arc<Node>, Refusal> {
    catalog.node(node).ok_or_else(|| not_found(format!("there is no node {node}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use crate::testing::{apply, cluster};

    const A: NodeId = NodeId(1);
    const D: NodeId = NodeId(4);

    /// The answer of node 1 to a request while these nodes are down.
    fn judged(catalog: &Catalog, down: &[NodeId], request: Request) -> Result<Command, Refusal> {
        let is_up = |node| !down.contains(&node);
        let judge = Judge { node: A, catalog, is_up: &is_up, catalog_voters: &[], wall_ms: 7 };
        judge.command_of(request).map(|(command, _)| command)
    }

    fn is_refused(judged: &Result<Command, Refusal>, why: &str) -> bool {
        matches!(judged, Err(Refusal::Refused(message)) if message.contains(why))
    }

    #[test]
    fn a_node_is_drained_only_if_the_others_can_hold_all_replicas() {
        let drain = Request::Drain { node: D };
        let state = Command::SetNodeState { node: D, state: NodeState::Draining };
        assert_eq!(judged(&cluster(4, 2), &[], drain.clone()), Ok(state));
        assert!(is_refused(&judged(&cluster(4, 2), &[NodeId(2)], drain.clone()), "2 active nodes are up"));
        let mut draining = cluster(4, 2);
        apply(&mut draining, Command::SetNodeState { node: NodeId(2), state: NodeState::Draining });
        assert!(is_refused(&judged(&draining, &[], drain), "2 active nodes are up"));
        let missing = judged(&draining, &[], Request::Drain { node: NodeId(9) });
        assert!(matches!(missing, Err(Refusal::NotFound(_))), "{missing:?}");
        assert!(is_refused(&judged(&draining, &[], Request::Undrain { node: D }), "is not being drained"));
    }

    #[test]
    fn a_node_is_removed_only_when_it_holds_nothing_and_does_not_lead_the_catalog() {
        let remove = |node| Request::Remove { node };
        let full = cluster(3, 3);
        assert!(is_refused(&judged(&full, &[], remove(NodeId(2))), "drain it first"));
        assert!(is_refused(&judged(&full, &[NodeId(2)], remove(NodeId(2))), "replace it first"));
        let empty = cluster(4, 1);
        let idle = empty.nodes().map(|node| node.id).find(|node| empty.tablets_on(*node).count() == 0).unwrap();
        assert_eq!(judged(&empty, &[], remove(idle)), Ok(Command::RemoveNode { node: idle, only_without_vote: true }));
        let judge = Judge { node: idle, catalog: &empty, is_up: &|_| true, catalog_voters: &[], wall_ms: 0 };
        let by_itself = judge.command_of(remove(idle)).map(|(command, _)| command);
        assert!(is_refused(&by_itself, "leads the catalog"));
    }

    #[test]
    fn a_node_that_votes_in_the_catalogs_group_is_not_removed() {
        let mut catalog = cluster(4, 1);
        let idle = catalog.nodes().map(|node| node.id).find(|node| catalog.tablets_on(*node).count() == 0).unwrap();
        let leader = NodeId(idle.0 % 4 + 1);
        let removed = |catalog: &Catalog, sets: &[&[NodeId]], down: &[NodeId]| {
            let is_up = |node| !down.contains(&node);
            let catalog_voters: Vec<Vec<NodeId>> = sets.iter().map(|set| set.to_vec()).collect();
            let judge = Judge { node: leader, catalog, is_up: &is_up, catalog_voters: &catalog_voters, wall_ms: 0 };
            judge.command_of(Request::Remove { node: idle }).map(|(command, _)| command)
        };
        let done = Ok(Command::RemoveNode { node: idle, only_without_vote: true });
        let third = NodeId(leader.0 % 4 + 1);
        let with_its_vote = [leader, idle, third];
        assert!(is_refused(&removed(&catalog, &[&with_its_vote], &[]), "votes in the catalog's group: drain it"));
        assert!(is_refused(&removed(&catalog, &[&with_its_vote], &[idle]), "votes in the catalog's group: replace it"));
        apply(&mut catalog, Command::SetNodeState { node: idle, state: NodeState::Draining });
        assert!(!catalog.catalog_members().voters.contains(&idle));
        assert!(is_refused(&removed(&catalog, &[&with_its_vote], &[]), "wait until it has no vote"));
        let changing: [&[NodeId]; 2] = [&[leader, third], &with_its_vote];
        assert!(
            is_refused(&removed(&catalog, &changing, &[]), "wait until it has no vote"),
            "the change may be undone"
        );
        assert_eq!(removed(&catalog, &[&[leader, third]], &[]), done);
        assert_eq!(removed(&catalog, &[&[leader, third]], &[idle]), done);
    }

    #[test]
    fn a_node_is_replaced_only_when_it_is_down_and_no_data_is_left_to_it_alone() {
        let replace = Request::Replace { node: D };
        let catalog = cluster(4, 4);
        assert!(is_refused(&judged(&catalog, &[], replace.clone()), "is up: drain it instead"));
        let dead = Command::SetNodeState { node: D, state: NodeState::Dead };
        assert_eq!(judged(&catalog, &[D], replace.clone()), Ok(dead.clone()));
        assert!(is_refused(&judged(&catalog, &[D, NodeId(3)], replace.clone()), "have no quorum without node"));
        let mut replaced = catalog;
        apply(&mut replaced, dead);
        assert!(is_refused(&judged(&replaced, &[D], replace), "being replaced already"));
    }

    #[test]
    fn the_answer_says_which_replicas_of_a_replaced_node_wait_for_another_node() {
        let said = |catalog: &Catalog, node: NodeId| {
            let is_up = |other| other != node;
            let judge = Judge { node: A, catalog, is_up: &is_up, catalog_voters: &[], wall_ms: 7 };
            let (command, said) = judge.command_of(Request::Replace { node }).unwrap();
            assert_eq!(command, Command::SetNodeState { node, state: NodeState::Dead });
            said
        };
        let waits = said(&cluster(3, 2), NodeId(3));
        assert!(waits.contains("has 3 replicas of each tablet and 2 other active nodes are up"), "{waits}");
        assert!(waits.ends_with("the rest waits for another node"), "{waits}");
        let four = cluster(4, 4);
        assert_eq!(said(&four, D), "the replicas of node n4 are being rebuilt on other nodes");
        // A node that holds nothing leaves nothing to be rebuilt.
        let one = cluster(4, 1);
        let idle = one.nodes().map(|node| node.id).find(|node| one.tablets_on(*node).count() == 0).unwrap();
        assert!(!said(&one, idle).contains("waits"));
    }

    #[test]
    fn what_is_said_of_leaders_is_so() {
        let catalog = cluster(3, 3);
        let said = |down: &[NodeId], back| {
            let is_up = |node| !down.contains(&node);
            let judge = Judge { node: A, catalog: &catalog, is_up: &is_up, catalog_voters: &[], wall_ms: 7 };
            judge.command_of(Request::MoveLeaders { node: NodeId(2), back }).unwrap().1
        };
        assert!(said(&[], false).starts_with("node n2 transfers what it leads, and leads nothing until"));
        assert!(said(&[NodeId(2)], false).starts_with("node n2 is down; when it returns, it leads nothing until"));
        assert_eq!(said(&[NodeId(2)], true), "node n2 leads again");
    }

    #[test]
    fn leaders_move_only_to_nodes_that_are_up() {
        let catalog = cluster(3, 3);
        let request = |back| Request::MoveLeaders { node: A, back };
        let others = [NodeId(2), NodeId(3)];
        assert!(is_refused(&judged(&catalog, &others, request(false)), "no other replica that is up"));
        let leading = |leads_nothing| Ok(Command::SetLeading { node: A, leads_nothing });
        assert_eq!(judged(&catalog, &others[..1], request(false)), leading(true));
        assert_eq!(judged(&catalog, &others, request(true)), leading(false));
    }

    #[test]
    fn tablets_are_split_in_the_middle_and_merged_into_the_next() {
        let catalog = cluster(3, 2);
        let tablets: Vec<TabletId> = catalog.tablets().map(|(tablet, _)| tablet).collect();
        let split = judged(&catalog, &[], Request::Split { tablet: tablets[1] });
        assert_eq!(split, Ok(Command::BeginSplit { tablet: tablets[1], at: 1 << 62, stays: true }));
        let merge = |tablet| judged(&catalog, &[], Request::Merge { tablet, into: None });
        assert_eq!(merge(tablets[0]), Ok(Command::BeginMerge { tablet: tablets[0], into: tablets[1] }));
        assert!(is_refused(&merge(tablets[1]), "is the last of its table"));
        let cancel = judged(&catalog, &[], Request::CancelMerge { tablet: tablets[0] });
        assert!(matches!(cancel, Ok(Command::CancelMerge { cancelled, .. }) if cancelled.unix_ms == 7));
    }
}
