//! x
use crate::schema::Table;
use crate::value::ValueError;
use diorite_base::bytes::Malformed;
use thiserror::Error;

/// What a key's entry is; the kinds sort in this order within a partition.
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
    /// It does not
    Exclusive(&'a [u8]),
}

/// How the keys of one table are laid out; computed once per table version.
#[derive(Debug, Clone)]
pub struct KeyLayout {}

impl KeyLayout {
    /// The layout of `table`'s keys.
    pub fn new(table: &Table) -> Self {
        let _ = table;
        unreachable!()
    }

    /// How many partition key columns there are.
    pub fn partition_columns(&self) -> usize {
        unreachable!()
    }

    /// How many clustering columns there are.
    pub fn clustering_columns(&self) -> usize {
        unreachable!()
    }

    /// Appends token and partition columns to `out`; returns the token. `components` yields the wire bytes of every partition column.
    pub fn encode_partition<'a>(
        &self,
        components: impl Iterator<Item = &'a [u8]> + Clone,
        out: &mut Vec<u8>,
    ) -> Result<i64, KeyError> {
        let _ = (components, out);
        unreachable!()
    }

    /// Appends clustering column `index` (after [`push_row`] and the columns before it).
    pub fn push_clustering(&self, index: usize, wire: &[u8], out: &mut Vec<u8>) -> Result<(), KeyError> {
        let _ = (index, wire, out);
        unreachable!()
    }

    /// Appends to `start` and `end` the keys that bound the rows under `prefix` (partition, row kind, clustering columns before `index`,
    /// all equal) whose column `index` lies between `lower` and `upper` in the order of its type. `[start, end)`, whatever the column's order.
    pub fn slice(
        &self,
        prefix: &[u8],
        index: usize,
        lower: Bound<'_>,
        upper: Bound<'_>,
        start: &mut Vec<u8>,
        end: &mut Vec<u8>,
    ) -> Result<(), KeyError> {
        let _ = (prefix, index, lower, upper, start, end);
        unreachable!()
    }

    /// Whether clustering column `index` is stored in descending order.
    pub fn is_descending(&self, index: usize) -> bool {
        let _ = index;
        unreachable!()
    }

    /// The length of the token and partition columns at the start of `key`; the row kind byte follows.
    pub fn partition_len(&self, key: &[u8]) -> Result<usize, Malformed> {
        let _ = key;
        unreachable!()
    }

    /// Takes a whole key apart; `into` is overwritten and its buffers reused.
    pub fn decode(&self, key: &[u8], into: &mut DecodedKey) -> Result<(), Malformed> {
        let _ = (key, into);
        unreachable!()
    }

    /// As [`decode`](Self::decode) for a key known to be in the partition that `into` already holds (its first `partition_len` bytes are
    /// the same): only kind and clustering columns are decoded.
    pub fn decode_within(&self, key: &[u8], into: &mut DecodedKey) -> Result<(), Malformed> {
        let _ = (key, into);
        unreachable!()
    }
}

/// A key's columns as wire bytes, in one reusable buffer.
#[derive(Debug, Clone, Default)]
pub struct DecodedKey {}

impl DecodedKey {
    /// The token.
    pub fn token(&self) -> i64 {
        unreachable!()
    }
    /// What the entry is.
    pub fn kind(&self) -> RowKind {
        unreachable!()
    }
    /// Length of token and partition columns in the key.
    pub fn partition_len(&self) -> usize {
        unreachable!()
    }
    /// Partition column `index`.
    pub fn partition(&self, index: usize) -> &[u8] {
        let _ = index;
        unreachable!()
    }
    /// Clustering column `index`; `None` unless it is a regular row.
    pub fn clustering(&self, index: usize) -> Option<&[u8]> {
        let _ = index;
        unreachable!()
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
