//! Replicas that cannot be used, and logs and data that hang: the node serves all others, and what can be made anew is.

use super::cluster::{Cluster, of_three, wait_for};
use super::disks::Opens;
use super::*;
use diorite_storage::{LogBatch, LogRecords, StorageError};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

fn three_with(tablets: std::ops::Range<u64>) -> Cluster {
    let cluster = Cluster::start(3);
    for tablet in tablets {
        (1..=3).for_each(|node| cluster.open(node, tablet, &[1, 2, 3], &[1, 2, 3]));
        wait_for(|| cluster.leader(tablet) == Some(1));
    }
    cluster
}

fn directory(cluster: &Cluster, node: u64, name: &str) -> PathBuf {
    cluster.homes[node as usize - 1].path().join("tablets").join(name)
}

fn files(cluster: &Cluster, node: u64, ends_with: &str) -> Vec<PathBuf> {
    let found = std::fs::read_dir(directory(cluster, node, "1000")).unwrap().map(|file| file.unwrap().path());
    found.filter(|path| path.to_string_lossy().ends_with(ends_with)).collect()
}

#[test]
fn a_replica_that_cannot_be_opened_keeps_no_other_from_it_and_is_made_anew() {
    let mut cluster = three_with(1_000..1_002);
    (0..5).for_each(|_| cluster.add(1_000, 1));
    cluster.add(1_001, 1);
    wait_for(|| cluster.stored(3, 1_000, 1) == 5);
    cluster.stores[&3].handle(TabletId(1_000)).unwrap().data().flush(true).unwrap();
    cluster.stop_node(3);
    std::fs::write(directory(&cluster, 3, "1000").join("CURRENT"), "MANIFEST-999999\n").unwrap();
    cluster.start_node(3);
    cluster.stores[&3].open(vec![of_three(1_000), of_three(1_001)]).unwrap();
    let aside = cluster.stores[&3].set_aside();
    assert_eq!(aside.iter().map(|aside| aside.tablet.0).collect::<Vec<_>>(), [1_000]);
    assert!(!aside[0].reason.is_empty());
    wait_for(|| cluster.stored(3, 1_001, 1) == 1);
    // The others go on, and from them it is made anew; then its former files are not needed any more.
    cluster.add(1_000, 1);
    wait_for(|| cluster.stored(3, 1_000, 1) == 6);
    wait_for(|| cluster.stores[&3].set_aside().is_empty());
    wait_for(|| !directory(&cluster, 3, "1000.aside").exists());
    cluster.stop_node(1);
    cluster.add(1_000, 1);
    assert_eq!(cluster.read(1_000, 1), 7);
}

/// The catalog takes evaluated mutations only; these count.
struct Counts;

impl Evaluator for Counts {
    fn evaluate(
        &self,
        program: &[u8],
        _: EvaluationContext,
        view: &dyn TabletView,
        changes: &mut dyn TabletChanges,
    ) -> Result<Vec<u8>, EvaluationFailed> {
        let count = view.get(program)?.map_or(0, |value| number(&value));
        changes.put(program, &(count + 1).to_le_bytes());
        Ok(Vec::new())
    }
}

fn counting() -> OpenTablet {
    OpenTablet { evaluator: Arc::new(Counts), ..plain(GroupId::CATALOG.0) }
}

#[test]
fn damaged_data_of_the_catalog_is_made_anew_from_its_log() {
    let home = tempfile::tempdir().unwrap();
    let catalog = GroupId::CATALOG.0;
    let directory = home.path().join("tablets").join(catalog.to_string());
    for round in 0..4 {
        let loaded = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&loaded);
        let on_loaded = move |_: &diorite_storage::Tablet| {
            // What it holds may be damaged as well.
            let is_first = seen.fetch_add(1, Ordering::Relaxed) == 0;
            if round == 3 && is_first { Err(StorageError::Corrupt("an object".to_owned())) } else { Ok(()) }
        };
        let store = start(home.path(), 1 << 30);
        store.open(vec![OpenTablet { on_loaded: Some(Box::new(on_loaded)), ..counting() }]).unwrap();
        assert_eq!(store.set_aside(), []);
        assert_eq!(loaded.load(Ordering::Relaxed), if round == 3 { 2 } else { 1 });
        assert_eq!(read(&store, catalog, 1), round);
        assert!(write_all(&store, vec![(catalog, evaluated_by_catalog(&key(1)))])[0].is_ok());
        store.handle(TabletId(catalog)).unwrap().data().flush(true).unwrap();
        drop(store);
        if round < 2 {
            std::fs::write(directory.join("CURRENT"), "MANIFEST-999999\n").unwrap();
        }
    }
}

#[test]
fn damaged_data_of_the_catalog_without_its_log_stays_as_it_is() {
    let home = tempfile::tempdir().unwrap();
    let catalog = GroupId::CATALOG.0;
    let directory = home.path().join("tablets").join(catalog.to_string());
    let store = start(home.path(), 1 << 30);
    store.open(vec![counting()]).unwrap();
    assert!(write_all(&store, vec![(catalog, evaluated_by_catalog(&key(1)))])[0].is_ok());
    let log = &store.replicas.disks[0].log;
    let mut batch = LogBatch::default();
    batch.truncate_to(GroupId::CATALOG, 1, 1, false).unwrap();
    log.write(&mut batch, true).unwrap();
    drop(store);
    std::fs::write(directory.join("CURRENT"), "MANIFEST-999999\n").unwrap();
    let store = start(home.path(), 1 << 30);
    store.open(vec![counting()]).unwrap_err();
    assert!(directory.join("CURRENT").is_file() && !home.path().join(format!("tablets/{catalog}.aside")).exists());
}

#[test]
fn damage_that_a_scrub_finds_is_repaired_from_the_others() {
    let cluster = three_with(1_000..1_002);
    for n in 0..8 {
        let mut mutation = Mutation::blind(None);
        mutation.push(OperationKind::Overwrite, false, &key(n), &[n as u8 + 1; 4_096]);
        assert!(write_all(&cluster.stores[&1], vec![(1_000, mutation)])[0].is_ok());
    }
    let store = &cluster.stores[&3];
    wait_for(|| cluster.stored(3, 1_000, 7) > 0);
    store.handle(TabletId(1_000)).unwrap().data().flush(true).unwrap();
    store.scrub(0);
    wait_for(|| !store.scrub_status().is_running);
    let status = store.scrub_status();
    assert_eq!((status.tablets_read, status.tablets, status.damaged.len()), (2, 2, 0));
    assert!(status.bytes_read > 8 * 4_096, "{status:?}");
    assert!(store.set_aside().is_empty());
    for path in files(&cluster, 3, ".sst") {
        use std::os::unix::fs::FileExt;
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&[0x55; 512], 100).unwrap();
    }
    store.scrub(0);
    wait_for(|| store.scrub_status().damaged == [TabletId(1_000)]);
    let holds = |n: u64| {
        let handle = store.handle(TabletId(1_000));
        handle.and_then(|handle| handle.data().get(&key(n)).ok().flatten()).is_some_and(|value| value.len() == 4_096)
    };
    wait_for(|| (0..8).all(holds) && store.set_aside().is_empty());
    store.scrub(0);
    wait_for(|| !store.scrub_status().is_running);
    assert!(store.scrub_status().damaged.is_empty(), "it was made anew");
}

#[test]
fn an_entry_that_no_replica_can_apply_costs_none_of_them_its_files_and_no_other_tablet_anything() {
    fail_at(poison(), "cannot be decoded");
}

#[test]
fn an_entry_at_which_every_replica_panics_is_one_that_none_can_apply() {
    fail_at(evaluated(BOMB), "panicked: it was thought to be impossible");
}

/// Three replicas are given what none of them can apply, for this reason.
fn fail_at(entry: Mutation, reason: &str) {
    let cluster = three_with(1_000..1_002);
    (0..3).for_each(|_| cluster.add(1_000, 1));
    wait_for(|| (1..=3).all(|node| cluster.stored(node, 1_000, 1) == 3));
    let outcome = write_all(&cluster.stores[&1], vec![(1_000, entry)]);
    assert!(outcome[0].is_err());
    // The leader fails, then the next leader; the third replica never gets a quorum.
    let failed = || (1..=3).filter(|node| !cluster.stores[node].set_aside().is_empty()).count();
    wait_for(|| failed() >= 2);
    let mut aside = (1..=3).flat_map(|node| cluster.stores[&node].set_aside());
    assert!(aside.all(|aside| aside.reason.contains(reason)), "{reason}");
    cluster.add(1_001, 1);
    let (_never, wait) = sync_channel::<()>(1);
    // Longer than it takes to make one anew.
    let _ = wait.recv_timeout(Duration::from_secs(4));
    for node in 1..=3 {
        assert!(cluster.stores[&node].set_aside().iter().all(|aside| !aside.is_rebuilding), "node {node}");
        assert!(directory(&cluster, node, "1000").exists() && !directory(&cluster, node, "1000.aside").exists());
    }
    assert_eq!(cluster.read(1_001, 1), 1);
}

#[test]
fn a_value_at_which_a_merge_panics_sets_its_replicas_aside_and_no_other() {
    let cluster = three_with(1_000..1_002);
    (1_000..1_002).for_each(|tablet| cluster.add(tablet, 1));
    let mut odd = Mutation::blind(None);
    // `Sums` panics at operands that are not eight bytes long.
    odd.push(OperationKind::Merge, false, &key(1), b"odd");
    assert!(write_all(&cluster.stores[&1], vec![(1_000, odd)])[0].is_ok());
    let read = || cluster.stores[&1].handle(TabletId(1_000)).map(|handle| handle.get(Permit::Lease, &key(1)));
    wait_for(|| read().is_none_or(|read| read.is_err()) && !cluster.stores[&1].set_aside().is_empty());
    assert_eq!(cluster.stores[&1].set_aside()[0].tablet, TabletId(1_000));
    cluster.add(1_001, 1);
    assert_eq!(cluster.read(1_001, 1), 2);
}

#[test]
fn a_log_that_hangs_lets_others_lead_and_its_replicas_go_on_when_it_does() {
    let cluster = three_with(1_000..1_004);
    (1_000..1_004).for_each(|tablet| cluster.add(tablet, 1));
    let log = &cluster.stores[&1].replicas.disks[0].log;
    log.hang(true);
    // Something that has to be written there, of each thread.
    let (sender, _outcomes) = sync_channel(8);
    let sink: Arc<dyn WriteSink> = Arc::new(Waiting(Mutex::new(sender)));
    for tablet in 1_000..1_004 {
        cluster.stores[&1].submit(TabletId(tablet), add(2, 1), &sink, 0).unwrap();
    }
    cluster.stores[&1].kick();
    wait_for(|| (1_000..1_004).all(|tablet| cluster.leader(tablet).is_some_and(|leader| leader != 1)));
    (1_000..1_004).for_each(|tablet| cluster.add(tablet, 1));
    for tablet in 1_000..1_004 {
        let handle = cluster.stores[&1].handle(TabletId(tablet)).unwrap();
        assert!(handle.get(Permit::Lease, &key(1)).is_err(), "it must not answer while another leads");
    }
    log.hang(false);
    wait_for(|| (1_000..1_004).all(|tablet| cluster.stored(1, tablet, 1) == 2));
    // It is preferred, so it leads again after a while.
    wait_for(|| (1_000..1_004).all(|tablet| cluster.leader(tablet) == Some(1)));
    (1_000..1_004).for_each(|tablet| cluster.add(tablet, 1));
    assert!((1_000..1_004).all(|tablet| cluster.read(tablet, 1) == 3));
}

#[test]
fn a_read_of_data_that_hangs_lets_others_lead_what_its_thread_led() {
    // What is doubled is read before.
    hang_in_data((true, false), program(1), 2);
}

#[test]
fn a_write_of_data_that_hangs_lets_others_lead_what_its_thread_led() {
    hang_in_data((false, true), add(1, 4), 5);
}

#[test]
fn a_tablet_that_was_left_with_one_voter_goes_on_when_its_log_does() {
    let cluster = three_with(1_000..1_001);
    cluster.add(1_000, 1);
    // In the same term, in which the leader may still need the votes of those that are removed.
    let members = Members { voters: vec![NodeId(1)], learners: Vec::new() };
    (1..=3).for_each(|node| cluster.stores[&node].set_members(TabletId(1_000), members.clone()));
    let handle = cluster.stores[&1].handle(TabletId(1_000)).unwrap();
    wait_for(|| handle.roles.is_sole_voter(1));
    cluster.add(1_000, 1);
    let log = &cluster.stores[&1].replicas.disks[0].log;
    log.hang(true);
    let (sender, outcomes) = sync_channel(1);
    let sink: Arc<dyn WriteSink> = Arc::new(Waiting(Mutex::new(sender)));
    cluster.stores[&1].submit(TabletId(1_000), add(1, 1), &sink, 0).unwrap();
    cluster.stores[&1].kick();
    let progress = cluster.stores[&1].replicas.context.disks.progress.lock().clone();
    wait_for(|| progress.iter().any(|worker| worker.has_revoked()));
    log.hang(false);
    assert!(outcomes.recv().unwrap().1.is_ok());
    assert_eq!(cluster.read(1_000, 1), 3);
}

/// The data of a tablet hangs at the node that leads it when this is applied, of which the outcome is that.
fn hang_in_data(hangs: (bool, bool), written: Mutation, outcome: u64) {
    let cluster = three_with(1_000..1_004);
    (1_000..1_004).for_each(|tablet| cluster.add(tablet, 1));
    // One thread has the even ones, the other the odd ones.
    let (hanging, others) = ([1_000, 1_002], [1_001, 1_003]);
    let data = Arc::clone(cluster.stores[&1].handle(TabletId(1_000)).unwrap().data());
    data.hang(hangs);
    let (sender, outcomes) = sync_channel(1);
    let sink: Arc<dyn WriteSink> = Arc::new(Waiting(Mutex::new(sender)));
    cluster.stores[&1].submit(TabletId(1_000), written, &sink, 0).unwrap();
    cluster.stores[&1].kick();
    let leads_elsewhere = |tablet: &u64| cluster.leader(*tablet).is_some_and(|leader| leader != 1);
    wait_for(|| hanging.iter().all(leads_elsewhere));
    assert!(others.iter().all(|tablet| cluster.leader(*tablet) == Some(1)), "the other thread works, or waits");
    assert_eq!(cluster.read(1_000, 1), outcome, "it was committed, and the others apply it");
    (1_000..1_004).for_each(|tablet| cluster.add(tablet, 2));
    for tablet in hanging {
        let handle = cluster.stores[&1].handle(TabletId(tablet)).unwrap();
        assert!(handle.check(Permit::Lease).is_err(), "it must not answer while another leads");
    }
    assert!(outcomes.try_recv().is_err(), "the thread still hangs");
    data.hang((false, false));
    // It applies what it had begun to, and then follows.
    wait_for(|| (1_000..1_004).all(|tablet| cluster.stored(1, tablet, 2) == 1));
    assert_eq!(cluster.stored(1, 1_000, 1), outcome);
    assert!(outcomes.recv().unwrap().1.is_ok());
    // It is preferred, so it leads again after a while.
    wait_for(|| (1_000..1_004).all(|tablet| cluster.leader(tablet) == Some(1)));
    (1_000..1_004).for_each(|tablet| cluster.add(tablet, 2));
    assert!((1_000..1_004).all(|tablet| cluster.read(tablet, 2) == 2));
}

#[test]
fn tablets_over_the_limit_of_open_files_are_set_aside_until_others_are_closed() {
    let home = tempfile::tempdir().unwrap();
    let options = StoreOptions { most_tablets: 3, ..options(1 << 30, 1, Durability::Fsync) };
    let store = start_options(Arc::new(SystemClock::new()), &[home.path()], Arc::new(NoTransport), options);
    let tablets = [1_000, 1_001, 1_002];
    store.set_openings(Arc::new(Opens));
    store.open(vec![counting()]).unwrap();
    store.open(tablets.map(plain).into()).unwrap();
    let aside = store.set_aside();
    assert_eq!(
        aside.iter().map(|aside| (aside.tablet, aside.is_rebuilding)).collect::<Vec<_>>(),
        [(TabletId(1_002), false)]
    );
    assert!(aside[0].reason.contains("limit of open files"), "{}", aside[0].reason);
    assert!(write_all(&store, vec![(1_000, add(1, 1))])[0].is_ok());
    store.close(&[TabletId(1_001)]);
    wait_for(|| store.set_aside().is_empty() && store.handle(TabletId(1_002)).is_some());
    assert!(write_all(&store, vec![(1_002, add(1, 1))])[0].is_ok());
}
