//! Events for clients: changes of the schema and of the nodes.

use diorite_cluster::catalog::{SchemaChangeKind, SchemaEvent, SchemaTarget as CatalogTarget};
use diorite_control::follower::ClientNotice;
use diorite_cql::protocol::event::{SchemaChangeType, TopologyChangeType};
use diorite_cql::protocol::{Event, SchemaChange, SchemaTarget};

/// Converts a notice to the event that clients receive.
pub(super) fn event(notice: ClientNotice) -> Event {
    match notice {
        ClientNotice::Joined(address) => Event::Topology { change: TopologyChangeType::NewNode, address },
        ClientNotice::Removed(address) => Event::Topology { change: TopologyChangeType::RemovedNode, address },
        ClientNotice::Schema(event) => Event::Schema(schema_change(event)),
    }
}

fn schema_change(event: SchemaEvent) -> SchemaChange {
    let keyspace = event.keyspace;
    SchemaChange {
        change: match event.change {
            SchemaChangeKind::Created => SchemaChangeType::Created,
            SchemaChangeKind::Updated => SchemaChangeType::Updated,
            SchemaChangeKind::Dropped => SchemaChangeType::Dropped,
        },
        target: match event.target {
            CatalogTarget::Keyspace => SchemaTarget::Keyspace(keyspace),
            CatalogTarget::Table(name) => SchemaTarget::Table { keyspace, name },
            CatalogTarget::Type(name) => SchemaTarget::Type { keyspace, name },
        },
    }
}
