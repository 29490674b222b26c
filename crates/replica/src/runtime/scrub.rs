//! Reads all data and the log once, to find damage in what no request reads while other replicas are intact.
//!
//! One thread reads, at lower priority than requests and within a rate limit in bytes per second. For each tablet it
//! reads the blocks of the SSTables, whose checksums RocksDB verifies, and the entries in the Raft log, whose checksums
//! raft-engine verifies. A pass begins when an operator asks for it, or by itself, spread over a number of days.
//!
//! Always true: a tablet's files are in use for one piece at a time only, so that nothing waits long for the scrub;
//! damage sets the tablet's replica aside like damage that a request finds (`aside`). A pass that an operator asks for
//! replaces one that runs by itself. Left out: remembering the progress over a restart (each pass begins at another
//! tablet).

use crate::group::handle::TabletHandle;
use crate::lifecycle::command::Command;
use crate::lifecycle::replicas::NodeReplicas;
use diorite_base::{GroupId, TabletId};
use diorite_raft::{LogReadError, LogReader};
use diorite_storage::run_at_lower_priority;
use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// The bytes that are read at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// The lowest rate of a pass that runs by itself, bytes per second.
const LEAST_RATE_BYTES: u64 = 64 << 10;
/// The time from the start of the node to the first pass that runs by itself, nanoseconds.
const FIRST_NS: u64 = 3_600_000_000_000;
const DAY_NS: u64 = 86_400_000_000_000;
/// How often the thread checks whether a pass is to begin or to end.
const LOOK: Duration = Duration::from_secs(1);

/// The progress of the last pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScrubStatus {
    /// Whether the pass is under way.
    pub is_running: bool,
    /// Whether an operator asked for it; otherwise the node began it by itself.
    pub is_asked_for: bool,
    /// The rate limit, bytes per second; 0: none.
    pub rate_bytes: u64,
    /// Bytes read so far, of keys and values and of entries of the log.
    pub bytes_read: u64,
    /// The number of tablets read to their end.
    pub tablets_read: usize,
    /// The number of tablets when the pass began.
    pub tablets: usize,
    /// The tablets in which damage was found.
    pub damaged: Vec<TabletId>,
    /// Why the pass ended before everything was read, if it did.
    pub stopped: Option<String>,
    /// The end of the last complete pass since the node was started, milliseconds since 1970.
    pub finished_ms: Option<i64>,
    /// How often damage was found since the node was started.
    pub damage_found: u64,
}

#[derive(Default)]
struct State {
    closed: bool,
    /// The rate of a pass that is to begin.
    asked: Option<u64>,
    /// Whether the pass under way is to end.
    is_stopped: bool,
    /// The number of days over which a pass that runs by itself is spread; 0: there is none.
    days: u64,
    /// When the next such pass begins, nanoseconds; 0: not decided yet.
    next_ns: u64,
    status: ScrubStatus,
}

impl State {
    /// The status of a pass that begins. Results of earlier passes are kept.
    fn begun(&self, is_asked_for: bool, rate_bytes: u64, tablets: usize) -> ScrubStatus {
        let ScrubStatus { finished_ms, damage_found, .. } = self.status;
        let (is_running, is_new) = (true, ScrubStatus::default());
        ScrubStatus { is_running, is_asked_for, rate_bytes, tablets, finished_ms, damage_found, ..is_new }
    }
}

/// The state that the thread shares with those who give orders.
#[derive(Default)]
pub(crate) struct Scrub {
    state: Mutex<State>,
    changed: Condvar,
}

impl Scrub {
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// Begins to read everything once, from the beginning, at this rate (0: no limit).
    pub(crate) fn begin(&self, rate_bytes: u64) {
        let mut state = self.state.lock();
        (state.asked, state.is_stopped) = (Some(rate_bytes), state.status.is_running);
        // The status must show this pass from now on, not the last one.
        state.status = state.begun(true, rate_bytes, 0);
        self.changed.notify_all();
    }

    /// Ends the pass that is under way, if there is one.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        (state.asked, state.is_stopped) = (None, true);
        if state.status.is_running {
            state.status.stopped = Some("an operator has stopped it".to_owned());
            state.status.is_running = false;
        }
        self.changed.notify_all();
    }

    pub(crate) fn set_days(&self, days: u64) {
        self.state.lock().days = days;
    }

    pub(crate) fn status(&self) -> ScrubStatus {
        self.state.lock().status.clone()
    }

    /// Waits until `until_ns` on the clock `now_ns`; false when the pass under way is to end.
    fn pause(&self, until_ns: u64, now_ns: impl Fn() -> u64) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.closed || state.is_stopped {
                return false;
            }
            let Some(left_ns) = until_ns.checked_sub(now_ns()).filter(|left_ns| *left_ns > 0) else { return true };
            self.changed.wait_for(&mut state, Duration::from_nanos(left_ns).min(LOOK));
        }
    }

    /// Waits for the next pass and returns its rate; a rate of `None` means that the pass runs by itself. Returns
    /// `None` when the store is closing.
    fn next(&self, now_ns: impl Fn() -> u64) -> Option<Option<u64>> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            state.is_stopped = false;
            if let Some(rate_bytes) = state.asked.take() {
                return Some(Some(rate_bytes));
            }
            let now_ns = now_ns();
            if state.next_ns == 0 {
                state.next_ns = now_ns + FIRST_NS;
            }
            if state.days > 0 && now_ns >= state.next_ns {
                state.next_ns = now_ns + state.days * DAY_NS;
                return Some(None);
            }
            self.changed.wait_for(&mut state, LOOK);
        }
    }
}

/// The rate of a pass that runs by itself: it takes half of the given days.
fn own_rate(bytes: u64, days: u64, least_bytes: u64) -> u64 {
    (bytes / (days.max(1) * 43_200)).max(least_bytes)
}

/// The outcome of reading a piece.
enum Piece<T> {
    /// The bytes read, and where the next piece begins, if there is one.
    Read(u64, Option<T>),
    /// The tablet is not open (any more).
    Gone,
    Damaged(String),
}

/// The passes of a store's scrub.
pub(crate) struct Scrubber<'a> {
    pub(crate) scrub: &'a Scrub,
    pub(crate) replicas: &'a NodeReplicas,
}

impl Scrubber<'_> {
    /// Runs passes until the store closes.
    pub(crate) fn run(&self) {
        run_at_lower_priority();
        while let Some(asked) = self.scrub.next(|| self.now_ns()) {
            self.scrub_all(asked);
        }
    }

    fn now_ns(&self) -> u64 {
        self.replicas.context.clock.monotonic_ns()
    }

    fn scrub_all(&self, asked: Option<u64>) {
        let mut tablets: Vec<TabletId> = self.replicas.tablets.load().keys().copied().collect();
        tablets.sort_unstable();
        let bytes: u64 = self.replicas.tablets.load().values().map(|handle| handle.data.files_bytes()).sum();
        let rate_bytes = {
            let mut state = self.scrub.state.lock();
            let rate_bytes = asked.unwrap_or_else(|| own_rate(bytes, state.days, LEAST_RATE_BYTES));
            state.status = state.begun(asked.is_some(), rate_bytes, tablets.len());
            rate_bytes
        };
        if !tablets.is_empty() {
            let first = (self.now_ns() % tablets.len() as u64) as usize;
            tablets.rotate_left(first);
        }
        let is_whole = tablets.iter().all(|tablet| self.scrub_tablet(*tablet, rate_bytes));
        let mut state = self.scrub.state.lock();
        if state.asked.is_some() {
            // Another pass has been ordered, and the status shows that one already.
            return;
        }
        state.status.is_running = false;
        if is_whole {
            state.status.finished_ms = Some(self.replicas.context.clock.wall_us() / 1_000);
        } else if state.status.stopped.is_none() {
            state.status.stopped = Some("the node is stopping".to_owned());
        }
        let ScrubStatus { bytes_read, tablets_read, damaged, .. } = &state.status;
        tracing::info!(event = "scrub", bytes_read, tablets_read, ?damaged, is_whole, "a scrub has ended");
    }

    /// Reads a tablet; returns whether the pass continues.
    fn scrub_tablet(&self, tablet: TabletId, rate_bytes: u64) -> bool {
        let is_read = self
            .scrub_pieces(tablet, rate_bytes, Vec::new(), |scrubber, start| scrubber.scrub_data(tablet, start))
            && self.scrub_pieces(tablet, rate_bytes, 0, |scrubber, low| scrubber.scrub_log(tablet, *low));
        if is_read {
            self.scrub.state.lock().status.tablets_read += 1;
        }
        is_read
    }

    fn scrub_pieces<T>(
        &self,
        tablet: TabletId,
        rate_bytes: u64,
        first: T,
        read: impl Fn(&Self, &T) -> Piece<T>,
    ) -> bool {
        let clock = || self.now_ns();
        let mut next = Some(first);
        while let Some(from) = next {
            let began_ns = clock();
            let bytes = match read(self, &from) {
                Piece::Read(bytes, more) => {
                    next = more;
                    bytes
                }
                Piece::Gone => return self.scrub.pause(0, clock),
                Piece::Damaged(reason) => {
                    tracing::error!(event = "scrub", %tablet, reason, "a scrub has found damage");
                    let mut state = self.scrub.state.lock();
                    state.status.damage_found += 1;
                    if !state.status.damaged.contains(&tablet) {
                        state.status.damaged.push(tablet);
                    }
                    next = None;
                    0
                }
            };
            self.scrub.state.lock().status.bytes_read += bytes;
            self.replicas.context.counters.scrubbed(bytes);
            let due_ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate_bytes.max(1));
            let due_ns = if rate_bytes == 0 { 0 } else { u64::try_from(due_ns).unwrap_or(u64::MAX) };
            if !self.scrub.pause(began_ns.saturating_add(due_ns), clock) {
                return false;
            }
        }
        true
    }

    fn scrub_data(&self, tablet: TabletId, start: &[u8]) -> Piece<Vec<u8>> {
        let Some(handle) = self.replicas.handle(tablet) else { return Piece::Gone };
        match handle.data.scrub(start, PIECE_BYTES) {
            Ok((bytes, more)) => Piece::Read(bytes, more),
            Err(error) => {
                let reason = error.to_string();
                // Upkeep handles damage to SSTables.
                let is_damage = error.is_damage();
                let _ = handle.failed_to_read(error);
                if is_damage { Piece::Damaged(reason) } else { Piece::Gone }
            }
        }
    }

    fn scrub_log(&self, tablet: TabletId, low: u64) -> Piece<u64> {
        let Some(handle) = self.replicas.handle(tablet) else { return Piece::Gone };
        let (group, log) = (GroupId::from(tablet), &self.replicas.disks[handle.disk()].log);
        let found = match log.recover(group) {
            Ok(found) => found,
            Err(error) => return self.damaged_log(&handle, error.to_string()),
        };
        let low = low.max(found.truncated.index + 1);
        if low > found.last.index {
            return Piece::Read(0, None);
        }
        match log.reader(group).entries(low, found.last.index + 1, PIECE_BYTES) {
            Ok(entries) => {
                let bytes = entries.iter().map(|entry| entry.data.len() as u64).sum();
                Piece::Read(bytes, entries.last().map(|entry| entry.index + 1))
            }
            // The log may have been truncated, or replaced, in between.
            Err(_)
                if log.recover(group).is_ok_and(|now| (now.truncated, now.last) != (found.truncated, found.last)) =>
            {
                Piece::Read(0, Some(low))
            }
            Err(LogReadError::Damaged(reason)) => self.damaged_log(&handle, reason),
            Err(LogReadError::Failed(reason)) => {
                tracing::warn!(%tablet, reason, "a scrub cannot read a tablet's raft log");
                self.replicas.context.suspect_disk(handle.disk());
                Piece::Gone
            }
        }
    }

    fn damaged_log(&self, handle: &TabletHandle, error: String) -> Piece<u64> {
        let reason = format!("its raft log: {error}");
        if !self.replicas.is_alone(handle) {
            self.replicas.command(handle, Command::Fail(handle.id(), reason.clone()));
        }
        Piece::Damaged(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_that_runs_by_itself_is_spread_over_its_days_and_never_slower_than_the_least() {
        assert_eq!(own_rate(0, 30, LEAST_RATE_BYTES), LEAST_RATE_BYTES);
        assert_eq!(own_rate(43_200 << 30, 1, LEAST_RATE_BYTES), 1 << 30);
        assert_eq!(own_rate(43_200 << 30, 16, LEAST_RATE_BYTES), 64 << 20);
    }

    #[test]
    fn a_pass_is_asked_for_stopped_and_begun_by_itself() {
        let scrub = Scrub::default();
        scrub.begin(7);
        assert!(scrub.status().is_running);
        assert_eq!(scrub.next(|| 0), Some(Some(7)));
        assert!(scrub.pause(0, || 0));
        scrub.stop();
        assert!(!scrub.pause(u64::MAX, || 0), "it ends at once");
        assert!(!scrub.status().is_running);
        scrub.set_days(2);
        scrub.state.lock().next_ns = 5;
        assert_eq!(scrub.next(|| 5), Some(None));
        assert_eq!(scrub.state.lock().next_ns, 5 + 2 * DAY_NS);
        scrub.close();
        assert_eq!(scrub.next(|| u64::MAX), None);
        assert!(!scrub.pause(u64::MAX, || 0));
    }
}
