//! Local secondary indexes in a tablet: how it knows them, how they are filled and cleaned, and how they are read.
//!
//! A tablet stores a [`Specification`] of each of its indexes. From the entry of the log on that stores it, each write
//! to a row also writes the entries that follow from it (`diorite_model::index`), on every replica, without reading
//! anything. [`IndexStep`]s fill in the rows that were there before, remove entries of values that rows no longer have,
//! and end an index. A [reader](mod@read) takes rows from the entries and leaves it to the statement's filters to check
//! that they have the value. Where a tablet has no complete index, it reads the rows themselves.
//!
//! Always true: the rows that have a value are among those that the index names for it, in a tablet that says that the
//! index is complete; so an answer is that of a scan with the same filters. A step is a function of the tablet's state
//! and the entry. Left out: who proposes steps (the node).

mod check;
mod due;
mod moment;
mod named;
mod place;
mod read;
mod removals;
mod specification;
mod stale;
mod step;
#[cfg(test)]
mod tests;

pub use check::{Check, CheckedPart, Difference, Named, StepSize, Unchecked, check_part};
pub use due::{Due, due};
pub use moment::{Moment, Request, Unfinished, stored_specification};
pub use place::{NotAPlace, Place};
pub use read::{Found, first_row, read};
pub use removals::removals;
pub(crate) use specification::tablet_indexes;
pub use specification::{Compared, Dependent, Progress, Specification, specifications};
pub use step::{INDEXED, IndexReply, IndexStep, Part, adopted_records, is_adoptable, part};
pub(crate) use step::{adopt, begin_again, carry_out, compare_again};
