//! The scalar functions of CQL over wire values.
//!
//! Always true: a function sees valid values of its argument types and gives a valid value of its result type; a null argument gives
//! null, except where a signature says otherwise. Time and randomness come from the [`Environment`]. Left out: aggregates
//! ([`crate::exec`]), user-defined functions, and the functions of how a cell was written, which need the cell.

pub mod arithmetic;
mod call;
mod cast;
mod collections;
pub mod document;
mod environment;
mod function;
pub mod generic;
pub mod mask;
pub mod math;
mod moment;
pub mod number;
mod overloads;
#[cfg(test)]
mod tests;
mod token;
pub mod vector;

pub use call::hex;
pub use cast::{cast, is_castable};
pub use environment::{Environment, UuidSource};
pub use function::{Function, Signature};
pub use overloads::{is_aggregate, is_from_json, overloads};
pub use token::{partition_hash, token_of};
