//! Drives a workload: starts the tasks, keeps budgets and schedule, and shows an observer every second.
//!
//! A closed loop is N tasks with one request in flight each; an open loop is the same tasks taking intended start
//! times from one schedule, so N is then only the most requests in flight.
//!
//! Always true: an operation is counted in the second it ended in; the run ends when every *counted* kind of operation
//! has used up its budget, when the time is up, at Ctrl-C, at the first violation, or when nothing has succeeded for
//! [`NO_PROGRESS_S`] seconds; tasks finish the request they are in, so every write has a known outcome afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use diorite_base::clock::Clock;
use diorite_base::random::{Random, SplitMix64};
use tokio::task::JoinSet;

use crate::WorkloadError;
use crate::error::Failure;
use crate::latency::{OperationKind, Tallies, charged_start_ns};
use crate::pipelined::Pipelined;
use crate::timer::{interruption, pause};
use crate::workloads::{Scratch, Workload};

pub mod shared;

use shared::lock;
pub use shared::{Plan, Shared};

/// A run in which no request succeeds for this long has failed.
const NO_PROGRESS_S: u64 = 30;
/// How long a task waits that has nothing to do yet.
const IDLE_WAIT: Duration = Duration::from_millis(5);

/// The client that executes the operations.
#[derive(Clone)]
pub enum Executor {
    Driver(Arc<Workload>),
    Pipelined(Arc<Pipelined>),
}

/// The operations of an interval of about one second.
pub struct Interval {
    /// Since the start of the run.
    pub elapsed_s: f64,
    /// The length of this interval.
    pub seconds: f64,
    pub tallies: Tallies,
}

/// Sees every interval, in order; must return quickly.
pub trait Observer: Send {
    fn observe(&mut self, interval: &Interval);
}

/// The result of a run.
pub struct Outcome {
    pub tallies: Tallies,
    pub seconds: f64,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    /// Different messages of failed requests, and how often each came.
    pub errors: BTreeMap<String, u64>,
}

/// Runs `plan` to its end.
pub async fn drive(executor: &Executor, plan: &Plan, observer: &mut dyn Observer) -> Result<Outcome, WorkloadError> {
    let shared = Arc::new(Shared::new(plan));
    let mut tasks = start_tasks(executor, plan, &shared);
    let start_ns = shared.clock.monotonic_ns();
    let deadline_ns = plan.duration.map_or(u64::MAX, |duration| start_ns + duration.as_nanos() as u64);
    let mut ticker = Ticker { start_ns, last_ns: start_ns, idle_since_ns: start_ns, all: Tallies::default() };
    let mut outcome = Ok(());
    let mut interrupted = false;
    let interrupt = interruption();
    tokio::pin!(interrupt);
    while !tasks.is_empty() {
        let now_ns = shared.clock.monotonic_ns();
        let stopping = shared.is_stopped();
        let wait_ns =
            if stopping { 100_000_000 } else { ticker.until_tick_ns(now_ns).min(deadline_ns.saturating_sub(now_ns)) };
        tokio::select! {
            ended = tasks.join_next() => {
                if let Some(Err(error)) = ended && error.is_panic() {
                    std::panic::resume_unwind(error.into_panic());
                }
            }
            () = &mut interrupt, if !interrupted => {
                interrupted = true;
                shared.stop.store(true, Ordering::Relaxed);
            }
            () = pause(Duration::from_nanos(wait_ns.max(1))) => {
                let now_ns = shared.clock.monotonic_ns();
                if now_ns >= deadline_ns || plan.until.as_ref().is_some_and(|until| until.load(Ordering::Relaxed)) {
                    shared.stop.store(true, Ordering::Relaxed);
                }
                if ticker.until_tick_ns(now_ns) == 0 {
                    ticker.tick(&shared, now_ns, observer);
                    if outcome.is_ok() && let Err(error) = ticker.check_progress(&shared, now_ns) {
                        outcome = Err(error);
                        shared.stop.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
    }
    let end_ns = shared.clock.monotonic_ns();
    ticker.tick(&shared, end_ns, observer);
    if let Some(violation) = lock(&shared.violation).take() {
        return Err(WorkloadError::Violation(Box::new(violation)));
    }
    outcome?;
    let errors = std::mem::take(&mut *lock(&shared.errors));
    Ok(Outcome { tallies: ticker.all, seconds: (end_ns - start_ns) as f64 / 1e9, interrupted, errors })
}

/// Keeps the intervals.
struct Ticker {
    start_ns: u64,
    last_ns: u64,
    idle_since_ns: u64,
    all: Tallies,
}

impl Ticker {
    fn until_tick_ns(&self, now_ns: u64) -> u64 {
        (self.last_ns + 1_000_000_000).saturating_sub(now_ns)
    }

    fn tick(&mut self, shared: &Shared, now_ns: u64, observer: &mut dyn Observer) {
        let tallies = shared.recorder.drain();
        let seconds = (now_ns - self.last_ns) as f64 / 1e9;
        self.last_ns = now_ns;
        if !tallies.reads.latency_us.is_empty() || !tallies.writes.latency_us.is_empty() {
            self.idle_since_ns = now_ns;
        }
        self.all.merge(&tallies);
        observer.observe(&Interval { elapsed_s: (now_ns - self.start_ns) as f64 / 1e9, seconds, tallies });
    }

    fn check_progress(&self, shared: &Shared, now_ns: u64) -> Result<(), WorkloadError> {
        if (now_ns - self.idle_since_ns) / 1_000_000_000 < NO_PROGRESS_S {
            return Ok(());
        }
        let error = lock(&shared.last_error).clone();
        let error = if error.is_empty() { "none; there was nothing to read or write".to_owned() } else { error };
        Err(WorkloadError::NoProgress { seconds: NO_PROGRESS_S, error })
    }
}

fn start_tasks(executor: &Executor, plan: &Plan, shared: &Arc<Shared>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let mut seeds = SplitMix64::new(plan.seed);
    match executor {
        Executor::Driver(workload) => {
            let kinds = std::iter::repeat_n(OperationKind::Write, plan.writers)
                .chain(std::iter::repeat_n(OperationKind::Read, plan.readers));
            for (number, kind) in kinds.enumerate() {
                let task = Task { shared: Arc::clone(shared), kind, number, seed: seeds.next_u64() };
                let workload = Arc::clone(workload);
                tasks.spawn(async move { task.run(&workload).await });
            }
        }
        Executor::Pipelined(pipelined) => {
            for lane in 0..pipelined.lanes() {
                let slots = pipelined.slots(lane, plan.writers, plan.readers);
                let (pipelined, shared, seed) = (Arc::clone(pipelined), Arc::clone(shared), seeds.next_u64());
                tasks.spawn(async move { pipelined.run(lane, slots, &shared, seed).await });
            }
        }
    }
    tasks
}

/// One request in flight, over and over.
struct Task {
    shared: Arc<Shared>,
    kind: OperationKind,
    number: usize,
    seed: u64,
}

impl Task {
    async fn run(&self, workload: &Workload) {
        let shared = &self.shared;
        let mut scratch = Scratch::new(self.number, self.seed);
        let mut backoff = Duration::from_millis(20);
        while !shared.is_stopped() && shared.claim(self.kind) {
            let Some(start_ns) = self.start().await else {
                shared.unclaim(self.kind);
                return;
            };
            match workload.operate(self.kind, &mut scratch).await {
                Ok(rows) => {
                    let latency_ns = shared.clock.monotonic_ns().saturating_sub(start_ns);
                    shared.succeeded(self.number, self.kind, latency_ns, rows);
                    backoff = Duration::from_millis(20);
                }
                Err(Failure::Nothing) => {
                    shared.unclaim(self.kind);
                    pause(IDLE_WAIT).await;
                }
                Err(Failure::Request(message)) => {
                    shared.request_failed(self.number, self.kind, &message);
                    pause(backoff).await;
                    backoff = (backoff * 2).min(Duration::from_secs(1));
                }
                Err(Failure::Violation(violation)) => shared.fail(violation),
            }
        }
    }

    /// Waits for the intended start, in an open loop, and tells from when the latency counts. `None` if the run ended
    /// before.
    async fn start(&self) -> Option<u64> {
        let shared = &self.shared;
        let now_ns = shared.clock.monotonic_ns();
        let Some(schedule) = &shared.schedule else { return Some(now_ns) };
        let intended_ns = schedule.next_start_ns();
        let was_idle = now_ns < intended_ns;
        loop {
            let now_ns = shared.clock.monotonic_ns();
            if now_ns >= intended_ns {
                return Some(charged_start_ns(intended_ns, was_idle, now_ns));
            }
            if shared.is_stopped() {
                return None;
            }
            // In slices, so that a slow schedule does not hold up the end of the run.
            pause(Duration::from_nanos((intended_ns - now_ns).min(100_000_000))).await;
        }
    }
}
