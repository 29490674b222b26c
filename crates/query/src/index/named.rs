//! The rows that the entries of an index name, for one result of a read.
//!
//! Always true: of all rows in the range that entries name, those are found whose keys are the smallest, up to a number;
//! only they are charged. The entries of one value are in the order of their rows, so of one value no more are read than
//! are wanted. Those of several values are not, so all of them are read. Left out: the rows themselves
//! ([`mod@super::read`]).

use super::moment::{MOST_ROWS, Moment, Request, Unfinished};
use crate::kv::several::{self, Span};
use diorite_model::index::{EntryKey, entry_prefix, lasts};
use std::collections::BTreeMap;

/// The least number of rows that are looked up for a result if entries of several values have to be read for it.
const ROWS_OF_SEVERAL: usize = 256;
/// The most bytes of values that are kept to find stale entries.
const FORMS_BYTES: usize = 1 << 20;
/// The fixed cost of a row, and of a value, as bytes.
const FIXED_BYTES: usize = 64;

/// A row that entries name.
pub(super) struct NamedRow {
    /// The length of the partition part of its key.
    pub(super) partition_len: usize,
    /// The forms of the entries; not necessarily all.
    pub(super) forms: Vec<Vec<u8>>,
}

impl NamedRow {
    fn forms_bytes(&self) -> usize {
        self.forms.iter().map(|form| form.len() + FIXED_BYTES).sum()
    }
}

/// The rows that entries name.
pub(super) struct Named {
    /// The first ones.
    pub(super) rows: BTreeMap<Vec<u8>, NamedRow>,
    /// There are more, with greater keys.
    pub(super) has_more: bool,
    /// The most rows that were wanted, and so of entries of the result.
    pub(super) most: usize,
}

/// Gathers the rows that entries name.
struct Naming<'m, M> {
    moment: &'m M,
    named: Named,
    forms_bytes: usize,
    /// The bytes of what is kept, and the most that they have been, which is charged.
    bytes: usize,
    charged_bytes: usize,
}

impl<M: Moment> Naming<'_, M> {
    fn charge(&mut self, bytes: usize) -> Result<(), M::Error> {
        self.bytes += bytes;
        let more = self.bytes.saturating_sub(self.charged_bytes);
        self.charged_bytes += more;
        if more > 0 { self.moment.hold(more) } else { Ok(()) }
    }

    /// `may_be_stale`: it does not expire, so somebody has to remove it if it is stale.
    fn see(&mut self, entry: &EntryKey<'_>, may_be_stale: bool) -> Result<(), M::Error> {
        let last = self.named.rows.last_key_value().filter(|_| self.named.rows.len() >= self.named.most);
        if last.is_some_and(|(last, _)| entry.row > last.as_slice()) {
            self.named.has_more = true;
            return Ok(());
        }
        if !self.named.rows.contains_key(entry.row) {
            if let Some((row, dropped)) = last.is_some().then(|| self.named.rows.pop_last()).flatten() {
                self.named.has_more = true;
                self.forms_bytes -= dropped.forms_bytes();
                self.bytes -= row.len() + FIXED_BYTES + dropped.forms_bytes();
            }
            self.charge(entry.row.len() + FIXED_BYTES)?;
            let row = NamedRow { partition_len: entry.partition_len, forms: Vec::new() };
            self.named.rows.insert(entry.row.to_vec(), row);
        }
        let form_bytes = entry.form.len() + FIXED_BYTES;
        if may_be_stale && self.forms_bytes + form_bytes <= FORMS_BYTES {
            self.charge(form_bytes)?;
            self.forms_bytes += form_bytes;
            if let Some(row) = self.named.rows.get_mut(entry.row) {
                row.forms.push(entry.form.to_vec());
            }
        }
        Ok(())
    }
}

/// The rows that entries name, from `first` on.
pub(super) fn named<M: Moment>(moment: &M, request: Request<'_>, first: &[u8]) -> Result<Named, Unfinished<M::Error>> {
    let spans = several::decode(&request.spans).collect::<Result<Vec<Span>, _>>();
    let spans = spans.map_err(|_| Unfinished::Unreadable)?;
    let is_one_value = matches!(spans.as_slice(), [Span { end: None, .. }]);
    // Of the partition in which the range begins nothing may be left.
    let least = if is_one_value { 2 } else { ROWS_OF_SEVERAL };
    let most = request.max_entries.clamp(least, MOST_ROWS);
    let named = Named { rows: BTreeMap::new(), has_more: false, most };
    let mut naming = Naming { moment, named, forms_bytes: 0, bytes: 0, charged_bytes: 0 };
    let prefix = entry_prefix(request.index);
    for span in &spans {
        let (start, end) = match &span.end {
            None => ([&prefix, &span.start[..], first].concat(), [&prefix, &span.start[..], &request.end].concat()),
            Some(end) => ([&prefix[..], &span.start].concat(), [&prefix[..], end].concat()),
        };
        let mut seen = Ok(());
        moment.scan(&start, &end, &mut |key, value| {
            let Ok(entry) = EntryKey::read(key) else { return true };
            if entry.row >= first && entry.row < request.end.as_slice() {
                seen = naming.see(&entry, lasts(value));
            }
            seen.is_ok() && !(is_one_value && naming.named.has_more)
        })?;
        seen?;
    }
    Ok(naming.named)
}
