//! Members that this node's copy of the catalog does not have yet, where nodes have certificates.
//!
//! A node that dials and is not in the copy may have joined since, or may be a stranger with a certificate. Always true: it is
//! admitted only if a member of the copy, or a node that the operator has named by `--join`, says that it is a member, and where. Asking
//! costs a stranger's dial at most a few questions a second. Left out: who is admitted (`diorite_control::membership`).

use diorite_base::NodeId;
use diorite_control::membership::{Certified, Covers};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use tokio::sync::Notify;

/// See the top of this module.
pub(crate) struct Named {
    /// Whether the operator has named nodes that can be asked.
    has_seeds: bool,
    known: Mutex<Known>,
    missing: Notify,
}

#[derive(Default)]
struct Known {
    members: BTreeMap<NodeId, SocketAddr>,
    missing: BTreeSet<NodeId>,
}

impl Named {
    pub(crate) fn new(has_seeds: bool) -> Self {
        Self { has_seeds, known: Mutex::default(), missing: Notify::new() }
    }

    /// Calls `judge` with the members that are known.
    pub(super) fn judged<T>(&self, covers: Covers<'_>, judge: impl FnOnce(Certified<'_>) -> T) -> T {
        judge(Certified { covers, named: &self.known.lock().members, has_seeds: self.has_seeds })
    }

    /// Some member has said where the members are.
    pub(super) fn learn(&self, members: impl IntoIterator<Item = (NodeId, SocketAddr)>) {
        self.known.lock().members.extend(members);
    }

    /// A node dials that is not known here. Returns whether it was not missed yet.
    pub(super) fn miss(&self, node: NodeId) -> bool {
        let is_new = self.known.lock().missing.insert(node);
        if is_new {
            self.missing.notify_one();
        }
        is_new
    }

    /// Waits until a node is missed.
    pub(super) async fn missing(&self) {
        self.missing.notified().await;
    }

    /// Whether all nodes that were missed are known by now.
    pub(super) fn has_all(&self) -> bool {
        let known = self.known.lock();
        known.missing.iter().all(|node| known.members.contains_key(node))
    }

    /// Members were asked: whoever is still not known is missed again when it dials again.
    pub(super) fn has_asked(&self) {
        self.known.lock().missing.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_node_is_missed_once_until_members_were_asked() {
        let named = Named::new(true);
        let address = "127.0.0.2:7100".parse().unwrap();
        assert!(named.miss(NodeId(2)) && !named.miss(NodeId(2)));
        named.missing().await;
        assert!(!named.has_all());
        named.learn([(NodeId(2), address)]);
        assert!(named.has_all() && named.judged(&|_| true, |known| known.named.len()) == 1);
        named.has_asked();
        assert!(named.miss(NodeId(3)));
        named.missing().await;
        assert!(!named.has_all());
    }
}
