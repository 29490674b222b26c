//! The traffic to one other node: the frame that is being gathered, and the requests without an answer.
//!
//! Always true: a request is in the table ([`InFlight`]) from before its bytes can be sent until it is answered or
//! removed; the lock is never held while a frame is sent or a client is notified.

use super::options::RouteLimits;
use super::request::{Request, Sent, Work, Write};
use super::wire::{self, FrameKind, Outcome};
use diorite_base::bytes::{Malformed, Reader};
use diorite_base::{NodeId, TabletId};
use diorite_control::routing::{Asked, Due, InFlight};
use parking_lot::Mutex;
use std::ops::Range;

struct State {
    /// The frame that is being gathered; empty if there is none.
    frame: Vec<u8>,
    /// The first request id in the frame.
    first_id: u64,
    in_flight: InFlight<Work>,
}

/// A frame that may be sent, and the ids of the requests in it.
pub(super) struct Outgoing {
    pub(super) frame: Vec<u8>,
    pub(super) ids: Range<u64>,
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
        let state = Mutex::new(State { frame: Vec::new(), first_id: 0, in_flight });
        Self { node, incarnation, frame_bytes: limits.frame_bytes, state }
    }

    /// Adds a request to the frame that is being gathered; returns the request if too many wait already. True: the
    /// frame should be sent now.
    pub(super) fn add(&self, request: Request) -> Result<bool, Request> {
        let mut state = self.state.lock();
        let State { frame, first_id, in_flight } = &mut *state;
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

    /// Takes the gathered frame, if there is one.
    pub(super) fn take_frame(&self) -> Option<Outgoing> {
        let mut state = self.state.lock();
        if state.frame.is_empty() {
            return None;
        }
        let frame = std::mem::take(&mut state.frame);
        Some(Outgoing { frame, ids: state.first_id..state.in_flight.next_id() })
    }

    /// Returns the buffer of a sent frame, to be reused.
    pub(super) fn recycle(&self, mut frame: Vec<u8>) {
        let mut state = self.state.lock();
        if state.frame.capacity() == 0 && frame.capacity() <= self.frame_bytes {
            frame.clear();
            state.frame = frame;
        }
    }

    /// Removes and returns the requests of a frame that was not sent.
    pub(super) fn take_back(&self, ids: Range<u64>) -> Vec<Request> {
        self.state.lock().in_flight.take_back(ids)
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
