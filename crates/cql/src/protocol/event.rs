//! Events that are sent to clients: changes of the schema, of the ring, and of nodes' liveness.
//!
//! Always true: an event is written in terms its version has (before v4, changes of functions and aggregates are told as an update of
//! their keyspace). Left out: who is registered for what, which the connection keeps as an [`EventSet`].

use super::error::FunctionSignature;
use super::version::Version;
use super::wire::{self, Malformed, Reader};
use std::net::SocketAddr;

/// A kind of event that a client can register for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EventType {
    /// Nodes joining and leaving
    TopologyChange = 1,
    /// Nodes going up and down
    StatusChange = 2,
    /// Keyspaces, tables and types
    SchemaChange = 4,
}

impl EventType {
    /// Every event type.
    pub const ALL: [EventType; 3] = [EventType::TopologyChange, EventType::StatusChange, EventType::SchemaChange];

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            EventType::TopologyChange => "TOPOLOGY_CHANGE",
            EventType::StatusChange => "STATUS_CHANGE",
            EventType::SchemaChange => "SCHEMA_CHANGE",
        }
    }
}

/// The events a connection is registered for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventSet {
    bits: u8,
}

impl EventSet {
    /// Adds an event type.
    pub fn insert(&mut self, event: EventType) {
        self.bits |= event as u8;
    }

    /// Adds all of `other`.
    pub fn extend(&mut self, other: EventSet) {
        self.bits |= other.bits;
    }

    /// Whether the event type is in the set.
    pub fn contains(self, event: EventType) -> bool {
        self.bits & event as u8 != 0
    }

    /// Whether nothing is registered.
    pub fn is_empty(self) -> bool {
        self.bits == 0
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut set = EventSet::default();
        for _ in 0..reader.u16("number of event types")? {
            let name = reader.string("event type")?;
            let event = EventType::ALL.into_iter().find(|event| event.name() == name);
            set.insert(event.ok_or(Malformed::Invalid("event type"))?);
        }
        Ok(set)
    }
}

/// The kind of change to the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchemaChangeType {
    /// `CREATED`
    Created,
    /// `UPDATED`
    Updated,
    /// `DROPPED`
    Dropped,
}

/// The changed part of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaTarget {
    /// A keyspace
    Keyspace(String),
    /// A table (its indexes and views included)
    Table {
        /// Its keyspace
        keyspace: String,
        /// Its name
        name: String,
    },
    /// A user-defined type
    Type {
        /// Its keyspace
        keyspace: String,
        /// Its name
        name: String,
    },
    /// A user-defined function
    Function(FunctionSignature),
    /// A user-defined aggregate
    Aggregate(FunctionSignature),
}

/// A change of the schema: the result of a DDL statement, and an event for everyone else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaChange {
    /// The kind of change
    pub change: SchemaChangeType,
    /// The changed part
    pub target: SchemaTarget,
}

impl SchemaChangeType {
    /// Every change type.
    pub const ALL: [SchemaChangeType; 3] =
        [SchemaChangeType::Created, SchemaChangeType::Updated, SchemaChangeType::Dropped];

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            SchemaChangeType::Created => "CREATED",
            SchemaChangeType::Updated => "UPDATED",
            SchemaChangeType::Dropped => "DROPPED",
        }
    }
}

impl SchemaChange {
    /// Appends the fields (the same in a RESULT and in an EVENT).
    pub(super) fn encode(&self, out: &mut Vec<u8>, version: Version) {
        let (target, keyspace, name, argument_types) = match &self.target {
            SchemaTarget::Function(function) | SchemaTarget::Aggregate(function) if version < Version::V4 => {
                put_strings(out, &[SchemaChangeType::Updated.name(), "KEYSPACE", &function.keyspace]);
                return;
            }
            SchemaTarget::Keyspace(keyspace) => ("KEYSPACE", keyspace, None, None),
            SchemaTarget::Table { keyspace, name } => ("TABLE", keyspace, Some(name), None),
            SchemaTarget::Type { keyspace, name } => ("TYPE", keyspace, Some(name), None),
            SchemaTarget::Function(function) => {
                ("FUNCTION", &function.keyspace, Some(&function.name), Some(&function.argument_types))
            }
            SchemaTarget::Aggregate(function) => {
                ("AGGREGATE", &function.keyspace, Some(&function.name), Some(&function.argument_types))
            }
        };
        put_strings(out, &[self.change.name(), target, keyspace]);
        if let Some(name) = name {
            wire::put_string(out, name);
        }
        if let Some(argument_types) = argument_types {
            wire::put_string_list(out, argument_types);
        }
    }

    /// Reads the fields (clients and tests do).
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let change = reader.string("schema change type")?;
        let change = SchemaChangeType::ALL.into_iter().find(|known| known.name() == change);
        let change = change.ok_or(Malformed::Invalid("schema change type"))?;
        let target = reader.string("schema change target")?;
        let keyspace = reader.string("keyspace")?.to_owned();
        let mut name = || reader.string("name").map(str::to_owned);
        let target = match target {
            "KEYSPACE" => SchemaTarget::Keyspace(keyspace),
            "TABLE" => SchemaTarget::Table { keyspace, name: name()? },
            "TYPE" => SchemaTarget::Type { keyspace, name: name()? },
            "FUNCTION" | "AGGREGATE" => {
                let is_function = target == "FUNCTION";
                let name = name()?;
                let count = reader.u16("number of argument types")?;
                let argument_types =
                    (0..count).map(|_| reader.string("argument type").map(str::to_owned)).collect::<Result<_, _>>()?;
                let signature = FunctionSignature { keyspace, name, argument_types };
                if is_function { SchemaTarget::Function(signature) } else { SchemaTarget::Aggregate(signature) }
            }
            _ => return Err(Malformed::Invalid("schema change target")),
        };
        Ok(SchemaChange { change, target })
    }
}

/// The kind of change to the membership of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TopologyChangeType {
    /// `NEW_NODE`
    NewNode,
    /// `REMOVED_NODE`
    RemovedNode,
    /// `MOVED_NODE`: its tokens changed
    MovedNode,
}

impl TopologyChangeType {
    /// Every change type.
    pub const ALL: [TopologyChangeType; 3] =
        [TopologyChangeType::NewNode, TopologyChangeType::RemovedNode, TopologyChangeType::MovedNode];

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            TopologyChangeType::NewNode => "NEW_NODE",
            TopologyChangeType::RemovedNode => "REMOVED_NODE",
            TopologyChangeType::MovedNode => "MOVED_NODE",
        }
    }
}

/// An event for registered clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A node joined, left or moved
    Topology {
        /// The kind of change
        change: TopologyChangeType,
        /// Where it serves CQL
        address: SocketAddr,
    },
    /// A node went up or down
    Status {
        /// Whether it is up
        is_up: bool,
        /// Where it serves CQL
        address: SocketAddr,
    },
    /// The schema changed
    Schema(SchemaChange),
}

impl Event {
    /// The registration that an event belongs to.
    pub fn event_type(&self) -> EventType {
        match self {
            Event::Topology { .. } => EventType::TopologyChange,
            Event::Status { .. } => EventType::StatusChange,
            Event::Schema(_) => EventType::SchemaChange,
        }
    }

    /// Appends the body of an EVENT message.
    pub(super) fn encode(&self, out: &mut Vec<u8>, version: Version) {
        wire::put_string(out, self.event_type().name());
        match self {
            Event::Topology { change, address } => {
                wire::put_string(out, change.name());
                wire::put_inet(out, *address);
            }
            Event::Status { is_up, address } => {
                wire::put_string(out, if *is_up { "UP" } else { "DOWN" });
                wire::put_inet(out, *address);
            }
            Event::Schema(change) => change.encode(out, version),
        }
    }

    /// Reads the body of an EVENT message (clients and tests do).
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        match reader.string("event type")? {
            "TOPOLOGY_CHANGE" => {
                let name = reader.string("topology change")?;
                let change = TopologyChangeType::ALL.into_iter().find(|change| change.name() == name);
                let change = change.ok_or(Malformed::Invalid("topology change"))?;
                Ok(Event::Topology { change, address: reader.inet("address")? })
            }
            "STATUS_CHANGE" => {
                let is_up = match reader.string("status")? {
                    "UP" => true,
                    "DOWN" => false,
                    _ => return Err(Malformed::Invalid("status")),
                };
                Ok(Event::Status { is_up, address: reader.inet("address")? })
            }
            "SCHEMA_CHANGE" => SchemaChange::decode(reader).map(Event::Schema),
            _ => Err(Malformed::Invalid("event type")),
        }
    }
}

fn put_strings(out: &mut Vec<u8>, values: &[&str]) {
    values.iter().for_each(|value| wire::put_string(out, value));
}
