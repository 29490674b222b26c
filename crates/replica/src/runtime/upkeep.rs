//! Background work beside the write path: flushes before memory or replay exceed their limits, truncates the log where
//! the data is durable, watches free space, and handles disks on which something has failed.
//!
//! A tablet is also flushed when reads have merged the operands of a key again and again: a flush makes one value of
//! them (`Tablet::wants_flush_for_reads`). Idle tablets that hold expiring values receive the time (`group::writes`).
//! The tablet with the oldest unflushed writes is flushed first: that frees the log. Tablets that have received writes
//! since the same moment are flushed one after another, not together ([`FlushRate`]). One thread does this, ten times a
//! second, and when a worker waits for memory.

use crate::group::handle::TabletHandle;
use crate::group::writes;
use crate::lifecycle::command::Command;
use crate::lifecycle::copy::copies::Copies;
use crate::lifecycle::disks::Disk;
use crate::lifecycle::replicas::NodeReplicas;
use crate::options::Durability;
use crate::runtime::flush_rate::FlushRate;
use crate::runtime::memory_gate::MemoryGate;
use ahash::AHashMap;
use diorite_base::{GroupId, TabletId};
use diorite_storage::LOG_FILE_BYTES;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The time between two rounds.
const PERIOD: Duration = Duration::from_millis(100);

/// The shortest time between two purges of log files, nanoseconds, while the log is over its limit although little is
/// written.
const CROWDED_NS: u64 = 500_000_000;

/// How often copies are checked for unfinished ones, nanoseconds.
const SWEEP_NS: u64 = 10_000_000_000;

/// Idle tablets are checked once in this many rounds for whether they need the time.
const TIME_ROUNDS: u64 = 600;

/// Runs rounds until the store closes.
pub(crate) fn run(replicas: &NodeReplicas, memory: &MemoryGate, copies: &Copies) {
    let mut seen_flushes: AHashMap<TabletId, u64> = AHashMap::default();
    let (mut rate, mut purge) = (FlushRate::default(), PurgeRate::default());
    let period = match replicas.options.durability {
        Durability::Fsync => PERIOD,
        Durability::Interval(every_ms) => PERIOD.min(Duration::from_millis(every_ms.max(1))),
    };
    let (mut last_space_ns, mut swept_ns) = (0, 0);
    let mut rounds = 0u64;
    while memory.next(period) {
        if replicas.options.durability != Durability::Fsync {
            sync_logs(replicas);
        }
        replicas.handle_disk_failures(copies);
        replicas.look_after_replicas(copies);
        flush_over_limits(replicas, &mut rate);
        rounds += 1;
        let now_ns = replicas.context.clock.monotonic_ns();
        if purge.is_due(replicas, now_ns) {
            purge_logs(replicas);
        }
        purge.cut |= truncate_flushed(replicas, &mut seen_flushes, rounds.is_multiple_of(10));
        if now_ns.saturating_sub(last_space_ns) >= 250_000_000 {
            last_space_ns = now_ns;
            replicas.disks.watch_space(
                replicas.context.log_position.load(Ordering::Relaxed),
                replicas.options.disk_reserve_bytes,
            );
        }
        if now_ns.saturating_sub(swept_ns) >= SWEEP_NS {
            swept_ns = now_ns;
            copies.sweep();
            replicas.sweep_aside();
            expire_pins(replicas, now_ns);
        }
        if rounds.is_multiple_of(TIME_ROUNDS) {
            pass_time(replicas);
        }
        memory.notify_workers();
    }
}

/// Drops snapshots whose time is over, whoever leads their tablets now.
fn expire_pins(replicas: &NodeReplicas, now_ns: u64) {
    let node = replicas.context.pins();
    if !node.is_empty() {
        replicas.tablets.load().values().for_each(|handle| handle.transacted.pins.expire(now_ns, node.quarters()));
    }
}

/// When to purge log files: after each file that was written, as a purge is costly (see
/// [`diorite_storage::RaftLog::purge`]); and, where the log is over its limit, also after a truncation. Otherwise the
/// log would stay over its limit when writes outran the flushes and then ended, and a small disk would stay full.
#[derive(Default)]
struct PurgeRate {
    position: u64,
    at_ns: u64,
    /// Whether logs were truncated since.
    cut: bool,
}

impl PurgeRate {
    fn is_due(&mut self, replicas: &NodeReplicas, now_ns: u64) -> bool {
        let position = replicas.context.log_position.load(Ordering::Relaxed);
        let is_crowded =
            self.cut && now_ns.saturating_sub(self.at_ns) >= CROWDED_NS && replicas.disks.iter().any(is_crowded);
        let is_due = is_crowded || position.saturating_sub(self.position) >= LOG_FILE_BYTES;
        if is_due {
            *self = Self { position, at_ns: now_ns, cut: false };
        }
        is_due
    }
}

fn is_crowded(disk: &Disk) -> bool {
    disk.log.used_bytes() > disk.log_limit_bytes
}

fn sync_logs(replicas: &NodeReplicas) {
    for disk in replicas.disks.working() {
        disk.sync_progress.begin(replicas.context.clock.monotonic_ns());
        if let Err(error) = disk.log.sync() {
            tracing::error!(%error, "could not sync the raft log");
        }
        disk.sync_progress.end();
    }
}

/// Flushes tablets, oldest unflushed write first, while memtables are over their limit or the log to be replayed is
/// close to its own.
fn flush_over_limits(replicas: &NodeReplicas, rate: &mut FlushRate) {
    let memtable_limit = replicas.shared.options().memtable_limit_bytes as u64;
    let memtables = replicas.shared.memtable_usage_bytes() as u64;
    let tablets = replicas.tablets.load();
    let mut unflushed: Vec<(u64, &Arc<TabletHandle>)> = tablets
        .values()
        .map(|handle| (handle.log.oldest_unflushed.load(Ordering::Acquire), handle))
        .filter(|(oldest, _)| *oldest != u64::MAX)
        .collect();
    for (_, handle) in unflushed.iter().filter(|(_, handle)| handle.data.wants_flush_for_reads()) {
        begin_flush(replicas, handle);
    }
    unflushed.sort_unstable_by_key(|(oldest, _)| *oldest);
    let position = replicas.context.log_position.load(Ordering::Relaxed);
    let due = rate.due(unflushed.iter().map(|(oldest, _)| *oldest), position, replicas.options.replay_bytes);
    let mut excess = memtables.saturating_sub(memtable_limit / 4 * 3);
    for (at, (_, handle)) in unflushed.into_iter().enumerate() {
        if excess == 0 && at >= due {
            break;
        }
        excess = excess.saturating_sub(begin_flush(replicas, handle));
    }
}

/// Writes the time to the logs of idle tablets that hold expiring values, and flushes them.
fn pass_time(replicas: &NodeReplicas) {
    let now_s = u32::try_from(replicas.context.clock.wall_us() / 1_000_000).unwrap_or(u32::MAX);
    for handle in replicas.tablets.load().values() {
        match writes::due(handle, now_s) {
            Ok(due) => {
                if due.entry {
                    replicas.command(handle, Command::PassTime(handle.id()));
                }
                if due.flush {
                    begin_flush(replicas, handle);
                }
            }
            Err(error) => tracing::warn!(tablet = %handle.id(), %error, "could not read the applied state"),
        }
    }
}

/// Starts a flush; returns approximately how many bytes of memory it will free.
fn begin_flush(replicas: &NodeReplicas, handle: &TabletHandle) -> u64 {
    let logged = handle.log.written_bytes.load(Ordering::Acquire);
    // Writes from now on may or may not be in this flush, so they count as unflushed.
    handle.log.oldest_unflushed.store(u64::MAX, Ordering::Release);
    let flushed = handle.log.flushed_bytes.swap(logged, Ordering::AcqRel);
    if let Err(error) = handle.data.flush(false) {
        replicas.context.suspect_disk(handle.disk());
        tracing::warn!(tablet = %handle.id(), %error, "could not start a flush");
    }
    logged.saturating_sub(flushed)
}

/// Truncates logs up to the entries that flushes have made durable in the data, in this life or an earlier one. Returns
/// whether there was anything to truncate.
fn truncate_flushed(replicas: &NodeReplicas, seen: &mut AHashMap<TabletId, u64>, again: bool) -> bool {
    let tablets = replicas.tablets.load();
    let crowded: Vec<bool> = replicas.disks.iter().map(is_crowded).collect();
    let mut cut = false;
    for handle in tablets.values() {
        let flushes = handle.data.flushes();
        // Entries that were kept for members that lag are checked again. They are truncated if the log as a whole is
        // over its limit: these members then need a copy of the data.
        let held_back = handle.log.is_held_back.load(Ordering::Relaxed) && (again || crowded[handle.disk()]);
        if seen.get(&handle.id()) == Some(&flushes) && !held_back {
            continue;
        }
        cut = true;
        seen.insert(handle.id(), flushes);
        match handle.data.flushed_state() {
            Ok(state) => {
                // The catalog's log is small, and every node must be able to follow it.
                let force = crowded[handle.disk()] && GroupId::from(handle.id()) != GroupId::CATALOG;
                let command = Command::Flushed { tablet: handle.id(), index: state.index, force };
                replicas.command(handle, command);
            }
            Err(error) => tracing::warn!(tablet = %handle.id(), %error, "could not read the flushed state"),
        }
    }
    seen.retain(|tablet, _| tablets.contains_key(tablet));
    cut
}

fn purge_logs(replicas: &NodeReplicas) {
    for disk in replicas.disks.working() {
        if let Err(error) = disk.log.purge() {
            tracing::warn!(%error, "could not free raft log files");
        }
    }
}
