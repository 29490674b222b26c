//! Execution of plans.
//!
//! Reads: [`select`] turns a plan into partitions or token ranges, fetches their entries through [`source`] and gives them to a
//! [`collect::Collector`], which assembles rows, filters, aggregates and encodes them. Rows that are aggregated or grouped go to a collector
//! on the node that leads their tablet ([`pushdown`]). Writes: [`modify`] turns a plan into packed rows and programs, [`mod@write`] packs
//! rows; [`parts`] decides what the client is told of a write to several tablets that failed.
//!
//! Always true: nothing waits except on the [`crate::kv::Kv`] seam; what is held in memory for one request is bounded by the page, or by one
//! scan chunk per tablet. Left out: point statements, which need none of this ([`crate::engine`]).

pub mod aggregate;
mod ahead;
pub mod attempts;
mod by_index;
mod cells;
pub mod collect;
pub mod evaluate;
pub mod explain;
pub mod filter;
mod finish;
pub mod homes;
pub mod keys;
pub mod modify;
pub mod outcome;
pub mod paging;
pub mod partial;
pub mod parts;
mod piece;
pub mod predicate;
pub mod pushdown;
pub mod raw;
pub mod read;
pub mod row;
mod scan;
pub mod select;
pub mod snapshot;
pub mod source;
pub mod table_part;
mod tested;
mod together;
mod touched;
mod turns;
pub mod write;
