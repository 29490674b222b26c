//! Types in programs, encoded.
//!
//! Always true: the number of a type never changes; a type that is nested too deeply is malformed.

use super::wire::read_list;
use diorite_base::bytes::{Malformed, Reader, put_varint};
use diorite_base::limits::MAX_TYPE_DEPTH;
use diorite_model::types::{CqlType, Frozen, UserType};
use std::sync::Arc;

/// Native types by their number in programs; never reordered.
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

const LIST: u8 = 0x20;
const SET: u8 = 0x21;
const MAP: u8 = 0x22;
const TUPLE: u8 = 0x23;
const USER: u8 = 0x24;
const VECTOR: u8 = 0x25;
const FROZEN: u8 = 0x40;

/// Appends a type.
pub fn put_type(out: &mut Vec<u8>, data_type: &CqlType) {
    let mark = |frozen: &Frozen| if *frozen == Frozen::Yes { FROZEN } else { 0 };
    match data_type {
        CqlType::List(element, frozen) => {
            out.push(LIST | mark(frozen));
            put_type(out, element);
        }
        CqlType::Set(element, frozen) => {
            out.push(SET | mark(frozen));
            put_type(out, element);
        }
        CqlType::Map(key, value, frozen) => {
            out.push(MAP | mark(frozen));
            put_type(out, key);
            put_type(out, value);
        }
        CqlType::Tuple(elements) => {
            out.push(TUPLE);
            put_varint(out, elements.len() as u64);
            elements.iter().for_each(|element| put_type(out, element));
        }
        CqlType::UserDefined(user, frozen) => {
            // Names play no part in comparing values.
            out.push(USER | mark(frozen));
            put_varint(out, user.fields.len() as u64);
            user.fields.iter().for_each(|(_, field)| put_type(out, field));
        }
        CqlType::Vector(element, dimension) => {
            out.push(VECTOR);
            put_varint(out, u64::from(*dimension));
            put_type(out, element);
        }
        native => {
            let number = NATIVES.iter().position(|known| known == native);
            out.push(number.expect("every other type is native") as u8);
        }
    }
}

/// Reads a type.
pub fn read_type(reader: &mut Reader<'_>) -> Result<CqlType, Malformed> {
    read_nested_type(reader, MAX_TYPE_DEPTH)
}

fn read_nested_type(reader: &mut Reader<'_>, depth: usize) -> Result<CqlType, Malformed> {
    let depth = depth.checked_sub(1).ok_or(Malformed)?;
    let tag = reader.u8()?;
    if let Some(native) = NATIVES.get(usize::from(tag)) {
        return Ok(native.clone());
    }
    let frozen = if tag & FROZEN != 0 { Frozen::Yes } else { Frozen::No };
    let inner = |reader: &mut Reader<'_>| read_nested_type(reader, depth).map(Arc::new);
    Ok(match tag & !FROZEN {
        LIST => CqlType::List(inner(reader)?, frozen),
        SET => CqlType::Set(inner(reader)?, frozen),
        MAP => {
            let key = inner(reader)?;
            CqlType::Map(key, inner(reader)?, frozen)
        }
        TUPLE => CqlType::Tuple(read_list(reader, |reader| read_nested_type(reader, depth))?.into()),
        USER => {
            let fields = read_list(reader, |reader| Ok((String::new(), read_nested_type(reader, depth)?)))?;
            let user = UserType { keyspace: String::new(), name: String::new(), fields };
            CqlType::UserDefined(Arc::new(user), frozen)
        }
        VECTOR => {
            let dimension = u16::try_from(reader.varint()?).map_err(|_| Malformed)?;
            CqlType::Vector(inner(reader)?, dimension)
        }
        _ => return Err(Malformed),
    })
}
