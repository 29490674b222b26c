//! Execution of plans.
//!
//! Reads: [`select`] turns a plan into units (partitions or token ranges), fetches entries through [`source`] and hands them to a
//! [`collect::Collector`], which folds entries into rows, filters, aggregates and encodes. What is aggregated or grouped is handed to a collector
//! where its tablet is led ([`fold`]). Writes: [`modify`] turns a plan into packed
//! rows and programs, [`mod@write`] packs rows; [`parts`] says what the client is told of a write to several tablets that failed.
//!
//! Always true: nothing waits except in `select` and `run`, on the [`crate::kv::Kv`] seam; what is held in memory for one request is bounded by the page, or by one
//! scan chunk per tablet. Left out: the requests that need none of this ([`crate::hot`]).

pub mod aggregate;
pub mod collect;
pub mod evaluate;
pub mod filter;
pub mod fold;
pub mod keys;
pub mod modify;
pub mod outcome;
pub mod paging;
pub mod parts;
pub mod predicate;
pub mod row;
pub mod select;
pub mod source;
mod together;
pub mod write;
