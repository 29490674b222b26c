//! The state that the tasks of a run share: budgets, schedule, counts and the reasons to end.
//!
//! Always true: a counted operation is claimed once before it is begun; the first violation ends the run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use diorite_base::clock::{Clock, SystemClock};

use crate::error::Violation;
use crate::latency::{OperationKind, Recorder, Schedule};

/// The most different error messages that are kept.
const MAX_ERROR_MESSAGES: usize = 20;

/// The budgets and tasks of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub writers: usize,
    pub readers: usize,
    /// `None` is endless.
    pub writes: Option<u64>,
    /// `None` is endless.
    pub reads: Option<u64>,
    pub duration: Option<Duration>,
    /// Operations started per second, in an open loop.
    pub rate: Option<f64>,
    pub seed: u64,
    /// Ends the run, within a second, when it becomes true.
    pub until: Option<Arc<AtomicBool>>,
}

/// The state that the tasks of a run share.
pub struct Shared {
    pub clock: SystemClock,
    pub recorder: Recorder,
    pub(super) stop: AtomicBool,
    budgets: [Budget; 2],
    pub(super) schedule: Option<Schedule>,
    pub(super) violation: Mutex<Option<Violation>>,
    pub(super) errors: Mutex<BTreeMap<String, u64>>,
    pub(super) last_error: Mutex<String>,
}

struct Budget {
    claimed: AtomicU64,
    /// Operations that succeeded or failed.
    ended: AtomicU64,
    /// `u64::MAX` is endless.
    total: u64,
}

impl Budget {
    /// An operation that no task carries out cannot be waited for.
    fn new(total: Option<u64>, tasks: usize) -> Self {
        let total = if tasks == 0 { u64::MAX } else { total.unwrap_or(u64::MAX) };
        Self { claimed: AtomicU64::new(0), ended: AtomicU64::new(0), total }
    }

    fn is_counted(&self) -> bool {
        self.total != u64::MAX
    }

    fn is_open(&self) -> bool {
        self.is_counted() && self.ended.load(Ordering::Relaxed) < self.total
    }
}

impl Shared {
    pub(super) fn new(plan: &Plan) -> Self {
        let clock = SystemClock::new();
        let schedule = plan.rate.map(|rate| Schedule::new(clock.monotonic_ns(), rate));
        Self {
            clock,
            recorder: Recorder::new(),
            stop: AtomicBool::new(false),
            budgets: [Budget::new(plan.reads, plan.readers), Budget::new(plan.writes, plan.writers)],
            schedule,
            violation: Mutex::default(),
            errors: Mutex::default(),
            last_error: Mutex::default(),
        }
    }

    /// Whether tasks are to finish.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Takes one operation from the budget.
    pub fn claim(&self, kind: OperationKind) -> bool {
        let budget = &self.budgets[kind as usize];
        if !budget.is_counted() {
            return true;
        }
        let taken = budget.claimed.fetch_add(1, Ordering::Relaxed) < budget.total;
        if !taken {
            budget.claimed.fetch_sub(1, Ordering::Relaxed);
        }
        taken
    }

    /// Gives back an operation that was not carried out.
    pub fn unclaim(&self, kind: OperationKind) {
        let budget = &self.budgets[kind as usize];
        if budget.is_counted() {
            budget.claimed.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Ends the run with a violation; the first one counts.
    pub fn fail(&self, violation: Violation) {
        lock(&self.violation).get_or_insert(violation);
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Counts an operation that succeeded.
    pub fn succeeded(&self, task: usize, kind: OperationKind, latency_ns: u64, rows: u64) {
        self.recorder.success(task, kind, latency_ns, rows);
        self.count_ended(kind);
    }

    /// Ends the run once every counted budget is used up.
    fn count_ended(&self, kind: OperationKind) {
        let budget = &self.budgets[kind as usize];
        if !budget.is_counted() {
            return;
        }
        budget.ended.fetch_add(1, Ordering::Relaxed);
        if !self.budgets.iter().any(Budget::is_open) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Counts a failed request.
    pub fn request_failed(&self, task: usize, kind: OperationKind, message: &str) {
        self.recorder.failure(task, kind);
        let mut errors = lock(&self.errors);
        if errors.len() < MAX_ERROR_MESSAGES || errors.contains_key(message) {
            *errors.entry(message.to_owned()).or_default() += 1;
        }
        message.clone_into(&mut lock(&self.last_error));
        self.count_ended(kind);
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
