//! Aggregates over a cluster are computed where the rows are: what crosses the network does not grow with them.

use crate::client::{Client, count};
use crate::{Local, server};
use diorite_cql::protocol::Value;
use diorite_cql::protocol::client::ClientResponse;
use std::time::Duration;

const ROWS: usize = 3_000;
const VALUE_BYTES: usize = 1_024;

/// A counter, summed over the nodes.
fn total(local: &Local, name: &str) -> u64 {
    (1..=3)
        .map(|number| {
            let text = server::get(&local.address(number), "/metrics").unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
            line.parse::<f64>().unwrap() as u64
        })
        .sum()
}

/// The bytes of requests and answers between nodes. They are counted after they have been sent, so that a client may have
/// the answer before.
fn sent_bytes(local: &Local) -> u64 {
    let look = || total(local, "diorite_routed_sent_bytes_total");
    let mut last = look();
    server::wait_for("all that was sent is counted", || {
        std::thread::sleep(Duration::from_millis(100));
        let before = std::mem::replace(&mut last, look());
        before == last
    });
    last
}

/// Inserts rows of that value, ten in each partition.
fn insert_rows(client: &mut Client, value: &[u8]) {
    let insert = client.prepare("INSERT INTO ks.t (k, c, n, v) VALUES (?, ?, ?, ?)");
    for number in 0..ROWS {
        let (k, c, n) =
            (((number / 10) as i32).to_be_bytes(), (number as i32).to_be_bytes(), (number as i64).to_be_bytes());
        server::wait_for("a row is written", || {
            client.execute(0, &insert.id, &[Value::Set(&k), Value::Set(&c), Value::Set(&n), Value::Set(value)]);
            client.flush().unwrap();
            matches!(client.receive().unwrap().1, ClientResponse::Void)
        });
    }
}

#[test]
fn aggregates_do_not_make_rows_travel() {
    let local = Local::fresh();
    local.up(3, &["--rf", "1"]);
    let mut client = Client::connect(&local.address(1)).unwrap();
    client.run("CREATE KEYSPACE ks");
    client.run("CREATE TABLE ks.t (k int, c int, n bigint, v blob, PRIMARY KEY (k, c)) WITH tablets = 12");
    let value: Vec<u8> = vec![7; VALUE_BYTES];
    insert_rows(&mut client, &value);
    let sent = || sent_bytes(&local);
    let before = sent();
    let read = client.run("SELECT v FROM ks.t");
    assert_eq!(read.rows.len(), ROWS);
    let by_rows = sent() - before;
    assert!(by_rows > (ROWS * VALUE_BYTES / 3) as u64, "most tablets are led elsewhere: {by_rows} bytes");

    let (before, aggregates) = (sent(), total(&local, "diorite_routed_aggregates_total"));
    assert_eq!(count(&mut client, "ks.t"), ROWS as i64);
    let read = client.run("SELECT sum(n), min(c), max(v), count(v) FROM ks.t");
    let wire = |cell: usize| read.rows[0][cell].clone().unwrap();
    assert_eq!(wire(0), ((ROWS * (ROWS - 1) / 2) as i64).to_be_bytes());
    assert_eq!((wire(1), wire(2)), (0i32.to_be_bytes().to_vec(), value));
    assert_eq!(wire(3), (ROWS as i64).to_be_bytes());
    assert!(total(&local, "diorite_routed_aggregates_total") > aggregates, "leaders elsewhere aggregated their rows");
    let by_aggregates = sent() - before;
    assert!(by_aggregates < by_rows / 20, "{by_aggregates} bytes for two aggregates, {by_rows} for the rows");

    let before = sent();
    let groups = client.run("SELECT k, count(*), sum(n) FROM ks.t GROUP BY k");
    assert_eq!(groups.rows.len(), ROWS / 10);
    for group in &groups.rows {
        let k = i64::from(i32::from_be_bytes(group[0].as_deref().unwrap().try_into().unwrap()));
        assert_eq!(group[1].as_deref().unwrap(), 10i64.to_be_bytes());
        assert_eq!(group[2].as_deref().unwrap(), (100 * k + 45).to_be_bytes());
    }
    let by_groups = sent() - before;
    assert!(by_groups < by_rows / 20, "{by_groups} bytes for groups, {by_rows} for the rows");
    // A partition of any size, wherever it is led.
    let before = sent();
    for k in 0..30 {
        let read = client.run(&format!("SELECT count(*), max(n) FROM ks.t WHERE k = {k}"));
        assert_eq!(read.rows[0][0].as_deref().unwrap(), 10i64.to_be_bytes());
    }
    let by_partitions = sent() - before;
    assert!(by_partitions < 30 * VALUE_BYTES as u64, "{by_partitions} bytes for 30 partitions of 10 rows");
    // Rows that are named by their whole keys, of one partition and of many.
    let (before, aggregates) = (sent(), total(&local, "diorite_routed_aggregates_total"));
    let named =
        |numbers: std::ops::Range<usize>| numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
    for k in 0..12 {
        let read = client.run(&format!("SELECT count(*), max(v) FROM ks.t WHERE k = {k} AND c IN ({})", named(0..60)));
        let rows = if k < 6 { 10i64 } else { 0 };
        assert_eq!(read.rows[0][0].as_deref().unwrap(), rows.to_be_bytes());
    }
    let read = client.run(&format!("SELECT count(*), sum(n) FROM ks.t WHERE k IN ({})", named(0..300)));
    assert_eq!(read.rows[0][0].as_deref().unwrap(), (ROWS as i64).to_be_bytes());
    let read =
        client.run(&format!("SELECT sum(n) FROM ks.t WHERE k IN ({}) AND c IN ({})", named(0..100), named(0..500)));
    assert_eq!(read.rows[0][0].as_deref().unwrap(), (500i64 * 499 / 2).to_be_bytes());
    assert!(total(&local, "diorite_routed_aggregates_total") > aggregates, "leaders elsewhere aggregated their rows");
    let by_keys = sent() - before;
    assert!(by_keys < by_rows / 2, "{by_keys} bytes for named rows, keys included, {by_rows} for all rows");
}
