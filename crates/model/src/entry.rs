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

/// So many values are folded at once; more of them in groups first, so that folding takes little memory beside the values.
const FOLDED_AT_ONCE: usize = 4_096;

/// Folds `operands` (oldest first) onto `existing` and writes the result to `out`, which is cleared first. Full and partial merge alike.
///
/// Takes `n log n` for `n` cells, elements and deleted ranges in all values together.
///
/// # Errors
/// If a value is malformed, or if they are not of one kind.
pub fn fold<'a>(
    existing: Option<&'a [u8]>,
    operands: impl IntoIterator<Item = &'a [u8]>,
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    out.clear();
    let mut values = existing.into_iter().chain(operands);
    match (values.next(), values.next(), values.next()) {
        (None, ..) => Err(Malformed),
        (Some(single), None, _) => {
            out.extend_from_slice(single);
            Ok(())
        }
        (Some(older), Some(newer), None) => merge(older, newer, out),
        (Some(first), Some(second), Some(third)) => {
            let values: Vec<&[u8]> = [first, second, third].into_iter().chain(values).collect();
            fold_all(&values, out)
        }
    }
}

/// Folds any number of values. The first may be large: it is folded once.
fn fold_all(values: &[&[u8]], out: &mut Vec<u8>) -> Result<(), Malformed> {
    if values.len() <= FOLDED_AT_ONCE {
        return fold_at_once(values, out);
    }
    let Some((first, rest)) = values.split_first() else { return Err(Malformed) };
    let groups = rest.chunks(FOLDED_AT_ONCE).map(|group| {
        let mut folded = Vec::new();
        fold_at_once(group, &mut folded).map(|()| folded)
    });
    let folded = groups.collect::<Result<Vec<_>, _>>()?;
    let values: Vec<&[u8]> = std::iter::once(*first).chain(folded.iter().map(Vec::as_slice)).collect();
    fold_all(&values, out)
}

fn fold_at_once(values: &[&[u8]], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let kind = format(values.first().ok_or(Malformed)?)?;
    for value in values {
        if format(value)? != kind {
            return Err(Malformed);
        }
    }
    match kind {
        FORMAT_ROW => row::fold(values, out),
        FORMAT_DELETIONS => deletions::fold(values, out),
        _ => Err(Malformed),
    }
}

/// Appends the merge of two values to `out`; `newer` came later in the log.
pub fn merge(older: &[u8], newer: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    match (format(older)?, format(newer)?) {
        (FORMAT_ROW, FORMAT_ROW) => row::merge(older, newer, out),
        (FORMAT_DELETIONS, FORMAT_DELETIONS) => deletions::fold(&[older, newer], out),
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
