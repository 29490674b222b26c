//! What a reader sees of a row at one second: live cells only.
//!
//! Always true: nothing is allocated before [`LiveComplex::assemble`]; a cell is live if it is newer than every deletion over it and has
//! not expired. A row exists while it has a live marker (an INSERT's, even if every column is null) or a live cell (an UPDATE's).

use super::reader::{Cell, Cells, Complex, Content, Elements};
use super::{Expiry, Marker, NOTHING_DELETED, RowReader};
use crate::key::read_path;
use crate::schema::ColumnId;
use crate::types::CqlType;
use crate::value::collection::{patch, patch_length, push_element, reserve};
use diorite_base::bytes::Malformed;

/// The view that a reader has of a packed row at one second: expired, deleted and shadowed data is skipped.
#[derive(Debug, Clone, Copy)]
pub struct LiveRow<'a> {
    reader: RowReader<'a>,
    sight: Sight,
}

/// The second of reading, and the latest deletion over the row.
#[derive(Debug, Clone, Copy)]
struct Sight {
    now_s: u32,
    shadow_us: i64,
}

impl Sight {
    #[inline]
    fn sees(self, timestamp_us: i64, expiry: Option<Expiry>) -> bool {
        timestamp_us > self.shadow_us && expiry.is_none_or(|expiry| expiry.is_live(self.now_s))
    }

    #[inline]
    fn live<'a>(self, cell: Cell<'a>) -> Result<Option<LiveCell<'a>>, Malformed> {
        let (column, timestamp_us) = (cell.column, cell.timestamp_us);
        Ok(match cell.content {
            Content::Value(value, expiry) if self.sees(timestamp_us, expiry) => {
                Some(LiveCell { column, timestamp_us, expiry, content: LiveContent::Value(value) })
            }
            Content::Counter(sum, _) if self.sees(timestamp_us, None) => {
                Some(LiveCell { column, timestamp_us, expiry: None, content: LiveContent::Counter(sum) })
            }
            Content::Complex(complex) => LiveComplex::new(complex, self)?.map(|(live, timestamp_us)| LiveCell {
                column,
                timestamp_us,
                expiry: None,
                content: LiveContent::Complex(live),
            }),
            Content::Value(..) | Content::Counter(..) | Content::Tombstone(_) | Content::Expired(_) => None,
        })
    }
}

impl<'a> LiveRow<'a> {
    /// `deleted_us`: the timestamp of the partition or range deletion over this row, or [`NOTHING_DELETED`].
    #[inline]
    pub fn new(value: &'a [u8], now_s: u32, deleted_us: i64) -> Result<Self, Malformed> {
        let reader = RowReader::new(value)?;
        let deletion_us = reader.deletion().map_or(NOTHING_DELETED, |deletion| deletion.timestamp_us);
        Ok(Self { reader, sight: Sight { now_s, shadow_us: deletion_us.max(deleted_us) } })
    }

    /// Whether the row has a live marker.
    #[inline]
    pub fn has_marker(&self) -> bool {
        self.marker().is_some()
    }

    /// The marker, if it is live.
    #[inline]
    pub fn marker(&self) -> Option<Marker> {
        self.reader.marker().filter(|marker| self.sight.sees(marker.timestamp_us, marker.expiry))
    }

    /// Whether the row exists: it has a live marker or a live cell.
    #[inline]
    pub fn exists(&self) -> Result<bool, Malformed> {
        if self.has_marker() {
            return Ok(true);
        }
        self.cells().next().transpose().map(|cell| cell.is_some())
    }

    /// The live cells in ascending column id.
    #[inline]
    pub fn cells(&self) -> LiveCells<'a> {
        LiveCells { cells: self.reader.cells(), sight: self.sight }
    }

    /// The live cell of one column. Cells of earlier columns are skipped without being judged.
    pub fn cell(&self, column: ColumnId) -> Result<Option<LiveCell<'a>>, Malformed> {
        for cell in self.reader.cells() {
            let cell = cell?;
            if cell.column >= column {
                return if cell.column == column { self.sight.live(cell) } else { Ok(None) };
            }
        }
        Ok(None)
    }
}

/// Iterator over live cells; ends after the first malformed one, which it returns.
#[derive(Debug, Clone)]
pub struct LiveCells<'a> {
    cells: Cells<'a>,
    sight: Sight,
}

impl<'a> Iterator for LiveCells<'a> {
    type Item = Result<LiveCell<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let cell = self.cells.next()?.and_then(|cell| self.sight.live(cell));
            if let Some(found) = cell.transpose() {
                return Some(found);
            }
        }
    }
}

/// A live cell.
#[derive(Debug, Clone, Copy)]
pub struct LiveCell<'a> {
    /// The column.
    pub column: ColumnId,
    /// `writetime`; of a multi-cell column the newest element's.
    pub timestamp_us: i64,
    /// For `ttl`; `None` for multi-cell columns, whose elements have their own.
    pub expiry: Option<Expiry>,
    /// The content.
    pub content: LiveContent<'a>,
}

/// The content of a live cell.
#[derive(Debug, Clone, Copy)]
pub enum LiveContent<'a> {
    /// Wire bytes
    Value(&'a [u8]),
    /// A counter's sum
    Counter(i64),
    /// Elements; at least one is live
    Complex(LiveComplex<'a>),
}

/// A multi-cell column's live elements.
#[derive(Debug, Clone, Copy)]
pub struct LiveComplex<'a> {
    complex: Complex<'a>,
    sight: Sight,
}

impl<'a> LiveComplex<'a> {
    /// With the newest timestamp, if any element is live.
    fn new(complex: Complex<'a>, outer: Sight) -> Result<Option<(Self, i64)>, Malformed> {
        let deletion_us = complex.deletion.map_or(NOTHING_DELETED, |deletion| deletion.timestamp_us);
        let live = Self { complex, sight: Sight { shadow_us: outer.shadow_us.max(deletion_us), ..outer } };
        let mut newest_us = None;
        for element in live.elements() {
            newest_us = newest_us.max(Some(element?.timestamp_us));
        }
        Ok(newest_us.map(|newest_us| (live, newest_us)))
    }

    /// The live elements in path order.
    pub fn elements(&self) -> LiveElements<'a> {
        LiveElements { elements: self.complex.elements(), sight: self.sight }
    }

    /// Appends the wire value of the whole column, which is of type `data_type`.
    pub fn assemble(&self, data_type: &CqlType, out: &mut Vec<u8>) -> Result<(), Malformed> {
        if let CqlType::UserDefined(user, _) = data_type {
            return self.assemble_fields(user.fields.len(), out);
        }
        let count_at = reserve(out);
        let mut count = 0;
        for element in self.elements() {
            let element = element?;
            count += 1;
            match data_type {
                CqlType::List(..) => push_element(Some(element.value), out),
                CqlType::Set(path_type, _) => push_path(path_type, element.path, out)?,
                CqlType::Map(path_type, _, _) => {
                    push_path(path_type, element.path, out)?;
                    push_element(Some(element.value), out);
                }
                _ => return Err(Malformed),
            }
        }
        patch(out, count_at, count);
        Ok(())
    }

    /// Fields without a live element are null.
    fn assemble_fields(&self, count: usize, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let mut written = 0;
        for element in self.elements() {
            let element = element?;
            let field = usize::from(u16::from_be_bytes(element.path.try_into().map_err(|_| Malformed)?));
            if field >= count {
                break;
            }
            (written..field).for_each(|_| push_element(None, out));
            push_element(Some(element.value), out);
            written = field + 1;
        }
        (written..count).for_each(|_| push_element(None, out));
        Ok(())
    }
}

/// Appends the set element or map key that a path encodes, with its length.
fn push_path(path_type: &CqlType, path: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let length_at = reserve(out);
    read_path(path_type, path, out)?;
    patch_length(out, length_at);
    Ok(())
}

/// Iterator over live elements; ends after the first malformed one, which it returns.
#[derive(Debug, Clone)]
pub struct LiveElements<'a> {
    elements: Elements<'a>,
    sight: Sight,
}

impl<'a> Iterator for LiveElements<'a> {
    type Item = Result<LiveElement<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let element = match self.elements.next()? {
                Ok(element) => element,
                Err(malformed) => return Some(Err(malformed)),
            };
            if let Content::Value(value, expiry) = element.content
                && self.sight.sees(element.timestamp_us, expiry)
            {
                let (path, timestamp_us) = (element.path, element.timestamp_us);
                return Some(Ok(LiveElement { path, timestamp_us, expiry, value }));
            }
        }
    }
}

/// A live element of a multi-cell column.
#[derive(Debug, Clone, Copy)]
pub struct LiveElement<'a> {
    /// Its address.
    pub path: &'a [u8],
    /// `writetime`
    pub timestamp_us: i64,
    /// For `ttl`
    pub expiry: Option<Expiry>,
    /// Wire bytes; empty for sets, whose path is the value.
    pub value: &'a [u8],
}

impl LiveElement<'_> {
    /// Appends the wire bytes of the set element or map key that its path stands for.
    pub fn push_path_value(&self, path_type: &CqlType, out: &mut Vec<u8>) -> Result<(), Malformed> {
        read_path(path_type, self.path, out)
    }
}
