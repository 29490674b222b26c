//! The storage options that an operator can set.

/// Storage limits and quotas of one node. Sizes in bytes.
#[derive(Debug, Clone)]
pub struct StorageOptions {
    /// Block cache, memtables included: the memtables are charged to it.
    pub cache_bytes: usize,
    /// All memtables of the node together.
    pub memtable_limit_bytes: usize,
    /// One tablet's memtable; flushed when full.
    pub memtable_bytes: usize,
    /// The initial rate limit of flushes and compactions together, bytes per second; 0 is no limit.
    pub compaction_rate_bytes: u64,
    /// Threads for flushes.
    pub flush_threads: i32,
    /// Threads for small compactions.
    pub compaction_threads: i32,
    /// Threads for compactions into the last level.
    pub bottom_compaction_threads: i32,
    /// Data block size before compression.
    pub block_bytes: usize,
    /// The number of index entries from one whole key to the next: fewer whole keys make the index smaller.
    pub index_restart_interval: i32,
    /// Bits per key of a filter (counted as for a Bloom filter of the same accuracy), for tables that set no accuracy.
    pub bloom_bits: f64,
    /// Whether those filters are Ribbon filters: a third smaller than Bloom filters, and slower to build.
    pub has_ribbon_filters: bool,
    /// Whether index and filters of flushed runs stay in the cache.
    pub pins_upper_runs: bool,
    /// How far the data may exceed its live size before everything is compacted, in percent.
    pub space_amplification_percent: i32,
    /// Files that each tablet may keep open.
    pub open_files_per_tablet: i32,
    /// The approximate size below which the Raft log of one disk is kept, whatever members that lag may still need.
    /// About twice the size that is replayed after a crash, plus space for files in which few records are still needed.
    /// Less on a small disk.
    pub log_bytes: u64,
    /// Whether data files are read and written past the page cache.
    pub direct_io: bool,
    /// Whether RocksDB keeps counters (cache, bloom, bytes).
    pub statistics: bool,
}

impl StorageOptions {
    /// Splits `memory_limit_bytes` between cache, memtables and the rest, for a machine of `cores` processors.
    ///
    /// Half goes to the cache, of which memtables may take half; the other half is for connections, the Raft log's index, iterators,
    /// compaction buffers and the allocator's slack, which together were measured to stay below it.
    pub fn for_memory(memory_limit_bytes: u64, cores: usize) -> Self {
        let cache_bytes = (memory_limit_bytes / 2).max(32 << 20) as usize;
        let (memtable_limit_bytes, memtable_bytes) = memtables(cache_bytes, 16 << 20);
        let threads = i32::try_from(cores).unwrap_or(i32::MAX);
        Self {
            cache_bytes,
            memtable_limit_bytes,
            memtable_bytes,
            compaction_rate_bytes: 0,
            flush_threads: (threads / 4).clamp(1, 4),
            compaction_threads: (threads / 2).clamp(1, 16),
            bottom_compaction_threads: (threads / 4).clamp(1, 8),
            block_bytes: 8 << 10,
            index_restart_interval: 16,
            bloom_bits: 10.0,
            has_ribbon_filters: true,
            pins_upper_runs: true,
            space_amplification_percent: 25,
            open_files_per_tablet: 512,
            log_bytes: (memory_limit_bytes / 2).clamp(128 << 20, 512 << 20),
            direct_io: false,
            statistics: true,
        }
    }

    /// Sets the size of the block cache, memtables included, to another one than the memory limit gives.
    pub fn set_cache(&mut self, cache_bytes: u64) {
        self.cache_bytes = cache_bytes.max(1 << 20) as usize;
        (self.memtable_limit_bytes, self.memtable_bytes) = memtables(self.cache_bytes, 1 << 20);
    }
}

/// The limits of all memtables together (at least `least_bytes`), and of one tablet's, within a cache.
fn memtables(cache_bytes: usize, least_bytes: usize) -> (usize, usize) {
    let limit_bytes = (cache_bytes / 2).clamp(least_bytes, 4 << 30);
    (limit_bytes, (limit_bytes / 4).clamp(least_bytes / 4, 64 << 20))
}
