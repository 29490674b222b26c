//! The catalog: keyspaces, tables, user types, roles, nodes, tablets and where their replicas are.
//!
//! It is the state machine of the Raft group `GroupId::CATALOG`. A [`Catalog`] is an immutable snapshot that clones cheaply; a
//! [`Command`] makes the next one out of it ([`Catalog::apply`]), together with an [`Outcome`] for whoever asked. What has to be done to get from
//! one snapshot to a later one (open and drop tablets, tell drivers) are [`Change`]s ([`Catalog::changes_since`]). [`CatalogEvaluator`]
//! ties it to the log.
//!
//! Always true:
//! - `apply` is a function of the snapshot and the command. Ids come from counters in the state and are never reused; uuids come in the
//!   command.
//! - `version` grows by one with every command that changes anything, and with no other.
//! - The tablets of a table cover the token ring without gap or overlap; every tablet of a table has a placement. A tablet that was split keeps its own,
//!   beside those of its children, until it is not needed any more.
//! - What is stored (one key per object, see `docs/formats/catalog.md`) and the snapshot say the same.
//!
//! Left out: which replicas had better be elsewhere (the balancer's), and CQL's validation rules, which the `query` crate
//! applies before it proposes a command. The rules here are those that another command, committed in between, could break.

mod apply;
mod bounds;
mod changes;
mod command;
mod deep;
mod evaluator;
mod identity;
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
mod tablet;
#[cfg(test)]
mod tests;

pub use bounds::Rules;
pub use changes::{Change, NewTablet, SchemaChangeKind, SchemaEvent, SchemaTarget};
pub use command::{Command, EncodedCommandError, FinishedTablet, Setting, UnreadableCommand};
pub use deep::is_too_deep;
pub use evaluator::{CatalogEvaluator, CatalogListener};
pub use identity::{FIRST_TABLET_ID, Identity, Settings};
pub use node::{Node, NodeDescription, NodeState};
pub use outcome::{Outcome, Rejection};
pub use persist::{LoadError, Put};
pub use placement::part_of_ring;
pub use reach::{Network, NoNetwork, Permitted};
pub use replication::Replication;
pub use role::{FIRST_SUPERUSER, Role, RoleCommand};
pub use snapshot::{CATALOG_INITIAL_VOTERS, Catalog, CatalogMembers, resource_and_above};
pub use tablet::{CancelledMerge, Merge, Origin, Placement, Split};
