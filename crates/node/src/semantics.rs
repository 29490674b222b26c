//! Ties the row model to storage: what merging and expiry mean.

use diorite_model::entry;
use diorite_storage::{CompactionVerdict, ValueSemantics};

/// Rows and partition headers, as the `model` crate defines them.
pub(crate) struct RowSemantics;

impl ValueSemantics for RowSemantics {
    fn fold<'a>(&self, existing: Option<&'a [u8]>, operands: &mut dyn Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        let mut folded = Vec::new();
        entry::fold(existing, operands, &mut folded).ok()?;
        Some(folded)
    }

    fn compact(&self, _key: &[u8], value: &[u8], now_s: u32, purge_before_s: u32) -> CompactionVerdict {
        match entry::compact(value, now_s, purge_before_s) {
            entry::Compaction::Keep => CompactionVerdict::Keep,
            entry::Compaction::Remove => CompactionVerdict::Remove,
            entry::Compaction::Replace(value) => CompactionVerdict::Replace(value),
        }
    }
}
