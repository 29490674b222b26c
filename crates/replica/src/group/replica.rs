//! A tablet replica as its store thread holds it.
//!
//! Its state is grouped by purpose: as a follower, as a leader, writes before they are in the log, the end of the
//! tablet, and when the replica is visited. The work on this state is in `writes`, `election`, `members`, `receive` and
//! `turn`.

use crate::context::Context;
use crate::group::checks::{Checked, Observed};
use crate::group::handle::TabletHandle;
use crate::group::indexed::indexes_of;
use crate::group::promise::{Acknowledgements, Promise};
use crate::group::proposal::Proposal;
use crate::group::recover::{recover_log, split_mark};
use crate::group::sealed::{CLOSED, TRANSACTIONS};
use crate::group::split::SplitMark;
use crate::group::standings::Standings;
use crate::group::timing::{PING_NS, QUIET_NS};
use crate::group::transactions::Transactions;
use crate::group::waiters::Waiters;
use crate::group::wanted::Members;
use crate::prefetch::{prefetch, prefetch_range};
use diorite_base::mutation::Evaluator;
use diorite_base::row_index::RowIndexes;
use diorite_base::{GroupId, HybridClock, NodeId, TabletId};
use diorite_raft::{Entry, EntryType, Group, GroupOptions, LogPosition, Step, Term};
use diorite_storage::{AppliedState, Engine, Log, StorageError, TabletData};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The most entries that a follower defers applying; the next constant limits their bytes.
const DEFERRED_ENTRIES: usize = 32;
const DEFERRED_BYTES: usize = 256 << 10;

/// Inputs of the state that a replica publishes to other threads, beside those whose changes clear
/// [`Replica::published`]: the members, the wanted members, and the epochs of acknowledgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PublishedInputs {
    pub(crate) term: Term,
    leader: u64,
    /// The number of changes of support between nodes.
    support: u64,
    may_propose: bool,
    pub(crate) is_established: bool,
    is_changing_members: bool,
    are_members_known: bool,
    is_recovering: bool,
    has_failed: bool,
}

/// Committed entries that a follower has deferred applying.
#[derive(Default)]
pub(crate) struct Deferred {
    entries: Vec<Entry>,
    bytes: usize,
}

impl Deferred {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn fits(&self, more: &[Entry]) -> bool {
        self.entries.len() + more.len() <= DEFERRED_ENTRIES && self.bytes + data_bytes(more) <= DEFERRED_BYTES
    }

    pub(crate) fn append(&mut self, more: &mut Vec<Entry>) {
        self.bytes += data_bytes(more);
        self.entries.append(more);
    }

    /// Removes and returns all entries.
    pub(crate) fn take(&mut self) -> Vec<Entry> {
        self.bytes = 0;
        std::mem::take(&mut self.entries)
    }
}

fn data_bytes(entries: &[Entry]) -> usize {
    entries.iter().map(|entry| entry.data.len()).sum()
}

/// A replica's state as a follower.
#[derive(Default)]
pub(crate) struct Following {
    pub(crate) promise: Option<Promise>,
    /// The first log index that some member may still need, according to its leader.
    pub(crate) keep_from: u64,
    /// Whether the leader may not know how much this replica holds: its data was replaced by a copy, or it was sent a
    /// copy that it does not need.
    pub(crate) announces_data: bool,
    /// Committed entries that are not applied yet.
    pub(crate) deferred: Deferred,
    /// The leader's last answer to a request for its position, until that index is applied.
    pub(crate) position: Option<LeaderPosition>,
    /// The ends of other voters' logs, needed if this one's may have lost its end.
    pub(crate) standings: Standings,
}

/// A leader's applied position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaderPosition {
    pub(crate) index: u64,
    /// When this node sent the request, on its own monotonic clock.
    pub(crate) asked_ns: u64,
}

/// The last release: a leader has ended its lease for the rest of its term.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Release {
    /// The latest term that was released, by this node or another.
    pub(crate) term: Term,
    /// When this node last notified the voters that it has released the term; `None`: another node released it.
    pub(crate) notified_ns: Option<u64>,
    /// How often it has notified them.
    pub(crate) notices: u32,
}

/// A replica's state as a leader.
#[derive(Default)]
pub(crate) struct Leading {
    pub(crate) acknowledged: Acknowledgements,
    pub(crate) release: Release,
    /// Since when this node has led, in the current term.
    pub(crate) since_ns: Option<u64>,
    /// Since when this leader has had no lease although a member is bound to it.
    pub(crate) in_vain_since_ns: Option<u64>,
    /// A release that has to wait for promises to readers, and for whom it is; node 0: for anybody.
    pub(crate) releasing: Option<NodeId>,
    /// Until when a reader may count on a promise, nanoseconds.
    pub(crate) promised_until_ns: u64,
    /// How many releases of this node in a row were followed by no new leader.
    pub(crate) vain_releases: u32,
    /// The commit index with which this replica's last term as a leader began.
    pub(crate) took_over: Option<TookOver>,
}

/// The first commit index that a leader knows in its term.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TookOver {
    pub(crate) term: Term,
    pub(crate) commit: u64,
    /// How many members hold the entries up to it, as of the last look.
    pub(crate) holders: usize,
}

/// Writes that are to be proposed or wait for their outcome.
#[derive(Default)]
pub(crate) struct Writes {
    /// Issues stamps. Each tablet has its own clock, so that a stamp from the future affects no other tablet.
    pub(crate) stamps: HybridClock,
    /// The newest stamp that this leader has given to a write, microseconds.
    pub(crate) newest_us: i64,
    /// Writes of this turn that are not proposed yet.
    pub(crate) fresh: Vec<Proposal>,
    /// Waiters of proposed entries.
    pub(crate) waiting: Waiters,
    /// When this leader last proposed writes.
    pub(crate) proposed_ns: u64,
    /// Those of transactions over several tablets.
    pub(crate) transactions: Transactions,
    /// The last `gc_grace_seconds` written to the log, and the term.
    pub(crate) logged_grace: (Term, u32),
}

/// The end of the tablet, by a split or a merge.
#[derive(Default)]
pub(crate) struct Ending {
    /// The split that sealed the tablet.
    pub(crate) split: Option<SplitMark>,
    /// The entry with which this leader has proposed to end the tablet. It serves nothing in that term until the entry
    /// is applied without having ended the tablet.
    pub(crate) proposed: Option<LogPosition>,
    /// Merge and term for which this leader has proposed to open the tablet again.
    pub(crate) reopening: Option<(u64, Term)>,
}

/// When a replica is visited.
#[derive(Default)]
pub(crate) struct Visits {
    /// Whether it is in the list of replicas to visit in this turn.
    pub(crate) is_touched: bool,
    /// Whether it is in the active set.
    pub(crate) is_active: bool,
    /// When to campaign next, while there is no leader.
    pub(crate) campaign_ns: u64,
    /// When members were last pinged.
    pub(crate) pinged_ns: u64,
    /// When a tick last visited it.
    ticked_ns: u64,
}

impl Visits {
    /// Lets the next tick visit it.
    pub(crate) fn soon(&mut self) {
        self.ticked_ns = 0;
    }
}

/// The wanted members, and the last change of the present ones.
pub(crate) struct Membership {
    pub(crate) wanted: Members,
    /// Index of the last applied change. Entries after it were proposed by leaders that had applied the change: a
    /// replica that holds one of them durably knows, after a restart too, that the change is committed, as commit
    /// indexes are written with entries.
    pub(crate) index: u64,
}

/// One tablet replica.
pub struct Replica<E: Engine> {
    pub(crate) handle: Arc<TabletHandle<E::Tablet>>,
    pub(crate) group: Group<<E::Log as Log>::Reader>,
    pub(crate) evaluator: Arc<dyn Evaluator>,
    /// The indexes that the data specifies.
    indexes: Option<Arc<dyn RowIndexes>>,
    pub(crate) applied: AppliedState,
    pub(crate) members: Membership,
    pub(crate) writes: Writes,
    pub(crate) following: Following,
    pub(crate) leading: Leading,
    pub(crate) ending: Ending,
    pub(crate) visits: Visits,
    /// The inputs of the state that was last published to other threads; `None` if another input has changed since.
    pub(crate) published: Option<PublishedInputs>,
    /// Why the replica has failed, if it has; writes are refused with this.
    pub(crate) failure: Option<String>,
    /// The addresses of a leader's progress table when the state was last published, for prefetching only.
    progress_at: Range<usize>,
    /// The last entry that changes members or ends the tablet, until a later entry was recorded with a commit index at
    /// least as high: a restart then knows that it is committed.
    deciding_index: u64,
    /// The state after the last checked turn.
    checked: Checked,
}

/// The settings with which a replica is opened, beside its data and its log.
pub struct Opening {
    /// Which tablet.
    pub tablet: TabletId,
    /// The members that are wanted.
    pub members: Members,
    /// Carries out its evaluated mutations.
    pub evaluator: Arc<dyn Evaluator>,
}

impl<E: Engine> Replica<E> {
    /// A replica that continues from its data and its log. `place`: store thread and disk.
    ///
    /// # Errors
    /// If its data or its log cannot be read, or are not what a replica has written.
    pub fn recover(
        context: &Context,
        opening: Opening,
        data: Arc<E::Tablet>,
        log: &E::Log,
        place: (usize, usize),
    ) -> Result<Self, StorageError> {
        let group_id = GroupId::from(opening.tablet);
        let mut applied = data.applied_state()?;
        let mut writes = Writes::default();
        writes.stamps.observe(applied.newest_stamp_us);
        let split = split_mark::<E>(opening.tablet, &data)?;
        let indexes = indexes_of(&data, &*opening.evaluator, applied.flags)?;
        let mut recovered = recover_log::<E>(group_id, &data, log, &applied)?;
        if context.planted.apply_twice && applied.index > recovered.truncated.index {
            applied.index -= 1;
            recovered.applied = applied.index;
        }
        // The log is empty and was truncated: the leader may assume that this replica holds nothing.
        let announces_data = recovered.last == recovered.truncated && recovered.truncated.index > 0;
        let (truncated, deciding_index) = (recovered.truncated.index, recovered.last.index);
        // Every node follows the catalog, so it sends commit notifications at once.
        let options = GroupOptions { replica: context.node.0, announces_commits: group_id == GroupId::CATALOG };
        let group = Group::new(&options, recovered, log.reader(group_id))?;
        let clock = Arc::clone(&context.clock);
        let mut handle = TabletHandle::new(opening.tablet, data, place, applied.flags, context.node, clock);
        handle.planted = context.planted;
        handle.log.start.store(truncated, Ordering::Relaxed);
        if applied.flags & TRANSACTIONS != 0 {
            writes.transactions.records = Transactions::load(&handle.data)?;
            let records = writes.transactions.records.all_prepared();
            records.for_each(|(_, record)| handle.transacted.prepared.add(record));
        }
        Ok(Self {
            handle: Arc::new(handle),
            group,
            evaluator: opening.evaluator,
            indexes,
            applied,
            members: Membership { wanted: opening.members, index: applied.index },
            writes,
            following: Following { announces_data, ..Following::default() },
            leading: Leading::default(),
            ending: Ending { split, ..Ending::default() },
            visits: Visits::default(),
            published: None,
            failure: None,
            progress_at: 0..0,
            deciding_index,
            checked: Checked::default(),
        })
    }

    /// The handle for other threads.
    pub fn handle(&self) -> &Arc<TabletHandle<E::Tablet>> {
        &self.handle
    }

    /// The indexes that it maintains.
    pub(crate) fn indexes(&self) -> Option<&dyn RowIndexes> {
        self.indexes.as_deref()
    }

    /// Takes over a change of the indexes that the data specifies.
    pub(crate) fn reload_indexes(&mut self) -> Result<(), StorageError> {
        self.indexes = indexes_of(&self.handle.data, &*self.evaluator, self.applied.flags)?;
        Ok(())
    }

    pub(crate) fn id(&self) -> TabletId {
        self.handle.id()
    }

    pub(crate) fn group_id(&self) -> GroupId {
        GroupId::from(self.handle.id())
    }

    /// Prefetches the memory that the replica refers to.
    pub(crate) fn fetch_ahead(&self) {
        prefetch(&*self.handle);
        prefetch_range(self.progress_at.clone());
    }

    /// Records the addresses of a leader's progress table.
    pub(crate) fn note_progress_place(&mut self) {
        self.progress_at = self.group.progress_at();
    }

    /// The inputs of the published state: it need not be published again if they equal [`Self::published`]. `support`:
    /// [`crate::peers::liveness::SupportView::changes`].
    pub(crate) fn published_inputs(&self, support: u64) -> PublishedInputs {
        PublishedInputs {
            term: self.group.term(),
            leader: self.group.leader(),
            support,
            may_propose: self.may_propose(),
            is_established: self.group.is_established_leader(),
            is_changing_members: self.group.is_changing_members(),
            are_members_known: self.group.commit_index() > self.members.index,
            is_recovering: self.group.is_recovering(),
            has_failed: self.failure.is_some(),
        }
    }

    /// The wanted voters, or the present ones if none are wanted, in the order in which they campaign.
    pub(crate) fn ranked_voters(&self) -> Vec<u64> {
        let wanted = &self.members.wanted.voters;
        if wanted.is_empty() { self.group.members().voters.clone() } else { wanted.iter().map(|node| node.0).collect() }
    }

    /// Whether the tablet is sealed: its child tablets, or the tablet that has taken over its rows, serve in its place.
    pub(crate) fn has_ended(&self) -> bool {
        self.ending.split.is_some() || self.applied.flags & CLOSED != 0
    }

    /// Whether it leads a group that `node` is a member of.
    pub(crate) fn leads(&self, node: u64) -> bool {
        self.group.is_leader() && self.group.progress().any(|member| member.replica == node)
    }

    /// Whether it leads and has not ended its lease.
    pub(crate) fn may_propose(&self) -> bool {
        let term = self.group.term();
        let has_ended = self.ending.proposed.is_some_and(|end| end.term == term.0) || self.has_ended();
        self.group.is_leader()
            && self.leading.release.term != term
            && (!has_ended || self.handle.planted.keep_lease_when_split)
    }

    /// For a leader: whether it has applied every committed write, so that its stamps are greater than theirs.
    pub(crate) fn may_stamp(&self) -> bool {
        let published = self.published.as_ref().filter(|published| published.term == self.group.term());
        published.map_or_else(|| self.group.is_established_leader(), |published| published.is_established)
    }

    /// Whether it leads and has ended its lease for good, so that another is to lead.
    pub(crate) fn has_released(&self) -> bool {
        self.group.is_leader() && self.leading.release.term == self.group.term()
    }

    /// Whether applying these committed entries may be deferred: no writer waits for them here, and there are not too
    /// many yet.
    pub(crate) fn may_defer(&self, committed: &[Entry]) -> bool {
        !self.group.is_leader()
            && self.group_id() != GroupId::CATALOG
            && self.writes.waiting.is_empty()
            && self.following.position.is_none()
            && self.following.deferred.fits(committed)
            && committed
                .iter()
                .all(|entry| entry.get_entry_type() == EntryType::EntryNormal && entry.context.is_empty())
    }

    /// Whether a tick is to visit it now; if so, records the visit. A leader that is written to is visited less often.
    pub(crate) fn is_visit_due(&mut self, now_ns: u64) -> bool {
        let is_busy = now_ns < self.writes.proposed_ns + QUIET_NS && now_ns < self.visits.ticked_ns + PING_NS;
        if !is_busy {
            self.visits.ticked_ns = now_ns;
        }
        !is_busy
    }

    /// The node that leads instead of `me`, if it is known.
    pub(crate) fn leader_elsewhere(&self, me: NodeId) -> Option<NodeId> {
        Some(NodeId(self.group.leader())).filter(|leader| leader.0 != 0 && *leader != me)
    }

    /// Whether a step holds, or follows, an entry that changes members or ends the tablet ([`Self::deciding_index`]).
    /// `decides` finds such an entry.
    pub(crate) fn is_deciding(&mut self, step: &Step, decides: impl Fn(&Entry) -> bool) -> bool {
        let Some(last) = step.entries.last() else { return false };
        if let Some(deciding) = step.entries.iter().rev().find(|entry| decides(entry)) {
            self.deciding_index = deciding.index;
        }
        let is_deciding = self.deciding_index > 0;
        if step.commit >= self.deciding_index && last.index > self.deciding_index {
            self.deciding_index = 0;
        }
        is_deciding
    }

    /// In tests and in the simulation: no member is listed twice, and a leader tracks only members.
    fn check_members(&self) {
        let members = self.group.members();
        let is_twice = |ids: &[u64]| ids.iter().enumerate().any(|(at, id)| ids[..at].contains(id));
        assert!(!is_twice(&members.voters) && !is_twice(&members.voters_outgoing), "a voter counts once: {members:?}");
        assert!(!members.learners.iter().any(|id| members.voters.contains(id)), "a learner has no vote: {members:?}");
        if self.group.is_leader() {
            let is_member = |id: u64| self.group.progress().any(|member| member.replica == id);
            let mut counted = self.leading.acknowledged.members(self.group.term());
            assert!(counted.all(is_member), "a leader counts on members only: {:?}", self.leading.acknowledged);
        }
    }

    /// Checks the group's invariants, at the end of a turn.
    pub(crate) fn check(&mut self) {
        let planted = self.handle.planted;
        if cfg!(any(test, feature = "planted-bugs")) {
            self.check_members();
        }
        self.checked.check(Observed {
            term: self.group.term(),
            is_leader: self.group.is_leader(),
            released_term: self.leading.release.term,
            lease_term: self.handle.lease.term(),
            is_sealed: self.has_ended() && !planted.keep_lease_when_split,
            is_recovering: self.group.is_recovering() && !planted.forget_floor,
            applied: self.applied.index,
            committed: self.group.commit_index(),
            durable: self.group.durable_index(),
            newest_stamp_us: self.applied.newest_stamp_us,
        });
    }
}
