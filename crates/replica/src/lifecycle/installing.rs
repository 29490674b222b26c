//! Tablets that are being opened, or in whose place a copy is being put.
//!
//! While that goes on the tablet is in nobody's list of open ones, so that whoever wants to close or open it has to be told: a close is noted and carried out at the
//! end, an open waits for it.

use ahash::AHashMap;
use diorite_base::TabletId;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Weak;
use std::sync::mpsc::sync_channel;
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

    /// Whether a tablet was closed since [`Self::begin`].
    pub(crate) fn is_closed(&self, tablet: TabletId) -> bool {
        self.lock().get(&tablet).copied().unwrap_or(false)
    }

    /// Whether somebody opens the tablet or puts a copy in its place.
    pub(crate) fn contains(&self, tablet: TabletId) -> bool {
        self.lock().contains_key(&tablet)
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
