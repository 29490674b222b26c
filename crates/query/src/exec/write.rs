//! From planned operations and bound values to packed rows.
//!
//! Always true: cells with the server's timestamp are written with the reserved one that the leader replaces; elements
//! that are added to lists have placeholder paths until the write is applied; cells are in ascending column id; of two
//! changes of one element in a statement the later counts. Left out: keys ([`super::keys`]), and list edits that have
//! to read the row, which are returned for a program.

use super::row::path_of;
use crate::error::{in_place, invalid, value_error};
use crate::functions::document::Step;
use crate::plan::modify::{ModifyKind, ModifyPlan, Scope};
use crate::plan::operation::{Change, Operation};
use crate::plan::term::{Bound, Evaluated, Term};
use crate::program::{ListEdit, PathStep};
use crate::values::index_of;
use diorite_base::limits::MAX_KEY_BYTES;
use diorite_cql::protocol::CqlError;
use diorite_model::row::{
    Deletion, Expiry, Marker, RowWriter, UNSTAMPED, field_path, unplaced_list_path_append, unplaced_list_path_prepend,
};
use diorite_model::schema::{Column, ColumnId, Table};
use diorite_model::types::CqlType;
use diorite_model::value::collection;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The longest TTL: 20 years, as in Cassandra.
const MAX_TTL_S: i32 = 20 * 365 * 24 * 60 * 60;

/// When a write happens and how long it lasts.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// The timestamp of `USING TIMESTAMP`.
    pub explicit_us: Option<i64>,
    /// The current second.
    pub now_s: u32,
    /// `USING TTL` or the table's default.
    pub expiry: Option<Expiry>,
}

impl Timing {
    /// The timestamp to write with.
    pub fn timestamp_us(&self) -> i64 {
        self.explicit_us.unwrap_or(UNSTAMPED)
    }

    fn deletion(&self) -> Deletion {
        Deletion { timestamp_us: self.timestamp_us(), local_s: self.now_s }
    }
}

/// The timestamp of `USING TIMESTAMP`; an error for the reserved value.
pub fn explicit_timestamp(term: &Term, bound: &Bound<'_>) -> Result<Option<i64>, CqlError> {
    match term.evaluate(bound)? {
        Evaluated::Unset => Ok(None),
        Evaluated::Null => Err(invalid("Invalid null value of timestamp")),
        Evaluated::Set(bytes) => {
            let bytes: [u8; 8] = (*bytes).try_into().map_err(|_| invalid("Invalid timestamp value"))?;
            match i64::from_be_bytes(bytes) {
                UNSTAMPED => Err(invalid("The timestamp is out of range")),
                timestamp_us => Ok(Some(timestamp_us)),
            }
        }
    }
}

/// `USING TTL`, or the table's default.
pub fn expiry(term: Option<&Term>, table: &Table, now_s: u32, bound: &Bound<'_>) -> Result<Option<Expiry>, CqlError> {
    let given = match term {
        None => None,
        Some(term) => match term.evaluate(bound)? {
            Evaluated::Unset => None,
            Evaluated::Null => return Err(invalid("Invalid null value of TTL")),
            Evaluated::Set(bytes) => {
                let bytes: [u8; 4] = (*bytes).try_into().map_err(|_| invalid("Invalid TTL value"))?;
                Some(i32::from_be_bytes(bytes))
            }
        },
    };
    let ttl_s = match given {
        None => table.default_ttl_s,
        Some(ttl) if ttl < 0 => {
            return Err(invalid(format!("A TTL must be greater or equal to 0, but was {ttl}")));
        }
        Some(ttl) if ttl > MAX_TTL_S => {
            return Err(invalid(format!("ttl is too large. requested ({ttl}) maximum ({MAX_TTL_S})")));
        }
        Some(ttl) => ttl as u32,
    };
    Ok((ttl_s > 0).then(|| Expiry { ttl_s, at_s: now_s.saturating_add(ttl_s) }))
}

/// The result of packing a row.
#[derive(Debug, Default)]
pub struct Packed {
    /// Some bound value was unset.
    pub has_unset: bool,
    /// Elements of lists have no places yet: the log decides them.
    pub is_unplaced: bool,
    /// Nothing was written.
    pub is_empty: bool,
    /// Changes that have to read the row.
    pub list_edits: Vec<(ColumnId, ListEdit)>,
    /// Changes of places in documents.
    pub document_edits: Vec<(ColumnId, Vec<PathStep>, Vec<u8>)>,
    /// Numbers that are added to columns, or (`true`) taken from them.
    pub sums: Vec<(ColumnId, CqlType, bool, Vec<u8>)>,
}

/// Packs the static or the regular part of the writes of `plan` to a row.
pub fn pack_row(
    plan: &ModifyPlan,
    is_static: bool,
    bound: &Bound<'_>,
    timing: &Timing,
    out: &mut Vec<u8>,
) -> Result<Packed, CqlError> {
    let writer = RowWriter::new(out, timing.timestamp_us());
    let mut packing = Packing { bound, timing, writer, packed: Packed::default() };
    if plan.kind == ModifyKind::Insert && plan.scope == Scope::Rows && !is_static {
        packing.writer.marker(Marker { timestamp_us: timing.timestamp_us(), expiry: timing.expiry });
    }
    if plan.kind == ModifyKind::Delete && plan.operations.is_empty() {
        packing.writer.deletion(timing.deletion());
    }
    let mut operations = plan.operations.as_slice();
    while let Some(first) = operations.first() {
        let count = operations.iter().take_while(|other| other.column == first.column).count();
        let (of_column, rest) = operations.split_at(count);
        operations = rest;
        if plan.table.is_static(first.column) == is_static {
            packing.column(plan.table.column(first.column), of_column)?;
        }
    }
    packing.packed.is_empty = packing.writer.is_empty();
    Ok(packing.packed)
}

/// The value of a term for a column.
fn value_of<'a>(term: &'a Term, column: &Column, bound: &Bound<'a>) -> Result<Evaluated<'a>, CqlError> {
    term.evaluate(bound)
        .map_err(|error| in_place(error, format_args!("column {} of type {}", column.name, column.data_type)))
}

/// A row that is being packed.
struct Packing<'p> {
    bound: &'p Bound<'p>,
    timing: &'p Timing,
    writer: RowWriter<'p>,
    packed: Packed,
}

impl<'p> Packing<'p> {
    fn column(&mut self, column: &Column, operations: &'p [Operation]) -> Result<(), CqlError> {
        let (bound, timing) = (self.bound, self.timing);
        if column.data_type.is_multi_cell() {
            return self.complex(column, operations);
        }
        for operation in operations {
            match &operation.change {
                Change::Set(term) => match value_of(term, column, bound)? {
                    Evaluated::Set(bytes) => self.writer.cell(column.id, timing.timestamp_us(), timing.expiry, &bytes),
                    Evaluated::Null => self.writer.tombstone(column.id, timing.deletion()),
                    Evaluated::Unset => self.packed.has_unset = true,
                },
                Change::Count(term, is_decrement) => match value_of(term, column, bound)? {
                    Evaluated::Set(bytes) => {
                        let bytes: [u8; 8] = (*bytes).try_into().map_err(|_| invalid("Invalid counter value"))?;
                        let delta = i64::from_be_bytes(bytes);
                        if *is_decrement && delta == i64::MIN {
                            return Err(invalid(format!(
                                "The negation of {delta} overflows supported counter precision (signed 8 bytes integer)"
                            )));
                        }
                        let delta = if *is_decrement { -delta } else { delta };
                        self.writer.counter(column.id, timing.timestamp_us(), delta);
                    }
                    Evaluated::Null => return Err(invalid("Invalid null value for counter increment")),
                    Evaluated::Unset => self.packed.has_unset = true,
                },
                Change::Sum(term, subtracts) => match value_of(term, column, bound)? {
                    Evaluated::Set(bytes) => {
                        let data_type = column.data_type.clone();
                        self.packed.sums.push((column.id, data_type, *subtracts, bytes.into_owned()));
                    }
                    // What null is added to is null.
                    Evaluated::Null => self.writer.tombstone(column.id, timing.deletion()),
                    Evaluated::Unset => self.packed.has_unset = true,
                },
                Change::SetPath(steps, terms, value) => match value_of(value, column, bound)? {
                    Evaluated::Set(bytes) => {
                        self.packed.document_edits.push((
                            column.id,
                            path_steps(steps, terms, bound)?,
                            bytes.into_owned(),
                        ));
                    }
                    Evaluated::Null => return Err(invalid("null is not a JSON document: write 'null'")),
                    Evaluated::Unset => self.packed.has_unset = true,
                },
                _ => return Err(invalid(format!("Invalid operation for column {}", column.name))),
            }
        }
        Ok(())
    }

    fn complex(&mut self, column: &Column, operations: &'p [Operation]) -> Result<(), CqlError> {
        let (bound, timing) = (self.bound, self.timing);
        let mut elements = Elements::default();
        for operation in operations {
            elements.apply(column, &operation.change, bound, &mut self.packed)?;
        }
        self.packed.is_unplaced |= elements.appended + elements.prepended > 0;
        let cleared = if elements.is_deleted {
            Some(timing.deletion())
        } else if elements.is_cleared {
            // Just before the new elements, so that they survive it.
            Some(Deletion { timestamp_us: timing.timestamp_us().wrapping_sub(1), local_s: timing.now_s })
        } else {
            None
        };
        self.writer.begin_complex(column.id, cleared);
        for (path, value) in &elements.changes {
            match value {
                Some(value) => self.writer.element(path, timing.timestamp_us(), timing.expiry, value),
                None => self.writer.element_tombstone(path, timing.deletion()),
            }
        }
        self.writer.end_complex();
        Ok(())
    }
}

/// The steps of a path, with their names and indexes.
pub fn path_steps(steps: &[Step], terms: &[Term], bound: &Bound<'_>) -> Result<Vec<PathStep>, CqlError> {
    let step = |(step, term): (&Step, &Term)| {
        let value = term.require(bound, "a path into a document")?;
        Ok(match step {
            Step::Member => PathStep::Member(String::from_utf8_lossy(&value).into_owned()),
            Step::Element => {
                let bytes: [u8; 4] = (*value).try_into().map_err(|_| invalid("Invalid index into a document"))?;
                PathStep::Element(i32::from_be_bytes(bytes))
            }
        })
    };
    steps.iter().zip(terms).map(step).collect()
}

/// The changes of one multi-cell column.
#[derive(Default)]
struct Elements<'a> {
    /// Whether earlier elements are replaced.
    is_cleared: bool,
    /// Whether all elements are deleted.
    is_deleted: bool,
    /// By path; `None` deletes.
    changes: BTreeMap<Vec<u8>, Option<Cow<'a, [u8]>>>,
    /// How many elements were put after, and before a list.
    appended: u32,
    prepended: u32,
}

impl<'a> Elements<'a> {
    fn apply(
        &mut self,
        column: &Column,
        change: &'a Change,
        bound: &Bound<'a>,
        packed: &mut Packed,
    ) -> Result<(), CqlError> {
        match change {
            Change::Set(term) => match value_of(term, column, bound)? {
                Evaluated::Unset => packed.has_unset = true,
                value => {
                    self.is_cleared = true;
                    if let Some(wire) = value.bytes() {
                        self.add(column, &wire, false)?;
                    }
                }
            },
            Change::Delete => self.is_deleted = true,
            Change::Add(term) | Change::Prepend(term) => match value_of(term, column, bound)? {
                Evaluated::Set(wire) => {
                    self.add(column, &wire, matches!(change, Change::Prepend(_)))?;
                }
                Evaluated::Null => {}
                Evaluated::Unset => packed.has_unset = true,
            },
            Change::Remove(term) => match value_of(term, column, bound)? {
                Evaluated::Set(wire) => self.remove(column, &wire, packed)?,
                Evaluated::Null => {}
                Evaluated::Unset => packed.has_unset = true,
            },
            Change::SetElement(key, value) => {
                let what = if matches!(column.data_type, CqlType::List(..)) { "list index" } else { "map key" };
                let key = match value_of(key, column, bound)? {
                    Evaluated::Set(key) => key,
                    Evaluated::Null => return Err(invalid(format!("Invalid null {what}"))),
                    Evaluated::Unset => return Err(invalid(format!("Invalid unset {what}"))),
                };
                match value_of(value, column, bound)? {
                    Evaluated::Unset => packed.has_unset = true,
                    value => self.set_element(column, &key, value.bytes().map(Cow::into_owned), packed)?,
                }
            }
            Change::SetField(index, term) => match value_of(term, column, bound)? {
                Evaluated::Unset => packed.has_unset = true,
                value => {
                    let value = value.bytes().map(|bytes| Cow::Owned(bytes.into_owned()));
                    self.changes.insert(field_path(*index).to_vec(), value);
                }
            },
            Change::Count(..) | Change::Sum(..) | Change::SetPath(..) => {
                return Err(invalid(format!("Invalid operation for column {}", column.name)));
            }
        }
        Ok(())
    }

    /// Adds the elements of a whole value.
    fn add(&mut self, column: &Column, wire: &[u8], is_prepend: bool) -> Result<(), CqlError> {
        let owned = |bytes: &[u8]| Some(Cow::Owned(bytes.to_vec()));
        match &column.data_type {
            CqlType::List(..) => {
                let elements = collection::elements(wire).map_err(value_error)?.collect::<Result<Vec<_>, _>>();
                let elements = elements.map_err(value_error)?;
                let count = elements.len() as u32;
                let path = if is_prepend { unplaced_list_path_prepend } else { unplaced_list_path_append };
                let first = if is_prepend {
                    // Elements that a statement prepends later come before those it prepended earlier.
                    self.prepended += count;
                    u32::MAX - self.prepended
                } else {
                    self.appended += count;
                    self.appended - count
                };
                for (at, element) in elements.into_iter().enumerate() {
                    self.changes.insert(path(first + at as u32).to_vec(), owned(element));
                }
            }
            CqlType::Set(element_type, _) => {
                for element in collection::elements(wire).map_err(value_error)? {
                    let path = element_path(column, element_type, element.map_err(value_error)?)?;
                    self.changes.insert(path, Some(Cow::Borrowed(&[])));
                }
            }
            CqlType::Map(key_type, ..) => {
                for entry in collection::entries(wire).map_err(value_error)? {
                    let (key, value) = entry.map_err(value_error)?;
                    self.changes.insert(element_path(column, key_type, key)?, owned(value));
                }
            }
            _ => {
                for (index, field) in collection::fields(wire).enumerate() {
                    let field = field.map_err(value_error)?;
                    self.changes.insert(field_path(index as u16).to_vec(), field.and_then(owned));
                }
            }
        }
        Ok(())
    }

    fn remove(&mut self, column: &Column, wire: &[u8], packed: &mut Packed) -> Result<(), CqlError> {
        let removed = collection::elements(wire).map_err(value_error)?;
        match &column.data_type {
            CqlType::Set(key_type, _) | CqlType::Map(key_type, ..) => {
                for key in removed {
                    self.changes.insert(element_path(column, key_type, key.map_err(value_error)?)?, None);
                }
            }
            _ => {
                let values = removed.map(|value| value.map(<[u8]>::to_vec).map_err(value_error));
                packed.list_edits.push((column.id, ListEdit::Remove(values.collect::<Result<_, _>>()?)));
            }
        }
        Ok(())
    }

    /// `value`: none if the element is removed.
    fn set_element(
        &mut self,
        column: &Column,
        key: &[u8],
        value: Option<Vec<u8>>,
        packed: &mut Packed,
    ) -> Result<(), CqlError> {
        match &column.data_type {
            CqlType::List(..) => {
                let index = index_of(key).and_then(|index| i32::try_from(index).ok()).unwrap_or(-1);
                packed.list_edits.push((column.id, ListEdit::Set(index, value)));
            }
            CqlType::Map(key_type, ..) | CqlType::Set(key_type, _) => {
                self.changes.insert(element_path(column, key_type, key)?, value.map(Cow::Owned));
            }
            _ => return Err(invalid(format!("Invalid operation for column {}", column.name))),
        }
        Ok(())
    }
}

/// The path of an element of a set, or of a key of a map, which is as long as a key may be.
fn element_path(column: &Column, element_type: &CqlType, wire: &[u8]) -> Result<Vec<u8>, CqlError> {
    if wire.len() > MAX_KEY_BYTES {
        let (what, whats) = match column.data_type {
            CqlType::Set(..) => ("Set value", "Set values"),
            _ => ("Map key", "Map keys"),
        };
        return Err(invalid(format!(
            "{what} is too long. {whats} are limited to {MAX_KEY_BYTES} bytes but {} bytes were provided (column {})",
            wire.len(),
            column.name
        )));
    }
    path_of(element_type, wire)
}

/// Packs the rows of a system table as stored entries, in key order.
pub fn pack_virtual_rows(
    table: &crate::table::TableContext,
    rows: &[Vec<Option<Vec<u8>>>],
) -> Result<super::source::Entries, CqlError> {
    let mut entries = Vec::with_capacity(rows.len());
    for row in rows {
        let mut key = Vec::new();
        let component = |at: usize| row.get(at).and_then(|cell| cell.as_deref()).unwrap_or_default();
        let partition = (0..table.partition_columns()).map(component);
        table.layout().encode_partition(partition, &mut key).map_err(crate::error::key_error)?;
        diorite_model::key::push_row(&mut key);
        for index in 0..table.clustering_columns() {
            let wire = component(table.partition_columns() + index);
            table.layout().push_clustering(index, wire, &mut key).map_err(crate::error::key_error)?;
        }
        let mut value = Vec::new();
        let mut writer = RowWriter::new(&mut value, 0);
        writer.marker(Marker { timestamp_us: 0, expiry: None });
        let mut cells: Vec<usize> = (table.key_columns()..table.table().columns.len()).collect();
        cells.sort_by_key(|at| table.column(*at).id);
        for at in cells {
            let (column, Some(wire)) = (table.column(at), row.get(at).and_then(|cell| cell.as_deref())) else {
                continue;
            };
            if !column.data_type.is_multi_cell() {
                writer.cell(column.id, 0, None, wire);
                continue;
            }
            let mut elements = Elements::default();
            elements.add(column, wire, false)?;
            writer.begin_complex(column.id, None);
            elements.changes.iter().for_each(|(path, value)| {
                writer.element(path, 0, None, value.as_deref().unwrap_or_default());
            });
            writer.end_complex();
        }
        entries.push((key, value));
    }
    entries.sort();
    Ok(entries)
}
