//! `system_traces`: requests that were traced, as drivers and cqlsh read them.
//!
//! Always true: the rows are those of the traces in the source; every event is of the node that the client has asked, as
//! nothing else is known of it. Left out: which traces are looked for, and where ([`crate::engine`]).

use super::cells::{RowBuilder, inet, int, map, text, timestamp, uuid};
use super::nodes::rpc_port;
use super::source::{Row, Source};
use crate::kv::NodeInfo;
use crate::trace::Trace;
use diorite_base::NodeId;
use diorite_model::schema::Table;

/// The kind of everything that is traced, among Cassandra's.
const COMMAND: &str = "QUERY";

/// Microseconds as the tables have them.
fn microseconds(us: u64) -> Vec<u8> {
    int(i32::try_from(us).unwrap_or(i32::MAX))
}

fn node(source: &Source, id: NodeId) -> Option<&NodeInfo> {
    std::iter::once(&source.local).chain(&source.peers).find(|node| node.node == id)
}

pub(super) fn sessions<'a>(source: &'a Source, table: &'a Table) -> impl Iterator<Item = Row> + 'a {
    source.traces.iter().map(move |trace| {
        let mut row = RowBuilder::new(table)
            .set("session_id", uuid(trace.id))
            .set("command", text(COMMAND))
            .set("duration", microseconds(trace.duration_us))
            .set("parameters", map(&trace.parameters))
            .set("request", text(&trace.request))
            .set("started_at", timestamp(trace.started_us.div_euclid(1_000)));
        if let Some(client) = trace.client {
            row = row.set("client", inet(client));
        }
        if let Some(node) = node(source, trace.node) {
            row = row.set("coordinator", inet(node.address)).set("coordinator_port", int(rpc_port(source, node)));
        }
        row.finish()
    })
}

fn events_of<'a>(source: &'a Source, table: &'a Table, trace: &'a Trace) -> impl Iterator<Item = Row> + 'a {
    let node = node(source, trace.node);
    trace.events.iter().zip(trace.event_ids()).map(move |(event, id)| {
        let row = RowBuilder::new(table)
            .set("session_id", uuid(trace.id))
            .set("event_id", uuid(id))
            .set("activity", text(&event.activity))
            .set("source_elapsed", microseconds(event.elapsed_ns / 1_000))
            .set("thread", text(&event.thread));
        match node {
            Some(node) => {
                row.set("source", inet(node.address)).set("source_port", int(rpc_port(source, node))).finish()
            }
            None => row.finish(),
        }
    })
}

pub(super) fn events<'a>(source: &'a Source, table: &'a Table) -> impl Iterator<Item = Row> + 'a {
    source.traces.iter().flat_map(move |trace| events_of(source, table, trace))
}
