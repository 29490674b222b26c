//! Runs programs.
//!
//! Always true: all reads see the tablet as it was before; deletions of ranges take effect before rows of the same program are written, and a
//! row of the same timestamp stays deleted, as in Cassandra. Rows are removed physically only if nothing that a client stamped itself
//! could be newer than the deletion. Left out: undoing (a program that fails has changed nothing yet).

use super::{
    ColumnTest, ListEdit, PARTITION_DELETIONS, Program, ProgramOperation, ProgramReply, RowCondition, RowTest, Seen,
    SeenRow, TestTree, document,
};
use diorite_base::mutation::{EvaluationContext, EvaluationFailed, Evaluator, TabletChanges, TabletView};
use diorite_model::Malformed;
use diorite_model::deletions::{Deletions, DeletionsWriter};
use diorite_model::key;
use diorite_model::row::{Deletion, LiveContent, LiveRow, NOTHING_DELETED, RowWriter};

/// Up to this many rows are removed key by key, more by one range deletion.
const MAX_POINT_DELETES: usize = 64;

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
        let program = Program::decode(program)
            .map_err(|_| EvaluationFailed("a program is malformed or of a newer version".to_owned()))?;
        let now_s = crate::exec::evaluate::now_seconds(context.stamp_us);
        let run = Run { context, view, now_s, dropped_columns: &program.dropped_columns };
        Ok(run.program(&program, changes)?.encode())
    }
}

fn damaged(_: Malformed) -> EvaluationFailed {
    EvaluationFailed("a stored row cannot be decoded".to_owned())
}

/// Why a program stops: the client did something impossible, or the replica cannot go on.
enum Stop {
    Client(String),
    Replica(EvaluationFailed),
}

impl From<EvaluationFailed> for Stop {
    fn from(failed: EvaluationFailed) -> Self {
        Stop::Replica(failed)
    }
}

/// A row as it is found: its value and the deletion over it.
struct Found {
    value: Vec<u8>,
    deleted_us: i64,
}

/// The elements of a list: paths and values.
type ListElements = Vec<(Vec<u8>, Vec<u8>)>;

struct Run<'v> {
    context: EvaluationContext,
    view: &'v dyn TabletView,
    now_s: u32,
    dropped_columns: &'v [u32],
}

/// The stored header of a partition.
struct Header(Option<Vec<u8>>);

impl Header {
    fn deletion_for(&self, row: &[u8]) -> Result<i64, EvaluationFailed> {
        let Some(bytes) = &self.0 else { return Ok(NOTHING_DELETED) };
        let deletions = Deletions::decode(bytes).map_err(damaged)?;
        Ok(match row.split_first() {
            Some((&kind, clustering)) if kind == key::RowKind::Regular as u8 => deletions.deletion_for(clustering),
            _ => deletions.static_deletion(),
        })
    }
}

impl Run<'_> {
    fn program(&self, program: &Program, changes: &mut dyn TabletChanges) -> Result<ProgramReply, EvaluationFailed> {
        for condition in &program.conditions {
            match self.holds(condition) {
                Ok(true) => {}
                Ok(false) => return self.seen(&program.conditions).map(ProgramReply::Refused),
                Err(Stop::Client(message)) => return Ok(ProgramReply::Failed(message)),
                Err(Stop::Replica(failed)) => return Err(failed),
            }
        }
        // Lists are looked at before anything changes, as an impossible edit must leave no trace.
        let mut edits = Vec::new();
        for operation in &program.operations {
            let edited = match operation {
                ProgramOperation::List { key, .. } => Some((key, self.list_edit(operation))),
                ProgramOperation::Document { key, .. } => Some((key, self.document_edit(operation))),
                ProgramOperation::Row { .. } | ProgramOperation::Delete { .. } => None,
            };
            if let Some((key, edited)) = edited {
                match edited {
                    Ok(value) => edits.push((key, value)),
                    Err(Stop::Client(message)) => return Ok(ProgramReply::Failed(message)),
                    Err(Stop::Replica(failed)) => return Err(failed),
                }
            }
        }
        for operation in &program.operations {
            if let ProgramOperation::Delete { partition, range, explicit_us } = operation {
                self.delete(partition, range.as_ref(), *explicit_us, changes)?;
            }
        }
        for operation in &program.operations {
            if let ProgramOperation::Row { is_overwrite, is_stamped, key, value } = operation {
                self.write_row(*is_overwrite, *is_stamped, key, value, changes)?;
            }
        }
        edits.iter().for_each(|(key, value)| changes.merge(key, value));
        Ok(ProgramReply::Applied)
    }

    fn header(&self, partition: &[u8]) -> Result<Header, EvaluationFailed> {
        let mut header = partition.to_vec();
        key::push_header(&mut header);
        self.view.get(&header).map(Header)
    }

    /// The row at `partition · row`, if it is stored and lives.
    fn find(&self, partition: &[u8], row: &[u8]) -> Result<Option<Found>, EvaluationFailed> {
        let Some(value) = self.view.get(&[partition, row].concat())? else { return Ok(None) };
        let deleted_us = self.header(partition)?.deletion_for(row)?;
        let exists = self.exists(&value, deleted_us).map_err(damaged)?;
        Ok(exists.then_some(Found { value, deleted_us }))
    }

    /// Whether a stored row exists for readers: it has a marker or a value of a column that the table still has.
    fn exists(&self, value: &[u8], deleted_us: i64) -> Result<bool, Malformed> {
        let live = LiveRow::new(value, self.now_s, deleted_us)?;
        if self.dropped_columns.is_empty() || live.has_marker() {
            return live.exists();
        }
        for cell in live.cells() {
            if self.dropped_columns.binary_search(&cell?.column).is_err() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn static_row(&self, partition: &[u8]) -> Result<Option<Found>, EvaluationFailed> {
        let mut row = Vec::new();
        key::push_static(&mut row);
        self.find(partition, &row)
    }

    fn holds(&self, condition: &RowCondition) -> Result<bool, Stop> {
        let is_static = condition.row.is_empty();
        match &condition.test {
            RowTest::Exists | RowTest::NotExists => {
                let found = match is_static {
                    true => self.static_row(&condition.partition)?,
                    false => self.find(&condition.partition, &condition.row)?,
                };
                Ok(found.is_some() == (condition.test == RowTest::Exists))
            }
            RowTest::Tree(tree) => {
                let statics = self.static_row(&condition.partition)?;
                let row = if is_static { None } else { self.find(&condition.partition, &condition.row)? };
                let exists = if is_static { statics.is_some() } else { row.is_some() };
                self.tree_holds(tree, exists, statics.as_ref(), row.as_ref())
            }
            RowTest::Columns(columns) => {
                let reads_static = columns.iter().any(|column| column.is_static);
                let reads_row = columns.iter().any(|column| !column.is_static);
                let statics = if reads_static { self.static_row(&condition.partition)? } else { None };
                let row = if reads_row { self.find(&condition.partition, &condition.row)? } else { None };
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
        statics: Option<&Found>,
        row: Option<&Found>,
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

    fn column_holds(&self, test: &ColumnTest, found: Option<&Found>) -> Result<bool, Stop> {
        let Some(found) = found else { return test.holds(None).map_err(Stop::Client) };
        let live = LiveRow::new(&found.value, self.now_s, found.deleted_us).map_err(damaged)?;
        let mut assembled = Vec::new();
        let wire = match live.cell(test.column).map_err(damaged)?.map(|cell| cell.content) {
            None => None,
            Some(LiveContent::Value(bytes)) => Some(bytes),
            Some(LiveContent::Counter(sum)) => {
                assembled.extend_from_slice(&sum.to_be_bytes());
                Some(assembled.as_slice())
            }
            Some(LiveContent::Complex(complex)) => {
                complex.assemble(&test.data_type, &mut assembled).map_err(damaged)?;
                Some(assembled.as_slice())
            }
        };
        test.holds(wire).map_err(Stop::Client)
    }

    /// The rows the conditions looked at.
    fn seen(&self, conditions: &[RowCondition]) -> Result<Seen, EvaluationFailed> {
        let Some(first) = conditions.first() else { return Ok(Seen::default()) };
        let mut seen = Seen { now_s: self.now_s, partition: first.partition.clone(), ..Seen::default() };
        let mut static_key = Vec::new();
        key::push_static(&mut static_key);
        seen.static_row = self.static_row(&first.partition)?.map(|found| SeenRow {
            key: static_key,
            deleted_us: found.deleted_us,
            value: found.value,
        });
        let mut keys: Vec<&Vec<u8>> =
            conditions.iter().map(|condition| &condition.row).filter(|row| !row.is_empty()).collect();
        keys.sort();
        keys.dedup();
        for row in &keys {
            if let Some(found) = self.find(&first.partition, row)? {
                seen.rows.push(SeenRow { key: (*row).clone(), deleted_us: found.deleted_us, value: found.value });
            }
        }
        if keys.is_empty() {
            seen.rows.extend(self.first_row(&first.partition)?);
        }
        Ok(seen)
    }

    /// The first live row of a partition: shown for conditions on static columns alone.
    fn first_row(&self, partition: &[u8]) -> Result<Option<SeenRow>, EvaluationFailed> {
        let header = self.header(partition)?;
        let (mut start, mut end) = (partition.to_vec(), partition.to_vec());
        key::push_row(&mut start);
        key::push_partition_end(&mut end);
        let mut outcome = Ok(None);
        self.view.scan(&start, &end, &mut |key, value| {
            let row = &key[partition.len()..];
            let judged = header.deletion_for(row).and_then(|deleted_us| {
                let exists = self.exists(value, deleted_us).map_err(damaged)?;
                Ok(exists.then(|| SeenRow { key: row.to_vec(), deleted_us, value: value.to_vec() }))
            });
            let goes_on = matches!(judged, Ok(None));
            outcome = judged;
            goes_on
        })?;
        outcome
    }

    fn write_row(
        &self,
        is_overwrite: bool,
        is_stamped: bool,
        key: &[u8],
        value: &[u8],
        changes: &mut dyn TabletChanges,
    ) -> Result<(), EvaluationFailed> {
        let mut value = value.to_vec();
        if is_stamped {
            let slot = value.get_mut(1..9).ok_or_else(|| damaged(Malformed))?;
            slot.copy_from_slice(&self.context.stamp_us.to_le_bytes());
        }
        if is_overwrite && is_stamped && self.context.stamp_us > self.context.newest_explicit_us {
            changes.put(key, &value);
        } else {
            changes.merge(key, &value);
        }
        Ok(())
    }

    fn delete(
        &self,
        partition: &[u8],
        range: Option<&(Vec<u8>, Vec<u8>)>,
        explicit_us: Option<i64>,
        changes: &mut dyn TabletChanges,
    ) -> Result<(), EvaluationFailed> {
        let timestamp_us = explicit_us.unwrap_or(self.context.stamp_us);
        let deletion = Deletion { timestamp_us, local_s: self.now_s };
        let mut writer = DeletionsWriter::default();
        let (mut start, mut end) = (partition.to_vec(), partition.to_vec());
        match range {
            None => {
                writer.partition(deletion);
                key::push_static(&mut start);
                key::push_partition_end(&mut end);
            }
            Some((first, last)) => {
                writer.range(first, last, deletion);
                key::push_row(&mut start);
                start.extend_from_slice(first);
                key::push_row(&mut end);
                end.extend_from_slice(last);
            }
        }
        let (mut header, mut packed) = (partition.to_vec(), Vec::new());
        key::push_header(&mut header);
        writer.finish(timestamp_us, &mut packed);
        changes.merge(&header, &packed);
        changes.raise_flags(PARTITION_DELETIONS);
        if explicit_us.is_none() && timestamp_us > self.context.newest_explicit_us {
            self.remove_rows(&start, &end, changes)?;
        }
        Ok(())
    }

    /// Nothing stored is newer than the deletion, so it need not stay.
    fn remove_rows(&self, start: &[u8], end: &[u8], changes: &mut dyn TabletChanges) -> Result<(), EvaluationFailed> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        self.view.scan(start, end, &mut |key, _| {
            keys.push(key.to_vec());
            keys.len() <= MAX_POINT_DELETES
        })?;
        if keys.len() > MAX_POINT_DELETES {
            changes.delete_range(start, end);
        } else {
            keys.iter().for_each(|key| changes.delete(key));
        }
        Ok(())
    }

    /// The packed row that carries out a list edit.
    fn list_edit(&self, operation: &ProgramOperation) -> Result<Vec<u8>, Stop> {
        let ProgramOperation::List { key, partition_len, column, edit, explicit_us, expiry } = operation else {
            unreachable!("called for lists only");
        };
        let timestamp_us = explicit_us.unwrap_or(self.context.stamp_us);
        let deletion = Deletion { timestamp_us, local_s: self.now_s };
        let (partition, row) = key.split_at(*partition_len);
        let found = self.find(partition, row)?;
        let elements = self.list_elements(found.as_ref(), *column)?;
        let mut packed = Vec::new();
        let mut writer = RowWriter::new(&mut packed, timestamp_us);
        writer.begin_complex(*column, None);
        match edit {
            ListEdit::Set(index, value) => {
                if elements.is_empty() {
                    let verb = if value.is_some() { "set an element on" } else { "delete an element from" };
                    return Err(Stop::Client(format!("Attempted to {verb} a list which is null")));
                }
                let at = usize::try_from(*index).ok().and_then(|index| elements.get(index));
                let (path, _) = at.ok_or_else(|| {
                    Stop::Client(format!("List index {index} out of bound, list has size {}", elements.len()))
                })?;
                match value {
                    Some(value) => writer.element(path, timestamp_us, *expiry, value),
                    None => writer.element_tombstone(path, deletion),
                }
            }
            ListEdit::Remove(values) => {
                for (path, value) in &elements {
                    if values.contains(value) {
                        writer.element_tombstone(path, deletion);
                    }
                }
            }
        }
        writer.end_complex();
        Ok(packed)
    }

    /// The packed row that carries out changes of places in a document.
    fn document_edit(&self, operation: &ProgramOperation) -> Result<Vec<u8>, Stop> {
        let ProgramOperation::Document { key, partition_len, column, edits, explicit_us, expiry } = operation else {
            unreachable!("called for documents only");
        };
        let timestamp_us = explicit_us.unwrap_or(self.context.stamp_us);
        let (partition, row) = key.split_at(*partition_len);
        let found = self.find(partition, row)?;
        let mut stored = None;
        if let Some(found) = &found {
            let live = LiveRow::new(&found.value, self.now_s, found.deleted_us).map_err(damaged)?;
            if let Some(LiveContent::Value(bytes)) = live.cell(*column).map_err(damaged)?.map(|cell| cell.content) {
                stored = Some(bytes.to_vec());
            }
        }
        let edited = document::edit(stored.as_deref(), edits).map_err(Stop::Client)?;
        let mut packed = Vec::new();
        let mut writer = RowWriter::new(&mut packed, timestamp_us);
        writer.cell(*column, timestamp_us, *expiry, &edited);
        Ok(packed)
    }

    fn list_elements(&self, found: Option<&Found>, column: u32) -> Result<ListElements, EvaluationFailed> {
        let Some(found) = found else { return Ok(Vec::new()) };
        let live = LiveRow::new(&found.value, self.now_s, found.deleted_us).map_err(damaged)?;
        let Some(cell) = live.cell(column).map_err(damaged)? else { return Ok(Vec::new()) };
        let LiveContent::Complex(complex) = cell.content else { return Ok(Vec::new()) };
        let elements = complex
            .elements()
            .map(|element| element.map(|element| (element.path.to_vec(), element.value.to_vec())).map_err(damaged));
        elements.collect()
    }
}
