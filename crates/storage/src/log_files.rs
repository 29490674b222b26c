//! The files of a Raft log, made ready before they are needed.
//!
//! An append to a file that is already there and full of zeros changes no metadata of the file system, so that an fsync is a single write and does not wait
//! for whatever else the file system has to record. The log engine recycles its files, but only once the log is near its limit. Until then a thread keeps one
//! file ready here, which takes the place of one that the engine would begin empty.
//!
//! Always true: a file that is ready is as long as a log file and durable as a whole; where none is ready, or the disk is short of space, the engine begins an
//! empty file as it would without this.

use crate::raft_log::FILE_BYTES;
use raft_engine::env::{DefaultFileSystem, FileSystem, Permission};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

/// What is written and made durable at a time: so long the log's own fsyncs may have to wait.
const STEP_BYTES: usize = 1 << 20;

/// With less than this free nothing is prepared.
const FREE_BYTES: u64 = 16 * FILE_BYTES;

/// What the log and the thread beside it both know.
struct Spare {
    directory: PathBuf,
    is_ready: AtomicBool,
    /// The log is about to be closed.
    ends: AtomicBool,
}

impl Spare {
    fn ready(&self) -> PathBuf {
        self.directory.join("spare")
    }

    fn unfinished(&self) -> PathBuf {
        self.directory.join("spare.part")
    }

    /// Takes over what an earlier life has left.
    fn find(directory: &Path) -> Self {
        let spare =
            Self { directory: directory.to_owned(), is_ready: AtomicBool::new(false), ends: AtomicBool::new(false) };
        // Whether there was one or not.
        let _ = fs::remove_file(spare.unfinished());
        let is_whole = fs::metadata(spare.ready()).is_ok_and(|found| found.len() == FILE_BYTES);
        spare.is_ready.store(is_whole, Ordering::Relaxed);
        spare
    }

    /// Puts the file that is ready in this place; whether there was one.
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
        for _ in 0..FILE_BYTES / STEP_BYTES as u64 {
            if self.ends.load(Ordering::Relaxed) {
                return fs::remove_file(self.unfinished());
            }
            file.write_all(&zeros)?;
            file.sync_data()?;
        }
        fs::rename(self.unfinished(), self.ready())?;
        self.is_ready.store(true, Ordering::Release);
        Ok(())
    }

    fn keep_ready(&self, asked: &Receiver<()>) {
        while asked.recv().is_ok() {
            if let Err(error) = self.prepare() {
                // If the disk is at its end the log will find that out by itself.
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

/// The engine's file system, with files that are ready where it would create empty ones.
pub(crate) struct LogFiles {
    spare: Arc<Spare>,
    preparer: OnceLock<Preparer>,
}

impl LogFiles {
    /// Files in `directory`; none is prepared yet.
    pub(crate) fn new(directory: &Path) -> Self {
        Self { spare: Arc::new(Spare::find(directory)), preparer: OnceLock::new() }
    }

    /// From now on one is kept ready.
    #[allow(clippy::disallowed_methods, reason = "joined when the log is dropped")]
    pub(crate) fn prepare_ahead(&self) -> io::Result<()> {
        let (ask, asked) = sync_channel(1);
        let spare = Arc::clone(&self.spare);
        let thread = thread::Builder::new().name("log-files".to_owned()).spawn(move || spare.keep_ready(&asked))?;
        let _ = self.preparer.set(Preparer { ask, thread });
        self.ask();
        Ok(())
    }

    fn ask(&self) {
        if let Some(preparer) = self.preparer.get() {
            // It has been asked already, if it cannot be asked.
            let _ = preparer.ask.try_send(());
        }
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
    type Handle = <DefaultFileSystem as FileSystem>::Handle;
    type Reader = <DefaultFileSystem as FileSystem>::Reader;
    type Writer = <DefaultFileSystem as FileSystem>::Writer;

    fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<Self::Handle> {
        let is_taken = self.spare.take(path.as_ref());
        self.ask();
        if is_taken { self.open(path, Permission::ReadWrite) } else { DefaultFileSystem.create(path) }
    }

    fn open<P: AsRef<Path>>(&self, path: P, permission: Permission) -> io::Result<Self::Handle> {
        DefaultFileSystem.open(path, permission)
    }

    fn delete<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        DefaultFileSystem.delete(path)
    }

    fn rename<P: AsRef<Path>>(&self, from: P, to: P) -> io::Result<()> {
        DefaultFileSystem.rename(from, to)
    }

    fn reuse<P: AsRef<Path>>(&self, from: P, to: P) -> io::Result<()> {
        self.ask();
        self.rename(from, to)
    }

    fn new_reader(&self, handle: Arc<Self::Handle>) -> io::Result<Self::Reader> {
        DefaultFileSystem.new_reader(handle)
    }

    fn new_writer(&self, handle: Arc<Self::Handle>) -> io::Result<Self::Writer> {
        DefaultFileSystem.new_writer(handle)
    }
}
