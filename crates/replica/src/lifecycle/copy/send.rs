//! Sends copies: one thread for each, a few at a time.

use super::checkpoint::{Checkpoint, CopiedFile, files_of};
use super::copies::{ALIVE_NS, Copies, LOOK_NS, PIECE_BYTES};
use super::error::CopyError;
use super::sending::{Ended, Job, Outgoing, Progress};
use super::staged;
use super::wire::{Frame, Held, Listed, State};
use crate::events::TabletEventKind;
use crate::group::handle::Leadership;
use crc32fast::Hasher;
use diorite_storage::run_at_lower_priority;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

/// Copies sent at a time.
const AT_A_TIME: usize = 4;
/// The most checkpoints for one copy: each has only what has changed since the one before.
const ROUNDS: usize = 4;
/// How long the leader is given to say where its log begins, nanoseconds, and how often it is asked.
const LEADER_NS: u64 = 1_000_000_000;
const LEADER_ATTEMPTS: usize = 10;
/// How long the receiver is given to say which files it holds, nanoseconds: longer than it needs for the checksums of
/// the files of a copy that was interrupted. Both nodes may be well while the answer was lost.
const HAVE_NS: u64 = 600_000_000_000;
/// How long it is given to install a copy.
const INSTALL_NS: u64 = 600_000_000_000;

impl Copies {
    /// Starts a copy, unless it is under way or enough others are.
    #[allow(
        clippy::disallowed_methods,
        reason = "a bounded number of threads, each ends with its copy or when the store closes"
    )]
    pub(crate) fn send(self: &Arc<Self>, job: Job) -> Result<(), CopyError> {
        let key = (job.tablet, job.to);
        let mut sending = self.sending.lock();
        if sending.closed || sending.under_way.len() >= AT_A_TIME || sending.under_way.contains_key(&key) {
            return Err(CopyError::Busy("enough copies are being sent"));
        }
        let outgoing = Arc::new(Outgoing::default());
        outgoing.progress.lock().received_ns = self.now_ns();
        sending.under_way.insert(key, (job.copy, Arc::clone(&outgoing)));
        let copies = Arc::clone(self);
        let body = move || {
            run_at_lower_priority();
            let outcome = copies.send_copy(&job, &outgoing);
            let mut sending = copies.sending.lock();
            sending.under_way.remove(&key);
            sending.ended_ns.insert(key, copies.now_ns());
            drop(sending);
            copies.report_outcome(&job, &outcome);
        };
        sending.threads.retain(|thread| !thread.is_finished());
        match std::thread::Builder::new().name("copy-out".to_owned()).spawn(body) {
            Ok(thread) => sending.threads.push(thread),
            Err(error) => {
                sending.under_way.remove(&key);
                return Err(CopyError::io("start a thread")(error));
            }
        }
        Ok(())
    }

    fn report_outcome(&self, job: &Job, outcome: &Result<u64, CopyError>) {
        let Job { tablet, to, copy, asked_by, .. } = *job;
        let (state, failure) = match outcome {
            Ok(bytes) => {
                tracing::info!(%tablet, %to, bytes, "a copy of the replica was sent");
                self.replicas.context.note(tablet, TabletEventKind::CopySent { to, bytes: *bytes });
                (State::Done, String::new())
            }
            Err(failure) => {
                tracing::warn!(%tablet, %to, %failure, "a copy of the replica could not be sent");
                let failure = failure.to_string();
                // A receiver that waits for more would refuse another sender meanwhile.
                let _ = self.put(to, &Frame::GivenUp { copy, failure: &failure });
                (State::Broken, failure)
            }
        };
        if let Some(leader) = asked_by {
            // A leader that does not receive this gives up after a while.
            let _ = self.put(leader, &Frame::Answer { copy, state, failure: &failure });
        }
    }

    /// Sends checkpoints until one has arrived while the log still reaches back to it. Returns the bytes sent.
    fn send_copy(&self, job: &Job, outgoing: &Outgoing) -> Result<u64, CopyError> {
        let (mut sent, mut needed) = (0, job.needed);
        for _ in 0..ROUNDS {
            let (checkpoint, applied) = self.checkpoint(job, needed)?;
            let files = files_of(&checkpoint.directory).map_err(CopyError::io("list the files of a checkpoint"))?;
            let listed = |file: &CopiedFile| Listed { name: file.name.clone(), size: file.size };
            outgoing.meter.begin(files.iter().map(|file| file.size).sum(), 0);
            outgoing.progress.lock().have = None;
            let files_listed = files.iter().map(listed).collect();
            self.put(job.to, &Frame::Begin { copy: job.copy, tablet: job.tablet, applied, files: files_listed })?;
            let end_ns = self.now_ns() + HAVE_NS;
            self.wait(job, outgoing, |progress| progress.have.is_some() || self.now_ns() >= end_ns)?;
            let have = outgoing.progress.lock().have.take().ok_or(CopyError::NoAnswer)?;
            for file in &files {
                if self.is_held(job, outgoing, &have, file)? {
                    outgoing.meter.spared(file.size);
                } else {
                    sent = self.send_file(job, outgoing, file, sent)?;
                }
            }
            needed = self.log_start(job, outgoing)?;
            if needed <= applied {
                self.put(job.to, &Frame::End { copy: job.copy })?;
                let end_ns = self.now_ns() + INSTALL_NS;
                self.wait(job, outgoing, |progress| progress.ended.is_some() || self.now_ns() >= end_ns)?;
                let is_installed = outgoing.progress.lock().ended.is_some();
                return if is_installed { Ok(sent) } else { Err(CopyError::NoAnswer) };
            }
            tracing::info!(tablet = %job.tablet, to = %job.to, applied, "the log was truncated meanwhile: the changes are sent");
        }
        Err(CopyError::Outdated("the log is cut faster than a copy can be sent"))
    }

    /// A checkpoint and its applied index, which is at least `needed` if this replica has applied that.
    fn checkpoint(&self, job: &Job, needed: u64) -> Result<(Checkpoint, u64), CopyError> {
        let handle = self.replicas.handle(job.tablet).ok_or(CopyError::NoReplica)?;
        let staged =
            self.replicas.disks[handle.disk()].directory.staged(job.tablet.0, &format!("outgoing-{}", job.copy));
        let checkpoint = Checkpoint { directory: staged };
        let (data, directory) = (handle.data(), &checkpoint.directory);
        // States are read first, so that the copy holds at least that much. Entries that the log still has are not
        // flushed: the flushes, and the compactions after them, of many tablets at once would cost more.
        let flushed = data.flushed_state()?;
        let (stands_for, made) = if flushed.index >= needed.max(1) {
            (flushed, data.checkpoint_of_flushed(directory))
        } else {
            (data.applied_state()?, data.checkpoint(directory))
        };
        made?;
        Ok((checkpoint, stands_for.index))
    }

    /// Whether the receiver holds this file: same name and size, and the same checksum as the file here.
    fn is_held(&self, job: &Job, outgoing: &Outgoing, have: &[Held], file: &CopiedFile) -> Result<bool, CopyError> {
        let name = file.name.as_str();
        let Some(held) = have.iter().find(|held| held.name == name && staged::is_lasting(name)) else {
            return Ok(false);
        };
        let found = staged::checksum(&file.path).map_err(CopyError::io(format!("read {name}")))?;
        // Computing the checksum may have taken a while.
        self.put(job.to, &Frame::Alive { copy: job.copy })?;
        outgoing.progress.lock().received_ns = self.now_ns();
        Ok(found == (held.size, held.crc))
    }

    fn send_file(&self, job: &Job, outgoing: &Outgoing, file: &CopiedFile, mut sent: u64) -> Result<u64, CopyError> {
        let name = file.name.as_str();
        let mut file = File::open(&file.path).map_err(CopyError::io(format!("open {name}")))?;
        let (mut piece, mut hasher) = (vec![0; PIECE_BYTES], Hasher::new());
        let mut offset = 0;
        loop {
            let count = file.read(&mut piece).map_err(CopyError::io(format!("read {name}")))?;
            // An empty file is sent as one empty piece.
            if count > 0 || offset == 0 {
                hasher.update(&piece[..count]);
                self.wait(job, outgoing, |progress| progress.allowed >= sent + count as u64)?;
                self.wait_for_rate(job, outgoing, count as u64)?;
                self.put(job.to, &Frame::Piece { copy: job.copy, name, offset, data: &piece[..count] })?;
                offset += count as u64;
                sent += count as u64;
                outgoing.meter.moved(count as u64, self.now_ns());
                self.replicas.context.counters.copied_out(count as u64);
            }
            if count == 0 {
                let crc = hasher.finalize();
                self.put(job.to, &Frame::Complete { copy: job.copy, name, size: offset, crc })?;
                return Ok(sent);
            }
        }
    }

    /// Where the leader's log begins: this replica's data must reach there. The node that is asked may not lead any
    /// more, and then does not answer; so the leader is looked up again for each attempt, and the attempts are limited.
    fn log_start(&self, job: &Job, outgoing: &Outgoing) -> Result<u64, CopyError> {
        for _ in 0..LEADER_ATTEMPTS {
            let handle = self.replicas.handle(job.tablet).ok_or(CopyError::NoReplica)?;
            let leader = match handle.leadership() {
                Leadership::Here => return Ok(handle.log_start()),
                Leadership::Elsewhere(leader) => leader,
                Leadership::Unknown => job.asked_by.ok_or(CopyError::NoLeader)?,
            };
            outgoing.progress.lock().reached = None;
            // A lost question is one without an answer.
            let _ = self.put(leader, &Frame::Reach { copy: job.copy, tablet: job.tablet });
            let end_ns = self.now_ns() + LEADER_NS;
            self.wait(job, outgoing, |progress| progress.reached.is_some() || self.now_ns() >= end_ns)?;
            if let Some(start) = outgoing.progress.lock().reached {
                return Ok(start);
            }
        }
        Err(CopyError::NoLeader)
    }

    fn wait_for_rate(&self, job: &Job, outgoing: &Outgoing, bytes: u64) -> Result<(), CopyError> {
        loop {
            let asked = self.limit_out.lock().ask(bytes, self.now_ns());
            let Err(wait_ns) = asked else { return Ok(()) };
            let mut progress = outgoing.progress.lock();
            outgoing.changed.wait_for(&mut progress, Duration::from_nanos(wait_ns.min(LOOK_NS)));
            // The waiting was on this side.
            progress.received_ns = self.now_ns();
            drop(progress);
            self.keep_alive(job, outgoing)?;
        }
    }

    /// Waits until `is_so`, or until the copy is refused or broken off.
    fn wait(&self, job: &Job, outgoing: &Outgoing, is_so: impl Fn(&Progress) -> bool) -> Result<(), CopyError> {
        loop {
            let mut progress = outgoing.progress.lock();
            if let Some(Ended::Refused(reason)) = &progress.ended {
                return Err(CopyError::Refused(reason.clone()));
            }
            if is_so(&progress) {
                return Ok(());
            }
            if self.is_silent(job.to, progress.received_ns) {
                return Err(CopyError::NoAnswer);
            }
            outgoing.changed.wait_for(&mut progress, Duration::from_nanos(LOOK_NS));
            drop(progress);
            self.keep_alive(job, outgoing)?;
        }
    }

    /// Sends a sign of life from time to time; an error if the copy has ended.
    fn keep_alive(&self, job: &Job, outgoing: &Outgoing) -> Result<(), CopyError> {
        let now_ns = self.now_ns();
        let mut progress = outgoing.progress.lock();
        if let Some(Ended::Refused(reason)) = &progress.ended {
            return Err(CopyError::Refused(reason.clone()));
        }
        if now_ns < progress.sent_ns + ALIVE_NS {
            return Ok(());
        }
        progress.sent_ns = now_ns;
        drop(progress);
        if let Some(leader) = job.asked_by {
            // The leader will receive the next one.
            let _ = self.put(leader, &Frame::Answer { copy: job.copy, state: State::UnderWay, failure: "" });
        }
        Ok(self.put(job.to, &Frame::Alive { copy: job.copy })?)
    }
}
