//! x
use crate::entry::Compaction;
use crate::schema::ColumnId;
use diorite_base::bytes::Malformed;

/// The base timestamp of a row that the leader will stamp: pass it to [`RowWriter::new`] and as the timestamp of everything that is to
/// carry the server's. Reserved; clients may not give it.
pub const UNSTAMPED: i64 = i64::MIN;
/// No outer deletion, for [`LiveRow::new`].
pub const NOTHING_DELETED: i64 = i64::MIN;

/// When a value goes away by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Expiry {
    /// The TTL it was written with, seconds.
    pub ttl_s: u32,
    /// The second (since the epoch) at which it is no longer live.
    pub at_s: u32,
}

/// A deletion of everything up to and including a timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Deletion {
    /// Microseconds; what carries this or less is deleted.
    pub timestamp_us: i64,
    /// When it was made, seconds since the epoch: decides when it may be purged.
    pub local_s: u32,
}

/// A row marker: the row exists by itself, as an INSERT made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Marker {
    /// Microseconds
    pub timestamp_us: i64,
    /// None if it stays.
    pub expiry: Option<Expiry>,
}

/// Appends a packed row to a buffer. Call in this order: marker, deletion, cells in strictly ascending column id.
#[derive(Debug)]
pub struct RowWriter<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> RowWriter<'a> {
    /// Begins a row at the end of `out`. What carries the timestamp `base_us` stores none of its own.
    pub fn new(out: &'a mut Vec<u8>, base_us: i64) -> Self {
        let _ = base_us;
        Self { out }
    }
    /// The timestamp just before the base, for the deletion that precedes the elements of an overwritten collection.
    pub fn before_base(&self) -> i64 {
        unreachable!()
    }
    /// Adds the row marker.
    pub fn marker(&mut self, marker: Marker) {
        let _ = (marker, &self.out);
    }
    /// Adds a row deletion.
    pub fn deletion(&mut self, deletion: Deletion) {
        let _ = deletion;
    }
    /// Adds a value.
    pub fn cell(&mut self, column: ColumnId, timestamp_us: i64, expiry: Option<Expiry>, value: &[u8]) {
        let _ = (column, timestamp_us, expiry, value);
    }
    /// Adds a deleted cell.
    pub fn tombstone(&mut self, column: ColumnId, deletion: Deletion) {
        let _ = (column, deletion);
    }
    /// Adds a counter change.
    pub fn counter(&mut self, column: ColumnId, timestamp_us: i64, delta: i64) {
        let _ = (column, timestamp_us, delta);
    }
    /// Begins a multi-cell column: elements in strictly ascending path order follow, then [`end_complex`](Self::end_complex).
    pub fn begin_complex(&mut self, column: ColumnId, deletion: Option<Deletion>) {
        let _ = (column, deletion);
    }
    /// Adds an element.
    pub fn element(&mut self, path: &[u8], timestamp_us: i64, expiry: Option<Expiry>, value: &[u8]) {
        let _ = (path, timestamp_us, expiry, value);
    }
    /// Adds a deleted element.
    pub fn element_tombstone(&mut self, path: &[u8], deletion: Deletion) {
        let _ = (path, deletion);
    }
    /// Ends a multi-cell column.
    pub fn end_complex(&mut self) {}
}

/// Appends the merge of two packed rows to `out`; `newer` came later in the log (which only counters care about).
pub fn merge(older: &[u8], newer: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let _ = (older, newer, out);
    unreachable!()
}

/// Whether a value is a row of live, never-expiring simple cells, perhaps with a marker: nothing for compaction to do.
#[inline]
pub fn is_plain(value: &[u8]) -> bool {
    let _ = value;
    unreachable!()
}

/// See [`crate::entry::compact`].
pub fn compact(value: &[u8], now_s: u32, purge_tombstones_before_s: u32) -> Compaction {
    let _ = (value, now_s, purge_tombstones_before_s);
    unreachable!()
}

/// What a reader sees of a packed row at one moment: expired, deleted and shadowed data is skipped.
#[derive(Debug, Clone, Copy)]
pub struct LiveRow<'a> {
    bytes: &'a [u8],
}

impl<'a> LiveRow<'a> {
    /// `deleted_us`: the timestamp of the partition or range deletion over this row, or [`NOTHING_DELETED`].
    pub fn new(value: &'a [u8], now_s: u32, deleted_us: i64) -> Result<Self, Malformed> {
        let _ = (now_s, deleted_us);
        Ok(Self { bytes: value })
    }
    /// Whether the row has a live marker.
    pub fn has_marker(&self) -> bool {
        let _ = self.bytes;
        unreachable!()
    }
    /// Whether the row exists: it has a live marker or a live cell.
    pub fn exists(&self) -> Result<bool, Malformed> {
        unreachable!()
    }
    /// The live cells in ascending column id.
    pub fn cells(&self) -> LiveCells<'a> {
        unreachable!()
    }
    /// The live cell of one column.
    pub fn cell(&self, column: ColumnId) -> Result<Option<LiveCell<'a>>, Malformed> {
        let _ = column;
        unreachable!()
    }
}

/// Iterator over live cells; ends after the first malformed one, which it returns.
#[derive(Debug, Clone)]
pub struct LiveCells<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for LiveCells<'a> {
    type Item = Result<LiveCell<'a>, Malformed>;
    fn next(&mut self) -> Option<Self::Item> {
        let _ = self.bytes;
        unreachable!()
    }
}

/// A live cell.
#[derive(Debug, Clone, Copy)]
pub struct LiveCell<'a> {
    /// The column.
    pub column: ColumnId,
    /// `writetime`; of a multi-cell column the newest element's.
    pub timestamp_us: i64,
    /// For `ttl`; `None` for multi-cell columns, whose elements have their own.
    pub expiry: Option<Expiry>,
    /// The content.
    pub content: LiveContent<'a>,
}

/// What a live cell holds.
#[derive(Debug, Clone, Copy)]
pub enum LiveContent<'a> {
    /// Wire bytes
    Value(&'a [u8]),
    /// A counter's sum
    Counter(i64),
    /// Elements; at least one is live
    Complex(LiveComplex<'a>),
}

/// A multi-cell column's live elements.
#[derive(Debug, Clone, Copy)]
pub struct LiveComplex<'a> {
    bytes: &'a [u8],
}

impl<'a> LiveComplex<'a> {
    /// The live elements in path order.
    pub fn elements(&self) -> LiveElements<'a> {
        unreachable!()
    }
    /// Appends the wire value of the whole column.
    pub fn assemble(&self, data_type: &crate::types::CqlType, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let _ = (data_type, out, self.bytes);
        unreachable!()
    }
}

/// Iterator over live elements.
#[derive(Debug, Clone)]
pub struct LiveElements<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for LiveElements<'a> {
    type Item = Result<LiveElement<'a>, Malformed>;
    fn next(&mut self) -> Option<Self::Item> {
        let _ = self.bytes;
        unreachable!()
    }
}

/// A live element of a multi-cell column.
#[derive(Debug, Clone, Copy)]
pub struct LiveElement<'a> {
    /// Its address.
    pub path: &'a [u8],
    /// `writetime`
    pub timestamp_us: i64,
    /// For `ttl`
    pub expiry: Option<Expiry>,
    /// Wire bytes; empty for sets, whose path is the value.
    pub value: &'a [u8],
}

/// Appends the path of a set element, or of a map entry by its key: the order-preserving form of `wire`.
pub fn element_path(
    element_type: &crate::types::CqlType,
    wire: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), crate::value::ValueError> {
    let _ = (element_type, wire, out);
    unreachable!()
}

/// The path of field `index` of a user-defined type.
pub fn field_path(index: u16) -> [u8; 2] {
    index.to_be_bytes()
}

/// The path of an element appended to a list. `discriminator` tells concurrent writers apart (any number, e.g. random);
/// `sequence` numbers the elements of one write.
pub fn list_path_append(now_us: i64, discriminator: u32, sequence: u32) -> [u8; 16] {
    let _ = (now_us, discriminator, sequence);
    unreachable!()
}

/// The path of an element put before a list. The elements of one write stay in the order of `sequence`.
pub fn list_path_prepend(now_us: i64, discriminator: u32, sequence: u32) -> [u8; 16] {
    let _ = (now_us, discriminator, sequence);
    unreachable!()
}

/// Everything stored in a packed row, dead or alive.
#[derive(Debug, Clone, Copy)]
pub struct RowReader<'a> {
    bytes: &'a [u8],
}

impl<'a> RowReader<'a> {
    /// Reads the head of a packed row.
    pub fn new(value: &'a [u8]) -> Result<Self, Malformed> {
        Ok(Self { bytes: value })
    }
    /// The base timestamp.
    pub fn base_us(&self) -> i64 {
        let _ = self.bytes;
        unreachable!()
    }
    /// The row marker, live or expired.
    pub fn marker(&self) -> Option<Marker> {
        unreachable!()
    }
    /// The row deletion.
    pub fn deletion(&self) -> Option<Deletion> {
        unreachable!()
    }
}
