//! A read of rows of one tablet is of one moment, beside batches that write them all: static columns and rows of a partition, and several partitions.
//!
//! Through the node that leads the tablet, and through one that asks it.

use crate::client::Client;
use crate::server::{Server, wait_for};
use diorite_cql::protocol::client::{ClientResponse, ClientRows};
use diorite_cql::protocol::{CqlError, ErrorCode};
use diorite_history::check_whole;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tempfile::tempdir;

/// Reads of each kind through each node. Of so many a third was torn when each row was read by itself.
const READS: usize = 1_500;

/// Partitions, each with a static column and two rows.
const PARTITIONS: [u64; 3] = [1, 2, 3];

/// Static column and rows of one partition, by one clustering column's values and by a range of them; and of several partitions, rows and static columns.
const STATEMENTS: [&str; 5] = [
    "SELECT s, v FROM ks.t WHERE k = 1 AND c IN (1, 2)",
    "SELECT s, v FROM ks.t WHERE k = 1 AND c > 0",
    "SELECT s, v FROM ks.t WHERE k IN (1, 2, 3)",
    "SELECT s, v FROM ks.t WHERE k IN (1, 2, 3) AND c = 2",
    "SELECT s, v FROM ks.t WHERE k IN (3, 1) AND c IN (2, 1)",
];

/// One write of everything there is.
fn write(number: u64) -> String {
    let of_partition = |k: &u64| {
        format!(
            "UPDATE ks.t SET s = {number} WHERE k = {k}; INSERT INTO ks.t (k, c, v) VALUES ({k}, 1, {number}); \
             INSERT INTO ks.t (k, c, v) VALUES ({k}, 2, {number});"
        )
    };
    format!("BEGIN BATCH {} APPLY BATCH", PARTITIONS.iter().map(of_partition).collect::<String>())
}

/// Every value that a read found.
fn parts(rows: &ClientRows) -> Vec<Option<u64>> {
    let cells = rows.rows.iter().flatten();
    cells.map(|cell| cell.as_deref().map(|bytes| u64::from_be_bytes(bytes.try_into().unwrap()))).collect()
}

/// On a busy machine nobody may have answered in time: what became of the request is not known, and does not matter.
fn expect_late(error: &CqlError) {
    let is_late = matches!(error.code(), ErrorCode::ReadTimeout | ErrorCode::WriteTimeout | ErrorCode::Unavailable);
    assert!(is_late, "{error:?}");
}

fn read(client: &mut Client, statement: &str) {
    let mut found = Vec::new();
    wait_for(statement, || match client.query(statement) {
        Ok(ClientResponse::Rows(rows)) => {
            found = parts(&rows);
            true
        }
        Ok(other) => panic!("{statement} was answered {other:?}"),
        Err(error) => {
            expect_late(&error);
            false
        }
    });
    assert!(found.len() >= 4, "{statement}: {found:?}");
    let whole = check_whole(1, &found);
    assert!(whole.is_ok(), "{statement}: {}", whole.unwrap_err());
}

#[test]
fn a_read_of_rows_of_one_tablet_is_of_one_moment_beside_batches_that_write_them_all() {
    let (first, second) = (tempdir().unwrap(), tempdir().unwrap());
    let one = Server::start(first.path(), &["--rf", "1"]);
    let two = Server::start(second.path(), &["--join", &one.address]);
    let mut client = Client::connect(&one.address).unwrap();
    client.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    client
        .run("CREATE TABLE ks.t (k bigint, c bigint, s bigint static, v bigint, PRIMARY KEY (k, c)) WITH tablets = 1");
    client.run(&write(0));
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(1));
    std::thread::scope(|scope| {
        for server in [&one, &two] {
            let (stop, written) = (&stop, &written);
            scope.spawn(move || {
                let mut client = Client::connect(&server.address).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    if let Err(error) = client.query(&write(written.fetch_add(1, Ordering::Relaxed))) {
                        expect_late(&error);
                    }
                }
            });
        }
        let readers: Vec<_> = [&one, &two]
            .into_iter()
            .map(|server| {
                scope.spawn(move || {
                    let mut client = Client::connect(&server.address).unwrap();
                    for statement in STATEMENTS {
                        (0..READS).for_each(|_| read(&mut client, statement));
                    }
                })
            })
            .collect();
        let ended: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        stop.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|ended| ended.expect("every read is of one moment"));
    });
    assert!(written.into_inner() > 100, "it was written to meanwhile");
}
