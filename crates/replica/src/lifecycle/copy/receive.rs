//! Receives copies: one thread for each, a few at a time. Each grants its sender credit as fast as this node may
//! receive, and writes what arrives.

use super::copies::{ALIVE_NS, Copies, LOOK_NS, PIECE_BYTES, WINDOW_BYTES};
use super::error::CopyError;
use super::install::install;
use super::meter::Meter;
use super::rate_limit::Credit;
use super::receiving::{INCOMING, Incoming, KEEP_NS, Receiving};
use super::staged::Staged;
use super::wire::Frame;
use crate::events::TabletEventKind;
use crate::lifecycle::command::Command;
use diorite_base::{NodeId, TabletId};
use diorite_storage::run_at_lower_priority;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TrySendError, sync_channel};
use std::time::Duration;

/// Copies received at a time.
const AT_A_TIME: usize = 8;
/// Frames of a copy that may wait to be written: its window, and as many small ones.
const WAITING_FRAMES: usize = 2 * (WINDOW_BYTES as usize / PIECE_BYTES);

/// Why a copy was not installed.
enum Failure {
    /// The received files are held for another attempt.
    Held(CopyError),
    /// The received files are useless.
    Useless(CopyError),
}

impl Copies {
    /// Passes a frame to the thread of its copy; the first frame starts the thread.
    pub(crate) fn arrived(self: &Arc<Self>, from: NodeId, copy: u64, begins: Option<TabletId>, bytes: &[u8]) {
        let refused = {
            let mut receiving = self.receiving.lock();
            if let (Some(tablet), false) = (begins, receiving.under_way.contains_key(&(from, copy))) {
                self.start(&mut receiving, from, copy, tablet).err()
            } else {
                None
            }
            .or_else(|| {
                let Some(incoming) = receiving.under_way.get(&(from, copy)) else {
                    return Some(CopyError::Protocol("the copy is not known here".to_owned()));
                };
                match incoming.inbox.try_send(bytes.to_vec()) {
                    // A lost frame is detected: the next one does not fit, and the sender is notified.
                    Err(TrySendError::Full(_)) => tracing::warn!(%from, "too many pieces of a copy wait to be written"),
                    Ok(()) | Err(TrySendError::Disconnected(_)) => {}
                }
                None
            })
        };
        if let Some(failure) = refused {
            // A sender that does not receive this gives up after a while.
            let _ = self.put(from, &Frame::Ended { copy, failure: &failure.to_string() });
        }
    }

    #[allow(clippy::disallowed_methods, reason = "a bounded number of threads, joined when the store stops")]
    fn start(
        self: &Arc<Self>,
        receiving: &mut Receiving,
        from: NodeId,
        copy: u64,
        tablet: TabletId,
    ) -> Result<(), CopyError> {
        // A former attempt of the same node is void and ends soon.
        receiving.under_way.retain(|(sender, _), incoming| incoming.tablet != tablet || *sender != from);
        receiving.threads.retain(|thread| !thread.is_finished());
        if receiving.closed || receiving.threads.len() >= AT_A_TIME || receiving.has(tablet) {
            return Err(CopyError::Busy("enough copies are being received"));
        }
        let handle = self.replicas.handle(tablet).ok_or(CopyError::NoReplica)?;
        let directory = self.replicas.disks[handle.disk()].directory.staged(tablet.0, INCOMING);
        if !receiving.staging.insert(tablet) {
            return Err(CopyError::Busy("the last attempt is not over yet"));
        }
        let (inbox, frames) = sync_channel(WAITING_FRAMES);
        let (cancelled, meter) = (Arc::new(AtomicBool::new(false)), Arc::new(Meter::default()));
        let mut taking = Taking {
            copies: Arc::clone(self),
            from,
            copy,
            tablet,
            disk: handle.disk(),
            directory,
            staged: None,
            applied: 0,
            credit: Credit::default(),
            cancelled: Arc::clone(&cancelled),
            meter: Arc::clone(&meter),
            received_ns: self.now_ns(),
            sent_ns: 0,
        };
        drop(handle);
        let spawned = std::thread::Builder::new().name("copy-in".to_owned()).spawn(move || taking.run(&frames));
        match spawned {
            Ok(thread) => receiving.threads.push(thread),
            Err(error) => {
                receiving.staging.remove(&tablet);
                return Err(CopyError::io("start a thread")(error));
            }
        }
        receiving.under_way.insert((from, copy), Incoming { tablet, inbox, cancelled, meter });
        Ok(())
    }

    /// Removes staged copies that have not grown for long. To be called from time to time.
    pub(crate) fn sweep(&self) {
        let now_ns = self.now_ns();
        let mut receiving = self.receiving.lock();
        let mut idle: Vec<TabletId> = Vec::new();
        for disk in self.replicas.disks.iter() {
            let found = disk.directory.staged_ids(INCOMING).unwrap_or_default();
            idle.extend(found.into_iter().map(TabletId).filter(|tablet| !receiving.staging.contains(tablet)));
        }
        receiving.idle_ns.retain(|tablet, _| idle.contains(tablet));
        for tablet in idle {
            let since_ns = *receiving.idle_ns.entry(tablet).or_insert(now_ns);
            if now_ns >= since_ns + KEEP_NS {
                tracing::info!(%tablet, "an unfinished copy is removed");
                self.remove_staged(tablet);
            }
        }
    }
}

/// The state of a copy that is received, for its thread.
struct Taking {
    copies: Arc<Copies>,
    from: NodeId,
    copy: u64,
    tablet: TabletId,
    disk: usize,
    directory: PathBuf,
    staged: Option<Staged>,
    /// The index that its data has applied, at least.
    applied: u64,
    credit: Credit,
    cancelled: Arc<AtomicBool>,
    meter: Arc<Meter>,
    received_ns: u64,
    sent_ns: u64,
}

impl Taking {
    fn run(&mut self, frames: &Receiver<Vec<u8>>) {
        run_at_lower_priority();
        let outcome = self.take_all(frames);
        self.copies.limit_in.lock().refund(self.credit.unused());
        self.staged = None;
        let is_cancelled = self.cancelled.load(Ordering::Acquire);
        if is_cancelled || !matches!(outcome, Err(Failure::Held(_))) {
            // After the installation the directory does not exist. What cannot be removed now is removed at the next
            // start.
            let _ = fs::remove_dir_all(&self.directory);
        }
        let mut receiving = self.copies.receiving.lock();
        receiving.under_way.remove(&(self.from, self.copy));
        receiving.staging.remove(&self.tablet);
        drop(receiving);
        let failure = match outcome {
            Ok(()) => String::new(),
            Err(Failure::Held(failure) | Failure::Useless(failure)) => {
                tracing::warn!(tablet = %self.tablet, from = %self.from, %failure, "a copy could not be received");
                failure.to_string()
            }
        };
        // A sender that does not receive this gives up after a while.
        let _ = self.copies.put(self.from, &Frame::Ended { copy: self.copy, failure: &failure });
    }

    fn take_all(&mut self, frames: &Receiver<Vec<u8>>) -> Result<(), Failure> {
        loop {
            let wait_ns = self.give_credit()?;
            match frames.recv_timeout(Duration::from_nanos(wait_ns)) {
                Ok(bytes) => {
                    self.received_ns = self.copies.now_ns();
                    if self.step(&bytes)? {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    if self.copies.is_silent(self.from, self.received_ns) {
                        return Err(Failure::Held(CopyError::NoAnswer));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(Failure::Held(CopyError::Cancelled)),
            }
        }
    }

    /// Takes a frame; returns whether the copy is installed.
    fn step(&mut self, bytes: &[u8]) -> Result<bool, Failure> {
        let malformed = |_| Failure::Held(CopyError::Protocol("a malformed frame".to_owned()));
        match Frame::decode(bytes).map_err(malformed)? {
            Frame::Begin { applied, files, .. } => {
                self.check_need(applied)?;
                let total = files.iter().map(|file| file.size).sum();
                self.check_room(total)?;
                let staged = match self.staged.take() {
                    Some(staged) => staged,
                    None => {
                        let opened = Staged::open(&self.directory, self.from);
                        opened.map_err(|error| Failure::Useless(CopyError::io("stage a copy")(error)))?
                    }
                };
                let staged = self.staged.insert(staged);
                let held = staged.want(files).map_err(Failure::Useless)?;
                self.applied = applied;
                self.credit.expected = self.credit.taken + total;
                self.meter.begin(total, held.iter().map(|file| file.size).sum());
                self.say(&Frame::Have { copy: self.copy, files: held })?;
            }
            Frame::Piece { name, offset, data, .. } => {
                self.staged()?.write(name, offset, data).map_err(Failure::Held)?;
                self.credit.taken += data.len() as u64;
                self.meter.moved(data.len() as u64, self.copies.now_ns());
                self.copies.replicas.context.counters.copied_in(data.len() as u64);
            }
            Frame::Complete { name, size, crc, .. } => {
                self.staged()?.complete(name, size, crc).map_err(Failure::Held)?
            }
            Frame::End { .. } => {
                let bytes = self.staged()?.finish().map_err(Failure::Held)?;
                self.staged = None;
                let replicas = &self.copies.replicas;
                install(replicas, self.tablet, &self.directory, self.disk, self.applied).map_err(Failure::Useless)?;
                tracing::info!(tablet = %self.tablet, from = %self.from, bytes, "a copy has taken the place of the replica");
                self.copies.replicas.context.note(self.tablet, TabletEventKind::CopyTaken { from: self.from, bytes });
                return Ok(true);
            }
            Frame::GivenUp { failure, .. } => return Err(Failure::Held(CopyError::Refused(failure.to_owned()))),
            _ => {}
        }
        Ok(false)
    }

    fn staged(&mut self) -> Result<&mut Staged, Failure> {
        self.staged.as_mut().ok_or_else(|| Failure::Held(CopyError::Protocol("the copy has not begun".to_owned())))
    }

    /// Refuses a copy that holds no more than the replica does, and notifies its leader: otherwise the leader would
    /// answer a lost acknowledgement with copy after copy.
    fn check_need(&self, applied: u64) -> Result<(), Failure> {
        let replicas = &self.copies.replicas;
        let Some(handle) = replicas.handle(self.tablet) else { return Err(Failure::Held(CopyError::NoReplica)) };
        if handle.data().applied_state().is_ok_and(|own| applied <= own.index) {
            replicas.command(&handle, Command::AnnounceData(self.tablet));
            return Err(Failure::Useless(CopyError::Outdated("the replica holds as much")));
        }
        Ok(())
    }

    fn check_room(&self, total: u64) -> Result<(), Failure> {
        let free = self.copies.replicas.disks[self.disk].free_bytes.load(Ordering::Relaxed);
        let reserve = self.copies.replicas.options.disk_reserve_bytes;
        if free < total.saturating_add(reserve) {
            return Err(Failure::Held(CopyError::NoSpace(total)));
        }
        Ok(())
    }

    /// Grants more credit if it is time for that; returns when to check again, nanoseconds from now.
    fn give_credit(&mut self) -> Result<u64, Failure> {
        let (now_ns, mut wait_ns) = (self.copies.now_ns(), LOOK_NS);
        let allowed_before = self.credit.allowed;
        loop {
            let bytes = self.credit.wanted(PIECE_BYTES as u64, WINDOW_BYTES);
            if bytes == 0 {
                break;
            }
            match self.copies.limit_in.lock().ask(bytes, now_ns) {
                Ok(()) => self.credit.allowed += bytes,
                Err(limited_ns) => {
                    wait_ns = wait_ns.min(limited_ns);
                    break;
                }
            }
        }
        if self.credit.allowed > allowed_before || now_ns >= self.sent_ns + ALIVE_NS {
            self.sent_ns = now_ns;
            let Credit { allowed, taken, .. } = self.credit;
            self.say(&Frame::Credit { copy: self.copy, allowed, taken })?;
        }
        Ok(wait_ns)
    }

    fn say(&self, frame: &Frame<'_>) -> Result<(), Failure> {
        self.copies.put(self.from, frame).map_err(|error| Failure::Held(error.into()))
    }
}
