//! One tablet replica's RocksDB.
//!
//! Always true: one thread applies (the tablet's worker), any thread reads; each [`Batch`] is written atomically with
//! the [`AppliedState`] that it leads to. Keys of the data are at least eight bytes long (they start with a token), so
//! none of them equals the one-byte [`META_KEY`].

mod batch;
mod data;
mod maintenance;
mod statistics;
mod tablet_at;

pub use batch::Batch;
pub use statistics::TabletStatistics;
pub use tablet_at::TabletAt;

use crate::applied::AppliedState;
use crate::brief::briefly;
use crate::dead_rows::DeadRows;
use crate::directory::remove_tablet;
use crate::engine::ScanRange;
use crate::error::StorageError;
use crate::expiry::Expiry;
use crate::files::FilesKept;
use crate::gaps::Gaps;
use crate::hang::Hang;
use crate::keys::{META_KEY, is_about_the_tablet};
use crate::listener::{BeforeFlush, TabletEvents};
use crate::looks::Windows;

use crate::merging::Merging;
use crate::semantics::{ValueSemantics, Values};
use crate::shared::Shared;
use crate::table_options::{CompactionStyle, TableOptions};
use crate::ttls::WrittenTtls;
use parking_lot::Mutex;
use rust_rocksdb::checkpoint::Checkpoint;
use rust_rocksdb::{
    DB, DBPinnableSlice, DBRawIterator, ErrorKind, FlushOptions, ReadOptions, ReadTier, Snapshot, WriteBatchIteratorCf,
};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// The bytes that longer scans read from a file at a time. Bytes read beyond the end of the range are wasted, so this
/// is not more.
const SCAN_READAHEAD_BYTES: usize = 256 << 10;
/// A tablet smaller than this is compacted as a whole if a part of it is due.
const SMALL_BYTES: u64 = 256 << 20;

/// The number of entries beyond which scans do not fill the cache, so that they cannot evict blocks that point reads
/// use.
const SCAN_FILL_ENTRIES: usize = 1_000;

/// A brief scan passes at most this many removed entries one after another: about a tenth of a millisecond.
const REMOVED_PASSED: u64 = 1_000;

/// A value that stays in place (in the memtable's copy or the block cache) while this is held.
pub struct PinnedValue {
    // The slice points into structures of the tablet's RocksDB, so it is dropped first.
    slice: DBPinnableSlice<'static>,
    _tablet: Arc<Tablet>,
}

impl Deref for PinnedValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.slice
    }
}

/// A tablet replica's data.
pub struct Tablet {
    db: DB,
    /// Dropped after RocksDB is closed.
    folder: Folder,
    shared: Arc<Shared>,
    events: Arc<TabletEvents>,
    expiry: Arc<Expiry>,
    options: TableOptions,
    /// The ranges without live rows, for scans.
    pub(crate) gaps: Gaps,
    pub(crate) dead_rows: DeadRows,
    /// What is known of its time windows, if its table has some.
    pub(crate) windows: Option<Windows>,
    merging: Mutex<Merging>,
    files: Mutex<FilesKept>,
    /// For tests: whether reads hang, and whether writes hang.
    hangs: [Hang; 2],
    /// The last sizes of the files, with the amount of background work at that time.
    seen: Mutex<Option<(u64, TabletStatistics)>>,
    /// Dropped last, after RocksDB is closed and the folder of a dropped tablet is removed.
    open: Arc<()>,
}

impl Tablet {
    /// Opens the tablet in `directory`, or creates it there.
    pub fn open(
        shared: &Arc<Shared>,
        directory: &Path,
        values: Values,
        options: impl Into<TableOptions>,
    ) -> Result<Self, StorageError> {
        let options = options.into();
        let windows = Windows::of(options.compaction, directory);
        let events = Arc::new(TabletEvents::default());
        let expiry = Arc::<Expiry>::default();
        let db = DB::open(&shared.tablet_options(values, &options, &events, &expiry), directory)?;
        let tablet = Self {
            db,
            folder: Folder { path: directory.to_owned(), is_doomed: AtomicBool::new(false) },
            shared: Arc::clone(shared),
            events,
            expiry,
            options,
            gaps: Gaps::default(),
            dead_rows: DeadRows::default(),
            windows,
            merging: Mutex::default(),
            files: Mutex::default(),
            hangs: Default::default(),
            seen: Mutex::default(),
            open: Arc::new(()),
        };
        // RocksDB has no write-ahead log, so the state that it opens with has reached the disk.
        let state = tablet.applied_state()?;
        tablet.expiry.note_durable(state);
        if state == AppliedState::default() && tablet.live_files()?.is_empty() {
            tablet.expiry.keys.start_empty();
        }
        tablet.allow_present_runs()?;
        Ok(tablet)
    }

    /// The options with which its files are written.
    pub fn options(&self) -> &TableOptions {
        &self.options
    }

    /// The applied state, in memory or on disk.
    pub fn applied_state(&self) -> Result<AppliedState, StorageError> {
        self.read_state(&self.shared.read_any)
    }

    /// The state that a crash now would leave, which has reached the disk.
    pub fn flushed_state(&self) -> Result<AppliedState, StorageError> {
        let mut options = ReadOptions::default();
        options.set_read_tier(ReadTier::Persisted);
        let state = self.read_state(&options)?;
        self.expiry.note_durable(state);
        Ok(state)
    }

    fn read_state(&self, options: &ReadOptions) -> Result<AppliedState, StorageError> {
        match self.db.get_pinned_opt(META_KEY, options)? {
            Some(bytes) => AppliedState::decode(&bytes),
            None => Ok(AppliedState::default()),
        }
    }

    /// Writes `batch` and the state that it leads to, atomically.
    pub fn apply(&self, batch: &mut Batch, state: &AppliedState) -> Result<(), StorageError> {
        batch.inner.put(META_KEY, state.encode());
        if let Some(windows) = self.windows.as_ref().filter(|_| !batch.deletes_ranges) {
            batch.inner.iterate_cf(&mut WrittenTtls { ttls: &windows.ttls, semantics: self.semantics() });
        }
        let keys = |see: &mut dyn FnMut(&[u8])| batch.inner.iterate_cf(&mut WrittenKeys(see));
        self.gaps.writing((!batch.deletes_ranges).then_some(keys));
        let written = self.db.write_opt(&batch.inner, &self.shared.write_options);
        self.gaps.written();
        self.note_keys(batch);
        Ok(written?)
    }

    /// Counts the keys of a batch. One value of each batch tells whether the tablet has values that go without a write:
    /// those who are too few to be met are too little to be worth a compaction.
    fn note_keys(&self, batch: &Batch) {
        let semantics = self.shared.semantics();
        if batch.deletes_ranges || (!batch.sample.is_empty() && semantics.awaits_time(&batch.sample)) {
            self.expiry.keys.forget();
        } else {
            self.expiry.keys.write(&batch.keys);
        }
    }

    /// For tests: lets a replica's reads or writes for applying an entry wait from now on, until this is called with
    /// `false`.
    #[doc(hidden)]
    pub fn hang(&self, (reads, writes): (bool, bool)) {
        self.hangs[0].set(reads);
        self.hangs[1].set(writes);
    }

    /// Whether the last compactions have kept values that a later horizon alone would let them remove.
    pub fn awaits_time(&self) -> bool {
        self.expiry.awaits_time()
    }

    /// Whether time windows have expired, but not at the time that is in the tablet's log.
    pub fn windows_await_time(&self) -> bool {
        self.windows.as_ref().is_some_and(Windows::await_time)
    }

    /// The length of its time windows, seconds, if its table has some.
    pub fn window_s(&self) -> Option<u32> {
        match self.options.compaction {
            CompactionStyle::TimeWindow { window_s } => Some(window_s),
            _ => None,
        }
    }

    /// A view of the tablet as it is now, for several reads.
    pub fn moment(self: &Arc<Self>) -> Moment<'_> {
        let snapshot = self.db.snapshot();
        let (mut any, mut cached) = (ReadOptions::default(), ReadOptions::default());
        any.set_snapshot(&snapshot);
        cached.set_snapshot(&snapshot);
        cached.set_read_tier(ReadTier::BlockCache);
        Moment { tablet: self, any, cached, snapshot }
    }

    /// Reads from memory only. `None`: the read needs the disk, or would merge more than a brief read may.
    pub fn get_cached(self: &Arc<Self>, key: &[u8]) -> Result<Option<Option<PinnedValue>>, StorageError> {
        self.get_if_cached(key, &self.shared.read_cached)
    }

    fn get_if_cached(
        self: &Arc<Self>,
        key: &[u8],
        options: &ReadOptions,
    ) -> Result<Option<Option<PinnedValue>>, StorageError> {
        match briefly(|| self.db.get_pinned_opt(key, options)) {
            None => Ok(None),
            Some(Ok(found)) => Ok(Some(found.map(|slice| self.pin(slice)))),
            Some(Err(error)) if error.kind() == ErrorKind::Incomplete => Ok(None),
            Some(Err(error)) => Err(error.into()),
        }
    }

    /// Reads a value, from disk if necessary.
    pub fn get(self: &Arc<Self>, key: &[u8]) -> Result<Option<PinnedValue>, StorageError> {
        Ok(self.db.get_pinned_opt(key, &self.shared.read_any)?.map(|slice| self.pin(slice)))
    }

    fn pin(self: &Arc<Self>, slice: DBPinnableSlice<'_>) -> PinnedValue {
        // SAFETY: the slice borrows from `self.db`, which lives in the Arc that the result holds beside it
        // and which is dropped after the slice (fields drop in order); the slice never leaves `PinnedValue` except as a borrow of it.
        let slice = unsafe { std::mem::transmute::<DBPinnableSlice<'_>, DBPinnableSlice<'static>>(slice) };
        PinnedValue { slice, _tablet: Arc::clone(self) }
    }

    /// Calls `visit` with each entry of `start..end`, in order or in reverse, until it returns false. Returns whether
    /// the range was exhausted.
    pub fn scan(
        &self,
        range: &ScanRange<'_>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, StorageError> {
        self.iterate(scan_options(range), range, visit)
    }

    /// As [`Self::scan`], for live rows; now and then `visit` is called with a dead row too. `judged_s`: the second as
    /// of which the reader judges expiry; without it, rows are left out that have expired for every reader.
    pub fn scan_live(
        &self,
        range: &ScanRange<'_>,
        judged_s: Option<u32>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, StorageError> {
        self.iterate_live(scan_options(range), None, range, judged_s, visit)
    }

    /// As [`Self::scan_live`], from memory only. `None`: the scan needs the disk, or more work than a brief read may
    /// do; `visit` may have seen some entries.
    pub fn scan_live_cached(
        &self,
        range: &ScanRange<'_>,
        judged_s: Option<u32>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Option<bool>, StorageError> {
        if_cached(|| self.iterate_live(cached_options(), None, range, judged_s, visit))
    }

    /// The sequence number of the newest change that readers see.
    pub(crate) fn sequence(&self) -> u64 {
        self.db.latest_sequence_number()
    }

    pub(crate) fn raw_iterator(&self, options: ReadOptions) -> DBRawIterator<'_> {
        self.db.raw_iterator_opt(options)
    }

    pub(crate) fn semantics(&self) -> &dyn ValueSemantics {
        self.shared.semantics()
    }

    pub(crate) fn present_s(&self) -> u32 {
        self.shared.present_s()
    }

    /// Counts dead rows that scans have skipped.
    pub(crate) fn note_passed(&self, rows: u64) {
        self.shared.counters().dead_rows_passed.fetch_add(rows, Ordering::Relaxed);
    }

    fn iterate(
        &self,
        mut options: ReadOptions,
        range: &ScanRange<'_>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, StorageError> {
        options.set_iterate_lower_bound(range.start);
        options.set_iterate_upper_bound(range.end);
        let mut iterator: DBRawIterator<'_> = self.db.raw_iterator_opt(options);
        if range.reverse {
            iterator.seek_to_last();
        } else {
            iterator.seek_to_first();
        }
        while let Some((key, value)) = iterator.item() {
            if !is_about_the_tablet(key) && !visit(key, value) {
                return Ok(false);
            }
            if range.reverse {
                iterator.prev();
            } else {
                iterator.next();
            }
        }
        iterator.status()?;
        Ok(true)
    }

    /// Writes the memtable to disk; waits for it if `wait`.
    pub fn flush(&self, wait: bool) -> Result<(), StorageError> {
        let mut options = FlushOptions::default();
        options.set_wait(wait);
        self.db.flush_opt(&options)?;
        Ok(())
    }

    /// Makes a copy of the current data in `directory`, which must not exist: hard links to the files, which never
    /// change. Flushes first.
    pub fn checkpoint(&self, directory: &Path) -> Result<(), StorageError> {
        Checkpoint::new(&self.db)?.create_checkpoint(directory)?;
        self.windows.iter().for_each(|windows| windows.ttls.remember_copy(directory));
        Ok(())
    }

    /// As [`Self::checkpoint`], but without a flush: the checkpoint has the state that [`Self::flushed_state`] returned
    /// before, or a newer one.
    pub fn checkpoint_of_flushed(&self, directory: &Path) -> Result<(), StorageError> {
        // A checkpoint flushes only if RocksDB's own write-ahead log, which is not used, has at least this many bytes.
        Checkpoint::new(&self.db)?.create_checkpoint_with_log_size(directory, u64::MAX)?;
        self.windows.iter().for_each(|windows| windows.ttls.remember_copy(directory));
        Ok(())
    }

    /// The approximate size of the keys of `start..end` in files, bytes. Reads indexes, possibly from disk.
    pub fn bytes_within(&self, start: &[u8], end: &[u8]) -> Result<u64, StorageError> {
        let sizes = self.db.get_approximate_sizes(&[rust_rocksdb::Range::new(start, end)])?;
        Ok(sizes.first().copied().unwrap_or(0))
    }

    /// Flushes finished since the tablet was opened: when it changes, [`Self::flushed_state`] has moved.
    pub fn flushes(&self) -> u64 {
        self.events.flushes.load(Ordering::Acquire)
    }

    /// Whether reads have merged so many operands, again and again, that a flush is worth its cost: it merges the
    /// operands of each key into one. Returns true once.
    pub fn wants_flush_for_reads(&self) -> bool {
        self.events.refolding.wants_flush(|| self.memtable_bytes())
    }

    /// Whether RocksDB has stopped background work after an error.
    pub fn has_failed(&self) -> bool {
        self.events.failed.load(Ordering::Acquire)
    }

    /// The error that stopped background work.
    pub fn background_error(&self) -> Option<StorageError> {
        self.events.failure.lock().clone().map(StorageError::from)
    }

    /// Sets a function that is called on the thread of every flush, after the memtables to write are selected and
    /// before any of them is written. At most once.
    pub fn set_before_flush(&self, before_flush: BeforeFlush) {
        if self.events.before_flush.set(before_flush).is_err() {
            tracing::error!("the function before flushes is already set");
        }
    }

    /// Lets the tablet's files be removed when its last user drops it.
    pub fn doom(&self) {
        self.folder.is_doomed.store(true, Ordering::Release);
    }

    /// The files are in use while this can be upgraded. After that another tablet may be opened in their place.
    pub fn in_use(&self) -> Weak<()> {
        Arc::downgrade(&self.open)
    }

    /// The tablet's directory.
    pub fn directory(&self) -> &Path {
        &self.folder.path
    }
}

/// The result of a scan from memory; `None` if the scan needs the disk, or more work than a brief read may do.
fn if_cached(scan: impl FnOnce() -> Result<bool, StorageError>) -> Result<Option<bool>, StorageError> {
    match briefly(scan) {
        None => Ok(None),
        Some(Ok(exhausted)) => Ok(Some(exhausted)),
        Some(Err(StorageError::Engine(error))) if error.kind() == ErrorKind::Incomplete => Ok(None),
        Some(Err(error)) => Err(error),
    }
}

fn cached_options() -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_read_tier(ReadTier::BlockCache);
    options
}

/// Calls the function with the keys that a batch writes, except those that it deletes: a dead row stays dead.
struct WrittenKeys<'s>(&'s mut dyn FnMut(&[u8]));

impl WriteBatchIteratorCf for WrittenKeys<'_> {
    fn put_cf(&mut self, _: u32, key: &[u8], _: &[u8]) {
        (self.0)(key);
    }

    fn delete_cf(&mut self, _: u32, _: &[u8]) {}

    fn merge_cf(&mut self, _: u32, key: &[u8], _: &[u8]) {
        (self.0)(key);
    }
}

fn scan_options(range: &ScanRange<'_>) -> ReadOptions {
    let is_long = range.expected_entries > SCAN_FILL_ENTRIES;
    let mut options = ReadOptions::default();
    options.fill_cache(!is_long);
    // Readahead ends with the range. A short scan begins with one block, and reads ahead after a few.
    options.set_auto_readahead_size(true);
    if is_long {
        options.set_readahead_size(SCAN_READAHEAD_BYTES);
    }
    options
}

/// A tablet at one moment: all reads see the same batches. Compaction keeps entries that such reads see.
pub struct Moment<'t> {
    tablet: &'t Arc<Tablet>,
    // The options refer to the snapshot, so they are dropped first.
    any: ReadOptions,
    cached: ReadOptions,
    snapshot: Snapshot<'t>,
}

impl Moment<'_> {
    /// As [`Tablet::get_cached`].
    ///
    /// # Errors
    /// If the data cannot be read.
    pub fn get_cached(&self, key: &[u8]) -> Result<Option<Option<PinnedValue>>, StorageError> {
        self.tablet.get_if_cached(key, &self.cached)
    }

    /// As [`Tablet::get`].
    ///
    /// # Errors
    /// If the data cannot be read.
    pub fn get(&self, key: &[u8]) -> Result<Option<PinnedValue>, StorageError> {
        Ok(self.tablet.db.get_pinned_opt(key, &self.any)?.map(|slice| self.tablet.pin(slice)))
    }

    /// As [`Tablet::scan_live`].
    ///
    /// # Errors
    /// If the data cannot be read.
    pub fn scan_live(
        &self,
        range: &ScanRange<'_>,
        judged_s: Option<u32>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, StorageError> {
        let mut options = scan_options(range);
        options.set_snapshot(&self.snapshot);
        self.tablet.iterate_live(options, Some(self.sequence()), range, judged_s, visit)
    }

    /// As [`Tablet::scan_live_cached`].
    ///
    /// # Errors
    /// If the data cannot be read.
    pub fn scan_live_cached(
        &self,
        range: &ScanRange<'_>,
        judged_s: Option<u32>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<Option<bool>, StorageError> {
        let mut options = cached_options();
        options.set_snapshot(&self.snapshot);
        if_cached(|| self.tablet.iterate_live(options, Some(self.sequence()), range, judged_s, visit))
    }

    /// The sequence number of the newest change that these reads see; `None` if nothing was ever written.
    fn sequence(&self) -> u64 {
        self.snapshot.sequence_number().unwrap_or(0)
    }
}

impl Drop for Tablet {
    fn drop(&mut self) {
        self.db.cancel_all_background_work(true);
    }
}

/// The directory of a tablet, which is removed with the tablet if that is doomed: RocksDB is closed before, since it
/// reports an error if it does not find its files then.
struct Folder {
    path: PathBuf,
    is_doomed: AtomicBool,
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_doomed.load(Ordering::Acquire) {
            // The files are renamed first: if the node is killed in between, and has not kept the last changes of the
            // catalog, it must not take the remaining files for the tablet.
            if let Err(error) = remove_tablet(&self.path) {
                tracing::warn!(directory = %self.path.display(), %error, "could not remove a dropped tablet");
            }
        }
    }
}
