//! A tablet replica as its core holds it, and what reaches the core.

use crate::context::Context;
use crate::counters::StoreCounters;
use crate::election::{PING_NS, QUIET_NS};
use crate::entry::Payload;
use crate::handle::TabletHandle;
use crate::merge::{CLOSED, ends_tablet};
use crate::prefetch::{prefetch, prefetch_range};
use crate::split::SplitMark;
use crate::store::Refused;
use crate::suspects::Standings;
use crate::waiters::{Waiters, Waiting};
use diorite_base::mutation::{Body, Evaluator, Mutation, MutationRef};
use diorite_base::program::{Target, Unprovable};
use diorite_base::write::{KvError, WriteSink};
use diorite_base::{GroupId, HybridClock, NodeId, TabletId};
use diorite_raft::{
    ConfState, Entry, EntryType, Group, GroupError, GroupOptions, LogReader, MemberProgress, Recovered,
};
use diorite_storage::{AppliedState, Engine, Log, LogRecords, MEMBERS_KEY, SPLIT_KEY, StorageError, TabletData};
use protobuf::Message as _;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An entry is closed once it holds this much, so that neither memory nor replication messages grow with a burst.
const ENTRY_BYTES: usize = 1 << 20;

/// A follower puts off applying no more entries than this, and no more bytes than the next.
const DEFERRED_ENTRIES: usize = 32;
const DEFERRED_BYTES: usize = 256 << 10;

/// Who waits for a write.
pub(crate) struct Waiter {
    pub(crate) sink: Arc<dyn WriteSink>,
    pub(crate) token: u64,
    /// Nobody waits for it any longer than that, on the monotonic clock; [`NO_DEADLINE`]: as long as writes are waited for.
    pub(crate) deadline_ns: u64,
}

/// Of a write whose request says no time by which it ends.
pub const NO_DEADLINE: u64 = u64::MAX;

/// A write on its way into the log.
pub struct Proposal {
    pub(crate) tablet: TabletId,
    pub(crate) mutation: Mutation,
    pub(crate) waiter: Waiter,
}

impl Proposal {
    /// A write of `tablet`, whose outcome goes to `sink` under `token`; none of what its replicas could not apply.
    pub fn new(tablet: TabletId, mutation: Mutation, sink: Arc<dyn WriteSink>, token: u64) -> Result<Self, Unprovable> {
        let target = if GroupId::from(tablet) == GroupId::CATALOG { Target::Catalog } else { Target::Rows };
        mutation.check_for(target)?;
        Ok(Self { tablet, mutation, waiter: Waiter { sink, token, deadline_ns: NO_DEADLINE } })
    }

    /// Ends at this time of the monotonic clock: it is not proposed any more, and nobody is told the outcome of what was.
    pub fn until(mut self, deadline_ns: u64) -> Self {
        self.waiter.deadline_ns = deadline_ns;
        self
    }

    /// The size of what is to be written.
    pub fn size_bytes(&self) -> usize {
        self.mutation.size_bytes()
    }

    pub(crate) fn refuse(self, leader: Option<NodeId>) -> Refused {
        let Waiter { sink, token, deadline_ns } = self.waiter;
        Refused { tablet: self.tablet, mutation: self.mutation, sink, token, deadline_ns, leader }
    }
}

/// The members that the catalog wants a tablet to have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// The replicas with a vote; the first should lead.
    pub voters: Vec<NodeId>,
    /// The replicas that only follow.
    pub learners: Vec<NodeId>,
}

impl Members {
    pub(crate) fn contains(&self, node: u64) -> bool {
        self.voters.iter().chain(&self.learners).any(|member| member.0 == node)
    }
}

/// What a follower has promised: neither to vote for another than `leader` nor to campaign, as long as this node supports it in `epoch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Promise {
    pub(crate) leader: u64,
    pub(crate) epoch: u64,
}

/// What it follows from what is told to other threads of a replica, beside those things whose changes clear [`Replica::published`]: the members, those that
/// are wanted, and who has acknowledged the leader in which epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Basis {
    term: u64,
    leader: u64,
    /// Counts changes of support between nodes.
    support: u64,
    may_propose: bool,
    is_established: bool,
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

    fn has_room_for(&self, more: &[Entry]) -> bool {
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

/// One tablet replica.
pub struct Replica<E: Engine> {
    pub(crate) group_id: GroupId,
    pub(crate) handle: Arc<TabletHandle<E::Tablet>>,
    pub(crate) group: Group<<E::Log as Log>::Reader>,
    pub(crate) evaluator: Arc<dyn Evaluator>,
    pub(crate) applied: AppliedState,
    /// Gives the timestamps of its writes. Each tablet has its own: a timestamp from the future stays where it was given.
    pub(crate) stamps: HybridClock,
    pub(crate) members: Members,
    /// Writes of this turn, not proposed yet.
    pub(crate) fresh: Vec<Proposal>,
    /// In which term the log was last told which `gc_grace_seconds`.
    pub(crate) told_grace: (u64, u32),
    /// Waiters of proposed entries.
    pub(crate) waiting: Waiters,
    /// Whether it is in the core's list of replicas to look at in this turn.
    pub(crate) touched: bool,
    /// Whether it is among the core's restless ones.
    pub(crate) is_restless: bool,
    /// Where a leader's knowledge of the other members was in memory when something was last told to other threads; only to ask for it ahead of its use.
    pub(crate) progress_at: Range<usize>,
    /// What was last told to other threads followed from this; `None` if something else that it follows from has changed since.
    pub(crate) published: Option<Basis>,
    /// Set once it cannot go on; writes are refused with this.
    pub(crate) failure: Option<String>,
    pub(crate) promise: Option<Promise>,
    /// Of a leader: for each member the epoch under which it has acknowledged this term.
    pub(crate) acknowledged: BTreeMap<u64, u64>,
    /// The term that `acknowledged` is of.
    pub(crate) acknowledged_term: u64,
    /// The latest term whose leader, this node or another, has given up its lease.
    pub(crate) released_term: u64,
    /// When this node gave up its lease, if it did in the current term.
    pub(crate) released_ns: u64,
    /// Since when this leader has had no lease although a member is bound to it.
    pub(crate) in_vain_since_ns: Option<u64>,
    /// How often in a row nobody has led after this node had given up its lease.
    pub(crate) vain_releases: u32,
    /// When to campaign next, while there is no leader.
    pub(crate) campaign_ns: u64,
    /// When members were last asked for a sign of life.
    pub(crate) pinged_ns: u64,
    /// Of a follower: committed entries that are not applied yet.
    pub(crate) deferred: Deferred,
    /// When it was last looked at without anything having happened to it.
    looked_at_ns: u64,
    /// When this leader last proposed writes.
    pub(crate) proposed_ns: u64,
    /// Since when this node has led, in the current term.
    pub(crate) leading_since_ns: Option<u64>,
    /// The last term in which this replica led and committed something, and the commit index with which that began.
    pub(crate) took_over: (u64, u64),
    /// The first log index that some member may still need, as its leader said.
    pub(crate) keep_from: u64,
    /// The data holds what the log does not, as after a copy, and the leader may not know yet.
    pub(crate) announces_copy: bool,
    /// It has been split, and takes nothing any more.
    pub(crate) split: Option<SplitMark>,
    /// Index and term of the entry with which this leader has proposed to end the tablet, by a split or a merge: it serves nothing in that term until the entry
    /// is applied and turns out not to have ended it.
    pub(crate) ending: Option<(u64, u64)>,
    /// The merge, and the term, in which this leader has proposed to open the tablet again.
    pub(crate) reopening: Option<(u64, u64)>,
    /// Of a follower: how far its leader was, and when this node asked; until that much is applied.
    pub(crate) position: Option<(u64, u64)>,
    /// Entries after this one were proposed by leaders that had carried out the last change of the members: whoever holds one of them durably knows,
    /// after a restart too, that the change is committed, as commit indexes are written with entries.
    pub(crate) members_index: u64,
    /// What others have said of their logs, if this one's may have lost its end.
    pub(crate) standings: Standings,
    /// The last entry that decides who decides, until what comes after it has been recorded with a commit index as high: then a restart knows that it is committed.
    pub(crate) deciding_index: u64,
}

/// Whether the data holds more than the log, or something else at the applied index.
fn is_ahead_of_log<E: Engine>(
    recovered: &Recovered,
    applied: &AppliedState,
    reader: &<E::Log as Log>::Reader,
) -> Result<bool, String> {
    if applied.index > recovered.last.0 {
        return Ok(true);
    }
    if applied.index <= recovered.truncated.0 {
        return Ok(false);
    }
    let entries = reader.entries(applied.index, applied.index + 1, u64::MAX)?;
    Ok(entries.first().is_none_or(|entry| entry.term != applied.term))
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

/// How the tablet was split, if its data says so: a child's may still say how its parent was.
fn split_mark<E: Engine>(tablet: TabletId, data: &Arc<E::Tablet>) -> Result<Option<SplitMark>, StorageError> {
    let mark = data.get(SPLIT_KEY)?.map(|mark| SplitMark::decode(&mark)).transpose();
    let mark = mark.map_err(|_| StorageError::Corrupt(format!("how {tablet} was split")))?;
    Ok(mark.filter(|mark| mark.parent == tablet))
}

/// What the log says of a group, as far as it belongs to the data, which holds everything up to `applied`.
fn recover_log<E: Engine>(
    group_id: GroupId,
    data: &Arc<E::Tablet>,
    log: &E::Log,
    applied: &AppliedState,
) -> Result<Recovered, StorageError> {
    let corrupt = |error: String| StorageError::Corrupt(format!("{group_id}: {error}"));
    let mut recovered = log.recover(group_id)?;
    recovered.applied = applied.index;
    if recovered.hard_state.term < applied.term {
        // Its data was made of another's, in whose last term it has not voted.
        recovered.hard_state.term = applied.term;
        recovered.hard_state.vote = 0;
    }
    // The members as of the applied index; before the first change they are the founders, whom the log names.
    if let Some(members) = data.get(MEMBERS_KEY)? {
        recovered.conf_state = ConfState::parse_from_bytes(&members).map_err(|error| corrupt(error.to_string()))?;
    }
    if applied.index < recovered.truncated.0 {
        let (applied, start) = (applied.index, recovered.truncated.0 + 1);
        return Err(corrupt(format!("its data ends with entry {applied}, and its log begins with entry {start}")));
    }
    if is_ahead_of_log::<E>(&recovered, applied, &log.reader(group_id)).map_err(corrupt)? {
        // A copy of another replica's data has taken the place of what the log belonged to.
        let mut records = <E::Log as Log>::Records::default();
        records.restart_after(group_id, recovered.last.0, applied.index, applied.term)?;
        log.write(&mut records, true)?;
        recovered.truncated = (applied.index, applied.term);
        recovered.last = recovered.truncated;
    }
    Ok(recovered)
}

/// The program of a write, if it has one.
fn program_of(mutation: &Mutation) -> Option<&[u8]> {
    match MutationRef::decode(mutation.as_bytes()).ok()?.body() {
        Body::Evaluated(program) => Some(program),
        Body::Blind(_) => None,
    }
}

impl<E: Engine> Replica<E> {
    /// A replica that goes on from what its data and its log hold. `place`: the worker and the disk.
    pub fn recover(
        context: &Context,
        opening: Opening,
        data: Arc<E::Tablet>,
        log: &E::Log,
        place: (usize, usize),
    ) -> Result<Self, StorageError> {
        let group_id = GroupId::from(opening.tablet);
        let corrupt = |error: String| StorageError::Corrupt(format!("{group_id}: {error}"));
        let mut applied = data.applied_state()?;
        let stamps = HybridClock::new();
        stamps.observe(applied.newest_stamp_us);
        let split = split_mark::<E>(opening.tablet, &data)?;
        let mut recovered = recover_log::<E>(group_id, &data, log, &applied)?;
        if context.planted.apply_twice && applied.index > recovered.truncated.0 {
            applied.index -= 1;
            recovered.applied = applied.index;
        }
        // An empty log after something: the leader may take this replica for one that holds nothing.
        let announces_copy = recovered.last == recovered.truncated && recovered.truncated.0 > 0;
        let (truncated, deciding_index) = (recovered.truncated.0, recovered.last.0);
        // Every node waits for changes of the catalog.
        let options = GroupOptions { replica: context.node.0, announces_commits: group_id == GroupId::CATALOG };
        let group =
            Group::new(&options, recovered, log.reader(group_id)).map_err(|error| corrupt(error.to_string()))?;
        let clock = Arc::clone(&context.clock);
        let mut handle = TabletHandle::new(opening.tablet, data, place, applied.flags, context.node, clock);
        handle.planted = context.planted;
        handle.log_start.store(truncated, Ordering::Relaxed);
        Ok(Self {
            group_id,
            handle: Arc::new(handle),
            group,
            evaluator: opening.evaluator,
            applied,
            stamps,
            members: opening.members,
            fresh: Vec::new(),
            waiting: Waiters::default(),
            touched: false,
            is_restless: false,
            progress_at: 0..0,
            published: None,
            failure: None,
            promise: None,
            acknowledged: BTreeMap::new(),
            acknowledged_term: 0,
            released_term: 0,
            released_ns: 0,
            in_vain_since_ns: None,
            vain_releases: 0,
            campaign_ns: 0,
            pinged_ns: 0,
            deferred: Deferred::default(),
            looked_at_ns: 0,
            proposed_ns: 0,
            leading_since_ns: None,
            took_over: (0, 0),
            keep_from: 0,
            announces_copy,
            split,
            ending: None,
            reopening: None,
            position: None,
            told_grace: (0, 0),
            members_index: applied.index,
            standings: Standings::default(),
            deciding_index,
        })
    }

    /// Asks for the memory of what it points to.
    pub(crate) fn fetch_ahead(&self) {
        prefetch(&*self.handle);
        prefetch_range(self.progress_at.clone());
    }

    /// What other threads may know and do of it.
    pub fn handle(&self) -> &Arc<TabletHandle<E::Tablet>> {
        &self.handle
    }

    pub(crate) fn id(&self) -> TabletId {
        self.handle.tablet
    }

    /// What follows from this is published already if [`Self::published`] is the same. `support`: [`crate::liveness::SupportView::changes`].
    pub(crate) fn basis(&self, support: u64) -> Basis {
        Basis {
            term: self.group.term(),
            leader: self.group.leader(),
            support,
            may_propose: self.may_propose(),
            is_established: self.group.is_established_leader(),
            is_changing_members: self.group.is_changing_members(),
            are_members_known: self.group.commit_index() > self.members_index,
            is_recovering: self.group.is_recovering(),
            has_failed: self.failure.is_some(),
        }
    }

    /// The voters that are wanted, or are, if nobody has said so: who campaigns first comes first.
    pub(crate) fn ranked_voters(&self) -> Vec<u64> {
        if self.members.voters.is_empty() {
            self.group.members().voters.clone()
        } else {
            self.members.voters.iter().map(|node| node.0).collect()
        }
    }

    /// Whether it takes nothing any more: its children do, or the tablet that has taken it in.
    pub(crate) fn has_ended(&self) -> bool {
        self.split.is_some() || self.applied.flags & CLOSED != 0
    }

    /// Whether it leads a group that `node` is a member of.
    pub(crate) fn leads(&self, node: u64) -> bool {
        self.group.is_leader() && self.group.progress().any(|member| member.replica == node)
    }

    /// Whether it leads and has not given its lease up.
    pub(crate) fn may_propose(&self) -> bool {
        let term = self.group.term();
        let has_ended = self.ending.is_some_and(|(_, of)| of == term) || self.has_ended();
        self.group.is_leader()
            && self.released_term != term
            && (!has_ended || self.handle.planted.keep_lease_when_split)
    }

    /// Of a leader: whether it has seen every committed write, so that its stamps are greater than theirs.
    pub(crate) fn may_stamp(&self) -> bool {
        let published = self.published.as_ref().filter(|published| published.term == self.group.term());
        published.map_or_else(|| self.group.is_established_leader(), |published| published.is_established)
    }

    /// Whether it leads and has given up its lease for good, so that another shall lead.
    pub(crate) fn has_released(&self) -> bool {
        self.group.is_leader() && self.released_term == self.group.term()
    }

    /// Tells those who hold it what this leader found committed when it took over, once that is certain: where another led before, writers may be waiting for it. Later
    /// commits travel with entries.
    pub(crate) fn tell_news(&mut self) {
        let term = self.group.term();
        if self.took_over.0 != term {
            if !self.group.has_committed_in_term() {
                return;
            }
            self.took_over = (term, self.group.commit_index());
        }
        let (_, commit) = self.took_over;
        let is_news = |member: MemberProgress| member.committed < commit && commit <= member.matched;
        if self.group.progress().any(is_news) {
            self.group.ping();
        }
    }

    /// Whether it may put off applying these committed entries: nobody here waits for them, and there are not too many of them yet.
    pub(crate) fn may_defer(&self, committed: &[Entry]) -> bool {
        !self.group.is_leader()
            && self.group_id != GroupId::CATALOG
            && self.waiting.is_empty()
            && self.position.is_none()
            && self.deferred.has_room_for(committed)
            && committed
                .iter()
                .all(|entry| entry.get_entry_type() == EntryType::EntryNormal && entry.context.is_empty())
    }

    /// Whether it is to be looked at now; then it is noted that it was. A leader that is written to is busy with that, so less often.
    pub(crate) fn is_look_due(&mut self, now_ns: u64) -> bool {
        let is_busy = now_ns < self.proposed_ns + QUIET_NS && now_ns < self.looked_at_ns + PING_NS;
        if !is_busy {
            self.looked_at_ns = now_ns;
        }
        !is_busy
    }

    /// Lets the next look be due.
    pub(crate) fn look_soon(&mut self) {
        self.looked_at_ns = 0;
    }

    /// Who should be asked instead.
    pub(crate) fn leader_elsewhere(&self, me: NodeId) -> Option<NodeId> {
        Some(NodeId(self.group.leader())).filter(|leader| leader.0 != 0 && *leader != me)
    }

    /// Proposes all fresh writes, stamped at `wall_us` or as soon after it as their order wants; returns those that failed. Only for a replica that may propose.
    pub(crate) fn propose_fresh(
        &mut self,
        now_ns: u64,
        counters: &StoreCounters,
        wall_us: i64,
    ) -> Vec<(Waiter, KvError)> {
        let mut failed = Vec::new();
        let mut payload = Payload::default();
        let mut waiters = Vec::new();
        let mut fresh = std::mem::take(&mut self.fresh);
        if !fresh.is_empty() {
            self.tell_grace(&mut payload, wall_us);
        }
        for mut proposal in fresh.drain(..) {
            if proposal.waiter.deadline_ns <= now_ns {
                failed.push((proposal.waiter, KvError::Overloaded("the request ended before its write was proposed")));
                continue;
            }
            proposal.mutation.stamp(self.stamps.stamp(wall_us));
            let program = program_of(&proposal.mutation);
            let (alone, ends) = (program.is_some(), program.is_some_and(ends_tablet));
            if alone || payload.size_bytes() >= ENTRY_BYTES {
                self.propose(&mut payload, &mut waiters, now_ns, &mut failed);
            }
            if ends {
                self.end_lease(counters);
            }
            payload.push(&proposal.mutation);
            waiters.push(proposal.waiter);
            if alone {
                let index = self.propose(&mut payload, &mut waiters, now_ns, &mut failed);
                if let Some(index) = index.filter(|_| ends) {
                    self.note_ending(index);
                }
            }
        }
        self.propose(&mut payload, &mut waiters, now_ns, &mut failed);
        self.fresh = fresh;
        failed
    }

    /// Lets no read begin or end from here on: the entry that ends the tablet is about to be proposed, and whoever applies it may let another tablet answer. The lease
    /// comes back with the next look at this replica, unless [`Self::note_ending`] follows.
    pub(crate) fn end_lease(&mut self, counters: &StoreCounters) {
        counters.note_lease(self.handle.lease.publish(None));
        self.published = None;
    }

    /// Proposes what was gathered, if anything; returns the index of the entry.
    fn propose(
        &mut self,
        payload: &mut Payload,
        waiters: &mut Vec<Waiter>,
        now_ns: u64,
        failed: &mut Vec<(Waiter, KvError)>,
    ) -> Option<u64> {
        if waiters.is_empty() {
            return None;
        }
        let outcome = self.group.propose(payload.take()).map_err(|error| match error {
            GroupError::NotLeader => KvError::Overloaded("too much of the tablet's log waits for a quorum"),
            broken @ (GroupError::Broken(_) | GroupError::Diverged { .. }) => KvError::Storage(broken.to_string()),
        });
        match outcome {
            Ok(index) => {
                let term = self.group.term();
                let waiters = std::mem::take(waiters);
                self.proposed_ns = now_ns;
                self.waiting.push(Waiting { index, term, since_ns: now_ns, waiters });
                Some(index)
            }
            Err(error) => {
                failed.extend(waiters.drain(..).map(|waiter| (waiter, error.clone())));
                None
            }
        }
    }

    /// Notes that this leader has proposed an entry that ends the tablet.
    pub(crate) fn note_ending(&mut self, index: u64) {
        self.ending = Some((index, self.group.term()));
    }

    /// Whether the entry that was to end the tablet is applied and has not ended it: it serves again.
    pub(crate) fn has_outlived_its_end(&mut self) -> bool {
        let applied = (self.applied.term, self.applied.index);
        self.ending.take_if(|(index, term)| (*term, *index) <= applied).is_some() && !self.has_ended()
    }
}
