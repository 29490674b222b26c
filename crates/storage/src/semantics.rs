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

    /// Judges a whole entry during compaction.
    fn compact(&self, key: &[u8], value: &[u8], time: &CompactionTime) -> CompactionVerdict;
}

/// What a compaction knows of time. Seconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionTime {
    /// Now.
    pub now_s: u32,
    /// Tombstones created before may be dropped.
    pub purge_before_s: u32,
    /// Whether clients have written timestamps of their own to this tablet. If so, a deletion of many entries may still have to hide some
    /// that are stored.
    pub has_explicit_timestamps: bool,
}
