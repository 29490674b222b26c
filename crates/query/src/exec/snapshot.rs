//! A read of a transactional table in a snapshot of all tablets that it touches, as of one stamp.
//!
//! [`SnapshotRead`] decides what is asked; the leaders of the tablets keep the snapshots until they are unpinned, or have
//! not been used for some seconds. A read of one row needs none, unless a transaction has prepared that row; nor does a
//! read of few partitions, if nothing has changed in their tablets meanwhile ([`diorite_transact::version`]).
//!
//! Always true: of a transaction that is committed, a page shows all rows or none; what is kept for a page is given up when
//! the page is done, whatever becomes of it, unless the next page is to go on in it. That is kept for some seconds by those
//! who keep it, and nobody gives it up: clients name it. Left out: where it is named ([`super::paging`]).

use super::attempts::Attempts;
use super::homes::tablet_of_home;
use super::paging::Pins;
use crate::budget::Budget;
use crate::kv::{CommittedIn, Fetch, Kv, KvError, PinnedRead};
use diorite_base::TabletId;
use diorite_base::mutation::Mutation;
use diorite_cql::protocol::CqlError;
use diorite_model::schema::TabletRange;
use diorite_transact::message::{Reply, Request, Status};
use diorite_transact::snapshot::{Action, SnapshotRead, StagedIn};
use diorite_transact::targets::Targets;
use diorite_transact::version::{Answers, DataVersion, Versions};
use diorite_transact::wire::{Answer, Call, PinId};
use futures::future::{BoxFuture, join_all};
use futures::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// A page of rows reads at most so many tablets, and ends at the last of them.
pub const MAX_PAGE_TABLETS: usize = 256;
/// What has no pages reads at most so many.
pub const MAX_TABLETS: usize = 4_096;
/// How often the tablets are pinned again because one was not, or a prepare was finished meanwhile.
const ROUNDS: u32 = 64;
/// The first wait before they are pinned again, and the longest; and the longest one for a prepare that is about to end.
const FIRST_PAUSE_NS: u64 = 1_000_000;
const MAX_PAUSE_NS: u64 = 128_000_000;
const ENDING_PAUSE_NS: u64 = 4_000_000;
/// A tablet that is written to all the time has stamped above any stamp that was current when the question was sent: the
/// read goes that much beyond the clock, and further each time.
const FIRST_MARGIN_US: i64 = 1_000;
const MAX_MARGIN_US: i64 = 32_000;
/// Where stamps are ahead of the clock, because they are above those of reads, each write adds a microsecond: the read goes
/// only that much beyond what is stamped. Otherwise reads would drive each other's stamps ahead, until all had to wait.
const FIRST_STEP_US: i64 = 100;
const MAX_STEP_US: i64 = 3_200;
/// How far the stamp of a read may be ahead of the clock.
const MAX_AHEAD_US: i64 = 50_000;
/// The memory of a pinned tablet, and of a prepare in it.
const TABLET_BYTES: usize = 512;
const STAGED_BYTES: usize = 256;

/// What a read touches.
#[derive(Debug)]
pub struct Touched {
    /// The keys in each tablet.
    pub targets: BTreeMap<TabletId, Targets>,
    /// It is so little that reading it twice costs less than pins.
    pub is_small: bool,
}

/// What is read in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// What is more than one row.
    Several,
    /// Everything.
    All,
}

/// See the top of this module.
pub struct Snapshot<K: Kv> {
    kv: Arc<K>,
    need: Need,
    pins: OnceLock<Pins>,
    /// In place of pins: of the tablets that this node leads.
    versions: OnceLock<Versions>,
    /// And of the others.
    answers: Mutex<Answers>,
    /// How earlier reads of the others have fared.
    attempts: Option<Arc<Attempts>>,
    /// When the pins were taken, or the last of the versions: nothing that is read was written later, if no clock is ahead of
    /// this node's by more than a snapshot's stamp.
    taken_us: OnceLock<i64>,
    /// The pins of the page before.
    resumed: Mutex<Option<Pins>>,
    /// A tablet that may have taken over rows which its pin does not have.
    grown: Option<TabletId>,
    /// The pins stay for the next page.
    is_kept: AtomicBool,
    has_met_lock: AtomicBool,
}

impl<K: Kv> std::fmt::Debug for Snapshot<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("need", &self.need).field("pins", &self.pins).finish_non_exhaustive()
    }
}

/// What was asked of the leader of a tablet.
enum Asked {
    Pin(TabletId, u32),
    Status(StagedIn, u32),
}

type Asking = FuturesUnordered<BoxFuture<'static, (Asked, Result<Answer, KvError>)>>;

impl<K: Kv> Snapshot<K> {
    /// One that has not been taken.
    pub fn new(kv: &Arc<K>, need: Need) -> Self {
        Self {
            kv: Arc::clone(kv),
            need,
            pins: OnceLock::new(),
            versions: OnceLock::new(),
            answers: Mutex::default(),
            attempts: None,
            taken_us: OnceLock::new(),
            resumed: Mutex::default(),
            grown: None,
            is_kept: AtomicBool::new(false),
            has_met_lock: AtomicBool::new(false),
        }
    }

    /// It does without if that was worth it lately.
    #[must_use]
    pub fn trying(mut self, attempts: &Arc<Attempts>) -> Self {
        self.attempts = Some(Arc::clone(attempts));
        self
    }

    /// Takes down whether a read without a snapshot was of one moment.
    pub fn note_attempt(&self, is_of_one_moment: bool) {
        if let Some(attempts) = &self.attempts {
            attempts.note(self.answers.lock().tablets(), !is_of_one_moment);
        }
    }

    /// The snapshot of the page before, which is used if it has every tablet that this page reads. `None` if the table
    /// has lost one of the pinned tablets: another tablet may have taken over its rows, and its own pin does not have them.
    pub fn resuming(kv: &Arc<K>, pins: Pins, tablets: &[TabletRange]) -> Option<Self> {
        let is_pinned = |range: &&TabletRange| pins.contains_key(&range.tablet);
        if tablets.iter().filter(is_pinned).count() != pins.len() {
            return None;
        }
        // A page of so many tablets may have ended before the next one, whose rows the last one may have taken over.
        let last = tablets.iter().rfind(is_pinned).filter(|_| pins.len() >= MAX_PAGE_TABLETS);
        let was_merged = |id| kv.catalog().placement(id).is_some_and(|placement| placement.merge_number > 0);
        let grown = last.map(|range| range.tablet).filter(|id| was_merged(*id));
        let mut resuming = Self::new(kv, Need::All);
        resuming.grown = grown;
        *resuming.resumed.get_mut() = Some(pins);
        Some(resuming)
    }

    /// Whether the pins of the page before have all rows of a tablet.
    fn has_all_of(&self, pins: &Pins, tablet: TabletId) -> bool {
        pins.contains_key(&tablet) && self.grown != Some(tablet)
    }

    /// The pinned tablets, if a snapshot was taken.
    pub fn pins(&self) -> Option<&Pins> {
        self.pins.get()
    }

    /// Keeps the snapshot for the next page.
    pub fn keep(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// Whether a read needs it.
    pub fn is_needed(&self, reads_one_row: bool) -> bool {
        self.need == Need::All || self.need == Need::Several && !reads_one_row
    }

    /// A read met a row that a transaction has prepared, or a snapshot that is not kept any more.
    pub fn meet_lock(&self) {
        self.has_met_lock.store(true, Ordering::Relaxed);
    }

    /// Whether that has happened: the read has to begin again.
    pub fn has_met_lock(&self) -> bool {
        self.has_met_lock.load(Ordering::Relaxed)
    }

    /// Whether it does without pins, and tablets that other nodes lead have to be asked once more.
    pub fn reads_elsewhere(&self) -> bool {
        self.versions.get().is_some() && !self.answers.lock().is_empty()
    }

    /// For a read without a snapshot, once everything is read: whether all of it is of one moment.
    pub async fn is_unchanged(&self, deadline_ns: Option<u64>) -> Option<bool> {
        let versions = self.versions.get()?;
        if self.reads_elsewhere() {
            self.note_taken(i64::MIN);
        }
        // Every tablet has answered: what follows is the second look.
        let is_current = versions.are_current(|tablet| self.kv.version(tablet));
        let to_look_at = self.answers.lock().to_look_at().filter(|_| is_current && !self.has_met_lock());
        let Some(to_look_at) = to_look_at else { return Some(false) };
        let look = |(tablet, before): (TabletId, DataVersion)| async move {
            let fetch = Fetch { wants_version: true, deadline_ns, ..Fetch::default() };
            self.kv.fetch(tablet, fetch).await.is_ok_and(|fetched| fetched.version == Some(before))
        };
        let mut looks: FuturesUnordered<_> = to_look_at.into_iter().map(look).collect();
        while let Some(is_current) = looks.next().await {
            if !is_current {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Whether the answer of a tablet has to say the version of its data.
    pub fn wants_version(&self, tablet: TabletId) -> bool {
        self.versions.get().is_some() && self.answers.lock().is_of(tablet)
    }

    /// Takes down the version that an answer has said.
    pub fn note_version(&self, tablet: TabletId, version: Option<DataVersion>) {
        self.answers.lock().note(tablet, version);
    }

    /// When the snapshot was taken, or a read without one began: nothing that is read was written later. `None`: a
    /// single row is read, or the snapshot is that of the page before.
    pub fn taken_us(&self) -> Option<i64> {
        self.taken_us.get().copied()
    }

    fn note_taken(&self, at_least_us: i64) {
        // It is set once, as a page takes one snapshot.
        let _ = self.taken_us.set(self.kv.now_us().max(at_least_us));
    }

    /// Prepares a read without a snapshot of these tablets; returns whether that is possible.
    fn begin_without(&self, touched: &Touched) -> bool {
        if self.need != Need::Several || !touched.is_small {
            return false;
        }
        let (versions, others) = Versions::now(touched.targets.keys().copied(), |tablet| self.kv.version(tablet));
        if others.is_empty() {
            self.note_taken(i64::MIN);
        } else if self.attempts.as_ref().is_some_and(|attempts| !attempts.is_worth_it(&others)) {
            return false;
        }
        *self.answers.lock() = Answers::none_of(others);
        self.versions.set(versions).is_ok()
    }

    /// Goes on in the snapshot of the page before, if it has all that is read.
    fn resume(&self, touched: &Touched) -> bool {
        let has_all = |pins: &Pins| touched.targets.keys().all(|tablet| self.has_all_of(pins, *tablet));
        let Some(pins) = self.resumed.lock().take().filter(has_all) else { return false };
        self.keep();
        self.touch(&pins);
        self.pins.set(pins).is_ok()
    }

    /// Fetches nothing from each pinned tablet, beside this page: a pin expires that is not used for some seconds, and later
    /// pages need those of later tablets.
    fn touch(&self, pins: &Pins) {
        if pins.len() <= 1 {
            return;
        }
        let pins: Vec<(TabletId, PinId)> = pins.iter().map(|(tablet, pinned)| (*tablet, pinned.pin)).collect();
        let touching = Arc::clone(&self.kv);
        self.kv.spawn(async move {
            let kv = &*touching;
            let touch = |(tablet, pin)| {
                let pinned = Some(PinnedRead { pin, committed: Arc::default() });
                kv.fetch(tablet, Fetch { pinned, ..Fetch::default() })
            };
            join_all(pins.into_iter().map(touch)).await;
        });
    }

    /// How many of these scans' tablets, from the first on, the snapshot of the page before has; `None`: not the first.
    pub fn resumable(&self, tablets: impl Iterator<Item = TabletId>) -> Option<usize> {
        let resumed = self.resumed.lock();
        let pins = resumed.as_ref()?;
        Some(tablets.take_while(|tablet| self.has_all_of(pins, *tablet)).count()).filter(|count| *count > 0)
    }

    /// How a tablet is to be read.
    pub fn pin_of(&self, tablet: TabletId) -> Option<PinnedRead> {
        self.pins.get()?.get(&tablet).cloned()
    }

    /// Takes a snapshot of the tablets that a read touches, or does without.
    ///
    /// # Errors
    /// Of the tablet that has failed.
    pub async fn take(&self, touched: Touched, deadline_ns: Option<u64>, budget: &Budget) -> Result<(), Failure> {
        if touched.targets.is_empty() || self.begin_without(&touched) || self.resume(&touched) {
            return Ok(());
        }
        let touched = touched.targets;
        budget.take(touched.len() * TABLET_BYTES)?;
        let read = SnapshotRead::new(touched.keys().copied(), self.kv.now_us(), ROUNDS, self.kv.monotonic_ns());
        let kept = Kept { kv: Arc::clone(&self.kv), pins: BTreeMap::new() };
        let taking =
            Taking { kv: &self.kv, touched, deadline_ns, read, kept, asking: Asking::new(), tries: 0, last: None };
        let (pins, at_us) = taking.run(budget).await?;
        // A page takes one snapshot.
        drop(self.pins.set(pins));
        // A leader whose clock is ahead has stamped ahead of this node's clock, but not above the stamp of the snapshot.
        self.note_taken(at_us);
        Ok(())
    }
}

impl<K: Kv> Drop for Snapshot<K> {
    fn drop(&mut self) {
        let pins = self.pins.take().filter(|_| !*self.is_kept.get_mut()).unwrap_or_default();
        unpin(&self.kv, pins.into_iter().map(|(tablet, pinned)| (tablet, pinned.pin)).collect());
    }
}

/// Snapshots that are kept, until they are unpinned in the end.
struct Kept<K: Kv> {
    kv: Arc<K>,
    pins: BTreeMap<TabletId, PinId>,
}

impl<K: Kv> Drop for Kept<K> {
    fn drop(&mut self) {
        unpin(&self.kv, std::mem::take(&mut self.pins).into_iter().collect());
    }
}

fn unpin<K: Kv>(kv: &Arc<K>, pins: Vec<(TabletId, PinId)>) {
    if pins.is_empty() {
        return;
    }
    let unpinning = Arc::clone(kv);
    kv.spawn(async move {
        let kv = &*unpinning;
        let unpin = |(tablet, pin)| kv.write(tablet, Mutation::request(&Call::Unpin(pin).encode()), None);
        join_all(pins.into_iter().map(unpin)).await;
    });
}

/// Why there is no snapshot.
#[derive(Debug)]
pub enum Failure {
    /// A tablet has failed.
    Tablet(TabletId, KvError),
    /// The request has.
    Request(CqlError),
}

impl From<CqlError> for Failure {
    fn from(error: CqlError) -> Self {
        Self::Request(error)
    }
}

/// A snapshot that is being taken.
struct Taking<'k, K: Kv> {
    kv: &'k Arc<K>,
    touched: BTreeMap<TabletId, Targets>,
    deadline_ns: Option<u64>,
    read: SnapshotRead,
    kept: Kept<K>,
    asking: Asking,
    /// How often it was begun again.
    tries: u32,
    /// The last failure.
    last: Option<(TabletId, KvError)>,
}

impl<K: Kv> Taking<'_, K> {
    /// The snapshots, and the stamp as of which they are.
    async fn run(mut self, budget: &Budget) -> Result<(Pins, i64), Failure> {
        loop {
            while let Some(action) = self.read.action() {
                match action {
                    Action::Pin { tablet, round, at_us } => {
                        let targets = self.touched.get(&tablet).cloned().unwrap_or_default();
                        self.ask(Asked::Pin(tablet, round), tablet, &Call::Pin(at_us, targets));
                    }
                    Action::Ask { home, of, round, at_us } => {
                        let (tablet, id, prepared_us) = of;
                        let to = tablet_of_home(&self.kv.catalog(), id.tablet, &home).unwrap_or(id.tablet);
                        let request = Request::Status { id, of: Some((tablet, prepared_us)), at_us: Some(at_us) };
                        self.ask(Asked::Status(of, round), to, &Call::Request(request));
                    }
                    Action::Done { committed, at_us } => return Ok((self.done(&committed), at_us)),
                    Action::GiveUp => return Err(self.given_up()),
                }
            }
            let Some((asked, outcome)) = self.asking.next().await else { return Err(self.given_up()) };
            budget.check()?;
            match asked {
                Asked::Pin(tablet, round) => self.pin_answered(tablet, round, outcome, budget).await?,
                Asked::Status(of, round) => self.status_answered(of, round, outcome).await,
            }
        }
    }

    fn ask(&self, asked: Asked, tablet: TabletId, call: &Call) {
        let (kv, deadline_ns, mutation) = (Arc::clone(self.kv), self.deadline_ns, Mutation::request(&call.encode()));
        self.asking.push(Box::pin(async move {
            let decode = |reply: Vec<u8>| {
                Answer::decode(&reply).map_err(|_| KvError::Storage(format!("an answer of {tablet} cannot be decoded")))
            };
            let outcome = kv.write(tablet, mutation, deadline_ns).await.and_then(decode);
            (asked, outcome)
        }));
    }

    async fn pin_answered(
        &mut self,
        tablet: TabletId,
        round: u32,
        outcome: Result<Answer, KvError>,
        budget: &Budget,
    ) -> Result<(), Failure> {
        match outcome {
            Ok(Answer::Pinned { pin, lease_ns, staged }) => {
                let staged_bytes = staged.len() * STAGED_BYTES;
                let is_of_use = self.read.pinned(tablet, round, lease_ns, staged, self.kv.monotonic_ns());
                let unused = if is_of_use { self.kept.pins.insert(tablet, pin) } else { Some(pin) };
                unpin(self.kv, unused.map(|pin| (tablet, pin)).into_iter().collect());
                budget.take(staged_bytes)?;
            }
            Ok(Answer::TooLate(newest_us)) => {
                let grown = |first: i64, most: i64| (first << self.tries.min(16)).min(most);
                let (margin_us, step_us) = (grown(FIRST_MARGIN_US, MAX_MARGIN_US), grown(FIRST_STEP_US, MAX_STEP_US));
                self.tries += 1;
                let after_clock_us = self.kv.now_us().saturating_add(margin_us);
                let at_us = newest_us.saturating_add(step_us).max(after_clock_us);
                self.let_time_pass(at_us).await;
                self.read.too_late(round, at_us, self.kv.monotonic_ns());
            }
            // The caller's list of tablets is old.
            Err(error @ KvError::NoSuchTablet(_)) => return Err(Failure::Tablet(tablet, error)),
            other => self.failed(tablet, round, other.err()).await,
        }
        Ok(())
    }

    async fn status_answered(&mut self, of: StagedIn, round: u32, outcome: Result<Answer, KvError>) {
        match outcome {
            Ok(Answer::Reply { reply: Reply::Status { status, .. }, .. }) => {
                if status == Status::Aborted {
                    // Whoever has prepared the row is about to learn it, too.
                    self.pause(ENDING_PAUSE_NS).await;
                }
                self.read.resolved(round, of, status, self.kv.monotonic_ns());
            }
            other => self.failed(of.0, round, other.err()).await,
        }
    }

    async fn failed(&mut self, tablet: TabletId, round: u32, error: Option<KvError>) {
        self.last = Some((tablet, error.unwrap_or(KvError::Unavailable(tablet))));
        self.pause(MAX_PAUSE_NS).await;
        self.read.failed(round, self.kv.monotonic_ns());
    }

    /// Waits until a stamp is hardly in the future: tablets stamp above the stamps of reads, so that their stamps would
    /// run ahead of time if many reads and writes took turns.
    async fn let_time_pass(&mut self, at_us: i64) {
        let ahead_us = at_us.saturating_sub(self.kv.now_us()).saturating_sub(MAX_AHEAD_US);
        if let Ok(ahead_us @ 1..) = u64::try_from(ahead_us) {
            // A pause may be half as long as it is asked for.
            self.kv.pause(ahead_us.saturating_mul(2_000).min(MAX_PAUSE_NS)).await;
        }
    }

    async fn pause(&mut self, longest_ns: u64) {
        let pause_ns = FIRST_PAUSE_NS.checked_shl(self.tries.min(16)).unwrap_or(longest_ns).min(longest_ns);
        self.tries += 1;
        self.kv.pause(pause_ns).await;
    }

    fn done(mut self, committed: &BTreeMap<StagedIn, i64>) -> Pins {
        let kept = std::mem::take(&mut self.kept.pins);
        let in_tablet = |tablet: TabletId| {
            let of_tablet = committed.iter().filter(move |((of, ..), _)| *of == tablet);
            of_tablet.map(|((_, id, prepared_us), committed_us)| CommittedIn {
                id: *id,
                prepared_us: *prepared_us,
                committed_us: *committed_us,
            })
        };
        let pins =
            kept.into_iter().map(|(tablet, pin)| (tablet, PinnedRead { pin, committed: in_tablet(tablet).collect() }));
        pins.collect()
    }

    fn given_up(&mut self) -> Failure {
        let first = self.touched.keys().next().copied().unwrap_or(TabletId(0));
        let (tablet, error) = self.last.take().unwrap_or((first, KvError::Locked(first)));
        Failure::Tablet(tablet, error)
    }
}
