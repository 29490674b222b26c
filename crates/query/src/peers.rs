//! The nodes as the system tables show them, with tokens that lead drivers to the leaders.
//!
//! A table of `n` tablets splits the ring evenly, and the preferred leaders of a table with the default number of tablets (so many for each
//! node) take turns in the order of node ids. The tokens say the same: a node has the last token of each range whose preferred leader it is
//! then. So a driver that knows no tablets, and takes the owner of a key's token for the node to ask, is mostly right for such tables, and
//! spreads its requests evenly in any case.
//!
//! Always true: no two nodes have a token in common; all nodes that are configured alike give the same tokens. Left out: tables with another
//! number of tablets and leaders that moved, which the protocol's extension for tablets is for (`crate::tablets`).

use crate::kv::NodeInfo;
use diorite_base::NodeId;
use diorite_cluster::catalog::{Catalog, Node, part_of_ring};

/// The most tokens of a node; more would not improve routing.
const MAX_TOKENS_PER_NODE: u32 = 256;

/// The row of a node in the system tables. `tablets_per_node` is the default number of a new table's tablets for each
/// node.
pub fn node_info(catalog: &Catalog, id: NodeId, tablets_per_node: u32) -> Option<NodeInfo> {
    let (position, node) = catalog.nodes().enumerate().find(|(_, node)| node.id == id)?;
    Some(info(node, tokens(position, catalog.nodes().count(), tablets_per_node)))
}

/// The rows of all nodes but `local` in the system tables.
pub fn peers(catalog: &Catalog, local: NodeId, tablets_per_node: u32) -> Vec<NodeInfo> {
    let count = catalog.nodes().count();
    let others = catalog.nodes().enumerate().filter(|(_, node)| node.id != local);
    others.map(|(position, node)| info(node, tokens(position, count, tablets_per_node))).collect()
}

fn info(node: &Node, tokens: Vec<i64>) -> NodeInfo {
    NodeInfo {
        node: node.id,
        host_id: node.description.host_id,
        address: node.address(),
        cql_port: node.description.cql_port,
        data_center: node.description.data_center.clone(),
        rack: node.zone().to_owned(),
        tokens,
    }
}

/// The last token of every range that the node at `position` among `nodes` would lead.
fn tokens(position: usize, nodes: usize, tablets_per_node: u32) -> Vec<i64> {
    let nodes = nodes.max(1) as u32;
    let count = tablets_per_node.clamp(1, MAX_TOKENS_PER_NODE).saturating_mul(nodes);
    (position as u32..count).step_by(nodes as usize).map(|index| part_of_ring(index, count).1).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use diorite_cluster::catalog::{Command, NodeDescription};
    use std::collections::BTreeMap;
    use uuid::Uuid;

    fn catalog(nodes: u8, statements: &[&str]) -> Catalog {
        let cluster_id = Uuid::from_u128(1);
        let mut commands = vec![Command::Bootstrap {
            cluster_id,
            name: "demo".to_owned(),
            replication_factor: 3,
            requires_login: None,
            level: diorite_base::Level::FIRST,
        }];
        commands.extend((1..=nodes).map(|number| Command::RegisterNode {
            node: NodeDescription {
                host_id: Uuid::from_u128(u128::from(number)),
                address: [127, 0, 0, number].into(),
                cql_port: 9042,
                rpc_port: 7100,
                http_port: 7000,
                data_center: "datacenter1".to_owned(),
                zone: "rack1".to_owned(),
                node_address: None,
                levels: None,
            },
        }));
        let mut catalog = commands.iter().fold(Catalog::default(), |catalog, command| catalog.apply(command).0);
        for text in statements {
            let defaults = crate::ddl::Defaults { tablets_per_node: 8, most_tablets_per_node: u32::MAX };
            let context = crate::ddl::Context { catalog: &catalog, keyspace: None, defaults, nonce: 1 };
            let statement = diorite_cql::language::parse(text).unwrap().statement;
            let crate::ddl::Plan::Propose { command, .. } = crate::ddl::plan(&context, &statement).unwrap() else {
                panic!("a change")
            };
            catalog = catalog.apply(&command).0;
        }
        catalog
    }

    #[test]
    fn a_tokens_owner_is_the_preferred_leader_of_tables_of_the_default_size() {
        for nodes in 1..=5 {
            let catalog = catalog(nodes, &["CREATE KEYSPACE ks", "CREATE TABLE ks.t (k int PRIMARY KEY)"]);
            let local = node_info(&catalog, NodeId(1), 8).unwrap();
            let ring: BTreeMap<i64, NodeId> = peers(&catalog, NodeId(1), 8)
                .iter()
                .chain([&local])
                .flat_map(|node| node.tokens.iter().map(|token| (*token, node.node)))
                .collect();
            assert_eq!(ring.len(), 8 * usize::from(nodes), "no token twice");
            let entry = catalog.table("ks", "t").unwrap();
            assert_eq!(entry.tablets.len(), ring.len());
            for token in (0..1_000).map(|part| part_of_ring(part, 1_000).0 + 12_345) {
                let (_, owner) = ring.range(token..).next().unwrap();
                assert_eq!(*owner, catalog.placement(entry.tablet_of(token)).unwrap().replicas[0]);
            }
        }
    }

    #[test]
    fn peers_are_all_nodes_but_one() {
        let catalog = catalog(3, &[]);
        let peers = peers(&catalog, NodeId(2), 1);
        assert_eq!(peers.iter().map(|peer| peer.node).collect::<Vec<_>>(), [NodeId(1), NodeId(3)]);
        assert_eq!(peers[1].tokens, [i64::MAX]);
        assert_eq!(node_info(&catalog, NodeId(4), 1), None);
    }
}
