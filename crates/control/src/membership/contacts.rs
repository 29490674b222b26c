//! Where a node's heartbeats go, and which nodes it dials.
//!
//! Always true: heartbeats go to every other member, and to no node that was removed; a node that does not know yet who the members are
//! sends them to those that whoever let it join has named, or that it has met.

use crate::planted::Planted;
use diorite_base::NodeId;
use diorite_cluster::catalog::Catalog;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The nodes that a node keeps in touch with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contacts {
    /// Heartbeats go to these.
    pub heartbeats: Vec<NodeId>,
    /// These are dialled, there. `None`: those that are dialled stay as they are.
    pub dialled: Option<BTreeMap<NodeId, SocketAddr>>,
}

impl Contacts {
    /// Those of node `me`. `named`: the members that whoever let it join has named; `met`: the nodes that have let it in.
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

/// Where the members are dialled, as the catalog has it.
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
