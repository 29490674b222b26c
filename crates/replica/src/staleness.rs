//! Reads of followers, for those who ask for them: how old what a follower holds may be.
//!
//! A follower asks its leader, when somebody wants to read from it, how far the log is applied there. The leader answers under its lease, so everything
//! acknowledged before the question is at or before that index. Once the follower has applied that much, it holds all that was acknowledged
//! before the moment at which it asked; only its own clock counts.

use crate::core::Core;
use crate::replica::Replica;
use crate::wire::Envelope;
use diorite_base::{GroupId, NodeId, TabletId};
use diorite_storage::Engine;
use std::sync::atomic::Ordering;

impl<E: Engine> Core<E> {
    /// Asks the leader how far the log is, for a replica that somebody wants to read from.
    pub fn refresh(&mut self, tablet: TabletId) {
        let asked_ns = self.context.clock.monotonic_ns();
        let Some(replica) = self.replicas.get(&tablet) else { return };
        let (leader, group) = (NodeId(replica.group.leader()), replica.group_id);
        if leader.0 == 0 || leader == self.context.node {
            return;
        }
        self.post_envelope(leader, group, &Envelope::Ask { asked_ns });
        self.advance();
    }

    /// Asks nodes how far the log is, for a tablet whose replica here cannot go on: whoever leads it answers.
    pub(crate) fn seek(&mut self, tablet: TabletId, nodes: &[NodeId]) {
        let asked_ns = self.context.clock.monotonic_ns();
        for node in nodes {
            self.post_envelope(*node, GroupId::from(tablet), &Envelope::Ask { asked_ns });
        }
        self.advance();
    }

    /// Tells a follower how far the log is applied here, if this replica may answer reads.
    pub(crate) fn on_ask(&mut self, from: NodeId, tablet: TabletId, asked_ns: u64) {
        let Some(replica) = self.replicas.get(&tablet) else { return };
        let Ok(term) = replica.handle.begin_read() else { return };
        let (group, index) = (replica.group_id, replica.applied.index);
        // It may hold all that and not know that it is committed.
        let waits = replica.group.progress().any(|member| member.replica == from.0 && member.committed < index);
        if replica.handle.finish_read(term).is_ok() {
            self.post_envelope(from, group, &Envelope::Position { asked_ns, index });
        }
        if waits {
            self.ping(tablet, self.context.clock.monotonic_ns());
        }
    }

    /// Takes the leader's answer.
    pub(crate) fn on_position(&mut self, tablet: TabletId, asked_ns: u64, index: u64) {
        if let Some(replica) = self.replicas.get_mut(&tablet) {
            replica.position = Some((index, asked_ns));
        }
        self.apply_deferred(tablet);
    }

    /// Whether the follower has reached what its leader said.
    pub(crate) fn note_freshness(&mut self, tablet: TabletId) {
        if let Some(replica) = self.replicas.get_mut(&tablet) {
            replica.note_freshness();
        }
    }
}

impl<E: Engine> Replica<E> {
    /// Whether it has reached what its leader said.
    pub(crate) fn note_freshness(&mut self) {
        if let Some((_, asked_ns)) = self.position.take_if(|(index, _)| self.applied.index >= *index) {
            self.handle.fresh_ns.fetch_max(asked_ns, Ordering::AcqRel);
        }
    }
}
