//! Decides when a change of the catalog is answered: once the node that was asked serves it and, within a timeout, so
//! do all other nodes that are up.
//!
//! Always true: a client that is answered finds the change on the node that answers, and on every other node that is up
//! and is not named as lagging. A node that does not even know the change, because the catalog's group has lost its
//! leader since, is waited for no longer than the client's request may take; one that opens tablets is.

use crate::peers::Peers;
use crate::planted::Planted;
use diorite_base::NodeId;
use std::time::Duration;

/// How long a change waits for the asked node to serve it.
pub const TIMEOUT_HERE: Duration = Duration::from_secs(30);
/// How long a change waits for the other nodes that are up to serve it.
pub const TIMEOUT_ELSEWHERE: Duration = Duration::from_secs(5);

/// Whether a change can be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Not yet. Check again when this node serves another version, when [`Peers::changes`] has grown, and after this
    /// time.
    Wait(Duration),
    /// Now. These nodes do not serve it yet:
    Answer {
        /// The lagging nodes.
        behind: Vec<NodeId>,
    },
    /// This node does not serve it in time, and it is not known when it will.
    TimedOut,
}

/// How far the asked node has followed the catalog: versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Here {
    /// The newest that it knows.
    pub known: u64,
    /// The newest that it serves.
    pub served: u64,
}

/// A change that is committed and not answered yet.
#[derive(Clone, Debug)]
pub struct Answering {
    version: u64,
    planted: Planted,
    since_ns: u64,
    /// When the client's request is to be answered.
    deadline_ns: Option<u64>,
    /// When this node began to serve it.
    served_here_ns: Option<u64>,
}

impl Answering {
    /// A change that was committed now as version `version` of the catalog.
    pub fn new(version: u64, now_ns: u64, planted: Planted) -> Self {
        Self { version, planted: planted.allowed(), since_ns: now_ns, deadline_ns: None, served_here_ns: None }
    }

    /// The same, of a request that is to be answered at `deadline_ns`, if that is given.
    pub fn with_deadline(self, deadline_ns: Option<u64>) -> Self {
        Self { deadline_ns, ..self }
    }

    /// Checks whether it can be answered by the asked node.
    pub fn look(&mut self, here: Here, peers: &Peers, now_ns: u64) -> Progress {
        let of_request = self.deadline_ns.map_or(Duration::MAX, |at| Duration::from_nanos(at.saturating_sub(now_ns)));
        if self.served_here_ns.is_none() && here.served < self.version {
            let left = left(self.since_ns, TIMEOUT_HERE, now_ns);
            let left = if here.known < self.version { left.min(of_request) } else { left };
            return if left.is_zero() { Progress::TimedOut } else { Progress::Wait(left) };
        }
        let since_ns = *self.served_here_ns.get_or_insert(now_ns);
        let behind = if self.planted.serve_stale_catalog { Vec::new() } else { peers.behind(self.version) };
        let left = left(since_ns, TIMEOUT_ELSEWHERE, now_ns).min(of_request);
        if behind.is_empty() || left.is_zero() { Progress::Answer { behind } } else { Progress::Wait(left) }
    }
}

fn left(since_ns: u64, timeout: Duration, now_ns: u64) -> Duration {
    timeout.saturating_sub(Duration::from_nanos(now_ns.saturating_sub(since_ns)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Announced;

    const SECOND: u64 = 1_000_000_000;

    /// A node that serves all that it knows.
    fn at(version: u64) -> Here {
        Here { known: version, served: version }
    }

    fn answering() -> Answering {
        Answering::new(7, 0, Planted::default())
    }

    #[test]
    fn a_change_waits_for_this_node_and_then_for_the_others_that_are_up() {
        let mut peers = Peers::default();
        for (node, version) in [(2, 7), (3, 6)] {
            peers.set_live(NodeId(node), true);
            peers.set_announced(NodeId(node), Announced::Serves(version));
        }
        let mut change = answering();
        assert_eq!(change.look(at(6), &peers, SECOND), Progress::Wait(Duration::from_secs(29)));
        assert_eq!(change.look(at(7), &peers, 2 * SECOND), Progress::Wait(TIMEOUT_ELSEWHERE));
        peers.set_announced(NodeId(3), Announced::Serves(8));
        assert_eq!(change.look(at(7), &peers, 3 * SECOND), Progress::Answer { behind: vec![] });
    }

    #[test]
    fn nobody_is_waited_for_for_ever() {
        let mut peers = Peers::default();
        peers.set_live(NodeId(2), true);
        peers.set_announced(NodeId(2), Announced::Serves(1));
        let mut change = answering();
        assert!(matches!(change.look(at(9), &peers, SECOND), Progress::Wait(_)));
        assert_eq!(change.look(at(9), &peers, 6 * SECOND), Progress::Answer { behind: vec![NodeId(2)] });
        assert_eq!(answering().look(at(6), &peers, 30 * SECOND), Progress::TimedOut);
    }

    #[test]
    fn a_node_that_does_not_know_the_change_is_waited_for_as_long_as_the_request_may_take() {
        let mut peers = Peers::default();
        peers.set_live(NodeId(2), true);
        peers.set_announced(NodeId(2), Announced::Serves(1));
        let change = || answering().with_deadline(Some(8 * SECOND));
        let mut lost = change();
        assert_eq!(lost.look(at(6), &peers, 2 * SECOND), Progress::Wait(Duration::from_secs(6)));
        assert_eq!(lost.look(at(6), &peers, 8 * SECOND), Progress::TimedOut);
        // It opens tablets.
        let opening = Here { known: 7, served: 6 };
        let mut opens = change();
        assert_eq!(opens.look(opening, &peers, 9 * SECOND), Progress::Wait(Duration::from_secs(21)));
        assert_eq!(opens.look(at(7), &peers, 10 * SECOND), Progress::Answer { behind: vec![NodeId(2)] });
        // The others are not waited for beyond that time.
        let mut served = change();
        assert_eq!(served.look(at(7), &peers, 6 * SECOND), Progress::Wait(Duration::from_secs(2)));
        assert_eq!(served.look(at(7), &peers, 8 * SECOND), Progress::Answer { behind: vec![NodeId(2)] });
    }
}
