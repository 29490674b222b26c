//! The bytes of a read within a request between nodes (`docs/formats/requests.md`).

use super::index_wire::IndexRef;
use super::pin_wire::{PinnedRef, put_pinned, read_pinned};
use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use diorite_query::kv::several::Several;
use diorite_query::kv::{Fetch, FetchRows, PinnedRead, ScanRequest};

pub(super) const HAS_HEADER: u8 = 1;
pub(super) const HAS_STATIC: u8 = 2;
pub(super) const HAS_ROW: u8 = 4;
pub(super) const HAS_RANGE: u8 = 8;
pub(super) const HAS_AGGREGATE: u8 = 16;
const HAS_SEVERAL: u8 = 32;
const HAS_LIMIT: u8 = 64;
const HAS_PIN: u8 = 128;
const HAS_INDEX: u8 = HAS_ROW | HAS_RANGE;

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

impl<'a> FetchRef<'a> {
    /// Decodes what follows the kind of a request.
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
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
        Ok(Self { header, static_row, rows, aggregate, left_ms, pinned, wants_version: false, judged_s: None })
    }

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

/// Appends what follows the kind of a request: a read, with the time left, if that is given.
pub(super) fn put(out: &mut Vec<u8>, fetch: &Fetch, left_ms: Option<u64>) {
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
