//! Events for clients: changes of the schema and of the nodes.

use diorite_cluster::catalog::{SchemaChangeKind, SchemaEvent, SchemaTarget as CatalogTarget};
use diorite_control::follower::ClientNotice;
use diorite_cql::protocol::event::{SchemaChangeType, TopologyChangeType};
use diorite_cql::protocol::{Event, SchemaChange, SchemaTarget};
use std::sync::Arc;
use tokio::sync::broadcast;

/// The next event of a connection that has registered for events. Never returns for one that has not.
pub(crate) async fn next_event(events: &mut Option<broadcast::Receiver<Arc<Event>>>) -> Arc<Event> {
    let Some(receiver) = events else { return std::future::pending().await };
    loop {
        match receiver.recv().await {
            Ok(event) => return event,
            // Events were missed; drivers also refresh by themselves from time to time.
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return std::future::pending().await,
        }
    }
}

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
