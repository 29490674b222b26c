//! The commands of the catalog.
//!
//! Commands and outcomes travel as JSON in an envelope with a format number: `{"v":1,"command":{…}}`. A replica that meets a newer number
//! stops instead of guessing, as its state would part from its peers'. A command is written in the oldest format that has it.

use super::bounds::{self, Rules};
use super::join_token::{JoinToken, JoinTokenId, ShownToken};
use super::node::{NodeDescription, NodeState};
use super::reach::Network;
use super::role::RoleCommand;
use super::tablet::CancelledMerge;
use diorite_base::limits::{self, Exceeded};
use diorite_base::{Level, NodeId, TableId, TabletId};
use diorite_model::schema::{ColumnId, Keyspace, Table};
use diorite_model::types::UserType;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;
use uuid::Uuid;

/// The envelope's newest format.
const COMMAND_FORMAT: u32 = 5;
/// The oldest format of moves with numbers, and of removals that depend on votes.
const MOVES_FORMAT: u32 = 4;
/// The oldest format of commands about join tokens.
const TOKENS_FORMAT: u32 = 3;
/// The oldest format of commands that decide who has to log in.
const LOGINS_FORMAT: u32 = 2;
/// The format of commands that every version knows.
const FIRST_FORMAT: u32 = 1;

/// What becomes of the hidden view of a covering index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CoveringOutcome {
    /// It has what follows from all rows: it may be read.
    Ready,
    /// It cannot be made: why. The index stays without it.
    Failed(String),
    /// Its index was dropped, and no node knows the index any more.
    Removed,
}

/// A tablet whose group has committed the wanted voters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedTablet {
    /// The tablet.
    pub tablet: TabletId,
    /// The voters of its group, which has no other members.
    pub voters: Vec<NodeId>,
    /// The number of the move that is complete ([`super::Placement::move_number`]): a report that was delayed says
    /// nothing about a later move to the same nodes. Reports of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub move_number: Option<u64>,
}

/// A setting of the whole cluster; see [`super::Settings`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum Setting {
    /// The rate limit of copies.
    CopyRate {
        /// Bytes per second and node.
        bytes_per_second: u64,
    },
    /// Whether the balancer moves replicas and leaders.
    Balancing {
        /// Whether it moves nothing.
        is_paused: bool,
    },
    /// How long a node may be silent before its replicas are rebuilt on others.
    ReplaceAfter {
        /// The time, milliseconds.
        milliseconds: u64,
    },
    /// The zones of leaders.
    PreferredLeaderZones {
        /// The zones; empty: all.
        zones: Vec<String>,
    },
    /// The size from which on tablets are split.
    SplitSize {
        /// Bytes in files; 0: never.
        bytes: u64,
    },
    /// The load from which on tablets are split.
    SplitLoad {
        /// Reads and writes of one tablet per second; 0: never.
        operations_per_second: u64,
    },
    /// The size up to which neighbours are merged.
    MergeSize {
        /// Bytes in files of both together; 0: never.
        bytes: u64,
    },
}

impl Setting {
    /// Checks the setting against the limits with which the cluster still works.
    fn check(&self) -> Result<(), Exceeded> {
        match self {
            Self::CopyRate { bytes_per_second } => limits::check_setting(&limits::COPY_RATE, *bytes_per_second),
            Self::Balancing { is_paused: _ } => Ok(()),
            Self::ReplaceAfter { milliseconds } => limits::check_setting(&limits::REPLACE_AFTER, *milliseconds),
            Self::PreferredLeaderZones { zones } => {
                limits::check(&limits::LEADER_ZONES, zones.len(), || "a list of zones".to_owned())?;
                zones.iter().try_for_each(|zone| bounds::check_zone(zone))
            }
            Self::SplitSize { bytes } => limits::check_setting(&limits::SPLIT_SIZE, *bytes),
            Self::SplitLoad { operations_per_second } => {
                limits::check_setting(&limits::SPLIT_LOAD, *operations_per_second)
            }
            Self::MergeSize { bytes } => limits::check_setting(&limits::MERGE_SIZE, *bytes),
        }
    }
}

/// A change that is proposed to the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Command {
    /// Gives the cluster its identity. Once only; a repetition with the same id changes nothing.
    Bootstrap {
        /// Distinguishes clusters.
        cluster_id: Uuid,
        /// `cluster_name`.
        name: String,
        /// The smallest replication factor of a keyspace, and that of a keyspace that names none.
        replication_factor: u32,
        /// Whether clients have to log in; not given by earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        requires_login: Option<bool>,
        /// The level at which the cluster begins; not given by earlier versions.
        #[serde(default, skip_serializing_if = "Level::is_first")]
        level: Level,
    },
    /// Decides whether clients have to log in.
    RequireLogin {
        /// Whether they have to.
        required: bool,
        /// A decision that was made before stays.
        if_undecided: bool,
    },
    /// Makes a node a member, unless another member has its address; or updates the record of a member with the same
    /// host id.
    RegisterNode {
        /// The node's description of itself.
        node: NodeDescription,
    },
    /// Makes a join token.
    CreateJoinToken {
        /// Its id, made at random.
        id: JoinTokenId,
        /// The token.
        token: JoinToken,
    },
    /// Ends a join token before its time.
    RevokeJoinToken {
        /// Its id.
        id: JoinTokenId,
    },
    /// As `RegisterNode`, of a node that has shown a join token: rejected if the token is not valid at the command's stamp. A member
    /// with the same host id uses no token, and its address stays.
    Join {
        /// The node's description of itself.
        node: NodeDescription,
        /// What it has shown.
        token: ShownToken,
    },
    /// Updates the record of a member. Rejected if it is not a member any more: a node that was removed does not become
    /// a new member when it starts again.
    UpdateNode {
        /// The member.
        node: NodeId,
        /// The node's description of itself.
        description: NodeDescription,
    },
    /// A node has removed its replicas of dropped tablets.
    ForgetDropped {
        /// The node.
        node: NodeId,
        /// The tablets.
        tablets: Vec<TabletId>,
    },
    /// Changes the wanted replicas of a tablet, or its preferred leader.
    Place {
        /// The tablet.
        tablet: TabletId,
        /// The wanted replicas so far; if they differ, the command is rejected.
        expected: Vec<NodeId>,
        /// The wanted replicas from now on, the preferred leader first.
        replicas: Vec<NodeId>,
        /// Whether the move gets a number. Those of earlier versions have none.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_numbered: bool,
    },
    /// The groups of these tablets consist of the wanted members, and each group has committed an entry since: leaving
    /// members are not members any more.
    #[serde(rename = "settle")]
    FinishMoves {
        /// The tablets, and the members of their groups.
        tablets: Vec<FinishedTablet>,
    },
    /// Splits a tablet in two: its children get their ids. The tablet's leader then carries out the split.
    BeginSplit {
        /// The tablet.
        tablet: TabletId,
        /// The first token of the second child.
        at: i64,
        /// Whether the children are not to be merged as soon as they are small.
        #[serde(default)]
        stays: bool,
    },
    /// A split can no longer be cancelled: the tablet's leader is about to seal it.
    CommitSplit {
        /// The tablet.
        tablet: TabletId,
        /// The children of the split, which distinguish it from other splits of the tablet.
        children: [TabletId; 2],
    },
    /// A tablet that is to be split stays whole.
    CancelSplit {
        /// The tablet.
        tablet: TabletId,
    },
    /// A tablet that is being split is sealed: its children take its place.
    ServeSplit {
        /// The tablet.
        tablet: TabletId,
        /// The index of the entry of its log that split it.
        index: u64,
        /// The term of that entry.
        term: u64,
    },
    /// Merges a tablet into a neighbour. The leader of the tablet that is dropped carries out the merge.
    BeginMerge {
        /// The tablet that is dropped.
        tablet: TabletId,
        /// The tablet that stays.
        into: TabletId,
    },
    /// A tablet that is being merged is sealed, and the other one has all its rows.
    ServeMerge {
        /// The tablet that is dropped.
        tablet: TabletId,
        /// The tablet that stays.
        into: TabletId,
        /// The number of the tablet's merge; not given by earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        number: Option<u64>,
    },
    /// Cancels a merge that is not served yet.
    CancelMerge {
        /// One of the two tablets.
        tablet: TabletId,
        /// The number of the merge; without it, the one under way.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        number: Option<u64>,
        /// The reason and the time.
        cancelled: CancelledMerge,
    },
    /// A cancelled merge has been undone completely.
    EndCancelledMerge {
        /// The tablet that was to be dropped.
        tablet: TabletId,
        /// The number of the merge.
        number: u64,
    },
    /// Sets the state of a node.
    SetNodeState {
        /// The node.
        node: NodeId,
        /// Its new state.
        state: NodeState,
    },
    /// Puts a node into a zone, whatever its own description says.
    AssignZone {
        /// The node.
        node: NodeId,
        /// The zone; `None`: that of the node's description.
        zone: Option<String>,
    },
    /// Sets whether a node may lead tablets.
    SetLeading {
        /// The node.
        node: NodeId,
        /// Whether other nodes are to lead the tablets of which it holds replicas.
        leads_nothing: bool,
    },
    /// Ends a node's membership, for ever. It must not hold any replicas.
    RemoveNode {
        /// The node.
        node: NodeId,
        /// It is rejected if the node is to vote in the catalog's group. Entries of earlier versions do not say so.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        only_without_vote: bool,
    },
    /// Raises the level of the cluster by one. Rejected if these are not the members any more.
    RaiseLevel {
        /// The new level.
        level: Level,
        /// All members, whose programs know it; ascending.
        members: Vec<NodeId>,
    },
    /// Changes a setting of the whole cluster.
    Set {
        /// The setting and its value.
        setting: Setting,
    },
    /// `CREATE KEYSPACE`
    CreateKeyspace {
        /// The definition.
        keyspace: Keyspace,
        /// A keyspace of that name is no error.
        if_not_exists: bool,
    },
    /// `ALTER KEYSPACE`
    AlterKeyspace {
        /// The keyspace.
        name: String,
        /// The new replication options.
        replication: Option<BTreeMap<String, String>>,
        /// The new value of `durable_writes`.
        durable_writes: Option<bool>,
        /// Its absence is no error.
        if_exists: bool,
    },
    /// `DROP KEYSPACE`, with everything in it.
    DropKeyspace {
        /// The keyspace.
        name: String,
        /// Its absence is no error.
        if_exists: bool,
    },
    /// `CREATE TABLE`
    CreateTable {
        /// The definition; `id` and `version` are assigned when the command is applied.
        table: Table,
        /// The number of tablets.
        tablets: u32,
        /// A table of that name is no error.
        if_not_exists: bool,
    },
    /// `ALTER TABLE`: replaces the definition, if it is still the one from which the change was derived.
    AlterTable {
        /// The new definition; its `id` names the table, its `version` is that of the definition from which it was
        /// derived.
        table: Table,
    },
    /// `DROP TABLE`
    DropTable {
        /// The keyspace.
        keyspace: String,
        /// The table.
        name: String,
        /// Its absence is no error.
        if_exists: bool,
    },
    /// `TRUNCATE`: every tablet is replaced by an empty one.
    TruncateTable {
        /// The keyspace.
        keyspace: String,
        /// The table.
        name: String,
    },
    /// `CREATE MATERIALIZED VIEW`, if its table is still the one from which the view was derived.
    CreateView {
        /// The definition, which names the table; `id` and `version` are assigned when the command is applied.
        view: Box<Table>,
        /// The version of the table.
        base_version: u64,
        /// The regular columns of the table that decide what the view has for a row; ascending.
        columns: Vec<ColumnId>,
        /// The view has a row for each row that exists.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        follows_rows: bool,
        /// The number of tablets.
        tablets: u32,
        /// A table of that name is no error.
        if_not_exists: bool,
    },
    /// `DROP MATERIALIZED VIEW`
    DropView {
        /// The keyspace.
        keyspace: String,
        /// The view.
        name: String,
        /// Its absence is no error.
        if_exists: bool,
    },
    /// What becomes of the hidden view of a covering index.
    FinishCovering {
        /// The table of the index.
        table: TableId,
        /// The number of the view within the table.
        view: u64,
        /// What becomes of it.
        outcome: CoveringOutcome,
    },
    /// `CREATE TYPE`
    CreateType {
        /// The definition.
        user_type: UserType,
        /// A type of that name is no error.
        if_not_exists: bool,
    },
    /// `ALTER TYPE`: replaces the definition, if it is still `expected`; tables and types that use it are changed as
    /// well.
    AlterType {
        /// The definition from which the change was derived.
        expected: UserType,
        /// The new definition, of the same name.
        changed: UserType,
    },
    /// `DROP TYPE`
    DropType {
        /// The keyspace.
        keyspace: String,
        /// The type.
        name: String,
        /// Its absence is no error.
        if_exists: bool,
    },
    /// Roles, their memberships and permissions.
    Roles {
        /// The change.
        change: RoleCommand,
    },
    /// Makes a group of networks, or replaces the networks of one.
    SetCidrGroup {
        /// Its name.
        name: String,
        /// Its networks.
        cidrs: BTreeSet<Network>,
    },
    /// Removes a group of networks that no role names.
    DropCidrGroup {
        /// Its name.
        name: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    v: u32,
    /// Whether the limits apply to the command; absent in commands that were logged before there were limits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    limited: bool,
    command: T,
}

/// Why an encoded command cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum EncodedCommandError {
    /// Written by a newer version of the program.
    #[error("catalog command has format {found}, this program knows up to {COMMAND_FORMAT}: upgrade it")]
    Newer {
        /// Its format.
        found: u32,
    },
    /// Not a command.
    #[error("malformed catalog command: {0}")]
    Malformed(String),
}

impl Command {
    /// The command as bytes for the log.
    pub fn encode(&self) -> Vec<u8> {
        let envelope = Envelope { v: self.format(), limited: true, command: self };
        serde_json::to_vec(&envelope).expect("commands have string keys")
    }

    /// Decodes a command.
    pub fn decode(bytes: &[u8]) -> Result<Self, EncodedCommandError> {
        Self::decode_logged(bytes).map(|(command, _)| command)
    }

    /// Decodes a command of the log, and the rules by which it is checked.
    pub fn decode_logged(bytes: &[u8]) -> Result<(Self, Rules), EncodedCommandError> {
        let malformed = |error: serde_json::Error| EncodedCommandError::Malformed(error.to_string());
        // The format is read before the command, whose shape a newer format may have changed.
        let envelope: Envelope<serde_json::Value> = serde_json::from_slice(bytes).map_err(malformed)?;
        if envelope.v > COMMAND_FORMAT {
            return Err(EncodedCommandError::Newer { found: envelope.v });
        }
        let rules = if envelope.limited { Rules::Limited } else { Rules::Loadable };
        Ok((serde_json::from_value(envelope.command).map_err(malformed)?, rules))
    }
}

impl Command {
    /// The oldest format that has the command: a program that does not know the format stops, as it would lose what it does not know.
    fn format(&self) -> u32 {
        match self {
            // Programs that do not know it reject it, as all others do when they meet it: see `super::level`.
            Command::RaiseLevel { .. } => FIRST_FORMAT,
            _ if self.least_level() >= Level::RECORDED => COMMAND_FORMAT,
            Command::Bootstrap { level, .. } if !level.is_first() => COMMAND_FORMAT,
            Command::RemoveNode { only_without_vote: true, .. } | Command::Place { is_numbered: true, .. } => {
                MOVES_FORMAT
            }
            Command::FinishMoves { tablets } if tablets.iter().any(|finished| finished.move_number.is_some()) => {
                MOVES_FORMAT
            }
            Command::CreateJoinToken { .. } | Command::RevokeJoinToken { .. } | Command::Join { .. } => TOKENS_FORMAT,
            Command::RequireLogin { .. } | Command::Bootstrap { requires_login: Some(_), .. } => LOGINS_FORMAT,
            Command::Roles { change } if change.is_about_reach() => LOGINS_FORMAT,
            _ => FIRST_FORMAT,
        }
    }

    /// Whether it stores what a client wrote.
    pub(super) fn is_definition(&self) -> bool {
        matches!(
            self,
            Command::CreateKeyspace { .. }
                | Command::AlterKeyspace { .. }
                | Command::CreateTable { .. }
                | Command::AlterTable { .. }
                | Command::CreateView { .. }
                | Command::CreateType { .. }
                | Command::AlterType { .. }
                | Command::Roles { .. }
                | Command::SetCidrGroup { .. }
        )
    }
}

/// Why bytes may not be proposed as a command.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum UnreadableCommand {
    /// They are longer than a command may be.
    #[error(transparent)]
    TooLong(#[from] Exceeded),
    /// They are no command that this version knows.
    #[error(transparent)]
    Unknown(#[from] EncodedCommandError),
}

impl Command {
    /// Checks that it is within the limits; the error names the limit that it exceeds.
    pub fn check(&self) -> Result<(), Exceeded> {
        match self {
            Command::CreateTable { table, .. } | Command::AlterTable { table } => bounds::check_table(table),
            Command::CreateView { view, .. } => bounds::check_table(view),
            Command::CreateType { user_type, .. } => bounds::check_type(user_type),
            Command::AlterType { changed, .. } => bounds::check_type(changed),
            Command::AssignZone { zone: Some(zone), .. } => bounds::check_zone(zone),
            Command::Set { setting } => setting.check(),
            Command::CreateJoinToken { token, .. } => {
                limits::check(&limits::JOIN_TOKEN_NODES, token.nodes as usize, || "a join token".to_owned())
            }
            Command::SetCidrGroup { cidrs, .. } => {
                limits::check(&limits::CIDRS_OF_GROUP, cidrs.len(), || "a CIDR group".to_owned())
            }
            _ => Ok(()),
        }
    }
}
