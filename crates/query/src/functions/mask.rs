//! Masking: `mask_null`, `mask_default`, `mask_replace`, `mask_inner`, `mask_outer`, `mask_hash`.
//!
//! Always true: a masked value has the type of what it hides, except for hashes, which are blobs. Left out: masks that are attached to columns.

use crate::error::invalid;
use diorite_base::limits::MAX_MUTATION_BYTES;
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;
use diorite_model::value::collection;
use md5::{Digest, Md5};
use ring::digest;
use std::borrow::Cow;

/// How a value is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mask {
    /// By null
    Null,
    /// By the same value for all of a type
    Default,
    /// By a given value
    Replace,
    /// All but the ends of a text
    Inner,
    /// The ends of a text
    Outer,
    /// By a hash of its bytes
    Hash,
}

/// The mask of this name (in lower case, without underscores).
pub fn from_name(plain: &str) -> Option<Mask> {
    Some(match plain {
        "masknull" => Mask::Null,
        "maskdefault" => Mask::Default,
        "maskreplace" => Mask::Replace,
        "maskinner" => Mask::Inner,
        "maskouter" => Mask::Outer,
        "maskhash" => Mask::Hash,
        _ => return None,
    })
}

/// Whether a function (in lower case, without underscores) is one of these.
pub fn is_mask(plain: &str) -> bool {
    from_name(plain).is_some()
}

/// Hides a value.
pub fn apply(mask: Mask, of: &CqlType, arguments: &[Option<Cow<'_, [u8]>>]) -> Result<Option<Vec<u8>>, CqlError> {
    let value = arguments.first().and_then(|value| value.as_deref());
    match mask {
        Mask::Null => Ok(None),
        Mask::Default => default_of(of).map(Some),
        Mask::Replace => Ok(arguments.get(1).and_then(|value| value.as_deref()).map(<[u8]>::to_vec)),
        Mask::Inner | Mask::Outer => {
            let Some(value) = value else { return Ok(None) };
            partial(mask, value, arguments).map(Some)
        }
        Mask::Hash => {
            let Some(value) = value else { return Ok(None) };
            hash(value, arguments.get(1).and_then(|name| name.as_deref())).map(Some)
        }
    }
}

/// A hash of a value, by one of the algorithms that Java knows under these names; SHA-256 if none is named.
fn hash(value: &[u8], algorithm: Option<&[u8]>) -> Result<Vec<u8>, CqlError> {
    let name = algorithm.map_or("SHA-256".into(), String::from_utf8_lossy);
    let algorithm = match name.to_ascii_uppercase().as_str() {
        "MD5" => return Ok(Md5::digest(value).to_vec()),
        "SHA-1" | "SHA1" | "SHA" => &digest::SHA1_FOR_LEGACY_USE_ONLY,
        "SHA-256" => &digest::SHA256,
        "SHA-384" => &digest::SHA384,
        "SHA-512" => &digest::SHA512,
        "SHA-512/256" => &digest::SHA512_256,
        _ => return Err(invalid(format!("Hash algorithm not found: {name}"))),
    };
    Ok(digest::digest(algorithm, value).as_ref().to_vec())
}

fn partial(mask: Mask, value: &[u8], arguments: &[Option<Cow<'_, [u8]>>]) -> Result<Vec<u8>, CqlError> {
    let text = std::str::from_utf8(value).map_err(|_| invalid("String didn't validate."))?;
    let argument = |at: usize| arguments.get(at).and_then(|value| value.as_deref());
    let length = |at: usize| -> Result<usize, CqlError> {
        let Some(bytes) = argument(at) else { return Ok(0) };
        let bytes: [u8; 4] = bytes.try_into().map_err(|_| invalid("Invalid length of a mask"))?;
        let length = i32::from_be_bytes(bytes);
        usize::try_from(length).map_err(|_| invalid("Mask length must not be negative"))
    };
    let (begin, end) = (length(1)?, length(2)?);
    let padding = match argument(3) {
        None => '*',
        Some(bytes) => {
            let mut letters = std::str::from_utf8(bytes).unwrap_or_default().chars();
            match (letters.next(), letters.next()) {
                (Some(letter), None) => letter,
                _ => return Err(invalid("The padding of a mask must be single-character")),
            }
        }
    };
    let count = text.chars().count();
    let is_end = |at: usize| at < begin || at >= count.saturating_sub(end);
    let hidden = |at: usize| is_end(at) == (mask == Mask::Outer);
    let masked: String =
        text.chars().enumerate().map(|(at, letter)| if hidden(at) { padding } else { letter }).collect();
    Ok(masked.into_bytes())
}

/// About the most bytes of the default mask of a type; not more than the longest that there is.
pub fn default_bytes(of: &CqlType) -> usize {
    let bytes: usize = match of {
        CqlType::Tuple(types) => types.iter().map(|field| 4 + default_bytes(field)).sum(),
        CqlType::UserDefined(user, _) => user.fields.iter().map(|(_, field)| 4 + default_bytes(field)).sum(),
        CqlType::Vector(element, dimension) => (9 + default_bytes(element)).saturating_mul(usize::from(*dimension)),
        _ => 16,
    };
    bytes.min(MAX_MUTATION_BYTES)
}

/// The default mask of a type. A vector of vectors may be too long for one.
fn default_of(of: &CqlType) -> Result<Vec<u8>, CqlError> {
    let mut out = Vec::new();
    match of {
        CqlType::Text | CqlType::Ascii => out.extend_from_slice(b"****"),
        CqlType::Jsonb => out.extend_from_slice(b"{}"),
        CqlType::Blob => {}
        CqlType::Date => out.extend_from_slice(&(1u32 << 31).to_be_bytes()),
        CqlType::Decimal => out.extend_from_slice(&[0; 5]),
        CqlType::Duration => out.extend_from_slice(&[0; 3]),
        CqlType::Inet => out.extend_from_slice(&[0; 4]),
        CqlType::Varint => out.push(0),
        CqlType::Timeuuid => {
            out.extend_from_slice(&[0; 16]);
            out[6] = 0x10;
        }
        CqlType::List(..) | CqlType::Set(..) | CqlType::Map(..) => collection::push_count(0, &mut out),
        CqlType::Tuple(types) => {
            for field in types.iter() {
                collection::push_element(Some(&default_of(field)?), &mut out);
            }
        }
        CqlType::UserDefined(user, _) => {
            for (_, field) in &user.fields {
                collection::push_element(Some(&default_of(field)?), &mut out);
            }
        }
        CqlType::Vector(element, dimension) => {
            let value = default_of(element)?;
            if value.len().saturating_mul(usize::from(*dimension)) > MAX_MUTATION_BYTES {
                return Err(invalid(format!("the default mask of {of} is longer than {MAX_MUTATION_BYTES} bytes")));
            }
            (0..*dimension).for_each(|_| collection::push_vector_element(element, &value, &mut out));
        }
        other => out.resize(other.fixed_length().unwrap_or_default(), 0),
    }
    Ok(out)
}
