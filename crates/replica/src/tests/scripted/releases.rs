//! Releases that no election follows.

use super::*;
use diorite_raft::{SupportChange, is_from_leader};

/// The heartbeats, appended entries and snapshots that a node has sent since the last call.
fn sent_as_leader(trio: &Trio, node: u64) -> usize {
    let sent = std::mem::take(&mut *trio.air.sent.lock().unwrap());
    let frames = sent.into_iter().filter(|(from, _, lane, _)| *from == node && *lane == Lane::Raft);
    let envelopes = frames.flat_map(|(from, to, _, frame)| {
        let liveness = trio.nodes[&to].context.liveness();
        Incoming::of_frame(liveness, NodeId(from), &frame).unwrap()
    });
    envelopes
        .filter(|incoming| matches!(&incoming.envelope, Envelope::Raft { message, .. } if is_from_leader(message)))
        .count()
}

#[test]
fn who_has_released_a_term_never_speaks_as_its_leader_again() {
    let mut trio = Trio::new();
    // The others cannot elect one another.
    trio.cut = vec![(2, 3, true)];
    trio.run(1_000);
    trio.nodes.get_mut(&1).unwrap().core.transfer_leadership(TABLET, None);
    sent_as_leader(&trio, 1);
    for _ in 0..200 {
        trio.now_ns.fetch_add(10 * MS, Ordering::Relaxed);
        let node = trio.nodes.get_mut(&1).unwrap();
        // Whenever it steps down, its node has just learned that another supports it.
        node.input.changes.push(SupportChange::Received(2));
        node.turn();
        let leads = node.core.replicas[&TABLET].group.is_leader();
        assert_eq!(sent_as_leader(&trio, 1), 0);
        if !leads {
            return;
        }
    }
    panic!("it leads although nobody was elected");
}
