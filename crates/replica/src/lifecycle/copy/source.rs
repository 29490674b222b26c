//! Chooses the sender of a copy: the leader asks a follower that has all entries, and sends the copy itself if there is
//! none.
//!
//! Always true: as far as a leader knows, one copy is under way for one member of one tablet. A node that has sent a
//! part of a copy is asked again if possible, as the receiver holds that part. Otherwise the follower is chosen that is
//! asked for the fewest copies.

use super::copies::Copies;
use super::error::CopyError;
use super::sending::Job;
use super::wire::{Frame, State};
use diorite_base::{GroupId, NodeId, TabletId};
use std::sync::Arc;

impl Copies {
    /// Makes sure that a member that lacks entries of a tablet led here gets a copy, unless one is under way. `able`
    /// are other members that have all entries.
    pub(crate) fn provide(self: &Arc<Self>, tablet: TabletId, to: NodeId, able: &[NodeId]) {
        if GroupId::from(tablet) == GroupId::CATALOG {
            return;
        }
        let now_ns = self.now_ns();
        let Some(handle) = self.replicas.handle(tablet) else { return };
        let is_up = |node: NodeId| self.replicas.context.liveness.is_up(node);
        if self.asking.lock().is_seen_to(tablet, to, now_ns, is_up) || self.sending.lock().has(tablet, to, now_ns) {
            return;
        }
        let able: Vec<NodeId> = able.iter().copied().filter(|node| is_up(*node)).collect();
        loop {
            let copy = self.sending.lock().number(&*self.replicas.context.clock);
            // No lock is held while a message is sent: the answer may arrive at once, on this thread.
            let Some(source) = self.asking.lock().begin(tablet, to, copy, &able, now_ns) else {
                // If it cannot begin now, the member's need is reported again.
                let _ = self.send(Job { tablet, to, copy, needed: handle.log_start(), asked_by: None });
                return;
            };
            if self.put(source, &Frame::Ask { copy, tablet, to, needed: handle.log_start() }).is_ok() {
                tracing::info!(%tablet, %source, %to, "asked a follower for a copy");
                return;
            }
            self.asking.lock().answered(source, copy, State::Refused, "it cannot be reached", now_ns);
        }
    }

    /// A leader asks this node to send a copy.
    pub(crate) fn asked(self: &Arc<Self>, from: NodeId, copy: u64, tablet: TabletId, to: NodeId, needed: u64) {
        let handle = self.replicas.handle(tablet);
        let applied = handle.and_then(|handle| handle.data().applied_state().ok());
        let begun = match applied {
            Some(applied) if applied.index >= needed => {
                self.send(Job { tablet, to, copy, needed, asked_by: Some(from) })
            }
            Some(_) => Err(CopyError::Outdated("the follower is behind the leader's log")),
            None => Err(CopyError::NoReplica),
        };
        let (state, failure) = match &begun {
            Ok(()) => (State::UnderWay, String::new()),
            Err(failure) => (State::Refused, failure.to_string()),
        };
        // A leader that does not receive this chooses another sender after a while.
        let _ = self.put(from, &Frame::Answer { copy, state, failure: &failure });
    }

    /// Answers a follower that sends a copy with the beginning of this node's log, if this node leads the tablet.
    pub(crate) fn answer_reach(&self, from: NodeId, copy: u64, tablet: TabletId) {
        let handle = self.replicas.handle(tablet);
        if let Some(handle) = handle.filter(|handle| handle.begin_read().is_ok()) {
            // If the answer is lost, the follower asks again.
            let _ = self.put(from, &Frame::Reached { copy, start: handle.log_start() });
        }
    }
}
