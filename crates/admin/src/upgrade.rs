//! `diorite admin upgrade`: shows how far an upgrade is, holds it, lets it go on, or finishes it.

use crate::api::{Done, UpgradeState, UpgradeStatus};
use crate::client::{AdminError, Client};
use diorite_base::Levels;
use diorite_base::text::{duration, table};
use serde::Serialize;
use serde_json::Value;

/// The path of all that is about upgrades.
pub(crate) const UPGRADE: &str = "/api/v1/upgrade";

/// What to do about an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Subcommand)]
pub enum UpgradeCommand {
    /// Show the level of the cluster, the programs of its nodes, and what keeps the upgrade from being finished.
    Status,
    /// Do not finish the upgrade by itself. `finish` still does.
    Hold,
    /// End the hold: the upgrade is finished by itself again, an hour after all nodes can go on.
    Resume,
    /// Finish the upgrade: the cluster goes to the next level. From then on no node can go back to the release before.
    Finish,
}

/// An answer as JSON and as text.
pub(crate) struct Answer {
    pub(crate) json: Value,
    pub(crate) text: String,
}

/// Carries out the command.
pub(crate) fn carry_out(client: &Client, command: UpgradeCommand) -> Result<Answer, AdminError> {
    match command {
        UpgradeCommand::Status => {
            let status: UpgradeStatus = client.get(UPGRADE)?;
            answer(&status, shown(&status))
        }
        UpgradeCommand::Hold => change(client, "hold"),
        UpgradeCommand::Resume => change(client, "resume"),
        UpgradeCommand::Finish => change(client, "finish"),
    }
}

fn change(client: &Client, what: &str) -> Result<Answer, AdminError> {
    let done: Done = client.post(&format!("{UPGRADE}/{what}"), &Value::Null)?;
    answer(&done, format!("{}\n", done.message))
}

fn answer(answer: &impl Serialize, text: String) -> Result<Answer, AdminError> {
    Ok(Answer { json: serde_json::to_value(answer).map_err(std::io::Error::other)?, text })
}

fn shown(status: &UpgradeStatus) -> String {
    let rows = status.nodes.iter().map(|node| {
        let levels =
            node.levels.map_or_else(|| "-".to_owned(), |Levels { least, greatest }| format!("{least}-{greatest}"));
        let program = node.program.clone().unwrap_or_else(|| "-".to_owned());
        let state = if node.is_up { "up" } else { "down" };
        [node.node.0.to_string(), node.address.clone(), state.to_owned(), program, levels]
    });
    let next = status.level.next();
    let outlook = match (status.state, status.finishes_in_s) {
        (UpgradeState::Finished, _) => "no upgrade is under way".to_owned(),
        (UpgradeState::UnderWay, _) => "an upgrade is under way; any node may go back to the release before".to_owned(),
        (UpgradeState::Held, _) => {
            format!("held: level {next} is for `upgrade finish`, or `upgrade resume`; any node may go back until then")
        }
        (UpgradeState::Ready, Some(left_s)) => {
            format!("level {next} follows in {}; any node may go back until then", duration(left_s))
        }
        (UpgradeState::Ready, None) => format!("level {next} may follow; any node may go back until then"),
    };
    let mut text = format!("{:<12}{}\n{:<12}{outlook}\n", "level", status.level, "upgrade");
    if status.state != UpgradeState::Finished {
        for reason in &status.blocked_by {
            text.push_str(&format!("{:<12}{reason}\n", "waits"));
        }
    }
    text.push('\n');
    text + &table(["node", "address", "state", "program", "levels"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::NodeLevels;
    use diorite_base::{Level, NodeId};

    #[test]
    fn what_blocks_an_upgrade_is_shown() {
        let node = |node, levels: Option<Levels>| NodeLevels {
            node: NodeId(node),
            address: format!("127.0.0.{node}"),
            is_up: levels.is_some(),
            program: levels.map(|_| "0.2.0".to_owned()),
            levels,
        };
        let mut status = UpgradeStatus {
            level: Level::FIRST,
            state: UpgradeState::UnderWay,
            blocked_by: vec!["node 2 is down, and its program is not known".to_owned()],
            finishes_in_s: None,
            nodes: vec![node(1, Some(Levels::OWN)), node(2, None)],
        };
        let text = shown(&status);
        assert!(text.contains("waits       node 2 is down") && text.contains("1-2"), "{text}");
        status.state = UpgradeState::Ready;
        status.finishes_in_s = Some(60);
        assert!(shown(&status).contains("level 2 follows in"), "{}", shown(&status));
    }
}
