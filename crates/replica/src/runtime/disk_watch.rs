//! The watch over hanging disks. An fsync, a read or a write of data that does not return blocks its store thread, so another
//! thread transfers the leadership of its tablets.
//!
//! Watched is all work of a store thread, from when it takes something from its queue until it waits again
//! (`runtime::worker`): commands, proposals, applying, replays, the writes of splits and merges. Each step is timed
//! (`progress`), not their sum: many steps are load, which the other replicas have as well. A wait for memory
//! (`memory_gate`) is watched once memtables have not become smaller for a minute: a flush hangs, on whichever disk. A
//! stop of the whole process stops the watch as well, and is not taken for a hang: the next check comes a period after it.
//!
//! Always true: the watch does for a thread what the thread would do itself (`election`): it revokes the lease for the rest
//! of the term, and only then releases the followers from their promise; the thread is notified before it sends again. A
//! tablet that has no other voter keeps its leader. Left out: writes that wait in the blocked thread, whose senders receive no
//! outcome until it continues; disks that hang only for other threads (reads for clients, flushes, copies).

use crate::context::Context;
use crate::group::handle::TabletHandle;
use crate::group::wire::{self, Envelope};
use crate::lifecycle::replicas::NodeReplicas;
use crate::progress::Stall;
use diorite_base::{GroupId, NodeId};
use diorite_raft::Term;
use diorite_rpc::Lane;
use diorite_storage::TabletData;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The time between two checks.
const PERIOD: Duration = Duration::from_millis(100);

/// If so much time is between two checks, the process did not run meanwhile. Less than what a write of a log may take.
const NOT_RUN_NS: u64 = 1_000_000_000;

/// Stops the watching thread.
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

    /// Waits one period; false when the store is closing.
    fn wait(&self) -> bool {
        let mut closed = self.closed.lock();
        if !*closed {
            self.changed.wait_for(&mut closed, PERIOD);
        }
        !*closed
    }
}

/// The regularity of checks.
struct Regular {
    /// When the last check ended, nanoseconds.
    ended_ns: u64,
    was_left_out: bool,
}

impl Regular {
    /// For how long the watch itself did not run, if the check at this moment is to be left out for that: the threads that
    /// it watches did not run either. Two checks in succession are never left out.
    fn left_out_ns(&mut self, now_ns: u64) -> Option<u64> {
        let waited_ns = now_ns.saturating_sub(self.ended_ns);
        self.was_left_out = waited_ns >= NOT_RUN_NS && !self.was_left_out;
        self.was_left_out.then_some(waited_ns)
    }
}

/// Watches until the store closes. Must not touch a disk.
pub(crate) fn run(replicas: &NodeReplicas, watch: &Watch) {
    let clock = &replicas.context.clock;
    let mut regular = Regular { ended_ns: clock.monotonic_ns(), was_left_out: false };
    while watch.wait() {
        match regular.left_out_ns(clock.monotonic_ns()) {
            Some(ns) => tracing::warn!(
                event = "process",
                milliseconds = ns / 1_000_000,
                "this process did not run: it was stopped, the machine was, or other processes took all processors"
            ),
            None => check(replicas),
        }
        regular.ended_ns = clock.monotonic_ns();
    }
}

fn check(replicas: &NodeReplicas) {
    let context = &replicas.context;
    let tablets = replicas.tablets.load();
    watch_threads(context, tablets.values().map(|handle| &**handle));
    let now_ns = context.clock.monotonic_ns();
    let workers = context.disks.progress.lock().clone();
    for (at, disk) in replicas.disks.iter().enumerate() {
        let bit = 1 << (at % 64);
        if disk.sync_progress.is_stalled(now_ns) {
            if context.disks.stalled.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
                let path = disk.directory.path().display();
                tracing::error!(event = "disk", %path, "a sync of the raft log hangs: the disk's leases are revoked, so that other nodes lead");
            }
            let meant = tablets.values().filter(|handle| handle.disk() == at);
            let_others_lead(context, meant.map(|handle| &**handle), || {
                workers.iter().for_each(|progress| progress.note_revocation());
            });
        } else {
            context.disks.stalled.fetch_and(!bit, Ordering::AcqRel);
        }
    }
}

/// Checks whether a core of the node hangs, and then transfers the leadership of the tablets among these that the core
/// leads. The caller calls this about ten times a second, from a thread that waits for no disk.
pub fn watch_threads<'a, D: TabletData + 'a>(
    context: &Context,
    tablets: impl Iterator<Item = &'a TabletHandle<D>> + Clone,
) {
    let now_ns = context.clock.monotonic_ns();
    let workers = context.disks.progress.lock().clone();
    for (number, progress) in workers.iter().enumerate() {
        let Some(stall) = progress.look(now_ns) else { continue };
        if !progress.has_revoked() {
            let what = match stall {
                Stall::Log => "a write of the raft log",
                Stall::Step => "a store thread, reading or writing data,",
            };
            tracing::error!(
                event = "disk",
                thread = number,
                "{what} hangs: the thread's leases are revoked, so that other nodes lead"
            );
        }
        let of_thread = tablets.clone().filter(|handle| handle.worker() == number);
        let_others_lead(context, of_thread, || progress.note_revocation());
    }
}

/// Revokes the leases of some tablets that this node leads, and releases their followers. `note` notifies the threads
/// before the first lease is revoked, for a thread that wakes in between, and after the last one, since that thread may
/// have checked too early.
fn let_others_lead<'a, D: TabletData + 'a>(
    context: &Context,
    tablets: impl Iterator<Item = &'a TabletHandle<D>>,
    note: impl Fn(),
) {
    note();
    let me = context.node.0;
    let mut frames: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for handle in tablets {
        let term = Term(handle.roles.led_term.load(Ordering::Acquire));
        // No other replica can lead, so nothing would begin the next term, and the tablet would stay without a lease.
        if term == Term(0) || handle.roles.is_sole_voter(me) {
            continue;
        }
        // A planted bug: the followers are released while the lease is in force.
        if !context.planted.free_without_revoking && !handle.lease.revoke(term) {
            continue;
        }
        for node in handle.roles.bound_in(term).into_iter().filter(|node| *node != me) {
            let frame = frames.entry(node).or_insert_with(|| {
                let mut frame = Vec::new();
                wire::begin_frame(&mut frame);
                frame
            });
            wire::put_envelope(frame, GroupId::from(handle.id()), &Envelope::Released { term, candidate: 0 });
        }
    }
    note();
    for (node, frame) in frames {
        // A node that does not receive the release waits until its support lapses, as for a node that is down.
        let _ = context.transport.send(NodeId(node), Lane::Raft, &frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_after_a_stop_of_the_process_is_left_out() {
        const MS: u64 = 1_000_000;
        let mut regular = Regular { ended_ns: 0, was_left_out: false };
        assert_eq!((regular.left_out_ns(100 * MS), regular.left_out_ns(999 * MS)), (None, None));
        assert_eq!(regular.left_out_ns(5_000 * MS), Some(5_000 * MS));
        regular.ended_ns = 5_000 * MS;
        assert_eq!(regular.left_out_ns(5_100 * MS), None);
        // A machine that is always late is watched nevertheless.
        regular.ended_ns = 6_000 * MS;
        assert_eq!((regular.left_out_ns(8_000 * MS), regular.left_out_ns(8_000 * MS)), (Some(2_000 * MS), None));
    }
}
