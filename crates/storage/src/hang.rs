//! For tests: a disk that does not respond until the test lets it. Left out: a disk that fails.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a disk hangs. The check costs one load if it does not.
#[derive(Default)]
pub(crate) struct Hang {
    hangs: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Hang {
    /// Lets [`Self::wait`] wait from now on, until this is called with `false`.
    pub(crate) fn set(&self, hangs: bool) {
        let _held = self.lock.lock();
        self.hangs.store(hangs, Ordering::Release);
        self.changed.notify_all();
    }

    /// Waits while the disk hangs. Called before each use of the disk.
    pub(crate) fn wait(&self) {
        if self.hangs.load(Ordering::Relaxed) {
            let mut held = self.lock.lock();
            while self.hangs.load(Ordering::Acquire) {
                self.changed.wait(&mut held);
            }
        }
    }
}
