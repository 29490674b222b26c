//! Reads that measure the size of a value: the merge operator notes the size, and returns no value.
//!
//! The operands stay in memtables and in the block cache; a value that is merged for its size is dropped at once, while
//! a read would copy it.
//!
//! Always true: reads on other threads, and reads for the value, are not affected. Left out: the size of operands
//! within a value that consists of one part.

use crate::error::StorageError;
use std::cell::Cell;
use std::ops::Deref;

/// The size that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    /// The size of the operands.
    Parts,
    /// The size of the merged value.
    Whole,
}

#[derive(Clone, Copy)]
enum State {
    /// No measurement is under way.
    Off,
    Asked(Measure),
    /// The size has been found.
    Bytes(u64),
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State::Off) };
}

/// The size of the value that `get` reads; 0 if there is none.
pub(crate) fn measured<V: Deref<Target = [u8]>>(
    measure: Measure,
    get: impl FnOnce() -> Result<Option<V>, StorageError>,
) -> Result<u64, StorageError> {
    STATE.set(State::Asked(measure));
    let found = get();
    match STATE.replace(State::Off) {
        // The merge operator has declined, which RocksDB reports as an error.
        State::Bytes(bytes) => Ok(bytes),
        State::Off | State::Asked(_) => found.map(|found| found.map_or(0, |value| value.len() as u64)),
    }
}

/// Whether a measuring read would merge these operands: then it has the size, and the operator must decline.
#[inline]
pub(crate) fn takes<'a>(
    existing: Option<&[u8]>,
    operands: impl Iterator<Item = &'a [u8]>,
    fold: impl FnOnce() -> Option<Vec<u8>>,
) -> bool {
    let State::Asked(measure) = STATE.get() else { return false };
    let bytes = match measure {
        Measure::Parts => {
            let parts = existing.into_iter().map(<[u8]>::len).chain(operands.map(<[u8]>::len));
            Some(parts.map(|bytes| bytes as u64).sum())
        }
        Measure::Whole => fold().map(|whole| whole.len() as u64),
    };
    if let Some(bytes) = bytes {
        STATE.set(State::Bytes(bytes));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(existing: Option<&'static [u8]>) -> Result<Option<Vec<u8>>, StorageError> {
        let operands: [&[u8]; 2] = [&[1; 5], &[2; 7]];
        match takes(existing, operands.into_iter(), || Some(vec![0; 3])) {
            true => Err(StorageError::Corrupt("declined".to_owned())),
            false => Ok(Some(vec![0; 3])),
        }
    }

    #[test]
    fn who_measures_is_told_a_size_and_others_read() {
        assert!(matches!(read(None), Ok(Some(_))));
        assert!(matches!(measured(Measure::Parts, || read(Some(&[0; 100]))), Ok(112)));
        assert!(matches!(measured(Measure::Whole, || read(Some(&[0; 100]))), Ok(3)));
        assert!(matches!(measured(Measure::Parts, || Ok(Some(vec![0; 9]))), Ok(9)), "there was nothing to merge");
        assert!(matches!(measured(Measure::Whole, || Ok(None::<Vec<u8>>)), Ok(0)));
        assert!(matches!(read(None), Ok(Some(_))), "the thread's later reads are not affected");
    }

    #[test]
    fn what_cannot_be_folded_is_the_error_of_the_read() {
        let failed = || match takes(None, std::iter::empty(), || None) {
            true => Err::<Option<Vec<u8>>, _>(StorageError::Corrupt("malformed".to_owned())),
            false => Ok(None),
        };
        assert!(measured(Measure::Whole, failed).is_err());
    }
}
