//! Sending copies: one thread per copy, a few at a time.

use super::Copies;
use super::wire::Frame;
use ahash::AHashMap;
use diorite_base::{GroupId, NodeId, TabletId};
use diorite_rpc::{Lane, SendError};
use parking_lot::{Condvar, Mutex};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Copies sent at a time.
const AT_A_TIME: usize = 4;
/// A file is sent in pieces of this size.
const PIECE_BYTES: usize = 256 << 10;
/// Bytes in flight per copy.
const WINDOW_BYTES: u64 = 8 << 20;
/// After a copy, the replica is given this long, nanoseconds, to say how far it is before it is sent another.
const PAUSE_NS: u64 = 3_000_000_000;
/// How long a receiver that does not answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the receiver of a copy has said so far.
#[derive(Default)]
struct Progress {
    taken_bytes: u64,
    ended: Option<Result<(), String>>,
}

/// A copy that is being sent, as seen from the thread that hears the answers.
#[derive(Default)]
struct Outgoing {
    progress: Mutex<Progress>,
    changed: Condvar,
}

/// The copies that are being sent.
#[derive(Default)]
pub(super) struct Sending {
    under_way: AHashMap<(TabletId, NodeId), (u64, Arc<Outgoing>)>,
    /// When copies ended, monotonic nanoseconds.
    ended_ns: AHashMap<(TabletId, NodeId), u64>,
    threads: Vec<JoinHandle<()>>,
    next: u64,
    closed: bool,
}

impl Sending {
    /// Ends all; returns the threads, which end soon.
    pub(super) fn close(&mut self) -> Vec<JoinHandle<()>> {
        self.closed = true;
        for (_, outgoing) in self.under_way.values() {
            outgoing.progress.lock().ended = Some(Err("the node is stopping".to_owned()));
            outgoing.changed.notify_all();
        }
        std::mem::take(&mut self.threads)
    }
}

/// Spreads bytes over time.
pub(super) struct Pace {
    bytes_per_second: AtomicU64,
    /// The monotonic time at which all that was let through so far is paid for; `u64::MAX` when closed.
    paid_ns: Mutex<u64>,
    wake: Condvar,
}

impl Pace {
    pub(super) fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: AtomicU64::new(bytes_per_second), paid_ns: Mutex::new(0), wake: Condvar::new() }
    }

    pub(super) fn set_rate(&self, bytes_per_second: u64) {
        self.bytes_per_second.store(bytes_per_second.max(1), Ordering::Relaxed);
        self.wake.notify_all();
    }

    pub(super) fn close(&self) {
        *self.paid_ns.lock() = u64::MAX;
        self.wake.notify_all();
    }

    /// Waits until `bytes` may be sent; false when closed.
    fn wait(&self, bytes: u64, now_ns: impl Fn() -> u64) -> bool {
        let mut paid_ns = self.paid_ns.lock();
        loop {
            let now = now_ns();
            if *paid_ns == u64::MAX {
                return false;
            }
            if *paid_ns <= now {
                let price_ns = bytes.saturating_mul(1_000_000_000) / self.bytes_per_second.load(Ordering::Relaxed);
                *paid_ns = now + price_ns;
                return true;
            }
            let left = Duration::from_nanos(*paid_ns - now);
            self.wake.wait_for(&mut paid_ns, left);
        }
    }
}

impl Copies {
    /// Starts a copy, unless it is under way or enough others are. Whoever needs it will ask again.
    #[allow(
        clippy::disallowed_methods,
        reason = "a bounded number of threads, each ends with its copy or when the store closes"
    )]
    pub(super) fn begin(self: &Arc<Self>, tablet: TabletId, to: NodeId) {
        if GroupId::from(tablet) == GroupId::CATALOG {
            return;
        }
        let Some(handle) = self.inner.tablets.load().get(&tablet).cloned() else { return };
        let mut sending = self.sending.lock();
        let now_ns = self.inner.context.clock.monotonic_ns();
        sending.ended_ns.retain(|_, ended_ns| now_ns < *ended_ns + PAUSE_NS);
        if sending.ended_ns.contains_key(&(tablet, to)) {
            return;
        }
        if sending.closed || sending.under_way.len() >= AT_A_TIME || sending.under_way.contains_key(&(tablet, to)) {
            return;
        }
        if sending.next == 0 {
            // Another life of this node must not be taken for this one.
            sending.next = self.inner.context.clock.wall_us().unsigned_abs();
        }
        sending.next += 1;
        let (copy, outgoing) = (sending.next, Arc::new(Outgoing::default()));
        sending.under_way.insert((tablet, to), (copy, Arc::clone(&outgoing)));
        let copies = Arc::clone(self);
        let disk = handle.disk;
        let body = move || {
            let staged = copies.inner.disks[disk].directory.staged(tablet.0, &format!("outgoing-{copy}"));
            // Asked before, so that the copy holds at least that.
            let applied = handle.data.applied_state().map_err(|error| error.to_string());
            let made = handle.data.checkpoint(&staged).map_err(|error| error.to_string());
            drop(handle);
            let outcome = applied.and_then(|applied| {
                made?;
                let begin = Frame::Begin { copy, tablet, applied: applied.index };
                copies.send_files(to, &begin, copy, &staged, &outgoing)
            });
            // It may not have come to be.
            let _ = fs::remove_dir_all(&staged);
            let mut sending = copies.sending.lock();
            sending.under_way.remove(&(tablet, to));
            sending.ended_ns.insert((tablet, to), copies.inner.context.clock.monotonic_ns());
            drop(sending);
            match outcome {
                Ok(bytes) => tracing::info!(%tablet, %to, bytes, "a copy of the replica was sent"),
                Err(error) => tracing::warn!(%tablet, %to, error, "a copy of the replica could not be sent"),
            }
        };
        sending.threads.retain(|thread| !thread.is_finished());
        match std::thread::Builder::new().name("copy".to_owned()).spawn(body) {
            Ok(thread) => sending.threads.push(thread),
            Err(error) => {
                sending.under_way.remove(&(tablet, to));
                tracing::warn!(%error, "could not start a thread for a copy");
            }
        }
    }

    fn send_files(
        &self,
        to: NodeId,
        begin: &Frame<'_>,
        copy: u64,
        staged: &Path,
        outgoing: &Outgoing,
    ) -> Result<u64, String> {
        tracing::info!(?begin, %to, "sending a copy of a replica");
        self.put(to, begin)?;
        let (mut files, mut sent) = (0, 0);
        for (name, path) in files_of(staged).map_err(|error| error.to_string())? {
            files += 1;
            sent = self.send_file(to, copy, &name, &path, sent, outgoing)?;
        }
        self.put(to, &Frame::End { copy, files, bytes: sent })?;
        outgoing.wait(|progress| progress.ended.is_some())?;
        Ok(sent)
    }

    fn send_file(
        &self,
        to: NodeId,
        copy: u64,
        name: &str,
        path: &Path,
        mut sent: u64,
        outgoing: &Outgoing,
    ) -> Result<u64, String> {
        let clock = &self.inner.context.clock;
        let mut file = File::open(path).map_err(|error| format!("cannot open {name}: {error}"))?;
        let mut piece = vec![0; PIECE_BYTES];
        let mut offset = 0;
        loop {
            let count = file.read(&mut piece).map_err(|error| format!("cannot read {name}: {error}"))?;
            // An empty file is told by one empty piece.
            if count == 0 && offset > 0 {
                return Ok(sent);
            }
            if !self.pace.wait(count as u64, || clock.monotonic_ns()) {
                return Err("the node is stopping".to_owned());
            }
            outgoing.wait(|progress| progress.taken_bytes + WINDOW_BYTES >= sent)?;
            self.put(to, &Frame::Piece { copy, name, offset, data: &piece[..count] })?;
            offset += count as u64;
            sent += count as u64;
            if count == 0 {
                return Ok(sent);
            }
        }
    }

    pub(super) fn put(&self, to: NodeId, frame: &Frame<'_>) -> Result<(), String> {
        let mut bytes = Vec::with_capacity(PIECE_BYTES + 128);
        frame.encode(&mut bytes);
        let sent = self.inner.context.transport.send(to, Lane::Bulk, &bytes);
        sent.map_err(|error: SendError| error.to_string())
    }

    /// Takes what the receiver of a copy says.
    pub(super) fn answered(&self, from: NodeId, frame: &Frame<'_>) {
        let (Frame::Taken { copy, .. } | Frame::Ended { copy, .. }) = frame else { return };
        let sending = self.sending.lock();
        let found = sending.under_way.iter().find(|((_, to), (known, _))| *to == from && known == copy);
        let Some((_, (_, outgoing))) = found else { return };
        let mut progress = outgoing.progress.lock();
        match frame {
            Frame::Taken { bytes, .. } => progress.taken_bytes = progress.taken_bytes.max(*bytes),
            Frame::Ended { failure, .. } => {
                progress.ended = Some(if failure.is_empty() { Ok(()) } else { Err((*failure).to_owned()) });
            }
            _ => {}
        }
        drop(progress);
        outgoing.changed.notify_all();
    }
}

impl Outgoing {
    /// Waits until `is_so`, or until the receiver has refused.
    fn wait(&self, is_so: impl Fn(&Progress) -> bool) -> Result<(), String> {
        let mut progress = self.progress.lock();
        loop {
            if let Some(Err(error)) = &progress.ended {
                return Err(error.clone());
            }
            if is_so(&progress) {
                return Ok(());
            }
            let before = progress.taken_bytes;
            if self.changed.wait_for(&mut progress, PATIENCE).timed_out() && progress.taken_bytes == before {
                return Err("the receiver does not answer".to_owned());
            }
        }
    }
}

/// The files of a checkpoint by name.
fn files_of(directory: &Path) -> std::io::Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        files.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
    }
    files.sort();
    Ok(files)
}
