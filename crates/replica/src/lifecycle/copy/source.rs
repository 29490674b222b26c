//! Who sends a copy: the leader asks a follower that has everything, and sends it itself if there is none.
//!
//! Always true: for one member of one tablet a leader has one copy under way, as far as it knows. Whoever has sent part of a copy is asked again if it can be, as
//! what was received from it need not be sent again. Which follower otherwise: the one that fewest copies are asked of.

use super::copies::Copies;
use super::error::CopyError;
use super::sending::Job;
use super::wire::{Frame, State};
use diorite_base::{GroupId, NodeId, TabletId};
use std::sync::Arc;

impl Copies {
    /// Sees to it that a member that lacks entries of a tablet led here gets a copy, unless one is under way. `able` are other members that have all.
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
            // Nothing is locked while something is sent: the answer may come at once, on this thread.
            let Some(source) = self.asking.lock().begin(tablet, to, copy, &able, now_ns) else {
                // If it cannot be begun now, whoever needs it asks again.
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
        // A leader that does not receive it looks for another after a while.
        let _ = self.put(from, &Frame::Answer { copy, state, failure: &failure });
    }

    /// Tells a follower that sends a copy where the log of this node begins, if it leads the tablet.
    pub(crate) fn answer_reach(&self, from: NodeId, copy: u64, tablet: TabletId) {
        let handle = self.replicas.handle(tablet);
        if let Some(handle) = handle.filter(|handle| handle.begin_read().is_ok()) {
            // If it is lost, it is asked for again.
            let _ = self.put(from, &Frame::Reached { copy, start: handle.log_start() });
        }
    }
}
