//! Appends packed rows straight to a buffer.
//!
//! Always true: the result is canonical (nothing stores a timestamp that equals the base, the flags are exact), so equal rows over the
//! same base have equal bytes.

use super::parts::{Deletion, Expiry, Marker, flag, push_horizon, row_flag};
use crate::format::{FORMAT_BOUNDED_ROW, FORMAT_ROW};
use crate::schema::ColumnId;
use diorite_base::Horizon;
use diorite_base::bytes::{put_slice, put_varint};

/// Appends a packed row to a buffer. Call in this order: marker, deletion, cells in strictly ascending column id.
#[derive(Debug)]
pub struct RowWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    /// Where the content of the row begins.
    body_at: usize,
    base_us: i64,
    next_column: u64,
    complex: OpenComplex,
}

/// The multi-cell column being written.
#[derive(Debug, Default, Clone, Copy)]
struct OpenComplex {
    start: usize,
    length_at: usize,
    has_deletion: bool,
}

impl<'a> RowWriter<'a> {
    /// Begins a row at the end of `out`. Cells with the timestamp `base_us` store no timestamp of their own.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>, base_us: i64) -> Self {
        let start = out.len();
        out.push(FORMAT_ROW);
        out.extend_from_slice(&base_us.to_le_bytes());
        let body_at = out.len();
        Self { out, start, body_at, base_us, next_column: 0, complex: OpenComplex::default() }
    }

    /// As [`Self::new`], for a row with a horizon, if one is given.
    pub(crate) fn bounded(out: &'a mut Vec<u8>, base_us: i64, horizon: Option<Horizon>) -> Self {
        let mut writer = Self::new(out, base_us);
        if let Some(horizon) = horizon {
            writer.out[writer.start] = FORMAT_BOUNDED_ROW;
            push_horizon(horizon, writer.out);
            writer.body_at = writer.out.len();
        }
        writer
    }

    /// The timestamp just before the base, for the deletion that precedes the elements of an overwritten collection.
    pub fn before_base(&self) -> i64 {
        self.base_us.wrapping_sub(1)
    }

    /// Whether nothing has been written but the header.
    pub fn is_empty(&self) -> bool {
        self.out.len() == self.body_at
    }

    #[inline]
    fn raise(&mut self, flags: u8) {
        self.out[self.start] |= flags;
    }

    /// Adds the row marker.
    #[inline]
    pub fn marker(&mut self, marker: Marker) {
        debug_assert!(self.is_empty(), "the marker comes first");
        self.raise(row_flag::MARKER);
        self.push_head(0, marker.timestamp_us, marker.expiry);
    }

    /// Adds a row deletion.
    pub fn deletion(&mut self, deletion: Deletion) {
        debug_assert!(self.next_column == 0, "the row deletion precedes the cells");
        self.raise(row_flag::DELETION);
        push_deletion(deletion, self.base_us, self.out);
    }

    /// Flags, then whichever of timestamp and expiry have to be stored.
    #[inline]
    fn push_head(&mut self, flags: u8, timestamp_us: i64, expiry: Option<Expiry>) {
        let own = timestamp_us != self.base_us;
        let flags =
            flags | if own { flag::OWN_TIMESTAMP } else { 0 } | if expiry.is_some() { flag::EXPIRES } else { 0 };
        self.out.push(flags);
        if own {
            self.out.extend_from_slice(&timestamp_us.to_le_bytes());
        }
        if let Some(expiry) = expiry {
            self.out.extend_from_slice(&expiry.ttl_s.to_le_bytes());
            self.out.extend_from_slice(&expiry.at_s.to_le_bytes());
            self.raise(row_flag::EXPIRING);
        }
    }

    #[inline]
    fn push_column(&mut self, column: ColumnId) {
        debug_assert!(u64::from(column) >= self.next_column, "cells are written in ascending column id");
        self.next_column = u64::from(column) + 1;
        put_varint(self.out, u64::from(column));
    }

    /// Adds a value.
    #[inline]
    pub fn cell(&mut self, column: ColumnId, timestamp_us: i64, expiry: Option<Expiry>, value: &[u8]) {
        self.push_column(column);
        self.push_head(0, timestamp_us, expiry);
        put_slice(self.out, value);
    }

    /// Adds a deleted cell.
    pub fn tombstone(&mut self, column: ColumnId, deletion: Deletion) {
        self.push_column(column);
        self.push_tombstone(deletion);
    }

    fn push_tombstone(&mut self, deletion: Deletion) {
        self.raise(row_flag::TOMBSTONE);
        self.push_head(flag::TOMBSTONE, deletion.timestamp_us, None);
        self.out.extend_from_slice(&deletion.local_s.to_le_bytes());
    }

    /// Adds a value that has expired.
    pub(super) fn expired(&mut self, column: ColumnId, timestamp_us: i64, expiry: Expiry) {
        self.push_column(column);
        self.push_head(flag::TOMBSTONE, timestamp_us, Some(expiry));
    }

    /// Adds a counter change.
    pub fn counter(&mut self, column: ColumnId, timestamp_us: i64, delta: i64) {
        self.push_counter(column, timestamp_us, delta, false);
    }

    /// Adds a counter. `reset`: earlier sums are discarded.
    pub(super) fn push_counter(&mut self, column: ColumnId, timestamp_us: i64, sum: i64, reset: bool) {
        self.push_column(column);
        self.raise(row_flag::COUNTER);
        self.push_head(flag::COUNTER | if reset { flag::DELETED } else { 0 }, timestamp_us, None);
        self.out.extend_from_slice(&sum.to_le_bytes());
    }

    /// Adds a simple cell as it stands in a row with the same base. `row_flags`: what it contributes to the flags of the row.
    #[inline]
    pub(super) fn copy(&mut self, column: ColumnId, encoded: &[u8], row_flags: u8) {
        debug_assert!(u64::from(column) >= self.next_column, "cells are written in ascending column id");
        self.next_column = u64::from(column) + 1;
        self.raise(row_flags);
        self.out.extend_from_slice(encoded);
    }

    /// Begins a multi-cell column: elements in strictly ascending path order follow, then [`end_complex`](Self::end_complex).
    pub fn begin_complex(&mut self, column: ColumnId, deletion: Option<Deletion>) {
        let start = self.out.len();
        self.push_column(column);
        self.out.push(flag::COMPLEX | if deletion.is_some() { flag::DELETED } else { 0 });
        if let Some(deletion) = deletion {
            push_deletion(deletion, self.base_us, self.out);
        }
        self.complex = OpenComplex { start, length_at: self.out.len(), has_deletion: deletion.is_some() };
        self.out.extend_from_slice(&[0; 4]);
    }

    /// Adds an element.
    pub fn element(&mut self, path: &[u8], timestamp_us: i64, expiry: Option<Expiry>, value: &[u8]) {
        put_slice(self.out, path);
        self.push_head(0, timestamp_us, expiry);
        put_slice(self.out, value);
    }

    /// Adds a deleted element.
    pub fn element_tombstone(&mut self, path: &[u8], deletion: Deletion) {
        put_slice(self.out, path);
        self.push_tombstone(deletion);
    }

    /// Adds an element that has expired.
    pub(super) fn element_expired(&mut self, path: &[u8], timestamp_us: i64, expiry: Expiry) {
        put_slice(self.out, path);
        self.push_head(flag::TOMBSTONE, timestamp_us, Some(expiry));
    }

    /// Ends a multi-cell column; one that holds nothing is taken back.
    pub fn end_complex(&mut self) {
        let OpenComplex { start, length_at, has_deletion } = self.complex;
        let length = self.out.len() - length_at - 4;
        if length == 0 && !has_deletion {
            self.out.truncate(start);
            return;
        }
        self.raise(row_flag::COMPLEX | if has_deletion { row_flag::TOMBSTONE } else { 0 });
        self.out[length_at..length_at + 4].copy_from_slice(&(length as u32).to_le_bytes());
    }
}

/// Appends a deletion, in the short form if its timestamp is the base or the one before.
pub(crate) fn push_deletion(deletion: Deletion, base_us: i64, out: &mut Vec<u8>) {
    if deletion.timestamp_us == base_us {
        out.push(0);
    } else if deletion.timestamp_us == base_us.wrapping_sub(1) {
        out.push(flag::BEFORE_BASE);
    } else {
        out.push(flag::OWN_TIMESTAMP);
        out.extend_from_slice(&deletion.timestamp_us.to_le_bytes());
    }
    out.extend_from_slice(&deletion.local_s.to_le_bytes());
}
