//! For tests: a disk that answers nothing until it is let to. Left out: a disk that fails.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a disk hangs. It costs one load where it does not.
#[derive(Default)]
pub(crate) struct Hang {
    hangs: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Hang {
    /// From now on [`Self::wait`] waits, until this is called with `false`.
    pub(crate) fn set(&self, hangs: bool) {
        let _held = self.lock.lock();
        self.hangs.store(hangs, Ordering::Release);
        self.changed.notify_all();
    }

    /// To be called before the disk is used.
    pub(crate) fn wait(&self) {
        if self.hangs.load(Ordering::Relaxed) {
            let mut held = self.lock.lock();
            while self.hangs.load(Ordering::Acquire) {
                self.changed.wait(&mut held);
            }
        }
    }
}
