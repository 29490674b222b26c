//! Reads that must be brief, as others wait for the thread: the merge operator folds only so much for one of them, and declines the rest.
//!
//! What is read from memory is read by a thread that serves clients. A key with many operands, or long ones, takes milliseconds to fold, at every read.
//!
//! Always true: whoever reads on another thread, or not briefly, notices nothing; a read that was declined has found nothing, and says so. Left out: reading
//! it elsewhere.

use std::cell::Cell;

/// What one brief read may fold: a fraction of a millisecond.
pub(crate) const MAX_BRIEF_BYTES: usize = 128 << 10;
/// What an operand costs beside its bytes, in the same measure.
const OPERAND_BYTES: usize = 64;

/// How far a brief read has got.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// There is none.
    None,
    /// It may fold so many more bytes.
    Left(usize),
    Declined,
}

thread_local! {
    /// Whether the last brief read was declined.
    static WAS_DECLINED: Cell<bool> = const { Cell::new(false) };
    static PROGRESS: Cell<Progress> = const { Cell::new(Progress::None) };
}

/// Reads briefly: what `read` gives, or nothing if it was declined.
#[inline]
pub(crate) fn briefly<T>(read: impl FnOnce() -> T) -> Option<T> {
    PROGRESS.set(Progress::Left(MAX_BRIEF_BYTES));
    let given = read();
    let is_declined = PROGRESS.replace(Progress::None) == Progress::Declined;
    WAS_DECLINED.set(is_declined);
    (!is_declined).then_some(given)
}

/// Whether the last read from memory on this thread found nothing because it would have taken too long, not because the disk has to be asked.
pub fn was_declined() -> bool {
    WAS_DECLINED.get()
}

/// Whether this thread may fold these now. Called by the merge operator.
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

/// Whether this thread may go on after work like folding so many bytes. If not, its brief read is declined.
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
        assert!((0..100).all(|_| fold()), "nobody reads briefly");
        assert_eq!(briefly(|| 7), Some(7), "each begins anew");
        assert_eq!(briefly(|| admits(None, std::iter::repeat_n(&[][..], MAX_BRIEF_BYTES / OPERAND_BYTES + 1))), None);
    }
}
