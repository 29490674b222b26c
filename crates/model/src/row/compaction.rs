//! What compaction does with a whole row: expired cells become tombstones, tombstones old enough are purged, shadowed data goes.
//!
//! Always true: nothing a reader could see changes, at `now_s` or later. An expired cell becomes a tombstone of the time it was written
//! (as in Cassandra), because it still has to win over older cells that may arrive until the grace period ends. Nothing is allocated
//! for a row that stays as it is; malformed rows stay as they are.

use super::merging::{write_element, write_simple};
use super::reader::{Complex, Content, Element};
use super::{Deletion, NOTHING_DELETED, RowReader, RowWriter};
use crate::entry::Compaction;
use crate::schema::ColumnId;
use diorite_base::bytes::Malformed;

/// See [`crate::entry::compact`].
pub fn compact(value: &[u8], now_s: u32, purge_tombstones_before_s: u32) -> Compaction {
    let Ok(reader) = RowReader::new(value) else { return Compaction::Keep };
    let deletion_us = reader.deletion().map_or(NOTHING_DELETED, |deletion| deletion.timestamp_us);
    let pass = Pass { now_s, purge_before_s: purge_tombstones_before_s, shadow_us: deletion_us };
    match pass.has_work(&reader) {
        Ok(true) => {}
        Ok(false) | Err(Malformed) => return Compaction::Keep,
    }
    let mut out = Vec::with_capacity(value.len());
    match pass.rewrite(&reader, &mut out) {
        Ok(true) => Compaction::Replace(out),
        Ok(false) => Compaction::Remove,
        Err(Malformed) => Compaction::Keep,
    }
}

#[derive(Clone, Copy)]
struct Pass {
    now_s: u32,
    purge_before_s: u32,
    /// What carries this timestamp or less is deleted.
    shadow_us: i64,
}

/// What becomes of a cell or element.
enum Fate {
    Keep,
    Drop,
    /// Expired: goes on as a tombstone of this second.
    Bury(u32),
}

impl Pass {
    fn purges(&self, deletion: Deletion) -> bool {
        deletion.local_s < self.purge_before_s
    }

    fn fate(&self, timestamp_us: i64, content: Content<'_>) -> Fate {
        if timestamp_us <= self.shadow_us {
            return Fate::Drop;
        }
        match content {
            Content::Value(_, Some(expiry)) if !expiry.is_live(self.now_s) => {
                match expiry.at_s.saturating_sub(expiry.ttl_s) {
                    written_s if written_s < self.purge_before_s => Fate::Drop,
                    written_s => Fate::Bury(written_s),
                }
            }
            Content::Tombstone(local_s) if local_s < self.purge_before_s => Fate::Drop,
            _ => Fate::Keep,
        }
    }

    /// The pass over the elements of one multi-cell column.
    fn within(&self, complex: &Complex<'_>) -> Self {
        let deletion_us = complex.deletion.map_or(NOTHING_DELETED, |deletion| deletion.timestamp_us);
        Self { shadow_us: self.shadow_us.max(deletion_us), ..*self }
    }

    fn keeps_marker(&self, reader: &RowReader<'_>) -> bool {
        reader.marker().is_some_and(|marker| {
            marker.timestamp_us > self.shadow_us
                && marker.expiry.is_none_or(|expiry| expiry.is_live(self.now_s) || expiry.at_s >= self.purge_before_s)
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
        // A row that holds nothing at all is removed.
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
    fn rewrite(&self, reader: &RowReader<'_>, out: &mut Vec<u8>) -> Result<bool, Malformed> {
        let mut writer = RowWriter::new(out, reader.base_us());
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
                Fate::Bury(local_s) => {
                    writer.tombstone(cell.column, Deletion { timestamp_us: cell.timestamp_us, local_s });
                }
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
                Fate::Bury(local_s) => writer.element_tombstone(path, Deletion { timestamp_us, local_s }),
            }
        }
        writer.end_complex();
        Ok(())
    }
}
