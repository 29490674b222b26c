//! Operators: they set the cluster up, split and merge tablets, and let nodes join, be drained, removed and replaced.
//!
//! Always true: a request that depends on the state of the cluster is sent to the node that leads the catalog, which
//! judges it as in production; a request may be refused, or lost, and is repeated as long as it matters.

use crate::dice::Dice;
use crate::node::describe;
use crate::scenario::Scenario;
use crate::schema::{create_keyspace, table};
use diorite_base::{Level, NodeId, TabletId};
use diorite_cluster::catalog::{Command, Setting};
use std::collections::VecDeque;
use uuid::Uuid;

/// Something that an operator does.
#[derive(Clone, Debug)]
pub enum OperatorEvent {
    /// The next command that sets up the cluster.
    SetUp,
    /// A tablet is to be split.
    Split,
    /// Two tablets are to be merged.
    Merge,
    /// This tablet, or one that a split or merge of it concerns, is to be moved.
    Move(TabletId),
    /// A command is proposed.
    Propose(Box<Command>),
    /// A node is to be emptied and removed.
    Retire(NodeId),
    /// A machine is lost: its replicas are rebuilt elsewhere.
    Replace(NodeId),
}

/// See the top of this module.
pub struct Operators {
    /// Decisions of theirs.
    pub dice: Dice,
    /// The first of the commands is under way.
    pub is_setting_up: bool,
    /// The commands that set up the cluster, in this order.
    pub commands: VecDeque<Command>,
    /// The number of the next host.
    pub next_host: u64,
    /// A machine that is lost and still a member.
    pub lost: Option<NodeId>,
}

impl Operators {
    /// They have not done anything.
    pub fn new(scenario: &Scenario, mut dice: Dice) -> Self {
        let set = |setting| Command::Set { setting };
        let mut commands = VecDeque::from([
            Command::Bootstrap {
                cluster_id: Uuid::from_u128(1),
                name: "sim".to_owned(),
                replication_factor: scenario.replicas as u32,
                requires_login: None,
                level: Level::FIRST,
            },
            Command::RegisterNode { node: describe(1) },
            set(Setting::Balancing { is_paused: !scenario.balances }),
            set(Setting::ReplaceAfter { milliseconds: *dice.pick(&[1_000, 2_000, 900_000]) }),
        ]);
        if !scenario.merges {
            commands.push_back(set(Setting::MergeSize { bytes: 0 }));
        }
        Self { dice, is_setting_up: false, commands, next_host: 2, lost: None }
    }

    /// The first command was carried out, or its outcome is unknown.
    pub fn set_up(&mut self, is_done: bool) {
        self.is_setting_up = false;
        if is_done {
            self.commands.pop_front();
        }
    }

    /// Adds commands that set up the cluster; they replace the tables of plain values.
    pub fn define(&mut self, commands: impl IntoIterator<Item = Command>) {
        self.commands.extend(commands);
    }
}

/// The tables that clients write to, of one tablet each.
pub fn plain_tables(scenario: &Scenario) -> Vec<Command> {
    let tables = (0..scenario.tablets.len()).map(|number| Command::CreateTable {
        table: table("ks", &format!("t{number}"), number as u128),
        tablets: 1,
        if_not_exists: false,
    });
    std::iter::once(create_keyspace("ks", scenario.replicas)).chain(tables).collect()
}

impl Operators {
    /// Other voters, at random: usually one is replaced.
    pub fn other_voters(&mut self, before: &[NodeId], nodes: &[NodeId]) -> Vec<NodeId> {
        let mut voters = before.to_vec();
        let others: Vec<NodeId> = nodes.iter().copied().filter(|node| !voters.contains(node)).collect();
        if !others.is_empty() && self.dice.chance(600) {
            let at = self.dice.range(0, voters.len() as u64) as usize;
            voters[at] = *self.dice.pick(&others);
            return voters;
        }
        let mut chosen = nodes.to_vec();
        let turns = self.dice.range(0, nodes.len() as u64) as usize;
        chosen.rotate_left(turns);
        let many = *self.dice.pick(&[1, 3, 3, 3, 5]);
        chosen.truncate(many);
        if chosen.len().is_multiple_of(2) {
            chosen.pop();
        }
        if chosen.is_empty() { before.to_vec() } else { chosen }
    }
}
