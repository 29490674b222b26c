//! A table with unique indexes gives what the same statements give to a table without, up to those that would have made
//! two rows alike: these are refused, and change nothing.

use super::checked::checked;
use super::{Database, block_on};
use crate::engine::Checked;
use crate::exec::modify::unique::{duplicate, index_key, owner_of, stored_key, unique_values};
use crate::exec::raw::RawRead;
use crate::table::{Source, TableContext};
use diorite_model::key::{RowKind, kind_of};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

const COLUMNS: &str = "(k int, c int, v int, a int, b int, w text, PRIMARY KEY (k, c)) \
                       WITH transactions = {'enabled': true}";

/// One statement about table `#`.
fn statement() -> impl Strategy<Value = String> {
    let value = || prop_oneof![4 => (0..4).prop_map(|x: i32| x.to_string()), 1 => Just("null".to_owned())];
    ((0..3, 0..3), (value(), value(), value()), 0u8..12).prop_map(|((k, c), (x, y, z), kind)| {
        let row = format!("WHERE k = {k} AND c = {c}");
        match kind {
            0 | 1 => format!("INSERT INTO # (k, c, v, a, b, w) VALUES ({k}, {c}, {x}, {y}, {z}, 'w')"),
            2 => format!("INSERT INTO # (k, c, v) VALUES ({k}, {c}, {x})"),
            3 => format!("UPDATE # SET v = {x} {row}"),
            4 => format!("UPDATE # SET a = {x}, b = {y} {row}"),
            5 => format!("UPDATE # SET b = {x} {row}"),
            6 => format!("UPDATE # SET w = 'w{k}' {row}"),
            7 => format!("DELETE FROM # {row}"),
            8 => format!("DELETE v, a FROM # {row}"),
            9 => format!("DELETE FROM # WHERE k = {k} AND c >= {c}"),
            10 => format!("DELETE FROM # WHERE k = {k}"),
            _ => format!("INSERT INTO # (k, c, v, a) VALUES ({k}, {c}, {x}, {y}) IF NOT EXISTS"),
        }
    })
}

/// Statements that take effect together.
fn request() -> impl Strategy<Value = String> {
    let block = || {
        let plain = statement().prop_filter("no condition", |one| !one.contains(" IF "));
        proptest::collection::vec(plain, 1..4)
    };
    prop_oneof![
        3 => statement(),
        1 => block().prop_map(|all| format!("BEGIN TRANSACTION {}; END TRANSACTION", all.join("; "))),
        1 => block().prop_map(|all| format!("BEGIN BATCH {}; APPLY BATCH", all.join("; "))),
    ]
}

fn rows(database: &Database, table: &str) -> Vec<Vec<String>> {
    let shown = database.shown(&format!("SELECT k, c, v, a, b, w FROM {table}"));
    // Whether a row without values is there depends on the statement that has made it.
    shown.into_iter().filter(|row| row[2..].iter().any(|value| value != "null")).collect()
}

/// Whether two rows have the same values in these columns.
fn has_duplicates(rows: &[Vec<String>], columns: &[usize]) -> bool {
    let mut seen = BTreeSet::new();
    let values = rows.iter().map(|row| columns.iter().map(|at| row[*at].clone()).collect::<Vec<_>>());
    values.filter(|values| values.iter().all(|value| value != "null")).any(|values| !seen.insert(values))
}

/// Each row is named by the tables of the indexes.
fn check_named(database: &Database) {
    let catalog = crate::kv::Kv::catalog(&*database.kv);
    for (index, _) in catalog.table("ks", "u").unwrap().table.unique_indexes() {
        let [rows, entries] = checked(database, "u", &index.name);
        assert!(rows.iter().all(|found| *found == Checked::Right), "{}: {rows:?}", index.name);
        let is_harmless = |found: &Checked| matches!(found, Checked::Right | Checked::Stale(_));
        assert!(entries.iter().all(is_harmless), "{}: {entries:?}", index.name);
    }
    let entry = catalog.table("ks", "u").unwrap();
    let context = |table: &Arc<_>| Arc::new(TableContext::new(Arc::clone(table), Source::Tablets));
    let table = context(&entry.table);
    let base = RawRead { kv: &database.kv, table: &table, budget: &database.budget };
    let keys: Vec<Vec<u8>> = database.kv.keys_of(entry);
    let is_row = |key: &Vec<u8>| {
        let partition_len = table.layout().partition_len(key).unwrap();
        kind_of(key, partition_len).unwrap() == RowKind::Regular
    };
    for key in keys.into_iter().filter(is_row) {
        let Some(found) = block_on(base.row(&key)).unwrap() else { continue };
        let values = unique_values(&table, &found.live().unwrap()).unwrap();
        for (index, unique) in entry.table.unique_indexes() {
            let Some(values) = index_key(&table, unique, &values).unwrap() else { continue };
            let of_index = catalog.table_by_id(unique.table).unwrap();
            let index_table = context(&of_index.table);
            let read = RawRead { kv: &database.kv, table: &index_table, budget: &database.budget };
            let named = block_on(read.row(&stored_key(of_index, &values).unwrap())).unwrap();
            let owner = named.and_then(|named| owner_of(&named.live().unwrap()).unwrap());
            assert_eq!(owner, Some(key.clone()), "index {}", index.name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn what_would_make_two_rows_alike_is_refused_and_nothing_else(
        before in proptest::collection::vec(request(), 0..6),
        after in proptest::collection::vec(request(), 1..24),
    ) {
        let database = Database::with_keyspace();
        for table in ["u", "r"] {
            database.run(&format!("CREATE TABLE {table} {COLUMNS}")).unwrap();
        }
        // Rows that are there before the indexes, and have nothing in common.
        for (at, one) in (0..).zip(before.iter()) {
            let one = one.replace("SET v = ", &format!("SET v = 10{at}"));
            for table in ["u", "r"] {
                drop(database.run(&one.replace('#', table)));
            }
        }
        prop_assume!(!has_duplicates(&rows(&database, "u"), &[2]) && !has_duplicates(&rows(&database, "u"), &[3, 4]));
        database.run("CREATE UNIQUE INDEX ON u (v)").unwrap();
        database.run("CREATE UNIQUE INDEX ON u (a, b)").unwrap();
        check_named(&database);
        let mut accepted: Vec<&String> = Vec::new();
        for one in &after {
            let known = rows(&database, "u");
            let expected = database.run(&one.replace('#', "r"));
            let would_be = rows(&database, "r");
            let outcome = database.run(&one.replace('#', "u"));
            let is_refused = has_duplicates(&would_be, &[2]) || has_duplicates(&would_be, &[3, 4]);
            if is_refused {
                let error = outcome.expect_err(one);
                prop_assert!(error.message.contains("Duplicate value disallowed by unique index"), "{one}: {error:?}");
                prop_assert_eq!(&rows(&database, "u"), &known, "{}", one);
                // Back to what it was.
                database.run("TRUNCATE r").unwrap();
                let old = (0..).zip(before.iter()).map(|(at, one)| one.replace("SET v = ", &format!("SET v = 10{at}")));
                for one in old.chain(accepted.iter().map(|one| (*one).clone())) {
                    drop(database.run(&one.replace('#', "r")));
                }
                prop_assert_eq!(&rows(&database, "r"), &known);
            } else {
                accepted.push(one);
                prop_assert_eq!(format!("{outcome:?}"), format!("{expected:?}").replace("\"r\"", "\"u\""), "{}", one);
                prop_assert_eq!(&rows(&database, "u"), &would_be, "{}", one);
            }
            check_named(&database);
        }
    }
}

#[test]
fn a_value_that_has_ended_is_free() {
    let database = Database::with_keyspace();
    database.run(&format!("CREATE TABLE u {COLUMNS}")).unwrap();
    database.run("CREATE UNIQUE INDEX ON u (v)").unwrap();
    database.run("INSERT INTO u (k, c, v) VALUES (1, 1, 7) USING TTL 10").unwrap();
    let again = "INSERT INTO u (k, c, v) VALUES (1, 2, 7)";
    assert!(database.run(again).unwrap_err().message.contains("Duplicate value"));
    database.kv.pass(20);
    database.run(again).unwrap();
    assert!(database.run("INSERT INTO u (k, c, v) VALUES (1, 1, 7)").unwrap_err().message.contains("Duplicate value"));
    check_named(&database);
}

#[test]
fn two_rows_that_were_alike_before_the_index_are_named() {
    let database = Database::with_keyspace();
    database.run(&format!("CREATE TABLE u {COLUMNS}")).unwrap();
    for c in 1..4 {
        database.run(&format!("INSERT INTO u (k, c, v) VALUES (1, {c}, {})", c / 2)).unwrap();
    }
    database.run("CREATE UNIQUE INDEX by_v ON u (v)").unwrap();
    let failed = database.kv.failed_comparisons();
    assert_eq!(failed, ["the rows (1, 2) and (1, 3) both have (1)"]);
}

#[test]
fn a_value_with_a_timestamp_in_the_future_fails_a_new_index() {
    let why = "the row (1, 1): a column of a unique index has a value with a timestamp in the future: 99999999999999999 \
               (5138-11-16 09:46:39.999+0000)";
    // The row is compared first, and after another one that has the value.
    for other in [None, Some("INSERT INTO u (k, c, v) VALUES (1, 0, 1)")] {
        let database = Database::with_keyspace();
        database.run(&format!("CREATE TABLE u {COLUMNS}")).unwrap();
        database.run("INSERT INTO u (k, c, v) VALUES (1, 1, 1) USING TIMESTAMP 99999999999999999").unwrap();
        if let Some(other) = other {
            database.run(other).unwrap();
        }
        database.run("CREATE UNIQUE INDEX by_v ON u (v)").unwrap();
        assert_eq!(database.kv.failed_comparisons(), [why], "{other:?}");
    }
}

#[test]
fn a_timestamp_that_is_in_the_future_for_a_moment_is_waited_for() {
    let database = Database::with_keyspace();
    database.run(&format!("CREATE TABLE u {COLUMNS}")).unwrap();
    database.run("INSERT INTO u (k, c, v) VALUES (1, 1, 1) USING TIMESTAMP 1700000030000000").unwrap();
    database.run("CREATE UNIQUE INDEX by_v ON u (v)").unwrap();
    let change = "UPDATE u SET v = 2 WHERE k = 1 AND c = 1";
    let refused = database.run(change).unwrap_err();
    let why = "a column of a unique index has a value with a timestamp in the future: 1700000030000000 \
               (2023-11-14 22:13:50.000+0000)";
    assert!(refused.message.contains(why), "{}", refused.message);
    assert_eq!(database.kv.failed_comparisons(), [""; 0]);
    database.kv.pass(40);
    database.run(change).unwrap();
    assert_eq!(database.kv.failed_comparisons(), [""; 0]);
    assert!(database.run("INSERT INTO u (k, c, v) VALUES (1, 2, 2)").unwrap_err().message.contains("Duplicate value"));
    database.run("INSERT INTO u (k, c, v) VALUES (1, 2, 1)").unwrap();
    check_named(&database);
}

#[test]
fn a_condition_of_a_block_over_several_tablets_counts_before_a_duplicate() {
    let database = Database::with_keyspace();
    database.run(&format!("CREATE TABLE u {COLUMNS}")).unwrap();
    database.run("CREATE UNIQUE INDEX by_v ON u (v)").unwrap();
    for k in 1..9 {
        database.run(&format!("INSERT INTO u (k, c, v) VALUES ({k}, 1, {k})")).unwrap();
    }
    let known = rows(&database, "u");
    let refused = |first: String| {
        let block = format!("BEGIN TRANSACTION {first}; INSERT INTO u (k, c, v) VALUES (50, 1, 50); END TRANSACTION");
        let error = database.run(&block).unwrap_err();
        assert_eq!(rows(&database, "u"), known, "{first}");
        error.message.into_owned()
    };
    let (unmet, duplicate) =
        ("Execution Error. Condition on table u was not satisfied.", duplicate("by_v").message.into_owned());
    for k in 2..9 {
        let row = format!("WHERE k = {k} AND c = 1");
        let insert = format!("INSERT INTO u (k, c, v) VALUES ({k}, 1, 1) IF NOT EXISTS ELSE ERROR");
        assert_eq!(refused(insert), unmet);
        assert_eq!(refused(format!("UPDATE u SET v = 1 {row} IF v = 1 ELSE ERROR")), unmet);
        assert_eq!(refused(format!("UPDATE u SET v = 1 {row} IF v = {k} ELSE ERROR")), duplicate);
        // The condition sees what the block has done to the row.
        let after = format!("UPDATE u SET w = 'x' {row} IF v = 1 ELSE ERROR");
        assert_eq!(refused(format!("UPDATE u SET v = 1 {row}; {after}")), duplicate);
    }
}
