//! The files of a Raft log, allocated before they are needed.
//!
//! An append to a file that exists and is full of zeros changes no file system metadata, so an fsync is a single write
//! and does not wait for the file system's journal. The log engine recycles its files, but only once the log is near
//! its limit. Until then, a thread keeps one file ready, which is used when the engine would create an empty one.
//!
//! This module also tracks the position up to which the files are durable ([`DurableEnds`]), which the log records with
//! each write, and writes zeros ([`END_BYTES`]) after each write, so that a log that ends at its last write can be
//! distinguished from one that a damaged block cuts short (`log_audit`).
//!
//! Always true: a prepared file is as long as a log file, and durable as a whole. If none is ready, or the disk lacks
//! space, the engine creates an empty file, as it would without this module. A durable end is the end of a write, never
//! within one.

use crate::log_freed::FreedRecord;
use crate::log_queue::{Queue, numbered};
use crate::precedence::run_at_lower_priority;
use parking_lot::Mutex;
use raft_engine::env::{FileSystem, Handle, Permission, WriteExt};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, pwritev};
use std::fs::{self, File};
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

/// Bytes that are written at a time. Other threads may have to wait for the processor for that long.
const STEP_BYTES: usize = 256 << 10;

/// Bytes that are made durable at a time. The log's own fsyncs may have to wait for that long.
const DURABLE_BYTES: u64 = 1 << 20;

/// The size of a log file. Files are recycled as a whole, so space is freed in units of this size.
pub const FILE_BYTES: u64 = 16 << 20;

/// With less free space than this, no file is prepared.
const FREE_BYTES: u64 = 16 * FILE_BYTES;

/// Zeros after the last write, where the file continues: no block begins with so many zeros. A recycled file contains
/// blocks of its former use there.
pub(crate) const END_BYTES: usize = 16;

/// The position up to which the two queues are durable: the number of a file and an offset in it. Ordered; 0 while
/// nothing is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Durable {
    pub(crate) append: (u64, u64),
    pub(crate) rewrite: (u64, u64),
}

impl Durable {
    pub(crate) fn of(&self, queue: Queue) -> (u64, u64) {
        match queue {
            Queue::Append => self.append,
            Queue::Rewrite => self.rewrite,
        }
    }

    pub(crate) fn max(self, other: Self) -> Self {
        Self { append: self.append.max(other.append), rewrite: self.rewrite.max(other.rewrite) }
    }
}

/// A growing [`Durable`]. Files are shorter than 4 GiB, and their number fits into 32 bits.
#[derive(Debug, Default)]
struct DurableEnds {
    append: AtomicU64,
    rewrite: AtomicU64,
}

impl DurableEnds {
    fn of(known: Durable) -> Self {
        let ends = Self::default();
        ends.advance((Queue::Append, known.append.0), known.append.1);
        ends.advance((Queue::Rewrite, known.rewrite.0), known.rewrite.1);
        ends
    }

    fn advance(&self, (queue, file): (Queue, u64), offset: u64) {
        let end = match queue {
            Queue::Append => &self.append,
            Queue::Rewrite => &self.rewrite,
        };
        end.fetch_max(file << 32 | offset.min(u64::from(u32::MAX)), Ordering::AcqRel);
    }

    fn now(&self) -> Durable {
        let split = |end: &AtomicU64| {
            let end = end.load(Ordering::Acquire);
            (end >> 32, end & u64::from(u32::MAX))
        };
        Durable { append: split(&self.append), rewrite: split(&self.rewrite) }
    }
}

/// State shared by the log and the preparing thread.
struct Spare {
    directory: PathBuf,
    is_ready: AtomicBool,
    /// Whether the log is about to be closed.
    ends: AtomicBool,
}

impl Spare {
    fn ready(&self) -> PathBuf {
        self.directory.join("spare")
    }

    fn unfinished(&self) -> PathBuf {
        self.directory.join("spare.part")
    }

    /// Takes over the files that an earlier process has prepared.
    fn find(directory: &Path) -> Self {
        let spare =
            Self { directory: directory.to_owned(), is_ready: AtomicBool::new(false), ends: AtomicBool::new(false) };
        // The file may be absent.
        let _ = fs::remove_file(spare.unfinished());
        let is_whole = fs::metadata(spare.ready()).is_ok_and(|found| found.len() == FILE_BYTES);
        spare.is_ready.store(is_whole, Ordering::Relaxed);
        spare
    }

    /// Moves the prepared file to this path; returns whether there was one.
    fn take(&self, path: &Path) -> bool {
        self.is_ready.swap(false, Ordering::AcqRel) && fs::rename(self.ready(), path).is_ok()
    }

    fn prepare(&self) -> io::Result<()> {
        let space = rustix::fs::statvfs(&self.directory)?;
        if self.is_ready.load(Ordering::Acquire) || space.f_bavail * space.f_frsize < FREE_BYTES {
            return Ok(());
        }
        let zeros = vec![0; STEP_BYTES];
        let mut file = File::create(self.unfinished())?;
        for end in (1..=FILE_BYTES / STEP_BYTES as u64).map(|step| step * STEP_BYTES as u64) {
            if self.ends.load(Ordering::Relaxed) {
                return fs::remove_file(self.unfinished());
            }
            file.write_all(&zeros)?;
            match end % DURABLE_BYTES {
                0 => file.sync_data()?,
                _ => thread::yield_now(),
            }
        }
        fs::rename(self.unfinished(), self.ready())?;
        self.is_ready.store(true, Ordering::Release);
        Ok(())
    }

    fn keep_ready(&self, asked: &Receiver<()>) {
        run_at_lower_priority();
        while asked.recv().is_ok() {
            if let Err(error) = self.prepare() {
                // If the disk is full, the log will notice by itself.
                tracing::debug!(directory = %self.directory.display(), %error, "could not prepare a log file");
                let _ = fs::remove_file(self.unfinished());
            }
        }
    }
}

struct Preparer {
    ask: SyncSender<()>,
    thread: JoinHandle<()>,
}

/// One file of the log.
pub(crate) struct LogFile {
    file: File,
    /// Its queue and number, if its name is that of a log file.
    number: Option<(Queue, u64)>,
    /// The end of the last complete write; 0 if nothing was written since the file was opened.
    end: AtomicU64,
    ends: Arc<DurableEnds>,
}

impl Handle for LogFile {
    fn truncate(&self, offset: usize) -> io::Result<()> {
        self.file.set_len(offset as u64)
    }

    fn file_size(&self) -> io::Result<usize> {
        Ok(self.file.metadata()?.len() as usize)
    }

    fn sync(&self) -> io::Result<()> {
        // Bytes written from here on may or may not be durable after the fsync.
        let end = self.end.load(Ordering::Acquire);
        self.file.sync_data()?;
        if let Some(number) = self.number.filter(|_| end > 0) {
            self.ends.advance(number, end);
        }
        Ok(())
    }
}

/// Reads a file of the log, with a position of its own.
pub(crate) struct LogFileReader {
    file: Arc<LogFile>,
    offset: u64,
}

impl Read for LogFileReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

impl Seek for LogFileReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.offset = sought(&self.file, self.offset, to)?;
        Ok(self.offset)
    }
}

/// Writes to a file of the log.
pub(crate) struct LogFileWriter {
    file: Arc<LogFile>,
    offset: u64,
    /// The length of the file.
    size: u64,
}

impl Write for LogFileWriter {
    /// Writes the whole buffer, so that the recorded end of the file is the end of a block.
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let end = self.offset + buffer.len() as u64;
        // Beyond the end of the file there are no blocks of a former use.
        let zeros = &[0; END_BYTES][..self.size.saturating_sub(end).min(END_BYTES as u64) as usize];
        let at_once = match pwritev(&self.file.file, &[IoSlice::new(buffer), IoSlice::new(zeros)], self.offset) {
            Ok(written) => written,
            Err(Errno::INTR) => 0,
            // The engine recognizes a full disk by this text.
            Err(Errno::NOSPC) => return Err(io::Error::new(io::ErrorKind::StorageFull, "nospace")),
            Err(error) => return Err(error.into()),
        };
        if let Some(rest) = buffer.get(at_once..) {
            self.file.file.write_all_at(rest, self.offset + at_once as u64)?;
        }
        if at_once < buffer.len() + zeros.len() {
            self.file.file.write_all_at(zeros, end)?;
        }
        (self.offset, self.size) = (end, self.size.max(end));
        self.file.end.store(end, Ordering::Release);
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for LogFileWriter {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.offset = sought(&self.file, self.offset, to)?;
        Ok(self.offset)
    }
}

impl WriteExt for LogFileWriter {
    fn truncate(&mut self, offset: usize) -> io::Result<()> {
        self.file.truncate(offset)?;
        (self.offset, self.size) = (offset as u64, offset as u64);
        Ok(())
    }

    fn allocate(&mut self, offset: usize, size: usize) -> io::Result<()> {
        match fallocate(&self.file.file, FallocateFlags::empty(), offset as u64, size as u64) {
            Ok(()) => self.size = self.size.max((offset + size) as u64),
            Err(Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

fn sought(file: &LogFile, offset: u64, to: SeekFrom) -> io::Result<u64> {
    let (from, by) = match to {
        SeekFrom::Start(offset) => return Ok(offset),
        SeekFrom::Current(by) => (offset, by),
        SeekFrom::End(by) => (file.file_size()? as u64, by),
    };
    from.checked_add_signed(by).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// The engine's file system, with prepared files in place of new empty ones.
pub(crate) struct LogFiles {
    spare: Arc<Spare>,
    preparer: OnceLock<Preparer>,
    ends: Arc<DurableEnds>,
    freed: FreedRecord,
    /// The file that is appended to.
    active: Mutex<Option<Arc<LogFile>>>,
}

impl LogFiles {
    /// The files in `directory`, durable up to `known`; none is prepared yet.
    pub(crate) fn new(directory: &Path, known: Durable, freed: FreedRecord) -> Self {
        Self {
            spare: Arc::new(Spare::find(directory)),
            preparer: OnceLock::new(),
            ends: Arc::new(DurableEnds::of(known)),
            freed,
            active: Mutex::default(),
        }
    }

    /// Starts the thread that keeps one file prepared.
    #[allow(clippy::disallowed_methods, reason = "joined when the log is dropped")]
    pub(crate) fn prepare_ahead(&self) -> io::Result<()> {
        let (ask, asked) = sync_channel(1);
        let spare = Arc::clone(&self.spare);
        let thread = thread::Builder::new().name("log-files".to_owned()).spawn(move || spare.keep_ready(&asked))?;
        let _ = self.preparer.set(Preparer { ask, thread });
        self.ask();
        Ok(())
    }

    /// Makes everything appended so far durable. Files before the active one are durable already: the engine syncs a
    /// file before it leaves it.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let active = self.active.lock().clone();
        active.map_or(Ok(()), |active| active.sync())
    }

    /// The position up to which the files are durable.
    pub(crate) fn durable(&self) -> Durable {
        self.ends.now()
    }

    fn ask(&self) {
        if let Some(preparer) = self.preparer.get() {
            // A failure to send means that a request is pending already.
            let _ = preparer.ask.try_send(());
        }
    }

    fn opened(&self, path: &Path, options: &fs::OpenOptions) -> io::Result<LogFile> {
        let (file, number) = (options.open(path)?, numbered(path));
        Ok(LogFile { file, number, end: AtomicU64::new(0), ends: Arc::clone(&self.ends) })
    }
}

impl Drop for LogFiles {
    fn drop(&mut self) {
        self.spare.ends.store(true, Ordering::Relaxed);
        if let Some(Preparer { ask, thread }) = self.preparer.take() {
            drop(ask);
            let _ = thread.join();
        }
    }
}

impl FileSystem for LogFiles {
    type Handle = LogFile;
    type Reader = LogFileReader;
    type Writer = LogFileWriter;

    fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<LogFile> {
        // Uses the prepared file if there is one; the file is opened either way.
        self.spare.take(path.as_ref());
        self.ask();
        self.opened(path.as_ref(), File::options().read(true).write(true).create(true).truncate(false))
    }

    fn open<P: AsRef<Path>>(&self, path: P, permission: Permission) -> io::Result<LogFile> {
        let is_written = permission == Permission::ReadWrite;
        self.opened(path.as_ref(), File::options().read(true).write(is_written))
    }

    fn delete<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        // The engine deletes a file only if it needs neither this file nor an older one.
        if let Some((queue, number)) = numbered(path.as_ref()) {
            self.freed.advance(queue, number)?;
        }
        fs::remove_file(path)
    }

    fn rename<P: AsRef<Path>>(&self, from: P, to: P) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn reuse<P: AsRef<Path>>(&self, from: P, to: P) -> io::Result<()> {
        self.ask();
        self.rename(from, to)
    }

    fn new_reader(&self, handle: Arc<LogFile>) -> io::Result<LogFileReader> {
        Ok(LogFileReader { file: handle, offset: 0 })
    }

    fn new_writer(&self, handle: Arc<LogFile>) -> io::Result<LogFileWriter> {
        if handle.number.is_some_and(|(queue, _)| queue == Queue::Append) {
            *self.active.lock() = Some(Arc::clone(&handle));
        }
        let size = handle.file_size()? as u64;
        Ok(LogFileWriter { file: handle, offset: 0, size })
    }
}
