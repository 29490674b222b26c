//! The seam through which a tablet keeps the entries of its local secondary indexes, and the keys that belong to no row.
//!
//! Always true: the entries of a write follow from that write and from the specifications that the tablet stores, so
//! they are the same on every replica, and deriving them reads nothing. Left out: what a row is, and how an index is
//! specified (the `model` and `query` crates).

/// How the keys of a tablet's own records and index entries begin: no row's token is the smallest number.
pub const RECORD_PREFIX: [u8; 8] = [0; 8];

/// The first key after all records and index entries: no row has a smaller key.
pub const FIRST_ROW_KEY: [u8; 8] = [0, 0, 0, 0, 0, 0, 0, 1];

/// Greater than the key of every row: after the greatest token comes a byte less than the last one here.
pub const AFTER_ALL_ROWS: [u8; 9] = [0xFF; 9];

/// Whether a key may be that of a row or of a partition's header. What a tablet keeps of itself has other keys: they begin
/// with [`RECORD_PREFIX`], or with a zero and are shorter than a token.
pub fn is_of_rows(key: &[u8]) -> bool {
    match key.first() {
        None => false,
        Some(0) => key.len() >= RECORD_PREFIX.len() && !key.starts_with(&RECORD_PREFIX),
        Some(_) => true,
    }
}

/// Receives an index entry: its key, its value, and whether the value has to be merged with what is stored.
pub type AddEntry<'a> = dyn FnMut(&[u8], &[u8], bool) + 'a;

/// Derives index entries from what is written to a row.
pub trait RowIndexes: Send + Sync {
    /// Calls `add` with each index entry that follows from `value`, which is written (put or merged) under `key`. Calls
    /// nothing for a key that belongs to no row.
    fn entries(&self, key: &[u8], value: &[u8], add: &mut AddEntry<'_>);

    /// The dependents, ascending: unique indexes and materialized views, whose tables are elsewhere, and which whoever
    /// writes to a row keeps up to date.
    fn dependents(&self) -> &[u64] {
        &[]
    }

    /// Whether a value that is written to a row may change what a dependent says of the row.
    fn concerns_dependents(&self, value: &[u8]) -> bool {
        let _ = value;
        false
    }

    /// Whether values of a column decide what a dependent says of the row.
    fn is_watched(&self, column: u32) -> bool {
        let _ = column;
        false
    }

    /// The most bytes of entries that follow from a key and a value of these lengths: quick to compute, and often far
    /// from what they are.
    fn most_bytes(&self, key_bytes: usize, value_bytes: usize) -> usize;

    /// The bytes of the entries that follow from `value`; of a value with more than `most`, some number greater than it.
    fn size_bytes(&self, key: &[u8], value: &[u8], most: usize) -> usize;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tablet_keeps_of_itself_has_no_key_of_rows() {
        for key in [&[][..], &[0], &[0, 1], &[0, 3, 0, 0, 0, 0, 9], &RECORD_PREFIX, &[0, 0, 0, 0, 0, 0, 0, 0, 1, 7]] {
            assert!(!is_of_rows(key), "{key:?}");
        }
        for key in [&FIRST_ROW_KEY[..], &[0, 1, 0, 0, 0, 0, 0, 0, 2], &[0x80], &AFTER_ALL_ROWS] {
            assert!(is_of_rows(key), "{key:?}");
        }
    }
}
