//! Counters of what the leaders of a store's tablets do for transactions over several tablets.
//!
//! Always true: a step is counted when its leader has applied it, so that it is counted on one node, once.

use diorite_transact::message::{Refusal, Reply};
use diorite_transact::peer::PeerCall;
use diorite_transact::step::{Ending, Step};
use std::sync::atomic::{AtomicU64, Ordering};

/// See the top of this module.
#[derive(Debug, Default)]
pub struct TransactionCounters {
    /// Transactions that were prepared in a tablet.
    pub prepared: AtomicU64,
    /// Transactions that were committed by their home.
    pub committed: AtomicU64,
    /// Prepares that ended with their rows written.
    pub finished_committed: AtomicU64,
    /// Prepares that ended with their rows dropped.
    pub finished_aborted: AtomicU64,
    /// Reservations and prepares that were refused because their rows were held for too long.
    pub refused: AtomicU64,
    /// Writes that are no transactions, and waited for rows that transactions held.
    pub writes_waited: AtomicU64,
    /// Writes that are no transactions, and were refused because their rows were held for too long.
    pub writes_refused: AtomicU64,
    /// Questions to homes about prepares that are old.
    pub home_questions: AtomicU64,
    /// Calls by which homes have finished participants that their coordinators had not finished.
    pub finished_by_home: AtomicU64,
    /// Snapshots that were taken for reads of several tablets.
    pub snapshots_taken: AtomicU64,
    /// Snapshots that were refused because the tablet had stamped above their stamp.
    pub snapshots_too_late: AtomicU64,
}

impl TransactionCounters {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// The leader has applied a step.
    pub(crate) fn note_step(&self, step: &Step) {
        Self::add(match step {
            Step::Prepare(_) => &self.prepared,
            Step::Commit(_) => &self.committed,
            Step::Finish { ending: Ending::Committed { .. }, .. } => &self.finished_committed,
            Step::Finish { ending: Ending::Aborted, .. } => &self.finished_aborted,
            Step::Forget(_) => return,
        });
    }

    /// The leader answers a coordinator.
    pub(crate) fn note_reply(&self, reply: &Reply) {
        let refusal = match reply {
            Reply::NotReserved { refusal, .. } | Reply::NotPrepared { refusal, .. } => Some(refusal),
            _ => None,
        };
        if matches!(refusal, Some(Refusal::Held)) {
            Self::add(&self.refused);
        }
    }

    /// The leader calls another tablet.
    pub(crate) fn note_call(&self, call: &PeerCall) {
        Self::add(match call {
            PeerCall::Ask { .. } => &self.home_questions,
            PeerCall::Finish { .. } => &self.finished_by_home,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_base::{TableId, TabletId};
    use diorite_transact::step::{Commit, Prepare};
    use diorite_transact::targets::Targets;
    use diorite_transact::{Home, TransactionId};
    use std::sync::Arc;

    #[test]
    fn steps_replies_and_calls_are_counted_by_what_they_are() {
        let counters = TransactionCounters::default();
        let id = TransactionId { tablet: TabletId(7), term: 1, number: 1 };
        let home = Home { table: TableId(1), key: b"k".to_vec(), tells_readers: true };
        let prepare = Prepare { id, home: home.clone(), targets: Targets::default(), operations: Arc::default() };
        let committed = Ending::Committed { prepared_us: 1, committed_us: 2 };
        let steps = [
            Step::Prepare(prepare),
            Step::Commit(Commit { id, prepared: Vec::new(), operations: Arc::default() }),
            Step::Finish { id, ending: committed },
            Step::Finish { id, ending: Ending::Aborted },
            Step::Forget(vec![id]),
        ];
        steps.iter().for_each(|step| counters.note_step(step));
        let replies = [Refusal::Held, Refusal::ConditionFailed].map(|refusal| Reply::NotPrepared { id, refusal });
        replies.iter().for_each(|reply| counters.note_reply(reply));
        counters.note_call(&PeerCall::Ask { home, id, prepared_us: 1 });
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ended = [&counters.finished_committed, &counters.finished_aborted];
        assert_eq!([&counters.prepared, &counters.committed].map(read), [1, 1]);
        assert_eq!(ended.map(read), [1, 1]);
        assert_eq!([&counters.refused, &counters.home_questions, &counters.finished_by_home].map(read), [1, 1, 0]);
    }
}
