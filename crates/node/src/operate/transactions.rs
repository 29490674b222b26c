//! The transactions that are prepared: each node lists those in the tablets that it leads, and the node that leads the
//! catalog gathers them and adds whether their homes have a leader.
//!
//! Always true: an answer has a bounded number of transactions, the oldest ones, and the number of all; a node that did
//! not answer is named. Nodes that are down are not asked: they lead nothing.

use super::sight::Sight;
use diorite_admin::api::{MOST_PREPARED, PreparedTransaction, PreparedTransactions, TransactionHome, TransactionName};
use diorite_base::{NodeId, TabletId};
use diorite_cluster::catalog::Catalog;
use diorite_query::exec::homes::tablet_of_home;
use diorite_replica::{Leadership, Store};
use std::fmt::Display;

/// The keyspace and the name of a tablet's table.
fn table_of(catalog: &Catalog, tablet: TabletId) -> Option<(String, String)> {
    let table = &catalog.table_by_id(catalog.placement(tablet)?.table)?.table;
    Some((table.keyspace.clone(), table.name.clone()))
}

/// The transactions that are prepared in tablets led by this node.
pub(super) fn led_here(node: NodeId, store: &Store, catalog: &Catalog) -> PreparedTransactions {
    let tablets = store.tablets();
    let led = tablets.values().filter(|handle| handle.leadership() == Leadership::Here);
    let prepared = led.flat_map(|handle| {
        let tablet = handle.id();
        handle.prepared_transactions().into_iter().map(move |one| (tablet, one))
    });
    let mut prepared: Vec<_> = prepared.collect();
    let total = prepared.len();
    prepared.sort_unstable_by_key(|(tablet, one)| (std::cmp::Reverse(one.age_us), *tablet, one.id));
    prepared.truncate(MOST_PREPARED);
    let listed = prepared.into_iter().map(|(tablet, one)| {
        let (keyspace, table) = table_of(catalog, tablet).unwrap_or_default();
        let home = &one.staged.home;
        let home_tablet = tablet_of_home(catalog, one.id.tablet, home);
        PreparedTransaction {
            tablet,
            keyspace,
            table,
            leader: node,
            transaction: TransactionName { tablet: one.id.tablet, term: one.id.term, number: one.id.number },
            age_ms: one.age_us / 1_000,
            rows: one.staged.rows(),
            staged_bytes: one.staged.bytes,
            home: TransactionHome { tablet: home_tablet, ..TransactionHome::default() },
        }
    });
    PreparedTransactions { transactions: listed.collect(), total, unanswered: Vec::new() }
}

/// The answers of all nodes as one.
pub(super) fn gathered(
    sight: &Sight,
    answers: Vec<(NodeId, Result<PreparedTransactions, impl Display>)>,
) -> PreparedTransactions {
    let mut all = PreparedTransactions::default();
    for (node, answer) in answers {
        match answer {
            Ok(found) => {
                all.total += found.total;
                all.transactions.extend(found.transactions);
                all.unanswered.extend(found.unanswered);
            }
            Err(reason) => all.unanswered.push(format!("node {}: {reason}", node.0)),
        }
    }
    all.transactions.sort_by_key(|one| (std::cmp::Reverse(one.age_ms), one.tablet, one.transaction));
    all.transactions.truncate(MOST_PREPARED);
    all.unanswered.sort_unstable();
    for one in &mut all.transactions {
        complete(sight, &mut one.home);
    }
    all
}

/// Adds who leads a home, and its state.
fn complete(sight: &Sight, home: &mut TransactionHome) {
    let Some(tablet) = home.tablet else { return };
    let Some(placement) = sight.catalog.placement(tablet) else { return home.tablet = None };
    (home.keyspace, home.table) = table_of(&sight.catalog, tablet).unwrap_or_default();
    let wanted = sight.catalog.replication_of(&home.keyspace).total();
    home.leader = sight.leaders.get(&tablet).copied();
    home.state = Some(sight.state(tablet, placement, wanted));
}
