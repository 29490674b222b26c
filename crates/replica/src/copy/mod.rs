//! Copies of whole replicas: a member that lacks what is no longer in its leader's log is sent the leader's files.
//!
//! The leader makes a checkpoint (hard links) and streams its files as they are; the receiver stages them, makes them durable, lets go of its
//! replica and opens the copy in its place. The data itself says which log index it stands for, so that consensus takes no part: the
//! receiver acknowledges that index, and the log goes on from there. Several copies are under way at a time; together they keep to a rate in
//! bytes per second.
//!
//! Always true: a replica's data is replaced only by a complete, durable copy that is newer; what is in flight per copy is bounded by a window; a copy that ends
//! in any way leaves nothing behind (after a crash, the next start tidies). The catalog is not copied: its log is kept whole.

mod receive;
mod send;
mod wire;

use crate::context::CopyRequests;
use crate::store::{Inner, OpenTablet};
use diorite_base::{NodeId, TabletId};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock, Weak};

/// How fast copies are sent unless something else is asked for, bytes per second.
const RATE_BYTES: u64 = 200 << 20;

/// Knows how a tablet is opened.
pub trait Openings: Send + Sync + 'static {
    /// How to open the tablet; `None` if this node has no replica of it (any more).
    fn opening(&self, tablet: TabletId) -> Option<OpenTablet>;
}

/// The copies that this node sends and receives.
pub(crate) struct Copies {
    inner: Arc<Inner>,
    openings: OnceLock<Arc<dyn Openings>>,
    sending: Mutex<send::Sending>,
    pace: send::Pace,
    receiving: receive::Receiving,
}

impl Copies {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self {
            inner,
            openings: OnceLock::new(),
            sending: Mutex::default(),
            pace: send::Pace::new(RATE_BYTES),
            receiving: receive::Receiving::default(),
        }
    }

    pub(crate) fn set_openings(&self, openings: Arc<dyn Openings>) {
        if self.openings.set(openings).is_err() {
            tracing::error!("how tablets are opened is known already");
        }
    }

    pub(crate) fn set_rate(&self, bytes_per_second: u64) {
        self.pace.set_rate(bytes_per_second);
    }

    /// Ends all copies and waits for their threads. The workers must still be at work.
    pub(crate) fn close(&self) {
        self.pace.close();
        let mut threads = self.sending.lock().close();
        threads.extend(self.receiving.close());
        for thread in threads {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }

    /// Takes a frame of the bulk lane.
    pub(crate) fn receive(self: &Arc<Self>, from: NodeId, frame: &[u8]) {
        match wire::Frame::decode(frame) {
            Ok(frame @ (wire::Frame::Taken { .. } | wire::Frame::Ended { .. })) => self.answered(from, &frame),
            Ok(frame) => receive::take(self, from, &frame),
            Err(_) => tracing::warn!(%from, "a malformed frame on the bulk lane"),
        }
    }
}

/// Passes requests on for as long as the store lives.
pub(crate) struct Requests(pub(crate) Weak<Copies>);

impl CopyRequests for Requests {
    fn lacks(&self, tablet: TabletId, member: NodeId) {
        if let Some(copies) = self.0.upgrade() {
            copies.begin(tablet, member);
        }
    }
}
