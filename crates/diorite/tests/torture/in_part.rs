//! A write over two tablets of which one cannot be written to, and the other has its part already: it is told as one that may have been done in part, never as one of
//! which nothing was done, which drivers would repeat.
//!
//! Always true: one node is down and with it the only replica of a tablet, so that its part is refused for sure; what became of the other part is seen in that tablet
//! itself. Nothing here depends on when something happens.

use crate::client::Client;
use crate::cluster::Cluster;
use crate::load::read_all;
use crate::network::Policy;
use crate::server::get_within;
use crate::session::number;
use crate::turn;
use diorite_cql::protocol::client::ClientResponse;
use diorite_cql::protocol::{CqlError, ErrorCode};
use serde_json::Value;
use std::time::Duration;

/// Who is asked, who has its part, and who is down.
const ASKED: usize = 0;
const HOLDER: usize = 1;
const DOWN: usize = 2;

const KEYSPACE: &str =
    "CREATE KEYSPACE IF NOT EXISTS parts WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
const TABLE: &str = "CREATE TABLE IF NOT EXISTS parts.counters (k bigint PRIMARY KEY, n counter) WITH tablets = 12";

/// Enough that every tablet has some.
const KEYS: u64 = 120;

/// Longer than a request may take.
const TIMEOUT: Duration = Duration::from_secs(180);

fn ask(cluster: &Cluster, path: &str) -> Value {
    let mut answer = None;
    cluster.wait_for(path, || {
        let text = get_within(&cluster.addresses[ASKED], path, TIMEOUT);
        answer = text.and_then(|text| serde_json::from_str(&text).ok());
        answer.is_some()
    });
    answer.expect("waited for")
}

/// For each node a key of a tablet that it holds alone.
fn keys_by_node(cluster: &Cluster) -> Vec<u64> {
    let nodes = ask(cluster, "/api/v1/nodes");
    let tokens = read_all(cluster, ASKED, "SELECT k, token(k) FROM parts.counters");
    let tokens: Vec<(u64, i64)> = tokens.iter().map(|row| (number(&row[0]), number(&row[1]) as i64)).collect();
    let tablets = ask(cluster, "/api/v1/tablets?keyspace=parts");
    let key_at = |address: &String| {
        let cql_address = format!("{address}:9042");
        let node =
            nodes.as_array()?.iter().find(|node| node["cql_address"] == cql_address.as_str())?["node"].as_u64()?;
        let is_held = |tablet: &&Value| tablet["replicas"][0]["node"].as_u64() == Some(node);
        let tablet = tablets["tablets"].as_array()?.iter().find(is_held)?;
        let range = tablet["first_token"].as_i64()?..=tablet["last_token"].as_i64()?;
        Some(tokens.iter().find(|(_, token)| range.contains(token))?.0)
    };
    let keys = cluster.addresses.iter().map(key_at);
    keys.collect::<Option<_>>().expect("every node holds tablets, and every tablet has keys")
}

fn increment(key: u64) -> String {
    format!("UPDATE parts.counters SET n = n + 1 WHERE k = {key}")
}

/// A batch of one increment of each key, in their order.
fn batch(keys: [u64; 2]) -> String {
    format!("BEGIN COUNTER BATCH {}; {}; APPLY BATCH", increment(keys[0]), increment(keys[1]))
}

/// What a statement is refused with.
fn refusal(client: &mut Client, statement: &str) -> CqlError {
    match client.try_query(statement).unwrap() {
        ClientResponse::Error(error) => error,
        other => panic!("{statement} was answered {other:?}"),
    }
}

fn counter(cluster: &Cluster, node: usize, key: u64) -> u64 {
    let rows = read_all(cluster, node, &format!("SELECT n FROM parts.counters WHERE k = {key}"));
    number(&rows[0][0])
}

#[test]
fn a_batch_of_which_one_part_was_done_and_the_other_refused_is_told_as_timed_out() {
    let _turn = turn();
    let cluster = Cluster::start_unreplicated(3, &["--request-timeout", "5s"]);
    cluster.run(0, KEYSPACE);
    cluster.run(0, TABLE);
    for key in 0..KEYS {
        cluster.run(0, &format!("UPDATE parts.counters SET n = n + 0 WHERE k = {key}"));
    }
    let keys = keys_by_node(&cluster);
    cluster.kill(DOWN);
    let mut client = Client::connect_within(&cluster.addresses[ASKED], TIMEOUT).unwrap();
    // Alone, its part is refused once the node that is asked has seen the connection end: what was sent before that may have arrived.
    cluster.wait_for("its part is refused", || match refusal(&mut client, &increment(keys[DOWN])).code() {
        ErrorCode::Unavailable => true,
        code => {
            assert_eq!(code, ErrorCode::WriteTimeout);
            false
        }
    });
    let mut sent = [0; 3];
    for (holder, is_held) in [(ASKED, false), (HOLDER, false), (HOLDER, true)] {
        // The part that is refused comes last, and first.
        for order in [[keys[holder], keys[DOWN]], [keys[DOWN], keys[holder]]] {
            if is_held {
                // The request arrives, its answer does not.
                cluster.network.set(HOLDER, ASKED, Policy::Hold);
            }
            let refused = refusal(&mut client, &batch(order));
            cluster.network.heal();
            sent[holder] += 1;
            if refused.code() == ErrorCode::Unavailable {
                // It says that nothing was done: the part that was refused came before the other was sent.
                sent[holder] -= 1;
                assert_eq!(counter(&cluster, holder, keys[holder]), sent[holder], "{refused:?}");
                continue;
            }
            assert_eq!(refused.code(), ErrorCode::WriteTimeout, "node {holder}, held: {is_held}: {refused:?}");
            // What was sent may arrive after the refusal.
            cluster.wait_for("the other part is done", || counter(&cluster, holder, keys[holder]) == sent[holder]);
        }
    }
    cluster.start_node(DOWN);
    assert_eq!(counter(&cluster, DOWN, keys[DOWN]), 0, "what was refused was never done");
}
