//! The parts of a transaction over several tablets: for each tablet, a program that its leader evaluates when it has
//! locked the rows.
//!
//! Always true: parts come in the order of their tables and keys, which all coordinators share; a part is within the
//! limits of what a leader locks and stages. Left out: carrying the transaction out (the engine).

use super::{Pending, Writes};
use crate::error::{invalid, unprovable};
use crate::exec::table_part::TablePart;
use crate::program::{ProgramOperation, targets_of};
use diorite_base::limits::MAX_MUTATION_BYTES;
use diorite_base::program::ProvenProgram;
use diorite_cql::protocol::CqlError;
use diorite_model::key::TOKEN_BYTES;
use diorite_transact::step::{MAX_PARTICIPANTS, MAX_ROWS};
use diorite_transact::targets::{Target, Targets};

/// The most bytes of a part: what a mutation may have, less what names the transaction and its home.
const MAX_PART_BYTES: usize = MAX_MUTATION_BYTES - (128 << 10);

/// What a transaction does in one tablet.
#[derive(Debug)]
pub struct TransactionPart {
    /// The tablet's part of its table.
    pub part: TablePart,
    /// The name of the table, without its keyspace.
    pub table: String,
    /// Whether the table has transactions, so that its readers ask what has become of what is prepared.
    pub has_transactions: bool,
    /// Whether all its statements delete.
    pub deletes_only: bool,
    /// It is the table of an index or a view: other tables outlive it, and what they are told of a transaction.
    pub is_of_index: bool,
    /// The token of a key that is locked there, as keys begin.
    pub key: Vec<u8>,
    /// The program, encoded.
    pub program: Vec<u8>,
}

impl Writes {
    /// How many tablets are written or tested.
    pub fn tablet_count(&self) -> usize {
        self.pending.iter().filter(|pending| !pending.is_empty()).count()
    }

    /// The parts of one transaction. What has no timestamp of its own is written with that of the commit.
    pub fn into_transaction(self) -> Result<Vec<TransactionPart>, CqlError> {
        let is_block = self.is_block;
        let written: Vec<Pending> = self.pending.into_iter().filter(|pending| !pending.is_empty()).collect();
        if written.len() > MAX_PARTICIPANTS {
            let count = written.len();
            return Err(invalid(format!(
                "a transaction over {count} tablets is over the limit of {MAX_PARTICIPANTS} tablets"
            )));
        }
        let parts = written.into_iter().map(|pending| pending.into_part(is_block));
        let mut parts = parts.collect::<Result<Vec<_>, _>>()?;
        parts.sort_by(|one, other| (one.part.table, &one.key).cmp(&(other.part.table, &other.key)));
        Ok(parts)
    }
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        let has_guards = self.program.maintained.as_ref().is_some_and(|maintained| !maintained.guards.is_empty());
        self.program.operations.is_empty() && self.program.conditions.is_empty() && !has_guards
    }

    /// The token of a key that the program reads or writes: by it a tablet is found after a split.
    fn first_token(&self) -> Vec<u8> {
        let guards = self.program.maintained.iter().flat_map(|maintained| &maintained.guards);
        let of_condition = self.program.conditions.iter().chain(guards).next().map(|condition| &condition.partition);
        let of_operation = self.program.operations.first().map(ProgramOperation::place);
        let key = of_operation.or(of_condition.map(Vec::as_slice)).unwrap_or_default();
        key[..key.len().min(TOKEN_BYTES)].to_vec()
    }

    /// How many rows and ranges are locked: exactly, if there may be too many.
    fn target_count(&self) -> usize {
        // A condition or an operation names two at most.
        let guards = self.program.maintained.as_ref().map_or(0, |maintained| maintained.guards.len());
        let most = 2 * (self.program.conditions.len() + guards + self.program.operations.len());
        if most <= MAX_ROWS {
            return most;
        }
        let mut targets = Vec::new();
        let mut see = |start: &[u8], end: Option<&[u8]>| match end {
            None => targets.push(Target::Row(start.to_vec())),
            Some(end) => targets.push(Target::Range { start: start.to_vec(), end: end.to_vec() }),
        };
        targets_of(&self.program, &mut see);
        Targets::new(targets).len()
    }

    fn into_part(mut self, is_block: bool) -> Result<TransactionPart, CqlError> {
        self.program.turns = self.order.turns(&self.program, is_block);
        super::together::write_together(&mut self.program);
        let program = ProvenProgram::new(&self.program).map_err(unprovable)?.into_bytes();
        if program.len() > MAX_PART_BYTES {
            let name = self.table.full_name();
            return Err(invalid(format!(
                "a transaction of {} bytes in one tablet is over the limit of {MAX_PART_BYTES} bytes (table {name})",
                program.len()
            )));
        }
        let count = self.target_count();
        if count > MAX_ROWS {
            let name = self.table.full_name();
            return Err(invalid(format!(
                "a transaction with {count} rows in one tablet is over the limit of {MAX_ROWS} rows (table {name})"
            )));
        }
        let table = self.table.table().name.clone();
        let has_transactions = self.table.has_transactions();
        let is_of_index = self.table.table().index_of.is_some() || self.table.table().view.is_some();
        let (part, deletes_only, key) = (self.part.clone(), self.deletes_only, self.first_token());
        Ok(TransactionPart { part, table, has_transactions, deletes_only, is_of_index, key, program })
    }
}
