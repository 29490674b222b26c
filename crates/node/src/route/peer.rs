//! The traffic to one other node: the frame that is being gathered, and the requests without an answer.
//!
//! Always true: a request is in the table ([`InFlight`]) from before its bytes can be sent until it is answered or
//! removed; the lock is never held while a frame is sent or a client is notified. When a connection to or from the node
//! ends, each request that was sent before is removed at once: by [`Peer::disconnected`], or by [`Peer::left`] if its frame
//! is being sent at that time.

use super::options::RouteLimits;
use super::request::{Request, Sent, Work, Write};
use super::wire::{self, FrameKind, Outcome};
use diorite_base::bytes::{Malformed, Reader};
use diorite_base::{NodeId, TabletId};
use diorite_control::routing::{Asked, Disconnected, Due, InFlight};
use parking_lot::Mutex;
use std::ops::Range;

struct State {
    /// The frame that is being gathered; empty if there is none.
    frame: Vec<u8>,
    /// The first request id in the frame.
    first_id: u64,
    in_flight: InFlight<Work>,
    /// The ids of each frame that a thread is sending.
    leaving: Vec<Range<u64>>,
    /// How many connections have ended, in either direction.
    ended: u64,
    /// Whether the node may have a connection on which its answers can arrive.
    can_answer: bool,
}

/// A frame that may be sent, and the ids of the requests in it.
pub(super) struct Outgoing {
    pub(super) frame: Vec<u8>,
    pub(super) ids: Range<u64>,
    /// Whether answers can arrive.
    pub(super) can_answer: bool,
    /// How many connections had ended when the frame was taken.
    ended: u64,
}

/// The traffic to one other node.
pub(super) struct Peer {
    pub(super) node: NodeId,
    incarnation: u64,
    frame_bytes: usize,
    state: Mutex<State>,
}

impl Peer {
    pub(super) fn new(node: NodeId, incarnation: u64, limits: RouteLimits) -> Self {
        let in_flight = InFlight::new(limits.of_requests());
        let (frame, leaving) = (Vec::new(), Vec::new());
        let state = State { frame, first_id: 0, in_flight, leaving, ended: 0, can_answer: true };
        Self { node, incarnation, frame_bytes: limits.frame_bytes, state: Mutex::new(state) }
    }

    /// Adds a request to the frame that is being gathered; returns the request if too many wait already. True: the
    /// frame should be sent now.
    pub(super) fn add(&self, request: Request) -> Result<bool, Request> {
        let mut state = self.state.lock();
        let State { frame, first_id, in_flight, .. } = &mut *state;
        in_flight.add(request, |id, asked| {
            if frame.is_empty() {
                *first_id = id;
                wire::put_frame(frame, FrameKind::Requests, self.incarnation);
            }
            let Asked { tablet, work, left_ms, .. } = asked;
            match work {
                Work::Fetch { fetch, .. } => wire::put_fetch(frame, id, *tablet, fetch, *left_ms),
                Work::Write(Write { mutation, .. }) => {
                    wire::put_write(frame, id, *tablet, mutation.as_bytes(), *left_ms);
                }
            }
        })?;
        Ok(frame.len() >= self.frame_bytes)
    }

    /// Takes the gathered frame, if there is one. [`Self::left`] or [`Self::take_back`] has to follow.
    pub(super) fn take_frame(&self) -> Option<Outgoing> {
        let mut state = self.state.lock();
        if state.frame.is_empty() {
            return None;
        }
        let frame = std::mem::take(&mut state.frame);
        let ids = state.first_id..state.in_flight.next_id();
        state.leaving.push(ids.clone());
        Some(Outgoing { frame, ids, can_answer: state.can_answer, ended: state.ended })
    }

    /// A frame was sent; its buffer is reused. Removes and returns its requests if a connection has ended meanwhile: the
    /// frame may have been sent on that connection.
    pub(super) fn left(&self, outgoing: Outgoing) -> Option<Disconnected<Work>> {
        let Outgoing { mut frame, ids, ended, .. } = outgoing;
        let mut state = self.state.lock();
        state.leaving.retain(|leaving| leaving.start != ids.start);
        if state.frame.capacity() == 0 && frame.capacity() <= self.frame_bytes {
            frame.clear();
            state.frame = frame;
        }
        if state.ended == ended {
            return None;
        }
        Some(state.in_flight.take_disconnected(&[], |id| ids.contains(&id)))
    }

    /// Removes and returns the requests of a frame that was not sent.
    pub(super) fn take_back(&self, ids: Range<u64>) -> Vec<Request> {
        let mut state = self.state.lock();
        state.leaving.retain(|leaving| leaving.start != ids.start);
        state.in_flight.take_back(ids)
    }

    /// A connection to or from the node has ended: removes and returns the requests that were sent before. The frames
    /// with the requests of `unsent` were queued, and certainly not sent.
    pub(super) fn disconnected(&self, unsent: &[u64]) -> Disconnected<Work> {
        let mut state = self.state.lock();
        let State { frame, first_id, in_flight, leaving, ended, .. } = &mut *state;
        *ended += 1;
        let gathered_from = if frame.is_empty() { u64::MAX } else { *first_id };
        let is_leaving = |id: u64| leaving.iter().any(|ids| ids.contains(&id));
        in_flight.take_disconnected(unsent, |id| id < gathered_from && !is_leaving(id))
    }

    /// Whether the node's answers can arrive from now on.
    pub(super) fn set_can_answer(&self, can_answer: bool) {
        self.state.lock().can_answer = can_answer;
    }

    /// Removes and returns the requests that a frame's answers are for. Answers to requests that no longer wait are
    /// dropped.
    pub(super) fn answered(
        &self,
        incarnation: u64,
        items: &mut Reader<'_>,
        into: &mut Vec<(Sent, Outcome)>,
    ) -> Result<(), Malformed> {
        if incarnation != self.incarnation {
            return Ok(());
        }
        let mut state = self.state.lock();
        while !items.is_empty() {
            let tablet_of = |id| state.in_flight.get(id).map_or(TabletId(0), |asked| asked.tablet);
            let (id, outcome) = wire::read_answer(items, tablet_of)?;
            if let Some(sent) = state.in_flight.take(id) {
                into.push((sent, outcome));
            }
        }
        Ok(())
    }

    /// Removes and returns the requests that are due.
    pub(super) fn take_due(&self, now_ns: u64) -> Due<Work> {
        self.state.lock().in_flight.take_due(now_ns)
    }

    /// Removes and returns all reads, since the node is down.
    pub(super) fn take_reads(&self) -> Vec<Request> {
        self.state.lock().in_flight.take_reads()
    }

    /// Removes and returns all waiting requests, since no answer will come.
    pub(super) fn take_lost(&self) -> Vec<Sent> {
        self.state.lock().in_flight.take_lost()
    }

    /// Requests that wait for an answer.
    pub(super) fn pending(&self) -> usize {
        self.state.lock().in_flight.len()
    }
}
