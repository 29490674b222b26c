//! Steps are bounded, however many entries follow from a row and however large it is.

use super::*;
use crate::index::removals;
use diorite_model::index::{EntryKey, specification_key, value_form};
use diorite_model::types::Frozen;
use std::cell::RefCell;
use std::convert::Infallible;
use std::sync::Arc;

/// A key of a partition that makes each entry as long.
const LONG: usize = 60_000;
const ELEMENTS: i32 = 200;
/// Far less than all entries of a row, and far more than one.
const STEP_BYTES: usize = 5 << 20;

fn set() -> Specification {
    let data_type = CqlType::Set(Arc::new(CqlType::Int), Frozen::No);
    Specification {
        key: vec![(CqlType::Text, ColumnKind::PartitionKey)],
        indexed: Indexed::Cell { column: 1, is_static: false, data_type, target: IndexTarget::Values },
        progress: Progress::Before(FIRST_ROW_KEY.to_vec()),
        dependent: None,
    }
}

fn long_key(letter: u8, bytes: usize) -> Vec<u8> {
    let mut key = Vec::new();
    let layout = KeyLayout::of_types([(&CqlType::Text, ColumnKind::PartitionKey)].into_iter());
    layout.encode_partition([&vec![letter; bytes][..]].into_iter(), &mut key).unwrap();
    push_row(&mut key);
    key
}

fn elements(numbers: impl Iterator<Item = i32>, timestamp_us: i64, expiry: Option<Expiry>) -> Vec<u8> {
    let mut row = Vec::new();
    let mut writer = RowWriter::new(&mut row, timestamp_us);
    writer.begin_complex(1, None);
    for number in numbers {
        writer.element(&value_form(&CqlType::Int, &number.to_be_bytes()).unwrap(), timestamp_us, expiry, &[]);
    }
    writer.end_complex();
    row
}

fn stored(data: &Data) -> Specification {
    specifications(data).unwrap().remove(0).1
}

#[test]
fn a_build_goes_on_within_a_row_with_many_entries() {
    let mut data = Data::default();
    let rows = [long_key(b'a', LONG), long_key(b'b', LONG), long_key(b'c', 1)];
    rows.iter().for_each(|row| data.write_row(row, &elements(0..ELEMENTS, 1, None)));
    // What has expired by the time of a step has no entry.
    data.write_row(&long_key(b'd', LONG), &elements(0..ELEMENTS, 1, Some(Expiry { ttl_s: 1, at_s: 1 })));
    data.step(1, &IndexStep::Define { index: INDEX, definition: set().definition() });
    let (mut steps, mut bytes) = (0, 0);
    while let Some(from) = stored(&data).progress.next() {
        let step = build(from, &[0xFF; 9], true);
        assert_eq!(data.step(2, &step), IndexReply::Done);
        let written: usize = data.entries().iter().map(Vec::len).sum();
        assert!(written - bytes < STEP_BYTES, "{} bytes in one step", written - bytes);
        (steps, bytes) = (steps + 1, written);
        if let Progress::Within { row, .. } = stored(&data).progress {
            // Between two steps, elements come and go; whatever is written has its entry.
            data.write_row(&row, &elements([-1 - steps, ELEMENTS + steps].into_iter(), 5, None));
            bytes = data.entries().iter().map(Vec::len).sum();
        }
        assert!(steps < 100, "the build does not end");
    }
    assert!(steps >= 5, "{steps}");
    let (mut wanted, indexes) = (Vec::new(), stored(&data).indexes(INDEX));
    for row in &rows {
        indexes.derive(row, &data.0[row], &mut |derived| {
            wanted.push(derived.key());
            true
        });
    }
    wanted.sort();
    assert_eq!(data.entries(), wanted);
}

#[test]
fn an_index_begins_again_at_a_row_whose_entries_are_left_out() {
    let mut data = Data::indexed();
    (0..5).for_each(|k| data.write(k, k, 1, None));
    data.step(2, &build(&FIRST_ROW_KEY, &[0xFF; 9], true));
    assert!(stored(&data).is_complete());
    let again = |data: &mut Data, from: &[u8]| {
        let mut changes = Changes::default();
        TabletEvaluator.index_again(from, data, &mut changes).unwrap();
        changes.0.into_iter().for_each(|(key, value, _)| drop(data.0.insert(key, value.unwrap())));
        stored(data).progress
    };
    assert_eq!(again(&mut data, b"b"), Progress::Before(b"b".to_vec()));
    assert_eq!(again(&mut data, b"c"), Progress::Before(b"b".to_vec()), "rows from there on are not indexed anyway");
    assert_eq!(again(&mut data, b"a"), Progress::Before(b"a".to_vec()));
    let progress = Progress::Within { row: b"r".to_vec(), path: b"p".to_vec() };
    data.0.insert(specification_key(INDEX), Specification { progress, ..specification() }.encode());
    assert_eq!(again(&mut data, b"r"), Progress::Before(b"r".to_vec()), "all of that row");
    // A view beside it has no entries in the tablet: it stays complete.
    let of_view = view(&[1], 0, Compared::All);
    data.0.insert(specification_key(VIEW), of_view.encode());
    again(&mut data, b"a");
    assert_eq!(Specification::stored(VIEW, &data).unwrap(), Some(of_view));
}

/// Notes which keys are read.
struct Noting<'d>(&'d Data, RefCell<Vec<Vec<u8>>>);

impl TabletView for Noting<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EvaluationFailed> {
        self.1.borrow_mut().push(key.to_vec());
        self.0.get(key)
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EvaluationFailed> {
        self.0.scan(start, end, visit)
    }
}

#[test]
fn a_removal_reads_each_row_once() {
    let mut data = Data::indexed();
    for number in 0..20 {
        data.write(number % 2, number, (number + 1).into(), None);
    }
    let (entries, noting) = (data.entries(), Noting(&data, RefCell::default()));
    let step = IndexStep::Remove { index: INDEX, entries: entries.clone() };
    let (context, mut changes) = (EvaluationContext::new(SECOND_US, i64::MIN), Changes::default());
    TabletEvaluator.evaluate(&step.encode(), context, &noting, &mut changes).unwrap();
    assert_eq!(changes.0.len(), 18, "of each row one value stays");
    let rows = noting.1.borrow().iter().filter(|read| **read == key(0) || **read == key(1)).count();
    assert_eq!(rows, 2);
    data.step(1, &step);
    assert_eq!(data.entries().len(), 2);
}

#[test]
fn removals_are_small_and_name_each_row_in_as_few_steps_as_possible() {
    let entry = |form: u16, row: &[u8]| EntryKey { form: &form.to_be_bytes(), row, partition_len: 1 }.join(INDEX);
    let steps = |entries: Vec<Vec<u8>>, row_bytes: usize| {
        let Ok(steps) = removals(entries, |_| Ok::<_, Infallible>(row_bytes));
        let lists = steps.into_iter().map(|step| {
            assert!(step.mutation().is_ok(), "it is not over a limit");
            let IndexStep::Remove { entries, .. } = step else { unreachable!("these are removals") };
            entries
        });
        lists.collect::<Vec<_>>()
    };
    let mixed: Vec<_> = (0..40).map(|form| entry(form, [b"one", b"two"][usize::from(form % 2)])).collect();
    assert_eq!(steps(mixed.clone(), 10).len(), 1);
    let large = steps(mixed, 1 << 20);
    assert_eq!(large.iter().map(Vec::len).collect::<Vec<_>>(), [20, 20], "a large row has a step of its own");
    let of_one =
        |entries: &Vec<Vec<u8>>| entries.iter().all(|entry| entry.contains(&b'n') == entries[0].contains(&b'n'));
    assert!(large.iter().all(of_one));
    let many: Vec<_> = (0..1_000).map(|form| entry(form, b"row")).collect();
    assert_eq!(steps(many, 1 << 30).iter().map(Vec::len).collect::<Vec<_>>(), [256, 256, 256, 232]);
    // More bytes than one write may have.
    let long = |form: u16| entry(form, &[&form.to_be_bytes()[..], &vec![b'r'; 65_535]].concat());
    let lists = steps((0..300).map(long).collect(), 10);
    assert!(lists.iter().all(|entries| entries.iter().map(Vec::len).sum::<usize>() < 2 << 20));
    assert_eq!(lists.iter().map(Vec::len).sum::<usize>(), 300);
}
