//! Tablets that are being opened, or whose data is being replaced by a copy.
//!
//! Meanwhile a tablet is on no list of open tablets, so closing and opening it are coordinated here: a close is
//! recorded and carried out at the end, an open waits for the end.

use ahash::AHashMap;
use diorite_base::TabletId;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Weak;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// How often to check whether readers of data that is to be removed have ended.
const READER_CHECKS: u32 = 1_000;
const READER_CHECK: Duration = Duration::from_millis(10);

/// Waits until the files of a tablet are unused; returns whether they are.
pub(crate) fn wait_until_unused(files: &Weak<()>) -> bool {
    let (_never, wait) = sync_channel::<()>(1);
    (0..READER_CHECKS).any(|_| files.strong_count() == 0 || wait.recv_timeout(READER_CHECK).is_ok())
}

/// Tablets that are being opened or whose data is being replaced, and whether they were closed meanwhile.
#[derive(Default)]
pub(crate) struct Installing {
    closed: Mutex<AHashMap<TabletId, bool>>,
    changed: Condvar,
}

impl Installing {
    /// For closing tablets: a close of a tablet in this map is recorded here.
    pub(crate) fn lock(&self) -> MutexGuard<'_, AHashMap<TabletId, bool>> {
        self.closed.lock()
    }

    /// Whether a tablet was closed since [`Self::begin`].
    pub(crate) fn is_closed(&self, tablet: TabletId) -> bool {
        self.lock().get(&tablet).copied().unwrap_or(false)
    }

    /// Whether the tablet is being opened or its data replaced.
    pub(crate) fn contains(&self, tablet: TabletId) -> bool {
        self.lock().contains_key(&tablet)
    }

    /// Waits until none of these tablets is being opened or replaced, and then begins to.
    pub(crate) fn begin(&self, tablets: &[TabletId]) {
        let mut closed = self.closed.lock();
        while tablets.iter().any(|tablet| closed.contains_key(tablet)) {
            self.changed.wait(&mut closed);
        }
        closed.extend(tablets.iter().map(|tablet| (*tablet, false)));
    }

    /// Ends what [`Self::begin`] began; returns the tablets that were closed meanwhile, which the caller must close
    /// now.
    #[must_use]
    pub(crate) fn end(&self, tablets: &[TabletId]) -> Vec<TabletId> {
        let mut closed = self.closed.lock();
        let was_closed = tablets.iter().copied().filter(|tablet| closed.remove(tablet).unwrap_or(false)).collect();
        self.changed.notify_all();
        was_closed
    }
}
