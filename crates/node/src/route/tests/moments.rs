//! Reads during writes that change all rows that are read, and reads without time left.

use super::{Cluster, RouteOptions, sent};
use diorite_base::NodeId;
use diorite_base::account::Account;
use diorite_base::mutation::{Mutation, OperationKind};
use diorite_base::write::KvError;
use diorite_query::kv::several::{self, Several, Span};
use diorite_query::kv::{Fetch, FetchRows, Fetched, ScanRequest};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often all rows are written.
const WRITES: u64 = 400;

fn key(n: u8) -> Vec<u8> {
    vec![0x80, 0, 0, 0, 0, 0, 0, 1, b'k', n]
}

/// Writes the same value to all rows of a partition.
fn all(value: u64) -> Mutation {
    let mut mutation = Mutation::blind(None);
    (0..6).for_each(|n| mutation.push(OperationKind::Overwrite, false, &key(n), &value.to_be_bytes()));
    mutation
}

/// A static row, two rows and a range.
fn request() -> Fetch {
    let spans = several::encode(&[Span::key(key(1)), Span::key(key(2)), Span::range(key(3), key(6))]);
    let rows = FetchRows::Several(Several { spans, reverse: false, max_entries: 100, max_bytes: 1 << 16 });
    Fetch { static_row: Some(key(0)), rows, ..Fetch::default() }
}

fn values(fetched: &Fetched) -> Vec<&[u8]> {
    fetched.static_row.as_deref().into_iter().chain(fetched.chunk.entries().map(|(_, value)| value)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_parts_of_a_read_are_of_one_moment() {
    let cluster = Cluster::start(1, 1, RouteOptions::default()).await;
    let tablet = cluster.tablet(|_| true);
    cluster.wait_for_leader(tablet).await;
    let is_done = Arc::new(AtomicBool::new(false));
    cluster.router(1).write(tablet, all(0)).await.unwrap();
    let writes = {
        let (router, is_done) = (Arc::clone(&cluster.members[&1].router), Arc::clone(&is_done));
        tokio::spawn(async move {
            for value in 1..=WRITES {
                sent(&router, router.write(tablet, all(value))).await.unwrap();
            }
            is_done.store(true, Ordering::Relaxed);
        })
    };
    while !is_done.load(Ordering::Relaxed) {
        let fetched = cluster.fetch(1, tablet, request()).await.unwrap();
        let values = values(&fetched);
        assert_eq!(values.len(), 6);
        assert!(values.iter().all(|value| *value == values[0]), "two moments: {values:?}");
        tokio::task::yield_now().await;
    }
    writes.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_read_copies_is_charged_before_and_as_long_as_it_is_kept() {
    const MIB: usize = 1 << 20;
    let account = Account::root("all requests", 4 * MIB);
    let options = RouteOptions { account: Arc::clone(&account), ..RouteOptions::default() };
    let cluster = Cluster::start(1, 1, options).await;
    let tablet = cluster.tablet(|_| true);
    cluster.wait_for_leader(tablet).await;
    for (n, bytes) in [(0, 3 * MIB), (1, 3 * MIB / 2), (2, 3 * MIB / 2), (3, 3 * MIB / 2)] {
        let mut mutation = Mutation::blind(None);
        mutation.push(OperationKind::Overwrite, false, &key(n), &vec![7; bytes]);
        cluster.router(1).write(tablet, mutation).await.unwrap();
    }
    let read = |rows| cluster.fetch(1, tablet, Fetch { rows, ..Fetch::default() });
    let one = |n| read(FetchRows::One(key(n)));
    assert!(matches!(one(0).await, Err(KvError::TooLarge(_))), "twice its bytes can never fit");
    let fetched = one(1).await.unwrap();
    assert!((3 * MIB / 2..2 * MIB).contains(&account.used_bytes()), "{}", account.used_bytes());
    assert!(matches!(one(2).await, Err(KvError::Overloaded(_))), "not beside the other");
    drop(fetched);
    assert_eq!(account.used_bytes(), 0);
    assert!(one(2).await.is_ok());
    let max_bytes = 16 * MIB;
    let (start, end) = (key(1), key(4));
    let range = ScanRequest { start, end, reverse: false, max_entries: 10, max_bytes };
    assert!(matches!(read(FetchRows::Range(range)).await, Err(KvError::TooLarge(_))), "three rows of them");
    let spans = several::encode(&[Span::key(key(1)), Span::key(key(2)), Span::key(key(3))]);
    let several = Several { spans, reverse: false, max_entries: 10, max_bytes };
    assert!(matches!(read(FetchRows::Several(several)).await, Err(KvError::TooLarge(_))));
    assert_eq!(account.used_bytes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_has_no_time_left_ends_where_it_is_carried_out() {
    // The asking node checks for expired requests seldom, so that it is not the one to report the timeout.
    let options = RouteOptions { tick: Duration::from_secs(3), ..RouteOptions::default() };
    let cluster = Cluster::start(2, 1, options).await;
    let tablet = cluster.tablet(|replicas| replicas == [NodeId(2)]);
    cluster.wait_for_leader(tablet).await;
    cluster.router(2).write(tablet, all(7)).await.unwrap();
    // More keys than are looked up on the task that takes the request.
    let others = (0..200).map(|n| Span::key([key(n), vec![n; 8]].concat()));
    let keys: Vec<Span> = (0..6).map(|n| Span::key(key(n))).chain(others).collect();
    let several = Several { spans: several::encode(&keys), reverse: false, max_entries: 1_000, max_bytes: 1 << 20 };
    for asked in [1, 2] {
        let router = cluster.router(asked);
        let fetch = |deadline_ns| Fetch {
            rows: FetchRows::Several(several.clone()),
            deadline_ns: Some(deadline_ns),
            ..Fetch::default()
        };
        let now_ns = router.clock.monotonic_ns();
        let fetched = cluster.fetch(asked, tablet, fetch(now_ns + 4_000_000_000)).await.unwrap();
        assert_eq!(fetched.chunk.ends.len(), 6);
        // The asking node's timeout is five seconds, and would be reported.
        match cluster.fetch(asked, tablet, fetch(now_ns)).await {
            Err(KvError::Timeout(waited)) => assert!(waited.after_ms < 5_000, "node {asked}: {waited:?}"),
            other => panic!("node {asked}: {other:?}"),
        }
    }
}
