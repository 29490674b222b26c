//! Handles the messages of a tablet's replicas on other nodes.
//!
//! Reads from followers: when a client wants to read from a follower, the follower asks its leader for the leader's
//! applied index. The leader answers under its lease, so everything acknowledged before the question is at or before
//! that index. Once the follower has applied that index, it holds everything that was acknowledged before the moment at
//! which it asked, measured by its own clock alone.

use crate::group::promise::Promise;
use crate::group::replica::{LeaderPosition, Replica, TookOver};
use crate::group::suspects;
use crate::group::turn::Turn;
use crate::group::wire::{Attached, Envelope};
use diorite_base::NodeId;
use diorite_raft::{
    Epoch, GroupError, LogPosition, MemberProgress, Message, MessageType, Term, is_acknowledgement, is_from_leader,
    is_vote_request, may_come_from_a_peer,
};
use diorite_storage::Engine;

/// Handles a message from a replica on another node. `supported`: the epoch under which this node supported that one when the message
/// arrived.
pub(crate) fn receive<E: Engine>(
    replica: &mut Replica<E>,
    turn: &mut Turn<E>,
    (from, supported): (NodeId, Option<Epoch>),
    envelope: Envelope,
) {
    match envelope {
        Envelope::Raft { epoch, keep_from, message } => {
            if message.from != from.0 || message.to != turn.context.node.0 || !may_come_from_a_peer(&message) {
                tracing::warn!(%from, tablet = %replica.id(), "a consensus message that its sender cannot send");
                return;
            }
            receive_message(replica, turn, Attached { epoch, keep_from }, supported, *message);
        }
        Envelope::Released { term, candidate } => replica.on_released(turn, from, term, candidate),
        Envelope::Ask { asked_ns } => on_ask(replica, turn, from, asked_ns),
        Envelope::Position { asked_ns, index } => {
            replica.following.position = Some(LeaderPosition { index, asked_ns });
            replica.apply_deferred(turn);
        }
        Envelope::Lost { index } => suspects::on_lost(replica, turn, from, index),
        Envelope::Suspect { index } => suspects::on_suspect(replica, turn, from, index),
        Envelope::Floor { term, index, last_term } => {
            suspects::on_floor(replica, turn, from, term, LogPosition::new(index, last_term));
        }
        Envelope::Standing { index, term } => {
            replica.following.standings.note(from.0, LogPosition::new(index, term), turn.now_ns());
        }
        Envelope::Prepared => on_prepared(replica, from),
        Envelope::Opened => on_opened(replica, turn, from),
    }
    turn.touch(replica);
}

fn receive_message<E: Engine>(
    replica: &mut Replica<E>,
    turn: &mut Turn<E>,
    Attached { epoch, keep_from }: Attached,
    supported: Option<Epoch>,
    message: Message,
) {
    if is_vote_request(&message) && replica.must_not_vote(turn, &message) {
        return;
    }
    let (from, term) = (message.from, Term(message.term));
    let (kind, commit) = (message.get_msg_type(), message.commit);
    let previous = LogPosition::new(message.index, message.log_term);
    let (leads, acknowledges) = (is_from_leader(&message), is_acknowledgement(&message));
    // A message of a leader that was restarted after the message had arrived promises nothing to its new process: that leads in a later
    // term only, and nobody would release this replica from the promise.
    let given_epoch = turn.support.given_epoch(from).filter(|now| leads && supported == Some(*now));
    let had_leader = replica.group.leader();
    let stepped = match is_vote_request(&message) && replica.votes_on_condition(turn) {
        true => replica.group.step_without_entries(message),
        false => replica.group.step(message),
    };
    if let Err(error) = stepped {
        if matches!(error, GroupError::Diverged { .. }) {
            replica.fail_contradicted(turn, &error.into());
            return;
        }
        tracing::debug!(tablet = %replica.id(), from, %error, "a consensus message was not taken");
        return;
    }
    let is_of_term = replica.group.term() == term;
    if leads && is_of_term && replica.group.leader() == from {
        let is_released = replica.leading.release.term == term;
        let promise = given_epoch.filter(|_| !is_released).map(|epoch| Promise { leader: from, epoch });
        replica.following.promise = promise;
        replica.following.keep_from = keep_from;
        if replica.following.announces_data {
            // The leader learns where the copy ends when it sends entries that follow the copy. Before that, the
            // leader's own log may be truncated beyond the position where it assumes this replica's log to end, and it
            // would send copies again and again.
            replica.following.announces_data = kind != MessageType::MsgAppend
                || previous.index < replica.applied.index
                || !replica.group.holds(previous);
            let message = replica.group.acknowledge_copy().filter(|_| replica.following.announces_data);
            turn.post(replica, message.into_iter().collect());
        }
        if promise.is_none() || had_leader != from {
            turn.activate(replica);
        }
    } else if acknowledges && is_of_term && replica.group.is_leader() {
        // An answer to a heartbeat is no acknowledgement: a replica that has lost its log may hold less than the leader
        // assumes.
        if kind == MessageType::MsgAppendResponse {
            send_commit_notification(replica);
        }
        if epoch != Epoch::NONE && replica.leading.acknowledged.note(term, from, epoch) {
            replica.published = None;
            // The member may have been restarted, and its log need not record its last commit index.
            replica.group.forget_commit(from, commit);
        }
    }
}

/// Notifies members of the commit index that this leader found when it took over, once that index is certain: on nodes
/// that led before, writers may be waiting for it. Later commit indexes are sent with entries. All are notified once for
/// each member that has come to hold the entries, and no more: members that lag answer each notification with another
/// acknowledgement, and while one member does not answer there would be more of both with each round.
fn send_commit_notification<E: Engine>(replica: &mut Replica<E>) {
    let term = replica.group.term();
    let (commit, held) = match replica.leading.took_over {
        Some(took_over) if took_over.term == term => (took_over.commit, took_over.holders),
        _ if !replica.group.has_committed_in_term() => return,
        _ => (replica.group.commit_index(), 0),
    };
    let holders = replica.group.progress().filter(|member| commit <= member.matched).count();
    replica.leading.took_over = Some(TookOver { term, commit, holders });
    let lacks = |member: MemberProgress| member.committed < commit && commit <= member.matched;
    if holders > held && replica.group.progress().any(lacks) {
        replica.group.ping();
    }
}

/// Answers a follower with the applied position, if this replica may answer reads.
fn on_ask<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>, from: NodeId, asked_ns: u64) {
    // The sender asks again, and then another node if this one does not lead.
    let Ok(term) = replica.handle.begin_read() else { return };
    let index = replica.applied.index;
    // The member may hold all entries and lack the commit index.
    let waits = replica.group.progress().any(|member| member.replica == from.0 && member.committed < index);
    if replica.handle.finish_read(term).is_ok() {
        turn.outbox.post_envelope(from, replica.group_id(), &Envelope::Position { asked_ns, index });
    }
    if waits {
        replica.ping(turn.now_ns());
    }
}

/// A node has prepared the child tablets of this tablet.
fn on_prepared<E: Engine>(replica: &Replica<E>, from: NodeId) {
    if replica.group.all_voters().any(|voter| voter == from.0) {
        replica.handle.children.prepared.lock().insert(from);
    }
}

/// A replica on another node was opened and knows of no leader.
fn on_opened<E: Engine>(replica: &mut Replica<E>, turn: &mut Turn<E>, from: NodeId) {
    let now_ns = turn.now_ns();
    if replica.group.is_leader() {
        // It is sent the commit index again, whatever it knew before.
        replica.group.forget_commit(from.0, 0);
    } else if replica.group.leader() == 0 && replica.ranked_voters().first() == Some(&turn.context.node.0) {
        replica.visits.campaign_ns = now_ns;
        replica.look_after(turn, now_ns);
    }
}
