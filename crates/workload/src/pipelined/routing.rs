//! Routing of requests: to each node in turn, or to the leader of the key's tablet if servers have named it.
//!
//! A tablet-aware lane begins knowing nothing. A server that gets a request for a tablet that another node leads answers it
//! all the same and adds the tablet's tokens and its leader (the extension `TABLETS_ROUTING_V1`); the next request for the
//! tablet goes there.
//!
//! Always true: with one node there is no choice and no token is computed; what a server said last counts.

use std::collections::BTreeMap;

use scylla::routing::partitioner::{Murmur3Partitioner, Partitioner};

use super::frames::{FrameError, parse_tablet};

/// A node that a lane may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAddress {
    /// host:port.
    pub address: String,
    /// By which servers name it; needed for tablet awareness only.
    pub host_id: [u8; 16],
}

impl NodeAddress {
    /// A node of which only the address is known.
    pub fn anonymous(address: impl Into<String>) -> Self {
        Self { address: address.into(), host_id: [0; 16] }
    }
}

/// The choice of one lane.
pub struct Router {
    hosts: Vec<[u8; 16]>,
    tablet_aware: bool,
    next: usize,
    /// By last token: the token before the first, and the node that leads.
    tablets: BTreeMap<i64, (i64, usize)>,
}

impl Router {
    /// A choice among `nodes`; lanes begin their turns at different ones.
    pub fn new(nodes: &[NodeAddress], tablet_aware: bool, lane: usize) -> Self {
        let hosts: Vec<_> = nodes.iter().map(|node| node.host_id).collect();
        let tablet_aware = tablet_aware && hosts.len() > 1;
        Self { hosts, tablet_aware, next: lane, tablets: BTreeMap::new() }
    }

    /// The index of the node for a request with this partition key.
    pub fn node(&mut self, key: &[u8]) -> usize {
        if self.hosts.len() == 1 {
            return 0;
        }
        if self.tablet_aware
            && let Some(leader) = self.leader(Murmur3Partitioner.hash_one(key).value())
        {
            return leader;
        }
        self.next = (self.next + 1) % self.hosts.len();
        self.next
    }

    fn leader(&self, token: i64) -> Option<usize> {
        let (_, &(after_token, leader)) = self.tablets.range(token..).next()?;
        (token > after_token || after_token == i64::MIN).then_some(leader)
    }

    /// Records a server's information on a tablet.
    pub fn learn(&mut self, payload: &[u8]) -> Result<(), FrameError> {
        let Some(tablet) = parse_tablet(payload)? else { return Ok(()) };
        // A node that joined later: its tablets are asked for in turn.
        let Some(leader) = self.hosts.iter().position(|&host| host == tablet.leader) else { return Ok(()) };
        let overlapping: Vec<i64> = self
            .tablets
            .range(tablet.after_token.saturating_add(1)..)
            .take_while(|&(&last, &(after, _))| after < tablet.last_token || last == tablet.last_token)
            .map(|(&last, _)| last)
            .collect();
        for last in overlapping {
            self.tablets.remove(&last);
        }
        self.tablets.insert(tablet.last_token, (tablet.after_token, leader));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    fn router() -> Router {
        let node = |host: u8| NodeAddress { address: format!("127.0.0.{host}:9042"), host_id: [host; 16] };
        Router::new(&[node(0), node(1), node(2)], true, 0)
    }

    fn tablet(after: i64, last: i64, leader: u8) -> Vec<u8> {
        let replica = [&16_u32.to_be_bytes()[..], &[leader; 16], &4_u32.to_be_bytes(), &[0; 4]].concat();
        let replicas = [&1_u32.to_be_bytes()[..], &(replica.len() as u32).to_be_bytes(), &replica].concat();
        let eight = 8_u32.to_be_bytes();
        let length = (replicas.len() as u32).to_be_bytes();
        [&eight[..], &after.to_be_bytes(), &eight, &last.to_be_bytes(), &length, &replicas].concat()
    }

    #[test]
    fn tokens_are_cassandras() {
        // `SELECT token('a')` there.
        assert_eq!(Murmur3Partitioner.hash_one(b"a").value(), -8_839_064_797_231_613_815);
    }

    #[test]
    fn a_key_goes_in_turn_until_its_leader_is_known() {
        let mut router = router();
        assert_eq!([router.node(b"a"), router.node(b"a"), router.node(b"a")], [1, 2, 0]);
        router.learn(&tablet(i64::MIN, 0, 2)).unwrap();
        assert_eq!([router.node(b"a"), router.node(b"a")], [2, 2], "its token is negative");
    }

    #[test]
    fn what_was_said_last_counts_and_ranges_do_not_overlap() {
        let mut router = router();
        for (after, last, leader) in [(i64::MIN, 0, 0), (0, 100, 1), (100, i64::MAX, 2), (0, 100, 2), (50, 100, 0)] {
            router.learn(&tablet(after, last, leader)).unwrap();
        }
        let leaders = [-1, 0, 1, 50, 51, 100, 101, i64::MAX].map(|token| router.leader(token));
        let known = [Some(0), Some(0), None, None, Some(0), Some(0), Some(2), Some(2)];
        assert_eq!(leaders, known, "the tablet up to 100 was split, and only its upper half is known");
    }

    #[test]
    fn an_unknown_leader_is_not_taken() {
        let mut router = router();
        router.learn(&tablet(i64::MIN, i64::MAX, 9)).unwrap();
        assert_eq!(router.leader(5), None);
        assert!(router.learn(&[1, 2, 3]).is_err());
    }
}
