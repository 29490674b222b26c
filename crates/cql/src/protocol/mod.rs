//! The CQL native protocol, versions 3, 4 and 5, as bytes in and bytes out.
//!
//! How a request travels: [`framing::Inbound`] turns what arrives on a connection into [`envelope::Envelope`]s (undoing v5's checksummed
//! [`segment`]s and [`compression`]); [`request::Message::decode`] turns an envelope's body into a [`request::Request`] that borrows from it;
//! the answer is appended to [`framing::Outbound`]'s buffer by [`response`] or [`rows`], and `Outbound` wraps it for the wire.
//!
//! Always true: nothing here does I/O; no input panics; nothing is allocated from a count that a peer claims before the bytes are there;
//! decoding an EXECUTE and encoding a one-row answer allocate nothing. Errors are [`error::CqlError`]s that can be sent as they are.
//! What is left out: sockets, timeouts and the order of a connection's life (the node), what statements mean (the query layer),
//! Cassandra's v1 and v2, and v5's beta.

pub mod client;
pub mod compression;
pub mod consistency;
pub mod envelope;
pub mod error;
pub mod event;
pub mod framing;
pub mod reply;
pub mod request;
pub mod response;
pub mod rows;
pub mod segment;
pub mod types;
pub mod values;
pub mod version;
pub mod wire;

pub use compression::Compression;
pub use consistency::Consistency;
pub use envelope::{Envelope, FrameError, Opcode};
pub use error::{CqlError, ErrorCode, ErrorKind, WriteType};
pub use event::{Event, SchemaChange, SchemaTarget};
pub use framing::{Inbound, Outbound};
pub use request::{Batch, BatchKind, Execute, Message, Query, QueryParameters, Request};
pub use response::{Extras, Prepared, Response};
pub use rows::{ColumnSpec, ResultMetadata, Rows, RowsWriter};
pub use types::{NativeType, TypeOption, UserTypeOption};
pub use values::{Value, Values};
pub use version::Version;

#[cfg(test)]
mod tests;
