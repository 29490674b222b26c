//! What can be asked of the catalog.
//!
//! Commands and outcomes travel as JSON in an envelope with a format number: `{"v":1,"command":{…}}`. A replica that meets a newer number
//! stops instead of guessing, as its state would part from its peers'. A command is written in the oldest format that has it.

use super::bounds::{self, Rules};
use super::node::{NodeDescription, NodeState};
use super::role::RoleCommand;
use super::tablet::CancelledMerge;
use diorite_base::limits::{self, Exceeded};
use diorite_base::program::{LoggedProgram, Target};
use diorite_base::{NodeId, TabletId};
use diorite_model::schema::{Keyspace, Table};
use diorite_model::types::UserType;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;
use uuid::Uuid;

/// The envelope's newest format.
const COMMAND_FORMAT: u32 = 2;
/// The format of commands that every version knows.
const FIRST_FORMAT: u32 = 1;

/// A tablet whose group has committed the voters that are wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedTablet {
    /// Which.
    pub tablet: TabletId,
    /// The voters of its group, the only members.
    pub voters: Vec<NodeId>,
}

/// What can be set for the whole cluster; see [`super::Settings`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum Setting {
    /// What copies may take.
    CopyRate {
        /// Bytes per second and node.
        bytes_per_second: u64,
    },
    /// Whether the balancer works.
    Balancing {
        /// Whether it leaves everything where it is.
        is_paused: bool,
    },
    /// How long a node may be silent before it is replaced.
    ReplaceAfter {
        /// How long.
        milliseconds: u64,
    },
    /// Where leaders are to be.
    PreferredLeaderZones {
        /// In which zones; empty: anywhere.
        zones: Vec<String>,
    },
    /// From which size on tablets are split.
    SplitSize {
        /// Bytes in files; 0: never.
        bytes: u64,
    },
    /// From which load on tablets are split.
    SplitLoad {
        /// Reads and writes of one tablet; 0: never.
        operations_per_second: u64,
    },
    /// Up to which size neighbours are merged.
    MergeSize {
        /// Bytes in files of both together; 0: never.
        bytes: u64,
    },
}

impl Setting {
    /// Whether the cluster goes on working with it.
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

/// A change that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Command {
    /// Gives the cluster its identity. Once only; a repetition with the same id changes nothing.
    Bootstrap {
        /// Tells clusters apart.
        cluster_id: Uuid,
        /// `cluster_name`.
        name: String,
        /// Replicas per tablet that every keyspace has at least, and that one has which does not say.
        replication_factor: u32,
        /// Whether clients have to log in; not given by earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        requires_login: Option<bool>,
    },
    /// Decides whether clients have to log in.
    RequireLogin {
        /// Whether they have to.
        required: bool,
        /// A decision that was made before stays.
        if_undecided: bool,
    },
    /// Makes a node a member, unless a member is where it says it is, or updates what is known of a member with the same host id.
    RegisterNode {
        /// What the node says about itself.
        node: NodeDescription,
    },
    /// Says that a member runs, and where. Rejected if it is not a member any more: a node that was removed does not become another one by coming back.
    UpdateNode {
        /// The member.
        node: NodeId,
        /// What it says about itself.
        description: NodeDescription,
    },
    /// A node has removed its replicas of dropped tablets.
    ForgetDropped {
        /// Which node.
        node: NodeId,
        /// Which tablets.
        tablets: Vec<TabletId>,
    },
    /// Wants a tablet's replicas elsewhere, or another of them to lead.
    Place {
        /// Which tablet.
        tablet: TabletId,
        /// Where they are wanted so far; otherwise nothing happens.
        expected: Vec<NodeId>,
        /// Where they are wanted from now on, the preferred leader first.
        replicas: Vec<NodeId>,
    },
    /// The groups of these tablets consist of what their placements want, and each has committed something since it began: members that were
    /// to leave are gone.
    #[serde(rename = "settle")]
    FinishMoves {
        /// Which, and what they consist of.
        tablets: Vec<FinishedTablet>,
    },
    /// Splits a tablet in two: gives its children their ids. Its leader then does it.
    BeginSplit {
        /// Which.
        tablet: TabletId,
        /// The first token of the second child.
        at: i64,
        /// Whether the children are not to be merged as soon as they are small.
        #[serde(default)]
        stays: bool,
    },
    /// A split can be cancelled no more: the tablet's leader is about to stop it.
    CommitSplit {
        /// Which.
        tablet: TabletId,
        /// The children that it was given: they tell this split from others.
        children: [TabletId; 2],
    },
    /// A tablet that is to be split stays whole.
    CancelSplit {
        /// Which.
        tablet: TabletId,
    },
    /// A tablet that is being split takes no writes any more: its children take its place.
    ServeSplit {
        /// Which.
        tablet: TabletId,
        /// The entry of its log that split it: its index.
        index: u64,
        /// And its term.
        term: u64,
    },
    /// Merges a tablet into a neighbour. The leader of the one that goes then does it.
    BeginMerge {
        /// The one that goes.
        tablet: TabletId,
        /// The one that stays.
        into: TabletId,
    },
    /// A tablet that is being merged takes no writes any more, and the other one has all that it held.
    ServeMerge {
        /// The one that goes.
        tablet: TabletId,
        /// The one that stays.
        into: TabletId,
        /// Which of the tablet's merges; not given by earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        number: Option<u64>,
    },
    /// A merge that is not served yet never will be.
    CancelMerge {
        /// One of the two.
        tablet: TabletId,
        /// Which of its merges; whichever is under way if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        number: Option<u64>,
        /// Why, and when.
        cancelled: CancelledMerge,
    },
    /// Nothing is left of a merge that was cancelled.
    EndCancelledMerge {
        /// The one that was to go.
        tablet: TabletId,
        /// Which of its merges.
        number: u64,
    },
    /// Says what a node is there for.
    SetNodeState {
        /// Which node.
        node: NodeId,
        /// Its new state.
        state: NodeState,
    },
    /// Puts a node into a zone, whatever it says itself.
    AssignZone {
        /// Which node.
        node: NodeId,
        /// The zone; `None`: what the node says.
        zone: Option<String>,
    },
    /// Says whether a node may lead tablets.
    SetLeading {
        /// Which node.
        node: NodeId,
        /// Whether others are to lead what it holds.
        leads_nothing: bool,
    },
    /// Ends a node's membership, for ever. It must not hold any replicas.
    RemoveNode {
        /// Which node.
        node: NodeId,
    },
    /// Sets something for the whole cluster.
    Set {
        /// What, and to what.
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
        /// Which one.
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
        /// Which one.
        name: String,
        /// Its absence is no error.
        if_exists: bool,
    },
    /// `CREATE TABLE`
    CreateTable {
        /// The definition; `id` and `version` are assigned here.
        table: Table,
        /// Into how many tablets.
        tablets: u32,
        /// A table of that name is no error.
        if_not_exists: bool,
    },
    /// `ALTER TABLE`: replaces the definition if it is still the one that the change was made from.
    AlterTable {
        /// The new definition; its `id` says which table, its `version` is the one it was made from.
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
    /// `CREATE TYPE`
    CreateType {
        /// The definition.
        user_type: UserType,
        /// A type of that name is no error.
        if_not_exists: bool,
    },
    /// `ALTER TYPE`: replaces the definition if it is still `expected`; tables and types that use it follow.
    AlterType {
        /// The definition that the change was made from.
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
        /// What is to change.
        change: RoleCommand,
    },
}

#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    v: u32,
    /// Whether it is judged by the limits when it is applied: absent from what was logged before there were any.
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

    /// Reads a command back.
    pub fn decode(bytes: &[u8]) -> Result<Self, EncodedCommandError> {
        Self::decode_logged(bytes).map(|(command, _)| command)
    }

    /// Reads a command of the log, with the rules that it is judged by.
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
            Command::RequireLogin { .. } | Command::Bootstrap { requires_login: Some(_), .. } => COMMAND_FORMAT,
            Command::Roles { change } if change.is_about_reach() => COMMAND_FORMAT,
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
                | Command::CreateType { .. }
                | Command::AlterType { .. }
                | Command::Roles { .. }
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

impl LoggedProgram for Command {
    const TARGET: Target = Target::Catalog;
    type Error = UnreadableCommand;

    fn check(&self) -> Result<(), Exceeded> {
        match self {
            Command::CreateTable { table, .. } | Command::AlterTable { table } => bounds::check_table(table),
            Command::CreateType { user_type, .. } => bounds::check_type(user_type),
            Command::AlterType { changed, .. } => bounds::check_type(changed),
            Command::AssignZone { zone: Some(zone), .. } => bounds::check_zone(zone),
            Command::Set { setting } => setting.check(),
            _ => Ok(()),
        }
    }

    fn encode(&self) -> Vec<u8> {
        Command::encode(self)
    }

    fn decode(bytes: &[u8]) -> Result<Self, Self::Error> {
        limits::check(&limits::CATALOG_COMMAND_BYTES, bytes.len(), || "a change of the catalog".to_owned())?;
        Ok(Command::decode(bytes)?)
    }
}
