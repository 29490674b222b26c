//! What operators ask of a cluster, and what it answers: the JSON of the HTTP interface, of `diorite admin --json`, and of the question from the node
//! that was asked to the one that knows.
//!
//! Always true: every answer is about the whole cluster, whichever node was asked. Sizes are bytes, times what their names say.

mod detail;

pub use detail::{History, LogLine, ReplicaDetail, TableDetail, TableShare, TabletDetail, TabletEvent};

use diorite_base::{NodeId, TabletId};
use serde::{Deserialize, Serialize};

/// What is asked.
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
    /// The replicas that are on their way: a list of [`MoveStatus`].
    Moves,
    /// The last hour of the whole cluster: a [`History`].
    History,
    /// What the node that is asked contributes to that: a [`History`].
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

/// What is to be done about reading everything once.
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

/// What is to be done about compactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum CompactionOrder {
    /// Nothing.
    Look,
    /// Everything is compacted.
    Begin,
    /// Flushes and compactions write no more than this from now on, until the node is started again.
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

/// What is asked of one node about itself.
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

/// What is to change about a log; what is absent stays.
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

/// What the statements of a node cost since they were first seen, and what runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryActivity {
    /// By statement, those first that took most time together.
    pub queries: Vec<QueryStatus>,
    /// The requests that run, longest first, 100 at most.
    pub running: Vec<RunningQuery>,
    /// How many run.
    pub running_count: usize,
}

/// What a statement costs.
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

/// What a node's memory is used for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// What the process uses of the machine's memory.
    pub resident_bytes: Option<u64>,
    /// What the node was given to use (`--memory-limit`).
    pub limit_bytes: u64,
    /// By component; together what the process uses, as far as that is known.
    pub components: Vec<MemoryComponent>,
    /// What the allocator says.
    pub allocator: Option<AllocatorStatus>,
}

/// What a component uses.
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

/// What the allocator says.
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

/// What is to be changed.
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
    /// Ends a merge: both tablets stay, each with what it held.
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
    /// Nobody is known to lead it.
    Leaderless,
    /// No quorum of its replicas is up.
    Unavailable,
}

/// Why an answer is not what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What sort of reason.
    pub kind: FailureKind,
    /// The reason in words.
    pub message: String,
}

/// Sorts of reasons, by what whoever asked may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// There is no such thing: ask for another.
    NotFound,
    /// Nobody knows who asks: log in.
    Unauthenticated,
    /// Whoever asks may not, or not from there.
    Forbidden,
    /// It would do harm: change something else first.
    Refused,
    /// It cannot be understood: ask otherwise.
    Invalid,
    /// Nobody can say at the moment: ask again. What was to be changed may have been, or may still be.
    Unavailable,
    /// Nobody can say or do it at the moment, and nothing was begun: ask again.
    NotBegun,
}

impl Failure {
    /// A reason.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

/// How the cluster is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Its name.
    pub name: String,
    /// Its id.
    pub cluster_id: String,
    /// Replicas per tablet that every keyspace has at least.
    pub replication_factor: u32,
    /// The version of the catalog.
    pub catalog_version: u64,
    /// The node that leads the catalog, and so answers here and runs the balancer.
    pub leader: NodeId,
    /// Nodes that are members.
    pub nodes: usize,
    /// Those of them that are up.
    pub live_nodes: usize,
    /// The versions of the program that nodes run.
    pub programs: Vec<String>,
    /// Tables.
    pub tables: usize,
    /// Tablets.
    pub tablets: usize,
    /// Tablets that somebody is known to lead.
    pub leaders: usize,
    /// Tablets with fewer live replicas than wanted.
    pub under_replicated: usize,
    /// Tablets that nobody is known to lead.
    pub leaderless: usize,
    /// Tablets of which no quorum of replicas is up.
    pub unavailable: usize,
    /// Bytes of data, each tablet once.
    pub bytes: u64,
    /// Bytes of all replicas.
    pub replica_bytes: u64,
    /// Reads per second, over all nodes that are up.
    pub reads_per_second: f64,
    /// Writes per second, over all nodes that are up.
    pub writes_per_second: f64,
    /// Disks that refuse writes for want of space, or have failed.
    #[serde(default)]
    pub full_disks: usize,
    /// Replicas that their nodes cannot use.
    #[serde(default)]
    pub set_aside: usize,
    /// Nodes, of those that are up, that have read everything they hold since they were started.
    #[serde(default)]
    pub scrubbed_nodes: usize,
    /// Since when none of these has read everything again, milliseconds since 1970.
    #[serde(default)]
    pub scrubbed_ms: Option<i64>,
    /// How often scrubs have found damage since these nodes were started.
    #[serde(default)]
    pub scrub_damage_found: u64,
    /// What the balancer does.
    pub balancer: BalancerStatus,
    /// What an operator had better look at, worst first.
    pub warnings: Vec<String>,
}

impl ClusterStatus {
    /// Whether losing one more replica could lose data, or some data cannot be reached or written. A node that is down and holds nothing (any more) is no
    /// risk.
    pub fn is_at_risk(&self) -> bool {
        self.under_replicated + self.leaderless + self.unavailable + self.full_disks + self.set_aside > 0
    }
}

/// What the balancer does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BalancerStatus {
    /// `idle`, `repairing`, `balancing`, `paused`, …
    pub state: String,
    /// Replicas on their way.
    pub moves: usize,
    /// Bytes that are still to be copied, as far as is known now.
    pub bytes_left: u64,
    /// When that is done, seconds from now.
    pub eta_seconds: Option<u64>,
    /// What it cannot do, and why.
    pub stalled: Vec<String>,
    /// What copies of replicas may take, bytes per second and node.
    pub copy_rate_bytes: u64,
    /// How long a node may be silent before its replicas are made anew elsewhere.
    pub replace_after_ms: u64,
    /// Zones in which leaders are to be; none: anywhere.
    pub preferred_leader_zones: Vec<String>,
    /// Tablets with more bytes in files are split; 0: never.
    pub split_bytes: u64,
    /// Tablets with more reads and writes a second are split; 0: never.
    pub split_operations_per_second: u64,
    /// Neighbours with no more bytes in files together are merged; 0: never.
    pub merge_bytes: u64,
}

/// How a node is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its id.
    pub node: NodeId,
    /// Its host id.
    pub host_id: String,
    /// Where CQL clients reach it.
    pub cql_address: String,
    /// Where its HTTP port is.
    pub http_address: String,
    /// Data centre.
    pub data_center: String,
    /// Zone.
    pub zone: String,
    /// Whether its heartbeats arrive.
    pub is_up: bool,
    /// What it is there for: `active`, `draining` or `dead`.
    pub state: String,
    /// Whether it may lead tablets.
    pub may_lead: bool,
    /// Replicas that it holds, or is to.
    pub replicas: usize,
    /// Tablets that it leads.
    pub leaders: usize,
    /// Bytes of tablets.
    pub tablet_bytes: u64,
    /// SSTables.
    pub sst_files: u64,
    /// Their size.
    pub sst_bytes: u64,
    /// What they hold, before it was compressed, as far as is known; estimated from those tablets that were looked at since their files changed.
    pub content_bytes: Option<u64>,
    /// How long ago its last heartbeat has reached the node that answers, milliseconds.
    pub last_heartbeat_ms: Option<u64>,
    /// Since when its process runs, seconds.
    pub uptime_seconds: Option<u64>,
    /// The version of its program.
    pub program: Option<String>,
    /// Memory that the process uses.
    pub resident_bytes: Option<u64>,
    /// Memory that it was given.
    pub memory_limit_bytes: Option<u64>,
    /// Processor time that the process has used.
    pub cpu_seconds: Option<f64>,
    /// Processors that it may use.
    pub processors: Option<u64>,
    /// What it has done in the last seconds.
    pub activity: Activity,
    /// Its disks.
    pub disks: Vec<DiskStatus>,
}

/// What a node has done in the last seconds; nothing of what is not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Activity {
    /// Reads of clients.
    pub reads_per_second: Option<f64>,
    /// Writes of clients.
    pub writes_per_second: Option<f64>,
    /// The time that all but one read in a hundred stayed below.
    pub read_p99_seconds: Option<f64>,
    /// The same of writes.
    pub write_p99_seconds: Option<f64>,
    /// Processors in use.
    pub cpu_cores: Option<f64>,
    /// Reads of disks.
    pub disk_reads_per_second: Option<f64>,
    /// Writes to disks.
    pub disk_writes_per_second: Option<f64>,
    /// Bytes read from disks.
    pub disk_read_bytes_per_second: Option<f64>,
    /// Bytes written to disks.
    pub disk_written_bytes_per_second: Option<f64>,
    /// Compactions under way.
    pub compactions_running: Option<f64>,
}

/// How a disk is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStatus {
    /// The data directory.
    pub path: String,
    /// Size of the file system.
    pub total_bytes: u64,
    /// Free of it.
    pub free_bytes: u64,
    /// Bytes of tablets.
    pub tablet_bytes: u64,
    /// Bytes of the Raft log.
    pub log_bytes: u64,
    /// Replicas on it.
    pub replicas: usize,
    /// Whether writes are refused for want of space.
    pub is_full: bool,
    /// Whether it has failed.
    pub has_failed: bool,
}

/// How a table is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableStatus {
    /// Its keyspace.
    pub keyspace: String,
    /// Its name.
    pub name: String,
    /// Its id for drivers.
    pub id: String,
    /// Tablets.
    pub tablets: usize,
    /// Replicas wanted of each tablet.
    pub replication_factor: u32,
    /// Bytes of the leaders' replicas: the data once.
    pub bytes: u64,
    /// Bytes of all replicas.
    pub replica_bytes: u64,
    /// What the SSTables of the leaders' replicas hold, before it was compressed, as far as is known.
    pub content_bytes: Option<u64>,
    /// SSTables of all replicas.
    pub sst_files: u64,
    /// Tablets with fewer live replicas than wanted.
    pub under_replicated: usize,
    /// Tablets that nobody is known to lead.
    pub leaderless: usize,
}

/// Some tablets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TabletPage {
    /// The tablets.
    pub tablets: Vec<TabletStatus>,
    /// How many fit the filter, on all pages.
    pub total: usize,
    /// Where the next page begins, if there is one.
    pub next_after: Option<u64>,
}

/// How a tablet is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TabletStatus {
    /// Its id.
    pub tablet: TabletId,
    /// The keyspace of its table.
    pub keyspace: String,
    /// Its table.
    pub table: String,
    /// Its first token.
    pub first_token: i64,
    /// Its last token.
    pub last_token: i64,
    /// The node that leads it.
    pub leader: Option<NodeId>,
    /// How it stands.
    pub state: TabletState,
    /// Bytes of the largest replica.
    pub bytes: u64,
    /// SSTables of the replica that has most of them.
    pub sst_files: u64,
    /// Its replicas.
    pub replicas: Vec<ReplicaStatus>,
    /// How it is being split or merged, or how its last merge was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reshaping: Option<String>,
}

/// A replica of a tablet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaStatus {
    /// Where it is.
    pub node: NodeId,
    /// `voter`, `arriving` or `leaving`.
    pub role: String,
    /// Whether its node is up.
    pub is_up: bool,
    /// Its size.
    pub bytes: Option<u64>,
    /// Its SSTables.
    pub sst_files: Option<u64>,
    /// What they hold, before it was compressed.
    pub content_bytes: Option<u64>,
}

/// A replica on its way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoveStatus {
    /// Of which tablet.
    pub tablet: TabletId,
    /// The keyspace of its table.
    pub keyspace: String,
    /// Its table.
    pub table: String,
    /// Where it comes to; none if one only goes.
    pub to: Option<NodeId>,
    /// Who sends the data, if it is being copied.
    pub source: Option<NodeId>,
    /// The nodes whose replicas go when it has come.
    pub leaving: Vec<NodeId>,
    /// Copied so far.
    pub bytes_done: u64,
    /// Bytes in all.
    pub bytes_total: u64,
    /// Bytes per second at the moment.
    pub rate_bytes: u64,
    /// When it is done, seconds from now.
    pub eta_seconds: Option<u64>,
}

/// Something was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// What, in words.
    pub message: String,
}
