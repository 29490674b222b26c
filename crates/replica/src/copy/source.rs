//! Who sends a copy: the leader asks a follower that has everything, and sends it itself if there is none.
//!
//! Always true: for one member of one tablet a leader has one copy under way, as far as it knows. Whoever has sent part of a copy is asked again if it can be, as
//! what was received from it need not be sent again. Which follower otherwise: the one that fewest copies are asked of.

use super::receive::KEEP_NS;
use super::send::Job;
use super::wire::{Frame, State};
use super::{Copies, PATIENCE_NS};
use ahash::AHashMap;
use diorite_base::{GroupId, NodeId, TabletId};
use std::sync::Arc;

/// After a copy, the replica is given this long, nanoseconds, to say how far it is before it is sent another.
pub(super) const PAUSE_NS: u64 = 3_000_000_000;

/// A copy that a follower was asked for.
struct Asked {
    copy: u64,
    source: NodeId,
    /// When the follower was heard of last, or when it ended.
    heard_ns: u64,
    state: State,
    refused: Vec<NodeId>,
}

/// The copies that this node has asked others to send.
#[derive(Default)]
pub(super) struct Asking {
    asked: AHashMap<(TabletId, NodeId), Asked>,
}

impl Asking {
    /// Takes a follower's word on a copy that it was asked for.
    pub(super) fn answered(&mut self, from: NodeId, copy: u64, state: State, failure: &str, now_ns: u64) {
        let known = self.asked.iter_mut().find(|(_, asked)| asked.copy == copy && asked.source == from);
        let Some(((tablet, to), asked)) = known else { return };
        (asked.state, asked.heard_ns) = (state, now_ns);
        if state == State::Refused {
            asked.refused.push(from);
        }
        if !failure.is_empty() {
            tracing::info!(%tablet, %to, %from, failure, "a follower does not send a copy");
        }
    }

    /// Whether a copy is under way, or was a moment ago.
    fn is_seen_to(&mut self, tablet: TabletId, to: NodeId, now_ns: u64, is_up: impl Fn(NodeId) -> bool) -> bool {
        self.asked.retain(|_, asked| match asked.state {
            State::UnderWay => true,
            // Remembered for a while, as what it has sent is held.
            State::Broken | State::Refused => now_ns < asked.heard_ns + KEEP_NS,
            State::Done => now_ns < asked.heard_ns + PAUSE_NS,
        });
        self.asked.get(&(tablet, to)).is_some_and(|asked| match asked.state {
            State::UnderWay => is_up(asked.source) && now_ns < asked.heard_ns + PATIENCE_NS,
            State::Done | State::Broken => now_ns < asked.heard_ns + PAUSE_NS,
            State::Refused => false,
        })
    }

    /// Notes that one of those who are able is asked, and says who; `None` if nobody is left, who may be asked again the next time.
    fn begin(&mut self, tablet: TabletId, to: NodeId, copy: u64, able: &[NodeId], now_ns: u64) -> Option<NodeId> {
        let Some(source) = self.choose(tablet, to, able) else {
            self.asked.remove(&(tablet, to));
            return None;
        };
        let refused = self.asked.remove(&(tablet, to)).map_or_else(Vec::new, |asked| asked.refused);
        self.asked.insert((tablet, to), Asked { copy, source, heard_ns: now_ns, state: State::UnderWay, refused });
        Some(source)
    }

    /// The next to be asked of those who are able, if anybody.
    fn choose(&self, tablet: TabletId, to: NodeId, able: &[NodeId]) -> Option<NodeId> {
        let before = self.asked.get(&(tablet, to));
        let refused = |node: &NodeId| before.is_some_and(|asked| asked.refused.contains(node));
        let busy = |node: NodeId| {
            self.asked.values().filter(|asked| asked.source == node && asked.state == State::UnderWay).count()
        };
        let able = able.iter().copied().filter(|node| *node != to && !refused(node));
        // Of equals not always the same, and yet the same for whoever leads.
        let rank = |node: NodeId| (node.0 ^ tablet.0).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        able.min_by_key(|node| (before.is_none_or(|asked| asked.source != *node), busy(*node), rank(*node)))
    }
}

impl Copies {
    /// Sees to it that a member that lacks entries of a tablet led here gets a copy, unless one is under way. `able` are other members that have all.
    pub(super) fn provide(self: &Arc<Self>, tablet: TabletId, to: NodeId, able: &[NodeId]) {
        if GroupId::from(tablet) == GroupId::CATALOG {
            return;
        }
        let now_ns = self.now_ns();
        let Some(handle) = self.inner.tablets.load().get(&tablet).cloned() else { return };
        let is_up = |node: NodeId| self.inner.context.liveness.is_up(node);
        if self.asking.lock().is_seen_to(tablet, to, now_ns, is_up) || self.sending.lock().has(tablet, to, now_ns) {
            return;
        }
        let able: Vec<NodeId> = able.iter().copied().filter(|node| is_up(*node)).collect();
        loop {
            let copy = self.sending.lock().number(&*self.inner.context.clock);
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
    pub(super) fn asked(self: &Arc<Self>, from: NodeId, copy: u64, tablet: TabletId, to: NodeId, needed: u64) {
        let handle = self.inner.tablets.load().get(&tablet).cloned();
        let applied = handle.and_then(|handle| handle.data().applied_state().ok());
        let begun = match applied {
            Some(applied) if applied.index >= needed => {
                self.send(Job { tablet, to, copy, needed, asked_by: Some(from) })
            }
            Some(_) => Err("the follower is behind the leader's log".to_owned()),
            None => Err("there is no such replica here".to_owned()),
        };
        let (state, failure) = match &begun {
            Ok(()) => (State::UnderWay, ""),
            Err(failure) => (State::Refused, failure.as_str()),
        };
        // A leader that does not hear it looks for another after a while.
        let _ = self.put(from, &Frame::Answer { copy, state, failure });
    }

    /// Tells a follower that sends a copy where the log of this node begins, if it leads the tablet.
    pub(super) fn tell_reach(&self, from: NodeId, copy: u64, tablet: TabletId) {
        let handle = self.inner.tablets.load().get(&tablet).cloned();
        if let Some(handle) = handle.filter(|handle| handle.begin_read().is_ok()) {
            // If it is lost, it is asked for again.
            let _ = self.put(from, &Frame::Reached { copy, start: handle.log_start() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLET: TabletId = TabletId(1_000);
    const NODES: [NodeId; 3] = [NodeId(2), NodeId(3), NodeId(4)];

    fn ask(asking: &mut Asking, tablet: TabletId, to: NodeId) -> Option<NodeId> {
        asking.begin(tablet, to, tablet.0, &NODES, 0)
    }

    #[test]
    fn copies_are_spread_over_the_followers_and_never_asked_of_who_needs_them() {
        let mut asking = Asking::default();
        let mut sources: Vec<_> = (0..3).filter_map(|n| ask(&mut asking, TabletId(1_000 + n), NodeId(9))).collect();
        sources.sort_unstable();
        assert_eq!(sources, NODES);
        assert_ne!(ask(&mut asking, TabletId(2_000), NodeId(3)), Some(NodeId(3)));
    }

    #[test]
    fn whoever_refuses_is_not_asked_again_and_whoever_was_interrupted_is() {
        let mut asking = Asking::default();
        let first = ask(&mut asking, TABLET, NodeId(9)).expect("somebody");
        asking.answered(first, TABLET.0, State::Broken, "cut", 1);
        // Others have less to do, but it has sent something already.
        assert_eq!(ask(&mut asking, TABLET, NodeId(9)), Some(first));
        let mut seen = vec![first];
        for _ in 0..2 {
            asking.answered(seen[seen.len() - 1], TABLET.0, State::Refused, "busy", 2);
            seen.push(ask(&mut asking, TABLET, NodeId(9)).expect("another"));
        }
        seen.sort_unstable();
        assert_eq!(seen, NODES);
        let last = asking.asked[&(TABLET, NodeId(9))].source;
        asking.answered(last, TABLET.0, State::Refused, "busy", 3);
        assert_eq!(ask(&mut asking, TABLET, NodeId(9)), None, "the leader has to do it");
    }
}
