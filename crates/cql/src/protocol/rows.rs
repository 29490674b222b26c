//! RESULT Rows: metadata, and cells appended one after another.
//!
//! Always true: cells are the same bytes in every version, so a result can be gathered before the version is looked at; metadata is encoded
//! once per version and then copied. A [`RowsWriter`] writes straight into the connection's buffer and allocates nothing. Left out: how values
//! become cells.

use super::reply::{self, FrameStart, ReplyHead, result_kind};
use super::types::TypeOption;
use super::version::Version;
use super::wire;
use md5::{Digest, Md5};
use std::sync::{Arc, OnceLock};

const GLOBAL_TABLE_SPEC: i32 = 0x0001;
const HAS_MORE_PAGES: i32 = 0x0002;
const NO_METADATA: i32 = 0x0004;
const METADATA_CHANGED: i32 = 0x0008;

/// A column of a result, or a bind marker of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSpec {
    /// The keyspace it comes from
    pub keyspace: String,
    /// The table it comes from
    pub table: String,
    /// Its name, as clients look it up
    pub name: String,
    /// Its type
    pub type_option: TypeOption,
}

/// The columns of a result. Shared between a prepared statement and the results it gives.
#[derive(Debug)]
pub struct ResultMetadata {
    columns: Vec<ColumnSpec>,
    id: [u8; 16],
    encoded: [OnceLock<EncodedColumns>; Version::ALL.len()],
}

#[derive(Debug)]
struct EncodedColumns {
    /// Whether keyspace and table are written once for all columns.
    is_global: bool,
    bytes: Box<[u8]>,
}

impl EncodedColumns {
    fn new(columns: &[ColumnSpec], version: Version) -> Self {
        let mut bytes = Vec::with_capacity(columns.len() * 16);
        let is_global = put_columns(&mut bytes, columns, version);
        Self { is_global, bytes: bytes.into() }
    }

    fn flags(&self) -> i32 {
        if self.is_global { GLOBAL_TABLE_SPEC } else { 0 }
    }
}

/// Appends column specifications; returns whether keyspace and table are given once for all.
fn put_columns(out: &mut Vec<u8>, columns: &[ColumnSpec], version: Version) -> bool {
    let first = columns.first();
    let is_global = first.is_some_and(|first| {
        columns.iter().all(|column| column.keyspace == first.keyspace && column.table == first.table)
    });
    if let Some(first) = first.filter(|_| is_global) {
        wire::put_string(out, &first.keyspace);
        wire::put_string(out, &first.table);
    }
    for column in columns {
        if !is_global {
            wire::put_string(out, &column.keyspace);
            wire::put_string(out, &column.table);
        }
        wire::put_string(out, &column.name);
        column.type_option.encode(out, version);
    }
    is_global
}

/// The metadata of a result's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendMetadata {
    /// Everything.
    Full,
    /// The number of columns: the client knows the rest.
    Skip,
    /// Everything and the new id, as the client's is out of date (v5).
    Changed,
}

impl ResultMetadata {
    /// The metadata of these columns.
    pub fn new(columns: Vec<ColumnSpec>) -> Self {
        let newest = EncodedColumns::new(&columns, Version::HIGHEST);
        let mut digest = Md5::new();
        digest.update((columns.len() as u32).to_be_bytes());
        digest.update(&newest.bytes);
        let encoded: [OnceLock<EncodedColumns>; Version::ALL.len()] = Default::default();
        let _ = encoded[Version::HIGHEST.index()].set(newest);
        Self { columns, id: digest.finalize().into(), encoded }
    }

    /// No columns, for a statement without a result.
    pub fn empty() -> Self {
        Self::new(Vec::new())
    }

    /// The columns.
    pub fn columns(&self) -> &[ColumnSpec] {
        &self.columns
    }

    /// v5's `result_metadata_id`: the same columns have the same id on every node.
    pub fn id(&self) -> &[u8; 16] {
        &self.id
    }

    /// The metadata to send with a result, by what the client asked for and the `result_metadata_id` that it sent with
    /// EXECUTE. For a conditional write, whose columns depend on the outcome, pass `false` and `None`, so that drivers
    /// do not take the columns for the statement's.
    #[inline]
    pub fn to_send(&self, skip_metadata: bool, known_id: Option<&[u8]>) -> SendMetadata {
        match known_id {
            Some(known) if known != self.id => SendMetadata::Changed,
            _ if skip_metadata => SendMetadata::Skip,
            _ => SendMetadata::Full,
        }
    }

    #[inline]
    fn encoded(&self, version: Version) -> &EncodedColumns {
        self.encoded[version.index()].get_or_init(|| EncodedColumns::new(&self.columns, version))
    }

    /// Appends `<metadata>` as RESULT Rows and PREPARED have it.
    #[inline]
    pub(super) fn encode(&self, out: &mut Vec<u8>, version: Version, send: SendMetadata, paging_state: Option<&[u8]>) {
        let mut flags = if paging_state.is_some() { HAS_MORE_PAGES } else { 0 };
        let send = if self.columns.is_empty() { SendMetadata::Skip } else { send };
        let columns = (send != SendMetadata::Skip).then(|| self.encoded(version));
        let new_id = (send == SendMetadata::Changed && version >= Version::V5).then_some(&self.id);
        flags |= columns.map_or(NO_METADATA, EncodedColumns::flags);
        flags |= if new_id.is_some() { METADATA_CHANGED } else { 0 };
        wire::put_i32(out, flags);
        wire::put_i32(out, self.columns.len() as i32);
        if let Some(paging_state) = paging_state {
            wire::put_bytes(out, paging_state);
        }
        if let Some(id) = new_id {
            wire::put_short_bytes(out, id);
        }
        if let Some(columns) = columns {
            out.extend_from_slice(&columns.bytes);
        }
    }
}

/// The bind markers of a prepared statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BindMarkers {
    /// The markers, in order.
    pub columns: Vec<ColumnSpec>,
    /// For each partition key column the index of the marker that binds it; empty unless all are bound (v4).
    pub partition_key_indexes: Vec<u16>,
}

impl BindMarkers {
    /// Appends `<metadata>` as PREPARED has it.
    pub(super) fn encode(&self, out: &mut Vec<u8>, version: Version) {
        let flags_at = out.len();
        wire::put_i32(out, 0);
        wire::put_i32(out, self.columns.len() as i32);
        if version >= Version::V4 {
            wire::put_i32(out, self.partition_key_indexes.len() as i32);
            self.partition_key_indexes.iter().for_each(|&index| wire::put_u16(out, index));
        }
        if put_columns(out, &self.columns, version) {
            out[flags_at..flags_at + 4].copy_from_slice(&GLOBAL_TABLE_SPEC.to_be_bytes());
        }
    }
}

/// Appends a cell.
#[inline]
pub fn put_cell(out: &mut Vec<u8>, value: &[u8]) {
    wire::put_bytes(out, value);
}

/// Appends a null cell.
#[inline]
pub fn put_null(out: &mut Vec<u8>) {
    wire::put_i32(out, -1);
}

/// A page of rows, gathered before version and connection are known.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The columns
    pub metadata: Arc<ResultMetadata>,
    /// Where the next page begins; `None` on the last
    pub paging_state: Option<Vec<u8>>,
    /// How many rows `body` holds
    pub row_count: u32,
    /// The cells of all rows, one after another (see [`put_cell`], [`put_null`])
    pub body: Vec<u8>,
}

impl Rows {
    /// No rows yet.
    pub fn new(metadata: Arc<ResultMetadata>) -> Self {
        Self { metadata, paging_state: None, row_count: 0, body: Vec::new() }
    }

    /// Appends a row; `None` is a null cell. The number of cells must be that of the metadata's columns.
    pub fn push_row<'a>(&mut self, cells: impl IntoIterator<Item = Option<&'a [u8]>>) {
        for cell in cells {
            wire::put_optional_bytes(&mut self.body, cell);
        }
        self.row_count += 1;
    }

    /// Appends the RESULT.
    pub fn encode(&self, out: &mut Vec<u8>, head: &ReplyHead<'_>, send: SendMetadata) {
        let mut writer = RowsWriter::begin(out, head, &self.metadata, send, self.paging_state.as_deref());
        writer.put_encoded_rows(self.row_count, &self.body);
        writer.finish();
    }
}

/// Writes a RESULT Rows straight into a connection's output. Dropping it without [`RowsWriter::finish`] removes what
/// was written.
#[derive(Debug)]
pub struct RowsWriter<'o> {
    out: &'o mut Vec<u8>,
    frame: Option<FrameStart>,
    row_count_at: usize,
    row_count: u32,
}

impl<'o> RowsWriter<'o> {
    /// Writes everything up to the first row.
    #[inline]
    pub fn begin(
        out: &'o mut Vec<u8>,
        head: &ReplyHead<'_>,
        metadata: &ResultMetadata,
        send: SendMetadata,
        paging_state: Option<&[u8]>,
    ) -> Self {
        let frame = reply::begin_result(out, head, result_kind::ROWS);
        metadata.encode(out, head.version, send, paging_state);
        let row_count_at = out.len();
        wire::put_i32(out, 0);
        Self { out, frame: Some(frame), row_count_at, row_count: 0 }
    }

    /// Appends a cell.
    #[inline]
    pub fn put_cell(&mut self, value: &[u8]) {
        put_cell(self.out, value);
    }

    /// Appends a null cell.
    #[inline]
    pub fn put_null(&mut self) {
        put_null(self.out);
    }

    /// Where the cells of rows are appended (see [`put_cell`], [`put_null`]).
    #[inline]
    pub fn cells(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// Ends a row.
    #[inline]
    pub fn end_row(&mut self) {
        self.row_count += 1;
    }

    /// Appends rows whose cells are encoded already.
    pub fn put_encoded_rows(&mut self, row_count: u32, cells: &[u8]) {
        self.out.extend_from_slice(cells);
        self.row_count += row_count;
    }

    /// How many bytes the message has so far.
    pub fn encoded_bytes(&self) -> usize {
        self.frame.as_ref().map_or(0, |frame| self.out.len() - frame.offset())
    }

    /// Completes the message.
    #[inline]
    pub fn finish(mut self) {
        if let Some(frame) = self.frame.take() {
            let count = self.row_count.to_be_bytes();
            self.out[self.row_count_at..self.row_count_at + 4].copy_from_slice(&count);
            reply::end_frame(self.out, frame);
        }
    }
}

impl Drop for RowsWriter<'_> {
    fn drop(&mut self) {
        if let Some(frame) = self.frame.take() {
            self.out.truncate(frame.offset());
        }
    }
}
