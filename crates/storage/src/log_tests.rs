//! Tests of logs with changed bytes: acknowledged records are present, or the replica knows that they may be missing.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::log_files::Durable;
use crate::log_queue::{Queue, numbered};
use diorite_base::GroupId;
use diorite_raft::{ConfState, Entry, HardState, LogPosition, LogReader, UNKNOWN_FLOOR};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const LIMIT: u64 = 64 << 20;
const GROUPS: u64 = 3;

/// The state that a log has acknowledged as durable, by group: term and vote, and entries.
type Promised = BTreeMap<GroupId, (HardState, Vec<Entry>)>;

/// The files of a log, and the state that it had acknowledged.
struct Image {
    home: TempDir,
    promised: Promised,
    /// The active file, and the number of bytes written to it.
    active: PathBuf,
    written: u64,
}

fn open(home: &Path) -> RaftLog {
    RaftLog::open(home, LIMIT, &[]).unwrap()
}

fn entry(group: u64, index: u64, bytes: usize) -> Entry {
    Entry { index, term: 1 + index / 7, data: vec![(group * 31 + index) as u8 | 1; bytes].into(), ..Entry::default() }
}

/// One write for all groups.
fn write(log: &RaftLog, promised: &mut Promised, bytes: usize, sync: bool) {
    let mut batch = LogBatch::default();
    let mut next = promised.clone();
    for group in (1..=GROUPS).map(GroupId) {
        let (state, entries) = next.entry(group).or_default();
        let last = entries.last().map_or(0, |entry| entry.index);
        let fresh: Vec<Entry> =
            (last + 1..=last + group.0).map(|index| entry(group.0, index, bytes + index as usize % 50)).collect();
        batch.append(group, &fresh, 0).unwrap();
        if last == 0 {
            batch.set_conf_state(group, &ConfState { voters: vec![1, 2, 3], ..ConfState::default() }).unwrap();
        }
        entries.extend(fresh);
        if entries.len() as u64 % 4 == group.0 % 4 {
            (state.term, state.vote) = (state.term + 1, group.0);
            batch.set_hard_state(group, state).unwrap();
        }
    }
    log.write(&mut batch, sync).unwrap();
    if sync {
        *promised = next;
    }
}

fn copy(from: &Path, to: &Path) {
    for file in fs::read_dir(from).unwrap().map(|file| file.unwrap()).filter(|file| file.path().is_file()) {
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

fn newest(home: &Path) -> PathBuf {
    let files = fs::read_dir(home).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|kind| kind == "raftlog")).max().unwrap()
}

/// A log with this many durable writes, as a crash or an orderly stop leaves it.
fn image(writes: usize, in_order: bool) -> Image {
    let (own, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut promised = Promised::new();
    let log = open(own.path());
    (0..writes).for_each(|_| write(&log, &mut promised, 40, true));
    let written = log.durable().append.1;
    if in_order {
        log.note_durable().unwrap();
        drop(log);
    }
    let active = newest(own.path());
    copy(own.path(), home.path());
    let active = home.path().join(active.file_name().unwrap());
    // The prepared part of the file is still zeros.
    let length = active.metadata().unwrap().len();
    fs::File::options().write(true).open(&active).unwrap().set_len(length.min(written + 4_096)).unwrap();
    Image { home, promised, active, written }
}

/// The report of a log about a group whose acknowledged entries it has lost.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Found {
    Whole,
    /// The replica's floor is unknown.
    Doubt,
    /// The replica is set aside.
    Damaged,
    /// The replica gets an error when it reads the log.
    Unreadable,
}

/// Opens a log; returns the worst report on its groups. Panics if an acknowledged record is missing without a report.
fn judge(home: &Path, promised: &Promised) -> Found {
    let held: Vec<GroupId> = (1..=GROUPS).map(GroupId).collect();
    let log = RaftLog::open(home, LIMIT, &held).unwrap();
    let mut worst = Found::Whole;
    for (group, (state, entries)) in promised {
        let Ok(found) = log.recover(*group).map_err(|error| assert!(error.is_damage(), "{error}")) else {
            worst = Found::Unreadable;
            continue;
        };
        if log.damage(*group).is_some() {
            assert_eq!(found.floor, UNKNOWN_FLOOR);
            worst = Found::Damaged;
            continue;
        }
        if found.floor == UNKNOWN_FLOOR {
            worst = if worst == Found::Damaged { worst } else { Found::Doubt };
            continue;
        }
        assert_eq!(found.last.index, entries.len() as u64, "{group} has lost entries, and nobody knows");
        assert_eq!(found.hard_state.term, state.term, "{group} has lost its vote, and nobody knows");
        match log.reader(*group).entries(1, found.last.index + 1, u64::MAX) {
            Ok(read) => assert!(read == *entries, "{group} holds something else"),
            Err(_) => worst = Found::Unreadable,
        }
    }
    worst
}

fn change(path: &Path, at: u64, with: &[u8]) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut bytes = vec![0; with.len()];
    file.read_exact_at(&mut bytes, at).unwrap();
    bytes.iter_mut().zip(with).for_each(|(byte, with)| *byte ^= with);
    file.write_all_at(&bytes, at).unwrap();
}

#[test]
fn what_is_written_becomes_durable_when_the_log_is_synced() {
    let home = tempfile::tempdir().unwrap();
    let log = open(home.path());
    let mut promised = Promised::new();
    write(&log, &mut promised, 40, true);
    let before = log.durable();
    write(&log, &mut promised, 40, false);
    assert_eq!(log.durable(), before, "nobody has synced it");
    log.sync().unwrap();
    let after = log.durable().append;
    assert!(after > before.append, "{before:?} {after:?}");
    // The last write is followed by zeros, and ends there.
    let bytes = fs::read(newest(home.path())).unwrap();
    assert!(bytes[after.1 as usize..].iter().all(|byte| *byte == 0) && bytes[after.1 as usize - 4..] != [0; 4]);
}

#[test]
fn a_log_in_which_nothing_is_damaged_is_whole() {
    for (writes, in_order) in [(1, false), (1, true), (40, false), (40, true)] {
        let image = image(writes, in_order);
        assert_eq!(judge(image.home.path(), &image.promised), Found::Whole);
        assert_eq!(judge(image.home.path(), &image.promised), Found::Whole, "again");
    }
}

#[test]
fn a_damaged_block_before_the_last_is_known_for_what_it_is() {
    let image = image(30, false);
    for share in 1..8 {
        let home = tempfile::tempdir().unwrap();
        copy(image.home.path(), home.path());
        // A part of a block in the middle. If it contains only entries, the damage is found when they are read.
        change(&newest(home.path()), image.written * share / 10, &[0x5a; 900]);
        let found = judge(home.path(), &image.promised);
        assert_eq!(found, Found::Damaged);
        assert_eq!(judge(home.path(), &image.promised), found, "it is remembered");
        // A replica that is rebuilt loses its record of damage, the others keep theirs.
        let log = open(home.path());
        let mut batch = LogBatch::default();
        batch.retire(GroupId(1), &HardState::default(), LogPosition::new(9, 9)).unwrap();
        log.write(&mut batch, true).unwrap();
        drop(log);
        let log = open(home.path());
        assert_eq!((log.damage(GroupId(1)), log.recover(GroupId(1)).unwrap().floor), (None, LogPosition::new(9, 9)));
        assert!(log.damage(GroupId(2)).is_some());
    }
}

#[test]
fn the_end_of_a_log_is_in_doubt_after_a_crash_and_known_after_a_stop_in_order() {
    for (in_order, expected) in [(false, Found::Doubt), (true, Found::Damaged)] {
        let image = image(20, in_order);
        change(&image.active, image.written - 3, &[1]);
        assert_eq!(judge(image.home.path(), &image.promised), expected);
    }
    let image = image(20, true);
    fs::remove_file(&image.active).unwrap();
    assert_eq!(judge(image.home.path(), &image.promised), Found::Damaged, "the file is missing");
}

#[test]
fn a_start_that_ended_before_it_had_told_its_replicas_is_made_up_for() {
    let image = image(20, false);
    change(&image.active, image.written / 2, &[0x5a; 900]);
    let noted = {
        let audit =
            crate::log_audit::Audit::of(image.home.path(), Durable::default(), &crate::log_audit::from_disk).unwrap();
        crate::log_damage::Folder(image.home.path()).note_found(&audit.verdict).unwrap();
        fs::read(image.home.path().join("DAMAGE")).unwrap()
    };
    // The engine has cut the file, and then power was lost.
    fs::File::options().write(true).open(&image.active).unwrap().set_len(image.written / 4).unwrap();
    assert_eq!(judge(image.home.path(), &image.promised), Found::Damaged);
    assert!(!noted.is_empty() && !image.home.path().join("DAMAGE").exists());
}

/// A write that a loss of power has cut: each of its sectors is present or not.
fn torn(image: &Image, unsynced: u64, sectors: u64) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    copy(image.home.path(), home.path());
    let file = fs::File::options().write(true).open(newest(home.path())).unwrap();
    let (from, to) = (image.written.div_ceil(512), unsynced.div_ceil(512));
    for sector in (from..to).filter(|sector| sectors & (1 << (sector % 64)) != 0) {
        file.write_all_at(&[0; 512], sector * 512).unwrap();
    }
    home
}

#[test]
fn a_write_that_was_cut_is_never_taken_for_damage() {
    let (own, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut promised = Promised::new();
    let log = open(own.path());
    (0..10).for_each(|_| write(&log, &mut promised, 40, true));
    let written = log.durable().append.1;
    // Several writes at once, none of them acknowledged.
    let mut later = promised.clone();
    (0..6).for_each(|_| write(&log, &mut later, 900, false));
    log.sync().unwrap();
    let unsynced = log.durable().append.1;
    copy(own.path(), home.path());
    let active = home.path().join(newest(own.path()).file_name().unwrap());
    let image = Image { home, promised, active, written };
    let mut found = BTreeMap::new();
    for seed in 1..200u64 {
        let home = torn(&image, unsynced, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let log = open(home.path());
        for (group, (_, entries)) in &image.promised {
            assert_eq!(log.damage(*group), None, "{seed}");
            let recovered = log.recover(*group);
            let is_in_doubt = recovered.as_ref().is_ok_and(|recovered| recovered.floor == UNKNOWN_FLOOR);
            // Acknowledged entries can be read, and so can intact writes after them.
            let last = recovered.unwrap().last.index;
            assert!(last >= entries.len() as u64, "{seed}");
            let left = log.reader(*group).entries(1, last + 1, u64::MAX).unwrap();
            assert!(left[..entries.len()] == *entries && left.len() as u64 == last, "{seed}");
            *found.entry(is_in_doubt).or_insert(0) += 1;
        }
    }
    assert!(found.get(&true).is_some_and(|found| *found > 500), "hardly any is cut: {found:?}");
}

/// A log of several files, of which the newest was recycled.
fn recycled() -> (TempDir, Promised) {
    let home = tempfile::tempdir().unwrap();
    let log = RaftLog::open(home.path(), 1 << 20, &[]).unwrap();
    let mut promised = Promised::new();
    let busy = GroupId(9);
    let mut batch = LogBatch::default();
    write(&log, &mut promised, 40, true);
    for index in 1..=120 {
        let long = Entry { index, term: 1, data: vec![index as u8; 1 << 20].into(), ..Entry::default() };
        batch.append(busy, &[long], 0).unwrap();
        if index > 20 {
            batch.truncate_to(busy, index - 20, 1, false).unwrap();
        }
        log.write(&mut batch, true).unwrap();
        if index % 10 == 0 {
            log.purge().unwrap();
        }
    }
    (0..20).for_each(|_| write(&log, &mut promised, 40, true));
    let left = tempfile::tempdir().unwrap();
    copy(home.path(), left.path());
    // Only the blocks distinguish the new records from old ones.
    fs::remove_file(left.path().join("DURABLE")).unwrap();
    (left, promised)
}

#[test]
fn files_that_are_used_again_and_older_ones_tell_what_is_damaged_in_them() {
    let (image, promised) = recycled();
    let after = |alter: &dyn Fn(&Path)| {
        let home = tempfile::tempdir().unwrap();
        copy(image.path(), home.path());
        alter(home.path());
        judge(home.path(), &promised)
    };
    assert_eq!(after(&|_| {}), Found::Whole, "the end is known though older blocks are behind it");
    let files = |kind: &str| {
        let files = fs::read_dir(image.path()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut files: Vec<String> = files.filter(|name| name.ends_with(kind)).collect();
        files.sort();
        files
    };
    let (appended, rewritten) = (files(".raftlog"), files(".rewrite"));
    assert!(appended.len() > 1 && !rewritten.is_empty(), "{appended:?} {rewritten:?}");
    let (oldest, newest) = (&appended[0], &appended[appended.len() - 1]);
    assert_eq!(after(&|home| change(&home.join(oldest), 10, &[1])), Found::Damaged, "an older file's header");
    assert_eq!(after(&|home| change(&home.join(newest), 10, &[1])), Found::Damaged, "the newest file's header");
    assert_eq!(after(&|home| change(&home.join(newest), 75, &[1; 9])), Found::Damaged, "the newest file's first block");
    let in_the_middle = |home: &Path| {
        // One byte in each of several places, whatever it belongs to.
        let bytes = fs::read(home.join(oldest)).unwrap();
        let at = bytes.windows(4).rposition(|bytes| bytes != [bytes[0]; 4]).unwrap() as u64;
        change(&home.join(oldest), at - 8, &[0x11; 8]);
    };
    assert_eq!(after(&in_the_middle), Found::Damaged, "an older file's items");
    let written_anew = |home: &Path| change(&home.join(&rewritten[0]), 80, &[0x11; 40]);
    assert_eq!(after(&written_anew), Found::Damaged, "what was written anew");
    let missing = |home: &Path| fs::remove_file(home.join(&appended[appended.len() - 2])).unwrap();
    assert_eq!(after(&missing), Found::Damaged, "a file is missing");
}

/// A log whose engine has kept an obsolete file for reuse, and deleted the ones after it.
fn with_a_gap() -> (TempDir, Promised) {
    let home = tempfile::tempdir().unwrap();
    let log = RaftLog::open(home.path(), 1 << 20, &[]).unwrap();
    let mut promised = Promised::new();
    let busy = GroupId(9);
    for index in 1..=150 {
        let long = Entry { index, term: 1, data: vec![index as u8; 1 << 20].into(), ..Entry::default() };
        let mut batch = LogBatch::default();
        batch.append(busy, &[long], 0).unwrap();
        log.write(&mut batch, true).unwrap();
    }
    let mut batch = LogBatch::default();
    batch.truncate_to(busy, 130, 1, false).unwrap();
    log.write(&mut batch, true).unwrap();
    log.purge().unwrap();
    (0..20).for_each(|_| write(&log, &mut promised, 40, true));
    let left = tempfile::tempdir().unwrap();
    copy(home.path(), left.path());
    (left, promised)
}

/// The numbers of the files in the append queue.
fn numbers(home: &Path) -> Vec<u64> {
    let files = fs::read_dir(home).unwrap().map(|file| file.unwrap().path());
    let mut numbers: Vec<u64> =
        files.filter_map(|path| numbered(&path)).filter(|file| file.0 == Queue::Append).map(|file| file.1).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn a_gap_that_the_engine_has_left_is_no_damage() {
    let (image, promised) = with_a_gap();
    let left = numbers(image.path());
    let gap = left.windows(2).position(|two| two[0] + 1 < two[1]).expect("the engine keeps files and deletes others");
    let after = |alter: &dyn Fn(&Path)| {
        let home = tempfile::tempdir().unwrap();
        copy(image.path(), home.path());
        alter(home.path());
        let found = judge(home.path(), &promised);
        (found, numbers(home.path()))
    };
    assert_eq!(after(&|_| {}), (Found::Whole, left[gap + 1..].to_vec()), "what is not needed is removed");
    let of_an_earlier_version = |home: &Path| fs::remove_file(home.join("FREED")).unwrap();
    assert_eq!(after(&of_an_earlier_version), (Found::Whole, left[gap + 1..].to_vec()));
    let obsolete_is_damaged = |home: &Path| change(&home.join(format!("{:016}.raftlog", left[0])), 10, &[1]);
    assert_eq!(after(&obsolete_is_damaged).0, Found::Whole);
}

#[test]
fn the_files_of_a_log_that_cannot_be_opened_stay_until_nobody_needs_them() {
    let (image, promised) = recycled();
    let oldest = fs::read_dir(image.path()).unwrap().map(|file| file.unwrap().path());
    let oldest = oldest.filter(|path| path.extension().is_some_and(|kind| kind == "raftlog")).min().unwrap();
    change(&oldest, 10, &[1]);
    // A group that has data and no record in the log.
    let log = RaftLog::open(image.path(), LIMIT, &[GroupId(77)]).unwrap();
    let mut known: Vec<GroupId> = promised.keys().copied().collect();
    known.push(GroupId(77));
    assert!(known.iter().all(|group| log.damage(*group).is_some()));
    for (group, (state, _)) in &promised {
        let found = log.recover(*group).unwrap();
        assert_eq!((found.hard_state.term, found.hard_state.vote), (state.term, state.vote), "it can still be read");
        assert_eq!((found.floor, found.last), (UNKNOWN_FLOOR, LogPosition::START));
    }
    let aside = image.path().join("damaged-0");
    log.forget_damaged_files().unwrap();
    assert!(fs::read_dir(&aside).unwrap().any(|file| numbered(&file.unwrap().path()).is_some()));
    let mut batch = LogBatch::default();
    log.groups().into_iter().for_each(|group| batch.remove(group));
    log.write(&mut batch, true).unwrap();
    log.forget_damaged_files().unwrap();
    assert!(!aside.exists());
}

/// A file that cannot be read beyond this many bytes.
fn unreadable_from(path: &Path, bytes: u64) -> Box<dyn std::io::Read> {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(rustix::io::Errno::IO.into())
        }
    }
    use std::io::Read as _;
    Box::new(fs::File::open(path).unwrap().take(bytes).chain(Broken))
}

#[test]
fn a_log_with_a_file_that_the_disk_cannot_read_opens_and_its_groups_are_damaged() {
    let (image, promised) = recycled();
    let files = numbers(image.path());
    assert!(files.len() > 1, "{files:?}");
    for (nth, readable_bytes) in [(0, 0), (0, 1 << 20), (files.len() - 1, 0), (files.len() - 1, 1 << 20)] {
        let home = tempfile::tempdir().unwrap();
        copy(image.path(), home.path());
        let broken = home.path().join(format!("{:016}.raftlog", files[nth]));
        let reader = |path: &Path| match path == broken {
            true => Ok(unreadable_from(path, readable_bytes)),
            false => crate::log_audit::from_disk(path),
        };
        let held: Vec<GroupId> = (1..=GROUPS).map(GroupId).collect();
        let log = RaftLog::open_by(home.path(), LIMIT, &held, &reader).unwrap();
        for group in promised.keys() {
            let reason = log.damage(*group).unwrap();
            assert!(reason.contains("Input/output error"), "{reason}");
            assert_eq!(log.recover(*group).unwrap().floor, UNKNOWN_FLOOR);
        }
        assert!(home.path().join("damaged-0").exists());
        drop(log);
        // The findings are still known, and there are no new ones.
        let log = RaftLog::open(home.path(), LIMIT, &held).unwrap();
        assert!(promised.keys().all(|group| log.damage(*group).is_some()));
    }
}

#[test]
fn what_the_system_lacks_at_the_moment_is_no_damage_of_the_log() {
    let image = image(5, true);
    let lacks = |_: &Path| Err(rustix::io::Errno::MFILE.into());
    assert!(RaftLog::open_by(image.home.path(), LIMIT, &[], &lacks).is_err());
    assert_eq!(judge(image.home.path(), &image.promised), Found::Whole, "nothing was noted");
}

#[test]
fn a_log_that_is_gone_while_its_tablets_are_there_is_damaged() {
    let home = tempfile::tempdir().unwrap();
    let log = RaftLog::open(&home.path().join("log"), LIMIT, &[GroupId(5)]).unwrap();
    assert!(log.damage(GroupId(5)).is_some() && log.damage(GroupId(6)).is_none());
}

#[derive(Debug, Clone)]
struct Change {
    /// The position, in millionths of the written bytes.
    at: u64,
    with: Vec<u8>,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let with = prop_oneof![
        4 => (0..8u32).prop_map(|bit| vec![1 << bit]),
        2 => proptest::collection::vec(1..=255u8, 1..16),
        1 => proptest::collection::vec(1..=255u8, 500..600),
    ];
    proptest::collection::vec((0..1_000_000u64, with).prop_map(|(at, with)| Change { at, with }), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn no_acknowledged_entry_is_lost_without_anybody_knowing(which in 0..4usize, changes in changes()) {
        thread_local! {
            static IMAGES: Vec<Image> =
                [(1, false), (3, true), (25, false), (25, true)].into_iter().map(|(writes, in_order)| image(writes, in_order)).collect();
        }
        IMAGES.with(|images| {
            let image = &images[which];
            let home = tempfile::tempdir().unwrap();
            copy(image.home.path(), home.path());
            let active = home.path().join(image.active.file_name().unwrap());
            for Change { at, with } in changes {
                let length = (with.len() as u64).min(image.written);
                change(&active, (at * image.written / 1_000_000).min(image.written - length), &with[..length as usize]);
            }
            judge(home.path(), &image.promised);
            // The same holds at the next start.
            judge(home.path(), &image.promised);
        });
    }
}

#[test]
fn a_replica_without_its_log_is_no_judge_of_others_whatever_happens_to_it() {
    let home = tempfile::tempdir().unwrap();
    let log = open(home.path());
    let group = GroupId(1_000);
    let state = HardState { term: 4, ..HardState::default() };
    let floor_after = |floor: LogPosition| {
        let mut batch = LogBatch::default();
        batch.retire(group, &state, floor).unwrap();
        batch.set_conf_state(group, &ConfState { voters: vec![1], ..ConfState::default() }).unwrap();
        log.write(&mut batch, true).unwrap();
        let removed = log.recover(group).unwrap().floor;
        log.forget_floors().unwrap();
        (removed, log.recover(group).unwrap().floor)
    };
    let any_of_the_term = LogPosition::new(u64::MAX, 4);
    assert_eq!(floor_after(UNKNOWN_FLOOR), (any_of_the_term, any_of_the_term));
    assert_eq!(floor_after(LogPosition::new(9, 2)), (LogPosition::new(9, 2), any_of_the_term));
    assert_eq!(
        floor_after(LogPosition::START),
        (LogPosition::START, UNKNOWN_FLOOR),
        "it has acknowledged nothing before"
    );
}
