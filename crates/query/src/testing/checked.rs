//! Comparisons of unique indexes and views with their tables: what statements leave is right, and what is lost is found.

use super::{Database, block_on};
use crate::engine::{Checked, RowComparer};
use crate::kv::Kv;

/// What the rows of a table and the entries of one of its unique indexes or views are found to be; rows without an
/// entry and former entries are left out.
pub fn checked(database: &Database, table: &str, dependent: &str) -> [Vec<Checked>; 2] {
    let catalog = database.kv.catalog();
    let entry = catalog.table("ks", table).unwrap();
    let (id, _) = entry.table.maintained().find(|(_, name)| *name == dependent).unwrap();
    let unique = entry.table.unique_indexes().find(|(index, _)| index.id == id).map(|(_, unique)| unique.table);
    let own = unique.or_else(|| entry.table.views.iter().find(|view| view.id == id).map(|view| view.table));
    let entries = catalog.table_by_id(own.unwrap()).unwrap();
    let (comparer, of) = (RowComparer::of(&database.engine), entry.table.id);
    let row = |key: Vec<u8>| block_on(comparer.check((of, id), &key, false, &database.budget)).unwrap();
    let entry_of = |key: Vec<u8>| block_on(comparer.check((of, id), &key, true, &database.budget)).unwrap();
    let is_there = |found: &Checked| *found != Checked::Nothing;
    let rows = database.kv.keys_of(entry).into_iter().map(row).filter(is_there).collect();
    [rows, database.kv.keys_of(entries).into_iter().map(entry_of).filter(is_there).collect()]
}

/// A table with a unique index and a view, and three rows.
fn database() -> Database {
    let database = Database::with_keyspace();
    let enabled = "WITH transactions = {'enabled': true}";
    database.run(&format!("CREATE TABLE t (k int, c text, v int, PRIMARY KEY (k, c)) {enabled}")).unwrap();
    database.run("CREATE UNIQUE INDEX one ON t (v)").unwrap();
    let view = "SELECT * FROM t WHERE v IS NOT NULL AND k IS NOT NULL AND c IS NOT NULL PRIMARY KEY (v, c, k)";
    database.run(&format!("CREATE MATERIALIZED VIEW by_v AS {view}")).unwrap();
    for row in ["1, 'a', 10", "2, 'b', 20", "3, 'c', null"] {
        database.run(&format!("INSERT INTO t (k, c, v) VALUES ({row})")).unwrap();
    }
    database
}

/// The key under which a table of one or two rows stores one of them.
fn keys(database: &Database, table: &str) -> Vec<Vec<u8>> {
    let catalog = database.kv.catalog();
    let by_id = |id| catalog.table_by_id(id).unwrap();
    let base = catalog.table("ks", "t").unwrap();
    let entry = match table {
        "one" => by_id(base.table.unique_indexes().next().unwrap().1.table),
        table => catalog.table("ks", table).unwrap(),
    };
    database.kv.keys_of(entry)
}

#[test]
fn what_is_there_is_right() {
    let database = database();
    for dependent in ["one", "by_v"] {
        assert_eq!(checked(&database, "t", dependent), [vec![Checked::Right; 2], vec![Checked::Right; 2]]);
    }
    // The table of an index may name rows that do not have the values any more.
    database.run("DELETE FROM t WHERE k = 1").unwrap();
    assert_eq!(checked(&database, "t", "by_v"), [vec![Checked::Right], vec![Checked::Right]]);
    let [rows, entries] = checked(&database, "t", "one");
    assert_eq!(rows, [Checked::Right]);
    assert!(entries.iter().all(|found| matches!(found, Checked::Right | Checked::Stale(_))), "{entries:?}");
}

#[test]
fn a_lost_entry_is_missing() {
    let database = database();
    for dependent in ["one", "by_v"] {
        let lost = keys(&database, dependent).into_iter().next().unwrap();
        database.kv.lose(&lost);
        let [rows, entries] = checked(&database, "t", dependent);
        assert_eq!(entries, [Checked::Right]);
        assert!(rows.contains(&Checked::Missing(lost)) && rows.contains(&Checked::Right), "{rows:?}");
    }
}

#[test]
fn a_lost_row_leaves_a_surplus_in_views_and_a_stale_entry_in_indexes() {
    let database = database();
    let is_of = |key: &Vec<u8>, found: &[Checked]| found.contains(&Checked::Surplus(key.clone()));
    let rows = keys(&database, "t");
    let lost = rows.iter().find(|key| {
        database.kv.lose(key);
        is_of(key, &checked(&database, "t", "by_v")[1])
    });
    let lost = lost.unwrap().clone();
    let [rows, entries] = checked(&database, "t", "one");
    assert!(entries.contains(&Checked::Stale(lost)), "{entries:?}");
    assert!(rows.iter().all(|found| *found == Checked::Right), "{rows:?}");
}

#[test]
fn a_view_with_other_values_is_wrong_in_both_directions() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int PRIMARY KEY, v int, w int) WITH transactions = {'enabled': true}").unwrap();
    let view = "SELECT * FROM t WHERE v IS NOT NULL AND k IS NOT NULL PRIMARY KEY (v, k)";
    database.run(&format!("CREATE MATERIALIZED VIEW by_v AS {view}")).unwrap();
    database.run("INSERT INTO t (k, v, w) VALUES (1, 2, 3)").unwrap();
    // Whoever reads a row finishes what was committed of it.
    assert_eq!(checked(&database, "t", "by_v")[0], [Checked::Right]);
    let entry = keys(&database, "by_v").into_iter().next().unwrap();
    let before = database.kv.stored_anywhere(&entry).unwrap();
    database.run("UPDATE t SET w = 4 WHERE k = 1").unwrap();
    assert_eq!(checked(&database, "t", "by_v")[0], [Checked::Right]);
    database.kv.put_anywhere(&entry, before);
    let [rows, entries] = checked(&database, "t", "by_v");
    assert_eq!(rows, [Checked::Missing(entry)]);
    assert!(matches!(entries[..], [Checked::Surplus(_)]), "{entries:?}");
}

#[test]
fn what_expires_soon_is_left_out() {
    let database = database();
    for (k, ttl_s) in [(4, 30), (5, 3_000)] {
        database.run(&format!("INSERT INTO t (k, c, v) VALUES ({k}, 'd', {k}) USING TTL {ttl_s}")).unwrap();
    }
    for dependent in ["one", "by_v"] {
        assert_eq!(checked(&database, "t", dependent)[0], vec![Checked::Right; 3]);
        keys(&database, dependent).iter().for_each(|entry| database.kv.lose(entry));
        let [rows, entries] = checked(&database, "t", dependent);
        assert_eq!((rows.len(), entries.len()), (3, 0), "{dependent}");
        assert!(rows.iter().all(|found| matches!(found, Checked::Missing(_))), "{rows:?}");
    }
}

#[test]
fn what_is_no_entry_is_unreadable() {
    let database = database();
    for dependent in ["one", "by_v"] {
        assert_eq!(checked(&database, "t", dependent)[0], vec![Checked::Right; 2]);
        let entry = keys(&database, dependent).into_iter().next().unwrap();
        database.kv.put_anywhere(&entry, vec![0xFF; 3]);
        let [rows, entries] = checked(&database, "t", dependent);
        assert!(rows.contains(&Checked::Missing(entry)), "{rows:?}");
        assert!(entries.contains(&Checked::Unreadable), "{entries:?}");
    }
}
