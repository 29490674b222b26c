//! The durations of the protocol, on the monotonic clock of whoever measures.
//!
//! Always true: no answer is wrong because a clock is wrong, with one exception. A home forgets a record that no
//! coordinator has released only after [`Timing::keep_record_ns`], and a coordinator takes "aborted" for definite only
//! within [`Timing::definite_ns`] after it has sent the commit. The second is half of the first, so monotonic clocks
//! may differ in rate by almost a factor of two.

const SECOND_NS: u64 = 1_000_000_000;

/// See the top of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// How long a reservation lives that is not committed.
    pub reservation_ns: u64,
    /// The age of a lock at which its tablet asks the home.
    pub ask_ns: u64,
    /// The age of a record at which the home's leader finishes the participants itself.
    pub sweep_ns: u64,
    /// The age up to which a record is kept that the coordinator has not released.
    pub keep_record_ns: u64,
    /// How long after the commit was sent a coordinator takes "aborted" for definite.
    pub definite_ns: u64,
    /// How long a request waits for locks.
    pub wait_ns: u64,
    /// How long a coordinator tries.
    pub attempts_ns: u64,
    /// How often a coordinator tries.
    pub attempts: u32,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            reservation_ns: 5 * SECOND_NS,
            ask_ns: SECOND_NS / 2,
            sweep_ns: SECOND_NS / 2,
            keep_record_ns: 10 * SECOND_NS,
            definite_ns: 5 * SECOND_NS,
            wait_ns: 1_800_000_000,
            attempts_ns: 2 * SECOND_NS,
            attempts: 16,
        }
    }
}
