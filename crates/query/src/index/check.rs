//! Compares an index with the rows of a tablet, in both directions: first each value with its entry, then each entry with
//! its row.
//!
//! Always true: a step reads one state of the tablet and about so much as it is given; the steps from [`Place::first`] on
//! to the end look at each row and at each entry that were there all the time. A *missing* entry is an error: readers by
//! the index do not find that row. A *stale* entry is none: readers look at the row. Values that expire soon are not
//! looked for: compactions have a time of their own, and remove them and their entries one by one. Left out: partition
//! deletions (rows that one has removed count until a compaction removes them), and which tablets there are.

use super::place::Place;
use super::specification::Specification;
use super::stale::wrong_forms;
use diorite_base::mutation::{EvaluationFailed, TabletView};
use diorite_base::row_index::AFTER_ALL_ROWS;
use diorite_model::index::{Derived, EntryKey, entries_end, entry_prefix, lasts};
use diorite_model::row::{Expiry, RowReader};

/// So many entries are read before their rows are looked up.
const ENTRIES_AT_A_TIME: usize = 256;
/// After so many bytes of their keys their rows are looked up.
const KEYS_BYTES: usize = 256 << 10;

/// How much a step does.
#[derive(Debug, Clone, Copy)]
pub struct StepSize {
    /// The most rows, values and entries; a step goes on for a few entries more.
    pub entries: usize,
    /// After so many bytes a step ends; it reads one row at least.
    pub bytes: usize,
    /// The most differences of each kind that are named.
    pub named: usize,
}

/// How an index and its table differ at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// A row has a value without its entry, or the entry expires before the value does.
    Missing,
    /// What is stored under the key of an entry is none.
    Unreadable,
    /// The row that an entry names does not have the value.
    Stale,
    /// A view has a row that does not follow from the row that this one names.
    Surplus,
}

/// A difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// What it is.
    pub difference: Difference,
    /// The key of the row; of an entry that cannot be read, its own.
    pub row: Vec<u8>,
    /// The value, as the index has it.
    pub form: Vec<u8>,
}

/// What a step has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckedPart {
    /// Rows and headers of partitions that were read.
    pub rows: u64,
    /// Live values of them that have to have entries.
    pub values: u64,
    /// Those without their entries.
    pub missing: u64,
    /// Entries that were read.
    pub entries: u64,
    /// Those whose rows have the value.
    pub right: u64,
    /// Those whose rows do not have it.
    pub stale: u64,
    /// Rows of a view that do not follow from rows of its table.
    pub surplus: u64,
    /// Those of rows that another tablet has, since a split.
    pub of_others: u64,
    /// Those that cannot be read.
    pub unreadable: u64,
    /// The bytes of all that was read.
    pub bytes: usize,
    /// Some of the differences.
    pub named: Vec<Named>,
    /// Where the next step begins; `None`: all is compared.
    pub next: Option<Place>,
}

impl CheckedPart {
    /// Names a difference, unless `most` of its kind are named.
    pub fn name(&mut self, most: usize, difference: Difference, row: &[u8], form: &[u8]) {
        if self.named.iter().filter(|named| named.difference == difference).count() < most {
            self.named.push(Named { difference, row: row.to_vec(), form: form.to_vec() });
        }
    }

    /// What was compared before, beside `next`, with this.
    #[must_use]
    pub fn after(mut self, before: Self, most_named: usize) -> Self {
        self.rows += before.rows;
        self.values += before.values;
        self.missing += before.missing;
        self.entries += before.entries;
        self.right += before.right;
        self.stale += before.stale;
        self.surplus += before.surplus;
        self.of_others += before.of_others;
        self.unreadable += before.unreadable;
        self.bytes += before.bytes;
        let named = std::mem::replace(&mut self.named, before.named);
        named.iter().for_each(|one| self.name(most_named, one.difference, &one.row, &one.form));
        self
    }
}

/// Why nothing is compared.
#[derive(Debug)]
pub enum Unchecked {
    /// The tablet does not have the whole index yet.
    BeingBuilt,
    /// The tablet cannot be read.
    Failed(EvaluationFailed),
}

impl From<EvaluationFailed> for Unchecked {
    fn from(failed: EvaluationFailed) -> Self {
        Self::Failed(failed)
    }
}

/// A comparison.
#[derive(Clone, Copy)]
pub struct Check<'c> {
    /// The index.
    pub index: u64,
    /// The time up to which values may have been removed as expired, in seconds: not before that of any entry of the
    /// tablet's log.
    pub now_s: u32,
    /// Whether a row is of the tablet, by its key.
    pub is_own: &'c dyn Fn(&[u8]) -> bool,
    /// How much is done.
    pub size: StepSize,
}

/// Compares a part of a tablet, from a place on. All that `view` shows has to be of one moment.
///
/// # Errors
/// See [`Unchecked`].
pub fn check_part(view: &dyn TabletView, comparison: Check<'_>, from: &Place) -> Result<CheckedPart, Unchecked> {
    let stored = Specification::stored(comparison.index, view)?;
    let specification = stored.filter(Specification::is_complete).ok_or(Unchecked::BeingBuilt)?;
    let step = Step { view, comparison, specification: &specification };
    match from {
        Place::Row { key, after } => step.values(key, after.as_deref()),
        Place::Entry { key } => step.entries(key),
        // What is in other tables is compared by reads.
        Place::Outward { .. } | Place::Inward { .. } => Ok(CheckedPart::default()),
    }
}

/// Whether an entry with this value is there as long as a value that follows it.
fn outlasts(entry: &[u8], expiry: Option<Expiry>) -> bool {
    let Some(expiry) = expiry else { return lasts(entry) };
    let marker = RowReader::new(entry).ok().and_then(|row| row.marker());
    marker.is_some_and(|marker| marker.expiry.is_none_or(|entry| entry.at_s >= expiry.at_s))
}

struct Step<'s> {
    view: &'s dyn TabletView,
    comparison: Check<'s>,
    specification: &'s Specification,
}

impl Step<'_> {
    fn is_live(&self, derived: &Derived<'_>) -> bool {
        derived.expiry.is_none_or(|expiry| expiry.is_live(self.comparison.now_s))
    }

    fn is_full(&self, count: u64, found: &CheckedPart) -> bool {
        count >= self.comparison.size.entries as u64 || found.bytes >= self.comparison.size.bytes
    }

    /// Looks up the entries of the values of rows; `after`: the elements of the first row up to this path are done.
    fn values(&self, from: &[u8], after: Option<&[u8]>) -> Result<CheckedPart, Unchecked> {
        let indexes = self.specification.indexes(self.comparison.index);
        let (mut found, mut failed) = (CheckedPart::default(), None);
        self.view.scan(from, &AFTER_ALL_ROWS, &mut |key, value| {
            let done = after.filter(|_| key == from);
            found.rows += u64::from(done.is_none());
            found.bytes += key.len() + value.len();
            let mut last = done.map(<[u8]>::to_vec);
            indexes.derive(key, value, &mut |derived| {
                if !self.is_live(derived) || done.is_some_and(|done| derived.path <= done) {
                    return true;
                }
                // A row that alone is more than a step goes on where the step has ended.
                if found.values > 0 && found.values >= self.comparison.size.entries as u64 {
                    found.rows -= u64::from(last.is_none());
                    found.next = Some(Place::Row { key: key.to_vec(), after: last.take() });
                    return false;
                }
                if let Err(error) = self.value(derived, &mut found) {
                    failed = Some(error);
                    return false;
                }
                last = Some(derived.path.to_vec());
                true
            });
            let goes_on = failed.is_none() && found.next.is_none();
            if goes_on && self.is_full(found.rows.max(found.values), &found) {
                found.next = Some(Place::Row { key: [key, &[0]].concat(), after: None });
                return false;
            }
            goes_on
        })?;
        if let Some(failed) = failed {
            return Err(failed.into());
        }
        let entries = || Place::Entry { key: entry_prefix(self.comparison.index) };
        found.next = found.next.or_else(|| Some(entries()));
        Ok(found)
    }

    fn value(&self, derived: &Derived<'_>, found: &mut CheckedPart) -> Result<(), EvaluationFailed> {
        let key = derived.key();
        let entry = self.view.get(&key)?;
        found.values += 1;
        found.bytes += key.len() + entry.as_ref().map_or(0, Vec::len);
        if !entry.is_some_and(|entry| outlasts(&entry, derived.expiry)) {
            found.missing += 1;
            found.name(self.comparison.size.named, Difference::Missing, derived.entry.row, derived.entry.form);
        }
        Ok(())
    }

    /// Looks up the rows of entries.
    fn entries(&self, from: &[u8]) -> Result<CheckedPart, Unchecked> {
        let (mut found, mut from) = (CheckedPart::default(), from.to_vec());
        let end = entries_end(self.comparison.index);
        loop {
            let (mut keys, mut bytes, mut is_last) = (Vec::new(), 0, true);
            self.view.scan(&from, &end, &mut |key, value| {
                bytes += key.len() + value.len();
                keys.push(key.to_vec());
                is_last = keys.len() < ENTRIES_AT_A_TIME && bytes < KEYS_BYTES;
                is_last
            })?;
            found.bytes += bytes;
            found.entries += keys.len() as u64;
            self.rows_of(&keys, &mut found)?;
            if is_last {
                return Ok(found);
            }
            from = keys.pop().unwrap_or_default();
            from.push(0);
            if self.is_full(found.entries, &found) {
                found.next = Some(Place::Entry { key: from });
                return Ok(found);
            }
        }
    }

    /// Compares entries with their rows, each of which is read once.
    fn rows_of(&self, keys: &[Vec<u8>], found: &mut CheckedPart) -> Result<(), EvaluationFailed> {
        let indexes = self.specification.indexes(self.comparison.index);
        let most = self.comparison.size.named;
        let mut entries = Vec::with_capacity(keys.len());
        for key in keys {
            match EntryKey::read(key) {
                Ok(entry) if (self.comparison.is_own)(entry.row) => entries.push(entry),
                Ok(_) => found.of_others += 1,
                Err(_) => {
                    found.unreadable += 1;
                    found.name(most, Difference::Unreadable, key, &[]);
                }
            }
        }
        entries.sort_unstable_by_key(|entry| (entry.row, entry.partition_len));
        let is_same =
            |one: &EntryKey<'_>, other: &EntryKey<'_>| (one.row, one.partition_len) == (other.row, other.partition_len);
        for of_row in entries.chunk_by(is_same) {
            let Some(EntryKey { row, partition_len, .. }) = of_row.first().copied() else { continue };
            let stored = self.view.get(row)?;
            found.bytes += stored.as_ref().map_or(0, Vec::len);
            let forms: Vec<&[u8]> = of_row.iter().map(|entry| entry.form).collect();
            // What has expired may still be stored, with its entry.
            let counts = |derived: &Derived<'_>| derived.entry.partition_len == partition_len;
            let wrong = wrong_forms(&indexes, (row, stored.as_deref()), forms, &counts);
            found.right += (of_row.len() - wrong.len()) as u64;
            found.stale += wrong.len() as u64;
            wrong.iter().for_each(|form| found.name(most, Difference::Stale, row, form));
        }
        Ok(())
    }
}
