//! The seam through which the row model tells storage what merging and expiry mean.

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

/// The meaning of values. Called from RocksDB's threads: must not block or panic.
pub trait ValueSemantics: Send + Sync + 'static {
    /// Folds `operands`, oldest first, onto `existing`. `None` if they are malformed, which RocksDB reports as corruption.
    fn fold<'a>(&self, existing: Option<&'a [u8]>, operands: &mut dyn Iterator<Item = &'a [u8]>) -> Option<Vec<u8>>;

    /// Judges a whole entry during compaction. Tombstones created before `purge_before_s` may be dropped.
    fn compact(&self, key: &[u8], value: &[u8], now_s: u32, purge_before_s: u32) -> CompactionVerdict;
}
