//! CQL's data types.
//!
//! Always true: a [`CqlType`] is fully resolved (a user-defined type carries its fields). What is left out: text syntax of types is the
//! `cql` crate's; how values of a type are encoded is in `value` (wire) and `key` (order-preserving).

pub mod display;

use diorite_base::limits::{self, Exceeded};
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

    /// The types that it is made of directly.
    fn visit_inner(&self, visit: &mut dyn FnMut(&CqlType)) {
        match self {
            CqlType::List(inner, _) | CqlType::Set(inner, _) | CqlType::Vector(inner, _) => visit(inner),
            CqlType::Map(key, value, _) => {
                visit(key);
                visit(value);
            }
            CqlType::Tuple(parts) => parts.iter().for_each(visit),
            CqlType::UserDefined(user_type, _) => user_type.fields.iter().for_each(|(_, field)| visit(field)),
            _ => {}
        }
    }

    /// Whether the type is within the limits. Visits at most as many parts as the limits allow.
    pub fn check_limits(&self) -> Result<(), Exceeded> {
        let mut parts = 0;
        self.check_within(1, &mut parts)
    }

    fn check_within(&self, depth: usize, parts: &mut usize) -> Result<(), Exceeded> {
        check_part(depth, parts)?;
        let mut outcome = Ok(());
        self.visit_inner(&mut |inner| {
            if outcome.is_ok() {
                outcome = inner.check_within(depth + 1, parts);
            }
        });
        outcome
    }
}

/// Counts a part of a type.
fn check_part(depth: usize, parts: &mut usize) -> Result<(), Exceeded> {
    *parts += 1;
    limits::check(&limits::TYPE_DEPTH, depth, || "a type".to_owned())?;
    limits::check(&limits::TYPE_PARTS, *parts, || "a type".to_owned())
}

impl UserType {
    /// Whether the user-defined type is within the limits, as [`CqlType::check_limits`].
    pub fn check_limits(&self) -> Result<(), Exceeded> {
        self.check_within(1, &mut 0)
    }

    /// As [`Self::check_limits`], for a part at depth `depth` of a type with `parts` parts before it, to which its own
    /// are added.
    pub fn check_within(&self, depth: usize, parts: &mut usize) -> Result<(), Exceeded> {
        check_part(depth, parts)?;
        self.fields.iter().try_for_each(|(_, field)| field.check_within(depth + 1, parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_base::limits::{MAX_TYPE_DEPTH, MAX_TYPE_PARTS};

    fn told(data_type: &CqlType) -> Result<(), &'static str> {
        data_type.check_limits().map_err(|error| error.name)
    }

    #[test]
    fn types_are_bounded_in_depth_and_parts() {
        let nested = |depth| (1..depth).fold(CqlType::Int, |inner, _| CqlType::List(Arc::new(inner), Frozen::Yes));
        assert_eq!(told(&nested(MAX_TYPE_DEPTH)), Ok(()));
        assert_eq!(told(&nested(MAX_TYPE_DEPTH + 1)), Err("TYPE_DEPTH"));
        let tuple = |parts| CqlType::Tuple(vec![CqlType::Int; parts].into());
        assert_eq!(told(&tuple(MAX_TYPE_PARTS - 1)), Ok(()));
        assert_eq!(told(&tuple(MAX_TYPE_PARTS)), Err("TYPE_PARTS"));
        // A tree of pairs: few types, many parts.
        let tree = (0..30).fold(CqlType::Int, |inner, _| CqlType::Tuple(vec![inner.clone(), inner].into()));
        assert_eq!(told(&tree), Err("TYPE_PARTS"));
    }
}
