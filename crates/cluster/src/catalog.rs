//! The catalog: keyspaces, tables, user types, roles, groups of networks, nodes, join tokens, tablets and where their
//! replicas are.
//!
//! It is the state machine of the Raft group `GroupId::CATALOG`. A [`Catalog`] is an immutable snapshot that clones
//! cheaply. A [`Command`] makes the next snapshot from it ([`Catalog::apply`]), with an [`Outcome`] for the node that
//! proposed the command. [`Change`]s ([`Catalog::changes_since`]) say what a node has to do to get from one snapshot to
//! a later one: open and drop tablets, notify drivers. [`CatalogEvaluator`] connects the catalog with its log.
//!
//! Always true:
//! - `apply` is a function of the snapshot, the command and its stamp in the log. Ids come from counters in the state and are never
//!   reused; uuids come in the command.
//! - `version` grows by one with every command that changes anything, and with no other.
//! - The tablets of a table cover the token ring without gap or overlap; every tablet of a table has a placement. A
//!   tablet that was split keeps its own placement, beside those of its children, until no replica needs it any more.
//! - The stored form (one key per object, see `docs/formats/catalog.md`) and the snapshot contain the same.
//!
//! Left out: moving replicas to better nodes (the balancer's), and CQL's validation rules, which the `query` crate
//! applies before it proposes a command. The rules here are those that another command, committed in between, could
//! break.

mod apply;
mod bounds;
mod changes;
mod cidr_group;
mod cidr_groups;
mod command;
mod covering;
mod deep;
mod evaluator;
mod identity;
mod join_token;
mod joining;
mod level;
mod live;
mod loadable;
mod login;
mod merge;
mod node;
mod operations;
mod outcome;
mod persist;
mod placement;
mod reach;
mod replication;
mod role;
mod roles;
mod schema;
mod snapshot;
mod split;
mod step;
mod tables;
mod tablet;
#[cfg(test)]
mod tests;
mod views;

pub use bounds::Rules;
pub use changes::{Change, NewTablet, SchemaChangeKind, SchemaEvent, SchemaTarget};
pub use cidr_group::{CidrGroup, is_group_name};
pub use command::{Command, CoveringOutcome, EncodedCommandError, FinishedTablet, Setting, UnreadableCommand};
pub use deep::is_too_deep;
pub use evaluator::{CatalogEvaluator, CatalogListener};
pub use identity::{FIRST_TABLET_ID, Identity, Settings};
pub use join_token::{InvalidToken, JoinToken, JoinTokenDigest, JoinTokenId, ShownToken};
pub use level::LevelledCommand;
pub use node::{Node, NodeDescription, NodeState};
pub use outcome::{Outcome, Rejection};
pub use persist::{LoadError, Put};
pub use placement::part_of_ring;
pub use reach::{Network, NoNetwork, Permitted};
pub use replication::Replication;
pub use role::{FIRST_SUPERUSER, Role, RoleCommand};
pub use snapshot::{CATALOG_INITIAL_VOTERS, Catalog, CatalogMembers, resource_and_above};
pub use tablet::{CancelledMerge, Merge, Origin, Placement, Split};
