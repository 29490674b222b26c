//! Notices to clients of nodes that are up and down.

use super::CatalogFollower;
use diorite_base::NodeId;
use diorite_control::follower::cql_address;
use diorite_control::peers::{DOWN_AFTER, Notice};
use diorite_cql::protocol::Event;

impl CatalogFollower {
    /// Carries out the action after a change of a node's status.
    pub(super) fn heed(&self, node: NodeId, notice: Notice) {
        match notice {
            Notice::Nothing => {}
            Notice::TellUp => self.tell_status(node, true),
            Notice::TellDown => self.tell_status(node, false),
            Notice::Watch => {
                let Some(shell) = self.me.upgrade() else { return };
                self.runtime.spawn(async move {
                    crate::pause::pause(DOWN_AFTER).await;
                    if shell.peers.still_down(node) {
                        shell.tell_status(node, false);
                    }
                });
            }
        }
    }

    /// Notifies clients that a node is up or down.
    fn tell_status(&self, node: NodeId, is_up: bool) {
        let Some(address) = cql_address(&self.served.load(), node) else { return };
        tracing::info!(event = "node", %node, %address, is_up, "clients are notified of a node's status");
        self.notify(Event::Status { is_up, address });
    }
}
