//! What the other members say when this node dials them.
//!
//! Always true: a node that any member has let in is not stopped by another's refusal, unless that says that a second process runs under its id, or that it was removed;
//! a node that nobody has let in stops at the first refusal that trying again will not change.

use crate::error::StartError;
use diorite_base::NodeId;
use diorite_rpc::Lane;
use diorite_rpc::hello::{Refusal, RefusalKind};
use diorite_rpc::tcp::Observer;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use tokio::sync::{Notify, watch};

#[derive(Default)]
struct State {
    met: BTreeSet<NodeId>,
    heard_from: BTreeSet<NodeId>,
    /// What was said last, so that it is logged once for all lanes.
    logged: BTreeMap<NodeId, Refusal>,
    /// The first refusal that is final.
    refused: Option<(NodeId, Refusal)>,
    is_started: bool,
}

/// See the top of this module.
pub(crate) struct Admission {
    state: Mutex<State>,
    changes: watch::Sender<u64>,
    new_face: Notify,
}

impl Default for Admission {
    fn default() -> Self {
        Self { state: Mutex::default(), changes: watch::Sender::new(0), new_face: Notify::new() }
    }
}

impl Admission {
    /// Waits until each of `nodes` has let this node in, has refused it, or could not be reached.
    pub(crate) async fn heard_from(&self, nodes: &[NodeId]) {
        let mut changes = self.changes.subscribe();
        while !nodes.iter().all(|node| self.state.lock().heard_from.contains(node)) {
            // The sender lives as long as `self`.
            let _ = changes.changed().await;
        }
    }

    /// Whether this node may go on; from here on it does not wait for more before it stops.
    pub(crate) fn verdict(&self) -> Result<(), StartError> {
        let mut state = self.state.lock();
        state.is_started = true;
        state.refusal().map_or(Ok(()), Err)
    }

    /// Waits until this node may not go on.
    pub(crate) async fn refused(&self) -> StartError {
        let mut changes = self.changes.subscribe();
        loop {
            let refusal = Some(self.state.lock()).filter(|state| state.is_started).and_then(|state| state.refusal());
            match refusal {
                Some(refusal) => return refusal,
                // The sender lives as long as `self`.
                None => drop(changes.changed().await),
            }
        }
    }

    /// The nodes that have let this one in.
    pub(crate) fn met(&self) -> Vec<NodeId> {
        self.state.lock().met.iter().copied().collect()
    }

    /// Waits until there is one more of them.
    pub(crate) async fn someone_new(&self) {
        self.new_face.notified().await;
    }

    fn note(&self, node: NodeId, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        state.heard_from.insert(node);
        change(&mut state);
        drop(state);
        self.changes.send_modify(|count| *count += 1);
    }
}

impl State {
    fn refusal(&self) -> Option<StartError> {
        let (by, refusal) = self.refused.as_ref()?;
        let counts = self.met.is_empty() || stops_members(refusal.kind);
        counts.then(|| StartError::Refused { by: *by, reason: refusal.reason.clone() })
    }

    fn refuse(&mut self, by: NodeId, refusal: &Refusal) {
        // What is said of a second process counts more than what was said before, but only to a process that has not been let in there.
        let is_first = self.refused.is_none() || stops_members(refusal.kind);
        let is_new = !self.met.contains(&by) || refusal.kind == RefusalKind::Removed;
        if refusal.kind.is_final() && is_first && is_new {
            self.refused = Some((by, refusal.clone()));
        } else if refusal.kind.is_final() && self.refused.is_some() && self.met.is_empty() {
            // Said again on another lane: the node is about to stop, and says why once.
        } else if self.logged.insert(by, refusal.clone()).as_ref() != Some(refusal) {
            match refusal.kind {
                // It will pass by itself.
                RefusalKind::Unknown | RefusalKind::Misdirected => {
                    tracing::info!(%by, %refusal, "a node refuses this node")
                }
                _ => tracing::error!(%by, %refusal, "a node refuses this node"),
            }
        }
    }
}

/// Whether a node that others have let in must stop all the same.
fn stops_members(kind: RefusalKind) -> bool {
    matches!(kind, RefusalKind::Duplicate | RefusalKind::Removed)
}

impl Observer for Admission {
    fn connected(&self, to: NodeId, lane: Lane) {
        if lane != Lane::Control {
            return;
        }
        tracing::info!(node = %to, "connected");
        let mut is_new = false;
        self.note(to, |state| {
            is_new = state.met.insert(to);
            state.logged.remove(&to);
        });
        if is_new {
            self.new_face.notify_one();
        }
    }

    fn disconnected(&self, to: NodeId, lane: Lane) {
        if lane == Lane::Control {
            tracing::info!(node = %to, "disconnected");
        }
    }

    fn refused(&self, by: NodeId, _lane: Lane, refusal: &Refusal) {
        self.note(by, |state| state.refuse(by, refusal));
    }

    fn unreachable(&self, node: NodeId, lane: Lane, error: &io::Error) {
        if lane == Lane::Control {
            tracing::info!(%node, %error, "not reachable; dialling goes on");
            self.note(node, |_| ());
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
    async fn all_are_heard_from_before_there_is_a_verdict() {
        let admission = Admission::default();
        let waiting = admission.heard_from(&[A, B]);
        let told = async {
            admission.connected(A, Lane::Control);
            admission.unreachable(B, Lane::Control, &io::Error::other("gone"));
        };
        futures::join!(waiting, told);
        assert_eq!(admission.met(), [A]);
    }
}
