//! A tablet that takes in its neighbour: the steps of that, as evaluated mutations of either tablet, so that they are replicated, survive crashes and
//! are ordered with everything else that is written (`docs/decisions/2026-11-22-merging-tablets.md`).
//!
//! Always true: a tablet that has applied [`MergeStep::Close`] takes no writes and answers no reads, for ever; what the other one takes in counts only if it comes
//! from one attempt, in order and whole; once that is finished, no attempt changes anything any more, however late it comes.
//! Left out: which tablets are merged (the node's), when the one stands in the other's place (the catalog's).

mod driver;

use diorite_base::TabletId;
use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use diorite_base::mutation::{EvaluationContext, EvaluationFailed, Evaluator, Mutation, TabletChanges, TabletView};
use diorite_storage::{AppliedState, absorbed_key};
pub use driver::{MergeAction, MergeDriver, Part, Superseded};

/// Flag of a tablet: it takes nothing any more. The highest bit, as evaluators number theirs from the lowest.
pub const CLOSED: u64 = 1 << 63;

/// The first byte of a step; no program of an inner evaluator begins with it.
const MARK: u8 = 0xF1;

/// A range of keys, the end not included.
pub type KeyRange = (Vec<u8>, Vec<u8>);

/// What is known of the tablet that is taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closing {
    /// The greatest timestamp that it has given.
    pub newest_stamp_us: i64,
    /// The greatest that clients have given.
    pub newest_explicit_us: i64,
    /// Its flags.
    pub flags: u64,
}

impl From<&AppliedState> for Closing {
    fn from(state: &AppliedState) -> Self {
        let AppliedState { newest_stamp_us, newest_explicit_us, flags, .. } = *state;
        Self { newest_stamp_us, newest_explicit_us, flags }
    }
}

/// A step of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeStep {
    /// To the tablet that is taken in: it ends here.
    Close,
    /// To the other: a new attempt begins, with nothing.
    Begin {
        /// The tablet that is taken in.
        from: TabletId,
        /// Tells attempts apart.
        attempt: u64,
        /// Its keys.
        range: KeyRange,
    },
    /// The next part of the rows.
    Take {
        /// The tablet that is taken in.
        from: TabletId,
        /// Which attempt.
        attempt: u64,
        /// Counts the parts, from 1.
        number: u64,
        /// What was taken in of these keys before goes.
        instead_of: Option<KeyRange>,
        /// The rows, ascending.
        rows: Vec<(Vec<u8>, Vec<u8>)>,
    },
    /// That was all.
    Finish {
        /// The tablet that is taken in.
        from: TabletId,
        /// Which attempt.
        attempt: u64,
        /// How many parts there were.
        parts: u64,
        /// What else is known of it.
        closing: Closing,
    },
}

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeReply {
    /// It is done.
    Done,
    /// All has been taken in already.
    Finished,
    /// Another attempt has begun since, or a part is missing.
    Superseded,
}

impl MergeReply {
    fn encode(self) -> Vec<u8> {
        vec![match self {
            MergeReply::Done => 0,
            MergeReply::Finished => 1,
            MergeReply::Superseded => 2,
        }]
    }

    /// Reads a reply back.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        match bytes {
            [0] => Ok(MergeReply::Done),
            [1] => Ok(MergeReply::Finished),
            [2] => Ok(MergeReply::Superseded),
            _ => Err(Malformed),
        }
    }
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}

fn put_range(out: &mut Vec<u8>, (start, end): &KeyRange) {
    put_slice(out, start);
    put_slice(out, end);
}

fn read_range(reader: &mut Reader<'_>) -> Result<KeyRange, Malformed> {
    Ok((reader.slice()?.to_vec(), reader.slice()?.to_vec()))
}

impl MergeStep {
    /// The step as a write.
    pub fn mutation(&self) -> Mutation {
        Mutation::evaluated(None, &self.encode())
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = vec![MARK];
        match self {
            MergeStep::Close => out.push(0),
            MergeStep::Begin { from, attempt, range } => {
                out.push(1);
                put_numbers(&mut out, &[from.0, *attempt]);
                put_range(&mut out, range);
            }
            MergeStep::Take { from, attempt, number, instead_of, rows } => {
                out.push(2);
                put_numbers(&mut out, &[from.0, *attempt, *number]);
                out.push(u8::from(instead_of.is_some()));
                instead_of.iter().for_each(|range| put_range(&mut out, range));
                put_varint(&mut out, rows.len() as u64);
                for (key, value) in rows {
                    put_slice(&mut out, key);
                    put_slice(&mut out, value);
                }
            }
            MergeStep::Finish { from, attempt, parts, closing } => {
                out.push(3);
                let Closing { newest_stamp_us, newest_explicit_us, flags } = *closing;
                let stamps = [newest_stamp_us as u64, newest_explicit_us as u64];
                put_numbers(&mut out, &[from.0, *attempt, *parts, stamps[0], stamps[1], flags]);
            }
        }
        out
    }

    /// Reads a step back from the program of a mutation.
    pub fn decode(program: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(program);
        let step = Self::read(&mut reader)?;
        if reader.is_empty() { Ok(step) } else { Err(Malformed) }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        if reader.u8()? != MARK {
            return Err(Malformed);
        }
        let kind = reader.u8()?;
        if kind == 0 {
            return Ok(MergeStep::Close);
        }
        let (from, attempt) = (TabletId(reader.u64()?), reader.u64()?);
        Ok(match kind {
            1 => MergeStep::Begin { from, attempt, range: read_range(reader)? },
            2 => {
                let number = reader.u64()?;
                let instead_of = if reader.u8()? == 0 { None } else { Some(read_range(reader)?) };
                let mut rows = Vec::new();
                for _ in 0..reader.varint()? {
                    rows.push((reader.slice()?.to_vec(), reader.slice()?.to_vec()));
                }
                MergeStep::Take { from, attempt, number, instead_of, rows }
            }
            3 => {
                let parts = reader.u64()?;
                let (newest_stamp_us, newest_explicit_us) = (reader.i64()?, reader.i64()?);
                let closing = Closing { newest_stamp_us, newest_explicit_us, flags: reader.u64()? };
                MergeStep::Finish { from, attempt, parts, closing }
            }
            _ => return Err(Malformed),
        })
    }
}

/// How far a tablet has taken in another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Progress {
    attempt: u64,
    parts: u64,
    is_finished: bool,
}

impl Progress {
    fn of(from: TabletId, view: &dyn TabletView) -> Result<Self, EvaluationFailed> {
        let Some(bytes) = view.get(&absorbed_key(from.0))? else { return Ok(Self::default()) };
        let mut reader = Reader::new(&bytes);
        let read = (|| Ok(Self { attempt: reader.u64()?, parts: reader.u64()?, is_finished: reader.u8()? != 0 }))();
        read.map_err(|_: Malformed| EvaluationFailed(format!("how far {from} was taken in cannot be decoded")))
    }

    fn put(self, from: TabletId, changes: &mut dyn TabletChanges) {
        let mut bytes = Vec::new();
        put_numbers(&mut bytes, &[self.attempt, self.parts]);
        bytes.push(u8::from(self.is_finished));
        changes.put(&absorbed_key(from.0), &bytes);
    }
}

/// Carries out the steps of merges, and leaves all else to the evaluator within.
#[derive(Debug, Default, Clone, Copy)]
pub struct Merging<E>(pub E);

impl<E: Evaluator> Evaluator for Merging<E> {
    fn evaluate(
        &self,
        program: &[u8],
        context: EvaluationContext,
        view: &dyn TabletView,
        changes: &mut dyn TabletChanges,
    ) -> Result<Vec<u8>, EvaluationFailed> {
        if program.first() != Some(&MARK) {
            return self.0.evaluate(program, context, view, changes);
        }
        let step = MergeStep::decode(program)
            .map_err(|_| EvaluationFailed("a step of a merge is malformed or of a newer version".to_owned()))?;
        Ok(carry_out(step, view, changes)?.encode())
    }
}

fn carry_out(
    step: MergeStep,
    view: &dyn TabletView,
    changes: &mut dyn TabletChanges,
) -> Result<MergeReply, EvaluationFailed> {
    match step {
        MergeStep::Close => changes.raise_flags(CLOSED),
        MergeStep::Begin { from, attempt, range: (start, end) } => {
            let before = Progress::of(from, view)?;
            if before.is_finished {
                return Ok(MergeReply::Finished);
            }
            if before.parts > 0 {
                changes.delete_range(&start, &end);
            }
            Progress { attempt, ..Progress::default() }.put(from, changes);
        }
        MergeStep::Take { from, attempt, number, instead_of, rows } => {
            let progress = Progress::of(from, view)?;
            if progress.is_finished || progress.attempt != attempt || number > progress.parts + 1 {
                return Ok(MergeReply::Superseded);
            }
            if number <= progress.parts {
                // It was repeated: what came after it must not be undone.
                return Ok(MergeReply::Done);
            }
            if let Some((start, end)) = instead_of {
                changes.delete_range(&start, &end);
            }
            rows.iter().for_each(|(key, value)| changes.put(key, value));
            Progress { parts: number, ..progress }.put(from, changes);
        }
        MergeStep::Finish { from, attempt, parts, closing } => {
            let progress = Progress::of(from, view)?;
            if progress.is_finished {
                return Ok(MergeReply::Finished);
            }
            if progress.attempt != attempt || progress.parts != parts {
                return Ok(MergeReply::Superseded);
            }
            changes.raise_flags(closing.flags & !CLOSED);
            changes.raise_stamps(closing.newest_stamp_us, closing.newest_explicit_us);
            Progress { is_finished: true, ..progress }.put(from, changes);
        }
    }
    Ok(MergeReply::Done)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use super::*;
    use std::collections::BTreeMap;

    /// A tablet that does nothing but take in another.
    #[derive(Default)]
    pub(super) struct Taking {
        data: BTreeMap<Vec<u8>, Vec<u8>>,
        flags: u64,
        pub(super) stamps: (i64, i64),
    }

    struct Nothing;

    impl Evaluator for Nothing {
        fn evaluate(
            &self,
            _: &[u8],
            _: EvaluationContext,
            _: &dyn TabletView,
            _: &mut dyn TabletChanges,
        ) -> Result<Vec<u8>, EvaluationFailed> {
            Err(EvaluationFailed("no step of a merge".to_owned()))
        }
    }

    /// What was there before.
    struct Before(BTreeMap<Vec<u8>, Vec<u8>>);

    impl TabletView for Before {
        fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EvaluationFailed> {
            Ok(self.0.get(key).cloned())
        }

        fn scan(&self, _: &[u8], _: &[u8], _: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), EvaluationFailed> {
            Err(EvaluationFailed("nothing is scanned".to_owned()))
        }
    }

    impl TabletChanges for Taking {
        fn put(&mut self, key: &[u8], value: &[u8]) {
            self.data.insert(key.to_vec(), value.to_vec());
        }

        fn merge(&mut self, _: &[u8], _: &[u8]) {
            panic!("rows are taken in whole");
        }

        fn delete(&mut self, _: &[u8]) {
            panic!("ranges go");
        }

        fn delete_range(&mut self, start: &[u8], end: &[u8]) {
            self.data.retain(|key, _| key.as_slice() < start || key.as_slice() >= end);
        }

        fn raise_flags(&mut self, flags: u64) {
            self.flags |= flags;
        }

        fn raise_stamps(&mut self, newest_us: i64, newest_explicit_us: i64) {
            self.stamps = (newest_us, newest_explicit_us);
        }
    }

    impl Taking {
        pub(super) fn step(&mut self, step: &MergeStep) -> MergeReply {
            let before = Before(self.data.clone());
            let context = EvaluationContext { stamp_us: 1, newest_explicit_us: i64::MIN };
            MergeReply::decode(&Merging(Nothing).evaluate(&step.encode(), context, &before, self).unwrap()).unwrap()
        }

        pub(super) fn rows(&self) -> Vec<(&[u8], &[u8])> {
            let rows = self.data.iter().filter(|(key, _)| key.len() == 8);
            rows.map(|(key, value)| (key.as_slice(), value.as_slice())).collect()
        }
    }

    const FROM: TabletId = TabletId(7);

    pub(super) fn key(n: u64) -> Vec<u8> {
        ((1 << 63) | n).to_be_bytes().to_vec()
    }

    fn begin(attempt: u64) -> MergeStep {
        MergeStep::Begin { from: FROM, attempt, range: (key(0), key(100)) }
    }

    fn take(attempt: u64, number: u64, instead_of: Option<(u64, u64)>, rows: &[(u64, &str)]) -> MergeStep {
        let instead_of = instead_of.map(|(start, end)| (key(start), key(end)));
        let rows = rows.iter().map(|(n, value)| (key(*n), value.as_bytes().to_vec())).collect();
        MergeStep::Take { from: FROM, attempt, number, instead_of, rows }
    }

    fn finish(attempt: u64, parts: u64) -> MergeStep {
        let closing = Closing { newest_stamp_us: 40, newest_explicit_us: 30, flags: CLOSED | 5 };
        MergeStep::Finish { from: FROM, attempt, parts, closing }
    }

    #[test]
    fn rows_are_taken_in_and_what_has_changed_since_replaces_them() {
        let mut tablet = Taking::default();
        tablet.put(&key(200), b"own");
        assert_eq!(tablet.step(&begin(1)), MergeReply::Done);
        assert_eq!(tablet.step(&take(1, 1, None, &[(1, "a"), (2, "b")])), MergeReply::Done);
        assert_eq!(tablet.step(&take(1, 2, None, &[(3, "c")])), MergeReply::Done);
        assert_eq!(tablet.step(&take(1, 3, Some((0, 3)), &[(2, "B")])), MergeReply::Done);
        assert_eq!(tablet.step(&finish(1, 3)), MergeReply::Done);
        assert_eq!(tablet.rows(), [(&*key(2), &b"B"[..]), (&*key(3), b"c"), (&*key(200), b"own")]);
        assert_eq!((tablet.flags, tablet.stamps), (5, (40, 30)), "it is not closed itself");
    }

    #[test]
    fn a_step_that_comes_again_changes_nothing() {
        let mut tablet = Taking::default();
        tablet.step(&begin(1));
        let first = take(1, 1, None, &[(1, "old")]);
        tablet.step(&first);
        tablet.step(&take(1, 2, Some((0, 100)), &[(1, "new")]));
        assert_eq!(tablet.step(&first), MergeReply::Done);
        assert_eq!(tablet.rows(), [(&*key(1), &b"new"[..])]);
    }

    #[test]
    fn a_later_attempt_begins_with_nothing_and_an_earlier_one_does_nothing_more() {
        let mut tablet = Taking::default();
        tablet.step(&begin(1));
        tablet.step(&take(1, 1, None, &[(1, "first")]));
        assert_eq!(tablet.step(&begin(2)), MergeReply::Done);
        assert!(tablet.rows().is_empty());
        assert_eq!(tablet.step(&take(1, 2, None, &[(2, "first")])), MergeReply::Superseded);
        assert_eq!(tablet.step(&take(2, 2, None, &[(2, "second")])), MergeReply::Superseded, "a part is missing");
        tablet.step(&take(2, 1, None, &[(1, "second")]));
        assert_eq!(tablet.step(&finish(1, 1)), MergeReply::Superseded);
        assert_eq!(tablet.step(&finish(2, 2)), MergeReply::Superseded, "a part is missing");
        assert_eq!(tablet.step(&finish(2, 1)), MergeReply::Done);
        assert_eq!(tablet.rows(), [(&*key(1), &b"second"[..])]);
    }

    #[test]
    fn nothing_undoes_what_is_finished() {
        let mut tablet = Taking::default();
        tablet.step(&begin(1));
        tablet.step(&take(1, 1, None, &[(1, "taken")]));
        tablet.step(&finish(1, 1));
        tablet.put(&key(1), b"written since");
        assert_eq!(tablet.step(&begin(2)), MergeReply::Finished);
        assert_eq!(tablet.step(&take(1, 2, Some((0, 100)), &[])), MergeReply::Superseded);
        assert_eq!(tablet.step(&take(2, 1, Some((0, 100)), &[])), MergeReply::Superseded);
        assert_eq!(tablet.step(&finish(1, 1)), MergeReply::Finished);
        assert_eq!(tablet.rows(), [(&*key(1), &b"written since"[..])]);
    }

    #[test]
    fn other_programs_are_left_to_the_evaluator_within() {
        let context = EvaluationContext { stamp_us: 1, newest_explicit_us: i64::MIN };
        let mut tablet = Taking::default();
        let view = Before(BTreeMap::new());
        let refused = Merging(Nothing).evaluate(&[1, 2, 3], context, &view, &mut tablet).unwrap_err();
        assert_eq!(refused.0, "no step of a merge");
        assert!(Merging(Nothing).evaluate(&[MARK, 9], context, &view, &mut tablet).is_err());
        assert!(Merging(Nothing).evaluate(&[MARK], context, &view, &mut tablet).is_err());
        assert!(MergeReply::decode(&[3]).is_err());
    }
}
