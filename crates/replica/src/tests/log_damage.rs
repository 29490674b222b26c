//! Raft logs in whose files bytes were changed while the node was down: no replica votes with a log that has lost
//! acknowledged entries, the node starts, and replicas are rebuilt if others are healthy.

use super::cluster::{Cluster, of_three, wait_for};
use super::*;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

fn log_files(home: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(home.join("log")).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|kind| kind == "raftlog")).collect();
    files.sort();
    files
}

/// Changes as many bytes as damage any block they are in.
fn damage(path: &Path, at: u64) {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut bytes = vec![0; 600];
    let read = file.read_at(&mut bytes, at).unwrap();
    bytes.iter_mut().for_each(|byte| *byte ^= 0x5a);
    file.write_all_at(&bytes[..read], at).unwrap();
}

fn aside(store: &Store) -> Vec<u64> {
    let asides = store.set_aside();
    assert!(asides.iter().all(|aside| aside.reason.contains("raft log")), "{asides:?}");
    asides.iter().map(|aside| aside.tablet.0).collect()
}

/// Waits longer than elections take.
fn pause() {
    let (_never, wait) = sync_channel::<()>(1);
    let _ = wait.recv_timeout(Duration::from_secs(4));
}

#[test]
fn a_replica_whose_log_has_lost_what_it_acknowledged_does_not_vote_and_is_made_anew() {
    let mut cluster = Cluster::start(3);
    for tablet in 1_000..1_002 {
        (1..=3).for_each(|node| cluster.open(node, tablet, &[1, 2, 3], &[1, 2, 3]));
        wait_for(|| cluster.leader(tablet) == Some(1));
        cluster.add(tablet, 1);
    }
    wait_for(|| (1..=3).all(|node| cluster.stored(node, 1_000, 1) == 1 && cluster.stored(node, 1_001, 1) == 1));
    // Nothing of what the others acknowledge reaches the second.
    cluster.hub.cut.write().unwrap().push(2);
    (0..30).for_each(|_| cluster.add(1_000, 1));
    wait_for(|| cluster.stored(3, 1_000, 1) == 31);
    cluster.stop_node(1);
    cluster.stop_node(3);
    let newest = log_files(cluster.homes[2].path()).pop().unwrap();
    damage(&newest, newest.metadata().unwrap().len() / 2);
    cluster.start_node(3);
    cluster.stores[&3].open(vec![of_three(1_000), of_three(1_001)]).unwrap();
    assert_eq!(aside(&cluster.stores[&3]), [1_000, 1_001]);
    cluster.hub.cut.write().unwrap().clear();
    pause();
    assert_eq!(cluster.leader(1_000), None, "the second knows nothing, the third has lost it: they must not agree");
    cluster.start_node(1);
    cluster.stores[&1].open(vec![of_three(1_000), of_three(1_001)]).unwrap();
    assert_eq!((cluster.read(1_000, 1), cluster.read(1_001, 1)), (31, 1));
    wait_for(|| cluster.stored(3, 1_000, 1) == 31 && cluster.stored(3, 1_001, 1) == 1);
    wait_for(|| aside(&cluster.stores[&3]).is_empty());
    // It counts again.
    cluster.stop_node(2);
    cluster.add(1_000, 1);
    assert_eq!(cluster.read(1_000, 1), 32);
}

#[test]
fn a_node_whose_log_cannot_be_opened_starts_and_its_replicas_are_made_anew() {
    let mut cluster = Cluster::start(3);
    (1..=3).for_each(|node| cluster.open(node, 1_000, &[1, 2, 3], &[1, 2, 3]));
    wait_for(|| cluster.leader(1_000) == Some(1));
    cluster.add(1_000, 1);
    // More than fits into one file.
    for n in 0..20 {
        let mut mutation = Mutation::blind(None);
        mutation.push(OperationKind::Overwrite, false, &key(100 + n), &[n as u8 + 1; 1 << 20]);
        wait_for(|| {
            let leader = cluster.wait_for_leader(1_000);
            write_all(&cluster.stores[&leader], vec![(1_000, mutation.clone())])[0].is_ok()
        });
    }
    wait_for(|| cluster.stored(3, 1_000, 119) > 0);
    cluster.stop_node(3);
    let files = log_files(cluster.homes[2].path());
    assert!(files.len() > 1, "{files:?}");
    damage(&files[0], 0);
    cluster.start_node(3);
    cluster.stores[&3].open(vec![of_three(1_000)]).unwrap();
    assert_eq!(aside(&cluster.stores[&3]), [1_000]);
    let kept = cluster.homes[2].path().join("log/damaged-0");
    assert!(kept.exists());
    cluster.add(1_000, 1);
    wait_for(|| cluster.stored(3, 1_000, 1) == 2 && cluster.stored(3, 1_000, 119) > 0);
    wait_for(|| aside(&cluster.stores[&3]).is_empty());
    cluster.stop_node(2);
    cluster.add(1_000, 1);
    assert_eq!(cluster.read(1_000, 1), 3);
}

#[test]
fn the_only_replica_of_a_tablet_waits_until_the_loss_is_accepted() {
    let home = tempfile::tempdir().unwrap();
    let catalog = GroupId::CATALOG.0;
    let writes = |tablet, count| (0..count).map(|_| (tablet, add(1, 1))).collect::<Vec<_>>();
    {
        let store = start(home.path(), 1 << 30);
        open(&store, [catalog, 1_000]);
        for _ in 0..20 {
            assert!(write_all(&store, writes(1_000, 1)).iter().all(Result::is_ok));
        }
    }
    let newest = log_files(home.path()).pop().unwrap();
    damage(&newest, newest.metadata().unwrap().len() / 2);
    for _ in 0..2 {
        let store = start(home.path(), 1 << 30);
        open(&store, [catalog, 1_000, 1_001]);
        assert_eq!(aside(&store), [catalog, 1_000], "and again after the next start");
        assert!(store.set_aside()[0].is_only, "the catalog is served");
        assert!(store.handle(TabletId(1_000)).is_none() && store.handle(TabletId(1_001)).is_some());
        assert!(store.handle(TabletId(catalog)).is_some());
        assert!(write_all(&store, writes(1_001, 1))[0].is_ok(), "others are served");
    }
    let store = start_accepting(home.path());
    open(&store, [catalog, 1_000]);
    assert!(aside(&store).is_empty());
    let left = read(&store, 1_000, 1);
    assert!((1..20).contains(&left), "{left} of 20 are left");
    assert!(write_all(&store, writes(1_000, 1))[0].is_ok());
    drop(store);
    let store = start(home.path(), 1 << 30);
    open(&store, [catalog, 1_000]);
    assert!(aside(&store).is_empty());
    assert_eq!(read(&store, 1_000, 1), left + 1);
}
