//! x
use crate::entry::Compaction;
use crate::row::Deletion;
use diorite_base::bytes::Malformed;

/// Packs a partition header. `start` and `end` of ranges are key bytes after the row-kind byte: from `start` up to, not including, `end`;
/// an empty start and the end `[0xFF]` leave a side open.
#[derive(Debug, Clone, Default)]
pub struct DeletionsWriter {}

impl DeletionsWriter {
    /// Adds the deletion of the whole partition.
    pub fn partition(&mut self, deletion: Deletion) {
        let _ = deletion;
    }
    /// Adds the deletion of a range.
    pub fn range(&mut self, start: &[u8], end: &[u8], deletion: Deletion) {
        let _ = (start, end, deletion);
    }
    /// Appends the packed form. What carries `base_us` (often [`crate::row::UNSTAMPED`]) stores no timestamp of its own.
    pub fn finish(self, base_us: i64, out: &mut Vec<u8>) {
        let _ = (base_us, out);
    }
}

/// A decoded partition header; borrows the packed bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deletions<'a> {
    bytes: &'a [u8],
}

impl<'a> Deletions<'a> {
    /// Decodes a header.
    pub fn decode(value: &'a [u8]) -> Result<Self, Malformed> {
        Ok(Self { bytes: value })
    }
    /// The deletion of the whole partition.
    pub fn partition(&self) -> Option<Deletion> {
        let _ = self.bytes;
        unreachable!()
    }
    /// The timestamp up to which the row with these key bytes after the row-kind byte is deleted, or [`crate::row::NOTHING_DELETED`].
    pub fn deletion_for(&self, clustering: &[u8]) -> i64 {
        let _ = clustering;
        unreachable!()
    }
    /// The same for the static row: only the partition deletion counts.
    pub fn static_deletion(&self) -> i64 {
        unreachable!()
    }
}

/// Appends the union of two headers to `out`.
pub fn merge(older: &[u8], newer: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let _ = (older, newer, out);
    unreachable!()
}

/// See [`crate::entry::compact`].
pub fn compact(value: &[u8], purge_tombstones_before_s: u32) -> Compaction {
    let _ = (value, purge_tombstones_before_s);
    unreachable!()
}
