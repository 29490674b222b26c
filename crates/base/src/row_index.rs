//! The seam through which a tablet keeps the entries of its local secondary indexes, and the keys that belong to no row.
//!
//! Always true: the entries of a write follow from that write and from the specifications that the tablet stores, so
//! they are the same on every replica, and deriving them reads nothing. Left out: what a row is, and how an index is
//! specified (the `model` and `query` crates).

/// How the keys of a tablet's own records and index entries begin: no row's token is the smallest number.
pub const RECORD_PREFIX: [u8; 8] = [0; 8];

/// The first key after all records and index entries: no row has a smaller key.
pub const FIRST_ROW_KEY: [u8; 8] = [0, 0, 0, 0, 0, 0, 0, 1];

/// Receives an index entry: its key, its value, and whether the value has to be merged with what is stored.
pub type AddEntry<'a> = dyn FnMut(&[u8], &[u8], bool) + 'a;

/// Derives index entries from what is written to a row.
pub trait RowIndexes: Send + Sync {
    /// Calls `add` with each index entry that follows from `value`, which is written (put or merged) under `key`. Calls
    /// nothing for a key that belongs to no row.
    fn entries(&self, key: &[u8], value: &[u8], add: &mut AddEntry<'_>);
}
