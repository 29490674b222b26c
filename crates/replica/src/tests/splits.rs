//! Tablets are split in two while they are written to, and nothing that was acknowledged is lost or found twice.

use super::cluster::{Cluster, wait_for};
use super::*;
use diorite_storage::ScanRange;

const PARENT: u64 = 1_000;
const CHILDREN: [u64; 2] = [1_001, 1_002];
const ROWS: u64 = 40;

fn opened() -> Cluster {
    let cluster = Cluster::start(3);
    (1..=3).for_each(|node| cluster.open(node, PARENT, &[1, 2, 3], &[1, 2, 3]));
    wait_for(|| cluster.leader(PARENT) == Some(1));
    (0..ROWS).for_each(|n| cluster.add(PARENT, n));
    cluster
}

fn half() -> Split {
    Split { boundary: key(ROWS / 2), children: CHILDREN.map(TabletId) }
}

fn child_of(n: u64) -> u64 {
    CHILDREN[usize::from(n >= ROWS / 2)]
}

/// The rows of a replica, leader or not.
fn rows(store: &Store, tablet: u64) -> Vec<Vec<u8>> {
    let handle = store.handle(TabletId(tablet)).unwrap();
    let mut found = Vec::new();
    let range = ScanRange { start: &[0], end: &[0xFF; 16], reverse: false, expected_entries: 100 };
    handle
        .data()
        .scan(&range, &mut |key, _| {
            found.push(key.to_vec());
            true
        })
        .unwrap();
    found
}

fn have_begun(cluster: &Cluster) -> bool {
    let has = |store: &Arc<Store>| CHILDREN.iter().all(|child| store.handle(TabletId(*child)).is_some());
    cluster.stores.values().all(has) && CHILDREN.iter().all(|child| cluster.leader(*child).is_some())
}

#[test]
fn a_replica_that_is_split_while_it_is_being_opened_has_children_once_it_is() {
    let cluster = opened();
    let store = &cluster.stores[&2];
    let handle = store.handle(TabletId(PARENT)).unwrap();
    // As when many are opened with it: its store thread has it, but lookups do not find it yet.
    store.replicas.installing.begin(&[TabletId(PARENT)]);
    store.replicas.update_tablets(|tablets| {
        tablets.remove(&TabletId(PARENT));
    });
    cluster.stores[&1].split(TabletId(PARENT), half());
    wait_for(|| handle.split().is_some());
    // Time enough to look for it in vain.
    let (_never, wait) = sync_channel::<()>(1);
    assert!(wait.recv_timeout(std::time::Duration::from_millis(100)).is_err());
    store.replicas.update_tablets(|tablets| {
        tablets.insert(TabletId(PARENT), Arc::clone(&handle));
    });
    assert!(store.replicas.installing.end(&[TabletId(PARENT)]).is_empty());
    wait_for(|| have_begun(&cluster));
}

#[test]
fn a_split_that_replicas_could_not_apply_is_not_proposed_and_the_tablet_goes_on() {
    let cluster = opened();
    let boundary = vec![0x80; diorite_base::limits::MAX_STORED_KEY_BYTES + 16];
    cluster.stores[&1].split(TabletId(PARENT), Split { boundary, children: CHILDREN.map(TabletId) });
    // A later entry would be refused if the log contained it.
    (0..ROWS).for_each(|n| cluster.add(PARENT, n));
    assert!(cluster.stores.values().all(|store| store.handle(TabletId(PARENT)).unwrap().split().is_none()));
}

#[test]
fn children_hold_what_the_parent_held_each_its_own_and_go_on() {
    let mut cluster = opened();
    // A part is in files that the children share, a part in memory.
    cluster.stores[&2].handle(TabletId(PARENT)).unwrap().data().flush(true).unwrap();
    (0..ROWS).for_each(|n| cluster.add(PARENT, n));
    cluster.stores[&1].split(TabletId(PARENT), half());
    wait_for(|| have_begun(&cluster));
    assert_eq!(cluster.leader(PARENT), None, "it answers nobody any more");
    let refused = write_all(&cluster.stores[&1], vec![(PARENT, add(1, 1))]);
    assert!(matches!(refused[0], Err(KvError::NotLeader { leader: None, .. })), "{refused:?}");
    for n in 0..ROWS {
        assert_eq!(cluster.read(child_of(n), n), 2);
        cluster.add(child_of(n), n);
    }
    assert_eq!(
        cluster.hub.splits.read().unwrap().first().map(|(node, mark)| (*node, mark.parent.0)),
        Some((1, PARENT))
    );
    // No row exists twice, on any replica, neither now nor after a restart that loses the memory.
    for round in 0..2 {
        for (node, store) in &cluster.stores {
            for (child, own) in CHILDREN.iter().zip([0..ROWS / 2, ROWS / 2..ROWS]) {
                let expected: Vec<Vec<u8>> = own.clone().map(key).collect();
                wait_for(|| own.clone().all(|n| cluster.stored(*node, *child, n) == 3));
                assert_eq!(rows(store, *child), expected, "node {node}, {child}, round {round}");
            }
        }
        for node in 1..=3 {
            cluster.stop_node(node);
            cluster.start_node(node);
            let initial = &[1, 2, 3];
            [PARENT, CHILDREN[0], CHILDREN[1]].iter().for_each(|tablet| cluster.open(node, *tablet, initial, initial));
        }
        wait_for(|| have_begun(&cluster));
    }
}

#[test]
fn a_replica_that_was_away_still_splits_when_it_learns_of_it() {
    let mut cluster = opened();
    cluster.stop_node(3);
    cluster.stores[&1].split(TabletId(PARENT), half());
    wait_for(|| CHILDREN.iter().all(|child| cluster.leader(*child).is_some()));
    (0..ROWS).for_each(|n| cluster.add(child_of(n), n));
    cluster.start_node(3);
    cluster.open(3, PARENT, &[1, 2, 3], &[1, 2, 3]);
    wait_for(|| have_begun(&cluster));
    for n in 0..ROWS {
        wait_for(|| cluster.stored(3, child_of(n), n) == 2);
    }
    // And it is one of those that are needed.
    cluster.stop_node(1);
    (0..ROWS).for_each(|n| cluster.add(child_of(n), n));
    assert!((0..ROWS).all(|n| cluster.read(child_of(n), n) == 3));
}

#[test]
fn writes_that_meet_the_split_are_done_once_or_not_at_all() {
    let cluster = opened();
    let store = Arc::clone(&cluster.stores[&1]);
    let mut done = vec![1u64; ROWS as usize];
    for round in 0..50 {
        if round == 20 {
            store.split(TabletId(PARENT), half());
        }
        let outcomes = write_all(&store, (0..ROWS).map(|n| (PARENT, add(n, 1))).collect());
        outcomes.iter().zip(&mut done).for_each(|(outcome, done)| *done += u64::from(outcome.is_ok()));
    }
    wait_for(|| have_begun(&cluster));
    assert!(done[0] < 50, "the parent has ended");
    assert!((0..ROWS).all(|n| cluster.read(child_of(n), n) == done[n as usize]));
}

fn prepare(store: &Store) {
    wait_for(|| store.prepare_split(TabletId(PARENT), &half()));
}

fn all_hold(cluster: &Cluster, sum: u64) {
    for (node, store) in &cluster.stores {
        for n in 0..ROWS {
            wait_for(|| cluster.stored(*node, child_of(n), n) == sum);
        }
        for child in CHILDREN {
            assert_eq!(rows(store, child).len() as u64, ROWS / 2, "node {node}, {child}");
        }
    }
}

#[test]
fn children_that_were_prepared_get_what_came_after_that_from_the_log() {
    let mut cluster = opened();
    // One is prepared in time, one too early for what its log still holds, one not at all.
    prepare(&cluster.stores[&1]);
    prepare(&cluster.stores[&2]);
    (0..ROWS).for_each(|n| cluster.add(PARENT, n));
    let follower = &cluster.stores[&2];
    wait_for(|| (0..ROWS).all(|n| cluster.stored(2, PARENT, n) == 2));
    follower.handle(TabletId(PARENT)).unwrap().data().flush(true).unwrap();
    follower.cut_log(TabletId(PARENT));
    wait_for(|| follower.handle(TabletId(PARENT)).unwrap().log_start() > ROWS);
    (0..ROWS).for_each(|n| cluster.add(PARENT, n));
    cluster.stores[&1].split(TabletId(PARENT), half());
    wait_for(|| have_begun(&cluster));
    all_hold(&cluster, 3);
    (0..ROWS).for_each(|n| cluster.add(child_of(n), n));
    for node in 1..=3 {
        cluster.stop_node(node);
        cluster.start_node(node);
        [PARENT, CHILDREN[0], CHILDREN[1]]
            .iter()
            .for_each(|tablet| cluster.open(node, *tablet, &[1, 2, 3], &[1, 2, 3]));
    }
    wait_for(|| have_begun(&cluster));
    all_hold(&cluster, 4);
}

#[test]
fn what_was_prepared_before_a_restart_does_not_count() {
    let mut cluster = opened();
    (1..=3).for_each(|node| prepare(&cluster.stores[&node]));
    (0..ROWS).for_each(|n| cluster.add(PARENT, n));
    for node in 1..=3 {
        cluster.stop_node(node);
        assert!(cluster.homes[node as usize - 1].path().join(format!("tablets/{}", CHILDREN[0])).is_dir());
        cluster.start_node(node);
        // Otherwise a node that knows that the children have replaced it would open them empty, and they would never be made.
        let store = &cluster.stores[&node];
        assert!(store.has_files(TabletId(PARENT)) && !store.has_files(TabletId(CHILDREN[0])));
        cluster.open(node, PARENT, &[1, 2, 3], &[1, 2, 3]);
    }
    let leader = cluster.wait_for_leader(PARENT);
    cluster.stores[&leader].split(TabletId(PARENT), half());
    wait_for(|| have_begun(&cluster));
    all_hold(&cluster, 2);
}

#[test]
fn a_child_that_is_made_late_begins_where_its_parent_was_split() {
    let mut cluster = opened();
    *cluster.hub.ignorant.write().unwrap() = Some(3);
    cluster.stores[&1].split(TabletId(PARENT), half());
    wait_for(|| CHILDREN.iter().all(|child| cluster.leader(*child).is_some()));
    // Others lead the parent now: its log has grown beyond the entry that split it.
    let split_at = cluster.stores[&2].split_of(TabletId(PARENT)).unwrap().index;
    wait_for(|| cluster.stores[&3].split_of(TabletId(PARENT)).is_some());
    cluster.stop_node(1);
    let applied =
        |cluster: &Cluster| cluster.stores[&3].handle(TabletId(PARENT)).unwrap().data().applied_state().unwrap().index;
    wait_for(|| applied(&cluster) > split_at);
    *cluster.hub.ignorant.write().unwrap() = None;
    wait_for(|| have_begun(&cluster));
    (0..ROWS).for_each(|n| cluster.add(child_of(n), n));
    all_hold(&cluster, 2);
}
