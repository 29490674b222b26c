//! Copies of whole replicas: a member that lacks what is no longer in its leader's log is sent files.
//!
//! ```text
//! leader    ask a follower that has everything, or send itself                  (source.rs)
//! sender    checkpoint (hard links) ─▶ begin ─▶ pieces of what is missing ─▶ end   (send.rs)
//! receiver  have ─▶ credit, as fast as it may take it ─▶ stage, check, sync        (receive.rs, staged.rs)
//!           let go of the replica, put the copy in its place, open it              (install.rs)
//! ```
//!
//! A checkpoint is of what has been flushed, unless the log no longer reaches back to that. The data itself says which log index it stands for, so that consensus takes no part: the receiver acknowledges that index, and the log goes on
//! from there. If the leader's log no longer reaches back to that index when all has come, the sender makes another checkpoint and sends what has changed.
//! Several copies are under way at a time. One rate, in bytes per second, holds for all that a node sends and, separately, for all that it receives: the
//! receiver gives out credit at that rate.
//!
//! Always true: a replica's data is replaced only by a complete, durable copy that is newer and whose every file has its sender's checksum; what is in flight per copy is bounded by a
//! window; a copy pins no log, and its checkpoint goes with it, however it ends (after a crash, at the next start). What was received is held for a while after a
//! copy has broken off, and goes when the replica goes, or at the latest with [`receive::KEEP_NS`]. The catalog is not copied: its log is kept whole.
//! What moves between two disks of one node goes another way (`rehome.rs`), at the same rate.

mod install;
mod meter;
mod pace;
mod receive;
mod rehome;
mod send;
mod source;
mod staged;
mod wire;

pub(crate) use install::{Installing, wait_until_unused};
pub use meter::CopyStatus;
pub(crate) use receive::INCOMING;
pub(crate) use rehome::{DiskMoves, run as move_between_disks};

use crate::context::CopyRequests;
use crate::split::SplitMark;
use crate::store::{Inner, OpenTablet};
use diorite_base::{NodeId, TabletId};
use diorite_rpc::{Lane, SendError};
use pace::Pace;
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock, Weak};
use wire::Frame;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use wire::check_frame;

/// How fast copies are sent and received unless something else is asked for, bytes per second.
const RATE_BYTES: u64 = 200_000_000;
/// A file is sent in pieces of this size.
const PIECE_BYTES: usize = 256 << 10;
/// Bytes in flight per copy.
const WINDOW_BYTES: u64 = 8 << 20;
/// How long the other side of a copy that says nothing is waited for, nanoseconds, if its node is not up.
const PATIENCE_NS: u64 = 30_000_000_000;
/// How long if it is: it may have to read what it holds, or wait for readers.
const LONG_PATIENCE_NS: u64 = 300_000_000_000;
/// How often either side says something though there is nothing to say, nanoseconds.
const ALIVE_NS: u64 = 5_000_000_000;
/// The longest wait of a thread before it looks whether the rate has changed or the store is closing, nanoseconds.
const LOOK_NS: u64 = 100_000_000;

/// Knows how a tablet is opened.
pub trait Openings: Send + Sync + 'static {
    /// How to open the tablet; `None` if this node has no replica of it (any more).
    fn opening(&self, tablet: TabletId) -> Option<OpenTablet>;

    /// How to open a child of a tablet whose replica here has been split.
    fn child(&self, parent: TabletId, child: TabletId) -> ChildOpening;

    /// A tablet that is led here has been split: its children may take its place. Must not wait.
    fn was_split(&self, mark: &SplitMark);
}

/// Whether a child of a tablet that was split may be opened.
pub enum ChildOpening {
    /// Like this.
    As(Box<OpenTablet>),
    /// This node has not heard of it yet, or not durably: after a crash it would remove it as unknown.
    NotYet,
    /// It is not, or no more, to be here.
    Never,
}

/// The copies that this node sends and receives.
pub(crate) struct Copies {
    inner: Arc<Inner>,
    openings: OnceLock<Arc<dyn Openings>>,
    asking: Mutex<source::Asking>,
    sending: Mutex<send::Sending>,
    receiving: Mutex<receive::Receiving>,
    pace_out: Mutex<Pace>,
    pace_in: Mutex<Pace>,
}

impl Copies {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self {
            inner,
            openings: OnceLock::new(),
            asking: Mutex::default(),
            sending: Mutex::default(),
            receiving: Mutex::default(),
            pace_out: Mutex::new(Pace::new(RATE_BYTES)),
            pace_in: Mutex::new(Pace::new(RATE_BYTES)),
        }
    }

    pub(crate) fn set_openings(&self, openings: Arc<dyn Openings>) {
        if self.openings.set(openings).is_err() {
            tracing::error!("how tablets are opened is known already");
        }
    }

    /// How a replica of this node is opened; `None` if it has none of the tablet (any more).
    pub(crate) fn opening(&self, tablet: TabletId) -> Option<OpenTablet> {
        self.openings.get()?.opening(tablet)
    }

    /// How a child of a tablet that was split is opened here.
    pub(crate) fn child(&self, parent: TabletId, child: TabletId) -> ChildOpening {
        self.openings.get().map_or(ChildOpening::NotYet, |openings| openings.child(parent, child))
    }

    /// Says that a tablet led here has been split.
    pub(crate) fn tell_split(&self, mark: &SplitMark) {
        if let Some(openings) = self.openings.get() {
            openings.was_split(mark);
        }
    }

    pub(crate) fn set_rate(&self, bytes_per_second: u64) {
        let now_ns = self.now_ns();
        self.pace_out.lock().set_rate(bytes_per_second, now_ns);
        self.pace_in.lock().set_rate(bytes_per_second, now_ns);
    }

    /// What is under way, by tablet.
    pub(crate) fn statuses(&self) -> Vec<CopyStatus> {
        let (now_ns, me) = (self.now_ns(), self.inner.context.node);
        let mut found = self.sending.lock().statuses(me, now_ns);
        found.extend(self.receiving.lock().statuses(me, now_ns));
        found.sort_by_key(|status| (status.tablet, status.from, status.to));
        found
    }

    /// The replicas of these tablets are let go of: nothing is sent of them and nothing taken for them any more.
    pub(crate) fn abandon(&self, tablets: &[TabletId]) {
        self.sending.lock().abandon(tablets);
        self.abandon_received(tablets);
    }

    /// Ends all copies and waits for their threads. The workers must still be at work.
    pub(crate) fn close(&self) {
        let mut threads = self.sending.lock().close();
        threads.extend(self.receiving.lock().close());
        for thread in threads {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }

    /// Takes a frame of the bulk lane.
    pub(crate) fn receive(self: &Arc<Self>, from: NodeId, bytes: &[u8]) {
        let Ok(frame) = Frame::decode(bytes) else {
            tracing::warn!(%from, "a malformed frame on the bulk lane");
            return;
        };
        match frame {
            Frame::Begin { copy, tablet, .. } => self.arrived(from, copy, Some(tablet), bytes),
            Frame::Piece { copy, .. } | Frame::Complete { copy, .. } | Frame::End { copy } | Frame::Alive { copy } => {
                self.arrived(from, copy, None, bytes);
            }
            Frame::Have { .. } | Frame::Credit { .. } | Frame::Ended { .. } | Frame::Reached { .. } => {
                self.sending.lock().answered(from, &frame, self.now_ns());
            }
            Frame::Ask { copy, tablet, to, needed } => self.asked(from, copy, tablet, to, needed),
            Frame::Answer { copy, state, failure } => {
                self.asking.lock().answered(from, copy, state, failure, self.now_ns())
            }
            Frame::Reach { copy, tablet } => self.tell_reach(from, copy, tablet),
        }
    }

    fn put(&self, to: NodeId, frame: &Frame<'_>) -> Result<(), String> {
        let mut bytes = Vec::new();
        if let Frame::Piece { data, .. } = frame {
            bytes.reserve(data.len() + 128);
        }
        frame.encode(&mut bytes);
        let sent = self.inner.context.transport.send(to, Lane::Bulk, &bytes);
        sent.map_err(|error: SendError| error.to_string())
    }

    /// Whether a node that was heard of last at `heard_ns` is waited for no longer.
    fn is_silent(&self, node: NodeId, heard_ns: u64) -> bool {
        let patience_ns = if self.inner.context.liveness.is_up(node) { LONG_PATIENCE_NS } else { PATIENCE_NS };
        self.now_ns() > heard_ns + patience_ns
    }

    fn now_ns(&self) -> u64 {
        self.inner.context.clock.monotonic_ns()
    }
}

/// Passes requests on for as long as the store lives.
pub(crate) struct Requests(pub(crate) Weak<Copies>);

impl CopyRequests for Requests {
    fn lacks(&self, tablet: TabletId, member: NodeId, able: &[NodeId]) {
        if let Some(copies) = self.0.upgrade() {
            copies.provide(tablet, member, able);
        }
    }
}
