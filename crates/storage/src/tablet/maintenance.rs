//! What is done about a tablet's files beside reads and writes: scrubs and compactions, and what is known of their sizes.

use super::{SMALL_BYTES, Tablet, TabletStatistics};
use crate::error::StorageError;
use crate::files::{FileContents, FilesKept, TabletFiles};
use crate::table_options::CompactionStyle;
use rust_rocksdb::{DBRawIterator, ReadOptions, properties};

impl Tablet {
    /// Reads what is stored of keys from `start` on, past the block cache, until about `most_bytes` are read. Returns how many
    /// that was, and where to go on; `None`: this was all.
    ///
    /// # Errors
    /// A block that is not what was written, or cannot be read.
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
        if let Err(error) = self.flushed_state() {
            tracing::warn!(directory = %self.directory.display(), %error, "could not read the flushed state");
        }
        self.db.compact_range(None::<&[u8]>, None::<&[u8]>);
    }

    /// Does what is due of compactions that RocksDB does not choose, and waits for it; to be called now and then.
    ///
    /// # Errors
    /// If the disk has one.
    pub fn compact_due(&self) -> Result<(), StorageError> {
        let style = self.options.compaction;
        if let CompactionStyle::TimeWindow { window_s } = style {
            return self.compact_windows(window_s);
        }
        if let Some((start, end)) = self.dead_rows.take_due() {
            self.flush(true)?;
            self.flushed_state()?;
            if self.files_bytes() < SMALL_BYTES {
                // Once into the last level, and once there: what was written as a part of a row is whole then.
                self.compact();
                self.compact();
            } else {
                self.db.suggest_compact_range(Some(start), Some(end))?;
            }
        }
        Ok(())
    }

    /// Sizes, for metrics. What only a flush or a compaction changes is looked at only after one.
    pub fn statistics(&self) -> TabletStatistics {
        let property = |name| self.db.property_int_value(name).ok().flatten().unwrap_or(0);
        // Before it is looked at what they have changed: at worst it is looked at once more than needed.
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

    /// Its SSTables. Looks at them only when a flush or a compaction has changed them since.
    pub fn files(&self) -> TabletFiles {
        // Before it is looked at what it has changed, see `statistics`.
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

    /// Finds out how much its SSTables hold. That asks each of them, so it is not for every report; nothing happens if it is known already. Returns
    /// whether the files were asked.
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

    /// Bytes that a copy of it would have, about: its live files, and what is still in memory.
    pub fn size_bytes(&self) -> u64 {
        self.files_bytes() + self.memtable_bytes()
    }

    /// Bytes of its live files.
    pub fn files_bytes(&self) -> u64 {
        self.db.property_int_value(properties::LIVE_SST_FILES_SIZE).ok().flatten().unwrap_or(0)
    }

    /// Memory that reading its files takes beside the block cache, estimated.
    pub fn reader_bytes(&self) -> u64 {
        self.db.property_int_value(properties::ESTIMATE_TABLE_READERS_MEM).ok().flatten().unwrap_or(0)
    }

    /// Bytes that are still in memory only.
    pub fn memtable_bytes(&self) -> u64 {
        self.db.property_int_value(properties::CUR_SIZE_ALL_MEM_TABLES).ok().flatten().unwrap_or(0)
    }
}
