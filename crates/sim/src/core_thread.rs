//! The thread of a simulated core, as a coroutine: where the core waits for its disk, everything else goes on, and a crash there ends it in the middle of its turn.
//!
//! Always true: the core is the production code, which waits inside `Log::write`; a wait is left when the simulation says so, or never. What another thread
//! would do meanwhile (heartbeats, reads, requests that queue up) needs no core; whatever does finds it busy and has to come back later.

use crate::engine::SimEngine;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use diorite_replica::Core;
use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The stack of a core's thread, bytes.
const STACK_BYTES: usize = 1 << 20;

/// What a core is to do.
pub type Task = Box<dyn FnOnce(&mut Core<SimEngine>)>;

/// Why the thread has stopped.
enum Stop {
    /// It has done its task.
    Idle,
    /// It waits for its disk until this true time, nanoseconds.
    Waits(u64),
}

type Thread = Coroutine<Option<Task>, Stop, (), DefaultStack>;
type ThreadYielder = Yielder<Option<Task>, Stop>;

/// Where the core's thread waits for its disk; the log has it.
#[derive(Default)]
pub struct WaitingPlace {
    /// Of the thread that runs now, while it runs; otherwise 0.
    yielder: AtomicUsize,
}

impl WaitingPlace {
    /// Waits until the simulation goes on with the thread, which is asked for at this true time. Returns false at once if it is not called on that thread: then
    /// nobody can go on with it.
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

/// A core and its thread.
pub struct CoreThread {
    core: Rc<RefCell<Core<SimEngine>>>,
    thread: Thread,
    waits: bool,
}

impl CoreThread {
    /// A thread that has nothing to do. `place` is where the core's log waits.
    pub fn new(core: Core<SimEngine>, place: Arc<WaitingPlace>) -> Self {
        let core = Rc::new(RefCell::new(core));
        let stack = DefaultStack::new(STACK_BYTES).expect("there is memory for a stack");
        let own = Rc::clone(&core);
        let thread = Thread::with_stack(stack, move |yielder: &ThreadYielder, first| {
            let mut next = first;
            loop {
                if let Some(task) = next.take() {
                    place.yielder.store(std::ptr::from_ref(yielder) as usize, Ordering::Relaxed);
                    task(&mut own.borrow_mut());
                    place.yielder.store(0, Ordering::Relaxed);
                }
                next = yielder.suspend(Stop::Idle);
            }
        });
        Self { core, thread, waits: false }
    }

    /// Whether the core waits for its disk.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// The core, for what takes no time. It must not be waiting.
    pub fn core(&self) -> RefMut<'_, Core<SimEngine>> {
        self.core.borrow_mut()
    }

    /// Begins a task. The core must not be waiting. Returns the true time until which it waits for its disk, if it does.
    pub fn begin(&mut self, task: impl FnOnce(&mut Core<SimEngine>) + 'static) -> Option<u64> {
        assert!(!self.waits, "a core does one thing at a time");
        self.resume(Some(Box::new(task)))
    }

    /// The disk is ready: the core goes on. Returns the true time until which it waits for the next write, if there is one.
    pub fn go_on(&mut self) -> Option<u64> {
        assert!(self.waits, "a core goes on that has waited");
        self.resume(None)
    }

    fn resume(&mut self, task: Option<Task>) -> Option<u64> {
        // Should it panic, it does nothing more.
        self.waits = true;
        let until_ns = match self.thread.resume(task) {
            CoroutineResult::Yield(Stop::Waits(until_ns)) => Some(until_ns),
            CoroutineResult::Yield(Stop::Idle) | CoroutineResult::Return(()) => None,
        };
        self.waits = until_ns.is_some();
        until_ns
    }
}
