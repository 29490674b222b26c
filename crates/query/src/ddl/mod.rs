//! Statements that define the schema: from their syntax tree to a command of the catalog, and the answer to the client.
//!
//! [`plan`] judges a statement against a snapshot of the catalog and gives either the answer (`USE`, a change that is none) or the command
//! to propose; [`execute`] proposes it and, where another change came in between, plans again against the newer snapshot.
//!
//! Always true: `plan` is a pure function; the rules and, where tools look at them, the messages are Cassandra's. Departures, each on
//! purpose: `replication` may be left out (YCQL's short form); a dropped column's name may be given to a column of any type, because data
//! is stored by column ids that are never reused.
//! What is left out: functions, triggers, roles (refused by name), and `DESCRIBE` ([`describe`]), which changes nothing.

mod alter;
mod awaited;
mod context;
pub(crate) mod covering;
pub mod describe;
pub mod index;
mod indexable;
mod keyspace;
mod names;
pub mod options;
mod place;
pub mod predicate;
mod statement;
mod table;
#[cfg(test)]
mod tests;
pub mod text;
mod type_names;
mod unique;
mod user_type;
pub mod view;
mod viewed;

pub use context::{Context, Defaults, Plan};
pub use names::{RESERVED_KEYSPACES, is_reserved_keyspace};
pub use statement::{execute, handles, plan};
pub(crate) use table::define_table;
pub use type_names::{Mentioned, resolve_type};
