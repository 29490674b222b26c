//! Puts a complete copy in the place of a replica.
//!
//! While that goes on the tablet is in nobody's list of open ones, as while it is opened, so that whoever wants to close or open it has to be told: a close is
//! noted and carried out at the end, an open waits for it.

use super::Copies;
use crate::store::Inner;
use crate::worker::Command;
use ahash::AHashMap;
use diorite_base::{GroupId, TabletId};
use diorite_storage::{LogBatch, LogRecords, StorageError};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long readers of data that is to go are waited for.
const READER_CHECKS: u32 = 1_000;
const READER_CHECK: Duration = Duration::from_millis(10);

/// Waits until nobody uses the files of a tablet any more; whether that has come about.
pub(crate) fn wait_until_unused(files: &Weak<()>) -> bool {
    let (_never, wait) = sync_channel::<()>(1);
    (0..READER_CHECKS).any(|_| files.strong_count() == 0 || wait.recv_timeout(READER_CHECK).is_ok())
}

/// Tablets that are being opened, or in whose place a copy is being put, and whether they were closed meanwhile.
#[derive(Default)]
pub(crate) struct Installing {
    closed: Mutex<AHashMap<TabletId, bool>>,
    changed: Condvar,
}

impl Installing {
    /// For whoever closes tablets: of those that are here it is noted.
    pub(crate) fn lock(&self) -> MutexGuard<'_, AHashMap<TabletId, bool>> {
        self.closed.lock()
    }

    /// Waits until nobody opens any of these tablets or puts a copy in its place, and is the one who does.
    pub(crate) fn begin(&self, tablets: &[TabletId]) {
        let mut closed = self.closed.lock();
        while tablets.iter().any(|tablet| closed.contains_key(tablet)) {
            self.changed.wait(&mut closed);
        }
        closed.extend(tablets.iter().map(|tablet| (*tablet, false)));
    }

    /// The end of what [`Self::begin`] began: those that were closed meanwhile, which the caller now has to.
    #[must_use]
    pub(crate) fn end(&self, tablets: &[TabletId]) -> Vec<TabletId> {
        let mut closed = self.closed.lock();
        let was_closed = tablets.iter().copied().filter(|tablet| closed.remove(tablet).unwrap_or(false)).collect();
        self.changed.notify_all();
        was_closed
    }
}

impl Copies {
    /// Puts the complete copy in `staged`, which holds everything up to `applied`, in the place of the replica.
    pub(super) fn install(&self, tablet: TabletId, staged: &Path, disk: usize, applied: u64) -> Result<(), String> {
        let inner = &self.inner;
        inner.installing.begin(&[tablet]);
        let Some(handle) = inner.tablets.load().get(&tablet).cloned() else {
            let _ = inner.installing.end(&[tablet]);
            return Err("there is no such replica here any more".to_owned());
        };
        let installed = self.replace(tablet, handle, staged, disk, applied);
        if inner.installing.lock().get(&tablet).copied().unwrap_or(false) {
            // Whoever closed it must not find it open, nor any of it left. An open that waits goes on after that.
            let discarded = inner.discard(tablet, disk);
            let _ = inner.installing.end(&[tablet]);
            discarded.map_err(|error| error.to_string())?;
            return Err("the replica was closed meanwhile".to_owned());
        }
        let opened = self.reopen(tablet);
        let was_closed = inner.installing.end(&[tablet]);
        if !was_closed.is_empty() {
            inner.close(&was_closed);
            return Err("the replica was closed meanwhile".to_owned());
        }
        opened?;
        installed
    }

    /// Lets go of the replica and puts the copy in its place, if that is newer. The replica is not open afterwards.
    fn replace(
        &self,
        tablet: TabletId,
        handle: Arc<crate::TabletHandle>,
        staged: &Path,
        disk: usize,
        applied: u64,
    ) -> Result<(), String> {
        let (sender, receiver) = sync_channel(1);
        self.inner.queues[handle.worker].command(Command::Detach(tablet, sender));
        let detached = receiver.recv();
        self.inner.update_tablets(|tablets| {
            tablets.remove(&tablet);
        });
        detached.map_err(|_| "the node is stopping")?.map_err(|error| error.to_string())?;
        // A copy that took long may be older than what the replica has got since, and than the beginning of its log.
        let is_newer = handle.data().applied_state().is_ok_and(|own| applied > own.index);
        // RocksDB must be closed before its files are replaced: whoever still reads finishes.
        let files = handle.data().in_use();
        drop(handle);
        let is_closed = wait_until_unused(&files);
        if !is_newer {
            return Err("the replica has got further meanwhile".to_owned());
        }
        if !is_closed {
            return Err("somebody still reads the old data".to_owned());
        }
        self.inner.disks[disk].directory.install(tablet.0, staged).map_err(|error| error.to_string())
    }

    /// Opens the replica again, on the old data or the new.
    pub(super) fn reopen(&self, tablet: TabletId) -> Result<(), String> {
        let openings = self.openings.get().ok_or("this node takes no copies yet")?;
        let opening = openings.opening(tablet).ok_or("there is no such replica here any more")?;
        self.inner.open(vec![opening]).map_err(|error| error.to_string())?;
        let is_open = self.inner.tablets.load().contains_key(&tablet);
        is_open.then_some(()).ok_or_else(|| "it could not be opened and is set aside".to_owned())
    }
}

impl Inner {
    /// Removes the data of a replica that is not open, and of its log all that it need not remember.
    pub(crate) fn discard(&self, tablet: TabletId, disk: usize) -> Result<(), StorageError> {
        let (group, disk) = (GroupId::from(tablet), &self.disks[disk]);
        let recovered = disk.log.recover(group)?;
        let mut batch = LogBatch::default();
        batch.retire(group, &recovered.hard_state, recovered.last_acknowledged())?;
        disk.log.write(&mut batch, true)?;
        let path = disk.directory.tablet(tablet.0);
        if path.is_dir() {
            let failed = |source| StorageError::Io { action: "cannot remove", path: path.clone(), source };
            std::fs::remove_dir_all(&path).map_err(failed)?;
        }
        Ok(())
    }
}
