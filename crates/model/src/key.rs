//! Keys of tablet entries: order-preserving, invertible, self-delimiting.
//!
//! ```text
//! key        := token 8 B (big-endian, sign flipped) · partition column* · kind 1 B · clustering column*
//! column     := presence 1 B (0x01 zero-length value, 0x02 any other) · value; all inverted in descending order
//! kind       := 0 partition header | 1 static row | 2 regular row
//! ```
//!
//! Always true: keys sort by token, then partition, then kind, then clustering columns in the table's clustering order. No column begins
//! with 0x00 or 0xFF, so a prefix of whole columns is a bound before, and with 0xFF appended a bound after, every key under it.
//! Clustering values are in the order of their type; of equal ones (`1.0` and `1.00`) only the canonical form comes back.
//! Partition columns are kept byte for byte, as their bytes decide the token; among themselves they are in no meaningful order.
//! Left out: null clustering values (compact storage only) and key columns of type `duration`, which CQL forbids.
//!
//! Encoding allocates nothing beyond the caller's buffer; decoding nothing beyond the reused [`DecodedKey`], but for big numbers.

mod component;
mod input;
mod number;
#[cfg(test)]
mod tests;

use crate::schema::{ColumnKind, Order, Table};
use crate::token::{push_composite, token};
use crate::types::CqlType;
use crate::value::ValueError;
use component::{EMPTY, PRESENT, escaped_len, push_escaped, read_escaped};
use diorite_base::bytes::Malformed;
use diorite_base::limits::MAX_KEY_BYTES;
use input::Input;
use thiserror::Error;

pub(crate) use component::{
    order_f32, order_f64, order_timeuuid, order_uuid, push_component, read_component, read_path,
};
pub(crate) use number::{compare_decimals, compare_varint, minimal};

/// The bytes of a token, with which every key begins.
pub const TOKEN_BYTES: usize = 8;

/// The kinds of entries; they sort in this order within a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowKind {
    /// Partition and range deletions
    Header = 0,
    /// The static row
    Static = 1,
    /// A regular row
    Regular = 2,
}

/// Why a key cannot be encoded. The messages are Cassandra's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The partition key has no bytes.
    #[error("Key may not be empty")]
    Empty,
    /// The partition key or the clustering columns together are too long.
    #[error("Key length of {0} is longer than maximum of {1}")]
    TooLong(usize, usize),
    /// A column's bytes are not a value of its type.
    #[error(transparent)]
    Invalid(#[from] ValueError),
}

/// One end of a clustering slice, in the order of the column's type (not of its bytes). The bytes are the wire form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound<'a> {
    /// No bound
    Unbounded,
    /// The value belongs to the slice
    Inclusive(&'a [u8]),
    /// The value does not belong to the slice
    Exclusive(&'a [u8]),
}

/// How a partition column is stored: its order does not matter, its exact bytes do.
#[derive(Debug, Clone)]
enum PartitionColumn {
    /// Always this long, unless empty
    Fixed(usize, CqlType),
    Escaped,
}

/// How the keys of one table are laid out; computed once per table version.
#[derive(Debug, Clone)]
pub struct KeyLayout {
    partition: Box<[PartitionColumn]>,
    clustering: Box<[(CqlType, Order)]>,
}

impl KeyLayout {
    /// The layout of `table`'s keys.
    pub fn new(table: &Table) -> Self {
        Self::of_types(table.columns.iter().map(|column| (&column.data_type, column.kind)))
    }

    /// The layout of keys with these columns; those that are no part of a key are left out.
    pub fn of_types<'a>(columns: impl Iterator<Item = (&'a CqlType, ColumnKind)>) -> Self {
        let (mut partition, mut clustering) = (Vec::new(), Vec::new());
        for (data_type, kind) in columns {
            match kind {
                ColumnKind::PartitionKey => partition.push(match data_type.fixed_length() {
                    Some(length) => PartitionColumn::Fixed(length, data_type.clone()),
                    None => PartitionColumn::Escaped,
                }),
                ColumnKind::Clustering(order) => clustering.push((data_type.clone(), order)),
                ColumnKind::Static | ColumnKind::Regular => {}
            }
        }
        Self { partition: partition.into(), clustering: clustering.into() }
    }

    /// How many partition key columns there are.
    pub fn partition_columns(&self) -> usize {
        self.partition.len()
    }

    /// How many clustering columns there are.
    pub fn clustering_columns(&self) -> usize {
        self.clustering.len()
    }

    /// Whether clustering column `index` is stored in descending order.
    pub fn is_descending(&self, index: usize) -> bool {
        self.clustering[index].1 == Order::Desc
    }

    /// Appends token and partition columns to `out`; returns the token. `components` yields the (validated) wire bytes of every partition
    /// column. On an error `out` is as it was.
    pub fn encode_partition<'a>(
        &self,
        components: impl Iterator<Item = &'a [u8]> + Clone,
        out: &mut Vec<u8>,
    ) -> Result<i64, KeyError> {
        let start = out.len();
        let token = self.partition_token(components.clone(), out)?;
        // Beside its bytes a column has one before them, and two after them if they are escaped.
        out.reserve(TOKEN_BYTES + components.clone().map(|wire| wire.len() + 3).sum::<usize>());
        push_token_start(token, out);
        for (column, wire) in self.partition.iter().zip(components) {
            if wire.is_empty() {
                out.push(EMPTY);
                continue;
            }
            out.push(PRESENT);
            match column {
                PartitionColumn::Escaped => push_escaped(wire, out),
                PartitionColumn::Fixed(length, _) if wire.len() == *length => out.extend_from_slice(wire),
                PartitionColumn::Fixed(_, data_type) => {
                    out.truncate(start);
                    data_type.validate(wire)?;
                }
            }
        }
        Ok(token)
    }

    /// The token of a partition key given by its columns; `scratch` is restored to its former length.
    pub fn partition_token<'a>(
        &self,
        mut components: impl Iterator<Item = &'a [u8]>,
        scratch: &mut Vec<u8>,
    ) -> Result<i64, KeyError> {
        if self.partition.len() == 1 {
            let wire = components.next().unwrap_or_default();
            return match wire.len() {
                0 => Err(KeyError::Empty),
                length if length > MAX_KEY_BYTES => Err(KeyError::TooLong(length, MAX_KEY_BYTES)),
                _ => Ok(token(wire)),
            };
        }
        let start = scratch.len();
        let mut length = 0;
        for wire in components {
            length += wire.len() + 3;
            if length <= MAX_KEY_BYTES {
                push_composite(wire, scratch);
            }
        }
        let token = token(&scratch[start..]);
        scratch.truncate(start);
        if length > MAX_KEY_BYTES { Err(KeyError::TooLong(length, MAX_KEY_BYTES)) } else { Ok(token) }
    }

    /// Appends clustering column `index` (after [`push_row`] and the columns before it). On an error `out` is as it was.
    #[inline]
    pub fn push_clustering(&self, index: usize, wire: &[u8], out: &mut Vec<u8>) -> Result<(), KeyError> {
        if wire.len() > MAX_KEY_BYTES {
            return Err(KeyError::TooLong(wire.len(), MAX_KEY_BYTES));
        }
        let (data_type, order) = &self.clustering[index];
        let start = out.len();
        if let Err(error) = push_component(data_type, wire, out) {
            out.truncate(start);
            return Err(error.into());
        }
        if *order == Order::Desc {
            out[start..].iter_mut().for_each(|byte| *byte = !*byte);
        }
        Ok(())
    }

    /// Appends all clustering columns of a row, checking that together they are not too long.
    pub fn push_clusterings<'a>(
        &self,
        components: impl Iterator<Item = &'a [u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), KeyError> {
        let mut length = 0;
        for (index, wire) in components.enumerate() {
            length += wire.len();
            if length > MAX_KEY_BYTES {
                return Err(KeyError::TooLong(length, MAX_KEY_BYTES));
            }
            self.push_clustering(index, wire, out)?;
        }
        Ok(())
    }

    /// The keys that bound the rows under `prefix` (partition, row kind, clustering columns before `index`, all equal) whose column `index`
    /// lies between `lower` and `upper` in the order of its type: start and end, `[start, end)`, whatever the column's order. With `index`
    /// equal to the number of clustering columns and no bounds: the one row at `prefix`.
    pub fn slice(
        &self,
        prefix: &[u8],
        index: usize,
        lower: Bound<'_>,
        upper: Bound<'_>,
    ) -> Result<(Vec<u8>, Vec<u8>), KeyError> {
        let descending = index < self.clustering.len() && self.is_descending(index);
        let (first, last) = if descending { (upper, lower) } else { (lower, upper) };
        let (mut start, mut end) = (prefix.to_vec(), prefix.to_vec());
        match first {
            Bound::Unbounded => {}
            Bound::Inclusive(wire) => self.push_clustering(index, wire, &mut start)?,
            Bound::Exclusive(wire) => {
                self.push_clustering(index, wire, &mut start)?;
                push_after(&mut start);
            }
        }
        match last {
            Bound::Unbounded => push_after(&mut end),
            Bound::Inclusive(wire) => {
                self.push_clustering(index, wire, &mut end)?;
                push_after(&mut end);
            }
            Bound::Exclusive(wire) => self.push_clustering(index, wire, &mut end)?,
        }
        Ok((start, end))
    }

    /// The length of the token and partition columns at the start of `key`; the row kind byte follows.
    #[inline]
    pub fn partition_len(&self, key: &[u8]) -> Result<usize, Malformed> {
        let mut at = TOKEN_BYTES;
        for column in &self.partition {
            let presence = *key.get(at).ok_or(Malformed)?;
            at += 1;
            match (presence, column) {
                (EMPTY, _) => {}
                (PRESENT, PartitionColumn::Fixed(length, _)) => at += length,
                (PRESENT, PartitionColumn::Escaped) => at += escaped_len(&key[at..])?,
                _ => return Err(Malformed),
            }
        }
        if at > key.len() { Err(Malformed) } else { Ok(at) }
    }

    /// Takes a whole key apart; `into` is overwritten and its buffers reused.
    pub fn decode(&self, key: &[u8], into: &mut DecodedKey) -> Result<(), Malformed> {
        into.buffer.clear();
        into.ends.clear();
        into.token = token_of(key)?;
        let mut input = Input { rest: &key[TOKEN_BYTES..], mask: 0 };
        for column in &self.partition {
            match (input.u8()?, column) {
                (EMPTY, _) => {}
                (PRESENT, PartitionColumn::Fixed(length, _)) => input.take(*length, &mut into.buffer)?,
                (PRESENT, PartitionColumn::Escaped) => read_escaped(&mut input, &mut into.buffer)?,
                _ => return Err(Malformed),
            }
            into.ends.push(into.buffer.len());
        }
        into.partition_columns = self.partition.len();
        into.partition_len = key.len() - input.rest.len();
        self.decode_clustering(key, into)
    }

    /// As [`decode`](Self::decode) for a key known to be in the partition that `into` already holds (its first `partition_len` bytes are
    /// the same): only kind and clustering columns are decoded.
    pub fn decode_within(&self, key: &[u8], into: &mut DecodedKey) -> Result<(), Malformed> {
        if into.ends.len() < self.partition.len() {
            return Err(Malformed);
        }
        into.ends.truncate(self.partition.len());
        into.buffer.truncate(into.ends.last().copied().unwrap_or(0));
        self.decode_clustering(key, into)
    }

    fn decode_clustering(&self, key: &[u8], into: &mut DecodedKey) -> Result<(), Malformed> {
        into.kind = kind_of(key, into.partition_len)?;
        let mut rest = &key[into.partition_len + 1..];
        if into.kind == RowKind::Regular {
            for (data_type, order) in &self.clustering {
                let mut input = Input { rest, mask: if *order == Order::Desc { 0xFF } else { 0 } };
                read_component(data_type, &mut input, &mut into.buffer)?;
                into.ends.push(into.buffer.len());
                rest = input.rest;
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

/// A key's columns as wire bytes, in one reusable buffer.
#[derive(Debug, Clone)]
pub struct DecodedKey {
    buffer: Vec<u8>,
    /// Where each column ends in the buffer: partition columns, then clustering columns.
    ends: Vec<usize>,
    partition_columns: usize,
    partition_len: usize,
    token: i64,
    kind: RowKind,
}

impl Default for DecodedKey {
    fn default() -> Self {
        Self {
            buffer: Vec::new(),
            ends: Vec::new(),
            partition_columns: 0,
            partition_len: 0,
            token: 0,
            kind: RowKind::Regular,
        }
    }
}

impl DecodedKey {
    /// The token.
    pub fn token(&self) -> i64 {
        self.token
    }

    /// The kind of the entry.
    pub fn kind(&self) -> RowKind {
        self.kind
    }

    /// Length of token and partition columns in the key.
    pub fn partition_len(&self) -> usize {
        self.partition_len
    }

    /// Partition column `index`.
    pub fn partition(&self, index: usize) -> &[u8] {
        debug_assert!(index < self.partition_columns, "no such partition column");
        self.column(index).unwrap_or_default()
    }

    /// Clustering column `index`; `None` unless it is a regular row.
    pub fn clustering(&self, index: usize) -> Option<&[u8]> {
        self.column(self.partition_columns + index)
    }

    fn column(&self, at: usize) -> Option<&[u8]> {
        let end = *self.ends.get(at)?;
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        Some(&self.buffer[start..end])
    }
}

/// Appends the kind byte of the partition header.
pub fn push_header(out: &mut Vec<u8>) {
    out.push(RowKind::Header as u8);
}

/// Appends the kind byte of the static row.
pub fn push_static(out: &mut Vec<u8>) {
    out.push(RowKind::Static as u8);
}

/// Appends the kind byte of regular rows.
pub fn push_row(out: &mut Vec<u8>) {
    out.push(RowKind::Regular as u8);
}

/// Turns a partition prefix (token and partition columns) into the end of the partition: greater than its every key.
pub fn push_partition_end(out: &mut Vec<u8>) {
    out.push(RowKind::Regular as u8 + 1);
}

/// Turns a prefix of whole columns (at least token and kind byte) into a bound greater than every key that begins with it.
pub fn push_after(out: &mut Vec<u8>) {
    out.push(0xFF);
}

/// Appends the smallest key of `token`: the inclusive start of a token range, or its exclusive end.
pub fn push_token_start(token: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(&((token as u64) ^ (1 << 63)).to_be_bytes());
}

/// Appends a bound greater than every key of `token`: the exclusive start of a token range, or its inclusive end.
pub fn push_token_end(token: i64, out: &mut Vec<u8>) {
    push_token_start(token, out);
    out.push(0xFF);
}

/// The token of a key.
pub fn token_of(key: &[u8]) -> Result<i64, Malformed> {
    let head = key.first_chunk::<8>().ok_or(Malformed)?;
    Ok((u64::from_be_bytes(*head) ^ (1 << 63)) as i64)
}

/// The kind of a key whose token and partition columns take `partition_len` bytes.
pub fn kind_of(key: &[u8], partition_len: usize) -> Result<RowKind, Malformed> {
    match key.get(partition_len) {
        Some(0) => Ok(RowKind::Header),
        Some(1) => Ok(RowKind::Static),
        Some(2) => Ok(RowKind::Regular),
        _ => Err(Malformed),
    }
}
