//! The budget of a request: memory and time; and its trace, which goes wherever the budget does.
//!
//! Always true: a request is ended once, for the first reason (its deadline, an operator); checking whether it has ended is one load and reads no
//! clock, as [`crate::activity`] compares the deadlines of all running requests with the clock. A request that waits is woken; one that computes
//! checks every few steps. Left out: the answer to a request that was ended ([`crate::engine`] knows what it has done).

use crate::error::invalid;
use crate::trace::Tracing;
use diorite_base::Clock;
use diorite_base::account::{Held, Meter, Refused};
use diorite_cql::protocol::CqlError;
use futures::task::AtomicWaker;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::task::Poll;

/// Why a request ended before it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Its time was over.
    Expired,
    /// An operator ended it.
    Cancelled,
}

/// Steps between two readings of the clock, where the request reads it itself.
const STEPS_PER_LOOK: u32 = 32;

/// What has to follow a change that was made has so long at least.
const LEAST_TO_FINISH_NS: u64 = 1_000_000_000;

const RUNS: u8 = 0;
const EXPIRED: u8 = 1;
const CANCELLED: u8 = 2;

/// See the top of this module.
pub struct Budget {
    meter: Meter,
    /// On the monotonic clock; `u64::MAX`: none.
    deadline_ns: AtomicU64,
    /// It is not ended at the deadline: whatever it waits for ends by then.
    is_uninterrupted: AtomicBool,
    ended: AtomicU8,
    waiting: AtomicWaker,
    /// A request that is in no list of running requests reads the clock itself.
    clock: Option<Arc<dyn Clock>>,
    steps: AtomicU32,
    /// Takes down what is done, if the client wants to know.
    trace: Option<Arc<Tracing>>,
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("meter", &self.meter)
            .field("deadline_ns", &self.deadline_ns())
            .field("ended", &self.ended())
            .finish_non_exhaustive()
    }
}

static UNLIMITED: Budget = Budget::new(Meter::alone(usize::MAX), u64::MAX);

impl Budget {
    /// Of a request that ends at `deadline_ns` of the monotonic clock.
    pub const fn new(meter: Meter, deadline_ns: u64) -> Self {
        Self {
            meter,
            deadline_ns: AtomicU64::new(deadline_ns),
            is_uninterrupted: AtomicBool::new(false),
            ended: AtomicU8::new(RUNS),
            waiting: AtomicWaker::new(),
            clock: None,
            steps: AtomicU32::new(0),
            trace: None,
        }
    }

    /// Of a part of another node's request: it reads the clock itself.
    pub fn watching(meter: Meter, deadline_ns: u64, clock: Arc<dyn Clock>) -> Self {
        Self { clock: Some(clock), ..Self::new(meter, deadline_ns) }
    }

    /// The same, of a request that is traced.
    pub fn traced(self, trace: Tracing) -> Self {
        Self { trace: Some(Arc::new(trace)), ..self }
    }

    /// For work that is bounded in other ways: single rows by their keys.
    pub fn unlimited() -> &'static Self {
        &UNLIMITED
    }

    /// The trace of the request, if its client has asked for one.
    #[inline]
    pub fn trace(&self) -> Option<&Arc<Tracing>> {
        self.trace.as_ref()
    }

    /// Adds what was just done, or is about to be done, to the trace, if there is one.
    #[inline]
    pub fn note(&self, activity: &str) {
        if let Some(trace) = &self.trace {
            trace.note(activity);
        }
    }

    /// The memory that it holds.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Takes memory until the request is over.
    #[inline]
    pub fn take(&self, bytes: usize) -> Result<(), CqlError> {
        self.meter.take(bytes).map_err(refused)
    }

    /// Gives back memory that was taken.
    pub fn give(&self, bytes: usize) {
        self.meter.give(bytes);
    }

    /// Takes memory until the returned value is dropped.
    pub fn hold(&self, bytes: usize) -> Result<Held<'_>, CqlError> {
        self.meter.hold(bytes).map_err(refused)
    }

    /// Reserves capacity in a buffer that belongs to the request until it ends, and charges the growth.
    #[inline]
    pub fn reserve(&self, buffer: &mut Vec<u8>, more: usize) -> Result<(), CqlError> {
        if buffer.capacity() - buffer.len() >= more {
            return Ok(());
        }
        self.reserve_more(buffer, more)
    }

    #[cold]
    fn reserve_more(&self, buffer: &mut Vec<u8>, more: usize) -> Result<(), CqlError> {
        let (before, needed) = (buffer.capacity(), buffer.len().saturating_add(more));
        let comfortable = needed.max(before + before / 2);
        // While the contents move, both buffers exist.
        let wanted = match self.meter.take(comfortable) {
            Ok(()) => comfortable,
            Err(_) => {
                self.take(needed)?;
                needed
            }
        };
        buffer.reserve_exact(wanted - buffer.len());
        self.meter.give(before);
        Ok(())
    }

    /// Until when it may run, on the monotonic clock.
    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns.load(Ordering::Relaxed)
    }

    /// As [`Self::deadline_ns`], if there is one.
    pub fn deadline(&self) -> Option<u64> {
        Some(self.deadline_ns()).filter(|deadline_ns| *deadline_ns != u64::MAX)
    }

    /// Sets the deadline to `deadline_ns`, if that is earlier.
    pub fn end_by(&self, deadline_ns: u64) {
        self.deadline_ns.fetch_min(deadline_ns, Ordering::Relaxed);
    }

    /// From now on it is not ended at its deadline: a change of the schema is not interrupted, and ends itself what it
    /// waits for ([`Self::answer_by`]).
    pub fn set_uninterrupted(&self) {
        self.is_uninterrupted.store(true, Ordering::Relaxed);
    }

    /// When a request that is not interrupted is to be answered, if it has a deadline: a fifth of the time that is left
    /// earlier, so that the answer comes before the client gives up.
    pub fn answer_by(&self, now_ns: u64) -> Option<u64> {
        self.deadline().map(|deadline_ns| deadline_ns - deadline_ns.saturating_sub(now_ns) / 5)
    }

    /// As [`Self::answer_by`], for what has to follow a change that was made: it has a second even if the time is over,
    /// so that it is not left out.
    pub fn finish_by(&self, now_ns: u64) -> Option<u64> {
        self.answer_by(now_ns).map(|by_ns| by_ns.max(now_ns.saturating_add(LEAST_TO_FINISH_NS)))
    }

    /// Ends it, unless it has ended.
    pub fn end(&self, why: Ended) {
        let why = match why {
            Ended::Expired => EXPIRED,
            Ended::Cancelled => CANCELLED,
        };
        if self.ended.compare_exchange(RUNS, why, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.waiting.wake();
        }
    }

    /// Ends it if its time is over, unless it is not to be interrupted.
    pub fn end_if_expired(&self, now_ns: u64) {
        if now_ns >= self.deadline_ns() && !self.is_uninterrupted.load(Ordering::Relaxed) {
            self.end(Ended::Expired);
        }
    }

    /// Why it has ended, if it has.
    #[inline]
    pub fn ended(&self) -> Option<Ended> {
        match self.ended.load(Ordering::Relaxed) {
            RUNS => None,
            EXPIRED => Some(Ended::Expired),
            _ => Some(Ended::Cancelled),
        }
    }

    /// Fails once the request has ended. To be called every few steps of a computation; [`crate::engine`] gives the
    /// error its final form.
    #[inline]
    pub fn check(&self) -> Result<(), CqlError> {
        if let Some(clock) = &self.clock
            && self.steps.fetch_add(1, Ordering::Relaxed).is_multiple_of(STEPS_PER_LOOK)
        {
            self.end_if_expired(clock.monotonic_ns());
        }
        match self.ended() {
            None => Ok(()),
            Some(_) => Err(CqlError::overloaded("the request has ended")),
        }
    }

    /// The result of `work`, unless the request ends before; then `work` is dropped.
    pub async fn unless_ended<T>(&self, work: impl Future<Output = T>) -> Result<T, Ended> {
        let mut work = pin!(work);
        std::future::poll_fn(|context| {
            if let Some(why) = self.ended() {
                return Poll::Ready(Err(why));
            }
            if let Poll::Ready(output) = work.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            self.waiting.register(context.waker());
            // It may have ended just before that.
            self.ended().map_or(Poll::Pending, |why| Poll::Ready(Err(why)))
        })
        .await
    }
}

/// The error of a request that got no memory: it says whether a retry can succeed.
pub fn refused(refused: Refused) -> CqlError {
    match refused {
        Refused::TooLarge { .. } => invalid(format!("the request is too large: {refused}")),
        Refused::Full { .. } => CqlError::overloaded(refused.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use diorite_base::account::Account;
    use diorite_cql::protocol::error::ErrorCode;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Wake};

    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_waits_is_woken_when_the_request_ends_and_ends_for_the_first_reason() {
        let budget = Budget::new(Meter::alone(10), 100);
        let woken = Arc::new(Woken(AtomicUsize::new(0)));
        let waker = Arc::clone(&woken).into();
        let mut context = Context::from_waker(&waker);
        let mut waiting = pin!(budget.unless_ended(std::future::pending::<()>()));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        budget.end_if_expired(99);
        assert_eq!((budget.ended(), woken.0.load(Ordering::Relaxed)), (None, 0));
        budget.end_by(200);
        budget.end_if_expired(100);
        budget.end(Ended::Cancelled);
        assert_eq!((budget.ended(), woken.0.load(Ordering::Relaxed)), (Some(Ended::Expired), 1));
        assert!(matches!(waiting.as_mut().poll(&mut context), Poll::Ready(Err(Ended::Expired))));
        assert!(budget.check().is_err());
    }

    #[test]
    fn what_is_done_in_time_is_not_ended() {
        let budget = Budget::unlimited();
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut done = pin!(budget.unless_ended(async { 7 }));
        assert!(matches!(done.as_mut().poll(&mut context), Poll::Ready(Ok(7))));
    }

    #[test]
    fn what_is_uninterrupted_knows_its_deadline_and_is_ended_by_operators_alone() {
        let budget = Budget::new(Meter::alone(1_000), 1_100);
        budget.set_uninterrupted();
        budget.end_if_expired(2_000);
        assert_eq!((budget.ended(), budget.deadline()), (None, Some(1_100)));
        let by_ns = [100, 600, 1_100, 2_000].map(|now_ns| budget.answer_by(now_ns));
        assert_eq!(by_ns, [Some(900), Some(1_000), Some(1_100), Some(1_100)]);
        let second = LEAST_TO_FINISH_NS;
        let long = Budget::new(Meter::alone(1_000), 10 * second);
        let by_ns = [0, 9, 20].map(|seconds| long.finish_by(seconds * second));
        assert_eq!(by_ns, [Some(8 * second), Some(10 * second), Some(21 * second)]);
        assert_eq!((Budget::unlimited().answer_by(5), Budget::unlimited().finish_by(5)), (None, None));
        budget.end(Ended::Cancelled);
        assert_eq!(budget.ended(), Some(Ended::Cancelled));
    }

    #[test]
    fn a_refusal_says_whether_to_ask_again() {
        let account = Account::root("all requests", 1_000);
        let _others = account.charge(500).unwrap();
        let budget = Budget::new(Meter::new(&account, 800), u64::MAX);
        assert_eq!(budget.take(900).unwrap_err().code(), ErrorCode::Invalid);
        assert_eq!(budget.take(700).unwrap_err().code(), ErrorCode::Overloaded);
        budget.take(400).unwrap();
    }

    #[test]
    fn a_buffer_of_the_request_is_charged_by_its_capacity() {
        let budget = Budget::new(Meter::alone(10_000), u64::MAX);
        let mut buffer = Vec::new();
        while budget.reserve(&mut buffer, 100).is_ok() {
            buffer.extend_from_slice(&[1; 100]);
            assert_eq!(budget.meter().used_bytes(), buffer.capacity());
        }
        assert!(buffer.len() > 3_000, "{}", buffer.len());
        assert!(budget.reserve(&mut Vec::new(), 20_000).is_err());
    }
}
