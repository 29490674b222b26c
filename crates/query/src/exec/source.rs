//! Where a read finds entries: tablets through the [`Kv`] seam, or the rows of a system table packed in memory, so that both are read by the
//! same code.
//!
//! Always true: entries come in key order, in chunks of bounded size. Left out: what entries mean.

use super::snapshot::{self, Snapshot, Touched};
use crate::budget::Budget;
use crate::error::{in_tablet, kv_error, not_begun};
use crate::kv::several::{self, Several};
use crate::kv::{Fetch, FetchRows, Fetched, Kv, KvError, Now, ScanChunk, ScanRequest};
use crate::trace::{Tracing, not_carried_out};
use diorite_base::TabletId;
use diorite_base::level::Level;
use diorite_cql::protocol::CqlError;
use diorite_model::schema::Table;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Up to so many entries in memory are read on the calling thread.
const FEW_ENTRIES: usize = 256;

/// Entries in key order.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// What reads have met that decides what is done next, whatever the client's error says.
#[derive(Debug, Default)]
pub struct Met {
    /// A tablet was not there: the caller's list of tablets is old.
    missing_tablet: AtomicBool,
    /// A tablet is still building the index of the read.
    unbuilt_index: AtomicBool,
}

impl Met {
    fn note(&self, error: &KvError) {
        match error {
            KvError::NoSuchTablet(_) => self.missing_tablet.store(true, Ordering::Relaxed),
            KvError::IndexBeingBuilt => self.unbuilt_index.store(true, Ordering::Relaxed),
            _ => {}
        }
    }
}

/// A place to read from.
#[derive(Debug)]
pub enum Source<'k, K: Kv> {
    /// Tablets.
    Tablets {
        /// The seam.
        kv: &'k K,
        /// The memory of the tablet is known not to have the answer: reads go to the disk at once.
        needs_disk: bool,
        /// How old the data may be, in milliseconds. `None`: the read is linearizable.
        staleness_ms: Option<u32>,
        /// When reads end, on the monotonic clock.
        deadline_ns: Option<u64>,
        /// What the reads have met.
        met: Met,
        /// The table has transactions: what it reads is of one moment.
        snapshot: Option<&'k Snapshot<K>>,
        /// The trace of the request.
        trace: Option<Arc<Tracing>>,
        /// The second as of which the reader judges expiry, for ranges.
        judged_s: Option<u32>,
    },
    /// Sorted entries; the tablet does not matter.
    Memory {
        /// The seam.
        kv: &'k K,
        /// The entries.
        entries: Entries,
    },
}

impl<'k, K: Kv> Source<'k, K> {
    /// Reads tablets.
    pub fn tablets(kv: &'k K, needs_disk: bool, staleness_ms: Option<u32>, budget: &Budget) -> Self {
        let deadline_ns = budget.deadline();
        let trace = budget.trace().cloned();
        Source::Tablets {
            kv,
            needs_disk,
            staleness_ms,
            deadline_ns,
            met: Met::default(),
            snapshot: None,
            trace,
            judged_s: None,
        }
    }

    /// Reads the tablets in a snapshot, where that is needed.
    pub fn in_snapshot(mut self, of: &'k Snapshot<K>) -> Self {
        if let Source::Tablets { snapshot, .. } = &mut self {
            *snapshot = Some(of);
        }
        self
    }

    /// The second as of which the reader judges expiry: tablets leave out what has expired by then. It is not
    /// sent to members whose program may be older.
    pub fn judged_at(mut self, now_s: u32) -> Self {
        if let Source::Tablets { kv, judged_s, .. } = &mut self
            && kv.catalog().level() >= Level::RECORDED
        {
            *judged_s = Some(now_s);
        }
        self
    }

    /// The snapshot to be taken before anything is read, if a read needs one.
    pub fn wants_snapshot(&self, reads_one_row: bool) -> bool {
        matches!(self, Source::Tablets { snapshot: Some(snapshot), .. } if snapshot.is_needed(reads_one_row))
    }

    /// How many of these tablets, from the first on, can be read in the snapshot of the page before, if the first can.
    pub fn resumable(&self, tablets: impl Iterator<Item = TabletId>) -> Option<usize> {
        match self {
            Source::Tablets { snapshot: Some(snapshot), .. } => snapshot.resumable(tablets),
            Source::Tablets { .. } | Source::Memory { .. } => None,
        }
    }

    /// Takes the snapshot of all that is going to be read.
    pub async fn take_snapshot(&self, touched: Touched, budget: &Budget) -> Result<(), CqlError> {
        let Source::Tablets { kv, deadline_ns, met, snapshot: Some(snapshot), .. } = self else {
            return Ok(());
        };
        budget.note("Taking a snapshot of all that is read");
        snapshot.take(touched, *deadline_ns, budget).await.map_err(|failure| match failure {
            snapshot::Failure::Tablet(tablet, error) => Self::failed(kv, met, tablet, &error),
            snapshot::Failure::Request(error) => error,
        })
    }

    /// Whether a read failed because its tablet is not there (any more).
    pub fn met_missing_tablet(&self) -> bool {
        match self {
            Source::Tablets { met, .. } => met.missing_tablet.load(Ordering::Relaxed),
            Source::Memory { .. } => false,
        }
    }

    /// Whether a read was refused because a tablet is still building its index.
    pub fn met_unbuilt_index(&self) -> bool {
        match self {
            Source::Tablets { met, .. } => met.unbuilt_index.load(Ordering::Relaxed),
            Source::Memory { .. } => false,
        }
    }

    fn failed(kv: &K, met: &Met, tablet: TabletId, error: &KvError) -> CqlError {
        met.note(error);
        kv_error(error, None, kv.replicas(tablet))
    }

    /// An error about what was read, with its place if a row is malformed.
    pub fn in_tablet(&self, error: CqlError, table: &Table, tablet: TabletId) -> CqlError {
        let (Source::Tablets { kv, .. } | Source::Memory { kv, .. }) = self;
        in_tablet(*kv, error, table, tablet)
    }

    /// How much longer a request may run, milliseconds.
    pub fn left_ms(&self, budget: &Budget) -> Option<u64> {
        let deadline_ns = budget.deadline()?;
        let (Source::Tablets { kv, .. } | Source::Memory { kv, .. }) = self;
        Some(deadline_ns.saturating_sub(kv.monotonic_ns()) / 1_000_000)
    }

    /// Does long work without delaying other requests ([`Kv::run_long`]).
    pub async fn run_long<T: Send>(&self, work: impl FnOnce() -> Result<T, CqlError> + Send) -> Result<T, CqlError> {
        let (Source::Tablets { kv, .. } | Source::Memory { kv, .. }) = self;
        kv.run_long(work).await.unwrap_or_else(|refused| Err(not_begun(&refused)))
    }

    /// Reads a tablet if that needs no waiting.
    pub fn fetch_now(&self, tablet: TabletId, request: Fetch) -> Result<Now<Fetched>, CqlError> {
        let Source::Tablets { kv, needs_disk: false, staleness_ms, deadline_ns, met, snapshot, trace, judged_s } = self
        else {
            return Ok(Now::WouldBlock);
        };
        if snapshot.is_some_and(|snapshot| snapshot.pins().is_some() || snapshot.wants_version(tablet)) {
            return Ok(Now::WouldBlock);
        }
        let (staleness_ms, deadline_ns, judged_s) = (*staleness_ms, *deadline_ns, of_ranges(&request, *judged_s));
        let outcome = kv.fetch_now(tablet, &Fetch { staleness_ms, deadline_ns, judged_s, ..request });
        if let (Err(KvError::Locked(_)), Some(snapshot)) = (&outcome, snapshot) {
            snapshot.meet_lock();
        }
        if let Some(trace) = trace {
            match &outcome {
                Ok(Now::Ready(fetched)) => {
                    trace.note(format!("Read tablet {} here, from memory: {}", tablet.0, shown(fetched)));
                }
                Ok(Now::WouldBlock) => {}
                Err(error) => trace.note(not_carried_out("read", tablet, error)),
            }
        }
        outcome.map_err(|error| Self::failed(kv, met, tablet, &error))
    }

    /// Reads a tablet.
    pub async fn fetch(&self, tablet: TabletId, request: Fetch) -> Result<Fetched, CqlError> {
        match self {
            Source::Tablets { kv, needs_disk, staleness_ms, deadline_ns, met, snapshot, trace, judged_s } => {
                let (needs_disk, staleness_ms, deadline_ns) = (*needs_disk, *staleness_ms, *deadline_ns);
                let judged_s = of_ranges(&request, *judged_s);
                let pinned = snapshot.and_then(|snapshot| snapshot.pin_of(tablet));
                let wants_version = snapshot.is_some_and(|snapshot| snapshot.wants_version(tablet));
                let request =
                    Fetch { needs_disk, staleness_ms, deadline_ns, pinned, wants_version, judged_s, ..request };
                if let Some(trace) = trace {
                    let place = match staleness_ms {
                        Some(_) => "at one of its replicas".to_owned(),
                        None => trace.place(kv.leader(tablet)),
                    };
                    trace.note(format!("Reading tablet {} {place}", tablet.0));
                }
                let outcome = kv.fetch(tablet, request).await;
                if let Some(trace) = trace {
                    trace.note(match &outcome {
                        Ok(fetched) => format!("Tablet {} has answered: {}", tablet.0, shown(fetched)),
                        Err(error) => not_carried_out("read", tablet, error),
                    });
                }
                match (&outcome, snapshot) {
                    (Err(KvError::Locked(_)), Some(snapshot)) => snapshot.meet_lock(),
                    (Ok(fetched), Some(snapshot)) if wants_version => snapshot.note_version(tablet, fetched.version),
                    _ => {}
                }
                outcome.map_err(|error| Self::failed(kv, met, tablet, &error))
            }
            // Reading few entries costs less than passing them to another thread.
            Source::Memory { entries, .. } if entries.len() <= FEW_ENTRIES => Ok(fetch_entries(entries, &request)),
            Source::Memory { kv, entries } => {
                kv.run_long(|| fetch_entries(entries, &request)).await.map_err(|refused| not_begun(&refused))
            }
        }
    }
}

/// What was read, for a trace: how much, and no value.
fn shown(fetched: &Fetched) -> String {
    if let Some(partial) = &fetched.partial {
        return format!("a partial aggregate of {} bytes", partial.len());
    }
    let values = [&fetched.header, &fetched.static_row, &fetched.row];
    let bytes = values.into_iter().flatten().map(Vec::len).sum::<usize>() + fetched.chunk.buffer.len();
    let entries = values.into_iter().flatten().count() + fetched.chunk.ends.len();
    format!("{entries} entries, {bytes} bytes")
}

/// The second that a read names: one of ranges.
fn of_ranges(request: &Fetch, judged_s: Option<u32>) -> Option<u32> {
    judged_s.filter(|_| matches!(request.rows, FetchRows::Range(_) | FetchRows::Several(_)))
}

/// Answers a read from sorted entries that have no headers.
fn fetch_entries(entries: &[(Vec<u8>, Vec<u8>)], request: &Fetch) -> Fetched {
    let get = |key: &Vec<u8>| {
        let found = entries.binary_search_by(|(known, _)| known.cmp(key));
        found.ok().map(|at| entries[at].1.clone())
    };
    let mut fetched = Fetched { static_row: request.static_row.as_ref().and_then(get), ..Fetched::default() };
    match &request.rows {
        FetchRows::Nothing => {}
        FetchRows::One(key) => fetched.row = get(key),
        FetchRows::Range(range) => fetched.chunk = scan_entries(entries, range),
        FetchRows::Several(several) => fetched.chunk = several_entries(entries, several),
        // System tables have no indexes.
        FetchRows::Index(scan) => {
            let (start, end) = (scan.start.clone(), scan.end.clone());
            let (max_entries, max_bytes) = (scan.max_entries, scan.max_bytes);
            fetched.chunk = scan_entries(entries, &ScanRequest { start, end, reverse: false, max_entries, max_bytes });
        }
    }
    fetched
}

/// Answers for several spans in one chunk: the entries are in memory, so the size of the chunk need not be limited.
fn several_entries(entries: &[(Vec<u8>, Vec<u8>)], request: &Several) -> ScanChunk {
    let mut chunk = ScanChunk { exhausted: true, ..ScanChunk::default() };
    for span in several::decode(&request.spans).map_while(Result::ok).filter(|span| span.if_flags == 0) {
        let first = entries.partition_point(|(key, _)| *key < span.start);
        let last = match &span.end {
            None => first + usize::from(entries.get(first).is_some_and(|(key, _)| *key == span.start)),
            Some(end) => entries.partition_point(|(key, _)| key < end).max(first),
        };
        let mut push = |(key, value): &(Vec<u8>, Vec<u8>)| chunk.push(key, value);
        match request.reverse {
            true => entries[first..last].iter().rev().for_each(&mut push),
            false => entries[first..last].iter().for_each(&mut push),
        }
    }
    chunk
}

/// Answers a scan from sorted entries.
pub fn scan_entries(entries: &[(Vec<u8>, Vec<u8>)], request: &ScanRequest) -> ScanChunk {
    let first = entries.partition_point(|(key, _)| *key < request.start);
    let last = entries.partition_point(|(key, _)| *key < request.end).max(first);
    let mut chunk = ScanChunk::default();
    let mut push = |(key, value): &(Vec<u8>, Vec<u8>)| {
        if chunk.ends.len() >= request.max_entries.max(1)
            || (!chunk.ends.is_empty() && chunk.buffer.len() >= request.max_bytes)
        {
            return false;
        }
        chunk.push(key, value);
        true
    };
    let within = &entries[first..last];
    let exhausted = if request.reverse { within.iter().rev().all(&mut push) } else { within.iter().all(&mut push) };
    chunk.exhausted = exhausted;
    chunk
}
