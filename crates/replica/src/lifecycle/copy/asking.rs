//! Chooses the follower that is asked to send a copy.

use super::receiving::KEEP_NS;
use super::wire::State;
use ahash::AHashMap;
use diorite_base::{NodeId, TabletId};

/// How long the other side of a copy may be silent, nanoseconds, if its node is not up.
pub(crate) const TIMEOUT_NS: u64 = 30_000_000_000;

/// How long after a copy the replica may take, nanoseconds, to report its position before it is sent another.
pub(crate) const PAUSE_NS: u64 = 3_000_000_000;

/// A copy that a follower was asked for.
struct Asked {
    copy: u64,
    source: NodeId,
    /// When the follower last answered, or when the copy ended.
    received_ns: u64,
    state: State,
    refused: Vec<NodeId>,
}

/// The copies that this node has asked others to send.
#[derive(Default)]
pub(crate) struct Asking {
    asked: AHashMap<(TabletId, NodeId), Asked>,
}

impl Asking {
    /// Takes a follower's report on a copy that it was asked for.
    pub(crate) fn answered(&mut self, from: NodeId, copy: u64, state: State, failure: &str, now_ns: u64) {
        let known = self.asked.iter_mut().find(|(_, asked)| asked.copy == copy && asked.source == from);
        let Some(((tablet, to), asked)) = known else { return };
        (asked.state, asked.received_ns) = (state, now_ns);
        if state == State::Refused {
            asked.refused.push(from);
        }
        if !failure.is_empty() {
            tracing::info!(%tablet, %to, %from, failure, "a follower does not send a copy");
        }
    }

    /// Whether a copy is under way, or ended a moment ago.
    pub(crate) fn is_seen_to(
        &mut self,
        tablet: TabletId,
        to: NodeId,
        now_ns: u64,
        is_up: impl Fn(NodeId) -> bool,
    ) -> bool {
        for asked in self.asked.values_mut() {
            let is_silent = now_ns >= asked.received_ns + TIMEOUT_NS;
            // A node that is down may hold a part of the copy when it returns; one that is up and does not answer
            // would be asked again and again.
            if asked.state == State::UnderWay && is_silent && is_up(asked.source) {
                (asked.state, asked.received_ns) = (State::Refused, now_ns);
                asked.refused.push(asked.source);
            }
        }
        self.asked.retain(|_, asked| match asked.state {
            State::UnderWay => true,
            // Remembered for a while, as the receiver holds what it has sent.
            State::Broken | State::Refused => now_ns < asked.received_ns + KEEP_NS,
            State::Done => now_ns < asked.received_ns + PAUSE_NS,
        });
        self.asked.get(&(tablet, to)).is_some_and(|asked| match asked.state {
            State::UnderWay => is_up(asked.source) && now_ns < asked.received_ns + TIMEOUT_NS,
            State::Done | State::Broken => now_ns < asked.received_ns + PAUSE_NS,
            State::Refused => false,
        })
    }

    /// Chooses one of the voters that are able, and records it; `None` if none is left: the next call begins anew.
    pub(crate) fn begin(
        &mut self,
        tablet: TabletId,
        to: NodeId,
        copy: u64,
        able: &[NodeId],
        now_ns: u64,
    ) -> Option<NodeId> {
        let Some(source) = self.choose(tablet, to, able) else {
            self.asked.remove(&(tablet, to));
            return None;
        };
        let refused = self.asked.remove(&(tablet, to)).map_or_else(Vec::new, |asked| asked.refused);
        self.asked.insert((tablet, to), Asked { copy, source, received_ns: now_ns, state: State::UnderWay, refused });
        Some(source)
    }

    /// The next of the voters that are able, if any.
    fn choose(&self, tablet: TabletId, to: NodeId, able: &[NodeId]) -> Option<NodeId> {
        let before = self.asked.get(&(tablet, to));
        let refused = |node: &NodeId| before.is_some_and(|asked| asked.refused.contains(node));
        let busy = |node: NodeId| {
            self.asked.values().filter(|asked| asked.source == node && asked.state == State::UnderWay).count()
        };
        let able = able.iter().copied().filter(|node| *node != to && !refused(node));
        // Equals are ordered differently for each tablet, and alike at every leader.
        let rank = |node: NodeId| (node.0 ^ tablet.0).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        able.min_by_key(|node| (before.is_none_or(|asked| asked.source != *node), busy(*node), rank(*node)))
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
        // The others send fewer copies, but this one has sent a part already.
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

    #[test]
    fn a_node_that_is_up_and_does_not_answer_is_not_asked_again() {
        let mut asking = Asking::default();
        let (mut now_ns, mut asked) = (0, Vec::new());
        while let Some(source) = asking.begin(TABLET, NodeId(9), TABLET.0, &NODES, now_ns) {
            assert!(asking.is_seen_to(TABLET, NodeId(9), now_ns + TIMEOUT_NS - 1, |_| true));
            asked.push(source);
            assert!(asked.len() <= NODES.len(), "asked again and again: {asked:?}");
            now_ns += TIMEOUT_NS;
            assert!(!asking.is_seen_to(TABLET, NodeId(9), now_ns, |_| true));
        }
        asked.sort_unstable();
        assert_eq!(asked, NODES, "then the leader sends the copy itself");
    }
}
