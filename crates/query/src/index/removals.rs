//! The steps that remove stale entries.
//!
//! Always true: a step reads few bytes of rows, or one row, and is far smaller than a write may be. Left out: who gathers
//! stale entries (the leader of a tablet, from its readers), and whether they are stale (the step decides that).

use super::step::IndexStep;
use diorite_model::index::EntryKey;

/// The most entries of a step.
const MOST_ENTRIES: usize = 256;
/// After so many bytes of their keys a step is full.
const KEYS_BYTES: usize = 1 << 20;
/// After so many bytes of rows that it reads a step is full.
const ROWS_BYTES: usize = 1 << 20;

/// An index, and the key of a row.
type Place = (u64, Vec<u8>);

/// The steps that remove entries, if they are stale. `row_bytes` returns the size of a row.
///
/// # Errors
/// Those of `row_bytes`.
pub fn removals<E>(
    entries: Vec<Vec<u8>>,
    mut row_bytes: impl FnMut(&[u8]) -> Result<usize, E>,
) -> Result<Vec<IndexStep>, E> {
    let place = |key: &[u8]| {
        let row = EntryKey::read(key).ok().map(|entry| entry.row.to_vec());
        Some((EntryKey::index(key)?, row?))
    };
    let placed = entries.into_iter().filter_map(|key| place(&key).map(|place| (place, key)));
    let mut placed: Vec<(Place, Vec<u8>)> = placed.collect();
    placed.sort_unstable();
    let mut steps: Vec<IndexStep> = Vec::new();
    let (mut keys_bytes, mut rows_bytes, mut row_of) = (0, 0, (None, 0));
    for (place, key) in placed {
        let is_same = row_of.0.as_ref() == Some(&place);
        if !is_same {
            row_of.1 = row_bytes(&place.1)?;
        }
        let more_bytes = if is_same { 0 } else { row_of.1 };
        match steps.last_mut() {
            Some(IndexStep::Remove { index, entries })
                if *index == place.0
                    && entries.len() < MOST_ENTRIES
                    && keys_bytes < KEYS_BYTES
                    && (is_same || rows_bytes + more_bytes <= ROWS_BYTES) =>
            {
                keys_bytes += key.len();
                rows_bytes += more_bytes;
                entries.push(key);
            }
            _ => {
                (keys_bytes, rows_bytes) = (key.len(), row_of.1);
                steps.push(IndexStep::Remove { index: place.0, entries: vec![key] });
            }
        }
        row_of.0 = Some(place);
    }
    Ok(steps)
}
