//! Rows that grow through a real group: refused by name once they are too large, by whoever leads, and taken again once they are smaller.

use super::*;
use diorite_base::account::Account;
use diorite_base::limits::MAX_ROW_BYTES;
use diorite_base::mutation::{Effect, Growth};
use std::sync::atomic::Ordering;

const TABLET: u64 = 1_000;
const MIB: usize = 1 << 20;

/// A value is what was merged, one after the other; what begins with an s, or an r, takes the place of everything.
struct Pieces;

impl ValueSemantics for Pieces {
    fn fold<'a>(&self, existing: Option<&'a [u8]>, operands: &mut dyn Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        let mut folded = existing.unwrap_or_default().to_vec();
        for operand in operands {
            if operand.starts_with(b"s") || operand.starts_with(b"r") {
                folded.clear();
            }
            folded.extend_from_slice(operand);
        }
        Some(folded)
    }

    fn compact(&self, _: &[u8], _: &[u8], _: &Horizon) -> CompactionVerdict {
        CompactionVerdict::Keep
    }
}

/// A program is a key, to which it adds a mebibyte.
struct Adder;

impl Evaluator for Adder {
    fn evaluate(
        &self,
        program: &[u8],
        _: EvaluationContext,
        view: &dyn TabletView,
        changes: &mut dyn TabletChanges,
    ) -> Result<Vec<u8>, EvaluationFailed> {
        view.get(program)?;
        changes.merge(program, &vec![b'g'; MIB]);
        Ok(Vec::new())
    }

    fn effect(&self, value: &[u8]) -> Effect {
        if value.starts_with(b"s") { Effect::Shrinks } else { Effect::Grows }
    }

    fn growth(&self, program: &[u8], see: &mut dyn FnMut(Growth<'_>)) {
        see(Growth { key: program, effect: Effect::Grows, bytes: MIB });
    }
}

fn begin(home: &Path) -> Store {
    let (clock, options) = (Arc::new(SystemClock::new()), options(64 << 20, 1, Durability::Interval(100)));
    let store = start_values(clock, &[home], Arc::new(NoTransport), options, Arc::new(Pieces));
    store.open(vec![OpenTablet { evaluator: Arc::new(Merging(Adder)), ..plain(TABLET) }]).unwrap();
    store
}

fn merge(n: u64, bytes: usize, first: u8) -> Mutation {
    let (mut mutation, mut value) = (Mutation::blind(None), vec![b'g'; bytes]);
    value[0] = first;
    mutation.push(OperationKind::Merge, false, &key(n), &value);
    mutation
}

/// Writes, again and again while the row is being measured.
fn write(store: &Store, mutation: &Mutation) -> Result<(), KvError> {
    let (_never, wait) = sync_channel::<()>(1);
    for _ in 0..18_000 {
        let Some(outcome) = write_all(store, vec![(TABLET, mutation.clone())]).pop() else { unreachable!() };
        match outcome {
            Err(KvError::Overloaded(_)) => drop(wait.recv_timeout(Duration::from_millis(10))),
            outcome => return outcome.map(drop),
        }
    }
    panic!("the row is never measured");
}

/// Merges into a row until that is refused by name; returns how many bytes were taken.
fn fill(store: &Store, n: u64, bytes: usize) -> usize {
    let mut taken = 0;
    loop {
        match write(store, &merge(n, bytes, b'g')) {
            Ok(()) => taken += bytes,
            Err(KvError::TooLarge(why)) => {
                assert!(why.contains("(ROW_BYTES)"), "{why}");
                return taken;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(taken < 4 * MAX_ROW_BYTES, "nothing is refused");
    }
}

fn size(store: &Store, n: u64) -> usize {
    let found = store.handle(TabletId(TABLET)).unwrap().get(Permit::Lease, &key(n)).unwrap();
    found.map_or(0, |value| value.len())
}

#[test]
fn a_row_is_refused_by_name_at_the_limit_and_taken_again_once_it_is_smaller_whoever_leads() {
    let home = tempfile::tempdir().unwrap();
    let store = begin(home.path());
    let account = Account::root("all requests", 256 << 20);
    store.set_account(Arc::clone(&account));
    let taken = fill(&store, 1, 5 * MIB);
    // What is proposed before the row is measured goes beyond.
    assert!((MAX_ROW_BYTES..=MAX_ROW_BYTES + 32 * MIB).contains(&taken), "{} MiB", taken / MIB);
    assert_eq!(size(&store, 1), taken, "what was refused is not there");
    assert!(store.counters().large_row_writes_refused.load(Ordering::Relaxed) > 0);
    assert!(matches!(write(&store, &merge(1, 1, b'g')), Err(KvError::TooLarge(_))), "however little");
    assert!(matches!(write(&store, &program(1)), Err(KvError::TooLarge(_))), "a program as well");
    assert_eq!(write(&store, &merge(2, MIB, b'g')), Ok(()), "another row is none of that");
    drop(store);

    // Who leads next does not know the row, and finds out before it has grown by much.
    let store = begin(home.path());
    let more = fill(&store, 1, MIB / 2);
    assert!((MIB / 2..=34 * MIB).contains(&more), "{more} bytes");
    assert_eq!(write(&store, &merge(1, 1, b's')), Ok(()), "what removes is taken");
    assert_eq!(write(&store, &merge(1, MIB, b'g')), Ok(()));
    assert_eq!(write(&store, &program(1)), Ok(()));
    assert_eq!(size(&store, 1), 2 * MIB + 1);
    assert_eq!(account.used_bytes(), 0);
}

#[test]
fn a_row_of_which_cells_are_replaced_again_and_again_is_not_taken_for_a_large_one() {
    let home = tempfile::tempdir().unwrap();
    let store = begin(home.path());
    for _ in 0..20 {
        // Each takes the place of all before, which only folding tells: they are larger than a row may be, together.
        assert_eq!(write(&store, &merge(1, 8 * MIB, b'r')), Ok(()));
        assert_eq!(write(&store, &merge(1, 2 * MIB, b'g')), Ok(()));
    }
    assert_eq!(size(&store, 1), 10 * MIB);
    assert!(store.counters().rows_measured.load(Ordering::Relaxed) > 1);
}
