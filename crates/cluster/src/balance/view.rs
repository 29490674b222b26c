//! The inputs and outputs of the balancer: the cluster as it is, and the actions.
//!
//! Always true: these types are plain values that name nodes and tablets by id, so that the live catalog, the planner
//! and tests can all make them. The order in the lists does not matter: the balancer sorts by id.

use crate::catalog::Replication;
use diorite_base::{NodeId, TableId, TabletId};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// The cluster at one moment.
#[derive(Clone, Debug)]
pub struct View {
    /// All members.
    pub nodes: Vec<NodeView>,
    /// All tablets.
    pub tablets: Vec<TabletView>,
    /// Limits on copies under way.
    pub limits: Limits,
    /// Zones whose nodes should lead if possible, in no order; empty: no preference.
    pub preferred_leader_zones: Vec<String>,
    /// Whether an operator has paused everything except repair.
    pub paused: bool,
}

/// The state of a node for the balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It answers.
    Live,
    /// It answers, and its replicas are to move away.
    Draining,
    /// It has been silent for less than the time after which a node is replaced: nothing is placed on it, and nothing
    /// is repaired yet.
    Suspect,
    /// It has been silent for longer, or was declared lost: its replicas are rebuilt elsewhere.
    Dead,
}

/// A member of the cluster.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// Which one.
    pub id: NodeId,
    /// Its zone: nodes that fail together.
    pub zone: String,
    /// The data centre; zones of the same name in two data centres are two zones.
    pub data_center: String,
    /// Its state.
    pub state: NodeState,
    /// Whether it may lead tablets; an operator can have that changed.
    pub may_lead: bool,
    /// The disks of its data directories; replicas name them by their index in this list. Empty if not known: then it
    /// counts as a node of average size with space.
    pub disks: Vec<DiskView>,
}

/// A disk of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskView {
    /// Size of the file system.
    pub total_bytes: u64,
    /// Free bytes now.
    pub free_bytes: u64,
    /// The soft limit: moves leave this much free.
    pub reserve_bytes: u64,
    /// It had an I/O error: replicas on it count as lost, and nothing is placed on it.
    pub failed: bool,
}

impl DiskView {
    /// The bytes that moves may still add.
    pub fn room_bytes(&self) -> u64 {
        if self.failed { 0 } else { self.free_bytes.saturating_sub(self.reserve_bytes) }
    }
}

/// A tablet and its replicas.
#[derive(Clone, Debug)]
pub struct TabletView {
    /// Which one.
    pub id: TabletId,
    /// Its table.
    pub table: TableId,
    /// The size of one replica on disk.
    pub bytes: u64,
    /// The replication of its keyspace.
    pub wanted: Arc<Replication>,
    /// The replicas that the catalog wants: the preferred leader first.
    pub replicas: Vec<NodeId>,
    /// Members that are removed when the group has committed `replicas`; they vote until then.
    pub leaving: Vec<NodeId>,
    /// Those of `replicas` that are being copied to and do not vote yet.
    pub arriving: Vec<Arrival>,
    /// Whether it is being split or merged: its placement cannot be changed until that has ended.
    pub is_reshaping: bool,
    /// The actual leader, if one is known.
    pub leader: Option<NodeId>,
    /// The disk (index into `NodeView::disks`) of each replica, if known.
    pub disks: Vec<(NodeId, usize)>,
}

impl TabletView {
    /// Whether a change of its members is under way.
    pub fn is_changing(&self) -> bool {
        !self.leaving.is_empty() || !self.arriving.is_empty()
    }

    /// Whether the node is still being copied to.
    pub fn is_arriving(&self, node: NodeId) -> bool {
        self.arriving.iter().any(|arrival| arrival.node == node)
    }

    /// The members that vote now.
    pub fn voters(&self) -> impl Iterator<Item = NodeId> + '_ {
        let staying = self.replicas.iter().filter(|node| !self.is_arriving(**node));
        staying.chain(self.leaving.iter()).copied()
    }

    /// A node's rank for this tablet, which differs from tablet to tablet, to break ties.
    pub(crate) fn turn(&self, node: NodeId) -> (u64, NodeId) {
        let mixed = (self.id.0 ^ node.0.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32, node)
    }

    /// The disk that the replica on `node` is on, if that is known.
    pub fn disk_on(&self, node: NodeId) -> Option<usize> {
        self.disks.iter().find(|(on, _)| *on == node).map(|(_, disk)| *disk)
    }
}

/// A replica that is being copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The receiver.
    pub node: NodeId,
    /// The sending voter, if known.
    pub from: Option<NodeId>,
    /// The remaining bytes; the tablet's size if not known.
    pub bytes_left: u64,
}

/// Limits on copies under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes per second that each node receives, and sends, in copies of replicas. 0 stops all copying.
    pub bytes_per_second: u64,
    /// Replicas that may arrive at a node at once: enough that one is copied while another is opened or catches up. Up
    /// to [`Limits::SMALL_COPIES`] times as many if together they do not fill the next [`Limits::WINDOW_S`] seconds.
    pub arriving_per_node: u32,
    /// Replicas that may be copied from a node at once; small ones likewise.
    pub sending_per_node: u32,
    /// Preferred leaders that are changed in one pass.
    pub leader_changes: u32,
}

impl Limits {
    /// How many times as many small copies are allowed.
    pub const SMALL_COPIES: u32 = 16;
    /// Copies count as small together if the rate transfers them in this many seconds: longer than it takes to decide
    /// on the next ones and begin them, and no longer, as all of them begin at once, and each beginning opens a
    /// replica, and may make its sender flush.
    pub const WINDOW_S: u64 = 3;
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes_per_second: 200_000_000, arriving_per_node: 4, sending_per_node: 4, leader_changes: 100 }
    }
}

/// A change of the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// Place the replicas on these nodes, the preferred leader first: new ones are copied, the others are removed when
    /// the group has committed the change.
    Place {
        /// The tablet.
        tablet: TabletId,
        /// All its replicas from then on.
        replicas: Vec<NodeId>,
        /// The reason.
        reason: Reason,
    },
    /// Make another of the replicas the preferred leader.
    Lead {
        /// The tablet.
        tablet: TabletId,
        /// One of its replicas that votes.
        leader: NodeId,
        /// The reason.
        reason: Reason,
    },
}

impl Action {
    /// The tablet that it changes.
    pub fn tablet(&self) -> TabletId {
        match self {
            Action::Place { tablet, .. } | Action::Lead { tablet, .. } => *tablet,
        }
    }

    /// Its reason.
    pub fn reason(&self) -> Reason {
        match self {
            Action::Place { reason, .. } | Action::Lead { reason, .. } => *reason,
        }
    }
}

/// The reason of an action, in the order of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A replica is lost with its node or disk.
    Lost,
    /// There are fewer replicas than wanted.
    Missing,
    /// There are more replicas than wanted.
    Surplus,
    /// Replicas share a zone and need not.
    Zones,
    /// The node is being drained.
    Drain,
    /// Bytes are spread unevenly over nodes.
    Bytes,
    /// Replicas are spread unevenly over nodes.
    Count,
    /// A table's replicas are spread unevenly over nodes.
    Table,
    /// Leaders outside the preferred zones.
    LeaderZone,
    /// Leaders are spread unevenly over nodes.
    Leaders,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Lost => "a replica is lost",
            Reason::Missing => "too few replicas",
            Reason::Surplus => "too many replicas",
            Reason::Zones => "zones",
            Reason::Drain => "drain",
            Reason::Bytes => "bytes per node",
            Reason::Count => "replicas per node",
            Reason::Table => "replicas of the table per node",
            Reason::LeaderZone => "preferred leader zone",
            Reason::Leaders => "leaders per node",
        })
    }
}

/// Why a tablet cannot get its wanted replicas until something outside the balancer changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "stuck", rename_all = "snake_case")]
pub enum Stalled {
    /// Fewer than a quorum of its voters answer, so its group cannot change.
    NoQuorum {
        /// The tablet.
        tablet: TabletId,
        /// Voters that answer.
        live: u32,
        /// All voters.
        voters: u32,
    },
    /// There is no further node that could hold a replica.
    TooFewNodes {
        /// The tablet.
        tablet: TabletId,
        /// Replicas that are wanted.
        wanted: u32,
        /// Replicas that it has or gets on nodes that stay.
        has: u32,
    },
    /// No disk of the possible nodes has space within the soft limit.
    NoRoom {
        /// The tablet.
        tablet: TabletId,
        /// The size of a replica.
        bytes: u64,
    },
}

impl Stalled {
    /// The tablet.
    pub fn tablet(&self) -> TabletId {
        match self {
            Stalled::NoQuorum { tablet, .. } | Stalled::TooFewNodes { tablet, .. } | Stalled::NoRoom { tablet, .. } => {
                *tablet
            }
        }
    }
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stalled::NoQuorum { tablet, live, voters } => {
                write!(f, "{tablet} has no quorum: {live} of its {voters} voters answer")
            }
            Stalled::TooFewNodes { tablet, wanted, has } => {
                write!(f, "{tablet} wants {wanted} replicas and there are nodes for {has}")
            }
            Stalled::NoRoom { tablet, bytes } => {
                write!(f, "{tablet} needs {bytes} bytes and no node that may hold it has room above its soft limit")
            }
        }
    }
}
