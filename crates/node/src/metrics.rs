//! The node's metrics, read from their sources when somebody asks.
//!
//! Names and units follow the conventions of Prometheus. Left out so far: latency histograms (they come with the admin pages).

use crate::catalog::CATALOG_TABLET;
use crate::membership::metrics::LaneMetrics;
use crate::shared::Shared;
use diorite_admin::Metrics;
use diorite_replica::Leadership;
use diorite_rpc::tcp::TcpTransport;
use diorite_storage::{TabletStatistics, Ticker};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Renders the metrics of a node.
pub(crate) struct NodeMetrics {
    registry: Registry,
}

impl NodeMetrics {
    pub(crate) fn new(shared: Arc<Shared>, transport: Arc<TcpTransport>) -> Self {
        let mut registry = Registry::with_prefix("diorite");
        registry.register_collector(Box::new(Source(shared)));
        registry.register_collector(Box::new(LaneMetrics(transport)));
        Self { registry }
    }
}

impl Metrics for NodeMetrics {
    fn render(&self, out: &mut String) -> fmt::Result {
        prometheus_client::encoding::text::encode(out, &self.registry)
    }
}

struct Source(Arc<Shared>);

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source")
    }
}

impl Collector for Source {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Writer { encoder: &mut encoder };
        self.requests(&mut out)?;
        self.routing(&mut out)?;
        self.log(&mut out)?;
        self.cache(&mut out)?;
        self.background(&mut out)?;
        self.tablets(&mut out)
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Source {
    fn requests(&self, out: &mut Writer<'_, '_>) -> fmt::Result {
        let counters = &self.0.counters;
        let kinds = [
            ("execute", counters.executes.get()),
            ("query", counters.queries.get()),
            ("prepare", counters.prepares.get()),
            ("batch", counters.batches.get()),
        ];
        out.counters("cql_requests", "CQL requests by kind", None, "kind", &kinds)?;
        let waiting = counters.executes_waiting.get();
        out.counter("cql_executes_waiting", "Executions that could not be answered at once", None, waiting)?;
        out.counter("cql_protocol_errors", "Malformed or misplaced messages", None, read(&counters.protocol_errors))?;
        out.gauge("cql_connections", "Open CQL connections", None, self.0.connections.load(Ordering::Relaxed) as u64)?;
        let refused = read(&counters.connections_refused);
        out.counter("cql_connections_refused", "Connections over the limit", None, refused)?;
        let overloaded = read(&counters.overloaded);
        out.counter("cql_overloaded", "Requests refused because too many were being worked on", None, overloaded)?;
        let (waiting, refused) = self.0.kv.store.queue_state();
        out.gauge("writes_queued", "Writes waiting for a store thread", None, waiting as u64)?;
        out.counter("writes_refused", "Writes refused because a queue was full", None, refused)
    }

    fn routing(&self, out: &mut Writer<'_, '_>) -> fmt::Result {
        let router = &self.0.kv.router;
        let counters = router.counters();
        let by_place = [
            ("here", read(&counters.local)),
            ("elsewhere", read(&counters.forwarded)),
            ("elsewhere, answered here", read(&counters.followed)),
        ];
        let help = "Reads and writes of tablets for this node's clients, by where the tablet is led";
        out.counters("routed_requests", help, None, "led", &by_place)?;
        let frames = [("requests", read(&counters.frames_sent)), ("answers", read(&counters.answer_frames))];
        out.counters("routed_frames", "Frames of requests and answers sent to other nodes", None, "kind", &frames)?;
        let received = read(&counters.received);
        out.counter("routed_received", "Requests that other nodes sent here", None, received)?;
        let refused = read(&counters.refused_not_leader);
        out.counter("routed_refused", "Of these, refused because the tablet is led elsewhere", None, refused)?;
        out.counter("routed_retried", "Requests that were sent again", None, read(&counters.retried))?;
        out.counter("routed_timed_out", "Requests not answered in time", None, read(&counters.timed_out))?;
        let overloaded = read(&counters.overloaded);
        out.counter("routed_overloaded", "Requests refused as too many are on their way", None, overloaded)?;
        let malformed = read(&counters.malformed);
        out.counter("routed_malformed", "Frames that could not be decoded", None, malformed)?;
        let (answers, leaders) = router.waiting();
        let waiting = [("answer", answers as u64), ("leader", leaders as u64)];
        out.gauges("routed_waiting", "Requests that wait, by what for", None, "for", &waiting)
    }

    fn log(&self, out: &mut Writer<'_, '_>) -> fmt::Result {
        let counters = self.0.kv.store.counters();
        out.counter("raft_log_writes", "Batches written to the Raft log", None, read(&counters.log_writes))?;
        out.counter("raft_log_syncs", "Batches that were fsynced", None, read(&counters.log_syncs))?;
        let written = read(&counters.log_bytes);
        out.counter("raft_log_written", "Bytes written to the Raft log", Some(&Unit::Bytes), written)?;
        let seconds = read(&counters.log_write_ns) as f64 / 1e9;
        out.counter_f64("raft_log_write", "Time spent writing the Raft log", &Unit::Seconds, seconds)?;
        out.counter("memory_waits", "Times a store thread waited for a flush", None, read(&counters.memory_waits))
    }

    fn cache(&self, out: &mut Writer<'_, '_>) -> fmt::Result {
        let storage = self.0.kv.store.shared();
        let options = storage.options();
        let bytes = Some(&Unit::Bytes);
        out.gauge("block_cache_limit", "Block cache, memtables included", bytes, options.cache_bytes as u64)?;
        out.gauge("block_cache_used", "In use", bytes, storage.cache_usage_bytes() as u64)?;
        out.gauge("memtable_limit", "All memtables together", bytes, options.memtable_limit_bytes as u64)?;
        out.gauge("memtable_used", "In use", bytes, storage.memtable_usage_bytes() as u64)?;
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
        out.counters("block_cache_misses", "Blocks read from disk, by kind of block", None, "block", &misses)?;
        let bloom = [
            ("negative", storage.ticker(Ticker::BloomFilterUseful)),
            ("positive", storage.ticker(Ticker::BloomFilterFullPositive)),
            ("true_positive", storage.ticker(Ticker::BloomFilterFullTruePositive)),
        ];
        out.counters("bloom_checks", "Bloom filter answers; negative ones saved a read", None, "answer", &bloom)
    }

    fn background(&self, out: &mut Writer<'_, '_>) -> fmt::Result {
        let storage = self.0.kv.store.shared();
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
        out.counters("background_written", "Written in the background", bytes, "by", &written)?;
        let compacted = storage.ticker(Ticker::CompactReadBytes);
        out.counter("compaction_read", "Read by compactions", bytes, compacted)?;
        let quota = options.compaction_rate_bytes;
        out.gauge("background_write_quota", "Per second for flush and compaction; 0 is no limit", bytes, quota)?;
        let stalls = [("slowdown", read(&counters.write_slowdowns)), ("stop", read(&counters.write_stops))];
        out.counters("write_stalls", "Times compaction could not keep up", None, "kind", &stalls)?;
        out.counter("background_errors", "Errors of flushes and compactions", None, read(&counters.background_errors))
    }

    fn tablets(&self, out: &mut Writer<'_, '_>) -> fmt::Result {
        let store = &self.0.kv.store;
        let tablets = store.tablets();
        let disks = store.disks();
        let mut total = TabletStatistics::default();
        let (mut reads, mut writes, mut pending, mut led) = (0, 0, 0, 0);
        let mut per_disk = vec![(0u64, 0u64); disks.len()];
        for handle in tablets.values() {
            let statistics = handle.data().statistics();
            let (tablet_reads, tablet_writes) = handle.operations();
            reads += tablet_reads;
            writes += tablet_writes;
            pending += u64::from(statistics.compaction_pending);
            led += u64::from(handle.leadership() == Leadership::Here);
            total.sst_bytes += statistics.sst_bytes;
            total.sst_files += statistics.sst_files;
            total.keys_estimate += statistics.keys_estimate;
            total.pending_compaction_bytes += statistics.pending_compaction_bytes;
            per_disk[handle.disk()].0 += 1;
            per_disk[handle.disk()].1 += statistics.sst_bytes;
        }
        out.gauge("tablets_led", "Tablets whose leader is here", None, led)?;
        let catalog = tablets.get(&CATALOG_TABLET).is_some_and(|handle| handle.leadership() == Leadership::Here);
        out.gauge("catalog_led", "1 where the catalog's leader is", None, u64::from(catalog))?;
        out.counter("tablet_reads", "Reads served by tablets", None, reads)?;
        out.counter("tablet_writes", "Writes applied by tablets", None, writes)?;
        let bytes = Some(&Unit::Bytes);
        out.gauge("sstable_size", "SSTable files of all tablets", bytes, total.sst_bytes)?;
        out.gauge("sstable_files", "SSTable files of all tablets", None, total.sst_files)?;
        out.gauge("rows_estimate", "Rows of all tablets, estimated by RocksDB", None, total.keys_estimate)?;
        out.gauge("compactions_pending", "Tablets that wait for a compaction thread", None, pending)?;
        let pending_bytes = total.pending_compaction_bytes;
        out.gauge("compaction_pending_size", "To be rewritten by compactions, estimated", bytes, pending_bytes)?;
        let by_disk = |value: &dyn Fn(usize) -> u64| -> Vec<(&str, u64)> {
            disks.iter().enumerate().map(|(index, disk)| (disk.0.as_str(), value(index))).collect()
        };
        out.gauges("disk_tablets", "Tablets per disk", None, "disk", &by_disk(&|index| per_disk[index].0))?;
        out.gauges("disk_sstable_size", "SSTables per disk", bytes, "disk", &by_disk(&|index| per_disk[index].1))?;
        out.gauges("disk_free", "Free per disk", bytes, "disk", &by_disk(&|index| disks[index].1))?;
        out.gauges("disk_total", "Size of each disk", bytes, "disk", &by_disk(&|index| disks[index].2))?;
        out.gauges("disk_raft_log_size", "Raft log per disk", bytes, "disk", &by_disk(&|index| disks[index].3))?;
        let full = by_disk(&|index| u64::from(disks[index].4));
        out.gauges("disk_full", "1 where writes are refused for lack of space", None, "disk", &full)
    }
}

/// Writes metrics one by one.
struct Writer<'w, 'e> {
    encoder: &'w mut DescriptorEncoder<'e>,
}

impl Writer<'_, '_> {
    fn counter(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: u64) -> fmt::Result {
        let metric = self.encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
        ConstCounter::new(value).encode(metric)
    }

    fn counter_f64(&mut self, name: &str, help: &str, unit: &Unit, value: f64) -> fmt::Result {
        let metric = self.encoder.encode_descriptor(name, help, Some(unit), MetricType::Counter)?;
        ConstCounter::new(value).encode(metric)
    }

    fn gauge(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: u64) -> fmt::Result {
        let metric = self.encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        gauge_of(value).encode(metric)
    }

    fn counters(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        label: &str,
        values: &[(&str, u64)],
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
        for (value_of_label, value) in values {
            let labels = [(label, *value_of_label)];
            ConstCounter::new(*value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        label: &str,
        values: &[(&str, u64)],
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for (value_of_label, value) in values {
            let labels = [(label, *value_of_label)];
            gauge_of(*value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn gauge_of(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}
