//! What every node tells the one that leads the catalog about itself, now and then.
//!
//! Always true: a report is whole, so that a lost one does no harm; the more tablets a node holds the less often it reports, so that reports cost
//! the same however many there are.

use crate::catalog::CATALOG_TABLET;
use crate::observe::process;
use diorite_base::{NodeId, TabletId};
use diorite_replica::{CopyStatus, Leadership, Store};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The shortest time between two reports.
const INTERVAL: Duration = Duration::from_secs(1);
/// What is added to it for every tablet.
const INTERVAL_PER_TABLET: Duration = Duration::from_millis(1);

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
    /// Bytes of SSTable files.
    #[serde(default)]
    pub(super) sst_bytes: u64,
    pub(super) disks: Vec<DiskReport>,
    pub(super) tablets: Vec<TabletReport>,
    pub(super) copies: Vec<CopyReport>,
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
#[serde(from = "(u64, u64, u16, bool)", into = "(u64, u64, u16, bool)")]
pub(super) struct TabletReport {
    pub(super) tablet: TabletId,
    pub(super) bytes: u64,
    pub(super) disk: u16,
    pub(super) leads: bool,
}

impl From<(u64, u64, u16, bool)> for TabletReport {
    fn from((tablet, bytes, disk, leads): (u64, u64, u16, bool)) -> Self {
        Self { tablet: TabletId(tablet), bytes, disk, leads }
    }
}

impl From<TabletReport> for (u64, u64, u16, bool) {
    fn from(TabletReport { tablet, bytes, disk, leads }: TabletReport) -> Self {
        (tablet.0, bytes, disk, leads)
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

/// This node's report.
pub(super) fn make(store: &Store, uptime_s: u64, move_reserve_percent: u64) -> Report {
    let handles = store.tablets();
    let mut sst_bytes = 0;
    let mut tablets: Vec<TabletReport> = handles
        .values()
        .filter(|handle| handle.id() != CATALOG_TABLET)
        .map(|handle| {
            let files_bytes = handle.data().files_bytes();
            sst_bytes += files_bytes;
            TabletReport {
                tablet: handle.id(),
                bytes: files_bytes + handle.data().memtable_bytes(),
                disk: handle.disk() as u16,
                leads: handle.leadership() == Leadership::Here,
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
        reserve_bytes: total_bytes / 100 * move_reserve_percent,
        is_full,
        has_failed,
    });
    Report {
        uptime_s,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        resident_bytes: process::resident_bytes(),
        cpu_s: process::cpu_seconds(),
        sst_bytes,
        disks: disks.collect(),
        tablets,
        copies: store.copies().into_iter().filter(|copy| copy.incoming).map(CopyReport::from).collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;

    #[test]
    fn a_report_survives_its_encoding() {
        let tablet = TabletReport { tablet: TabletId(7), bytes: 9, disk: 1, leads: true };
        let report = Report { uptime_s: 3, tablets: vec![tablet], ..Report::default() };
        let encoded = serde_json::to_string(&report).unwrap();
        assert!(encoded.contains("[7,9,1,true]"), "{encoded}");
        assert_eq!(serde_json::from_str::<Report>(&encoded).unwrap(), report);
    }
}
