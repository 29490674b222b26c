//! CQL's data types.
//!
//! Always true: a [`CqlType`] is fully resolved (a user-defined type carries its fields). What is left out: text syntax of types is the
//! `cql` crate's; how values of a type are encoded is in `value` (wire) and `key` (order-preserving).

pub mod display;

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A CQL type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CqlType {
    /// `ascii`
    Ascii,
    /// `bigint`
    Bigint,
    /// `blob`
    Blob,
    /// `boolean`
    Boolean,
    /// `counter`
    Counter,
    /// `date`: days, unsigned, 2^31 is 1970-01-01
    Date,
    /// `decimal`
    Decimal,
    /// `double`
    Double,
    /// `duration`: months, days, nanoseconds
    Duration,
    /// `float`
    Float,
    /// `inet`
    Inet,
    /// `int`
    Int,
    /// YCQL's `jsonb`: a JSON document, stored as its text without spaces and with the members of objects in order
    Jsonb,
    /// `smallint`
    Smallint,
    /// `text`, `varchar`
    Text,
    /// `time`: nanoseconds since midnight
    Time,
    /// `timestamp`: milliseconds since the epoch
    Timestamp,
    /// `timeuuid`
    Timeuuid,
    /// `tinyint`
    Tinyint,
    /// `uuid`
    Uuid,
    /// `varint`
    Varint,
    /// `list<T>`
    List(Arc<CqlType>, Frozen),
    /// `set<T>`
    Set(Arc<CqlType>, Frozen),
    /// `map<K, V>`
    Map(Arc<CqlType>, Arc<CqlType>, Frozen),
    /// `tuple<…>`; always frozen
    Tuple(Arc<[CqlType]>),
    /// A user-defined type
    UserDefined(Arc<UserType>, Frozen),
    /// `vector<T, n>`; always frozen
    Vector(Arc<CqlType>, u16),
}

/// Whether a collection or user-defined type is stored as one value (frozen) or element by element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Frozen {
    /// One value
    Yes,
    /// Element by element
    No,
}

/// A user-defined type as the schema knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UserType {
    /// The keyspace it belongs to.
    pub keyspace: String,
    /// Its name, in its stored (case-folded or quoted) form.
    pub name: String,
    /// Field names and types, in order.
    pub fields: Vec<(String, CqlType)>,
}

impl CqlType {
    /// Whether values of this type are stored element by element, each with its own timestamp.
    pub fn is_multi_cell(&self) -> bool {
        matches!(
            self,
            CqlType::List(_, Frozen::No)
                | CqlType::Set(_, Frozen::No)
                | CqlType::Map(_, _, Frozen::No)
                | CqlType::UserDefined(_, Frozen::No)
        )
    }
}
