//! What other threads may know and do of a tablet replica: read it while it holds the lease, and learn its state.

use diorite_base::write::KvError;
use diorite_base::{Clock, NodeId, TabletId};
use diorite_storage::{PinnedValue, ScanRange, StorageError, Tablet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A lease that never ends: the sole voter cannot be replaced.
pub(crate) const LEASE_FOREVER: u64 = u64::MAX;

/// Who leads a tablet, as far as its replica on this node knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leadership {
    /// This replica does, and may serve.
    Here,
    /// The replica on that node.
    Elsewhere(NodeId),
    /// Nobody is known to.
    Unknown,
}

/// A tablet replica, as seen from any thread.
pub struct TabletHandle {
    pub(crate) tablet: TabletId,
    pub(crate) data: Arc<Tablet>,
    pub(crate) worker: usize,
    pub(crate) disk: usize,
    /// Reads are served before this monotonic time; 0 when not leading.
    pub(crate) lease_until_ns: AtomicU64,
    pub(crate) flags: AtomicU64,
    /// Log bytes appended since start, of this tablet.
    pub(crate) logged_bytes: AtomicU64,
    /// `logged_bytes` as it was when the last flush began.
    pub(crate) flushed_bytes: AtomicU64,
    /// The node-wide log position at which the oldest unflushed write was appended; `u64::MAX` if all is flushed.
    pub(crate) oldest_unflushed: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    clock: Arc<dyn Clock>,
}

impl TabletHandle {
    pub(crate) fn new(
        tablet: TabletId,
        data: Arc<Tablet>,
        worker: usize,
        disk: usize,
        flags: u64,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            tablet,
            data,
            worker,
            disk,
            lease_until_ns: AtomicU64::new(0),
            flags: AtomicU64::new(flags),
            logged_bytes: AtomicU64::new(0),
            flushed_bytes: AtomicU64::new(0),
            oldest_unflushed: AtomicU64::new(u64::MAX),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            clock,
        }
    }

    /// Its id.
    pub fn id(&self) -> TabletId {
        self.tablet
    }

    /// The data directory it lives on, as an index.
    pub fn disk(&self) -> usize {
        self.disk
    }

    /// The data itself, for sizes.
    pub fn data(&self) -> &Arc<Tablet> {
        &self.data
    }

    /// The flag bits that evaluated mutations have raised.
    pub fn flags(&self) -> u64 {
        self.flags.load(Ordering::Acquire)
    }

    /// Reads served and writes applied since start.
    pub fn operations(&self) -> (u64, u64) {
        (self.reads.load(Ordering::Relaxed), self.writes.load(Ordering::Relaxed))
    }

    /// Who leads the tablet.
    pub fn leadership(&self) -> Leadership {
        if self.check_lease().is_ok() { Leadership::Here } else { Leadership::Unknown }
    }

    /// Whether this replica may answer reads now.
    pub fn check_lease(&self) -> Result<(), KvError> {
        let until_ns = self.lease_until_ns.load(Ordering::Acquire);
        if until_ns == LEASE_FOREVER || self.clock.monotonic_ns() < until_ns {
            return Ok(());
        }
        Err(KvError::Unavailable(self.tablet))
    }

    /// Reads from memory; `None` if the disk would have to be asked.
    pub fn get_cached(&self, key: &[u8]) -> Result<Option<Option<PinnedValue>>, KvError> {
        self.check_lease()?;
        let found = self.data.get_cached(key).map_err(storage_error)?;
        if found.is_some() {
            // Not shared by design: one relaxed add on the tablet's own line, next to the lease that was read anyway.
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        Ok(found)
    }

    /// Reads; may wait for the disk.
    pub fn get(&self, key: &[u8]) -> Result<Option<PinnedValue>, KvError> {
        self.check_lease()?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        let found = self.data.get(key).map_err(storage_error)?;
        // The lease is looked at again after the wait: a process that was paused in between must not answer with what was true before.
        self.check_lease()?;
        Ok(found)
    }

    /// Scans a range, see [`Tablet::scan`]; may wait for the disk.
    pub fn scan(&self, range: &ScanRange<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<bool, KvError> {
        self.check_lease()?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        let exhausted = self.data.scan(range, visit).map_err(storage_error)?;
        self.check_lease()?;
        Ok(exhausted)
    }

    /// Scans from memory, see [`Tablet::scan_cached`].
    pub fn scan_cached(
        &self,
        range: &ScanRange<'_>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Option<bool>, KvError> {
        self.check_lease()?;
        let found = self.data.scan_cached(range, visit).map_err(storage_error)?;
        if found.is_some() {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        Ok(found)
    }
}

pub(crate) fn storage_error(error: StorageError) -> KvError {
    KvError::Storage(error.to_string())
}
