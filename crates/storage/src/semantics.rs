//! The interface by which the row model defines merging and expiry for storage.

use diorite_base::Horizon;

/// The kind of a tablet's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Rows: `ValueSemantics` merges and expires them.
    Rows,
    /// Bytes that are only replaced (the catalog's objects).
    Plain,
}

/// The treatment of an entry in a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompactionVerdict {
    /// The entry stays as it is.
    Keep,
    /// The entry is removed.
    Remove,
    /// The entry is replaced by this value.
    Replace(Vec<u8>),
}

/// The meaning of values. Called on RocksDB's threads: must not block. A panic counts as a malformed value: no operands
/// are merged, and a compaction keeps the entry as it is.
pub trait ValueSemantics: Send + Sync + 'static {
    /// Merges `operands`, oldest first, with `existing`, or without it if nothing is stored. `None` if they are
    /// malformed, which RocksDB reports as corruption.
    fn fold<'a>(&self, existing: Option<&'a [u8]>, operands: &mut dyn Iterator<Item = &'a [u8]>) -> Option<Vec<u8>>;

    /// Merges neighbouring operands, oldest first, into one, whatever value is stored below them. `None` if that is not
    /// possible: they stay separate.
    fn fold_apart(&self, operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.fold(None, &mut operands.iter().copied())
    }

    /// Judges a whole entry during compaction, at a horizon of the log.
    fn compact(&self, key: &[u8], value: &[u8], horizon: &Horizon) -> CompactionVerdict;

    /// Whether no part of a value is live from this second on, for any reader, until its key is written to again.
    fn is_dead(&self, value: &[u8], now_s: u32) -> bool {
        let _ = (value, now_s);
        false
    }

    /// A short value that means the same as one that a compaction may remove, and which the next compaction removes;
    /// `None`: there is none.
    fn without_content(&self, value: &[u8]) -> Option<Vec<u8>> {
        let _ = value;
        None
    }

    /// The longest TTL within a value or operand, seconds; 0: none.
    fn longest_ttl_s(&self, value: &[u8]) -> u32 {
        let _ = value;
        0
    }

    /// Whether a later horizon may remove a part of the value without any write to it.
    fn awaits_time(&self, value: &[u8]) -> bool {
        let _ = value;
        false
    }
}
