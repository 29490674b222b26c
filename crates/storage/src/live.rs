//! Scans that return only live rows: dead rows are skipped here, many at once in noted ranges ([`crate::gaps`]).
//!
//! Always true: a row that is skipped is dead for the reader: at the second as of which it judges expiry, which is its
//! request's, or, where that is not known, so long ago that every node's clock has passed it. A scan that skips many
//! rows still passes one of them to the caller now and then, so that the caller can end the scan and learn its
//! position. Left out: the meaning of a row in its table; callers judge each row as with an ordinary scan.

use crate::brief;
use crate::engine::ScanRange;
use crate::error::StorageError;
use crate::gaps::{APART_S, Announcement, NOTED_ROWS};
use crate::keys::is_about_the_tablet;
use crate::semantics::{CompactionVerdict, ValueSemantics};
use crate::tablet::Tablet;
use rust_rocksdb::{DBRawIterator, ReadOptions};
use std::sync::atomic::Ordering;

/// One of this many dead rows is passed to the caller.
const HANDED_OUT: u64 = 1_024;
/// The cost of skipping a dead row in a brief read, as bytes to merge.
const BRIEF_BYTES: usize = 256;
/// After this many dead rows in succession it is looked whether the next ones are in a noted range.
const LOOK_ROWS: u64 = 64;

/// The dead rows that a scan has met since the last live row.
#[derive(Default)]
struct Run {
    /// The first key of these rows, if the range is to be noted.
    start: Option<Vec<u8>>,
    rows: u64,
    /// A noted range follows on rows that are in no note.
    meets_note: bool,
    is_purgeable: bool,
}

/// A scan under way.
struct Scan<'t> {
    tablet: &'t Tablet,
    semantics: &'t dyn ValueSemantics,
    may_note: bool,
    announcement: Option<Announcement<'t>>,
    /// Sequence numbers: the scan sees all changes up to `at_least`, and none after `at_most`.
    at_least: u64,
    at_most: u64,
    now_s: u32,
    run: Run,
    passed: u64,
    most_in_a_row: u64,
}

impl Tablet {
    /// As `iterate`, for live rows only. `snapshot` is the sequence number of the snapshot in the options; `judged_s`
    /// is the second as of which the reader judges expiry.
    pub(crate) fn iterate_live(
        &self,
        mut options: ReadOptions,
        snapshot: Option<u64>,
        range: &ScanRange<'_>,
        judged_s: Option<u32>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, StorageError> {
        options.set_iterate_lower_bound(range.start);
        options.set_iterate_upper_bound(range.end);
        let present_s = self.present_s();
        let now_s = judged_s.unwrap_or(present_s.saturating_sub(APART_S));
        // A note of a second that no clock has reached would be of use to nobody else.
        let may_note = !range.reverse && now_s <= present_s.saturating_add(APART_S);
        let announces = may_note && self.dead_rows.meets_many.load(Ordering::Relaxed);
        let announcement = if announces { self.gaps.announce(range.start) } else { None };
        let at_least = snapshot.unwrap_or_else(|| self.sequence());
        let mut iterator = self.raw_iterator(options);
        let at_most = self.sequence();
        // A note would lack the changes between the snapshot and the announcement.
        let announcement = announcement.filter(|_| snapshot.is_none_or(|snapshot| snapshot == at_most));
        let mut scan = Scan {
            tablet: self,
            semantics: self.semantics(),
            may_note,
            announcement,
            at_least,
            at_most,
            now_s,
            run: Run { start: Some(range.start.to_vec()), ..Run::default() },
            passed: 0,
            most_in_a_row: 0,
        };
        let outcome = scan.go(&mut iterator, range, visit);
        scan.finish();
        let exhausted = outcome?;
        iterator.status()?;
        Ok(exhausted)
    }
}

impl Scan<'_> {
    fn go(
        &mut self,
        iterator: &mut DBRawIterator<'_>,
        range: &ScanRange<'_>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, StorageError> {
        if range.reverse {
            iterator.seek_to_last();
        } else if let Some((_, end)) = self.tablet.gaps.around(range.start, self.at_least, self.now_s) {
            iterator.seek(end);
        } else {
            iterator.seek_to_first();
        }
        while let Some((key, value)) = iterator.item() {
            if is_about_the_tablet(key) {
                step(iterator, range.reverse);
                continue;
            }
            if !self.semantics.is_dead(value, self.now_s) {
                self.end_run(key);
                if !visit(key, value) {
                    return Ok(false);
                }
                step(iterator, range.reverse);
                continue;
            }
            if self.run.rows.is_multiple_of(LOOK_ROWS)
                && let Some((start, end)) = self.tablet.gaps.around(key, self.at_least, self.now_s)
            {
                self.run.start.get_or_insert_with(|| key.to_vec());
                self.run.meets_note |= self.run.rows > 0;
                jump(iterator, range.reverse, &start, &end);
                continue;
            }
            self.pass(key, value)?;
            let is_last =
                !brief::may_pass(BRIEF_BYTES) || (self.passed.is_multiple_of(HANDED_OUT) && !visit(key, value));
            if is_last {
                // The row is dead, too: the scan that goes on behind it begins where this run ends.
                self.end_run(&[key, &[0]].concat());
                return Ok(false);
            }
            step(iterator, range.reverse);
        }
        self.end_run(range.end);
        Ok(true)
    }

    /// Skips a dead row.
    fn pass(&mut self, key: &[u8], value: &[u8]) -> Result<(), StorageError> {
        self.passed += 1;
        self.run.rows += 1;
        if self.run.rows == NOTED_ROWS {
            // One row represents the whole run: its rows were usually written and deleted in the same way.
            let horizon = self.tablet.applied_state()?.horizon;
            self.run.is_purgeable = self.semantics.compact(key, value, &horizon) == CompactionVerdict::Remove;
            self.announce_late();
        }
        if self.run.start.is_none() && self.announcement.is_some() {
            self.run.start = Some(key.to_vec());
        }
        Ok(())
    }

    /// Announces a scan under way, so that the first one that meets many dead rows notes them. It has not missed a
    /// batch: none has been written since before its state, and one that is written from now on sees the announcement.
    fn announce_late(&mut self) {
        let is_of_now = || self.at_least == self.at_most && self.tablet.sequence() == self.at_most;
        if let Some(start) = self.run.start.as_ref().filter(|_| self.may_note && self.announcement.is_none()) {
            let announcement = self.tablet.gaps.announce(start);
            self.announcement = announcement.filter(|_| is_of_now());
        }
    }

    /// Ends a run of dead rows at a key, exclusive: the next row is live, or not known to be dead.
    fn end_run(&mut self, end: &[u8]) {
        let run = std::mem::take(&mut self.run);
        self.most_in_a_row = self.most_in_a_row.max(run.rows);
        if run.rows < NOTED_ROWS && !run.meets_note {
            return;
        }
        if let (Some(start), Some(announcement)) = (&run.start, &self.announcement) {
            announcement.note(start, end, self.at_most, self.now_s);
        }
        if let Some(start) = run.start.as_deref().filter(|_| run.is_purgeable) {
            self.tablet.dead_rows.note_purgeable(run.rows, start, end);
        }
    }

    fn finish(&self) {
        if self.passed > 0 {
            self.tablet.note_passed(self.passed);
        }
        let meets_many = &self.tablet.dead_rows.meets_many;
        if self.most_in_a_row >= NOTED_ROWS {
            meets_many.store(true, Ordering::Relaxed);
        } else if self.announcement.is_some() && self.passed == 0 {
            meets_many.store(false, Ordering::Relaxed);
        }
    }
}

fn step(iterator: &mut DBRawIterator<'_>, is_reverse: bool) {
    if is_reverse {
        iterator.prev();
    } else {
        iterator.next();
    }
}

/// Moves the iterator past a range without live rows.
fn jump(iterator: &mut DBRawIterator<'_>, is_reverse: bool, start: &[u8], end: &[u8]) {
    if !is_reverse {
        iterator.seek(end);
        return;
    }
    iterator.seek_for_prev(start);
    if iterator.key() == Some(start) {
        iterator.prev();
    }
}
