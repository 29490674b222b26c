//! Nodes that are down, frames that are lost or malformed, limits, and dropped tablets.

use super::*;
use crate::route::options::RouteLimits;
use crate::route::peer::Peer;
use crate::route::request::Work;
use crate::route::wire;
use diorite_base::Level;
use diorite_base::write::Waited;
use diorite_control::routing::{Asked, Timeouts};
use diorite_rpc::ConnectionEvent;
use proptest::prelude::*;
use std::sync::atomic::Ordering;

/// Requests wait shortly for a tablet that is not there, and as long as usual for answers: a machine may be busy.
fn impatient_for_missing() -> RouteOptions {
    let options = RouteOptions::default();
    RouteOptions { timeouts: Timeouts { missing: Duration::from_millis(100), ..options.timeouts }, ..options }
}

/// How long those that do not wait for answers wait, milliseconds: requests that are answered have to be answered in that
/// time on a busy machine, too.
const IMPATIENT_MS: u64 = 1_500;

/// Longer than anything takes that must come about.
const LONG: Duration = Duration::from_secs(60);

/// Answers are hardly waited for.
fn impatient() -> RouteOptions {
    RouteOptions {
        timeouts: Timeouts {
            read: Duration::from_millis(IMPATIENT_MS),
            write: Duration::from_millis(IMPATIENT_MS),
            missing: Duration::from_millis(100),
        },
        tick: Duration::from_millis(5),
        ..RouteOptions::default()
    }
}

/// The outcome of an impatient request that was not answered.
fn unanswered<T>() -> Result<T, KvError> {
    Err(KvError::Timeout(Waited::in_vain(IMPATIENT_MS)))
}

/// Requests wait as long as a busy machine may take.
fn patient() -> RouteOptions {
    let timeouts = Timeouts { read: LONG, write: LONG, missing: LONG };
    RouteOptions { timeouts, ..RouteOptions::default() }
}

/// Two nodes; node 1 leads a tablet of which node 2 has no replica.
async fn two(options: RouteOptions) -> (Cluster, TabletId) {
    let cluster = Cluster::start(2, 1, options).await;
    let tablet = cluster.tablet(|replicas| replicas == [NodeId(1)]);
    cluster.wait_for_leader(tablet).await;
    (cluster, tablet)
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_wait_for_a_node_that_is_down_and_go_when_it_is_up() {
    let (cluster, tablet) = two(patient()).await;
    let router = cluster.router(2);
    cluster.hub.cut.write().insert(1);
    wait_for(|| !router.store.liveness().is_up(NodeId(1))).await;
    let collected: Arc<Collected> = Arc::default();
    let sink = Arc::clone(&collected) as Arc<dyn WriteSink>;
    (0..20).for_each(|n| router.submit(tablet, put(b"k", b"v"), &sink, n).unwrap());
    router.kick();
    assert_eq!(router.waiting(), (0, 20));
    assert_eq!(router.counters().forwarded.load(Ordering::Relaxed), 0);
    cluster.hub.cut.write().clear();
    assert!(collected.all(20).await.values().all(Result::is_ok));
    assert_eq!(cluster.get(2, tablet, b"k").await.unwrap().as_deref(), Some(&b"v"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_sent_is_sent_when_the_connection_is_back() {
    let (cluster, tablet) = two(patient()).await;
    cluster.hub.cut.write().insert(1);
    let collected: Arc<Collected> = Arc::default();
    let sink = Arc::clone(&collected) as Arc<dyn WriteSink>;
    (0..20).for_each(|n| cluster.router(2).submit(tablet, put(b"k", b"v"), &sink, n).unwrap());
    cluster.router(2).kick();
    wait_for(|| cluster.router(2).counters().retried.load(Ordering::Relaxed) > 3).await;
    cluster.hub.cut.write().clear();
    assert!(collected.all(20).await.values().all(Result::is_ok));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_lost_time_out_and_those_never_sent_are_unavailable() {
    let (cluster, tablet) = two(impatient()).await;
    cluster.hub.losing.write().insert(1);
    assert_eq!(cluster.put(2, tablet, b"k", b"v").await, unanswered());
    assert_eq!(cluster.get(2, tablet, b"k").await, unanswered());
    assert_eq!(cluster.router(2).counters().retried.load(Ordering::Relaxed), 1, "the read was sent twice");
    cluster.hub.losing.write().clear();
    assert_eq!(cluster.get(2, tablet, b"k").await, Ok(None));
    cluster.hub.cut.write().insert(1);
    assert_eq!(cluster.put(2, tablet, b"k", b"v").await, Err(KvError::Unavailable(tablet)));
    assert_eq!(cluster.get(2, tablet, b"k").await, Err(KvError::Unavailable(tablet)));
    assert_eq!(cluster.router(2).waiting(), (0, 0));
    assert_eq!(cluster.router(2).counters().timed_out.load(Ordering::Relaxed), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_leaves_the_write_unknown_and_is_not_sent_twice() {
    let (cluster, tablet) = two(impatient()).await;
    cluster.hub.losing.write().insert(2);
    assert_eq!(cluster.put(2, tablet, b"k", b"v").await, unanswered());
    cluster.hub.losing.write().clear();
    assert_eq!(cluster.get(2, tablet, b"k").await.unwrap().as_deref(), Some(&b"v"[..]), "it was carried out");
    assert_eq!(cluster.router(1).counters().received.load(Ordering::Relaxed), 2, "one write, one read");
}

/// Their deadlines are a minute away.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_may_be_lost_with_a_connection_end_or_are_sent_again_at_once() {
    let (cluster, tablet) = two(patient()).await;
    let router = cluster.router(2);
    for event in [ConnectionEvent::OutgoingEnded { unsent: &[] }, ConnectionEvent::IncomingEnded] {
        cluster.hub.losing.write().insert(1);
        let ends = async {
            wait_for(|| router.waiting().0 == 2).await;
            cluster.hub.losing.write().clear();
            router.connection(NodeId(1), event);
            router.connection(NodeId(1), ConnectionEvent::IncomingBegan);
        };
        let (write, read) = (cluster.put(2, tablet, b"k", b"v"), cluster.get(2, tablet, b"k"));
        let (written, found, ()) = tokio::join!(write, read, ends);
        assert_eq!(written, Err(KvError::Timeout(Waited::ended())), "it may have been carried out");
        assert_eq!(found, Ok(None));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_was_queued_for_a_connection_and_not_sent_is_sent_on_the_next_one() {
    let (cluster, tablet) = two(patient()).await;
    let (router, leader) = (cluster.router(2), cluster.router(1).counters());
    cluster.hub.losing.write().insert(1);
    let ends = async {
        wait_for(|| router.waiting().0 == 1).await;
        cluster.hub.losing.write().clear();
        // The first request to the node has the id 0.
        let mut frame = Vec::new();
        wire::put_frame(&mut frame, wire::FrameKind::Requests, 5);
        wire::put_write(&mut frame, 0, tablet, put(b"k", b"v").as_bytes(), None);
        router.connection(NodeId(1), ConnectionEvent::OutgoingEnded { unsent: &[&frame[..]] });
    };
    let (written, ()) = tokio::join!(cluster.put(2, tablet, b"k", b"v"), ends);
    assert_eq!(written, Ok(Vec::new()));
    assert_eq!(leader.received.load(Ordering::Relaxed), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_answers_cannot_arrive_is_asked_once_they_can() {
    let (cluster, tablet) = two(patient()).await;
    let router = cluster.router(2);
    router.connection(NodeId(1), ConnectionEvent::IncomingEnded);
    let begins = async {
        wait_for(|| router.waiting() == (0, 1)).await;
        assert_eq!(router.counters().forwarded.load(Ordering::Relaxed), 0);
        router.connection(NodeId(1), ConnectionEvent::IncomingBegan);
    };
    let (written, ()) = tokio::join!(cluster.put(2, tablet, b"k", b"v"), begins);
    assert_eq!(written, Ok(Vec::new()));
    assert_eq!(router.counters().forwarded.load(Ordering::Relaxed), 1);
}

/// A thread may be between the taking of a frame and the outcome of sending it, while a connection ends and the next one
/// begins.
#[test]
fn a_frame_that_is_being_sent_when_a_connection_ends_is_judged_by_its_sender() {
    let options = RouteOptions::default();
    let peer = Peer::new(NodeId(1), 7, options.limits);
    let add = || {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let request = Asked::new(TabletId(7), Work::Fetch { fetch: one(b"k"), answer }, 0, &options.timeouts, None);
        assert!(peer.add(request).is_ok());
        answered
    };
    let _first = add();
    let sending = peer.take_frame().unwrap();
    let _second = add();
    let lost = peer.disconnected(&[]);
    assert_eq!((lost.again.len(), lost.unknown.len(), lost.never_left.len()), (0, 0, 0));
    let lost = peer.left(sending).unwrap();
    assert_eq!((lost.again.len(), lost.unknown.len()), (1, 0), "it may have left on the connection that has ended");
    let sending = peer.take_frame().unwrap();
    assert!(peer.disconnected(&[]).again.is_empty());
    assert_eq!(peer.take_back(sending.ids).len(), 1, "it was certainly not sent");
    let _third = add();
    let sending = peer.take_frame().unwrap();
    assert!(peer.left(sending).is_none(), "no connection has ended meanwhile");
    assert_eq!(peer.disconnected(&[]).again.len(), 1);
    assert_eq!(peer.pending(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_ends_with_its_request_at_the_node_that_leads() {
    // The asking node does not check for expired requests before the answer arrives.
    let (cluster, tablet) = two(RouteOptions { tick: Duration::from_secs(30), ..RouteOptions::default() }).await;
    for node in [1, 2] {
        let router = cluster.router(node);
        let write = async |left_ms: u64| {
            let deadline_ns = router.clock.monotonic_ns() + left_ms * 1_000_000;
            let writing = router.gather_write(tablet, put(b"k", &[node as u8]), Some(deadline_ns)).unwrap();
            router.send_gathered();
            writing.await
        };
        let late = write(0).await;
        assert!(matches!(late, Err(KvError::Overloaded(_))), "{late:?}");
        let found = cluster.get(1, tablet, b"k").await.unwrap();
        assert_ne!(found.as_deref(), Some(&[node as u8][..]), "what comes late is not done");
        for left_ms in [1_999, 60_000] {
            assert_eq!(write(left_ms).await, Ok(Vec::new()));
        }
        assert_eq!(cluster.get(1, tablet, b"k").await.unwrap().as_deref(), Some(&[node as u8][..]));
    }
}

/// On one thread, so that both requests are present when they are sent.
#[tokio::test]
async fn a_write_that_left_with_answers_that_did_not_is_not_sent_again() {
    let (cluster, tablet) = two(RouteOptions::default()).await;
    let own = cluster.tablet(|replicas| replicas == [NodeId(2)]);
    cluster.wait_for_leader(own).await;
    cluster.put(2, own, b"k", b"v").await.unwrap();
    let (router, leader) = (cluster.router(2), cluster.router(1).counters());
    let before = leader.received.load(Ordering::Relaxed);
    cluster.hub.full_of_answers.write().insert(1);
    let mut asked = Vec::new();
    wire::put_frame(&mut asked, wire::FrameKind::Requests, 5);
    wire::put_fetch(&mut asked, 1, own, &one(b"k"), None);
    router.receive(NodeId(1), &asked);
    let collected: Arc<Collected> = Arc::default();
    let sink = Arc::clone(&collected) as Arc<dyn WriteSink>;
    router.submit(tablet, put(b"k", b"v"), &sink, 7).unwrap();
    router.kick();
    assert_eq!(collected.all(1).await[&7], Ok(Vec::new()), "it was carried out, and is told so");
    assert_eq!(leader.received.load(Ordering::Relaxed), before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_leave_a_node_that_goes_down_and_writes_wait_for_its_answer() {
    let cluster = Cluster::start(4, 3, RouteOptions::default()).await;
    let tablet = cluster.tablet(|replicas| !replicas.contains(&NodeId(4)));
    let leader = cluster.wait_for_leader(tablet).await;
    cluster.put(4, tablet, b"k", b"v").await.unwrap();
    cluster.hub.losing.write().insert(leader);
    let router = cluster.router(4);
    let read = sent(router, router.fetch(tablet, one(b"k")));
    let down = async {
        wait_for(|| router.waiting().0 == 1).await;
        cluster.hub.cut.write().insert(leader);
    };
    let (found, ()) = tokio::join!(read, down);
    assert_eq!(found.unwrap().row, Some(packed(b"v")), "another leads by now, and was asked");
    cluster.put(4, tablet, b"k", b"w").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_leaders_that_change_under_load() {
    let cluster = Cluster::start(3, 3, RouteOptions::default()).await;
    let tablet = cluster.tablet(|_| true);
    cluster.wait_for_leader(tablet).await;
    let write = |writer: u64| {
        let cluster = &cluster;
        async move {
            let mut acknowledged = Vec::new();
            for n in 0..60u64 {
                let key = [writer.to_be_bytes(), n.to_be_bytes()].concat();
                // Whether a write that timed out took effect is not known.
                if cluster.put(1 + writer % 3, tablet, &key, b"v").await.is_ok() {
                    acknowledged.push(key);
                }
            }
            acknowledged
        }
    };
    let change = async {
        // A node that has announced its stop leads no tablet.
        for _ in 0..2 {
            let leader = cluster.wait_for_leader(tablet).await;
            tokio::task::block_in_place(|| cluster.members[&leader].store.release_leadership());
            wait_for(|| !cluster.leads(leader, tablet)).await;
        }
    };
    let (written, ()) = tokio::join!(futures::future::join_all((0..9).map(write)), change);
    let acknowledged: Vec<Vec<u8>> = written.into_iter().flatten().collect();
    assert!(acknowledged.len() > 100, "{} of 540", acknowledged.len());
    for key in acknowledged {
        assert!(cluster.get(1, tablet, &key).await.unwrap().is_some(), "{key:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_requests_are_refused_at_once() {
    let limits = RouteLimits { requests: 4, bytes: 1 << 20, frame_bytes: 1 << 20 };
    let (cluster, tablet) = two(RouteOptions { limits, ..impatient() }).await;
    cluster.hub.losing.write().insert(1);
    let collected: Arc<Collected> = Arc::default();
    let sink = Arc::clone(&collected) as Arc<dyn WriteSink>;
    let submit = |n| cluster.router(2).submit(tablet, put(b"k", b"v"), &sink, n);
    assert!((0..4).all(|n| submit(n).is_ok()));
    assert!(matches!(submit(4), Err(KvError::Overloaded(_))));
    cluster.router(2).kick();
    assert!(collected.all(4).await.values().all(|outcome| *outcome == unanswered()));
    cluster.hub.cut.write().insert(1);
    assert!((5..9).all(|n| submit(n).is_ok()));
    cluster.router(2).kick();
    assert!(matches!(submit(9), Err(KvError::Overloaded(_))), "those that wait for a leader are bounded as well");
    assert_eq!(cluster.router(2).counters().overloaded.load(Ordering::Relaxed), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tablet_that_is_dropped_ends_requests_once_the_askers_catalog_says_so() {
    let (cluster, tablet) = two(impatient_for_missing()).await;
    let drop = Command::DropTable { keyspace: KEYSPACE.to_owned(), name: "t".to_owned(), if_exists: false };
    let after = Arc::new(cluster.catalog.apply(&drop).0);
    cluster.members[&1].catalog.0.store(Arc::clone(&after));
    cluster.members[&1].store.close(&[tablet]);
    // The asking node's catalog stays behind: after a short wait it gets the leader's answer.
    assert_eq!(cluster.put(2, tablet, b"k", b"v").await, Err(KvError::NoSuchTablet(tablet)));
    let read = cluster.get(2, tablet, b"k");
    let catch_up = async { cluster.members[&2].catalog.0.store(after) };
    let (found, ()) = tokio::join!(read, catch_up);
    assert_eq!(found, Err(KvError::NoSuchTablet(tablet)));
    assert_eq!(cluster.get(2, tablet, b"k").await, Err(KvError::NoSuchTablet(tablet)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tablet_that_the_leader_does_not_know_yet_is_waited_for() {
    let (mut cluster, _) = two(RouteOptions::default()).await;
    // New tablets, which only the asking node knows.
    let truncate = Command::TruncateTable { keyspace: KEYSPACE.to_owned(), name: "t".to_owned() };
    cluster.catalog = cluster.catalog.apply(&truncate).0;
    let tablet = cluster.tablet(|replicas| replicas == [NodeId(1)]);
    cluster.members[&2].catalog.0.store(Arc::new(cluster.catalog.clone()));
    let served = &cluster.members[&1].catalog.0;
    let write = cluster.put(2, tablet, b"k", b"v");
    let catch_up = async {
        wait_for(|| cluster.router(2).counters().retried.load(Ordering::Relaxed) > 0).await;
        served.store(Arc::new(cluster.catalog.clone()));
        cluster.members[&1].store.open(vec![cluster.open(tablet)]).unwrap();
    };
    let (outcome, ()) = tokio::join!(write, catch_up);
    assert_eq!(outcome, Ok(Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_to_a_former_run_of_the_process_are_not_taken_for_new_ones() {
    let (cluster, tablet) = two(impatient()).await;
    cluster.hub.losing.write().insert(1);
    let router = cluster.router(2);
    let forged = async {
        wait_for(|| router.waiting().0 == 1).await;
        let mut frame = Vec::new();
        wire::put_frame(&mut frame, wire::FrameKind::Answers, 1);
        (0..10).for_each(|id| wire::put_written(&mut frame, id, b""));
        router.receive(NodeId(1), &frame);
    };
    let (outcome, ()) = tokio::join!(cluster.put(2, tablet, b"k", b"v"), forged);
    assert_eq!(outcome, unanswered());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_replicas_could_not_apply_is_refused_before_it_is_logged() {
    let (cluster, tablet) = two(RouteOptions::default()).await;
    let command = Command::RemoveNode { node: NodeId(9), only_without_vote: false }.proven_at(Level::FIRST).unwrap();
    // The tablet's leader is another node, then this one: each refuses programs that the tablet's replicas do not
    // evaluate.
    for node in [2, 1] {
        let command = Mutation::evaluated(None, &command);
        assert!(matches!(cluster.router(node).write(tablet, command).await, Err(KvError::TooLarge(_))));
    }
    // A row that no replica could merge with another, of a node that has not made it as this one would have.
    let mut malformed = Mutation::blind(None);
    malformed.push(OperationKind::Merge, false, b"k", b"no row");
    let refused = cluster.router(2).write(tablet, malformed).await;
    assert!(matches!(&refused, Err(KvError::TooLarge(why)) if why.contains("malformed")), "{refused:?}");
    // A node of another version sends bytes that no replica could decode.
    let mut frame = Vec::new();
    wire::put_frame(&mut frame, wire::FrameKind::Requests, 5);
    let mut nonsense = put(b"k", b"v").as_bytes()[..9].to_vec();
    nonsense[0] = 1;
    nonsense.extend_from_slice(b"no program");
    wire::put_write(&mut frame, 1, tablet, &nonsense, None);
    cluster.router(1).receive(NodeId(2), &frame);
    cluster.put(2, tablet, b"k", b"v").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_frame_whatever_its_bytes_does_harm() {
    let (cluster, tablet) = two(RouteOptions::default()).await;
    let mut valid = Vec::new();
    wire::put_frame(&mut valid, wire::FrameKind::Requests, 5);
    wire::put_fetch(&mut valid, 1, tablet, &one(b"key"), None);
    wire::put_write(&mut valid, 2, tablet, put(b"key", b"value").as_bytes(), None);
    let mut answers = Vec::new();
    wire::put_frame(&mut answers, wire::FrameKind::Answers, 5);
    wire::put_failed(&mut answers, 1, &KvError::Storage("x".to_owned()));
    let mut runner = proptest::test_runner::TestRunner::default();
    let changed = (any::<bool>(), any::<prop::sample::Index>(), any::<u8>(), any::<prop::sample::Index>());
    let strategy = prop_oneof![any::<Vec<u8>>().prop_map(Err), changed.prop_map(Ok)];
    let outcome = runner.run(&strategy, |change| {
        let frame = match change {
            Err(random) => random,
            Ok((is_request, at, to, cut)) => {
                let mut frame = if is_request { valid.clone() } else { answers.clone() };
                let at = at.index(frame.len());
                frame[at] = to;
                frame.truncate(cut.index(frame.len() + 1));
                frame
            }
        };
        cluster.router(1).receive(NodeId(2), &frame);
        Ok(())
    });
    outcome.unwrap();
    assert!(cluster.router(1).counters().malformed.load(Ordering::Relaxed) > 0);
    cluster.put(2, tablet, b"other", b"v").await.unwrap();
    assert_eq!(cluster.get(2, tablet, b"other").await.unwrap().as_deref(), Some(&b"v"[..]));
}
