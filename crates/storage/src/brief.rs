//! Brief reads, for threads that must not be blocked: the merge operator merges a limited amount for each of them, and
//! declines the rest.
//!
//! A thread that serves clients carries out reads from memory by itself. A key with many or long operands takes
//! milliseconds to merge, at every read.
//!
//! Always true: reads on other threads, and reads that are not brief, are not limited; a declined read returns nothing,
//! and reports that it was declined. Left out: repeating the read elsewhere.

use std::cell::Cell;

/// The bytes that one brief read may merge: a fraction of a millisecond.
pub(crate) const MAX_BRIEF_BYTES: usize = 128 << 10;
/// The fixed cost of an operand, as bytes.
const OPERAND_BYTES: usize = 64;

/// The capacity of the brief read under way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// No brief read is under way.
    None,
    /// The number of bytes that it may still merge.
    Left(usize),
    Declined,
}

thread_local! {
    /// Whether the last brief read was declined.
    static WAS_DECLINED: Cell<bool> = const { Cell::new(false) };
    static PROGRESS: Cell<Progress> = const { Cell::new(Progress::None) };
}

/// Runs `read` as a brief read; `None` if it was declined.
#[inline]
pub(crate) fn briefly<T>(read: impl FnOnce() -> T) -> Option<T> {
    PROGRESS.set(Progress::Left(MAX_BRIEF_BYTES));
    let given = read();
    let is_declined = PROGRESS.replace(Progress::None) == Progress::Declined;
    WAS_DECLINED.set(is_declined);
    (!is_declined).then_some(given)
}

/// Whether the last read from memory on this thread was declined because merging would have taken too long, as opposed
/// to needing the disk.
pub fn was_declined() -> bool {
    WAS_DECLINED.get()
}

/// Whether this thread may merge these operands now. Called by the merge operator.
pub(crate) fn admits<'a>(existing: Option<&[u8]>, operands: impl Iterator<Item = &'a [u8]>) -> bool {
    let left = match PROGRESS.get() {
        Progress::None => return true,
        Progress::Left(left) => left,
        Progress::Declined => return false,
    };
    let operands: usize = operands.map(|operand| operand.len() + OPERAND_BYTES).sum();
    let bytes = existing.map_or(0, <[u8]>::len) + operands;
    PROGRESS.set(left.checked_sub(bytes).map_or(Progress::Declined, Progress::Left));
    bytes <= left
}

/// Whether this thread may do more work, as costly as merging so many bytes. If not, its brief read is declined.
#[inline]
pub(crate) fn may_pass(bytes: usize) -> bool {
    let Progress::Left(left) = PROGRESS.get() else { return PROGRESS.get() == Progress::None };
    PROGRESS.set(left.checked_sub(bytes).map_or(Progress::Declined, Progress::Left));
    bytes <= left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brief_read_folds_so_much_in_all_and_others_all() {
        let (half, operand) = (vec![0; MAX_BRIEF_BYTES / 2], [&[0u8; 8][..]]);
        let fold = || admits(Some(&half), operand.into_iter());
        assert_eq!(briefly(fold), Some(true));
        assert_eq!(briefly(|| (fold(), fold())), None, "together they are too much");
        assert!((0..100).all(|_| fold()), "no brief read is under way");
        assert_eq!(briefly(|| 7), Some(7), "each begins anew");
        assert_eq!(briefly(|| admits(None, std::iter::repeat_n(&[][..], MAX_BRIEF_BYTES / OPERAND_BYTES + 1))), None);
    }
}
