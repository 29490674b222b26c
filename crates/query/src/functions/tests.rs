//! Functions over known moments, numbers and blobs.

#![allow(clippy::unwrap_used, reason = "test data is known")]
use super::mask::Mask;
use super::*;
use crate::budget::Budget;
use diorite_base::account::Meter;
use diorite_base::random::SplitMix64;
use diorite_model::types::{CqlType, Frozen, UserType};
use diorite_model::value::collection::{push_count, push_element};
use std::borrow::Cow;
use std::sync::Arc;

mod numbers;

fn call(name: &str, from: &CqlType, wire: &[u8]) -> Option<Vec<u8>> {
    let uuids = UuidSource::new(SplitMix64::new(1));
    let environment = Environment::new(1_700_000_000_123_456, &uuids);
    let found = overloads(name).into_iter().find(|overload| overload.arguments.first() == Some(from)).unwrap();
    found.function.call(&[Some(Cow::Borrowed(wire))], &environment).unwrap()
}

#[test]
fn time_based_uuids_grow_and_carry_their_time() {
    let uuids = UuidSource::new(SplitMix64::new(1));
    let first = uuids.time_based(1_700_000_000_123_456);
    let second = uuids.time_based(1_700_000_000_123_456);
    assert_ne!(first, second);
    assert_eq!(first[6] >> 4, 1);
    let ms = call("totimestamp", &CqlType::Timeuuid, &first).unwrap();
    assert_eq!(i64::from_be_bytes(ms.try_into().unwrap()), 1_700_000_000_123);
}

#[test]
fn moments_convert() {
    let day = call("todate", &CqlType::Timestamp, &(86_400_000i64 * 3 + 5).to_be_bytes()).unwrap();
    assert_eq!(u32::from_be_bytes(day.clone().try_into().unwrap()), (1 << 31) + 3);
    let ms = call("to_unix_timestamp", &CqlType::Date, &day).unwrap();
    assert_eq!(i64::from_be_bytes(ms.try_into().unwrap()), 86_400_000 * 3);
}

#[test]
fn numbers_are_cast_as_java_does() {
    let int = |value: i32| value.to_be_bytes();
    assert_eq!(cast(&CqlType::Int, &CqlType::Tinyint, &int(300)).unwrap().unwrap(), [44]);
    assert_eq!(cast(&CqlType::Int, &CqlType::Bigint, &int(-2)).unwrap().unwrap(), (-2i64).to_be_bytes());
    assert_eq!(cast(&CqlType::Double, &CqlType::Int, &(-2.9f64).to_be_bytes()).unwrap().unwrap(), int(-2));
    assert_eq!(cast(&CqlType::Int, &CqlType::Text, &int(-7)).unwrap().unwrap(), b"-7");
}

#[test]
fn blobs_are_checked_on_the_way_back() {
    let uuids = UuidSource::new(SplitMix64::new(1));
    let environment = Environment::new(0, &uuids);
    let function = overloads("blobasint").remove(0).function;
    assert!(function.call(&[Some(Cow::Borrowed(&[1, 2]))], &environment).is_err());
    assert_eq!(function.call(&[None], &environment).unwrap(), None);
}

#[test]
fn what_is_made_of_few_bytes_is_charged_before_it_is_made() {
    let uuids = UuidSource::new(SplitMix64::new(1));
    let budget = Budget::new(Meter::alone(1 << 20), u64::MAX);
    let environment = Environment { budget: &budget, ..Environment::new(0, &uuids) };
    let fields = (0..100).map(|at| (format!("{}{at}", "f".repeat(100)), CqlType::Int)).collect();
    let wide = UserType { keyspace: "ks".to_owned(), name: "wide".to_owned(), fields };
    let list = |element| CqlType::List(Arc::new(element), Frozen::Yes);
    // Each element has no bytes: all fields of a user type are null.
    let empty = |count: usize| {
        let mut wire = Vec::new();
        push_count(count, &mut wire);
        (0..count).for_each(|_| push_element(Some(&[]), &mut wire));
        wire
    };
    let long = CqlType::Vector(Arc::new(CqlType::Vector(Arc::new(CqlType::Int), 1_000)), 1_000);
    for (function, wire) in [
        (Function::ToJson(list(CqlType::UserDefined(Arc::new(wide), Frozen::Yes))), empty(1_000)),
        (Function::CollectionCount(list(CqlType::Blob)), empty(30_000)),
        (Function::Mask(Mask::Default, long), Vec::new()),
    ] {
        let refused = function.call(&[Some(Cow::Borrowed(wire.as_slice()))], &environment).unwrap_err();
        assert!(refused.message.contains("the limit of 1048576 bytes"), "{function:?}: {}", refused.message);
    }
    assert_eq!(budget.meter().used_bytes(), 0);
}
