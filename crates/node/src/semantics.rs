//! Implements storage's interface for merging and expiry with the row model.

use diorite_base::Horizon;
use diorite_model::{entry, row};
use diorite_storage::{CompactionVerdict, ValueSemantics};

/// Rows and partition headers, as the `model` crate defines them.
pub(crate) struct RowSemantics;

impl ValueSemantics for RowSemantics {
    fn fold<'a>(&self, existing: Option<&'a [u8]>, operands: &mut dyn Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        let mut folded = Vec::new();
        entry::fold(existing, operands, &mut folded).ok()?;
        Some(folded)
    }

    fn fold_apart(&self, operands: &[&[u8]]) -> Option<Vec<u8>> {
        if !entry::can_fold_apart(operands.iter().copied()) {
            return None;
        }
        self.fold(None, &mut operands.iter().copied())
    }

    fn compact(&self, _key: &[u8], value: &[u8], horizon: &Horizon) -> CompactionVerdict {
        match entry::compact(value, *horizon) {
            entry::Compaction::Keep => CompactionVerdict::Keep,
            entry::Compaction::Remove => CompactionVerdict::Remove,
            entry::Compaction::Replace(value) => CompactionVerdict::Replace(value),
        }
    }

    fn is_dead(&self, value: &[u8], now_s: u32) -> bool {
        entry::is_dead(value, now_s)
    }

    fn without_content(&self, value: &[u8]) -> Option<Vec<u8>> {
        entry::without_content(value)
    }

    fn longest_ttl_s(&self, value: &[u8]) -> u32 {
        entry::longest_ttl_s(value)
    }

    fn awaits_time(&self, value: &[u8]) -> bool {
        entry::is_header(value) || !row::is_plain(value)
    }
}

#[cfg(test)]
mod tests;
