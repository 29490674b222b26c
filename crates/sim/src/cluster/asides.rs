//! Replicas that their leader's log contradicts: they are set aside and rebuilt, by upkeep in production.

use crate::cluster::Cluster;
use diorite_base::{NodeId, TabletId};

impl Cluster {
    /// A node carries out the next step for its failed replicas.
    pub fn look_after_replicas(&mut self, id: NodeId) {
        let Some(life) = self.life(id) else { return };
        let failed = life.core().take_damaged();
        for (tablet, needed) in &failed {
            life.asides.insert(*tablet, *needed);
        }
        let mut ready: Vec<TabletId> = Vec::new();
        for (tablet, needed) in life.asides.clone() {
            let found = life.core().found_leader(tablet).filter(|_| !failed.iter().any(|(other, _)| *other == tablet));
            if found.is_some_and(|leader| leader.applied >= needed) {
                ready.push(tablet);
            } else {
                life.seek_leader(id, tablet);
                // The next turn of the core sends the posted messages.
                life.must_tick = true;
            }
        }
        if life.must_tick {
            self.wake(id);
        }
        let now_ns = self.now_ns();
        for tablet in ready {
            let Some(node) = self.nodes.get_mut(&id) else { return };
            let is_anew = node.make_anew(tablet);
            self.replicas.forget_one(id, tablet);
            self.trace
                .event(now_ns, id.0, "anew", &tablet.0.to_le_bytes(), || format!("{tablet}, made anew: {is_anew}"));
            self.after_core(id);
        }
    }
}
