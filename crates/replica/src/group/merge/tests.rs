//! The steps of merges, one tablet at a time.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use super::*;
use diorite_base::mutation::{EvaluationContext, Evaluator};
use std::collections::BTreeMap;

/// A tablet that only takes over rows of another one.
#[derive(Default)]
pub(crate) struct Taking {
    data: BTreeMap<Vec<u8>, Vec<u8>>,
    flags: u64,
    pub(crate) stamps: (i64, i64),
    /// The most bytes of rows in one step, and the number of pieces.
    pub(crate) most: (usize, usize),
    /// Records that were adopted.
    pub(crate) adopted: Vec<(Vec<u8>, Vec<u8>)>,
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

    fn adopt(
        &self,
        key: &[u8],
        value: &[u8],
        _: &dyn TabletView,
        changes: &mut dyn TabletChanges,
    ) -> Result<(), EvaluationFailed> {
        // As a key that no row has.
        changes.put(&[ADOPTED, key].concat(), value);
        Ok(())
    }
}

/// Before the key of what was adopted.
const ADOPTED: &[u8] = b"adopted";

/// The state before a step.
struct Before(BTreeMap<Vec<u8>, Vec<u8>>);

impl TabletView for Before {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EvaluationFailed> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EvaluationFailed> {
        let mut within = self.0.iter().filter(|(key, _)| (start..end).contains(&key.as_slice()) && key.len() >= 8);
        within.all(|(key, value)| visit(key, value));
        Ok(())
    }
}

impl Taking {
    pub(super) fn stored(&self, key: &[u8]) -> &[u8] {
        &self.data[key]
    }
}

impl TabletChanges for Taking {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        if let Some(key) = key.strip_prefix(ADOPTED) {
            return self.adopted.push((key.to_vec(), value.to_vec()));
        }
        self.data.insert(key.to_vec(), value.to_vec());
    }

    fn merge(&mut self, _: &[u8], _: &[u8]) {
        panic!("rows are taken in whole");
    }

    fn delete(&mut self, key: &[u8]) {
        self.data.remove(key);
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
    pub(crate) fn step(&mut self, step: &MergeStep) -> MergeReply {
        assert_eq!(MergeStep::decode(&step.encode()).as_ref(), Ok(step));
        let bytes = match step {
            MergeStep::Take { rows, .. } => rows.iter().map(|(key, value)| key.len() + value.len()).sum(),
            MergeStep::TakePiece { piece, .. } => piece.len(),
            _ => 0,
        };
        let pieces = usize::from(matches!(step, MergeStep::TakePiece { .. }));
        self.most = (self.most.0.max(bytes), self.most.1 + pieces);
        let before = Before(self.data.clone());
        let context = EvaluationContext::new(1, i64::MIN);
        MergeReply::decode(&Merging(Nothing).evaluate(&step.encode(), context, &before, self).unwrap()).unwrap()
    }

    pub(crate) fn rows(&self) -> Vec<(&[u8], &[u8])> {
        let rows = self.data.iter().filter(|(key, _)| key.len() == 8);
        rows.map(|(key, value)| (key.as_slice(), value.as_slice())).collect()
    }

    /// Pieces of incomplete rows.
    pub(crate) fn staged(&self) -> Vec<&[u8]> {
        self.data.keys().filter(|key| key.len() == staged_key(0).len()).map(Vec::as_slice).collect()
    }
}

const FROM: TabletId = TabletId(7);

pub(crate) fn key(n: u64) -> Vec<u8> {
    ((1 << 63) | n).to_be_bytes().to_vec()
}

fn begin(attempt: u64) -> MergeStep {
    begin_of(0, attempt)
}

fn begin_of(number: u64, attempt: u64) -> MergeStep {
    MergeStep::Begin { from: FROM, number, attempt, range: (key(0), key(100)) }
}

fn discard(number: u64) -> MergeStep {
    MergeStep::Discard { from: FROM, number, range: (key(0), key(100)) }
}

fn piece(attempt: u64, number: u64, piece: &[u8], is_last: bool) -> MergeStep {
    let (key, piece) = (key(9), piece.to_vec());
    MergeStep::TakePiece { from: FROM, attempt, number, instead_of: None, key, piece, is_last }
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
fn what_a_cancelled_merge_has_taken_in_goes_and_nothing_of_it_comes_late() {
    for finishes in [false, true] {
        let mut tablet = Taking::default();
        tablet.put(&key(200), b"own");
        tablet.step(&begin_of(5, 1));
        tablet.step(&take(1, 1, None, &[(1, "taken")]));
        tablet.step(&piece(1, 2, b"half", false));
        if finishes {
            tablet.step(&piece(1, 3, b" a row", true));
            assert_eq!(tablet.step(&finish(1, 3)), MergeReply::Done);
        }
        assert_eq!(tablet.step(&discard(5)), MergeReply::Done);
        assert_eq!(tablet.rows(), [(&*key(200), &b"own"[..])]);
        assert!(tablet.staged().is_empty());
        for late in [begin_of(5, 1), begin_of(5, 2), begin_of(4, 3), finish(1, 3), take(1, 3, None, &[(2, "late")])] {
            assert_eq!(tablet.step(&late), MergeReply::Superseded, "{late:?}");
        }
        tablet.put(&key(50), b"of another tablet, which was merged since");
        assert_eq!(tablet.step(&discard(5)), MergeReply::Done, "it was repeated");
        assert_eq!(tablet.rows().len(), 2);
        // The next merge of the same tablet begins empty, and late steps of the former one do not affect it.
        assert_eq!(tablet.step(&begin_of(6, 4)), MergeReply::Done);
        tablet.step(&take(4, 1, None, &[(1, "again")]));
        assert_eq!(tablet.step(&discard(5)), MergeReply::Superseded);
        assert_eq!(tablet.step(&finish(4, 1)), MergeReply::Done);
        assert_eq!(tablet.rows()[0], (&*key(1), &b"again"[..]));
    }
}

#[test]
fn what_a_tablet_keeps_about_itself_stays_when_rows_of_the_least_tokens_go() {
    let least = |n: u64| n.to_be_bytes().to_vec();
    let range = (least(0), least(u64::MAX));
    let (members, other) = (vec![0, 1], absorbed_key(99).to_vec());
    let about_itself = |tablet: &Taking| [&members, &other].map(|key| tablet.data.contains_key(key));
    let begin = |attempt| MergeStep::Begin { from: FROM, number: 3, attempt, range: range.clone() };
    // Tokens before, between and after the keys of the tablet's own state.
    let rows: Vec<_> = [0, 2 << 48, 3 << 48, 9 << 48].map(|n| (least(n), b"row".to_vec())).into();
    let mut tablet = Taking::default();
    [&members, &other].into_iter().for_each(|key| tablet.put(key, b"kept"));
    let take = |number, instead_of, rows| MergeStep::Take { from: FROM, attempt: 1, number, instead_of, rows };
    tablet.step(&begin(1));
    tablet.step(&take(1, None, rows.clone()));
    tablet.step(&take(2, Some(range.clone()), rows));
    assert_eq!((tablet.rows().len(), about_itself(&tablet)), (4, [true; 2]));
    tablet.step(&begin(2));
    assert_eq!((tablet.rows().len(), about_itself(&tablet)), (0, [true; 2]));
}

#[test]
fn a_tablet_does_not_close_for_a_merge_that_it_has_given_up() {
    let close = |number| MergeStep::Close { tablet: FROM, number };
    let mut tablet = Taking::default();
    tablet.put(&absorbed_key(FROM.0), &7u64.to_le_bytes());
    assert_eq!((tablet.step(&close(7)), tablet.flags), (MergeReply::Superseded, 0));
    assert_eq!((tablet.step(&close(8)), tablet.flags), (MergeReply::Done, CLOSED));
    let of_earlier_version = MergeStep::Close { tablet: TabletId(0), number: 0 };
    assert_eq!(of_earlier_version.encode(), [MARK, CLOSE_FOR_EVER]);
    assert!(ends_tablet(&of_earlier_version.encode()) && ends_tablet(&close(8).encode()));
    assert!(!ends_tablet(&begin(1).encode()) && !ends_tablet(&[MARK]) && !ends_tablet(&[0]));
}

#[test]
fn a_row_in_pieces_is_there_when_it_is_whole_or_not_at_all() {
    let mut tablet = Taking::default();
    tablet.step(&begin(1));
    tablet.step(&piece(1, 1, b"one, ", false));
    assert_eq!(tablet.step(&piece(1, 1, b"one, ", false)), MergeReply::Done, "it was repeated");
    tablet.step(&piece(1, 2, b"two, ", false));
    assert!(tablet.rows().is_empty());
    assert_eq!(tablet.step(&finish(1, 2)), MergeReply::Superseded, "a piece is missing");
    tablet.step(&begin(2));
    assert!(tablet.staged().is_empty(), "of an attempt that is over");
    tablet.step(&piece(2, 1, b"three, ", false));
    tablet.step(&piece(2, 2, b"four", true));
    assert_eq!(tablet.rows(), [(&*key(9), &b"three, four"[..])]);
    assert_eq!(tablet.step(&finish(2, 2)), MergeReply::Done);
    assert!(tablet.staged().is_empty());
}

#[test]
fn a_step_that_names_what_no_key_can_be_is_not_proposed() {
    let (fits, long) = (vec![1; limits::MAX_STORED_KEY_BYTES], vec![1; limits::MAX_STORED_KEY_BYTES + 1]);
    let steps = |key: &[u8]| {
        let (from, attempt, number) = (FROM, 1, 1);
        let (range, row) = ((key.to_vec(), key.to_vec()), (key.to_vec(), vec![2]));
        let instead_of = Some(range.clone());
        [
            MergeStep::Begin { from, number, attempt, range: range.clone() },
            MergeStep::Discard { from, number, range },
            MergeStep::Take { from, attempt, number, instead_of: instead_of.clone(), rows: Vec::new() },
            MergeStep::Take { from, attempt, number, instead_of: None, rows: vec![row.clone()] },
            MergeStep::TakePiece { from, attempt, number, instead_of, key: vec![1], piece: row.1, is_last: true },
            MergeStep::TakePiece { from, attempt, number, instead_of: None, key: row.0, piece: vec![2], is_last: true },
        ]
    };
    assert!(steps(&fits).iter().all(|step| step.mutation().is_ok()));
    let refused = |step: &MergeStep| matches!(step.mutation(), Err(Unprovable::Exceeds(_)));
    assert!(steps(&long).iter().all(refused));
}

#[test]
fn a_leader_knows_what_is_adopted_from_the_step_that_has_it() {
    let record = ([&RECORD_PREFIX[..], &[4]].concat(), b"a view".to_vec());
    let with_rows = |rows| MergeStep::Take { from: FROM, attempt: 1, number: 1, instead_of: None, rows };
    let changes = |step: MergeStep| Merging(Nothing).changes_indexes(&step.encode());
    assert!(changes(with_rows(vec![record])));
    assert!(!changes(take(1, 1, None, &[(1, "taken")])) && !changes(finish(1, 1)));
}

#[test]
fn other_programs_are_left_to_the_evaluator_within() {
    let context = EvaluationContext::new(1, i64::MIN);
    let mut tablet = Taking::default();
    let view = Before(BTreeMap::new());
    let refused = Merging(Nothing).evaluate(&[1, 2, 3], context, &view, &mut tablet).unwrap_err();
    assert_eq!(refused.0, "no step of a merge");
    assert!(Merging(Nothing).evaluate(&[MARK, 9], context, &view, &mut tablet).is_err());
    assert!(Merging(Nothing).evaluate(&[MARK], context, &view, &mut tablet).is_err());
    assert!(MergeReply::decode(&[3]).is_err());
}
