//! A node with several disks, on real storage: replicas move between them with all that they are made of.

use super::cluster::wait_for;
use super::*;
use crate::lifecycle::copy::rehome::{rehome, renew};
use diorite_storage::{CompactionStyle, LogBatch, LogRecords};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

pub(super) struct Opens;

impl Openings for Opens {
    fn opening(&self, tablet: TabletId) -> Option<OpenTablet> {
        (tablet != LEFT).then(|| plain(tablet.0))
    }

    fn child(&self, _: TabletId, _: TabletId) -> ChildOpening {
        ChildOpening::Never
    }

    fn was_split(&self, _: &SplitMark) {}
}

/// A tablet that has left the node.
const LEFT: TabletId = TabletId(1_009);

struct Disks {
    home: tempfile::TempDir,
}

impl Disks {
    fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap() }
    }

    fn path(&self, disk: usize) -> PathBuf {
        self.home.path().join(disk.to_string())
    }

    fn start(&self) -> Store {
        let store = start_with(&[&self.path(0), &self.path(1)], 1 << 30, 1, Arc::new(NoTransport));
        store.set_openings(Arc::new(Opens));
        store
    }

    fn holds(&self, disk: usize, tablet: u64) -> bool {
        self.path(disk).join("tablets").join(tablet.to_string()).is_dir()
    }

    /// How many entries the directory of tablets has beside tablets.
    fn left_over(&self, disk: usize) -> usize {
        let entries = std::fs::read_dir(self.path(disk).join("tablets")).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains('.')).count()
    }
}

fn disk_of(store: &Store, tablet: u64) -> usize {
    store.handle(TabletId(tablet)).unwrap().disk()
}

#[test]
fn a_replica_moves_with_its_files_and_its_log_and_back_again() {
    let disks = Disks::new();
    let store = disks.start();
    open(&store, [1_000]);
    let mut expected = 0;
    for round in 0..4 {
        // First with the data in files, then with it in memory and the log only.
        for step in 0..2 {
            let outcomes = write_all(&store, (0..50).map(|_| (1_000, add(1, 1))).collect());
            assert!(outcomes.iter().all(Result::is_ok), "in round {round}");
            expected += 50;
            if step == 0 {
                store.handle(TabletId(1_000)).unwrap().data().flush(true).unwrap();
            }
        }
        let from = disk_of(&store, 1_000);
        let bytes = rehome(&store.copies, TabletId(1_000), 1 - from).unwrap();
        assert!(bytes > 0);
        assert_eq!(disk_of(&store, 1_000), 1 - from);
        assert_eq!(read(&store, 1_000, 1), expected, "once each");
        assert!(!disks.holds(from, 1_000) && disks.holds(1 - from, 1_000));
        assert_eq!((disks.left_over(0), disks.left_over(1)), (0, 0));
        let log = &store.replicas.disks[from].log;
        assert!(!log.groups().contains(&GroupId(1_000)), "its log has gone with it");
    }
    assert_eq!(store.counters().disk_moves.load(Ordering::Relaxed), 4);
    drop(store);
    let store = disks.start();
    open(&store, [1_000]);
    assert_eq!(read(&store, 1_000, 1), expected);
}

#[test]
fn writes_are_taken_while_a_replica_moves() {
    let disks = Disks::new();
    let store = disks.start();
    open(&store, [1_000, 1_001]);
    let rows = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            for _ in 0..6 {
                let to = 1 - disk_of(&store, 1_000);
                rehome(&store.copies, TabletId(1_000), to).unwrap();
            }
        });
        while !mover.is_finished() {
            // Without a router: what arrives while the replica is between the disks is refused, not lost and not done twice.
            let (sender, receiver) = sync_channel(1);
            let sink: Arc<dyn WriteSink> = Arc::new(Waiting(Mutex::new(sender)));
            if store.submit(TabletId(1_000), add(1, 1), &sink, 0).is_ok() {
                store.kick();
                rows.fetch_add(u64::from(receiver.recv().unwrap().1.is_ok()), Ordering::Relaxed);
            }
        }
    });
    assert!(rows.load(Ordering::Relaxed) > 0);
    assert_eq!(read(&store, 1_000, 1), rows.load(Ordering::Relaxed));
}

#[test]
fn a_crash_between_the_disks_leaves_one_replica_with_everything() {
    let disks = Disks::new();
    let store = disks.start();
    open(&store, [1_000]);
    write_all(&store, (0..50).map(|_| (1_000, add(1, 1))).collect());
    let from = disk_of(&store, 1_000);
    // As it is when the files are on the new disk and the old ones have not gone.
    let (old, aside) = (disks.path(from).join("tablets/1000"), disks.home.path().join("aside"));
    store.handle(TabletId(1_000)).unwrap().data().checkpoint(&aside).unwrap();
    rehome(&store.copies, TabletId(1_000), 1 - from).unwrap();
    write_all(&store, (0..50).map(|_| (1_000, add(1, 1))).collect());
    drop(store);
    std::fs::rename(&aside, &old).unwrap();
    std::fs::create_dir(disks.path(1 - from).join("tablets/1000.arriving")).unwrap();
    let store = disks.start();
    assert_eq!((disks.left_over(0), disks.left_over(1)), (0, 0), "what was half copied goes");
    open(&store, [1_000]);
    assert_eq!(disk_of(&store, 1_000), 1 - from, "where more was acknowledged");
    assert_eq!(read(&store, 1_000, 1), 100);
    assert!(!old.exists());
}

#[test]
fn a_disk_that_is_back_has_what_an_empty_replica_elsewhere_only_remembers() {
    let disks = Disks::new();
    let store = disks.start();
    open(&store, [1_000]);
    write_all(&store, (0..50).map(|_| (1_000, add(1, 1))).collect());
    // On the disk that is looked at second.
    if disk_of(&store, 1_000) == 0 {
        rehome(&store.copies, TabletId(1_000), 1).unwrap();
    }
    // As when its disk has failed as a whole: it is made anew on the other one, and the node ends before a leader has sent it anything.
    let group = GroupId(1_000);
    let recovered = store.replicas.disks[1].log.recover(group).unwrap();
    let mut batch = LogBatch::default();
    batch.retire(group, &recovered.hard_state, recovered.last_acknowledged()).unwrap();
    store.replicas.disks[0].log.write(&mut batch, true).unwrap();
    drop(store);
    std::fs::create_dir(disks.path(0).join("tablets/1000")).unwrap();
    let store = disks.start();
    open(&store, [1_000]);
    assert_eq!((disk_of(&store, 1_000), read(&store, 1_000, 1)), (1, 50));
    assert!(!disks.holds(0, 1_000) && disks.holds(1, 1_000));
}

#[test]
fn a_replica_of_a_child_that_comes_back_on_another_disk_keeps_its_vote() {
    let disks = Disks::new();
    let store = disks.start();
    store.open(vec![plain(LEFT.0)]).unwrap();
    write_all(&store, vec![(LEFT.0, add(1, 1))]);
    let (before, group) = (disk_of(&store, LEFT.0), GroupId(LEFT.0));
    store.close(&[LEFT]);
    let known = |disk: usize| store.replicas.disks[disk].log.recover(group).unwrap();
    let memory = known(before);
    assert!(memory.hard_state.term > 0 && memory.hard_state.vote > 0 && memory.floor.index > 1);
    // Now the other disk has more room for a tablet.
    store.replicas.disks[before].free_bytes.store(0, Ordering::Relaxed);
    store.open(vec![OpenTablet { floor: Some(LogPosition::new(1, 1)), ..plain(LEFT.0) }]).unwrap();
    assert_eq!(disk_of(&store, LEFT.0), 1 - before);
    let found = known(1 - before);
    assert_eq!((found.hard_state.term, found.hard_state.vote), (memory.hard_state.term, memory.hard_state.vote));
    assert_eq!(found.floor, memory.floor);
}

#[test]
fn a_move_that_cannot_be_finished_leaves_the_replica_where_it_was() {
    let disks = Disks::new();
    let store = disks.start();
    open(&store, [1_000]);
    write_all(&store, vec![(1_000, add(1, 7))]);
    let from = disk_of(&store, 1_000);
    store.replicas.disks[1 - from].log.give_up();
    rehome(&store.copies, TabletId(1_000), 1 - from).unwrap_err();
    assert_eq!((disk_of(&store, 1_000), read(&store, 1_000, 1)), (from, 7));
    assert!(write_all(&store, vec![(1_000, add(1, 1))])[0].is_ok());
    assert!(rehome(&store.copies, TabletId(7), 0).is_err(), "there is no such replica");
}

#[test]
fn what_a_failed_disk_remembers_of_replicas_that_left_is_kept() {
    let disks = Disks::new();
    let store = disks.start();
    store.open(vec![plain(LEFT.0)]).unwrap();
    write_all(&store, vec![(LEFT.0, add(1, 1))]);
    let disk = disk_of(&store, LEFT.0);
    store.close(&[LEFT]);
    let known = |disk: usize| store.replicas.disks[disk].log.recover(GroupId(LEFT.0)).unwrap().last_acknowledged();
    let floor = known(disk);
    assert!(floor.index > 0 && known(1 - disk) == LogPosition::START);
    store.replicas.disks[disk].log.give_up();
    wait_for(|| known(1 - disk) == floor);
}

/// Table options of one tablet; all others have the defaults.
struct Altered(Mutex<TableOptions>);

impl Openings for Altered {
    fn opening(&self, tablet: TabletId) -> Option<OpenTablet> {
        let options = if tablet == TabletId(1_000) { *self.0.lock().unwrap() } else { TableOptions::default() };
        Some(OpenTablet { options, ..plain(tablet.0) })
    }

    fn child(&self, _: TabletId, _: TabletId) -> ChildOpening {
        ChildOpening::Never
    }

    fn was_split(&self, _: &SplitMark) {}
}

#[test]
fn a_replica_is_opened_again_when_its_table_has_other_options() {
    let disks = Disks::new();
    let altered = Arc::new(Altered(Mutex::default()));
    let store = start_with(&[&disks.path(0)], 1 << 30, 1, Arc::new(NoTransport));
    store.set_openings(Arc::clone(&altered) as Arc<dyn Openings>);
    open(&store, [1_000, 1_001]);
    let mut expected = 0;
    let windows = CompactionStyle::TimeWindow { window_s: 60 };
    for compaction in [CompactionStyle::Leveled, CompactionStyle::SizeTiered, windows, CompactionStyle::SizeTiered] {
        // First with the data in files, then with it in memory and the log only.
        for step in 0..2 {
            let outcomes = write_all(&store, (0..50).map(|_| (1_000, add(1, 1))).collect());
            assert!(outcomes.iter().all(Result::is_ok));
            expected += 50;
            if step == 0 {
                store.handle(TabletId(1_000)).unwrap().data().flush(true).unwrap();
            }
        }
        let options = TableOptions::from(compaction);
        *altered.0.lock().unwrap() = options;
        store.set_table_options(TabletId(1_000), options);
        // While it is closed there is no handle.
        let is_renewed = || store.handle(TabletId(1_000)).is_some_and(|handle| *handle.data().options() == options);
        wait_for(is_renewed);
        assert_eq!(read(&store, 1_000, 1), expected, "once each");
        assert_eq!(store.handle(TabletId(1_001)).unwrap().data().options().compaction, CompactionStyle::SizeTiered);
    }
    assert!(!renew(&store.copies, TabletId(1_000)).unwrap(), "nothing has changed");
}
