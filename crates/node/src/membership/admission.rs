//! Collects the answers of the members that this node dials, and wakes the tasks that wait for them;
//! [`diorite_control::membership::Admission`] decides on the answers.

use crate::error::StartError;
use diorite_base::NodeId;
use diorite_cluster::catalog::Catalog;
use diorite_control::membership::{Admission as Decision, AdmissionReport, Encounters, Refused};
use diorite_rpc::Lane;
use diorite_rpc::hello::{Refusal, RefusalKind};
use diorite_rpc::tcp::Observer;
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use tokio::sync::{Notify, watch};

/// A refusal in the transport's type.
#[derive(Clone, Debug, PartialEq)]
struct Said(Refusal);

impl Refused for Said {
    fn is_final(&self) -> bool {
        self.0.kind.is_final()
    }

    fn is_duplicate(&self) -> bool {
        self.0.kind == RefusalKind::Duplicate
    }

    fn is_removal(&self) -> bool {
        self.0.kind == RefusalKind::Removed
    }

    fn passes(&self) -> bool {
        matches!(self.0.kind, RefusalKind::Unknown | RefusalKind::Misdirected)
    }
}

/// See the top of this module.
pub(crate) struct Admission {
    decision: Mutex<Decision<Said>>,
    changes: watch::Sender<u64>,
    new_face: Notify,
}

impl Default for Admission {
    fn default() -> Self {
        Self { decision: Mutex::default(), changes: watch::Sender::new(0), new_face: Notify::new() }
    }
}

fn stopped((by, refusal): (NodeId, &Said)) -> StartError {
    StartError::Refused { by, reason: refusal.0.reason.clone() }
}

impl Admission {
    /// Waits until each of `nodes` has admitted this node, has refused it, or could not be reached.
    pub(crate) async fn have_answered(&self, nodes: &[NodeId]) {
        let mut changes = self.changes.subscribe();
        while !self.decision.lock().have_answered(nodes) {
            // The sender lives as long as `self`.
            let _ = changes.changed().await;
        }
    }

    /// Whether this node may run. Call it after [`Self::have_answered`]: from then on a refusal stops the node without
    /// waiting for other members.
    pub(crate) fn verdict(&self) -> Result<(), StartError> {
        self.decision.lock().verdict().map_or(Ok(()), |why| Err(stopped(why)))
    }

    /// Waits until a refusal stops this node.
    pub(crate) async fn refused(&self) -> StartError {
        let mut changes = self.changes.subscribe();
        loop {
            let refusal = self.decision.lock().stops().map(stopped);
            match refusal {
                Some(refusal) => return refusal,
                // The sender lives as long as `self`.
                None => drop(changes.changed().await),
            }
        }
    }

    /// This node has admitted another that dials it from there.
    pub(super) fn called(&self, by: NodeId, address: SocketAddr, catalog: &Catalog) {
        if self.decision.lock().called(by, address, catalog) {
            self.new_face.notify_one();
        }
    }

    /// The nodes that have admitted this one, and the newer members that it has admitted.
    pub(super) fn encounters(&self) -> Encounters {
        self.decision.lock().encounters()
    }

    /// Waits until one more node has admitted this one, or a newer member was admitted.
    pub(crate) async fn someone_new(&self) {
        self.new_face.notified().await;
    }

    fn note<T>(&self, change: impl FnOnce(&mut Decision<Said>) -> T) -> T {
        let outcome = change(&mut self.decision.lock());
        self.changes.send_modify(|count| *count += 1);
        outcome
    }
}

impl Observer for Admission {
    fn connected(&self, to: NodeId, lane: Lane) {
        if lane != Lane::Control {
            return;
        }
        tracing::info!(node = %to, "connected");
        if self.note(|decision| decision.admitted(to)) {
            self.new_face.notify_one();
        }
    }

    fn disconnected(&self, to: NodeId, lane: Lane) {
        if lane == Lane::Control {
            tracing::info!(node = %to, "disconnected");
        }
    }

    fn refused(&self, by: NodeId, _lane: Lane, refusal: &Refusal) {
        match self.note(|decision| decision.refused(by, &Said(refusal.clone()))) {
            AdmissionReport::Nothing => {}
            AdmissionReport::Passing => tracing::info!(%by, %refusal, "a node refuses this node"),
            AdmissionReport::Lasting => tracing::error!(%by, %refusal, "a node refuses this node"),
        }
    }

    fn unreachable(&self, node: NodeId, lane: Lane, error: &io::Error) {
        if lane == Lane::Control {
            tracing::info!(%node, %error, "not reachable; dialling again");
            self.note(|decision| decision.unreachable(node));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    fn refusal(kind: RefusalKind) -> Refusal {
        Refusal::new(kind, "no")
    }

    #[test]
    fn one_refusal_stops_a_node_that_nobody_has_let_in() {
        let admission = Admission::default();
        Observer::refused(&admission, A, Lane::Raft, &refusal(RefusalKind::Unknown));
        assert!(admission.verdict().is_ok(), "it may pass");
        Observer::refused(&admission, A, Lane::Raft, &refusal(RefusalKind::Clock));
        assert!(matches!(admission.verdict(), Err(StartError::Refused { by: A, .. })));
    }

    #[test]
    fn whoever_has_been_let_in_is_stopped_only_by_its_double() {
        let admission = Admission::default();
        admission.connected(A, Lane::Control);
        Observer::refused(&admission, B, Lane::Control, &refusal(RefusalKind::Clock));
        assert!(admission.verdict().is_ok());
        Observer::refused(&admission, A, Lane::Raft, &refusal(RefusalKind::Duplicate));
        assert!(admission.verdict().is_ok(), "this process was there first");
        Observer::refused(&admission, B, Lane::Control, &refusal(RefusalKind::Duplicate));
        assert!(matches!(admission.verdict(), Err(StartError::Refused { by: B, .. })));
    }

    #[tokio::test]
    async fn all_are_have_answered_before_there_is_a_verdict() {
        let admission = Admission::default();
        let waiting = admission.have_answered(&[A, B]);
        let told = async {
            admission.connected(A, Lane::Control);
            admission.unreachable(B, Lane::Control, &io::Error::other("gone"));
        };
        futures::join!(waiting, told);
        assert_eq!(admission.encounters().met, [A]);
    }
}
