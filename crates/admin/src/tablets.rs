//! `diorite admin tablets`: which tablets are asked for.
//!
//! Always true: all pages of the answer are one list. Left out: how they are shown ([`crate::tables`]).

use crate::api::{TabletFilter, TabletPage, TabletStatus};
use crate::client::{AdminError, Client};
use crate::percent::encoded;

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
            return Ok(all);
        }
    }
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
