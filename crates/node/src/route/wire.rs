//! The bytes of requests between nodes, and of their answers (`docs/formats/requests.md`).
//!
//! Always true: no bytes make decoding panic or allocate more than they hold; decoding returns what was encoded. Left
//! out: the meaning of a key, a value or a program.

use super::index_wire::IndexRef;
use super::pin_wire::{PinnedRef, put_pinned, read_pinned};
use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use diorite_base::write::{KvError, Waited};
use diorite_base::{NodeId, TabletId};
use diorite_query::kv::several::Several;
use diorite_query::kv::{Fetch, FetchRows, Fetched, Kept, PinnedRead, ScanChunk, ScanRequest};
use diorite_transact::version::DataVersion;
use std::ops::Deref;

const VERSION: u8 = 1;
const HAS_HEADER: u8 = 1;
const HAS_STATIC: u8 = 2;
const HAS_ROW: u8 = 4;
const HAS_RANGE: u8 = 8;
const HAS_AGGREGATE: u8 = 16;
const HAS_SEVERAL: u8 = 32;
const HAS_LIMIT: u8 = 64;
const HAS_PIN: u8 = 128;
/// Of a request.
const HAS_INDEX: u8 = HAS_ROW | HAS_RANGE;
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

/// A key that may share its prefix with another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SplitKey<'a> {
    shared: &'a [u8],
    rest: &'a [u8],
}

impl<'a> SplitKey<'a> {
    pub(super) fn whole(key: &'a [u8]) -> Self {
        Self { shared: key, rest: &[] }
    }

    /// The key in one piece; copied to `scratch` only if necessary.
    pub(super) fn join<'b>(&'b self, scratch: &'b mut Vec<u8>) -> &'b [u8] {
        if self.rest.is_empty() {
            return self.shared;
        }
        scratch.clear();
        scratch.extend_from_slice(self.shared);
        scratch.extend_from_slice(self.rest);
        scratch
    }

    fn to_vec(self) -> Vec<u8> {
        [self.shared, self.rest].concat()
    }

    fn put(out: &mut Vec<u8>, base: &[u8], key: &[u8]) {
        let shared = base.iter().zip(key).take_while(|(a, b)| a == b).count();
        put_varint(out, shared as u64);
        put_slice(out, &key[shared..]);
    }

    fn read(reader: &mut Reader<'a>, base: &'a [u8]) -> Result<Self, Malformed> {
        let shared = usize::try_from(reader.varint()?).map_err(|_| Malformed)?;
        Ok(Self { shared: base.get(..shared).ok_or(Malformed)?, rest: reader.slice()? })
    }
}

/// A range in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RangeRef<'a> {
    pub(super) start: &'a [u8],
    pub(super) end: &'a [u8],
    pub(super) reverse: bool,
    pub(super) max_entries: usize,
    pub(super) max_bytes: usize,
}

/// The rows of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowsRef<'a> {
    Nothing,
    One(&'a [u8]),
    Range(RangeRef<'a>),
    Several(SeveralRef<'a>),
    Index(IndexRef<'a>),
}

/// Several spans in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SeveralRef<'a> {
    pub(super) spans: &'a [u8],
    pub(super) reverse: bool,
    pub(super) max_entries: usize,
    pub(super) max_bytes: usize,
}

/// A [`Fetch`] whose keys are borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FetchRef<'a> {
    pub(super) header: Option<(u64, SplitKey<'a>)>,
    pub(super) static_row: Option<SplitKey<'a>>,
    pub(super) rows: RowsRef<'a>,
    /// The task of an aggregate, whose answer replaces the rows.
    pub(super) aggregate: Option<&'a [u8]>,
    /// How much longer the request may take, milliseconds, if that is less than the usual timeout.
    pub(super) left_ms: Option<u64>,
    /// The snapshot to read in.
    pub(super) pinned: Option<PinnedRef<'a>>,
    /// The answer says the version of the data.
    pub(super) wants_version: bool,
    /// The second as of which expiry is judged.
    pub(super) judged_s: Option<u32>,
}

impl<'a> From<&'a Fetch> for FetchRef<'a> {
    fn from(fetch: &'a Fetch) -> Self {
        Self {
            header: fetch.header.as_ref().map(|(flags, key)| (*flags, SplitKey::whole(key))),
            static_row: fetch.static_row.as_deref().map(SplitKey::whole),
            rows: match &fetch.rows {
                FetchRows::Nothing => RowsRef::Nothing,
                FetchRows::One(key) => RowsRef::One(key),
                FetchRows::Range(range) => RowsRef::Range(RangeRef {
                    start: &range.start,
                    end: &range.end,
                    reverse: range.reverse,
                    max_entries: range.max_entries,
                    max_bytes: range.max_bytes,
                }),
                FetchRows::Several(several) => RowsRef::Several(SeveralRef {
                    spans: &several.spans,
                    reverse: several.reverse,
                    max_entries: several.max_entries,
                    max_bytes: several.max_bytes,
                }),
                FetchRows::Index(scan) => RowsRef::Index(scan.into()),
            },
            aggregate: fetch.aggregate.as_deref(),
            left_ms: None,
            pinned: fetch.pinned.as_ref().map(PinnedRef::from),
            wants_version: fetch.wants_version,
            judged_s: fetch.judged_s,
        }
    }
}

impl FetchRef<'_> {
    pub(super) fn to_fetch(self) -> Fetch {
        Fetch {
            staleness_ms: None,
            deadline_ns: None,
            header: self.header.map(|(flags, key)| (flags, key.to_vec())),
            static_row: self.static_row.map(SplitKey::to_vec),
            rows: match self.rows {
                RowsRef::Nothing => FetchRows::Nothing,
                RowsRef::One(key) => FetchRows::One(key.to_vec()),
                RowsRef::Range(range) => FetchRows::Range(ScanRequest {
                    start: range.start.to_vec(),
                    end: range.end.to_vec(),
                    reverse: range.reverse,
                    max_entries: range.max_entries,
                    max_bytes: range.max_bytes,
                }),
                RowsRef::Several(several) => FetchRows::Several(Several {
                    spans: several.spans.to_vec(),
                    reverse: several.reverse,
                    max_entries: several.max_entries,
                    max_bytes: several.max_bytes,
                }),
                RowsRef::Index(scan) => FetchRows::Index(scan.to_scan()),
            },
            needs_disk: false,
            aggregate: self.aggregate.map(<[u8]>::to_vec),
            // It was decoded when it arrived.
            pinned: self.pinned.and_then(|pinned| {
                let committed = pinned.committed.to_vec().ok()?;
                Some(PinnedRead { pin: pinned.pin, committed: committed.into() })
            }),
            wants_version: self.wants_version,
            judged_s: self.judged_s,
        }
    }
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
    let flag = |is_there: bool, bit: u8| if is_there { bit } else { 0 };
    let rows = match &fetch.rows {
        FetchRows::Nothing => 0,
        FetchRows::One(_) => HAS_ROW,
        FetchRows::Range(_) => HAS_RANGE,
        FetchRows::Several(_) => HAS_SEVERAL,
        FetchRows::Index(_) => HAS_INDEX,
    };
    let has = flag(fetch.header.is_some(), HAS_HEADER) | flag(fetch.static_row.is_some(), HAS_STATIC);
    let has = has | flag(fetch.aggregate.is_some(), HAS_AGGREGATE) | flag(fetch.pinned.is_some(), HAS_PIN);
    out.push(rows | has | flag(left_ms.is_some(), HAS_LIMIT));
    let base: &[u8] = match &fetch.rows {
        FetchRows::Nothing => &[],
        FetchRows::One(key) => {
            put_slice(out, key);
            key
        }
        FetchRows::Range(range) => {
            put_slice(out, &range.start);
            put_slice(out, &range.end);
            out.push(u8::from(range.reverse));
            put_varint(out, range.max_entries as u64);
            put_varint(out, range.max_bytes as u64);
            &range.start
        }
        FetchRows::Several(several) => {
            put_slice(out, &several.spans);
            out.push(u8::from(several.reverse));
            put_varint(out, several.max_entries as u64);
            put_varint(out, several.max_bytes as u64);
            &[]
        }
        FetchRows::Index(scan) => {
            IndexRef::from(scan).put(out);
            &scan.start
        }
    };
    if let Some((flags, key)) = &fetch.header {
        put_varint(out, *flags);
        SplitKey::put(out, base, key);
    }
    if let Some(key) = &fetch.static_row {
        SplitKey::put(out, base, key);
    }
    if let Some(task) = &fetch.aggregate {
        put_slice(out, task);
    }
    left_ms.into_iter().for_each(|left_ms| put_varint(out, left_ms));
    fetch.pinned.iter().for_each(|pinned| put_pinned(out, pinned));
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
        FETCH => OperationRef::Fetch(read_fetch(reader)?),
        FETCH_VERSIONED => OperationRef::Fetch(FetchRef { wants_version: true, ..read_fetch(reader)? }),
        FETCH_AT => {
            let (judged_s, wants_version) = (Some(reader.u32()?), reader.u8()? != 0);
            OperationRef::Fetch(FetchRef { judged_s, wants_version, ..read_fetch(reader)? })
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

fn read_fetch<'a>(reader: &mut Reader<'a>) -> Result<FetchRef<'a>, Malformed> {
    let size = |value: u64| usize::try_from(value).map_err(|_| Malformed);
    let parts = reader.u8()?;
    let (base, rows): (&[u8], _) = match parts & (HAS_ROW | HAS_RANGE | HAS_SEVERAL) {
        0 => (&[], RowsRef::Nothing),
        HAS_ROW => {
            let key = reader.slice()?;
            (key, RowsRef::One(key))
        }
        HAS_RANGE => {
            let start = reader.slice()?;
            let range = RangeRef {
                start,
                end: reader.slice()?,
                reverse: reader.u8()? != 0,
                max_entries: size(reader.varint()?)?,
                max_bytes: size(reader.varint()?)?,
            };
            (start, RowsRef::Range(range))
        }
        HAS_SEVERAL => {
            let several = SeveralRef {
                spans: reader.slice()?,
                reverse: reader.u8()? != 0,
                max_entries: size(reader.varint()?)?,
                max_bytes: size(reader.varint()?)?,
            };
            (&[], RowsRef::Several(several))
        }
        HAS_INDEX => {
            let scan = IndexRef::read(reader)?;
            (scan.start, RowsRef::Index(scan))
        }
        _ => return Err(Malformed),
    };
    let header = match parts & HAS_HEADER {
        0 => None,
        _ => Some((reader.varint()?, SplitKey::read(reader, base)?)),
    };
    let static_row = match parts & HAS_STATIC {
        0 => None,
        _ => Some(SplitKey::read(reader, base)?),
    };
    let aggregate = if parts & HAS_AGGREGATE == 0 { None } else { Some(reader.slice()?) };
    let left_ms = if parts & HAS_LIMIT == 0 { None } else { Some(reader.varint()?) };
    let pinned = if parts & HAS_PIN == 0 { None } else { Some(read_pinned(reader)?) };
    Ok(FetchRef { header, static_row, rows, aggregate, left_ms, pinned, wants_version: false, judged_s: None })
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
