//! The golden bytes of keys: each type as a clustering column in both orders, and as a partition column.

use super::golden;
use crate::key::{DecodedKey, KeyLayout, RowKind, push_header, push_row, push_static};
use crate::schema::Order;
use crate::testing::layout;
use crate::types::{CqlType, Frozen, UserType};
use diorite_golden::{Decoded, kinds};
use std::sync::Arc;

kinds!(TYPES, type_of(CqlType):
    Ascii, Bigint, Blob, Boolean, Counter, Date, Decimal, Double, Duration, Float, Inet, Int, Jsonb, Smallint, Text,
    Time, Timestamp, Timeuuid, Tinyint, Uuid, Varint, List, Set, Map, Tuple, UserDefined, Vector);
kinds!(KINDS, kind_of(RowKind): Header, Static, Regular);

fn element(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

fn elements(all: &[&[u8]]) -> Vec<u8> {
    all.iter().flat_map(|bytes| element(bytes)).collect()
}

fn counted(all: &[&[u8]], entries: u32) -> Vec<u8> {
    [entries.to_be_bytes().to_vec(), elements(all)].concat()
}

fn uuid(version: u8) -> Vec<u8> {
    let mut bytes: Vec<u8> = (1..=16).map(|at| at * 15).collect();
    bytes[6] = version << 4 | 3;
    bytes
}

/// Types and two values of each, as on the wire.
fn natives() -> Vec<(CqlType, [Vec<u8>; 2])> {
    let decimal = |scale: i32, unscaled: &[u8]| [&scale.to_be_bytes(), unscaled].concat();
    vec![
        (CqlType::Ascii, [vec![], b"a\x00\x01b".to_vec()]),
        (CqlType::Bigint, [i64::MIN, 1 << 40].map(|value| value.to_be_bytes().to_vec())),
        (CqlType::Blob, [vec![0, 0, 1, 0xFF], vec![0xFF; 3]]),
        (CqlType::Boolean, [vec![0], vec![1]]),
        (CqlType::Date, [vec![0x80, 0, 0, 0], vec![0x7F, 0xFF, 0xFF, 0xFF]]),
        (CqlType::Decimal, [decimal(2, &[0xFB, 0x2E]), decimal(-3, &[7])]),
        (CqlType::Double, [f64::NEG_INFINITY, 1.5].map(|value| value.to_be_bytes().to_vec())),
        (CqlType::Float, [-0.0_f32, f32::NAN].map(|value| value.to_be_bytes().to_vec())),
        (CqlType::Inet, [vec![127, 0, 0, 1], uuid(4)]),
        (CqlType::Int, [-1, 7].map(|value: i32| value.to_be_bytes().to_vec())),
        (CqlType::Jsonb, [b"{\"a\":[1,null]}".to_vec(), b"1".to_vec()]),
        (CqlType::Smallint, [-2, 300].map(|value: i16| value.to_be_bytes().to_vec())),
        (CqlType::Text, ["", "gr\u{fc}n"].map(|text| text.as_bytes().to_vec())),
        (CqlType::Time, [0, 86_399_999_999_999].map(|value: i64| value.to_be_bytes().to_vec())),
        (CqlType::Timestamp, [-1, 1_700_000_000_000].map(|value: i64| value.to_be_bytes().to_vec())),
        (
            CqlType::Timeuuid,
            [
                uuid(1),
                uuid(1).into_iter().rev().enumerate().map(|(at, byte)| if at == 6 { 0x12 } else { byte }).collect(),
            ],
        ),
        (CqlType::Tinyint, [vec![0x80], vec![0x7F]]),
        (CqlType::Uuid, [uuid(4), uuid(1)]),
        (CqlType::Varint, [vec![0xFF, 0x00], [vec![1], vec![0; 120]].concat()]),
    ]
}

fn user_type() -> CqlType {
    let fields = vec![("street".to_owned(), CqlType::Text), ("number".to_owned(), CqlType::Int)];
    CqlType::UserDefined(Arc::new(UserType { keyspace: "ks".into(), name: "address".into(), fields }), Frozen::Yes)
}

fn nested() -> Vec<(CqlType, [Vec<u8>; 2])> {
    let (text, int) = (Arc::new(CqlType::Text), Arc::new(CqlType::Int));
    let (one, two): (&[u8], &[u8]) = (&[0, 0, 0, 1], &[0, 0, 0, 2]);
    let null = [&element(b"x")[..], &[0xFF; 4]].concat();
    vec![
        (CqlType::List(int.clone(), Frozen::Yes), [counted(&[], 0), counted(&[two, one], 2)]),
        (CqlType::Set(text.clone(), Frozen::Yes), [counted(&[b""], 1), counted(&[b"a", b"b"], 2)]),
        (CqlType::Map(text, int.clone(), Frozen::Yes), [counted(&[], 0), counted(&[b"a", one], 1)]),
        (CqlType::Tuple([CqlType::Text, CqlType::Int].into()), [elements(&[b"a", one]), null.clone()]),
        (user_type(), [elements(&[b"a", two]), null]),
        (CqlType::Vector(int, 2), [[one, two].concat(), [two, one].concat()]),
    ]
}

/// Types that are no part of keys.
fn is_no_key(data_type: &CqlType) -> bool {
    matches!(data_type, CqlType::Counter | CqlType::Duration)
}

fn types() -> Vec<(CqlType, [Vec<u8>; 2])> {
    natives().into_iter().chain(nested()).collect()
}

/// Layout of the keys with this type: a partition of it and a text, clustered by it in both orders.
fn layout_of(data_type: &CqlType) -> KeyLayout {
    let clustering = [Order::Asc, Order::Desc].map(|order| (data_type.clone(), order));
    layout(&[data_type.clone(), CqlType::Text], &clustering)
}

fn key(layout: &KeyLayout, [partition, one, other]: [&[u8]; 3]) -> Vec<u8> {
    let mut key = Vec::new();
    layout.encode_partition([partition, b"p"].into_iter(), &mut key).unwrap();
    push_row(&mut key);
    layout.push_clusterings([one, other].into_iter(), &mut key).unwrap();
    key
}

#[test]
fn keys_have_their_bytes() {
    let types = types();
    let named = |data_type: &CqlType| data_type.to_string();
    let layout_named = |name: &str| {
        let found = types.iter().find(|(data_type, _)| name.starts_with(&format!("{}:", named(data_type))));
        layout_of(&found.unwrap().0)
    };
    let mut written = Vec::new();
    for (data_type, [a, b]) in &types {
        let layout = layout_of(data_type);
        written.push((format!("{}: of a row", named(data_type)), key(&layout, [a, a, b])));
        written.push((format!("{}: of another row", named(data_type)), key(&layout, [b, b, a])));
        for (kind, push) in [("header", push_header as fn(&mut Vec<u8>)), ("static row", push_static)] {
            if matches!(data_type, CqlType::Int) {
                let mut key = Vec::new();
                layout.encode_partition([&a[..], b"p"].into_iter(), &mut key).unwrap();
                push(&mut key);
                written.push((format!("{}: {kind}", named(data_type)), key));
            }
        }
    }
    let cases: Vec<_> = written.iter().map(|(name, key)| (name.as_str(), key.clone())).collect();
    golden("keys", &[KINDS]).check(&cases, |name, bytes| {
        let layout = layout_named(name);
        let mut decoded = DecodedKey::default();
        layout.decode(bytes, &mut decoded).unwrap();
        let columns = [decoded.partition(0), decoded.partition(1)];
        let clustering = [decoded.clustering(0), decoded.clustering(1)];
        let kind = decoded.kind();
        let encoded = clustering[0].zip(clustering[1]).map(|(one, other)| key(&layout, [columns[0], one, other]));
        let shown = format!("{kind:?}, token {}: {columns:?} {clustering:?}", decoded.token());
        Decoded { kinds: vec![kind_of(&kind)], shown, encoded }
    });
    let of_keys = types.iter().map(|(data_type, _)| type_of(data_type)).collect::<std::collections::BTreeSet<_>>();
    let missing: Vec<_> = TYPES.iter().filter(|kind| !of_keys.contains(*kind)).collect();
    assert!([CqlType::Counter, CqlType::Duration].iter().all(is_no_key));
    assert_eq!(missing, [&"CqlType::Counter", &"CqlType::Duration"], "a type without golden bytes of its keys");
}
