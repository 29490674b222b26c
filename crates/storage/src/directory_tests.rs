//! Data directories against a real disk.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use diorite_base::{Clock, Hold, Level, SystemClock};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use uuid::Uuid;

#[test]
fn copies_that_a_crash_has_left_go_at_the_start_but_for_what_may_be_finished_yet() {
    let home = tempfile::tempdir().unwrap();
    let mut directory = DataDirectory::open(home.path()).unwrap();
    directory.claim(Uuid::from_u128(1), 1, Uuid::from_u128(2), Level::FIRST).unwrap();
    for name in ["7", "7.old", "7.incoming", "8.outgoing-3", "8.gone", "9.old"] {
        std::fs::create_dir(directory.tablets().join(name)).unwrap();
    }
    let left = |directory: &DataDirectory| {
        let entries = std::fs::read_dir(directory.tablets()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let now_us = SystemClock::new().wall_us();
    directory.tidy(now_us).unwrap();
    assert_eq!(left(&directory), ["7", "7.incoming", "9"], "what was to be replaced is back in its place");
    assert_eq!(directory.staged_ids("incoming").unwrap(), [7]);
    directory.tidy(now_us + 2 * 86_400_000_000).unwrap();
    assert_eq!(left(&directory), ["7", "9"]);
}

#[test]
fn a_directory_is_held_by_one_process_at_a_time() {
    let home = tempfile::tempdir().unwrap();
    let mut first = DataDirectory::open(home.path()).unwrap();
    first.claim(Uuid::from_u128(1), 1, Uuid::from_u128(2), Level::FIRST).unwrap();
    let second = DataDirectory::open(home.path()).unwrap_err();
    assert!(matches!(second, StorageError::InUse(_)), "{second}");
    drop(first);
    let again = DataDirectory::open(home.path()).unwrap();
    assert_eq!(again.identity().unwrap().cluster, Uuid::from_u128(1));
}

#[test]
fn foreign_and_newer_directories_are_refused_by_name_and_left_alone() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("thesis.tex"), "precious").unwrap();
    let refused = DataDirectory::open(home.path()).unwrap_err().to_string();
    assert!(refused.contains("thesis.tex"), "{refused}");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);

    let newer = tempfile::tempdir().unwrap();
    std::fs::write(newer.path().join("DIORITE"), r#"{"format": 99, "anything": true}"#).unwrap();
    let refused = DataDirectory::open(newer.path()).unwrap_err().to_string();
    assert!(refused.contains("is at level 99") && refused.contains("start a newer diorite"), "{refused}");
    std::fs::write(newer.path().join("DIORITE"), "not json").unwrap();
    assert!(DataDirectory::open(newer.path()).unwrap_err().to_string().contains("unreadable"));
}

/// The marker of each level, as it was written first; raising a level changes nothing else.
#[test]
fn markers_of_every_level_are_read_and_written_as_before() {
    let markers = [include_str!("../testdata/level-1/DIORITE"), include_str!("../testdata/level-2/DIORITE")];
    let home = tempfile::tempdir().unwrap();
    let marker = home.path().join("DIORITE");
    fs::write(&marker, markers[0]).unwrap();
    fs::create_dir(home.path().join("tablets")).unwrap();
    let directory = DataDirectory::open(home.path()).unwrap();
    assert_eq!(directory.identity().unwrap().level, Level(1));
    directory.raise(Level(1)).unwrap();
    assert_eq!(fs::read_to_string(&marker).unwrap(), markers[0]);
    directory.raise(Level(2)).unwrap();
    directory.raise(Level(1)).unwrap();
    assert_eq!(
        (fs::read_to_string(&marker).unwrap().as_str(), directory.identity().unwrap().level),
        (markers[1], Level(2))
    );
    drop(directory);
    assert_eq!(DataDirectory::open(home.path()).unwrap().identity().unwrap().level, Level(2));
}

#[test]
fn the_newest_decision_of_an_operator_survives_the_process() {
    let home = tempfile::tempdir().unwrap();
    let mut directory = DataDirectory::open(home.path()).unwrap();
    directory.claim(Uuid::from_u128(1), 1, Uuid::from_u128(2), Level::FIRST).unwrap();
    let decided = |number, is_held| Hold { level: Level(1), number, is_held };
    assert_eq!(directory.hold(), None);
    for (number, is_held, in_force) in [(1, true, 1), (3, false, 3), (2, true, 3)] {
        directory.note_hold(decided(number, is_held)).unwrap();
        assert_eq!(directory.hold().map(|hold| hold.number), Some(in_force));
    }
    drop(directory);
    assert_eq!(DataDirectory::open(home.path()).unwrap().hold(), Some(decided(3, false)));
    fs::write(home.path().join("HELD"), "1").unwrap();
    assert_eq!(DataDirectory::open(home.path()).unwrap().hold(), None);
}

#[test]
fn a_directory_is_for_its_owner_only() {
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let home = tempfile::tempdir().unwrap();
    let (own, foreign) = (home.path().join("own"), home.path().join("foreign"));
    for path in [&own, &foreign] {
        fs::create_dir(path).unwrap();
        set(path, 0o755);
    }
    drop(DataDirectory::open(&own).unwrap());
    assert_eq!(mode(&own), 0o700);
    // As an earlier version has left it.
    set(&own, 0o770);
    drop(DataDirectory::open(&own).unwrap());
    assert_eq!(mode(&own), 0o700);
    fs::write(foreign.join("thesis.tex"), "precious").unwrap();
    assert!(DataDirectory::open(&foreign).is_err());
    assert_eq!(mode(&foreign), 0o755, "nothing of somebody else's is changed");
}
