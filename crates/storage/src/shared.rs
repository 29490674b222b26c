//! The resources that all tablets of a node share (block cache, memtable limit, thread pools, rate limit, counters),
//! and the RocksDB options made from them.

use crate::brief;
use crate::counters::StorageCounters;
use crate::error::StorageError;
use crate::expiry::{Expiry, ExpiryFilterFactory};
use crate::listener::{Listener, TabletEvents};
use crate::measured;
use crate::memtable;
use crate::options::StorageOptions;
use crate::purging::purged;
use crate::rate_limiter::RateLimiter;
use crate::semantics::{ValueSemantics, Values};
use crate::table_options::{self, LEVELS, TableOptions};
use diorite_base::caught::caught;
use rust_rocksdb::statistics::{StatsLevel, Ticker};
use rust_rocksdb::{
    Cache, Env, LogLevel, MergeOperands, Options, ReadOptions, ReadTier, WriteBufferManager, WriteOptions,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Resources of one node.
pub struct Shared {
    options: StorageOptions,
    base: Options,
    cache: Cache,
    write_buffers: WriteBufferManager,
    rate_limiter: RateLimiter,
    semantics: Arc<dyn ValueSemantics>,
    counters: Arc<StorageCounters>,
    present_s: Arc<AtomicU32>,
    pub(crate) write_options: WriteOptions,
    pub(crate) read_cached: ReadOptions,
    pub(crate) read_any: ReadOptions,
}

impl Shared {
    /// Creates the caches, pools and limits.
    pub fn new(options: StorageOptions, semantics: Arc<dyn ValueSemantics>) -> Result<Arc<Self>, StorageError> {
        let cache = Cache::new_hyper_clock_cache(options.cache_bytes, 0);
        let write_buffers =
            WriteBufferManager::new_write_buffer_manager_with_cache(options.memtable_limit_bytes, false, cache.clone());
        let mut base = base_options(&options, &write_buffers)?;
        let rate_limiter = RateLimiter::new(options.compaction_rate_bytes);
        rate_limiter.limit(&mut base);
        let mut write_options = WriteOptions::default();
        write_options.disable_wal(true);
        let mut read_cached = ReadOptions::default();
        read_cached.set_read_tier(ReadTier::BlockCache);
        Ok(Arc::new(Self {
            options,
            base,
            cache,
            write_buffers,
            rate_limiter,
            semantics,
            counters: Arc::default(),
            present_s: Arc::new(AtomicU32::new(u32::MAX)),
            write_options,
            read_cached,
            read_any: ReadOptions::default(),
        }))
    }

    /// Sets the current second. Compaction uses the time of logs, but no time after the current second: a log may have
    /// been written with a wrong clock.
    pub fn set_present_s(&self, now_s: u32) {
        self.present_s.store(now_s, Ordering::Relaxed);
    }

    /// The current second as last set; 0 if unknown.
    pub(crate) fn present_s(&self) -> u32 {
        match self.present_s.load(Ordering::Relaxed) {
            u32::MAX => 0,
            present_s => present_s,
        }
    }

    /// The latest second that compactions may use.
    pub(crate) fn latest_s(&self) -> u32 {
        self.present_s.load(Ordering::Relaxed)
    }

    pub(crate) fn semantics(&self) -> &dyn ValueSemantics {
        self.semantics.as_ref()
    }

    /// The options in force.
    pub fn options(&self) -> &StorageOptions {
        &self.options
    }

    /// Sets the rate limit of flushes and compactions together, bytes per second; 0: no limit.
    pub fn set_compaction_rate(&self, bytes_per_second: u64) {
        self.rate_limiter.set(bytes_per_second);
    }

    /// The current limit, bytes per second.
    pub fn compaction_rate(&self) -> u64 {
        self.rate_limiter.get()
    }

    /// Counters of background work.
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
        table: &TableOptions,
        events: &Arc<TabletEvents>,
        expiry: &Arc<Expiry>,
    ) -> Options {
        let mut options = self.base.clone();
        options.add_event_listener(Listener {
            counters: Arc::clone(&self.counters),
            tablet: Arc::clone(events),
            last_level: LEVELS - 1,
        });
        table.apply(&self.options, &self.cache, &mut options);
        if values == Values::Plain {
            return options;
        }
        let (full, apart) = (Arc::clone(&self.semantics), Arc::clone(&self.semantics));
        let (events, keys) = (Arc::clone(events), Arc::clone(expiry));
        let merge = move |key: &[u8], existing: Option<&[u8]>, operands: &MergeOperands| {
            if !brief::admits(existing, operands.iter()) {
                return None;
            }
            let fold = || or_none(|| full.fold(existing, &mut operands.iter()));
            if measured::takes(existing, operands.iter(), fold) {
                return None;
            }
            events.refolding.note(operands.len(), operands.iter());
            // The compaction filter does not see keys whose values are merged now.
            keys.keys.meet(key);
            fold().map(|merged| purged(full.as_ref(), key, merged))
        };
        let partial = move |_: &[u8], _: Option<&[u8]>, operands: &MergeOperands| {
            or_none(|| apart.fold_apart(&operands.iter().collect::<Vec<_>>()))
        };
        options.set_merge_operator(c"diorite.rows.1", merge, partial);
        options.set_compaction_filter_factory(ExpiryFilterFactory {
            semantics: Arc::clone(&self.semantics),
            expiry: Arc::clone(expiry),
            style: table.compaction,
            present_s: Arc::clone(&self.present_s),
        });
        options
    }
}

/// The result of a merge; `None` if it panics, which RocksDB reports as corruption of this tablet. RocksDB's frames are
/// on the stack, so no panic may cross this function.
fn or_none(fold: impl FnOnce() -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    caught(fold).unwrap_or_else(|panic| {
        tracing::error!(event = "panic", %panic, "values could not be merged");
        None
    })
}

fn base_options(options: &StorageOptions, write_buffers: &WriteBufferManager) -> Result<Options, StorageError> {
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
    // One thread writes a tablet (its worker).
    memtable::set(&mut base);
    base.set_enable_write_thread_adaptive_yield(false);
    base.set_avoid_unnecessary_blocking_io(true);
    base.set_skip_stats_update_on_db_open(true);
    // Closing a tablet flushes nothing, and is as quick as a crash: the log is replayed. An orderly shutdown flushes
    // first.
    base.set_avoid_flush_during_shutdown(true);
    // The default starts 15 threads each time that a tablet of a handful of files is opened.
    base.set_max_file_opening_threads(1);
    base.set_max_open_files(options.open_files_per_tablet);
    base.set_bytes_per_sync(1 << 20);
    base.set_use_direct_reads(options.direct_io);
    base.set_use_direct_io_for_flush_and_compaction(options.direct_io);
    base.set_compaction_readahead_size(2 << 20);
    // No log file for each tablet: making it takes as long as reading the tablet's manifest.
    base.set_callback_logger(LogLevel::Warn, log);
    // The identity is in the manifest; a file of its own is synced twice.
    base.set_write_identity_file(false);
    base.set_stats_dump_period_sec(0);
    base.set_stats_persist_period_sec(0);
    base.set_max_manifest_file_size(16 << 20);
    // The default is 4 MiB, which every tablet would take of the disk.
    base.set_manifest_preallocation_size(16 << 10);
    if options.statistics {
        base.enable_statistics();
        base.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
    }
    table_options::runs(&mut base, options);
    Ok(base)
}

/// Takes a message of RocksDB. Errors concern an operator; most warnings say that writes wait, which metrics count. The
/// options of each tablet, which RocksDB always passes, are left out.
fn log(level: LogLevel, message: &str) {
    let message = message.trim_end();
    match level {
        LogLevel::Error | LogLevel::Fatal => tracing::warn!(event = "rocksdb", "{message}"),
        LogLevel::Warn => tracing::debug!(event = "rocksdb", "{message}"),
        LogLevel::Debug | LogLevel::Info | LogLevel::Header => {}
    }
}
