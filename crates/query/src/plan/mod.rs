//! Plans: statements with every name resolved, every type checked and every rule of CQL applied, to be executed many times.
//!
//! Plans are data: [`crate::bind`] makes them, [`crate::exec`] executes them.
//!
//! Always true: a plan is immutable and depends on the catalog only through the definitions of its tables, whose versions it names. Left
//! out: binding and execution.

pub mod budget;
pub mod condition;
pub mod explain;
pub mod index;
pub mod modify;
pub mod operation;
mod planned;
pub mod point;
pub mod predicate;
pub mod restrictions;
pub mod select;
pub mod selection;
mod statement;
pub mod term;
pub mod timeout;
pub mod values;

pub use budget::Budget;
pub use planned::Planned;
pub use statement::{BatchPlan, BlockPlan, Plan, check_batch};
