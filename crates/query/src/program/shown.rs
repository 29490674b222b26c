//! The rows that a refused program shows: those that its conditions have read.
//!
//! Always true: they are a function of the tablet's state and of the program. Only live cells count and are shown, as
//! other stored cells depend on what each replica has compacted; for the same reason nothing is searched for. The
//! static row and the row of the condition that does not hold are shown whole; all others, with the columns repeated
//! for each, take at most [`MAX_SHOWN_BYTES`]. Left out: the first row of a partition, for conditions on static columns
//! alone, which the node that answers the client reads.

use super::definition::{RowCondition, Seen, SeenRow};
use super::stored::{Found, Stored, damaged};
use diorite_base::limits::MAX_SHOWN_BYTES;
use diorite_base::mutation::EvaluationFailed;
use diorite_model::Malformed;
use diorite_model::key;
use diorite_model::row::{LiveContent, Marker, NOTHING_DELETED, RowWriter};

/// The rows of `conditions`, of which `refused_by` does not hold.
pub(super) fn seen(
    stored: &Stored<'_>,
    conditions: &[RowCondition],
    refused_by: &RowCondition,
) -> Result<Seen, EvaluationFailed> {
    let partition = &refused_by.partition;
    let mut seen = Seen { now_s: stored.now_s, partition: partition.clone(), ..Seen::default() };
    let mut static_key = Vec::new();
    key::push_static(&mut static_key);
    let shown = |key: &[u8], found: &Found| {
        let value = live_copy(stored, found).map_err(damaged)?;
        Ok::<_, EvaluationFailed>(SeenRow { key: key.to_vec(), deleted_us: NOTHING_DELETED, value })
    };
    seen.static_row = stored.static_row(partition)?.map(|found| shown(&static_key, &found)).transpose()?;
    // These columns are repeated for each row.
    let repeated_bytes = partition.len() + seen.static_row.as_ref().map_or(0, |row| row.value.len());
    if !refused_by.row.is_empty()
        && let Some(found) = stored.find(partition, &refused_by.row)?
    {
        seen.rows.push(shown(&refused_by.row, &found)?);
    }
    let mut others: Vec<&Vec<u8>> = conditions.iter().map(|condition| &condition.row).collect();
    others.sort_unstable();
    others.dedup();
    let mut shown_bytes = 0;
    for row in others.into_iter().filter(|row| !row.is_empty() && **row != refused_by.row) {
        let Some(found) = stored.find(partition, row)? else { continue };
        let other = shown(row, &found)?;
        shown_bytes += repeated_bytes + other.key.len() + other.value.len();
        if shown_bytes > MAX_SHOWN_BYTES {
            seen.is_cut = true;
            break;
        }
        seen.rows.push(other);
    }
    seen.rows.sort_by(|one, other| one.key.cmp(&other.key));
    Ok(seen)
}

/// The live cells of a row, packed: equal bytes, whatever else is stored of it.
fn live_copy(stored: &Stored<'_>, found: &Found) -> Result<Vec<u8>, Malformed> {
    let live = found.live()?;
    let mut packed = Vec::new();
    let mut writer = RowWriter::new(&mut packed, 0);
    if live.has_marker() {
        writer.marker(Marker { timestamp_us: 0, expiry: None });
    }
    for cell in live.cells() {
        let cell = cell?;
        if stored.is_dropped(cell.column) {
            continue;
        }
        match cell.content {
            LiveContent::Value(value) => writer.cell(cell.column, cell.timestamp_us, None, value),
            LiveContent::Counter(sum) => writer.counter(cell.column, cell.timestamp_us, sum),
            LiveContent::Complex(complex) => {
                writer.begin_complex(cell.column, None);
                for element in complex.elements() {
                    let element = element?;
                    writer.element(element.path, element.timestamp_us, None, element.value);
                }
                writer.end_complex();
            }
        }
    }
    Ok(packed)
}
