//! Programs whose conditions and operations follow one another: transaction blocks, and writes with arithmetic.
//!
//! Always true: a part sees what those before it did; if one fails, nothing has changed; what is written is a function
//! of the program, its timestamp and the rows that it reads, so that a replica that applies it and a leader that only
//! asks what it would write come to the same. All that is written has one timestamp, but for deletions, which have the
//! one before, as cells that follow them stay. Left out: programs whose parts all see the tablet as it was
//! ([`mod@super::evaluate`]).

use super::definition::{Impossible, Program, ProgramOperation, ProgramReply, Seen, Turn};
use super::evaluate::{Run, Stop};
use super::shown;
use super::stored::damaged;
use super::targets::deleted;
use diorite_base::mutation::{EvaluationFailed, TabletChanges};
use diorite_model::row::RowWriter;
use diorite_model::value::sum;

/// What an operation does.
enum Effect<'p> {
    /// Writes this to the row with the key.
    Write(&'p [u8], Vec<u8>),
    /// Deletes rows, as the operation says.
    Delete(&'p ProgramOperation),
}

impl Run<'_> {
    /// Runs the parts of a program in their order.
    pub(super) fn in_turns(
        &self,
        program: &Program,
        turns: &[Turn],
        changes: &mut dyn TabletChanges,
    ) -> Result<ProgramReply, EvaluationFailed> {
        match self.take_turns(program, turns) {
            Ok(None) => {}
            Ok(Some(seen)) => return Ok(ProgramReply::Refused(seen)),
            Err(stop) => return stop.reply(),
        }
        for operation in &program.operations {
            if let ProgramOperation::Delete { partition, range, explicit_us } = operation {
                self.delete(partition, range.as_ref(), *explicit_us, self.before_us(), changes)?;
            }
        }
        self.stored.take_written().iter().for_each(|(key, value)| changes.merge(key, value));
        Ok(ProgramReply::Applied)
    }

    /// The timestamp of deletions.
    fn before_us(&self) -> i64 {
        self.context.stamp_us.wrapping_sub(1)
    }

    /// What the first condition that does not hold has seen; `None`: all hold, and all operations are in the overlay.
    fn take_turns(&self, program: &Program, turns: &[Turn]) -> Result<Option<Seen>, Stop> {
        let (mut conditions, mut operations) = (program.conditions.iter(), (0..).zip(&program.operations));
        let mut turns = turns.iter().peekable();
        while let Some(turn) = turns.next() {
            match turn {
                Turn::Operation | Turn::SameStatement => {
                    let mut effects = Vec::with_capacity(1);
                    effects.push(self.effect(operations.next().ok_or_else(incomplete)?)?);
                    while turns.next_if(|turn| **turn == Turn::SameStatement).is_some() {
                        effects.push(self.effect(operations.next().ok_or_else(incomplete)?)?);
                    }
                    effects.into_iter().flatten().try_for_each(|effect| self.take_effect(effect))?;
                }
                Turn::Condition | Turn::ConditionElseError => {
                    let condition = conditions.next().ok_or_else(incomplete)?;
                    if self.holds(condition)? {
                        self.stored.check_work()?;
                        continue;
                    }
                    if *turn == Turn::Condition {
                        return Ok(Some(shown::seen(&self.stored, &program.conditions, condition)?));
                    }
                    let partition = condition.partition.clone();
                    return Ok(Some(Seen { now_s: self.stored.now_s, partition, ..Seen::default() }));
                }
            }
            self.stored.check_work()?;
        }
        Ok(None)
    }

    /// What an operation, the `nth`, does; `None`: nothing.
    fn effect<'p>(&self, (nth, operation): (u32, &'p ProgramOperation)) -> Result<Option<Effect<'p>>, Stop> {
        Ok(Some(match operation {
            ProgramOperation::Row { key, .. } => Effect::Write(key, self.row_value(operation, nth)?),
            ProgramOperation::Delete { .. } => Effect::Delete(operation),
            ProgramOperation::List { key, .. } => Effect::Write(key, self.list_edit(operation)?),
            ProgramOperation::Document { key, .. } => Effect::Write(key, self.document_edit(operation)?),
            ProgramOperation::Sum { key, .. } => match self.sum(operation)? {
                Some(value) => Effect::Write(key, value),
                None => return Ok(None),
            },
        }))
    }

    /// Lets it happen in the overlay.
    fn take_effect(&self, effect: Effect<'_>) -> Result<(), Stop> {
        match effect {
            Effect::Write(key, value) => self.stored.write(key, &value)?,
            Effect::Delete(operation) => {
                let ProgramOperation::Delete { partition, range, explicit_us } = operation else { return Ok(()) };
                let timestamp_us = explicit_us.unwrap_or(self.before_us());
                let (_, header) = self.header(partition, range.as_ref(), timestamp_us);
                let (start, end) = deleted(partition, range.as_ref());
                self.stored.delete(partition, (&start, &end), header);
            }
        }
        Ok(())
    }

    /// The packed row with the sum of a column and a number; `None` if the column is null, which it stays.
    fn sum(&self, operation: &ProgramOperation) -> Result<Option<Vec<u8>>, Stop> {
        let ProgramOperation::Sum { key, partition_len, column, data_type, subtracts, number, expiry } = operation
        else {
            unreachable!("called for sums only");
        };
        let (partition, row) = key.split_at(*partition_len);
        let Some(found) = self.stored.find(partition, row)? else { return Ok(None) };
        let stored = found.column(*column, data_type).map_err(damaged)?;
        let Some(value) = stored.wire().filter(|value| !value.is_empty()) else { return Ok(None) };
        let total = sum(data_type, value, number, *subtracts).map_err(Impossible::from)?;
        let mut packed = Vec::new();
        let mut writer = RowWriter::new(&mut packed, self.context.stamp_us);
        writer.cell(*column, self.context.stamp_us, *expiry, &total);
        Ok(Some(packed))
    }
}

/// A program that decoded has as many parts as turns.
fn incomplete() -> Stop {
    Stop::Client(Impossible("a program has fewer parts than turns".to_owned()))
}
