//! The requests that one other node was sent and has not answered.
//!
//! Always true: a request is in the table from before its bytes can be sent until its answer, a refusal or its
//! deadline; while it is there it may have been carried out. Count and bytes are bounded. Left out: the frame with its
//! bytes.

use super::request::{Asked, Request, Sent, Work};
use ahash::AHashMap;
use std::ops::Range;

/// Bounds on the requests that wait for one other node, or for leaders.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Requests.
    pub requests: usize,
    /// Bytes of requests.
    pub bytes: usize,
}

/// Requests that have waited long enough for an answer.
#[derive(Debug)]
pub struct Due<W> {
    /// Requests whose deadline has passed.
    pub over: Vec<Sent<W>>,
    /// Reads to send once more.
    pub again: Vec<Request<W>>,
}

/// Requests whose connection has ended before their answers.
#[derive(Debug)]
pub struct Disconnected<W> {
    /// Requests that were certainly not sent.
    pub never_left: Vec<Request<W>>,
    /// Reads to send once more.
    pub again: Vec<Request<W>>,
    /// Writes that may have been carried out.
    pub unknown: Vec<Sent<W>>,
}

/// See the top of this module.
#[derive(Debug)]
pub struct InFlight<W> {
    limits: Limits,
    next_id: u64,
    pending: AHashMap<u64, Sent<W>>,
    bytes: usize,
}

impl<W: Work> InFlight<W> {
    /// An empty table.
    pub fn new(limits: Limits) -> Self {
        Self { limits, next_id: 0, pending: AHashMap::new(), bytes: 0 }
    }

    /// Adds a request, after `put` has put it into a frame under its id; returns it if too much is in flight.
    pub fn add(&mut self, request: Request<W>, put: impl FnOnce(u64, &Asked<W>)) -> Result<(), Request<W>> {
        let size_bytes = request.work.size_bytes();
        let is_full = self.pending.len() >= self.limits.requests
            || (self.bytes + size_bytes > self.limits.bytes && !self.pending.is_empty());
        if is_full {
            return Err(request);
        }
        let id = self.next_id;
        self.next_id += 1;
        put(id, &request);
        self.pending.insert(id, Sent::new(request));
        self.bytes += size_bytes;
        Ok(())
    }

    /// The id of the next request.
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// The number of requests that wait for an answer.
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether no request waits for an answer.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The request with an id, if it still waits for its answer.
    pub fn get(&self, id: u64) -> Option<&Asked<W>> {
        self.pending.get(&id).map(Sent::asked)
    }

    /// Removes and returns the request of an answer. `None` for an answer that comes too late, or a second time.
    pub fn take(&mut self, id: u64) -> Option<Sent<W>> {
        let sent = self.pending.remove(&id)?;
        self.bytes -= sent.asked().work.size_bytes();
        Some(sent)
    }

    /// Removes and returns the requests of a frame of which no byte was sent.
    pub fn take_back(&mut self, ids: Range<u64>) -> Vec<Request<W>> {
        ids.filter_map(|id| self.take(id)).map(Sent::never_left).collect()
    }

    /// Removes and returns the requests that have waited long enough.
    pub fn take_due(&mut self, now_ns: u64) -> Due<W> {
        let mut due = Due { over: Vec::new(), again: Vec::new() };
        for sent in self.take_all(|_, sent| sent.is_due(now_ns)) {
            match sent.is_over(now_ns) {
                true => due.over.push(sent),
                false => match sent.repeated() {
                    Ok(request) => due.again.push(request),
                    Err(sent) => due.over.push(sent),
                },
            }
        }
        due
    }

    /// Removes and returns all reads: the node is down, and others may answer them.
    pub fn take_reads(&mut self) -> Vec<Request<W>> {
        self.take_all(|_, sent| sent.asked().work.is_read())
            .into_iter()
            .filter_map(|sent| sent.repeated().ok())
            .collect()
    }

    /// Removes and returns all requests: the node's process has ended, and their outcomes are unknown.
    pub fn take_lost(&mut self) -> Vec<Sent<W>> {
        self.take_all(|_, _| true)
    }

    /// Removes and returns the requests that are lost with a connection: of those of `unsent` no byte was sent, those for
    /// which `was_sent` holds were sent on it, or on an earlier one.
    pub fn take_disconnected(&mut self, unsent: &[u64], was_sent: impl Fn(u64) -> bool) -> Disconnected<W> {
        let never_left = unsent.iter().filter_map(|id| self.take(*id)).map(Sent::never_left).collect();
        let mut lost = Disconnected { never_left, again: Vec::new(), unknown: Vec::new() };
        for sent in self.take_all(|id, _| was_sent(id)) {
            match sent.repeated() {
                Ok(request) => lost.again.push(request),
                Err(sent) => lost.unknown.push(sent),
            }
        }
        lost
    }

    /// Removes and returns those for which `is_wanted` holds, in the order in which they were added.
    fn take_all(&mut self, is_wanted: impl Fn(u64, &Sent<W>) -> bool) -> Vec<Sent<W>> {
        if self.pending.is_empty() {
            return Vec::new();
        }
        let mut ids: Vec<u64> =
            self.pending.iter().filter(|(id, sent)| is_wanted(**id, sent)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.into_iter().filter_map(|id| self.take(id)).collect()
    }
}
