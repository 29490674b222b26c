//! Arithmetic at its limits: results as they are worked out the long way, bounded work, and clear refusals.

use crate::functions::mask::{self, Mask};
use crate::functions::number::{Decimal, DecimalSum, Number};
use crate::functions::{arithmetic, cast, collections, document};
use crate::steps;
use diorite_base::limits::{MAX_MUTATION_BYTES, MAX_NUMBER_BYTES};
use diorite_cql::language::ast::ArithmeticOperator;
use diorite_model::types::{CqlType, Frozen};
use diorite_model::value::collection;
use num_bigint::BigInt;
use proptest::prelude::*;
use std::sync::Arc;

fn decimal(unscaled: impl Into<BigInt>, scale: i32) -> Vec<u8> {
    let mut wire = Vec::new();
    Number::Exact(Decimal { unscaled: unscaled.into(), scale }).write(&CqlType::Decimal, &mut wire).unwrap();
    wire
}

fn ten_to(exponent: u32) -> BigInt {
    BigInt::from(10).pow(exponent)
}

fn calculated(operator: ArithmeticOperator, of: &CqlType, one: &[u8], other: &[u8]) -> Result<Vec<u8>, String> {
    let result = arithmetic::apply(operator, (of, one), (of, other));
    result.map(|result| result.unwrap()).map_err(|error| error.message.into_owned())
}

/// Without zeros at the end, one after the other.
fn stripped_slowly(Decimal { mut unscaled, mut scale }: Decimal) -> Decimal {
    while unscaled != BigInt::from(0) && &unscaled % 10 == BigInt::from(0) && scale > i32::MIN {
        unscaled /= 10;
        scale -= 1;
    }
    Decimal { unscaled, scale }
}

proptest! {
    #[test]
    fn zeros_are_stripped_as_one_after_the_other(digits in 1i64.., zeros in 0u32..300, scale in prop_oneof![Just(0), 0..500, i32::MIN..i32::MIN + 300]) {
        let value = Decimal { unscaled: BigInt::from(digits) * ten_to(zeros), scale };
        let expected = stripped_slowly(value.clone());
        prop_assert_eq!(value.stripped(), expected);
    }

    #[test]
    fn digits_are_counted(value: i128, exponent in 0u32..200, around in -1i32..2) {
        for unscaled in [BigInt::from(value), ten_to(exponent) + around, -(ten_to(exponent) + around)] {
            let expected = unscaled.magnitude().to_string().len() as i64;
            prop_assert_eq!(Decimal { unscaled, scale: 0 }.digits(), expected);
        }
    }

    #[test]
    fn sums_of_many_are_sums_of_two(values in prop::collection::vec((any::<i64>(), -20i32..20), 0..20)) {
        let values: Vec<_> =
            values.into_iter().map(|(unscaled, scale)| Decimal { unscaled: unscaled.into(), scale }).collect();
        let mut sum = DecimalSum::default();
        values.iter().for_each(|value| sum.add(value.clone()).unwrap());
        let one_by_one = values.iter().cloned().reduce(|sum, value| sum.add(&value).unwrap());
        prop_assert_eq!(sum.total(), one_by_one.unwrap_or_else(Decimal::zero));
    }

    #[test]
    fn truncation_keeps_what_stands_before_the_point(unscaled: i64, scale in -5i32..25) {
        let value = Decimal { unscaled: unscaled.into(), scale };
        let expected = match u32::try_from(scale) {
            Ok(places) => BigInt::from(unscaled) / ten_to(places),
            Err(_) => BigInt::from(unscaled) * ten_to(scale.unsigned_abs()),
        };
        prop_assert_eq!(value.truncated().unwrap(), expected);
    }
}

#[test]
fn a_quotient_with_many_zeros_takes_few_divisions() {
    let dividend = Decimal { unscaled: ten_to(9_700), scale: 0 };
    let (quotient, steps) = steps::of(|| dividend.divide(&Decimal { unscaled: 1.into(), scale: 0 }).unwrap());
    assert_eq!(quotient, Decimal { unscaled: 1.into(), scale: -9_700 });
    assert!(steps <= 32, "{steps} divisions to take the zeros off");
}

#[test]
fn what_is_too_far_apart_or_too_long_is_refused_by_name() {
    use ArithmeticOperator::{Add, Divide, Modulo, Multiply, Subtract};
    let (one, huge, tiny) = (decimal(1, 0), decimal(1, i32::MIN), decimal(1, i32::MAX));
    for operator in [Add, Subtract, Modulo] {
        for far in [&huge, &tiny] {
            for (left, right) in [(&one, far), (far, &one)] {
                let refused = calculated(operator, &CqlType::Decimal, left, right).unwrap_err();
                assert!(refused.contains("differ too much in scale"), "{refused}");
            }
        }
    }
    for far in [&huge, &tiny] {
        assert!(calculated(Divide, &CqlType::Decimal, &one, far).is_err());
    }
    assert!(calculated(Multiply, &CqlType::Decimal, &tiny, &tiny).unwrap_err().contains("scale is out of range"));
    // As many digits as fit, and twice as many.
    let long = decimal(ten_to(9_800) - 1, 0);
    let refused = calculated(Multiply, &CqlType::Decimal, &long, &long).unwrap_err();
    assert!(refused.contains(&format!("at most {MAX_NUMBER_BYTES} bytes")), "{refused}");
    let long = (ten_to(9_800) - 1i32).to_signed_bytes_be();
    let refused = calculated(Multiply, &CqlType::Varint, &long, &long).unwrap_err();
    assert!(refused.contains(&format!("at most {MAX_NUMBER_BYTES} bytes")), "{refused}");
    assert!(calculated(Divide, &CqlType::Varint, &long, &[3]).is_ok());
    let text = vec![b'x'; MAX_MUTATION_BYTES];
    assert_eq!(calculated(Add, &CqlType::Text, &text, b"").unwrap().len(), MAX_MUTATION_BYTES);
    assert!(calculated(Add, &CqlType::Text, &text, b"y").unwrap_err().contains("16777216 bytes"));
}

#[test]
fn decimals_of_any_scale_are_cast_or_refused() {
    let to = |target: &CqlType, wire: &[u8]| cast(&CqlType::Decimal, target, wire).map(Option::unwrap);
    for scale in [i32::MIN, -1_000_000_000, -20_000] {
        for target in [CqlType::Varint, CqlType::Bigint, CqlType::Tinyint] {
            assert!(to(&target, &decimal(7, scale)).unwrap_err().message.contains("too large"), "{scale}");
            assert!(to(&target, &decimal(0, scale)).is_ok());
        }
        assert_eq!(to(&CqlType::Double, &decimal(7, scale)).unwrap(), f64::INFINITY.to_be_bytes());
        assert!(to(&CqlType::Text, &decimal(7, scale)).unwrap().starts_with(b"7E+"));
    }
    for scale in [20_000, 1_000_000_000, i32::MAX] {
        assert_eq!(to(&CqlType::Varint, &decimal(-7, scale)).unwrap(), [0]);
        assert_eq!(to(&CqlType::Int, &decimal(7, scale)).unwrap(), [0; 4]);
        assert_eq!(to(&CqlType::Double, &decimal(7, scale)).unwrap(), 0f64.to_be_bytes());
        assert!(to(&CqlType::Text, &decimal(7, scale)).unwrap().starts_with(b"7E-"));
    }
    assert_eq!(to(&CqlType::Bigint, &decimal(-1_999, 3)).unwrap(), (-1i64).to_be_bytes());
    assert_eq!(to(&CqlType::Tinyint, &decimal(300, 0)).unwrap(), [44]);
    let wide: BigInt = ten_to(9_000) + 5;
    let narrowed = cast(&CqlType::Varint, &CqlType::Bigint, &wide.to_signed_bytes_be()).unwrap().unwrap();
    assert_eq!(narrowed, 5i64.to_be_bytes(), "the low bits: 10^9000 is a multiple of 2^64");
}

#[test]
fn a_sum_of_a_collection_is_bounded_too() {
    let list = CqlType::List(Arc::new(CqlType::Decimal), Frozen::Yes);
    let of = |scales: &[i32]| {
        let mut wire = Vec::new();
        collection::push_count(scales.len(), &mut wire);
        scales.iter().for_each(|scale| collection::push_element(Some(&decimal(1, *scale)), &mut wire));
        collections::sum(&list, &wire, false)
    };
    assert_eq!(of(&[0, 2, 1]).unwrap(), decimal(111, 2));
    assert!(of(&[0, i32::MAX]).unwrap_err().message.contains("differ too much in scale"));
    assert!(of(&[i32::MIN, i32::MAX]).is_err());
}

#[test]
fn of_two_members_of_one_name_the_later_counts() {
    let row = document::parse_row(br#"{"a": 1, "b": 2, "A": 3}"#, ["a", "b"].into_iter()).unwrap();
    let three = document::Member::Value(Some(3i32.to_be_bytes().to_vec()));
    assert_eq!(document::member(&row, "a", &CqlType::Int).unwrap(), three);
    assert!(document::parse_row(br#"{"c": 1}"#, ["a"].into_iter()).is_err());
}

#[test]
fn the_default_of_vectors_of_vectors_is_refused_before_it_is_made() {
    let vector = |of| CqlType::Vector(Arc::new(of), 8_192);
    let deep = vector(vector(vector(vector(vector(vector(CqlType::Int))))));
    let refused = mask::apply(Mask::Default, &deep, &[]).unwrap_err();
    assert!(refused.message.contains("16777216 bytes"), "{}", refused.message);
    assert_eq!(mask::apply(Mask::Default, &vector(CqlType::Int), &[]).unwrap().map(|value| value.len()), Some(32_768));
    // Lengths that would wrap around fit no value.
    assert!(deep.validate(&[]).is_err() && deep.validate(&[0; 64]).is_err());
}
