//! What follows from a write is bounded: at the leader, and where it is applied.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use super::*;
use crate::tests::evaluated;
use diorite_base::mutation::{EvaluationContext, OperationKind};
use diorite_base::row_index::AddEntry;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The key of a record that says from where on indexes are incomplete.
const AGAIN: &[u8] = b"again";

/// Each byte of a value is a value of its own, whose entry is as long as the row's key, and a byte.
#[derive(Default)]
struct EachByte {
    /// How often values were counted.
    counted: AtomicUsize,
}

impl RowIndexes for EachByte {
    fn entries(&self, key: &[u8], value: &[u8], add: &mut AddEntry<'_>) {
        value.iter().for_each(|byte| add(&[&[*byte], key].concat(), &[], false));
    }

    fn most_bytes(&self, key_bytes: usize, value_bytes: usize) -> usize {
        2 * value_bytes * (key_bytes + 1)
    }

    fn size_bytes(&self, key: &[u8], value: &[u8], _: usize) -> usize {
        self.counted.fetch_add(1, Ordering::Relaxed);
        value.len() * (key.len() + 1)
    }
}

/// A program is a key, to which it writes a kibibyte.
struct Kibibyte;

impl Evaluator for Kibibyte {
    fn evaluate(
        &self,
        _: &[u8],
        _: EvaluationContext,
        _: &dyn TabletView,
        _: &mut dyn TabletChanges,
    ) -> Result<Vec<u8>, EvaluationFailed> {
        Err(EvaluationFailed("nothing is evaluated here".to_owned()))
    }

    fn index_bytes(&self, program: &[u8], indexes: &dyn RowIndexes, most: usize) -> usize {
        indexes.size_bytes(program, &[1; 1 << 10], most)
    }

    fn index_again(
        &self,
        from: &[u8],
        _: &dyn TabletView,
        changes: &mut dyn TabletChanges,
    ) -> Result<(), EvaluationFailed> {
        changes.put(AGAIN, from);
        Ok(())
    }
}

struct NoRows;

impl TabletView for NoRows {
    fn get(&self, _: &[u8]) -> Result<Option<Vec<u8>>, EvaluationFailed> {
        Ok(None)
    }

    fn scan(&self, _: &[u8], _: &[u8], _: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), EvaluationFailed> {
        Ok(())
    }
}

/// The keys that are written, and the bytes of all of them.
#[derive(Default)]
struct Written(Vec<(Vec<u8>, Vec<u8>)>, usize);

impl TabletBatch for Written {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.1 += key.len();
        if key.len() < 100 {
            self.0.push((key.to_vec(), value.to_vec()));
        }
    }

    fn merge(&mut self, key: &[u8], value: &[u8]) {
        self.put(key, value);
    }

    fn delete(&mut self, _: &[u8]) {}

    fn delete_range(&mut self, _: &[u8], _: &[u8]) {}

    fn clear(&mut self) {}
}

fn write(rows: &[(usize, usize)]) -> Mutation {
    let mut mutation = Mutation::blind(None);
    for (key_bytes, value_bytes) in rows {
        mutation.push(OperationKind::Merge, false, &vec![9; *key_bytes], &vec![1; *value_bytes]);
    }
    mutation
}

#[test]
fn a_write_is_refused_by_name_if_too_much_follows_from_it_and_counted_only_if_that_may_be() {
    let indexes = EachByte::default();
    let admit = |mutation: &Mutation, others: usize| admitted(mutation, others, (Some(&indexes), &Kibibyte));
    let counted = || indexes.counted.swap(0, Ordering::Relaxed);
    let small = write(&[(100, 100), (10, 10)]);
    assert!(admit(&small, 0).unwrap() >= 100 * 101 + 10 * 11);
    assert_eq!(counted(), 0);
    assert_eq!(admit(&small, MAX_INDEX_BYTES - 1).unwrap(), 100 * 101 + 10 * 11);
    assert_eq!(counted(), 2);
    let just = write(&[(60_000, 1_000), (60_000, 100)]);
    assert_eq!(admit(&just, 0).unwrap(), 1_100 * 60_001);
    let refused = |mutation: &Mutation| match admit(mutation, 0) {
        Err(KvError::TooLarge(why)) => assert!(why.contains("(INDEX_BYTES)"), "{why}"),
        other => panic!("{other:?}"),
    };
    refused(&write(&[(60_000, 1_200)]));
    refused(&write(&[(60_000, 600), (60_000, 600)]));
    refused(&write(&[(60_000, 65_536)]));
    refused(&evaluated(&[7; 66_000]));
    assert_eq!(admit(&evaluated(&[7; 60_000]), 0).unwrap(), 60_001 << 10);
    assert_eq!(admitted(&write(&[(60_000, 65_536)]), 0, (None, &Kibibyte)).unwrap(), 0, "without indexes");
}

#[test]
fn entries_beyond_the_limit_are_left_out_and_the_indexes_are_incomplete_from_there_on() {
    let (indexes, mut account, mut written) = (EachByte::default(), IndexAccount::default(), Written::default());
    let mut batch = IndexedBatch::new(&mut written, &mut account, Some(&indexes));
    batch.put(b"row a", b"1");
    batch.merge(&[b'd'; 60_000], &[2; 1_100]);
    batch.merge(&[b'c'; 60_000], &[2; 1_100]);
    batch.merge(b"row b", b"3");
    assert!(account.is_full(), "the batch is written before the next entry of the log");
    account.close(&Kibibyte, &NoRows, &mut written).unwrap();
    assert!(written.1 < MAX_INDEX_BYTES + 200_000, "{} bytes", written.1);
    let keys: Vec<&[u8]> = written.0.iter().map(|(key, _)| key.as_slice()).collect();
    assert_eq!(keys, [&b"row a"[..], b"1row a", b"row b", b"3row b", AGAIN]);
    assert_eq!(written.0[4].1, [b'c'; 60_000], "the first row of which entries are left out");

    // The next entry of the log has all of it again, and the next batch nothing to say.
    account.begin_batch();
    account.begin_entry();
    let mut written = Written::default();
    IndexedBatch::new(&mut written, &mut account, Some(&indexes)).put(&[b'e'; 60_000], &[2; 1_100]);
    account.close(&Kibibyte, &NoRows, &mut written).unwrap();
    assert_eq!(written.1, 60_000 + 1_100 * 60_001);

    // Records of the tablet have no entries.
    let record = [&RECORD_PREFIX[..], b"record"].concat();
    let mut written = Written::default();
    IndexedBatch::new(&mut written, &mut account, Some(&indexes)).put(&record, b"123");
    assert_eq!(written.0, [(record, b"123".to_vec())]);
}
