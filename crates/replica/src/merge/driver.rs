//! What has to be done, one thing after the other, to merge a tablet into its neighbour (`docs/decisions/2026-11-22-merging-tablets.md`): says what is next, and is
//! told what came of it.
//!
//! Always true: what is copied after the tablet was closed is all of it, whoever copies; any action can be repeated, and a driver be dropped at any time.
//! Left out: how things are written and read, and who drives (the node's, and the simulation's).

use super::{Closing, KeyRange, MergeReply, MergeStep};
use ahash::RandomState;
use diorite_base::TabletId;
use diorite_base::random::Random;
use diorite_storage::{ScanRange, StorageError, TabletData};
use std::collections::VecDeque;

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Some of a tablet's rows.
#[derive(Debug)]
pub struct Part {
    rows: Rows,
    /// Where the next ones begin.
    next: Option<Vec<u8>>,
}

impl Part {
    /// Reads rows of `range` until there are `bytes` of them.
    pub fn read(data: &impl TabletData, (start, end): &KeyRange, bytes: usize) -> Result<Self, StorageError> {
        let range = ScanRange { start, end, reverse: false, expected_entries: 0 };
        let (mut rows, mut next, mut held) = (Rows::new(), None, 0);
        data.scan(&range, &mut |key, value| {
            if held >= bytes {
                next = Some(key.to_vec());
                return false;
            }
            held += key.len() + value.len();
            rows.push((key.to_vec(), value.to_vec()));
            true
        })?;
        Ok(Self { rows, next })
    }

    /// 128 bits, keyed at random, so that nobody can make rows that are taken for others.
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

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeAction {
    /// Write this to a tablet, again and again until the outcome is known: [`MergeDriver::written`].
    Write(TabletId, MergeStep),
    /// Read rows of the tablet that goes: [`MergeDriver::read`].
    Read(KeyRange),
    /// See to it that the tablet that goes has ended, where its rows are read: [`MergeDriver::closed`].
    Close,
    /// The other one has all rows: the catalog is to be told, and that is all.
    Serve,
}

/// Another attempt has begun: this one is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("another attempt has begun")]
pub struct Superseded;

#[derive(Debug)]
enum Stage {
    Beginning,
    /// Rows are copied though they may change; what begins here is next.
    Copying(Option<Vec<u8>>),
    /// What has changed is copied. The part that is read had this digest; of one that has grown this is left.
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
    closing: Option<Closing>,
}

impl MergeDriver {
    /// Begins to merge `from`, which holds the keys of `range`, into another tablet.
    pub fn begin(from: TabletId, into: TabletId, range: KeyRange, random: &mut impl Random) -> (Self, MergeAction) {
        let attempt = random.next_u64();
        let digest_keys = [(); 2].map(|()| {
            RandomState::with_seeds(random.next_u64(), random.next_u64(), random.next_u64(), random.next_u64())
        });
        let first = MergeAction::Write(into, MergeStep::Begin { from, attempt, range: range.clone() });
        let driver = Self {
            from,
            into,
            range,
            attempt,
            parts: 0,
            digest_keys,
            stage: Stage::Beginning,
            copied: VecDeque::new(),
            closing: None,
        };
        (driver, first)
    }

    /// How many parts have been copied, those included that were copied again.
    pub fn parts(&self) -> u64 {
        self.parts
    }

    /// What was to be written is.
    pub fn written(&mut self, reply: MergeReply) -> Result<MergeAction, Superseded> {
        match (reply, &self.stage) {
            (MergeReply::Superseded, _) => Err(Superseded),
            // By an attempt before this, or by this.
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
        self.parts += 1;
        let (from, attempt, number) = (self.from, self.attempt, self.parts);
        MergeAction::Write(self.into, MergeStep::Take { from, attempt, number, instead_of, rows: part.rows })
    }

    /// The tablet that goes has ended, with this.
    pub fn closed(&mut self, closing: Closing) -> MergeAction {
        self.closing = Some(closing);
        self.stage = Stage::Checking { before: None, rest: None };
        self.go_on()
    }

    fn go_on(&mut self) -> MergeAction {
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
    use crate::merge::tests::{Taking, key};
    use diorite_base::random::SplitMix64;
    use diorite_storage::{AppliedState, MemoryBatch, MemoryTablet, TabletBatch};

    const FROM: TabletId = TabletId(1_000);
    const INTO: TabletId = TabletId(1_001);

    fn range() -> KeyRange {
        (key(0), key(100_000))
    }

    /// The tablet that goes, and the one that takes it in.
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

        /// Does what the driver says, until the catalog would be told; `at_close` happens just before the tablet ends. Every step is written `times` times.
        fn drive(&mut self, times: usize, at_close: impl FnOnce(&mut Self)) -> Result<u64, Superseded> {
            let (mut driver, mut action) = MergeDriver::begin(FROM, INTO, range(), &mut SplitMix64::new(3));
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
                        driver.closed(Closing::from(&self.from.applied_state().unwrap()))
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
    fn a_driver_gives_way_to_a_later_one_and_a_finished_merge_to_none() {
        let mut pair = Pair::new(0..50);
        let (_, begin) = MergeDriver::begin(FROM, INTO, range(), &mut SplitMix64::new(99));
        let MergeAction::Write(_, begin) = begin else { panic!("{begin:?}") };
        let outdone = pair.drive(1, |pair| {
            pair.into.step(&begin);
        });
        assert_eq!(outdone, Err(Superseded));
        pair.drive(1, |_| ()).unwrap();
        assert!(pair.is_whole());
        let (mut late, _) = MergeDriver::begin(FROM, INTO, range(), &mut SplitMix64::new(5));
        assert_eq!(late.written(pair.into.step(&begin)), Ok(MergeAction::Serve));
        assert!(pair.is_whole(), "nothing was removed");
    }
}
