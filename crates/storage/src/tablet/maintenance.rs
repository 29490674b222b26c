//! Maintenance of a tablet's files: scrubs, compactions, and their sizes.

use super::{SMALL_BYTES, Tablet, TabletStatistics};
use crate::error::StorageError;
use crate::expiry::Expiry;
use crate::files::{FileContents, FilesKept, TabletFiles};
use crate::merging::{Eagerness, has_garbage};
use crate::table_options::{CompactionStyle, SLOWDOWN_RUNS};
use diorite_base::Horizon;
#[cfg(test)]
use rust_rocksdb::WaitForCompactOptions;
use rust_rocksdb::{CompactionOptions, DBRawIterator, LiveFile, ReadOptions, properties};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

impl Tablet {
    /// Reads the stored data of keys from `start` on, past the block cache, until about `most_bytes` are read. Returns
    /// the bytes read, and the key to continue at; `None` at the end.
    ///
    /// # Errors
    /// A block is not what was written, or cannot be read.
    pub fn scrub(&self, start: &[u8], most_bytes: u64) -> Result<(u64, Option<Vec<u8>>), StorageError> {
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        options.set_verify_checksums(true);
        options.set_readahead_size(256 << 10);
        options.set_iterate_lower_bound(start);
        let mut iterator: DBRawIterator<'_> = self.db.raw_iterator_opt(options);
        iterator.seek_to_first();
        let mut bytes = 0;
        while let Some((key, value)) = iterator.item() {
            bytes += (key.len() + value.len()) as u64;
            if bytes >= most_bytes {
                // The next longer key.
                return Ok((bytes, Some([key, &[0]].concat())));
            }
            iterator.next();
        }
        iterator.status()?;
        Ok((bytes, None))
    }

    /// Compacts everything, and waits for it.
    pub fn compact(&self) {
        let warn = |error| {
            tracing::warn!(directory = %self.folder.path.display(), %error, "could not read the state of the files");
        };
        if let Err(error) = self.flushed_state() {
            warn(error);
        }
        if self.windows.is_none() {
            self.db.compact_range(None::<&[u8]>, None::<&[u8]>);
        } else if let Err(error) = self.compact_all_windows() {
            warn(error);
        }
    }

    /// Compacts the range of all keys.
    pub(crate) fn compact_range_of_all(&self) {
        self.db.compact_range(None::<&[u8]>, None::<&[u8]>);
    }

    pub(crate) fn live_files(&self) -> Result<Vec<LiveFile>, StorageError> {
        Ok(self.db.live_files()?)
    }

    /// Merges these files, by RocksDB's names, into files of this level; returns the paths of the new files.
    pub(crate) fn compact_files(
        &self,
        names: impl Iterator<Item = impl AsRef<str>>,
        level: i32,
    ) -> Result<Vec<PathBuf>, StorageError> {
        // RocksDB's listeners are not called for files that are compacted by name, and they are merged on this thread.
        crate::precedence::run_at_lower_priority();
        let counters = self.shared.counters();
        self.events.compactions.fetch_add(1, Ordering::Release);
        counters.compactions_running_low.fetch_add(1, Ordering::Relaxed);
        let names: Vec<_> = names.map(|name| name.as_ref().to_owned()).collect();
        let merged = self.db.compact_files(&CompactionOptions::default(), &names, level);
        counters.compactions_running_low.fetch_sub(1, Ordering::Relaxed);
        counters.compactions.fetch_add(1, Ordering::Relaxed);
        self.events.compactions.fetch_add(1, Ordering::Release);
        let merged = merged?;
        let name = |path: &String| Path::new(path).file_name().map(|name| self.folder.path.join(name));
        Ok(merged.output_files.iter().filter_map(name).collect())
    }

    /// Compactions begun plus compactions and flushes ended, since the tablet was opened.
    pub(crate) fn background_work(&self) -> u64 {
        self.events.background_work()
    }

    /// The horizon at which a compaction that begins now purges.
    pub(crate) fn purge_horizon(&self) -> Horizon {
        self.expiry.horizon(self.shared.latest_s())
    }

    pub(crate) fn latest_s(&self) -> u32 {
        self.shared.latest_s()
    }

    pub(crate) fn expiry(&self) -> &Expiry {
        &self.expiry
    }

    /// Lets a tablet that was written with time windows, and has many files therefore, be written to at full speed
    /// while they are merged.
    pub(super) fn allow_present_runs(&self) -> Result<(), StorageError> {
        let count = self.db.property_value(properties::num_files_at_level(0)).ok().flatten();
        let count = count.and_then(|count| count.parse().ok()).unwrap_or(0);
        if self.windows.is_none() && count >= SLOWDOWN_RUNS {
            let (slow, stop) = ((count + SLOWDOWN_RUNS).to_string(), (count + 2 * SLOWDOWN_RUNS).to_string());
            self.db.set_options(&[("level0_slowdown_writes_trigger", &slow), ("level0_stop_writes_trigger", &stop)])?;
        }
        Ok(())
    }

    /// Runs the compactions that are due and that RocksDB does not choose, and waits for them; to be called regularly.
    ///
    /// # Errors
    /// If RocksDB or the disk reports one.
    pub fn compact_due(&self) -> Result<(), StorageError> {
        if let Some((window_s, windows)) = self.window_s().zip(self.windows.as_ref()) {
            return self.compact_windows(window_s, windows);
        }
        if self.options.compaction == CompactionStyle::SizeTiered {
            self.choose_eagerness()?;
        }
        if let Some((start, end)) = self.dead_rows.take_due() {
            self.flush(true)?;
            self.flushed_state()?;
            if self.files_bytes() < SMALL_BYTES {
                // Compacted into the last level first, and then within it: only then are partial rows complete.
                self.compact();
                self.compact();
            } else {
                self.db.suggest_compact_range(Some(start), Some(end))?;
            }
        }
        Ok(())
    }

    /// Tells RocksDB how eagerly to merge, if that changes.
    fn choose_eagerness(&self) -> Result<(), StorageError> {
        let space_percent = self.shared.options().space_amplification_percent;
        let mut merging = self.merging.lock();
        let work = self.events.background_work();
        let is_loading =
            merging.is_loading(self.events.flushes.load(Ordering::Acquire), u64::from(self.shared.present_s()));
        let mut frees_space = merging.chosen.frees_space;
        if merging.files_of != Some(work) {
            let entries = self.live_files()?.iter().map(|file| file.num_entries).sum();
            frees_space = self.expiry.awaits_time() || has_garbage(entries, self.expiry.keys.count(), space_percent);
            merging.files_of = Some(work);
        }
        let chosen = Eagerness { is_loading, frees_space };
        if chosen == merging.chosen {
            return Ok(());
        }
        let options = chosen.options(space_percent);
        self.db.set_options(&options.each_ref().map(|(name, value)| (*name, value.as_str())))?;
        merging.chosen = chosen;
        Ok(())
    }

    /// For tests: the choices of the last [`Tablet::compact_due`].
    #[cfg(test)]
    pub(crate) fn eagerness(&self) -> Eagerness {
        self.merging.lock().chosen
    }

    /// For tests: waits for the compactions that are due.
    #[cfg(test)]
    pub(crate) fn end_compactions(&self) {
        self.db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    }

    /// Sizes, for metrics. Sizes that only a flush or a compaction changes are read only after one.
    pub fn statistics(&self) -> TabletStatistics {
        let property = |name| self.db.property_int_value(name).ok().flatten().unwrap_or(0);
        // Read before the sizes: in the worst case they are read once more than necessary.
        let work = self.events.background_work();
        let mut seen = self.seen.lock();
        let files = match *seen {
            Some((at, files)) if at == work => files,
            _ => self.look_at_files(),
        };
        *seen = Some((work, files));
        TabletStatistics {
            keys_estimate: property(properties::ESTIMATE_NUM_KEYS),
            compactions_pending: property(properties::COMPACTION_PENDING),
            ..files
        }
    }

    fn look_at_files(&self) -> TabletStatistics {
        let property = |name| self.db.property_int_value(name).ok().flatten().unwrap_or(0);
        let in_level = |level| {
            let count = self.db.property_value(properties::num_files_at_level(level)).ok().flatten();
            count.and_then(|count| count.parse::<u64>().ok()).unwrap_or(0)
        };
        TabletStatistics {
            sst_bytes: property(properties::TOTAL_SST_FILES_SIZE),
            sst_files: (0..7).map(in_level).sum(),
            pending_compaction_bytes: property(properties::ESTIMATE_PENDING_COMPACTION_BYTES),
            live_bytes: property(properties::ESTIMATE_LIVE_DATA_SIZE),
            ..TabletStatistics::default()
        }
    }

    /// The number and size of its SSTables. They are read only if a flush or a compaction has changed them since.
    pub fn files(&self) -> TabletFiles {
        // Read before the files, see `statistics`.
        let version = self.events.background_work();
        let mut kept = self.files.lock();
        if kept.version != Some(version) {
            let seen = self.look_at_files();
            let is_same =
                kept.version.is_some() && (kept.files.files, kept.files.bytes) == (seen.sst_files, seen.sst_bytes);
            let nothing = || (seen.sst_files == 0).then(FileContents::default);
            let contents = if is_same { kept.files.contents } else { nothing() };
            let files = TabletFiles { files: seen.sst_files, bytes: seen.sst_bytes, contents };
            *kept = FilesKept { version: Some(version), files };
        }
        kept.files
    }

    /// Reads the contents of its SSTables by kind. This reads each file, so it is too expensive for every report; it
    /// does nothing if the contents are known already. Returns whether the files were read.
    pub fn measure_contents(&self) -> bool {
        if self.files().contents.is_some() {
            return false;
        }
        let version = self.events.background_work();
        let properties = self.db.property_value(properties::AGGREGATED_TABLE_PROPERTIES).ok().flatten();
        let contents = properties.and_then(|text| FileContents::read(&text));
        let mut kept = self.files.lock();
        if kept.version == Some(version) {
            kept.files.contents = contents;
        }
        true
    }

    /// The approximate size of a copy of the tablet, bytes: its live files, and the memtable.
    pub fn size_bytes(&self) -> u64 {
        self.files_bytes() + self.memtable_bytes()
    }

    /// Bytes of its live files.
    pub fn files_bytes(&self) -> u64 {
        self.db.property_int_value(properties::LIVE_SST_FILES_SIZE).ok().flatten().unwrap_or(0)
    }

    /// Memory that the readers of its files use beside the block cache, estimated.
    pub fn reader_bytes(&self) -> u64 {
        self.db.property_int_value(properties::ESTIMATE_TABLE_READERS_MEM).ok().flatten().unwrap_or(0)
    }

    /// Bytes that are only in memory.
    pub fn memtable_bytes(&self) -> u64 {
        self.db.property_int_value(properties::CUR_SIZE_ALL_MEM_TABLES).ok().flatten().unwrap_or(0)
    }
}
