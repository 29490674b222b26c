//! Purging while operands are merged into values.
//!
//! RocksDB does not show the result of a merge to the compaction filter of the same compaction, so a row that was
//! written as an operand would be written once more as a value before it can be removed. In a compaction that is to
//! remove expired rows, the merge operator judges the result as the filter would.
//!
//! Always true: only merges of a compaction on this thread are concerned; a value is judged at the horizon that the
//! filter of the same compaction uses. The operator cannot remove a row: it leaves a value without content, which the
//! next compaction removes.

use crate::semantics::{CompactionVerdict, ValueSemantics};
use diorite_base::Horizon;
use std::cell::Cell;

/// What a compaction has done with the rows that it merged from operands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Purged {
    /// Rows of which nothing is left but a value without content.
    pub(crate) emptied: u64,
    pub(crate) kept: u64,
    /// Whether a later horizon alone would let more of them go.
    pub(crate) awaits_time: bool,
}

thread_local! {
    static PURGING: Cell<Option<(Horizon, Purged)>> = const { Cell::new(None) };
}

/// Runs a compaction whose merges purge what is past this horizon.
pub(crate) fn purging<T>(horizon: Horizon, compact: impl FnOnce() -> T) -> (T, Purged) {
    PURGING.set(Some((horizon, Purged::default())));
    let done = compact();
    (done, PURGING.take().map(|(_, purged)| purged).unwrap_or_default())
}

/// What a compaction that purges stores for a value that was merged; without one, the value. Called by the merge
/// operator.
#[inline]
pub(crate) fn purged(semantics: &dyn ValueSemantics, key: &[u8], merged: Vec<u8>) -> Vec<u8> {
    let Some((horizon, mut counts)) = PURGING.get() else { return merged };
    let judged = match semantics.compact(key, &merged, &horizon) {
        CompactionVerdict::Remove => semantics.without_content(&merged).ok_or(merged),
        CompactionVerdict::Replace(value) => Err(value),
        CompactionVerdict::Keep => Err(merged),
    };
    match &judged {
        Ok(_) => counts.emptied += 1,
        Err(kept) => {
            counts.kept += 1;
            counts.awaits_time |= semantics.awaits_time(kept);
        }
    }
    PURGING.set(Some((horizon, counts)));
    judged.unwrap_or_else(|kept| kept)
}
