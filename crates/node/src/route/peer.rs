//! What is on its way to one other node: the frame that is being gathered, and the requests that are not answered yet.
//!
//! Always true: a request is in the table from before its bytes can leave until its answer, a refusal, or its deadline; count and bytes are
//! bounded; the lock is never held while something is sent or somebody told.

use super::RouteLimits;
use super::request::{Request, Work};
use super::wire::{self, FrameKind, Outcome};
use ahash::AHashMap;
use diorite_base::bytes::{Malformed, Reader};
use diorite_base::{NodeId, TabletId};
use parking_lot::Mutex;
use std::ops::Range;

#[derive(Default)]
struct State {
    /// The frame that is being gathered; empty if there is none.
    frame: Vec<u8>,
    /// The first id in it.
    first_id: u64,
    next_id: u64,
    pending: AHashMap<u64, Request>,
    pending_bytes: usize,
}

impl State {
    fn remove(&mut self, id: u64) -> Option<Request> {
        let request = self.pending.remove(&id)?;
        self.pending_bytes -= request.size_bytes();
        Some(request)
    }

    fn remove_all(&mut self, ids: impl IntoIterator<Item = u64>) -> Vec<Request> {
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }
}

/// A frame that may leave, and the ids of the requests in it.
pub(super) struct Outgoing {
    pub(super) frame: Vec<u8>,
    pub(super) ids: Range<u64>,
}

/// See the top of this module.
pub(super) struct Peer {
    pub(super) node: NodeId,
    incarnation: u64,
    limits: RouteLimits,
    state: Mutex<State>,
}

impl Peer {
    pub(super) fn new(node: NodeId, incarnation: u64, limits: RouteLimits) -> Self {
        Self { node, incarnation, limits, state: Mutex::default() }
    }

    /// Adds a request to the frame that is being gathered; gives it back if too much is on its way. True: the frame should leave now.
    pub(super) fn add(&self, request: Request) -> Result<bool, Request> {
        let mut state = self.state.lock();
        let size_bytes = request.size_bytes();
        let is_full = state.pending.len() >= self.limits.requests
            || (state.pending_bytes + size_bytes > self.limits.bytes && !state.pending.is_empty());
        if is_full {
            return Err(request);
        }
        let State { frame, first_id, next_id, pending, pending_bytes } = &mut *state;
        if frame.is_empty() {
            *first_id = *next_id;
            wire::put_frame(frame, FrameKind::Requests, self.incarnation);
        }
        let id = *next_id;
        *next_id += 1;
        match &request.work {
            Work::Fetch { fetch, .. } => wire::put_fetch(frame, id, request.tablet, fetch, request.left_ms),
            Work::Write { mutation, .. } => {
                wire::put_write(frame, id, request.tablet, mutation.as_bytes(), request.left_ms);
            }
        }
        pending.insert(id, request);
        *pending_bytes += size_bytes;
        Ok(frame.len() >= self.limits.frame_bytes)
    }

    /// Takes the gathered frame, if there is one.
    pub(super) fn take_frame(&self) -> Option<Outgoing> {
        let mut state = self.state.lock();
        if state.frame.is_empty() {
            return None;
        }
        let frame = std::mem::take(&mut state.frame);
        Some(Outgoing { frame, ids: state.first_id..state.next_id })
    }

    /// Gives back the buffer of a frame that was sent.
    pub(super) fn recycle(&self, mut frame: Vec<u8>) {
        let mut state = self.state.lock();
        if state.frame.capacity() == 0 && frame.capacity() <= self.limits.frame_bytes {
            frame.clear();
            state.frame = frame;
        }
    }

    /// Takes back the requests of a frame that was not sent.
    pub(super) fn take_back(&self, ids: Range<u64>) -> Vec<Request> {
        self.state.lock().remove_all(ids)
    }

    /// Takes the requests that a frame's answers are for. Answers to requests that are no longer waited for are dropped.
    pub(super) fn answered(
        &self,
        incarnation: u64,
        items: &mut Reader<'_>,
        into: &mut Vec<(Request, Outcome)>,
    ) -> Result<(), Malformed> {
        if incarnation != self.incarnation {
            return Ok(());
        }
        let mut state = self.state.lock();
        while !items.is_empty() {
            let tablet_of = |id| state.pending.get(&id).map_or(TabletId(0), |request| request.tablet);
            let (id, outcome) = wire::read_answer(items, tablet_of)?;
            if let Some(request) = state.remove(id) {
                into.push((request, outcome));
            }
        }
        Ok(())
    }

    /// Takes what is not waited for any longer: the expired, and reads that are to be sent again.
    pub(super) fn take_due(&self, now_ns: u64) -> Vec<Request> {
        let mut state = self.state.lock();
        if state.pending.is_empty() {
            return Vec::new();
        }
        let is_due =
            |request: &Request| request.deadline_ns <= now_ns || (request.is_read() && request.resend_ns <= now_ns);
        let due: Vec<u64> = state.pending.iter().filter(|(_, request)| is_due(request)).map(|(id, _)| *id).collect();
        state.remove_all(due)
    }

    /// Takes all reads: the node is gone.
    pub(super) fn take_reads(&self) -> Vec<Request> {
        let mut state = self.state.lock();
        let reads: Vec<u64> =
            state.pending.iter().filter(|(_, request)| request.is_read()).map(|(id, _)| *id).collect();
        state.remove_all(reads)
    }

    /// Requests that wait for an answer.
    pub(super) fn pending(&self) -> usize {
        self.state.lock().pending.len()
    }
}
