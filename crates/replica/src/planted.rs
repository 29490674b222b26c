//! Bugs that the simulation plants, to see that its checkers find them. Without the feature `planted-bugs` there are none, whatever is asked for.

/// Which bugs there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    /// The log is written, but never synced.
    pub skip_fsync: bool,
    /// A node that was restarted votes and campaigns at once.
    pub ignore_restart_wait: bool,
    /// After a restart the last entry that was applied is applied again.
    pub apply_twice: bool,
    /// A node that led answers reads until it knows another leader, whether its lease still lasts or not.
    pub answer_without_lease: bool,
    /// A replica that came back without its log votes and campaigns at once.
    pub forget_floor: bool,
    /// A tablet that is split keeps its lease, and answers on.
    pub keep_lease_when_split: bool,
    /// A child that was prepared begins without what its parent's log got since.
    pub forget_parents_log: bool,
    /// The log of a child that began as a copy is truncated by what is durable of its parent.
    pub keep_own_in_memory: bool,
    /// Of a log that makes no progress the followers are freed, and the lease is not taken away.
    pub free_without_revoking: bool,
}

impl Planted {
    /// None, unless this was built to have some.
    pub(crate) fn allowed(self) -> Self {
        if cfg!(feature = "planted-bugs") {
            // In a binary that has the switches; what is released is searched for it (`.ci/run`).
            std::hint::black_box("diorite-with-planted-bugs");
            self
        } else {
            Self::default()
        }
    }
}
