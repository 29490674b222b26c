//! What every node tells the one that leads the catalog about itself, now and then.
//!
//! Always true: a report is whole, so that a lost one does no harm; the more tablets a node holds the less often it reports, so that reports cost
//! the same however many there are.

use crate::catalog::CATALOG_TABLET;
use crate::machine;
use crate::observe::process;
use diorite_admin::api::Activity;
use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::Catalog;
use diorite_replica::{CopyStatus, Leadership, Store};
use diorite_storage::TabletFiles;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// The shortest time between two reports.
const INTERVAL: Duration = Duration::from_secs(1);
/// What is added to it for every tablet.
const INTERVAL_PER_TABLET: Duration = Duration::from_millis(1);

/// Tablets whose SSTables are asked what they hold, with each report.
const MEASURED_AT_A_TIME: usize = 4;

/// What a node knows of itself from its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportOptions {
    /// Share of a disk that moves leave free.
    pub(crate) move_reserve_percent: u64,
    /// Memory that the process was given.
    pub(crate) memory_limit_bytes: u64,
}

/// How long until the next report.
pub(super) fn pause_after(report: &Report) -> Duration {
    INTERVAL + INTERVAL_PER_TABLET * report.tablets.len() as u32
}

/// What a node says about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
    /// Since when its process runs, seconds.
    pub(super) uptime_s: u64,
    /// The version of its program.
    pub(super) program: String,
    /// Memory that the process uses.
    pub(super) resident_bytes: Option<u64>,
    /// Processor time that the process has used, seconds.
    pub(super) cpu_s: Option<f64>,
    /// Memory that the process was given.
    #[serde(default)]
    pub(super) memory_limit_bytes: Option<u64>,
    /// Processors that it may use.
    #[serde(default)]
    pub(super) processors: Option<u64>,
    /// What it has done in the last seconds.
    #[serde(default)]
    pub(super) activity: Activity,
    /// Bytes of SSTable files.
    #[serde(default)]
    pub(super) sst_bytes: u64,
    pub(super) disks: Vec<DiskReport>,
    pub(super) tablets: Vec<TabletReport>,
    pub(super) copies: Vec<CopyReport>,
    /// Tablets of which its replica lacks data that it once held, or that a copy brings; ascending.
    #[serde(default)]
    pub(super) incomplete: Vec<TabletId>,
    /// Tablets whose replica it cannot use, and why; ascending.
    #[serde(default)]
    pub(super) set_aside: Vec<(TabletId, String)>,
    /// When it had read all that it holds for the last time since it was started, milliseconds since 1970.
    #[serde(default)]
    pub(super) scrubbed_ms: Option<i64>,
    /// How often it has found damage then.
    #[serde(default)]
    pub(super) scrub_damage_found: u64,
    /// Of tablets from this number on it had not heard.
    #[serde(default)]
    pub(super) next_tablet: Option<u64>,
    /// Other members with which it exchanges no heartbeats; ascending.
    #[serde(default)]
    pub(super) out_of_touch: Vec<NodeId>,
    /// How far the other nodes' clocks are ahead, microseconds, if its own is off: it leads nothing then.
    #[serde(default)]
    pub(super) clock_is_off_us: Option<i64>,
    /// How far logs of its tablets are ahead of its clock, microseconds, if they are.
    #[serde(default)]
    pub(super) logs_ahead_us: Option<i64>,
}

/// What it says of a data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DiskReport {
    pub(super) path: String,
    pub(super) total_bytes: u64,
    pub(super) free_bytes: u64,
    pub(super) log_bytes: u64,
    /// Free bytes below which nothing is moved there.
    pub(super) reserve_bytes: u64,
    pub(super) is_full: bool,
    pub(super) has_failed: bool,
}

/// What it says of a replica. Many of them travel, so they do without names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Columns", into = "Columns")]
pub(super) struct TabletReport {
    pub(super) tablet: TabletId,
    pub(super) bytes: u64,
    pub(super) disk: u16,
    pub(super) leads: bool,
    pub(super) files: TabletFiles,
}

/// Id, bytes, disk, whether it leads; SSTables, their bytes, and what they hold.
type Columns = (u64, u64, u16, bool, u64, u64, Option<u64>);

impl From<Columns> for TabletReport {
    fn from((tablet, bytes, disk, leads, files, sst_bytes, content_bytes): Columns) -> Self {
        let files = TabletFiles { files, bytes: sst_bytes, content_bytes };
        Self { tablet: TabletId(tablet), bytes, disk, leads, files }
    }
}

impl From<TabletReport> for Columns {
    fn from(TabletReport { tablet, bytes, disk, leads, files }: TabletReport) -> Self {
        (tablet.0, bytes, disk, leads, files.files, files.bytes, files.content_bytes)
    }
}

/// What it says of a copy that it is receiving.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CopyReport {
    pub(super) tablet: TabletId,
    pub(super) source: NodeId,
    pub(super) bytes_done: u64,
    pub(super) bytes_total: u64,
    pub(super) rate_bytes: u64,
}

impl From<CopyStatus> for CopyReport {
    fn from(copy: CopyStatus) -> Self {
        Self {
            tablet: copy.tablet,
            source: copy.from,
            bytes_done: copy.bytes_done,
            bytes_total: copy.bytes_total,
            rate_bytes: copy.rate,
        }
    }
}

/// Asks the SSTables of a few tablets what they hold, of those whose files have changed. Reads files: for a thread that may wait.
pub(super) fn measure_contents(store: &Store) {
    let handles: Vec<_> = store.tablets().values().cloned().collect();
    let mut asked = 0;
    for handle in handles {
        if asked == MEASURED_AT_A_TIME {
            return;
        }
        asked += usize::from(handle.data().measure_contents());
    }
}

/// The report of this node, `node`.
pub(super) fn make(
    node: NodeId,
    store: &Store,
    catalog: &Catalog,
    uptime_s: u64,
    options: &ReportOptions,
    activity: Activity,
) -> Report {
    let handles = store.tablets();
    let mut sst_bytes = 0;
    let mut tablets: Vec<TabletReport> = handles
        .values()
        .filter(|handle| handle.id() != CATALOG_TABLET)
        .map(|handle| {
            let files = handle.data().files();
            sst_bytes += files.bytes;
            TabletReport {
                tablet: handle.id(),
                bytes: handle.data().size_bytes(),
                disk: handle.disk() as u16,
                leads: handle.leadership() == Leadership::Here,
                files,
            }
        })
        .collect();
    tablets.sort_unstable_by_key(|report| report.tablet);
    let disks = store.disks().into_iter().zip(store.failed_disks());
    let disks = disks.map(|((path, free_bytes, total_bytes, log_bytes, is_full), has_failed)| DiskReport {
        path,
        total_bytes,
        free_bytes,
        log_bytes,
        reserve_bytes: total_bytes / 100 * options.move_reserve_percent,
        is_full,
        has_failed,
    });
    let copies: Vec<_> = store.copies().into_iter().filter(|copy| copy.incoming).map(CopyReport::from).collect();
    let recovering = handles.values().filter(|handle| handle.is_recovering()).map(|handle| handle.id());
    let set_aside: Vec<_> = store.set_aside().into_iter().map(|aside| (aside.tablet, aside.reason)).collect();
    let unusable = set_aside.iter().map(|(tablet, _)| *tablet);
    let incomplete: BTreeSet<_> = recovering.chain(copies.iter().map(|copy| copy.tablet)).chain(unusable).collect();
    let scrub = store.scrub_status();
    let others = catalog.nodes().map(|other| other.id).filter(|other| *other != node);
    Report {
        uptime_s,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        resident_bytes: process::resident_bytes(),
        cpu_s: process::cpu_seconds(),
        memory_limit_bytes: Some(options.memory_limit_bytes),
        processors: Some(machine::processors() as u64),
        activity,
        sst_bytes,
        disks: disks.collect(),
        tablets,
        copies,
        incomplete: incomplete.into_iter().collect(),
        set_aside,
        scrubbed_ms: scrub.finished_ms,
        scrub_damage_found: scrub.damage_found,
        next_tablet: Some(catalog.identity().next_tablet().0),
        out_of_touch: others.filter(|other| !store.liveness().is_up(*other)).collect(),
        clock_is_off_us: store.liveness().clock_is_off_us(),
        logs_ahead_us: store.liveness().logs_ahead_us(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;

    #[test]
    fn a_report_survives_its_encoding() {
        let files = TabletFiles { files: 2, bytes: 8, content_bytes: None };
        let tablet = TabletReport { tablet: TabletId(7), bytes: 9, disk: 1, leads: true, files };
        let report = Report { uptime_s: 3, tablets: vec![tablet], ..Report::default() };
        let encoded = serde_json::to_string(&report).unwrap();
        assert!(encoded.contains("[7,9,1,true,2,8,null]"), "{encoded}");
        assert_eq!(serde_json::from_str::<Report>(&encoded).unwrap(), report);
    }
}
