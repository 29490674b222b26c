//! Pages of any size together give the same as one large page.

use super::{Database, rendered_rows};
use diorite_cql::protocol::client::{ClientRequest, ClientResponse, Parameters};
use diorite_cql::protocol::{CqlError, ErrorCode};
use std::sync::atomic::Ordering;

fn filled() -> Database {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int, c int, s int STATIC, v int, PRIMARY KEY (k, c))").unwrap();
    for k in 0..12 {
        if k % 3 == 0 {
            database.run(&format!("INSERT INTO t (k, s) VALUES ({k}, {})", k * 10)).unwrap();
        }
        for c in 0..k {
            database.run(&format!("INSERT INTO t (k, c, v) VALUES ({k}, {c}, {})", k * 100 + c)).unwrap();
        }
    }
    database.run("DELETE FROM t WHERE k = 5 AND c >= 2").unwrap();
    database
}

/// All pages of a statement, and how many there were.
fn pages(database: &Database, statement: &str, page_size: i32) -> Result<(Vec<String>, usize), CqlError> {
    let (mut all, mut count, mut state) = (Vec::new(), 0, None);
    loop {
        let parameters =
            Parameters { page_size: Some(page_size), paging_state: state.as_deref(), ..Parameters::default() };
        let response = database.send(&ClientRequest::Query { statement, parameters })?;
        let ClientResponse::Rows(rows) = response else { panic!("{statement}: {response:?}") };
        assert!(rows.rows.len() <= page_size as usize, "{statement}: a page of {}", rows.rows.len());
        all.extend(rendered_rows(&rows));
        count += 1;
        assert!(count < 1_000, "{statement}: paging does not end");
        state = rows.metadata.paging_state;
        if state.is_none() {
            return Ok((all, count));
        }
    }
}

#[test]
fn pages_of_any_size_give_the_same_rows() {
    let database = filled();
    let statements = [
        "SELECT * FROM t",
        "SELECT k, c FROM t LIMIT 17",
        "SELECT k, c FROM t PER PARTITION LIMIT 2",
        "SELECT k, c FROM t PER PARTITION LIMIT 3 LIMIT 11",
        "SELECT DISTINCT k, s FROM t",
        "SELECT * FROM t WHERE k = 9",
        "SELECT * FROM t WHERE k = 9 ORDER BY c DESC",
        "SELECT * FROM t WHERE k = 9 AND c > 2 ORDER BY c DESC LIMIT 5",
        "SELECT * FROM t WHERE k IN (3, 0, 7, 5) AND c IN (0, 1, 4)",
        "SELECT * FROM t WHERE k IN (3, 0, 7, 5)",
        "SELECT * FROM t WHERE k IN (3, 0, 7, 5) PER PARTITION LIMIT 2",
        "SELECT * FROM t WHERE v > 300 ALLOW FILTERING",
        "SELECT * FROM t WHERE token(k) > 0",
        "SELECT * FROM t WHERE k = 9 AND (c) IN ((1), (2), (8))",
        "SELECT COUNT(*), MAX(v) FROM t",
    ];
    for statement in statements {
        let (whole, _) = pages(&database, statement, 10_000).unwrap();
        for page_size in [1, 2, 3, 5, 7] {
            let (parts, _) = pages(&database, statement, page_size).unwrap();
            assert_eq!(parts, whole, "{statement} by {page_size}");
        }
    }
}

#[test]
fn partitions_without_rows_are_not_lost_between_pages() {
    let database = filled();
    let (all, _) = pages(&database, "SELECT k, c, s FROM t", 1).unwrap();
    assert!(all.contains(&"k=0 c=null s=0".to_owned()));
    // 0 + 1 + … + 11 rows, less three deleted, and one for the partition that has only a static column.
    assert_eq!(all.len(), 66 - 3 + 1);
}

#[test]
fn aggregates_are_not_paged() {
    let database = filled();
    assert_eq!(pages(&database, "SELECT COUNT(*) FROM t", 5).unwrap(), (vec!["count=64".to_owned()], 1));
}

#[test]
fn a_state_that_is_not_ours_is_refused() {
    let database = filled();
    let page = |state: &[u8], statement| {
        let parameters = Parameters { page_size: Some(5), paging_state: Some(state), ..Parameters::default() };
        database.send(&ClientRequest::Query { statement, parameters })
    };
    let parameters = Parameters { page_size: Some(5), ..Parameters::default() };
    let first = database.send(&ClientRequest::Query { statement: "SELECT * FROM t", parameters });
    let Ok(ClientResponse::Rows(first)) = first else { panic!("{first:?}") };
    let state = first.metadata.paging_state.unwrap();
    let code = |response: Result<ClientResponse, CqlError>| response.unwrap_err().code();
    assert_eq!(code(page(b"nonsense", "SELECT * FROM t")), ErrorCode::ProtocolError);
    assert_eq!(code(page(&state[1..], "SELECT * FROM t")), ErrorCode::ProtocolError);
    assert_eq!(code(page(&state, "SELECT * FROM t WHERE k = 1000")), ErrorCode::ProtocolError);
    database.run("CREATE TABLE other (k int PRIMARY KEY)").unwrap();
    assert_eq!(code(page(&state, "SELECT * FROM other")), ErrorCode::ProtocolError);
}

#[test]
fn sorting_several_partitions_cannot_be_paged() {
    let database = filled();
    let error = pages(&database, "SELECT * FROM t WHERE k IN (1, 2) ORDER BY c", 2).unwrap_err();
    assert!(error.message.contains("ORDER BY and a IN restriction"), "{error}");
    let (found, _) = pages(&database, "SELECT k, c FROM t WHERE k IN (3, 2) ORDER BY c LIMIT 3", 3).unwrap();
    assert_eq!(found, ["k=2 c=0", "k=3 c=0", "k=2 c=1"]);
}

#[test]
fn deleted_rows_are_removed_where_nothing_can_be_newer() {
    let database = filled();
    let before = database.kv.entry_count();
    database.run("DELETE FROM t WHERE k = 11").unwrap();
    assert_eq!(database.kv.entry_count(), before - 11 + 1, "eleven rows less, one header more");
    database.run("INSERT INTO t (k, c, v) VALUES (10, 50, 1) USING TIMESTAMP 99").unwrap();
    let before = database.kv.entry_count();
    database.run("DELETE FROM t WHERE k = 10 AND c < 3").unwrap();
    assert!(database.kv.entry_count() < before);
}

#[test]
fn a_row_behind_many_dead_ones_is_looked_for_in_ever_larger_steps() {
    let database = Database::with_keyspace();
    database.run("CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))").unwrap();
    let asked = |statement: &str| {
        database.kv.most_entries.store(0, Ordering::Relaxed);
        assert_eq!(pages(&database, statement, 100).unwrap(), (vec!["c=50".to_owned()], 1));
        database.kv.most_entries.load(Ordering::Relaxed)
    };
    let statements = ["SELECT c FROM t WHERE k = 1 LIMIT 1", "SELECT c FROM t WHERE k = 1 ORDER BY c DESC LIMIT 1"];
    database.run("INSERT INTO t (k, c, v) VALUES (1, 50, 7)").unwrap();
    statements.iter().for_each(|statement| assert_eq!(asked(statement), 4, "{statement}: it is the first"));
    for c in (0..50).chain(51..100) {
        database.run(&format!("INSERT INTO t (k, c, v) VALUES (1, {c}, 1) USING TTL 5")).unwrap();
    }
    database.kv.advance_s(10);
    statements.iter().for_each(|statement| assert_eq!(asked(statement), 8_192, "{statement}: all before it are dead"));
}
