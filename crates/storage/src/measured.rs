//! Reads that are to find out how large a value is, and nothing else: the merge operator notes it and hands out no value.
//!
//! What is read stays where it is, in memtables and in the block cache; a value that is folded for its length is dropped at once, where a read would copy it.
//!
//! Always true: whoever reads on another thread, or to have the value, notices nothing. Left out: what a value that is a single part in itself holds.

use crate::error::StorageError;
use std::cell::Cell;
use std::ops::Deref;

/// What is asked of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    /// How much is to be folded.
    Parts,
    /// How much that comes to.
    Whole,
}

#[derive(Clone, Copy)]
enum State {
    /// Nobody measures.
    Off,
    Asked(Measure),
    /// Found out.
    Bytes(u64),
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State::Off) };
}

/// How large the value is that `get` reads; 0 if there is none.
pub(crate) fn measured<V: Deref<Target = [u8]>>(
    measure: Measure,
    get: impl FnOnce() -> Result<Option<V>, StorageError>,
) -> Result<u64, StorageError> {
    STATE.set(State::Asked(measure));
    let found = get();
    match STATE.replace(State::Off) {
        // The merge operator has declined, which RocksDB tells as an error.
        State::Bytes(bytes) => Ok(bytes),
        State::Off | State::Asked(_) => found.map(|found| found.map_or(0, |value| value.len() as u64)),
    }
}

/// Whether these are folded by a read that measures: then it has what it wants, and the operator is to decline.
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
        assert!(matches!(measured(Measure::Parts, || Ok(Some(vec![0; 9]))), Ok(9)), "nothing was to be folded");
        assert!(matches!(measured(Measure::Whole, || Ok(None::<Vec<u8>>)), Ok(0)));
        assert!(matches!(read(None), Ok(Some(_))), "the thread reads as before");
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
