//! Reads by index, of a tablet replica at one moment.
//!
//! Always true: entries and rows are of one snapshot, and the read's deadline is looked at for every one of them. What
//! turns out to be stale is noted at the replica, for the node to have it removed. Left out: what is read
//! ([`diorite_query::index`]), and the permit of the read ([`super::read`]).

use super::index_wire::IndexRef;
use super::until::Until;
use diorite_base::write::KvError;
use diorite_query::index::{self, Moment, Unfinished};
use diorite_query::kv::{IndexScan, ScanChunk};
use diorite_replica::Visit;
use diorite_storage::{PinnedValue, ScanRange};

/// The most bytes and entries of one answer, whatever the request asks for.
const MAX_CHUNK_BYTES: usize = 4 << 20;
const MAX_CHUNK_ENTRIES: usize = 1 << 16;
/// About as many entries as are scanned without leaving their blocks in the cache.
const EXPECTED_ENTRIES: usize = 100;

struct Snapshot<'v> {
    visit: &'v Visit<'v>,
    until: &'v Until,
}

impl Moment for Snapshot<'_> {
    type Error = KvError;
    type Value = PinnedValue;

    fn flags(&self) -> u64 {
        self.visit.flags()
    }

    fn get(&self, key: &[u8]) -> Result<Option<PinnedValue>, KvError> {
        self.until.step()?;
        self.visit.get(key)
    }

    fn scan(&self, start: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<bool, KvError> {
        let range = ScanRange { start, end, reverse: false, expected_entries: EXPECTED_ENTRIES };
        let mut may_go_on = Ok(());
        let is_whole = self.visit.scan(&range, &mut |key, value| {
            may_go_on = self.until.step();
            may_go_on.is_ok() && visit(key, value)
        })?;
        may_go_on?;
        Ok(is_whole)
    }

    fn hold(&self, bytes: usize) -> Result<(), KvError> {
        self.until.hold(bytes)
    }
}

/// Reads the rows that an index names.
pub(super) fn by_index(visit: &Visit<'_>, scan: &IndexRef<'_>, until: &Until) -> Result<ScanChunk, KvError> {
    let request = scan.to_scan();
    let (max_entries, max_bytes) = (request.max_entries.min(MAX_CHUNK_ENTRIES), request.max_bytes.min(MAX_CHUNK_BYTES));
    let request = IndexScan { max_entries, max_bytes, ..request };
    match index::read(&Snapshot { visit, until }, &request) {
        Ok(found) => {
            visit.note_stale(found.stale, until.account());
            Ok(found.chunk)
        }
        Err(Unfinished::Failed(error)) => Err(error),
        Err(Unfinished::BeingBuilt) => Err(KvError::TooLarge(
            "an index that this query needs is still being built: try again later, or use ALLOW FILTERING".to_owned(),
        )),
        Err(Unfinished::Unreadable) => Err(KvError::Storage("the index of a read cannot be decoded".to_owned())),
    }
}
