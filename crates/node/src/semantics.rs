//! Ties the row model to storage: what merging and expiry mean.

use diorite_model::entry;
use diorite_storage::{CompactionTime, CompactionVerdict, ValueSemantics};

/// Rows and partition headers, as the `model` crate defines them.
pub(crate) struct RowSemantics;

impl ValueSemantics for RowSemantics {
    fn fold<'a>(&self, existing: Option<&'a [u8]>, operands: &mut dyn Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        let mut folded = Vec::new();
        entry::fold(existing, operands, &mut folded).ok()?;
        Some(folded)
    }

    fn compact(&self, _key: &[u8], value: &[u8], time: &CompactionTime) -> CompactionVerdict {
        // A partition header may go only when the rows under it are gone: its program removes them when no client's timestamp can be newer,
        // otherwise they may still be there, and the filter, which sees one entry at a time, cannot tell.
        let must_stay = time.has_explicit_timestamps && entry::is_header(value);
        let purge_before_s = if must_stay { 0 } else { time.purge_before_s };
        match entry::compact(value, time.now_s, purge_before_s) {
            entry::Compaction::Keep => CompactionVerdict::Keep,
            entry::Compaction::Remove => CompactionVerdict::Remove,
            entry::Compaction::Replace(value) => CompactionVerdict::Replace(value),
        }
    }
}
