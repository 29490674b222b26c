//! The targets of a node's heartbeats, and the nodes that it dials.
//!
//! Always true: heartbeats go to every other member, and to no node that was removed. A node that does not know the
//! members yet sends them to the nodes that were named when it joined, and to those that have admitted it.

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

impl Contacts {
    /// The contacts of node `me`. `named`: the members named when it joined; `met`: the nodes that have admitted it.
    pub fn new(
        me: NodeId,
        catalog: &Catalog,
        named: &BTreeMap<NodeId, SocketAddr>,
        met: &[NodeId],
        planted: Planted,
    ) -> Self {
        let mut members = addresses(catalog);
        if members.is_empty() {
            members.clone_from(named);
        }
        if members.is_empty() {
            return Self { heartbeats: met.to_vec(), dialled: None };
        }
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
    use crate::testing::cluster;

    const A: NodeId = NodeId(1);

    #[test]
    fn heartbeats_go_to_all_other_members() {
        let named = addresses(&cluster(2, 1));
        let contacts =
            |catalog: &Catalog, named: &_| Contacts::new(A, catalog, named, &[NodeId(8)], Planted::default());
        let known = contacts(&cluster(3, 1), &named);
        assert_eq!((known.heartbeats, known.dialled.map(|all| all.len())), (vec![NodeId(2), NodeId(3)], Some(3)));
        assert_eq!(contacts(&Catalog::default(), &named).heartbeats, [NodeId(2)]);
        let met = contacts(&Catalog::default(), &BTreeMap::new());
        assert_eq!(met, Contacts { heartbeats: vec![NodeId(8)], dialled: None });
    }
}
