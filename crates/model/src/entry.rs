//! What storage calls without knowing what a value holds: the merge operator and the compaction filter over rows and partition headers.
//!
//! Always true: the two kinds of value are told apart by the two highest bits of byte 0, and a key never holds both.

use crate::{deletions, row};
use diorite_base::bytes::Malformed;

/// The bits of byte 0 that name the format of a value.
pub(crate) const FORMAT_MASK: u8 = 0xC0;
/// A packed row, version 1.
pub(crate) const FORMAT_ROW: u8 = 0x40;
/// A partition header, version 1.
pub(crate) const FORMAT_DELETIONS: u8 = 0x80;

/// What compaction does with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compaction {
    /// It stays as it is.
    Keep,
    /// Nothing of it is needed.
    Remove,
    /// This takes its place.
    Replace(Vec<u8>),
}

/// Folds `operands` (oldest first) onto `existing` and writes the result to `out`, which is cleared first. Full and partial merge alike.
pub fn fold<'a>(
    existing: Option<&'a [u8]>,
    operands: impl IntoIterator<Item = &'a [u8]>,
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let mut values = existing.into_iter().chain(operands);
    out.clear();
    let Some(first) = values.next() else { return Err(Malformed) };
    let Some(mut next) = values.next() else {
        out.extend_from_slice(first);
        return Ok(());
    };
    merge(first, next, out)?;
    let mut previous = Vec::new();
    loop {
        match values.next() {
            Some(value) => next = value,
            None => return Ok(()),
        }
        std::mem::swap(&mut previous, out);
        out.clear();
        merge(&previous, next, out)?;
    }
}

/// Appends the merge of two values to `out`; `newer` came later in the log.
pub fn merge(older: &[u8], newer: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    match (format(older)?, format(newer)?) {
        (FORMAT_ROW, FORMAT_ROW) => row::merge(older, newer, out),
        (FORMAT_DELETIONS, FORMAT_DELETIONS) => deletions::merge(older, newer, out),
        _ => Err(Malformed),
    }
}

/// Decides what a compaction does with a whole (folded) value: what expired before `now_s` becomes a tombstone, tombstones from before
/// `purge_tombstones_before_s` and everything shadowed go. A plain row costs one comparison. Malformed values are kept, for people to see.
pub fn compact(value: &[u8], now_s: u32, purge_tombstones_before_s: u32) -> Compaction {
    match format(value) {
        Ok(FORMAT_ROW) if row::is_plain(value) => Compaction::Keep,
        Ok(FORMAT_ROW) => row::compact(value, now_s, purge_tombstones_before_s),
        Ok(FORMAT_DELETIONS) => deletions::compact(value, purge_tombstones_before_s),
        _ => Compaction::Keep,
    }
}

/// Whether a value is a partition header.
pub fn is_header(value: &[u8]) -> bool {
    format(value) == Ok(FORMAT_DELETIONS)
}

fn format(value: &[u8]) -> Result<u8, Malformed> {
    value.first().map(|byte| byte & FORMAT_MASK).ok_or(Malformed)
}
