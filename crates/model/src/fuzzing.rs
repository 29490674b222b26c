//! Fuzz targets for rows and values; `cargo test` replays their seeds.
//!
//! Always true: nothing panics, whatever is stored or sent; folding is associative where operands are well formed; a valid value stays valid through
//! JSON and its canonical form, and equals itself. Left out: what a row means to a reader, which the property tests compare with a reference.

use crate::json::Json;
use crate::types::{CqlType, Frozen, UserType};
use crate::value::json::{from_json, write_json};
use crate::value::literal::from_text;
use crate::value::{canonical, compare, literal_text};
use crate::{deletions, entry, row};
use diorite_base::Horizon;
use diorite_base::bytes::Reader;
use std::cmp::Ordering;
use std::sync::Arc;

/// How deep types are nested.
const MAX_TYPE_DEPTH: u8 = 6;

/// Folds arbitrary operands, reads the result, and compacts it. The first byte is the number of operands; the rest is
/// divided evenly among them.
///
/// # Panics
///
/// If folding some operands first gives another value, a compacted value cannot be read, or what was checked cannot be read
/// or merged.
pub fn rows(input: &[u8]) {
    let Some((&count, data)) = input.split_first() else { return };
    let size = data.len().div_ceil(usize::from(count % 8) + 1).max(1);
    let operands: Vec<&[u8]> = data.chunks(size).collect();
    for operand in &operands {
        checked(operand);
    }
    let Some((first, rest)) = operands.split_first() else { return };
    let mut whole = Vec::new();
    if entry::fold(Some(first), rest.iter().copied(), &mut whole).is_err() {
        return;
    }
    read(&whole);
    for cut in 1..rest.len() {
        if !entry::can_fold_apart(rest[cut - 1..].iter().copied()) {
            continue;
        }
        let (mut newer, mut parted) = (Vec::new(), Vec::new());
        let is_partial = entry::fold(None, rest[cut - 1..].iter().copied(), &mut newer).is_ok();
        assert!(is_partial, "operands that fold onto a value fold by themselves");
        let older = rest[..cut - 1].iter().copied();
        assert!(entry::fold(Some(first), older.chain([newer.as_slice()]), &mut parted).is_ok());
        assert_eq!(parted, whole, "folding the newest operands first gives the same");
    }
    for (now_s, before_s) in [(0, 0), (1 << 30, 1 << 29), (u32::MAX, u32::MAX)] {
        let horizon = Horizon { now_s, rows_s: before_s, ranges_s: before_s };
        if let entry::Compaction::Replace(value) = entry::compact(&whole, horizon) {
            assert!(read(&value), "a compacted value can be read");
        }
    }
}

/// What is well formed for whoever lets it in is so for all that read and merge it.
fn checked(value: &[u8]) {
    let is_sound = entry::check(value).is_ok();
    assert_eq!(is_sound, read(value), "a value is well formed for all or for none");
    if !is_sound {
        return;
    }
    let mut merged = Vec::new();
    assert!(entry::fold(None, [value, value, value], &mut merged).is_ok(), "what is well formed can be merged");
    assert!(entry::check(&merged).is_ok(), "what is merged is well formed");
    if row::may_be_placed(value) {
        let mut placed = value.to_vec();
        row::place_lists(&mut placed, 1_700_000_000_000_000, 3);
        assert!(entry::check(&placed).is_ok(), "a row stays well formed when its lists get their places");
    }
}

/// Reads everything that a stored value holds; returns whether it is well formed.
fn read(value: &[u8]) -> bool {
    if let Ok(deletions) = deletions::Deletions::decode(value) {
        let _ = (deletions.static_deletion(b""), deletions.deletion_for(b"\x01", b""));
        return true;
    }
    let Ok(reader) = row::RowReader::new(value) else { return false };
    for cell in reader.cells() {
        let Ok(cell) = cell else { return false };
        if let row::Content::Complex(complex) = cell.content {
            for element in complex.elements() {
                if element.is_err() {
                    return false;
                }
            }
        }
    }
    true
}

/// Takes a type from the input and the rest as a value of it.
///
/// # Panics
///
/// If a valid value does not equal itself, has no canonical form, or changes on its way through JSON.
pub fn values(input: &[u8]) {
    let mut reader = Reader::new(input);
    let Some(data_type) = read_type(&mut reader, 0) else { return };
    let wire = reader.rest();
    if let Ok(text) = std::str::from_utf8(wire) {
        let mut parsed = Vec::new();
        if from_text(&data_type, text, &mut parsed).is_ok() {
            valid(&data_type, &parsed);
        }
        if let Ok(json) = Json::parse(text) {
            let mut parsed = Vec::new();
            if from_json(&data_type, &json, &mut parsed).is_ok() {
                valid(&data_type, &parsed);
            }
            let printed = json.text();
            assert_eq!(Json::parse(&printed).map(|json| json.text()), Ok(printed), "JSON is printed as it is read");
        }
    }
    if data_type.validate(wire).is_ok() {
        valid(&data_type, wire);
    }
}

fn valid(data_type: &CqlType, wire: &[u8]) {
    assert!(data_type.validate(wire).is_ok(), "what was parsed is valid");
    assert_eq!(compare(data_type, wire, wire), Ordering::Equal);
    let canonical = canonical(data_type, wire).expect("a valid value has a canonical form");
    assert!(data_type.validate(&canonical).is_ok(), "the canonical form is valid");
    let _ = literal_text(data_type, wire, &mut String::new());
    let mut json = String::new();
    if write_json(data_type, wire, &mut json).is_err() {
        return;
    }
    let Ok(parsed) = Json::parse(&json) else { panic!("{json} is not JSON") };
    let mut again = Vec::new();
    if from_json(data_type, &parsed, &mut again).is_ok() {
        let mut second = String::new();
        assert!(write_json(data_type, &again, &mut second).is_ok(), "{json}");
        let mut third = Vec::new();
        let parsed = Json::parse(&second).expect("what was printed");
        assert!(from_json(data_type, &parsed, &mut third).is_ok(), "{json} → {second}");
    }
}

fn read_type(reader: &mut Reader<'_>, depth: u8) -> Option<CqlType> {
    const NATIVES: [CqlType; 21] = [
        CqlType::Ascii,
        CqlType::Bigint,
        CqlType::Blob,
        CqlType::Boolean,
        CqlType::Counter,
        CqlType::Date,
        CqlType::Decimal,
        CqlType::Double,
        CqlType::Duration,
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
        CqlType::Jsonb,
    ];
    if depth > MAX_TYPE_DEPTH {
        return None;
    }
    let code = reader.u8().ok()?;
    let frozen = if code & 0x80 == 0 { Frozen::No } else { Frozen::Yes };
    let mut inner = || read_type(reader, depth + 1).map(Arc::new);
    Some(match code & 0x7F {
        code @ 0..21 => NATIVES[usize::from(code)].clone(),
        21 => CqlType::List(inner()?, frozen),
        22 => CqlType::Set(inner()?, frozen),
        23 => CqlType::Map(inner()?, inner()?, frozen),
        24 => CqlType::Vector(inner()?, u16::from(reader.u8().ok()?) + 1),
        code => {
            let count = usize::from(code % 4) + 1;
            let elements = (0..count).map(|_| read_type(reader, depth + 1)).collect::<Option<Vec<_>>>()?;
            if code < 64 {
                CqlType::Tuple(elements.into())
            } else {
                let fields = elements.into_iter().enumerate().map(|(at, field)| (format!("f{at}"), field)).collect();
                let user = UserType { keyspace: "ks".to_owned(), name: "t".to_owned(), fields };
                CqlType::UserDefined(Arc::new(user), frozen)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use diorite_seeds::replay;

    #[test]
    fn the_seeds_of_rows() {
        replay("rows", super::rows);
    }

    #[test]
    fn the_seeds_of_values() {
        replay("values", super::values);
    }
}
