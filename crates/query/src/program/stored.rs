//! The rows that a program has read from its tablet, kept while it runs.
//!
//! Always true: a program reads the tablet as it was before its own changes, unless its parts follow one another, when
//! each row is read again after a write to it ([`Overlay`]); so a value that was read once stays valid; a row, a
//! column, a list or a document is decoded once, however many conditions and edits read it, so the cost of a batch is
//! linear in its size and in what it reads.
//! Left out: more than [`KEPT_BYTES`] of rows, which are read again: callers with many rows go row by row.

use super::definition::Impossible;
use super::overlay::{HEADER_READ_BYTES, Overlay, ROW_READ_BYTES};
use super::stored_value::StoredValue;
use crate::steps;
use diorite_base::mutation::{EvaluationFailed, TabletView};
use diorite_model::Malformed;
use diorite_model::deletions::{self, Deletions};
use diorite_model::row::{Deletion, LiveContent, LiveRow};
use diorite_model::types::CqlType;
use diorite_model::{entry, key};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// The most bytes of rows that are kept.
const KEPT_BYTES: usize = 32 << 20;

/// Why a program cannot be evaluated: a row that it reads is malformed.
pub const DAMAGED: &str = "a stored row cannot be decoded";

pub(super) fn damaged(_: Malformed) -> EvaluationFailed {
    EvaluationFailed(DAMAGED.to_owned())
}

/// The deletions of a partition, decoded.
pub(super) struct Header {
    partition: Option<Deletion>,
    /// Start, end and deletion; ascending and disjoint.
    ranges: Vec<(Vec<u8>, Vec<u8>, Deletion)>,
}

impl Header {
    fn decode(stored: Option<&[u8]>) -> Result<Self, Malformed> {
        let deletions = stored.map(Deletions::decode).transpose()?.unwrap_or_default();
        let owned = deletions.ranges().iter();
        let owned = owned.map(|range| (range.start.to_vec(), range.end.to_vec(), range.deletion));
        Ok(Self { partition: deletions.partition(), ranges: owned.collect() })
    }

    /// The timestamp up to which the row with this key (from the row-kind byte on) and value is deleted.
    pub fn deletion_for(&self, row: &[u8], value: &[u8]) -> i64 {
        let static_us = deletions::over(self.partition, value);
        let Some((&kind, clustering)) = row.split_first() else { return static_us };
        if kind != key::RowKind::Regular as u8 {
            return static_us;
        }
        let after = self.ranges.partition_point(|(start, ..)| start.as_slice() <= clustering);
        let range = after.checked_sub(1).map(|at| &self.ranges[at]).filter(|(_, end, _)| clustering < end.as_slice());
        deletions::over(range.map(|(.., deletion)| *deletion), value).max(static_us)
    }
}

/// A row as it is found: its value and the deletion over it.
pub(super) struct Found {
    pub value: Vec<u8>,
    pub deleted_us: i64,
    now_s: u32,
    columns: RefCell<BTreeMap<u32, Rc<StoredValue>>>,
    lists: RefCell<BTreeMap<u32, Rc<StoredList>>>,
}

/// The live elements of a list, by their places within the row's value.
#[derive(Default)]
pub(super) struct StoredList {
    /// Path and value, in the order of the list.
    elements: Vec<(Range<usize>, Range<usize>)>,
    /// The elements in the order of their values' bytes.
    by_value: OnceCell<Vec<usize>>,
}

impl StoredList {
    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// The path of the element at an index.
    pub fn path<'a>(&self, found: &'a Found, index: usize) -> Option<&'a [u8]> {
        self.elements.get(index).map(|(path, _)| &found.value[path.clone()])
    }

    /// The indexes of the elements that equal one of `values`, ascending.
    pub fn equal_to(&self, found: &Found, values: &[Vec<u8>]) -> Vec<usize> {
        let value = |index: &usize| {
            steps::count(1);
            &found.value[self.elements[*index].1.clone()]
        };
        let by_value = self.by_value.get_or_init(|| {
            let mut indexes: Vec<usize> = (0..self.elements.len()).collect();
            indexes.sort_by(|one, other| value(one).cmp(value(other)));
            indexes
        });
        let mut wanted: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut equal = Vec::new();
        for wanted in wanted {
            let first = by_value.partition_point(|index| value(index) < wanted);
            equal.extend(by_value[first..].iter().take_while(|index| value(index) == wanted));
        }
        equal.sort_unstable();
        equal
    }
}

impl Found {
    /// Its live cells.
    pub fn live(&self) -> Result<LiveRow<'_>, Malformed> {
        LiveRow::new(&self.value, self.now_s, self.deleted_us)
    }

    /// The value of a column, null if it has none.
    pub fn column(&self, column: u32, data_type: &CqlType) -> Result<Rc<StoredValue>, Malformed> {
        if let Some(known) = self.columns.borrow().get(&column).filter(|known| known.data_type() == data_type) {
            return Ok(Rc::clone(known));
        }
        let wire = match self.live()?.cell(column)?.map(|cell| cell.content) {
            None => None,
            Some(LiveContent::Value(bytes)) => Some(bytes.to_vec()),
            Some(LiveContent::Counter(sum)) => Some(sum.to_be_bytes().to_vec()),
            Some(LiveContent::Complex(complex)) => {
                let mut assembled = Vec::new();
                complex.assemble(data_type, &mut assembled)?;
                Some(assembled)
            }
        };
        steps::count(wire.as_ref().map_or(1, Vec::len));
        let value = Rc::new(StoredValue::new(data_type.clone(), wire));
        self.columns.borrow_mut().insert(column, Rc::clone(&value));
        Ok(value)
    }

    /// The timestamp of a column's live value.
    pub fn timestamp_us(&self, column: u32) -> Result<Option<i64>, Malformed> {
        Ok(self.live()?.cell(column)?.map(|cell| cell.timestamp_us))
    }

    /// The elements of a list.
    pub fn list(&self, column: u32) -> Result<Rc<StoredList>, Malformed> {
        if let Some(known) = self.lists.borrow().get(&column) {
            return Ok(Rc::clone(known));
        }
        let mut list = StoredList::default();
        if let Some(LiveContent::Complex(complex)) = self.live()?.cell(column)?.map(|cell| cell.content) {
            let place = |part: &[u8]| {
                let start = part.as_ptr() as usize - self.value.as_ptr() as usize;
                start..start + part.len()
            };
            for element in complex.elements() {
                steps::count(1);
                let element = element?;
                list.elements.push((place(element.path), place(element.value)));
            }
        }
        let list = Rc::new(list);
        self.lists.borrow_mut().insert(column, Rc::clone(&list));
        Ok(list)
    }
}

/// Rows by their keys; `None` for absent ones.
#[derive(Default)]
struct Rows {
    found: BTreeMap<Vec<u8>, Option<Rc<Found>>>,
    bytes: usize,
}

/// The tablet, with the rows read so far.
pub(super) struct Stored<'v> {
    pub view: &'v dyn TabletView,
    pub now_s: u32,
    dropped_columns: &'v [u32],
    headers: RefCell<BTreeMap<Vec<u8>, Rc<Header>>>,
    rows: RefCell<Rows>,
    /// The static row of the partition that was asked for last: conditions on many rows read it, too.
    statics: RefCell<Option<Statics>>,
    /// The program's own writes, if its parts follow one another.
    overlay: RefCell<Overlay>,
}

/// A partition, and its static row.
type Statics = (Vec<u8>, Option<Rc<Found>>);

impl<'v> Stored<'v> {
    pub fn new(view: &'v dyn TabletView, now_s: u32, dropped_columns: &'v [u32]) -> Self {
        Self {
            view,
            now_s,
            dropped_columns,
            headers: RefCell::default(),
            rows: RefCell::default(),
            statics: RefCell::default(),
            overlay: RefCell::default(),
        }
    }

    /// Writes to a row; what is read from now on shows it.
    pub fn write(&self, row_key: &[u8], value: &[u8]) -> Result<(), Impossible> {
        self.overlay.borrow_mut().write(row_key, value)?;
        let mut rows = self.rows.borrow_mut();
        if let Some(known) = rows.found.remove(row_key) {
            rows.bytes -= row_key.len() + known.map_or(0, |known| known.value.len());
        }
        *self.statics.borrow_mut() = None;
        Ok(())
    }

    /// Deletes the rows of a partition from the first key to the second, as `header` says.
    pub fn delete(&self, partition: &[u8], keys: (&[u8], &[u8]), header: Vec<u8>) {
        self.overlay.borrow_mut().delete(partition, keys, header);
        self.headers.borrow_mut().remove(partition);
        *self.rows.borrow_mut() = Rows::default();
        *self.statics.borrow_mut() = None;
    }

    /// Whether the program is too much work.
    pub fn check_work(&self) -> Result<(), Impossible> {
        self.overlay.borrow().check()
    }

    /// All that was written, by key.
    pub fn take_written(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.overlay.take().into_rows()
    }

    /// A stored value with the writes to it.
    fn with_writes(stored: Option<&[u8]>, writes: &[&[u8]]) -> Result<Option<Vec<u8>>, EvaluationFailed> {
        let mut folded = Vec::new();
        entry::fold(stored, writes.iter().copied(), &mut folded).map_err(damaged)?;
        Ok(Some(folded))
    }

    /// The deletions of a partition.
    pub fn header(&self, partition: &[u8]) -> Result<Rc<Header>, EvaluationFailed> {
        if let Some(known) = self.headers.borrow().get(partition) {
            return Ok(Rc::clone(known));
        }
        let mut header_key = partition.to_vec();
        key::push_header(&mut header_key);
        let mut stored = self.view.get(&header_key)?;
        {
            let mut overlay = self.overlay.borrow_mut();
            let added = overlay.headers(partition);
            if !added.is_empty() {
                let bytes = added.iter().map(Vec::len).sum::<usize>() + HEADER_READ_BYTES;
                let added: Vec<&[u8]> = added.iter().map(Vec::as_slice).collect();
                stored = Self::with_writes(stored.as_deref(), &added)?;
                overlay.count(bytes);
            }
        }
        let header = Rc::new(Header::decode(stored.as_deref()).map_err(damaged)?);
        self.headers.borrow_mut().insert(partition.to_vec(), Rc::clone(&header));
        Ok(header)
    }

    /// The row at `partition · row`, if it is stored and lives.
    pub fn find(&self, partition: &[u8], row: &[u8]) -> Result<Option<Rc<Found>>, EvaluationFailed> {
        let row_key = [partition, row].concat();
        if let Some(known) = self.rows.borrow().found.get(&row_key) {
            return Ok(known.clone());
        }
        let found = self.read(partition, row, &row_key)?.map(Rc::new);
        let mut rows = self.rows.borrow_mut();
        let bytes = row_key.len() + found.as_ref().map_or(0, |found| found.value.len());
        if rows.bytes + bytes > KEPT_BYTES {
            *rows = Rows::default();
        }
        rows.bytes += bytes;
        rows.found.insert(row_key, found.clone());
        Ok(found)
    }

    fn read(&self, partition: &[u8], row: &[u8], row_key: &[u8]) -> Result<Option<Found>, EvaluationFailed> {
        let mut value = self.view.get(row_key)?;
        if let Some(written) = self.overlay.borrow().row(row_key) {
            value = Self::with_writes(value.as_deref(), &[written])?;
        }
        let Some(value) = value else { return Ok(None) };
        let deleted_us = self.header(partition)?.deletion_for(row, &value);
        let exists = self.exists(&value, deleted_us).map_err(damaged)?;
        let now_s = self.now_s;
        let found = Found { value, deleted_us, now_s, columns: RefCell::default(), lists: RefCell::default() };
        if !self.overlay.borrow().is_empty() {
            let bytes = self.live_bytes(&found).map_err(damaged)? + ROW_READ_BYTES;
            self.overlay.borrow_mut().count(bytes);
        }
        Ok(exists.then_some(found))
    }

    /// The bytes of live values: the same on all replicas, unlike those that are stored.
    fn live_bytes(&self, found: &Found) -> Result<usize, Malformed> {
        let mut bytes = 0;
        for cell in found.live()?.cells() {
            let cell = cell?;
            if self.is_dropped(cell.column) {
                continue;
            }
            bytes += match cell.content {
                LiveContent::Value(value) => value.len(),
                LiveContent::Counter(_) => size_of::<i64>(),
                LiveContent::Complex(complex) => {
                    let mut sum = 0;
                    for element in complex.elements() {
                        let element = element?;
                        sum += element.path.len() + element.value.len();
                    }
                    sum
                }
            };
        }
        Ok(bytes)
    }

    /// Whether a stored row exists for readers: it has a marker or a value of a column that the table still has.
    pub fn exists(&self, value: &[u8], deleted_us: i64) -> Result<bool, Malformed> {
        let live = LiveRow::new(value, self.now_s, deleted_us)?;
        if self.dropped_columns.is_empty() || live.has_marker() {
            return live.exists();
        }
        for cell in live.cells() {
            if !self.is_dropped(cell?.column) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the table dropped a column.
    pub fn is_dropped(&self, column: u32) -> bool {
        self.dropped_columns.binary_search(&column).is_ok()
    }

    /// The static row of a partition.
    pub fn static_row(&self, partition: &[u8]) -> Result<Option<Rc<Found>>, EvaluationFailed> {
        if let Some((_, known)) = self.statics.borrow().as_ref().filter(|(known, _)| known == partition) {
            return Ok(known.clone());
        }
        let mut row = Vec::new();
        key::push_static(&mut row);
        let found = self.find(partition, &row)?;
        *self.statics.borrow_mut() = Some((partition.to_vec(), found.clone()));
        Ok(found)
    }
}
