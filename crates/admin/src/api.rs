//! The questions and changes of operators, and their answers: the JSON of the HTTP interface, of `diorite admin
//! --json`, and of the messages between the asked node and the node that has the answer.
//!
//! Always true: every answer is about the whole cluster, whichever node was asked. Sizes are in bytes; the names of
//! times end in their unit.

mod check;
mod cidr_group;
mod detail;
#[cfg(test)]
mod golden;
mod indexes;
mod join_token;
mod queries;
mod restart;
mod status;
mod transactions;
mod upgrade;

pub use check::{
    ComparedPart, ComparedUpTo, IndexDifference, IndexPart, MOST_NAMED, NamedDifference, PartHere, WantedCheck,
    WantedPart,
};
pub use cidr_group::{CIDR_GROUPS, CidrGroupStatus};
pub use detail::{History, LogLine, ReplicaDetail, TableDetail, TableShare, TabletDetail, TabletEvent};
pub use indexes::{
    INDEX_RATE, INDEXES, IndexDetail, IndexId, IndexList, IndexState, IndexStatus, IndexedTablet, MOST_INDEXED_TABLETS,
    NodeIndexRate,
};
pub use join_token::{JOIN_TOKENS, JoinTokenStatus, NewJoinToken};
pub use queries::{QueryActivity, QueryStatus, RunningQuery};
pub use restart::{NodeTurn, RestartPlan};
pub use status::{
    Activity, BalancerStatus, ClusterStatus, DiskStatus, Done, MoveStatus, NodeStatus, ReplicaStatus, TableStatus,
    TabletPage, TabletStatus,
};
pub use transactions::{MOST_PREPARED, PreparedTransaction, PreparedTransactions, TransactionHome, TransactionName};
pub use upgrade::{NodeLevels, UpgradeState, UpgradeStatus};

use diorite_base::{Hold, Level, NodeId, TabletId};
use serde::{Deserialize, Serialize};

/// The questions and changes of operators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// The state of the cluster: [`ClusterStatus`].
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
    /// A tablet, as described by each of its replicas: a [`TabletDetail`].
    Tablet {
        /// Its id.
        tablet: TabletId,
    },
    /// The asked node's replica of a tablet: a [`ReplicaDetail`].
    Replica {
        /// The tablet's id.
        tablet: TabletId,
    },
    /// The replicas that the asked node has set aside: a list of pairs of tablet and reason.
    SetAside,
    /// The replicas that are being moved: a list of [`MoveStatus`].
    Moves,
    /// The transactions that are prepared in tablets: [`PreparedTransactions`].
    Transactions,
    /// Those in the tablets that the asked node leads: [`PreparedTransactions`].
    TransactionsHere,
    /// The indexes of all tables: an [`IndexList`].
    Indexes,
    /// An index: an [`IndexDetail`].
    Index {
        /// Its keyspace.
        keyspace: String,
        /// Its name.
        name: String,
    },
    /// How far the asked node has come with indexes in the tablets that it leads.
    IndexesHere {
        /// The index whose tablets are listed one by one.
        of: Option<IndexId>,
    },
    /// Compares a part of an index with its table: an [`IndexPart`].
    CheckIndex(WantedCheck),
    /// The same in a tablet that the asked node leads: a [`ComparedPart`].
    CheckIndexHere(PartHere),
    /// Limits index builds on all nodes: a list of [`NodeIndexRate`].
    LimitIndexes {
        /// Bytes of rows per second and node; 0: no limit.
        rate_bytes: u64,
    },
    /// The same on the asked node alone: a [`NodeIndexRate`].
    LimitIndexesHere {
        /// Bytes of rows per second; 0: no limit.
        rate_bytes: u64,
    },
    /// The plan of a restart of all nodes: a [`RestartPlan`].
    RestartPlan {
        /// The time since the restart began, milliseconds: a node whose process has run for less has been restarted.
        elapsed_ms: u64,
    },
    /// The asked node's part in that plan.
    Recovery,
    /// How far an upgrade is: an [`UpgradeStatus`].
    Upgrade,
    /// Has the asked node agree to this level: it does not go back to a program that does not know it. [`Done`].
    AgreeToLevelHere {
        /// The level.
        level: Level,
        /// It does so in spite of an operator's hold up to this number.
        overruled: u64,
    },
    /// Has the asked node note what an operator has decided: [`Done`].
    NoteHoldHere(Hold),
    /// The last hour of the whole cluster: a [`History`].
    History,
    /// The asked node's part of the last hour: a [`History`].
    Outline,
    /// Carries out an order about scrubs on all nodes. The answer is the state of the scrub on each node: a list of
    /// [`NodeScrub`].
    Scrub(ScrubOrder),
    /// The same on the asked node alone: a [`NodeScrub`].
    ScrubHere(ScrubOrder),
    /// Carries out an order about compactions on all nodes. The answer is their state on each node: a list of
    /// [`NodeCompaction`].
    Compaction(CompactionOrder),
    /// The same on the asked node alone: a [`NodeCompaction`].
    CompactionHere(CompactionOrder),
    /// A question that one node answers about itself.
    Node {
        /// The node; `None`: the asked node.
        node: Option<NodeId>,
        /// The question.
        question: NodeQuestion,
    },
    /// The valid join tokens: a list of [`JoinTokenStatus`].
    JoinTokens,
    /// The groups of networks: a list of [`CidrGroupStatus`].
    CidrGroups,
    /// A change: [`Done`], or [`NewJoinToken`].
    Change(Change),
}

impl Ask {
    /// The lowest level of a connection on which it may be asked: programs of earlier levels do not know it.
    pub fn least_level(&self) -> Level {
        match self {
            Self::Upgrade
            | Self::AgreeToLevelHere { .. }
            | Self::NoteHoldHere(_)
            | Self::CidrGroups
            | Self::Transactions
            | Self::TransactionsHere
            | Self::Indexes
            | Self::Index { .. }
            | Self::IndexesHere { .. }
            | Self::CheckIndex(_)
            | Self::CheckIndexHere(_)
            | Self::LimitIndexes { .. }
            | Self::LimitIndexesHere { .. }
            | Self::Node { question: NodeQuestion::Cancel { .. } | NodeQuestion::Trace { .. }, .. }
            | Self::Change(
                Change::FinishUpgrade
                | Change::HoldUpgrade
                | Change::ResumeUpgrade
                | Change::SetCidrGroup { .. }
                | Change::DropCidrGroup { .. },
            ) => Level::RECORDED,
            _ => Level::FIRST,
        }
    }
}

/// The orders about scrubs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum ScrubOrder {
    /// Changes nothing.
    Look,
    /// Begins a scrub of everything.
    Begin {
        /// Bytes per second and node; 0: no limit.
        rate_bytes: u64,
    },
    /// Ends the scrub that is under way.
    Stop,
}

/// The orders about compactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum CompactionOrder {
    /// Changes nothing.
    Look,
    /// Compacts everything.
    Begin,
    /// Limits what flushes and compactions write, until the node is started again.
    Limit {
        /// Bytes per second and node; 0: no limit.
        rate_bytes: u64,
    },
}

/// The state of a node's compactions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCompaction {
    /// The node.
    pub node: NodeId,
    /// Whether everything is being compacted.
    pub is_running: bool,
    /// The number of tablets compacted by the last order.
    pub tablets_done: usize,
    /// The number of tablets when that order began.
    pub tablets: usize,
    /// The rate limit of flushes and compactions, bytes per second; 0: no limit.
    pub rate_bytes: u64,
    /// Why the node's state is unknown, if it is.
    pub failure: Option<String>,
}

/// The state of a node's scrub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeScrub {
    /// The node.
    pub node: NodeId,
    /// Whether a scrub is under way.
    pub is_running: bool,
    /// Whether an operator asked for it; otherwise the node began it by itself.
    pub is_asked_for: bool,
    /// The rate limit, bytes per second; 0: no limit.
    pub rate_bytes: u64,
    /// Bytes read so far.
    pub bytes_read: u64,
    /// Tablets read to their end.
    pub tablets_read: usize,
    /// The number of tablets when it began.
    pub tablets: usize,
    /// The tablets in which damage was found.
    pub damaged: Vec<TabletId>,
    /// Why the scrub ended before everything was read, or why the node's state is unknown.
    pub stopped: Option<String>,
    /// The end of the last complete scrub since the node was started, milliseconds since 1970.
    #[serde(default)]
    pub finished_ms: Option<i64>,
    /// How often scrubs have found damage since the node was started.
    #[serde(default)]
    pub damage_found: u64,
}

/// The questions to one node about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "about", rename_all = "snake_case")]
pub enum NodeQuestion {
    /// The values of the last hour: see `docs/operate.md`.
    History,
    /// The costs of its statements, and the running requests: [`QueryActivity`].
    Queries,
    /// The use of its memory: [`MemoryStatus`].
    Memory,
    /// The newest lines of its log: a list of objects, oldest first.
    Logs(LogFilter),
    /// The options in force.
    Configuration,
    /// Changes what it logs, if a field is given. The answer is the setting in force: [`LogStatus`].
    Logging(LogChange),
    /// Ends a request. The answer says whether it was running.
    Cancel {
        /// Its number.
        number: u64,
    },
    /// The trace of a request that it has coordinated, or null: asked for clients that read `system_traces`.
    Trace {
        /// The tracing id.
        session: String,
    },
}

/// The wanted lines of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogFilter {
    /// Lines of this level and more severe ones: `error`, `warn`, `info` (if not given), `debug` or `trace`.
    pub level: Option<String>,
    /// The most lines, the newest ones; 500 if not given.
    pub limit: Option<usize>,
}

/// Changes of a log's settings; absent fields leave them unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogChange {
    /// Levels, as for `--log-level`.
    pub levels: Option<String>,
    /// The duration from which on requests are logged as slow, as for `--slow-query`: milliseconds, or `off`.
    pub slow_query: Option<String>,
}

/// The settings of a node's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStatus {
    /// Levels, as for `--log-level`.
    pub levels: String,
    /// The duration from which on requests are logged as slow: milliseconds, or `off`.
    pub slow_query: String,
    /// `text` or `json`.
    pub format: String,
}

/// The use of a node's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// The resident memory of the process.
    pub resident_bytes: Option<u64>,
    /// The memory limit of the node (`--memory-limit`).
    pub limit_bytes: u64,
    /// The components, which add up to the resident memory, as far as it is known.
    pub components: Vec<MemoryComponent>,
    /// The allocator's figures.
    pub allocator: Option<AllocatorStatus>,
}

/// The memory of one component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryComponent {
    /// Its name.
    pub name: String,
    /// The memory in use, bytes.
    pub bytes: u64,
    /// The most that it may use, if there is a limit.
    pub limit_bytes: Option<u64>,
}

impl MemoryComponent {
    /// The memory of a component.
    pub fn new(name: &str, bytes: u64, limit_bytes: Option<u64>) -> Self {
        Self { name: name.to_owned(), bytes, limit_bytes }
    }
}

/// The allocator's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocatorStatus {
    /// Bytes that the program uses.
    pub allocated: u64,
    /// Bytes of pages that are partly in use.
    pub active: u64,
    /// Bytes of the allocator's own bookkeeping.
    pub metadata: u64,
    /// Bytes in physical memory.
    pub resident: u64,
    /// Bytes returned to the system whose address space is kept.
    pub retained: u64,
}

/// The changes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// Finishes the upgrade: the cluster goes to the next level.
    FinishUpgrade,
    /// Holds the upgrade: it is not finished by itself.
    HoldUpgrade,
    /// Ends the hold: the upgrade is finished by itself again.
    ResumeUpgrade,
    /// Moves all replicas off a node, which serves until they are moved.
    Drain {
        /// The node.
        node: NodeId,
    },
    /// Lets a node hold replicas again that was drained or is being drained.
    Undrain {
        /// The node.
        node: NodeId,
    },
    /// Ends the membership of a node that holds no replicas.
    Remove {
        /// The node.
        node: NodeId,
    },
    /// Rebuilds the replicas of a node that is down on other nodes, now.
    Replace {
        /// The node.
        node: NodeId,
    },
    /// Transfers the leaderships of a node to other nodes, for instance before it is stopped.
    MoveLeaders {
        /// The node.
        node: NodeId,
        /// Whether the node may lead again instead.
        back: bool,
    },
    /// Puts a node into a zone, whatever the node's own description says.
    SetZone {
        /// The node.
        node: NodeId,
        /// The zone; `None`: that of the node's description.
        zone: Option<String>,
    },
    /// Splits a tablet in two.
    Split {
        /// The tablet.
        tablet: TabletId,
    },
    /// Merges a tablet into a neighbour.
    Merge {
        /// The tablet that is dropped.
        tablet: TabletId,
        /// The tablet that stays; `None`: the next one.
        into: Option<TabletId>,
    },
    /// Cancels a split that is not committed: the tablet stays whole.
    CancelSplit {
        /// The tablet.
        tablet: TabletId,
    },
    /// Cancels a merge: both tablets stay, each with its rows.
    CancelMerge {
        /// One of the two tablets.
        tablet: TabletId,
    },
    /// Sets the rate limit of copies of replicas.
    SetRate {
        /// Bytes per second and node.
        bytes_per_second: u64,
    },
    /// Pauses or resumes the balancer.
    SetBalancing {
        /// Whether the balancer moves nothing.
        is_paused: bool,
    },
    /// Sets how long a node may be silent before its replicas are rebuilt on other nodes.
    SetReplaceAfter {
        /// The time.
        milliseconds: u64,
    },
    /// Sets the size from which on tablets are split.
    SetSplitSize {
        /// Bytes in files; 0: never.
        bytes: u64,
    },
    /// Sets the load from which on tablets are split.
    SetSplitLoad {
        /// Reads and writes of one tablet per second; 0: never.
        operations_per_second: u64,
    },
    /// Sets the size up to which neighbours are merged.
    SetMergeSize {
        /// Bytes in files of both together; 0: never.
        bytes: u64,
    },
    /// Sets the zones in which leaders are to be.
    SetLeaderZones {
        /// The zones; none: all zones.
        zones: Vec<String>,
    },
    /// Makes a join token: [`NewJoinToken`].
    CreateJoinToken {
        /// For how long it is valid.
        lifetime_ms: u64,
        /// How many nodes may join with it.
        nodes: u32,
    },
    /// Ends a join token.
    RevokeJoinToken {
        /// Its id.
        id: String,
    },
    /// Makes a group of networks, or replaces the networks of one.
    SetCidrGroup {
        /// Its name.
        name: String,
        /// Its networks.
        cidrs: Vec<String>,
    },
    /// Drops a group of networks that no role names.
    DropCidrGroup {
        /// Its name.
        name: String,
    },
    /// Decides whether clients have to log in.
    RequireLogin {
        /// Whether they have to.
        required: bool,
    },
}

/// The wanted tablets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TabletFilter {
    /// Tablets of this keyspace.
    pub keyspace: Option<String>,
    /// Tablets of tables with this name.
    pub table: Option<String>,
    /// Tablets with a replica on this node.
    pub node: Option<u64>,
    /// Only this tablet.
    pub tablet: Option<u64>,
    /// Tablets that this node leads.
    pub leader: Option<u64>,
    /// Tablets whose id, or the name of whose table (`keyspace.table`), contains this.
    pub search: Option<String>,
    /// Tablets in this state.
    pub state: Option<TabletState>,
    /// Tablets with greater ids than this one, in the order of their ids.
    pub after: Option<u64>,
    /// The number of matching tablets that are skipped, in the wanted order.
    pub skip: Option<usize>,
    /// The most tablets; 1,000 if not given, and at most 10,000.
    pub limit: Option<usize>,
    /// The order.
    pub sort: TabletOrder,
    /// Whether the order is reversed.
    pub descending: bool,
}

/// The order in which tablets are listed; equal ones are in the order of their ids.
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

/// The state of a tablet: the worst that is true of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TabletState {
    /// All replicas are up, and one of them leads.
    Ok,
    /// Replicas are being added or removed.
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
    /// The kind of reason.
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
    /// The caller lacks the permission, or changes are not accepted from its address or page.
    Forbidden,
    /// The change is not safe now: change something else first.
    Refused,
    /// The request is malformed or contradictory: correct it.
    Invalid,
    /// No answer is possible at the moment: ask again. A change may have been made, or may still be made.
    Unavailable,
    /// No answer is possible at the moment, and no change was begun: ask again.
    NotBegun,
}

impl Failure {
    /// A reason for a failure.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}
