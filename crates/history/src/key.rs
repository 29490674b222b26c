//! Checks whether the operations of one key behaved like a register: prepares them, checks zones (fast and readable),
//! then searches (exact).

use crate::operation::Operation;
use crate::prepare::{Failure, prepare};
use crate::search::{NoOrder, search};
use crate::zones::check_zones;

/// The finding about one key.
pub(crate) enum Verdict {
    /// These operations contradict each other.
    Contradiction(Failure),
    /// No order reaches the end of this operation (an index).
    NoOrder(usize),
    /// The budget did not suffice.
    Undecided,
}

/// Checks the operations of one key, which are in the order of their starts.
pub(crate) fn check_key(operations: &[Operation], budget: usize) -> Result<(), Verdict> {
    let prepared = prepare(operations).map_err(Verdict::Contradiction)?;
    check_zones(operations, &prepared).map_err(Verdict::Contradiction)?;
    search(&prepared, budget).map_err(|error| match error {
        NoOrder::At(place) => Verdict::NoOrder(place),
        NoOrder::Undecided => Verdict::Undecided,
    })
}
