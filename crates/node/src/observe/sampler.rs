//! Samples the node every few seconds and records the changes.
//!
//! Always true: the sampler reads sums that other modules maintain anyway, so that its cost depends neither on the load
//! nor on the number of tablets.

use super::history::{Point, STEP_S};
use super::process::{self, Devices, DiskActivity};
use crate::operate::Operations;
use crate::pause::pause;
use crate::shared::Shared;
use diorite_base::measure::Distribution;
use diorite_query::Operation;
use diorite_storage::Ticker;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const STEP_NS: u64 = STEP_S * 1_000_000_000;

/// Sums since start, at one moment.
struct Sums {
    at_ns: u64,
    reads: Distribution,
    writes: Distribution,
    scans: u64,
    cpu_seconds: Option<f64>,
    disks: Option<DiskActivity>,
    compacted_bytes: u64,
}

/// Samples as long as the node runs.
pub(crate) async fn run(shared: Arc<Shared>, operations: Arc<Operations>) {
    let clock = Arc::clone(&shared.kv.clock);
    let directories: Vec<String> = shared.kv.store.disks().into_iter().map(|disk| disk.path).collect();
    let devices = Devices::under(&directories);
    // The wall clock may be set at any time: it is read once, and steps follow the monotonic clock.
    let unix_ns = u64::try_from(clock.wall_us()).unwrap_or(0) * 1_000;
    let started_ns = clock.monotonic_ns();
    let mut before = sums(&shared, &devices);
    loop {
        let now_ns = unix_ns + (clock.monotonic_ns() - started_ns);
        pause(Duration::from_nanos(STEP_NS - now_ns % STEP_NS)).await;
        let step = (unix_ns + (clock.monotonic_ns() - started_ns)) / STEP_NS;
        let now = sums(&shared, &devices);
        shared.history.push(step, point(&shared, &operations, &before, &now));
        before = now;
    }
}

fn sums(shared: &Shared, devices: &Devices) -> Sums {
    let all = |operations: &[Operation]| {
        let mut sum = Distribution::default();
        operations.iter().for_each(|operation| sum.add(&shared.latencies.of(*operation)));
        sum
    };
    Sums {
        at_ns: shared.kv.clock.monotonic_ns(),
        reads: all(&[Operation::Read]),
        writes: all(&[Operation::Write, Operation::Conditional, Operation::Batch]),
        scans: all(&[Operation::Scan, Operation::Aggregate]).count(),
        cpu_seconds: process::cpu_seconds(),
        disks: devices.activity(),
        compacted_bytes: shared.kv.store.shared().ticker(Ticker::CompactWriteBytes),
    }
}

fn point(shared: &Shared, operations: &Operations, before: &Sums, now: &Sums) -> Point {
    let seconds = (now.at_ns - before.at_ns).max(1) as f64 / 1e9;
    let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds) as f32;
    let known = |value: Option<f64>| value.map_or(f32::NAN, |value| value as f32);
    let disk = |of: fn(&DiskActivity) -> u64| match (&now.disks, &before.disks) {
        (Some(now), Some(before)) => rate(of(now), of(before)),
        _ => f32::NAN,
    };
    let (reads, writes) = (now.reads.since(&before.reads), now.writes.since(&before.writes));
    let counters = shared.kv.store.shared().counters();
    let compactions = counters.compactions_running_low.load(Ordering::Relaxed)
        + counters.compactions_running_bottom.load(Ordering::Relaxed);
    Point {
        reads_per_second: rate(reads.count(), 0),
        writes_per_second: rate(writes.count(), 0),
        scans_per_second: rate(now.scans, before.scans),
        read_p50_seconds: known(reads.quantile_seconds(0.5)),
        read_p99_seconds: known(reads.quantile_seconds(0.99)),
        read_p999_seconds: known(reads.quantile_seconds(0.999)),
        write_p50_seconds: known(writes.quantile_seconds(0.5)),
        write_p99_seconds: known(writes.quantile_seconds(0.99)),
        write_p999_seconds: known(writes.quantile_seconds(0.999)),
        cpu_cores: known(now.cpu_seconds.zip(before.cpu_seconds).map(|(now, before)| (now - before) / seconds)),
        resident_bytes: known(process::resident_bytes().map(|bytes| bytes as f64)),
        disk_reads_per_second: disk(|activity| activity.reads),
        disk_writes_per_second: disk(|activity| activity.writes),
        disk_read_bytes_per_second: disk(|activity| activity.read_bytes),
        disk_written_bytes_per_second: disk(|activity| activity.written_bytes),
        sst_bytes: operations.sst_bytes() as f32,
        compactions_running: compactions as f32,
        compacted_bytes_per_second: rate(now.compacted_bytes, before.compacted_bytes),
        connections: shared.connections.load(Ordering::Relaxed) as f32,
    }
}
