//! The key codec: round trips, and key order against value order, for every type and both directions.
#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]
use super::*;
use crate::testing::{layout, ordered_types, value_of};
use crate::value::compare;
use proptest::prelude::*;
use std::cmp::Ordering;

fn typed_pair() -> impl Strategy<Value = (CqlType, Vec<u8>, Vec<u8>)> {
    ordered_types().prop_flat_map(|data_type| {
        let pair = (value_of(&data_type), value_of(&data_type));
        pair.prop_map(move |(a, b)| (data_type.clone(), a, b))
    })
}

fn clustering_key(layout: &KeyLayout, wire: &[u8]) -> Vec<u8> {
    let mut key = Vec::new();
    layout.encode_partition(std::iter::once(&b"p"[..]), &mut key).unwrap();
    push_row(&mut key);
    layout.push_clustering(0, wire, &mut key).unwrap();
    key
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn bytes_sort_as_values_do((data_type, a, b) in typed_pair()) {
        prop_assert_eq!(data_type.validate(&a), Ok(()));
        let expected = compare(&data_type, &a, &b);
        prop_assert_eq!(compare(&data_type, &b, &a), expected.reverse());
        for order in [Order::Asc, Order::Desc] {
            let layout = layout(&[CqlType::Text], &[(data_type.clone(), order)]);
            let (one, other) = (clustering_key(&layout, &a), clustering_key(&layout, &b));
            let sorted = if order == Order::Asc { one.cmp(&other) } else { other.cmp(&one) };
            prop_assert_eq!(sorted, expected, "{} {:?} {:?}", data_type, a, b);
        }
    }

    #[test]
    fn decoding_gives_an_equal_value_back((data_type, a, b) in typed_pair()) {
        let columns = [(data_type.clone(), Order::Asc), (data_type.clone(), Order::Desc)];
        let layout = layout(&[data_type.clone(), data_type.clone()], &columns);
        let mut key = Vec::new();
        let token = layout.encode_partition([&a[..], &b[..]].into_iter(), &mut key).unwrap();
        let prefix = key.len();
        push_row(&mut key);
        layout.push_clusterings([&b[..], &a[..]].into_iter(), &mut key).unwrap();
        prop_assert_eq!(layout.partition_len(&key), Ok(prefix));
        let mut decoded = DecodedKey::default();
        layout.decode(&key, &mut decoded).unwrap();
        prop_assert_eq!((decoded.token(), decoded.kind(), decoded.partition_len()), (token, RowKind::Regular, prefix));
        prop_assert_eq!((decoded.partition(0), decoded.partition(1)), (&a[..], &b[..]));
        for (at, original) in [(0, &b), (1, &a)] {
            let read = decoded.clustering(at).unwrap().to_vec();
            prop_assert_eq!(data_type.validate(&read), Ok(()));
            prop_assert_eq!(compare(&data_type, &read, original), Ordering::Equal, "{} {:?} {:?}", data_type, read, original);
        }
        // A decoded key encodes to the same bytes: the form is canonical.
        let (first, second) = (decoded.clustering(0).unwrap().to_vec(), decoded.clustering(1).unwrap().to_vec());
        let mut again = key[..=prefix].to_vec();
        layout.push_clusterings([&first[..], &second[..]].into_iter(), &mut again).unwrap();
        prop_assert_eq!(&again, &key);
        let mut within = decoded.clone();
        layout.decode_within(&key, &mut within).unwrap();
        prop_assert_eq!(within.clustering(1), decoded.clustering(1));
    }

    #[test]
    fn slices_hold_exactly_their_rows(
        values in prop::collection::vec(-3i32..4, 1..8), lower in -3i32..4, upper in -3i32..4, kinds in 0..9usize, descending: bool,
    ) {
        let order = if descending { Order::Desc } else { Order::Asc };
        let layout = layout(&[CqlType::Text], &[(CqlType::Int, order), (CqlType::Text, Order::Asc)]);
        let (lower_wire, upper_wire) = (lower.to_be_bytes(), upper.to_be_bytes());
        let bound = |kind, wire| match kind { 0 => Bound::Unbounded, 1 => Bound::Inclusive(wire), _ => Bound::Exclusive(wire) };
        let mut prefix = Vec::new();
        layout.encode_partition(std::iter::once(&b"p"[..]), &mut prefix).unwrap();
        let mut header = prefix.clone();
        push_header(&mut header);
        let mut partition_end = prefix.clone();
        push_partition_end(&mut partition_end);
        push_row(&mut prefix);
        let (from, to) = (bound(kinds % 3, &lower_wire[..]), bound(kinds / 3, &upper_wire[..]));
        let (start, end) = layout.slice(&prefix, 0, from, to).unwrap();
        for value in values {
            let mut key = prefix.clone();
            layout.push_clusterings([&value.to_be_bytes()[..], b"x"].into_iter(), &mut key).unwrap();
            let above = match kinds % 3 { 0 => true, 1 => value >= lower, _ => value > lower };
            let below = match kinds / 3 { 0 => true, 1 => value <= upper, _ => value < upper };
            prop_assert_eq!(start <= key && key < end, above && below);
            prop_assert!(header < key && key < partition_end);
        }
    }

    #[test]
    fn no_input_panics(bytes: Vec<u8>, data_type in ordered_types(), order in prop::sample::select(vec![Order::Asc, Order::Desc])) {
        let layout = layout(&[data_type.clone(), CqlType::Int], &[(data_type.clone(), order), (CqlType::Decimal, order)]);
        let mut decoded = DecodedKey::default();
        let _ = layout.decode(&bytes, &mut decoded);
        let _ = layout.partition_len(&bytes);
        let mut out = Vec::new();
        let _ = layout.push_clustering(0, &bytes, &mut out);
        let _ = layout.push_clustering(1, &bytes, &mut out);
        let _ = compare(&data_type, &bytes, &out);
        let mut row = Vec::new();
        layout.encode_partition([&b"\0\0\0\x01"[..], b"\0\0\0\x01"].into_iter(), &mut row).ok();
        push_row(&mut row);
        row.extend_from_slice(&bytes);
        let _ = layout.decode(&row, &mut decoded);
    }

    #[test]
    fn token_bounds_enclose_their_token(token: i64, other: i64) {
        let bounds = |token| { let (mut start, mut end) = (Vec::new(), Vec::new()); push_token_start(token, &mut start); push_token_end(token, &mut end); (start, end) };
        let (start, end) = bounds(token);
        let mut key = Vec::new();
        push_token_start(other, &mut key);
        key.push(PRESENT);
        prop_assert_eq!(start <= key && key < end, token == other);
        prop_assert_eq!(start <= key, token <= other);
        prop_assert_eq!(token_of(&key), Ok(other));
    }
}

#[test]
fn numbers_come_back_in_canonical_form() {
    let decimal = |scale: i32, unscaled: i64| {
        let mut wire = scale.to_be_bytes().to_vec();
        wire.extend_from_slice(&num_bigint::BigInt::from(unscaled).to_signed_bytes_be());
        wire
    };
    let layout = layout(&[CqlType::Text], &[(CqlType::Decimal, Order::Desc)]);
    for (given, canonical) in [
        (decimal(2, 150), decimal(1, 15)),
        (decimal(-2, 1), decimal(0, 100)),
        (decimal(0, 100), decimal(0, 100)),
        (decimal(5, 0), decimal(0, 0)),
        (decimal(2_000_000_000, -70), decimal(1_999_999_999, -7)),
        (decimal(i32::MIN, 70), decimal(i32::MIN, 70)),
    ] {
        let mut decoded = DecodedKey::default();
        layout.decode(&clustering_key(&layout, &given), &mut decoded).unwrap();
        assert_eq!(decoded.clustering(0).unwrap(), canonical);
    }
}

#[test]
fn keys_that_are_too_long_or_empty_are_refused() {
    let layout = layout(&[CqlType::Text], &[(CqlType::Text, Order::Asc), (CqlType::Text, Order::Asc)]);
    let long = vec![b'x'; 40_000];
    let mut out = vec![1];
    let error = layout.encode_partition(std::iter::once(&b""[..]), &mut out).unwrap_err();
    assert_eq!(error.to_string(), "Key may not be empty");
    let error = layout.push_clusterings([&long[..], &long[..]].into_iter(), &mut out).unwrap_err();
    assert_eq!(error.to_string(), "Key length of 80000 is longer than maximum of 65535");
    let longer = vec![b'x'; 65_536];
    let error = layout.encode_partition(std::iter::once(&longer[..]), &mut Vec::new()).unwrap_err();
    assert_eq!(error, KeyError::TooLong(65_536, 65_535));
}
