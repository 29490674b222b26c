//! Checks whether a correct database could have given the answers that clients of a cluster received.
//!
//! A test records each operation with its start, its end and its outcome ([`Recorder`]), and checks afterwards: for
//! each key there is one order of the operations that agrees with the answers and with real time
//! ([`check_linearizable`]); everything acknowledged is there, and nothing refused ([`check_acknowledged`],
//! [`check_counter`], [`check_appended`], [`check_several`]); each cell was there for its lifetime
//! ([`check_expiring`]); the writes of one batch are read together ([`check_whole`]).
//!
//! Always true: an operation with an unknown outcome may have happened at any time after its start, or never; no
//! checker assumes either. A checker that cannot decide within its budget returns an error, never a pass. Nothing here
//! does I/O, reads a clock (the recorder is given one) or knows what a cluster is.
//!
//! Left out: transactions over several keys, and range reads; both need other checkers.

mod acknowledged;
mod appended;
mod excerpt;
mod expiring;
mod key;
mod linearizable;
mod operation;
mod prepare;
mod recorder;
mod search;
#[cfg(test)]
mod tests;
mod violation;
mod whole;
mod zones;

pub use acknowledged::{Insert, check_acknowledged, check_counter};
pub use appended::{Append, Several, check_appended, check_several};
pub use expiring::{Expiring, Look, check_expiring};
pub use linearizable::{check_linearizable, check_linearizable_within};
pub use operation::{Action, Ended, Operation, Value};
pub use recorder::{Full, Outcome, Recorder, Request, Ticket};
pub use violation::Violation;
pub use whole::check_whole;
