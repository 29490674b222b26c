//! Replicas whose log may have lost its end: with `--durability interval` the power went before it was durable.
//!
//! Such a replica does not know how far it has acknowledged, so others may count on entries that it does not hold any more. It asks ([`Envelope::Suspect`]). A leader
//! of its term forgets what it has acknowledged, sends it what it lacks, and says where the leader's own log ends: the replica has acknowledged no more than that, and is like any other as
//! soon as it holds as much ([`Envelope::Floor`]). Without a leader the other voters say where their logs end ([`Envelope::Standing`]). Once all have, or a quorum has and the others have been
//! waited for, it may vote for whoever is not behind any of them, and campaign if that is so of itself: the longest log that is left wins.
//!
//! Always true: terms and votes are durable before they are sent, in every mode, so that no term has two leaders and no index of a term two entries; of what was acknowledged only that can be
//! lost which was not durable on a quorum, as every quorum that elects has a member that holds the rest. What a replica has applied that the next leader's log contradicts is noticed
//! (`GroupError::Diverged`) before anything follows it: the replica is set aside and made anew. Left out: finding out that the power was lost, which is the data directory's.

use crate::group::replica::Replica;
use crate::group::timing::PING_NS;
use crate::group::turn::Turn;
use crate::group::wire::Envelope;
use diorite_base::NodeId;
use diorite_raft::{LogPosition, Term};
use diorite_storage::Engine;
use std::collections::BTreeSet;

/// Whether the replica has lost what it had acknowledged, so that it must not let a log lead that ends at `candidate`.
pub(crate) fn is_barred<E: Engine>(replica: &Replica<E>, turn: &Turn<E>, candidate: LogPosition, now_ns: u64) -> bool {
    if !replica.group.is_recovering() || turn.context.planted.forget_floor {
        return false;
    }
    if !replica.group.has_only_lost_its_end() {
        // Others may count on a vote that it gave with a log that is gone: it gives none before it holds as much again.
        return true;
    }
    let members = replica.group.members();
    let sets = [members.voters.as_slice(), members.voters_outgoing.as_slice()];
    let least = replica.following.standings.least(turn.context.node.0, replica.group.last(), sets, now_ns);
    least.is_none_or(|least| candidate < least)
}

/// Reports to those who may lead that this replica holds less than it has acknowledged, so that one of them sends it what it lacks.
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
        // Whoever led may not lead any more without knowing it, as when its power was lost too. A leader that is about to leave is no voter.
        _ => {
            let wanted = replica.members.wanted.voters.iter().copied();
            let voters = replica.group.all_voters().map(NodeId);
            wanted.chain(voters).chain(leader).filter(|node| *node != me).collect()
        }
    };
    let report = if is_suspect {
        replica.following.standings.begin(now_ns);
        // What comes after that need not be what was acknowledged in that place.
        Envelope::Suspect { index: replica.group.commit_index() }
    } else {
        Envelope::Lost { index: replica.group.last_index() }
    };
    for node in receivers {
        turn.outbox.post_envelope(node, replica.group_id(), &report);
    }
}

/// A member has lost its log. It is sent what it lacks, and what it acknowledges counts from then on only.
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
        // All that it has acknowledged in this term is in this log, and so is all that was committed with its help before.
        Envelope::Floor { term: replica.group.term(), index: last.index, last_term: last.term }
    } else {
        Envelope::Standing { index: last.index, term: last.term }
    };
    turn.outbox.post_envelope(from, replica.group_id(), &answer);
}

/// The leader says how far this replica may have acknowledged at most.
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
