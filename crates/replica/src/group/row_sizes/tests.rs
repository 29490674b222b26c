//! The account of growing rows, without tablets: the tests answer the measurements.

use super::*;
use crate::tests::evaluated;
use diorite_base::mutation::{EvaluationContext, EvaluationFailed, TabletChanges, TabletView};

const TABLET: TabletId = TabletId(1_000);
const TERM: Term = Term(3);
const MIB: usize = 1 << 20;

/// The first byte of a value decides its effect; a program is a key, and adds ten bytes.
struct ByFirstByte;

impl Evaluator for ByFirstByte {
    fn evaluate(
        &self,
        _: &[u8],
        _: EvaluationContext,
        _: &dyn TabletView,
        _: &mut dyn TabletChanges,
    ) -> Result<Vec<u8>, EvaluationFailed> {
        unreachable!("nothing is applied")
    }

    fn effect(&self, value: &[u8]) -> Effect {
        match value.first() {
            Some(b'e') => Effect::RemovesElements,
            Some(b's') => Effect::Shrinks,
            _ => Effect::Grows,
        }
    }

    fn growth(&self, program: &[u8], see: &mut dyn FnMut(Growth<'_>)) {
        see(Growth { key: program, effect: Effect::Grows, bytes: 10 });
    }
}

struct Leader {
    sizes: RowSizes,
    term: Term,
    now_ns: u64,
    newest_explicit_us: i64,
}

impl Leader {
    fn new() -> Self {
        Self { sizes: RowSizes::new(7), term: TERM, now_ns: 1, newest_explicit_us: i64::MIN }
    }

    fn write(&mut self, kind: OperationKind, key: &[u8], value: &[u8]) -> Result<(), KvError> {
        let mut mutation = Mutation::blind(None);
        mutation.push(kind, false, key, value);
        self.propose(&mutation)
    }

    fn propose(&mut self, mutation: &Mutation) -> Result<(), KvError> {
        let Self { term, now_ns, newest_explicit_us, .. } = *self;
        let at = Writing { tablet: TABLET, term, stamp_us: 100, newest_explicit_us, evaluator: &ByFirstByte, now_ns };
        let admitted = self.sizes.admit(&at, mutation);
        self.sizes.note_proposed(TABLET, 1);
        admitted
    }

    /// Merges a value of this size.
    fn grow(&mut self, key: &[u8], bytes: usize) -> Result<(), KvError> {
        self.write(OperationKind::Merge, key, &vec![b'g'; bytes])
    }

    fn wanted(&mut self) -> Vec<Wanted> {
        let term = self.term;
        self.sizes.take_due(|_, led| (led == term).then_some(1))
    }

    /// Answers the wanted measurement of the only row with this size.
    fn measure(&mut self, size_bytes: usize) {
        let wanted = self.wanted();
        assert_eq!(wanted.len(), 1);
        self.sizes.take_answer(&wanted[0], Some(size_bytes as u64));
    }

    fn is_known(&self, key: &[u8]) -> bool {
        self.sizes.rows.contains_key(&self.sizes.name(TABLET, key))
    }
}

fn is_too_large(outcome: &Result<(), KvError>) -> bool {
    matches!(outcome, Err(KvError::TooLarge(why)) if why.contains("ROW_BYTES"))
}

fn is_overloaded(outcome: &Result<(), KvError>) -> bool {
    matches!(outcome, Err(KvError::Overloaded(_)))
}

#[test]
fn a_row_that_grows_is_measured_and_refused_by_name_once_it_is_too_large() {
    let mut leader = Leader::new();
    assert_eq!(leader.grow(b"row", MIB / 2), Ok(()));
    assert!(leader.wanted().is_empty(), "it is small");
    assert_eq!(leader.grow(b"row", MIB / 2), Ok(()));
    leader.measure(40 * MIB);
    // Half of the rest up to the limit.
    assert_eq!(leader.grow(b"row", 8 * MIB), Ok(()));
    assert!(leader.wanted().is_empty());
    assert_eq!(leader.grow(b"row", 8 * MIB), Ok(()));
    leader.measure(MAX_ROW_BYTES);
    assert_eq!(leader.grow(b"row", 8 * MIB), Ok(()), "to the last byte, and the write that goes beyond");
    leader.measure(MAX_ROW_BYTES + 1);
    let refused = leader.grow(b"row", 1);
    assert_eq!(
        refused,
        Err(KvError::TooLarge(
            "a row that the write would add to of 67108865 bytes is over the limit of 67108864 bytes (ROW_BYTES)"
                .to_owned()
        ))
    );
    assert_eq!(leader.grow(b"other", 1), Ok(()), "it is about one row");
}

#[test]
fn rows_have_names_of_128_bits_that_differ_from_account_to_account() {
    let names = [Leader::new(), Leader::new()].map(|leader| leader.sizes.name(TABLET, b"row").hashes);
    let hashes = names.as_flattened();
    assert!((1..hashes.len()).all(|at| !hashes[..at].contains(&hashes[at])), "{hashes:?}");
}

#[test]
fn what_removes_is_taken_and_has_the_row_measured_again() {
    let mut leader = Leader::new();
    assert_eq!(leader.grow(b"row", MIB), Ok(()));
    leader.measure(70 * MIB);
    assert!(is_too_large(&leader.grow(b"row", 1)));
    assert!(leader.wanted().is_empty(), "it was measured just now");
    // Removals of single elements are accepted up to twice the limit.
    assert_eq!(leader.write(OperationKind::Merge, b"row", b"e"), Ok(()));
    leader.now_ns += SOON_NS;
    for (kind, value) in [(OperationKind::Merge, b"s"), (OperationKind::Overwrite, b"g")] {
        assert_eq!(leader.write(kind, b"row", value), Ok(()));
        let outcome = leader.grow(b"row", 1);
        assert!(is_overloaded(&outcome), "it may be smaller by now: {outcome:?}");
        leader.measure(70 * MIB);
        assert!(is_too_large(&leader.grow(b"row", 1)), "it was not");
        leader.now_ns += AGAIN_NS;
    }
    assert_eq!(leader.write(OperationKind::Merge, b"row", b"s"), Ok(()));
    leader.measure(MIB);
    assert_eq!(leader.grow(b"row", 1), Ok(()));
}

#[test]
fn a_removal_that_comes_while_the_row_is_measured_is_not_taken_for_measured() {
    let mut leader = Leader::new();
    assert_eq!(leader.grow(b"row", MIB), Ok(()));
    leader.measure(70 * MIB);
    leader.now_ns += AGAIN_NS;
    assert!(is_too_large(&leader.grow(b"row", 1)));
    let wanted = leader.wanted();
    assert_eq!(leader.write(OperationKind::Merge, b"row", b"s"), Ok(()));
    leader.sizes.take_answer(&wanted[0], Some(70 << 20));
    assert!(is_overloaded(&leader.grow(b"row", 1)), "it was measured before that");
    leader.now_ns += SOON_NS;
    assert!(is_overloaded(&leader.grow(b"row", 1)));
    leader.measure(0);
    assert_eq!(leader.grow(b"row", 1), Ok(()));
}

#[test]
fn a_row_that_is_too_large_is_measured_again_when_it_is_written_to_once_a_second() {
    let mut leader = Leader::new();
    assert_eq!(leader.grow(b"row", MIB), Ok(()));
    leader.measure(70 * MIB);
    leader.now_ns += AGAIN_NS - 1;
    assert!(is_too_large(&leader.grow(b"row", 1)));
    assert!(leader.wanted().is_empty());
    leader.now_ns += 1;
    assert!(is_too_large(&leader.grow(b"row", 1)));
    // The row is smaller, for example because its values have expired.
    leader.measure(MIB);
    assert_eq!(leader.grow(b"row", 1), Ok(()));
}

#[test]
fn elements_are_removed_up_to_twice_the_limit() {
    let mut leader = Leader::new();
    assert_eq!(leader.grow(b"row", MIB), Ok(()));
    leader.measure(2 * MAX_ROW_BYTES + 1);
    let refused = leader.write(OperationKind::Merge, b"row", b"e");
    assert!(matches!(&refused, Err(KvError::TooLarge(why)) if why.contains("twice ROW_BYTES")), "{refused:?}");
    assert_eq!(leader.write(OperationKind::Merge, b"row", b"s"), Ok(()));
}

#[test]
fn a_row_that_cannot_be_measured_grows_so_far_and_no_further() {
    let mut leader = Leader::new();
    let taken = (0..10).take_while(|_| leader.grow(b"row", 15 * MIB).is_ok()).count();
    assert_eq!(taken, 2, "30 MiB of which nobody knows");
    assert!(is_overloaded(&leader.grow(b"row", 3 * MIB)));
    assert!(is_overloaded(&leader.grow(b"row", 3 * MIB)));
    // Small writes are checked as well from then on.
    let small = (0..4 * MIB / 1_000).find_map(|_| leader.grow(b"row", 1_000).err());
    assert!(is_overloaded(&small.map_or(Ok(()), Err)));
    let wanted = leader.wanted();
    leader.sizes.take_answer(&wanted[0], None);
    assert!(is_overloaded(&leader.grow(b"row", 3 * MIB)));
    assert!(leader.wanted().is_empty(), "not at once again");
    leader.now_ns += SOON_NS;
    assert!(is_overloaded(&leader.grow(b"row", 3 * MIB)));
    leader.measure(32 * MIB);
    assert_eq!(leader.grow(b"row", 3 * MIB), Ok(()));
}

#[test]
fn what_grew_while_a_row_was_measured_is_added_to_its_size() {
    let mut leader = Leader::new();
    assert_eq!(leader.grow(b"row", MIB), Ok(()));
    let wanted = leader.wanted();
    assert_eq!(leader.grow(b"row", 9 * MIB), Ok(()));
    leader.sizes.take_answer(&wanted[0], Some(50 << 20));
    // 14 MiB are left up to the limit; half of that is more than the growth less 2 MiB.
    assert!(leader.wanted().is_empty());
    assert_eq!(leader.grow(b"row", 1), Ok(()));
    assert!(leader.wanted().is_empty(), "a single byte is no sample");
    assert_eq!(leader.grow(b"row", SAMPLE_BYTES as usize), Ok(()));
    assert_eq!(leader.wanted().len(), 1);
}

#[test]
fn small_rows_and_rows_that_are_replaced_are_not_kept_account_of() {
    let mut leader = Leader::new();
    for n in 0..10_000u32 {
        assert_eq!(leader.write(OperationKind::Overwrite, &n.to_be_bytes(), &[b'g'; 1_000]), Ok(()));
    }
    assert_eq!(leader.write(OperationKind::Overwrite, b"row", &vec![b'g'; 16 * MIB - 100]), Ok(()));
    assert!(leader.sizes.rows.is_empty(), "they do not grow");
    // 60,000 bytes in all, in different rows.
    for n in 0..60u32 {
        assert_eq!(leader.grow(&n.to_be_bytes(), 1_000), Ok(()));
    }
    assert!(leader.sizes.rows.len() <= 10, "{}", leader.sizes.rows.len());
    assert!(leader.wanted().is_empty());
    // Clients have given greater timestamps, so the write does not replace the row.
    leader.newest_explicit_us = i64::MAX;
    assert_eq!(leader.write(OperationKind::Overwrite, b"row", &vec![b'g'; 2 * MIB]), Ok(()));
    assert_eq!(leader.wanted().len(), 1);
}

#[test]
fn many_small_writes_to_one_row_are_found_out() {
    let mut leader = Leader::new();
    let mut written = 0;
    while leader.wanted().is_empty() {
        // Every second write is to another row, in a pattern.
        assert_eq!(leader.grow(b"row", 500), Ok(()));
        assert_eq!(leader.grow(b"other", 500), Ok(()));
        written += 500;
        assert!(written < 4 * MIB, "not found after {written} bytes");
    }
    assert!(written > MIB / 4, "{written}");
}

#[test]
fn programs_are_charged_and_refused_as_what_they_write() {
    let mut leader = Leader::new();
    assert_eq!(leader.grow(b"row", MIB), Ok(()));
    leader.measure(70 * MIB);
    let add = evaluated(b"row");
    assert!(is_too_large(&leader.propose(&add)));
    leader.now_ns += AGAIN_NS;
    assert!(is_too_large(&leader.propose(&add)));
    leader.measure(MIB);
    assert_eq!(leader.propose(&add), Ok(()));
}

#[test]
fn a_row_with_a_share_of_all_is_not_lost_among_however_many_others() {
    let mut leader = Leader::new();
    let (mut others, mut written) = (0u64, 0);
    let is_wanted = |leader: &mut Leader| {
        let name = leader.sizes.name(TABLET, b"row");
        leader.wanted().iter().any(|wanted| wanted.name == name)
    };
    while !is_wanted(&mut leader) {
        assert_eq!(leader.grow(b"row", SAMPLE_BYTES as usize), Ok(()));
        written += SAMPLE_BYTES;
        // Each row once: a thousand times as many bytes, and the account becomes full again and again.
        for _ in 0..1_000 {
            others += 1;
            assert_eq!(leader.grow(&others.to_be_bytes(), SAMPLE_BYTES as usize - 8), Ok(()));
            assert_eq!(leader.grow(&(!others).to_be_bytes(), 8), Ok(()));
        }
        assert!(leader.sizes.rows.len() <= MOST_ROWS);
        assert!(written < 8 << 20, "not found after {written} bytes");
    }
}

#[test]
fn rows_that_are_too_large_stay_known_and_the_account_stays_bounded() {
    let mut leader = Leader::new();
    assert_eq!(leader.grow(b"row", MIB), Ok(()));
    leader.measure(70 * MIB);
    for n in 0..3 * MOST_ROWS as u64 {
        assert_eq!(leader.grow(&n.to_be_bytes(), SAMPLE_BYTES as usize), Ok(()));
    }
    assert!(leader.sizes.rows.len() <= MOST_ROWS && leader.is_known(b"row"));
    assert!(is_too_large(&leader.grow(b"row", 1)));
    assert_eq!(leader.sizes.held.len(), 1);
}

#[test]
fn no_more_rows_are_measured_at_a_time_than_are_said() {
    let mut leader = Leader::new();
    for n in 0..100u32 {
        assert_eq!(leader.grow(&n.to_be_bytes(), 2 * MIB), Ok(()));
    }
    let wanted = leader.wanted();
    assert_eq!(wanted.len(), MEASURED_AT_ONCE);
    assert_eq!(leader.grow(&50u32.to_be_bytes(), MIB), Ok(()));
    assert!(leader.wanted().is_empty());
    leader.sizes.take_answer(&wanted[0], Some(5));
    assert_eq!(leader.grow(&50u32.to_be_bytes(), MIB), Ok(()));
    assert_eq!(leader.wanted().len(), 1);
}

#[test]
fn a_leader_of_another_term_begins_anew_and_waits_for_no_measurement() {
    let mut leader = Leader::new();
    assert_eq!(leader.grow(b"row", MIB), Ok(()));
    leader.measure(70 * MIB);
    leader.now_ns += AGAIN_NS;
    assert!(is_too_large(&leader.grow(b"row", 1)));
    leader.term = Term(5);
    assert!(leader.wanted().is_empty(), "what was wanted in the term before is not");
    assert_eq!(leader.sizes.measuring, 0);
    assert_eq!(leader.grow(b"row", MIB), Ok(()), "others may have made it smaller");
    leader.measure(70 * MIB);
    assert!(is_too_large(&leader.grow(b"row", 1)));
}

#[test]
fn rows_are_measured_once_what_was_proposed_is_applied() {
    let mut leader = Leader::new();
    let at = Writing {
        tablet: TABLET,
        term: TERM,
        stamp_us: 100,
        newest_explicit_us: i64::MIN,
        evaluator: &ByFirstByte,
        now_ns: 1,
    };
    let mut mutation = Mutation::blind(None);
    mutation.push(OperationKind::Merge, false, b"row", &vec![b'g'; 2 * MIB]);
    assert_eq!(leader.sizes.admit(&at, &mutation), Ok(()));
    leader.sizes.note_proposed(TabletId(7), 99);
    leader.sizes.note_proposed(TABLET, 12);
    assert!(leader.sizes.take_due(|_, _| Some(11)).is_empty());
    assert_eq!(leader.sizes.take_due(|_, _| Some(12)).len(), 1);
}
