//! The guards of nodes: when a process ends and its machine stays up, the other nodes are notified, sooner or later,
//! once or twice, or not at all.

use crate::cluster::{Cluster, Event};
use crate::guards::EndNotice;
use diorite_base::NodeId;
use diorite_replica::Liveness;

impl Cluster {
    /// A process of a node has ended: its guard notifies the others.
    pub(crate) fn notify_end(&mut self, from: NodeId, incarnation: u64) {
        let others: Vec<NodeId> = self.nodes.keys().copied().filter(|other| *other != from).collect();
        for to in others {
            let dice = &mut self.guards.dice;
            let times = *dice.pick(&[0, 1, 1, 1, 2]);
            for _ in 0..times {
                // The next life may have begun by then.
                let longest_ms = if self.guards.dice.chance(300) { 3_000 } else { 20 };
                let after_ns = self.guards.dice.milliseconds(1, longest_ms);
                self.later(after_ns, Event::Ended(EndNotice { to, from, incarnation }));
            }
        }
    }

    /// A node is notified that a life of another has ended.
    pub(crate) fn learn_end(&mut self, notice: EndNotice) {
        let EndNotice { to, from, incarnation } = notice;
        let now_ns = self.now_ns();
        if self.setting.network.is_blocked(from, to) {
            return;
        }
        let current = self.life(from).map(|life| life.incarnation).filter(|_| self.guards.believes_any_end);
        let Some(own) = self.life(to) else { return };
        let changes = Liveness::ended(own.liveness(), from, current.unwrap_or(incarnation));
        let is_concerned = own.change(changes);
        self.trace.event(now_ns, to.0, "ended", &from.0.to_le_bytes(), || format!("life {incarnation} of {from}"));
        self.noticed(to, is_concerned);
    }
}
