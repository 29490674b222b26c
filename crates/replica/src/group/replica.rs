//! A tablet replica as its store thread holds it.
//!
//! Its state is grouped by what it is for: as a follower, as a leader, writes on their way into the log, the end of the tablet, and when it is visited. What it does is in
//! `writes`, `election`, `members`, `receive` and `turn`.

use crate::context::Context;
use crate::group::checks::{Checked, Observed};
use crate::group::handle::TabletHandle;
use crate::group::promise::{Acknowledgements, Promise};
use crate::group::proposal::Proposal;
use crate::group::recover::{recover_log, split_mark};
use crate::group::sealed::CLOSED;
use crate::group::split::SplitMark;
use crate::group::standings::Standings;
use crate::group::timing::{PING_NS, QUIET_NS};
use crate::group::waiters::Waiters;
use crate::group::wanted::Members;
use crate::prefetch::{prefetch, prefetch_range};
use diorite_base::mutation::Evaluator;
use diorite_base::{GroupId, HybridClock, NodeId, TabletId};
use diorite_raft::{Entry, EntryType, Group, GroupOptions, LogPosition, Step, Term};
use diorite_storage::{AppliedState, Engine, Log, StorageError, TabletData};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A follower puts off applying no more entries than this, and no more bytes than the next.
const DEFERRED_ENTRIES: usize = 32;
const DEFERRED_BYTES: usize = 256 << 10;

/// The inputs of what is published to other threads of a replica, beside those whose changes clear [`Replica::published`]: the members, those that are wanted, and who
/// has acknowledged the leader in which epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PublishedInputs {
    pub(crate) term: Term,
    leader: u64,
    /// Counts changes of support between nodes.
    support: u64,
    may_propose: bool,
    pub(crate) is_established: bool,
    is_changing_members: bool,
    are_members_known: bool,
    is_recovering: bool,
    has_failed: bool,
}

/// Committed entries that a follower has put off applying.
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

    /// All of them; then there are none.
    pub(crate) fn take(&mut self) -> Vec<Entry> {
        self.bytes = 0;
        std::mem::take(&mut self.entries)
    }
}

fn data_bytes(entries: &[Entry]) -> usize {
    entries.iter().map(|entry| entry.data.len()).sum()
}

/// What a replica knows and owes as a follower.
#[derive(Default)]
pub(crate) struct Following {
    pub(crate) promise: Option<Promise>,
    /// The first log index that some member may still need, as its leader said.
    pub(crate) keep_from: u64,
    /// The leader may not know how much this replica holds: its data was replaced by a copy, or it was sent a copy that it does not need.
    pub(crate) announces_data: bool,
    /// Committed entries that are not applied yet.
    pub(crate) deferred: Deferred,
    /// How far its leader was, and when this node asked; until that much is applied.
    pub(crate) position: Option<LeaderPosition>,
    /// What others have said of their logs, if this one's may have lost its end.
    pub(crate) standings: Standings,
}

/// How far a leader was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaderPosition {
    pub(crate) index: u64,
    /// When this node asked, on its own monotonic clock.
    pub(crate) asked_ns: u64,
}

/// That a leader has ended its lease for the rest of its term.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Release {
    /// The latest term whose leader, this node or another, has done so.
    pub(crate) term: Term,
    /// When this node did, if it did in the current term.
    pub(crate) at_ns: u64,
}

/// What a replica knows as a leader.
#[derive(Default)]
pub(crate) struct Leading {
    pub(crate) acknowledged: Acknowledgements,
    pub(crate) release: Release,
    /// Since when this node has led, in the current term.
    pub(crate) since_ns: Option<u64>,
    /// Since when this leader has had no lease although a member is bound to it.
    pub(crate) in_vain_since_ns: Option<u64>,
    /// How often in a row nobody has led after this node had ended its lease.
    pub(crate) vain_releases: u32,
    /// The commit index with which this replica's last term as a leader began.
    pub(crate) took_over: Option<TookOver>,
}

/// The first commit index that a leader knows in its term.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TookOver {
    pub(crate) term: Term,
    pub(crate) commit: u64,
}

/// Writes on their way into the log.
#[derive(Default)]
pub(crate) struct Writes {
    /// Gives their timestamps. Each tablet has its own: a timestamp from the future stays where it was given.
    pub(crate) stamps: HybridClock,
    /// Of this turn, not proposed yet.
    pub(crate) fresh: Vec<Proposal>,
    /// Waiters of proposed entries.
    pub(crate) waiting: Waiters,
    /// When this leader last proposed some.
    pub(crate) proposed_ns: u64,
    /// In which term which `gc_grace_seconds` was last written to the log.
    pub(crate) logged_grace: (Term, u32),
}

/// The end of the tablet, by a split or a merge.
#[derive(Default)]
pub(crate) struct Ending {
    /// It has been split, and is sealed.
    pub(crate) split: Option<SplitMark>,
    /// The entry with which this leader has proposed to end the tablet: it serves nothing in that term until the entry is applied and turns out not to have ended it.
    pub(crate) proposed: Option<LogPosition>,
    /// The merge, and the term, in which this leader has proposed to open the tablet again.
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

/// The members that are wanted, and since when the present ones are.
pub(crate) struct Membership {
    pub(crate) wanted: Members,
    /// Entries after this one were proposed by leaders that had carried out the last change of the members: whoever holds one of them durably knows, after a restart too,
    /// that the change is committed, as commit indexes are written with entries.
    pub(crate) index: u64,
}

/// One tablet replica.
pub struct Replica<E: Engine> {
    pub(crate) handle: Arc<TabletHandle<E::Tablet>>,
    pub(crate) group: Group<<E::Log as Log>::Reader>,
    pub(crate) evaluator: Arc<dyn Evaluator>,
    pub(crate) applied: AppliedState,
    pub(crate) members: Membership,
    pub(crate) writes: Writes,
    pub(crate) following: Following,
    pub(crate) leading: Leading,
    pub(crate) ending: Ending,
    pub(crate) visits: Visits,
    /// The inputs of what was last published to other threads; `None` if another of its inputs has changed since.
    pub(crate) published: Option<PublishedInputs>,
    /// Set once it cannot go on; writes are refused with this.
    pub(crate) failure: Option<String>,
    /// Where a leader's knowledge of the other members was in memory when something was last published; only to ask for it ahead of its use.
    progress_at: Range<usize>,
    /// The last entry that decides who decides, until what comes after it has been recorded with a commit index as high: then a restart knows that it is committed.
    deciding_index: u64,
    /// What the last turn has left, to be compared with what the next one does.
    checked: Checked,
}

/// What a replica is opened with, beside its data and its log.
pub struct Opening {
    /// Which tablet.
    pub tablet: TabletId,
    /// The members that are wanted.
    pub members: Members,
    /// Carries out its evaluated mutations.
    pub evaluator: Arc<dyn Evaluator>,
}

impl<E: Engine> Replica<E> {
    /// A replica that goes on from what its data and its log hold. `place`: the worker and the disk.
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
        let writes = Writes::default();
        writes.stamps.observe(applied.newest_stamp_us);
        let split = split_mark::<E>(opening.tablet, &data)?;
        let mut recovered = recover_log::<E>(group_id, &data, log, &applied)?;
        if context.planted.apply_twice && applied.index > recovered.truncated.index {
            applied.index -= 1;
            recovered.applied = applied.index;
        }
        // An empty log after something: the leader may take this replica for one that holds nothing.
        let announces_data = recovered.last == recovered.truncated && recovered.truncated.index > 0;
        let (truncated, deciding_index) = (recovered.truncated.index, recovered.last.index);
        // Every node waits for changes of the catalog.
        let options = GroupOptions { replica: context.node.0, announces_commits: group_id == GroupId::CATALOG };
        let group = Group::new(&options, recovered, log.reader(group_id))?;
        let clock = Arc::clone(&context.clock);
        let mut handle = TabletHandle::new(opening.tablet, data, place, applied.flags, context.node, clock);
        handle.planted = context.planted;
        handle.log.start.store(truncated, Ordering::Relaxed);
        Ok(Self {
            handle: Arc::new(handle),
            group,
            evaluator: opening.evaluator,
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

    /// What other threads may know and do of it.
    pub fn handle(&self) -> &Arc<TabletHandle<E::Tablet>> {
        &self.handle
    }

    pub(crate) fn id(&self) -> TabletId {
        self.handle.id()
    }

    pub(crate) fn group_id(&self) -> GroupId {
        GroupId::from(self.handle.id())
    }

    /// Asks for the memory of what it points to.
    pub(crate) fn fetch_ahead(&self) {
        prefetch(&*self.handle);
        prefetch_range(self.progress_at.clone());
    }

    /// Remembers where in memory a leader's knowledge of the members is.
    pub(crate) fn note_progress_place(&mut self) {
        self.progress_at = self.group.progress_at();
    }

    /// What is published need not be published anew if [`Self::published`] is the same. `support`: [`crate::peers::liveness::SupportView::changes`].
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

    /// The voters that are wanted, or are, if nobody has said so: who campaigns first comes first.
    pub(crate) fn ranked_voters(&self) -> Vec<u64> {
        let wanted = &self.members.wanted.voters;
        if wanted.is_empty() { self.group.members().voters.clone() } else { wanted.iter().map(|node| node.0).collect() }
    }

    /// Whether the tablet is sealed: its child tablets serve in its place, or the tablet that has taken it in.
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

    /// Of a leader: whether it has seen every committed write, so that its stamps are greater than theirs.
    pub(crate) fn may_stamp(&self) -> bool {
        let published = self.published.as_ref().filter(|published| published.term == self.group.term());
        published.map_or_else(|| self.group.is_established_leader(), |published| published.is_established)
    }

    /// Whether it leads and has ended its lease for good, so that another shall lead.
    pub(crate) fn has_released(&self) -> bool {
        self.group.is_leader() && self.leading.release.term == self.group.term()
    }

    /// Whether it may put off applying these committed entries: nobody here waits for them, and there are not too many of them yet.
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

    /// Whether a tick is to visit it now; then it is noted that one did. A leader that is written to is busy with that, so less often.
    pub(crate) fn is_visit_due(&mut self, now_ns: u64) -> bool {
        let is_busy = now_ns < self.writes.proposed_ns + QUIET_NS && now_ns < self.visits.ticked_ns + PING_NS;
        if !is_busy {
            self.visits.ticked_ns = now_ns;
        }
        !is_busy
    }

    /// Who should be asked instead.
    pub(crate) fn leader_elsewhere(&self, me: NodeId) -> Option<NodeId> {
        Some(NodeId(self.group.leader())).filter(|leader| leader.0 != 0 && *leader != me)
    }

    /// Whether a step holds, or follows, an entry that decides who decides ([`Self::deciding_index`]). `decides`: whether an entry does.
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

    /// In tests and in the simulation: nobody is a member twice, and a leader counts on members only.
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
