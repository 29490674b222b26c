//! What the balancer looks at and what it says: the cluster as it is, as it is to be, and the actions that lead there.
//!
//! Always true: these types are plain values that name nodes and tablets by id alone, so that the live catalog, the planner and tests can each
//! make them. Order in the lists does not matter: the balancer goes by ids.

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
    /// All live tablets.
    pub tablets: Vec<TabletView>,
    /// How much may be under way at once.
    pub limits: Limits,
    /// Zones whose nodes are to lead where they can, with no order among them; none: all alike.
    pub preferred_leader_zones: Vec<String>,
    /// Only repair goes on; an operator has switched everything else off.
    pub paused: bool,
}

/// Whether a node can be counted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It answers.
    Live,
    /// It answers, and its replicas are to go elsewhere.
    Draining,
    /// It has been silent for less than the time after which a node is replaced, draining or not: nothing is placed on it, nothing is repaired
    /// yet.
    Suspect,
    /// It has been silent for longer, or has been declared gone: its replicas are made anew elsewhere.
    Dead,
}

/// A member of the cluster.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// Which one.
    pub id: NodeId,
    /// What fails together.
    pub zone: String,
    /// The data centre; zones of the same name in two data centres are two zones.
    pub data_center: String,
    /// Whether it can be counted on.
    pub state: NodeState,
    /// Whether it may lead tablets; an operator may have asked that others do.
    pub may_lead: bool,
    /// Its data directories' disks; replicas name them by their place in this list. None known: it counts as a node of average size with
    /// room.
    pub disks: Vec<DiskView>,
}

/// A disk of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskView {
    /// What the file system holds when empty.
    pub total_bytes: u64,
    /// What is free now.
    pub free_bytes: u64,
    /// The soft limit: moves leave so much free.
    pub reserve_bytes: u64,
    /// It had an I/O error: replicas on it count as lost, and nothing is placed on it.
    pub failed: bool,
}

impl DiskView {
    /// What moves may still fill.
    pub fn room_bytes(&self) -> u64 {
        if self.failed { 0 } else { self.free_bytes.saturating_sub(self.reserve_bytes) }
    }
}

/// A tablet and its replicas.
#[derive(Clone, Debug)]
pub struct TabletView {
    /// Which one.
    pub id: TabletId,
    /// The table that it is a part of.
    pub table: TableId,
    /// What one replica takes on disk.
    pub bytes: u64,
    /// The replication of its keyspace.
    pub wanted: Arc<Replication>,
    /// What the catalog wants: the preferred leader first.
    pub replicas: Vec<NodeId>,
    /// Members of the group that go when it has committed `replicas`; they vote until then.
    pub leaving: Vec<NodeId>,
    /// Those of `replicas` that are still being copied to and do not vote yet.
    pub arriving: Vec<Arrival>,
    /// The actual leader, if one is known.
    pub leader: Option<NodeId>,
    /// Where it is known: the disk (index into `NodeView::disks`) that a replica is on.
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

    /// An order of nodes that differs from tablet to tablet, so that where all else is equal not always the same node comes first.
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
    /// Where to.
    pub node: NodeId,
    /// Which voter it is copied from, if that is known.
    pub from: Option<NodeId>,
    /// What is left to copy; the tablet's size if that is not known.
    pub bytes_left: u64,
}

/// How much may be under way at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The one knob: what each node receives at most, and what it sends at most, for copies of replicas. 0 stops all copying.
    pub bytes_per_second: u64,
    /// Replicas arriving at a node at once: enough that one is copied while another is opened or catches up. Up to
    /// [`Limits::SMALL_COPIES`] times as many if they are so small that they do not fill the next [`Limits::WINDOW_S`] seconds.
    pub arriving_per_node: u32,
    /// Replicas being copied from a node at once; the same holds for small ones.
    pub sending_per_node: u32,
    /// Preferred leaders changed in one go.
    pub leader_changes: u32,
}

impl Limits {
    /// How many times as many copies there may be if they are small.
    pub const SMALL_COPIES: u32 = 16;
    /// Copies are small together if the knob lets them through in so many seconds: longer than it takes to decide on the next and to begin with
    /// it, and no longer, as all that are under way were begun at once, and a replica that begins is opened, and its sender may have to flush.
    pub const WINDOW_S: u64 = 3;
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes_per_second: 200_000_000, arriving_per_node: 4, sending_per_node: 4, leader_changes: 100 }
    }
}

/// A change that the catalog is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// Have the replicas on these nodes, the preferred leader first: those that are new are copied to, the others go when the group has committed that.
    Place {
        /// Which tablet.
        tablet: TabletId,
        /// All its replicas from then on.
        replicas: Vec<NodeId>,
        /// What for.
        reason: Reason,
    },
    /// Prefer another of the replicas as the leader.
    Lead {
        /// Which tablet.
        tablet: TabletId,
        /// One of its replicas that votes.
        leader: NodeId,
        /// What for.
        reason: Reason,
    },
}

impl Action {
    /// Which tablet it changes.
    pub fn tablet(&self) -> TabletId {
        match self {
            Action::Place { tablet, .. } | Action::Lead { tablet, .. } => *tablet,
        }
    }

    /// What it is for.
    pub fn reason(&self) -> Reason {
        match self {
            Action::Place { reason, .. } | Action::Lead { reason, .. } => *reason,
        }
    }
}

/// What an action is for, in the order of the rules.
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

/// Why a tablet cannot get what it should have until something outside the balancer changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "stuck", rename_all = "snake_case")]
pub enum Stalled {
    /// Fewer than a quorum of its voters answer, so that its group cannot change anything.
    NoQuorum {
        /// Which tablet.
        tablet: TabletId,
        /// Voters that answer.
        live: u32,
        /// All voters.
        voters: u32,
    },
    /// There is no further node that could hold a replica.
    TooFewNodes {
        /// Which tablet.
        tablet: TabletId,
        /// Replicas that are wanted.
        wanted: u32,
        /// Replicas that it has or gets on nodes that stay.
        has: u32,
    },
    /// No disk of the nodes that could hold a replica has room for it above the soft limit.
    NoRoom {
        /// Which tablet.
        tablet: TabletId,
        /// What a replica takes.
        bytes: u64,
    },
}

impl Stalled {
    /// Which tablet.
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
