//! Pages of one statement give each row once, also if tablets are split and merged between them.

use super::{Database, rendered_rows};
use crate::kv::Kv;
use diorite_cluster::catalog::Command;
use diorite_cql::protocol::CqlError;
use diorite_cql::protocol::client::{ClientRequest, ClientResponse, Parameters};
use diorite_model::schema::TabletRange;

const WITH_TRANSACTIONS: &str = " AND transactions = {'enabled': true}";

pub(super) const STATEMENTS: [&str; 19] = [
    "SELECT * FROM t",
    "SELECT k, c FROM t LIMIT 17",
    "SELECT k, c FROM t LIMIT 17 OFFSET 4",
    "SELECT k, c FROM t PER PARTITION LIMIT 2",
    "SELECT k, c FROM t PER PARTITION LIMIT 3 LIMIT 21",
    "SELECT DISTINCT k, s FROM t",
    "SELECT k, c FROM t WHERE token(k) > -4000000000000000000 AND token(k) <= 6000000000000000000",
    "SELECT k, c, s FROM t WHERE k IN (3, 0, 7, 9, 14, 19, 23, 22)",
    "SELECT k, c FROM t WHERE k IN (3, 0, 7, 9, 14, 19, 23, 22) PER PARTITION LIMIT 2 LIMIT 9",
    "SELECT k, c FROM t WHERE k IN (3, 0, 7, 9, 14, 19, 23, 22) AND c IN (0, 1, 3)",
    "SELECT k, c FROM t WHERE k = 19 ORDER BY c DESC",
    "SELECT k, c FROM t WHERE v > 300 ALLOW FILTERING",
    "SELECT k, c FROM t WHERE w = 1",
    "SELECT k, c FROM t WHERE w = 0 LIMIT 13",
    "SELECT k, count(*) FROM t WHERE w = 0 GROUP BY k",
    "SELECT k, count(*), max(v) FROM t GROUP BY k",
    "SELECT k, c, sum(v) FROM t GROUP BY k, c PER PARTITION LIMIT 2",
    "SELECT k, c, sum(v) FROM t GROUP BY k, c LIMIT 9",
    "SELECT k, count(*) FROM t WHERE k IN (3, 7, 14, 19, 23) GROUP BY k",
];

pub(super) fn filled(options: &str) -> Database {
    let database = Database::with_keyspace();
    let columns = "k int, c int, s int STATIC, v int, w int, PRIMARY KEY (k, c)";
    database.run(&format!("CREATE TABLE t ({columns}) WITH tablets = 6{options}")).unwrap();
    database.run("CREATE INDEX ON t (w) USING 'sai'").unwrap();
    for k in 0..24 {
        if k % 3 == 0 {
            database.run(&format!("INSERT INTO t (k, s) VALUES ({k}, {})", k * 10)).unwrap();
        }
        for c in 0..k % 5 {
            let values = format!("({k}, {c}, {}, {})", k * 100 + c, c % 2);
            database.run(&format!("INSERT INTO t (k, c, v, w) VALUES {values}")).unwrap();
        }
    }
    database
}

fn tablets_of(database: &Database) -> Vec<TabletRange> {
    database.kv.catalog().table("ks", "t").unwrap().tablets.clone()
}

/// Splits the tablet at this place of the table.
fn split(database: &Database, place: usize) {
    let tablets = tablets_of(database);
    let TabletRange { tablet, first_token } = tablets[place];
    let next = tablets.get(place + 1).map_or(i64::MAX, |next| next.first_token);
    let at = i64::midpoint(first_token, next);
    database.kv.command(&Command::BeginSplit { tablet, at, stays: false });
    database.kv.command(&Command::ServeSplit { tablet, index: 1, term: 1 });
    assert_eq!(tablets_of(database).len(), tablets.len() + 1);
}

/// Merges the tablet at this place into a neighbour.
fn merge(database: &Database, place: usize, into: usize) {
    let tablets = tablets_of(database);
    let (tablet, into) = (tablets[place].tablet, tablets[into].tablet);
    database.kv.command(&Command::BeginMerge { tablet, into });
    database.kv.command(&Command::ServeMerge { tablet, into, number: None });
    assert_eq!(tablets_of(database).len(), tablets.len() - 1);
}

/// What happens to six tablets after this page.
fn reshape(database: &Database, page: usize) {
    match page {
        1 => split(database, 1),
        2 => merge(database, 4, 3),
        3 => merge(database, 4, 5),
        4 => split(database, 0),
        6 => merge(database, 5, 4),
        8 => split(database, 4),
        _ => {}
    }
}

pub(super) fn page(
    database: &Database,
    statement: &str,
    page_size: i32,
    paging_state: Option<&[u8]>,
) -> Result<(Vec<String>, Option<Vec<u8>>), CqlError> {
    let parameters = Parameters { page_size: Some(page_size), paging_state, ..Parameters::default() };
    let response = database.send(&ClientRequest::Query { statement, parameters })?;
    let ClientResponse::Rows(rows) = response else { panic!("{statement}: {response:?}") };
    Ok((rendered_rows(&rows), rows.metadata.paging_state))
}

/// The rows of all pages, and how many there were; this is called with the number of each page after it.
fn pages(
    database: &Database,
    statement: &str,
    page_size: i32,
    after: impl Fn(&Database, usize),
) -> (Vec<String>, usize) {
    let (mut all, mut count, mut state) = (Vec::new(), 0, None);
    loop {
        let (rows, next) = page(database, statement, page_size, state.as_deref())
            .unwrap_or_else(|error| panic!("{statement}: page {count} by {page_size}: {error}"));
        all.extend(rows);
        count += 1;
        assert!(count < 1_000, "{statement}: paging does not end");
        state = next;
        if state.is_none() {
            return (all, count);
        }
        after(database, count);
    }
}

#[test]
fn tablets_that_are_split_and_merged_between_pages_change_no_row() {
    for options in ["", WITH_TRANSACTIONS] {
        for statement in STATEMENTS {
            let (whole, _) = pages(&filled(options), statement, 10_000, |_, _| {});
            assert!(whole.len() > 2, "{statement}: {whole:?}");
            for page_size in [1, 2, 5] {
                let (rows, _) = pages(&filled(options), statement, page_size, reshape);
                assert_eq!(rows, whole, "{statement} by {page_size}{options}");
            }
        }
    }
}

#[test]
fn a_tablet_that_takes_over_rows_after_it_was_pinned_is_pinned_again() {
    for (place, into) in [(2, 1), (1, 2), (1, 0)] {
        let database = filled(WITH_TRANSACTIONS);
        let (whole, _) = pages(&database, "SELECT k, c FROM t", 10_000, |_, _| {});
        let after = |database: &Database, page| {
            if page == 1 {
                merge(database, place, into)
            }
        };
        let (rows, _) = pages(&database, "SELECT k, c FROM t", 1, after);
        assert_eq!(rows, whole, "{place} into {into}");
    }
}

#[test]
fn a_page_that_ended_between_two_tablets_goes_on_where_they_are_one() {
    for (place, into) in [(256, 255), (255, 256)] {
        let database = Database::with_keyspace();
        let options = "tablets = 260 AND transactions = {'enabled': true}";
        database.run(&format!("CREATE TABLE t (k int PRIMARY KEY, v int) WITH {options}")).unwrap();
        for k in 0..1_000 {
            database.run(&format!("INSERT INTO t (k, v) VALUES ({k}, 1)")).unwrap();
        }
        let (whole, count) = pages(&database, "SELECT k FROM t", 10_000, |_, _| {});
        assert!(whole.len() == 1_000 && count == 2, "{} rows in {count} pages", whole.len());
        let after = |database: &Database, page| {
            if page == 1 {
                merge(database, place, into)
            }
        };
        let (rows, _) = pages(&database, "SELECT k FROM t", 10_000, after);
        assert_eq!(rows, whole, "{place} into {into}");
    }
}
