//! Databases with this memtable against a model, and readers beside a writer.

use super::set;
use proptest::prelude::*;
use rust_rocksdb::{DB, Direction, IteratorMode, Options, ReadOptions, WriteBatch};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A database whose memtable is never flushed.
fn open(folder: &tempfile::TempDir) -> DB {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_write_buffer_size(256 << 20);
    set(&mut options);
    DB::open(&options, folder.path()).expect("an empty folder")
}

fn open_anew() -> (tempfile::TempDir, DB) {
    let folder = tempfile::tempdir().expect("a folder");
    let db = open(&folder);
    (folder, db)
}

#[derive(Debug, Clone)]
enum Step {
    Put(Vec<u8>, u8),
    Delete(Vec<u8>),
    Get(Vec<u8>),
    Forward(Vec<u8>, usize),
    Backward(Vec<u8>, usize),
    There(Vec<u8>, usize),
}

/// Keys that are alike in their first bytes, that are shorter than eight bytes, that begin with eight zeros as records do,
/// or with a token that is nearly as small.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0_u8), Just(1), Just(0x7F), Just(0x80), Just(0xFF)];
    prop_oneof![
        proptest::collection::vec(byte.clone(), 0..4),
        proptest::collection::vec(byte.clone(), 7..10),
        (0_u16..200).prop_map(|number| [&b"of one partition"[..], &number.to_be_bytes()].concat()),
        (byte.clone(), proptest::collection::vec(byte, 0..8))
            .prop_map(|(first, rest)| { [&[0; 7][..], &[first & 1], &rest].concat() }),
        (40_u32..64, 0_u64..3).prop_map(|(bits, more)| ((1_u64 << bits) - 1 + more).to_be_bytes().to_vec()),
        (0_u64..400).prop_map(|number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec()),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (key(), any::<u8>()).prop_map(|(key, value)| Step::Put(key, value)),
        2 => key().prop_map(Step::Delete),
        1 => key().prop_map(Step::Get),
        1 => (key(), 0_usize..40).prop_map(|(key, steps)| Step::Forward(key, steps)),
        1 => (key(), 0_usize..40).prop_map(|(key, steps)| Step::Backward(key, steps)),
        1 => (key(), 0_usize..20).prop_map(|(key, steps)| Step::There(key, steps)),
    ]
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn seen(db: &DB, key: &[u8], direction: Direction, most: usize) -> Pairs {
    let found = db.iterator(IteratorMode::From(key, direction)).take(most);
    found.map(|pair| pair.expect("no file is read")).map(|(key, value)| (key.into_vec(), value.into_vec())).collect()
}

fn wanted<'p>(pairs: impl Iterator<Item = (&'p Vec<u8>, &'p u8)>, most: usize) -> Pairs {
    pairs.take(most).map(|(key, value)| (key.clone(), vec![*value])).collect()
}

fn check(db: &DB, model: &BTreeMap<Vec<u8>, u8>, step: Step) {
    match step {
        Step::Put(..) | Step::Delete(_) => {}
        Step::Get(key) => {
            assert_eq!(db.get(&key).expect("no file is read"), model.get(&key).map(|value| vec![*value]));
        }
        Step::Forward(key, steps) => {
            let after = model.range::<Vec<u8>, _>(&key..);
            assert_eq!(seen(db, &key, Direction::Forward, steps), wanted(after, steps));
        }
        Step::Backward(key, steps) => {
            let before = model.range::<Vec<u8>, _>(..=&key).rev();
            assert_eq!(seen(db, &key, Direction::Reverse, steps), wanted(before, steps));
        }
        Step::There(key, steps) => {
            // Forwards, and as far back again.
            let mut there = db.raw_iterator();
            there.seek(&key);
            let reached = model.range::<Vec<u8>, _>(&key..).map(|(key, _)| key).take(steps + 1).collect::<Vec<_>>();
            for (at, wanted) in reached.iter().enumerate() {
                assert_eq!(there.key(), Some(&wanted[..]));
                if at + 1 < reached.len() {
                    there.next();
                }
            }
            for wanted in reached.iter().rev() {
                assert_eq!(there.key(), Some(&wanted[..]));
                there.prev();
            }
            let before = model.range::<Vec<u8>, _>((Bound::Unbounded, Bound::Excluded(&key))).next_back();
            if !reached.is_empty() {
                assert_eq!(there.key(), before.map(|(key, _)| &key[..]));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_database_has_what_was_written_last_in_order(steps in proptest::collection::vec(step(), 1..1_200)) {
        let (_folder, db) = open_anew();
        let mut model = BTreeMap::new();
        for step in steps {
            match &step {
                Step::Put(key, value) => {
                    db.put(key, [*value]).expect("room");
                    model.insert(key.clone(), *value);
                }
                Step::Delete(key) => {
                    db.delete(key).expect("room");
                    model.remove(key);
                }
                _ => {}
            }
            check(&db, &model, step);
        }
        let all = || model.iter();
        prop_assert_eq!(seen(&db, &[], Direction::Forward, usize::MAX), wanted(all(), usize::MAX));
        let last = [0xFF; 16];
        prop_assert_eq!(seen(&db, &last, Direction::Reverse, usize::MAX), wanted(all().rev(), usize::MAX));
        // And the flush writes the same.
        db.flush().expect("room");
        prop_assert_eq!(seen(&db, &[], Direction::Forward, usize::MAX), wanted(all(), usize::MAX));
    }
}

#[test]
fn a_snapshot_sees_older_versions() {
    let (_folder, db) = open_anew();
    db.put(b"key", b"first").expect("room");
    let snapshot = db.snapshot();
    for version in 0..1_000_u32 {
        db.put(b"key", version.to_be_bytes()).expect("room");
    }
    assert_eq!(snapshot.get(b"key").expect("no file is read"), Some(b"first".to_vec()));
    assert_eq!(db.get(b"key").expect("no file is read"), Some(999_u32.to_be_bytes().to_vec()));
    assert_eq!(snapshot.iterator(IteratorMode::Start).count(), 1);
}

/// The key that is written as that number: some with tokens of their own, some of one partition in rising order, some of
/// a few partitions, some as records have them.
fn key_of(number: usize) -> Vec<u8> {
    let number = number as u64;
    match number % 4 {
        0 => number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec(),
        1 => [&b"of one partition"[..], &number.to_be_bytes()].concat(),
        2 => [&[0; 8][..], &[1, 7], &number.to_le_bytes()].concat(),
        _ => [&(number % 64).wrapping_mul(0x0123_4567_89AB_CDEF).to_be_bytes()[..], &number.to_be_bytes()].concat(),
    }
}

/// Looks for keys that have been written, and at their neighbours, until there are no more to come.
fn read_meanwhile(db: &DB, written: &AtomicUsize, is_done: &AtomicBool, seed: usize) -> usize {
    let mut looks = 0_usize;
    while !is_done.load(Ordering::Acquire) || looks < 100 {
        let known = written.load(Ordering::Acquire);
        let number = looks.wrapping_mul(0x9E37_79B9).wrapping_add(seed) % known.max(1);
        if known == 0 {
            std::hint::spin_loop();
            continue;
        }
        let key = key_of(number);
        assert_eq!(db.get(&key).expect("no file is read"), Some(number.to_be_bytes().to_vec()));
        let mut there = db.raw_iterator_opt(ReadOptions::default());
        there.seek(&key);
        assert_eq!(there.key(), Some(&key[..]));
        let mut before = key.clone();
        for _ in 0..looks % 8 {
            there.next();
            let Some(next) = there.key() else { break };
            assert!(before[..] < *next);
            before = next.to_vec();
        }
        there.seek_for_prev(&key);
        assert_eq!(there.key(), Some(&key[..]));
        there.prev();
        assert!(there.key().is_none_or(|before| *before < key[..]));
        looks += 1;
    }
    looks
}

#[test]
fn readers_find_what_was_written_while_more_is_written() {
    const KEYS: usize = 60_000;
    let (_folder, db) = open_anew();
    let (written, is_done) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (db, written, is_done) = (&db, &written, &is_done);
        let readers: Vec<_> =
            (0..3).map(|seed| scope.spawn(move || read_meanwhile(db, written, is_done, seed))).collect();
        let mut options = rust_rocksdb::WriteOptions::default();
        options.disable_wal(true);
        for first in (0..KEYS).step_by(7) {
            let mut batch = WriteBatch::default();
            let end = (first + 7).min(KEYS);
            for number in first..end {
                batch.put(key_of(number), number.to_be_bytes());
            }
            db.write_opt(&batch, &options).expect("room");
            written.store(end, Ordering::Release);
        }
        is_done.store(true, Ordering::Release);
        for reader in readers {
            assert!(reader.join().expect("its assertions hold") >= 100);
        }
    });
    assert_eq!(db.iterator(IteratorMode::Start).count(), KEYS);
}
