//! Counters of how transactions over several tablets have ended, at the node that coordinates them, and of reads of their
//! tables without snapshots.
//!
//! Always true: a transaction is counted once, when its client is answered. Left out: those whose request was ended
//! before that.

use std::sync::atomic::{AtomicU64, Ordering};

/// How a transaction has ended for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransactionEnd {
    /// It was carried out.
    Applied,
    /// A condition was not satisfied.
    ConditionFailed,
    /// Others held its rows for too long.
    Conflict,
    /// A tablet could not be reached, or did not take its part now. Nothing was done.
    Unavailable,
    /// It may have been carried out, or may still be.
    Unknown,
    /// It cannot be carried out as it is: an operation of it is impossible, or a tablet has refused its part for good.
    Impossible,
}

/// See the top of this module.
#[derive(Debug, Default)]
pub struct TransactionOutcomes {
    ends: [AtomicU64; 6],
    /// Reads without a snapshot: those of one moment, and those that were repeated.
    reads: [AtomicU64; 2],
}

impl TransactionOutcomes {
    /// The names of the outcomes, as metrics have them, with the number of transactions.
    pub fn by_name(&self) -> [(&'static str, u64); 6] {
        let names = ["applied", "condition_failed", "conflict", "unavailable", "unknown", "impossible"];
        let mut counts = self.ends.iter().map(|count| count.load(Ordering::Relaxed));
        names.map(|name| (name, counts.next().unwrap_or(0)))
    }

    pub(super) fn note(&self, end: TransactionEnd) {
        self.ends[end as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The names of what has become of reads without a snapshot, as metrics have them, with the number of reads.
    pub fn reads_by_name(&self) -> [(&'static str, u64); 2] {
        let [unchanged, changed] = &self.reads;
        [("unchanged", unchanged), ("changed", changed)].map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }

    pub(super) fn note_read(&self, is_unchanged: bool) {
        self.reads[usize::from(!is_unchanged)].fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_its_name() {
        let ends = [
            (TransactionEnd::Applied, "applied"),
            (TransactionEnd::ConditionFailed, "condition_failed"),
            (TransactionEnd::Conflict, "conflict"),
            (TransactionEnd::Unavailable, "unavailable"),
            (TransactionEnd::Unknown, "unknown"),
            (TransactionEnd::Impossible, "impossible"),
        ];
        for (end, name) in ends {
            let outcomes = TransactionOutcomes::default();
            outcomes.note(end);
            let counted: Vec<_> = outcomes.by_name().into_iter().filter(|(_, count)| *count > 0).collect();
            assert_eq!(counted, [(name, 1)]);
        }
        let outcomes = TransactionOutcomes::default();
        [true, false, true].into_iter().for_each(|is_unchanged| outcomes.note_read(is_unchanged));
        assert_eq!(outcomes.reads_by_name(), [("unchanged", 2), ("changed", 1)]);
    }
}
