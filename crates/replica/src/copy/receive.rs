//! Receiving copies: a thread writes what arrives, and puts a complete copy in the place of the replica.

use super::Copies;
use super::wire::Frame;
use crate::worker::Command;
use ahash::AHashMap;
use diorite_base::{NodeId, TabletId};
use parking_lot::Mutex;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Frames that wait to be written; senders keep to their windows, so that it takes many copies at once to fill it.
const WAITING_FRAMES: usize = 256;
/// Copies received at a time.
const AT_A_TIME: usize = 8;
/// How long readers of the old data are waited for.
const READER_CHECKS: u32 = 1_000;
const READER_CHECK: Duration = Duration::from_millis(10);

/// A frame and who sent it.
type Arrived = (NodeId, Vec<u8>);

/// The receiving thread, which starts with the first copy.
#[derive(Default)]
enum Thread {
    #[default]
    NotStarted,
    Running(SyncSender<Arrived>, JoinHandle<()>),
    Closed,
}

#[derive(Default)]
pub(super) struct Receiving {
    thread: Mutex<Thread>,
}

impl Receiving {
    /// Takes nothing more; returns the thread, which ends soon.
    pub(super) fn close(&self) -> Option<JoinHandle<()>> {
        match std::mem::replace(&mut *self.thread.lock(), Thread::Closed) {
            Thread::Running(_, thread) => Some(thread),
            Thread::NotStarted | Thread::Closed => None,
        }
    }
}

/// Hands a frame to the receiving thread.
pub(super) fn take(copies: &Arc<Copies>, from: NodeId, frame: &Frame<'_>) {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    let mut thread = copies.receiving.thread.lock();
    if matches!(*thread, Thread::NotStarted) {
        match start(copies) {
            Ok(running) => *thread = running,
            Err(error) => tracing::warn!(%error, "could not start a thread for copies"),
        }
    }
    let Thread::Running(inbox, _) = &*thread else { return };
    // A lost piece shows: offsets would not fit, and the sender is told.
    if let Err(TrySendError::Full(_)) = inbox.try_send((from, bytes)) {
        tracing::warn!(%from, "too many pieces of copies wait to be written");
    }
}

#[allow(clippy::disallowed_methods, reason = "the receiving thread; joined when the store stops")]
fn start(copies: &Arc<Copies>) -> std::io::Result<Thread> {
    let (sender, receiver) = sync_channel(WAITING_FRAMES);
    let weak = Arc::downgrade(copies);
    let thread = std::thread::Builder::new().name("copy-in".to_owned()).spawn(move || run(&weak, &receiver))?;
    Ok(Thread::Running(sender, thread))
}

/// A copy that is being received.
struct Incoming {
    tablet: TabletId,
    /// The log index up to which it holds everything, at least.
    applied: u64,
    directory: PathBuf,
    disk: usize,
    file: Option<(String, File, u64)>,
    files: u64,
    bytes: u64,
}

fn run(copies: &std::sync::Weak<Copies>, inbox: &Receiver<Arrived>) {
    let mut under_way: AHashMap<(NodeId, u64), Incoming> = AHashMap::default();
    while let Ok((from, bytes)) = inbox.recv() {
        let (Some(copies), Ok(frame)) = (copies.upgrade(), Frame::decode(&bytes)) else { continue };
        let (Frame::Begin { copy, .. } | Frame::Piece { copy, .. } | Frame::End { copy, .. }) = frame else { continue };
        let answer = match copies.step(&mut under_way, from, &frame) {
            Ok(None) => continue,
            Ok(Some(answer)) => answer,
            Err(failure) => {
                if let Some(incoming) = under_way.remove(&(from, copy)) {
                    tracing::warn!(tablet = %incoming.tablet, %from, failure, "a copy could not be taken");
                    // What cannot be removed now goes at the next start.
                    let _ = fs::remove_dir_all(&incoming.directory);
                }
                if copies.put(from, &Frame::Ended { copy, failure: &failure }).is_err() {
                    tracing::debug!(%from, "the sender of a copy is gone");
                }
                continue;
            }
        };
        // A sender that does not hear it gives up after a while.
        let _ = copies.put(from, &answer);
    }
}

impl Copies {
    fn step(
        &self,
        under_way: &mut AHashMap<(NodeId, u64), Incoming>,
        from: NodeId,
        frame: &Frame<'_>,
    ) -> Result<Option<Frame<'static>>, String> {
        match *frame {
            Frame::Begin { copy, tablet, applied } => {
                // A former attempt from anybody is void.
                under_way.retain(|_, incoming| incoming.tablet != tablet);
                if under_way.len() >= AT_A_TIME {
                    return Err("too many copies at a time".to_owned());
                }
                under_way.insert((from, copy), self.prepare(tablet, applied)?);
                Ok(None)
            }
            Frame::Piece { copy, name, offset, data } => {
                let incoming = under_way.get_mut(&(from, copy)).ok_or("the copy is not known here")?;
                incoming.write(name, offset, data)?;
                Ok(Some(Frame::Taken { copy, bytes: incoming.bytes }))
            }
            Frame::End { copy, files, bytes } => {
                let incoming = under_way.get_mut(&(from, copy)).ok_or("the copy is not known here")?;
                incoming.finish(files, bytes)?;
                self.install(incoming)?;
                under_way.remove(&(from, copy));
                Ok(Some(Frame::Ended { copy, failure: "" }))
            }
            _ => Ok(None),
        }
    }

    fn prepare(&self, tablet: TabletId, applied: u64) -> Result<Incoming, String> {
        let handle = self.inner.tablets.load().get(&tablet).cloned().ok_or("there is no such replica here")?;
        let directory = self.inner.disks[handle.disk].directory.staged(tablet.0, "incoming");
        if directory.is_dir() {
            fs::remove_dir_all(&directory).map_err(|error| error.to_string())?;
        }
        fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
        Ok(Incoming { tablet, applied, directory, disk: handle.disk, file: None, files: 0, bytes: 0 })
    }

    /// Puts a complete copy in the place of the replica.
    fn install(&self, incoming: &Incoming) -> Result<(), String> {
        let tablet = incoming.tablet;
        let openings = self.openings.get().ok_or("this node takes no copies yet")?;
        let opening = openings.opening(tablet).ok_or("there is no such replica here any more")?;
        let handle = self.inner.tablets.load().get(&tablet).cloned().ok_or("there is no such replica here")?;
        let (sender, receiver) = sync_channel(1);
        self.inner.queues[handle.worker].command(Command::Detach(tablet, sender));
        receiver.recv().map_err(|_| "the node is stopping")?.map_err(|error| error.to_string())?;
        self.inner.update_tablets(|tablets| {
            tablets.remove(&tablet);
        });
        // A copy that took long may be older than what the replica has got since, and than the beginning of its log.
        let is_newer = handle.data().applied_state().is_ok_and(|own| incoming.applied > own.index);
        // RocksDB must be closed before its files are replaced: whoever still reads finishes.
        let data = Arc::downgrade(handle.data());
        drop(handle);
        let (_never, wait) = sync_channel::<()>(1);
        let is_closed = (0..READER_CHECKS).any(|_| data.strong_count() == 0 || wait.recv_timeout(READER_CHECK).is_ok());
        let directory = &self.inner.disks[incoming.disk].directory;
        let installed = if !is_newer {
            Err("the replica has got further meanwhile".to_owned())
        } else if is_closed {
            directory.install(tablet.0, &incoming.directory).map_err(|error| error.to_string())
        } else {
            Err("somebody still reads the old data".to_owned())
        };
        // The old data or the new: the replica goes on.
        self.inner.open(vec![opening]).map_err(|error| error.to_string())?;
        if installed.is_ok() {
            tracing::info!(%tablet, bytes = incoming.bytes, "a copy has taken the place of the replica");
        }
        installed
    }
}

impl Incoming {
    fn write(&mut self, name: &str, offset: u64, data: &[u8]) -> Result<(), String> {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
        if !is_plain || name.is_empty() || name.starts_with('.') {
            return Err(format!("{name:?} is no name of a file of a copy"));
        }
        let is_next = self.file.as_ref().is_some_and(|(open, _, length)| open == name && *length == offset);
        if !is_next {
            if offset != 0 {
                return Err(format!("a piece of {name} is missing before {offset}"));
            }
            self.sync()?;
            let file = OpenOptions::new().create_new(true).write(true).open(self.directory.join(name));
            self.file = Some((name.to_owned(), file.map_err(|error| error.to_string())?, 0));
            self.files += 1;
        }
        let Some((_, file, length)) = &mut self.file else { return Err("no file is open".to_owned()) };
        file.write_all(data).map_err(|error| error.to_string())?;
        *length += data.len() as u64;
        self.bytes += data.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), String> {
        match self.file.take() {
            Some((_, file, _)) => file.sync_all().map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    fn finish(&mut self, files: u64, bytes: u64) -> Result<(), String> {
        self.sync()?;
        if (self.files, self.bytes) != (files, bytes) {
            return Err(format!("{} files of {} bytes came, not {files} of {bytes}", self.files, self.bytes));
        }
        File::open(&self.directory).and_then(|directory| directory.sync_all()).map_err(|error| error.to_string())
    }
}
