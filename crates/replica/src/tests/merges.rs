//! A tablet that is merged into another is sealed for ever on all replicas, and keeps its data until it has been copied.

use super::cluster::{Cluster, wait_for};
use super::*;
use crate::{CLOSED, MergeStep};

const TABLET: u64 = 1_000;

fn has_ended(cluster: &Cluster, node: u64) -> bool {
    let handle = cluster.stores[&node].handle(TabletId(TABLET));
    handle.is_some_and(|handle| handle.flags() & CLOSED != 0)
}

#[test]
fn a_closed_tablet_takes_nothing_and_answers_nothing_for_ever() {
    let mut cluster = Cluster::start(3);
    (1..=3).for_each(|node| cluster.open(node, TABLET, &[1, 2, 3], &[1, 2, 3]));
    wait_for(|| cluster.leader(TABLET) == Some(1));
    cluster.add(TABLET, 7);
    let close = MergeStep::Close { tablet: TabletId(1_000), number: 1 }.mutation().unwrap();
    let writes = vec![(TABLET, add(7, 1)), (TABLET, close), (TABLET, add(7, 1)), (TABLET, add(8, 1))];
    let outcomes = write_all(&cluster.stores[&1], writes);
    assert!(outcomes[..2].iter().all(Result::is_ok), "{outcomes:?}");
    assert!(outcomes[2..].iter().all(|late| *late == Err(KvError::NoSuchTablet(TabletId(TABLET)))), "{outcomes:?}");

    wait_for(|| (1..=3).all(|node| has_ended(&cluster, node)));
    let holds_all = |cluster: &Cluster| (1..=3).all(|node| cluster.stored(node, TABLET, 7) == 2);
    assert!(holds_all(&cluster) && (1..=3).all(|node| cluster.stored(node, TABLET, 8) == 0));
    let answers = |cluster: &Cluster, node: u64| {
        let handle = cluster.stores[&node].handle(TabletId(TABLET)).unwrap();
        handle.leadership() == Leadership::Here || handle.get(Permit::Lease, &key(7)).is_ok()
    };
    assert!((1..=3).all(|node| !answers(&cluster, node)));

    // Nor after a restart, with any leader.
    for node in 1..=3 {
        cluster.stop_node(node);
        cluster.start_node(node);
        cluster.open(node, TABLET, &[1, 2, 3], &[1, 2, 3]);
        wait_for(|| has_ended(&cluster, node));
        assert!((1..=3).all(|node| !answers(&cluster, node)));
    }
    assert!(holds_all(&cluster));
}
