//! Small parts of the encoded forms of programs and replies.
//!
//! Always true: decoding checks everything and never panics.

use super::definition::KnownView;
use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};

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

/// That rows are unchanged, and the tablet knows these views as they were made.
pub(super) const UNCHANGED: u8 = 4;
/// The same; some have got columns since.
pub(super) const UNCHANGED_EXTENDED: u8 = 5;

/// Appends the test with its views.
pub(super) fn put_views(out: &mut Vec<u8>, views: &[KnownView]) {
    let are_extended = views.iter().any(|view| view.columns_since > 0);
    out.push(if are_extended { UNCHANGED_EXTENDED } else { UNCHANGED });
    put_varint(out, views.len() as u64);
    for KnownView { id, columns_since } in views {
        put_varint(out, *id);
        if are_extended {
            put_varint(out, *columns_since);
        }
    }
}

/// Reads the views of such a test.
pub(super) fn read_views(reader: &mut Reader<'_>, are_extended: bool) -> Result<Vec<KnownView>, Malformed> {
    let views = read_list(reader, |reader| {
        let id = reader.shortest_varint()?;
        let columns_since = if are_extended { reader.shortest_varint()? } else { 0 };
        Ok(KnownView { id, columns_since })
    })?;
    // What is written in one way only is read in one way only.
    if are_extended != views.iter().any(|view| view.columns_since > 0) { Err(Malformed) } else { Ok(views) }
}
