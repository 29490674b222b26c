//! Helpers that tests of several modules use.

use crate::replicas::{Replicas, SplitEntry};
use diorite_base::{Level, NodeId, TableId, TabletId};
use diorite_cluster::catalog::{Catalog, Command, NodeDescription, Outcome, Split};
use diorite_model::schema::{Column, ColumnKind, Keyspace, Table};
use diorite_model::types::CqlType;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// The description of a node.
pub fn description(number: u64) -> NodeDescription {
    NodeDescription {
        host_id: Uuid::from_u128(u128::from(number)),
        address: [10, 0, (number / 256) as u8, (number % 256) as u8].into(),
        cql_port: 9042,
        rpc_port: 7100,
        http_port: 7000,
        data_center: "east".to_owned(),
        zone: format!("zone-{}", number % 5),
        node_address: None,
        levels: None,
    }
}

/// A table of the keyspace `shop`.
pub fn table(number: u128) -> Table {
    let column = |id, name: &str, kind| Column { id, name: name.to_owned(), data_type: CqlType::Text, kind };
    Table {
        id: TableId(0),
        uuid: Uuid::from_u128(number),
        keyspace: "shop".to_owned(),
        name: format!("orders_{number:03}"),
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

/// Applies a command that must not be rejected.
pub fn apply(catalog: &mut Catalog, command: Command) {
    let (next, outcome) = catalog.apply(&command);
    assert!(!matches!(outcome, Outcome::Rejected { .. }), "{command:?}: {outcome:?}");
    *catalog = next;
}

/// A cluster of so many nodes with replication factor 3 and one table of so many tablets.
pub fn cluster(nodes: u64, tablets: u32) -> Catalog {
    let replication = BTreeMap::from([
        ("class".to_owned(), "org.apache.cassandra.locator.SimpleStrategy".to_owned()),
        ("replication_factor".to_owned(), "3".to_owned()),
    ]);
    let keyspace = Keyspace { name: "shop".to_owned(), replication, durable_writes: true };
    let mut catalog = Catalog::default();
    let name = "c".to_owned();
    apply(
        &mut catalog,
        Command::Bootstrap {
            cluster_id: Uuid::from_u128(1),
            name,
            replication_factor: 3,
            requires_login: None,
            level: Level::FIRST,
        },
    );
    for number in 1..=nodes {
        apply(&mut catalog, Command::RegisterNode { node: description(number) });
    }
    apply(&mut catalog, Command::CreateKeyspace { keyspace, if_not_exists: false });
    apply(&mut catalog, Command::CreateTable { table: table(0), tablets, if_not_exists: false });
    catalog
}

/// The replicas of a node in a test.
#[derive(Clone, Debug, Default)]
pub struct Local {
    pub open: BTreeSet<TabletId>,
    pub leads: BTreeSet<TabletId>,
    pub sealed: BTreeSet<TabletId>,
    pub split: BTreeMap<TabletId, SplitEntry>,
    pub prepared: BTreeSet<TabletId>,
    pub prepared_elsewhere: BTreeSet<NodeId>,
    pub matched: BTreeMap<TabletId, Vec<(NodeId, u64)>>,
    pub in_place: BTreeMap<TabletId, Vec<NodeId>>,
    pub up: BTreeSet<NodeId>,
}

impl Replicas for Local {
    fn is_open(&self, tablet: TabletId) -> bool {
        self.open.contains(&tablet)
    }

    fn leads(&self, tablet: TabletId) -> bool {
        self.leads.contains(&tablet)
    }

    fn is_sealed(&self, tablet: TabletId) -> bool {
        self.sealed.contains(&tablet)
    }

    fn split_entry(&self, tablet: TabletId) -> Option<SplitEntry> {
        self.split.get(&tablet).copied()
    }

    fn have_prepared(&self, tablet: TabletId, _: &Split) -> bool {
        self.prepared.contains(&tablet)
    }

    fn prepared_elsewhere(&self, _: TabletId) -> BTreeSet<NodeId> {
        self.prepared_elsewhere.clone()
    }

    fn matched(&self, tablet: TabletId) -> Option<Vec<(NodeId, u64)>> {
        self.matched.get(&tablet).cloned()
    }

    fn voters_in_place(&self, tablet: TabletId) -> Option<Vec<NodeId>> {
        self.in_place.get(&tablet).cloned()
    }

    fn is_up(&self, node: NodeId) -> bool {
        self.up.contains(&node)
    }
}
