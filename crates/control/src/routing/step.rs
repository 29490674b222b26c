//! The next step of a request.

use super::request::Request;
use diorite_base::NodeId;
use diorite_base::write::KvError;

/// Where a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To this node's replica, which leads.
    Here,
    /// To another node.
    Node(Target),
    /// No node is left to ask.
    Nobody,
}

/// Another node that a request goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Which.
    pub node: NodeId,
    /// Whether it is known to lead; otherwise the request is a probe.
    pub is_known: bool,
}

/// See the top of this module. The request is always in the step, unless it is parked.
#[derive(Debug)]
#[must_use]
pub enum Step<W> {
    /// Send it to the node. If too much waits for that already, it fails as overloaded.
    Send(NodeId, Request<W>),
    /// This node's replica carries it out.
    Serve(Request<W>),
    /// It is parked here.
    Parked,
    /// It ends.
    Fail(W, KvError),
    /// It ends, because too many requests wait already.
    Overloaded(W, KvError),
    /// It ends, because its deadline has passed.
    TimedOut(W, KvError),
}

impl Target {
    /// The request, marked as a probe if it is one.
    pub fn mark<W>(self, mut request: Request<W>) -> Request<W> {
        request.is_probe = !self.is_known || request.rounds > 0;
        request
    }
}
