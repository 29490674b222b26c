//! The targets of a node's heartbeats, and the nodes that it dials.
//!
//! Always true: heartbeats go to every other member, and to no node that was removed. A node that does not know the
//! members yet sends them to the nodes that were named when it joined, and to those that have admitted it. A node whose copy of
//! the catalog is old sends them also to newer members that have dialled it: all voters of the catalog's group may be among
//! these, and a leader sends entries only to nodes whose heartbeats it receives.

use super::gate::is_newer;
use crate::planted::Planted;
use diorite_base::NodeId;
use diorite_cluster::catalog::Catalog;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The nodes that a node is in contact with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contacts {
    /// The targets of its heartbeats.
    pub heartbeats: Vec<NodeId>,
    /// The nodes to dial, with their addresses. `None`: no change.
    pub dialled: Option<BTreeMap<NodeId, SocketAddr>>,
}

/// The nodes that a process has met since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encounters {
    /// Those that have admitted it.
    pub met: Vec<NodeId>,
    /// Those that it has admitted though its copy of the catalog did not have them yet.
    pub callers: BTreeMap<NodeId, SocketAddr>,
}

impl Contacts {
    /// The contacts of node `me`. `named`: the members named when it joined.
    pub fn new(
        me: NodeId,
        catalog: &Catalog,
        named: &BTreeMap<NodeId, SocketAddr>,
        encounters: &Encounters,
        planted: Planted,
    ) -> Self {
        let mut members = addresses(catalog);
        if members.is_empty() {
            members.clone_from(named);
        }
        if members.is_empty() {
            return Self { heartbeats: encounters.met.clone(), dialled: None };
        }
        let newer = encounters.callers.iter().filter(|(node, _)| is_newer(catalog, **node));
        members.extend(newer);
        let mut heartbeats: Vec<NodeId> = members.keys().copied().filter(|node| *node != me).collect();
        if planted.allowed().forget_heartbeat_target && heartbeats.len() > 2 {
            heartbeats.pop();
        }
        Self { heartbeats, dialled: Some(members) }
    }
}

/// The addresses of the members, according to the catalog.
pub fn addresses(catalog: &Catalog) -> BTreeMap<NodeId, SocketAddr> {
    catalog.nodes().map(|node| (node.id, node.description.node_address())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{apply, cluster};
    use diorite_cluster::catalog::Command;

    const A: NodeId = NodeId(1);

    fn contacts(catalog: &Catalog, named: &BTreeMap<NodeId, SocketAddr>, callers: &[NodeId]) -> Contacts {
        let address = "127.0.0.9:7100".parse().unwrap();
        let callers = callers.iter().map(|node| (*node, address)).collect();
        Contacts::new(A, catalog, named, &Encounters { met: vec![NodeId(8)], callers }, Planted::default())
    }

    #[test]
    fn heartbeats_go_to_all_other_members() {
        let named = addresses(&cluster(2, 1));
        let known = contacts(&cluster(3, 1), &named, &[]);
        assert_eq!((known.heartbeats, known.dialled.map(|all| all.len())), (vec![NodeId(2), NodeId(3)], Some(3)));
        assert_eq!(contacts(&Catalog::default(), &named, &[]).heartbeats, [NodeId(2)]);
        let met = contacts(&Catalog::default(), &BTreeMap::new(), &[]);
        assert_eq!(met, Contacts { heartbeats: vec![NodeId(8)], dialled: None });
    }

    #[test]
    fn members_that_have_joined_since_and_dial_get_heartbeats_until_they_are_removed() {
        let mut catalog = cluster(4, 1);
        let newer = contacts(&catalog, &BTreeMap::new(), &[NodeId(2), NodeId(5)]);
        assert_eq!(newer.heartbeats, [2, 3, 4, 5].map(NodeId));
        assert_eq!(newer.dialled.map(|all| all.len()), Some(5));
        let idle = catalog.nodes().map(|node| node.id).find(|node| catalog.tablets_on(*node).next().is_none()).unwrap();
        apply(&mut catalog, Command::RemoveNode { node: idle, only_without_vote: false });
        let heartbeats = contacts(&catalog, &BTreeMap::new(), &[idle]).heartbeats;
        assert!(!heartbeats.contains(&idle), "it was removed: {heartbeats:?}");
    }
}
