//! Gaps: ranges of a tablet that contain only dead rows, which are deleted or expired and still in memory and files.
//! Scans skip them.
//!
//! A queue deletes the rows that it hands out, and a time series expires, at one end; every read from there would pass
//! all dead rows that compaction has not removed yet. A scan that has passed many in succession notes the range, and
//! the next scan skips it.
//!
//! Always true: a noted range contains no live row for any reader that reads at the second of the note or later, and
//! that sees all changes which the noting scan saw. A dead row stays dead until its key is written to, and every batch
//! cuts its keys out of the notes before any reader can see it. A scan notes only ranges that no batch has written to
//! during the scan: it announces itself first, and cannot while a batch is being written. Readers judge expiry as of
//! different seconds, as their nodes' clocks and their requests say, so a note does not take the place of one of an
//! earlier second, which more readers can use; they are joined once every clock has passed both. Left out: which rows
//! are dead ([`crate::ValueSemantics::is_dead`]); keeping notes over a restart: the first scan finds the ranges again.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

/// A range with this many dead rows in succession is noted.
pub(crate) const NOTED_ROWS: u64 = 256;
/// The most notes of a tablet, and the most announced scans at a time.
const MOST: usize = 64;
/// An upper bound for the difference between nodes' clocks, seconds: a value that expired longer ago has expired for
/// every reader whose request does not name another second.
pub(crate) const APART_S: u32 = 2;
/// Notes of seconds that are so much earlier than the newest one are joined: a reader whose clock is behind goes by a
/// second `2 * APART_S` before that of one whose clock is ahead.
const JOINED_S: u32 = 2 * APART_S;

/// A noted range, from its first key (its key in the map) to `end`, exclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Gap {
    end: Vec<u8>,
    /// A reader may use the note if it sees this state of the tablet or a later one.
    sequence: u64,
    /// The second at which the whole range was dead.
    as_of_s: u32,
}

/// An announced scan, which may note ranges.
#[derive(Debug)]
struct Announced {
    id: u64,
    start: Vec<u8>,
    /// The first key from `start` on that was written to during the scan.
    until: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
struct State {
    gaps: BTreeMap<Vec<u8>, Gap>,
    announced: Vec<Announced>,
    next_id: u64,
}

impl State {
    /// Cuts a key out, because it is about to be written to.
    fn cut(&mut self, key: &[u8]) {
        for announced in self.announced.iter_mut().filter(|announced| announced.start.as_slice() <= key) {
            if announced.until.as_deref().is_none_or(|until| key < until) {
                announced.until = Some(key.to_vec());
            }
        }
        let Some((start, gap)) = self.containing(key) else { return };
        let (start, rest) = (start.to_vec(), gap.clone());
        let after = [key, &[0]].concat();
        if start == key {
            self.gaps.remove(&start);
        } else if let Some(before) = self.gaps.get_mut(&start) {
            before.end = key.to_vec();
        }
        if after < rest.end && self.gaps.len() < MOST {
            self.gaps.insert(after, rest);
        }
    }

    /// Cuts everything out, because any key may be about to be written to.
    fn forget(&mut self) {
        self.gaps.clear();
        self.announced.iter_mut().for_each(|announced| announced.until = Some(announced.start.clone()));
    }

    fn containing(&self, key: &[u8]) -> Option<(&[u8], &Gap)> {
        let (start, gap) = self.gaps.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        (key < gap.end.as_slice()).then_some((start.as_slice(), gap))
    }

    /// Adds a note, so that a key is in at most one note: that of the earliest second.
    fn insert(&mut self, start: Vec<u8>, gap: Gap) {
        let (first, end, newest_s) = (start.clone(), gap.end.clone(), gap.as_of_s);
        let meets = |(from, noted): &(&Vec<u8>, &Gap)| **from < gap.end && noted.end > start;
        let met = self.gaps.iter().filter(meets).map(|(from, noted)| (from.clone(), noted.clone()));
        let met: Vec<(Vec<u8>, Gap)> = met.collect();
        let mut rest = start;
        for (from, noted) in met {
            if noted.as_of_s <= gap.as_of_s {
                if rest < from {
                    self.gaps.insert(rest, Gap { end: from, ..gap.clone() });
                }
                rest = noted.end;
                continue;
            }
            self.gaps.remove(&from);
            if from < rest {
                self.gaps.insert(from, Gap { end: rest.clone(), ..noted.clone() });
            }
            if noted.end > gap.end {
                self.gaps.insert(gap.end.clone(), noted);
            }
        }
        if rest < gap.end {
            self.gaps.insert(rest, gap);
        }
        self.join(newest_s);
        self.limit(&first, &end);
    }

    /// Joins neighbouring notes of one second, and those of seconds long before this one.
    fn join(&mut self, newest_s: u32) {
        let mut last: Option<(Vec<u8>, Gap)> = None;
        for (from, gap) in std::mem::take(&mut self.gaps) {
            let joined = last.as_ref().filter(|(_, before)| before.end == from).and_then(|(start, before)| {
                let as_of_s = before.as_of_s.max(gap.as_of_s);
                let may_join = before.as_of_s == gap.as_of_s || as_of_s.saturating_add(JOINED_S) <= newest_s;
                let sequence = before.sequence.max(gap.sequence);
                may_join.then(|| (start.clone(), Gap { end: gap.end.clone(), sequence, as_of_s }))
            });
            let is_joined = joined.is_some();
            if let Some((start, before)) = last.replace(joined.unwrap_or((from, gap))).filter(|_| !is_joined) {
                self.gaps.insert(start, before);
            }
        }
        self.gaps.extend(last);
    }

    /// Removes notes beyond the most that a tablet may have: others before those within this range, which are new.
    fn limit(&mut self, start: &[u8], end: &[u8]) {
        let is_elsewhere = |(from, noted): &(&Vec<u8>, &Gap)| from.as_slice() >= end || noted.end.as_slice() <= start;
        while self.gaps.len() > MOST {
            let removed = self.gaps.iter().find(is_elsewhere).or(self.gaps.last_key_value());
            let Some(from) = removed.map(|(from, _)| from.clone()) else { return };
            self.gaps.remove(&from);
        }
    }
}

/// The notes of one tablet.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    /// Whether there are notes or announced scans.
    any: AtomicBool,
    /// Whether a batch is being written.
    is_writing: AtomicBool,
    state: Mutex<State>,
}

/// An announced scan; it ends with this.
#[derive(Debug)]
pub(crate) struct Announcement<'g> {
    gaps: &'g Gaps,
    id: u64,
}

impl Gaps {
    /// Call this before a batch is written: `keys` calls its argument with each key of the batch; `None` if the keys
    /// are not known. [`Self::written`] ends it.
    pub(crate) fn writing(&self, keys: Option<impl FnOnce(&mut dyn FnMut(&[u8]))>) {
        // `announce` accesses the two flags in the reverse order, and all accesses have one total order: so either the
        // batch sees the scan, or the scan sees the batch.
        self.is_writing.store(true, Ordering::SeqCst);
        if self.any.load(Ordering::SeqCst) {
            let mut state = self.state.lock();
            match keys {
                Some(keys) => keys(&mut |key| state.cut(key)),
                None => state.forget(),
            }
            self.any.store(!(state.gaps.is_empty() && state.announced.is_empty()), Ordering::SeqCst);
        }
    }

    /// Call this after the batch was written.
    pub(crate) fn written(&self) {
        self.is_writing.store(false, Ordering::SeqCst);
    }

    /// Announces a scan from `start` on that may note ranges; `None` if it may not.
    pub(crate) fn announce(&self, start: &[u8]) -> Option<Announcement<'_>> {
        let mut state = self.state.lock();
        if state.announced.len() == MOST {
            return None;
        }
        let id = state.next_id;
        state.next_id += 1;
        state.announced.push(Announced { id, start: start.to_vec(), until: None });
        self.any.store(true, Ordering::SeqCst);
        let announcement = Announcement { gaps: self, id };
        if self.is_writing.load(Ordering::SeqCst) {
            drop(state);
            // The scan may or may not see the batch that is being written, whose keys were not cut out.
            drop(announcement);
            return None;
        }
        Some(announcement)
    }

    /// Start and end of the noted range around a key, for a reader of the state `sequence` at the second `now_s`. The
    /// end is that of the last one of the ranges that follow without a space between them.
    pub(crate) fn around(&self, key: &[u8], sequence: u64, now_s: u32) -> Option<(Vec<u8>, Vec<u8>)> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let state = self.state.lock();
        let is_usable = |gap: &Gap| gap.sequence <= sequence && gap.as_of_s <= now_s;
        let (start, gap) = state.containing(key).filter(|(_, gap)| is_usable(gap))?;
        let mut end = &gap.end;
        while let Some(next) = state.gaps.get(end).filter(|next| is_usable(next)) {
            end = &next.end;
        }
        Some((start.to_vec(), end.clone()))
    }

    #[cfg(test)]
    fn noted(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.state.lock().gaps.iter().map(|(start, gap)| (start.clone(), gap.end.clone())).collect()
    }
}

impl Announcement<'_> {
    /// Notes that the scan met only dead rows in `start..end`, at the second `as_of_s`, in a state that is not newer
    /// than `sequence`.
    pub(crate) fn note(&self, start: &[u8], end: &[u8], sequence: u64, as_of_s: u32) {
        let mut state = self.gaps.state.lock();
        let Some(announced) = state.announced.iter().find(|announced| announced.id == self.id) else { return };
        let until = announced.until.as_deref().map_or(end, |until| until.min(end)).to_vec();
        if start < until.as_slice() {
            state.insert(start.to_vec(), Gap { end: until, sequence, as_of_s });
        }
    }
}

impl Drop for Announcement<'_> {
    fn drop(&mut self) {
        let mut state = self.gaps.state.lock();
        state.announced.retain(|announced| announced.id != self.id);
        let is_any = !(state.gaps.is_empty() && state.announced.is_empty());
        self.gaps.any.store(is_any, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(gaps: &Gaps, keys: &[&[u8]]) {
        gaps.writing(Some(|cut: &mut dyn FnMut(&[u8])| keys.iter().for_each(|key| cut(key))));
        gaps.written();
    }

    fn note(gaps: &Gaps, start: &[u8], end: &[u8]) {
        gaps.announce(start).expect("nothing is written").note(start, end, 5, 100);
    }

    #[test]
    fn a_note_is_for_those_who_see_as_much_and_not_earlier() {
        let gaps = Gaps::default();
        note(&gaps, b"b", b"m");
        assert_eq!(gaps.around(b"c", 5, 100), Some((b"b".to_vec(), b"m".to_vec())));
        assert_eq!(gaps.around(b"c", 4, 100), None);
        assert_eq!(gaps.around(b"c", 5, 99), None);
        assert_eq!(gaps.around(b"a", 9, 200), None);
        assert_eq!(gaps.around(b"m", 9, 200), None);
    }

    #[test]
    fn what_is_written_is_cut_out() {
        let gaps = Gaps::default();
        note(&gaps, b"b", b"m");
        write(&gaps, &[b"f", b"z"]);
        assert_eq!(gaps.noted(), [(b"b".to_vec(), b"f".to_vec()), (b"f\0".to_vec(), b"m".to_vec())]);
        write(&gaps, &[b"b"]);
        assert_eq!(gaps.noted()[0], (b"b\0".to_vec(), b"f".to_vec()));
        assert_eq!(gaps.around(b"b", 9, 200), None);
        write(&gaps, &[b"m"]);
        assert_eq!(gaps.noted().len(), 2, "the end is not in it");
    }

    #[test]
    fn a_scan_notes_nothing_that_was_written_meanwhile() {
        let gaps = Gaps::default();
        let scan = gaps.announce(b"b").expect("nothing is written");
        write(&gaps, &[b"a", b"k", b"g"]);
        scan.note(b"b", b"m", 5, 100);
        assert_eq!(gaps.noted(), [(b"b".to_vec(), b"g".to_vec())]);
        scan.note(b"h", b"m", 5, 100);
        drop(scan);
        assert_eq!(gaps.noted().len(), 1, "beyond what was written it does not know");
    }

    #[test]
    fn a_batch_that_does_not_tell_its_keys_ends_all_notes() {
        let gaps = Gaps::default();
        note(&gaps, b"b", b"m");
        let scan = gaps.announce(b"n").expect("nothing is written");
        gaps.writing(None::<fn(&mut dyn FnMut(&[u8]))>);
        gaps.written();
        scan.note(b"n", b"z", 5, 100);
        assert!(gaps.noted().is_empty());
    }

    #[test]
    fn nothing_is_announced_while_a_batch_is_written() {
        let gaps = Gaps::default();
        gaps.writing(Some(|_: &mut dyn FnMut(&[u8])| {}));
        assert!(gaps.announce(b"a").is_none());
        gaps.written();
        assert!(gaps.announce(b"a").is_some());
        assert!(!gaps.any.load(Ordering::SeqCst), "nobody is there any more");
    }

    #[test]
    fn a_note_of_an_earlier_second_stays_for_those_who_are_behind() {
        let gaps = Gaps::default();
        let note_at = |start: &[u8], end: &[u8], as_of_s: u32| {
            gaps.announce(start).expect("nothing is written").note(start, end, 5, as_of_s);
        };
        let around = |key: &[u8], now_s: u32| gaps.around(key, 5, now_s).map(|(start, end)| [start, end].concat());
        note_at(b"b", b"f", 100);
        note_at(b"b", b"m", 101);
        assert_eq!(gaps.noted(), [(b"b".to_vec(), b"f".to_vec()), (b"f".to_vec(), b"m".to_vec())]);
        assert_eq!(around(b"c", 100), Some(b"bf".to_vec()));
        assert_eq!(around(b"g", 100), None);
        assert_eq!(around(b"c", 101), Some(b"bm".to_vec()), "one leap over both");
        // A clock that is behind, or was set back, finds the same dead earlier: that is of use to the others too.
        note_at(b"d", b"h", 99);
        assert_eq!(around(b"e", 99), Some(b"dh".to_vec()));
        assert_eq!(around(b"c", 100), Some(b"bh".to_vec()));
        assert_eq!(around(b"c", 101), Some(b"bm".to_vec()));
        // Once all clocks have passed them, they are one.
        note_at(b"p", b"q", 105);
        assert_eq!(gaps.noted(), [(b"b".to_vec(), b"m".to_vec()), (b"p".to_vec(), b"q".to_vec())]);
        assert_eq!(around(b"c", 101), Some(b"bm".to_vec()));
        assert_eq!(around(b"c", 100), None);
    }

    #[test]
    fn notes_that_touch_become_one_and_are_bounded() {
        let gaps = Gaps::default();
        note(&gaps, b"b", b"d");
        note(&gaps, b"d", b"f");
        note(&gaps, b"c", b"e");
        assert_eq!(gaps.noted(), [(b"b".to_vec(), b"f".to_vec())]);
        for at in 0..200u8 {
            note(&gaps, &[b'h', at, 0], &[b'h', at, 1]);
        }
        assert!(gaps.noted().len() <= MOST);
    }

    #[test]
    fn a_new_note_is_not_the_one_that_goes_when_there_are_too_many() {
        let gaps = Gaps::default();
        for at in 0..200u8 {
            note(&gaps, &[b'h', at, 0], &[b'h', at, 1]);
        }
        // It is before all others, and so is the one of a later second beside it.
        note(&gaps, b"b", b"c");
        assert_eq!(gaps.around(b"b", 5, 100), Some((b"b".to_vec(), b"c".to_vec())));
        gaps.announce(b"b").expect("nothing is written").note(b"b", b"d", 5, 101);
        assert_eq!(gaps.around(b"b", 5, 101), Some((b"b".to_vec(), b"d".to_vec())));
        assert_eq!(gaps.noted().len(), MOST);
    }
}
