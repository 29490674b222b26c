//! Compaction of a whole row: expired values keep only their place; deletions past the horizon and everything shadowed
//! are removed.
//!
//! Always true: nothing changes for a reader at the horizon's `now_s` or later, whatever is written to the row
//! afterwards. The place of an expired value still wins over whatever the value won over, until the place is past the
//! horizon; writes with older timestamps carry the horizon from then on ([`super::bounded`]). Compacting at one horizon
//! and then at a later one gives the same as compacting at the later one. Nothing is allocated for a row that stays as
//! it is; malformed rows stay as they are.

use super::merging::{write_element, write_simple};
use super::reader::{Complex, Content, Element};
use super::{Deletion, Expiry, NOTHING_DELETED, RowReader, RowWriter, horizon as horizon_of};
use crate::format::Compaction;
use crate::schema::ColumnId;
use diorite_base::Horizon;
use diorite_base::bytes::Malformed;

/// See [`crate::entry::compact`].
pub fn compact(value: &[u8], horizon: Horizon) -> Compaction {
    let Ok(reader) = RowReader::new(value) else { return Compaction::Keep };
    let deletion_us = reader.deletion().map_or(NOTHING_DELETED, |deletion| deletion.timestamp_us);
    let pass = Pass { horizon, shadow_us: deletion_us };
    match pass.has_work(&reader) {
        Ok(true) => {}
        Ok(false) | Err(Malformed) => return Compaction::Keep,
    }
    let mut out = Vec::with_capacity(value.len());
    match pass.rewrite(&reader, horizon_of(value), &mut out) {
        Ok(true) => Compaction::Replace(out),
        Ok(false) => Compaction::Remove,
        Err(Malformed) => Compaction::Keep,
    }
}

/// A row that means the same as one of which a compaction keeps nothing: a deletion of what is as old as time, which is
/// past every horizon but the first.
pub(crate) fn without_content() -> Vec<u8> {
    let mut out = Vec::new();
    RowWriter::new(&mut out, 0).deletion(Deletion { timestamp_us: 0, local_s: 0 });
    out
}

#[derive(Clone, Copy)]
struct Pass {
    horizon: Horizon,
    /// Everything with this timestamp or an older one is deleted.
    shadow_us: i64,
}

/// What becomes of a cell or element.
enum Fate {
    Keep,
    Drop,
    /// Expired: only its place stays.
    Empty(Expiry),
}

impl Pass {
    fn purges(&self, deletion: Deletion) -> bool {
        self.horizon.is_past_in_row(deletion.timestamp_us, deletion.local_s)
    }

    fn fate(&self, timestamp_us: i64, content: Content<'_>) -> Fate {
        if timestamp_us <= self.shadow_us {
            return Fate::Drop;
        }
        match content {
            Content::Value(_, Some(expiry)) | Content::Expired(expiry) if self.is_past_expiry(timestamp_us, expiry) => {
                Fate::Drop
            }
            Content::Value(_, Some(expiry)) if !expiry.is_live(self.horizon.now_s) => Fate::Empty(expiry),
            Content::Tombstone(local_s) if self.horizon.is_past_in_row(timestamp_us, local_s) => Fate::Drop,
            _ => Fate::Keep,
        }
    }

    /// Whether a value has expired and may be removed with its place: it was written before the horizon.
    fn is_past_expiry(&self, timestamp_us: i64, expiry: Expiry) -> bool {
        let written_s = expiry.at_s.saturating_sub(expiry.ttl_s);
        !expiry.is_live(self.horizon.now_s) && self.horizon.is_past_in_row(timestamp_us, written_s)
    }

    /// The pass over the elements of one multi-cell column.
    fn within(&self, complex: &Complex<'_>) -> Self {
        let deletion_us = complex.deletion.map_or(NOTHING_DELETED, |deletion| deletion.timestamp_us);
        Self { shadow_us: self.shadow_us.max(deletion_us), ..*self }
    }

    fn keeps_marker(&self, reader: &RowReader<'_>) -> bool {
        reader.marker().is_some_and(|marker| {
            marker.timestamp_us > self.shadow_us
                && marker.expiry.is_none_or(|expiry| !self.is_past_expiry(marker.timestamp_us, expiry))
        })
    }

    fn keeps_deletion(&self, deletion: Option<Deletion>, shadow_us: i64) -> Option<Deletion> {
        deletion.filter(|deletion| !self.purges(*deletion) && deletion.timestamp_us > shadow_us)
    }

    fn has_work(&self, reader: &RowReader<'_>) -> Result<bool, Malformed> {
        if reader.marker().is_some() != self.keeps_marker(reader)
            || reader.deletion() != self.keeps_deletion(reader.deletion(), NOTHING_DELETED)
        {
            return Ok(true);
        }
        let mut cells = 0;
        for cell in reader.cells() {
            let cell = cell?;
            cells += 1;
            let work = match cell.content {
                Content::Complex(complex) => self.has_complex_work(&complex)?,
                content => !matches!(self.fate(cell.timestamp_us, content), Fate::Keep),
            };
            if work {
                return Ok(true);
            }
        }
        // A row that holds nothing is removed.
        Ok(cells == 0 && reader.marker().is_none() && reader.deletion().is_none())
    }

    fn has_complex_work(&self, complex: &Complex<'_>) -> Result<bool, Malformed> {
        if complex.deletion != self.keeps_deletion(complex.deletion, self.shadow_us) {
            return Ok(true);
        }
        let inner = self.within(complex);
        for element in complex.elements() {
            let element = element?;
            if !matches!(inner.fate(element.timestamp_us, element.content), Fate::Keep) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether anything is left.
    fn rewrite(&self, reader: &RowReader<'_>, horizon: Option<Horizon>, out: &mut Vec<u8>) -> Result<bool, Malformed> {
        let mut writer = RowWriter::bounded(out, reader.base_us(), horizon);
        if let Some(marker) = reader.marker().filter(|_| self.keeps_marker(reader)) {
            writer.marker(marker);
        }
        if let Some(deletion) = self.keeps_deletion(reader.deletion(), NOTHING_DELETED) {
            writer.deletion(deletion);
        }
        for cell in reader.cells() {
            let cell = cell?;
            if let Content::Complex(complex) = cell.content {
                self.rewrite_complex(cell.column, &complex, &mut writer)?;
                continue;
            }
            match self.fate(cell.timestamp_us, cell.content) {
                Fate::Keep => write_simple(&mut writer, cell, true),
                Fate::Drop => {}
                Fate::Empty(expiry) => writer.expired(cell.column, cell.timestamp_us, expiry),
            }
        }
        Ok(!writer.is_empty())
    }

    fn rewrite_complex(
        &self,
        column: ColumnId,
        complex: &Complex<'_>,
        writer: &mut RowWriter<'_>,
    ) -> Result<(), Malformed> {
        writer.begin_complex(column, self.keeps_deletion(complex.deletion, self.shadow_us));
        let inner = self.within(complex);
        for element in complex.elements() {
            let element @ Element { path, timestamp_us, content } = element?;
            match inner.fate(timestamp_us, content) {
                Fate::Keep => write_element(writer, element),
                Fate::Drop => {}
                Fate::Empty(expiry) => writer.element_expired(path, timestamp_us, expiry),
            }
        }
        writer.end_complex();
        Ok(())
    }
}
