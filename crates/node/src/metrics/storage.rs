//! Caches, filters, memtables, flushes and compactions, and disks.

use super::source::{Source, read};
use super::writer::Writer;
use diorite_storage::Ticker;
use prometheus_client::registry::Unit;
use std::fmt;

impl Source {
    pub(super) fn cache(&self, out: &mut Writer<'_, '_>) -> fmt::Result {
        let storage = self.shared.kv.store.shared();
        let options = storage.options();
        let bytes = Some(&Unit::Bytes);
        out.gauge(
            "block_cache_limit",
            "Limit of the block cache, memtables included",
            bytes,
            options.cache_bytes as u64,
        )?;
        out.gauge("block_cache_used", "Memory of the block cache in use", bytes, storage.cache_usage_bytes() as u64)?;
        out.gauge("memtable_limit", "Limit of all memtables together", bytes, options.memtable_limit_bytes as u64)?;
        out.gauge("memtable_used", "Memory of memtables in use", bytes, storage.memtable_usage_bytes() as u64)?;
        let hits = [
            ("data", storage.ticker(Ticker::BlockCacheDataHit)),
            ("index", storage.ticker(Ticker::BlockCacheIndexHit)),
            ("filter", storage.ticker(Ticker::BlockCacheFilterHit)),
        ];
        out.counters("block_cache_hits", "Blocks found in the cache, by kind of block", None, "block", &hits)?;
        let misses = [
            ("data", storage.ticker(Ticker::BlockCacheDataMiss)),
            ("index", storage.ticker(Ticker::BlockCacheIndexMiss)),
            ("filter", storage.ticker(Ticker::BlockCacheFilterMiss)),
        ];
        let help = "Blocks that were not in the cache, by kind of block; a read that may wait for the disk looks twice";
        out.counters("block_cache_misses", help, None, "block", &misses)?;
        let read = [
            ("data", storage.ticker(Ticker::BlockCacheDataAdd)),
            ("index", storage.ticker(Ticker::BlockCacheIndexAdd)),
            ("filter", storage.ticker(Ticker::BlockCacheFilterAdd)),
        ];
        let help = "Blocks read from files into the cache, by kind of block";
        out.counters("blocks_read", help, None, "block", &read)?;
        let bloom = [
            ("negative", storage.ticker(Ticker::BloomFilterUseful)),
            ("positive", storage.ticker(Ticker::BloomFilterFullPositive)),
            ("true_positive", storage.ticker(Ticker::BloomFilterFullTruePositive)),
        ];
        out.counters("bloom_checks", "Bloom filter answers; negative ones saved a read", None, "answer", &bloom)
    }

    pub(super) fn background(&self, out: &mut Writer<'_, '_>) -> fmt::Result {
        let storage = self.shared.kv.store.shared();
        let counters = storage.counters();
        let running = [
            ("flush", read(&counters.flushes_running)),
            ("small", read(&counters.compactions_running_low)),
            ("large", read(&counters.compactions_running_bottom)),
        ];
        out.gauges("background_running", "Flushes and compactions under way, by pool", None, "pool", &running)?;
        let options = storage.options();
        let threads = [
            ("flush", options.flush_threads as u64),
            ("small", options.compaction_threads as u64),
            ("large", options.bottom_compaction_threads as u64),
        ];
        out.gauges("background_threads", "Threads of each pool", None, "pool", &threads)?;
        out.counter("flushes", "Flushes finished", None, read(&counters.flushes))?;
        out.counter("compactions", "Compactions finished", None, read(&counters.compactions))?;
        let bytes = Some(&Unit::Bytes);
        let written = [
            ("flush", storage.ticker(Ticker::FlushWriteBytes)),
            ("compaction", storage.ticker(Ticker::CompactWriteBytes)),
        ];
        out.counters("background_written", "Bytes written by flushes and compactions", bytes, "by", &written)?;
        let compacted = storage.ticker(Ticker::CompactReadBytes);
        out.counter("compaction_read", "Bytes read by compactions", bytes, compacted)?;
        let quota = storage.compaction_rate();
        out.gauge(
            "background_write_quota",
            "Bytes per second that flushes and compactions may write; 0: no limit",
            bytes,
            quota,
        )?;
        let stalls = [("slowdown", read(&counters.write_slowdowns)), ("stop", read(&counters.write_stops))];
        out.counters(
            "write_stalls",
            "Times that writes were delayed because flushes or compactions lagged",
            None,
            "kind",
            &stalls,
        )?;
        let seconds = read(&counters.compaction_us) as f64 / 1e6;
        out.counter_f64("compaction", "Time that compactions took, over all threads", &Unit::Seconds, seconds)?;
        let passed = read(&counters.dead_rows_passed);
        out.counter("dead_rows_passed", "Deleted and expired rows that scans have passed over", None, passed)?;
        out.counter("background_errors", "Errors of flushes and compactions", None, read(&counters.background_errors))
    }

    /// Metrics of read, write and space amplification.
    pub(super) fn amplification(&self, out: &mut Writer<'_, '_>, files_bytes: u64, live_bytes: u64) -> fmt::Result {
        let storage = self.shared.kv.store.shared();
        let ticker = |ticker| storage.ticker(ticker);
        let ratio = |of: u64, to: u64| if to == 0 { 0.0 } else { of as f64 / to as f64 };
        let unit = Unit::Other("ratio".to_owned());
        let unit = Some(&unit);
        let flushed = ticker(Ticker::FlushWriteBytes);
        let written = ratio(flushed + ticker(Ticker::CompactWriteBytes), flushed);
        out.gauge_f64(
            "write_amplification",
            "Bytes written by flushes and compactions per byte flushed",
            unit,
            written,
        )?;
        let blocks = ticker(Ticker::BlockCacheDataMiss)
            + ticker(Ticker::BlockCacheIndexMiss)
            + ticker(Ticker::BlockCacheFilterMiss);
        let read = ratio(blocks, ticker(Ticker::NumberKeysRead));
        out.gauge_f64("read_amplification", "Blocks read from disk per requested key", unit, read)?;
        let kept = ratio(files_bytes, live_bytes);
        out.gauge_f64("space_amplification", "Bytes of SSTables per live byte, estimated", unit, kept)?;
        let bytes = Some(&Unit::Bytes);
        out.counter(
            "user_written",
            "Bytes written to tablets, before any amplification",
            bytes,
            ticker(Ticker::BytesWritten),
        )?;
        out.counter("user_read", "Bytes of values read from tablets by key", bytes, ticker(Ticker::BytesRead))
    }
}
