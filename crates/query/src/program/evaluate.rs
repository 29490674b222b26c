//! Runs programs.
//!
//! Always true: all reads see the tablet as it was before; deletions of ranges take effect before rows of the same program are written, and a
//! row of the same timestamp stays deleted, as in Cassandra. Rows are removed physically only if nothing that a client stamped itself
//! could be newer than the deletion. Left out: undoing (a program that fails has changed nothing yet).

use super::definition::{
    ColumnTest, Impossible, ListEdit, PARTITION_DELETIONS, Program, ProgramOperation, ProgramReply, RowCondition,
    RowTest, TestTree,
};
use super::document;
use super::growth;
use super::plain::PlainRows;
use super::shown;
use super::stored::{DAMAGED, Found, Stored, damaged};
use super::stored_value::StoredValue;
use super::targets;
use crate::index::{self, IndexStep};
use diorite_base::Horizon;
use diorite_base::limits::{self, MAX_EDIT_BYTES};
use diorite_base::mutation::{
    Effect, EvaluationContext, EvaluationFailed, Evaluator, Growth, SeeTarget, TabletChanges, TabletView,
};
use diorite_base::program::Unprovable;
use diorite_base::row_index::RowIndexes;
use diorite_model::Malformed;
use diorite_model::deletions::DeletionsWriter;
use diorite_model::row::{Deletion, RowWriter, place_lists};
use diorite_model::types::CqlType;
use diorite_model::value::literal_text;
use diorite_model::{entry, key};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// Up to this many rows are removed key by key, more by one range deletion.
const MAX_POINT_DELETES: usize = 64;
/// So many range deletions of a program look for the rows that they remove; the others remove the range unseen.
const LOOKING_DELETIONS: u32 = 64;

/// By how much clocks of clients may be ahead.
const LITTLE_US: i64 = 1_000_000;

/// A timestamp for people: as clients give it, and as a time.
fn shown_time(timestamp_us: i64) -> String {
    let (wire, mut time) = (timestamp_us.div_euclid(1_000).to_be_bytes(), String::new());
    match literal_text(&CqlType::Timestamp, &wire, &mut time) {
        Ok(()) => format!("{timestamp_us} ({})", time.trim_matches('\'')),
        Err(_) => timestamp_us.to_string(),
    }
}

/// Carries out the evaluated writes of tablets.
#[derive(Debug, Default, Clone, Copy)]
pub struct TabletEvaluator;

impl Evaluator for TabletEvaluator {
    fn evaluate(
        &self,
        program: &[u8],
        context: EvaluationContext,
        view: &dyn TabletView,
        changes: &mut dyn TabletChanges,
    ) -> Result<Vec<u8>, EvaluationFailed> {
        if IndexStep::is_step(program) {
            return index::carry_out(program, context, view, changes);
        }
        if let Some(rows) = PlainRows::of(program) {
            rows.run(context, changes)?;
            return Ok(ProgramReply::Applied.encode());
        }
        let program = Program::decode(program)
            .map_err(|_| EvaluationFailed("a program is malformed or of a newer version".to_owned()))?;
        Ok(Run::new(&program, context, view).program(&program, changes)?.encode())
    }

    fn targets(&self, program: &[u8], see: &mut SeeTarget<'_>) -> Result<(), Unprovable> {
        if let Some(rows) = PlainRows::of(program) {
            limits::check(&limits::MUTATION_BYTES, program.len(), || "a write".to_owned())?;
            rows.checked()?.targets(see);
            return Ok(());
        }
        targets::of(&targets::admitted(program)?, see);
        Ok(())
    }

    fn reply_of_damage(&self) -> Vec<u8> {
        ProgramReply::Failed(DAMAGED.to_owned()).encode()
    }

    fn has_applied(&self, reply: &[u8]) -> bool {
        matches!(ProgramReply::decode(reply), Ok(ProgramReply::Applied))
    }

    fn without_conditions(&self, program: &[u8]) -> Option<Vec<u8>> {
        if PlainRows::of(program).is_some() {
            return None;
        }
        // What is proposed decodes.
        let program = Program::decode(program).ok()?;
        let has_guards = program.maintained.as_ref().is_some_and(|maintained| !maintained.guards.is_empty());
        if program.conditions.is_empty() && !has_guards {
            return None;
        }
        Some(targets::without_conditions(program).encode())
    }

    fn edits_stored(&self, program: &[u8]) -> bool {
        // What is proposed decodes.
        let edits = |program: Program| program.operations.iter().any(ProgramOperation::edits_stored);
        PlainRows::of(program).is_none() && Program::decode(program).is_ok_and(edits)
    }

    fn reads(&self, program: &[u8]) -> bool {
        PlainRows::of(program).is_none()
    }

    fn explicit_us(&self, program: &[u8]) -> Option<i64> {
        if PlainRows::of(program).is_some() {
            return None;
        }
        // What is proposed decodes.
        Program::decode(program).ok().and_then(|program| targets::explicit_us(&program))
    }

    fn merged(&self, stored: Option<&[u8]>, written: &[u8]) -> Result<Vec<u8>, EvaluationFailed> {
        let Some(stored) = stored else { return Ok(written.to_vec()) };
        let mut together = Vec::new();
        entry::merge(stored, written, &mut together).map_err(damaged)?;
        Ok(together)
    }

    fn bounded(&self, value: &[u8], horizon: Horizon) -> Option<Vec<u8>> {
        entry::bounded(value, horizon)
    }

    fn place(&self, value: &mut [u8], stamp_us: i64, nth: u32) {
        place_lists(value, stamp_us, nth);
    }

    fn taken_over(&self, value: &[u8]) -> Option<Vec<u8>> {
        entry::taken_over(value)
    }

    fn effect(&self, value: &[u8]) -> Effect {
        entry::effect(value)
    }

    fn growth(&self, program: &[u8], see: &mut dyn FnMut(Growth<'_>)) {
        // What is proposed decodes.
        if let Ok(program) = Program::decode(program) {
            program.operations.iter().for_each(|operation| growth::of(operation, see));
        }
    }

    fn row_indexes(&self, flags: u64, view: &dyn TabletView) -> Result<Option<Arc<dyn RowIndexes>>, EvaluationFailed> {
        if flags & index::INDEXED == 0 {
            return Ok(None);
        }
        Ok(index::tablet_indexes(view)?.map(|indexes| Arc::new(indexes) as Arc<dyn RowIndexes>))
    }

    fn changes_indexes(&self, program: &[u8]) -> bool {
        IndexStep::changes_indexes(program)
    }

    fn compare_again(&self, view: &dyn TabletView, changes: &mut dyn TabletChanges) -> Result<(), EvaluationFailed> {
        index::compare_again(view, changes)
    }

    fn adopt(
        &self,
        key: &[u8],
        value: &[u8],
        view: &dyn TabletView,
        changes: &mut dyn TabletChanges,
    ) -> Result<(), EvaluationFailed> {
        index::adopt(key, value, view, changes)
    }

    fn is_unmaintained(&self, program: &[u8], indexes: &dyn RowIndexes) -> bool {
        growth::is_unmaintained(program, indexes)
    }

    fn index_bytes(&self, program: &[u8], indexes: &dyn RowIndexes, most: usize) -> usize {
        let Ok(program) = Program::decode(program) else { return 0 };
        let of = |operation| growth::index_bytes(operation, indexes, most);
        program.operations.iter().map(of).fold(0, usize::saturating_add)
    }

    fn index_again(
        &self,
        from: &[u8],
        view: &dyn TabletView,
        changes: &mut dyn TabletChanges,
    ) -> Result<(), EvaluationFailed> {
        index::begin_again(from, view, changes)
    }
}

/// Why a program stops: the client did something impossible, or the replica cannot go on.
pub(super) enum Stop {
    Client(Impossible),
    Replica(EvaluationFailed),
}

impl Stop {
    pub(super) fn reply(self) -> Result<ProgramReply, EvaluationFailed> {
        match self {
            Stop::Client(Impossible(message)) => Ok(ProgramReply::Failed(message)),
            Stop::Replica(failed) => Err(failed),
        }
    }
}

/// The merged cells of an edit of a list or a document.
struct Edit<'p> {
    /// The number of its operation.
    at: usize,
    key: &'p [u8],
    value: Vec<u8>,
}

impl From<Impossible> for Stop {
    fn from(impossible: Impossible) -> Self {
        Stop::Client(impossible)
    }
}

impl From<EvaluationFailed> for Stop {
    fn from(failed: EvaluationFailed) -> Self {
        Stop::Replica(failed)
    }
}

/// A program that runs.
pub(super) struct Run<'v> {
    pub(super) context: EvaluationContext,
    pub(super) stored: Stored<'v>,
    /// Range deletions that have looked for the rows that they remove.
    looking: Cell<u32>,
}

impl<'v> Run<'v> {
    pub(super) fn new(program: &'v Program, context: EvaluationContext, view: &'v dyn TabletView) -> Self {
        Self { context, stored: Stored::new(view, context.now_s, &program.dropped_columns), looking: Cell::new(0) }
    }
}

impl Run<'_> {
    pub(super) fn program(
        &self,
        program: &Program,
        changes: &mut dyn TabletChanges,
    ) -> Result<ProgramReply, EvaluationFailed> {
        match self.guarded(program) {
            Ok(true) => {}
            Ok(false) => return Ok(ProgramReply::Outdated),
            Err(stop) => return stop.reply(),
        }
        if let Some(turns) = &program.turns {
            return self.in_turns(program, turns, changes);
        }
        match self.refused_by(&program.conditions) {
            Ok(None) => {}
            Ok(Some(condition)) => {
                return shown::seen(&self.stored, &program.conditions, condition).map(ProgramReply::Refused);
            }
            Err(stop) => return stop.reply(),
        }
        // Edits are computed before anything changes, as an impossible edit must have no effect.
        let edits = match self.edits(&program.operations) {
            Ok(edits) => edits,
            Err(stop) => return stop.reply(),
        };
        for operation in &program.operations {
            if let ProgramOperation::Delete { partition, range, explicit_us } = operation {
                self.delete(partition, range.as_ref(), *explicit_us, self.context.stamp_us, changes)?;
            }
        }
        for (nth, operation) in (0..).zip(&program.operations) {
            self.write_row(operation, nth, changes)?;
        }
        edits.iter().for_each(|edit| changes.merge(edit.key, &edit.value));
        Ok(ProgramReply::Applied)
    }

    /// Whether all is as it was when the program was planned.
    fn guarded(&self, program: &Program) -> Result<bool, Stop> {
        for guard in program.maintained.iter().flat_map(|maintained| &maintained.guards) {
            if !self.holds(guard)? {
                return Ok(false);
            }
            let newest_us = self.context.newest_explicit_us;
            if matches!(guard.test, RowTest::Unchanged(_)) && newest_us >= self.context.stamp_us {
                let what = "a tablet of a table with views has been written to with a timestamp in the future";
                return self.is_overtaken(newest_us, what);
            }
            if let RowTest::Columns(tests) = &guard.test
                && let Some(found) = self.stored.find(&guard.partition, &guard.row)?
            {
                // What the program writes would not replace it.
                for test in tests {
                    let timestamp_us = found.timestamp_us(test.column).map_err(damaged)?;
                    if let Some(timestamp_us) = timestamp_us.filter(|of_value| *of_value >= self.context.stamp_us) {
                        let what = "a column of a unique index has a value with a timestamp in the future";
                        return self.is_overtaken(timestamp_us, what);
                    }
                }
            }
            self.stored.check_work()?;
        }
        Ok(true)
    }

    /// A client has written with a timestamp that is not in the past: what the program writes may be hidden, and an index
    /// or a view would not know. Clocks differ by a little, so the program is tried again for a while.
    fn is_overtaken(&self, newest_us: i64, what: &str) -> Result<bool, Stop> {
        if newest_us.saturating_sub(self.context.stamp_us) < LITTLE_US {
            return Ok(false);
        }
        Err(Stop::Client(Impossible(format!("{what}: {}", shown_time(newest_us)))))
    }

    /// The first condition that does not hold. Conditions on the same row are tested one after the other, so that each
    /// row is read once, however large the rows are together.
    fn refused_by<'p>(&self, conditions: &'p [RowCondition]) -> Result<Option<&'p RowCondition>, Stop> {
        let mut order: Vec<usize> = (0..conditions.len()).collect();
        let row = |at: usize| (&conditions[at].partition, &conditions[at].row);
        order.sort_by(|one, other| row(*one).cmp(&row(*other)));
        let mut first: Option<(usize, Result<bool, Stop>)> = None;
        for at in order {
            // Only earlier conditions matter from now on.
            if first.as_ref().is_none_or(|(known, _)| at < *known) {
                let held = self.holds(&conditions[at]);
                if !matches!(held, Ok(true)) {
                    first = Some((at, held));
                }
            }
        }
        match first {
            None => Ok(None),
            Some((at, held)) => held.map(|_| Some(&conditions[at])),
        }
    }

    /// The edits of lists and documents in the order of the program. They are computed row by row, as conditions are tested.
    fn edits<'p>(&self, operations: &'p [ProgramOperation]) -> Result<Vec<Edit<'p>>, Stop> {
        let key = |(at, operation): (usize, &'p ProgramOperation)| match operation {
            ProgramOperation::List { key, .. } | ProgramOperation::Document { key, .. } => Some((key.as_slice(), at)),
            ProgramOperation::Row { .. } | ProgramOperation::Delete { .. } | ProgramOperation::Sum { .. } => None,
        };
        let mut order: Vec<(&[u8], usize)> = operations.iter().enumerate().filter_map(key).collect();
        order.sort_unstable();
        let (mut edits, mut edit_bytes) = (Vec::with_capacity(order.len()), 0);
        let mut first: Option<(usize, Stop)> = None;
        for (key, at) in order {
            if first.as_ref().is_some_and(|(known, _)| *known < at) {
                continue;
            }
            let edited = match &operations[at] {
                ProgramOperation::List { .. } => self.list_edit(&operations[at]),
                _ => self.document_edit(&operations[at]),
            };
            match edited {
                Ok(value) => {
                    edit_bytes += value.len();
                    edits.push(Edit { at, key, value });
                    if edit_bytes > MAX_EDIT_BYTES {
                        return Err(Stop::Client(Impossible(format!(
                            "the edits of lists and documents in one write come to more than {MAX_EDIT_BYTES} bytes"
                        ))));
                    }
                }
                Err(stop) => first = Some((at, stop)),
            }
        }
        edits.sort_unstable_by_key(|edit: &Edit<'p>| edit.at);
        first.map_or(Ok(edits), |(_, stop)| Err(stop))
    }

    pub(super) fn holds(&self, condition: &RowCondition) -> Result<bool, Stop> {
        let is_static = condition.row.is_empty();
        match &condition.test {
            RowTest::Exists | RowTest::NotExists => {
                let found = match is_static {
                    true => self.stored.static_row(&condition.partition)?,
                    false => self.stored.find(&condition.partition, &condition.row)?,
                };
                Ok(found.is_some() == (condition.test == RowTest::Exists))
            }
            RowTest::Unchanged(test) => Ok(self.stored.is_unchanged(condition, test)?),
            RowTest::Tree(tree) => {
                let statics = self.stored.static_row(&condition.partition)?;
                let row = if is_static { None } else { self.stored.find(&condition.partition, &condition.row)? };
                let exists = if is_static { statics.is_some() } else { row.is_some() };
                self.tree_holds(tree, exists, statics.as_ref(), row.as_ref())
            }
            RowTest::Columns(columns) => {
                let reads_static = columns.iter().any(|column| column.is_static);
                let reads_row = columns.iter().any(|column| !column.is_static);
                let statics = if reads_static { self.stored.static_row(&condition.partition)? } else { None };
                let row = if reads_row { self.stored.find(&condition.partition, &condition.row)? } else { None };
                for column in columns {
                    let found = if column.is_static { &statics } else { &row };
                    if !self.column_holds(column, found.as_ref())? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    fn tree_holds(
        &self,
        tree: &TestTree,
        exists: bool,
        statics: Option<&Rc<Found>>,
        row: Option<&Rc<Found>>,
    ) -> Result<bool, Stop> {
        let (parts, wanted) = match tree {
            TestTree::Exists => return Ok(exists),
            TestTree::Column(test) => return self.column_holds(test, if test.is_static { statics } else { row }),
            TestTree::Not(inner) => return self.tree_holds(inner, exists, statics, row).map(|holds| !holds),
            TestTree::All(parts) => (parts, false),
            TestTree::Any(parts) => (parts, true),
        };
        for part in parts {
            if self.tree_holds(part, exists, statics, row)? == wanted {
                return Ok(wanted);
            }
        }
        Ok(!wanted)
    }

    fn column_holds(&self, test: &ColumnTest, found: Option<&Rc<Found>>) -> Result<bool, Stop> {
        let column = match found {
            Some(found) => found.column(test.column, &test.data_type).map_err(damaged)?,
            None => Rc::new(StoredValue::new(test.data_type.clone(), None)),
        };
        Ok(test.holds(&column)?)
    }

    /// Writes a packed row, if the operation has one; it is the `nth`.
    fn write_row(
        &self,
        operation: &ProgramOperation,
        nth: u32,
        changes: &mut dyn TabletChanges,
    ) -> Result<(), EvaluationFailed> {
        let ProgramOperation::Row { is_overwrite, is_stamped, key, .. } = operation else {
            return Ok(());
        };
        let value = self.row_value(operation, nth)?;
        if *is_overwrite && *is_stamped && self.context.stamp_us > self.context.newest_explicit_us {
            changes.put(key, &value);
        } else {
            changes.merge(key, &value);
        }
        Ok(())
    }

    /// The value that an operation writes to a row, with the timestamp; it is the `nth`.
    pub(super) fn row_value(&self, operation: &ProgramOperation, nth: u32) -> Result<Vec<u8>, EvaluationFailed> {
        let ProgramOperation::Row { is_stamped, is_unplaced, value, .. } = operation else {
            unreachable!("called for rows only");
        };
        let mut value = value.clone();
        if *is_stamped {
            let slot = value.get_mut(1..9).ok_or_else(|| damaged(Malformed))?;
            slot.copy_from_slice(&self.context.stamp_us.to_le_bytes());
        }
        if *is_unplaced {
            place_lists(&mut value, self.context.stamp_us, nth);
        }
        Ok(value)
    }

    /// The key of a partition's header, and the header with a deletion.
    pub(super) fn header(
        &self,
        partition: &[u8],
        range: Option<&(Vec<u8>, Vec<u8>)>,
        timestamp_us: i64,
    ) -> (Vec<u8>, Vec<u8>) {
        let deletion = Deletion { timestamp_us, local_s: self.stored.now_s };
        let mut writer = DeletionsWriter::default();
        match range {
            None => writer.partition(deletion),
            Some((first, last)) => writer.range(first, last, deletion),
        }
        let (mut header, mut packed) = (partition.to_vec(), Vec::new());
        key::push_header(&mut header);
        writer.finish(timestamp_us, &mut packed);
        (header, packed)
    }

    /// Deletes a partition or a range of its rows, with this timestamp unless the client gave one.
    pub(super) fn delete(
        &self,
        partition: &[u8],
        range: Option<&(Vec<u8>, Vec<u8>)>,
        explicit_us: Option<i64>,
        otherwise_us: i64,
        changes: &mut dyn TabletChanges,
    ) -> Result<(), EvaluationFailed> {
        let (header, packed) = self.header(partition, range, explicit_us.unwrap_or(otherwise_us));
        changes.merge(&header, &packed);
        changes.raise_flags(PARTITION_DELETIONS);
        if explicit_us.is_none() && self.context.stamp_us > self.context.newest_explicit_us {
            let (start, end) = targets::deleted(partition, range);
            // The storage refuses a range that ends before it begins.
            if start < end {
                self.remove_rows(&start, &end, changes)?;
            }
        }
        Ok(())
    }

    /// Nothing stored is newer than the deletion, so it need not stay.
    fn remove_rows(&self, start: &[u8], end: &[u8], changes: &mut dyn TabletChanges) -> Result<(), EvaluationFailed> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let looking = self.looking.replace(self.looking.get() + 1);
        let has_seen_all = looking < LOOKING_DELETIONS
            && self.stored.view.scan_briefly(start, end, &mut |key, _| {
                keys.push(key.to_vec());
                keys.len() <= MAX_POINT_DELETES
            })?;
        // Either way nothing of the range is left on any replica: a header that is purged hides no row any more, and counters are never hidden by one.
        if has_seen_all && keys.len() <= MAX_POINT_DELETES {
            keys.iter().for_each(|key| changes.delete(key));
        } else {
            changes.delete_range(start, end);
        }
        Ok(())
    }

    /// The packed row that carries out a list edit.
    pub(super) fn list_edit(&self, operation: &ProgramOperation) -> Result<Vec<u8>, Stop> {
        let ProgramOperation::List { key, partition_len, column, edit, explicit_us, expiry } = operation else {
            unreachable!("called for lists only");
        };
        let timestamp_us = explicit_us.unwrap_or(self.context.stamp_us);
        let deletion = Deletion { timestamp_us, local_s: self.stored.now_s };
        let (partition, row) = key.split_at(*partition_len);
        let found = self.stored.find(partition, row)?;
        let mut packed = Vec::new();
        let mut writer = RowWriter::new(&mut packed, timestamp_us);
        writer.begin_complex(*column, None);
        let list = match &found {
            Some(found) => Some((found, found.list(*column).map_err(damaged)?)),
            None => None,
        };
        match (edit, list.filter(|(_, list)| list.len() > 0)) {
            (ListEdit::Set(index, value), Some((found, list))) => {
                let path = usize::try_from(*index).ok().and_then(|index| list.path(found, index));
                let path = path.ok_or_else(|| {
                    Impossible(format!("List index {index} out of bound, list has size {}", list.len()))
                })?;
                match value {
                    Some(value) => writer.element(path, timestamp_us, *expiry, value),
                    None => writer.element_tombstone(path, deletion),
                }
            }
            (ListEdit::Set(_, value), None) => {
                let verb = if value.is_some() { "set an element on" } else { "delete an element from" };
                return Err(Impossible(format!("Attempted to {verb} a list which is null")).into());
            }
            (ListEdit::Remove(values), Some((found, list))) => {
                let equal = list.equal_to(found, values);
                let paths = equal.into_iter().filter_map(|index| list.path(found, index));
                paths.for_each(|path| writer.element_tombstone(path, deletion));
            }
            (ListEdit::Remove(_), None) => {}
        }
        writer.end_complex();
        Ok(packed)
    }

    /// The packed row that carries out changes of places in a document.
    pub(super) fn document_edit(&self, operation: &ProgramOperation) -> Result<Vec<u8>, Stop> {
        let ProgramOperation::Document { key, partition_len, column, edits, explicit_us, expiry } = operation else {
            unreachable!("called for documents only");
        };
        let timestamp_us = explicit_us.unwrap_or(self.context.stamp_us);
        let (partition, row) = key.split_at(*partition_len);
        let found = self.stored.find(partition, row)?;
        let stored = match &found {
            Some(found) => Some(found.column(*column, &CqlType::Jsonb).map_err(damaged)?),
            None => None,
        };
        let stored = stored.as_ref().map(|stored| stored.document()).transpose()?.flatten();
        let edited = document::edit(stored, edits)?;
        let mut packed = Vec::new();
        let mut writer = RowWriter::new(&mut packed, timestamp_us);
        writer.cell(*column, timestamp_us, *expiry, &edited);
        Ok(packed)
    }
}
