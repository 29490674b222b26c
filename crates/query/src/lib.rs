//! The meaning of CQL statements: planning (names, types and rules, once per statement), execution over tablets, and
//! the system tables.
//!
//! How a request travels: [`QueryEngine::execute_now`] answers prepared point reads and single-row writes without waiting and without
//! allocating more than the write itself; everything else goes through [`QueryEngine::answer`], which parses, binds ([`bind`]) to a plan ([`plan`]) and executes
//! ([`exec`]). Writes that depend on what is stored travel as programs ([`program`]) that every replica runs when it applies them.
//!
//! Always true: a plan is immutable and belongs to one version of its table, a statement planned for an older one is planned again before
//! it runs; nothing here waits except on the [`kv::Kv`] seam; every error that a client sees is a [`diorite_cql::protocol::CqlError`].
//! What is left out: replication and storage (below the seam), connections, frames and authentication (the node).

pub mod activity;
pub mod audit;
pub mod auth;
pub mod bind;
pub mod budget;
pub mod ddl;
pub mod engine;
pub mod error;
pub mod exec;
pub mod functions;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(test)]
mod golden;
pub mod index;
pub mod kv;
pub mod peers;
pub mod plan;
pub mod prepared;
pub mod program;
pub mod session;
mod statement_id;
mod steps;
pub mod system;
pub mod table;
pub mod tablets;
#[cfg(any(test, feature = "fuzzing"))]
#[cfg_attr(not(test), allow(dead_code, reason = "fuzz targets use a part of it"))]
mod testing;
pub mod trace;
pub mod types;
mod values;
pub mod view;

pub use activity::Operation;
pub use engine::{EngineConfig, QueryEngine};
pub use session::Session;
