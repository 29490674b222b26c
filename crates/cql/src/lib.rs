//! The Cassandra front end as text and bytes: [`language`] turns CQL text into a syntax tree and back, [`protocol`] encodes and
//! decodes the frames of the native protocol.
//!
//! Always true: nothing here does I/O, reads a clock or knows a schema; hostile input gives an error value, never a panic, and
//! the memory it takes is bounded by the size of the input. What is left out: resolving names and types, which needs a schema
//! and so belongs to the `query` crate.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod language;
pub mod protocol;
