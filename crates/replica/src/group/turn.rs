//! State that the groups of a store thread share, and their requests to the thread within a turn.
//!
//! Groups do no I/O and do not know each other. Messages, outcomes, log reads and visits that groups ask for are
//! gathered here, and the store thread carries them out in this order for all groups of the turn.

use crate::context::Context;
use crate::group::apply::Applier;
use crate::group::catch_up::LogRead;
use crate::group::outcomes::Outcomes;
use crate::group::proposal::Refused;
use crate::group::replica::Replica;
use crate::group::wire::{self, Attached, Envelope};
use crate::peers::liveness::SupportView;
use crate::progress::WorkProgress;
use diorite_base::{GroupId, NodeId, TabletId};
use diorite_raft::{Epoch, Message, is_acknowledgement, is_without_entries};
use diorite_storage::{Engine, Log};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Messages to other nodes, one frame each.
#[derive(Default)]
pub(crate) struct Outbox(pub(crate) BTreeMap<NodeId, Vec<u8>>);

impl Outbox {
    /// The frame for a node.
    fn frame_to(&mut self, to: NodeId) -> &mut Vec<u8> {
        let frame = self.0.entry(to).or_default();
        if frame.is_empty() {
            wire::begin_frame(frame);
        }
        frame
    }

    pub(crate) fn post_envelope(&mut self, to: NodeId, group: GroupId, envelope: &Envelope) {
        wire::put_envelope(self.frame_to(to), group, envelope);
    }

    /// Posts consensus messages of a replica.
    pub(crate) fn post<E: Engine>(&mut self, replica: &Replica<E>, messages: Vec<Message>, is_stalled: bool) {
        if messages.is_empty() {
            return;
        }
        let keep_from = if replica.group.is_leader() { replica.keep_from() } else { 0 };
        // A successor that campaigns after this replica's release would become a follower again when it receives a
        // message without entries; and one that was restarted since would be bound to this replica again.
        let released = replica.leading.release.term.0;
        let cancels = |message: &Message| message.term == released && is_without_entries(message);
        for message in messages.into_iter().filter(|message| !cancels(message)) {
            let to = message.to;
            let promise = replica.following.promise;
            let promise = promise.filter(|promise| promise.leader == to && is_acknowledgement(&message));
            // A leader must not rely on a member that cannot vote; this also tells the leader which members can.
            let counts = !replica.group.is_recovering() && !is_stalled;
            let epoch = promise.filter(|_| counts).map_or(Epoch::NONE, |promise| promise.epoch);
            let attached = Attached { epoch, keep_from };
            wire::put_message(self.frame_to(NodeId(to)), replica.group_id(), attached, &message);
        }
    }
}

/// The replicas that the store thread visits.
#[derive(Default)]
pub(crate) struct Schedule {
    /// Those to visit in this turn.
    pub(crate) touched: Vec<TabletId>,
    /// Replicas whose leader has released its followers in this turn, and which may campaign after it.
    pub(crate) released: Vec<TabletId>,
    /// The active set: replicas in which something is due, such as an election, a member that lags, or a waiting
    /// writer. Every tick visits them.
    pub(crate) active: BTreeSet<TabletId>,
    /// Replicas that have deferred applying, with their deadlines, nanoseconds, in that order.
    pub(crate) deferred: VecDeque<(u64, TabletId)>,
}

impl Schedule {
    /// The next replica whose deadline has passed.
    pub(crate) fn pop_deferred(&mut self, now_ns: u64) -> Option<TabletId> {
        let (due_ns, tablet) = *self.deferred.front()?;
        if now_ns < due_ns {
            return None;
        }
        self.deferred.pop_front();
        Some(tablet)
    }
}

/// Reasons why this node may not lead.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Fitness {
    /// Whether the node is about to stop: it leads no tablet, and only votes.
    pub(crate) is_leaving: bool,
    /// Whether this node's clock differs too much from the others'.
    pub(crate) clock_is_off: bool,
}

/// State that the groups of a store thread share.
pub(crate) struct Turn<E: Engine> {
    pub(crate) context: Arc<Context>,
    /// One log per disk.
    pub(crate) logs: Vec<Arc<E::Log>>,
    /// Support between this node and others.
    pub(crate) support: SupportView,
    /// When the turn or tick began, nanoseconds.
    pub(crate) began_ns: u64,
    /// The time of day when the last turn began, microseconds.
    pub(crate) began_wall_us: i64,
    pub(crate) fitness: Fitness,
    pub(crate) schedule: Schedule,
    pub(crate) outbox: Outbox,
    pub(crate) outcomes: Outcomes,
    /// Writes that cannot be proposed here.
    pub(crate) refused: Vec<Refused>,
    /// Entries that members lack, to be read from the log.
    pub(crate) reads: Vec<LogRead<<E::Log as Log>::Reader>>,
    pub(crate) applier: Applier<E>,
}

impl<E: Engine> Turn<E> {
    pub(crate) fn new(context: Arc<Context>, logs: Vec<Arc<E::Log>>, progress: Arc<WorkProgress>) -> Self {
        Self {
            support: SupportView::new(Arc::clone(&context.liveness)),
            context,
            logs,
            began_ns: 0,
            began_wall_us: 0,
            fitness: Fitness::default(),
            schedule: Schedule::default(),
            outbox: Outbox::default(),
            outcomes: Outcomes::default(),
            refused: Vec::new(),
            reads: Vec::new(),
            applier: Applier::new(progress),
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.context.clock.monotonic_ns()
    }

    /// Whether heartbeats of the node have arrived recently.
    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        self.support.is_up(node)
    }

    /// Lets the replica be visited in this turn.
    pub(crate) fn touch(&mut self, replica: &mut Replica<E>) {
        if !replica.visits.is_touched {
            replica.visits.is_touched = true;
            self.schedule.touched.push(replica.id());
        }
    }

    /// Adds the replica to the active set: every tick visits it, until nothing is due.
    pub(crate) fn activate(&mut self, replica: &mut Replica<E>) {
        replica.visits.is_active = true;
        self.schedule.active.insert(replica.id());
    }

    pub(crate) fn deactivate(&mut self, replica: &mut Replica<E>) {
        replica.visits.is_active = false;
        self.schedule.active.remove(&replica.id());
    }

    /// Posts consensus messages of a replica.
    pub(crate) fn post(&mut self, replica: &Replica<E>, messages: Vec<Message>) {
        let is_stalled = self.context.is_stalled(replica.handle.disk());
        self.outbox.post(replica, messages, is_stalled);
    }
}
