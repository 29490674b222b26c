//! The way of requests while there are no failures.

use super::*;
use diorite_base::program::ProvenProgram;
use diorite_model::key;
use diorite_query::kv::ScanRequest;
use diorite_query::program::{PARTITION_DELETIONS, Program, ProgramOperation};
use futures::future::join_all;
use std::sync::atomic::Ordering;

fn count(counter: &std::sync::atomic::AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Two nodes; node 1 leads a tablet of which node 2 has no replica.
async fn two() -> (Cluster, TabletId) {
    let cluster = Cluster::start(2, 1, RouteOptions::default()).await;
    let tablet = cluster.tablet(|replicas| replicas == [NodeId(1)]);
    cluster.wait_for_leader(tablet).await;
    (cluster, tablet)
}

#[tokio::test(flavor = "multi_thread")]
async fn large_values_are_read_where_nobody_waits() {
    let (cluster, tablet) = two().await;
    let large = vec![7; 2 << 20];
    cluster.put(1, tablet, b"small", b"v").await.unwrap();
    cluster.put(1, tablet, b"large", &large).await.unwrap();
    let long_reads = || cluster.router(1).counters().long_reads.load(Ordering::Relaxed);
    for node in [1, 2] {
        let before = long_reads();
        assert_eq!(cluster.get(node, tablet, b"small").await.unwrap().as_deref(), Some(&b"v"[..]));
        assert_eq!(long_reads(), before);
        assert!(cluster.get(node, tablet, b"large").await.unwrap().is_some_and(|found| found == large));
        assert_eq!(long_reads(), before + 1, "asked for at node {node}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_takes_one_hop_and_a_local_one_none() {
    let (cluster, tablet) = two().await;
    cluster.put(2, tablet, b"k", b"v").await.unwrap();
    assert_eq!(cluster.get(2, tablet, b"k").await.unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(cluster.get(2, tablet, b"none").await.unwrap(), None);
    let (asker, leader) = (cluster.router(2).counters(), cluster.router(1).counters());
    // A request is counted after it has been sent, which may be after its answer has arrived.
    wait_for(|| count(&asker.forwarded) == 3).await;
    assert_eq!((count(&asker.local), count(&leader.received)), (0, 3));
    assert_eq!(cluster.get(1, tablet, b"k").await.unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!((count(&leader.local), count(&leader.forwarded)), (1, 0));
    assert_eq!(cluster.router(2).leader(tablet), Some(NodeId(1)));
    assert_eq!(cluster.router(1).leader(tablet), Some(NodeId(1)));
    assert_eq!(cluster.router(2).waiting(), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_travels_in_one_frame_and_so_do_its_answers() {
    let (cluster, tablet) = two().await;
    let router = cluster.router(2);
    let collected: Arc<Collected> = Arc::default();
    let sink = Arc::clone(&collected) as Arc<dyn WriteSink>;
    for n in 0..100u64 {
        router.submit(tablet, put(&(n + 1).to_be_bytes(), b"v"), &sink, n).unwrap();
    }
    assert_eq!(count(&router.counters().frames_sent), 0, "nothing leaves before the kick");
    router.kick();
    assert_eq!(count(&router.counters().frames_sent), 1);
    assert!(collected.all(100).await.values().all(Result::is_ok));
    assert!(collected.done.lock().1 < 100, "many outcomes are told at once");
    let before = count(&cluster.router(1).counters().answer_frames);
    let keys: Vec<_> = (1..=100u64).map(u64::to_be_bytes).collect();
    let found = sent(router, join_all(keys.iter().map(|key| router.fetch(tablet, one(key))))).await;
    assert!(found.iter().all(|found| found.as_ref().unwrap().row.is_some()));
    assert_eq!(count(&router.counters().frames_sent), 2);
    assert_eq!(count(&cluster.router(1).counters().answer_frames), before + 1);
}

/// On one thread, so that all of them run before their requests are sent.
#[tokio::test]
async fn what_several_connections_ask_of_a_node_leaves_together() {
    let (cluster, tablet) = two().await;
    cluster.put(2, tablet, b"k", b"v").await.unwrap();
    let counters = [2, 1].map(|node| cluster.router(node).counters());
    let frames = || [count(&counters[0].frames_sent), count(&counters[1].answer_frames)];
    let before = frames();
    let connections = (0..10).map(|_| {
        let router = Arc::clone(&cluster.members[&2].router);
        tokio::spawn(async move { sent(&router, router.fetch(tablet, one(b"k"))).await })
    });
    for found in join_all(connections).await {
        assert_eq!(found.unwrap().unwrap().row, Some(packed(b"v")));
    }
    assert_eq!(frames(), before.map(|before| before + 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_are_read_in_pieces_in_either_direction() {
    let (cluster, tablet) = two().await;
    for n in 0..10u8 {
        cluster.put(2, tablet, &[1, n], &[n; 3]).await.unwrap();
    }
    let scan = |reverse, max_entries| ScanRequest {
        start: vec![1, 2],
        end: vec![1, 8],
        reverse,
        max_entries,
        max_bytes: 1 << 20,
    };
    for (node, reverse) in [(1, false), (2, false), (1, true), (2, true)] {
        let fetch = Fetch { rows: FetchRows::Range(scan(reverse, 4)), ..Fetch::default() };
        let chunk = cluster.fetch(node, tablet, fetch).await.unwrap().chunk;
        let keys: Vec<u8> = chunk.entries().map(|(key, _)| key[1]).collect();
        assert_eq!(keys, if reverse { [7, 6, 5, 4] } else { [2, 3, 4, 5] });
        assert!(!chunk.exhausted && chunk.entries().all(|(key, value)| unpacked(value) == [key[1]; 3]));
        let fetch = Fetch { rows: FetchRows::Range(scan(reverse, 100)), ..Fetch::default() };
        assert!(cluster.fetch(node, tablet, fetch).await.unwrap().chunk.exhausted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_says_the_version_of_the_data_if_it_is_asked_for() {
    let (cluster, tablet) = two().await;
    cluster.put(2, tablet, b"a", b"1").await.unwrap();
    let versioned = |fetch: Fetch| Fetch { wants_version: true, ..fetch };
    let ask = async |node: u64, fetch: Fetch| cluster.fetch(node, tablet, fetch).await.unwrap();
    assert_eq!(ask(2, one(b"a")).await.version, None);
    let before = ask(2, versioned(one(b"a"))).await;
    assert_eq!(before.row, Some(packed(b"1")));
    let version = before.version.unwrap();
    assert_eq!(version.node, NodeId(1), "it leads");
    // The same from the disk, without rows, and on the node itself.
    let from_disk = ask(2, Fetch { needs_disk: true, ..versioned(one(b"a")) }).await;
    assert_eq!((from_disk.row, from_disk.version), (before.row, Some(version)));
    assert_eq!(ask(2, versioned(Fetch::default())).await.version, Some(version));
    assert_eq!(ask(1, versioned(Fetch::default())).await.version, Some(version));
    cluster.put(2, tablet, b"b", b"2").await.unwrap();
    let changed = ask(2, versioned(Fetch::default())).await.version;
    assert!(changed.is_some_and(|changed| changed != version), "{changed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_visit_brings_the_header_of_a_partition_once_there_are_headers() {
    let (cluster, tablet) = two().await;
    let prefix = b"\x80tokentokenpartition".to_vec();
    let with = |push: fn(&mut Vec<u8>)| {
        let mut key = prefix.clone();
        push(&mut key);
        key
    };
    let (header, static_row, row) = (with(key::push_header), with(key::push_static), with(key::push_row));
    cluster.put(2, tablet, &static_row, b"static").await.unwrap();
    let fetch = Fetch {
        deadline_ns: None,
        staleness_ms: None,
        header: Some((PARTITION_DELETIONS, header)),
        static_row: Some(static_row),
        rows: FetchRows::One(row.clone()),
        needs_disk: false,
        aggregate: None,
        pinned: None,
        wants_version: false,
        judged_s: None,
    };
    let fetched = cluster.fetch(2, tablet, fetch.clone()).await.unwrap();
    assert_eq!((fetched.header, fetched.static_row, fetched.row), (None, Some(packed(b"static")), None));
    let delete = ProgramOperation::Delete { partition: prefix, range: None, explicit_us: None };
    let program = Program { operations: vec![delete], ..Program::default() };
    let router = cluster.router(2);
    let program = ProvenProgram::new(&program).unwrap();
    router.write(tablet, Mutation::evaluated(None, &program)).await.unwrap();
    cluster.put(2, tablet, &row, b"row").await.unwrap();
    // A request is counted after it has been sent, which may be after its answer has arrived.
    let requests_sent = || [&router.counters().forwarded, &cluster.router(1).counters().received].map(count);
    wait_for(|| requests_sent()[0] == requests_sent()[1]).await;
    let before = requests_sent()[0];
    let fetched = cluster.fetch(2, tablet, fetch).await.unwrap();
    assert!(fetched.header.is_some());
    assert_eq!(fetched.row, Some(packed(b"row")));
    assert_eq!(requests_sent()[1], before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_that_is_wrong_heals_by_the_refusal() {
    let cluster = Cluster::start(4, 3, RouteOptions::default()).await;
    let tablet = cluster.tablet(|replicas| !replicas.contains(&NodeId(4)));
    let first = cluster.wait_for_leader(tablet).await;
    cluster.put(4, tablet, b"k", b"1").await.unwrap();
    cluster.members[&first].store.release_leadership();
    wait_for(|| (1..=3).any(|node| node != first && cluster.leads(node, tablet))).await;
    // The asking node asks the former leader, which names the new one, or does not know it yet.
    cluster.put(4, tablet, b"k", b"2").await.unwrap();
    assert_eq!(cluster.get(4, tablet, b"k").await.unwrap().as_deref(), Some(&b"2"[..]));
    let refused: u64 = (1..=3).map(|node| count(&cluster.router(node).counters().refused_not_leader)).sum();
    assert!(refused > 0 && count(&cluster.router(4).counters().retried) > 0);
    let second = cluster.wait_for_leader(tablet).await;
    for node in 1..=4 {
        assert_eq!(cluster.get(node, tablet, b"k").await.unwrap().as_deref(), Some(&b"2"[..]), "by way of {node}");
    }
    assert!(second != first || cluster.leads(first, tablet));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_the_own_store_refuses_goes_to_the_leader() {
    let cluster = Cluster::start(3, 3, RouteOptions::default()).await;
    let tablet = cluster.tablet(|_| true);
    let leader = cluster.wait_for_leader(tablet).await;
    let follower = (1..=3).find(|node| *node != leader).unwrap();
    let collected: Arc<Collected> = Arc::default();
    let sink = Arc::clone(&collected) as Arc<dyn WriteSink>;
    for n in 0..10u64 {
        cluster.members[&follower].store.submit(tablet, put(&(n + 1).to_be_bytes(), b"v"), &sink, n).unwrap();
    }
    cluster.members[&follower].store.kick();
    assert!(collected.all(10).await.values().all(Result::is_ok));
    assert!(cluster.get(follower, tablet, &3u64.to_be_bytes()).await.unwrap().is_some());
}
