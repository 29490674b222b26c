//! The routing of a node in one thread: [`Routing`] and the [`InFlight`]s, combined as `diorite_node::route` combines
//! them with locks.

use super::decide::Routing;
use super::flight::{InFlight, Limits};
use super::request::{Asked, Request, Timeouts, Work};
use super::step::Step;
use super::view::View;
use crate::planted::Planted;
use diorite_base::write::KvError;
use diorite_base::{NodeId, TabletId};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// An output of the machine.
#[derive(Debug)]
pub enum Output<W> {
    /// This node's replica is to carry the request out, or it is [refused](Machine::refused_here).
    Serve(Request<W>),
    /// The request ends.
    End(W, Result<(), KvError>),
}

/// A request in a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<W> {
    /// Its id, for the answer.
    pub id: u64,
    /// The tablet that it is for.
    pub tablet: TabletId,
    /// The work.
    pub work: W,
}

/// The frame that is gathered for one node, and the requests in flight.
#[derive(Debug)]
struct Peer<W> {
    in_flight: InFlight<W>,
    gathered: Vec<Message<W>>,
}

/// See the top of this module.
#[derive(Debug)]
pub struct Machine<W> {
    routing: Routing<W>,
    limits: Limits,
    peers: BTreeMap<NodeId, Peer<W>>,
    outputs: VecDeque<Output<W>>,
}

impl<W: Work + Clone> Machine<W> {
    /// The routing of node `node`.
    pub fn new(node: NodeId, limits: Limits, timeouts: Timeouts) -> Self {
        let routing = Routing::new(node, limits, timeouts);
        Self { routing, limits, peers: BTreeMap::new(), outputs: VecDeque::new() }
    }

    /// Plants these bugs, in builds that can.
    pub fn plant(&mut self, planted: Planted) {
        self.routing.plant(planted);
    }

    /// The next output.
    pub fn output(&mut self) -> Option<Output<W>> {
        self.outputs.pop_front()
    }

    /// The numbers of parked requests, and of those in flight.
    pub fn waiting(&self) -> (usize, usize) {
        (self.routing.parked(), self.peers.values().map(|peer| peer.in_flight.len()).sum())
    }

    /// The tablet's leader, according to answers.
    pub fn learned(&self, tablet: TabletId) -> Option<NodeId> {
        self.routing.learned(tablet)
    }

    /// A request for a tablet that this node does not lead. It ends after its timeout, or at `until_ns` if that is sooner.
    pub fn submit(&mut self, tablet: TabletId, work: W, until_ns: Option<u64>, view: &impl View<W>, now_ns: u64) {
        let request = Asked::new(tablet, work, now_ns, self.routing.timeouts(), until_ns);
        let step = match self.routing.direct(tablet, view, now_ns) {
            Ok(Some(target)) => Step::Send(target.node, target.mark(request)),
            Ok(None) => self.routing.park(request),
            Err(error) => Step::Fail(request.work, error),
        };
        self.perform(step);
    }

    /// Takes the frame that was gathered for a node.
    pub fn take_frame(&mut self, node: NodeId) -> Vec<Message<W>> {
        self.peers.get_mut(&node).map(|peer| std::mem::take(&mut peer.gathered)).unwrap_or_default()
    }

    /// A frame that was taken was not sent, with the requests of these ids.
    pub fn not_sent(&mut self, node: NodeId, ids: Range<u64>, is_down: bool) {
        let back = self.peers.get_mut(&node).map(|peer| peer.in_flight.take_back(ids)).unwrap_or_default();
        for request in back {
            let step = self.routing.not_sent(request, is_down);
            self.perform(step);
        }
    }

    /// A connection to or from a node has ended. The frames with the requests of `unsent` were not sent.
    pub fn disconnected(&mut self, node: NodeId, unsent: &[u64], view: &impl View<W>, now_ns: u64) {
        let Some(Peer { in_flight, gathered }) = self.peers.get_mut(&node) else { return };
        // What is gathered has not been sent on any connection.
        let gathered_from = gathered.first().map_or(u64::MAX, |message| message.id);
        let lost = in_flight.take_disconnected(unsent, |id| id < gathered_from);
        for request in lost.never_left {
            let step = self.routing.not_sent(request, true);
            self.perform(step);
        }
        for sent in lost.unknown {
            self.perform(Routing::lost(sent));
        }
        self.again(lost.again, view, now_ns);
    }

    /// A node has answered.
    pub fn answered(&mut self, from: NodeId, id: u64, outcome: Result<(), KvError>, view: &impl View<W>, now_ns: u64) {
        let Some(sent) = self.peers.get_mut(&from).and_then(|peer| peer.in_flight.take(id)) else { return };
        if let Err(error) = outcome {
            let step = self.routing.failed(from, sent, error, view, now_ns);
            return self.perform(step);
        }
        let (tablet, is_probe) = (sent.asked().tablet, sent.is_probe());
        self.outputs.push_back(Output::End(sent.into_work(), Ok(())));
        if is_probe {
            let released = self.routing.answered(from, tablet, now_ns);
            self.again(released, view, now_ns);
        }
    }

    /// This node's replica has refused a request.
    pub fn refused_here(&mut self, request: Request<W>, leader: Option<NodeId>, view: &impl View<W>, now_ns: u64) {
        let step = self.routing.refused_here(request, leader, view, now_ns);
        self.perform(step);
    }

    /// This node has no replica open to carry the request out.
    pub fn not_open_here(&mut self, request: Request<W>, view: &impl View<W>) {
        let step = self.routing.not_open_here(request, view);
        self.perform(step);
    }

    /// A node is down.
    pub fn node_down(&mut self, node: NodeId, view: &impl View<W>, now_ns: u64) {
        self.routing.node_down(node);
        let reads = self.peers.get_mut(&node).map(|peer| peer.in_flight.take_reads()).unwrap_or_default();
        self.again(reads, view, now_ns);
    }

    /// A node is up: leaders may be known now.
    pub fn node_up(&mut self, view: &impl View<W>, now_ns: u64) {
        self.look(view, now_ns);
    }

    /// Some time has passed.
    pub fn tick(&mut self, view: &impl View<W>, now_ns: u64) {
        let (mut over, mut again) = (Vec::new(), Vec::new());
        for peer in self.peers.values_mut() {
            let due = peer.in_flight.take_due(now_ns);
            over.extend(due.over);
            again.extend(due.again);
        }
        for sent in over {
            let step = self.routing.unanswered(sent);
            self.perform(step);
        }
        self.again(again, view, now_ns);
        for step in self.routing.expire(now_ns) {
            self.perform(step);
        }
        self.look(view, now_ns);
    }

    fn look(&mut self, view: &impl View<W>, now_ns: u64) {
        for tablet in self.routing.parked_tablets() {
            let released = self.routing.look(tablet, view, now_ns);
            self.again(released, view, now_ns);
        }
    }

    fn again(&mut self, requests: Vec<Request<W>>, view: &impl View<W>, now_ns: u64) {
        for request in requests {
            let step = self.routing.again(request, None, view, now_ns);
            self.perform(step);
        }
    }

    fn perform(&mut self, step: Step<W>) {
        match step {
            Step::Send(node, request) => {
                let limits = self.limits;
                let empty = || Peer { in_flight: InFlight::new(limits), gathered: Vec::new() };
                let Peer { in_flight, gathered } = self.peers.entry(node).or_insert_with(empty);
                let put = |id, asked: &Asked<W>| {
                    gathered.push(Message { id, tablet: asked.tablet, work: asked.work.clone() });
                };
                if let Err(request) = in_flight.add(request, put) {
                    self.perform(Routing::overloaded(request.work));
                }
            }
            Step::Serve(request) => self.outputs.push_back(Output::Serve(request)),
            Step::Parked => {}
            Step::Fail(work, error) | Step::Overloaded(work, error) | Step::TimedOut(work, error) => {
                self.outputs.push_back(Output::End(work, Err(error)));
            }
        }
    }
}
