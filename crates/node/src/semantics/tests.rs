//! Applying is a function of state and entry: the same log, on RocksDB and in memory, with flushes, compactions,
//! crashes and replays in between, gives the replies and the content of a tablet that applied everything once and never
//! compacted.
#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod actions;
mod content;
mod expiry;
mod indexes;

use super::RowSemantics;
use actions::{Action, actions};
use content::{Content, content, reply};
use diorite_base::Horizon;
use diorite_base::mutation::time_passes;
use diorite_query::program::TabletEvaluator;
use diorite_replica::{LogPosition, apply_alone};
use diorite_storage::{
    AppliedState, CompactionStyle, CompactionVerdict, MemoryTablet, Shared, StorageOptions, Tablet, TabletData,
    ValueSemantics, Values,
};
use proptest::prelude::*;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// When the log begins.
const BEGIN_US: i64 = 1_000_000_000;

/// A tablet whose storage flushes, compacts and crashes on request.
trait Worked {
    type Data: TabletData;

    fn data(&self) -> &Arc<Self::Data>;
    fn flush(&self);
    /// Compacts; an engine that can choose keys compacts one key in `every`.
    fn compact(&self, every: u8);
    /// Loses everything that has not reached the disk.
    fn crash(&mut self);
}

struct InMemory(Arc<MemoryTablet>);

impl Worked for InMemory {
    type Data = MemoryTablet;

    fn data(&self) -> &Arc<MemoryTablet> {
        &self.0
    }

    fn flush(&self) {
        self.0.flush();
    }

    fn compact(&self, every: u8) {
        let mut nth = every;
        self.0
            .compact(&mut |_| {
                nth = nth.wrapping_add(1);
                nth.is_multiple_of(every.max(1))
            })
            .unwrap();
    }

    fn crash(&mut self) {
        self.0 = Arc::new(self.0.crash());
    }
}

struct OnDisk {
    shared: Arc<Shared>,
    style: CompactionStyle,
    path: PathBuf,
    /// `None` only while the tablet is being opened.
    tablet: Option<Arc<Tablet>>,
}

impl OnDisk {
    fn open(shared: &Arc<Shared>, style: CompactionStyle, path: PathBuf) -> Self {
        let mut tablet = Self { shared: Arc::clone(shared), style, path, tablet: None };
        tablet.crash();
        tablet
    }
}

impl OnDisk {
    /// Dates new files by the log, as windows are, and not by the clock.
    fn date_files(&self) {
        let now_s = self.data().applied_state().unwrap().horizon.now_s;
        let at = |second: u32| SystemTime::UNIX_EPOCH + Duration::from_secs(second.into());
        for entry in std::fs::read_dir(&self.path).unwrap().filter(|_| self.data().window_s().is_some()) {
            let path = entry.unwrap().path();
            let is_new = || path.metadata().is_ok_and(|metadata| metadata.modified().unwrap() > at(1_000_000_000));
            if path.extension().is_some_and(|extension| extension == "sst") && is_new() {
                File::open(&path).unwrap().set_modified(at(now_s)).unwrap();
            }
        }
    }
}

impl Worked for OnDisk {
    type Data = Tablet;

    fn data(&self) -> &Arc<Tablet> {
        self.tablet.as_ref().unwrap()
    }

    fn flush(&self) {
        self.data().flush(true).unwrap();
        // Upkeep reads this after each flush.
        self.data().flushed_state().unwrap();
        self.date_files();
    }

    /// With time windows, most compactions are those that are due.
    fn compact(&self, every: u8) {
        self.date_files();
        if self.data().window_s().is_some() && !every.is_multiple_of(3) {
            self.data().compact_due().unwrap();
        } else {
            self.data().compact();
        }
        self.date_files();
    }

    fn crash(&mut self) {
        // Closing flushes nothing, and RocksDB has no write-ahead log.
        self.tablet = None;
        let opened = Tablet::open(&self.shared, &self.path, Values::Rows, self.style);
        self.tablet = Some(Arc::new(opened.unwrap()));
    }
}

/// A difference from the tablet that was never compacted.
#[derive(Debug)]
#[expect(dead_code, reason = "shown when a test fails")]
enum Difference {
    Reply { index: u64, found: content::Reply, expected: content::Reply },
    Content { after: Action, found: Content, expected: Content },
}

/// The log so far, and its result without compaction.
struct Reference {
    tablet: Arc<MemoryTablet>,
    entries: Vec<Vec<u8>>,
    replies: Vec<content::Reply>,
    now_us: i64,
}

impl Reference {
    fn new() -> Self {
        let tablet = Arc::new(MemoryTablet::new(Some(Arc::new(RowSemantics))));
        let mut reference = Self { tablet, entries: Vec::new(), replies: Vec::new(), now_us: BEGIN_US };
        reference.append(time_passes(BEGIN_US, 5));
        reference
    }

    fn append(&mut self, entry: Vec<u8>) {
        let at = LogPosition::new(self.entries.len() as u64 + 1, 1);
        let answered = apply_alone(&self.tablet, &TabletEvaluator, at, &entry).unwrap();
        self.replies.push(reply(&answered));
        self.entries.push(entry);
    }

    /// Applies to `data` the entries that it lacks.
    fn replay(&self, data: &Arc<impl TabletData>) -> Result<(), Difference> {
        let from = data.applied_state().unwrap().index as usize;
        for (at, entry) in self.entries.iter().enumerate().skip(from) {
            let index = at as u64 + 1;
            let answered = apply_alone(data, &TabletEvaluator, LogPosition::new(index, 1), entry).unwrap();
            let (found, expected) = (reply(&answered), self.replies[at].clone());
            if found != expected {
                return Err(Difference::Reply { index, found, expected });
            }
        }
        Ok(())
    }
}

/// Carries out actions on a tablet and on a reference that never flushes or compacts. `wall_s` receives the time, for
/// semantics that read it.
fn run(actions: &[Action], tablet: &mut impl Worked, wall_s: &AtomicU32) -> Result<(), Difference> {
    let mut reference = Reference::new();
    for action in actions {
        match action {
            Action::Pass(seconds) => reference.now_us += i64::from(*seconds) * 1_000_000,
            Action::Grace(seconds) => {
                reference.now_us += 1;
                reference.append(time_passes(reference.now_us, *seconds));
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
        wall_s.store((reference.now_us / 1_000_000) as u32, Ordering::Relaxed);
        reference.replay(tablet.data())?;
        let state: AppliedState = tablet.data().applied_state().unwrap();
        assert_eq!(state, reference.tablet.applied_state().unwrap());
        for seen_s in [state.horizon.now_s, state.horizon.now_s + 7] {
            let (found, expected) = (content(tablet.data(), seen_s), content(&reference.tablet, seen_s));
            if found != expected {
                return Err(Difference::Content { after: action.clone(), found, expected });
            }
        }
    }
    Ok(())
}

fn in_memory(semantics: Arc<dyn ValueSemantics>) -> InMemory {
    InMemory(Arc::new(MemoryTablet::new(Some(semantics))))
}

fn shared(semantics: Arc<dyn ValueSemantics>) -> Arc<Shared> {
    Shared::new(StorageOptions::for_memory(64 << 20, 2), semantics).unwrap()
}

fn agrees_on_disk(style: CompactionStyle, cases: u32) {
    let home = tempfile::tempdir().unwrap();
    let (shared, number) = (shared(Arc::new(RowSemantics)), AtomicU32::new(0));
    let config = ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::with_cases(cases) };
    proptest!(config, |(actions in actions(60))| {
        let path = home.path().join(number.fetch_add(1, Ordering::Relaxed).to_string());
        let mut tablet = OnDisk::open(&shared, style, path);
        let outcome = run(&actions, &mut tablet, &AtomicU32::new(0));
        tablet.data().doom();
        prop_assert!(outcome.is_ok(), "{:?}", outcome);
    });
}

#[test]
fn rocksdb_compacted_in_runs_does_what_the_log_says() {
    agrees_on_disk(CompactionStyle::SizeTiered, 48);
}

#[test]
fn rocksdb_compacted_in_levels_does_what_the_log_says() {
    agrees_on_disk(CompactionStyle::Leveled, 24);
}

#[test]
fn rocksdb_compacted_in_windows_does_what_the_log_says() {
    agrees_on_disk(CompactionStyle::TimeWindow { window_s: 1 }, 64);
}

#[test]
fn windows_of_rows_go_without_being_written_again() {
    let (home, shared) = (tempfile::tempdir().unwrap(), shared(Arc::new(RowSemantics)));
    let windows = CompactionStyle::TimeWindow { window_s: 5 };
    let mut tablet = OnDisk::open(&shared, windows, home.path().join("1"));
    let mut actions = vec![Action::Grace(0)];
    for _ in 0..3 {
        actions.extend([Action::Write(actions::value_that_expires_after(10)), Action::Flush, Action::Pass(5)]);
    }
    actions.extend([Action::Pass(60), Action::Grace(0), Action::Flush]);
    run(&actions, &mut tablet, &AtomicU32::new(0)).unwrap();
    let stored = || tablet.data().get(&actions::key_of_first_row()).unwrap().is_some();
    assert!(stored());
    (0..3).for_each(|_| tablet.compact(1));
    assert!(!stored(), "an operand, which only the second of two compactions removes");
    assert_eq!(content(tablet.data(), 0), content(&Arc::new(MemoryTablet::new(None)), 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn a_tablet_in_memory_does_what_the_log_says(actions in actions(80)) {
        let outcome = run(&actions, &mut in_memory(Arc::new(RowSemantics)), &AtomicU32::new(0));
        prop_assert!(outcome.is_ok(), "{:?}", outcome);
    }
}

/// The former compaction, which read a clock.
struct ByTheClock(Arc<AtomicU32>);

impl ValueSemantics for ByTheClock {
    fn fold<'a>(&self, existing: Option<&'a [u8]>, operands: &mut dyn Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        RowSemantics.fold(existing, operands)
    }

    fn fold_apart(&self, operands: &[&[u8]]) -> Option<Vec<u8>> {
        RowSemantics.fold_apart(operands)
    }

    fn compact(&self, key: &[u8], value: &[u8], horizon: &Horizon) -> CompactionVerdict {
        let now_s = self.0.load(Ordering::Relaxed);
        RowSemantics.compact(key, value, &Horizon { now_s, rows_s: now_s.saturating_sub(5), ..*horizon })
    }
}

#[test]
fn a_compaction_that_looks_at_a_clock_is_found_out() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let (mut runner, strategy) = (TestRunner::deterministic(), actions(80));
    let differs = (0..2_000).any(|_| {
        let wall_s = Arc::new(AtomicU32::new(0));
        let mut tablet = in_memory(Arc::new(ByTheClock(Arc::clone(&wall_s))));
        run(&strategy.new_tree(&mut runner).unwrap().current(), &mut tablet, &wall_s).is_err()
    });
    assert!(differs);
}

/// The reply of a lagging replica to a conditional write, when it compacts after the value has expired by the clock and
/// before it applies the write.
fn lags_behind_a_condition(semantics: Arc<dyn ValueSemantics>, wall_s: &AtomicU32) -> content::Reply {
    let home = tempfile::tempdir().unwrap();
    let mut tablet = OnDisk::open(&shared(semantics), CompactionStyle::SizeTiered, home.path().join("1"));
    let apply = |tablet: &OnDisk, index: u64, entry: &[u8]| {
        reply(&apply_alone(tablet.data(), &TabletEvaluator, LogPosition::new(index, 1), entry).unwrap())
    };
    apply(&tablet, 1, &time_passes(BEGIN_US, 5));
    apply(&tablet, 2, &actions::value_that_expires_after(10).entry(BEGIN_US + 1));
    tablet.flush();
    wall_s.store((BEGIN_US / 1_000_000) as u32 + 60, Ordering::Relaxed);
    tablet.compact(1);
    tablet.crash();
    apply(&tablet, 3, &actions::conditional_write().entry(BEGIN_US + 2))
}

#[test]
fn a_conditional_write_holds_when_it_is_applied_after_a_compaction() {
    assert_eq!(lags_behind_a_condition(Arc::new(RowSemantics), &AtomicU32::new(0)), content::Reply::Done);
    let wall_s = Arc::new(AtomicU32::new(0));
    let by_the_clock = lags_behind_a_condition(Arc::new(ByTheClock(Arc::clone(&wall_s))), &wall_s);
    assert_eq!(by_the_clock, content::Reply::Refused(Vec::new()), "the value was gone");
}

#[test]
fn deleted_rows_stay_deleted_and_counters_begin_anew_however_much_lies_before_them() {
    for style in [CompactionStyle::SizeTiered, CompactionStyle::Leveled] {
        let home = tempfile::tempdir().unwrap();
        let mut tablet = OnDisk::open(&shared(Arc::new(RowSemantics)), style, home.path().join("1"));
        let outcome = run(&actions::deletions_over_removed_rows(), &mut tablet, &AtomicU32::new(0));
        assert!(outcome.is_ok(), "{style:?}: {outcome:?}");
    }
}

#[test]
fn what_has_expired_goes_once_the_log_knows() {
    let home = tempfile::tempdir().unwrap();
    let mut tablet = OnDisk::open(&shared(Arc::new(RowSemantics)), CompactionStyle::SizeTiered, home.path().join("1"));
    let mut actions = vec![Action::Write(actions::value_that_expires_after(10)), Action::Flush];
    actions.extend([Action::Pass(60), Action::Compact(1)]);
    run(&actions, &mut tablet, &AtomicU32::new(0)).unwrap();
    let stored = |tablet: &OnDisk| tablet.data().get(&actions::key_of_first_row()).unwrap().is_some();
    assert!(stored(&tablet) && tablet.data().awaits_time(), "nothing in the log says that it has expired");
    let entry = time_passes(BEGIN_US + 60_000_000, 5);
    apply_alone(tablet.data(), &TabletEvaluator, LogPosition::new(3, 1), &entry).unwrap();
    tablet.flush();
    tablet.compact(1);
    assert!(!stored(&tablet) && !tablet.data().awaits_time());
    tablet.crash();
    assert!(!stored(&tablet));
}

#[test]
fn appends_are_in_the_order_of_the_log_and_those_of_earlier_versions_where_they_were() {
    let home = tempfile::tempdir().unwrap();
    let tablet = OnDisk::open(&shared(Arc::new(RowSemantics)), CompactionStyle::SizeTiered, home.path().join("1"));
    let mut entries: Vec<Vec<u8>> = [(0, true), (1, false), (2, true), (3, false)]
        .map(|(at, is_placed)| actions::append(at, is_placed).entry(BEGIN_US + i64::from(at)))
        .into();
    // Two values in one entry of the log, the second of which was planned by a clock that is behind.
    let second = actions::append(5, false).entry(BEGIN_US)[9..].to_vec();
    entries.push([actions::append(4, false).entry(BEGIN_US + 4), second].concat());
    for (index, entry) in (1..).zip(&entries) {
        apply_alone(tablet.data(), &TabletEvaluator, LogPosition::new(index, 1), entry).unwrap();
    }
    let rows = content(tablet.data(), 0);
    let values: Vec<u8> = rows[0].2.iter().map(|(.., value)| value[0]).collect();
    assert_eq!(values, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn what_a_log_from_the_future_has_let_expire_stays_until_it_is_time() {
    let (home, shared) = (tempfile::tempdir().unwrap(), shared(Arc::new(RowSemantics)));
    let mut tablet = OnDisk::open(&shared, CompactionStyle::SizeTiered, home.path().join("1"));
    let begin_s = (BEGIN_US / 1_000_000) as u32;
    shared.set_present_s(begin_s);
    let actions = [Action::Write(actions::value_that_expires_after(10)), Action::Flush];
    run(&actions, &mut tablet, &AtomicU32::new(0)).unwrap();
    // A clock that was a day ahead.
    let entry = time_passes(BEGIN_US + 86_400_000_000, 5);
    apply_alone(tablet.data(), &TabletEvaluator, LogPosition::new(3, 1), &entry).unwrap();
    let is_stored_at = |second| {
        shared.set_present_s(second);
        tablet.flush();
        tablet.compact(1);
        content(tablet.data(), second.min(begin_s + 9)).len()
    };
    assert_eq!((is_stored_at(begin_s + 1), is_stored_at(begin_s + 9)), (1, 1));
    assert_eq!(is_stored_at(begin_s + 60), 0);
}

#[test]
fn deletions_go_where_clients_give_timestamps_once_all_files_are_merged_in_levels_as_well() {
    for style in [CompactionStyle::SizeTiered, CompactionStyle::Leveled] {
        let home = tempfile::tempdir().unwrap();
        let tablet = OnDisk::open(&shared(Arc::new(RowSemantics)), style, home.path().join("1"));
        let entries = [
            time_passes(BEGIN_US, 5),
            actions::value_that_expires_after(100).entry(BEGIN_US + 1),
            actions::deletion_by_a_client().entry(BEGIN_US + 2),
            time_passes(BEGIN_US + 60_000_000, 5),
        ];
        for (index, entry) in (1..).zip(&entries) {
            apply_alone(tablet.data(), &TabletEvaluator, LogPosition::new(index, 1), entry).unwrap();
            tablet.flush();
        }
        assert!(tablet.data().get(&actions::key_of_first_row()).unwrap().is_some());
        // Several merged writes first become one value; and only changed keys are compacted.
        for index in 5..8 {
            let entry = time_passes(BEGIN_US + 60_000_000 + index as i64, 5);
            apply_alone(tablet.data(), &TabletEvaluator, LogPosition::new(index, 1), &entry).unwrap();
            tablet.flush();
            tablet.compact(1);
        }
        assert!(tablet.data().get(&actions::key_of_first_row()).unwrap().is_none(), "{style:?}");
    }
}
