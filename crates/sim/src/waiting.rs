//! The place where the thread of a simulated core waits for its disk.
//!
//! Always true: only the running thread waits here. Left out: the thread itself ([`crate::core_thread`]), and the
//! duration of the wait.

use corosensei::Yielder;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Why the thread has stopped.
pub enum Stop {
    /// It has done its task.
    Idle,
    /// It waits for its disk until this true time, nanoseconds.
    Waits(u64),
}

/// What suspends the thread, on the thread itself.
pub type ThreadYielder = Yielder<(), Stop>;

/// Where the core's thread waits for its disk; the log has it.
#[derive(Default)]
pub struct WaitingPlace {
    /// Of the thread that runs now, while it runs; otherwise 0.
    yielder: AtomicUsize,
}

impl WaitingPlace {
    /// Does a task on the thread that has this yielder; the task may wait.
    pub fn run(&self, yielder: &ThreadYielder, task: impl FnOnce()) {
        self.yielder.store(std::ptr::from_ref(yielder) as usize, Ordering::Relaxed);
        task();
        self.yielder.store(0, Ordering::Relaxed);
    }

    /// Waits until the simulation continues the thread, requested for this true time. Returns false at once if it is
    /// not called on that thread: it could not be continued then.
    pub fn wait_until(&self, until_ns: u64) -> bool {
        let address = self.yielder.swap(0, Ordering::Relaxed);
        if address == 0 {
            return false;
        }
        // SAFETY: the address is there only while the coroutine runs between its own start and its next suspension, all within one thread: so its stack, on which
        // the yielder lives, is the one that this is called on.
        let yielder = unsafe { &*(address as *const ThreadYielder) };
        yielder.suspend(Stop::Waits(until_ns));
        self.yielder.store(address, Ordering::Relaxed);
        true
    }
}
