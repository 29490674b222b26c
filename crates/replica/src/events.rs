//! The last events of each tablet replica of this node, for operators.
//!
//! Always true: a tablet keeps its last [`EVENTS`] events, and none once its replica is closed; no decision of a
//! replica depends on them. Nothing is recorded that happens with every write. Left out: keeping events over a restart
//! (the node's log has them).

use diorite_base::{NodeId, TabletId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// The number of events kept for a tablet.
pub const EVENTS: usize = 32;

/// Something that happened to a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TabletEvent {
    /// The time, microseconds since 1970.
    pub wall_us: i64,
    /// What happened.
    pub kind: TabletEventKind,
}

/// The kinds of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TabletEventKind {
    /// It was opened, holding everything up to this log index.
    Opened {
        /// The applied index.
        applied: u64,
    },
    /// This replica, or another, leads.
    Leader {
        /// The leader's node.
        leader: NodeId,
        /// Its term.
        term: u64,
    },
    /// The leader is no longer known.
    NoLeader {
        /// The term without a known leader.
        term: u64,
    },
    /// This leader has ended its lease so that another may lead.
    LeadershipReleased {
        /// The successor's node; `None`: any.
        to: Option<NodeId>,
    },
    /// The catalog wants other members.
    Wanted {
        /// The voters.
        voters: Vec<NodeId>,
        /// The learners.
        learners: Vec<NodeId>,
    },
    /// The members of the group have changed.
    Members {
        /// The voters.
        voters: Vec<u64>,
        /// The former voters, in a joint configuration.
        outgoing: Vec<u64>,
        /// The learners.
        learners: Vec<u64>,
    },
    /// The replica's data was replaced by a copy.
    CopyTaken {
        /// The node that sent the copy.
        from: NodeId,
        /// Its size.
        bytes: u64,
    },
    /// This replica's data was copied to another node.
    CopySent {
        /// The node that received the copy.
        to: NodeId,
        /// Bytes that were sent.
        bytes: u64,
    },
    /// The replica was moved to another disk of its node.
    MovedToDisk {
        /// The disk's data directory.
        path: String,
        /// Bytes that were copied.
        bytes: u64,
    },
    /// The replica was opened again, because the options of its table have changed.
    Renewed,
    /// The tablet was split: it is sealed.
    Split {
        /// Its child tablets.
        children: [TabletId; 2],
    },
    /// The replica has failed.
    Failed {
        /// Why.
        reason: String,
    },
}

struct List<'a>(&'a [u64]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, item) in self.0.iter().enumerate() {
            write!(f, "{}{item}", if at > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

fn members(f: &mut fmt::Formatter<'_>, voters: &[u64], learners: &[u64]) -> fmt::Result {
    write!(f, "voters {}", List(voters))?;
    if !learners.is_empty() {
        write!(f, "; learners {}", List(learners))?;
    }
    Ok(())
}

impl fmt::Display for TabletEventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened { applied } => write!(f, "opened, holding the log up to {applied}"),
            Self::Leader { leader, term } => write!(f, "node {} leads in term {term}", leader.0),
            Self::NoLeader { term } => write!(f, "nobody is known to lead in term {term}"),
            Self::LeadershipReleased { to: Some(to) } => write!(f, "transferred leadership to node {}", to.0),
            Self::LeadershipReleased { to: None } => f.write_str("stepped down"),
            Self::Wanted { voters, learners } => {
                let numbers = |nodes: &[NodeId]| nodes.iter().map(|node| node.0).collect::<Vec<_>>();
                f.write_str("the catalog wants ")?;
                members(f, &numbers(voters), &numbers(learners))
            }
            Self::Members { voters, outgoing, learners } => {
                members(f, voters, learners)?;
                if !outgoing.is_empty() {
                    write!(f, "; until all know, also {}", List(outgoing))?;
                }
                Ok(())
            }
            Self::CopyTaken { from, bytes } => write!(f, "took a copy of {bytes} bytes from node {}", from.0),
            Self::CopySent { to, bytes } => write!(f, "sent {bytes} bytes of a copy to node {}", to.0),
            Self::MovedToDisk { path, bytes } => write!(f, "moved to {path}, {bytes} bytes"),
            Self::Renewed => f.write_str("opened again with other table options"),
            Self::Split { children: [first, second] } => write!(f, "was split into {first} and {second}"),
            Self::Failed { reason } => write!(f, "stopped: {reason}"),
        }
    }
}

/// The events of all replicas of a node.
#[derive(Default)]
pub(crate) struct Events {
    rings: Mutex<BTreeMap<TabletId, VecDeque<TabletEvent>>>,
}

impl Events {
    pub(crate) fn note(&self, tablet: TabletId, wall_us: i64, kind: TabletEventKind) {
        let mut rings = self.rings.lock();
        let ring = rings.entry(tablet).or_default();
        if ring.len() >= EVENTS {
            ring.pop_front();
        }
        ring.push_back(TabletEvent { wall_us, kind });
    }

    /// The events of a tablet, oldest first.
    pub(crate) fn of(&self, tablet: TabletId) -> Vec<TabletEvent> {
        self.rings.lock().get(&tablet).map_or_else(Vec::new, |ring| ring.iter().cloned().collect())
    }

    /// Forgets the events of a replica that is closed.
    pub(crate) fn forget(&self, tablet: TabletId) {
        self.rings.lock().remove(&tablet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_events_are_kept_until_the_replica_goes() {
        let events = Events::default();
        let leader = |term| TabletEventKind::Leader { leader: NodeId(2), term };
        (0..100).for_each(|term| events.note(TabletId(7), term as i64, leader(term)));
        events.note(TabletId(8), 5, TabletEventKind::Opened { applied: 3 });
        let kept = events.of(TabletId(7));
        assert_eq!(kept.len(), EVENTS);
        assert_eq!((kept[0].wall_us, kept[EVENTS - 1].wall_us), (68, 99));
        assert_eq!(kept[EVENTS - 1].kind.to_string(), "node 2 leads in term 99");
        events.forget(TabletId(7));
        assert!(events.of(TabletId(7)).is_empty());
        assert_eq!(events.of(TabletId(8)).len(), 1);
    }

    #[test]
    fn members_read_as_a_sentence() {
        let members = TabletEventKind::Members { voters: vec![1, 2, 4], outgoing: vec![1, 2, 3], learners: vec![5] };
        assert_eq!(members.to_string(), "voters 1, 2, 4; learners 5; until all know, also 1, 2, 3");
        assert_eq!(TabletEventKind::LeadershipReleased { to: None }.to_string(), "stepped down");
    }
}
