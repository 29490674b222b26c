//! Small parts of the encoded forms of programs and replies.
//!
//! Always true: decoding checks everything and never panics.

use diorite_base::bytes::{Malformed, Reader, put_slice};

pub(super) fn put_optional(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        None => out.push(0),
        Some(bytes) => {
            out.push(1);
            put_slice(out, bytes);
        }
    }
}

pub(super) fn read_optional(reader: &mut Reader<'_>) -> Result<Option<Vec<u8>>, Malformed> {
    match reader.u8()? {
        0 => Ok(None),
        1 => reader.slice().map(|bytes| Some(bytes.to_vec())),
        _ => Err(Malformed),
    }
}

pub(super) fn put_i64_option(out: &mut Vec<u8>, value: Option<i64>) {
    out.push(u8::from(value.is_some()));
    out.extend(value.map(i64::to_le_bytes).into_iter().flatten());
}

pub(super) fn read_i64_option(reader: &mut Reader<'_>) -> Result<Option<i64>, Malformed> {
    match reader.u8()? {
        0 => Ok(None),
        1 => reader.i64().map(Some),
        _ => Err(Malformed),
    }
}

pub(super) fn read_usize(reader: &mut Reader<'_>) -> Result<usize, Malformed> {
    usize::try_from(reader.varint()?).map_err(|_| Malformed)
}

pub(super) fn read_bool(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}

pub(crate) fn read_list<T>(
    reader: &mut Reader<'_>,
    mut read: impl FnMut(&mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = reader.varint()?;
    (0..count).map(|_| read(reader)).collect()
}
