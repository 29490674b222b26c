//! Replicas move between real stores: joint changes of the members, copies, and what must not happen on the way.

use super::cluster::{Cluster, wait_for};
use super::*;
use diorite_base::NodeId;

pub(super) const TABLET: u64 = 1_000;

fn nodes(ids: &[u64]) -> Vec<NodeId> {
    ids.iter().copied().map(NodeId).collect()
}

impl Cluster {
    /// Wants these voters: opens replicas where there are none, and tells all.
    pub(super) fn want(&self, initial: &[u64], voters: &[u64]) {
        self.hub.placed.write().unwrap().insert(TABLET, (initial.to_vec(), voters.to_vec()));
        for node in voters {
            if self.stores[node].handle(TabletId(TABLET)).is_none() {
                self.open(*node, TABLET, initial, voters);
            }
        }
        for store in self.stores.values() {
            store.set_members(TabletId(TABLET), Members { voters: nodes(voters), learners: Vec::new() });
        }
    }

    /// Waits until a quorum knows the wanted voters, and closes the replicas of all others.
    pub(super) fn finish_move(&self, voters: &[u64]) {
        let wanted = nodes(voters);
        wait_for(|| {
            self.stores.values().any(|store| store.committed_voters(TabletId(TABLET)).is_some_and(|it| it == wanted))
        });
        for (node, store) in &self.stores {
            if !voters.contains(node) {
                store.close(&[TabletId(TABLET)]);
            }
        }
    }

    fn move_to(&self, initial: &[u64], voters: &[u64]) {
        self.want(initial, voters);
        self.finish_move(voters);
    }

    /// The names in a node's directory of tablets.
    pub(super) fn left(&self, node: u64) -> Vec<String> {
        let entries = std::fs::read_dir(self.homes[node as usize - 1].path().join("tablets")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

#[test]
fn a_replica_moves_while_writes_go_on() {
    let cluster = Cluster::start(4);
    (1..=3).for_each(|node| cluster.open(node, TABLET, &[1, 2, 3], &[1, 2, 3]));
    (0..10).for_each(|_| cluster.add(TABLET, 1));
    cluster.want(&[1, 2, 3], &[1, 2, 4]);
    let done = std::sync::atomic::AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 10;
            while !done.load(std::sync::atomic::Ordering::Acquire) || written < 60 {
                cluster.add(TABLET, 1);
                written += 1;
            }
            written
        });
        cluster.finish_move(&[1, 2, 4]);
        done.store(true, std::sync::atomic::Ordering::Release);
        writer.join().unwrap()
    });
    assert_eq!(cluster.read(TABLET, 1), written);
    wait_for(|| cluster.stored(4, TABLET, 1) == written);
    assert!(cluster.left(3).is_empty(), "{:?}", cluster.left(3));
    let mut voters = cluster.stores[&4].voters(TabletId(TABLET));
    voters.sort_unstable();
    assert_eq!(voters, nodes(&[1, 2, 4]));
}

#[test]
fn a_leader_that_is_to_go_transfers_leadership_first_also_if_nobody_stays() {
    let cluster = Cluster::start(4);
    (1..=3).for_each(|node| cluster.open(node, TABLET, &[1, 2, 3], &[1, 2, 3]));
    wait_for(|| cluster.leader(TABLET) == Some(1));
    (0..10).for_each(|_| cluster.add(TABLET, 1));
    cluster.move_to(&[1, 2, 3], &[2, 3, 4]);
    assert!(cluster.stores[&1].handle(TabletId(TABLET)).is_none());
    cluster.add(TABLET, 1);
    assert_eq!(cluster.read(TABLET, 1), 11);
    // From three to one that was not there, and to another one after that.
    cluster.move_to(&[1, 2, 3], &[1]);
    cluster.add(TABLET, 1);
    cluster.move_to(&[1, 2, 3], &[4]);
    cluster.add(TABLET, 1);
    assert_eq!((cluster.leader(TABLET), cluster.read(TABLET, 1)), (Some(4), 13));
    assert!((1..=3).all(|node| cluster.left(node).is_empty()));
}

#[test]
fn a_replica_that_was_moved_away_and_back_does_not_vote_before_it_has_caught_up() {
    let mut cluster = Cluster::start(3);
    // The only initial voter: an empty replica that took itself for that would lead at once.
    cluster.open(1, TABLET, &[1], &[1]);
    (0..10).for_each(|_| cluster.add(TABLET, 1));
    cluster.move_to(&[1], &[2]);
    cluster.add(TABLET, 1);
    let home_of_two = cluster.stores[&2].handle(TabletId(TABLET)).unwrap().data().applied_state().unwrap();
    cluster.stop_node(2);
    cluster.open(1, TABLET, &[1], &[1]);
    let returned = cluster.stores[&1].handle(TabletId(TABLET)).unwrap();
    let (_never, wait) = sync_channel::<()>(1);
    for _ in 0..100 {
        assert_ne!(returned.leadership(), Leadership::Here, "with an empty log");
        let _ = wait.recv_timeout(std::time::Duration::from_millis(20));
    }
    assert_eq!(returned.data().applied_state().unwrap().index, 0);
    drop(returned);
    cluster.start_node(2);
    cluster.open(2, TABLET, &[1], &[1]);
    cluster.finish_move(&[1]);
    assert_eq!(cluster.read(TABLET, 1), 11);
    assert!(
        cluster.stores[&1].handle(TabletId(TABLET)).unwrap().data().applied_state().unwrap().index > home_of_two.index
    );
}

#[test]
fn what_a_removed_replica_must_remember_outlasts_a_restart_and_goes_with_the_tablet() {
    let mut cluster = Cluster::start(2);
    cluster.open(1, TABLET, &[1], &[1]);
    (0..10).for_each(|_| cluster.add(TABLET, 1));
    cluster.move_to(&[1], &[2]);
    cluster.stop_node(2);
    cluster.stop_node(1);
    cluster.start_node(1);
    cluster.open(1, TABLET, &[1], &[1]);
    let (_never, wait) = sync_channel::<()>(1);
    for _ in 0..100 {
        assert!(cluster.leader(TABLET).is_none(), "with an empty log");
        let _ = wait.recv_timeout(std::time::Duration::from_millis(20));
    }
    cluster.stores[&1].close(&[TabletId(TABLET)]);
    // A tablet that was dropped for good needs no memory, and its number is given to no other: this is only to see that nothing is left.
    cluster.stores[&1].remove_orphans(|_| true).unwrap();
    cluster.open(1, TABLET, &[1], &[1]);
    cluster.add(TABLET, 2);
    assert_eq!((cluster.read(TABLET, 1), cluster.read(TABLET, 2)), (0, 1));
}

#[test]
fn a_replica_that_departed_while_its_node_was_down_is_removed_and_remembered() {
    let mut cluster = Cluster::start(4);
    (1..=3).for_each(|node| cluster.open(node, TABLET, &[1, 2, 3], &[1, 2, 3]));
    (0..10).for_each(|_| cluster.add(TABLET, 1));
    cluster.stop_node(3);
    cluster.move_to(&[1, 2, 3], &[1, 2, 4]);
    cluster.start_node(3);
    cluster.stores[&3].remove_departed(|tablet| tablet == TabletId(TABLET)).unwrap();
    assert!(cluster.left(3).is_empty());
    // It comes back, empty, and is a voter like any other in the end.
    cluster.move_to(&[1, 2, 3], &[2, 3, 4]);
    cluster.stop_node(2);
    cluster.add(TABLET, 1);
    assert_eq!(cluster.read(TABLET, 1), 11);
}

#[test]
fn a_replica_that_does_not_know_that_it_was_removed_ends_no_term() {
    let cluster = Cluster::start(4);
    (1..=3).for_each(|node| cluster.open(node, TABLET, &[1, 2, 3], &[1, 2, 3]));
    wait_for(|| cluster.leader(TABLET) == Some(1));
    cluster.add(TABLET, 1);
    cluster.hub.cut.write().unwrap().push(3);
    cluster.want(&[1, 2, 3], &[1, 2, 4]);
    wait_for(|| cluster.stores[&1].committed_voters(TabletId(TABLET)).is_some_and(|it| it == nodes(&[1, 2, 4])));
    // It takes itself for a voter and has lost its leader: it campaigns from now on.
    let campaigns = || cluster.stores[&3].counters().campaigns.load(std::sync::atomic::Ordering::Relaxed);
    let before = campaigns();
    wait_for(|| campaigns() > before + 3);
    cluster.hub.cut.write().unwrap().clear();
    let before = campaigns();
    for _ in 0..50 {
        cluster.add(TABLET, 1);
    }
    wait_for(|| campaigns() > before + 3);
    assert_eq!((cluster.leader(TABLET), cluster.read(TABLET, 1)), (Some(1), 51));
    cluster.stores[&3].close(&[TabletId(TABLET)]);
    assert!(cluster.left(3).is_empty());
}
