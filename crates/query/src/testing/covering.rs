//! A read by a covering index gives what the same read gives of a table without the index, after each statement; and what
//! its hidden view has follows from the rows.

use super::checked::checked;
use super::memory::shared::Versions;
use super::{Database, rendered_rows};
use crate::engine::Checked;
use crate::kv::Kv;
use crate::session::Session;
use diorite_cql::protocol::client::{ClientRequest, ClientResponse, ClientRows, Parameters};
use diorite_cql::protocol::{CqlError, ErrorCode, Value};
use diorite_model::schema::{CoveringState, Table};
use proptest::prelude::*;

const COLUMNS: &str = "(k int, c int, s int static, v int, a text, b int, l list<int>, m map<int, int>, w text, \
                       PRIMARY KEY (k, c)) WITH transactions = {'enabled': true}";

/// The covering indexes of table `t`; table `u` has none.
const INDEXES: [&str; 4] = [
    "CREATE INDEX by_v ON t (v) INCLUDE (a, l, m)",
    // Several values in the key, in an order of their own.
    "CREATE INDEX by_ba ON t ((b), a, c) INCLUDE (v) WITH CLUSTERING ORDER BY (a DESC, c ASC)",
    "CREATE INDEX by_both ON t ((a, v), b) INCLUDE (w)",
    // Only columns of the table's key: the view has a row for each row. The table has a static column, so reads do not use
    // it; writes maintain it.
    "CREATE INDEX by_c ON t (c) INCLUDE (v, w)",
];

/// Reads of table `#`; most of them are of one tablet.
fn reads() -> Vec<String> {
    let mut reads = Vec::new();
    for x in ["0", "1", "2", "3", "null"] {
        for y in ["0", "2"] {
            let text = |value: &str| if value == "null" { "null".to_owned() } else { format!("'{value}'") };
            reads.extend([
                format!("SELECT k, c, v, a, l, m FROM # WHERE v = {x}"),
                format!("SELECT * FROM # WHERE v = {x}"),
                format!("SELECT k, a FROM # WHERE v IN ({x}, {y})"),
                format!("SELECT c, l FROM # WHERE v = {x} AND k = {y} ALLOW FILTERING"),
                format!("SELECT c, k FROM # WHERE v = {x} AND c >= {y} ALLOW FILTERING"),
                format!("SELECT count(*), max(k), min(a) FROM # WHERE v = {x}"),
                format!("SELECT k, v, w FROM # WHERE v = {x}"),
                format!("SELECT k, s FROM # WHERE v = {x}"),
                format!("SELECT k, c, v FROM # WHERE b = {x} AND a = {}", text(y)),
                format!("SELECT k, c, v FROM # WHERE b = {x} AND a = {} AND c = {y}", text(y)),
                format!("SELECT k, c, v FROM # WHERE b = {x}"),
                format!("SELECT k, c, a FROM # WHERE b = {x} AND a > {} ALLOW FILTERING", text(y)),
                format!("SELECT k, c, w FROM # WHERE a = {} AND v = {y} AND b = {x} ALLOW FILTERING", text(x)),
                format!("SELECT k, c, w FROM # WHERE a = {} AND v IN (0, 1, {y}) AND b >= 1 ALLOW FILTERING", text(x)),
                format!("SELECT JSON k, c, m FROM # WHERE v = {x} AND m[1] = {y} ALLOW FILTERING"),
                format!("SELECT k, writetime(a) > 0 FROM # WHERE v = {x}"),
                format!("SELECT k, token(k) FROM # WHERE v = {x}"),
                format!("SELECT k, v FROM # WHERE c = {x}"),
                format!("SELECT DISTINCT k FROM # WHERE s = {x} ALLOW FILTERING"),
            ]);
        }
    }
    // The empty text is no partition key.
    reads.extend(["SELECT k, v FROM # WHERE a = '' AND b = 1 ALLOW FILTERING".to_owned()]);
    reads
}

/// One statement about table `#`.
fn statement() -> impl Strategy<Value = String> {
    let value = || prop_oneof![4 => (0..4).prop_map(|x: i32| x.to_string()), 1 => Just("null".to_owned())];
    let ttl = prop_oneof![3 => Just(String::new()), 1 => (1..6).prop_map(|s: i32| format!(" USING TTL {s}"))];
    ((0..3, 0..3), (value(), value(), value()), ttl, 0u8..23).prop_map(|((k, c), (x, y, z), ttl, kind)| {
        let row = format!("WHERE k = {k} AND c = {c}");
        let text = |value: &str| if value == "null" { "null".to_owned() } else { format!("'{value}'") };
        let a = text(&y);
        match kind {
            0..=2 => format!("INSERT INTO # (k, c, v, a, b, w) VALUES ({k}, {c}, {x}, {a}, {z}, 'w'){ttl}"),
            3 => format!("INSERT INTO # (k, c, v) VALUES ({k}, {c}, {x}){ttl}"),
            4 => format!("INSERT INTO # (k, c) VALUES ({k}, {c}){ttl}"),
            5 | 6 => format!("UPDATE #{ttl} SET v = {x} {row}"),
            7 => format!("UPDATE #{ttl} SET a = {a}, b = {z} {row}"),
            8 => format!("UPDATE #{ttl} SET w = 'w{k}' {row}"),
            9 => format!("UPDATE #{ttl} SET l = l + [{k}, {c}] {row}"),
            10 => format!("UPDATE #{ttl} SET l = [{c}] {row}"),
            11 => format!("UPDATE #{ttl} SET m[{c}] = {k} {row}"),
            12 => format!("DELETE m[{k}], l FROM # {row}"),
            13 => format!("DELETE FROM # {row}"),
            14 => format!("DELETE v, a FROM # {row}"),
            15 => format!("DELETE FROM # WHERE k = {k} AND c >= {c}"),
            16 => format!("DELETE FROM # WHERE k = {k}"),
            17 => format!("INSERT INTO # (k, c, v, a) VALUES ({k}, {c}, {x}, {a}) IF NOT EXISTS"),
            18 => format!("UPDATE # SET v = {x} {row} IF b = {z}"),
            19 => format!("UPDATE # SET s = {c} WHERE k = {k}"),
            20 => format!("UPDATE # SET v = v + 1 {row}"),
            21 => format!("UPDATE # SET a = '' {row}"),
            _ => format!("DELETE b FROM # {row}"),
        }
    })
}

#[derive(Debug, Clone)]
enum Step {
    Request(String),
    Pass(u8),
}

/// Statements that take effect together, or time.
fn step() -> impl Strategy<Value = Step> {
    let block = || {
        let plain = statement().prop_filter("no condition", |one| !one.contains(" IF "));
        proptest::collection::vec(plain, 1..4)
    };
    prop_oneof![
        6 => statement().prop_map(Step::Request),
        1 => block().prop_map(|all| {
            let all = all.iter().map(|one| one.replace("v = v + 1", "v = 1")).collect::<Vec<_>>();
            Step::Request(format!("BEGIN BATCH {}; APPLY BATCH", all.join("; ")))
        }),
        1 => block().prop_map(|all| Step::Request(format!("BEGIN TRANSACTION {}; END TRANSACTION", all.join("; ")))),
        1 => (1u8..4).prop_map(Step::Pass),
    ]
}

fn carry_out(database: &Database, step: &Step) {
    match step {
        Step::Request(request) => {
            // A list that is null has no first element, and what is null cannot be added to: in both tables alike.
            let answers = ["t", "u"].map(|table| {
                let answer = database.run(&request.replace('#', table));
                answer.map_err(|error| error.message.replace(table, "#")).map(|rows| match rows {
                    ClientResponse::Rows(rows) => rendered_rows(&rows),
                    _ => Vec::new(),
                })
            });
            assert_eq!(answers[0], answers[1], "{request}");
        }
        Step::Pass(seconds) => database.kv.pass(*seconds),
    }
}

/// What prepared reads give: on the short path they are compared with the general one.
fn check_prepared(database: &Database, after: &str) {
    for (read, count) in [
        ("SELECT k, c, v, a, l, m FROM # WHERE v = ?", 1),
        ("SELECT c, k, v FROM # WHERE b = ? AND a = ?", 2),
        ("SELECT k, w FROM # WHERE a = ? AND v = ? AND b = ? ALLOW FILTERING", 3),
    ] {
        let prepared = ["t", "u"].map(|table| database.prepare(&read.replace('#', table)).unwrap());
        for x in 0i32..4 {
            let (number, text) = (x.to_be_bytes(), x.to_string());
            let (number, text) = (Value::Set(&number), Value::Set(text.as_bytes()));
            let values = match count {
                1 => vec![number],
                2 => vec![number, text],
                _ => vec![text, number, number],
            };
            let shown = prepared.each_ref().map(|prepared| match database.execute(prepared, &values) {
                Ok(ClientResponse::Rows(rows)) => {
                    let mut shown = rendered_rows(&rows);
                    shown.sort();
                    shown
                }
                other => panic!("{read}: {other:?}"),
            });
            assert_eq!(shown[0], shown[1], "{read} of {x} after {after}");
        }
    }
}

/// The rows of a read, or its error, without the name of the table.
fn answer(database: &Database, read: &str, table: &str) -> Result<Vec<String>, String> {
    match database.run(&read.replace('#', table)) {
        Ok(ClientResponse::Rows(rows)) => {
            let mut shown = rendered_rows(&rows);
            shown.sort();
            Ok(shown)
        }
        Ok(other) => panic!("{read}: {other:?}"),
        Err(error) => Err(error.message.replace(&format!("ks.{table}"), "ks.#")),
    }
}

fn check(database: &Database, reads: &[String], after: &str) {
    for read in reads {
        assert_eq!(answer(database, read, "t"), answer(database, read, "u"), "{read} after {after}");
    }
    check_prepared(database, after);
    for name in ["by_v", "by_ba", "by_both", "by_c"] {
        let [of_rows, of_view] = checked(database, "t", &format!("{name}.covering"));
        let is_right = |found: &Checked| *found == Checked::Right;
        assert!(of_rows.iter().all(is_right), "{name} after {after}: {of_rows:?}");
        assert!(of_view.iter().all(is_right), "{name} after {after}: {of_view:?}");
    }
}

fn table(database: &Database, name: &str) -> Table {
    Table::clone(&database.kv.catalog().table("ks", name).unwrap().table)
}

fn states(database: &Database, name: &str) -> Vec<CoveringState> {
    let table = table(database, name);
    table.indexes.iter().filter_map(|index| Some(index.covering.as_ref()?.state.clone())).collect()
}

/// A database with table `u`, which has the same local indexes, and table `t`.
fn with_tables() -> Database {
    let database = Database::with_keyspace();
    database.run(&format!("CREATE TABLE t {COLUMNS}")).unwrap();
    database.run(&format!("CREATE TABLE u {COLUMNS}")).unwrap();
    for index in INDEXES {
        let (head, _) = index.split_once(" INCLUDE").unwrap();
        database.run(&head.replace("INDEX by", "INDEX u_by").replace(" ON t ", " ON u ")).unwrap();
    }
    database
}

fn create_indexes(database: &Database) {
    for index in INDEXES {
        database.run(index).unwrap();
    }
}

fn plan(database: &Database, read: &str) -> String {
    database.rows(&format!("EXPLAIN {}", read.replace('#', "t"))).join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn reads_by_covering_indexes_give_what_the_table_has(
        before in proptest::collection::vec(step(), 0..8),
        after in proptest::collection::vec(step(), 1..20),
    ) {
        let database = with_tables();
        before.iter().for_each(|step| carry_out(&database, step));
        create_indexes(&database);
        prop_assert_eq!(states(&database, "t"), vec![CoveringState::Ready; 4]);
        let reads = reads();
        check(&database, &reads, "creation");
        for step in &after {
            carry_out(&database, step);
            check(&database, &reads, &format!("{step:?}"));
        }
        carry_out(&database, &Step::Request("TRUNCATE #".to_owned()));
        check(&database, &reads, "TRUNCATE");
        carry_out(&database, &Step::Request("INSERT INTO # (k, c, v, a, b) VALUES (1, 1, 1, '2', 0)".to_owned()));
        check(&database, &reads, "the first row after TRUNCATE");
    }
}

#[test]
fn which_reads_use_a_covering_index() {
    let database = with_tables();
    create_indexes(&database);
    let used = |read: &str| {
        let plan = plan(&database, read);
        plan.contains("Index Only Scan")
            .then(|| plan.split("ks.").nth(1).unwrap().split(' ').next().unwrap().to_owned())
    };
    for (read, index) in [
        ("SELECT k, c, v, a, l, m FROM # WHERE v = 1", Some("by_v")),
        ("SELECT k FROM # WHERE v = ?", Some("by_v")),
        ("SELECT k, c FROM # WHERE v IN (1, 2)", Some("by_v")),
        ("SELECT count(*) FROM # WHERE v = 1", Some("by_v")),
        ("SELECT k, c FROM # WHERE v = 1 AND k = 2 ALLOW FILTERING", None),
        ("SELECT k, c, w FROM # WHERE v = 1", None),
        ("SELECT * FROM # WHERE v = 1", None),
        ("SELECT k, s FROM # WHERE v = 1", None),
        ("SELECT k, writetime(a) FROM # WHERE v = 1", None),
        ("SELECT k, ttl(a) FROM # WHERE v = 1", None),
        ("SELECT k, token(k) FROM # WHERE v = 1", None),
        ("SELECT k FROM # WHERE v = 1 PER PARTITION LIMIT 1", None),
        ("SELECT k FROM # WHERE v > 1 ALLOW FILTERING", None),
        // Rows without a value in `a` are not in the view.
        ("SELECT k FROM # WHERE b = 1", None),
        ("SELECT k, c, v FROM # WHERE b = 1 AND a = 'x'", Some("by_ba")),
        ("SELECT k, c, v FROM # WHERE b = 1 AND a >= 'x' ALLOW FILTERING", Some("by_ba")),
        ("SELECT k, w FROM # WHERE a = 'x' AND v = 1 AND b = 1 ALLOW FILTERING", Some("by_both")),
        // A partition that only has a static column is shown, and is in no view.
        ("SELECT k, v FROM # WHERE c = 1", None),
    ] {
        assert_eq!(used(read).as_deref(), index, "{read}: {}", plan(&database, read));
    }
    database
        .run("CREATE TABLE p (k int, c int, v int, PRIMARY KEY (k, c)) WITH transactions = {'enabled': true}")
        .unwrap();
    database.run("CREATE INDEX p_by_c ON p (c) INCLUDE (v)").unwrap();
    let explained = database.rows("EXPLAIN SELECT * FROM p WHERE c = 1").join("\n");
    assert!(explained.contains("Index Only Scan using ks.p_by_c on ks.p"), "{explained}");
    assert!(explained.contains("Tablets: 1 of"), "{explained}");
}

/// A table with rows `k` = 0..24 and `v` = `k` modulo 2.
fn filled() -> Database {
    let database = Database::with_keyspace();
    let create = "CREATE TABLE t (k int PRIMARY KEY, v int, a text, w text) WITH transactions = {'enabled': true}";
    database.run(create).unwrap();
    for k in 0..24 {
        database.run(&format!("INSERT INTO t (k, v, a, w) VALUES ({k}, {}, 'a{k}', 'w')", k % 2)).unwrap();
    }
    database
}

const CREATE: &str = "CREATE INDEX by_v ON t (v) INCLUDE (a)";
const READ: &str = "SELECT k, a FROM t WHERE v = 1";

fn page(database: &Database, statement: &str, state: Option<&[u8]>) -> Result<ClientRows, CqlError> {
    let parameters = Parameters { page_size: Some(5), paging_state: state, ..Parameters::default() };
    match database.send(&ClientRequest::Query { statement, parameters })? {
        ClientResponse::Rows(rows) => Ok(rows),
        other => panic!("{statement}: {other:?}"),
    }
}

/// The rows of this page and of those that follow.
fn rest(database: &Database, mut rows: ClientRows) -> Result<Vec<String>, CqlError> {
    let mut all = rendered_rows(&rows);
    while let Some(state) = rows.metadata.paging_state.take() {
        rows = page(database, READ, Some(&state))?;
        all.extend(rendered_rows(&rows));
    }
    all.sort();
    Ok(all)
}

fn sorted(database: &Database, read: &str) -> Vec<String> {
    let mut rows = database.rows(read);
    rows.sort();
    rows
}

fn is_index_only(database: &Database, read: &str) -> bool {
    plan(database, read).contains("Index Only Scan")
}

#[test]
fn an_index_is_read_once_all_rows_are_in_it() {
    let database = filled();
    let expected = sorted(&database, "SELECT k, a FROM t WHERE v = 1 ALLOW FILTERING");
    database.kv.leave_indexes(true);
    let ClientResponse::SchemaChange(_) = database.run(CREATE).unwrap() else { panic!("a change") };
    assert_eq!(states(&database, "t"), [CoveringState::Building]);
    assert!(!is_index_only(&database, READ));
    assert_eq!(sorted(&database, &format!("{READ} ALLOW FILTERING")), expected);
    let other = database.prepare(READ).unwrap();
    database.kv.leave_indexes(false);
    database.run("SELECT * FROM t WHERE k = 1").unwrap();
    assert_eq!(states(&database, "t"), [CoveringState::Ready]);
    assert!(is_index_only(&database, READ));
    assert_eq!(sorted(&database, READ), expected);
    // A statement that was prepared before is planned again.
    let ClientResponse::Rows(rows) = database.execute(&other, &[]).unwrap() else { panic!("rows") };
    assert_eq!(rows.rows.len(), 12);
    // The answer does not depend on what the local index has.
    let before = database.rows(READ);
    database.run("DROP INDEX by_v").unwrap();
    assert_eq!(table(&database, "t").views, []);
    assert!(database.kv.catalog().tables().all(|entry| entry.table.index_of.is_none()));
    assert!(database.run(READ).is_err());
    assert_eq!(sorted(&database, &format!("{READ} ALLOW FILTERING")), expected);
    assert_eq!(before.len(), 12);
}

#[test]
fn a_page_goes_on_where_the_one_before_was_read() {
    let database = filled();
    let expected = sorted(&database, "SELECT k, a FROM t WHERE v = 1 ALLOW FILTERING");
    database.kv.leave_indexes(true);
    database.run(CREATE).unwrap();
    // Few rows are read one by one while the index is built.
    let of_table = page(&database, READ, None).unwrap();
    database.kv.leave_indexes(false);
    database.run("SELECT * FROM t WHERE k = 1").unwrap();
    assert!(is_index_only(&database, READ));
    let of_view = page(&database, READ, None).unwrap();
    assert_eq!(rest(&database, of_table.clone()).unwrap(), expected, "the table's page goes on in the table");
    assert_eq!(rest(&database, of_view.clone()).unwrap(), expected, "the view's page goes on in the view");
    let state = of_view.metadata.paging_state.clone().unwrap();
    for (other, code) in [
        ("SELECT k, a FROM t WHERE v = 0", ErrorCode::ProtocolError),
        ("SELECT k, w FROM t WHERE v = 1", ErrorCode::Invalid),
        ("SELECT * FROM t", ErrorCode::Invalid),
    ] {
        let refused = page(&database, other, Some(&state)).unwrap_err();
        assert_eq!(refused.code(), code, "{other}");
    }
    database.run("DROP INDEX by_v").unwrap();
    let refused = page(&database, &format!("{READ} ALLOW FILTERING"), Some(&state)).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Invalid);
    assert!(refused.message.contains("an index that is not used now"), "{}", refused.message);
    database.run(CREATE).unwrap();
    assert!(is_index_only(&database, READ));
    let refused = page(&database, READ, Some(&state)).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Invalid, "the view of another index");
    let state = of_table.metadata.paging_state.clone().unwrap();
    assert!(page(&database, READ, Some(&state)).is_ok());
}

#[test]
fn values_that_no_key_has_are_looked_for_in_the_table() {
    let database = filled();
    database.run("CREATE INDEX by_a ON t (a) INCLUDE (v)").unwrap();
    database.run("INSERT INTO t (k, a, v) VALUES (100, '', 7)").unwrap();
    assert!(!is_index_only(&database, "SELECT k, v FROM t WHERE a = ''"));
    assert_eq!(database.rows("SELECT k, v FROM t WHERE a = ''"), ["k=100 v=7"]);
    assert_eq!(
        sorted(&database, "SELECT k, v FROM t WHERE a IN ('', 'a1', 'a2')"),
        ["k=1 v=1", "k=100 v=7", "k=2 v=0"]
    );
    let prepared = database.prepare("SELECT k, v FROM t WHERE a = ?").unwrap();
    assert_eq!(prepared.markers.partition_key_indexes, [0]);
    assert_eq!(prepared.result.columns[0].table, "t");
    let long = "x".repeat(70_000);
    for (value, count) in [("", 1), ("a3", 1), ("none", 0), (long.as_str(), 0)] {
        let ClientResponse::Rows(rows) = database.execute(&prepared, &[Value::Set(value.as_bytes())]).unwrap() else {
            panic!("rows")
        };
        assert_eq!((rows.rows.len(), rows.metadata.columns[0].table.as_str()), (count, "t"));
    }
    let refused = |value| database.execute(&prepared, &[value]).map(|_| ()).unwrap_err().message.into_owned();
    let of_u = Database::with_keyspace();
    of_u.run("CREATE TABLE t (k int PRIMARY KEY, v int, a text) WITH transactions = {'enabled': true}").unwrap();
    of_u.run("CREATE INDEX ON t (a)").unwrap();
    let plain = of_u.prepare("SELECT k, v FROM t WHERE a = ?").unwrap();
    for value in [Value::Null, Value::Unset] {
        let expected = of_u.execute(&plain, &[value]).map(|_| ()).unwrap_err().message.into_owned();
        assert_eq!(refused(value), expected);
    }
    // What would be too long for the key of the view is refused.
    let write = database.run(&format!("INSERT INTO t (k, a) VALUES (200, '{long}')")).unwrap_err();
    assert!(write.message.contains("in the key of the covering index by_a"), "{}", write.message);
}

#[test]
fn an_index_that_cannot_cover_a_row_stays_local() {
    let database = filled();
    database.run(&format!("INSERT INTO t (k, a, v) VALUES (200, '{}', 9)", "x".repeat(70_000))).unwrap();
    database.run("CREATE INDEX by_a ON t (a) INCLUDE (v)").unwrap();
    let [CoveringState::Failed(why)] = &states(&database, "t")[..] else { panic!("{:?}", states(&database, "t")) };
    assert!(why.starts_with("the row (200): ") && why.contains("covering index by_a"), "{why}");
    assert_eq!(table(&database, "t").views, []);
    assert!(!is_index_only(&database, "SELECT k, v FROM t WHERE a = 'a3'"));
    assert_eq!(database.rows("SELECT k, v FROM t WHERE a = 'a3'"), ["k=3 v=1"]);
    database.run(&format!("INSERT INTO t (k, a) VALUES (201, '{}')", "x".repeat(70_000))).unwrap();
    database.run("DROP INDEX by_a").unwrap();
}

#[test]
fn a_failure_that_a_node_records_before_the_statement_sees_it_is_answered_at_once() {
    for accesses in 0..6 {
        let database = filled();
        database.run(&format!("INSERT INTO t (k, a, v) VALUES (200, '{}', 9)", "x".repeat(70_000))).unwrap();
        let node = database.another();
        drop(database.kv.set_meanwhile(Some((accesses, Box::new(move || node.compare_rows())))));
        let (statement, parameters) = ("CREATE INDEX by_a ON t (a) INCLUDE (v)", Parameters::default());
        let began_ns = database.kv.monotonic_ns();
        let reply = database.reply(&ClientRequest::Query { statement, parameters }).unwrap();
        assert!(database.kv.set_meanwhile(None).is_none(), "{accesses} accesses");
        let took_ms = (database.kv.monotonic_ns() - began_ns) / 1_000_000;
        assert!(took_ms < 1_000, "{took_ms} ms after {accesses} accesses");
        let says_why =
            |warning: &String| warning.contains("the index by_a does not cover its columns: the row (200): ");
        assert!(reply.warnings.iter().any(says_why), "{:?}", reply.warnings);
    }
}

#[test]
fn results_are_those_of_the_table() {
    let database = Database::with_keyspace();
    for statement in [
        "CREATE TYPE u (x int)",
        "CREATE TABLE t (k int, z int, b int, a frozen<u>, v text, PRIMARY KEY (k, z)) \
         WITH transactions = {'enabled': true}",
        "CREATE INDEX by_v ON t (v, z) COVERING (b, a)",
        "INSERT INTO t (k, z, b, a, v) VALUES (1, 2, 3, {x: 4}, 'x')",
    ] {
        database.run(statement).unwrap();
    }
    assert!(is_index_only(&database, "SELECT * FROM t WHERE v = 'x'"));
    assert_eq!(database.rows("SELECT * FROM t WHERE v = 'x'"), ["k=1 z=2 a={x: 4} b=3 v='x'"]);
    let json = database.rows("SELECT JSON * FROM t WHERE v = 'x'");
    assert_eq!(json, [r#"[json]='{"k": 1, "z": 2, "a": {"x": 4}, "b": 3, "v": "x"}'"#]);
    database.run("ALTER TYPE u ADD y int").unwrap();
    assert_eq!(database.rows("SELECT a FROM t WHERE v = 'x'"), ["a={x: 4, y: null}"]);
    database.run("UPDATE t SET a = {x: 5, y: 6} WHERE k = 1 AND z = 2").unwrap();
    assert_eq!(database.rows("SELECT a FROM t WHERE v = 'x'"), ["a={x: 5, y: 6}"]);
    database.run("ALTER TABLE t RENAME k TO key").unwrap();
    assert_eq!(database.rows("SELECT key, b FROM t WHERE v = 'x' AND z = 2 ALLOW FILTERING"), ["key=1 b=3"]);
    database.run("ALTER TABLE t ADD e int").unwrap();
    assert!(!is_index_only(&database, "SELECT * FROM t WHERE v = 'x'"));
    assert!(is_index_only(&database, "SELECT key, a FROM t WHERE v = 'x'"));
    assert_eq!(database.rows("SELECT * FROM t WHERE v = 'x'"), ["key=1 z=2 a={x: 5, y: 6} b=3 e=null v='x'"]);
    assert_eq!(database.rows("SELECT key FROM t WHERE v = 'x' LIMIT 1 OFFSET 1"), [""; 0]);
    for name in ["t.by_v.covering", "by_v.covering"] {
        assert!(database.run(&format!("SELECT * FROM \"{name}\"")).is_err());
        assert!(database.run(&format!("DROP MATERIALIZED VIEW \"{name}\"")).is_err());
        assert!(database.run(&format!("DROP TABLE \"{name}\"")).is_err());
    }
    assert_eq!(database.rows("SELECT view_name FROM system_schema.views"), [""; 0]);
    let tables = database.rows("SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'ks'");
    assert_eq!(tables, ["table_name='t'"]);
}

#[test]
fn readers_need_permission_on_the_table_alone() {
    let database = filled();
    database.run(CREATE).unwrap();
    database.run("CREATE ROLE ann WITH LOGIN = true").unwrap();
    database.run("GRANT SELECT ON ks.t TO ann").unwrap();
    database.run("CREATE ROLE bob WITH LOGIN = true").unwrap();
    let read = "SELECT k, a FROM ks.t WHERE v = 1";
    for (role, may) in [("ann", true), ("bob", false)] {
        let guarded = Database { session: Session::guarded(), ..database.another() };
        guarded.session.log_in(role);
        assert_eq!(guarded.run(read).is_ok(), may, "{role}");
    }
}

#[test]
fn a_unique_index_may_be_covering() {
    let database = filled();
    database.run("CREATE UNIQUE INDEX by_a ON t (a) INCLUDE (v)").unwrap();
    assert_eq!(states(&database, "t"), [CoveringState::Ready]);
    assert!(is_index_only(&database, "SELECT k, v FROM t WHERE a = 'a5'"));
    let refused = database.run("INSERT INTO t (k, a) VALUES (99, 'a5')").unwrap_err();
    assert!(refused.message.contains("Duplicate value"), "{}", refused.message);
    database.run("UPDATE t SET a = 'b' WHERE k = 5").unwrap();
    assert_eq!(database.rows("SELECT k, v FROM t WHERE a = 'b'"), ["k=5 v=1"]);
    assert_eq!(database.rows("SELECT k, v FROM t WHERE a = 'a5'"), [""; 0]);
    // One that fails is gone, with its view.
    let failed = database.run("CREATE UNIQUE INDEX by_w ON t (w) INCLUDE (v)");
    let table = table(&database, "t");
    assert!(failed.is_err() || table.index("by_w").is_some());
}

#[test]
fn a_view_that_was_removed_while_it_is_read_leaves_the_read_to_the_table() {
    let mut met = 0;
    for accesses in 0..8 {
        let database = filled();
        database.run(CREATE).unwrap();
        let other = database.another();
        let happens = move || drop(other.run("DROP INDEX ks.by_v"));
        drop(database.kv.set_meanwhile(Some((accesses, Box::new(happens)))));
        let read = database.run(&format!("{READ} ALLOW FILTERING"));
        met += usize::from(database.kv.set_meanwhile(None).is_none());
        let ClientResponse::Rows(rows) = read.unwrap() else { panic!("rows") };
        assert_eq!(rows.rows.len(), 12, "after {accesses} accesses");
    }
    assert!(met > 0, "{met}");
}

#[test]
fn a_prepared_read_of_few_rows_is_answered_without_waiting() {
    let database = filled();
    database.run(CREATE).unwrap();
    let by_number = database.prepare("SELECT a, k FROM t WHERE v = ?").unwrap();
    database.kv.set_versions(Versions::Known);
    let now = |prepared, value: i32| {
        let value = value.to_be_bytes();
        let values = [Value::Set(&value)];
        let request = database.execute_request(prepared, &values, false);
        database.execute_now(&request).map(|now| match now {
            Ok(ClientResponse::Rows(rows)) => rendered_rows(&rows).len(),
            other => panic!("{other:?}"),
        })
    };
    // The first request finds another version of the catalog, or permissions that were not checked.
    now(&by_number, 1);
    database.run("INSERT INTO t (k, v, a) VALUES (100, 5, 'x')").unwrap();
    database.run("INSERT INTO t (k, v, a) VALUES (101, 5, 'y')").unwrap();
    // What was prepared by the writes has ended.
    assert_eq!(database.rows("SELECT k FROM t WHERE v = 5").len(), 2);
    assert_eq!((now(&by_number, 5), now(&by_number, 6)), (Some(2), Some(0)));
    database.kv.set_versions(Versions::Unknown);
    assert_eq!(now(&by_number, 5), None, "it may have changed while it was read");
    database.kv.set_versions(Versions::Known);
    // Tablets in memory give three entries at a time.
    assert_eq!(now(&by_number, 1), None, "many rows take the general path");
    database.run("DROP INDEX by_v").unwrap();
    database.run("CREATE INDEX ON t (v)").unwrap();
    assert_eq!(now(&by_number, 1), None, "the index does not have all columns");
    assert_eq!(sorted(&database, "SELECT a, k FROM t WHERE v = 1").len(), 12);
}

#[test]
fn the_choice_between_indexes_stays() {
    let database = filled();
    database.run("CREATE INDEX by_a ON t (a)").unwrap();
    database.run(CREATE).unwrap();
    let read = "SELECT k FROM t WHERE v = 1 AND a = 'a1' ALLOW FILTERING";
    assert!(!is_index_only(&database, read), "the first index finds fewer rows than the view has");
    assert!(is_index_only(&database, READ));
    let found = database.rows(read);
    database.run("DROP INDEX by_a").unwrap();
    assert!(is_index_only(&database, read));
    assert_eq!(database.rows(read), found);
}
