//! What operators ask of a cluster, and what it answers: the JSON of the HTTP interface, of `diorite admin --json`, and of the question from the node
//! that was asked to the one that knows.
//!
//! Always true: every answer is about the whole cluster, whichever node was asked. Sizes are bytes, times what their names say.

mod detail;
mod status;

pub use detail::{History, LogLine, ReplicaDetail, TableDetail, TableShare, TabletDetail, TabletEvent};
pub use status::{
    Activity, BalancerStatus, ClusterStatus, DiskStatus, Done, MoveStatus, NodeStatus, ReplicaStatus, TableStatus,
    TabletPage, TabletStatus,
};

use diorite_base::{NodeId, TabletId};
use serde::{Deserialize, Serialize};

/// The questions and changes that operators ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// How the cluster is: [`ClusterStatus`].
    Status,
    /// The nodes: a list of [`NodeStatus`].
    Nodes,
    /// The tables: a list of [`TableStatus`].
    Tables,
    /// The tablets: a [`TabletPage`].
    Tablets(TabletFilter),
    /// A table: a [`TableDetail`].
    Table {
        /// Its keyspace.
        keyspace: String,
        /// Its name.
        name: String,
    },
    /// A tablet, as each of its replicas sees it: a [`TabletDetail`].
    Tablet {
        /// Its id.
        tablet: TabletId,
    },
    /// The replica of a tablet on the node that is asked: a [`ReplicaDetail`].
    Replica {
        /// The tablet's id.
        tablet: TabletId,
    },
    /// The replicas that the node that is asked has set aside: a list of pairs of tablet and reason.
    SetAside,
    /// The replicas that are on their way: a list of [`MoveStatus`].
    Moves,
    /// The last hour of the whole cluster: a [`History`].
    History,
    /// The asked node's part of that: a [`History`].
    Outline,
    /// How reading everything once gets on, on all nodes, after this was done: a list of [`NodeScrub`].
    Scrub(ScrubOrder),
    /// The same on the node that is asked: a [`NodeScrub`].
    ScrubHere(ScrubOrder),
    /// How compactions get on, on all nodes, after this was done: a list of [`NodeCompaction`].
    Compaction(CompactionOrder),
    /// The same on the node that is asked: a [`NodeCompaction`].
    CompactionHere(CompactionOrder),
    /// Something that one node knows about itself.
    Node {
        /// Which; none: the node that is asked.
        node: Option<NodeId>,
        /// What.
        question: NodeQuestion,
    },
    /// Changes something: [`Done`].
    Change(Change),
}

/// The commands of the scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum ScrubOrder {
    /// Nothing.
    Look,
    /// It begins, from the beginning.
    Begin {
        /// Bytes per second and node; 0: as fast as it can.
        rate_bytes: u64,
    },
    /// It ends.
    Stop,
}

/// The commands for compactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum CompactionOrder {
    /// Nothing.
    Look,
    /// Everything is compacted.
    Begin,
    /// Flushes and compactions write at most this much from now on, until the node is started again.
    Limit {
        /// Bytes per second and node; 0: no limit.
        rate_bytes: u64,
    },
}

/// How compactions get on on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCompaction {
    /// The node.
    pub node: NodeId,
    /// Everything is being compacted.
    pub is_running: bool,
    /// Tablets that are done, of the last time that everything was to be compacted.
    pub tablets_done: usize,
    /// How many there were when that began.
    pub tablets: usize,
    /// What flushes and compactions may write, bytes per second; 0: no limit.
    pub rate_bytes: u64,
    /// Why nothing is known of the node, if so.
    pub failure: Option<String>,
}

/// How reading everything once gets on on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeScrub {
    /// Which node.
    pub node: NodeId,
    /// It is under way.
    pub is_running: bool,
    /// It was asked for; otherwise the node has begun it by itself.
    pub is_asked_for: bool,
    /// Bytes per second at most; 0: as fast as it can.
    pub rate_bytes: u64,
    /// Bytes read so far.
    pub bytes_read: u64,
    /// Tablets read to their end.
    pub tablets_read: usize,
    /// Tablets that there are.
    pub tablets: usize,
    /// Those in which something was damaged.
    pub damaged: Vec<TabletId>,
    /// Why it ended before all was read, or why the node does not say, if so.
    pub stopped: Option<String>,
    /// When it had read everything for the last time since it was started, milliseconds since 1970.
    #[serde(default)]
    pub finished_ms: Option<i64>,
    /// How often it has found damage since it was started.
    #[serde(default)]
    pub damage_found: u64,
}

/// The questions to one node about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "about", rename_all = "snake_case")]
pub enum NodeQuestion {
    /// How it was in the last hour: see `docs/operate.md`.
    History,
    /// What its statements cost and which run: [`QueryActivity`].
    Queries,
    /// What its memory is used for: [`MemoryStatus`].
    Memory,
    /// The newest lines of its log: a list of objects, oldest first.
    Logs(LogFilter),
    /// The options in force.
    Configuration,
    /// How it logs, and how it is to from now on: [`LogStatus`].
    Logging(LogChange),
    /// End a request, by its number: whether it ran.
    Cancel(u64),
}

/// Which lines of a log are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogFilter {
    /// At least as grave as this: `error`, `warn`, `info` (if not given), `debug` or `trace`.
    pub level: Option<String>,
    /// At most so many, the newest; 500 if not given.
    pub limit: Option<usize>,
}

/// Changes of a log's settings; absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogChange {
    /// Levels, as for `--log-level`.
    pub levels: Option<String>,
    /// From how long on requests are logged as slow, as for `--slow-query`: milliseconds, or `off`.
    pub slow_query: Option<String>,
}

/// How a node logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStatus {
    /// Levels, as for `--log-level`.
    pub levels: String,
    /// From how long on requests are logged as slow: milliseconds, or `off`.
    pub slow_query: String,
    /// `text` or `json`.
    pub format: String,
}

/// The costs of a node's statements since they were first seen, and the requests that run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryActivity {
    /// By statement, those first that took most time together.
    pub queries: Vec<QueryStatus>,
    /// The requests that run, longest first, 100 at most.
    pub running: Vec<RunningQuery>,
    /// How many run.
    pub running_count: usize,
}

/// The costs of a statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryStatus {
    /// Its text without constants; none: all statements together that are not told apart.
    pub statement: Option<String>,
    /// The keyspace of unqualified names in it.
    pub keyspace: Option<String>,
    /// Requests.
    pub count: u64,
    /// How long they took on average.
    pub mean_seconds: f64,
    /// How long 99 of 100 took at most.
    pub p99_seconds: f64,
    /// How long the longest took.
    pub max_seconds: f64,
    /// How long they took together.
    pub total_seconds: f64,
    /// Rows that they returned.
    pub rows: u64,
    /// How many failed.
    pub errors: u64,
    /// When the last was answered.
    pub last_unix_seconds: u64,
}

/// A request that runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunningQuery {
    /// Its number on the node that carries it out, by which it is ended.
    #[serde(default)]
    pub number: u64,
    /// The memory that it holds.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Its text without constants.
    pub statement: String,
    /// The keyspace of unqualified names in it.
    pub keyspace: Option<String>,
    /// For how long.
    pub seconds_running: f64,
    /// Who sent it.
    pub client: Option<String>,
}

/// The use of a node's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// The resident memory of the process.
    pub resident_bytes: Option<u64>,
    /// The memory limit of the node (`--memory-limit`).
    pub limit_bytes: u64,
    /// By component; together what the process uses, as far as that is known.
    pub components: Vec<MemoryComponent>,
    /// The allocator's figures.
    pub allocator: Option<AllocatorStatus>,
}

/// The memory of one component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryComponent {
    /// Its name.
    pub name: String,
    /// How much.
    pub bytes: u64,
    /// The most that it may use, if there is a limit.
    pub limit_bytes: Option<u64>,
}

impl MemoryComponent {
    /// One.
    pub fn new(name: &str, bytes: u64, limit_bytes: Option<u64>) -> Self {
        Self { name: name.to_owned(), bytes, limit_bytes }
    }
}

/// The allocator's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocatorStatus {
    /// Bytes in use by the program.
    pub allocated: u64,
    /// Bytes in pages of which something is in use.
    pub active: u64,
    /// Bytes of the allocator's own bookkeeping.
    pub metadata: u64,
    /// Bytes that are in the machine's memory.
    pub resident: u64,
    /// Bytes that were given back and kept as address space.
    pub retained: u64,
}

/// The changes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// Moves everything off a node, which goes on serving until then.
    Drain {
        /// Which.
        node: NodeId,
    },
    /// A node that was drained, or is being drained, is to hold replicas again.
    Undrain {
        /// Which.
        node: NodeId,
    },
    /// Ends the membership of a node that holds no replicas.
    Remove {
        /// Which.
        node: NodeId,
    },
    /// Makes the replicas of a node that is down anew elsewhere, now.
    Replace {
        /// Which.
        node: NodeId,
    },
    /// Lets other nodes lead what a node leads, as before it is stopped for a while.
    MoveLeaders {
        /// Which.
        node: NodeId,
        /// Lets it lead again.
        back: bool,
    },
    /// Puts a node into a zone, whatever it says itself.
    SetZone {
        /// Which.
        node: NodeId,
        /// The zone; none: what the node says.
        zone: Option<String>,
    },
    /// Splits a tablet in two.
    Split {
        /// Which.
        tablet: TabletId,
    },
    /// Merges a tablet into a neighbour.
    Merge {
        /// The one that goes.
        tablet: TabletId,
        /// The one that stays; none: the next.
        into: Option<TabletId>,
    },
    /// Ends a split that has not stopped the tablet yet: it stays whole.
    CancelSplit {
        /// Which.
        tablet: TabletId,
    },
    /// Ends a merge: both tablets stay, each with its data.
    CancelMerge {
        /// One of the two.
        tablet: TabletId,
    },
    /// Sets what copies of replicas may take.
    SetRate {
        /// Bytes per second and node.
        bytes_per_second: u64,
    },
    /// Lets the balancer work, or not.
    SetBalancing {
        /// Whether it leaves everything where it is.
        is_paused: bool,
    },
    /// Sets how long a node may be silent before its replicas are made anew elsewhere.
    SetReplaceAfter {
        /// How long.
        milliseconds: u64,
    },
    /// Sets from which size on tablets are split.
    SetSplitSize {
        /// Bytes in files; 0: never.
        bytes: u64,
    },
    /// Sets from which load on tablets are split.
    SetSplitLoad {
        /// Reads and writes of one tablet; 0: never.
        operations_per_second: u64,
    },
    /// Sets up to which size neighbours are merged.
    SetMergeSize {
        /// Bytes in files of both together; 0: never.
        bytes: u64,
    },
    /// Sets the zones in which leaders are to be.
    SetLeaderZones {
        /// The zones; none: anywhere.
        zones: Vec<String>,
    },
    /// Decides whether clients have to log in.
    RequireLogin {
        /// Whether they have to.
        required: bool,
    },
}

/// Which tablets are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TabletFilter {
    /// Of this keyspace.
    pub keyspace: Option<String>,
    /// Of tables of this name.
    pub table: Option<String>,
    /// With a replica on this node.
    pub node: Option<u64>,
    /// Only this one.
    pub tablet: Option<u64>,
    /// Led by this node.
    pub leader: Option<u64>,
    /// In whose id, or in the name of whose table (`keyspace.table`), this stands.
    pub search: Option<String>,
    /// In this state.
    pub state: Option<TabletState>,
    /// After this one, in the order of their ids.
    pub after: Option<u64>,
    /// Without the first so many of those that are left, in the order that is wanted.
    pub skip: Option<usize>,
    /// At most so many; 1,000 if not given, and at most 10,000.
    pub limit: Option<usize>,
    /// In which order.
    pub sort: TabletOrder,
    /// In the order from the end.
    pub descending: bool,
}

/// In which order tablets are listed; equal ones by their ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TabletOrder {
    /// By their ids.
    #[default]
    Tablet,
    /// By keyspace and table.
    Table,
    /// By their first tokens.
    FirstToken,
    /// By their sizes.
    Bytes,
    /// By the number of SSTables.
    SstFiles,
    /// By the nodes that lead them.
    Leader,
    /// By their states, the good ones first.
    State,
}

/// How a tablet stands. The worst that is true of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TabletState {
    /// All replicas are there, and one of them leads.
    Ok,
    /// Replicas come or go.
    Moving,
    /// Fewer replicas are up than wanted.
    UnderReplicated,
    /// No leader is known.
    Leaderless,
    /// No quorum of its replicas is up.
    Unavailable,
}

/// The reason why a question or change failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What sort of reason.
    pub kind: FailureKind,
    /// The reason in words.
    pub message: String,
}

/// The kinds of reasons, by what the caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The named object does not exist.
    NotFound,
    /// The caller is not authenticated: log in.
    Unauthenticated,
    /// The caller lacks the permission, or it does not hold for this origin.
    Forbidden,
    /// The change is not safe now: change something else first.
    Refused,
    /// The request is malformed or contradictory: correct it.
    Invalid,
    /// No answer is possible at the moment: ask again. A change may have been made, or may still be.
    Unavailable,
    /// No answer is possible at the moment, and no change was begun: ask again.
    NotBegun,
}

impl Failure {
    /// A reason.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}
