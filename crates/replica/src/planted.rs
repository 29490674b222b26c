//! Bugs that the simulation plants, to test that its checkers find them. Without the feature `planted-bugs` none can be
//! planted.

/// The bugs that can be planted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    /// The log is written, but never synced.
    pub skip_fsync: bool,
    /// A node that was restarted votes and campaigns at once.
    pub ignore_restart_wait: bool,
    /// The last applied entry is applied again after a restart.
    pub apply_twice: bool,
    /// A node that led answers reads until it knows another leader, with or without a lease.
    pub answer_without_lease: bool,
    /// A replica that came back without its log votes and campaigns at once.
    pub forget_floor: bool,
    /// A replica that came back without its log votes like any other, and only does not campaign.
    pub vote_without_condition: bool,
    /// A tablet that is split keeps its lease, and still answers reads.
    pub keep_lease_when_split: bool,
    /// A prepared child begins without the entries that its parent's log received after the preparation.
    pub forget_parents_log: bool,
    /// The log of a child that began as a copy is truncated by its parent's durable index.
    pub keep_own_in_memory: bool,
    /// If a log makes no progress, the followers are freed and the lease is not revoked.
    pub free_without_revoking: bool,
    /// A change of the data does not change its version.
    pub keep_version: bool,
    /// A snapshot shows rows that a transaction has written, without their index entries.
    pub pin_without_entries: bool,
}

impl Planted {
    /// These bugs, if this build can plant them; otherwise none.
    pub(crate) fn allowed(self) -> Self {
        if cfg!(feature = "planted-bugs") {
            // A marker in binaries that can plant bugs; `.ci/run` searches released binaries for it.
            std::hint::black_box("diorite-with-planted-bugs");
            self
        } else {
            Self::default()
        }
    }
}
