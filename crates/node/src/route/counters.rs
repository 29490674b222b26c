//! Counters of routing.

use crate::malformed::MalformedRows;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of routing, since start.
#[derive(Debug, Default)]
pub(crate) struct RouteCounters {
    /// Requests of this node's clients for tablets that this node leads.
    pub(crate) local: AtomicU64,
    /// Reads of this node's clients that this node's replica answered though another node leads, as the client accepts
    /// old data.
    pub(crate) followed: AtomicU64,
    /// Requests sent to another node, each time.
    pub(crate) forwarded: AtomicU64,
    /// Frames of requests given to the transport, counted before anything can come back.
    pub(crate) frames_sent: AtomicU64,
    /// Requests of other nodes that arrived.
    pub(crate) received: AtomicU64,
    /// Frames of answers given to the transport, counted before they can arrive.
    pub(crate) answer_frames: AtomicU64,
    /// Requests that were sent again.
    pub(crate) retried: AtomicU64,
    /// Requests of other nodes that were refused because this node does not lead the tablet.
    pub(crate) refused_not_leader: AtomicU64,
    /// Bytes of sent frames of requests and answers.
    pub(crate) sent_bytes: AtomicU64,
    /// Partial aggregates that were computed here for other nodes, so that no rows were sent.
    pub(crate) aggregates: AtomicU64,
    /// Reads from memory that were carried out by the threads for long work.
    pub(crate) long_reads: AtomicU64,
    /// Requests that were not answered by their deadline.
    pub(crate) timed_out: AtomicU64,
    /// Requests refused because too many wait already.
    pub(crate) overloaded: AtomicU64,
    /// Frames that could not be decoded.
    pub(crate) malformed: AtomicU64,
    /// Malformed rows in answers, of this node or of others, that have ended statements.
    pub(crate) malformed_rows: MalformedRows,
}

impl RouteCounters {
    pub(super) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}
