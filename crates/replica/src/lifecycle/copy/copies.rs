//! The copies that a node sends and receives.

use super::asking::{Asking, TIMEOUT_NS};
use super::meter::CopyStatus;
use super::rate_limit::RateLimit;
use super::receiving::{INCOMING, Receiving};
use super::sending::Sending;
use super::wire::Frame;
use crate::lifecycle::replicas::NodeReplicas;
use diorite_base::{NodeId, TabletId};
use diorite_rpc::{Lane, SendError};
use parking_lot::Mutex;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The rate limit of copies in either direction, unless another is set, bytes per second.
const RATE_BYTES: u64 = 200_000_000;
/// A file is sent in pieces of this size.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
/// Bytes in flight per copy.
pub(crate) const WINDOW_BYTES: u64 = 8 << 20;
/// How long the other side of a copy may send nothing, nanoseconds, if its node is up: it may have to read what it
/// holds, or wait for readers.
const LONG_TIMEOUT_NS: u64 = 300_000_000_000;
/// How often either side sends a message even if nothing else is to be sent, nanoseconds.
pub(crate) const ALIVE_NS: u64 = 5_000_000_000;
/// The longest wait of a thread before it checks whether the rate limit has changed or the store is closing,
/// nanoseconds.
pub(crate) const LOOK_NS: u64 = 100_000_000;

/// The copies that this node sends and receives.
pub(crate) struct Copies {
    pub(crate) replicas: Arc<NodeReplicas>,
    pub(crate) asking: Mutex<Asking>,
    pub(crate) sending: Mutex<Sending>,
    pub(crate) receiving: Mutex<Receiving>,
    pub(crate) limit_out: Mutex<RateLimit>,
    pub(crate) limit_in: Mutex<RateLimit>,
}

impl Copies {
    pub(crate) fn new(replicas: Arc<NodeReplicas>) -> Self {
        Self {
            replicas,
            asking: Mutex::default(),
            sending: Mutex::default(),
            receiving: Mutex::default(),
            limit_out: Mutex::new(RateLimit::new(RATE_BYTES)),
            limit_in: Mutex::new(RateLimit::new(RATE_BYTES)),
        }
    }

    pub(crate) fn set_rate(&self, bytes_per_second: u64) {
        let now_ns = self.now_ns();
        self.limit_out.lock().set_rate(bytes_per_second, now_ns);
        self.limit_in.lock().set_rate(bytes_per_second, now_ns);
    }

    /// The copies under way, by tablet.
    pub(crate) fn statuses(&self) -> Vec<CopyStatus> {
        let (now_ns, me) = (self.now_ns(), self.replicas.context.node);
        let mut found = self.sending.lock().statuses(me, now_ns);
        found.extend(self.receiving.lock().statuses(me, now_ns));
        found.sort_by_key(|status| (status.tablet, status.from, status.to));
        found
    }

    /// The replicas of these tablets are closed or detached: their copies end, in either direction.
    pub(crate) fn cancel(&self, tablets: &[TabletId]) {
        self.sending.lock().cancel(tablets);
        self.cancel_received(tablets);
    }

    /// Ends all copies and waits for their threads. The store threads must still run.
    pub(crate) fn close(&self) {
        let mut threads = self.sending.lock().close();
        threads.extend(self.receiving.lock().close());
        for thread in threads {
            // A thread that panicked has logged it.
            let _ = thread.join();
        }
    }

    pub(crate) fn put(&self, to: NodeId, frame: &Frame<'_>) -> Result<(), SendError> {
        let mut bytes = Vec::new();
        if let Frame::Piece { data, .. } = frame {
            bytes.reserve(data.len() + 128);
        }
        frame.encode(&mut bytes);
        self.replicas.context.transport.send(to, Lane::Bulk, &bytes)
    }

    /// Whether a node that last sent something at `received_ns` is not waited for any longer.
    pub(crate) fn is_silent(&self, node: NodeId, received_ns: u64) -> bool {
        let timeout_ns = if self.replicas.context.liveness.is_up(node) { LONG_TIMEOUT_NS } else { TIMEOUT_NS };
        self.now_ns() > received_ns + timeout_ns
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.replicas.context.clock.monotonic_ns()
    }

    /// Ends the copies that are received for these tablets, and removes their files.
    pub(crate) fn cancel_received(&self, tablets: &[TabletId]) {
        let mut receiving = self.receiving.lock();
        for incoming in receiving.under_way.values().filter(|incoming| tablets.contains(&incoming.tablet)) {
            incoming.cancelled.store(true, Ordering::Release);
        }
        receiving.under_way.retain(|_, incoming| !tablets.contains(&incoming.tablet));
        // Threads remove the directories that they write to.
        for tablet in tablets.iter().filter(|tablet| !receiving.staging.contains(tablet)) {
            self.remove_staged(*tablet);
        }
    }

    pub(crate) fn remove_staged(&self, tablet: TabletId) {
        for disk in self.replicas.disks.iter() {
            let directory = disk.directory.staged(tablet.0, INCOMING);
            if directory.is_dir()
                && let Err(error) = fs::remove_dir_all(&directory)
            {
                tracing::warn!(%tablet, %error, "a staged copy could not be removed");
            }
        }
    }
}
