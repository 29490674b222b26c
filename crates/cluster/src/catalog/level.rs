//! The level of the cluster ([`diorite_base::level`]): what may be proposed at it, and how it is raised.
//!
//! Always true: a command becomes part of the log only as a [`LevelledCommand`], which the level that the proposing
//! node knows has; levels only grow, by one at a time, so the command is known at every later level. The level is
//! raised only with the members for which the proposing node has found out that they know the next one: a node that
//! joins meanwhile, of which nothing is known, makes the command fail.
//!
//! Programs of the first level do not know the command that raises it: they reject it, as text that is no command. So
//! does every replica if it is rejected, which is the only case in which one of them meets it: it is applied only when
//! all members have agreed to the level, and none of them starts with such a program any more. All other commands of
//! a later level have a format at which earlier programs stop.
//!
//! Left out: finding that out (`diorite_control::upgrade`). A catalog of [`Level::FIRST`] has no record of the members'
//! levels, as members of that level would not keep it; from [`Level::RECORDED`] on it has one, and it is checked too.

use super::command::{Command, UnreadableCommand};
use super::node::{Node, NodeDescription};
use super::outcome::Rejection;
use super::snapshot::Catalog;
use super::step::{Done, Rejected, Step};
use diorite_base::limits::{self, Exceeded};
use diorite_base::program::{LoggedProgram, ProvenProgram, Target, Unprovable};
use diorite_base::{Level, NodeId};

/// A command that may be proposed, as the cluster's level has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelledCommand(Command);

impl Command {
    /// The lowest level of a cluster at which it may be proposed.
    pub fn least_level(&self) -> Level {
        match self {
            // The door itself: the last command of a level.
            Command::RaiseLevel { level, .. } => level.previous(),
            Command::RegisterNode { node }
            | Command::Join { node, .. }
            | Command::UpdateNode { description: node, .. }
                if node.levels.is_some() =>
            {
                Level::RECORDED
            }
            Command::SetCidrGroup { .. } | Command::DropCidrGroup { .. } => Level::RECORDED,
            Command::Roles { change } if change.names_groups() => Level::RECORDED,
            Command::CreateTable { table, .. } | Command::AlterTable { table }
                if table.is_maintaining() || !table.deferred_indexes.is_empty() || table.view.is_some() =>
            {
                Level::RECORDED
            }
            Command::CreateView { .. } | Command::DropView { .. } | Command::FinishCovering { .. } => Level::RECORDED,
            _ => Level::FIRST,
        }
    }

    /// The command as it may be proposed to a cluster of this level.
    ///
    /// # Errors
    /// If the level does not have it.
    pub fn at(&self, level: Level) -> Result<LevelledCommand, Unprovable> {
        let needed = self.least_level();
        if needed > level {
            return Err(Unprovable::Early { needed, level });
        }
        Ok(LevelledCommand(self.clone()))
    }

    /// The program to propose to a cluster of this level.
    ///
    /// # Errors
    /// If the level does not have it, or if it is over a limit or could not be decoded.
    pub fn proven_at(&self, level: Level) -> Result<ProvenProgram, Unprovable> {
        ProvenProgram::new(&self.at(level)?)
    }
}

impl LoggedProgram for LevelledCommand {
    const TARGET: Target = Target::Catalog;
    type Error = UnreadableCommand;

    fn check(&self) -> Result<(), Exceeded> {
        self.0.check()
    }

    fn encode(&self) -> Vec<u8> {
        self.0.encode()
    }

    fn decode(bytes: &[u8]) -> Result<Self, Self::Error> {
        limits::check(&limits::CATALOG_COMMAND_BYTES, bytes.len(), || "a change of the catalog".to_owned())?;
        Ok(Self(Command::decode(bytes)?))
    }
}

impl NodeDescription {
    /// The description as a cluster of this level keeps it.
    pub fn at(&self, level: Level) -> Self {
        Self { levels: self.levels.filter(|_| level >= Level::RECORDED), ..self.clone() }
    }
}

/// Raises the level.
pub(super) fn raise(catalog: &mut Catalog, level: Level, members: &[NodeId]) -> Step {
    let current = catalog.level();
    if level <= current {
        return Ok(Done::Nothing);
    }
    if level != current.next() {
        let message = format!("the cluster is at level {current}: levels are raised one at a time, not to {level}");
        return Err(Rejected(Rejection::Invalid, message));
    }
    if !catalog.nodes.keys().eq(members) {
        let message = "the members have changed since their levels were looked at: try again".to_owned();
        return Err(Rejected(Rejection::Conflict, message));
    }
    let is_below = |node: &&std::sync::Arc<Node>| !node.description.levels.is_some_and(|known| known.contains(level));
    if current >= Level::RECORDED
        && let Some(node) = catalog.nodes.values().find(is_below)
    {
        let message = format!("node {} has not registered with a program that knows level {level}", node.id);
        return Err(Rejected(Rejection::InUse, message));
    }
    catalog.identity.level = level;
    Ok(Done::Changed)
}

/// Checks a node's description against the level of the cluster; returns it as it is kept. A member that does not say
/// which levels it knows has not learned of the level yet: what it has said before stays.
pub(super) fn admitted(
    catalog: &Catalog,
    known: Option<&Node>,
    description: &NodeDescription,
) -> Result<NodeDescription, Rejected> {
    let level = catalog.level();
    if level < Level::RECORDED {
        return Ok(description.clone());
    }
    let levels = description.levels.or(known.and_then(|node| node.description.levels));
    match levels {
        Some(levels) if !levels.contains(level) => {
            let message = format!("the cluster is at level {level}, and the node's program knows {levels}");
            Err(Rejected(Rejection::Invalid, message))
        }
        None if known.is_none() => {
            // The level was raised while the node was asking.
            let message = format!("the cluster is at level {level}, and the node has not said which levels it knows");
            Err(Rejected(Rejection::Conflict, message))
        }
        _ => Ok(NodeDescription { levels, ..description.clone() }),
    }
}
