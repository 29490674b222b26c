//! Materialized views.

use super::*;
use diorite_base::NodeId;
use diorite_model::schema::ColumnId;

/// A database whose level has views.
pub(super) fn raised() -> Database {
    let raise = Command::RaiseLevel { level: Level::RECORDED, members: vec![NodeId(1)] };
    let (catalog, outcome) = founded(1, &["datacenter1"]).apply(&raise);
    assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    Database::over(catalog)
}

const TABLE: &str = "CREATE TABLE ks.t (k int, c int, s int static, a int, b text, d int, PRIMARY KEY (k, c)) \
                     WITH transactions = {'enabled': true}";

fn made(statements: &[&str]) -> Database {
    let mut database = raised();
    for statement in ["CREATE KEYSPACE ks", TABLE].iter().chain(statements) {
        database.run(statement).unwrap_or_else(|error| panic!("{statement}: {}", error.message));
    }
    database
}

fn names(database: &Database, table: &str) -> Vec<String> {
    let table = &database.catalog.table("ks", table).unwrap().table;
    table.columns.iter().map(|column| column.name.clone()).collect()
}

#[test]
fn a_view_has_the_columns_of_its_table_with_their_ids() {
    let database = made(&["CREATE MATERIALIZED VIEW ks.v AS SELECT d, k, c, b, a FROM ks.t \
         WHERE a IS NOT NULL AND k IS NOT NULL AND c IS NOT NULL PRIMARY KEY (a, c, k)"]);
    let (base, view) =
        (&database.catalog.table("ks", "t").unwrap().table, &database.catalog.table("ks", "v").unwrap().table);
    assert_eq!(names(&database, "v"), ["a", "c", "k", "b", "d"]);
    for column in &view.columns {
        let of = base.column(&column.name).unwrap();
        assert_eq!((of.id, &of.data_type), (column.id, &column.data_type));
    }
    assert_eq!(view.view.as_ref().unwrap().base, base.id);
}

#[test]
fn which_columns_decide_what_a_view_has() {
    let decide = |statement: &str| -> (Vec<ColumnId>, bool) {
        let database = made(&[statement]);
        let base = &database.catalog.table("ks", "t").unwrap().table;
        (base.views[0].columns.clone(), base.views[0].follows_rows)
    };
    let all = "k IS NOT NULL AND c IS NOT NULL";
    let create = |columns: &str, further: &str, key: &str| {
        format!("CREATE MATERIALIZED VIEW ks.v AS SELECT {columns} FROM ks.t WHERE {all}{further} PRIMARY KEY ({key})")
    };
    // k 0, c 1, s 2, a 3, b 4, d 5
    assert_eq!(decide(&create("k, c", "", "c, k")), (vec![], true));
    assert_eq!(decide(&create("d, k, b, c", "", "c, k")), (vec![4, 5], true));
    assert_eq!(decide(&create("k, a, c", " AND a IS NOT NULL", "a, k, c")), (vec![3], false));
    assert_eq!(decide(&create("k, c", " AND d > 5 AND b != 'x'", "c, k")), (vec![4, 5], true));
    assert_eq!(decide(&create("k, c, d", " AND d > 5 AND k = 1", "d, k, c")), (vec![5], false));
}

#[test]
fn described_views_make_themselves_again() {
    let mut original = made(&[
        "CREATE TABLE ks.\"Base\" (\"K\" int PRIMARY KEY, a int, \"order\" text) WITH transactions = {'enabled': true}",
        "CREATE MATERIALIZED VIEW ks.\"View\" AS SELECT * FROM ks.\"Base\" WHERE \"order\" = 'it''s' AND \"K\" IS NOT \
         NULL PRIMARY KEY (\"order\", \"K\") WITH CLUSTERING ORDER BY (\"K\" DESC) AND comment = 'x' AND tablets = 3",
        "CREATE MATERIALIZED VIEW ks.later AS SELECT * FROM ks.\"Base\" WHERE \"K\" IS NOT NULL AND a > -3 \
         PRIMARY KEY (\"K\")",
        "CREATE MATERIALIZED VIEW ks.whole AS SELECT a, \"K\" FROM ks.\"Base\" WHERE \"K\" IS NOT NULL AND a > 1 AND a \
         <= 9 PRIMARY KEY ((a, \"K\"))",
        "ALTER TABLE ks.\"Base\" RENAME \"K\" TO key",
        "ALTER TABLE ks.\"Base\" ADD e int",
    ]);
    assert_eq!(names(&original, "View"), ["order", "key", "a", "e"]);
    assert_eq!(names(&original, "later"), ["key", "a", "e", "order"]);
    let Response::Rows(rows) = original.run("DESCRIBE KEYSPACE ks WITH INTERNALS").unwrap() else { panic!("rows") };
    let mut again = raised();
    for row in texts(&rows) {
        again.run(&row[3]).unwrap_or_else(|error| panic!("{}: {}", row[3], error.message));
    }
    let Response::Rows(rows_again) = again.run("DESCRIBE KEYSPACE ks WITH INTERNALS").unwrap() else { panic!("rows") };
    assert_eq!(texts(&rows), texts(&rows_again));
    for name in ["View", "later", "whole"] {
        assert_eq!(names(&again, name), names(&original, name));
    }
    let schema = describe::table_schema(&original.catalog, "ks", "Base").unwrap();
    assert!(schema.starts_with("CREATE TABLE") && schema.matches("CREATE MATERIALIZED VIEW").count() == 3, "{schema}");
    let schema = describe::table_schema(&original.catalog, "ks", "later").unwrap();
    assert!(schema.starts_with("CREATE MATERIALIZED VIEW ks.later"), "{schema}");
}

#[test]
fn a_table_has_a_limited_number_of_views() {
    let mut database = made(&[]);
    let mut create = |name: usize| {
        let text = "AS SELECT k, c FROM ks.t WHERE k IS NOT NULL AND c IS NOT NULL PRIMARY KEY (c, k) WITH tablets = 1";
        database.run(&format!("CREATE MATERIALIZED VIEW ks.v{name} {text}"))
    };
    (0..16).for_each(|name| drop(create(name).unwrap()));
    assert_eq!(create(16).unwrap_err().message, "table t has 16 materialized views, which is the maximum");
}

#[test]
fn earlier_levels_have_no_views() {
    let mut database = Database::new();
    database.run("CREATE KEYSPACE ks").unwrap();
    database.run(TABLE).unwrap();
    let create = "CREATE MATERIALIZED VIEW ks.v AS SELECT k, c FROM ks.t WHERE k IS NOT NULL AND c IS NOT NULL \
                  PRIMARY KEY (c, k)";
    let message = database.run(create).unwrap_err().message;
    assert_eq!(message, "materialized views need all nodes to run this release: see 'diorite admin upgrade'");
}
