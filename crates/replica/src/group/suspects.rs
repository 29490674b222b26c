//! Suspect replicas: their log may have lost its end in a loss of power with `--durability interval`.
//!
//! Such a replica does not know how far it has acknowledged, so others may rely on entries that it no longer holds. It
//! asks ([`Envelope::Suspect`]). A leader of its term discards the replica's acknowledgements, sends it what it lacks,
//! and reports where the leader's own log ends: the replica has acknowledged nothing beyond that, and is an ordinary
//! follower once it holds as much ([`Envelope::Floor`]). Without a leader, the other voters report where their logs end
//! ([`Envelope::Standing`]). Once all have, or a quorum has and the others were waited for, the replica may vote for a
//! candidate that is not behind any of them, and campaign if it is not behind itself: the longest remaining log wins.
//!
//! Always true: terms and votes are durable before they are sent, in every mode, so that no term has two leaders and no
//! index of a term two entries. Of the acknowledged entries only those can be lost that were not durable on a quorum,
//! as every quorum that elects has a member that holds the others. Entries that a replica has applied and that the next
//! leader's log contradicts are detected (`GroupError::Diverged`) before anything follows them: the replica is set
//! aside and rebuilt. Left out: finding out that power was lost, which the data directory does.

use crate::group::replica::Replica;
use crate::group::timing::PING_NS;
use crate::group::turn::Turn;
use crate::group::wire::Envelope;
use diorite_base::NodeId;
use diorite_raft::{LogPosition, Term};
use diorite_storage::Engine;
use std::collections::BTreeSet;

/// Whether the replica lacks entries that it had acknowledged and that were durable: whoever relies on its vote for a
/// candidate needs to know (`diorite_raft::is_conditional_vote`).
pub(crate) fn has_lost_entries<E: Engine>(replica: &Replica<E>, turn: &Turn<E>) -> bool {
    let group = &replica.group;
    group.is_recovering() && !group.has_only_lost_its_end() && !turn.context.planted.forget_floor
}

/// Whether the replica has lost entries that it had acknowledged, so that it must not elect a candidate whose log ends
/// at `candidate`.
pub(crate) fn is_barred<E: Engine>(replica: &Replica<E>, turn: &Turn<E>, candidate: LogPosition, now_ns: u64) -> bool {
    if !replica.group.is_recovering() || turn.context.planted.forget_floor {
        return false;
    }
    if has_lost_entries(replica, turn) {
        return true;
    }
    let members = replica.group.members();
    let sets = [members.voters.as_slice(), members.voters_outgoing.as_slice()];
    let least = replica.following.standings.least(turn.context.node.0, replica.group.last(), sets, now_ns);
    least.is_none_or(|least| candidate < least)
}

/// Reports to possible leaders that this replica holds less than it has acknowledged, so that the leader sends the
/// missing entries.
pub(crate) fn report_lost<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>, now_ns: u64) {
    let me = turn.context.node;
    if now_ns < replica.visits.pinged_ns + PING_NS {
        return;
    }
    replica.visits.pinged_ns = now_ns;
    let is_suspect = replica.group.has_unknown_floor();
    let leader = replica.leader_elsewhere(me);
    let receivers: BTreeSet<NodeId> = match leader {
        Some(leader) if !is_suspect => [leader].into(),
        // The former leader may no longer lead without noticing, for example if it lost power too. A leader that is
        // about to leave is no voter.
        _ => {
            let wanted = replica.members.wanted.voters.iter().copied();
            let voters = replica.group.all_voters().map(NodeId);
            wanted.chain(voters).chain(leader).filter(|node| *node != me).collect()
        }
    };
    let report = if is_suspect {
        replica.following.standings.begin(now_ns);
        // Entries after the commit index need not be those that were acknowledged there.
        Envelope::Suspect { index: replica.group.commit_index() }
    } else {
        Envelope::Lost { index: replica.group.last_index() }
    };
    for node in receivers {
        turn.outbox.post_envelope(node, replica.group_id(), &report);
    }
}

/// A member has lost its log: it is sent the missing entries, and its former acknowledgements no longer count.
pub(crate) fn on_lost<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>, from: NodeId, index: u64) {
    if !replica.group.is_leader() {
        return;
    }
    let now_ns = turn.now_ns();
    replica.group.forget_progress(from.0, index);
    replica.leading.acknowledged.forget(from.0);
    replica.published = None;
    replica.ping(now_ns);
    turn.activate(replica);
}

/// A member may have lost the end of its log.
pub(crate) fn on_suspect<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>, from: NodeId, index: u64) {
    on_lost(replica, turn, from, index);
    let last = replica.group.last();
    let answer = if replica.group.is_leader() {
        // Everything that it has acknowledged in this term is in this log, and so is everything that was committed with
        // its help before.
        Envelope::Floor { term: replica.group.term(), index: last.index, last_term: last.term }
    } else {
        Envelope::Standing { index: last.index, term: last.term }
    };
    turn.outbox.post_envelope(from, replica.group_id(), &answer);
}

/// The leader reports an upper bound for what this replica has acknowledged.
pub(crate) fn on_floor<E: Engine>(
    replica: &mut Replica<E>,
    turn: &mut Turn<E>,
    from: NodeId,
    term: Term,
    floor: LogPosition,
) {
    if replica.group.term() == term && replica.group.leader() == from.0 {
        replica.group.learn_floor(floor);
        turn.activate(replica);
    }
}
