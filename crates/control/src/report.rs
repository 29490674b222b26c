//! A node's report to the node that leads the catalog, as far as decisions depend on it.
//!
//! Always true: each report is complete, so that a lost one does no harm. The more tablets a node holds, the less often
//! it reports, so that the cost of reports does not depend on their number. Data that only operators need is in
//! [`Report::details`], which nothing here reads.

use diorite_base::{Hold, Levels, NodeId, TabletId};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The interval between reports, without tablets.
const INTERVAL: Duration = Duration::from_secs(1);
/// The addition to the interval for each tablet.
const INTERVAL_PER_TABLET: Duration = Duration::from_millis(1);

/// A node's report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report<D = ()> {
    /// Its data directories, in their order.
    pub disks: Vec<DiskReport>,
    /// Its replicas; ascending.
    pub tablets: Vec<TabletReport>,
    /// The copies that it receives.
    pub copies: Vec<CopyReport>,
    /// Tablets whose replica is below its floor, or is receiving a copy; ascending.
    #[serde(default)]
    pub incomplete: Vec<TabletId>,
    /// The report was made before the node knew tablets from this id on.
    #[serde(default)]
    pub next_tablet: Option<u64>,
    /// Whether the node was started with the wish that clients log in; absent from nodes of earlier versions. It counts only until the catalog decides
    /// ([`crate::access`]).
    #[serde(default)]
    pub requires_login: Option<bool>,
    /// The levels that its program knows; absent from programs that know of none.
    #[serde(default)]
    pub levels: Levels,
    /// What an operator has decided about the next level, as the node's disks have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// Data for operators.
    #[serde(flatten)]
    pub details: D,
}

impl<D> Report<D> {
    /// How long until the next report.
    pub fn pause_after(&self) -> Duration {
        INTERVAL + INTERVAL_PER_TABLET * self.tablets.len() as u32
    }
}

/// A data directory in the report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskReport {
    /// Its path.
    pub path: String,
    /// Size of the file system.
    pub total_bytes: u64,
    /// Free of it.
    pub free_bytes: u64,
    /// Bytes of the Raft log.
    pub log_bytes: u64,
    /// Free bytes below which nothing is moved there.
    pub reserve_bytes: u64,
    /// Whether writes are refused because the disk is nearly full.
    pub is_full: bool,
    /// Whether it has failed.
    pub has_failed: bool,
}

/// The SSTables of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Their number.
    pub files: u64,
    /// Their size.
    pub bytes: u64,
    /// Their uncompressed content, if it was measured.
    pub content_bytes: Option<u64>,
}

/// A replica in the report. Encoded without field names, as there may be many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Columns", into = "Columns")]
pub struct TabletReport {
    /// The tablet.
    pub tablet: TabletId,
    /// Its size.
    pub bytes: u64,
    /// The index of its disk in [`Report::disks`].
    pub disk: u16,
    /// Whether it leads.
    pub leads: bool,
    /// Its SSTables.
    pub files: Files,
}

/// Id, bytes, disk, whether it leads; number of SSTables, their bytes, and their content.
type Columns = (u64, u64, u16, bool, u64, u64, Option<u64>);

impl From<Columns> for TabletReport {
    fn from((tablet, bytes, disk, leads, files, sst_bytes, content_bytes): Columns) -> Self {
        let files = Files { files, bytes: sst_bytes, content_bytes };
        Self { tablet: TabletId(tablet), bytes, disk, leads, files }
    }
}

impl From<TabletReport> for Columns {
    fn from(TabletReport { tablet, bytes, disk, leads, files }: TabletReport) -> Self {
        (tablet.0, bytes, disk, leads, files.files, files.bytes, files.content_bytes)
    }
}

/// An incoming copy in the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyReport {
    /// The tablet.
    pub tablet: TabletId,
    /// The sender.
    pub source: NodeId,
    /// Bytes that have arrived.
    pub bytes_done: u64,
    /// Bytes in all.
    pub bytes_total: u64,
    /// Bytes per second at the moment.
    pub rate_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports of each level are read for ever; those of the newest level are written as before.
    #[test]
    fn reports_of_every_level_are_read() {
        let read = |text: &str| serde_json::from_str::<Report>(text).expect("a report");
        let (first, second) =
            (include_str!("../testdata/level-1/report.json"), include_str!("../testdata/level-2/report.json"));
        let written = serde_json::to_string(&read(second)).expect("reports have string keys");
        assert_eq!(written, second.trim_end());
        assert_eq!(read(first), Report { levels: Levels::FIRST, hold: None, ..read(second) });
    }
}
