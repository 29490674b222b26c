//! The bytes of reads by index in requests (`docs/formats/requests.md`).
//!
//! Always true: decoding returns what was encoded; unknown flags are refused. Left out: the meaning of the forms
//! ([`diorite_query::index`]).

use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use diorite_query::kv::IndexScan;

const WITH_STATICS: u8 = 1;
const WHOLE_PARTITIONS: u8 = 2;
const MAY_SCAN: u8 = 4;

/// An [`IndexScan`] whose keys are borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexRef<'a> {
    pub(super) index: u64,
    spans: &'a [u8],
    pub(super) start: &'a [u8],
    end: &'a [u8],
    partition_len: usize,
    max_entries: usize,
    max_bytes: usize,
    flags: u8,
}

impl<'a> From<&'a IndexScan> for IndexRef<'a> {
    fn from(scan: &'a IndexScan) -> Self {
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        Self {
            index: scan.index,
            spans: &scan.spans,
            start: &scan.start,
            end: &scan.end,
            partition_len: scan.partition_len,
            max_entries: scan.max_entries,
            max_bytes: scan.max_bytes,
            flags: flag(scan.with_statics, WITH_STATICS)
                | flag(scan.whole_partitions, WHOLE_PARTITIONS)
                | flag(scan.may_scan, MAY_SCAN),
        }
    }
}

impl<'a> IndexRef<'a> {
    pub(super) fn to_scan(self) -> IndexScan {
        IndexScan {
            index: self.index,
            spans: self.spans.to_vec(),
            start: self.start.to_vec(),
            end: self.end.to_vec(),
            partition_len: self.partition_len,
            max_entries: self.max_entries,
            max_bytes: self.max_bytes,
            with_statics: self.flags & WITH_STATICS != 0,
            whole_partitions: self.flags & WHOLE_PARTITIONS != 0,
            may_scan: self.flags & MAY_SCAN != 0,
        }
    }

    pub(super) fn put(self, out: &mut Vec<u8>) {
        put_varint(out, self.index);
        [self.spans, self.start, self.end].into_iter().for_each(|bytes| put_slice(out, bytes));
        for number in [self.partition_len, self.max_entries, self.max_bytes] {
            put_varint(out, number as u64);
        }
        out.push(self.flags);
    }

    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let (index, spans, start, end) = (reader.varint()?, reader.slice()?, reader.slice()?, reader.slice()?);
        let mut size = || usize::try_from(reader.varint()?).map_err(|_| Malformed);
        let (partition_len, max_entries, max_bytes) = (size()?, size()?, size()?);
        let flags = reader.u8()?;
        if flags & !(WITH_STATICS | WHOLE_PARTITIONS | MAY_SCAN) != 0 {
            return Err(Malformed);
        }
        Ok(Self { index, spans, start, end, partition_len, max_entries, max_bytes, flags })
    }
}
