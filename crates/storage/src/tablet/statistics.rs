//! Sizes of one tablet, or of several together. Left out: how they are found ([`super::maintenance`]).

/// Sizes of a tablet, for metrics.
#[derive(Debug, Clone, Copy, Default)]
pub struct TabletStatistics {
    /// Bytes of SSTable files.
    pub sst_bytes: u64,
    /// Files.
    pub sst_files: u64,
    /// Keys, estimated.
    pub keys_estimate: u64,
    /// Whether a compaction is waiting for a thread: 1 or 0.
    pub compactions_pending: u64,
    /// Bytes that compaction would have to rewrite, estimated.
    pub pending_compaction_bytes: u64,
    /// Bytes of data that is neither replaced nor deleted, estimated.
    pub live_bytes: u64,
}

impl TabletStatistics {
    /// Adds the sizes of another tablet.
    pub fn add(&mut self, other: &Self) {
        self.sst_bytes += other.sst_bytes;
        self.sst_files += other.sst_files;
        self.keys_estimate += other.keys_estimate;
        self.compactions_pending += other.compactions_pending;
        self.pending_compaction_bytes += other.pending_compaction_bytes;
        self.live_bytes += other.live_bytes;
    }
}
