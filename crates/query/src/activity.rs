//! Statistics of requests by statement: number, durations, errors, rows.
//!
//! Always true: every request has one [`Operation`], which its plan decides; statements are distinguished by their text without constants, so that
//! no value of a request is kept; the [`SLOTS`] statements that were used last are counted separately, all others together; counting a request takes
//! no lock and allocates nothing. Requests on the general path are listed while they run; point statements (`engine::point`) are too short for that.
//! Left out: clocks (the caller passes the time).

use crate::auth;
use crate::budget::{Budget, Ended};
use crate::exec::parts::Progress;
use crate::plan::{Plan, Planned};
use crate::statement_id::{StatementId, statement_id};
use ahash::AHashMap;
use arc_swap::{ArcSwap, ArcSwapOption};
use diorite_base::measure::{Counter, Distribution, Histogram};
use diorite_cql::language::redacted;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

/// How many statements are counted separately.
pub const SLOTS: usize = 512;
/// The slot of all other statements.
pub const OTHERS: Slot = 0;
/// Shares of the counters of a statement: so many threads count without contention.
const SHARES: usize = 8;
/// Parts of the list of running requests, each with a lock, so that connections seldom contend.
const PARTS: usize = 16;
/// The length up to which a part is kept once all of its requests have ended: about two kilobytes.
const KEPT_REQUESTS: usize = 16;
/// Shown as the statement of requests that wait for their turn.
const WAITING: &str = "(waits for its turn)";
const NS_PER_S: u64 = 1_000_000_000;

/// The number of a statement that is counted separately.
pub type Slot = u16;

/// Kinds of requests whose latencies are comparable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Operation {
    /// Reads rows of partitions that it names.
    Read,
    /// Reads rows of any partitions.
    Scan,
    /// Aggregates rows: sums, counts, …
    Aggregate,
    /// Writes rows.
    Write,
    /// Writes if a condition holds.
    Conditional,
    /// Several writes in one request.
    Batch,
    /// Changes or describes the schema.
    Schema,
    /// Changes or lists roles and permissions.
    Access,
    /// Prepares a statement.
    Prepare,
    /// Anything else, also requests that could not be parsed.
    #[default]
    Other,
}

impl Operation {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Read,
        Self::Scan,
        Self::Aggregate,
        Self::Write,
        Self::Conditional,
        Self::Batch,
        Self::Schema,
        Self::Access,
        Self::Prepare,
        Self::Other,
    ];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Scan => "scan",
            Self::Aggregate => "aggregate",
            Self::Write => "write",
            Self::Conditional => "conditional",
            Self::Batch => "batch",
            Self::Schema => "schema",
            Self::Access => "access",
            Self::Prepare => "prepare",
            Self::Other => "other",
        }
    }

    /// The operation of a plan.
    pub(crate) fn of(planned: &Planned) -> Self {
        match &planned.plan {
            Plan::Select(select) if select.selection.is_aggregate() => Self::Aggregate,
            Plan::Select(select) if select.restrictions.has_keys() => Self::Read,
            Plan::Select(_) => Self::Scan,
            Plan::Modify(modify) if modify.condition.is_some() => Self::Conditional,
            Plan::Modify(_) => Self::Write,
            Plan::Batch(batch) if batch.statements.iter().any(|statement| statement.condition.is_some()) => {
                Self::Conditional
            }
            Plan::Block(block) if block.statements.iter().any(|statement| statement.condition.is_some()) => {
                Self::Conditional
            }
            Plan::Batch(_) | Plan::Block(_) => Self::Batch,
            Plan::Definition(statement) if auth::handles(statement) => Self::Access,
            Plan::Definition(_) => Self::Schema,
            Plan::Use(_) | Plan::Explain(_) => Self::Other,
        }
    }
}

/// The facts about a request once it is planned.
#[derive(Debug, Clone, Default)]
pub struct Note {
    /// The operation.
    pub operation: Operation,
    /// Its statement, if that is known.
    pub statement: Option<Arc<StatementActivity>>,
}

/// A statement that is counted separately, and the counts of its requests.
#[derive(Debug)]
pub struct StatementActivity {
    /// The text without constants.
    pub text: String,
    /// The keyspace that unqualified names in it belong to.
    pub keyspace: Option<String>,
    slot: AtomicU16,
    times: Histogram,
    rows: Counter,
    errors: Counter,
    longest_us: AtomicU64,
    /// When it was last used, seconds of the monotonic clock.
    used_s: AtomicU64,
}

impl StatementActivity {
    fn new(text: String, keyspace: Option<&str>, slot: Slot, used_s: u64) -> Self {
        Self {
            text,
            keyspace: keyspace.map(str::to_owned),
            slot: AtomicU16::new(slot),
            times: Histogram::with_shares(SHARES),
            rows: Counter::with_shares(SHARES),
            errors: Counter::with_shares(SHARES),
            longest_us: AtomicU64::new(0),
            used_s: AtomicU64::new(used_s),
        }
    }

    /// Its number; [`OTHERS`] once another statement has taken its place.
    #[inline]
    pub fn slot(&self) -> Slot {
        self.slot.load(Ordering::Relaxed)
    }

    fn record(&self, done: &Done) {
        self.times.record_many(done.elapsed_ns, done.count);
        if done.rows > 0 {
            self.rows.add(done.rows);
        }
        if done.errors > 0 {
            self.errors.add(done.errors);
        }
        // Read first: memory that is only read is shared by all processors.
        let elapsed_us = done.elapsed_ns / 1_000;
        if self.longest_us.load(Ordering::Relaxed) < elapsed_us {
            self.longest_us.fetch_max(elapsed_us, Ordering::Relaxed);
        }
        let used_s = done.now_ns / NS_PER_S;
        if self.used_s.load(Ordering::Relaxed) != used_s {
            self.used_s.store(used_s, Ordering::Relaxed);
        }
    }
}

/// Requests of one statement that were answered together.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    /// How long each took.
    pub elapsed_ns: u64,
    /// How many there were.
    pub count: u64,
    /// Rows that they returned.
    pub rows: u64,
    /// How many of them failed.
    pub errors: u64,
    /// The monotonic clock.
    pub now_ns: u64,
}

/// The counts of a statement since it is counted separately.
#[derive(Debug, Clone)]
pub struct StatementSummary {
    /// The statement; none: all that are not counted separately.
    pub statement: Option<Arc<StatementActivity>>,
    /// How long they took.
    pub times: Distribution,
    /// How long the longest took, microseconds.
    pub longest_us: u64,
    /// Rows that they returned.
    pub rows: u64,
    /// How many failed.
    pub errors: u64,
    /// When the last was answered, seconds of the monotonic clock.
    pub used_s: u64,
}

/// A request that runs.
#[derive(Debug, Clone)]
pub struct RunningRequest {
    /// Its statement.
    pub statement: Arc<StatementActivity>,
    /// Who sent it.
    pub client: Option<SocketAddr>,
    /// When it arrived, on the monotonic clock.
    pub arrived_ns: u64,
    /// The budget of the request, by which it is also ended.
    pub budget: Arc<Budget>,
    /// Its number, by which an operator ends it: not given again.
    pub number: u64,
}

#[derive(Debug, Default)]
struct Part {
    requests: Vec<Option<RunningRequest>>,
    free: Vec<usize>,
}

type Known = AHashMap<StatementId, Arc<StatementActivity>>;

/// See the top of this module.
#[derive(Debug)]
pub struct Activity {
    known: ArcSwap<Known>,
    slots: Vec<ArcSwapOption<StatementActivity>>,
    writers: Mutex<()>,
    running: Arc<[Mutex<Part>; PARTS]>,
    next_number: AtomicU64,
    /// Shown as the statement of requests that wait for their turn.
    waiting: Arc<StatementActivity>,
}

impl Default for Activity {
    fn default() -> Self {
        let slots: Vec<_> = (0..SLOTS).map(|_| ArcSwapOption::empty()).collect();
        slots[usize::from(OTHERS)].store(Some(Arc::new(StatementActivity::new(String::new(), None, OTHERS, 0))));
        Self {
            known: ArcSwap::default(),
            slots,
            writers: Mutex::default(),
            running: Arc::new(std::array::from_fn(|_| Mutex::default())),
            next_number: AtomicU64::new(1),
            waiting: Arc::new(StatementActivity::new(WAITING.to_owned(), None, OTHERS, 0)),
        }
    }
}

impl Activity {
    /// The slot of a statement, which is counted separately from now on; another statement may lose its slot.
    pub fn place(&self, keyspace: Option<&str>, text: &str) -> Arc<StatementActivity> {
        self.place_redacted(keyspace, redacted(text))
    }

    /// The same, for a text that has no constants.
    pub(crate) fn place_redacted(&self, keyspace: Option<&str>, text: String) -> Arc<StatementActivity> {
        let id = statement_id(keyspace, &text);
        if let Some(known) = self.known.load().get(&id) {
            return Arc::clone(known);
        }
        let _one_at_a_time = self.writers.lock();
        let mut known = Known::clone(&self.known.load());
        if let Some(known) = known.get(&id) {
            return Arc::clone(known);
        }
        let slot = self.free_slot(&mut known);
        let newest_s = known.values().map(|statement| statement.used_s.load(Ordering::Relaxed)).max().unwrap_or(0);
        let statement = Arc::new(StatementActivity::new(text, keyspace, slot, newest_s));
        self.slots[usize::from(slot)].store(Some(Arc::clone(&statement)));
        known.insert(id, Arc::clone(&statement));
        self.known.store(Arc::new(known));
        statement
    }

    /// A slot that is free, or that of the statement used longest ago.
    fn free_slot(&self, known: &mut Known) -> Slot {
        let first = usize::from(OTHERS) + 1;
        if let Some(free) = (first..SLOTS).find(|slot| self.slots[*slot].load().is_none()) {
            return free as Slot;
        }
        let oldest = known
            .iter()
            .map(|(id, statement)| (statement.used_s.load(Ordering::Relaxed), statement.slot(), *id))
            .min_by_key(|(used_s, slot, _)| (*used_s, *slot));
        let Some((_, slot, id)) = oldest else { return OTHERS };
        if let Some(statement) = known.remove(&id) {
            // Requests under way may still be counted for the next statement; later ones are counted with the others.
            statement.slot.store(OTHERS, Ordering::Relaxed);
        }
        slot
    }

    /// Records requests of the statement with this number.
    #[inline]
    pub fn record(&self, slot: Slot, done: &Done) {
        let place = self.slots.get(usize::from(slot)).unwrap_or(&self.slots[usize::from(OTHERS)]);
        if let Some(statement) = &*place.load() {
            statement.record(done);
        }
    }

    /// The statement with this number; none for [`OTHERS`].
    pub fn statement(&self, slot: Slot) -> Option<Arc<StatementActivity>> {
        self.slots.get(usize::from(slot)).filter(|_| slot != OTHERS)?.load_full()
    }

    /// The counts of all requests, by statement, in no order. Statements that were only prepared are left out.
    pub fn summaries(&self) -> Vec<StatementSummary> {
        let mut summaries = Vec::new();
        for (slot, place) in self.slots.iter().enumerate() {
            let Some(statement) = place.load_full() else { continue };
            let times = statement.times.snapshot();
            if times.count() == 0 {
                continue;
            }
            summaries.push(StatementSummary {
                times,
                longest_us: statement.longest_us.load(Ordering::Relaxed),
                rows: statement.rows.get(),
                errors: statement.errors.get(),
                used_s: statement.used_s.load(Ordering::Relaxed),
                statement: (slot != usize::from(OTHERS)).then_some(statement),
            });
        }
        summaries
    }

    /// The entry for statements that are unknown or not counted separately.
    pub(crate) fn others(&self) -> Arc<StatementActivity> {
        let unnamed = || Arc::new(StatementActivity::new(String::new(), None, OTHERS, 0));
        self.slots[usize::from(OTHERS)].load_full().unwrap_or_else(unnamed)
    }

    /// The entry for the statement of a request that waits for its turn.
    pub(crate) fn waiting(&self) -> Arc<StatementActivity> {
        Arc::clone(&self.waiting)
    }

    /// Begins a request, which runs until the returned value is dropped. It receives its number here.
    pub(crate) fn begin(&self, request: RunningRequest, progress: Progress) -> Running {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let request = RunningRequest { number, ..request };
        let part = (number % PARTS as u64) as usize;
        let mut list = self.running[part].lock();
        let at = list.free.pop().unwrap_or_else(|| {
            list.requests.push(None);
            list.requests.len() - 1
        });
        list.requests[at] = Some(request);
        drop(list);
        Running { list: Arc::clone(&self.running), part, at, progress }
    }

    /// The running requests, longest first, up to `limit`; and their number.
    pub fn running(&self, limit: usize) -> (Vec<RunningRequest>, usize) {
        let mut all: Vec<RunningRequest> = Vec::new();
        for part in self.running.iter() {
            all.extend(part.lock().requests.iter().flatten().cloned());
        }
        all.sort_unstable_by_key(|request| request.arrived_ns);
        let count = all.len();
        all.truncate(limit);
        (all, count)
    }
}

impl Activity {
    /// Ends requests whose deadline has passed. To be called regularly, so that running requests need not read a clock.
    pub fn end_expired(&self, now_ns: u64) {
        for part in self.running.iter() {
            part.lock().requests.iter().flatten().for_each(|request| request.budget.end_if_expired(now_ns));
        }
    }

    /// Ends the request with this number; false if it does not run.
    pub fn cancel(&self, number: u64) -> bool {
        let list = self.running[(number % PARTS as u64) as usize].lock();
        let found = list.requests.iter().flatten().find(|request| request.number == number);
        found.inspect(|request| request.budget.end(Ended::Cancelled)).is_some()
    }
}

/// Keeps a request in the list of running ones.
#[derive(Debug)]
pub(crate) struct Running {
    list: Arc<[Mutex<Part>; PARTS]>,
    part: usize,
    at: usize,
    /// How far its writes have got.
    pub(crate) progress: Progress,
}

impl Running {
    /// Sets the statement of the request, which is known by now.
    pub(crate) fn name(&self, statement: Arc<StatementActivity>) {
        if let Some(request) = &mut self.list[self.part].lock().requests[self.at] {
            request.statement = statement;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut list = self.list[self.part].lock();
        let at = self.at;
        list.requests[at] = None;
        list.free.push(at);
        // After a burst the list is given back. A short one is kept, or each of a few requests would allocate it anew.
        if list.free.len() == list.requests.len() && list.requests.len() > KEPT_REQUESTS {
            *list = Part::default();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test data is known")]

    use super::*;
    use diorite_base::account::Meter;

    fn done(elapsed_ns: u64, now_s: u64) -> Done {
        Done { elapsed_ns, count: 1, rows: 2, errors: 0, now_ns: now_s * NS_PER_S }
    }

    #[test]
    fn statements_that_differ_in_constants_are_one() {
        let activity = Activity::default();
        let one = activity.place(Some("ks"), "SELECT v FROM t WHERE k = 'secret'");
        let two = activity.place(Some("ks"), "SELECT v FROM t WHERE k = 7");
        assert!(Arc::ptr_eq(&one, &two));
        assert_eq!(one.text, "SELECT v FROM t WHERE k = ?");
        assert_ne!(activity.place(None, "SELECT v FROM t WHERE k = 7").slot(), one.slot());
    }

    #[test]
    fn requests_are_counted_by_statement() {
        let activity = Activity::default();
        let slot = activity.place(None, "SELECT a FROM t").slot();
        let idle = activity.place(None, "SELECT b FROM t");
        activity.record(slot, &done(4_000_000, 9));
        activity.record(slot, &Done { errors: 1, ..done(2_000_000, 11) });
        activity.record(OTHERS, &done(1_000, 1));
        activity.record(60_000, &done(1_000, 1));
        let summaries = activity.summaries();
        assert_eq!(summaries.len(), 2, "{} was never executed", idle.text);
        assert!(summaries[0].statement.is_none() && summaries[0].times.count() == 2);
        let shown = &summaries[1];
        assert_eq!(shown.statement.as_ref().unwrap().text, "SELECT a FROM t");
        assert_eq!(
            (shown.times.count(), shown.rows, shown.errors, shown.longest_us, shown.used_s),
            (2, 4, 1, 4_000, 11)
        );
    }

    #[test]
    fn the_statement_used_longest_ago_is_replaced() {
        let activity = Activity::default();
        let places: Vec<_> = (0..SLOTS - 1).map(|n| activity.place(None, &format!("SELECT c{n} FROM t"))).collect();
        for (n, place) in places.iter().enumerate() {
            activity.record(place.slot(), &done(1_000, if n == 77 { 5 } else { 100 }));
        }
        let slot = places[77].slot();
        let newcomer = activity.place(None, "SELECT x FROM t");
        assert_eq!((newcomer.slot(), places[77].slot()), (slot, OTHERS));
        // This one is new, so another is evicted next.
        activity.place(None, "SELECT y FROM t");
        assert_eq!(newcomer.slot(), slot);
        assert_eq!(activity.known.load().len(), SLOTS - 1);
        // An evicted statement comes back as a new one.
        assert_ne!(activity.place(None, "SELECT c77 FROM t").slot(), OTHERS);
    }

    #[test]
    fn what_runs_is_listed_until_it_is_over() {
        let activity = Activity::default();
        let statement = activity.place(None, "SELECT a FROM t");
        let begin = |arrived_ns| {
            let (statement, budget) =
                (Arc::clone(&statement), Arc::new(Budget::new(Meter::alone(1), arrived_ns + 100)));
            let request = RunningRequest { statement, client: None, arrived_ns, budget, number: 0 };
            activity.begin(request, Progress::default())
        };
        let (late, early) = (begin(20), begin(10));
        activity.end_expired(110);
        let ended = |at: usize| activity.running(9).0[at].budget.ended();
        assert_eq!((ended(0), ended(1)), (Some(Ended::Expired), None));
        let number = activity.running(9).0[1].number;
        assert!(activity.cancel(number) && !activity.cancel(number + 1_000));
        assert_eq!((ended(0), ended(1)), (Some(Ended::Expired), Some(Ended::Cancelled)));
        let (listed, count) = activity.running(1);
        assert_eq!((listed.len(), listed[0].arrived_ns, count), (1, 10, 2));
        drop(early);
        assert_eq!(activity.running(9).0.iter().map(|request| request.arrived_ns).collect::<Vec<_>>(), [20]);
        drop(late);
        assert_eq!(activity.running(9).1, 0);
    }
}
