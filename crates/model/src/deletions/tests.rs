//! Partition headers: round trips, merging against a naive model, lookups, purging.
#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]
use super::*;
use crate::entry;
use crate::testing::steps_of;
use diorite_base::Horizon;
use proptest::prelude::*;

/// The value of a row without a horizon.
const ROW: &[u8] = b"";

#[derive(Debug, Clone)]
struct Header {
    base_us: i64,
    partition: Option<Deletion>,
    ranges: Vec<(Vec<u8>, Vec<u8>, Deletion)>,
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut writer = DeletionsWriter::default();
        self.partition.iter().for_each(|deletion| writer.partition(*deletion));
        self.ranges.iter().for_each(|(start, end, deletion)| writer.range(start, end, *deletion));
        let mut out = Vec::new();
        writer.finish(self.base_us, &mut out);
        out
    }

    /// The timestamp over a key, by looking at every deletion.
    fn over(&self, key: &[u8]) -> i64 {
        let ranges = self.ranges.iter().filter(|(start, end, _)| start[..] <= *key && *key < end[..]);
        let stamps = ranges.map(|(.., deletion)| deletion.timestamp_us);
        stamps.chain(self.partition.map(|deletion| deletion.timestamp_us)).max().unwrap_or(NOTHING_DELETED)
    }
}

fn header() -> impl Strategy<Value = Header> {
    let deletion = || (1i64..6, 0u32..6).prop_map(|(timestamp_us, local_s)| Deletion { timestamp_us, local_s });
    let bound = || prop::collection::vec(0u8..4, 0..3);
    let range = (bound(), bound(), deletion());
    (1i64..6, prop::option::weighted(0.3, deletion()), prop::collection::vec(range, 0..6))
        .prop_map(|(base_us, partition, ranges)| Header { base_us, partition, ranges })
}

fn merged(older: &[u8], newer: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    entry::merge(older, newer, &mut out).unwrap();
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn every_key_is_under_its_latest_deletion(a in header(), b in header(), keys in prop::collection::vec(prop::collection::vec(0u8..4, 0..4), 1..9)) {
        let (one, both) = (a.encode(), merged(&a.encode(), &b.encode()));
        let (one, both) = (Deletions::decode(&one).unwrap(), Deletions::decode(&both).unwrap());
        for key in &keys {
            prop_assert_eq!(one.deletion_for(key, ROW), a.over(key));
            prop_assert_eq!(both.deletion_for(key, ROW), a.over(key).max(b.over(key)));
        }
        prop_assert_eq!(both.partition(), a.partition.max(b.partition));
        for pair in both.ranges().windows(2) {
            prop_assert!(pair[0].end < pair[1].start || (pair[0].end == pair[1].start && pair[0].deletion != pair[1].deletion));
        }
    }

    #[test]
    fn merging_is_associative_commutative_and_idempotent(a in header(), b in header(), c in header()) {
        let (a, b, c) = (a.encode(), b.encode(), c.encode());
        let ab = merged(&a, &b);
        prop_assert_eq!(merged(&ab, &c), merged(&a, &merged(&b, &c)));
        prop_assert_eq!(&ab, &merged(&b, &a));
        prop_assert_eq!(&ab, &merged(&ab, &a));
        prop_assert_eq!(&ab, &merged(&ab, &ab));
    }

    #[test]
    fn headers_fold_at_once_as_they_do_one_by_one(headers in prop::collection::vec(header(), 3..12), at: prop::sample::Index) {
        let packed: Vec<_> = headers.iter().map(Header::encode).collect();
        let one_by_one = packed[1..].iter().fold(packed[0].clone(), |before, next| merged(&before, next));
        let folded = |all: &[Vec<u8>]| {
            let mut out = Vec::new();
            entry::fold(None, all.iter().map(Vec::as_slice), &mut out).unwrap();
            out
        };
        prop_assert_eq!(&folded(&packed), &one_by_one);
        let (front, back) = packed.split_at(1 + at.index(packed.len() - 1));
        prop_assert_eq!(folded(&[folded(front), folded(back)]), one_by_one);
    }

    #[test]
    fn compaction_purges_what_is_old(a in header(), purge_before_s in 0u32..8) {
        let packed = a.encode();
        let before = Deletions::decode(&packed).unwrap();
        let old = |deletion: &Deletion| deletion.local_s < purge_before_s;
        match entry::compact(&packed, Horizon { now_s: 100, rows_s: 100, ranges_s: purge_before_s }) {
            Compaction::Keep => prop_assert!(!before.ranges().iter().any(|range| old(&range.deletion)) && !before.partition().is_some_and(|deletion| old(&deletion))),
            Compaction::Remove => prop_assert!(before.ranges().iter().all(|range| old(&range.deletion)) && before.partition().is_none_or(|deletion| old(&deletion))),
            Compaction::Replace(smaller) => {
                let after = Deletions::decode(&smaller).unwrap();
                prop_assert_eq!(after.partition(), before.partition().filter(|deletion| !old(deletion)));
                let expected: Vec<_> = before.ranges().iter().filter(|range| !old(&range.deletion)).copied().collect();
                prop_assert_eq!(after.ranges(), &expected[..]);
            }
        }
    }

    #[test]
    fn no_input_panics(mut bytes: Vec<u8>, a in header(), at: prop::sample::Index, to: u8) {
        let mut damaged = a.encode();
        let place = at.index(damaged.len());
        damaged[place] = to;
        if let Some(first) = bytes.first_mut() { *first = 0x80 | (*first & 0x07) }
        for value in [&bytes, &damaged] {
            let _ = entry::merge(value, &damaged, &mut Vec::new());
            let _ = entry::compact(value, Horizon { now_s: 5, rows_s: 3, ranges_s: 3 });
            if let Ok(header) = Deletions::decode(value) { let _ = header.deletion_for(&bytes, &damaged); }
        }
    }
}

proptest! {
    #[test]
    fn what_is_checked_is_decoded_and_nothing_else_is(a in header(), at: prop::sample::Index, to: u8, cut: prop::sample::Index) {
        let whole = a.encode();
        prop_assert_eq!(entry::check(&whole), Ok(()));
        let mut damaged = whole.clone();
        let place = at.index(damaged.len());
        damaged[place] = to;
        damaged.truncate(1 + cut.index(damaged.len()));
        prop_assert_eq!(check(&damaged).is_ok(), Deletions::decode(&damaged).is_ok());
        if entry::check(&damaged).is_ok() && entry::is_header(&damaged) {
            prop_assert!(entry::merge(&damaged, &whole, &mut Vec::new()).is_ok());
        }
    }
}

#[test]
fn the_stamp_slot_dates_a_header() {
    let mut writer = DeletionsWriter::default();
    let deletion = Deletion { timestamp_us: crate::row::UNSTAMPED, local_s: 3 };
    writer.range(b"a", b"c", deletion);
    writer.range(b"b", b"d", deletion);
    let mut packed = Vec::new();
    writer.finish(crate::row::UNSTAMPED, &mut packed);
    packed[1..9].copy_from_slice(&9i64.to_le_bytes());
    let header = Deletions::decode(&packed).unwrap();
    assert_eq!(header.ranges().len(), 1);
    assert_eq!(
        [&b"a"[..], b"c", b"d", b""].map(|key| header.deletion_for(key, ROW)),
        [9, 9, NOTHING_DELETED, NOTHING_DELETED]
    );
}

#[test]
fn the_steps_of_folding_deletions_grow_with_their_number() {
    let steps = |count: u32| {
        let delete = |at: u32| {
            let (mut writer, mut out) = (DeletionsWriter::default(), Vec::new());
            let start = at.wrapping_mul(2_654_435_761).to_be_bytes();
            writer.range(&start, &[&start[..], &[0]].concat(), Deletion { timestamp_us: i64::from(at), local_s: 1 });
            writer.finish(i64::from(at), &mut out);
            out
        };
        let packed: Vec<_> = (0..count).map(delete).collect();
        let mut out = Vec::new();
        let steps = steps_of(|| entry::fold(None, packed.iter().map(Vec::as_slice), &mut out).unwrap());
        assert_eq!(Deletions::decode(&out).unwrap().ranges().len(), count as usize);
        steps
    };
    for count in [500, 1_000, 2_000, 4_000, 8_000, 16_000] {
        let taken = steps(count);
        // Each deletion is read once, and twice if more of them are folded than fit at once.
        assert!(taken <= 2 * u64::from(count), "{count} deletions take {taken} steps");
    }
}

#[test]
fn a_header_that_names_the_horizon_zero_is_malformed() {
    let named = |horizon_s: u32| {
        let deletion = Deletion { timestamp_us: 7, local_s: 3 };
        let mut packed = Vec::new();
        pack(Some(deletion), &[], 5, 1, &mut packed);
        packed[9..13].copy_from_slice(&horizon_s.to_le_bytes());
        packed
    };
    assert!(Deletions::decode(&named(1)).is_ok() && horizon_s(&named(1)) == Some(1));
    assert!(Deletions::decode(&named(0)).is_err() && horizon_s(&named(0)).is_none());
    assert!(entry::fold(Some(&named(1)), [&named(0)[..]], &mut Vec::new()).is_err());
    assert_eq!(entry::compact(&named(0), Horizon::default()), Compaction::Keep);
}
