//! Admission: which nodes a node admits, and its answers to nodes that want to join.
//!
//! Always true: no node that knows of a removal admits the removed node. A node whose copy of the catalog is behind
//! trusts nodes of its cluster that have joined since, as only they may be able to send it the missing changes; for an
//! empty copy, all nodes have joined since.

use super::{Refusal, RefusalKind};
use diorite_base::NodeId;
use diorite_cluster::catalog::{Catalog, Command, NodeDescription};
use std::net::SocketAddr;
use uuid::Uuid;

/// The node that founds a cluster.
pub const FIRST_NODE: NodeId = NodeId(1);

/// A node whose copy of the catalog is behind admits at most this many newer nodes: this bounds the state that it keeps
/// for them.
const NEWER_NODES: u64 = 256;

/// A node that dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialler {
    /// Its node id.
    pub node: NodeId,
    /// Its host id.
    pub host: Uuid,
}

/// A replication factor differs from the cluster's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicationFactorDiffers {
    /// The one that was given.
    pub given: u32,
    /// The one of the cluster.
    pub decided: u32,
}

/// The answer to a node that joins, or that asks where the members are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The cluster.
    pub cluster: Uuid,
    /// The id of the node that joins.
    pub node: Option<NodeId>,
    /// The catalog version with this membership.
    pub version: u64,
    /// The members' addresses.
    pub members: Vec<(NodeId, SocketAddr)>,
}

/// Whether a node that dials is admitted, according to the newest snapshot known here.
pub fn admit(catalog: &Catalog, dialler: Dialler) -> Result<(), Refusal> {
    let Dialler { node: id, host } = dialler;
    match catalog.node(id) {
        Some(node) if node.description.host_id == host => Ok(()),
        Some(node) => {
            let owner = node.description.host_id;
            let reason = format!("node id {id} belongs to host {owner}, not to {host}");
            Err(Refusal::new(RefusalKind::Duplicate, reason))
        }
        None if catalog.identity().has_numbered_node(id) => {
            Err(Refusal::new(RefusalKind::Removed, format_args!("node {id} was removed from the cluster")))
        }
        // It has joined since. If all leaders and voters have, no other node can send this one the change.
        None if catalog.nodes().next().is_none() || is_newer(catalog, id) => Ok(()),
        None => Err(Refusal::new(RefusalKind::Unknown, format_args!("it does not know node {id} yet"))),
    }
}

fn is_newer(catalog: &Catalog, id: NodeId) -> bool {
    let newest = catalog.nodes().map(|node| node.id.0).max().unwrap_or(0);
    !catalog.identity().has_numbered_node(id) && id.0 <= newest.saturating_add(NEWER_NODES)
}

/// Refuses a replication factor that differs from the one that the cluster was founded with.
pub fn check_replication_factor(catalog: &Catalog, given: Option<u32>) -> Result<(), ReplicationFactorDiffers> {
    let identity = catalog.identity();
    match given {
        Some(given) if identity.cluster_id.is_some() && given != identity.replication_factor => {
            Err(ReplicationFactorDiffers { given, decided: identity.replication_factor })
        }
        _ => Ok(()),
    }
}

/// The command that makes a node a member, if node `me` knows no reason against it. The catalog checks that its
/// addresses are not another's: of two concurrent requests one comes first.
pub fn joining(
    catalog: &Catalog,
    me: NodeId,
    node: NodeDescription,
    is_up: impl Fn(NodeId) -> bool,
) -> Result<Command, Refusal> {
    if catalog.identity().cluster_id.is_none() || catalog.node(me).is_none() {
        return Err(Refusal::not_yet("the node that was asked is still starting"));
    }
    match catalog.node_by_host_id(node.host_id) {
        Some(known) if known.id == me || is_up(known.id) => {
            let reason = format!("host id {} is node {}'s, which is running", node.host_id, known.id);
            Err(Refusal::new(RefusalKind::Duplicate, reason))
        }
        _ => Ok(Command::RegisterNode { node }),
    }
}

/// The command that registers the address of node `me`, unless the catalog has it. Only the first node of a cluster
/// makes itself a member, and only once: not if another node has joined, or was removed, since.
pub fn registering(catalog: &Catalog, me: NodeId, description: &NodeDescription) -> Option<Command> {
    match catalog.node_by_host_id(description.host_id) {
        Some(known) if known.description == *description => None,
        None if me == FIRST_NODE && !catalog.identity().has_numbered_node(me) => {
            Some(Command::RegisterNode { node: description.clone() })
        }
        _ => Some(returning(me, description)),
    }
}

/// The command by which a member that has started reports that it runs. Its reply is the catalog's version.
pub fn returning(me: NodeId, description: &NodeDescription) -> Command {
    Command::UpdateNode { node: me, description: description.clone() }
}

/// The answer to the node with this host id after it has been made a member.
pub fn welcome(catalog: &Catalog, host: Uuid) -> Result<Welcome, Refusal> {
    let joined = catalog.node_by_host_id(host).ok_or_else(|| Refusal::not_yet("the catalog lags"))?;
    members(catalog, Some(joined.id))
}

/// The addresses of the members of a cluster.
pub fn whereabouts(catalog: &Catalog, cluster: Uuid) -> Result<Welcome, Refusal> {
    match catalog.identity().cluster_id {
        Some(own) if own == cluster => members(catalog, None),
        Some(own) => {
            let reason = format!("it belongs to cluster {own}, the data directory of this node to cluster {cluster}");
            Err(Refusal::new(RefusalKind::Cluster, reason))
        }
        None => Err(Refusal::not_yet("the node that was asked is still starting")),
    }
}

fn members(catalog: &Catalog, node: Option<NodeId>) -> Result<Welcome, Refusal> {
    let cluster = catalog.identity().cluster_id.ok_or_else(|| Refusal::not_yet("there is no cluster yet"))?;
    let members = catalog.nodes().map(|node| (node.id, node.description.node_address())).collect();
    Ok(Welcome { cluster, node, version: catalog.version(), members })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{apply, cluster, description};
    use diorite_cluster::catalog::{Outcome, Rejection};

    const A: NodeId = NodeId(1);

    fn kind(refused: Result<(), Refusal>) -> Option<RefusalKind> {
        refused.err().map(|refusal| refusal.kind)
    }

    fn dialler(node: u64, host: u128) -> Dialler {
        Dialler { node: NodeId(node), host: Uuid::from_u128(host) }
    }

    #[test]
    fn members_are_let_in_and_others_refused_by_what_they_are() {
        let mut catalog = cluster(4, 1);
        let idle = catalog.nodes().map(|node| node.id).find(|node| catalog.tablets_on(*node).count() == 0);
        let idle = idle.unwrap_or(A);
        assert_eq!(admit(&catalog, dialler(2, 2)), Ok(()));
        assert_eq!(kind(admit(&catalog, dialler(2, 3))), Some(RefusalKind::Duplicate));
        assert_eq!(admit(&catalog, dialler(5, 5)), Ok(()), "it has joined since");
        assert_eq!(kind(admit(&catalog, dialler(4 + NEWER_NODES + 1, 9))), Some(RefusalKind::Unknown));
        apply(&mut catalog, Command::RemoveNode { node: idle });
        assert_eq!(kind(admit(&catalog, dialler(idle.0, u128::from(idle.0)))), Some(RefusalKind::Removed));
        assert_eq!(admit(&Catalog::default(), dialler(2, 2)), Ok(()));
    }

    #[test]
    fn a_node_joins_once_unless_it_runs_already() {
        let catalog = cluster(3, 1);
        let ask = |catalog: &Catalog, number, up: bool| joining(catalog, A, description(number), |_| up);
        assert_eq!(ask(&catalog, 9, false), Ok(Command::RegisterNode { node: description(9) }));
        assert!(ask(&catalog, 2, false).is_ok(), "it asks again");
        assert!(matches!(ask(&catalog, 2, true), Err(Refusal { kind: RefusalKind::Duplicate, .. })));
        assert!(matches!(ask(&catalog, 1, false), Err(Refusal { kind: RefusalKind::Duplicate, .. })));
        assert!(matches!(ask(&Catalog::default(), 9, false), Err(Refusal { kind: RefusalKind::Unknown, .. })));
    }

    #[test]
    fn only_the_first_node_makes_itself_a_member_and_only_once() {
        let catalog = cluster(3, 1);
        let moved = NodeDescription { cql_port: 1, ..description(2) };
        let told = |node: u64, description: &NodeDescription| {
            Some(Command::UpdateNode { node: NodeId(node), description: description.clone() })
        };
        assert_eq!(registering(&catalog, NodeId(2), &description(2)), None);
        assert_eq!(registering(&catalog, NodeId(2), &moved), told(2, &moved));
        assert_eq!(registering(&catalog, NodeId(7), &description(7)), told(7, &description(7)), "it was removed");
        assert_eq!(registering(&catalog, A, &description(9)), told(1, &description(9)), "the first node was removed");
        let founded = Some(Command::RegisterNode { node: description(1) });
        assert_eq!(registering(&Catalog::default(), A, &description(1)), founded);
        let (_, outcome) = catalog.apply(&returning(NodeId(7), &description(7)));
        let rejected = matches!(&outcome, Outcome::Rejected { rejection: Rejection::NoSuchNode, .. });
        assert!(rejected, "{outcome:?}");
    }

    #[test]
    fn a_member_says_where_the_others_are_to_those_of_its_cluster() {
        let catalog = cluster(3, 1);
        let told = whereabouts(&catalog, Uuid::from_u128(1)).map(|welcome| welcome.members.len());
        assert_eq!(told, Ok(3));
        assert!(matches!(whereabouts(&catalog, Uuid::nil()), Err(Refusal { kind: RefusalKind::Cluster, .. })));
        let welcomed = welcome(&catalog, Uuid::from_u128(2)).map(|welcome| welcome.node);
        assert_eq!(welcomed, Ok(Some(NodeId(2))));
        assert_eq!(check_replication_factor(&catalog, Some(3)), Ok(()));
        let differs = ReplicationFactorDiffers { given: 5, decided: 3 };
        assert_eq!(check_replication_factor(&catalog, Some(5)), Err(differs));
    }
}
