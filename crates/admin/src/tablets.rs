//! `diorite admin tablets`: which tablets are asked for.
//!
//! Always true: all pages of the answer are one list. Left out: how they are shown ([`crate::tables`]).

use crate::api::{Failure, FailureKind, NodeStatus, TableStatus, TabletFilter, TabletPage, TabletStatus};
use crate::client::{AdminError, Client};
use crate::percent::encoded;
use diorite_base::NodeId;

/// The tablets to show.
#[derive(Debug, Clone, clap::Args)]
pub struct TabletArguments {
    /// Only those of this table.
    #[arg(value_name = "KEYSPACE.TABLE")]
    pub table: Option<String>,
    /// Only those with a replica on this node.
    #[arg(long, value_name = "N")]
    pub node: Option<u64>,
}

/// All pages as one list.
pub(crate) fn all(client: &Client, arguments: &TabletArguments) -> Result<Vec<TabletStatus>, AdminError> {
    let (keyspace, table) = match arguments.table.as_deref().map(|name| name.split_once('.').unwrap_or(("", name))) {
        Some((keyspace, table)) => ((!keyspace.is_empty()).then_some(keyspace), Some(table)),
        None => (None, None),
    };
    let mut filter = TabletFilter {
        keyspace: keyspace.map(str::to_owned),
        table: table.map(str::to_owned),
        node: arguments.node,
        ..TabletFilter::default()
    };
    let mut all = Vec::new();
    loop {
        let page: TabletPage = client.get(&format!("/api/v1/tablets?{}", query(&filter)))?;
        all.extend(page.tablets);
        filter.after = page.next_after;
        if filter.after.is_none() {
            if all.is_empty() {
                check_named(client, &filter)?;
            }
            return Ok(all);
        }
    }
}

/// Fails if there is no such table or node: a misspelt name is no reason for an empty list.
fn check_named(client: &Client, filter: &TabletFilter) -> Result<(), AdminError> {
    let missing = |what: String| Failure::new(FailureKind::NotFound, format!("there is no {what}"));
    if let Some(table) = &filter.table {
        let tables: Vec<TableStatus> = client.get("/api/v1/tables")?;
        let is_named = |found: &TableStatus| {
            found.name == *table && filter.keyspace.as_ref().is_none_or(|keyspace| *keyspace == found.keyspace)
        };
        if !tables.iter().any(is_named) {
            let keyspace = filter.keyspace.as_ref().map_or(String::new(), |keyspace| format!("{keyspace}."));
            return Err(missing(format!("table {keyspace}{table}")).into());
        }
    }
    if let Some(node) = filter.node.map(NodeId) {
        let nodes: Vec<NodeStatus> = client.get("/api/v1/nodes")?;
        if !nodes.iter().any(|found| found.node == node) {
            return Err(missing(format!("node {node}")).into());
        }
    }
    Ok(())
}

fn query(filter: &TabletFilter) -> String {
    let named = [
        ("keyspace", filter.keyspace.clone()),
        ("table", filter.table.clone()),
        ("node", filter.node.map(|node| node.to_string())),
        ("after", filter.after.map(|tablet| tablet.to_string())),
    ];
    let given = named.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", encoded(&value?))));
    given.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_encoded() {
        let filter = TabletFilter { table: Some("a b&c".to_owned()), node: Some(3), ..TabletFilter::default() };
        assert_eq!(query(&filter), "table=a%20b%26c&node=3");
    }
}
