//! The Raft log, consensus, and the tablets of the node: in all, by disk and by table.

use super::source::{Source, read};
use super::tables::Tables;
use super::writer::Writer;
use crate::catalog::CATALOG_TABLET;
use diorite_replica::Leadership;
use diorite_storage::{FileContents, TabletStatistics};
use prometheus_client::registry::Unit;
use std::fmt;

impl Source {
    pub(super) fn log(&self, out: &mut Writer<'_, '_>) -> fmt::Result {
        let counters = self.shared.kv.store.counters();
        out.counter("raft_log_writes", "Batches written to the Raft log", None, read(&counters.log_writes))?;
        out.counter("raft_log_syncs", "Batches written to the Raft log and fsynced", None, read(&counters.log_syncs))?;
        let written = read(&counters.log_bytes);
        out.counter("raft_log_written", "Bytes written to the Raft log", Some(&Unit::Bytes), written)?;
        let seconds = read(&counters.log_write_ns) as f64 / 1e9;
        out.counter_f64("raft_log_write", "Time spent writing the Raft log", &Unit::Seconds, seconds)?;
        let help = "How long batches took to be written to the Raft log and fsynced";
        out.histogram("raft_log_sync_duration", help, &counters.log_sync_times.snapshot())?;
        let help = "Writes refused because a row that they would have added to is too large, or grew faster than it was measured";
        out.counter("large_row_writes_refused", help, None, read(&counters.large_row_writes_refused))?;
        let help = "Rows measured because much was added to them";
        out.counter("rows_measured", help, None, read(&counters.rows_measured))?;
        out.counter("memory_waits", "Times a store thread waited for a flush", None, read(&counters.memory_waits))
    }

    /// Metrics of consensus: proposals, commits, leaders, and copies of replicas.
    pub(super) fn raft(&self, out: &mut Writer<'_, '_>) -> fmt::Result {
        let store = &self.shared.kv.store;
        let counters = store.counters();
        out.counter("raft_proposals", "Writes proposed by tablets led here", None, counters.proposals.get())?;
        let help = "Entries of the Raft log that were committed and applied here";
        out.counter("raft_entries_committed", help, None, counters.entries_committed.get())?;
        out.counter("raft_campaigns", "Elections called by replicas here", None, read(&counters.campaigns))?;
        out.counter("raft_elections_won", "Elections won by replicas here", None, read(&counters.elections_won))?;
        let leases = [("taken", read(&counters.leases_taken)), ("lost", read(&counters.leases_lost))];
        out.counters("raft_leases", "Leases of tablets led here that began and ended", None, "change", &leases)?;
        let liveness = store.liveness();
        let help = "Heartbeats answered by other nodes, each of which renews the leases here that depend on that node";
        out.counter("raft_lease_renewals", help, None, liveness.support_received())?;
        let help = "1 while this node's wall clock differs from those of most other nodes: it leads nothing then";
        out.gauge("clock_off", help, None, u64::from(liveness.clock_is_off_us().is_some()))?;
        let help = "How far the other nodes' wall clocks are ahead of this node's, median";
        let ahead_us = liveness.clocks_ahead_us().unwrap_or(0);
        out.gauge_f64("clock_others_ahead", help, Some(&Unit::Seconds), ahead_us as f64 / 1e6)?;
        let help = "How far timestamps in logs of tablets here are ahead of this node's clock, if by more than clocks may differ";
        let ahead_us = liveness.logs_ahead_us().unwrap_or(0);
        out.gauge_f64("clock_logs_ahead", help, Some(&Unit::Seconds), ahead_us as f64 / 1e6)?;
        let help = "Times that the machine's wall clock was set by more than the limit";
        out.counter("clock_steps", help, None, liveness.clock_steps())?;
        let help = "Frames of the raft lane that could not be sent";
        out.counter("raft_frames_lost", help, None, read(&counters.frames_lost))?;
        let copied = [("sent", read(&counters.copy_bytes_sent)), ("received", read(&counters.copy_bytes_received))];
        out.counters("replica_copied", "Bytes of copies of replicas", Some(&Unit::Bytes), "direction", &copied)?;
        let help = "Replicas moved to another disk of this node";
        out.counter("replica_disk_moves", help, None, read(&counters.disk_moves))?;
        let help = "Bytes copied between this node's disks to move replicas";
        out.counter("replica_disk_moved", help, Some(&Unit::Bytes), read(&counters.disk_move_bytes))?;
        let (help, scrub) = ("Bytes that scrubs have read", store.scrub_status());
        out.counter("scrub_read", help, Some(&Unit::Bytes), read(&counters.scrubbed_bytes))?;
        let help = "When the last complete scrub since the node's start has ended, Unix time; 0: none yet";
        let finished_s = scrub.finished_ms.unwrap_or(0) as f64 / 1e3;
        out.gauge_f64("scrub_finished", help, Some(&Unit::Seconds), finished_s)?;
        out.counter("scrub_damage_found", "Times that scrubs have found damage", None, scrub.damage_found)?;
        out.gauge("scrub_running", "1 while a scrub runs", None, u64::from(scrub.is_running))?;
        let copies = store.copies();
        let under_way = |incoming: bool| copies.iter().filter(|copy| copy.incoming == incoming).count() as u64;
        let copies = [("sending", under_way(false)), ("receiving", under_way(true))];
        out.gauges("replica_copies", "Copies of replicas under way", None, "direction", &copies)
    }

    /// Sums over all tablets, over the disks, and by table.
    pub(super) fn tablets(&self, out: &mut Writer<'_, '_>) -> fmt::Result {
        let store = &self.shared.kv.store;
        let disks = store.disks();
        let mut total = TabletStatistics::default();
        let (mut live_bytes, mut led, mut catalog_led) = (0, 0, 0);
        let mut reader_bytes = 0;
        let mut contents = Some(FileContents::default());
        let mut per_disk = vec![(0u64, 0u64); disks.len()];
        let mut tables = Tables::new(&self.shared.kv.catalog.served());
        for handle in store.tablets().values() {
            let statistics = handle.data().statistics();
            let leads = handle.leadership() == Leadership::Here;
            led += u64::from(leads);
            catalog_led += u64::from(leads && handle.id() == CATALOG_TABLET);
            live_bytes += statistics.live_bytes;
            contents = contents.zip(handle.data().files().contents).map(|(mut sum, found)| {
                sum.add(&found);
                sum
            });
            reader_bytes += handle.data().reader_bytes();
            total.add(&statistics);
            if let Some((tablets, bytes)) = per_disk.get_mut(handle.disk()) {
                *tablets += 1;
                *bytes += statistics.sst_bytes;
            }
            tables.add(handle.id(), handle.operations(), statistics.sst_bytes, leads);
        }
        out.gauge("tablets", "Tablet replicas here", None, store.tablets().len() as u64)?;
        let set_aside = store.set_aside().len() as u64;
        out.gauge("tablets_set_aside", "Tablet replicas here that cannot be used", None, set_aside)?;
        out.gauge("tablets_led", "Tablets whose leader is here", None, led)?;
        out.gauge("catalog_led", "1 on the node that leads the catalog", None, catalog_led)?;
        self.totals(out, &total)?;
        Self::contents(out, contents, reader_bytes)?;
        self.amplification(out, total.sst_bytes, live_bytes)?;
        tables.write(&mut self.by_table.lock(), out)?;
        let bytes = Some(&Unit::Bytes);
        let by_disk = |value: &dyn Fn(usize) -> u64| -> Vec<(&str, u64)> {
            disks.iter().enumerate().map(|(index, disk)| (disk.path.as_str(), value(index))).collect()
        };
        out.gauges("disk_tablets", "Tablet replicas on each disk", None, "disk", &by_disk(&|index| per_disk[index].0))?;
        out.gauges(
            "disk_sstable_size",
            "Bytes of SSTables on each disk",
            bytes,
            "disk",
            &by_disk(&|index| per_disk[index].1),
        )?;
        out.gauges("disk_free", "Free bytes of each disk", bytes, "disk", &by_disk(&|index| disks[index].free_bytes))?;
        out.gauges("disk_total", "Size of each disk", bytes, "disk", &by_disk(&|index| disks[index].total_bytes))?;
        out.gauges(
            "disk_raft_log_size",
            "Bytes of the Raft log on each disk",
            bytes,
            "disk",
            &by_disk(&|index| disks[index].log_bytes),
        )?;
        let full = by_disk(&|index| u64::from(disks[index].is_full));
        out.gauges("disk_full", "1 where writes are refused for lack of space", None, "disk", &full)?;
        let failed = by_disk(&|index| u64::from(disks[index].has_failed));
        out.gauges("disk_failed", "1 where the disk has failed and is not used", None, "disk", &failed)
    }

    /// The contents of SSTables, and the cost of reading them. Missing until the new files of all tablets have been
    /// measured.
    fn contents(out: &mut Writer<'_, '_>, contents: Option<FileContents>, reader_bytes: u64) -> fmt::Result {
        let bytes = Some(&Unit::Bytes);
        let help = "Memory that readers of SSTables hold beside the block cache, estimated";
        out.gauge("sstable_readers", help, bytes, reader_bytes)?;
        let Some(contents) = contents else { return Ok(()) };
        let parts = [("data", contents.data_bytes), ("index", contents.index_bytes), ("filter", contents.filter_bytes)];
        out.gauges(
            "sstable_blocks_size",
            "Bytes of SSTables of all tablets, by kind of block",
            bytes,
            "block",
            &parts,
        )?;
        let help = "Keys and values in SSTables, before they are encoded and compressed";
        out.gauge("sstable_contents_size", help, bytes, contents.content_bytes)
    }

    fn totals(&self, out: &mut Writer<'_, '_>, total: &TabletStatistics) -> fmt::Result {
        let bytes = Some(&Unit::Bytes);
        out.gauge("sstable_size", "Bytes of SSTables of all tablets", bytes, total.sst_bytes)?;
        out.gauge("sstable_files", "SSTables of all tablets", None, total.sst_files)?;
        out.gauge("rows_estimate", "Rows of all tablets, estimated by RocksDB", None, total.keys_estimate)?;
        let pending = total.compactions_pending;
        out.gauge("compactions_pending", "Tablets that wait for a compaction thread", None, pending)?;
        let pending_bytes = total.pending_compaction_bytes;
        out.gauge(
            "compaction_pending_size",
            "Bytes that compactions have still to rewrite, estimated",
            bytes,
            pending_bytes,
        )
    }
}
