//! Decides how a node reacts to the answers of the members that it dials.
//!
//! Always true: a node that any member has admitted is not stopped by another's refusal, unless the reason is that a
//! second process runs under its id, or that it was removed. A node that no member has admitted stops at the first
//! refusal that a retry cannot change.

use super::Encounters;
use diorite_base::NodeId;
use diorite_cluster::catalog::Catalog;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// How to report a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// Not at all: it was reported, or the node is about to stop because of it.
    Nothing,
    /// As temporary.
    Passing,
    /// As an error that an operator has to fix.
    Lasting,
}

/// The consequences of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Weight {
    /// A retry cannot help.
    is_final: bool,
    /// It stops a node even if others have admitted it.
    stops_members: bool,
    /// The node was removed.
    is_removal: bool,
}

/// See the top of this module. `R`: refusals of the transport.
#[derive(Debug)]
pub struct Admission<R> {
    met: BTreeSet<NodeId>,
    callers: BTreeMap<NodeId, SocketAddr>,
    answered: BTreeSet<NodeId>,
    /// The last refusal of each node, so that it is reported once for all lanes.
    reported: BTreeMap<NodeId, R>,
    /// The refusal that decides, by whom, and whether it stops members.
    refused: Option<(NodeId, R, bool)>,
    is_started: bool,
}

impl<R> Default for Admission<R> {
    fn default() -> Self {
        Self {
            met: BTreeSet::new(),
            callers: BTreeMap::new(),
            answered: BTreeSet::new(),
            reported: BTreeMap::new(),
            refused: None,
            is_started: false,
        }
    }
}

/// The properties of a refusal that decisions depend on.
pub trait Refused: Clone + PartialEq {
    /// Whether a retry cannot help.
    fn is_final(&self) -> bool;
    /// Whether it says that another process runs under the node's id.
    fn is_duplicate(&self) -> bool;
    /// Whether it says that the node was removed.
    fn is_removal(&self) -> bool;
    /// Whether it is temporary.
    fn passes(&self) -> bool;
}

impl<R: Refused> Admission<R> {
    /// Another node has admitted this one; returns whether it is the first.
    pub fn admitted(&mut self, by: NodeId) -> bool {
        self.answered.insert(by);
        self.reported.remove(&by);
        self.met.insert(by)
    }

    /// Another node cannot be reached.
    pub fn unreachable(&mut self, node: NodeId) {
        self.answered.insert(node);
    }

    /// Another node has refused this one.
    pub fn refused(&mut self, by: NodeId, refusal: &R) -> Report {
        self.answered.insert(by);
        let weight = Weight {
            is_final: refusal.is_final(),
            stops_members: refusal.is_duplicate() || refusal.is_removal(),
            is_removal: refusal.is_removal(),
        };
        // A refusal because of a second process outranks earlier refusals, but only for a process that was not admitted
        // there.
        let is_first = self.refused.is_none() || weight.stops_members;
        let is_new = !self.met.contains(&by) || weight.is_removal;
        if weight.is_final && is_first && is_new {
            self.refused = Some((by, refusal.clone(), weight.stops_members));
            Report::Nothing
        } else if weight.is_final && self.refused.is_some() && self.met.is_empty() {
            // Repeated on another lane: the node is about to stop, and logs the reason once.
            Report::Nothing
        } else if self.reported.insert(by, refusal.clone()).as_ref() == Some(refusal) {
            Report::Nothing
        } else if refusal.passes() {
            Report::Passing
        } else {
            Report::Lasting
        }
    }

    /// Whether each of these nodes has admitted this one, has refused it, or could not be reached.
    pub fn have_answered(&self, nodes: &[NodeId]) -> bool {
        nodes.iter().all(|node| self.answered.contains(node))
    }

    /// This node has admitted another that dials it from there. Returns whether heartbeats may now go there that did not before: the copy of the
    /// catalog has nodes, and not yet that one.
    pub fn called(&mut self, by: NodeId, address: SocketAddr, catalog: &Catalog) -> bool {
        self.callers.retain(|caller, _| catalog.node(*caller).is_none());
        let is_unknown = catalog.nodes().next().is_some() && catalog.node(by).is_none();
        is_unknown && self.callers.insert(by, address) != Some(address)
    }

    /// The nodes that have admitted this one, and the newer members that it has admitted.
    pub fn encounters(&self) -> Encounters {
        Encounters { met: self.met.iter().copied().collect(), callers: self.callers.clone() }
    }

    /// `None`: the node continues. Otherwise it must stop for this reason, and from here on does not wait for further
    /// answers.
    pub fn verdict(&mut self) -> Option<(NodeId, &R)> {
        self.is_started = true;
        self.stops()
    }

    /// Why the node must stop, once there has been a verdict.
    pub fn stops(&self) -> Option<(NodeId, &R)> {
        let (by, refusal, stops_members) = self.refused.as_ref().filter(|_| self.is_started)?;
        (self.met.is_empty() || *stops_members).then_some((*by, refusal))
    }
}

impl Refused for super::Refusal {
    fn is_final(&self) -> bool {
        !matches!(self.kind, super::RefusalKind::Unknown | super::RefusalKind::Address)
    }

    fn is_duplicate(&self) -> bool {
        self.kind == super::RefusalKind::Duplicate
    }

    fn is_removal(&self) -> bool {
        self.kind == super::RefusalKind::Removed
    }

    fn passes(&self) -> bool {
        self.kind == super::RefusalKind::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Refusal, RefusalKind};
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    fn refusal(kind: RefusalKind) -> Refusal {
        Refusal::new(kind, "no")
    }

    fn stopped_by(admission: &mut Admission<Refusal>) -> Option<NodeId> {
        admission.verdict().map(|(by, _)| by)
    }

    #[test]
    fn one_refusal_stops_a_node_that_nobody_has_let_in() {
        let mut admission = Admission::default();
        assert_eq!(admission.refused(A, &refusal(RefusalKind::Unknown)), Report::Passing);
        assert_eq!(stopped_by(&mut admission), None, "it may pass");
        assert_eq!(admission.refused(A, &refusal(RefusalKind::Cluster)), Report::Nothing);
        assert_eq!(stopped_by(&mut admission), Some(A));
    }

    #[test]
    fn whoever_has_been_let_in_is_stopped_only_by_its_double_or_its_removal() {
        let mut admission = Admission::default();
        assert!(admission.admitted(A) && !admission.admitted(A));
        admission.refused(B, &refusal(RefusalKind::Cluster));
        assert_eq!(stopped_by(&mut admission), None);
        assert_eq!(admission.refused(A, &refusal(RefusalKind::Duplicate)), Report::Lasting);
        assert_eq!(stopped_by(&mut admission), None, "this process was there first");
        admission.refused(B, &refusal(RefusalKind::Duplicate));
        assert_eq!(stopped_by(&mut admission), Some(B));
        let mut removed = Admission::default();
        removed.admitted(A);
        removed.refused(A, &refusal(RefusalKind::Removed));
        assert_eq!(stopped_by(&mut removed), Some(A));
    }

    #[test]
    fn all_have_answered_before_there_is_a_verdict() {
        let mut admission: Admission<Refusal> = Admission::default();
        admission.admitted(A);
        assert!(!admission.have_answered(&[A, B]));
        admission.unreachable(B);
        assert!(admission.have_answered(&[A, B]));
        assert_eq!(admission.encounters().met, [A]);
    }
}
