//! Records which files of a Raft log are no longer needed.
//!
//! When the engine frees files, it keeps the oldest ones under their names, to use them again, and deletes the ones
//! after them. So a gap in the numbers of the files is usual after a crash, and the files before the gap are obsolete.
//! A file that something else has deleted leaves a gap too, and then acknowledged writes are lost. To distinguish the
//! two, the number of a file is recorded durably before the engine deletes the file: no file up to that number is
//! needed any more.
//!
//! Always true: no file that is still needed has a number up to the recorded one. The record is written in place, so
//! that files can be freed even on a full disk. Left out: files that the engine keeps for reuse; they are obsolete as
//! well, and complete.
//!
//! ```text
//! FREED  two slots of 512 bytes, of which the valid one with the greater count holds
//! slot   count u64, number of an appended file u64, number of a rewritten file u64, CRC-32 of these u32; little-endian
//! ```

use crate::log_queue::Queue;
use parking_lot::Mutex;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The record's name, in the log's folder.
pub(crate) const FREED: &str = "FREED";

const SLOT_BYTES: usize = 512;
const VALUE_BYTES: usize = 24;

/// For each queue, the number of the newest deleted file: no file up to it is needed; 0: none was deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Freed {
    pub(crate) append: u64,
    pub(crate) rewrite: u64,
}

impl Freed {
    pub(crate) fn of(self, queue: Queue) -> u64 {
        match queue {
            Queue::Append => self.append,
            Queue::Rewrite => self.rewrite,
        }
    }

    pub(crate) fn set(&mut self, queue: Queue, number: u64) {
        match queue {
            Queue::Append => self.append = number,
            Queue::Rewrite => self.rewrite = number,
        }
    }

    /// The record in the folder of a log; `None` for a log of a version without one.
    pub(crate) fn read(directory: &Path) -> io::Result<Option<Self>> {
        match fs::read(directory.join(FREED)) {
            Ok(bytes) => Ok(newest(&bytes).map(|(_, freed)| freed)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The record of an open log.
pub(crate) struct FreedRecord {
    file: File,
    /// How often the record was written, and its content.
    now: Mutex<(u64, Freed)>,
}

impl FreedRecord {
    /// Opens the record in the folder of a log, and sets it to `freed`.
    pub(crate) fn open(directory: &Path, freed: Freed) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let path = directory.join(FREED);
        let before = fs::read(&path).ok().and_then(|bytes| newest(&bytes));
        let file = File::options().write(true).create(true).truncate(false).open(path)?;
        let record = Self { file, now: Mutex::new(before.unwrap_or_default()) };
        if before.is_none_or(|(_, before)| before != freed) {
            record.file.set_len(2 * SLOT_BYTES as u64)?;
            record.write(&mut record.now.lock(), freed)?;
            File::open(directory)?.sync_all()?;
        }
        Ok(record)
    }

    /// Records that no file of the queue up to this one is needed. The record is durable when this returns.
    pub(crate) fn advance(&self, queue: Queue, number: u64) -> io::Result<()> {
        let mut now = self.now.lock();
        let mut freed = now.1;
        if freed.of(queue) >= number {
            return Ok(());
        }
        freed.set(queue, number);
        self.write(&mut now, freed)
    }

    fn write(&self, now: &mut (u64, Freed), freed: Freed) -> io::Result<()> {
        let count = now.0 + 1;
        let mut slot = [0; SLOT_BYTES];
        for (place, number) in slot.chunks_exact_mut(8).zip([count, freed.append, freed.rewrite]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let sum = crc32fast::hash(&slot[..VALUE_BYTES]);
        slot[VALUE_BYTES..VALUE_BYTES + 4].copy_from_slice(&sum.to_le_bytes());
        self.file.write_all_at(&slot, count % 2 * SLOT_BYTES as u64)?;
        self.file.sync_all()?;
        *now = (count, freed);
        Ok(())
    }
}

/// The valid slot with the greater count.
fn newest(bytes: &[u8]) -> Option<(u64, Freed)> {
    bytes.chunks_exact(SLOT_BYTES).filter_map(slot).max_by_key(|(count, _)| *count)
}

fn slot(bytes: &[u8]) -> Option<(u64, Freed)> {
    let (value, rest) = bytes.split_at_checked(VALUE_BYTES)?;
    if rest.first_chunk() != Some(&crc32fast::hash(value).to_le_bytes()) {
        return None;
    }
    let number = |at| value[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    Some((number(0)?, Freed { append: number(8)?, rewrite: number(16)? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_record_that_was_written_whole_holds() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(Freed::read(home.path()).unwrap(), None);
        let record = FreedRecord::open(home.path(), Freed::default()).unwrap();
        assert_eq!(Freed::read(home.path()).unwrap(), Some(Freed::default()));
        record.advance(Queue::Append, 7).unwrap();
        record.advance(Queue::Rewrite, 2).unwrap();
        record.advance(Queue::Append, 5).unwrap();
        assert_eq!(Freed::read(home.path()).unwrap(), Some(Freed { append: 7, rewrite: 2 }));
        // The third write was cut short: the second one is valid.
        let file = File::options().write(true).open(home.path().join(FREED)).unwrap();
        file.write_all_at(&[0xff; 9], SLOT_BYTES as u64).unwrap();
        assert_eq!(Freed::read(home.path()).unwrap(), Some(Freed { append: 7, rewrite: 0 }));
        // The log is started anew.
        let again = FreedRecord::open(home.path(), Freed::default()).unwrap();
        assert_eq!(Freed::read(home.path()).unwrap(), Some(Freed::default()));
        again.advance(Queue::Append, 1).unwrap();
        assert_eq!(Freed::read(home.path()).unwrap(), Some(Freed { append: 1, rewrite: 0 }));
    }
}
