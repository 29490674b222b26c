//! `system.local`, `system.peers`, `system.peers_v2`: the nodes, as drivers discover them.

use super::cells::{RowBuilder, inet, int, set, text, uuid};
use super::source::{CQL_VERSION, NATIVE_PROTOCOL_VERSION, PARTITIONER, RELEASE_VERSION, Row, Source};
use crate::kv::NodeInfo;
use diorite_model::schema::Table;
use uuid::Uuid;

/// The port of the node-to-node listener that is shown when the catalog does not know the node.
const DEFAULT_RPC_PORT: u16 = 7100;

fn tokens(node: &NodeInfo) -> Vec<u8> {
    set(node.tokens.iter().map(i64::to_string))
}

pub(super) fn rpc_port(source: &Source, node: &NodeInfo) -> i32 {
    let member = source.catalog.node(node.node);
    i32::from(member.map_or(DEFAULT_RPC_PORT, |member| member.description.rpc_port))
}

pub(super) fn local(source: &Source, table: &Table) -> Row {
    let node = &source.local;
    RowBuilder::new(table)
        .set("key", text("local"))
        .set("bootstrapped", text("COMPLETED"))
        .set("broadcast_address", inet(node.address))
        .set("broadcast_port", int(rpc_port(source, node)))
        .set("cluster_name", text(source.catalog.cluster_name()))
        .set("cql_version", text(CQL_VERSION))
        .set("data_center", text(&node.data_center))
        .set("gossip_generation", int(0))
        .set("host_id", uuid(node.host_id))
        .set("listen_address", inet(node.address))
        .set("listen_port", int(rpc_port(source, node)))
        .set("native_protocol_version", text(NATIVE_PROTOCOL_VERSION))
        .set("partitioner", text(PARTITIONER))
        .set("rack", text(&node.rack))
        .set("release_version", text(RELEASE_VERSION))
        .set("rpc_address", inet(node.address))
        .set("rpc_port", int(i32::from(node.cql_port)))
        .set("schema_version", uuid(source.catalog.schema_version()))
        .set("tokens", tokens(node))
        .finish()
}

pub(super) fn peers(source: &Source, table: &Table) -> Vec<Row> {
    let row = |(node, schema): (&NodeInfo, &Uuid)| {
        RowBuilder::new(table)
            .set("peer", inet(node.address))
            .set("data_center", text(&node.data_center))
            .set("host_id", uuid(node.host_id))
            .set("rack", text(&node.rack))
            .set("release_version", text(RELEASE_VERSION))
            .set("rpc_address", inet(node.address))
            .set("schema_version", uuid(*schema))
            .set("tokens", tokens(node))
            .finish()
    };
    source.peers.iter().zip(&source.peer_schemas).map(row).collect()
}

pub(super) fn peers_v2(source: &Source, table: &Table) -> Vec<Row> {
    let row = |(node, schema): (&NodeInfo, &Uuid)| {
        RowBuilder::new(table)
            .set("peer", inet(node.address))
            .set("peer_port", int(rpc_port(source, node)))
            .set("data_center", text(&node.data_center))
            .set("host_id", uuid(node.host_id))
            .set("native_address", inet(node.address))
            .set("native_port", int(i32::from(node.cql_port)))
            .set("rack", text(&node.rack))
            .set("release_version", text(RELEASE_VERSION))
            .set("schema_version", uuid(*schema))
            .set("tokens", tokens(node))
            .finish()
    };
    source.peers.iter().zip(&source.peer_schemas).map(row).collect()
}
