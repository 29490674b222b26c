//! Clients that change the schema, through any node, and the invariants of the catalog.
//!
//! Always true: snapshots of one version are equal on all nodes. The version that a node serves only grows. A change
//! that is sent after another was answered has a greater version. A client that is answered without a warning finds its
//! change on every node that is up. A node that is ready serves what was answered before it started. What was answered
//! is there in the end.

use crate::checkers::Finding;
use crate::dice::Dice;
use crate::life::Life;
use diorite_base::{NodeId, TableId, TabletId};
use diorite_cluster::catalog::{Catalog, Command, Outcome};
use diorite_control::answering::Answering;
use diorite_control::membership::Ready;
use diorite_model::schema::{Column, ColumnKind, Keyspace, Table};
use diorite_model::types::CqlType;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

/// A client keeps no more keyspaces than this.
const KEYSPACES: usize = 2;

/// Something that happens to a client.
#[derive(Clone, Debug)]
pub enum DdlEvent {
    /// It sends its next change.
    Act(u32),
    /// Its node looks whether it is answered.
    Look(u32),
    /// Its node has ended.
    Lost(u32),
}

/// A change that is under way.
pub struct Busy {
    /// The node that was asked.
    pub node: NodeId,
    /// The process that was asked.
    pub life: u64,
    /// Of which keyspace.
    pub name: String,
    /// The keyspace is there afterwards.
    pub creates: Option<bool>,
    /// The greatest version that a client had received when it was sent.
    pub floor: u64,
    /// The catalog's answer, and whether the client gets it.
    pub decided: Option<(Outcome, Answering)>,
}

/// A client.
#[derive(Default)]
pub struct Client {
    /// The operation that it waits for.
    pub busy: Option<Busy>,
    /// The keyspaces that it has created.
    pub keyspaces: Vec<String>,
    /// Counts the statements that it has sent.
    pub next: u64,
}

/// See the top of this module.
#[derive(Default)]
pub struct Schema {
    /// Snapshots by version, as some node has applied them.
    pub seen: BTreeMap<u64, Arc<Catalog>>,
    /// What processes serve.
    pub served: BTreeMap<(NodeId, u64), u64>,
    /// The clients.
    pub clients: Vec<Client>,
    /// The greatest version that a client was told of.
    pub told: u64,
    /// Keyspaces that are there, or are not, for certain.
    pub certain: BTreeMap<String, bool>,
    /// Clients whose change was answered in the phase of recovery.
    pub recovered: BTreeSet<u32>,
    /// Changes that were answered.
    pub answered: u64,
}

/// A violation in the catalog.
pub fn finding<T>(at_ns: u64, message: String) -> Result<T, Finding> {
    Err(Finding { checker: "catalog", at_ns, message })
}

impl Schema {
    /// The greatest version that a client was told of.
    pub fn told(&self) -> u64 {
        self.told
    }

    /// A node has applied this snapshot.
    pub fn applied(&mut self, at_ns: u64, node: NodeId, catalog: &Arc<Catalog>) -> Result<(), Finding> {
        let seen = self.seen.entry(catalog.version()).or_insert_with(|| Arc::clone(catalog));
        if Arc::ptr_eq(seen, catalog) || seen == catalog {
            return Ok(());
        }
        finding(at_ns, format!("version {} on {node} is another than elsewhere", catalog.version()))
    }

    /// A node serves another snapshot.
    pub fn published(&mut self, at_ns: u64, node: NodeId, life: &Life) -> Result<(), Finding> {
        let served = life.served();
        let before = self.served.insert((node, life.number), served.version()).unwrap_or(0);
        if before > served.version() {
            return finding(at_ns, format!("{node} served version {before}, and now {}", served.version()));
        }
        // A child that a dropped parent tablet had not made is opened just after.
        let older = self.seen.get(&before);
        let split = older.iter().flat_map(|older| older.tablets()).filter_map(|(_, placement)| placement.split);
        let children: BTreeSet<TabletId> = split.flat_map(|split| split.children).collect();
        let missing = served.tablets_on(node).find(|(tablet, placement)| {
            let is_to_come = placement.origin.is_some() || children.contains(tablet);
            placement.replicas.contains(&node) && !is_to_come && !life.handles.contains_key(tablet)
        });
        match missing.filter(|_| !life.has_lost_power() && life.do_disks_work()) {
            Some((tablet, _)) => finding(at_ns, format!("{node} serves version {} without {tablet}", served.version())),
            None => Ok(()),
        }
    }

    /// A node is ready.
    pub fn ready(&self, at_ns: u64, node: NodeId, how: Ready, served: u64, told_before: u64) -> Result<(), Finding> {
        if how != Ready::Current || served >= told_before {
            return Ok(());
        }
        finding(at_ns, format!("{node} is ready with version {served}; {told_before} was answered before it started"))
    }

    /// Whether changes are taken again after the last fault.
    pub fn has_recovered(&self) -> bool {
        self.recovered.len() == self.clients.len()
    }

    /// Compares the answers that clients got with the final catalog.
    pub fn judge(&self, at_ns: u64, newest: &Catalog) -> Result<(), Finding> {
        if newest.version() < self.told {
            return finding(at_ns, format!("version {} was answered, the newest is {}", self.told, newest.version()));
        }
        let wrong = self.certain.iter().find(|(name, exists)| newest.keyspace(name).is_some() != **exists);
        match wrong {
            Some((name, exists)) => finding(at_ns, format!("keyspace {name} should be there: {exists}")),
            None => Ok(()),
        }
    }

    /// A client's next schema change.
    pub fn choose(&mut self, number: u32, replicas: usize, dice: &mut Dice) -> (Command, String, Option<bool>) {
        let client = &mut self.clients[number as usize];
        client.next += 1;
        let owned = client.keyspaces.clone();
        if owned.is_empty() || (owned.len() < KEYSPACES && dice.chance(500)) {
            let name = format!("d{number}_{}", client.next);
            return (create_keyspace(&name, replicas), name, Some(true));
        }
        let name = dice.pick(&owned).clone();
        match dice.range(0, 4) {
            0 if owned.len() > 1 => {
                let command = Command::DropKeyspace { name: name.clone(), if_exists: false };
                (command, name, Some(false))
            }
            1 => {
                let command = Command::TruncateTable { keyspace: name.clone(), name: "t".to_owned() };
                (command, name, None)
            }
            2 => {
                let command = Command::DropTable { keyspace: name.clone(), name: "t".to_owned(), if_exists: true };
                (command, name, None)
            }
            _ => {
                let tablets = dice.range(1, 3) as u32;
                let table = table(&name, "t", u128::from(client.next) << 32 | u128::from(number) << 16);
                (Command::CreateTable { table, tablets, if_not_exists: true }, name, None)
            }
        }
    }
}

/// `CREATE KEYSPACE` with so many replicas.
pub fn create_keyspace(name: &str, replicas: usize) -> Command {
    let replication = BTreeMap::from([
        ("class".to_owned(), "org.apache.cassandra.locator.SimpleStrategy".to_owned()),
        ("replication_factor".to_owned(), replicas.to_string()),
    ]);
    let keyspace = Keyspace { name: name.to_owned(), replication, durable_writes: true };
    Command::CreateKeyspace { keyspace, if_not_exists: false }
}

/// A table's definition; what its tablets hold is the simulation's affair.
pub fn table(keyspace: &str, name: &str, number: u128) -> Table {
    let column = |id, name: &str, kind| Column { id, name: name.to_owned(), data_type: CqlType::Bigint, kind };
    Table {
        id: TableId(0),
        uuid: Uuid::from_u128(number),
        keyspace: keyspace.to_owned(),
        name: name.to_owned(),
        version: 0,
        columns: vec![column(0, "k", ColumnKind::PartitionKey), column(1, "v", ColumnKind::Regular)],
        next_column_id: 2,
        indexes: Vec::new(),
        deferred_indexes: Vec::new(),
        index_of: None,
        views: Vec::new(),
        view: None,
        default_ttl_s: 0,
        gc_grace_s: 864_000,
        options: BTreeMap::new(),
    }
}
