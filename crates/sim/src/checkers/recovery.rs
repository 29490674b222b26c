//! When all nodes run and the network is whole, every tablet takes reads and writes again, and all its replicas catch up.

use super::Finding;
use diorite_base::TabletId;

/// The state of a tablet some time after the last fault.
#[derive(Clone, Debug)]
pub struct State {
    /// The tablet.
    pub tablet: TabletId,
    /// Whether a node would answer reads of it.
    pub has_leaseholder: bool,
    /// Whether its replicas are where they are wanted, and nowhere else.
    pub is_placed: bool,
    /// The applied indexes of its replicas.
    pub applied: Vec<u64>,
    /// Whether a write that was submitted after the last fault was acknowledged.
    pub takes_writes: bool,
    /// Whether a replica still holds rows for a transaction that has not ended there.
    pub holds_rows: bool,
}

/// Whether the tablet has recovered.
pub fn has_recovered(state: &State) -> bool {
    state.has_leaseholder
        && state.takes_writes
        && state.is_placed
        && !state.holds_rows
        && state.applied.windows(2).all(|pair| pair[0] == pair[1])
}

/// Reports the tablets that have not recovered in time.
pub fn check(at_ns: u64, states: &[State]) -> Result<(), Finding> {
    let stalled: Vec<String> =
        states.iter().filter(|state| !has_recovered(state)).map(|state| format!("{state:?}")).collect();
    if stalled.is_empty() {
        return Ok(());
    }
    Err(Finding { checker: "recovery", at_ns, message: format!("not recovered: {}", stalled.join(", ")) })
}
