//! Indexes under random logs: whatever is flushed, compacted, lost and replayed, each live value has a live entry, and
//! the entries are those of a tablet that was never compacted.

use super::actions::{Action, PARTITION_BYTES, actions};
use super::content::content;
use super::{InMemory, OnDisk, Reference, RowSemantics, Worked, in_memory, shared};
use diorite_base::row_index::FIRST_ROW_KEY;
use diorite_model::index::{EntryKey, Indexed, entries_end, entry_prefix, value_form};
use diorite_model::row::RowReader;
use diorite_model::schema::{ColumnKind, IndexTarget};
use diorite_model::types::{CqlType, Frozen};
use diorite_query::index::{IndexStep, Progress, Specification};
use diorite_storage::{AFTER_ALL_KEYS, CompactionStyle, DataView, ScanRange, TabletData};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The columns that are indexed, which are the numbers of their indexes: a value, a list, a static value.
const INDEXES: [u32; 3] = [1, 2, 4];

fn specification(column: u32) -> Specification {
    let list = CqlType::List(Arc::new(CqlType::Blob), Frozen::No);
    let (data_type, target) =
        if column == 2 { (list, IndexTarget::Values) } else { (CqlType::Blob, IndexTarget::Value) };
    Specification {
        key: vec![(CqlType::Blob, ColumnKind::PartitionKey)],
        indexed: Indexed::Cell { column, is_static: column == 4, data_type, target },
        progress: Progress::Before(FIRST_ROW_KEY.to_vec()),
        dependent: None,
    }
}

/// The keys of all entries that are live at this second.
fn entries(data: &Arc<impl TabletData>, now_s: u32) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for index in INDEXES {
        let (start, end) = (entry_prefix(index.into()), entries_end(index.into()));
        let range = ScanRange { start: &start, end: &end, reverse: false, expected_entries: 100 };
        data.scan(&range, &mut |key, value| {
            let marker = RowReader::new(value).unwrap().marker();
            if marker.is_some_and(|marker| marker.expiry.is_none_or(|expiry| expiry.is_live(now_s))) {
                found.push(key.to_vec());
            }
            true
        })
        .unwrap();
    }
    found
}

/// The keys of the entries of all live values.
fn wanted(data: &Arc<impl TabletData>, now_s: u32) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    for (row, _, cells) in content(data, now_s) {
        for (column, _, _, _, value) in cells.iter().filter(|(column, ..)| INDEXES.contains(column)) {
            let form = value_form(&CqlType::Blob, value).unwrap();
            keys.push(EntryKey { form: &form, row: &row, partition_len: PARTITION_BYTES }.join((*column).into()));
        }
    }
    keys
}

fn append(reference: &mut Reference, step: &IndexStep) {
    let mut mutation = step.mutation().unwrap();
    reference.now_us += 1;
    mutation.stamp(reference.now_us);
    reference.append(mutation.as_bytes().to_vec());
}

fn build(reference: &mut Reference) {
    for index in INDEXES.map(u64::from) {
        let (from, to) = (FIRST_ROW_KEY.to_vec(), AFTER_ALL_KEYS.to_vec());
        append(reference, &IndexStep::Build { index, from, to, is_last: true });
    }
}

/// Carries out actions on a tablet with indexes, which are built after the first `built_after`.
fn run(actions: &[Action], built_after: usize, tablet: &mut impl Worked) {
    let mut reference = Reference::new();
    for (nth, action) in actions.iter().enumerate() {
        if nth == built_after / 2 {
            for index in INDEXES {
                let definition = specification(index).definition();
                append(&mut reference, &IndexStep::Define { index: index.into(), definition });
            }
        }
        if nth == built_after {
            build(&mut reference);
        }
        match action {
            Action::Pass(seconds) => reference.now_us += i64::from(*seconds) * 1_000_000,
            Action::Grace(seconds) => {
                reference.now_us += 1;
                reference.append(diorite_base::mutation::time_passes(reference.now_us, *seconds));
                // Readers report all there are: those that are right have to stay.
                let known = entries(&reference.tablet, 0);
                for same in known.chunk_by(|a, b| EntryKey::index(a) == EntryKey::index(b)) {
                    let index = EntryKey::index(&same[0]).unwrap();
                    append(&mut reference, &IndexStep::Remove { index, entries: same.to_vec() });
                }
            }
            Action::Write(write) => {
                reference.now_us += 1;
                let entry = write.entry(reference.now_us);
                reference.append(entry);
            }
            Action::Flush => tablet.flush(),
            Action::Compact(every) => tablet.compact(*every),
            Action::Crash => tablet.crash(),
        }
        reference.replay(tablet.data()).unwrap();
        let now_s = tablet.data().applied_state().unwrap().horizon.now_s;
        for seen_s in [now_s, now_s + 7] {
            let found = entries(tablet.data(), seen_s);
            assert_eq!(found, entries(&reference.tablet, seen_s), "after {action:?}");
            if nth >= built_after {
                for key in wanted(tablet.data(), seen_s) {
                    assert!(found.contains(&key), "{key:?} is missing at {seen_s} after {action:?}");
                }
            }
        }
    }
}

fn holds_on_disk(style: CompactionStyle, cases: u32) {
    let home = tempfile::tempdir().unwrap();
    let (shared, number) = (shared(Arc::new(RowSemantics)), AtomicU32::new(0));
    let config = ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::with_cases(cases) };
    proptest!(config, |(actions in actions(60), built_after in 0usize..20)| {
        let path = home.path().join(number.fetch_add(1, Ordering::Relaxed).to_string());
        let mut tablet = OnDisk::open(&shared, style, path);
        run(&actions, built_after, &mut tablet);
        tablet.data().doom();
    });
}

#[test]
fn each_live_value_has_an_entry_on_disk_in_runs() {
    holds_on_disk(CompactionStyle::SizeTiered, 32);
}

#[test]
fn each_live_value_has_an_entry_on_disk_in_windows() {
    holds_on_disk(CompactionStyle::TimeWindow { window_s: 1 }, 32);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn each_live_value_has_an_entry_in_memory(actions in actions(80), built_after in 0usize..20) {
        let mut tablet: InMemory = in_memory(Arc::new(RowSemantics));
        run(&actions, built_after, &mut tablet);
    }
}

#[test]
fn a_specification_outlives_compactions_and_crashes() {
    let home = tempfile::tempdir().unwrap();
    let windows = CompactionStyle::TimeWindow { window_s: 1 };
    let mut tablet = OnDisk::open(&shared(Arc::new(RowSemantics)), windows, home.path().join("1"));
    let mut reference = Reference::new();
    append(&mut reference, &IndexStep::Define { index: 1, definition: specification(1).definition() });
    reference.now_us += 1_000_000_000;
    reference.append(diorite_base::mutation::time_passes(reference.now_us, 0));
    reference.replay(tablet.data()).unwrap();
    tablet.flush();
    (0..3).for_each(|_| tablet.compact(1));
    tablet.crash();
    let found = diorite_query::index::specifications(&DataView(tablet.data())).unwrap();
    assert_eq!(found, [(1, specification(1))]);
}
