//! Bugs that tests plant, to test that their checks find them. Without the feature `planted-bugs` they can be planted
//! only in tests of this crate.

/// The bugs that can be planted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Planted {
    /// Participants are finished when the commit is sent, not when it is applied.
    pub finish_before_commit: bool,
    /// The home is asked to forget when the first participant has finished.
    pub forget_before_all_finished: bool,
    /// A question about an outcome is answered without a lease.
    pub status_without_lease: bool,
    /// The end of a transaction is acknowledged without a lease.
    pub finish_without_lease: bool,
    /// A commit is reported as lost without a lease.
    pub commit_without_lease: bool,
    /// A new leader appends writes that are no transactions before the first entry of its term is applied.
    pub write_before_ready: bool,
    /// A new leader answers questions about outcomes before the first entry of its term is applied.
    pub status_before_ready: bool,
    /// Reservations survive a change of leader, and the new leader commits them.
    pub reservation_survives: bool,
    /// The commit is not stamped above the prepares.
    pub commit_below_prepares: bool,
    /// A write that is no transaction passes a lock.
    pub write_through_lock: bool,
    /// A write is evaluated while earlier writes to the same rows are in flight.
    pub evaluate_in_flight: bool,
    /// A commit covers every prepare of its transaction, also one by a repeated message.
    pub any_prepare_is_covered: bool,
    /// A coordinator believes "aborted" at any time, also when a record may have been forgotten.
    pub believe_late_answers: bool,
    /// A record is forgotten when the participants have finished, however young it is.
    pub forget_young_records: bool,
    /// The second attempt asks the participants in parallel, too, and waits.
    pub wait_out_of_order: bool,
    /// Nobody asks about old locks.
    pub never_ask: bool,
    /// A read believes a promise after the lease of the leader that gave it may have ended.
    pub believe_promises: bool,
    /// A leader gives its lease up before its promises are in the log.
    pub promise_not_logged: bool,
    /// The prepares of one read are resolved as of different moments.
    pub resolve_without_stamp: bool,
    /// The entry that finishes a transaction is not stamped above its commit.
    pub finish_below_commit: bool,
    /// A read takes "aborted" for the truth about a prepare in its snapshot.
    pub believe_aborted: bool,
    /// A read does not begin again if it meets a commit above its stamp.
    pub miss_later_commits: bool,
    /// The client is answered at the commit although readers do not ask what has become of what is prepared.
    pub answer_before_finished: bool,
    /// A number that was issued in advance does not keep its transaction from being reported as aborted.
    pub aborted_while_in_advance: bool,
    /// What has a commit without a reservation is committed, whether its number was issued in advance or not.
    pub any_number_is_in_advance: bool,
    /// The answer to a commit of an earlier term brings a number of this one.
    pub number_of_another_term: bool,
    /// A commit without a reservation waits for its locks.
    pub wait_at_the_commit: bool,
    /// A reservation in force does not keep its transaction from being reported as aborted.
    pub aborted_while_reserved: bool,
    /// The rows of a prepare are unlocked when its end is appended, not when it is applied.
    pub unlock_at_the_end: bool,
}

impl Planted {
    /// These bugs, if this build can plant them; otherwise none.
    #[must_use]
    pub fn allowed(self) -> Self {
        if cfg!(any(test, feature = "planted-bugs")) {
            // A marker in binaries that can plant bugs; `.ci/run` searches released binaries for it.
            std::hint::black_box("diorite-with-planted-bugs");
            self
        } else {
            Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_have_the_bugs_that_they_ask_for_and_no_others() {
        let planted = Planted { never_ask: true, ..Planted::default() };
        assert_eq!(planted.allowed(), planted);
        assert_eq!(Planted::default().allowed(), Planted::default());
    }
}
