//! What rows are after a program, as whoever plans it has read them before.
//!
//! Always true: the rows are those that a replica has which applies the program to the same rows, up to timestamps.
//! Left out: conditions, which are taken to hold; other rows than those that were read.

use super::definition::{Program, ProgramReply};
use super::outcome::{Change, evaluate};
use super::stored::{Stored, damaged};
use super::targets::without_conditions;
use diorite_base::mutation::{EvaluationContext, EvaluationFailed, TabletView};
use diorite_model::entry;
use diorite_model::row::LiveRow;
use std::collections::BTreeMap;

/// Rows and headers of partitions, by their keys.
#[derive(Debug, Default)]
struct Rows(BTreeMap<Vec<u8>, Vec<u8>>);

impl TabletView for Rows {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EvaluationFailed> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EvaluationFailed> {
        if start < end {
            self.0.range(start.to_vec()..end.to_vec()).all(|(key, value)| visit(key, value));
        }
        Ok(())
    }
}

impl Rows {
    fn change(&mut self, change: Change) -> Result<(), EvaluationFailed> {
        match change {
            Change::Put(key, value) => drop(self.0.insert(key, value)),
            Change::Merge(key, value) => {
                let mut together = Vec::new();
                match self.0.get(&key) {
                    Some(stored) => entry::merge(stored, &value, &mut together).map_err(damaged)?,
                    None => together = value,
                }
                self.0.insert(key, together);
            }
            Change::Delete(key) => drop(self.0.remove(&key)),
            Change::DeleteRange(start, end) => self.0.retain(|key, _| *key < start || *key >= end),
            Change::Flags(_) | Change::Stamps(..) => {}
        }
        Ok(())
    }
}

/// See the top of this module.
#[derive(Debug)]
pub struct After {
    rows: Rows,
    now_s: u32,
    dropped_columns: Vec<u32>,
}

impl After {
    /// Runs a program on rows that were read; `None` if what it asks for is impossible, so that it would change nothing.
    ///
    /// # Errors
    /// If the rows are malformed.
    pub fn of(
        program: Program,
        context: EvaluationContext,
        before: BTreeMap<Vec<u8>, Vec<u8>>,
    ) -> Result<Option<Self>, EvaluationFailed> {
        let mut rows = Rows(before);
        let program = without_conditions(program);
        let outcome = evaluate(&program, context, &rows)?;
        if outcome.reply != ProgramReply::Applied {
            return Ok(None);
        }
        outcome.changes.into_iter().try_for_each(|change| rows.change(change))?;
        Ok(Some(Self { rows, now_s: context.now_s, dropped_columns: program.dropped_columns }))
    }

    /// Shows a row, if it exists.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn row<R>(
        &self,
        partition: &[u8],
        row: &[u8],
        see: impl FnOnce(&LiveRow<'_>) -> R,
    ) -> Result<Option<R>, EvaluationFailed> {
        let stored = Stored::new(&self.rows, self.now_s, &self.dropped_columns);
        let Some(found) = stored.find(partition, row)? else { return Ok(None) };
        Ok(Some(see(&found.live().map_err(damaged)?)))
    }
}
