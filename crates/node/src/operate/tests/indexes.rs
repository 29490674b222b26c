//! Indexes of an invented cluster: one that is being built, and many that are complete or unknown.

use super::{description, table};
use crate::operate::Known;
use crate::operate::indexes::status::{Led, check_begun, detail, find, gathered};
use crate::operate::sight::Sight;
use diorite_admin::api::{Failure, FailureKind, IndexDetail, IndexId, IndexList, IndexState, MOST_INDEXED_TABLETS};
use diorite_base::{Level, Levels, NodeId, TableId, TabletId};
use diorite_cluster::catalog::{Catalog, Command, NodeDescription, Outcome};
use diorite_model::schema::{Index, IndexTarget, Keyspace, Table, TableEntry};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

const TABLES: u128 = 120;
const TABLETS: u32 = 2_000;
/// The index that is being built, of the first table; the others have one tablet each.
const NAME: &str = "orders_000_v";

fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    let mut apply = |command: Command| {
        let (next, outcome) = catalog.apply(&command);
        assert!(!matches!(outcome, Outcome::Rejected { .. }), "{command:?}: {outcome:?}");
        catalog = next;
    };
    apply(Command::Bootstrap {
        cluster_id: Uuid::from_u128(1),
        name: "indexed".to_owned(),
        replication_factor: 1,
        requires_login: Some(false),
        level: Level::RECORDED,
    });
    for number in 1..=3 {
        let node = NodeDescription { levels: Some(Levels::OWN), ..description(number) };
        apply(Command::RegisterNode { node });
    }
    let replication = BTreeMap::from([
        ("class".to_owned(), "org.apache.cassandra.locator.SimpleStrategy".to_owned()),
        ("replication_factor".to_owned(), "1".to_owned()),
    ]);
    let keyspace = Keyspace { name: "shop".to_owned(), replication, durable_writes: true };
    apply(Command::CreateKeyspace { keyspace, if_not_exists: false });
    for number in 0..TABLES {
        let plain = table(number);
        let index = Index {
            id: 1,
            name: format!("{}_v", plain.name),
            column: 1,
            target: IndexTarget::Value,
            path: Vec::new(),
            predicate: Vec::new(),
            unique: None,
            covering: None,
            filtered: Vec::new(),
            class: None,
            options: BTreeMap::new(),
        };
        let table = Table { indexes: vec![index], ..plain };
        let tablets = if number == 0 { TABLETS } else { 1 };
        apply(Command::CreateTable { table, tablets, if_not_exists: false });
    }
    catalog
}

fn sight() -> Sight {
    let known = Known::default();
    Sight::new(NodeId(1), Arc::new(catalog()), known, BTreeMap::new(), BTreeMap::new())
}

/// What a node says of an index in tablets of which so much is done.
fn led(id: IndexId, tablets: &[(TabletId, Option<u16>)]) -> Led {
    Led {
        id,
        tablets: tablets.len(),
        complete: tablets.iter().filter(|(_, done)| *done == Some(1_000)).count(),
        begun: tablets.iter().filter(|(_, done)| done.is_some()).count(),
        done_permille: tablets.iter().filter_map(|(_, done)| *done).map(u64::from).sum(),
        rate_rows: 1_000,
        rate_bytes: 100_000,
        eta_seconds: Some(tablets.len() as u64),
        failure: None,
        listed: tablets.to_vec(),
    }
}

/// The answers about all indexes. Of the first one, node 1 has built half of its tablets and half of each other, and
/// node 2 has begun none, or does not answer.
fn answers(sight: &Sight, is_all: bool) -> Vec<(NodeId, Result<Vec<Led>, String>)> {
    let id = find(&sight.catalog, "shop", NAME).unwrap();
    let ranges = &sight.catalog.table_by_id(id.table).unwrap().tablets;
    let ids: Vec<TabletId> = ranges.iter().map(|range| range.tablet).collect();
    let (first, second) = ids.split_at(ids.len() / 2);
    let half = |(at, tablet): (usize, &TabletId)| (*tablet, Some(if at % 2 == 0 { 1_000 } else { 500 }));
    let first: Vec<_> = first.iter().enumerate().map(half).collect();
    let second: Vec<_> = second.iter().map(|tablet| (*tablet, None)).collect();
    let complete = |entry: &Arc<TableEntry>| {
        let id = IndexId { table: entry.table.id, index: 1 };
        led(id, &[(entry.tablets[0].tablet, Some(1_000))])
    };
    let others = sight.catalog.tables().filter(|entry| entry.table.id != id.table).map(complete);
    let of_1 = Ok([led(id, &first)].into_iter().chain(others).collect());
    let of_2 = if is_all { Ok(vec![led(id, &second)]) } else { Err("it does not answer".to_owned()) };
    vec![(NodeId(1), of_1), (NodeId(2), of_2)]
}

pub(super) fn list() -> IndexList {
    let sight = sight();
    gathered(&sight, answers(&sight, true))
}

pub(super) fn closer(name: &str) -> Result<IndexDetail, Failure> {
    let sight = sight();
    detail(&sight, find(&sight.catalog, "shop", name)?, answers(&sight, true))
}

#[test]
fn what_all_nodes_say_of_an_index_is_one_line() {
    let found = list();
    assert_eq!((found.indexes.len(), found.unanswered.len()), (TABLES as usize, 0));
    let one = &found.indexes[0];
    assert_eq!((one.keyspace.as_str(), one.table.as_str(), one.name.as_str()), ("shop", "orders_000", NAME));
    assert_eq!((one.target.as_str(), one.state, one.done_permille), ("v", IndexState::Building, 375));
    assert_eq!((one.tablets, one.tablets_complete, one.tablets_unknown), (2_000, 500, 0));
    assert_eq!((one.rate_rows, one.rate_bytes, one.eta_seconds), (2_000, 200_000, Some(1_000)));
    for one in &found.indexes[1..] {
        assert_eq!((one.state, one.done_permille, one.rate_rows), (IndexState::Ready, 1_000, 0), "{one:?}");
    }
}

#[test]
fn tablets_of_which_nobody_answers_are_unknown() {
    let sight = sight();
    let found = gathered(&sight, answers(&sight, false));
    assert_eq!(found.unanswered, ["node 2: it does not answer"]);
    let one = &found.indexes[0];
    assert_eq!((one.state, one.tablets_unknown, one.eta_seconds), (IndexState::Building, 1_000, None));
    assert!(found.indexes[1..].iter().all(|one| one.state == IndexState::Ready));
    let nothing = gathered(&sight, Vec::<(NodeId, Result<_, String>)>::new());
    assert!(nothing.indexes.iter().all(|one| one.state == IndexState::Unknown && one.done_permille == 0));
    // Two nodes that believe to lead the same tablets do not make them more.
    let twice = [answers(&sight, false), answers(&sight, false)].concat();
    assert_eq!(gathered(&sight, twice).indexes[1].tablets_complete, 1);
}

#[test]
fn an_index_that_no_tablet_has_begun_is_not_begun() {
    let sight = sight();
    let id = find(&sight.catalog, "shop", "orders_007_v").unwrap();
    let tablet = sight.catalog.table_by_id(id.table).unwrap().tablets[0].tablet;
    let found = gathered(&sight, vec![(NodeId(1), Ok::<_, String>(vec![led(id, &[(tablet, None)])]))]);
    assert_eq!(found.indexes[7].state, IndexState::NotBegun);
}

#[test]
fn an_index_that_waits_for_the_next_one_is_deferred() {
    let sight = sight();
    let mut table = Table::clone(&sight.catalog.table("shop", "orders_007").unwrap().table);
    table.deferred_indexes = vec![Index { id: 9, name: "later".to_owned(), ..table.indexes[0].clone() }];
    let (catalog, outcome) = sight.catalog.apply(&Command::AlterTable { table });
    assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    let sight = Sight::new(NodeId(1), Arc::new(catalog), Known::default(), BTreeMap::new(), BTreeMap::new());
    let none = || Vec::<(NodeId, Result<Vec<Led>, String>)>::new();
    let found = gathered(&sight, none());
    let states: Vec<_> = found.indexes.iter().filter(|one| one.table == "orders_007").map(|one| one.state).collect();
    assert_eq!(states, [IndexState::Deferred, IndexState::Unknown]);
    let id = find(&sight.catalog, "shop", "later").unwrap();
    let status = detail(&sight, id, none()).unwrap().status;
    assert_eq!((status.state, status.tablets_unknown, status.done_permille), (IndexState::Deferred, 0, 0));
    assert_eq!(check_begun(&sight.catalog, id).unwrap_err().kind, FailureKind::Invalid);
}

#[test]
fn the_least_complete_tablets_are_listed_first() {
    let found = closer(NAME).unwrap();
    assert_eq!((found.status.state, found.listed.len()), (IndexState::Building, MOST_INDEXED_TABLETS));
    assert!(found.listed.iter().all(|one| one.state == IndexState::NotBegun && one.leader == Some(NodeId(2))));
    let sight = sight();
    let id = find(&sight.catalog, "shop", NAME).unwrap();
    let found = detail(&sight, id, answers(&sight, false)).unwrap();
    assert!(found.listed.iter().all(|one| one.state == IndexState::Unknown && one.leader.is_none()));
    assert_eq!(closer("none").unwrap_err().kind, FailureKind::NotFound);
    let other = IndexId { table: TableId(9_999), ..id };
    assert_eq!(
        detail(&sight, other, Vec::<(NodeId, Result<_, String>)>::new()).unwrap_err().kind,
        FailureKind::NotFound
    );
}
