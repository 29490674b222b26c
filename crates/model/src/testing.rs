//! Test data shared by the property tests: types, values of a type, layouts.

use crate::key::KeyLayout;
use crate::schema::{Column, ColumnKind, Order, Table};
use crate::types::{CqlType, Frozen, UserType};
use crate::value::collection::{push_count, push_element, push_signed_vint, push_vector_element};
use diorite_base::TableId;
use proptest::prelude::*;
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Counts one step: a cell, element or range was read, or two of them were compared.
pub(crate) fn count_step() {
    STEPS.set(STEPS.get() + 1);
}

/// How many steps `work` takes.
pub(crate) fn steps_of(work: impl FnOnce()) -> u64 {
    let before = STEPS.get();
    work();
    STEPS.get() - before
}

/// A layout with these key columns.
pub(crate) fn layout(partition: &[CqlType], clustering: &[(CqlType, Order)]) -> KeyLayout {
    let kinds = partition.iter().map(|data_type| (data_type, ColumnKind::PartitionKey));
    let kinds = kinds.chain(clustering.iter().map(|(data_type, order)| (data_type, ColumnKind::Clustering(*order))));
    let columns: Vec<_> = kinds
        .enumerate()
        .map(|(at, (data_type, kind))| Column {
            id: at as u32,
            name: format!("c{at}"),
            data_type: data_type.clone(),
            kind,
        })
        .collect();
    KeyLayout::new(&Table {
        id: TableId(1),
        uuid: uuid::Uuid::nil(),
        keyspace: "k".into(),
        name: "t".into(),
        version: 1,
        next_column_id: columns.len() as u32,
        indexes: Vec::new(),
        deferred_indexes: Vec::new(),
        index_of: None,
        views: Vec::new(),
        view: None,
        columns,
        default_ttl_s: 0,
        gc_grace_s: 0,
        options: Default::default(),
    })
}

/// Any native type that may be part of a key.
fn native_types() -> impl Strategy<Value = CqlType> {
    prop::sample::select(vec![
        CqlType::Ascii,
        CqlType::Bigint,
        CqlType::Blob,
        CqlType::Boolean,
        CqlType::Date,
        CqlType::Decimal,
        CqlType::Double,
        CqlType::Float,
        CqlType::Inet,
        CqlType::Int,
        CqlType::Smallint,
        CqlType::Text,
        CqlType::Time,
        CqlType::Timestamp,
        CqlType::Timeuuid,
        CqlType::Tinyint,
        CqlType::Uuid,
        CqlType::Varint,
    ])
}

/// Any type that may be part of a key.
pub(crate) fn ordered_types() -> impl Strategy<Value = CqlType> {
    native_types().prop_recursive(2, 6, 3, |inner| {
        let inner = inner.prop_map(Arc::new).boxed();
        let user = |fields: Vec<Arc<CqlType>>| {
            let fields = fields.into_iter().enumerate().map(|(at, field)| (format!("f{at}"), (*field).clone()));
            Arc::new(UserType { keyspace: "k".into(), name: "u".into(), fields: fields.collect() })
        };
        let several = prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            inner.clone().prop_map(|element| CqlType::List(element, Frozen::Yes)),
            inner.clone().prop_map(|element| CqlType::Set(element, Frozen::Yes)),
            (inner.clone(), inner.clone()).prop_map(|(key, value)| CqlType::Map(key, value, Frozen::Yes)),
            several.clone().prop_map(|types| CqlType::Tuple(types.iter().map(|one| (**one).clone()).collect())),
            several.prop_map(move |types| CqlType::UserDefined(user(types), Frozen::Yes)),
            (inner, 1u16..4).prop_map(|(element, dimension)| CqlType::Vector(element, dimension)),
        ]
    })
}

/// Every type, `duration` too.
pub(crate) fn all_types() -> impl Strategy<Value = CqlType> {
    prop_oneof![9 => ordered_types(), 1 => Just(CqlType::Duration)]
}

fn fixed<const N: usize>() -> BoxedStrategy<Vec<u8>> {
    // Few distinct bytes, so that values share prefixes and hit the edges.
    let byte = prop_oneof![Just(0u8), Just(1), Just(0x7F), Just(0x80), Just(0xFF), any::<u8>()];
    prop::collection::vec(byte, N).boxed()
}

fn scalar(data_type: &CqlType) -> BoxedStrategy<Vec<u8>> {
    let short_bytes = || prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(2), Just(0xFF), any::<u8>()], 0..9);
    match data_type {
        CqlType::Ascii => "[\\x00-\\x02a-c]{0,6}".prop_map(String::into_bytes).boxed(),
        CqlType::Text => "[\\x00-\\x02a-cäß€]{0,6}".prop_map(String::into_bytes).boxed(),
        CqlType::Blob => short_bytes().boxed(),
        CqlType::Inet => prop_oneof![fixed::<4>(), fixed::<16>()].boxed(),
        CqlType::Varint => prop_oneof![short_bytes(), prop::collection::vec(any::<u8>(), 115..125)]
            .prop_filter("a varint has a byte", |bytes| !bytes.is_empty())
            .boxed(),
        CqlType::Decimal => (-4i32..4, prop_oneof![-1200i64..1200, any::<i64>()])
            .prop_map(|(scale, unscaled)| {
                let mut wire = scale.to_be_bytes().to_vec();
                wire.extend_from_slice(&num_bigint::BigInt::from(unscaled).to_signed_bytes_be());
                wire
            })
            .boxed(),
        CqlType::Time => (0..crate::value::DAY_NS).prop_map(|time| time.to_be_bytes().to_vec()).boxed(),
        CqlType::Timeuuid => fixed::<16>()
            .prop_map(|mut bytes| {
                bytes[6] = 0x10 | (bytes[6] & 0xF);
                bytes
            })
            .boxed(),
        CqlType::Duration => (0i32..9, 0i32..9, 0i64..9, any::<bool>())
            .prop_map(|(months, days, nanoseconds, negative)| {
                let sign = if negative { -1 } else { 1 };
                let mut wire = Vec::new();
                for part in [i64::from(months), i64::from(days), nanoseconds] {
                    push_signed_vint(sign * part, &mut wire);
                }
                wire
            })
            .boxed(),
        other => match other.fixed_length() {
            Some(1) => fixed::<1>(),
            Some(2) => fixed::<2>(),
            Some(4) => fixed::<4>(),
            Some(8) => fixed::<8>(),
            _ => fixed::<16>(),
        },
    }
}

fn fields_of(types: Vec<CqlType>) -> BoxedStrategy<Vec<u8>> {
    let fields: Vec<_> = types.iter().map(|field| prop::option::of(value_of(field))).collect();
    (fields, 0usize..5)
        .prop_map(|(fields, kept)| {
            let mut wire = Vec::new();
            let kept = kept.clamp(1, fields.len());
            fields[..kept].iter().for_each(|field| push_element(field.as_deref(), &mut wire));
            wire
        })
        .boxed()
}

/// Valid wire bytes of a type, empty ones among them where they are allowed.
pub(crate) fn value_of(data_type: &CqlType) -> BoxedStrategy<Vec<u8>> {
    let collection = |elements: Vec<Vec<u8>>, per_entry: usize| {
        let mut wire = Vec::new();
        push_count(elements.len() / per_entry, &mut wire);
        elements.iter().for_each(|element| push_element(Some(element), &mut wire));
        wire
    };
    let some = match data_type {
        CqlType::List(element, _) | CqlType::Set(element, _) => {
            prop::collection::vec(value_of(element), 0..4).prop_map(move |all| collection(all, 1)).boxed()
        }
        CqlType::Map(key, value, _) => prop::collection::vec((value_of(key), value_of(value)), 0..4)
            .prop_map(move |all| collection(all.into_iter().flat_map(|(key, value)| [key, value]).collect(), 2))
            .boxed(),
        CqlType::Tuple(types) => fields_of(types.to_vec()),
        CqlType::UserDefined(user, _) => fields_of(user.fields.iter().map(|(_, field)| field.clone()).collect()),
        CqlType::Vector(element, dimension) => {
            let element_type = element.clone();
            let fixed = element.vector_element_length().is_some();
            prop::collection::vec(value_of(element), usize::from(*dimension))
                .prop_filter("an empty value has no place among bare ones", move |all| {
                    !fixed || all.iter().all(|value| !value.is_empty())
                })
                .prop_map(move |all| {
                    let mut wire = Vec::new();
                    all.iter().for_each(|value| push_vector_element(&element_type, value, &mut wire));
                    wire
                })
                .boxed()
        }
        scalar_type => scalar(scalar_type),
    };
    if data_type.allows_empty() { prop_oneof![19 => some, 1 => Just(Vec::new())].boxed() } else { some }
}
