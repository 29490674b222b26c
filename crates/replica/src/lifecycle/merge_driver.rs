//! The steps of a merge of a tablet into its neighbour (`docs/decisions/2026-11-22-merging-tablets.md`): the driver
//! returns the next action, and receives its result.
//!
//! Always true: the copy made after the tablet was closed is complete, whichever driver made it. Any action can be
//! repeated, and a driver can be dropped at any time. No step holds much more than [`MAX_ROW_PARTS`] parts, whatever
//! the size of a row: larger rows are sent in pieces.
//! Left out: how rows are written and read, and who runs the driver (the node, and the simulation).

use crate::group::merge::{Closing, KeyRange, MergeReply, MergeStep};
use ahash::RandomState;
use diorite_base::TabletId;
use diorite_base::random::Random;
use diorite_storage::{ScanRange, StorageError, TabletData};
use std::collections::VecDeque;

/// Keys and values.
pub type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// A row larger than this many parts is sent in pieces of that size.
const MAX_ROW_PARTS: usize = 8;

/// Some of a tablet's rows.
#[derive(Debug)]
pub struct Part {
    rows: Rows,
    /// The key at which the next part begins.
    next: Option<Vec<u8>>,
    /// The most bytes of one row in a step. A larger row is alone in its part.
    row_bytes: usize,
}

impl Part {
    /// Reads rows of `range` until there are `bytes` of them.
    pub fn read(data: &impl TabletData, (start, end): &KeyRange, bytes: usize) -> Result<Self, StorageError> {
        let range = ScanRange { start, end, reverse: false, expected_entries: 0 };
        let row_bytes = bytes.saturating_mul(MAX_ROW_PARTS);
        let (mut rows, mut next, mut held) = (Rows::new(), None, 0);
        data.scan(&range, &mut |key, value| {
            let is_full = held >= bytes || (held > 0 && value.len() > row_bytes);
            if is_full {
                next = Some(key.to_vec());
                return false;
            }
            held += key.len() + value.len();
            rows.push((key.to_vec(), value.to_vec()));
            true
        })?;
        Ok(Self { rows, next, row_bytes })
    }

    /// A digest of the rows of 128 bits, keyed at random, so that clients cannot make different rows with the same
    /// digest.
    fn digest(&self, keys: &[RandomState; 2]) -> [u64; 2] {
        [keys[0].hash_one(&self.rows), keys[1].hash_one(&self.rows)]
    }
}

/// A part that has been copied.
#[derive(Debug)]
struct Copied {
    range: KeyRange,
    digest: [u64; 2],
}

/// A row that is sent in pieces, and the rest of it.
#[derive(Debug)]
struct LargeRow {
    key: Vec<u8>,
    value: Vec<u8>,
    sent: usize,
    piece_bytes: usize,
    instead_of: Option<KeyRange>,
}

/// The next action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeAction {
    /// Write this step to a tablet, repeatedly until the outcome is known: [`MergeDriver::written`].
    Write(TabletId, MergeStep),
    /// Read rows of the tablet that closes: [`MergeDriver::read`].
    Read(KeyRange),
    /// Make sure that the replica from which rows are read has applied the close: [`MergeDriver::closed`].
    Close,
    /// The tablet that stays has all rows: report it to the catalog. This is the last action.
    Serve,
}

/// Another attempt has begun, or the merge was cancelled: this attempt has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("another attempt has begun, or the merge was cancelled")]
pub struct Superseded;

#[derive(Debug)]
enum Stage {
    Beginning,
    /// Rows are copied while they may change; the next part begins at this key.
    Copying(Option<Vec<u8>>),
    /// Changed rows are copied again. The part that is being read had the digest `before`; `rest` is the rest of a part
    /// that has grown.
    Checking {
        before: Option<[u64; 2]>,
        rest: Option<KeyRange>,
    },
    Finishing,
}

/// A merge under way.
#[derive(Debug)]
pub struct MergeDriver {
    from: TabletId,
    into: TabletId,
    range: KeyRange,
    attempt: u64,
    parts: u64,
    digest_keys: [RandomState; 2],
    stage: Stage,
    copied: VecDeque<Copied>,
    large: Option<LargeRow>,
    closing: Option<Closing>,
    /// What the other tablet has to adopt with the rows, and was not sent yet.
    records: Rows,
}

impl MergeDriver {
    /// Begins to merge `from`, which holds the keys of `range`, into another tablet. `number`: the number of the merge.
    pub fn begin(
        from: TabletId,
        into: TabletId,
        number: u64,
        range: KeyRange,
        random: &mut impl Random,
    ) -> (Self, MergeAction) {
        let attempt = random.next_u64();
        let digest_keys = [(); 2].map(|()| {
            RandomState::with_seeds(random.next_u64(), random.next_u64(), random.next_u64(), random.next_u64())
        });
        let first = MergeAction::Write(into, MergeStep::Begin { from, number, attempt, range: range.clone() });
        let driver = Self {
            from,
            into,
            range,
            attempt,
            parts: 0,
            digest_keys,
            stage: Stage::Beginning,
            copied: VecDeque::new(),
            large: None,
            closing: None,
            records: Rows::new(),
        };
        (driver, first)
    }

    /// The number of parts copied, with those copied again.
    pub fn parts(&self) -> u64 {
        self.parts
    }

    /// The reply to the step that was to be written.
    pub fn written(&mut self, reply: MergeReply) -> Result<MergeAction, Superseded> {
        match (reply, &self.stage) {
            (MergeReply::Superseded, _) => Err(Superseded),
            // Finished by an earlier attempt, or by this one.
            (MergeReply::Finished, _) | (MergeReply::Done, Stage::Finishing) => Ok(MergeAction::Serve),
            (MergeReply::Done, Stage::Beginning) => {
                self.stage = Stage::Copying(None);
                Ok(MergeAction::Read(self.range.clone()))
            }
            (MergeReply::Done, Stage::Copying(_) | Stage::Checking { .. }) => Ok(self.go_on()),
        }
    }

    /// The rows that were to be read.
    pub fn read(&mut self, (start, end): KeyRange, part: Part) -> MergeAction {
        let digest = part.digest(&self.digest_keys);
        let range = (start, part.next.clone().unwrap_or_else(|| end.clone()));
        let instead_of = match &mut self.stage {
            Stage::Copying(next) => {
                *next = part.next;
                self.copied.push_back(Copied { range, digest });
                None
            }
            Stage::Checking { before, rest } => {
                if before.take() == Some(digest) && part.next.is_none() {
                    return self.go_on();
                }
                *rest = part.next.map(|next| (next, end));
                Some(range)
            }
            Stage::Beginning | Stage::Finishing => return self.go_on(),
        };
        if part.rows.is_empty() && instead_of.is_none() {
            return self.go_on();
        }
        match <[_; 1]>::try_from(part.rows) {
            Ok([(key, value)]) if value.len() > part.row_bytes => {
                self.large = Some(LargeRow { key, value, sent: 0, piece_bytes: part.row_bytes, instead_of });
                self.go_on()
            }
            Ok(row) => self.take(instead_of, row.into()),
            Err(rows) => self.take(instead_of, rows),
        }
    }

    fn take(&mut self, instead_of: Option<KeyRange>, rows: Rows) -> MergeAction {
        self.parts += 1;
        let (from, attempt, number) = (self.from, self.attempt, self.parts);
        MergeAction::Write(self.into, MergeStep::Take { from, attempt, number, instead_of, rows })
    }

    /// The next piece of a large row, if one is under way.
    fn take_piece(&mut self) -> Option<MergeAction> {
        let large = self.large.as_mut()?;
        self.parts += 1;
        let (from, attempt, number) = (self.from, self.attempt, self.parts);
        let end = large.value.len().min(large.sent + large.piece_bytes);
        let (key, piece) = (large.key.clone(), large.value[large.sent..end].to_vec());
        let (instead_of, is_last) = (large.instead_of.take(), end == large.value.len());
        large.sent = end;
        if is_last {
            self.large = None;
        }
        let step = MergeStep::TakePiece { from, attempt, number, instead_of, key, piece, is_last };
        Some(MergeAction::Write(self.into, step))
    }

    /// The tablet has closed, in this state. `records`: what the other tablet has to adopt with the rows.
    pub fn closed(&mut self, closing: Closing, records: Rows) -> MergeAction {
        (self.closing, self.records) = (Some(closing), records);
        self.stage = Stage::Checking { before: None, rest: None };
        self.go_on()
    }

    fn go_on(&mut self) -> MergeAction {
        if let Some(action) = self.take_piece() {
            return action;
        }
        match &mut self.stage {
            Stage::Beginning => MergeAction::Read(self.range.clone()),
            Stage::Copying(next) => match next.take() {
                Some(next) => MergeAction::Read((next, self.range.1.clone())),
                None => MergeAction::Close,
            },
            Stage::Checking { before, rest } => {
                if let Some(rest) = rest.take() {
                    return MergeAction::Read(rest);
                }
                if let Some(copied) = self.copied.pop_front() {
                    *before = Some(copied.digest);
                    return MergeAction::Read(copied.range);
                }
                let Some(closing) = self.closing else { return MergeAction::Close };
                if !self.records.is_empty() {
                    let records = std::mem::take(&mut self.records);
                    return self.take(None, records);
                }
                self.stage = Stage::Finishing;
                let (from, attempt, parts) = (self.from, self.attempt, self.parts);
                MergeAction::Write(self.into, MergeStep::Finish { from, attempt, parts, closing })
            }
            Stage::Finishing => MergeAction::Serve,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use super::*;
    use crate::group::merge::tests::{Taking, key};
    use diorite_base::random::SplitMix64;
    use diorite_base::row_index::RECORD_PREFIX;
    use diorite_storage::{AppliedState, MemoryBatch, MemoryTablet, TabletBatch};

    const FROM: TabletId = TabletId(1_000);
    const INTO: TabletId = TabletId(1_001);

    fn range() -> KeyRange {
        (key(0), key(100_000))
    }

    /// The tablet that closes, and the one that takes over its rows.
    struct Pair {
        from: MemoryTablet,
        index: u64,
        into: Taking,
    }

    impl Pair {
        fn new(rows: std::ops::Range<u64>) -> Self {
            let mut pair = Self { from: MemoryTablet::new(None), index: 0, into: Taking::default() };
            rows.for_each(|n| pair.put(n, b"first"));
            pair
        }

        fn change(&mut self, change: impl FnOnce(&mut MemoryBatch)) {
            self.index += 1;
            let mut batch = MemoryBatch::default();
            change(&mut batch);
            let state = AppliedState { index: self.index, term: 1, newest_stamp_us: 77, ..AppliedState::default() };
            self.from.apply(&mut batch, &state).unwrap();
        }

        fn put(&mut self, n: u64, value: &[u8]) {
            self.change(|batch| batch.put(&key(n), value));
        }

        /// Carries out the driver's actions until the catalog would be notified; `at_close` is called just before the
        /// tablet closes. Every step is written `times` times.
        fn drive(&mut self, times: usize, at_close: impl FnOnce(&mut Self)) -> Result<u64, Superseded> {
            let (mut driver, mut action) = MergeDriver::begin(FROM, INTO, 9, range(), &mut SplitMix64::new(3));
            let mut at_close = Some(at_close);
            loop {
                action = match action {
                    MergeAction::Write(tablet, step) => {
                        assert_eq!(tablet, INTO);
                        let replies: Vec<_> = (0..times).map(|_| self.into.step(&step)).collect();
                        driver.written(replies[0])?
                    }
                    MergeAction::Read(range) => {
                        let part = Part::read(&self.from, &range, 100).unwrap();
                        driver.read(range, part)
                    }
                    MergeAction::Close => {
                        if let Some(at_close) = at_close.take() {
                            at_close(self);
                        }
                        driver.closed(Closing::from(&self.from.applied_state().unwrap()), Rows::new())
                    }
                    MergeAction::Serve => return Ok(driver.parts()),
                };
            }
        }

        fn is_whole(&self) -> bool {
            let all = Part::read(&self.from, &range(), usize::MAX).unwrap();
            let all = all.rows.iter().map(|(key, value)| (key.as_slice(), value.as_slice()));
            self.into.rows().into_iter().eq(all)
        }
    }

    #[test]
    fn rows_arrive_whole_whatever_changes_until_the_tablet_ends() {
        for times in [1, 2] {
            let mut pair = Pair::new(0..50);
            let parts = pair
                .drive(times, |pair| {
                    pair.put(7, b"second");
                    // One part grows to several.
                    (20_000..20_040).for_each(|n| pair.put(n, b"new"));
                    pair.change(|batch| batch.delete(&key(33)));
                    (45..50).for_each(|n| pair.change(|batch| batch.delete(&key(n))));
                })
                .unwrap();
            assert!(pair.is_whole(), "{times}");
            assert!(parts > 12, "{parts}");
            assert_eq!(pair.into.stamps.0, 77);
        }
    }

    #[test]
    fn a_row_of_any_size_arrives_in_pieces_that_fit_also_one_that_grows_before_the_end() {
        let large: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
        let grown: Vec<u8> = (0..25_000u32).map(|n| (n * 7) as u8).collect();
        for times in [1, 2] {
            let mut pair = Pair::new(0..20);
            pair.put(11, &large);
            pair.drive(times, |pair| {
                pair.put(11, &grown);
                pair.put(3, &large);
            })
            .unwrap();
            assert!(pair.is_whole(), "{times}");
            // Reads return 100 bytes at a time.
            let (most, pieces) = pair.into.most;
            assert!(most <= 100 + 100 * MAX_ROW_PARTS && pieces > 40, "{most} bytes, {pieces} pieces");
            assert!(pair.into.staged().is_empty());
        }
    }

    #[test]
    fn records_are_sent_after_the_rows_and_before_the_merge_is_finished() {
        let mut pair = Pair::new(0..5);
        let records = vec![([&RECORD_PREFIX[..], &[4, 9]].concat(), b"a view".to_vec())];
        let (mut driver, mut action) = MergeDriver::begin(FROM, INTO, 9, range(), &mut SplitMix64::new(3));
        let mut written = Vec::new();
        loop {
            action = match action {
                MergeAction::Write(_, step) => {
                    let reply = pair.into.step(&step);
                    written.push(step);
                    driver.written(reply).unwrap()
                }
                MergeAction::Read(range) => {
                    let part = Part::read(&pair.from, &range, 100).unwrap();
                    driver.read(range, part)
                }
                MergeAction::Close => {
                    driver.closed(Closing::from(&pair.from.applied_state().unwrap()), records.clone())
                }
                MergeAction::Serve => break,
            };
        }
        let [.., MergeStep::Take { rows, .. }, MergeStep::Finish { parts, .. }] = written.as_slice() else {
            panic!("{written:?}");
        };
        assert_eq!((rows, *parts), (&records, driver.parts()));
        assert_eq!(pair.into.adopted, records, "not as rows");
        assert!(pair.is_whole());
    }

    #[test]
    fn what_has_not_changed_is_not_copied_again() {
        let mut pair = Pair::new(0..50);
        let once = pair.drive(1, |_| ()).unwrap();
        assert!(pair.is_whole());
        let mut pair = Pair::new(0..50);
        assert_eq!(pair.drive(1, |pair| pair.put(7, b"second")).unwrap(), once + 1);
        assert!(pair.is_whole());
        assert_eq!(Pair::new(0..0).drive(1, |_| ()).unwrap(), 0, "nothing is there");
    }

    #[test]
    fn a_driver_is_superseded_by_a_later_one_and_a_finished_merge_to_none() {
        let mut pair = Pair::new(0..50);
        let (_, begin) = MergeDriver::begin(FROM, INTO, 9, range(), &mut SplitMix64::new(99));
        let MergeAction::Write(_, begin) = begin else { panic!("{begin:?}") };
        let outdone = pair.drive(1, |pair| {
            pair.into.step(&begin);
        });
        assert_eq!(outdone, Err(Superseded));
        pair.drive(1, |_| ()).unwrap();
        assert!(pair.is_whole());
        let (mut late, _) = MergeDriver::begin(FROM, INTO, 9, range(), &mut SplitMix64::new(5));
        assert_eq!(late.written(pair.into.step(&begin)), Ok(MergeAction::Serve));
        assert!(pair.is_whole(), "nothing was removed");
    }
}
