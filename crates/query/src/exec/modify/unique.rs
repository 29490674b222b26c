//! What a statement's writes change in the columns of unique indexes, and the parts of their transaction that keep the
//! tables of the indexes up to date.
//!
//! Always true: of two live rows with the same values the table of the index names at most one, and no row gets values
//! while it names another row that has them: each part says by conditions what was read before. The table may name rows
//! that do not have the values any more (a deletion of a range that met a new row, a value that has expired); whoever
//! wants the values looks at the row that is named. Left out: reading, and what becomes of the transaction (the engine).

mod effects;

use self::effects::Effect;
pub(in crate::exec) use self::effects::{no_arithmetic, no_timestamps};
use super::{Order, Pending, Writes};
use crate::error::{corrupt, invalid};
use crate::exec::table_part::TablePart;
use crate::program::{
    ColumnTest, Maintained, ProgramOperation, RowCondition, RowTest, TestTree, TestedPart, ValueTest,
};
use crate::table::{Source, TableContext};
use diorite_base::TableId;
use diorite_base::limits::MAX_KEY_BYTES;
use diorite_cluster::catalog::Catalog;
use diorite_cql::language::ast::ComparisonOperator;
use diorite_cql::protocol::CqlError;
use diorite_model::index::push_value;
use diorite_model::key;
use diorite_model::row::{Deletion, LiveContent, LiveRow, Marker, RowWriter, UNSTAMPED};
use diorite_model::schema::{ColumnId, INDEX_TABLE_ROW, TableEntry, Unique};
use diorite_model::types::CqlType;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A row: its table, and its key.
pub type RowId = (TableId, Vec<u8>);

/// A range of rows: its table, its start, and its end.
pub type RangeId = (TableId, Vec<u8>, Vec<u8>);

/// The values of a row in the columns of unique indexes. A column without a value is not there.
pub type UniqueValues = BTreeMap<ColumnId, Vec<u8>>;

/// What has been read, and what is assumed: conditions of the transaction say all of it.
#[derive(Debug, Default)]
pub struct Believed {
    /// The values of rows.
    pub rows: BTreeMap<RowId, UniqueValues>,
    /// Which row a table of an index names for its key; `None`: none. What is not here is assumed to be right.
    pub owners: BTreeMap<RowId, Option<Vec<u8>>>,
    /// The rows that deletions of ranges have found, by the range's start and end.
    pub ranges: BTreeMap<RangeId, Vec<Vec<u8>>>,
}

/// What has to be read before the transaction can be made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unread {
    /// The unique columns of a row.
    Row(RowId),
    /// The rows of a range of keys.
    Range(TableId, Vec<u8>, Vec<u8>),
    /// The row that a table of an index names for a key.
    Owner(RowId),
}

/// What keeps the tables of unique indexes up to date.
#[derive(Debug, Default)]
pub struct Upkeep {
    /// The values of rows, as conditions.
    guards: Vec<RowId>,
    entries: Vec<Entry>,
}

/// A change of a key in the table of an index.
#[derive(Debug)]
struct Entry {
    table: Arc<TableContext>,
    part: TablePart,
    key: Vec<u8>,
    /// What the table names before.
    before: Owner,
    /// What it names afterwards; the outer `None`: as before.
    after: Option<Option<Vec<u8>>>,
}

/// Which row the table of an index is to name for a key, for its part of the transaction to be carried out.
#[derive(Debug)]
enum Owner {
    Is(Vec<u8>),
    IsNot(Vec<u8>),
    IsNoneOr(Vec<u8>),
}

/// The next thing to do.
#[derive(Debug)]
pub enum Planned {
    /// Read these, and plan again.
    Read(Vec<Unread>),
    /// The transaction can be made.
    Upkeep(Upkeep),
    /// Another row has the values in this index. What was read of the statement's own rows can be tested.
    Duplicate(String, Upkeep),
}

/// A key of the table of an index, while it is planned.
#[derive(Default)]
struct Wanted {
    removed_by: Option<Vec<u8>>,
    added_by: Option<Vec<u8>>,
}

/// Keys of index tables: the index, and the number of a part of its table.
type WantedKeys<'w> = BTreeMap<RowId, (&'w str, usize, Wanted)>;

/// What an error says of a value that another row has.
pub fn duplicate(index: &str) -> CqlError {
    // YCQL's words.
    invalid(format!("Execution Error. Duplicate value disallowed by unique index {index}"))
}

/// The live values of a stored row in the columns of unique indexes.
pub fn unique_values(table: &TableContext, row: &LiveRow<'_>) -> Result<UniqueValues, CqlError> {
    let mut values = UniqueValues::new();
    for cell in row.cells() {
        let cell = cell.map_err(corrupt)?;
        if let (LiveContent::Value(wire), true) = (cell.content, table.is_unique_column(cell.column)) {
            values.insert(cell.column, wire.to_vec());
        }
    }
    Ok(values)
}

/// The row that the table of an index names, according to a stored row of it.
pub fn owner_of(row: &LiveRow<'_>) -> Result<Option<Vec<u8>>, CqlError> {
    let cell = row.cell(INDEX_TABLE_ROW).map_err(corrupt)?;
    Ok(cell.and_then(|cell| match cell.content {
        LiveContent::Value(wire) => Some(wire.to_vec()),
        LiveContent::Counter(_) | LiveContent::Complex(_) => None,
    }))
}

/// The key of a row's values in the table of an index; `None` if the row lacks one of them.
///
/// # Errors
/// If the values are too long for a key.
pub fn index_key(table: &TableContext, unique: &Unique, values: &UniqueValues) -> Result<Option<Vec<u8>>, CqlError> {
    let mut key = Vec::new();
    for id in &unique.columns {
        let Some(wire) = values.get(id) else { return Ok(None) };
        let Some(column) = table.table().column_by_id(*id) else { return Ok(None) };
        push_value(&column.data_type, wire, &mut key).map_err(crate::error::value_error)?;
    }
    if key.len() > MAX_KEY_BYTES {
        return Err(too_long(table, unique, key.len()));
    }
    Ok(Some(key))
}

fn too_long(table: &TableContext, unique: &Unique, bytes: usize) -> CqlError {
    let index = table.table().unique_indexes().find(|(_, of)| of.table == unique.table);
    let index = index.map_or("", |(index, _)| index.name.as_str());
    let columns = unique.columns.iter().filter_map(|id| table.table().column_by_id(*id));
    let columns = columns.map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ");
    invalid(format!("values of the unique index {index} ({columns}) take {bytes} bytes, at most {MAX_KEY_BYTES}"))
}

impl Writes {
    /// What has to be read before anything is assumed: rows whose values the statement does not give. `all`: whatever
    /// was assumed has turned out to be wrong.
    pub fn unread(&self, believed: &mut Believed, all: bool) -> Result<Vec<Unread>, CqlError> {
        let mut unread = Vec::new();
        for (at, effect) in self.unique_effects()? {
            let table = &self.pending[at].table;
            let id = table.table().id;
            match effect {
                Effect::Range { start, end } => {
                    if !believed.ranges.contains_key(&(id, start.clone(), end.clone())) {
                        unread.push(Unread::Range(id, start, end));
                    }
                }
                Effect::Row { key, cells, .. } => {
                    let row = (id, key);
                    if believed.rows.contains_key(&row) {
                        continue;
                    }
                    let gives_all = table.unique_columns().iter().all(|id| cells.iter().any(|(of, _)| of == id));
                    match gives_all && !all {
                        // Most rows that a statement gives all values of are new.
                        true => drop(believed.rows.insert(row, UniqueValues::new())),
                        false => unread.push(Unread::Row(row)),
                    }
                }
            }
        }
        unread.sort();
        unread.dedup();
        Ok(unread)
    }

    /// What the operations do to unique columns, with the numbers of their tablets' parts; each follows those before it.
    fn unique_effects(&self) -> Result<Vec<(usize, Effect)>, CqlError> {
        let mut effects = Vec::new();
        for (at, pending) in self.pending.iter().enumerate() {
            if !pending.table.unique_columns().is_empty() {
                effects.extend(pending.unique_effects(self.is_block)?.into_iter().map(|effect| (at, effect)));
            }
        }
        Ok(effects)
    }

    /// The values of the rows that are changed, before and afterwards.
    fn changed_rows(&self, believed: &Believed) -> Result<BTreeMap<RowId, (usize, UniqueValues)>, CqlError> {
        let mut changed: BTreeMap<RowId, (usize, UniqueValues)> = BTreeMap::new();
        for (at, effect) in self.unique_effects()? {
            let id = self.pending[at].table.table().id;
            match effect {
                Effect::Row { key, deletes, cells } => {
                    let row = (id, key);
                    let known = || (at, believed.rows.get(&row).cloned().unwrap_or_default());
                    let (_, values) = changed.entry(row.clone()).or_insert_with(known);
                    if deletes {
                        values.clear();
                    }
                    for (column, value) in cells {
                        match value {
                            Some(value) => drop(values.insert(column, value)),
                            None => drop(values.remove(&column)),
                        }
                    }
                }
                Effect::Range { start, end } => {
                    let found = believed.ranges.get(&(id, start.clone(), end.clone()));
                    for key in found.into_iter().flatten() {
                        changed.entry((id, key.clone())).or_insert((at, UniqueValues::new()));
                    }
                    let within = changed.range_mut((id, start)..(id, end));
                    within.for_each(|(_, (_, values))| values.clear());
                }
            }
        }
        Ok(changed)
    }

    /// The keys of index tables that the changes concern, and the index in which two of the rows would be alike.
    fn wanted_keys<'w>(
        &'w self,
        changed: &BTreeMap<RowId, (usize, UniqueValues)>,
        believed: &Believed,
    ) -> Result<(WantedKeys<'w>, Option<String>), CqlError> {
        let (mut all, mut alike) = (WantedKeys::new(), None);
        for ((id, row), (at, after)) in changed {
            let table = &self.pending[*at].table;
            let before = believed.rows.get(&(*id, row.clone())).cloned().unwrap_or_default();
            for (index, unique) in table.table().unique_indexes() {
                // What was too long before the index is in no table.
                let old = index_key(table, unique, &before).unwrap_or_default();
                let new = if before == *after { old.clone() } else { index_key(table, unique, after)? };
                if old == new {
                    continue;
                }
                let mut note = |key: Option<Vec<u8>>, is_new: bool| {
                    let (_, _, wanted) =
                        all.entry((unique.table, key?)).or_insert((&index.name, *at, Wanted::default()));
                    let by = if is_new { &mut wanted.added_by } else { &mut wanted.removed_by };
                    by.replace(row.clone())
                };
                note(old, false);
                if note(new, true).is_some() {
                    alike.get_or_insert_with(|| index.name.clone());
                }
            }
        }
        Ok((all, alike))
    }

    /// Plans what keeps the tables of unique indexes up to date. `is_careful`: nothing is assumed of these tables.
    ///
    /// # Errors
    /// If values are too long for an index.
    pub fn upkeep(&self, catalog: &Catalog, believed: &Believed, is_careful: bool) -> Result<Planned, CqlError> {
        let changed = self.changed_rows(believed)?;
        let own: Vec<RowId> = changed.keys().cloned().collect();
        let (mut upkeep, mut unread) = (Upkeep { guards: own.clone(), entries: Vec::new() }, Vec::new());
        let (wanted, alike) = self.wanted_keys(&changed, believed)?;
        if let Some(index) = alike {
            return Ok(Planned::Duplicate(index, upkeep));
        }
        for ((index_table, key), (index, at, wanted)) in wanted {
            // The index was dropped a moment ago.
            let Some(entry) = catalog.table_by_id(index_table) else { continue };
            let (table, part, key) = located(entry, &key)?;
            let known = believed.owners.get(&(index_table, key.clone()));
            if is_careful && known.is_none() {
                unread.push(Unread::Owner((index_table, key)));
                continue;
            }
            let (before, after) = match (wanted.removed_by, wanted.added_by, known) {
                (Some(by), added, None) => (Owner::Is(by), Some(added)),
                (Some(by), added, Some(Some(owner))) if *owner == by => (Owner::Is(by), Some(added)),
                (None, Some(by), None | Some(None)) => (Owner::IsNoneOr(by.clone()), Some(Some(by))),
                (None, Some(by), Some(Some(owner))) if *owner == by => (Owner::IsNoneOr(by.clone()), Some(Some(by))),
                // The table does not name the row that has given up the values.
                (Some(by), None, Some(_)) => (Owner::IsNot(by), None),
                (Some(_), Some(by), Some(None)) => (Owner::IsNoneOr(by.clone()), Some(Some(by))),
                (_, Some(by), Some(Some(owner))) => {
                    let context = &self.pending[at].table;
                    let row = (context.table().id, owner.clone());
                    // What it has after the statement, if that changes it.
                    match changed.get(&row).map(|(_, after)| after).or_else(|| believed.rows.get(&row)) {
                        None => {
                            unread.push(Unread::Row(row));
                            continue;
                        }
                        Some(values) => {
                            let of_index = context.table().unique_indexes().find(|(of, _)| of.name == index);
                            let has = of_index.and_then(|(_, unique)| index_key(context, unique, values).ok()?);
                            let has = has.filter(|_| *owner != by);
                            let is_taken = has.is_some_and(|has| located(entry, &has).is_ok_and(|it| it.2 == key));
                            if is_taken {
                                let tests = Upkeep { guards: own, entries: Vec::new() };
                                return Ok(Planned::Duplicate(index.to_owned(), tests));
                            }
                            upkeep.guards.push(row);
                            (Owner::Is(owner.clone()), Some(Some(by)))
                        }
                    }
                }
                (None, None, _) => continue,
            };
            upkeep.entries.push(Entry { table, part, key, before, after });
        }
        if unread.is_empty() { Ok(Planned::Upkeep(upkeep)) } else { Ok(Planned::Read(unread)) }
    }

    /// Adds to the transaction what keeps the tables of unique indexes up to date.
    pub fn add_upkeep(&mut self, upkeep: Upkeep, believed: &Believed, now_s: u32) -> Result<(), CqlError> {
        for pending in self.pending.iter_mut().filter(|pending| !pending.table.unique_columns().is_empty()) {
            pending.maintained();
        }
        let Upkeep { mut guards, entries } = upkeep;
        guards.sort();
        guards.dedup();
        for (id, key) in guards {
            let Some(pending) = self.pending_of(id, &key) else { continue };
            let values = believed.rows.get(&(id, key.clone())).cloned().unwrap_or_default();
            let condition = guard(&pending.table, &key, &values)?;
            pending.maintained().guards.push(condition);
        }
        for entry in entries {
            let partition_len = entry.table.layout().partition_len(&entry.key).map_err(corrupt)?;
            let (partition, row) = entry.key.split_at(partition_len);
            let (partition, row) = (partition.to_vec(), row.to_vec());
            let test = RowTest::Tree(entry.before.test());
            let pending = self.pending(entry.part, &entry.table);
            pending.maintained().guards.push(RowCondition { partition, row, test });
            if let Some(after) = entry.after {
                pending.deletes_only &= after.is_none();
                pending.program.operations.push(ProgramOperation::Row {
                    is_overwrite: true,
                    is_stamped: true,
                    is_unplaced: false,
                    key: entry.key,
                    value: named(after.as_deref(), now_s),
                });
            }
        }
        Ok(())
    }

    /// The part of the tablet that holds a row, which may be one that is tested only.
    fn pending_of(&mut self, table: TableId, key: &[u8]) -> Option<&mut Pending> {
        let token = key::token_of(key).ok()?;
        let mut of_table = self.pending.iter_mut().filter(|pending| pending.part.table == table);
        of_table.find(|pending| pending.part.tokens.contains(&token))
    }

    /// Leaves out what is written, and the conditions that see some of it: only others are tested.
    pub fn only_test(&mut self) {
        for Pending { program, order, .. } in &mut self.pending {
            let mut are_kept = order.see_what_was(program).into_iter();
            program.conditions.retain(|_| are_kept.next().unwrap_or(false));
            program.operations.clear();
            *order = Order::default();
            // Nothing is sent where nothing is asked.
            if program.conditions.is_empty() {
                program.maintained = None;
            }
        }
    }

    /// Makes sure that the tablet of a row that is tested has a part.
    pub fn add_tested(&mut self, entry: &TableEntry, key: &[u8]) -> Result<(), CqlError> {
        let token = key::token_of(key).map_err(corrupt)?;
        let known = self.pending.iter().find(|pending| pending.part.table == entry.table.id);
        let Some(table) = known.map(|pending| Arc::clone(&pending.table)) else { return Ok(()) };
        self.pending(TablePart::holding(token, entry.table.id, &entry.tablets), &table);
        Ok(())
    }
}

impl Writes {
    /// A transaction after which the table of a unique index names a row that has these values; `former` is the row that
    /// it has named although that one does not have them, with its values.
    ///
    /// # Errors
    /// If a key is damaged.
    pub fn naming(
        (entry, table): (&TableEntry, &Arc<TableContext>),
        index_entry: &TableEntry,
        index_key: &[u8],
        row: &[u8],
        former: Option<&[u8]>,
    ) -> Result<(Self, Upkeep), CqlError> {
        let (writes, tests) = Self::testing((entry, table), std::iter::once(row).chain(former))?;
        let (table, part, key) = located(index_entry, index_key)?;
        let before = match former {
            Some(former) => Owner::Is(former.to_vec()),
            None => Owner::IsNoneOr(row.to_vec()),
        };
        let entries = vec![Entry { table, part, key, before, after: Some(Some(row.to_vec())) }];
        Ok((writes, Upkeep { entries, ..tests }))
    }

    /// What tests, at one moment, that rows have the values that they are believed to have.
    ///
    /// # Errors
    /// If a key is damaged.
    pub fn testing<'r>(
        (entry, table): (&TableEntry, &Arc<TableContext>),
        rows: impl Iterator<Item = &'r [u8]>,
    ) -> Result<(Self, Upkeep), CqlError> {
        let (mut writes, mut guards) = (Self::default(), Vec::new());
        for key in rows {
            let token = key::token_of(key).map_err(corrupt)?;
            writes.pending(TablePart::holding(token, entry.table.id, &entry.tablets), table);
            guards.push((entry.table.id, key.to_vec()));
        }
        Ok((writes, Upkeep { guards, entries: Vec::new() }))
    }
}

/// The key of a row's values in the table of an index, as it is stored there.
///
/// # Errors
/// If the values are too long.
pub fn stored_key(index_entry: &TableEntry, index_key: &[u8]) -> Result<Vec<u8>, CqlError> {
    located(index_entry, index_key).map(|(_, _, key)| key)
}

impl Upkeep {
    /// The rows whose values are tested.
    pub fn tested(&self) -> &[RowId] {
        &self.guards
    }
}

impl Pending {
    /// How it maintains unique indexes and views, which it does from now on.
    pub(super) fn maintained(&mut self) -> &mut Maintained {
        let version = self.table.table().version;
        self.program.maintained.get_or_insert_with(|| Maintained { version, guards: Vec::new() })
    }
}

impl Owner {
    fn test(&self) -> TestTree {
        let is = |row: &Vec<u8>| {
            TestTree::Column(Box::new(ColumnTest {
                column: INDEX_TABLE_ROW,
                is_static: false,
                data_type: CqlType::Blob,
                part: TestedPart::Whole,
                test: ValueTest::Compare(ComparisonOperator::Equal, Some(row.clone())),
            }))
        };
        match self {
            Self::Is(row) => is(row),
            Self::IsNot(row) => TestTree::Not(Box::new(is(row))),
            Self::IsNoneOr(row) => TestTree::Any(vec![TestTree::Not(Box::new(TestTree::Exists)), is(row)]),
        }
    }
}

/// A row of the table of an index that names a row, or none.
fn named(row: Option<&[u8]>, now_s: u32) -> Vec<u8> {
    let mut value = Vec::new();
    let mut writer = RowWriter::new(&mut value, UNSTAMPED);
    match row {
        Some(row) => {
            writer.marker(Marker { timestamp_us: UNSTAMPED, expiry: None });
            writer.cell(INDEX_TABLE_ROW, UNSTAMPED, None, row);
        }
        None => writer.deletion(Deletion { timestamp_us: UNSTAMPED, local_s: now_s }),
    }
    value
}

/// That a row has exactly these values in its unique columns.
fn guard(table: &TableContext, key: &[u8], values: &UniqueValues) -> Result<RowCondition, CqlError> {
    let partition_len = table.layout().partition_len(key).map_err(corrupt)?;
    let tests =
        table.unique_columns().iter().filter_map(|id| table.table().column_by_id(*id)).map(|column| ColumnTest {
            column: column.id,
            is_static: false,
            data_type: column.data_type.clone(),
            part: TestedPart::Whole,
            test: ValueTest::Compare(ComparisonOperator::Equal, values.get(&column.id).cloned()),
        });
    let (partition, row) = key.split_at(partition_len);
    Ok(RowCondition { partition: partition.to_vec(), row: row.to_vec(), test: RowTest::Columns(tests.collect()) })
}

/// The table of an index, its tablet and its row for a key.
fn located(entry: &TableEntry, key: &[u8]) -> Result<(Arc<TableContext>, TablePart, Vec<u8>), CqlError> {
    let table = Arc::new(TableContext::new(Arc::clone(&entry.table), Source::Tablets));
    let mut row = Vec::new();
    let token = table.layout().encode_partition(std::iter::once(key), &mut row).map_err(crate::error::key_error)?;
    key::push_row(&mut row);
    Ok((table, TablePart::holding(token, entry.table.id, &entry.tablets), row))
}
