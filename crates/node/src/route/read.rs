//! Reads of a tablet replica, in memory or on disk: of the leader's replica, or of a follower's if the request allows
//! that.
//!
//! Always true: header, static row and all keys and ranges of one request are of one moment of one replica, despite
//! concurrent writes; the permit of the read (a lease, or a bound on its age) is checked before and after. A single key
//! or range is of one moment by itself and needs no snapshot; a short read by index needs none if nothing was written
//! meanwhile. Aggregation follows the read and the check of its permit.
//! A read on disk ends when its client no longer waits ([`Until`]), and its copies are charged to the node's account of
//! requests beforehand. Left out: one moment for several requests.

use super::by_index::{Brought, Pinned, by_index, in_memory};
use super::fetch_wire::{FetchRef, RangeRef, RowsRef, SeveralRef};
use super::index_wire::IndexRef;
use super::options::CatalogSource;
use super::pin_wire::PinnedRef;
use super::until::Until;
use super::wire::Parts;
use diorite_base::account::Account;
use diorite_base::write::KvError;
use diorite_query::exec::pushdown::PartialAggregator;
use diorite_query::kv::{Kept, ScanChunk, several};
use diorite_replica::{Committed, IndexNote, Permit, TabletHandle, Visit};
use diorite_storage::{PinnedValue, ScanRange, TabletSnapshot, was_declined};
use std::ops::Deref;
use std::sync::Arc;

/// Scans up to this size are first tried in memory on the task that takes the request: "inline".
const INLINE_SCAN_BYTES: usize = 64 << 10;
/// Rows up to this size are copied inline.
const INLINE_ROW_BYTES: usize = 1 << 20;
/// Rows are aggregated inline if their bytes, multiplied by the steps of the task, are not more than this.
const INLINE_AGGREGATE_BYTES: usize = 256 << 10;
/// About this many bytes of a task count as one step for each byte of the rows. Tasks longer than the next constant do
/// not run inline.
const TASK_BYTES_PER_STEP: usize = 64;
const INLINE_TASK_BYTES: usize = 16 << 10;
/// Keys of up to this size in all are first looked up in memory inline.
const INLINE_SPANS_BYTES: usize = 1 << 10;
/// The most bytes of one answer, whatever the request asks for.
const MAX_CHUNK_BYTES: usize = 4 << 20;
const MAX_CHUNK_ENTRIES: usize = 1 << 16;

/// The places where a read may look for data.
pub(super) enum Look<'a> {
    /// In memory only: does not wait. What is noted of it for later is charged to the account of all requests.
    Memory(&'a Arc<Account>),
    /// On disk as well, until a deadline.
    Anywhere(Until),
}

impl Look<'_> {
    fn is_in_memory(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    /// Fails once the deadline has passed. Called for every key and entry.
    fn step(&self) -> Result<(), KvError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Anywhere(until) => until.step(),
        }
    }

    /// Charges bytes that are about to be copied. Reads in memory copy little, and are not charged.
    fn hold(&self, bytes: usize) -> Result<(), KvError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Anywhere(until) => until.hold(bytes),
        }
    }

    /// The charge for the bytes that are kept.
    pub(super) fn kept(&self, bytes: usize) -> Kept {
        let Self::Anywhere(until) = self else { return Kept::default() };
        Kept(until.take_charge(bytes))
    }
}

/// A value that was read.
pub(super) enum Value {
    /// As the storage has it.
    Stored(PinnedValue),
    /// Of a snapshot.
    Copied(Vec<u8>),
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Stored(value) => value,
            Self::Copied(value) => value,
        }
    }
}

/// The outcome of a read.
#[allow(clippy::large_enum_variant, reason = "it is answered at once, one at a time")]
pub(super) enum Outcome {
    Found(Parts<Value>),
    /// The read needs the disk.
    NotInMemory,
    /// The read would delay the other requests of the task.
    Long,
}

/// Carries out a read.
pub(super) fn read(
    handle: &TabletHandle,
    permit: Permit,
    request: &FetchRef<'_>,
    look: &Look<'_>,
    aggregation: &Aggregation,
) -> Result<Outcome, KvError> {
    let version = || if request.wants_version { handle.version() } else { None };
    let before = version();
    let parts = match &request.pinned {
        // Rows of transactions may have to be computed.
        Some(_) if look.is_in_memory() => None,
        Some(pinned) => read_pinned(handle, pinned, request, look)?,
        None => match read_one(handle, permit, request, look)? {
            One::Found(parts) => Some(parts),
            One::NotInMemory => None,
            One::More => {
                let visit = handle.visit(permit)?;
                let parts = read_all(&visit, request, look)?;
                visit.finish()?;
                parts
            }
        },
    };
    let parts = parts.map(|parts| Parts { version: before.filter(|before| version() == Some(*before)), ..parts });
    if let Some(parts) = &parts {
        // The pinned values and their copies are in memory at the same time.
        look.hold(parts.value_bytes().saturating_mul(2))?;
    }
    Ok(match parts {
        Some(parts) if look.is_in_memory() && is_much(request, &parts) => Outcome::Long,
        Some(parts) => Outcome::Found(aggregation.apply(request, parts)),
        None if was_declined() => Outcome::Long,
        None => Outcome::NotInMemory,
    })
}

/// Whether copying or aggregating the rows would delay the other requests of the task.
fn is_much(request: &FetchRef<'_>, parts: &Parts<Value>) -> bool {
    let bytes = parts.value_bytes() + parts.chunk.as_ref().map_or(0, ScanChunk::size_bytes);
    match request.aggregate {
        None => bytes > INLINE_ROW_BYTES,
        Some(task) => {
            let steps = 1 + task.len() / TASK_BYTES_PER_STEP;
            task.len() > INLINE_TASK_BYTES || bytes.saturating_mul(steps) > INLINE_AGGREGATE_BYTES
        }
    }
}

/// The outcome of a read without a snapshot.
#[allow(clippy::large_enum_variant, reason = "it is answered at once, one at a time")]
enum One {
    Found(Parts<Value>),
    NotInMemory,
    /// More than one read is needed.
    More,
}

/// A read of a single key or range, which is of one moment by itself.
fn read_one(handle: &TabletHandle, permit: Permit, request: &FetchRef<'_>, look: &Look<'_>) -> Result<One, KvError> {
    let needs_header = || request.header.as_ref().is_some_and(|(flags, _)| handle.flags() & flags != 0);
    if request.static_row.is_some() || needs_header() {
        return Ok(One::More);
    }
    let mut parts = Parts { header: None, static_row: None, row: None, chunk: None, partial: None, version: None };
    match &request.rows {
        RowsRef::Nothing => handle.check(permit)?,
        RowsRef::One(key) => {
            let found = match look {
                Look::Memory(_) => handle.get_cached(permit, key)?,
                Look::Anywhere(until) => {
                    until.step()?;
                    Some(handle.get(permit, key)?)
                }
            };
            let Some(found) = found else { return Ok(One::NotInMemory) };
            parts.row = found.map(Value::Stored);
        }
        RowsRef::Range(range) => {
            let mut chunk = ScanChunk::default();
            let mut scan = |range: &ScanRange<'_>, visit: &mut Each<'_>| match look {
                Look::Memory(_) => handle.scan_cached(permit, range, request.judged_s, visit),
                Look::Anywhere(_) => handle.scan(permit, range, request.judged_s, visit).map(Some),
            };
            if !append(&mut scan, range, look, &mut chunk)? {
                return Ok(One::NotInMemory);
            }
            parts.chunk = Some(chunk);
        }
        RowsRef::Index(scan) => {
            let Look::Memory(account) = look else { return Ok(One::More) };
            let Some(glance) = handle.glance(permit)? else { return Ok(One::More) };
            let Some(Brought { found, learned }) = in_memory(&glance, scan)? else { return Ok(One::NotInMemory) };
            if !glance.finish()? {
                // Something was written meanwhile: a snapshot shows one moment.
                return Ok(One::More);
            }
            if let Some(specification) = learned {
                glance.note_index(scan.index, &(specification as IndexNote));
            }
            glance.note_stale(found.stale, account);
            parts.chunk = Some(found.chunk);
        }
        RowsRef::Several(_) => return Ok(One::More),
    }
    // A header that was written after the read does not apply to it; one written before may apply to it.
    if needs_header() { Ok(One::More) } else { Ok(One::Found(parts)) }
}

/// How a range is read.
#[derive(Clone, Copy)]
struct Sight<'l> {
    look: &'l Look<'l>,
    /// The second as of which the reader judges expiry, if it is known.
    judged_s: Option<u32>,
}

/// Rows of one moment.
trait Rows {
    /// The flag bits that evaluated mutations had raised.
    fn flags(&self) -> u64;
    /// Reads a row; `None` if the read needs the disk.
    fn get(&self, key: &[u8], look: &Look<'_>) -> Result<Option<Option<Value>>, KvError>;
    /// Calls `each` with each entry of a range. Returns whether the range is complete, or `None` if the read needs the
    /// disk.
    fn scan(&self, range: &ScanRange<'_>, each: &mut Each<'_>, sight: Sight<'_>) -> Result<Option<bool>, KvError>;
    /// Reads the rows that an index names; `None` if the read needs the disk, or is long.
    fn by_index(&self, scan: &IndexRef<'_>, look: &Look<'_>) -> Result<Option<ScanChunk>, KvError>;
}

impl Rows for Visit<'_> {
    fn flags(&self) -> u64 {
        Visit::flags(self)
    }

    fn get(&self, key: &[u8], look: &Look<'_>) -> Result<Option<Option<Value>>, KvError> {
        Ok(match look {
            Look::Memory(_) => self.get_cached(key)?.map(|found| found.map(Value::Stored)),
            Look::Anywhere(_) => Some(Visit::get(self, key)?.map(Value::Stored)),
        })
    }

    fn scan(&self, range: &ScanRange<'_>, each: &mut Each<'_>, sight: Sight<'_>) -> Result<Option<bool>, KvError> {
        match sight.look {
            Look::Memory(_) => self.scan_cached(range, sight.judged_s, each),
            Look::Anywhere(_) => Visit::scan(self, range, sight.judged_s, each).map(Some),
        }
    }

    fn by_index(&self, scan: &IndexRef<'_>, look: &Look<'_>) -> Result<Option<ScanChunk>, KvError> {
        let account = match look {
            Look::Anywhere(until) => return by_index(self, scan, until).map(Some),
            Look::Memory(account) => account,
        };
        let Some(Brought { found, .. }) = in_memory(self, scan)? else { return Ok(None) };
        self.note_stale(found.stale, account);
        Ok(Some(found.chunk))
    }
}

impl<S: TabletSnapshot> Rows for Pinned<'_, S> {
    fn flags(&self) -> u64 {
        self.view.flags()
    }

    fn get(&self, key: &[u8], _: &Look<'_>) -> Result<Option<Option<Value>>, KvError> {
        Ok(Some(self.view.get(key)?.map(Value::Copied)))
    }

    fn scan(&self, range: &ScanRange<'_>, each: &mut Each<'_>, _: Sight<'_>) -> Result<Option<bool>, KvError> {
        self.view.scan(range, each).map(Some)
    }

    fn by_index(&self, scan: &IndexRef<'_>, look: &Look<'_>) -> Result<Option<ScanChunk>, KvError> {
        // Snapshots that are kept are not read in memory only.
        let Look::Anywhere(until) = look else { return Ok(None) };
        by_index(self, scan, until).map(Some)
    }
}

/// Reads all parts in a snapshot that the tablet keeps. It need not lead any more.
fn read_pinned(
    handle: &TabletHandle,
    pinned: &PinnedRef<'_>,
    request: &FetchRef<'_>,
    look: &Look<'_>,
) -> Result<Option<Parts<Value>>, KvError> {
    look.step()?;
    let kept = handle.pinned(pinned.pin).ok_or_else(|| KvError::Locked(handle.id()))?;
    let malformed = |_| KvError::Storage("the transactions of a read cannot be decoded".to_owned());
    let committed = pinned.committed.to_vec().map_err(malformed)?.into_iter();
    let committed: Vec<Committed> = committed
        .map(|it| Committed { id: it.id, prepared_us: it.prepared_us, committed_us: it.committed_us })
        .collect();
    let by_index = matches!(request.rows, RowsRef::Index(_));
    let view = kept.view(&committed, by_index, &mut |bytes| look.hold(bytes).and_then(|()| look.step()))?;
    read_all(&Pinned { view: &view, handle }, request, look)
}

/// Reads all parts at one moment.
fn read_all(visit: &impl Rows, request: &FetchRef<'_>, look: &Look<'_>) -> Result<Option<Parts<Value>>, KvError> {
    let mut parts = Parts { header: None, static_row: None, row: None, chunk: None, partial: None, version: None };
    let sight = Sight { look, judged_s: request.judged_s };
    let mut scratch = Vec::new();
    if let Some((flags, key)) = &request.header
        && visit.flags() & flags != 0
    {
        let Some(found) = get(visit, key.join(&mut scratch), look)? else { return Ok(None) };
        parts.header = found;
    }
    if let Some(key) = &request.static_row {
        let Some(found) = get(visit, key.join(&mut scratch), look)? else { return Ok(None) };
        parts.static_row = found;
    }
    match &request.rows {
        RowsRef::Nothing => {}
        RowsRef::One(key) => {
            let Some(found) = get(visit, key, look)? else { return Ok(None) };
            parts.row = found;
        }
        RowsRef::Range(range) => {
            let mut chunk = ScanChunk::default();
            if !append(&mut scanning(visit, sight), range, look, &mut chunk)? {
                return Ok(None);
            }
            parts.chunk = Some(chunk);
        }
        RowsRef::Several(several) => {
            let Some(chunk) = read_several(visit, several, sight)? else { return Ok(None) };
            parts.chunk = Some(chunk);
        }
        RowsRef::Index(scan) => {
            let Some(chunk) = visit.by_index(scan, look)? else { return Ok(None) };
            parts.chunk = Some(chunk);
        }
    }
    Ok(Some(parts))
}

/// Computes partial aggregates with the definitions in the catalog.
pub(super) struct Aggregation {
    pub(super) aggregator: PartialAggregator,
    pub(super) catalogs: Arc<dyn CatalogSource>,
}

impl Aggregation {
    /// Replaces rows by their partial aggregate, if the request asks for one.
    fn apply(&self, request: &FetchRef<'_>, parts: Parts<Value>) -> Parts<Value> {
        let Some(task) = request.aggregate else { return parts };
        let version = parts.version;
        let partial = Some(self.aggregator.aggregate(&self.catalogs.catalog(), task, &parts.into_fetched()));
        Parts { header: None, static_row: None, row: None, chunk: None, partial, version }
    }
}

fn get(visit: &impl Rows, key: &[u8], look: &Look<'_>) -> Result<Option<Option<Value>>, KvError> {
    look.step()?;
    visit.get(key, look)
}

/// Receives an entry of a range; returns whether more are wanted.
type Each<'e> = dyn FnMut(&[u8], &[u8]) -> bool + 'e;

/// Calls the second argument with each entry of a range. Returns whether the range is complete, or `None` if the read
/// needs the disk.
type Scan<'s> = dyn FnMut(&ScanRange<'_>, &mut Each<'_>) -> Result<Option<bool>, KvError> + 's;

fn scanning<'v>(
    visit: &'v impl Rows,
    sight: Sight<'v>,
) -> impl FnMut(&ScanRange<'_>, &mut Each<'_>) -> Result<Option<bool>, KvError> + 'v {
    move |range, each| visit.scan(range, each, sight)
}

/// Appends a range to a chunk, with a flag whether the range is complete; false if the read needs the disk.
fn append(
    scan: &mut Scan<'_>,
    request: &RangeRef<'_>,
    look: &Look<'_>,
    chunk: &mut ScanChunk,
) -> Result<bool, KvError> {
    let max_bytes = request.max_bytes.min(MAX_CHUNK_BYTES);
    let max_entries = request.max_entries.clamp(1, MAX_CHUNK_ENTRIES);
    let expected_entries = max_entries.saturating_sub(chunk.ends.len()).max(1);
    let range = ScanRange { start: request.start, end: request.end, reverse: request.reverse, expected_entries };
    look.step()?;
    let mut may_go_on = Ok(());
    let mut visit = |key: &[u8], value: &[u8]| {
        may_go_on = look.hold(key.len() + value.len()).and_then(|()| look.step());
        if may_go_on.is_err() {
            return false;
        }
        chunk.push(key, value);
        chunk.ends.len() < max_entries && chunk.buffer.len() < max_bytes
    };
    if look.is_in_memory() && max_bytes > INLINE_SCAN_BYTES {
        return Ok(false);
    }
    let exhausted = scan(&range, &mut visit)?;
    may_go_on?;
    let Some(exhausted) = exhausted else { return Ok(false) };
    chunk.exhausted = exhausted;
    Ok(true)
}

/// Reads spans one after the other, until the chunk is full; `None` if the read needs the disk.
fn read_several(visit: &impl Rows, request: &SeveralRef<'_>, sight: Sight<'_>) -> Result<Option<ScanChunk>, KvError> {
    let look = sight.look;
    // Many look-ups would delay the other requests of the task.
    if look.is_in_memory() && request.spans.len() > INLINE_SPANS_BYTES {
        return Ok(None);
    }
    let max_bytes = request.max_bytes.min(MAX_CHUNK_BYTES);
    let max_entries = request.max_entries.clamp(1, MAX_CHUNK_ENTRIES);
    let mut chunk = ScanChunk { exhausted: true, ..ScanChunk::default() };
    for span in several::decode(request.spans) {
        let span = span.map_err(|_| KvError::Storage("the keys of a read cannot be decoded".to_owned()))?;
        if span.if_flags != 0 && visit.flags() & span.if_flags == 0 {
            continue;
        }
        if chunk.is_full(max_entries, max_bytes) {
            chunk.exhausted = false;
            break;
        }
        match &span.end {
            None => match get(visit, &span.start, look)? {
                None => return Ok(None),
                Some(None) => {}
                Some(Some(value)) => {
                    look.hold(span.start.len() + value.len())?;
                    chunk.push(&span.start, &value);
                }
            },
            Some(end) => {
                let (start, reverse) = (span.start.as_slice(), request.reverse);
                let range = RangeRef { start, end, reverse, max_entries, max_bytes };
                if !append(&mut scanning(visit, sight), &range, look, &mut chunk)? {
                    return Ok(None);
                }
                if !chunk.exhausted {
                    break;
                }
            }
        }
    }
    Ok(Some(chunk))
}
