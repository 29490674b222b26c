//! Values: literals, rendering, validation and order.
#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]
use super::collection::{push_count, push_element};
use super::literal::{Literal, LiteralError, from_literal, from_text};
use super::*;
use crate::testing::{all_types, value_of};
use crate::types::{CqlType, Frozen};
use proptest::prelude::*;
use std::cmp::Ordering;
use std::sync::Arc;

fn typed() -> impl Strategy<Value = (CqlType, Vec<u8>)> {
    all_types().prop_flat_map(|data_type| value_of(&data_type).prop_map(move |wire| (data_type.clone(), wire)))
}

fn wire(data_type: &CqlType, text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    from_text(data_type, text, &mut out).map_err(|error| error.to_string())?;
    assert_eq!(data_type.validate(&out), Ok(()));
    Ok(out)
}

fn shown(data_type: &CqlType, wire: &[u8]) -> String {
    let mut out = String::new();
    literal_text(data_type, wire, &mut out).unwrap();
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn json_is_no_longer_than_expected((data_type, wire) in typed()) {
        let mut text = String::new();
        if json::write_json(&data_type, &wire, &mut text).is_ok() {
            let most = json::json_bytes(&data_type, &wire).unwrap();
            prop_assert!(text.len() <= most, "{} bytes, at most {}: {}", text.len(), most, text);
        }
    }

    #[test]
    fn values_round_trip((data_type, wire) in typed()) {
        prop_assert_eq!(data_type.validate(&wire), Ok(()));
        let value = Value::decode(&data_type, &wire).unwrap();
        let mut again = Vec::new();
        value.encode(&data_type, &mut again).unwrap();
        prop_assert_eq!(compare(&data_type, &wire, &again), Ordering::Equal);
    }

    #[test]
    fn canonical_values_are_sorted_once_and_for_all((data_type, wire) in typed()) {
        let once = canonical(&data_type, &wire).unwrap().into_owned();
        prop_assert_eq!(data_type.validate(&once), Ok(()));
        prop_assert!(matches!(canonical(&data_type, &once).unwrap(), std::borrow::Cow::Borrowed(_)));
        if let CqlType::Set(element, _) = &data_type {
            let values: Vec<_> = collection::elements(&once).unwrap().map(Result::unwrap).collect();
            prop_assert!(values.windows(2).all(|pair| compare(element, pair[0], pair[1]) == Ordering::Less));
        }
    }

    #[test]
    fn literals_read_back_as_what_they_show((data_type, wire) in typed()) {
        let text = shown(&data_type, &wire);
        if data_type.native_name().is_some() && !wire.is_empty() && data_type.fixed_length() != Some(1) {
            let bare = text.strip_prefix("0x").unwrap_or(&text);
            let bare = bare.strip_prefix('\'').and_then(|bare| bare.strip_suffix('\'')).unwrap_or(bare).replace("''", "'");
            let mut again = Vec::new();
            // Years of more than nine digits and IPv4 addresses in IPv6 form are shown, but are not read back from that
            // text.
            if from_text(&data_type, &bare, &mut again).is_ok() && data_type != CqlType::Inet {
                prop_assert_eq!(compare(&data_type, &wire, &again), Ordering::Equal, "{} {}", data_type, text);
            } else {
                prop_assert!(matches!(data_type, CqlType::Timestamp | CqlType::Inet), "{} {}", data_type, text);
            }
        }
    }

    #[test]
    fn no_input_panics(data_type in all_types(), bytes: Vec<u8>, other: Vec<u8>, text in "[-+0-9a-zA-Z:.TPZ µ'/]{0,24}") {
        let _ = Value::decode(&data_type, &bytes);
        let _ = canonical(&data_type, &bytes);
        let _ = compare(&data_type, &bytes, &other);
        let _ = literal_text(&data_type, &bytes, &mut String::new());
        let _ = from_text(&data_type, &text, &mut Vec::new());
    }
}

#[test]
fn timestamps_are_read_in_every_form() {
    for (text, expected) in [
        ("1299038700000", 1_299_038_700_000),
        ("-1", -1),
        ("2011-02-03", 1_296_691_200_000),
        ("2011-02-03+0100", 1_296_687_600_000),
        ("2011-02-03 04:05", 1_296_705_900_000),
        ("2011-02-03 04:05+0000", 1_296_705_900_000),
        ("2011-02-03 04:05:06", 1_296_705_906_000),
        ("2011-02-03T04:05:06.789", 1_296_705_906_789),
        ("2011-02-03T04:05:06.7Z", 1_296_705_906_700),
        ("2011-02-03 04:05:06.789 UTC", 1_296_705_906_789),
        ("2011-02-03T04:05:06.789123-05:30", 1_296_725_706_789),
        ("2011-02-03T04:05:06+02", 1_296_698_706_000),
        ("1969-12-31 23:59:59.999Z", -1),
    ] {
        assert_eq!(wire(&CqlType::Timestamp, text).unwrap(), i64::to_be_bytes(expected), "{text}");
    }
    for text in
        ["2011-02-30", "2011-13-01", "yesterday", "2011-02-03 24:00", "2011-02-03 04:05:06.789 Mars", "2011-02-03 +"]
    {
        let error = wire(&CqlType::Timestamp, text).unwrap_err();
        assert_eq!(error, format!("Unable to coerce '{text}' to a formatted date (long)"));
    }
    assert_eq!(shown(&CqlType::Timestamp, &(-1i64).to_be_bytes()), "'1969-12-31 23:59:59.999+0000'");
}

#[test]
fn dates_and_times_are_read_and_shown() {
    for (text, days) in [("1970-01-01", 1u32 << 31), ("1969-12-31", (1 << 31) - 1), ("2147483649", (1 << 31) + 1)] {
        assert_eq!(wire(&CqlType::Date, text).unwrap(), days.to_be_bytes());
    }
    assert_eq!(shown(&CqlType::Date, &((1u32 << 31) + 15_008).to_be_bytes()), "'2011-02-03'");
    for text in ["4294967296", "2011-02-03 04:05", "-1"] {
        assert!(wire(&CqlType::Date, text).is_err(), "{text}");
    }
    for (text, nanoseconds) in
        [("08:12:54", 29_574_000_000_000i64), ("08:12:54.123456789", 29_574_123_456_789), ("7", 7)]
    {
        assert_eq!(wire(&CqlType::Time, text).unwrap(), nanoseconds.to_be_bytes());
    }
    assert_eq!(shown(&CqlType::Time, &29_574_000_000_007i64.to_be_bytes()), "'08:12:54.000000007'");
    for text in ["24:00:00", "08:12", "86400000000000", "-1"] {
        assert!(wire(&CqlType::Time, text).is_err(), "{text}");
    }
}

#[test]
fn durations_are_read_in_every_form() {
    for (text, shown_as) in [
        ("1y2mo3w4d5h6m7s8ms9us10ns", "1y2mo25d5h6m7s8ms9us10ns"),
        ("89h4m48s", "89h4m48s"),
        ("-2d", "-2d"),
        ("3µs", "3us"),
        ("P1Y2M3DT4H5M6S", "1y2mo3d4h5m6s"),
        ("PT89H8M53S", "89h8m53s"),
        ("P4W", "28d"),
        ("-P1M", "-1mo"),
        ("P0001-02-03T04:05:06", "1y2mo3d4h5m6s"),
        ("0s", "0ns"),
    ] {
        assert_eq!(shown(&CqlType::Duration, &wire(&CqlType::Duration, text).unwrap()), shown_as, "{text}");
    }
    for text in ["", "P", "PT", "1", "1h1y", "1h1h", "99999999999y", "9223372036854775807s", "1x", "P1H"] {
        assert_eq!(wire(&CqlType::Duration, text).unwrap_err(), format!("Unable to convert '{text}' to a duration"));
    }
    assert_eq!(wire(&CqlType::Duration, "1mo2d3ns").unwrap(), [2, 4, 6]);
}

#[test]
fn numbers_are_read_exactly_or_refused() {
    assert_eq!(wire(&CqlType::Int, "-2147483648").unwrap(), i32::MIN.to_be_bytes());
    assert_eq!(wire(&CqlType::Int, "2147483648").unwrap_err(), "Unable to make int from '2147483648'");
    assert_eq!(wire(&CqlType::Bigint, "1.5").unwrap_err(), "Unable to make long from '1.5'");
    assert_eq!(wire(&CqlType::Varint, "-129").unwrap(), [0xFF, 0x7F]);
    assert!(wire(&CqlType::Varint, "1_0").is_err());
    assert_eq!(wire(&CqlType::Decimal, "-1.50").unwrap(), [0, 0, 0, 2, 0xFF, 0x6A]);
    assert_eq!(wire(&CqlType::Decimal, "1e3").unwrap(), [0xFF, 0xFF, 0xFF, 0xFD, 1]);
    for (text, shown_as) in [
        ("1.50", "1.50"),
        ("0.000001", "0.000001"),
        ("0.0000001", "1E-7"),
        ("12e3", "1.2E+4"),
        ("-7", "-7"),
        (".5", "0.5"),
    ] {
        assert_eq!(shown(&CqlType::Decimal, &wire(&CqlType::Decimal, text).unwrap()), shown_as);
    }
    for text in ["", "e5", "1.-5", "--1", "1e99999999999"] {
        assert!(text.is_empty() || wire(&CqlType::Decimal, text).is_err(), "{text}");
    }
    assert_eq!(shown(&CqlType::Double, &wire(&CqlType::Double, "-Infinity").unwrap()), "-Infinity");
    assert_eq!(shown(&CqlType::Float, &wire(&CqlType::Float, "NaN").unwrap()), "NaN");
}

#[test]
fn floating_point_numbers_are_shown_as_in_java() {
    for (value, shown_as) in [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (100.0, "100.0"),
        (-1.5, "-1.5"),
        (0.001, "0.001"),
        (0.0012, "0.0012"),
        (0.000_999_999_999_999_999_8, "9.999999999999998E-4"),
        (0.0001, "1.0E-4"),
        (-0.000_123, "-1.23E-4"),
        (9_999_999.0, "9999999.0"),
        (9_999_999.999_999_998, "9999999.999999998"),
        (1e7, "1.0E7"),
        (12_345_678.9, "1.23456789E7"),
        (1e10, "1.0E10"),
        (-1e21, "-1.0E21"),
        (1e23, "1.0E23"),
        (1.25e100, "1.25E100"),
        (f64::MAX, "1.7976931348623157E308"),
        (f64::MIN_POSITIVE, "2.2250738585072014E-308"),
        (f64::from_bits(1), "4.9E-324"),
        (f64::from_bits(2), "9.9E-324"),
        (f64::NAN, "NaN"),
        (f64::INFINITY, "Infinity"),
        (f64::NEG_INFINITY, "-Infinity"),
    ] {
        assert_eq!(shown(&CqlType::Double, &value.to_be_bytes()), shown_as);
    }
    for (value, shown_as) in [
        (-0.0_f32, "-0.0"),
        (0.001, "0.001"),
        (0.000_9, "9.0E-4"),
        (3.3, "3.3"),
        (9_999_999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (16_777_216.0, "1.6777216E7"),
        (1e21, "1.0E21"),
        (f32::MAX, "3.4028235E38"),
        (f32::from_bits(1), "1.4E-45"),
        (-f32::NAN, "NaN"),
        (f32::NEG_INFINITY, "-Infinity"),
    ] {
        assert_eq!(shown(&CqlType::Float, &value.to_be_bytes()), shown_as);
    }
}

#[test]
fn addresses_uuids_and_blobs_are_read() {
    assert_eq!(wire(&CqlType::Inet, "::ffff:10.0.0.1").unwrap(), [10, 0, 0, 1]);
    assert_eq!(wire(&CqlType::Inet, "::1").unwrap().len(), 16);
    assert_eq!(wire(&CqlType::Inet, "localhost").unwrap_err(), "Unable to make inet address from 'localhost'");
    assert_eq!(wire(&CqlType::Blob, "CAfe").unwrap(), [0xCA, 0xFE]);
    assert!(wire(&CqlType::Blob, "abc").is_err());
    let random = "123e4567-e89b-42d3-a456-426614174000";
    assert_eq!(shown(&CqlType::Uuid, &wire(&CqlType::Uuid, random).unwrap()), random);
    assert_eq!(wire(&CqlType::Timeuuid, random).unwrap_err(), "TimeUUID supports only version 1 UUIDs");
    assert!(wire(&CqlType::Uuid, "123e4567e89b42d3a456426614174000").is_err());
}

#[test]
fn constants_fit_the_types_that_cassandra_gives_them() {
    let convert = |data_type, literal| {
        let mut out = Vec::new();
        from_literal(&data_type, &literal, &mut out).map(|()| out)
    };
    assert_eq!(convert(CqlType::Float, Literal::Integer("1")).unwrap(), 1f32.to_be_bytes());
    assert_eq!(convert(CqlType::Boolean, Literal::Boolean(true)).unwrap(), [1]);
    assert_eq!(convert(CqlType::Date, Literal::String("1970-01-01")).unwrap(), [0x80, 0, 0, 0]);
    for (data_type, literal) in [
        (CqlType::Int, Literal::String("1")),
        (CqlType::Int, Literal::Float("1.0")),
        (CqlType::Text, Literal::Integer("1")),
        (CqlType::Blob, Literal::String("0x00")),
        (CqlType::Text, Literal::Uuid("123e4567-e89b-42d3-a456-426614174000")),
    ] {
        assert!(matches!(convert(data_type, literal), Err(LiteralError::WrongKind(..))));
    }
}

#[test]
fn what_is_no_value_is_refused_in_cassandras_words() {
    let refused = |data_type: CqlType, wire: &[u8]| data_type.validate(wire).unwrap_err().to_string();
    assert_eq!(refused(CqlType::Int, &[1, 2, 3]), "Expected 4 or 0 byte int (3)");
    assert_eq!(refused(CqlType::Smallint, &[]), "Expected 2 bytes for a smallint (0)");
    assert_eq!(refused(CqlType::Text, &[0xFF]), "String didn't validate.");
    assert_eq!(refused(CqlType::Uuid, &[1]), "UUID should be 16 or 0 bytes (1)");
    assert_eq!(refused(CqlType::Timeuuid, &[0x40; 16]), "Invalid version for TimeUUID type.");
    let list = CqlType::List(Arc::new(CqlType::Int), Frozen::No);
    assert_eq!(refused(list.clone(), &[0x7F, 0xFF, 0xFF, 0xFF]), "not enough bytes to read a collection");
    assert_eq!(refused(list, &[0, 0, 0, 1, 0, 0, 0, 1, 7]), "Expected 4 or 0 byte int (1)");
    assert!(CqlType::Int.validate(&[]).is_ok());
    let oversized_tuple = CqlType::Tuple(Arc::new([CqlType::Int]));
    assert_eq!(refused(oversized_tuple, &[0xFF; 8]), "Invalid remaining data after end of tuple value");
}

#[test]
fn collections_are_shown_as_literals_and_sorted() {
    let map = CqlType::Map(Arc::new(CqlType::Text), Arc::new(CqlType::Int), Frozen::Yes);
    let mut wire = Vec::new();
    push_count(3, &mut wire);
    for (key, value) in [("b", 1i32), ("it's", 2), ("b", 3)] {
        push_element(Some(key.as_bytes()), &mut wire);
        push_element(Some(&value.to_be_bytes()), &mut wire);
    }
    assert_eq!(shown(&map, &canonical(&map, &wire).unwrap()), "{'b': 3, 'it''s': 2}");
    let tuple = CqlType::Tuple(Arc::new([CqlType::Blob, CqlType::Int]));
    let mut wire = Vec::new();
    push_element(Some(&[0xAB]), &mut wire);
    assert_eq!(shown(&tuple, &wire), "(0xab, null)");
}

#[test]
fn decimals_become_texts_without_exponents_while_they_are_short() {
    for (unscaled, scale, text) in [
        (0, 0, "0"),
        (0, -5, "0"),
        (0, 3, "0.000"),
        (12, -3, "12000"),
        (-12, -3, "-12000"),
        (-150, 2, "-1.50"),
        (15, 5, "0.00015"),
        (1, 100, &format!("0.{}1", "0".repeat(99))),
        (1, 101, "1E-101"),
        (1, -101, "1E+101"),
    ] {
        assert_eq!(plain_decimal(&BigInt::from(unscaled), scale), text);
    }
}

fn decimal_wire(unscaled: &num_bigint::BigInt, scale: i32) -> Vec<u8> {
    [&scale.to_be_bytes()[..], &unscaled.to_signed_bytes_be()].concat()
}

/// Decimals of all sizes, with some that are equal or nearly so at other scales.
fn any_decimal() -> impl Strategy<Value = Vec<u8>> {
    let scale = prop_oneof![-3i32..4, -400i32..400, Just(i32::MIN), Just(i32::MAX), any::<i32>()];
    (any::<i64>(), -1i32..2, 0u32..300, scale).prop_map(|(digits, around, zeros, scale)| {
        let digits = if digits % 3 == 0 { 1 } else { digits };
        decimal_wire(&(num_bigint::BigInt::from(digits) * num_bigint::BigInt::from(10).pow(zeros) + around), scale)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn decimals_are_ordered_as_their_keys_are(a in any_decimal(), b in any_decimal(), zeros in 0i32..200) {
        let key = |wire: &[u8]| {
            let mut out = Vec::new();
            crate::key::push_component(&CqlType::Decimal, wire, &mut out).unwrap();
            out
        };
        prop_assert_eq!(compare(&CqlType::Decimal, &a, &b), key(&a).cmp(&key(&b)));
        // The same number at another scale.
        let Value::Decimal(unscaled, scale) = Value::decode(&CqlType::Decimal, &a).unwrap() else { panic!("a decimal") };
        if let Some(scale) = scale.checked_add(zeros) {
            let same = decimal_wire(&(unscaled * num_bigint::BigInt::from(10).pow(zeros as u32)), scale);
            prop_assert_eq!(compare(&CqlType::Decimal, &a, &same), Ordering::Equal);
        }
    }
}

#[test]
fn long_numbers_are_refused_but_what_is_stored_is_read() {
    use diorite_base::limits::{MAX_NUMBER_BYTES, MAX_NUMBER_DIGITS};
    let list = CqlType::List(Arc::new(CqlType::Decimal), Frozen::Yes);
    for data_type in [CqlType::Varint, CqlType::Decimal] {
        let (fits, long) = (vec![1; MAX_NUMBER_BYTES], vec![1; MAX_NUMBER_BYTES + 1]);
        assert_eq!(data_type.validate(&fits), Ok(()));
        let refused = data_type.validate(&long).unwrap_err().to_string();
        assert_eq!(refused, format!("a {data_type} takes at most {MAX_NUMBER_BYTES} bytes, not {}", long.len()));
        assert!(Value::decode(&data_type, &long).is_ok());
        let digits = "7".repeat(MAX_NUMBER_DIGITS);
        assert!(wire(&data_type, &digits).is_ok());
        let refused = wire(&data_type, &format!("{digits}7")).unwrap_err();
        assert!(refused.contains(&format!("at most {MAX_NUMBER_DIGITS} digits, not 9801")), "{refused}");
    }
    let mut nested = Vec::new();
    push_count(1, &mut nested);
    push_element(Some(&[1; MAX_NUMBER_BYTES + 1]), &mut nested);
    assert!(list.validate(&nested).is_err());
    assert!(Value::decode(&list, &nested).is_ok());
}

#[test]
fn messages_show_no_more_than_the_beginning_of_a_long_text() {
    let refused = wire(&CqlType::Int, &"é".repeat(100_000)).unwrap_err();
    assert!(refused.len() < 300 && refused.contains("… (200000 bytes)"), "{refused}");
    let json = crate::json::Json::parse(&format!("[{}1]", "1,".repeat(100_000))).unwrap();
    let refused = json::from_json(&CqlType::Int, &json, &mut Vec::new()).unwrap_err().to_string();
    assert!(refused.len() < 300, "{refused}");
}

#[test]
fn sets_of_decimals_are_brought_in_order() {
    let set = CqlType::Set(Arc::new(CqlType::Decimal), Frozen::Yes);
    let build = |values: &[&str]| {
        let mut out = Vec::new();
        push_count(values.len(), &mut out);
        values.iter().for_each(|text| push_element(Some(&wire(&CqlType::Decimal, text).unwrap()), &mut out));
        out
    };
    let stored = canonical(&set, &build(&["1.50", "-2", "1.5", "0.0", "1E400"])).unwrap().into_owned();
    assert_eq!(stored, build(&["-2", "0.0", "1.50", "1E400"]));
}

/// Entries of a map as a driver sends them; a length of -1 is null.
fn map_of(count: i32, parts: &[(i32, &[u8])]) -> Vec<u8> {
    let mut out = count.to_be_bytes().to_vec();
    for (length, bytes) in parts {
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(bytes);
    }
    out
}

#[test]
fn a_map_with_a_malformed_entry_is_refused_as_a_whole() {
    let number = 1_i32.to_be_bytes();
    let data_type = CqlType::Map(Arc::new(CqlType::Text), Arc::new(CqlType::Int), Frozen::Yes);
    let whole = map_of(1, &[(1, b"a"), (4, &number)]);
    assert_eq!(data_type.validate(&whole), Ok(()));
    for malformed in [
        map_of(1, &[(-1, b""), (4, &number)]),
        map_of(2, &[(-1, b""), (4, &number), (1, b"a"), (4, &number)]),
        map_of(2, &[(1, b"a"), (4, &number), (1, b"b"), (-1, b"")]),
        map_of(1, &[(100, b"a"), (4, &number)]),
        map_of(2, &[(1, b"a"), (4, &number), (1, b"b")]),
        [&whole[..], b"garbage"].concat(),
    ] {
        assert!(data_type.validate(&malformed).is_err(), "{malformed:?}");
        assert!(canonical(&data_type, &malformed).is_err(), "{malformed:?}");
        assert!(Value::decode(&data_type, &malformed).is_err(), "{malformed:?}");
        let mut out = String::new();
        assert!(literal_text(&data_type, &malformed, &mut out).is_err(), "{malformed:?}");
    }
}
