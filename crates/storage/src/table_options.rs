//! The storage options of a table, and the RocksDB options made from them.
//!
//! Always true: the options apply to files written from now on; every file records how it is read. Options change how
//! data is stored and what reads cost, never the result of a read.

use crate::merging::{RUNS, RUNS_WHILE_LOADING, SIZE_RATIO, WIDTH};
use crate::options::StorageOptions;
use rust_rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DBCompactionStyle, DBCompressionType, DataBlockIndexType, Options,
    UniversalCompactOptions,
};

/// Levels of a tablet; universal compaction uses the upper ones as slots for sorted runs.
pub(crate) const LEVELS: i32 = 7;

/// At this many sorted runs writes slow down; at twice as many they stop.
pub(crate) const SLOWDOWN_RUNS: i32 = 2 * RUNS_WHILE_LOADING;

/// RocksDB's value for an algorithm's default level. For LZ4, positive levels select LZ4 HC: level 1 takes nine times
/// the processor time.
const USUAL_LEVEL: i32 = 32_767;

/// The size of the partitions of index and filter, before compression.
const PARTITION_BYTES: usize = 16 << 10;

/// The rule by which files are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompactionStyle {
    /// Runs of similar size: the least write amplification.
    #[default]
    SizeTiered,
    /// Levels, each ten times the size of the one above: the least space for data that is often overwritten.
    Leveled,
    /// One file for each window of time once the window is over; files whose rows have all expired are not merged with
    /// others.
    TimeWindow {
        /// The length of a window, seconds.
        window_s: u32,
    },
}

impl CompactionStyle {
    /// Whether each file contains all writes between two moments, so that its newest applied state covers all of it.
    pub(crate) fn merges_whole_runs(self) -> bool {
        self != Self::Leveled
    }
}

/// The files that have filters.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Filters {
    /// All files but those of the last level, which hold most of the data: a read of an existing key reads them anyway.
    #[default]
    UpperRuns,
    /// All files: a read of an absent key reads the disk only with this probability.
    Everywhere {
        /// The probability of a false positive, above 0 and below 1.
        fp_chance: f64,
    },
}

/// The compression of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// No compression.
    None,
    /// LZ4.
    #[default]
    Lz4,
    /// Zstandard.
    Zstd {
        /// The level, from 1, the fastest, to 22.
        level: i32,
    },
}

/// The options with which the files of a tablet are written.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TableOptions {
    /// How files are merged.
    pub compaction: CompactionStyle,
    /// The files that have filters.
    pub filters: Filters,
    /// The compression of blocks.
    pub compression: Compression,
    /// The compression of the last level, if it differs.
    pub last_level_compression: Option<Compression>,
    /// Block size before compression, bytes, if it differs from [`StorageOptions`].
    pub block_bytes: Option<usize>,
}

impl From<CompactionStyle> for TableOptions {
    fn from(compaction: CompactionStyle) -> Self {
        Self { compaction, ..Self::default() }
    }
}

impl TableOptions {
    /// Sets the options of a tablet accordingly.
    pub(crate) fn apply(&self, shared: &StorageOptions, cache: &Cache, options: &mut Options) {
        match self.compaction {
            CompactionStyle::SizeTiered => {}
            CompactionStyle::Leveled => {
                options.set_compaction_style(DBCompactionStyle::Level);
                options.set_level_compaction_dynamic_level_bytes(true);
            }
            // `crate::windows` chooses the files to merge.
            CompactionStyle::TimeWindow { .. } => {
                options.set_disable_auto_compactions(true);
                // Each window keeps its file as long as the window exists.
                options.set_level_zero_slowdown_writes_trigger(WINDOW_FILES);
                options.set_level_zero_stop_writes_trigger(2 * WINDOW_FILES);
            }
        }
        options.set_optimize_filters_for_hits(self.filters == Filters::UpperRuns);
        let (kind, level) = self.compression.kind_and_level();
        options.set_compression_type(kind);
        options.set_compression_options(WINDOW_BITS, level, 0, 0);
        if let Some(last) = self.last_level_compression {
            let (kind, level) = last.kind_and_level();
            options.set_bottommost_compression_type(kind);
            options.set_bottommost_compression_options(WINDOW_BITS, level, 0, 0, true);
        }
        options.set_block_based_table_factory(&self.blocks(shared, cache));
    }

    fn blocks(&self, shared: &StorageOptions, cache: &Cache) -> BlockBasedOptions {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(cache);
        table.set_block_size(self.block_bytes.unwrap_or(shared.block_bytes));
        match self.filters {
            Filters::UpperRuns if shared.has_ribbon_filters => table.set_ribbon_filter(shared.bloom_bits),
            Filters::UpperRuns => table.set_bloom_filter(shared.bloom_bits, false),
            Filters::Everywhere { fp_chance } => table.set_ribbon_filter(bits_for(fp_chance)),
        }
        table.set_whole_key_filtering(true);
        table.set_optimize_filters_for_memory(true);
        // Filters and indexes are cached in parts, like data; their top level stays in memory. So a read of a cold key
        // reads one data block from disk.
        table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        table.set_index_block_restart_interval(shared.index_restart_interval);
        table.set_partition_filters(true);
        table.set_decouple_partitioned_filters(true);
        table.set_metadata_block_size(PARTITION_BYTES);
        table.set_cache_index_and_filter_blocks(true);
        table.set_cache_index_and_filter_blocks_with_high_priority(true);
        table.set_pin_top_level_index_and_filter(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(shared.pins_upper_runs);
        table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        table.set_data_block_hash_ratio(0.75);
        table.set_format_version(6);
        table
    }
}

/// Number of files at which writes to a tablet with time windows slow down.
const WINDOW_FILES: i32 = 400;

/// RocksDB's default: no zlib header.
const WINDOW_BITS: i32 = -14;

impl Compression {
    fn kind_and_level(self) -> (DBCompressionType, i32) {
        match self {
            Self::None => (DBCompressionType::None, 0),
            Self::Lz4 => (DBCompressionType::Lz4, USUAL_LEVEL),
            Self::Zstd { level } => (DBCompressionType::Zstd, level),
        }
    }
}

/// Bits per key of a filter with this probability of a false positive: those of an ideal Bloom filter, plus a little
/// because each key uses one cache line.
fn bits_for(fp_chance: f64) -> f64 {
    let ideal = -fp_chance.clamp(1e-5, 0.9).ln() / std::f64::consts::LN_2.powi(2);
    (ideal * 1.05).clamp(1.0, 24.0)
}

/// The options that all tablets share: runs are merged with those of similar size.
pub(crate) fn runs(base: &mut Options, options: &StorageOptions) {
    base.set_compaction_style(DBCompactionStyle::Universal);
    base.set_num_levels(LEVELS);
    let mut universal = UniversalCompactOptions::default();
    universal.set_size_ratio(SIZE_RATIO);
    universal.set_min_merge_width(WIDTH);
    universal.set_max_size_amplification_percent(options.space_amplification_percent);
    base.set_universal_compaction_options(&universal);
    base.set_level_zero_file_num_compaction_trigger(RUNS);
    base.set_level_zero_slowdown_writes_trigger(SLOWDOWN_RUNS);
    base.set_level_zero_stop_writes_trigger(2 * SLOWDOWN_RUNS);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_chance_takes_more_bits() {
        let bits = [0.5, 0.1, 0.01, 0.001, 0.0001].map(bits_for);
        assert!(bits.is_sorted_by(|a, b| a < b), "{bits:?}");
        assert!((9.0..11.0).contains(&bits_for(0.01)), "{}", bits_for(0.01));
    }
}
