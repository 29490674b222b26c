//! The bytes of requests between nodes, and of their answers (`docs/formats/requests.md`).
//!
//! Always true: no bytes make decoding panic or allocate more than they hold; decoding returns what was encoded. Left
//! out: the meaning of a key, a value or a program.

use super::fetch_wire::{self, FetchRef, HAS_AGGREGATE, HAS_HEADER, HAS_RANGE, HAS_ROW, HAS_STATIC};
use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use diorite_base::write::{KvError, Waited};
use diorite_base::{NodeId, TabletId};
use diorite_query::kv::{Fetch, Fetched, Kept, ScanChunk};
use diorite_transact::version::DataVersion;
use std::ops::Deref;

const VERSION: u8 = 1;
const FETCH: u8 = 1;
const WRITE: u8 = 2;
const WRITE_UNTIL: u8 = 3;
const FETCH_VERSIONED: u8 = 4;
const FETCH_AT: u8 = 5;
const FETCHED: u8 = 0;
const WRITTEN: u8 = 1;
const FAILED: u8 = 2;
const FETCHED_VERSIONED: u8 = 3;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    Requests,
    Answers,
}

/// The bytes of a frame before its items.
pub(super) const HEAD_BYTES: usize = 10;

/// Begins a frame. `incarnation` distinguishes runs of the asking process, so that an answer to a former run is
/// recognised.
pub(super) fn put_frame(out: &mut Vec<u8>, kind: FrameKind, incarnation: u64) {
    out.push(VERSION);
    out.push(match kind {
        FrameKind::Requests => 1,
        FrameKind::Answers => 2,
    });
    out.extend_from_slice(&incarnation.to_le_bytes());
}

/// Reads the head of a frame; its items are the rest.
pub(super) fn read_frame(frame: &[u8]) -> Result<(FrameKind, u64, Reader<'_>), Malformed> {
    let mut reader = Reader::new(frame);
    if reader.u8()? != VERSION {
        return Err(Malformed);
    }
    let kind = match reader.u8()? {
        1 => FrameKind::Requests,
        2 => FrameKind::Answers,
        _ => return Err(Malformed),
    };
    Ok((kind, reader.u64()?, reader))
}

/// The content of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "it is decoded and carried out at once, one at a time")]
pub(super) enum OperationRef<'a> {
    Fetch(FetchRef<'a>),
    /// An encoded mutation, and how much longer the write may take, milliseconds, if that is less than the usual
    /// timeout.
    Write(&'a [u8], Option<u64>),
}

/// A request in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestRef<'a> {
    pub(super) id: u64,
    pub(super) tablet: TabletId,
    pub(super) operation: OperationRef<'a>,
}

/// Appends a read, with the time left, if that is given.
pub(super) fn put_fetch(out: &mut Vec<u8>, id: u64, tablet: TabletId, fetch: &Fetch, left_ms: Option<u64>) {
    put_varint(out, id);
    put_varint(out, tablet.0);
    if let Some(judged_s) = fetch.judged_s {
        out.push(FETCH_AT);
        out.extend_from_slice(&judged_s.to_le_bytes());
        out.push(u8::from(fetch.wants_version));
    } else {
        out.push(if fetch.wants_version { FETCH_VERSIONED } else { FETCH });
    }
    fetch_wire::put(out, fetch, left_ms);
}

/// Appends a write, with the time left, if that is given.
pub(super) fn put_write(out: &mut Vec<u8>, id: u64, tablet: TabletId, mutation: &[u8], left_ms: Option<u64>) {
    put_varint(out, id);
    put_varint(out, tablet.0);
    match left_ms {
        None => out.push(WRITE),
        Some(left_ms) => {
            out.push(WRITE_UNTIL);
            put_varint(out, left_ms);
        }
    }
    put_slice(out, mutation);
}

/// Reads the next request of a frame.
pub(super) fn read_request<'a>(reader: &mut Reader<'a>) -> Result<RequestRef<'a>, Malformed> {
    let id = reader.varint()?;
    let tablet = TabletId(reader.varint()?);
    let operation = match reader.u8()? {
        FETCH => OperationRef::Fetch(FetchRef::read(reader)?),
        FETCH_VERSIONED => OperationRef::Fetch(FetchRef { wants_version: true, ..FetchRef::read(reader)? }),
        FETCH_AT => {
            let (judged_s, wants_version) = (Some(reader.u32()?), reader.u8()? != 0);
            OperationRef::Fetch(FetchRef { judged_s, wants_version, ..FetchRef::read(reader)? })
        }
        WRITE => OperationRef::Write(reader.slice()?, None),
        WRITE_UNTIL => {
            let left_ms = reader.varint()?;
            OperationRef::Write(reader.slice()?, Some(left_ms))
        }
        _ => return Err(Malformed),
    };
    Ok(RequestRef { id, tablet, operation })
}

/// The content of an answer. The tablet of an error is not sent: the asking node knows which tablet it asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Fetched(Fetched),
    Written(Vec<u8>),
    Failed(KvError),
}

/// The values of a read, owned or pinned.
#[derive(Debug)]
pub(super) struct Parts<V> {
    pub(super) header: Option<V>,
    pub(super) static_row: Option<V>,
    pub(super) row: Option<V>,
    pub(super) chunk: Option<ScanChunk>,
    /// The partial aggregate, which replaces the other parts.
    pub(super) partial: Option<Vec<u8>>,
    /// The version of the data, if it was asked for and has not changed during the read.
    pub(super) version: Option<DataVersion>,
}

impl<V: Deref<Target = [u8]>> Parts<V> {
    /// The size of the values that are not copied yet, bytes.
    pub(super) fn value_bytes(&self) -> usize {
        [&self.header, &self.static_row, &self.row].into_iter().flatten().map(|value| value.len()).sum()
    }

    /// The approximate size of the answer in a frame, bytes.
    pub(super) fn size_bytes(&self) -> usize {
        let chunk_bytes = self.chunk.as_ref().map_or(0, |chunk| chunk.buffer.len());
        self.value_bytes() + chunk_bytes + self.partial.as_ref().map_or(0, Vec::len)
    }

    pub(super) fn into_fetched(self) -> Fetched {
        Fetched {
            header: self.header.map(|value| value.to_vec()),
            static_row: self.static_row.map(|value| value.to_vec()),
            row: self.row.map(|value| value.to_vec()),
            chunk: self.chunk.unwrap_or_default(),
            partial: self.partial,
            version: self.version,
            kept: Kept::default(),
        }
    }
}

/// Appends the answer to a read.
pub(super) fn put_fetched<V: Deref<Target = [u8]>>(out: &mut Vec<u8>, id: u64, parts: &Parts<V>) {
    put_varint(out, id);
    match &parts.version {
        None => out.push(FETCHED),
        Some(version) => {
            out.push(FETCHED_VERSIONED);
            put_version(out, version);
        }
    }
    let flag = |is_there: bool, bit: u8| if is_there { bit } else { 0 };
    out.push(
        flag(parts.header.is_some(), HAS_HEADER)
            | flag(parts.static_row.is_some(), HAS_STATIC)
            | flag(parts.row.is_some(), HAS_ROW)
            | flag(parts.chunk.is_some(), HAS_RANGE)
            | flag(parts.partial.is_some(), HAS_AGGREGATE),
    );
    for value in [&parts.header, &parts.static_row, &parts.row].into_iter().flatten() {
        put_slice(out, value);
    }
    if let Some(chunk) = &parts.chunk {
        out.push(u8::from(chunk.exhausted));
        put_varint(out, chunk.ends.len() as u64);
        let mut start = 0;
        for &(key_end, value_end) in &chunk.ends {
            put_varint(out, u64::from(key_end - start));
            put_varint(out, u64::from(value_end - key_end));
            start = value_end;
        }
        put_slice(out, &chunk.buffer);
    }
    if let Some(partial) = &parts.partial {
        put_slice(out, partial);
    }
}

fn put_version(out: &mut Vec<u8>, version: &DataVersion) {
    [version.node.0, version.term, version.changes].into_iter().for_each(|part| put_varint(out, part));
}

fn read_version(reader: &mut Reader<'_>) -> Result<DataVersion, Malformed> {
    Ok(DataVersion { node: NodeId(reader.varint()?), term: reader.varint()?, changes: reader.varint()? })
}

/// Appends the answer to a write.
pub(super) fn put_written(out: &mut Vec<u8>, id: u64, reply: &[u8]) {
    put_varint(out, id);
    out.push(WRITTEN);
    put_slice(out, reply);
}

/// Appends a refusal or failure.
pub(super) fn put_failed(out: &mut Vec<u8>, id: u64, error: &KvError) {
    put_varint(out, id);
    out.push(FAILED);
    match error {
        KvError::Unavailable(_) => out.push(0),
        KvError::NotLeader { leader, .. } => {
            out.push(1);
            // Node ids start at 1.
            put_varint(out, leader.map_or(0, |node| node.0));
        }
        KvError::Overloaded(_) => out.push(2),
        KvError::Timeout(waited) => {
            out.push(3);
            put_varint(out, waited.after_ms);
            put_varint(out, waited.received.into());
            put_varint(out, waited.required.into());
        }
        KvError::NoSuchTablet(_) => out.push(4),
        KvError::DiskFull(message) => {
            out.push(5);
            put_slice(out, message.as_bytes());
        }
        KvError::TooLarge(message) => {
            out.push(6);
            put_slice(out, message.as_bytes());
        }
        KvError::Storage(message) => {
            out.push(7);
            put_slice(out, message.as_bytes());
        }
        KvError::Locked(_) => out.push(8),
        // Nodes that know no index, unique index or view do not ask for what is refused with these.
        KvError::IndexBeingBuilt => out.push(9),
        KvError::Unmaintained => out.push(10),
    }
}

/// Reads the next answer of a frame. `tablet_of` gives the tablet that the request with an id was for.
pub(super) fn read_answer(
    reader: &mut Reader<'_>,
    tablet_of: impl FnOnce(u64) -> TabletId,
) -> Result<(u64, Outcome), Malformed> {
    let id = reader.varint()?;
    let outcome = match reader.u8()? {
        FETCHED => Outcome::Fetched(read_fetched(reader)?),
        FETCHED_VERSIONED => {
            let version = Some(read_version(reader)?);
            Outcome::Fetched(Fetched { version, ..read_fetched(reader)? })
        }
        WRITTEN => Outcome::Written(reader.slice()?.to_vec()),
        FAILED => Outcome::Failed(read_failed(reader, tablet_of(id))?),
        _ => return Err(Malformed),
    };
    Ok((id, outcome))
}

fn read_fetched(reader: &mut Reader<'_>) -> Result<Fetched, Malformed> {
    let parts = reader.u8()?;
    let value = |bit: u8, reader: &mut Reader<'_>| -> Result<Option<Vec<u8>>, Malformed> {
        if parts & bit == 0 { Ok(None) } else { Ok(Some(reader.slice()?.to_vec())) }
    };
    let header = value(HAS_HEADER, reader)?;
    let static_row = value(HAS_STATIC, reader)?;
    let row = value(HAS_ROW, reader)?;
    let chunk = if parts & HAS_RANGE == 0 { ScanChunk::default() } else { read_chunk(reader)? };
    let partial = value(HAS_AGGREGATE, reader)?;
    Ok(Fetched { header, static_row, row, chunk, partial, version: None, kept: Kept::default() })
}

fn read_chunk(reader: &mut Reader<'_>) -> Result<ScanChunk, Malformed> {
    let exhausted = reader.u8()? != 0;
    let count = usize::try_from(reader.varint()?).map_err(|_| Malformed)?;
    // Each entry takes at least two bytes, so a false count cannot allocate more memory than the frame has.
    if count > reader.rest().len() / 2 {
        return Err(Malformed);
    }
    let mut ends = Vec::with_capacity(count);
    let mut end = 0u32;
    let length = |reader: &mut Reader<'_>| u32::try_from(reader.varint()?).map_err(|_| Malformed);
    for _ in 0..count {
        let key_end = end.checked_add(length(reader)?).ok_or(Malformed)?;
        end = key_end.checked_add(length(reader)?).ok_or(Malformed)?;
        ends.push((key_end, end));
    }
    let buffer = reader.slice()?;
    if buffer.len() != end as usize {
        return Err(Malformed);
    }
    Ok(ScanChunk { buffer: buffer.to_vec(), ends, exhausted })
}

fn read_failed(reader: &mut Reader<'_>, tablet: TabletId) -> Result<KvError, Malformed> {
    let text =
        |reader: &mut Reader<'_>| -> Result<String, Malformed> { Ok(String::from_utf8_lossy(reader.slice()?).into()) };
    Ok(match reader.u8()? {
        0 => KvError::Unavailable(tablet),
        1 => {
            let leader = Some(reader.varint()?).filter(|node| *node != 0).map(NodeId);
            KvError::NotLeader { tablet, leader }
        }
        2 => KvError::Overloaded("the tablet's leader has too much to do"),
        3 => {
            let after_ms = reader.varint()?;
            let count = |reader: &mut Reader<'_>| u32::try_from(reader.varint()?).map_err(|_| Malformed);
            KvError::Timeout(Waited { after_ms, received: count(reader)?, required: count(reader)? })
        }
        4 => KvError::NoSuchTablet(tablet),
        5 => KvError::DiskFull(text(reader)?),
        6 => KvError::TooLarge(text(reader)?),
        7 => KvError::Storage(text(reader)?),
        8 => KvError::Locked(tablet),
        9 => KvError::IndexBeingBuilt,
        10 => KvError::Unmaintained,
        _ => return Err(Malformed),
    })
}
