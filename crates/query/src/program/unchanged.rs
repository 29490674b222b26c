//! Whether rows are as they were when a program was planned.
//!
//! Always true: all replicas come to the same, as a [digest](super::digest) is of what lives. Left out: more than whether
//! that is so.

use super::definition::{RowCondition, Unchanged};
use super::digest::RowsDigest;
use super::stored::{Stored, damaged};
use crate::index::Specification;
use diorite_base::mutation::EvaluationFailed;
use diorite_model::key::{RowKind, kind_of};
use diorite_model::row::LiveRow;

impl Stored<'_> {
    /// Whether the rows of a condition are as they were, and the tablet knows the views as the program knows them.
    pub(super) fn is_unchanged(&self, condition: &RowCondition, test: &Unchanged) -> Result<bool, EvaluationFailed> {
        for known in &test.views {
            // Also not one that has got columns since: what the program writes to the view lacks them.
            if Specification::stored_columns_since(known.id, self.view)? != Some(known.columns_since) {
                return Ok(false);
            }
        }
        let (partition, mut digest) = (&condition.partition, RowsDigest::new(test.columns.as_deref()));
        let is_dropped = |column| self.is_dropped(column);
        let Some(end) = &test.end else {
            if let Some(found) = self.find(partition, &condition.row)? {
                let key = [partition.as_slice(), &condition.row].concat();
                digest.add(&key, &found.live().map_err(damaged)?, is_dropped).map_err(damaged)?;
            }
            return Ok(digest.rows() == test.rows && digest.finish() == test.digest);
        };
        let (start, end) = ([partition.as_slice(), &condition.row].concat(), [partition.as_slice(), end].concat());
        let (header, mut failed) = (self.header(partition)?, None);
        self.view.scan(&start, &end, &mut |key, value| {
            if kind_of(key, partition.len()) != Ok(RowKind::Regular) {
                return true;
            }
            let deleted_us = header.deletion_for(&key[partition.len()..], value);
            let row = LiveRow::new(value, self.now_s, deleted_us);
            failed = row.and_then(|row| digest.add(key, &row, is_dropped)).err();
            // As many rows as have been allowed are read, whatever has been written meanwhile.
            failed.is_none() && digest.rows() <= test.rows
        })?;
        match failed {
            Some(malformed) => Err(damaged(malformed)),
            None => Ok(digest.rows() == test.rows && digest.finish() == test.digest),
        }
    }
}
