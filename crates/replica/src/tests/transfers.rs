//! Copies of replicas between real stores: the bytes sent, the senders, the cost of an interruption, and the files that remain.

use super::cluster::{Cluster, wait_for};
use super::moves::TABLET;
use super::*;
use crate::lifecycle::copy::wire::{Frame, State};
use diorite_base::NodeId;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Few, so that nothing is compacted.
const FILES: u64 = 2;
const FILE_BYTES: u64 = 4 << 20;
/// Bytes that are sent beside the rows, and again after each interruption.
const SLACK_BYTES: u64 = 128 << 10;
const ROW_BYTES: u64 = 64 << 10;

/// Writes rows that cannot be compressed, in as many files of the same size, and cuts the log behind them on all of these nodes.
fn fill(cluster: &Cluster, nodes: &[u64]) {
    let leader = cluster.wait_for_leader(TABLET);
    let mut state = 88_172_645_463_325_252u64;
    for file in 0..FILES {
        let rows = (0..FILE_BYTES / ROW_BYTES).map(|row| {
            let mut value = 1u64.to_le_bytes().to_vec();
            while (value.len() as u64) < ROW_BYTES {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                value.extend_from_slice(&state.to_le_bytes());
            }
            let mut mutation = Mutation::blind(None);
            mutation.push(OperationKind::Overwrite, false, &key(1_000 + file * 1_000 + row), &value);
            (TABLET, mutation)
        });
        assert!(write_all(&cluster.stores[&leader], rows.collect()).iter().all(Result::is_ok));
        let last = 1_000 + file * 1_000 + FILE_BYTES / ROW_BYTES - 1;
        for node in nodes {
            wait_for(|| cluster.stored(*node, TABLET, last) == 1);
            cluster.stores[node].handle(TabletId(TABLET)).unwrap().data().flush(true).unwrap();
        }
    }
    for node in nodes {
        let store = &cluster.stores[node];
        store.cut_log(TabletId(TABLET));
        wait_for(|| store.handle(TabletId(TABLET)).unwrap().log_start() > 0);
    }
}

fn holds_all(cluster: &Cluster, node: u64) -> bool {
    let mut rows = (0..FILES).flat_map(|file| (0..FILE_BYTES / ROW_BYTES).map(move |row| 1_000 + file * 1_000 + row));
    rows.all(|n| cluster.stored(node, TABLET, n) == 1)
}

fn sent(store: &Store) -> u64 {
    store.counters().copy_bytes_sent.load(Ordering::Relaxed)
}

fn received(store: &Store) -> u64 {
    store.counters().copy_bytes_received.load(Ordering::Relaxed)
}

fn set_rate(cluster: &Cluster, rate: u64) {
    cluster.stores.values().for_each(|store| store.set_copy_rate(rate));
}

/// A tablet of `voters` with data, and a copy of it under way to `to` of which one file has come, and a part of the other.
fn half_copied(cluster: &Cluster, voters: &[u64], wanted: &[u64], to: u64) {
    voters.iter().for_each(|node| cluster.open(*node, TABLET, voters, voters));
    fill(cluster, voters);
    set_rate(cluster, 3 << 20);
    cluster.want(voters, wanted);
    wait_for(|| received(&cluster.stores[&to]) > FILES * FILE_BYTES / 2 + FILE_BYTES / 4);
}

#[test]
fn a_follower_sends_the_copy_and_its_progress_can_be_seen() {
    let cluster = Cluster::start(4);
    (1..=3).for_each(|node| cluster.open(node, TABLET, &[1, 2, 3], &[1, 2, 3]));
    wait_for(|| cluster.leader(TABLET) == Some(1));
    fill(&cluster, &[1, 2, 3]);
    set_rate(&cluster, 6 << 20);
    cluster.want(&[1, 2, 3], &[1, 2, 4]);
    let seen = |node: u64| cluster.stores[&node].copies().into_iter().find(|copy| copy.bytes_done > FILE_BYTES / 2);
    wait_for(|| seen(4).is_some());
    let incoming = seen(4).unwrap();
    assert_eq!((incoming.tablet, incoming.to, incoming.incoming), (TabletId(TABLET), NodeId(4), true));
    assert!(incoming.bytes_total >= FILES * FILE_BYTES && incoming.bytes_done <= incoming.bytes_total);
    assert!(incoming.from == NodeId(2) || incoming.from == NodeId(3), "{incoming:?}");
    let outgoing = cluster.stores[&incoming.from.0].copies();
    assert!(outgoing.iter().any(|copy| !copy.incoming && copy.to == NodeId(4) && copy.from == incoming.from));
    set_rate(&cluster, 1 << 30);
    cluster.finish_move(&[1, 2, 4]);
    wait_for(|| holds_all(&cluster, 4));
    assert_eq!(sent(&cluster.stores[&1]), 0, "the leader has other things to do");
    wait_for(|| (1..=4).all(|node| cluster.stores[&node].copies().is_empty()));
    wait_for(|| [1, 2, 4].iter().all(|node| cluster.left(*node) == ["1000"]));
}

#[test]
fn a_copy_brings_what_is_flushed_and_the_log_the_rest_without_another_flush() {
    let cluster = Cluster::start(2);
    cluster.open(1, TABLET, &[1], &[1]);
    fill(&cluster, &[1]);
    cluster.add(TABLET, 1);
    let flushes = |node: u64| cluster.stores[&node].handle(TabletId(TABLET)).unwrap().data().flushes();
    let before = flushes(1);
    cluster.want(&[1], &[1, 2]);
    cluster.finish_move(&[1, 2]);
    wait_for(|| holds_all(&cluster, 2) && cluster.stored(2, TABLET, 1) == 1);
    assert!(received(&cluster.stores[&2]) >= FILES * FILE_BYTES, "it was copied");
    assert_eq!(flushes(1), before);
}

#[test]
fn a_follower_that_has_flushed_less_than_the_log_begins_with_flushes_for_the_copy() {
    let cluster = Cluster::start(4);
    (1..=3).for_each(|node| cluster.open(node, TABLET, &[1, 2, 3], &[1, 2, 3]));
    wait_for(|| cluster.leader(TABLET) == Some(1));
    fill(&cluster, &[1, 2, 3]);
    cluster.add(TABLET, 1);
    wait_for(|| (1..=3).all(|node| cluster.stored(node, TABLET, 1) == 1));
    // Only the leader flushes, and cuts its log behind that.
    let store = &cluster.stores[&1];
    let handle = store.handle(TabletId(TABLET)).unwrap();
    let began = handle.log_start();
    handle.data().flush(true).unwrap();
    wait_for(|| {
        store.cut_log(TabletId(TABLET));
        handle.log_start() > began
    });
    cluster.want(&[1, 2, 3], &[1, 2, 4]);
    cluster.finish_move(&[1, 2, 4]);
    wait_for(|| holds_all(&cluster, 4) && cluster.stored(4, TABLET, 1) == 1);
    assert_eq!(sent(store), 0, "a follower has sent it");
}

#[test]
fn a_copy_goes_on_where_it_was_when_its_receiver_is_restarted() {
    let mut cluster = Cluster::start(2);
    half_copied(&cluster, &[1], &[2], 2);
    cluster.stop_node(2);
    cluster.start_node(2);
    set_rate(&cluster, 1 << 30);
    cluster.open(2, TABLET, &[1], &[2]);
    cluster.finish_move(&[2]);
    wait_for(|| holds_all(&cluster, 2));
    // Of one file a part had come; without the other it would be more.
    let all = FILES * FILE_BYTES;
    let again = sent_until_now(&cluster) - all;
    assert!(again < FILE_BYTES + SLACK_BYTES, "{again} bytes were sent again");
    assert!(received(&cluster.stores[&2]) < all, "not all of it after the restart");
}

/// What node 1 has sent; it lives as long as the test.
fn sent_until_now(cluster: &Cluster) -> u64 {
    sent(&cluster.stores[&1])
}

#[test]
fn a_copy_goes_on_where_it_was_when_its_sender_is_restarted() {
    let mut cluster = Cluster::start(2);
    half_copied(&cluster, &[1], &[2], 2);
    cluster.stop_node(1);
    cluster.start_node(1);
    assert_eq!(cluster.left(1), ["1000"], "the checkpoint is gone");
    set_rate(&cluster, 1 << 30);
    cluster.open(1, TABLET, &[1], &[2]);
    wait_for(|| holds_all(&cluster, 2));
    let again = sent(&cluster.stores[&1]);
    assert!(again < FILE_BYTES + SLACK_BYTES, "{again} bytes were sent after the restart");
}

#[test]
fn a_connection_that_breaks_costs_no_more_than_a_file() {
    let cluster = Cluster::start(2);
    half_copied(&cluster, &[1], &[2], 2);
    cluster.hub.cut.write().unwrap().push(2);
    wait_for(|| cluster.stores.values().all(|store| store.copies().is_empty()));
    assert_eq!(cluster.left(1), ["1000"], "neither a checkpoint nor anything else is left");
    cluster.hub.cut.write().unwrap().clear();
    set_rate(&cluster, 1 << 30);
    cluster.finish_move(&[2]);
    wait_for(|| holds_all(&cluster, 2));
    let again = sent_until_now(&cluster) - FILES * FILE_BYTES;
    assert!(again < FILE_BYTES + SLACK_BYTES, "{again} bytes were sent again");
}

#[test]
fn a_copy_whose_leader_does_not_answer_ends_on_both_sides_and_another_goes_on_from_there() {
    let cluster = Cluster::start(4);
    (1..=3).for_each(|node| cluster.open(node, TABLET, &[1, 2, 3], &[1, 2, 3]));
    wait_for(|| cluster.leader(TABLET) == Some(1));
    fill(&cluster, &[1, 2, 3]);
    *cluster.hub.copies.lock().unwrap() = Some(Vec::new());
    *cluster.hub.loses.write().unwrap() = Some(|frame| matches!(frame, Frame::Reached { .. }));
    cluster.want(&[1, 2, 3], &[1, 2, 4]);
    let is_broken = |frame: Frame<'_>| matches!(frame, Frame::Answer { state: State::Broken, .. });
    let was_sent = |is_it: fn(Frame<'_>) -> bool| {
        let frames = cluster.hub.copies.lock().unwrap();
        frames.iter().flatten().any(|(_, bytes)| Frame::decode(bytes).is_ok_and(is_it))
    };
    wait_for(|| was_sent(is_broken));
    // No other copy begins now, so that the former one does not end because of that.
    *cluster.hub.loses.write().unwrap() = Some(|frame| matches!(frame, Frame::Ask { .. }));
    wait_for(|| cluster.stores.values().all(|store| store.copies().is_empty()));
    *cluster.hub.loses.write().unwrap() = None;
    cluster.finish_move(&[1, 2, 4]);
    wait_for(|| holds_all(&cluster, 4));
    let received = received(&cluster.stores[&4]);
    assert!(received < FILES * FILE_BYTES + SLACK_BYTES, "{received}: files that had come are not sent again");
}

#[test]
fn a_copy_of_a_tablet_that_is_dropped_leaves_nothing_on_either_side() {
    let cluster = Cluster::start(2);
    half_copied(&cluster, &[1], &[2], 2);
    assert!(cluster.left(2).iter().any(|name| name == "1000.incoming"));
    cluster.stores.values().for_each(|store| store.close(&[TabletId(TABLET)]));
    wait_for(|| cluster.left(1).is_empty() && cluster.left(2).is_empty());
    wait_for(|| cluster.stores.values().all(|store| store.copies().is_empty()));
    assert!(cluster.stores.values().all(|store| store.handle(TabletId(TABLET)).is_none()));
}

#[test]
fn a_tablet_that_is_dropped_while_a_copy_of_it_is_opened_does_not_stay_open() {
    let cluster = Cluster::start(2);
    cluster.open(1, TABLET, &[1], &[1]);
    fill(&cluster, &[1]);
    let weak = Arc::downgrade(&cluster.stores[&2]);
    *cluster.hub.on_opening.write().unwrap() = Some(Box::new(move |node| {
        if let Some(store) = weak.upgrade().filter(|_| node == 2) {
            store.close(&[TabletId(TABLET)]);
        }
    }));
    cluster.want(&[1], &[2]);
    wait_for(|| cluster.stores[&2].handle(TabletId(TABLET)).is_none());
    cluster.stores[&1].close(&[TabletId(TABLET)]);
    wait_for(|| cluster.stores[&2].copies().is_empty() && cluster.left(2).is_empty());
    assert!(cluster.stores[&2].handle(TabletId(TABLET)).is_none());
    *cluster.hub.on_opening.write().unwrap() = None;
}

#[test]
fn a_tablet_that_is_dropped_while_a_copy_waits_for_readers_is_gone_and_can_come_back() {
    let cluster = Cluster::start(2);
    cluster.open(1, TABLET, &[1], &[1]);
    fill(&cluster, &[1]);
    cluster.open(2, TABLET, &[1], &[1]);
    let reader = Arc::clone(cluster.stores[&2].handle(TabletId(TABLET)).unwrap().data());
    cluster.want(&[1], &[2]);
    // The installation has detached the replica and waits for the reader.
    wait_for(|| cluster.stores[&2].handle(TabletId(TABLET)).is_none());
    cluster.stores[&2].close(&[TabletId(TABLET)]);
    drop(reader);
    cluster.open(2, TABLET, &[1], &[2]);
    cluster.finish_move(&[2]);
    wait_for(|| holds_all(&cluster, 2));
}

#[test]
fn the_rate_can_be_changed_while_a_copy_is_under_way() {
    let cluster = Cluster::start(2);
    half_copied(&cluster, &[1], &[2], 2);
    // So slow that it would take hours; what counts is that it does not have to end before the rate is raised.
    set_rate(&cluster, 1_000);
    let (_never, wait) = sync_channel::<()>(1);
    let _ = wait.recv_timeout(Duration::from_millis(300));
    assert!(received(&cluster.stores[&2]) < FILES * FILE_BYTES);
    assert!(!holds_all(&cluster, 2));
    set_rate(&cluster, 1 << 30);
    cluster.finish_move(&[2]);
    wait_for(|| holds_all(&cluster, 2));
}
