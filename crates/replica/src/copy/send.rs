//! Sending copies: one thread per copy, a few at a time.

use super::meter::{CopyStatus, Meter};
use super::source::PAUSE_NS;
use super::staged;
use super::wire::{Frame, Held, Listed, State};
use super::{ALIVE_NS, Copies, LOOK_NS, PIECE_BYTES};
use crate::events::TabletEventKind;
use crate::handle::Leadership;
use ahash::AHashMap;
use crc32fast::Hasher;
use diorite_base::{Clock, NodeId, TabletId};
use diorite_storage::run_at_lower_priority;
use parking_lot::{Condvar, Mutex};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Copies sent at a time.
const AT_A_TIME: usize = 4;
/// Checkpoints made for one copy, at most: each has only what has changed since the one before.
const ROUNDS: usize = 4;

/// A copy to be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub(super) tablet: TabletId,
    pub(super) to: NodeId,
    pub(super) copy: u64,
    /// The log index that it must hold, as far as is known: the leader's log begins there.
    pub(super) needed: u64,
    /// The leader that has asked for it, if that is another node.
    pub(super) asked_by: Option<NodeId>,
}

/// What others have said of a copy so far.
#[derive(Default)]
struct Progress {
    have: Option<Vec<Held>>,
    allowed: u64,
    reached: Option<u64>,
    ended: Option<Result<(), String>>,
    heard_ns: u64,
    told_ns: u64,
}

/// A copy that is being sent, as seen from the thread that hears the answers.
#[derive(Default)]
pub(super) struct Outgoing {
    progress: Mutex<Progress>,
    changed: Condvar,
    meter: Meter,
}

impl Outgoing {
    fn end(&self, failure: &str) {
        self.progress.lock().ended = Some(Err(failure.to_owned()));
        self.changed.notify_all();
    }
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
        self.under_way.values().for_each(|(_, outgoing)| outgoing.end("the node is stopping"));
        std::mem::take(&mut self.threads)
    }

    /// Ends the copies of these tablets.
    pub(super) fn abandon(&mut self, tablets: &[TabletId]) {
        let of_these = self.under_way.iter().filter(|((tablet, _), _)| tablets.contains(tablet));
        of_these.for_each(|(_, (_, outgoing))| outgoing.end("the replica was closed"));
    }

    /// A number for another copy.
    pub(super) fn number(&mut self, clock: &dyn Clock) -> u64 {
        if self.next == 0 {
            // Another life of this node must not be taken for this one.
            self.next = clock.wall_us().unsigned_abs();
        }
        self.next += 1;
        self.next
    }

    /// Whether this node sends such a copy, or has done so a moment ago.
    pub(super) fn has(&mut self, tablet: TabletId, to: NodeId, now_ns: u64) -> bool {
        self.ended_ns.retain(|_, ended_ns| now_ns < *ended_ns + PAUSE_NS);
        self.under_way.contains_key(&(tablet, to)) || self.ended_ns.contains_key(&(tablet, to))
    }

    pub(super) fn statuses(&self, me: NodeId, now_ns: u64) -> Vec<CopyStatus> {
        let status = |((tablet, to), (_, outgoing)): (&(TabletId, NodeId), &(u64, Arc<Outgoing>))| {
            outgoing.meter.status(*tablet, me, *to, false, now_ns)
        };
        self.under_way.iter().map(status).collect()
    }

    /// Takes what the receiver of a copy, or its leader, says.
    pub(super) fn answered(&self, from: NodeId, frame: &Frame<'_>, now_ns: u64) {
        let found = self.under_way.iter().find(|(_, (known, _))| *known == frame.copy());
        let Some(((_, to), (_, outgoing))) = found else { return };
        let mut progress = outgoing.progress.lock();
        if let Frame::Reached { start, .. } = frame {
            progress.reached = Some(*start);
        } else if *to != from {
            return;
        }
        progress.heard_ns = now_ns;
        match frame {
            Frame::Have { files, .. } => progress.have = Some(files.clone()),
            Frame::Credit { allowed, .. } => progress.allowed = progress.allowed.max(*allowed),
            Frame::Ended { failure, .. } => {
                progress.ended = Some(if failure.is_empty() { Ok(()) } else { Err((*failure).to_owned()) });
            }
            _ => {}
        }
        drop(progress);
        outgoing.changed.notify_all();
    }
}

/// A checkpoint, which is removed when this goes.
pub(super) struct Checkpoint {
    pub(super) directory: PathBuf,
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        // It may not have come to be; what cannot be removed now goes at the next start.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Copies {
    /// Starts a copy, unless it is under way or enough others are.
    #[allow(
        clippy::disallowed_methods,
        reason = "a bounded number of threads, each ends with its copy or when the store closes"
    )]
    pub(super) fn send(self: &Arc<Self>, job: Job) -> Result<(), String> {
        let key = (job.tablet, job.to);
        let mut sending = self.sending.lock();
        if sending.closed || sending.under_way.len() >= AT_A_TIME || sending.under_way.contains_key(&key) {
            return Err("enough copies are being sent".to_owned());
        }
        let outgoing = Arc::new(Outgoing::default());
        outgoing.progress.lock().heard_ns = self.now_ns();
        sending.under_way.insert(key, (job.copy, Arc::clone(&outgoing)));
        let copies = Arc::clone(self);
        let body = move || {
            run_at_lower_priority();
            let outcome = copies.send_copy(&job, &outgoing);
            let mut sending = copies.sending.lock();
            sending.under_way.remove(&key);
            sending.ended_ns.insert(key, copies.now_ns());
            drop(sending);
            copies.tell_outcome(&job, &outcome);
        };
        sending.threads.retain(|thread| !thread.is_finished());
        match std::thread::Builder::new().name("copy-out".to_owned()).spawn(body) {
            Ok(thread) => sending.threads.push(thread),
            Err(error) => {
                sending.under_way.remove(&key);
                return Err(format!("cannot start a thread: {error}"));
            }
        }
        Ok(())
    }

    fn tell_outcome(&self, job: &Job, outcome: &Result<u64, String>) {
        let Job { tablet, to, copy, asked_by, .. } = *job;
        let (state, failure) = match outcome {
            Ok(bytes) => {
                tracing::info!(%tablet, %to, bytes, "a copy of the replica was sent");
                self.inner.context.note(tablet, TabletEventKind::CopySent { to, bytes: *bytes });
                (State::Done, "")
            }
            Err(failure) => {
                tracing::warn!(%tablet, %to, failure, "a copy of the replica could not be sent");
                (State::Broken, failure.as_str())
            }
        };
        if let Some(leader) = asked_by {
            // A leader that does not hear it gives up after a while.
            let _ = self.put(leader, &Frame::Answer { copy, state, failure });
        }
    }

    /// Sends checkpoints until one is there while the log still reaches back to it. Returns the bytes sent.
    fn send_copy(&self, job: &Job, outgoing: &Outgoing) -> Result<u64, String> {
        let (mut sent, mut needed) = (0, job.needed);
        for _ in 0..ROUNDS {
            let (checkpoint, applied) = self.checkpoint(job, needed)?;
            let files = files_of(&checkpoint.directory).map_err(|error| error.to_string())?;
            let listed = |(name, _, size): &(String, PathBuf, u64)| Listed { name: name.clone(), size: *size };
            outgoing.meter.begin(files.iter().map(|(_, _, size)| size).sum(), 0);
            outgoing.progress.lock().have = None;
            let files_listed = files.iter().map(listed).collect();
            self.put(job.to, &Frame::Begin { copy: job.copy, tablet: job.tablet, applied, files: files_listed })?;
            self.wait(job, outgoing, |progress| progress.have.is_some())?;
            let have = outgoing.progress.lock().have.take().unwrap_or_default();
            for (name, path, size) in &files {
                if self.is_held(job, outgoing, &have, name, path)? {
                    outgoing.meter.spared(*size);
                } else {
                    sent = self.send_file(job, outgoing, name, path, sent)?;
                }
            }
            needed = self.log_start(job, outgoing)?;
            if needed <= applied {
                self.put(job.to, &Frame::End { copy: job.copy })?;
                self.wait(job, outgoing, |progress| progress.ended.is_some())?;
                return Ok(sent);
            }
            tracing::info!(tablet = %job.tablet, to = %job.to, applied, "the log was cut meanwhile: what has changed is sent");
        }
        Err("the log is cut faster than a copy can be sent".to_owned())
    }

    /// A checkpoint and the log index for which it stands, which is not below `needed` if this replica has got there.
    fn checkpoint(&self, job: &Job, needed: u64) -> Result<(Checkpoint, u64), String> {
        let handle = self.inner.tablets.load().get(&job.tablet).cloned().ok_or("the replica is gone")?;
        let staged = self.inner.disks[handle.disk].directory.staged(job.tablet.0, &format!("outgoing-{}", job.copy));
        let checkpoint = Checkpoint { directory: staged };
        let (data, directory) = (handle.data(), &checkpoint.directory);
        // States are asked for before, so that the copy holds at least that. What the log can bring is not flushed: that would cost more, and the
        // compactions after it, of many tablets at once, more still.
        let flushed = data.flushed_state().map_err(|error| error.to_string())?;
        let (stands_for, made) = if flushed.index >= needed.max(1) {
            (flushed, data.checkpoint_of_flushed(directory))
        } else {
            (data.applied_state().map_err(|error| error.to_string())?, data.checkpoint(directory))
        };
        made.map_err(|error| error.to_string())?;
        Ok((checkpoint, stands_for.index))
    }

    /// Whether the receiver holds this file: of the same name and size, and, as it is read here now, with the same checksum.
    fn is_held(&self, job: &Job, outgoing: &Outgoing, have: &[Held], name: &str, path: &Path) -> Result<bool, String> {
        let Some(held) = have.iter().find(|held| held.name == name && staged::is_lasting(name)) else {
            return Ok(false);
        };
        let found = staged::checksum(path).map_err(|error| format!("cannot read {name}: {error}"))?;
        // That may have taken a while.
        self.put(job.to, &Frame::Alive { copy: job.copy })?;
        outgoing.progress.lock().heard_ns = self.now_ns();
        Ok(found == (held.size, held.crc))
    }

    fn send_file(&self, job: &Job, outgoing: &Outgoing, name: &str, path: &Path, mut sent: u64) -> Result<u64, String> {
        let mut file = File::open(path).map_err(|error| format!("cannot open {name}: {error}"))?;
        let (mut piece, mut hasher) = (vec![0; PIECE_BYTES], Hasher::new());
        let mut offset = 0;
        loop {
            let count = file.read(&mut piece).map_err(|error| format!("cannot read {name}: {error}"))?;
            // An empty file is told by one empty piece.
            if count > 0 || offset == 0 {
                hasher.update(&piece[..count]);
                self.wait(job, outgoing, |progress| progress.allowed >= sent + count as u64)?;
                self.wait_for_pace(job, outgoing, count as u64)?;
                self.put(job.to, &Frame::Piece { copy: job.copy, name, offset, data: &piece[..count] })?;
                offset += count as u64;
                sent += count as u64;
                outgoing.meter.moved(count as u64, self.now_ns());
                self.inner.context.counters.copied_out(count as u64);
            }
            if count == 0 {
                let crc = hasher.finalize();
                self.put(job.to, &Frame::Complete { copy: job.copy, name, size: offset, crc })?;
                return Ok(sent);
            }
        }
    }

    /// Where the log of the leader begins: what this replica holds must reach there.
    fn log_start(&self, job: &Job, outgoing: &Outgoing) -> Result<u64, String> {
        let handle = self.inner.tablets.load().get(&job.tablet).cloned().ok_or("the replica is gone")?;
        let leader = match handle.leadership() {
            Leadership::Here => return Ok(handle.log_start()),
            Leadership::Elsewhere(leader) => leader,
            Leadership::Unknown => job.asked_by.ok_or("it is not known who leads the tablet")?,
        };
        outgoing.progress.lock().reached = None;
        self.put(leader, &Frame::Reach { copy: job.copy, tablet: job.tablet })?;
        self.wait(job, outgoing, |progress| progress.reached.is_some())?;
        outgoing.progress.lock().reached.ok_or_else(|| "the leader does not answer".to_owned())
    }

    fn wait_for_pace(&self, job: &Job, outgoing: &Outgoing, bytes: u64) -> Result<(), String> {
        loop {
            let asked = self.pace_out.lock().ask(bytes, self.now_ns());
            let Err(wait_ns) = asked else { return Ok(()) };
            let mut progress = outgoing.progress.lock();
            outgoing.changed.wait_for(&mut progress, Duration::from_nanos(wait_ns.min(LOOK_NS)));
            // It is this side that waits.
            progress.heard_ns = self.now_ns();
            drop(progress);
            self.keep_alive(job, outgoing)?;
        }
    }

    /// Waits until `is_so`, or until the copy is refused or broken off.
    fn wait(&self, job: &Job, outgoing: &Outgoing, is_so: impl Fn(&Progress) -> bool) -> Result<(), String> {
        loop {
            let mut progress = outgoing.progress.lock();
            if let Some(Err(error)) = &progress.ended {
                return Err(error.clone());
            }
            if is_so(&progress) {
                return Ok(());
            }
            if self.is_silent(job.to, progress.heard_ns) {
                return Err("no answer".to_owned());
            }
            outgoing.changed.wait_for(&mut progress, Duration::from_nanos(LOOK_NS));
            drop(progress);
            self.keep_alive(job, outgoing)?;
        }
    }

    /// Lets the others know from time to time that this side is at work; an error if the copy has ended.
    fn keep_alive(&self, job: &Job, outgoing: &Outgoing) -> Result<(), String> {
        let now_ns = self.now_ns();
        let mut progress = outgoing.progress.lock();
        if let Some(Err(error)) = &progress.ended {
            return Err(error.clone());
        }
        if now_ns < progress.told_ns + ALIVE_NS {
            return Ok(());
        }
        progress.told_ns = now_ns;
        drop(progress);
        if let Some(leader) = job.asked_by {
            // It will hear it the next time.
            let _ = self.put(leader, &Frame::Answer { copy: job.copy, state: State::UnderWay, failure: "" });
        }
        self.put(job.to, &Frame::Alive { copy: job.copy })
    }
}

/// The files of a checkpoint by name: name, path and size.
pub(super) fn files_of(directory: &Path) -> std::io::Result<Vec<(String, PathBuf, u64)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        files.push((entry.file_name().to_string_lossy().into_owned(), entry.path(), entry.metadata()?.len()));
    }
    files.sort();
    Ok(files)
}
