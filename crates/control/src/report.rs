//! What a node reports of itself to the node that leads the catalog, as far as decisions depend on it.
//!
//! Always true: a report is whole, so that a lost one does no harm; the more tablets a node holds the less often it reports, so that reports cost
//! the same however many there are. What only operators want to see are the node's own [`Report::details`], which nothing here reads.

use diorite_base::{NodeId, TabletId};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The shortest time between two reports.
const INTERVAL: Duration = Duration::from_secs(1);
/// What is added to it for every tablet.
const INTERVAL_PER_TABLET: Duration = Duration::from_millis(1);

/// What a node says about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report<D = ()> {
    /// Its data directories, in their order.
    pub disks: Vec<DiskReport>,
    /// Its replicas; ascending.
    pub tablets: Vec<TabletReport>,
    /// The copies that it is receiving.
    pub copies: Vec<CopyReport>,
    /// Tablets of which its replica lacks data that it once held, or that a copy brings; ascending.
    #[serde(default)]
    pub incomplete: Vec<TabletId>,
    /// The report was made before the node knew of tablets from this number on.
    #[serde(default)]
    pub next_tablet: Option<u64>,
    /// What operators want to see beside that.
    #[serde(flatten)]
    pub details: D,
}

impl<D> Report<D> {
    /// How long until the next one is due.
    pub fn pause_after(&self) -> Duration {
        INTERVAL + INTERVAL_PER_TABLET * self.tablets.len() as u32
    }
}

/// What it says of a data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskReport {
    /// Where it is.
    pub path: String,
    /// Size of the file system.
    pub total_bytes: u64,
    /// Free of it.
    pub free_bytes: u64,
    /// Bytes of the Raft log.
    pub log_bytes: u64,
    /// Free bytes below which nothing is moved there.
    pub reserve_bytes: u64,
    /// Writes are refused for want of space.
    pub is_full: bool,
    /// It has failed.
    pub has_failed: bool,
}

/// The SSTables of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// How many.
    pub files: u64,
    /// Their size.
    pub bytes: u64,
    /// What they hold before it is compressed, if that has been looked at.
    pub content_bytes: Option<u64>,
}

/// What it says of a replica. Many of them travel, so they do without names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Columns", into = "Columns")]
pub struct TabletReport {
    /// Of which tablet.
    pub tablet: TabletId,
    /// Its size.
    pub bytes: u64,
    /// The place of its disk in [`Report::disks`].
    pub disk: u16,
    /// Whether it leads.
    pub leads: bool,
    /// Its SSTables.
    pub files: Files,
}

/// Id, bytes, disk, whether it leads; SSTables, their bytes, and what they hold.
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

/// What it says of a copy that it is receiving.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyReport {
    /// Of which tablet.
    pub tablet: TabletId,
    /// Who sends it.
    pub source: NodeId,
    /// Bytes that have arrived.
    pub bytes_done: u64,
    /// Bytes in all.
    pub bytes_total: u64,
    /// Bytes per second at the moment.
    pub rate_bytes: u64,
}
