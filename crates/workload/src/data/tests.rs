//! Values are told from damaged, foreign and shortened ones; keys are distinct and of the wanted size.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use super::*;

#[test]
fn keys_have_the_wanted_size_and_stay_distinct() {
    let format = KeyFormat::new("key", 50);
    assert_eq!(format.name(7).len(), 50);
    assert!(format.name(7).starts_with("key:7_"));
    assert_ne!(format.name(7), format.name(70));
    assert_eq!(KeyFormat::new("key", 0).name(29_999_999_999), "key:29999999999");
}

#[test]
fn a_value_tells_its_version_at_every_size() {
    let mut value = Vec::new();
    for size in [16, 17, 23, 24, 31, 40, 255, 256, 1_000, 65_537] {
        for (number, count) in [(0, 1), (1, 2), (u64::MAX, u32::MAX), (19_999_999_999, 3)] {
            let version = Version::new(1_700_000_000, count);
            write_value(number, version, size, &mut value);
            assert_eq!(value.len(), size);
            assert_eq!(check_value(number, size, &value), Ok(version));
        }
    }
}

#[test]
fn every_planted_bit_flip_is_found() {
    let mut value = Vec::new();
    write_value(42, Version::new(9, 1), 61, &mut value);
    for bit in 0..61 * 8 {
        value[bit / 8] ^= 1 << (bit % 8);
        assert!(check_value(42, 61, &value).is_err(), "bit {bit} flipped and not found");
        value[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(check_value(42, 61, &value).is_ok());
}

#[test]
fn the_value_of_another_key_is_found_and_named() {
    let mut value = Vec::new();
    write_value(41, Version::new(9, 1), 256, &mut value);
    assert_eq!(check_value(42, 256, &value), Err(Mismatch::Key { found: 41 }));
    assert_eq!(check_value(41, 255, &value), Err(Mismatch::Size { found: 256, wanted: 255 }));
    assert_eq!(check_value(41, 0, &[]), Err(Mismatch::Size { found: 0, wanted: 16 }));
}

#[test]
fn later_writes_and_later_processes_have_greater_versions() {
    assert!(Version::new(5, 2) > Version::new(5, 1));
    assert!(Version::new(6, 1) > Version::new(5, u32::MAX));
}

#[test]
fn values_are_hardly_compressible() {
    let mut counts = [0_u64; 256];
    let mut value = Vec::new();
    for number in 0..4_000 {
        write_value(number, Version::new(1_700_000_000, 1), 256, &mut value);
        for byte in &value {
            counts[usize::from(*byte)] += 1;
        }
    }
    let total: u64 = counts.iter().sum();
    let entropy: f64 = counts.iter().map(|&count| count as f64 / total as f64).map(|share| -share * share.log2()).sum();
    assert!(entropy > 7.99, "{entropy} bits per byte");
}

#[test]
fn points_differ_by_series_and_number_and_have_the_size_asked_for() {
    let texts = [point_text(0, 1, 100), point_text(1, 0, 100), point_text(0, 2, 100), point_text(2, 0, 100)];
    assert_eq!(texts.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
    assert!(texts.iter().all(|text| text.len() == 100));
    assert_eq!(point_text(0, 1, 7), texts[0][..7]);
}
