//! Where the logs of a group's voters end, for a replica whose own log may have lost its end (`suspects`).

use crate::group::timing::PING_NS;
use diorite_raft::LogPosition;
use std::collections::BTreeMap;

/// How long a voter's report of its log's end is valid, nanoseconds. Voters repeat it more often.
const FRESH_NS: u64 = 5 * PING_NS;

/// How long voters that have not reported are waited for, nanoseconds, once a quorum has: entries that only they hold
/// would be lost.
const OTHERS_TIMEOUT_NS: u64 = 30_000_000_000;

/// The ends of the other voters' logs, as reported.
#[derive(Debug, Default)]
pub(crate) struct Standings {
    reported: BTreeMap<u64, (LogPosition, u64)>,
    since_ns: Option<u64>,
}

impl Standings {
    /// Begins the wait for reports, if it has not begun.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.since_ns.get_or_insert(now_ns);
    }

    pub(crate) fn note(&mut self, node: u64, end: LogPosition, now_ns: u64) {
        self.reported.insert(node, (end, now_ns));
    }

    /// The least position at which the log of the next leader may end; `None` if too few voters have reported. `sets`:
    /// the voters; in a joint configuration both sets.
    pub(crate) fn least(&self, me: u64, own: LogPosition, sets: [&[u64]; 2], now_ns: u64) -> Option<LogPosition> {
        let fresh = |voter: &u64| {
            self.reported.get(voter).filter(|(_, reported_ns)| now_ns < reported_ns + FRESH_NS).map(|(end, _)| *end)
        };
        let is_known = |voter: &&u64| **voter == me || fresh(voter).is_some();
        let are_all_known = sets.iter().all(|voters| voters.iter().all(|voter| is_known(&voter)));
        let is_quorum_known =
            sets.iter().all(|voters| voters.is_empty() || voters.iter().filter(is_known).count() > voters.len() / 2);
        let has_waited = self.since_ns.is_some_and(|since_ns| now_ns >= since_ns + OTHERS_TIMEOUT_NS);
        let others = sets.into_iter().flatten().filter(|voter| **voter != me).filter_map(fresh);
        (are_all_known || (is_quorum_known && has_waited)).then(|| others.fold(own, LogPosition::max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: u64 = 1;

    fn end(term: u64, index: u64) -> LogPosition {
        LogPosition::new(index, term)
    }

    fn least(standings: &Standings, now_ns: u64) -> Option<LogPosition> {
        standings.least(ME, end(3, 10), [&[1, 2, 3], &[]], now_ns)
    }

    #[test]
    fn the_longest_log_of_all_or_after_a_while_of_a_quorum_is_what_may_lead() {
        let mut standings = Standings::default();
        standings.begin(0);
        assert_eq!(least(&standings, 0), None);
        standings.note(2, end(3, 8), 0);
        assert_eq!(least(&standings, 0), None, "the third may hold more");
        standings.note(3, end(3, 12), 0);
        assert_eq!(least(&standings, 0), Some(end(3, 12)));
        standings.note(3, end(2, 40), 1);
        assert_eq!(least(&standings, 1), Some(end(3, 10)), "terms come first");
        assert_eq!(least(&standings, FRESH_NS + 1), None, "that was long ago");
        standings.note(2, end(3, 11), OTHERS_TIMEOUT_NS);
        assert_eq!(least(&standings, OTHERS_TIMEOUT_NS - 1), None);
        assert_eq!(least(&standings, OTHERS_TIMEOUT_NS), Some(end(3, 11)), "the third was waited for");
        assert_eq!(least(&standings, OTHERS_TIMEOUT_NS + FRESH_NS), None, "alone it is no quorum");
    }

    #[test]
    fn while_two_sets_decide_both_have_to_be_known() {
        let mut standings = Standings::default();
        standings.begin(0);
        standings.note(2, end(3, 8), OTHERS_TIMEOUT_NS);
        let of_both = |standings: &Standings| standings.least(ME, end(3, 10), [&[1, 2], &[4, 5]], OTHERS_TIMEOUT_NS);
        assert_eq!(of_both(&standings), None);
        standings.note(4, end(4, 1), OTHERS_TIMEOUT_NS);
        assert_eq!(of_both(&standings), None);
        standings.note(5, end(1, 1), OTHERS_TIMEOUT_NS);
        assert_eq!(of_both(&standings), Some(end(4, 1)));
    }
}
