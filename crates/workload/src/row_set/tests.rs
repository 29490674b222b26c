//! Planted wrong, missing and stale values are found; right ones pass; keys are chosen as asked.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use super::*;
use crate::data::{Mismatch, write_value};

const EPOCH: u32 = 1_700_000_000;

fn rows(popularity: Popularity) -> RowSet {
    let keys = Arc::new(KeyState::new(EPOCH, 0, 1_000, 1_000));
    RowSet::new(keys, KeyFormat::new("key", 50), 256, popularity)
}

fn write_all(rows: &RowSet) {
    let mut random = SplitMix64::new(1);
    for _ in 0..1_000 {
        let ticket = rows.next_write(&mut random).unwrap();
        rows.keys.acknowledge(ticket);
    }
}

fn value(number: u64, version: Version) -> Vec<u8> {
    let mut value = Vec::new();
    write_value(number, version, 256, &mut value);
    value
}

#[test]
fn planted_faults_are_found_and_name_the_key() {
    let rows = rows(Popularity::Uniform);
    write_all(&rows);
    let old = value(7, Version::new(EPOCH, 1));
    assert_eq!(rows.check(7, rows.keys.oldest_allowed(7), Some(&old)), Ok(()));

    let rewrite = rows.keys.start_overwrite(7).unwrap();
    assert_eq!(rows.check(7, rows.keys.oldest_allowed(7), Some(&old)), Ok(()), "not acknowledged yet");
    rows.keys.acknowledge(rewrite);
    let stale = rows.check(7, rows.keys.oldest_allowed(7), Some(&old)).unwrap_err();
    assert!(matches!(stale.problem, Problem::Stale { .. }), "{stale}");
    assert!(stale.to_string().contains("stale value at key key:7_"), "{stale}");
    assert_eq!(rows.check(7, rows.keys.oldest_allowed(7), Some(&value(7, rewrite.version))), Ok(()));

    let missing = rows.check(8, rows.keys.oldest_allowed(8), None).unwrap_err();
    assert_eq!(missing.problem, Problem::Missing);
    let wrong = rows.check(8, rows.keys.oldest_allowed(8), Some(&old)).unwrap_err();
    assert_eq!(wrong.problem, Problem::Wrong(Mismatch::Key { found: 7 }));
    let mut damaged = value(8, Version::new(EPOCH, 1));
    damaged[200] ^= 1;
    let damaged = rows.check(8, rows.keys.oldest_allowed(8), Some(&damaged)).unwrap_err();
    assert_eq!(damaged.problem, Problem::Wrong(Mismatch::Byte { offset: 200 }));
}

#[test]
fn a_value_of_an_earlier_run_is_stale_once_this_run_has_written_the_key() {
    let rows = rows(Popularity::Uniform);
    write_all(&rows);
    let earlier = value(3, Version::new(EPOCH - 60, 40));
    assert!(rows.check(3, rows.keys.oldest_allowed(3), Some(&earlier)).is_err());
}

#[test]
fn the_only_write_of_a_key_having_failed_it_may_be_missing() {
    let rows = rows(Popularity::Uniform);
    let ticket = rows.next_write(&mut SplitMix64::new(1)).unwrap();
    rows.keys.give_up(ticket);
    assert_eq!(rows.check(ticket.number, rows.keys.oldest_allowed(ticket.number), None), Ok(()));
}

#[test]
fn a_version_is_between_the_acknowledged_and_the_newest_one_that_was_sent() {
    let rows = rows(Popularity::Uniform);
    write_all(&rows);
    let version = |count| Some(Version::new(EPOCH, count));
    let oldest = rows.keys.oldest_allowed(7);
    assert_eq!(rows.check_version(7, oldest, version(1)), Ok(()));
    assert!(matches!(rows.check_version(7, oldest, version(2)), Err(Problem::Shape(_))), "never written");
    let rewrite = rows.keys.start_overwrite(7).unwrap();
    assert_eq!(rows.check_version(7, oldest, version(2)), Ok(()), "not acknowledged yet");
    rows.keys.acknowledge(rewrite);
    assert_eq!(rows.check_version(7, oldest, version(1)), Ok(()), "acknowledged after the read was sent");
    let stale = rows.check_version(7, rows.keys.oldest_allowed(7), version(1));
    assert!(matches!(stale, Err(Problem::Stale { .. })));
    assert_eq!(rows.check_version(7, oldest, None), Err(Problem::Missing));
}

#[test]
fn a_key_of_an_earlier_run_may_have_any_version_until_it_is_written() {
    let keys = Arc::new(KeyState::new(EPOCH, 10, 10, 1_000));
    let rows = RowSet::new(keys, KeyFormat::new("key", 0), 256, Popularity::Uniform);
    let foreign = Some(Version::new(EPOCH + 60, 5));
    assert_eq!(rows.check_version(3, rows.keys.oldest_allowed(3), foreign), Ok(()));
    rows.keys.acknowledge(rows.keys.start_overwrite(3).unwrap());
    assert!(rows.check_version(3, rows.keys.oldest_allowed(3), foreign).is_err());
}

#[test]
fn a_row_may_differ_once_a_later_write_was_sent_or_its_only_write_failed() {
    let keys = Arc::new(KeyState::new(EPOCH, 10, 12, 1_000));
    let rows = RowSet::new(keys, KeyFormat::new("key", 0), 256, Popularity::Uniform);
    let of_earlier_run = Version::new(EPOCH - 60, 7);
    assert!(!rows.may_differ(3, of_earlier_run), "not written here");
    let first = rows.keys.start_overwrite(3).unwrap();
    assert!(rows.may_differ(3, of_earlier_run), "a write is under way");
    rows.keys.acknowledge(first);
    assert!(rows.may_differ(3, of_earlier_run), "a write was acknowledged");
    assert!(!rows.may_differ(3, first.version));
    let lost = rows.keys.start_overwrite(3).unwrap();
    rows.keys.give_up(lost);
    assert!(rows.may_differ(3, first.version), "a lost write may take effect");
    let new = rows.keys.start_new().unwrap();
    rows.keys.give_up(new);
    assert!(rows.may_differ(new.number, new.version), "its only write failed");
    let new = rows.keys.start_new().unwrap();
    rows.keys.acknowledge(new);
    assert!(!rows.may_differ(new.number, new.version));
}

#[test]
fn nothing_is_read_before_something_is_written() {
    assert_eq!(rows(Popularity::Uniform).next_read(&mut SplitMix64::new(1)), None);
}

#[test]
fn recent_reads_stay_in_the_newest_part_and_uniform_ones_reach_everything() {
    let (recent, uniform) = (rows(Popularity::Recent { percent: 5.0 }), rows(Popularity::Uniform));
    write_all(&recent);
    write_all(&uniform);
    let mut random = SplitMix64::new(1);
    let mut seen = [false; 1_000];
    for _ in 0..20_000 {
        assert!(recent.next_read(&mut random).unwrap().0 >= 950);
        seen[uniform.next_read(&mut random).unwrap().0 as usize] = true;
    }
    assert!(seen.iter().filter(|&&seen| seen).count() > 990);
}
