//! The writes so far of a program whose parts follow one another, over the rows of its tablet.
//!
//! Always true: of each row there is one value, what its writes make together; what the overlay counts depends on the
//! program and on live values alone, so that all replicas stop at the same part of a program that is too much work.
//! Left out: reading the rows below ([`super::stored`]).

use super::definition::Impossible;
use diorite_base::limits::MAX_REREAD_BYTES;
use diorite_model::row::follow;
use std::collections::BTreeMap;

/// What reading a row again counts at least.
pub(super) const ROW_READ_BYTES: usize = 4 << 10;
/// What reading the deletions of a partition again counts at least.
pub(super) const HEADER_READ_BYTES: usize = 256 << 10;

/// See the top of this module.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The headers that deletions have added to each partition.
    headers: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    handled_bytes: usize,
}

impl Overlay {
    /// Whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.headers.is_empty()
    }

    /// What was written of a row.
    pub fn row(&self, key: &[u8]) -> Option<&[u8]> {
        self.rows.get(key).map(Vec::as_slice)
    }

    /// The deletions of a partition, and of ranges of its rows.
    pub fn headers(&self, partition: &[u8]) -> &[Vec<u8>] {
        self.headers.get(partition).map(Vec::as_slice).unwrap_or_default()
    }

    /// All rows, in the order of their keys.
    pub fn into_rows(self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.rows
    }

    /// Counts work, and refuses more of it than a program may be.
    pub fn count(&mut self, bytes: usize) {
        self.handled_bytes = self.handled_bytes.saturating_add(bytes);
    }

    /// Whether the program is too much work.
    pub fn check(&self) -> Result<(), Impossible> {
        if self.handled_bytes <= MAX_REREAD_BYTES {
            return Ok(());
        }
        Err(Impossible(format!(
            "the statements of one write read and change the same rows again and again: \
             more than {MAX_REREAD_BYTES} bytes (REREAD_BYTES)"
        )))
    }

    /// Writes to a row.
    pub fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), Impossible> {
        let mut together = Vec::new();
        let older = self.rows.get(key).map(Vec::as_slice);
        follow(older, value, &mut together)
            .map_err(|_| Impossible("a row of the write cannot be decoded".to_owned()))?;
        let bytes = value.len() + older.map_or(0, <[u8]>::len);
        self.count(bytes);
        self.rows.insert(key.to_vec(), together);
        Ok(())
    }

    /// Deletes the rows from `start` to `end` of a partition; `header` says so for those that are stored.
    pub fn delete(&mut self, partition: &[u8], (start, end): (&[u8], &[u8]), header: Vec<u8>) {
        if start < end {
            let gone: Vec<Vec<u8>> =
                self.rows.range(start.to_vec()..end.to_vec()).map(|(key, _)| key.clone()).collect();
            gone.iter().for_each(|key| drop(self.rows.remove(key)));
        }
        self.headers.entry(partition.to_vec()).or_default().push(header);
    }
}
