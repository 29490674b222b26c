//! What storage calls without knowing what a value holds: the merge operator and the compaction filter over rows and partition headers.
//!
//! Always true: the two kinds of value are told apart by the two highest bits of byte 0, and a key never holds both. What a key comes to hold is the
//! same whenever, wherever and how often compaction has come by in between, as long as it knew no later horizon than the entry that is applied:
//! a write that could tell says so itself ([`bounded`]).

pub use crate::format::Compaction;

use crate::format::{FORMAT_BOUNDED_ROW, FORMAT_DELETIONS, FORMAT_MASK, FORMAT_ROW};
use crate::{deletions, row};
use diorite_base::Horizon;
use diorite_base::bytes::Malformed;
use diorite_base::mutation::Effect;

/// So many values are folded at once; more of them in groups first, so that folding takes little memory beside the values.
const FOLDED_AT_ONCE: usize = 4_096;

/// Folds `operands` (oldest first) onto `existing` and writes the result to `out`, which is cleared first. Operands alone, without what is stored below them,
/// only if [`can_fold_apart`].
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

/// Whether these operands come to the same however they are grouped: not if a later one says what of everything before it is gone, which may be stored
/// below them.
pub fn can_fold_apart<'a>(operands: impl IntoIterator<Item = &'a [u8]>) -> bool {
    operands.into_iter().skip(1).all(|operand| horizon(operand).is_none())
}

/// Folds any number of values, of which some may say that what is past a horizon in all before them is gone.
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

/// The horizon that a value names: what is past it in everything before is gone.
fn horizon(value: &[u8]) -> Option<Horizon> {
    match value.first()? & FORMAT_MASK {
        FORMAT_BOUNDED_ROW => row::horizon(value),
        FORMAT_DELETIONS => deletions::horizon_s(value).map(|ranges_s| Horizon { ranges_s, ..Horizon::default() }),
        _ => None,
    }
}

/// What is to be merged in the place of `value` by a tablet whose log has decided on `horizon`, if that is not `value` itself: it holds timestamps from
/// before the horizon, so whether it lives must not depend on whether older deletions are still stored. Malformed values stay as they are.
pub fn bounded(value: &[u8], horizon: Horizon) -> Option<Vec<u8>> {
    match format(value) {
        Ok(FORMAT_ROW) => row::bounded(value, horizon).unwrap_or_default(),
        Ok(FORMAT_DELETIONS) => deletions::bounded(value, horizon.ranges_s).unwrap_or_default(),
        _ => None,
    }
}

/// What stands for a value that a tablet takes over from another, if that is not the value itself. Deletions of ranges stay for ever there: only the tablet
/// that they were written to knew that the rows under them are gone.
pub fn taken_over(value: &[u8]) -> Option<Vec<u8>> {
    if is_header(value) { deletions::lasting(value).ok() } else { None }
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
        _ if horizon(newer).is_some() => fold_in_order(&[older, newer], out),
        (FORMAT_ROW, FORMAT_ROW) => row::merge(older, newer, out),
        (FORMAT_DELETIONS, FORMAT_DELETIONS) => deletions::fold(&[older, newer], out),
        _ => Err(Malformed),
    }
}

/// Decides what a compaction does with a whole (folded) value: of what has expired only its place stays, deletions past the horizon and everything shadowed
/// go. A plain row costs one comparison. Malformed values are kept, for people to see.
pub fn compact(value: &[u8], horizon: Horizon) -> Compaction {
    match format(value) {
        Ok(FORMAT_ROW) if row::is_plain(value) => Compaction::Keep,
        Ok(FORMAT_ROW) => row::compact(value, horizon),
        Ok(FORMAT_DELETIONS) => deletions::compact(value, horizon.ranges_s),
        _ => Compaction::Keep,
    }
}

/// Whether nothing of a row lives from this second on, whoever reads it, until its key is written to again. What a partition header hides counts as living.
pub fn is_dead(value: &[u8], now_s: u32) -> bool {
    let dead = || row::LiveRow::new(value, now_s, row::NOTHING_DELETED)?.exists().map(|exists| !exists);
    format(value) == Ok(FORMAT_ROW) && !row::is_plain(value) && dead().unwrap_or(false)
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
