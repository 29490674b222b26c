//! Binding: from a parsed statement to a plan. Names are resolved, types checked, and CQL's rules applied, once for many executions.
//!
//! ```text
//! statement ─▶ select ─▶ selection ─▶ selector ─▶ term, call, arithmetic, typing ─▶ binder
//!           └▶ modify ─▶ restrictions ─▶ relation ─▶ predicate ─▶ selector
//! ```
//!
//! Always true: binding neither waits nor reads data; each module uses only those to its right, and [`crate::plan`] has
//! no use of any of them. The messages of errors are Cassandra's. Left out: choosing between ways to execute (there is
//! one), secondary indexes.

mod arithmetic;
mod binder;
mod call;
mod condition;
mod covering;
mod explain;
mod fields;
mod implied;
mod index;
mod known;
mod literal;
mod modify;
mod operation;
mod predicate;
mod receiver;
mod relation;
mod restrictions;
mod select;
mod selection;
mod selector;
mod selector_built;
mod selector_call;
mod selector_text;
mod statement;
mod term;
#[cfg(test)]
mod tests;
mod timeout;
mod typing;

pub use restrictions::ALLOW_FILTERING_MESSAGE;
pub use statement::{plan, plan_within};
