//! Carries out the decisions of routing, and reports events to it: answers, refusals, nodes that go down or come up,
//! and time.

use super::ask::{fetch_anywhere, is_refusal};
use super::counters::RouteCounters;
use super::peer::Peer;
use super::request::{Outcomes, Request, Sent, Work, Write};
use super::router::Router;
use super::wire::{self, FrameKind, Outcome, RequestRef};
use diorite_base::NodeId;
use diorite_base::bytes::{Malformed, Reader};
use diorite_base::write::KvError;
use diorite_control::routing::{Asked, Disconnected, Routing, Step, Work as _};
use diorite_replica::{NO_DEADLINE, Permit, Refused, Reroute, TabletHandle};
use diorite_rpc::{ConnectionEvent, SendError};
use std::sync::Arc;

impl Router {
    /// Carries out the step of a new request. An error ends the request, and the caller reports it.
    pub(super) fn perform_first(&self, step: Step<Work>) -> Result<(), KvError> {
        let refused = match step {
            Step::Send(node, request) => match self.send(node, request) {
                Ok(()) => return Ok(()),
                Err(request) => Routing::overloaded(request.work),
            },
            step => step,
        };
        let mut outcomes = Outcomes::default();
        match refused {
            Step::Fail(_, error) | Step::TimedOut(_, error) => Err(error),
            Step::Overloaded(_, error) => {
                RouteCounters::add(&self.counters.overloaded, 1);
                Err(error)
            }
            step @ (Step::Send(..) | Step::Serve(_) | Step::Parked) => {
                self.perform(step, &mut outcomes);
                outcomes.deliver();
                Ok(())
            }
        }
    }

    fn perform(&self, step: Step<Work>, outcomes: &mut Outcomes) {
        match step {
            Step::Send(node, request) => {
                if let Err(request) = self.send(node, request) {
                    self.perform(Routing::overloaded(request.work), outcomes);
                }
            }
            Step::Serve(request) => self.carry_out(request, outcomes),
            Step::Parked => self.arm(),
            Step::Fail(work, error) => outcomes.fail(work, error),
            Step::Overloaded(work, error) => {
                RouteCounters::add(&self.counters.overloaded, 1);
                outcomes.fail(work, error);
            }
            Step::TimedOut(work, error) => {
                RouteCounters::add(&self.counters.timed_out, 1);
                outcomes.fail(work, error);
            }
        }
    }

    /// Adds a request to the frame for a node; returns it if too many wait already.
    fn send(&self, node: NodeId, request: Request) -> Result<(), Request> {
        let peer = self.peer(node);
        let is_large = peer.add(request)?;
        self.nodes.gathering.added();
        if is_large {
            self.flush(&peer, None);
        }
        self.arm();
        Ok(())
    }

    /// Decides anew on each request, and carries out the decision.
    fn again(&self, requests: Vec<Request>, outcomes: &mut Outcomes) {
        RouteCounters::add(&self.counters.retried, requests.len() as u64);
        for request in requests {
            let step = self.routing.write().again(request, None, &self.view(), self.clock.monotonic_ns());
            self.perform(step, outcomes);
        }
    }

    /// Carries out a request on this node.
    fn carry_out(&self, request: Request, outcomes: &mut Outcomes) {
        let Some(handle) = self.store.handle(request.tablet) else {
            let step = self.routing.write().not_open_here(request, &self.view());
            return self.perform(step, outcomes);
        };
        RouteCounters::add(&self.counters.local, 1);
        if request.work.is_read() {
            // The router is gone only when the node has stopped, and then no client waits.
            let Some(router) = self.me.upgrade() else { return };
            // A read that is not accepted is dropped, which notifies its client: a read changes nothing.
            if self.threads.disk.begin(handle.disk(), move || router.carry_out_fetch(&handle, request)).is_err() {
                RouteCounters::add(&self.counters.overloaded, 1);
            }
            return;
        }
        let Asked { tablet, work, deadline_ns, .. } = *request;
        let Work::Write(Write { mutation, sink, tag }) = work else { return };
        let deadline_ns = self.store_deadline(deadline_ns);
        if let Err(error) = self.store.submit_until(tablet, mutation, &sink, tag, deadline_ns) {
            outcomes.written(sink, tag, Err(error));
        }
    }

    fn carry_out_fetch(&self, handle: &TabletHandle, request: Request) {
        let Work::Fetch { fetch, .. } = &request.work else { return };
        let mut outcomes = Outcomes::default();
        let look = self.look_until(Some(request.deadline_ns));
        match fetch_anywhere(handle, Permit::Lease, fetch, &look, &self.aggregation) {
            Err(error) if is_refusal(&error) => {
                RouteCounters::add(&self.counters.retried, 1);
                let now_ns = self.clock.monotonic_ns();
                let step = self.routing.write().refused_here(request, None, &self.view(), now_ns);
                self.perform(step, &mut outcomes);
            }
            outcome => {
                if let Work::Fetch { answer, .. } = request.work {
                    // The receiver may be gone.
                    let _ = answer.send(outcome);
                }
            }
        }
        outcomes.deliver();
        self.kick();
    }

    /// Handles the requests of a frame that the transport has not accepted.
    pub(super) fn not_sent(&self, requests: Vec<Request>, error: SendError) {
        let mut outcomes = Outcomes::default();
        for request in requests {
            let step = self.routing.write().not_sent(request, error == SendError::Down);
            self.perform(step, &mut outcomes);
        }
        outcomes.deliver();
    }

    /// Takes a frame of answers.
    pub(super) fn take_answers(&self, from: NodeId, incarnation: u64, mut items: Reader<'_>) -> Result<(), Malformed> {
        let Some(peer) = self.nodes.peers.load().get(&from).cloned() else { return Ok(()) };
        let mut answered = Vec::new();
        let decoded = peer.answered(incarnation, &mut items, &mut answered);
        let mut outcomes = Outcomes::default();
        for (sent, outcome) in answered {
            self.take_answer(from, sent, outcome, &mut outcomes);
        }
        outcomes.deliver();
        self.send_soon();
        decoded
    }

    fn take_answer(&self, from: NodeId, sent: Sent, outcome: Outcome, outcomes: &mut Outcomes) {
        let outcome = match outcome {
            Outcome::Failed(error) => {
                let now_ns = self.clock.monotonic_ns();
                let step = self.routing.write().failed(from, sent, error, &self.view(), now_ns);
                RouteCounters::add(&self.counters.retried, u64::from(!matches!(step, Step::Fail(..))));
                return self.perform(step, outcomes);
            }
            outcome => outcome,
        };
        let (tablet, is_probe) = (sent.asked().tablet, sent.is_probe());
        match (sent.into_work(), outcome) {
            (Work::Fetch { answer, .. }, Outcome::Fetched(fetched)) => {
                // The receiver may be gone.
                let _ = answer.send(Ok(fetched));
            }
            (Work::Write(Write { sink, tag, .. }), Outcome::Written(reply)) => outcomes.written(sink, tag, Ok(reply)),
            (work, _) => {
                let error = KvError::Storage(format!("{from} gave an answer to another question"));
                return outcomes.fail(work, error);
            }
        }
        if is_probe {
            let released = self.routing.write().answered(from, tablet, self.clock.monotonic_ns());
            self.again(released, outcomes);
        }
    }

    /// A node is down: its requests that other nodes can answer are sent to those, without waiting for the next tick.
    pub(crate) fn node_down(&self, node: NodeId) {
        self.routing.write().node_down(node);
        let peer = self.nodes.peers.load().get(&node).cloned();
        let mut outcomes = Outcomes::default();
        self.again(peer.map(|peer| peer.take_reads()).unwrap_or_default(), &mut outcomes);
        outcomes.deliver();
        self.send_gathered();
    }

    /// The process of a node has ended: requests that only it could answer end. Call it after the node is noted as
    /// down.
    pub(crate) fn node_ended(&self, node: NodeId) {
        let peer = self.nodes.peers.load().get(&node).cloned();
        let mut outcomes = Outcomes::default();
        for sent in peer.map(|peer| peer.take_lost()).unwrap_or_default() {
            self.perform(Routing::lost(sent), &mut outcomes);
        }
        outcomes.deliver();
    }

    /// A connection of `Lane::Requests` to or from a node has begun or ended. Requests whose frame, or whose answer, may
    /// be lost with it end now, or are sent again.
    pub(crate) fn connection(&self, node: NodeId, event: ConnectionEvent<'_>) {
        match event {
            ConnectionEvent::OutgoingBegan => {
                if let Some(served) = self.nodes.served.load().get(&node) {
                    served.send_kept();
                }
            }
            ConnectionEvent::OutgoingEnded { unsent } => {
                self.end_disconnected(self.peer(node).disconnected(&requests_in(unsent)));
            }
            ConnectionEvent::IncomingBegan => self.peer(node).set_can_answer(true),
            ConnectionEvent::IncomingEnded => {
                let peer = self.peer(node);
                // First, so that nothing is sent after those that are taken.
                peer.set_can_answer(false);
                self.end_disconnected(peer.disconnected(&[]));
            }
        }
    }

    /// Ends writes that may have been carried out, and sends the other requests again.
    pub(super) fn end_disconnected(&self, lost: Disconnected<Work>) {
        let Disconnected { never_left, again, unknown } = lost;
        self.not_sent(never_left, SendError::Down);
        let mut outcomes = Outcomes::default();
        for sent in unknown {
            self.perform(Routing::lost(sent), &mut outcomes);
        }
        self.again(again, &mut outcomes);
        outcomes.deliver();
        self.send_soon();
    }

    /// A node is up (again): parked requests may find a leader there.
    pub(crate) fn node_up(&self, _node: NodeId) {
        if self.routing.read().parked() > 0 {
            let mut outcomes = Outcomes::default();
            self.look_for_leaders(&mut outcomes);
            outcomes.deliver();
            self.kick();
        }
    }

    /// Ends expired requests, sends reads without an answer again, and looks for leaders of parked requests.
    pub(crate) fn tick(&self) {
        self.kick();
        let now_ns = self.clock.monotonic_ns();
        let peers: Vec<Arc<Peer>> = self.nodes.peers.load().values().cloned().collect();
        let mut outcomes = Outcomes::default();
        for peer in peers {
            let due = peer.take_due(now_ns);
            for sent in due.over {
                let step = self.routing.read().unanswered(sent);
                self.perform(step, &mut outcomes);
            }
            self.again(due.again, &mut outcomes);
        }
        if self.routing.read().parked() > 0 {
            let expired = self.routing.write().expire(now_ns);
            expired.into_iter().for_each(|step| self.perform(step, &mut outcomes));
            self.look_for_leaders(&mut outcomes);
        }
        outcomes.deliver();
        self.kick();
    }

    /// Sends parked requests whose leader is now known, and a probe for each tablet without a known leader.
    fn look_for_leaders(&self, outcomes: &mut Outcomes) {
        let tablets = self.routing.read().parked_tablets();
        for tablet in tablets {
            let released = self.routing.write().look(tablet, &self.view(), self.clock.monotonic_ns());
            self.again(released, outcomes);
        }
    }
}

/// The ids of the requests in frames of this node.
fn requests_in(frames: &[&[u8]]) -> Vec<u64> {
    let mut found = Vec::new();
    for frame in frames {
        let Ok((FrameKind::Requests, _, mut items)) = wire::read_frame(frame) else { continue };
        while let Ok(RequestRef { id, .. }) = wire::read_request(&mut items) {
            found.push(id);
        }
    }
    found
}

impl Reroute for Router {
    fn reroute(&self, refused: &mut Vec<Refused>) {
        let mut outcomes = Outcomes::default();
        for Refused { tablet, mutation, sink, token, deadline_ns, leader } in refused.drain(..) {
            if self.is_of_other_node(&sink) {
                // The request has had its one hop: the node that asked tries again.
                outcomes.written(sink, token, Err(KvError::NotLeader { tablet, leader }));
                continue;
            }
            RouteCounters::add(&self.counters.retried, 1);
            let until_ns = Some(deadline_ns).filter(|deadline_ns| *deadline_ns != NO_DEADLINE);
            let now_ns = self.clock.monotonic_ns();
            let work = Work::Write(Write { mutation, sink, tag: token });
            let request = Asked::new(tablet, work, now_ns, &self.options.timeouts, until_ns);
            let step = self.routing.write().refused_here(request, leader, &self.view(), now_ns);
            self.perform(step, &mut outcomes);
        }
        outcomes.deliver();
        self.send_gathered();
    }
}
