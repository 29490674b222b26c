//! The copies that this node receives, as seen by other threads than theirs.

use super::meter::{CopyStatus, Meter};
use ahash::{AHashMap, AHashSet};
use diorite_base::{NodeId, TabletId};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;

/// How long the files of a broken copy are held for another attempt, nanoseconds.
pub(crate) const KEEP_NS: u64 = 1_800_000_000_000;
/// The purpose of staged copies, see `DataDirectory::staged`.
pub(crate) const INCOMING: &str = "incoming";

/// A copy that is received, as seen by other threads.
pub(crate) struct Incoming {
    pub(crate) tablet: TabletId,
    pub(crate) inbox: SyncSender<Vec<u8>>,
    pub(crate) cancelled: Arc<AtomicBool>,
    pub(crate) meter: Arc<Meter>,
}

/// The copies that are being received.
#[derive(Default)]
pub(crate) struct Receiving {
    pub(crate) under_way: AHashMap<(NodeId, u64), Incoming>,
    /// The tablets of which a thread stages a copy.
    pub(crate) staging: AHashSet<TabletId>,
    pub(crate) threads: Vec<JoinHandle<()>>,
    pub(crate) closed: bool,
    /// Staged copies without a thread, and since when, monotonic nanoseconds.
    pub(crate) idle_ns: AHashMap<TabletId, u64>,
}

impl Receiving {
    /// Accepts no more copies; returns the threads, which end soon.
    pub(crate) fn close(&mut self) -> Vec<JoinHandle<()>> {
        self.closed = true;
        self.under_way.clear();
        std::mem::take(&mut self.threads)
    }

    pub(crate) fn statuses(&self, me: NodeId, now_ns: u64) -> Vec<CopyStatus> {
        let status = |((from, _), incoming): (&(NodeId, u64), &Incoming)| {
            incoming.meter.status(incoming.tablet, *from, me, true, now_ns)
        };
        self.under_way.iter().map(status).collect()
    }

    /// Whether a copy of the tablet is being received.
    pub(crate) fn is_staging(&self, tablet: TabletId) -> bool {
        self.staging.contains(&tablet)
    }

    pub(crate) fn has(&self, tablet: TabletId) -> bool {
        self.under_way.values().any(|incoming| incoming.tablet == tablet)
    }
}
