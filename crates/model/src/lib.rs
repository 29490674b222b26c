//! The data model as bytes: types and values, schema objects, tokens, the order-preserving key codec, packed rows and how they merge.
//!
//! Always true: nothing here does I/O, reads a clock or draws random numbers; every function is a pure function of its arguments, and
//! none panics on bytes that come from outside. Left out: CQL text (crate `cql`), who calls what when (crates `query`, `storage`).
//!
//! # The API in one page
//!
//! **Values.** A value is its CQL wire bytes together with a [`CqlType`](types::CqlType).
//! - [`CqlType::validate`](types::CqlType::validate) checks bytes that a client sent; [`value::canonical`] then sorts and deduplicates
//!   frozen sets and maps (it borrows when there is nothing to do). Do both once, when a value is bound.
//! - [`value::compare`] orders two wire values as Cassandra does; [`value::literal_text`] renders one as a CQL literal;
//!   [`value::Value`] is the decoded form for code that needs to look inside.
//! - [`value::literal::from_literal`] turns the text of a CQL constant into wire bytes with Cassandra's acceptance rules.
//! - [`value::collection`] reads and builds collections, tuples and user-defined types element by element.
//!
//! **Keys.** Build a [`key::KeyLayout`] once per table version, then per request:
//! ```text
//! let token = layout.encode_partition(components, &mut key)?;   // token + partition columns
//! key::push_row(&mut key);                                      // or push_static / push_header
//! layout.push_clustering(0, wire, &mut key)?;                   // ... each clustering column in order
//! ```
//! Ranges of clustering rows come from [`key::KeyLayout::slice`], whole partitions from [`key::push_partition_end`], token ranges from
//! [`key::push_token_start`] and [`key::push_token_end`]. [`key::KeyLayout::decode`] gives the columns back as wire bytes.
//!
//! **Rows.** [`row::RowWriter`] appends a packed row to a buffer; give it [`row::UNSTAMPED`] as base when the leader is to stamp it.
//! [`row::LiveRow`] is the read side: it yields live cells in column order at a given second, with an optional outer deletion applied.
//! [`row::RowReader`] shows everything that is stored, dead or alive.
//!
//! **Multi-cell columns.** Elements are addressed by *paths*: [`row::element_path`] for sets, maps and user-defined types,
//! [`row::unplaced_list_path_append`] and [`row::unplaced_list_path_prepend`] for lists, whose places the log decides ([`row::place_lists`]). [`row::LiveComplex::assemble`] builds the wire value of the column.
//!
//! **Partition headers.** [`deletions::DeletionsWriter`] packs a partition deletion and range deletions; [`deletions::Deletions`] reads them.
//!
//! **Storage.** [`entry::fold`] is the merge operator (full and partial), [`entry::compact`] the compaction filter; both take rows and
//! partition headers alike.

pub mod deletions;
pub mod entry;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(test)]
mod golden;
pub mod index;
pub mod json;
pub mod key;
pub mod row;
pub mod schema;
#[cfg(test)]
mod testing;
pub mod token;
pub mod types;
pub mod value;

pub use diorite_base::bytes::Malformed;
