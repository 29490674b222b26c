//! A decoded row: for each column of the table its value, timestamp and expiry, in buffers that are reused from row to row.
//!
//! Always true: only columns that are read are filled; values are wire bytes, multi-cell columns assembled. Partition and static columns
//! stay in place for all rows of a partition. Left out: what is done with the values ([`super::evaluate`], [`super::filter`]).

use crate::error::{corrupt, value_error};
use crate::table::TableContext;
use diorite_base::bytes::{Malformed, Reader, put_slice, put_varint};
use diorite_cql::protocol::CqlError;
use diorite_model::key::DecodedKey;
use diorite_model::row::{Expiry, LiveContent, LiveRow};
use diorite_model::schema::ColumnKind;

/// How one element of a multi-cell column was written.
#[derive(Debug, Clone)]
pub struct ElementInfo {
    /// Its path, in `buffer`.
    path: (u32, u32),
    /// `writetime`
    pub timestamp_us: i64,
    /// For `ttl`
    pub expiry: Option<Expiry>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    value: (u32, u32),
    is_set: bool,
    timestamp_us: i64,
    expiry: Option<Expiry>,
    elements: (u32, u32),
}

/// A row's columns by position.
#[derive(Debug, Clone, Default)]
pub struct RowData {
    buffer: Vec<u8>,
    elements: Vec<ElementInfo>,
    slots: Vec<Slot>,
    reads: Vec<bool>,
    records_elements: bool,
    /// The lengths of `buffer` and `elements` after the partition and static columns; the next row begins there.
    kept: (usize, usize),
}

impl RowData {
    /// A row without values. `reads` says for each column whether it is filled, `records_elements` whether timestamps
    /// and expiries of elements are recorded.
    pub fn new(reads: Vec<bool>, records_elements: bool) -> Self {
        let slots = vec![Slot::default(); reads.len()];
        Self { buffer: Vec::new(), elements: Vec::new(), slots, reads, records_elements, kept: (0, 0) }
    }

    /// Memory of its buffers, about.
    pub fn size_bytes(&self) -> usize {
        self.buffer.len() + self.elements.len() * size_of::<ElementInfo>() + self.slots.len() * size_of::<Slot>()
    }

    /// The value of a column.
    #[inline]
    pub fn value(&self, position: usize) -> Option<&[u8]> {
        let slot = &self.slots[position];
        slot.is_set.then(|| &self.buffer[slot.value.0 as usize..slot.value.1 as usize])
    }

    /// `writetime` and expiry of a column; of a multi-cell column the newest element's.
    pub fn written(&self, position: usize) -> Option<(i64, Option<Expiry>)> {
        let slot = &self.slots[position];
        slot.is_set.then_some((slot.timestamp_us, slot.expiry))
    }

    /// The live elements of a multi-cell column, in path order.
    pub fn elements(&self, position: usize) -> &[ElementInfo] {
        let slot = &self.slots[position];
        &self.elements[slot.elements.0 as usize..slot.elements.1 as usize]
    }

    /// The element at a path.
    pub fn element(&self, position: usize, path: &[u8]) -> Option<&ElementInfo> {
        let path_of = |info: &ElementInfo| &self.buffer[info.path.0 as usize..info.path.1 as usize];
        self.elements(position).iter().find(|info| path_of(info) == path)
    }

    fn put(&mut self, position: usize, bytes: &[u8]) {
        let start = self.buffer.len() as u32;
        self.buffer.extend_from_slice(bytes);
        self.slots[position] = Slot { value: (start, self.buffer.len() as u32), is_set: true, ..Slot::default() };
    }

    /// Begins a partition: clears the row and, if partition columns are read, fills them from `key`.
    pub fn begin_partition_with(&mut self, table: &TableContext, key: Option<&DecodedKey>) {
        self.buffer.clear();
        self.elements.clear();
        self.slots.fill(Slot::default());
        if let Some(key) = key {
            for at in 0..table.partition_columns() {
                if self.reads[at] {
                    self.put(at, key.partition(at));
                }
            }
        }
        self.kept = (self.buffer.len(), 0);
    }

    /// Takes the static columns of the partition.
    pub fn set_statics(&mut self, table: &TableContext, row: &LiveRow<'_>) -> Result<(), CqlError> {
        self.begin_row(table);
        self.fill(table, row, true)?;
        self.kept = (self.buffer.len(), self.elements.len());
        Ok(())
    }

    /// Forgets the previous row of the partition.
    pub fn begin_row(&mut self, table: &TableContext) {
        self.buffer.truncate(self.kept.0);
        self.elements.truncate(self.kept.1);
        for (position, slot) in self.slots.iter_mut().enumerate().skip(table.partition_columns()) {
            if table.column(position).kind != ColumnKind::Static {
                *slot = Slot::default();
            }
        }
    }

    /// Takes a row's clustering columns.
    pub fn set_clustering(&mut self, table: &TableContext, key: &DecodedKey) {
        let first = table.partition_columns();
        for index in 0..table.clustering_columns() {
            if self.reads[first + index]
                && let Some(bytes) = key.clustering(index)
            {
                self.put(first + index, bytes);
            }
        }
    }

    /// Takes a row's regular columns.
    pub fn set_regulars(&mut self, table: &TableContext, row: &LiveRow<'_>) -> Result<(), CqlError> {
        self.fill(table, row, false)
    }

    fn fill(&mut self, table: &TableContext, row: &LiveRow<'_>, is_static: bool) -> Result<(), CqlError> {
        for cell in row.cells() {
            let cell = cell.map_err(corrupt)?;
            let Some(position) = table.position_of(cell.column) else { continue };
            if !self.reads[position] || table.is_static(position) != is_static {
                continue;
            }
            match cell.content {
                LiveContent::Value(bytes) => self.put(position, bytes),
                LiveContent::Counter(sum) => self.put(position, &sum.to_be_bytes()),
                LiveContent::Complex(complex) => {
                    let start = self.buffer.len() as u32;
                    let data_type = &table.column(position).data_type;
                    complex.assemble(data_type, &mut self.buffer).map_err(corrupt)?;
                    let value = (start, self.buffer.len() as u32);
                    let first_element = self.elements.len() as u32;
                    if self.records_elements {
                        for element in complex.elements() {
                            let element = element.map_err(corrupt)?;
                            let path_start = self.buffer.len() as u32;
                            self.buffer.extend_from_slice(element.path);
                            self.elements.push(ElementInfo {
                                path: (path_start, self.buffer.len() as u32),
                                timestamp_us: element.timestamp_us,
                                expiry: element.expiry,
                            });
                        }
                    }
                    let elements = (first_element, self.elements.len() as u32);
                    self.slots[position] = Slot { value, is_set: true, elements, ..Slot::default() };
                }
            }
            self.slots[position].timestamp_us = cell.timestamp_us;
            self.slots[position].expiry = cell.expiry;
        }
        Ok(())
    }
}

impl RowData {
    /// Appends those set columns whose place in `wanted` is true.
    pub fn encode(&self, wanted: &[bool], out: &mut Vec<u8>) {
        let bytes = |(start, end): (u32, u32)| &self.buffer[start as usize..end as usize];
        let set = || (0..self.slots.len()).filter(|&at| self.slots[at].is_set && wanted[at]);
        put_varint(out, set().count() as u64);
        for at in set() {
            let slot = &self.slots[at];
            put_varint(out, at as u64);
            put_slice(out, bytes(slot.value));
            put_written(out, slot.timestamp_us, slot.expiry);
            let elements = self.elements(at);
            put_varint(out, elements.len() as u64);
            for element in elements {
                put_slice(out, bytes(element.path));
                put_written(out, element.timestamp_us, element.expiry);
            }
        }
    }

    /// Reads what [`RowData::encode`] wrote. `columns` is the number of columns of the table.
    pub fn decode(columns: usize, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut row = RowData::new(vec![false; columns], true);
        for _ in 0..reader.varint()? {
            let at = usize::try_from(reader.varint()?).ok().filter(|at| *at < columns).ok_or(Malformed)?;
            row.reads[at] = true;
            row.put(at, reader.slice()?);
            let (timestamp_us, expiry) = read_written(reader)?;
            let first = row.elements.len() as u32;
            for _ in 0..reader.varint()? {
                let start = row.buffer.len() as u32;
                row.buffer.extend_from_slice(reader.slice()?);
                let path = (start, row.buffer.len() as u32);
                let (timestamp_us, expiry) = read_written(reader)?;
                row.elements.push(ElementInfo { path, timestamp_us, expiry });
            }
            let slot = &mut row.slots[at];
            (slot.timestamp_us, slot.expiry) = (timestamp_us, expiry);
            slot.elements = (first, row.elements.len() as u32);
        }
        Ok(row)
    }
}

fn put_written(out: &mut Vec<u8>, timestamp_us: i64, expiry: Option<Expiry>) {
    out.extend_from_slice(&timestamp_us.to_le_bytes());
    out.push(u8::from(expiry.is_some()));
    if let Some(expiry) = expiry {
        out.extend_from_slice(&expiry.ttl_s.to_le_bytes());
        out.extend_from_slice(&expiry.at_s.to_le_bytes());
    }
}

fn read_written(reader: &mut Reader<'_>) -> Result<(i64, Option<Expiry>), Malformed> {
    let timestamp_us = reader.i64()?;
    let expiry = match reader.u8()? {
        0 => None,
        _ => Some(Expiry { ttl_s: reader.u32()?, at_s: reader.u32()? }),
    };
    Ok((timestamp_us, expiry))
}

/// The path of an element of a map or set in storage.
pub fn path_of(element_type: &diorite_model::types::CqlType, wire: &[u8]) -> Result<Vec<u8>, CqlError> {
    let mut path = Vec::new();
    diorite_model::row::element_path(element_type, wire, &mut path).map_err(value_error)?;
    Ok(path)
}
