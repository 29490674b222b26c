//! Logs that make no progress: an fsync that hangs holds its store thread, so that another one has to see to it that others lead.
//!
//! Always true: what is done for a thread that hangs is what it would do itself (see `election`): the lease is taken away first, for the rest of its term, and only then are the followers freed
//! of their promise; the thread finds that out before it sends anything else. Only what has a leader elsewhere to be elected is let go. Left out: writes that wait in the thread
//! itself; whoever sent them does not hear of them before it goes on.

use crate::core::Core;
use crate::handle::TabletHandle;
use crate::store::Inner;
use crate::wire::{self, Envelope};
use diorite_base::{GroupId, NodeId, TabletId};
use diorite_rpc::Lane;
use diorite_storage::Engine;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long a log may take for one write, nanoseconds, before others are to lead.
const STALL_NS: u64 = 2_000_000_000;

/// How often that is looked at.
const PERIOD: Duration = Duration::from_millis(100);

/// How the writing of a log gets on.
#[derive(Debug, Default)]
pub(crate) struct LogProgress {
    /// Since when a write is under way, nanoseconds; 0: none is.
    since_ns: AtomicU64,
    /// Leases were taken away since this was last asked.
    has_revoked: AtomicBool,
}

impl LogProgress {
    pub(crate) fn begin(&self, now_ns: u64) {
        self.since_ns.store(now_ns.max(1), Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.since_ns.store(0, Ordering::Relaxed);
    }

    fn is_stalled(&self, now_ns: u64) -> bool {
        let since_ns = self.since_ns.load(Ordering::Relaxed);
        since_ns != 0 && now_ns >= since_ns + STALL_NS
    }
}

/// Stops the thread that watches.
#[derive(Default)]
pub(crate) struct Watch {
    closed: Mutex<bool>,
    changed: Condvar,
}

impl Watch {
    pub(crate) fn close(&self) {
        *self.closed.lock() = true;
        self.changed.notify_all();
    }

    /// Waits; false when the store is closing.
    fn wait(&self) -> bool {
        let mut closed = self.closed.lock();
        if !*closed {
            self.changed.wait_for(&mut closed, PERIOD);
        }
        !*closed
    }
}

/// Runs until the store closes. Must not touch a disk.
pub(crate) fn run(inner: &Inner) {
    while inner.watch.wait() {
        let now_ns = inner.context.clock.monotonic_ns();
        let workers = inner.context.log_progress.lock().clone();
        for (number, progress) in workers.iter().enumerate().filter(|(_, progress)| progress.is_stalled(now_ns)) {
            if !progress.has_revoked.load(Ordering::Acquire) {
                tracing::error!(event = "disk", thread = number, "a write of the raft log hangs: others are to lead");
            }
            progress.has_revoked.store(true, Ordering::Release);
            inner.let_others_lead(|handle| handle.worker == number);
        }
        for (at, disk) in inner.disks.iter().enumerate() {
            let bit = 1 << (at % 64);
            if disk.sync_progress.is_stalled(now_ns) {
                if inner.context.stalled_disks.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
                    let path = disk.directory.path().display();
                    tracing::error!(event = "disk", %path, "a sync of the raft log hangs: others are to lead");
                }
                workers.iter().for_each(|progress| progress.has_revoked.store(true, Ordering::Release));
                inner.let_others_lead(|handle| handle.disk == at);
            } else {
                inner.context.stalled_disks.fetch_and(!bit, Ordering::AcqRel);
            }
        }
    }
}

impl Inner {
    /// Takes the leases of some tablets that are led here, and frees their followers.
    fn let_others_lead(&self, is_meant: impl Fn(&TabletHandle) -> bool) {
        let me = self.context.node.0;
        let mut frames: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for handle in self.tablets.load().values().filter(|handle| is_meant(handle)) {
            let voters = handle.voters.load();
            let term = handle.led_term.load(Ordering::Acquire);
            if term == 0 || voters.iter().all(|voter| *voter == me) || !handle.lease.revoke(term) {
                continue;
            }
            for voter in voters.iter().filter(|voter| **voter != me) {
                let frame = frames.entry(*voter).or_insert_with(|| {
                    let mut frame = Vec::new();
                    wire::begin_frame(&mut frame);
                    frame
                });
                wire::put_envelope(frame, GroupId::from(handle.tablet), &Envelope::Released { term, candidate: 0 });
            }
        }
        for (voter, frame) in frames {
            // Whoever does not hear it waits until the support lapses, as for a node that is down.
            let _ = self.context.transport.send(NodeId(voter), Lane::Raft, &frame);
        }
    }
}

impl<E: Engine> Core<E> {
    /// Finds out which leases were taken away, before anything is sent or published that would stand on them.
    pub(crate) fn take_revocations(&mut self) {
        if !self.progress.has_revoked.load(Ordering::Acquire)
            || !self.progress.has_revoked.swap(false, Ordering::AcqRel)
        {
            return;
        }
        let now_ns = self.context.clock.monotonic_ns();
        let mut revoked: Vec<TabletId> = Vec::new();
        for (tablet, replica) in &mut self.replicas {
            let term = replica.group.term();
            if replica.group.is_leader() && replica.released_term != term && replica.handle.lease.is_revoked(term) {
                (replica.released_term, replica.released_ns) = (term, now_ns);
                revoked.push(*tablet);
            }
        }
        revoked.sort_unstable();
        for tablet in revoked {
            self.publish_lease(tablet);
            self.disturb(tablet);
        }
    }
}
