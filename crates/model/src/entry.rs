//! The merge operator and the compaction filter, over rows and partition headers alike: storage calls them without
//! knowing what a value holds.
//!
//! Always true: the two highest bits of byte 0 tell the two kinds of value apart, and a key never holds both. The value
//! of a key does not depend on when, where and how often compactions ran, as long as each of them used no later horizon
//! than that of the entries that are applied afterwards: a write that could tell the difference carries the horizon
//! itself ([`bounded`]).

pub use crate::format::Compaction;

use crate::format::{FORMAT_BOUNDED_ROW, FORMAT_DELETIONS, FORMAT_MASK, FORMAT_ROW};
use crate::{deletions, row};
use diorite_base::Horizon;
use diorite_base::bytes::Malformed;
use diorite_base::mutation::Effect;

/// At most this many values are folded at once. More of them are folded in groups first, which bounds the memory used
/// beside the values.
const FOLDED_AT_ONCE: usize = 4_096;

/// Folds `operands` (oldest first) onto `existing` and writes the result to `out`, which is cleared first. Operands
/// without the value stored below them may be folded only if [`can_fold_apart`].
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
            fold_in_order(&values, out)
        }
    }
}

/// Whether these operands may be folded before the value below them is known. They may not if one of them, other than
/// the first, has a horizon: it purges part of everything before it, some of which may be stored below the operands.
pub fn can_fold_apart<'a>(operands: impl IntoIterator<Item = &'a [u8]>) -> bool {
    operands.into_iter().skip(1).all(|operand| horizon(operand).is_none())
}

/// Folds any number of values. A value with a horizon purges what is past that horizon in all values before it.
fn fold_in_order(values: &[&[u8]], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let (mut before, mut from, mut may_delete): (Option<Vec<u8>>, usize, bool) = (None, 0, false);
    for (at, value) in values.iter().enumerate() {
        if let Some(horizon) = horizon(value).filter(|_| may_delete) {
            let mut folded = Vec::new();
            let gathered: Vec<&[u8]> = before.as_deref().into_iter().chain(values[from..at].iter().copied()).collect();
            fold_all(&gathered, &mut folded)?;
            before = match compact(&folded, horizon) {
                Compaction::Keep => Some(folded),
                Compaction::Remove => None,
                Compaction::Replace(less) => Some(less),
            };
            from = at;
            may_delete = before.as_deref().is_some_and(holds_deletions);
        }
        may_delete |= holds_deletions(value);
    }
    let gathered: Vec<&[u8]> = before.as_deref().into_iter().chain(values[from..].iter().copied()).collect();
    fold_all(&gathered, out)
}

fn holds_deletions(value: &[u8]) -> bool {
    is_header(value) || row::may_delete(value)
}

/// The horizon of a value: everything past it in earlier values counts as purged.
fn horizon(value: &[u8]) -> Option<Horizon> {
    match value.first()? & FORMAT_MASK {
        FORMAT_BOUNDED_ROW => row::horizon(value),
        FORMAT_DELETIONS => deletions::horizon_s(value).map(|ranges_s| Horizon { ranges_s, ..Horizon::default() }),
        _ => None,
    }
}

/// The form of `value` that a tablet merges whose log has decided on `horizon`; `None` if it is `value` itself. A value
/// with timestamps from before the horizon gets the horizon added: whether it lives must not depend on whether older
/// deletions are still stored. Malformed values stay as they are.
pub fn bounded(value: &[u8], horizon: Horizon) -> Option<Vec<u8>> {
    match format(value) {
        Ok(FORMAT_ROW) => row::bounded(value, horizon).unwrap_or_default(),
        Ok(FORMAT_DELETIONS) => deletions::bounded(value, horizon.ranges_s).unwrap_or_default(),
        _ => None,
    }
}

/// The form of `value` that a tablet stores when it takes over the rows of another; `None` if it is `value` itself.
/// Deletions of ranges are never purged there: only the tablet that they were written to knew that the rows under them
/// are gone.
pub fn taken_over(value: &[u8]) -> Option<Vec<u8>> {
    if is_header(value) { deletions::lasting(value).ok() } else { None }
}

/// Folds any number of values. The first may be large: it is read once.
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
        _ if horizon(newer).is_some() => fold_in_order(&[older, newer], out),
        (FORMAT_ROW, FORMAT_ROW) => row::merge(older, newer, out),
        (FORMAT_DELETIONS, FORMAT_DELETIONS) => deletions::fold(&[older, newer], out),
        _ => Err(Malformed),
    }
}

/// Decides what a compaction does with a whole (folded) value: an expired value keeps only its place; deletions past
/// the horizon and everything shadowed are removed. A plain row costs one comparison. Malformed values are kept, so
/// that they can be examined.
pub fn compact(value: &[u8], horizon: Horizon) -> Compaction {
    match format(value) {
        Ok(FORMAT_ROW) if row::is_plain(value) => Compaction::Keep,
        Ok(FORMAT_ROW) => row::compact(value, horizon),
        Ok(FORMAT_DELETIONS) => deletions::compact(value, horizon.ranges_s),
        _ => Compaction::Keep,
    }
}

/// Whether no part of a row is live from this second on, for any reader, until its key is written to again. A row that
/// only a partition header hides counts as live.
pub fn is_dead(value: &[u8], now_s: u32) -> bool {
    let dead = || row::LiveRow::new(value, now_s, row::NOTHING_DELETED)?.exists().map(|exists| !exists);
    format(value) == Ok(FORMAT_ROW) && !row::is_plain(value) && dead().unwrap_or(false)
}

/// A short row that means the same as one which [`compact`] removes, and which it removes too. There is none for
/// partition headers.
pub fn without_content(value: &[u8]) -> Option<Vec<u8>> {
    (format(value) == Ok(FORMAT_ROW)).then(row::without_content)
}

/// The longest time to live within a row, seconds; 0: none.
pub fn longest_ttl_s(value: &[u8]) -> u32 {
    let is_row = format(value) == Ok(FORMAT_ROW) && !row::is_plain(value);
    if is_row { row::longest_ttl_s(value).unwrap_or(0) } else { 0 }
}

/// What merging a value does to the size of what is stored.
pub fn effect(value: &[u8]) -> Effect {
    match format(value) {
        Ok(FORMAT_ROW) => row::effect(value).unwrap_or(Effect::Grows),
        Ok(FORMAT_DELETIONS) if deletions::is_of_partition_alone(value) => Effect::Shrinks,
        _ => Effect::Grows,
    }
}

/// Reads a value to its end, in one pass and without keeping anything of it: whoever reads, merges or compacts a value for
/// which this succeeds finds nothing malformed in it.
///
/// # Errors
/// If the value is malformed.
pub fn check(value: &[u8]) -> Result<(), Malformed> {
    match format(value)? {
        FORMAT_ROW => row::check(value),
        FORMAT_DELETIONS => deletions::check(value),
        _ => Err(Malformed),
    }
}

/// Whether a value may be put or merged under a key: it is well formed, and stays so when its lists get their places.
/// For what another node has made, before it reaches the log; what replicas have in their logs they do not judge.
pub fn may_be_written(value: &[u8], is_unplaced: bool) -> bool {
    check(value).is_ok() && (!is_unplaced || row::may_be_placed(value))
}

/// Whether a value is a partition header.
pub fn is_header(value: &[u8]) -> bool {
    format(value) == Ok(FORMAT_DELETIONS)
}

/// The kind of a value; both versions of rows are one.
fn format(value: &[u8]) -> Result<u8, Malformed> {
    match value.first().map(|byte| byte & FORMAT_MASK) {
        Some(FORMAT_BOUNDED_ROW) => Ok(FORMAT_ROW),
        Some(format) => Ok(format),
        None => Err(Malformed),
    }
}
