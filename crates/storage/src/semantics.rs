//! The seam through which the row model tells storage what merging and expiry mean.

use diorite_base::Horizon;

/// What a tablet's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Rows: merged and expired as `ValueSemantics` says.
    Rows,
    /// Bytes that are only ever replaced (the catalog's objects).
    Plain,
}

/// What compaction does with an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompactionVerdict {
    /// Leave it as it is.
    Keep,
    /// Drop it.
    Remove,
    /// Store this instead.
    Replace(Vec<u8>),
}

/// The meaning of values. Called from RocksDB's threads: must not block. If it panics, what it
/// was asked for is malformed: nothing is folded, and a compaction leaves the entry as it is.
pub trait ValueSemantics: Send + Sync + 'static {
    /// Folds `operands`, oldest first, onto `existing`, or onto nothing if nothing is stored. `None` if they are malformed, which RocksDB
    /// reports as corruption.
    fn fold<'a>(&self, existing: Option<&'a [u8]>, operands: &mut dyn Iterator<Item = &'a [u8]>) -> Option<Vec<u8>>;

    /// Folds neighbouring operands, oldest first, into one, whatever is stored below them. `None` if that cannot be done: they stay apart.
    fn fold_apart(&self, operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.fold(None, &mut operands.iter().copied())
    }

    /// Judges a whole entry during compaction, by the time that the log has decided on.
    fn compact(&self, key: &[u8], value: &[u8], horizon: &Horizon) -> CompactionVerdict;

    /// Whether nothing of a value lives from this second on, whoever reads it, until its key is written to again.
    fn is_dead(&self, value: &[u8], now_s: u32) -> bool {
        let _ = (value, now_s);
        false
    }

    /// The longest time to live within a value, seconds; 0: none.
    fn longest_ttl_s(&self, value: &[u8]) -> u32 {
        let _ = value;
        0
    }

    /// Whether a later horizon may leave less of a value, although nothing is written to it.
    fn awaits_time(&self, value: &[u8]) -> bool {
        let _ = value;
        false
    }
}
