//! Digests of live rows: whether rows are as they were when a program was planned.
//!
//! Always true: rows with the same digest have the same live values in the columns that count, with the same timestamps and expiries; how they are
//! stored, and what of them is deleted or has expired, makes no difference. So all replicas come to the same. Left out:
//! reading the rows.

use diorite_model::Malformed;
use diorite_model::row::{Expiry, LiveCell, LiveContent, LiveRow};
use diorite_model::schema::ColumnId;
use ring::digest::{Context, SHA256};

/// The digest of rows of a range, or of one.
pub type Digest = [u8; 32];

/// Digests rows, in the order of their keys.
pub struct RowsDigest<'c> {
    context: Context,
    /// The columns that count, ascending; `None`: the whole row.
    columns: Option<&'c [ColumnId]>,
    rows: u64,
}

impl<'c> RowsDigest<'c> {
    /// Of no rows. `columns`: those that count, ascending; `None`: the whole row, and whether it exists.
    pub fn new(columns: Option<&'c [ColumnId]>) -> Self {
        Self { context: Context::new(&SHA256), columns, rows: 0 }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.context.update(bytes);
    }

    fn number(&mut self, number: u64) {
        self.context.update(&number.to_le_bytes());
    }

    fn written(&mut self, timestamp_us: i64, expiry: Option<Expiry>) {
        self.number(timestamp_us as u64);
        // Nothing expires at the beginning of time.
        self.number(expiry.map_or(0, |expiry| (u64::from(expiry.at_s) << 32) | u64::from(expiry.ttl_s)));
    }

    /// Adds a row, unless it has nothing that counts. `is_dropped`: whether the table dropped a column.
    ///
    /// # Errors
    /// If the row is malformed.
    pub fn add(
        &mut self,
        key: &[u8],
        row: &LiveRow<'_>,
        is_dropped: impl Fn(ColumnId) -> bool,
    ) -> Result<(), Malformed> {
        let mut has_begun = false;
        if let Some(marker) = row.marker().filter(|_| self.columns.is_none()) {
            has_begun = true;
            self.bytes(key);
            self.context.update(&[1]);
            self.written(marker.timestamp_us, marker.expiry);
        }
        for cell in row.cells() {
            let cell = cell?;
            let counts = self.columns.is_none_or(|columns| columns.binary_search(&cell.column).is_ok());
            if !counts || is_dropped(cell.column) {
                continue;
            }
            if !std::mem::replace(&mut has_begun, true) {
                self.bytes(key);
            }
            self.add_cell(&cell)?;
        }
        if has_begun {
            self.rows += 1;
            self.context.update(&[0]);
        }
        Ok(())
    }

    fn add_cell(&mut self, cell: &LiveCell<'_>) -> Result<(), Malformed> {
        self.context.update(&[2]);
        self.number(u64::from(cell.column));
        match cell.content {
            LiveContent::Value(value) => {
                self.context.update(&[1]);
                self.written(cell.timestamp_us, cell.expiry);
                self.bytes(value);
            }
            LiveContent::Counter(sum) => {
                self.context.update(&[2]);
                self.number(sum as u64);
            }
            LiveContent::Complex(complex) => {
                self.context.update(&[3]);
                for element in complex.elements() {
                    let element = element?;
                    self.context.update(&[1]);
                    self.bytes(element.path);
                    self.written(element.timestamp_us, element.expiry);
                    self.bytes(element.value);
                }
                self.context.update(&[0]);
            }
        }
        Ok(())
    }

    /// How many rows had something that counts.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The digest of all rows that were added.
    pub fn finish(self) -> Digest {
        let mut digest = Digest::default();
        digest.copy_from_slice(self.context.finish().as_ref());
        digest
    }
}
