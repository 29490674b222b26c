//! Scans for those who only want what lives: rows that are no more are passed over here, many at once where that is known ([`crate::gaps`]).
//!
//! Always true: what is left out lives for nobody who reads now. A scan that passes over many rows still hands out one of them now and then, so that whoever asked
//! can end it, and knows how far it is.
//! Left out: what the row means in its table; whoever asked judges what it is given as before.

use crate::brief;
use crate::engine::ScanRange;
use crate::error::StorageError;
use crate::gaps::{Announcement, NOTED_ROWS};
use crate::keys::is_about_the_tablet;
use crate::semantics::{CompactionVerdict, ValueSemantics};
use crate::tablet::Tablet;
use rust_rocksdb::{DBRawIterator, ReadOptions};
use std::sync::atomic::Ordering;

/// So often one of the dead rows is handed out.
const HANDED_OUT: u64 = 1_024;
/// What passing over a dead row costs a brief read, in the bytes that it may fold.
const BRIEF_BYTES: usize = 256;
/// Clocks of nodes are less apart than this, seconds: what has expired for so long has expired for everybody.
const APART_S: u32 = 2;

/// The dead rows that a scan has met since the last live one.
#[derive(Default)]
struct Run {
    /// Its first key, if it is going to be noted.
    start: Option<Vec<u8>>,
    rows: u64,
    is_purgeable: bool,
}

/// A scan on its way.
struct Scan<'t> {
    tablet: &'t Tablet,
    semantics: &'t dyn ValueSemantics,
    announcement: Option<Announcement<'t>>,
    /// All of what this state holds is seen, and nothing newer than the other.
    at_least: u64,
    at_most: u64,
    now_s: u32,
    run: Run,
    passed: u64,
    most_in_a_row: u64,
}

impl Tablet {
    /// As `iterate`, of what lives only. `snapshot` is the sequence number of the snapshot among the options.
    pub(crate) fn iterate_live(
        &self,
        mut options: ReadOptions,
        snapshot: Option<u64>,
        range: &ScanRange<'_>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, StorageError> {
        options.set_iterate_lower_bound(range.start);
        options.set_iterate_upper_bound(range.end);
        let may_note = !range.reverse && self.dead_rows.meets_many.load(Ordering::Relaxed);
        let announcement = if may_note { self.gaps.announce(range.start) } else { None };
        let at_least = snapshot.unwrap_or_else(|| self.sequence());
        let mut iterator = self.raw_iterator(options);
        let at_most = self.sequence();
        // What was written between the snapshot and the announcement would be missing in a note.
        let announcement = announcement.filter(|_| snapshot.is_none_or(|snapshot| snapshot == at_most));
        let now_s = self.present_s().saturating_sub(APART_S);
        let mut scan = Scan {
            tablet: self,
            semantics: self.semantics(),
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
            if self.run.rows == 0
                && let Some((start, end)) = self.tablet.gaps.around(key, self.at_least, self.now_s)
            {
                self.run.start.get_or_insert_with(|| key.to_vec());
                jump(iterator, range.reverse, &start, &end);
                continue;
            }
            self.pass(key, value)?;
            let is_last =
                !brief::may_pass(BRIEF_BYTES) || (self.passed.is_multiple_of(HANDED_OUT) && !visit(key, value));
            if is_last {
                self.end_run(key);
                return Ok(false);
            }
            step(iterator, range.reverse);
        }
        self.end_run(range.end);
        Ok(true)
    }

    /// Passes over a dead row.
    fn pass(&mut self, key: &[u8], value: &[u8]) -> Result<(), StorageError> {
        self.passed += 1;
        self.run.rows += 1;
        if self.run.rows == NOTED_ROWS {
            // One of them stands for all: they were written and deleted alike.
            let horizon = self.tablet.applied_state()?.horizon;
            self.run.is_purgeable = self.semantics.compact(key, value, &horizon) == CompactionVerdict::Remove;
        }
        if self.run.start.is_none() && self.announcement.is_some() {
            self.run.start = Some(key.to_vec());
        }
        Ok(())
    }

    /// The next key lives, or is not known to be dead.
    fn end_run(&mut self, end: &[u8]) {
        let run = std::mem::take(&mut self.run);
        self.most_in_a_row = self.most_in_a_row.max(run.rows);
        if run.rows < NOTED_ROWS {
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

/// Goes on behind a range in which nothing lives.
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
