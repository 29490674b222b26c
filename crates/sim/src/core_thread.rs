//! The thread of a simulated core, as a coroutine: while the core waits for its disk, the simulation continues, and a
//! crash then ends the core in the middle of its turn.
//!
//! Always true: the core is the production code, which waits inside `Log::write`; the simulation ends the wait, or
//! never does. Everything that another thread would do meanwhile (heartbeats, reads, queued requests) needs no core;
//! other events find it busy and are delayed.

use crate::engine::SimEngine;
use crate::waiting::{Stop, ThreadYielder, WaitingPlace};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use diorite_replica::Core;
use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;

/// The stack of a core's thread, bytes.
const STACK_BYTES: usize = 1 << 20;

/// A task of the core.
type Task = Box<dyn FnOnce(&mut Core<SimEngine>)>;

type Thread = Coroutine<(), Stop, (), DefaultStack>;

/// A core and its thread.
pub struct CoreThread {
    core: Rc<RefCell<Core<SimEngine>>>,
    /// The next task, unless a task is under way.
    task: Rc<RefCell<Option<Task>>>,
    thread: Thread,
    waits: bool,
}

impl CoreThread {
    /// A thread that has nothing to do. `place` is where the core's log waits.
    pub fn new(core: Core<SimEngine>, place: Arc<WaitingPlace>) -> Self {
        let core = Rc::new(RefCell::new(core));
        let stack = DefaultStack::new(STACK_BYTES).expect("there is memory for a stack");
        let task = Rc::<RefCell<Option<Task>>>::default();
        let (own, tasks) = (Rc::clone(&core), Rc::clone(&task));
        let thread = Thread::with_stack(stack, move |yielder: &ThreadYielder, ()| {
            loop {
                let next = tasks.borrow_mut().take();
                if let Some(task) = next {
                    place.run(yielder, || task(&mut own.borrow_mut()));
                }
                yielder.suspend(Stop::Idle);
            }
        });
        Self { core, task, thread, waits: false }
    }

    /// Whether the core waits for its disk.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// The core, for work that takes no time. It must not be waiting.
    pub fn core(&self) -> RefMut<'_, Core<SimEngine>> {
        self.core.borrow_mut()
    }

    /// Begins a task. The core must not be waiting. Returns the true time until which it waits for its disk, if it does.
    pub fn begin(&mut self, task: impl FnOnce(&mut Core<SimEngine>) + 'static) -> Option<u64> {
        assert!(!self.waits, "a core does one thing at a time");
        *self.task.borrow_mut() = Some(Box::new(task));
        self.resume()
    }

    /// The disk is ready: the core goes on. Returns the true time until which it waits for the next write, if there is one.
    pub fn go_on(&mut self) -> Option<u64> {
        assert!(self.waits, "a core goes on that has waited");
        self.resume()
    }

    fn resume(&mut self) -> Option<u64> {
        // If it panics, it is not used any more.
        self.waits = true;
        let until_ns = match self.thread.resume(()) {
            CoroutineResult::Yield(Stop::Waits(until_ns)) => Some(until_ns),
            CoroutineResult::Yield(Stop::Idle) | CoroutineResult::Return(()) => None,
        };
        self.waits = until_ns.is_some();
        until_ns
    }
}
