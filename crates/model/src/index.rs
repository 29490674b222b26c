//! Local secondary indexes as keys and values: what entries follow from a row that is written.
//!
//! ```text
//! specification := 00×8 · 04 · index u64
//! entry         := 00×8 · 10 · index u64 · form · row's key · form's length u16 · partition's length u32
//! form          := the value as a key column, ascending; of an entry of a map its key and its value; of a place in
//!                  documents the text there; at most 1,024 bytes
//! ```
//!
//! Integers are big-endian. The value of an entry is a packed row with a marker, whose timestamp is the second at which
//! the value expires, or 2^40 if it never does. So of several writes of one value to one row the entry that lives
//! longest survives, whatever timestamps the writes have and in whatever order they come.
//!
//! Always true: each value that a row holds has been written to it, and whatever wrote it has also written the entry;
//! no form is the beginning of another one of its index, so that the entries of one value are in the order of their
//! rows; the order of forms is the order of values, except that values which begin alike may have one form. Left out:
//! whether a row still has the value (a reader looks at the row), and which indexes there are (crate `query`).

use crate::format::{FORMAT_BOUNDED_ROW, FORMAT_MASK, FORMAT_ROW};
use crate::json::place::{PathStep, text_at};
use crate::key::{DecodedKey, KeyLayout, RowKind, kind_of, push_component};
use crate::row::{Complex, Content, Expiry, Marker, RowReader, RowWriter};
use crate::schema::{ColumnId, IndexTarget};
use crate::types::CqlType;
use crate::value::ValueError;
use diorite_base::bytes::Malformed;
use diorite_base::row_index::{AddEntry, RECORD_PREFIX, RowIndexes};

/// The value of a column of a key, by its number.
type WireOf = fn(&DecodedKey, usize) -> Option<&[u8]>;

/// How the key of a specification begins.
pub const SPECIFICATION_PREFIX: [u8; 9] = [0, 0, 0, 0, 0, 0, 0, 0, 4];
const ENTRY: u8 = 0x10;
/// Longer forms are cut.
const MAX_FORM_BYTES: usize = 1_024;
/// The form's length and the partition's length.
const LENGTHS_BYTES: usize = 6;
const PREFIX_BYTES: usize = RECORD_PREFIX.len() + 1 + 8;
/// The timestamp of an entry that never expires: greater than any second.
const LASTS: i64 = 1 << 40;

/// The key of an index's specification.
pub fn specification_key(index: u64) -> Vec<u8> {
    [&SPECIFICATION_PREFIX[..], &index.to_be_bytes()].concat()
}

/// How the keys of an index's entries begin.
pub fn entry_prefix(index: u64) -> Vec<u8> {
    [&RECORD_PREFIX[..], &[ENTRY], &index.to_be_bytes()].concat()
}

/// The first key after all entries of an index.
pub fn entries_end(index: u64) -> Vec<u8> {
    match index.checked_add(1) {
        Some(next) => entry_prefix(next),
        None => [&RECORD_PREFIX[..], &[ENTRY + 1]].concat(),
    }
}

/// The form of a value.
///
/// # Errors
/// If the bytes are not a value of the type.
pub fn value_form(data_type: &CqlType, wire: &[u8]) -> Result<Vec<u8>, ValueError> {
    let mut form = Vec::with_capacity(wire.len() + 2);
    push_component(data_type, wire, &mut form)?;
    form.truncate(MAX_FORM_BYTES);
    Ok(form)
}

/// Appends a value as a part of a key, whole; no value's bytes are the beginning of another one's.
///
/// # Errors
/// If the bytes are not a value of the type.
pub fn push_value(data_type: &CqlType, wire: &[u8], key: &mut Vec<u8>) -> Result<(), ValueError> {
    push_component(data_type, wire, key)
}

/// The form of an entry of a map.
///
/// # Errors
/// If the bytes are not values of the types.
pub fn pair_form(types: (&CqlType, &CqlType), key: &[u8], value: &[u8]) -> Result<Vec<u8>, ValueError> {
    let mut form = Vec::with_capacity(key.len() + value.len() + 4);
    push_component(types.0, key, &mut form)?;
    push_component(types.1, value, &mut form)?;
    form.truncate(MAX_FORM_BYTES);
    Ok(form)
}

/// An entry's key, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryKey<'a> {
    /// The value that is indexed.
    pub form: &'a [u8],
    /// The key of the row; that of the static row if only the partition is meant.
    pub row: &'a [u8],
    /// The length of its partition part.
    pub partition_len: usize,
}

impl<'a> EntryKey<'a> {
    /// Reads an entry's key.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(key: &'a [u8]) -> Result<Self, Malformed> {
        let (rest, lengths) = key.split_last_chunk::<LENGTHS_BYTES>().ok_or(Malformed)?;
        let [a, b, c, d, e, f] = *lengths;
        let form_len = usize::from(u16::from_be_bytes([a, b]));
        let partition_len = usize::try_from(u32::from_be_bytes([c, d, e, f])).map_err(|_| Malformed)?;
        let rest = rest.get(PREFIX_BYTES..).ok_or(Malformed)?;
        let (form, row) = rest.split_at_checked(form_len).ok_or(Malformed)?;
        if partition_len >= row.len() { Err(Malformed) } else { Ok(Self { form, row, partition_len }) }
    }

    /// The key as it is stored.
    pub fn join(&self, index: u64) -> Vec<u8> {
        let mut key = Vec::with_capacity(PREFIX_BYTES + self.form.len() + self.row.len() + LENGTHS_BYTES);
        key.extend_from_slice(&RECORD_PREFIX);
        key.push(ENTRY);
        key.extend_from_slice(&index.to_be_bytes());
        key.extend_from_slice(self.form);
        key.extend_from_slice(self.row);
        // Forms are cut to 1,024 bytes, and no key is as long as 4 GiB.
        key.extend_from_slice(&(self.form.len() as u16).to_be_bytes());
        key.extend_from_slice(&(self.partition_len as u32).to_be_bytes());
        key
    }

    /// The index of an entry's key.
    pub fn index(key: &[u8]) -> Option<u64> {
        let rest = key.strip_prefix(&RECORD_PREFIX)?.strip_prefix(&[ENTRY])?;
        rest.first_chunk::<8>().map(|id| u64::from_be_bytes(*id))
    }
}

/// What an index is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Indexed {
    /// A column that is no part of the key.
    Cell {
        /// The column.
        column: ColumnId,
        /// Whether it is static.
        is_static: bool,
        /// Its type.
        data_type: CqlType,
        /// Which part of it.
        target: IndexTarget,
    },
    /// The text at a place in the documents of a column that is no part of the key.
    Place {
        /// The column.
        column: ColumnId,
        /// Whether it is static.
        is_static: bool,
        /// The place.
        path: Vec<PathStep>,
    },
    /// A column of the partition key, by its position there.
    Partition(usize, CqlType),
    /// A clustering column, by its position among them.
    Clustering(usize, CqlType),
    /// Nothing: of a materialized view, which has no entries here.
    Nothing,
}

/// An index of a tablet.
#[derive(Debug, Clone)]
pub struct RowIndex {
    /// Its number.
    pub id: u64,
    /// What it is made of.
    pub indexed: Indexed,
}

/// The indexes of a tablet.
#[derive(Debug, Clone)]
pub struct TabletIndexes {
    layout: KeyLayout,
    indexes: Vec<RowIndex>,
    /// Unique indexes and materialized views, ascending.
    dependents: Vec<u64>,
    /// The columns that decide what these say of a row.
    watched: Vec<ColumnId>,
    /// Some view has a row for each row that exists.
    follows_rows: bool,
}

impl TabletIndexes {
    /// The indexes of a tablet whose keys have this layout.
    pub fn new(layout: KeyLayout, indexes: Vec<RowIndex>) -> Self {
        Self { layout, indexes, dependents: Vec::new(), watched: Vec::new(), follows_rows: false }
    }

    /// Makes one of them unique in these columns, or adds a materialized view of these columns. `follows_rows`: the view
    /// has a row for each row that exists.
    pub fn add_dependent(&mut self, id: u64, columns: &[ColumnId], follows_rows: bool) {
        self.dependents.push(id);
        self.dependents.sort_unstable();
        self.watched.extend_from_slice(columns);
        self.follows_rows |= follows_rows;
    }
}

/// The most bytes of an entry beside the row's key, the form and the rest of the value.
const OTHER_BYTES: usize = PREFIX_BYTES + LENGTHS_BYTES + VALUE_BYTES;
/// The most bytes of the value of an entry.
const VALUE_BYTES: usize = 32;

/// An entry that follows from a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Derived<'a> {
    /// The index.
    pub index: u64,
    /// The entry.
    pub entry: EntryKey<'a>,
    /// When the value expires.
    pub expiry: Option<Expiry>,
    /// The path of the element that it follows from, in a collection; paths ascend within a row.
    pub path: &'a [u8],
}

impl Derived<'_> {
    /// The key of the entry.
    pub fn key(&self) -> Vec<u8> {
        self.entry.join(self.index)
    }

    /// The value of the entry.
    pub fn value(&self) -> Vec<u8> {
        entry_value(self.expiry)
    }

    /// Whether the value has to be merged with what is stored.
    pub fn is_merged(&self) -> bool {
        self.expiry.is_some()
    }

    /// About the bytes of key and value, and no fewer.
    pub fn size_bytes(&self) -> usize {
        self.entry.form.len() + self.entry.row.len() + OTHER_BYTES
    }
}

/// Receives an entry that follows from a row, and returns whether it wants more of them.
pub type SeeDerived<'s> = dyn FnMut(&Derived<'_>) -> bool + 's;

/// The row whose entries are derived.
#[derive(Clone, Copy)]
struct Row<'a> {
    key: &'a [u8],
    partition_len: usize,
    kind: RowKind,
}

impl Row<'_> {
    fn see(&self, index: u64, (form, path): (&[u8], &[u8]), expiry: Option<Expiry>, see: &mut SeeDerived<'_>) -> bool {
        let form = &form[..form.len().min(MAX_FORM_BYTES)];
        let entry = EntryKey { form, row: self.key, partition_len: self.partition_len };
        see(&Derived { index, entry, expiry, path })
    }
}

/// The value of an entry.
fn entry_value(expiry: Option<Expiry>) -> Vec<u8> {
    let (mut value, timestamp_us) = (Vec::new(), expiry.map_or(LASTS, |expiry| i64::from(expiry.at_s)));
    RowWriter::new(&mut value, timestamp_us).marker(Marker { timestamp_us, expiry });
    value
}

/// Whether an entry never expires, according to its value.
pub fn lasts(value: &[u8]) -> bool {
    RowReader::new(value).is_ok_and(|row| row.marker().is_some_and(|marker| marker.expiry.is_none()))
}

/// The second expiry, if it is later; `None` is never.
fn later(one: Option<Expiry>, other: Option<Expiry>) -> Option<Expiry> {
    let (one, other) = (one?, other?);
    Some(if one.at_s >= other.at_s { one } else { other })
}

/// When the last value of a row expires; the outer `None`: it has no value.
fn last_expiry(row: &RowReader<'_>) -> Option<Option<Expiry>> {
    let mut last = row.marker().map(|marker| marker.expiry);
    let mut see = |content: &Content<'_>| {
        let expiry = match content {
            Content::Value(_, expiry) => *expiry,
            Content::Counter(..) => None,
            _ => return,
        };
        last = Some(last.map_or(expiry, |last| later(last, expiry)));
    };
    for cell in row.cells().map_while(Result::ok) {
        match &cell.content {
            Content::Complex(complex) => {
                complex.elements().map_while(Result::ok).for_each(|element| see(&element.content));
            }
            content => see(content),
        }
    }
    last
}

impl RowIndex {
    /// Returns whether more are wanted.
    fn of_cell(&self, content: &Content<'_>, row: Row<'_>, see: &mut SeeDerived<'_>) -> bool {
        let (form, expiry) = match (content, &self.indexed) {
            (Content::Value(wire, expiry), Indexed::Cell { data_type, .. }) => {
                (value_form(data_type, wire).ok(), expiry)
            }
            (Content::Value(wire, expiry), Indexed::Place { path, .. }) => {
                let text = text_at(wire, path);
                (text.and_then(|text| value_form(&CqlType::Text, text.as_bytes()).ok()), expiry)
            }
            (Content::Complex(complex), Indexed::Cell { data_type, target, .. }) => {
                return self.of_elements(complex, (data_type, *target), row, see);
            }
            _ => return true,
        };
        form.is_none_or(|form| row.see(self.id, (&form, &[]), *expiry, see))
    }

    /// Returns whether more are wanted.
    fn of_elements(
        &self,
        complex: &Complex<'_>,
        (data_type, target): (&CqlType, IndexTarget),
        row: Row<'_>,
        see: &mut SeeDerived<'_>,
    ) -> bool {
        let mut form = Vec::new();
        for element in complex.elements().map_while(Result::ok) {
            let Content::Value(wire, expiry) = element.content else { continue };
            form.clear();
            let is_formed = match (data_type, target) {
                (CqlType::Set(..), _) | (CqlType::Map(..), IndexTarget::Keys) => {
                    form.extend_from_slice(element.path);
                    Ok(())
                }
                (CqlType::List(of, _), _) | (CqlType::Map(_, of, _), IndexTarget::Values) => {
                    push_component(of, wire, &mut form)
                }
                (CqlType::Map(_, of, _), IndexTarget::Entries) => {
                    form.extend_from_slice(element.path);
                    push_component(of, wire, &mut form)
                }
                _ => continue,
            };
            if is_formed.is_ok() && !row.see(self.id, (&form, element.path), expiry, see) {
                return false;
            }
        }
        true
    }
}

impl TabletIndexes {
    /// Calls `see` with each entry that follows from `value`, which is written under `key`, until it returns false.
    pub fn derive(&self, key: &[u8], value: &[u8], see: &mut SeeDerived<'_>) {
        let is_row =
            value.first().is_some_and(|first| [FORMAT_ROW, FORMAT_BOUNDED_ROW].contains(&(first & FORMAT_MASK)));
        if !is_row || key.len() <= RECORD_PREFIX.len() || key.starts_with(&RECORD_PREFIX) {
            return;
        }
        let Ok(partition_len) = self.layout.partition_len(key) else { return };
        let (Ok(kind), Ok(reader)) = (kind_of(key, partition_len), RowReader::new(value)) else { return };
        let row = Row { key, partition_len, kind };
        let (mut decoded, mut last) = (None, None);
        for index in &self.indexes {
            let (data_type, wire): (&CqlType, WireOf) = match &index.indexed {
                Indexed::Cell { is_static, .. } | Indexed::Place { is_static, .. }
                    if *is_static != (row.kind == RowKind::Static) =>
                {
                    continue;
                }
                Indexed::Cell { column, .. } | Indexed::Place { column, .. } => {
                    for cell in reader.cells().map_while(Result::ok).filter(|cell| cell.column == *column) {
                        if !index.of_cell(&cell.content, row, see) {
                            return;
                        }
                    }
                    continue;
                }
                Indexed::Partition(_, data_type) => (data_type, |key, at| Some(key.partition(at))),
                Indexed::Clustering(..) if row.kind == RowKind::Static => continue,
                Indexed::Clustering(_, data_type) => (data_type, |key, at| key.clustering(at)),
                Indexed::Nothing => continue,
            };
            let (Indexed::Partition(at, _) | Indexed::Clustering(at, _)) = &index.indexed else { continue };
            let Some(expiry) = *last.get_or_insert_with(|| last_expiry(&reader)) else { continue };
            let decoded = decoded.get_or_insert_with(|| {
                let mut decoded = DecodedKey::default();
                self.layout.decode(key, &mut decoded).ok().map(|()| decoded)
            });
            let form = decoded.as_ref().and_then(|key| value_form(data_type, wire(key, *at)?).ok());
            if form.is_some_and(|form| !row.see(index.id, (&form, &[]), expiry, see)) {
                return;
            }
        }
    }
}

impl RowIndexes for TabletIndexes {
    fn entries(&self, key: &[u8], value: &[u8], add: &mut AddEntry<'_>) {
        self.derive(key, value, &mut |derived| {
            add(&derived.key(), &derived.value(), derived.is_merged());
            true
        });
    }

    fn dependents(&self) -> &[u64] {
        &self.dependents
    }

    fn is_watched(&self, column: ColumnId) -> bool {
        self.follows_rows || self.watched.contains(&column)
    }

    fn concerns_dependents(&self, value: &[u8]) -> bool {
        if self.dependents.is_empty() {
            return false;
        }
        // What cannot be read is no row.
        let Ok(row) = RowReader::new(value) else { return false };
        self.follows_rows
            || row.deletion().is_some()
            || row.cells().map_while(Result::ok).any(|cell| self.watched.contains(&cell.column))
    }

    fn most_bytes(&self, key_bytes: usize, value_bytes: usize) -> usize {
        // An element takes more than one byte, and the form of a value is no longer than twice its bytes and a few.
        let of_elements = value_bytes.saturating_mul(key_bytes.saturating_add(OTHER_BYTES + 8));
        let of_index = of_elements.saturating_add(key_bytes + MAX_FORM_BYTES + OTHER_BYTES);
        of_index.saturating_mul(self.indexes.len())
    }

    fn size_bytes(&self, key: &[u8], value: &[u8], most: usize) -> usize {
        let mut bytes = 0;
        self.derive(key, value, &mut |derived| {
            bytes += derived.size_bytes();
            bytes <= most
        });
        bytes
    }
}
