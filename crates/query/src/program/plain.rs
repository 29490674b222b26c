//! Programs that only write rows, read from their bytes: the most frequent parts of transactions.
//!
//! A leader looks at a program when it locks its rows, tests its conditions and appends it, and every replica when it
//! applies it. To decode it each time copies all keys and values.
//!
//! Always true: what is found here is what [`Program::decode`](super::Program::decode) gives, and does what
//! [`mod@super::evaluate`] does with that; it depends on no stored row. Left out: programs with conditions, guards or
//! turns, deletions, rows with timestamps of clients, and what no leader admits.

use super::codec::{VERSION, VERSION_MAINTAINED};
use super::stored::damaged;
use super::targets::malformed_row;
use diorite_base::bytes::Reader;
use diorite_base::mutation::{EvaluationContext, EvaluationFailed, LEAST_STAMPED_BYTES, SeeTarget, TabletChanges};
use diorite_base::program::Unprovable;
use diorite_base::row_index::is_of_rows;
use diorite_model::row::place_lists;
use diorite_model::{Malformed, entry};

/// How an operation begins that writes a row.
const ROW: u8 = 0;
const OVERWRITE: u8 = 1;
const STAMPED: u8 = 2;
const UNPLACED: u8 = 4;

/// The rows that a program writes with its own timestamp. It does nothing else.
#[derive(Clone, Copy)]
pub(super) struct PlainRows<'p> {
    /// Whole operations.
    operations: Reader<'p>,
}

struct PlainRow<'p> {
    is_overwrite: bool,
    is_unplaced: bool,
    key: &'p [u8],
    value: &'p [u8],
}

fn next_row<'p>(reader: &mut Reader<'p>) -> Option<PlainRow<'p>> {
    let (kind, flags) = (reader.u8().ok()?, reader.u8().ok()?);
    if kind != ROW || flags & !(OVERWRITE | UNPLACED) != STAMPED {
        return None;
    }
    let (key, value) = (reader.slice().ok()?, reader.slice().ok()?);
    if value.len() < LEAST_STAMPED_BYTES || !is_of_rows(key) {
        return None;
    }
    Some(PlainRow { is_overwrite: flags & OVERWRITE != 0, is_unplaced: flags & UNPLACED != 0, key, value })
}

impl<'p> PlainRows<'p> {
    /// The rows of an encoded program; `None` if it does something else, or is malformed.
    pub(super) fn of(program: &'p [u8]) -> Option<Self> {
        let mut reader = Reader::new(program);
        let mut version = reader.u8().ok()?;
        if version == VERSION_MAINTAINED {
            reader.shortest_varint().ok()?;
            if reader.varint().ok()? != 0 {
                return None;
            }
            version = reader.u8().ok()?;
        }
        // The number of conditions.
        if version != VERSION || reader.varint().ok()? != 0 {
            return None;
        }
        let count = reader.varint().ok()?;
        let mut rest = reader;
        for _ in 0..count {
            next_row(&mut rest)?;
        }
        rest.is_empty().then_some(Self { operations: reader })
    }

    fn rows(mut self) -> impl Iterator<Item = PlainRow<'p>> {
        std::iter::from_fn(move || next_row(&mut self.operations))
    }

    /// The rows, if all of them are well formed. For what is not in the log yet.
    pub(super) fn checked(self) -> Result<Self, Unprovable> {
        match self.rows().all(|row| entry::may_be_written(row.value, row.is_unplaced)) {
            true => Ok(self),
            false => Err(malformed_row()),
        }
    }

    /// Calls `see` with each key.
    pub(super) fn targets(self, see: &mut SeeTarget<'_>) {
        self.rows().for_each(|row| see(row.key, None));
    }

    /// Writes the rows.
    pub(super) fn run(
        self,
        context: EvaluationContext,
        changes: &mut dyn TabletChanges,
    ) -> Result<(), EvaluationFailed> {
        let mut value = Vec::new();
        for (nth, row) in (0..).zip(self.rows()) {
            value.clear();
            value.extend_from_slice(row.value);
            let slot = value.get_mut(1..9).ok_or_else(|| damaged(Malformed))?;
            slot.copy_from_slice(&context.stamp_us.to_le_bytes());
            if row.is_unplaced {
                place_lists(&mut value, context.stamp_us, nth);
            }
            if row.is_overwrite && context.stamp_us > context.newest_explicit_us {
                changes.put(row.key, &value);
            } else {
                changes.merge(row.key, &value);
            }
        }
        Ok(())
    }
}
