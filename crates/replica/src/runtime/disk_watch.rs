//! Disks that hang: an fsync, a read or a write of data that does not return holds its store thread, so that another thread has to see to it that others lead.
//!
//! All that a store thread does is watched, from when it takes something from its queue until it waits for more (`runtime::worker`): commands, proposals, applying, the replay of replicas that
//! are opened, what a split or a merge writes. Watched is each step of it (`progress`), not the whole: many steps are load, which other replicas have as well. Not watched is a wait
//! for memory (`memory_gate`): it is the node's, and ends with the flushes.
//!
//! Always true: what is done for a thread that hangs is what it would do itself (see `election`): the lease is taken away first, for the rest of its term, and only then are the followers freed
//! of their promise; the thread finds that out before it sends anything else. Only what has a leader elsewhere to be elected is let go. Left out: writes that wait in the thread
//! itself, whoever sent them receives no outcome before it goes on; disks that hang in nothing but what other threads do (reads for clients, flushes, copies).

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

/// How often that is looked at.
const PERIOD: Duration = Duration::from_millis(100);

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
pub(crate) fn run(replicas: &NodeReplicas, watch: &Watch) {
    while watch.wait() {
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
                    tracing::error!(event = "disk", %path, "a sync of the raft log hangs: the disk's leases are ended, so that other nodes lead");
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
}

/// Looks at each core of a node whether it hangs, and if so lets others lead what it leads of these tablets. To be called about ten times a second, on a thread that waits for
/// no disk.
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
                Stall::Step => "a store thread, at its data,",
            };
            tracing::error!(
                event = "disk",
                thread = number,
                "{what} hangs: the thread's leases are ended, so that other nodes lead"
            );
        }
        let of_thread = tablets.clone().filter(|handle| handle.worker() == number);
        let_others_lead(context, of_thread, || progress.note_revocation());
    }
}

/// Takes the leases of some tablets that are led here, and frees their followers. `note` lets the threads find out: before the first lease is taken, so that a thread that wakes meanwhile
/// looks, and after the last one, as it may have looked too early.
fn let_others_lead<'a, D: TabletData + 'a>(
    context: &Context,
    tablets: impl Iterator<Item = &'a TabletHandle<D>>,
    note: impl Fn(),
) {
    note();
    let me = context.node.0;
    let mut frames: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for handle in tablets {
        let voters = handle.roles.voters.load();
        let term = Term(handle.roles.led_term.load(Ordering::Acquire));
        let is_alone = voters.iter().all(|voter| *voter == me);
        // A bug, if it is planted: the followers are freed of a lease that is in force.
        if term == Term(0) || is_alone || (!context.planted.free_without_revoking && !handle.lease.revoke(term)) {
            continue;
        }
        for voter in voters.iter().filter(|voter| **voter != me) {
            let frame = frames.entry(*voter).or_insert_with(|| {
                let mut frame = Vec::new();
                wire::begin_frame(&mut frame);
                frame
            });
            wire::put_envelope(frame, GroupId::from(handle.id()), &Envelope::Released { term, candidate: 0 });
        }
    }
    note();
    for (voter, frame) in frames {
        // Whoever does not receive it waits until the support lapses, as for a node that is down.
        let _ = context.transport.send(NodeId(voter), Lane::Raft, &frame);
    }
}
