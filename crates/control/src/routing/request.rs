//! A request for a tablet, held by the node that received it from a client until it ends.
//!
//! Always true: a [`Request`] has certainly not been carried out, or is a read. A [`Sent`] may have been; it becomes a
//! request again only after a refusal, if it was certainly not sent, or if it is a read.

use diorite_base::write::KvError;
use diorite_base::{NodeId, TabletId};
use std::time::Duration;

/// The work of a request, with the client that waits for the answer.
pub trait Work {
    /// Whether it changes nothing, so that it may be carried out twice.
    fn is_read(&self) -> bool;

    /// Its memory.
    fn size_bytes(&self) -> usize;
}

/// How long requests may wait.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For the answer to a read.
    pub read: Duration,
    /// For the answer to a write.
    pub write: Duration,
    /// For a tablet that the asked node does not know, as one of two catalogs is behind.
    pub missing: Duration,
}

impl Timeouts {
    /// The timeout of an answer to such work.
    pub fn of<W: Work>(&self, work: &W) -> Duration {
        if work.is_read() { self.read } else { self.write }
    }
}

/// See the top of this module. Boxed, as it moves between tables.
pub type Request<W> = Box<Asked<W>>;

/// The content of a [`Request`].
#[derive(Debug)]
pub struct Asked<W> {
    /// The tablet that it is for; after a split, the child.
    pub tablet: TabletId,
    /// The work.
    pub work: W,
    /// When it ends, on the monotonic clock.
    pub deadline_ns: u64,
    /// How much longer it may take, milliseconds, if that is less than the usual timeout: it is sent to the asked node.
    pub left_ms: Option<u64>,
    /// When a read without an answer is sent once more.
    pub(super) resend_ns: u64,
    /// Refusals in a row, since it was last parked.
    pub(super) attempts: usize,
    /// How often it was parked.
    pub(super) rounds: usize,
    /// The last node that refused it.
    pub(super) refused_by: Option<NodeId>,
    /// The node that it goes to is not known to lead: a success is remembered.
    pub(super) is_probe: bool,
    /// Since when the asked nodes do not know the tablet.
    pub(super) missing_since_ns: Option<u64>,
}

impl<W: Work> Asked<W> {
    /// A request that ends after its timeout, or at `until_ns`, if that is sooner, on whichever node.
    pub fn new(tablet: TabletId, work: W, now_ns: u64, timeouts: &Timeouts, until_ns: Option<u64>) -> Request<W> {
        let timeout_ns = timeouts.of(&work).as_nanos() as u64;
        let left_ns = until_ns.map(|until_ns| until_ns.saturating_sub(now_ns)).filter(|left_ns| *left_ns < timeout_ns);
        let timeout_ns = left_ns.unwrap_or(timeout_ns);
        Box::new(Self {
            tablet,
            work,
            deadline_ns: now_ns + timeout_ns,
            left_ms: left_ns.map(|left_ns| left_ns.div_ceil(1_000_000)),
            resend_ns: now_ns + timeout_ns / 2,
            attempts: 0,
            rounds: 0,
            refused_by: None,
            is_probe: false,
            missing_since_ns: None,
        })
    }

    /// A node certainly did not carry it out.
    pub(super) fn refused(&mut self, by: NodeId) {
        self.attempts += 1;
        self.refused_by = Some(by);
    }

    /// Parks it: all nodes may be asked again. Returns the node that refused it last.
    pub(super) fn waits(&mut self) -> Option<NodeId> {
        self.attempts = 0;
        self.rounds += 1;
        self.refused_by.take()
    }

    /// It is for this tablet now, for which no node has been asked yet.
    pub(super) fn moves_to(&mut self, tablet: TabletId) {
        self.tablet = tablet;
        (self.attempts, self.rounds) = (0, 0);
        (self.refused_by, self.missing_since_ns) = (None, None);
    }

    /// Updates the time left, if it is sent along: the request may have been parked since.
    pub(super) fn update_time_left(&mut self, now_ns: u64) {
        if let Some(left_ms) = &mut self.left_ms {
            *left_ms = self.deadline_ns.saturating_sub(now_ns).div_ceil(1_000_000);
        }
    }

    /// Since when the asked nodes do not know the tablet: since now, if this is the first such answer.
    pub(super) fn missing_since(&mut self, now_ns: u64) -> u64 {
        *self.missing_since_ns.get_or_insert(now_ns)
    }
}

/// A request that was sent to a node: it may have been carried out.
#[derive(Debug)]
#[must_use]
pub struct Sent<W>(Request<W>);

impl<W: Work> Sent<W> {
    pub(super) fn new(request: Request<W>) -> Self {
        Self(request)
    }

    /// The request.
    pub fn asked(&self) -> &Asked<W> {
        &self.0
    }

    /// Whether it was sent as a probe: a success is to be [remembered](super::Routing::answered).
    pub fn is_probe(&self) -> bool {
        self.0.is_probe
    }

    /// Ends it: returns its work.
    pub fn into_work(self) -> W {
        self.0.work
    }

    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        self.is_over(now_ns) || (self.0.work.is_read() && self.0.resend_ns <= now_ns)
    }

    pub(super) fn is_over(&self, now_ns: u64) -> bool {
        self.0.deadline_ns <= now_ns
    }

    /// The request again, if the node reported that it has not carried it out and never will.
    pub(super) fn refused(mut self, by: NodeId, error: &KvError) -> Result<Request<W>, Self> {
        if !error.is_refusal() {
            return Err(self);
        }
        self.0.refused(by);
        Ok(self.0)
    }

    /// The request again, if it may be carried out twice. It is not sent a third time: after two missing answers it
    /// waits for its deadline.
    pub(super) fn repeated(mut self) -> Result<Request<W>, Self> {
        if !self.0.work.is_read() {
            return Err(self);
        }
        self.0.resend_ns = u64::MAX;
        Ok(self.0)
    }

    /// The request again: its frame was not sent.
    pub(super) fn never_left(self) -> Request<W> {
        self.0
    }
}
