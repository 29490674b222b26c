//! The bytes of tasks and replies (`docs/formats/partial-aggregates.md`).
//!
//! Always true: no bytes make decoding panic or allocate more than they hold; encoding what was decoded gives the same bytes. Left out: versions that do
//! not exist yet.

use super::advance::Next;
use crate::exec::aggregate::{State, put_optional, read_optional};
use crate::exec::partial::{Group, Limits, Partial};
use crate::exec::row::RowData;
use diorite_base::TableId;
use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use diorite_cql::protocol::Value;

const VERSION: u8 = 1;
/// With the time that is left.
const VERSION_WITH_TIME: u8 = 2;

/// A task for the leader of a tablet.
#[derive(Debug, Clone)]
pub struct Task<'a> {
    /// The table.
    pub table: TableId,
    /// The version of its definition.
    pub version: u64,
    /// The keyspace that unqualified names in the statement belong to; empty if there is none.
    pub keyspace: &'a str,
    /// The `SELECT`.
    pub statement: &'a str,
    /// The values of its markers.
    pub values: Vec<Value<'a>>,
    /// The moment of the statement, microseconds.
    pub now_us: i64,
    /// The second that expiries are reckoned from.
    pub now_s: u32,
    /// With the range its last partition ends too.
    pub ends_partition: bool,
    /// How much longer anybody waits for the answer, milliseconds.
    pub left_ms: Option<u64>,
    /// Where to go on from, encoded ([`Partial::encode`]).
    pub partial: &'a [u8],
}

/// The reply of the leader of a tablet.
#[derive(Debug, Clone)]
pub enum Reply {
    /// The partial aggregate, and how the range continues.
    Done(Box<Partial>, Next),
    /// It cannot be done there; nothing was done.
    Declined,
}

fn text<'a>(reader: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    std::str::from_utf8(reader.slice()?).map_err(|_| Malformed)
}

fn flag(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}

/// A limit; 0 is none.
fn put_limit(out: &mut Vec<u8>, limit: u64) {
    put_varint(out, limit.wrapping_add(1));
}

fn limit(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    Ok(reader.varint()?.wrapping_sub(1))
}

impl<'a> Task<'a> {
    /// The encoded form.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.statement.len() + self.partial.len() + 64);
        match self.left_ms {
            None => out.push(VERSION),
            Some(left_ms) => {
                out.push(VERSION_WITH_TIME);
                put_varint(&mut out, left_ms);
            }
        }
        put_varint(&mut out, self.table.0);
        put_varint(&mut out, self.version);
        put_slice(&mut out, self.keyspace.as_bytes());
        put_slice(&mut out, self.statement.as_bytes());
        put_varint(&mut out, self.values.len() as u64);
        for value in &self.values {
            match value {
                Value::Null => out.push(0),
                Value::Set(bytes) => {
                    out.push(1);
                    put_slice(&mut out, bytes);
                }
                Value::Unset => out.push(2),
            }
        }
        out.extend_from_slice(&self.now_us.to_le_bytes());
        out.extend_from_slice(&self.now_s.to_le_bytes());
        out.push(u8::from(self.ends_partition));
        put_slice(&mut out, self.partial);
        out
    }

    /// Reads an encoded task.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let left_ms = match reader.u8()? {
            VERSION => None,
            VERSION_WITH_TIME => Some(reader.varint()?),
            _ => return Err(Malformed),
        };
        let table = TableId(reader.varint()?);
        let version = reader.varint()?;
        let (keyspace, statement) = (text(&mut reader)?, text(&mut reader)?);
        let mut values = Vec::new();
        for _ in 0..reader.varint()? {
            values.push(match reader.u8()? {
                0 => Value::Null,
                1 => Value::Set(reader.slice()?),
                2 => Value::Unset,
                _ => return Err(Malformed),
            });
        }
        let (now_us, now_s) = (reader.i64()?, reader.u32()?);
        let ends_partition = flag(&mut reader)?;
        let partial = reader.slice()?;
        let task =
            Self { table, version, keyspace, statement, values, now_us, now_s, ends_partition, left_ms, partial };
        reader.is_empty().then_some(task).ok_or(Malformed)
    }
}

impl Partial {
    /// Appends the encoded form; of rows only the columns in `shows`.
    pub fn encode(&self, shows: &[bool], out: &mut Vec<u8>) {
        let limits = &self.limits;
        for number in [limits.rows, limits.rows_per_partition, limits.page_rows, self.left_in_partition] {
            put_limit(out, number);
        }
        put_varint(out, limits.offset);
        put_limit(out, u64::try_from(limits.page_bytes).unwrap_or(u64::MAX));
        put_slice(out, &self.partition);
        put_slice(out, &self.position);
        out.extend([u8::from(self.has_rows), u8::from(self.is_partition_done)]);
        put_states(out, &self.states);
        put_row(out, self.first_row.as_ref(), shows);
        out.push(u8::from(self.group.is_some()));
        if let Some(group) = &self.group {
            put_varint(out, group.key.len() as u64);
            group.key.iter().for_each(|part| put_optional(out, part.as_deref()));
            put_states(out, &group.states);
            put_row(out, Some(&group.first_row), shows);
        }
        put_varint(out, u64::from(self.row_count));
        put_slice(out, &self.body);
    }

    /// Reads a partial aggregate as [`Partial::encode`] writes it, for a table with this many columns.
    pub fn decode(columns: usize, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (rows, rows_per_partition) = (limit(reader)?, limit(reader)?);
        let (page_rows, left_in_partition) = (limit(reader)?, limit(reader)?);
        let offset = reader.varint()?;
        let page_bytes = usize::try_from(limit(reader)?).unwrap_or(usize::MAX);
        let (partition, position) = (reader.slice()?.to_vec(), reader.slice()?.to_vec());
        let (has_rows, is_partition_done) = (flag(reader)?, flag(reader)?);
        let states = read_states(reader)?;
        let first_row = read_row(columns, reader)?;
        let group = match flag(reader)? {
            false => None,
            true => {
                let key = (0..reader.varint()?).map(|_| read_optional(reader)).collect::<Result<_, _>>()?;
                let states = read_states(reader)?;
                Some(Group { key, states, first_row: read_row(columns, reader)?.ok_or(Malformed)? })
            }
        };
        let row_count = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
        let body = reader.slice()?.to_vec();
        Ok(Self {
            limits: Limits { rows, rows_per_partition, offset, page_rows, page_bytes },
            partition,
            has_rows,
            left_in_partition,
            is_partition_done,
            position,
            states,
            first_row,
            group,
            body,
            row_count,
        })
    }
}

fn put_states(out: &mut Vec<u8>, states: &[State]) {
    put_varint(out, states.len() as u64);
    states.iter().for_each(|state| state.encode(out));
}

fn read_states(reader: &mut Reader<'_>) -> Result<Vec<State>, Malformed> {
    (0..reader.varint()?).map(|_| State::decode(reader)).collect()
}

fn put_row(out: &mut Vec<u8>, row: Option<&RowData>, shows: &[bool]) {
    out.push(u8::from(row.is_some()));
    row.into_iter().for_each(|row| row.encode(shows, out));
}

fn read_row(columns: usize, reader: &mut Reader<'_>) -> Result<Option<RowData>, Malformed> {
    match flag(reader)? {
        false => Ok(None),
        true => RowData::decode(columns, reader).map(Some),
    }
}

impl Reply {
    /// The encoded form.
    pub fn encode(&self, shows: &[bool]) -> Vec<u8> {
        let Reply::Done(partial, next) = self else { return vec![VERSION, 0] };
        let mut out = vec![VERSION];
        match next {
            Next::Full => out.push(1),
            Next::Exhausted => out.push(2),
            Next::From(key) => {
                out.push(3);
                put_slice(&mut out, key);
            }
        }
        partial.encode(shows, &mut out);
        out
    }

    /// Reads an encoded reply, for a table with this many columns.
    pub fn decode(columns: usize, bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != VERSION {
            return Err(Malformed);
        }
        let next = match reader.u8()? {
            0 => return Ok(Reply::Declined),
            1 => Next::Full,
            2 => Next::Exhausted,
            3 => Next::From(reader.slice()?.to_vec()),
            _ => return Err(Malformed),
        };
        let partial = Partial::decode(columns, &mut reader)?;
        reader.is_empty().then_some(Reply::Done(Box::new(partial), next)).ok_or(Malformed)
    }
}
