//! The copies that this node sends, as seen by other threads than theirs.

use super::asking::PAUSE_NS;
use super::meter::{CopyStatus, Meter};
use super::wire::{Frame, Held};
use ahash::AHashMap;
use diorite_base::{Clock, NodeId, TabletId};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A copy to be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    pub(crate) tablet: TabletId,
    pub(crate) to: NodeId,
    pub(crate) copy: u64,
    /// The index that the copy must have applied, as far as is known: the leader's log begins there.
    pub(crate) needed: u64,
    /// The leader that has asked for it, if that is another node.
    pub(crate) asked_by: Option<NodeId>,
}

/// How a copy ended, according to the other node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    Installed,
    /// The receiver refused, for this reason.
    Refused(String),
}

/// The reports of other nodes on a copy so far.
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) have: Option<Vec<Held>>,
    pub(crate) allowed: u64,
    pub(crate) reached: Option<u64>,
    pub(crate) ended: Option<Ended>,
    pub(crate) received_ns: u64,
    pub(crate) sent_ns: u64,
}

/// A copy that is sent, as seen by the thread that receives the answers.
#[derive(Default)]
pub(crate) struct Outgoing {
    pub(crate) progress: Mutex<Progress>,
    pub(crate) changed: Condvar,
    pub(crate) meter: Meter,
}

impl Outgoing {
    fn end(&self, failure: &str) {
        self.progress.lock().ended = Some(Ended::Refused(failure.to_owned()));
        self.changed.notify_all();
    }
}

/// The copies that are being sent.
#[derive(Default)]
pub(crate) struct Sending {
    pub(crate) under_way: AHashMap<(TabletId, NodeId), (u64, Arc<Outgoing>)>,
    /// When copies ended, monotonic nanoseconds.
    pub(crate) ended_ns: AHashMap<(TabletId, NodeId), u64>,
    pub(crate) threads: Vec<JoinHandle<()>>,
    next: u64,
    pub(crate) closed: bool,
}

impl Sending {
    /// Ends all copies; returns the threads, which end soon.
    pub(crate) fn close(&mut self) -> Vec<JoinHandle<()>> {
        self.closed = true;
        self.under_way.values().for_each(|(_, outgoing)| outgoing.end("the node is stopping"));
        std::mem::take(&mut self.threads)
    }

    /// Ends the copies of these tablets.
    pub(crate) fn cancel(&mut self, tablets: &[TabletId]) {
        let of_these = self.under_way.iter().filter(|((tablet, _), _)| tablets.contains(tablet));
        of_these.for_each(|(_, (_, outgoing))| outgoing.end("the replica was closed"));
    }

    /// A new copy number.
    pub(crate) fn number(&mut self, clock: &dyn Clock) -> u64 {
        if self.next == 0 {
            // Numbers differ from those of this node's former life.
            self.next = clock.wall_us().unsigned_abs();
        }
        self.next += 1;
        self.next
    }

    /// Whether this node sends such a copy, or did so a moment ago.
    pub(crate) fn has(&mut self, tablet: TabletId, to: NodeId, now_ns: u64) -> bool {
        self.ended_ns.retain(|_, ended_ns| now_ns < *ended_ns + PAUSE_NS);
        self.under_way.contains_key(&(tablet, to)) || self.ended_ns.contains_key(&(tablet, to))
    }

    pub(crate) fn statuses(&self, me: NodeId, now_ns: u64) -> Vec<CopyStatus> {
        let status = |((tablet, to), (_, outgoing)): (&(TabletId, NodeId), &(u64, Arc<Outgoing>))| {
            outgoing.meter.status(*tablet, me, *to, false, now_ns)
        };
        self.under_way.iter().map(status).collect()
    }

    /// Takes a message of a copy's receiver, or of its leader.
    pub(crate) fn answered(&self, from: NodeId, frame: &Frame<'_>, now_ns: u64) {
        let found = self.under_way.iter().find(|(_, (known, _))| *known == frame.copy());
        let Some(((_, to), (_, outgoing))) = found else { return };
        let mut progress = outgoing.progress.lock();
        if let Frame::Reached { start, .. } = frame {
            progress.reached = Some(*start);
        } else if *to != from {
            return;
        }
        progress.received_ns = now_ns;
        match frame {
            Frame::Have { files, .. } => progress.have = Some(files.clone()),
            Frame::Credit { allowed, .. } => progress.allowed = progress.allowed.max(*allowed),
            Frame::Ended { failure, .. } => {
                progress.ended =
                    Some(if failure.is_empty() { Ended::Installed } else { Ended::Refused((*failure).to_owned()) });
            }
            _ => {}
        }
        drop(progress);
        outgoing.changed.notify_all();
    }
}
