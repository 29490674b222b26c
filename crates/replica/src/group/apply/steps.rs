//! The steps of transactions in an entry of the log, before they are applied.
//!
//! Always true: what is applied follows from the state and the entry. Left out: what a step does
//! ([`diorite_transact::records`]).

use crate::group::replica::Replica;
use diorite_base::bytes::Malformed;
use diorite_raft::{Entry, LogPosition};
use diorite_storage::Engine;
use diorite_transact::step::{Step, decode_steps};

/// The steps of an entry. The replica that has appended it need not decode them.
pub(super) fn steps_of<E: Engine>(
    replica: &mut Replica<E>,
    entry: &Entry,
    encoded: &[u8],
) -> Result<Vec<Step>, Malformed> {
    let led = replica.writes.transactions.led.as_deref_mut();
    let Some(steps) = led.and_then(|led| led.appended.take(LogPosition::from(entry), encoded.len())) else {
        return decode_steps(encoded);
    };
    debug_assert_eq!(decode_steps(encoded).as_ref(), Ok(&steps), "what is kept of an entry is what it says");
    Ok(steps)
}

/// Whether applying a step runs programs whose changes depend on what is stored. A prepare of the same entry does not
/// matter: it has the stamp of that entry, and an end names the stamp of an earlier one.
pub(super) fn reads_stored<E: Engine>(replica: &Replica<E>, step: &Step) -> bool {
    let records = &replica.writes.transactions.records;
    let ended = if let Step::Finish { id, .. } = step { records.prepared(id) } else { None };
    let staged = ended.map_or(&[][..], |record| &record.prepare.operations[..]);
    let mut run = step.operations().iter().chain(staged);
    step.runs_programs() && run.any(|operation| replica.evaluator.reads(&operation.program))
}
