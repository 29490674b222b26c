//! Deferred indexes: what the catalog makes of them, and when.

use super::views::raised;
use super::*;
use diorite_base::TableId;
use std::collections::BTreeSet;

const TABLE: &str =
    "CREATE TABLE ks.t (k int PRIMARY KEY, v int, w int, x int, y int) WITH transactions = {'enabled': true}";

fn run(database: &mut Database, statements: &[&str]) {
    for statement in statements {
        database.run(statement).unwrap_or_else(|error| panic!("{statement}: {}", error.message));
    }
}

#[test]
fn deferred_indexes_have_tables_once_the_next_index_begins() {
    let mut database = raised();
    let deferred = [
        "CREATE KEYSPACE ks",
        TABLE,
        "CREATE DEFERRED INDEX by_v ON ks.t (v)",
        "CREATE UNIQUE DEFERRED INDEX by_w ON ks.t (w)",
        "CREATE DEFERRED INDEX by_x ON ks.t (x) INCLUDE (y)",
    ];
    run(&mut database, &deferred);
    let table = |database: &Database| database.catalog.table("ks", "t").unwrap().table.clone();
    let before = table(&database);
    assert_eq!((before.indexes.len(), before.deferred_indexes.len(), before.views.len()), (0, 3, 0));
    assert_eq!(database.catalog.tables().filter(|entry| entry.table.index_of.is_some()).count(), 0);
    run(&mut database, &["CREATE INDEX by_y ON ks.t (y)"]);
    let begun = table(&database);
    let names: Vec<_> = begun.indexes.iter().map(|index| index.name.as_str()).collect();
    assert_eq!((names.as_slice(), begun.deferred_indexes.len()), (["by_v", "by_w", "by_x", "by_y"].as_slice(), 0));
    let unique = begun.indexes[1].unique.as_ref().unwrap().table;
    assert!(unique != TableId(0) && database.catalog.table_by_id(unique).is_some());
    let (view, of) = begun.hidden_views().next().unwrap();
    assert_eq!(of.unwrap().0.name, "by_x");
    assert!(database.catalog.table_by_id(view.table).is_some());
    let numbers: BTreeSet<u64> = begun.maintained().map(|(id, _)| id).collect();
    assert_eq!(numbers.len(), 5, "indexes and views have a number each");
    assert!(numbers.iter().all(|number| *number <= begun.version));
}

#[test]
fn older_nodes_are_not_asked_to_keep_deferred_indexes() {
    let mut database = Database::over(founded(1, &["datacenter1"]));
    run(&mut database, &["CREATE KEYSPACE ks", "CREATE TABLE ks.t (k int PRIMARY KEY, v int)"]);
    let refused = database.run("CREATE DEFERRED INDEX by_v ON ks.t (v)").unwrap_err();
    assert!(refused.message.contains("need all nodes to run this release"), "{}", refused.message);
    let table = &database.catalog.table("ks", "t").unwrap().table;
    let mut deferred = (**table).clone();
    deferred.deferred_indexes.push(diorite_model::schema::Index {
        id: 2,
        name: "by_v".to_owned(),
        column: 1,
        target: diorite_model::schema::IndexTarget::Value,
        path: Vec::new(),
        filtered: Vec::new(),
        class: None,
        options: std::collections::BTreeMap::new(),
        predicate: Vec::new(),
        unique: None,
        covering: None,
    });
    let command = Command::AlterTable { table: deferred };
    assert_eq!(command.least_level(), Level::RECORDED);
}
