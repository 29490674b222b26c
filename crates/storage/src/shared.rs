//! What all tablets of a node share: block cache, memtable limit, thread pools, rate limit, counters; and the RocksDB
//! options made from them.

use crate::brief;
use crate::error::StorageError;
use crate::expiry::{Expiry, ExpiryFilterFactory};
use crate::listener::{Listener, TabletEvents};
use crate::options::StorageOptions;
use crate::semantics::ValueSemantics;
use crate::tablet::{CompactionStyle, Values};
use rust_rocksdb::statistics::{StatsLevel, Ticker};
use rust_rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DBCompactionStyle, DBCompressionType, DataBlockIndexType, Env,
    LogLevel, MergeOperands, Options, ReadOptions, ReadTier, UniversalCompactOptions, WriteBufferManager, WriteOptions,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Levels of a tablet; universal compaction uses the upper ones as slots for sorted runs.
const LEVELS: i32 = 7;

/// Counters of background work, over all tablets.
#[derive(Debug, Default)]
pub struct StorageCounters {
    /// Flushes under way.
    pub flushes_running: AtomicU64,
    /// Compactions under way in the LOW pool (not into the last level).
    pub compactions_running_low: AtomicU64,
    /// Compactions under way into the last level.
    pub compactions_running_bottom: AtomicU64,
    /// Flushes finished.
    pub flushes: AtomicU64,
    /// Compactions finished.
    pub compactions: AtomicU64,
    /// Time that compactions took, microseconds.
    pub compaction_us: AtomicU64,
    /// Times RocksDB slowed writes down.
    pub write_slowdowns: AtomicU64,
    /// Times RocksDB stopped writes.
    pub write_stops: AtomicU64,
    /// Background errors.
    pub background_errors: AtomicU64,
}

/// Resources of one node.
pub struct Shared {
    options: StorageOptions,
    base: Options,
    cache: Cache,
    write_buffers: WriteBufferManager,
    semantics: Arc<dyn ValueSemantics>,
    counters: Arc<StorageCounters>,
    present_s: Arc<AtomicU32>,
    pub(crate) write_options: WriteOptions,
    pub(crate) read_cached: ReadOptions,
    pub(crate) read_any: ReadOptions,
}

impl Shared {
    /// Makes the caches, pools and limits.
    pub fn new(options: StorageOptions, semantics: Arc<dyn ValueSemantics>) -> Result<Arc<Self>, StorageError> {
        let cache = Cache::new_hyper_clock_cache(options.cache_bytes, 0);
        let write_buffers =
            WriteBufferManager::new_write_buffer_manager_with_cache(options.memtable_limit_bytes, false, cache.clone());
        let base = base_options(&options, &cache, &write_buffers)?;
        let mut write_options = WriteOptions::default();
        write_options.disable_wal(true);
        let mut read_cached = ReadOptions::default();
        read_cached.set_read_tier(ReadTier::BlockCache);
        Ok(Arc::new(Self {
            options,
            base,
            cache,
            write_buffers,
            semantics,
            counters: Arc::default(),
            present_s: Arc::new(AtomicU32::new(u32::MAX)),
            write_options,
            read_cached,
            read_any: ReadOptions::default(),
        }))
    }

    /// It is this second. Compaction goes by the time that logs say, but by none that has yet to come: a log may have been written by a clock that was wrong.
    pub fn set_present_s(&self, now_s: u32) {
        self.present_s.store(now_s, Ordering::Relaxed);
    }

    /// The options in force.
    pub fn options(&self) -> &StorageOptions {
        &self.options
    }

    /// Background work so far.
    pub fn counters(&self) -> &StorageCounters {
        &self.counters
    }

    /// Bytes in the block cache, memtables included.
    pub fn cache_usage_bytes(&self) -> usize {
        self.cache.get_usage()
    }

    /// Bytes in all memtables.
    pub fn memtable_usage_bytes(&self) -> usize {
        self.write_buffers.get_usage()
    }

    /// A RocksDB counter, summed over all tablets since start.
    pub fn ticker(&self, ticker: Ticker) -> u64 {
        self.base.get_ticker_count(ticker)
    }

    /// Options for one tablet.
    pub(crate) fn tablet_options(
        &self,
        values: Values,
        compaction: CompactionStyle,
        events: &Arc<TabletEvents>,
        expiry: &Arc<Expiry>,
    ) -> Options {
        let mut options = self.base.clone();
        options.add_event_listener(Listener {
            counters: Arc::clone(&self.counters),
            tablet: Arc::clone(events),
            last_level: LEVELS - 1,
        });
        if compaction == CompactionStyle::Leveled {
            options.set_compaction_style(DBCompactionStyle::Level);
            options.set_level_compaction_dynamic_level_bytes(true);
        }
        if values == Values::Plain {
            return options;
        }
        let (full, apart) = (Arc::clone(&self.semantics), Arc::clone(&self.semantics));
        let events = Arc::clone(events);
        let merge = move |_: &[u8], existing: Option<&[u8]>, operands: &MergeOperands| {
            if !brief::admits(existing, operands.iter()) {
                return None;
            }
            events.refolding.note(operands.len(), operands.iter());
            full.fold(existing, &mut operands.iter())
        };
        let partial = move |_: &[u8], _: Option<&[u8]>, operands: &MergeOperands| {
            apart.fold_apart(&operands.iter().collect::<Vec<_>>())
        };
        options.set_merge_operator(c"diorite.rows.1", merge, partial);
        options.set_compaction_filter_factory(ExpiryFilterFactory {
            semantics: Arc::clone(&self.semantics),
            expiry: Arc::clone(expiry),
            style: compaction,
            present_s: Arc::clone(&self.present_s),
        });
        options
    }
}

fn base_options(
    options: &StorageOptions,
    cache: &Cache,
    write_buffers: &WriteBufferManager,
) -> Result<Options, StorageError> {
    let mut env = Env::new()?;
    env.set_high_priority_background_threads(options.flush_threads);
    env.set_low_priority_background_threads(options.compaction_threads);
    env.set_bottom_priority_background_threads(options.bottom_compaction_threads);

    let mut base = Options::default();
    base.create_if_missing(true);
    base.set_env(&env);
    base.set_write_buffer_manager(write_buffers);
    base.set_write_buffer_size(options.memtable_bytes);
    base.set_max_write_buffer_number(4);
    base.set_arena_block_size(64 << 10);
    base.set_max_background_jobs(options.flush_threads + options.compaction_threads);
    base.set_max_subcompactions(1);
    // One thread writes a tablet (its worker), so the memtable needs no concurrent insertion.
    base.set_allow_concurrent_memtable_write(false);
    base.set_enable_write_thread_adaptive_yield(false);
    base.set_avoid_unnecessary_blocking_io(true);
    base.set_skip_stats_update_on_db_open(true);
    // Closing is as quick as crashing: the log is replayed. A clean shutdown flushes first.
    base.set_avoid_flush_during_shutdown(true);
    // Otherwise each opening of a tablet, of a handful of files, starts 15 threads.
    base.set_max_file_opening_threads(1);
    base.set_max_open_files(options.open_files_per_tablet);
    base.set_bytes_per_sync(1 << 20);
    base.set_use_direct_reads(options.direct_reads);
    base.set_compaction_readahead_size(2 << 20);
    base.set_log_level(LogLevel::Warn);
    base.set_keep_log_file_num(2);
    base.set_max_log_file_size(1 << 20);
    base.set_stats_dump_period_sec(0);
    base.set_stats_persist_period_sec(0);
    base.set_max_manifest_file_size(16 << 20);
    if options.compaction_rate_bytes > 0 {
        let rate = i64::try_from(options.compaction_rate_bytes).unwrap_or(i64::MAX);
        base.set_ratelimiter(rate, 100_000, 10);
    }
    if options.statistics {
        base.enable_statistics();
        base.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
    }
    compaction_options(&mut base, options);
    base.set_block_based_table_factory(&table_options(options, cache));
    Ok(base)
}

fn compaction_options(base: &mut Options, options: &StorageOptions) {
    base.set_compaction_style(DBCompactionStyle::Universal);
    base.set_num_levels(LEVELS);
    let mut universal = UniversalCompactOptions::default();
    universal.set_size_ratio(20);
    universal.set_min_merge_width(4);
    universal.set_max_size_amplification_percent(options.space_amplification_percent);
    base.set_universal_compaction_options(&universal);
    base.set_level_zero_file_num_compaction_trigger(6);
    base.set_level_zero_slowdown_writes_trigger(24);
    base.set_level_zero_stop_writes_trigger(48);
    base.set_compression_type(DBCompressionType::Lz4);
}

fn table_options(options: &StorageOptions, cache: &Cache) -> BlockBasedOptions {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_block_size(options.block_bytes);
    table.set_bloom_filter(options.bloom_bits, false);
    table.set_whole_key_filtering(true);
    table.set_optimize_filters_for_memory(true);
    // Filters and indexes are paged like data, their top level stays in memory: a read of a cold key costs one data block.
    table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    table.set_partition_filters(true);
    table.set_metadata_block_size(16 << 10);
    table.set_cache_index_and_filter_blocks(true);
    table.set_cache_index_and_filter_blocks_with_high_priority(true);
    table.set_pin_top_level_index_and_filter(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    table.set_data_block_hash_ratio(0.75);
    table.set_format_version(6);
    table
}
