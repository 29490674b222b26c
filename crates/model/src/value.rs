//! Values: wire bytes seen through their type. Validation, order, text, and the decoded form.
//!
//! Always true: the wire form is protocol v3 and later; [`compare`] agrees with the byte order of the key codec; what [`CqlType::validate`](crate::types::CqlType::validate)
//! accepted never fails later. Left out: null, which is the absence of bytes and the caller's to represent.

pub mod calendar;
mod canonical;
pub mod collection;
mod decoded;
pub mod json;
pub mod literal;
mod order;
mod render;
mod span;
mod sum;
mod temporal;
#[cfg(test)]
mod tests;
mod validate;

use num_bigint::BigInt;
use std::net::IpAddr;
use thiserror::Error;
use uuid::Uuid;

pub use canonical::canonical;
pub use order::compare;
pub use render::{literal_text, plain_decimal};
pub use sum::{is_summable, sum};
#[cfg(test)]
pub(crate) use validate::DAY_NS;

/// Why bytes are not a value of their type. The messages are Cassandra's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ValueError(pub String);

/// A decoded value. Counters are `Bigint`.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "each variant is the CQL type of its name")]
pub enum Value {
    /// The zero-length value that Cassandra allows for most types.
    Empty,
    Ascii(String),
    Bigint(i64),
    Blob(Vec<u8>),
    Boolean(bool),
    Date(u32),
    /// Unscaled value and scale.
    Decimal(BigInt, i32),
    Double(f64),
    Duration {
        months: i32,
        days: i32,
        nanoseconds: i64,
    },
    Float(f32),
    Inet(IpAddr),
    Int(i32),
    /// The text of the document.
    Jsonb(String),
    Smallint(i16),
    Text(String),
    Time(i64),
    Timestamp(i64),
    Timeuuid(Uuid),
    Tinyint(i8),
    Uuid(Uuid),
    Varint(BigInt),
    List(Vec<Value>),
    Set(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Tuple(Vec<Option<Value>>),
    UserDefined(Vec<Option<Value>>),
    Vector(Vec<Value>),
}
