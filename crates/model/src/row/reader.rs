//! Reads packed rows lazily: everything that is stored, dead or alive.
//!
//! Always true: no allocation; every length is checked; columns and paths that do not ascend are malformed, so that what merges rows may
//! rely on their order.

use super::parts::{Deletion, Expiry, HORIZON_BYTES, Marker, flag, row_flag};
use crate::format::{FORMAT_BOUNDED_ROW, FORMAT_MASK, FORMAT_ROW};
use crate::schema::ColumnId;
use diorite_base::bytes::{Malformed, Reader};

/// Everything stored in a packed row.
#[derive(Debug, Clone, Copy)]
pub struct RowReader<'a> {
    base_us: i64,
    marker: Option<Marker>,
    deletion: Option<Deletion>,
    cells: &'a [u8],
}

impl<'a> RowReader<'a> {
    /// Reads the head of a packed row.
    #[inline]
    pub fn new(value: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(value);
        let flags = reader.u8()?;
        let format = flags & FORMAT_MASK;
        if format != FORMAT_ROW && format != FORMAT_BOUNDED_ROW {
            return Err(Malformed);
        }
        let base_us = reader.i64()?;
        if format == FORMAT_BOUNDED_ROW {
            reader.take(HORIZON_BYTES)?;
        }
        let marker = if flags & row_flag::MARKER != 0 {
            let flags = reader.u8()?;
            if flags & !(flag::OWN_TIMESTAMP | flag::EXPIRES) != 0 {
                return Err(Malformed);
            }
            let timestamp_us = read_timestamp(&mut reader, flags, base_us)?;
            Some(Marker { timestamp_us, expiry: read_expiry(&mut reader, flags)? })
        } else {
            None
        };
        let deletion = if flags & row_flag::DELETION != 0 { Some(read_deletion(&mut reader, base_us)?) } else { None };
        Ok(Self { base_us, marker, deletion, cells: reader.rest() })
    }

    /// The base timestamp.
    pub fn base_us(&self) -> i64 {
        self.base_us
    }

    /// The row marker, live or expired.
    pub fn marker(&self) -> Option<Marker> {
        self.marker
    }

    /// The row deletion.
    pub fn deletion(&self) -> Option<Deletion> {
        self.deletion
    }

    /// The cells in ascending column id.
    #[inline]
    pub fn cells(&self) -> Cells<'a> {
        Cells { reader: Reader::new(self.cells), base_us: self.base_us, next_column: 0 }
    }
}

#[inline]
fn read_timestamp(reader: &mut Reader<'_>, flags: u8, base_us: i64) -> Result<i64, Malformed> {
    if flags & flag::OWN_TIMESTAMP != 0 { reader.i64() } else { Ok(base_us) }
}

#[inline]
fn read_expiry(reader: &mut Reader<'_>, flags: u8) -> Result<Option<Expiry>, Malformed> {
    if flags & flag::EXPIRES == 0 {
        return Ok(None);
    }
    Ok(Some(Expiry { ttl_s: reader.u32()?, at_s: reader.u32()? }))
}

/// Reads what [`super::push_deletion`] wrote.
pub(crate) fn read_deletion(reader: &mut Reader<'_>, base_us: i64) -> Result<Deletion, Malformed> {
    let timestamp_us = match reader.u8()? {
        0 => base_us,
        flag::BEFORE_BASE => base_us.wrapping_sub(1),
        flag::OWN_TIMESTAMP => reader.i64()?,
        _ => return Err(Malformed),
    };
    Ok(Deletion { timestamp_us, local_s: reader.u32()? })
}

/// A stored cell.
#[derive(Debug, Clone, Copy)]
pub struct Cell<'a> {
    /// The column.
    pub column: ColumnId,
    /// Microseconds; of a multi-cell column the row's base, without meaning.
    pub timestamp_us: i64,
    /// Its content.
    pub content: Content<'a>,
    /// Its encoded form.
    pub(super) encoded: &'a [u8],
}

/// The content of a stored cell. Elements hold only values and tombstones.
#[derive(Debug, Clone, Copy)]
pub enum Content<'a> {
    /// Wire bytes, perhaps expiring (or expired).
    Value(&'a [u8], Option<Expiry>),
    /// Deleted, at this second.
    Tombstone(u32),
    /// A value that had expired when compaction rewrote it. It competes with other cells as the value did, and no
    /// reader sees it.
    Expired(Expiry),
    /// A counter's sum, and whether it is absolute: earlier sums are discarded.
    Counter(i64, bool),
    /// A multi-cell column.
    Complex(Complex<'a>),
}

/// Iterator over stored cells; ends after the first malformed one, which it returns.
#[derive(Debug, Clone)]
pub struct Cells<'a> {
    reader: Reader<'a>,
    base_us: i64,
    next_column: u64,
}

impl<'a> Cells<'a> {
    #[inline]
    fn read(&mut self) -> Result<Cell<'a>, Malformed> {
        #[cfg(test)]
        crate::testing::count_step();
        let encoded = self.reader.rest();
        let column = ColumnId::try_from(self.reader.varint()?).map_err(|_| Malformed)?;
        if u64::from(column) < self.next_column {
            return Err(Malformed);
        }
        self.next_column = u64::from(column) + 1;
        let flags = self.reader.u8()?;
        let (timestamp_us, content) = if flags & (flag::COMPLEX | flag::COUNTER) == 0 {
            read_simple(&mut self.reader, flags, self.base_us)?
        } else if flags & !flag::DELETED == flag::COMPLEX {
            (self.base_us, Content::Complex(self.read_complex(flags)?))
        } else if flags & !(flag::DELETED | flag::OWN_TIMESTAMP) == flag::COUNTER {
            let timestamp_us = read_timestamp(&mut self.reader, flags, self.base_us)?;
            (timestamp_us, Content::Counter(self.reader.i64()?, flags & flag::DELETED != 0))
        } else {
            return Err(Malformed);
        };
        let encoded = &encoded[..encoded.len() - self.reader.rest().len()];
        Ok(Cell { column, timestamp_us, content, encoded })
    }

    fn read_complex(&mut self, flags: u8) -> Result<Complex<'a>, Malformed> {
        let deletion =
            if flags & flag::DELETED != 0 { Some(read_deletion(&mut self.reader, self.base_us)?) } else { None };
        let length = self.reader.u32()? as usize;
        Ok(Complex { deletion, elements: self.reader.take(length)?, base_us: self.base_us })
    }
}

/// Reads a value or tombstone after its flags.
#[inline]
fn read_simple<'a>(reader: &mut Reader<'a>, flags: u8, base_us: i64) -> Result<(i64, Content<'a>), Malformed> {
    let timestamp_us = read_timestamp(reader, flags, base_us)?;
    let expiry = read_expiry(reader, flags)?;
    let content = match expiry {
        Some(expiry) if flags & flag::TOMBSTONE != 0 => Content::Expired(expiry),
        None if flags & flag::TOMBSTONE != 0 => Content::Tombstone(reader.u32()?),
        expiry => Content::Value(reader.slice()?, expiry),
    };
    let known = flag::OWN_TIMESTAMP | flag::TOMBSTONE | flag::EXPIRES;
    if flags & !known == 0 { Ok((timestamp_us, content)) } else { Err(Malformed) }
}

impl<'a> Iterator for Cells<'a> {
    type Item = Result<Cell<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let cell = self.read();
        if cell.is_err() {
            self.reader = Reader::new(&[]);
        }
        Some(cell)
    }
}

/// A stored multi-cell column.
#[derive(Debug, Clone, Copy)]
pub struct Complex<'a> {
    /// Deletes elements that are older.
    pub deletion: Option<Deletion>,
    elements: &'a [u8],
    base_us: i64,
}

impl<'a> Complex<'a> {
    /// The stored elements in path order.
    pub fn elements(&self) -> Elements<'a> {
        Elements { reader: Reader::new(self.elements), base_us: self.base_us, previous: None }
    }
}

/// A stored element of a multi-cell column.
#[derive(Debug, Clone, Copy)]
pub struct Element<'a> {
    /// Its address.
    pub path: &'a [u8],
    /// Microseconds
    pub timestamp_us: i64,
    /// A value or a tombstone.
    pub content: Content<'a>,
}

/// Iterator over stored elements; ends after the first malformed one, which it returns.
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    reader: Reader<'a>,
    base_us: i64,
    previous: Option<&'a [u8]>,
}

impl<'a> Elements<'a> {
    fn read(&mut self) -> Result<Element<'a>, Malformed> {
        #[cfg(test)]
        crate::testing::count_step();
        let path = self.reader.slice()?;
        if self.previous.is_some_and(|previous| path <= previous) {
            return Err(Malformed);
        }
        self.previous = Some(path);
        let flags = self.reader.u8()?;
        let (timestamp_us, content) = read_simple(&mut self.reader, flags, self.base_us)?;
        Ok(Element { path, timestamp_us, content })
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let element = self.read();
        if element.is_err() {
            self.reader = Reader::new(&[]);
        }
        Some(element)
    }
}
