//! A Raft group and its turn.

use crate::change::MemberChange;
use crate::error::GroupError;
use crate::log::{LogReader, LogView, Recovered, UNKNOWN_FLOOR};
use crate::logger;
use crate::marked::ProvenPayload;
use crate::position::{LogPosition, Term};
use crate::votes::{Round, Votes, is_vote, make_conditional};
use protobuf::Message as _;
use raft::eraftpb::{ConfChange, ConfChangeV2, ConfState, Entry, EntryType, HardState, Message, MessageType};
use raft::{Config, INVALID_ID, Progress, ProgressState, RawNode, Ready, StateRole};
use std::collections::BTreeSet;
use std::ops::Range;

/// Settings of one replica of a group.
#[derive(Debug, Clone)]
pub struct GroupOptions {
    /// This replica's id within the group: the node's id.
    pub replica: u64,
    /// Whether the leader sends a commit notification to all members as soon as a commit index advances. Without it
    /// they learn of a commit from the next entries or from a [`Group::ping`], which takes half as many messages in a
    /// group that is seldom written to.
    pub announces_commits: bool,
}

/// How far a member has got, as far as its leader knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberProgress {
    /// The member.
    pub replica: u64,
    /// Index of the last entry that the member is known to hold.
    pub matched: u64,
    /// The greatest commit index that the member is known to have received.
    pub committed: u64,
    /// Index of the last entry that was sent to the member, assuming that no message was lost.
    pub sent: u64,
}

/// The work of one turn, for the caller to carry out.
#[derive(Debug)]
pub struct Step {
    /// Entries to append to the log.
    pub entries: Vec<Entry>,
    /// The commit index to record with `entries`.
    pub commit: u64,
    /// Term and vote to write to the log, if one of them has changed.
    pub hard_state: Option<HardState>,
    /// Messages to send at once, before the log is durable.
    pub messages: Vec<Message>,
    /// Messages to send once the log is durable.
    pub messages_after_persist: Vec<Message>,
    /// Entries that are committed already: to apply in order, before those that [`Group::persisted`] returns.
    pub committed: Vec<Entry>,
    /// Whether the log must be fsynced before `persisted` is called.
    pub must_sync: bool,
    ready: Ready,
}

/// One replica of one group.
pub struct Group<L: LogReader> {
    pub(crate) node: RawNode<LogView<L>>,
    /// While this replica is recovering: the position up to which its log is known to equal the log of the leader of
    /// its term.
    agreed: LogPosition,
    /// The floor differs from the one that the log has recorded.
    has_new_floor: bool,
    /// The floor is to be written to the log once the log has reached it.
    floor_waits: bool,
    /// The votes for this replica.
    votes: Votes,
}

impl<L: LogReader> Group<L> {
    /// A group that continues from its durable state. Applied entries were committed, so the commit index is at least
    /// `applied`: the commit index in the log may be older, as nothing waits for it to be written.
    pub fn new(options: &GroupOptions, mut recovered: Recovered, log: L) -> Result<Self, GroupError> {
        if recovered.floor != UNKNOWN_FLOOR && recovered.last < recovered.floor {
            // The commit index belongs to a log that has been removed.
            recovered.hard_state.commit = 0;
        }
        // The entries up to the recorded commit index may have been lost in a crash.
        let commit = recovered.hard_state.commit.min(recovered.last.index);
        recovered.hard_state.commit = commit.max(recovered.applied).max(recovered.truncated.index);
        let config = Config {
            id: options.replica,
            applied: recovered.applied,
            max_size_per_msg: 1 << 20,
            max_inflight_msgs: 256,
            // A replay after a crash reads the log in pieces.
            max_committed_size_per_ready: 16 << 20,
            max_uncommitted_size: 64 << 20,
            // Elections and quorum checks follow the support between nodes (see `support`), not ticks.
            check_quorum: false,
            pre_vote: true,
            skip_bcast_commit: !options.announces_commits,
            ..Config::default()
        };
        let node = RawNode::new(&config, LogView::new(recovered, log), &logger::logger())?;
        let votes = Votes::default();
        Ok(Self { node, agreed: LogPosition::START, has_new_floor: false, floor_waits: false, votes })
    }

    /// Stops leading. The next leader is of a later term.
    pub fn step_down(&mut self) {
        let term = self.node.raft.term;
        self.node.raft.become_follower(term, INVALID_ID);
    }

    /// Starts an election at once. The only voter of a group calls this at its start, and leads as soon as its vote is
    /// durable.
    pub fn campaign(&mut self) -> Result<(), GroupError> {
        Ok(self.node.campaign()?)
    }

    /// Appends `data` to the leader's log; returns the entry's index.
    pub fn propose(&mut self, data: Vec<u8>) -> Result<u64, GroupError> {
        self.append(Vec::new(), data)
    }

    /// As [`Self::propose`], for an entry with a mark.
    pub fn propose_marked(&mut self, payload: ProvenPayload) -> Result<u64, GroupError> {
        let (mark, data) = payload.into_parts();
        self.append(mark, data)
    }

    fn append(&mut self, context: Vec<u8>, data: Vec<u8>) -> Result<u64, GroupError> {
        match self.node.propose(context, data) {
            Ok(()) => Ok(self.node.raft.raft_log.last_index()),
            Err(raft::Error::ProposalDropped) => Err(self.dropped()),
            Err(other) => Err(other.into()),
        }
    }

    /// The reason why consensus dropped a proposal.
    fn dropped(&self) -> GroupError {
        if self.is_leader() { GroupError::Dropped } else { GroupError::NotLeader }
    }

    /// Takes a message from another replica.
    ///
    /// # Errors
    /// [`GroupError::Diverged`] if the leader's log contradicts entries that were committed here. The message was not
    /// processed then.
    pub fn step(&mut self, mut message: Message) -> Result<(), GroupError> {
        match message.get_msg_type() {
            MessageType::MsgHeartbeat => self.bound_commit(&mut message),
            MessageType::MsgAppend if message.term >= self.term().0 => return self.step_append(message),
            // A replica that is no member gets the error of the consensus core, as none of its messages may count.
            MessageType::MsgAppendResponse if self.is_member(message.from) && self.is_void(&message) => return Ok(()),
            _ if is_vote(&message) && self.is_member(message.from) => return self.step_vote(message),
            _ => {}
        }
        Ok(self.node.step(message)?)
    }

    /// Takes a request for a vote while this replica lacks entries that it acknowledged: the vote that it may give is a
    /// conditional one (see `votes`).
    pub fn step_without_entries(&mut self, request: Message) -> Result<(), GroupError> {
        let sent = self.node.raft.msgs.len();
        self.node.step(request)?;
        let term = self.node.raft.term;
        self.node.raft.msgs.iter_mut().skip(sent).for_each(|answer| make_conditional(answer, term));
        Ok(())
    }

    fn step_vote(&mut self, answer: Message) -> Result<(), GroupError> {
        if let Some(vote) = self.votes.take(answer, self.awaited_votes()) {
            self.node.step(vote)?;
        }
        if self.is_recovering() && !self.has_only_lost_its_end() {
            return Ok(());
        }
        let (awaited, may_have_changed) = (self.awaited_votes(), self.votes.holds_any() && self.has_further_change());
        let members = self.node.store().conf_state();
        for vote in self.votes.countable(self.node.raft.id, awaited, members, may_have_changed) {
            self.node.step(vote)?;
        }
        Ok(())
    }

    /// Whether the log holds a change of members that is not carried out yet, as far as it can be read.
    fn has_further_change(&self) -> bool {
        let (log, store) = (&self.node.raft.raft_log, self.node.store());
        let is_change = |entry: &Entry| entry.get_entry_type() != EntryType::EntryNormal;
        store.holds_any(log.applied + 1, log.last_index(), is_change).unwrap_or(true)
    }

    /// The answers that this replica waits for, if it is a candidate.
    fn awaited_votes(&self) -> Option<Round> {
        let raft = &self.node.raft;
        match raft.state {
            StateRole::PreCandidate => Some((MessageType::MsgRequestPreVoteResponse, raft.term + 1)),
            StateRole::Candidate => Some((MessageType::MsgRequestVoteResponse, raft.term)),
            StateRole::Follower | StateRole::Leader => None,
        }
    }

    fn is_member(&self, replica: u64) -> bool {
        self.node.raft.prs().get(replica).is_some()
    }

    /// Whether an acknowledgement says nothing about this log: it was given to a former leader whose log was longer, or
    /// it names another entry at the same index, as happens when a majority has lost entries that were committed. Only
    /// an acknowledgement of entries that were not sent in this term names the entry's term
    /// ([`Self::acknowledge_copy`]).
    fn is_void(&self, message: &Message) -> bool {
        let differs = || message.log_term != 0 && !self.holds(LogPosition::new(message.index, message.log_term));
        !message.reject && (message.index > self.last_index() || differs())
    }

    /// Lowers the commit index of a leader's message to what this replica is known to hold. The leader relies on former
    /// acknowledgements of this replica, which may have lost those entries since and may hold others in their place.
    fn bound_commit(&mut self, message: &mut Message) {
        if message.term < self.term().0 || message.commit <= self.commit_index() {
            return;
        }
        if message.commit > self.last_index() && !self.is_recovering() {
            self.set_floor(UNKNOWN_FLOOR);
        }
        if self.is_recovering() {
            let agreed = if self.agreed.term == message.term { self.agreed.index } else { 0 };
            message.commit = message.commit.min(agreed);
        }
    }

    fn step_append(&mut self, message: Message) -> Result<(), GroupError> {
        if self.contradicts(&message) {
            let LogPosition { index, term } = self.committed();
            return Err(GroupError::Diverged { index, term });
        }
        let end = message.entries.last().map_or(LogPosition::new(message.index, message.log_term), LogPosition::from);
        let (from, term) = (message.from, message.term);
        self.node.step(message)?;
        let raft = &self.node.raft;
        if self.is_recovering()
            && (raft.leader_id, raft.term) == (from, term)
            && raft.raft_log.match_term(end.index, end.term)
        {
            let before = if self.agreed.term == term { self.agreed.index } else { 0 };
            self.agreed = LogPosition::new(before.max(end.index), term);
        }
        Ok(())
    }

    fn committed(&self) -> LogPosition {
        let log = &self.node.raft.raft_log;
        LogPosition::new(log.committed, log.term(log.committed).unwrap_or_default())
    }

    /// Whether a leader's log contradicts entries that are committed here, as far as the message shows. Consensus
    /// assumes that this cannot happen, which holds as long as no acknowledged entry is lost. Terms only grow along a
    /// log, so the message can be compared even with entries that were truncated.
    fn contradicts(&self, message: &Message) -> bool {
        let committed = self.committed();
        let start = self.node.store().truncated();
        let is_other = |index: u64, term: u64| {
            if index > committed.index {
                term < committed.term
            } else if index >= start.index {
                self.node.raft.raft_log.term(index).is_ok_and(|own| own != term)
            } else {
                term > start.term
            }
        };
        is_other(message.index, message.log_term)
            || message.entries.iter().any(|entry| is_other(entry.index, entry.term))
    }

    /// Sends a heartbeat to all members: all acknowledge the leader again, and those that lag are sent what they lack.
    pub fn ping(&mut self) {
        self.node.ping();
    }

    /// Proposes a change of members. Does nothing if another one is under way.
    pub fn propose_member_change(&mut self, change: &MemberChange) -> Result<(), GroupError> {
        match self.node.propose_conf_change(Vec::new(), change.encode()) {
            Ok(()) => Ok(()),
            Err(raft::Error::ProposalDropped) => Err(self.dropped()),
            Err(other) => Err(other.into()),
        }
    }

    /// Carries out a committed change of members. Returns the members from then on, or `None` if `entry` is no such
    /// change.
    pub fn apply_member_change(&mut self, entry: &Entry) -> Result<Option<ConfState>, GroupError> {
        let conf_state = match entry.get_entry_type() {
            EntryType::EntryNormal => return Ok(None),
            // Logs of earlier versions hold changes of one replica at a time.
            EntryType::EntryConfChange => {
                let change = ConfChange::parse_from_bytes(&entry.data).map_err(raft::Error::from)?;
                self.node.apply_conf_change(&change)?
            }
            EntryType::EntryConfChangeV2 => {
                let change = ConfChangeV2::parse_from_bytes(&entry.data).map_err(raft::Error::from)?;
                self.node.apply_conf_change(&change)?
            }
        };
        self.node.mut_store().set_conf_state(conf_state.clone());
        Ok(Some(conf_state))
    }

    /// Whether a change of members may be under way: proposed and not yet applied.
    pub fn is_changing_members(&self) -> bool {
        self.node.raft.has_pending_conf()
    }

    /// The replica cannot be reached: messages to it may be lost, so its progress is probed again.
    pub fn report_unreachable(&mut self, replica: u64) {
        self.node.report_unreachable(replica);
    }

    /// Whether [`Self::ready`] would return a step.
    pub fn has_more(&self) -> bool {
        self.node.has_ready()
    }

    /// The next step, if there is any work.
    pub fn ready(&mut self) -> Option<Step> {
        if self.has_unknown_floor() && self.is_leader() {
            // A leader's log is authoritative, whatever entries this replica has lost.
            self.set_floor(LogPosition::START);
        }
        if !self.node.has_ready() {
            return None;
        }
        let mut ready = self.node.ready();
        let entries = ready.take_entries();
        // A commit index that changed alone need not reach the log: after a restart it is found again. It is written
        // along with entries and votes: a replica that holds a change of members in its log must know, after a restart
        // too, that the change before it is committed. Otherwise it would act as a member of a configuration that no
        // longer exists.
        let state = self.node.raft.hard_state();
        let commit = state.commit;
        let hard_state = self.node.store().is_new_vote(&state).then_some(state);
        if let Some(hard_state) = &hard_state {
            self.node.mut_store().set_hard_state(hard_state.clone());
        }
        Some(Step {
            entries,
            commit,
            hard_state,
            messages: ready.take_messages(),
            messages_after_persist: ready.take_persisted_messages(),
            committed: ready.take_committed_entries(),
            must_sync: ready.must_sync(),
            ready,
        })
    }

    /// The step's entries and hard state are durable. Returns the entries that are committed by that, to be applied in
    /// order, and messages to send.
    pub fn persisted(&mut self, step: Step) -> (Vec<Entry>, Vec<Message>) {
        self.node.mut_store().append(step.entries);
        let mut light = self.node.advance_append(step.ready);
        (light.take_committed_entries(), light.take_messages())
    }

    /// Entries up to `index` are applied; their in-memory copies are dropped.
    pub fn applied(&mut self, index: u64) {
        self.node.advance_apply_to(index);
        self.node.mut_store().evict_to(index);
    }

    /// Prepares to drop entries up to `index` from the log; they must be applied, and durable in the state machine.
    /// Returns the term to record for the truncation, or `None` if the entries are gone already.
    pub fn truncate_to(&mut self, index: u64) -> Result<Option<u64>, GroupError> {
        if index <= self.node.store().truncated().index {
            return Ok(None);
        }
        Ok(Some(self.node.mut_store().truncate_to(index)?))
    }

    /// Whether this replica leads.
    pub fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// Whether this replica leads and has applied an entry of its own term, so that it has seen every committed write.
    pub fn is_established_leader(&self) -> bool {
        self.is_leader() && self.node.raft.raft_log.term(self.node.raft.raft_log.applied).ok() == Some(self.term().0)
    }

    /// Whether an entry of this term is known to be committed.
    pub fn has_committed_in_term(&self) -> bool {
        self.node.raft.raft_log.term(self.commit_index()).ok() == Some(self.term().0)
    }

    /// The voters and learners.
    pub fn members(&self) -> &ConfState {
        self.node.store().conf_state()
    }

    /// Whether the group is in a joint configuration: two sets of voters decide together.
    pub fn is_joint(&self) -> bool {
        !self.members().voters_outgoing.is_empty()
    }

    /// All voters, those of both sets in a joint configuration.
    pub fn all_voters(&self) -> impl Iterator<Item = u64> + '_ {
        let members = self.members();
        let only_outgoing = members.voters_outgoing.iter().filter(|voter| !members.voters.contains(voter));
        members.voters.iter().chain(only_outgoing).copied()
    }

    /// Whether this replica's log is below its floor: it has acknowledged more than its log holds. Until the log has
    /// caught up, the replica does not campaign, and its votes are conditional (see [`Recovered::floor`]).
    pub fn is_recovering(&self) -> bool {
        self.node.store().is_below_floor()
    }

    /// The last entry that this replica may have acknowledged (see [`Recovered::floor`]).
    fn floor(&self) -> LogPosition {
        self.node.store().floor()
    }

    /// Whether this replica's floor is unknown: a leader has to report an upper bound for it.
    pub fn has_unknown_floor(&self) -> bool {
        self.floor().index == UNKNOWN_FLOOR.index
    }

    /// Whether the log may have lost its end, but no entry that was durable.
    pub fn has_only_lost_its_end(&self) -> bool {
        self.floor() == UNKNOWN_FLOOR
    }

    /// Takes an upper bound for this replica's floor: a leader that has discarded what this replica acknowledged
    /// reports where its own log ends.
    pub fn learn_floor(&mut self, floor: LogPosition) {
        if self.has_unknown_floor() && !self.is_leader() {
            let has_its_log = self.has_only_lost_its_end();
            self.set_floor(floor);
            // If power is lost before the log has reached the floor, the floor must be unknown again: this log was not
            // removed.
            self.floor_waits = has_its_log;
        }
    }

    fn set_floor(&mut self, floor: LogPosition) {
        self.node.mut_store().set_floor(floor);
        (self.has_new_floor, self.floor_waits) = (true, false);
    }

    /// The floor that is to be written to the log; `None` if it is recorded already.
    pub fn take_new_floor(&mut self) -> Option<LogPosition> {
        if self.floor_waits && self.is_recovering() {
            return None;
        }
        std::mem::take(&mut self.has_new_floor).then(|| self.floor())
    }

    /// Whether the log holds this entry, or begins just after it.
    pub fn holds(&self, position: LogPosition) -> bool {
        self.node.raft.raft_log.match_term(position.index, position.term)
    }

    /// The log's last entry.
    pub fn last(&self) -> LogPosition {
        LogPosition::new(self.last_index(), self.node.raft.raft_log.last_term())
    }

    /// The state to remember when this replica's log is removed: term and vote, and the last entry that it may have
    /// acknowledged.
    pub fn memory(&self) -> (HardState, LogPosition) {
        (self.node.raft.hard_state(), self.last().max(self.floor()))
    }

    /// Takes a member's report that it holds no entry after `held`, whatever it has acknowledged before: the member is
    /// sent what it lacks. To believe less than what is true does no harm.
    pub fn forget_progress(&mut self, member: u64, held: u64) {
        if !self.is_leader() || member == self.node.raft.id {
            return;
        }
        if let Some(progress) = self.node.raft.mut_prs().get_mut(member)
            && progress.matched > held
        {
            progress.matched = held;
            progress.become_probe();
        }
    }

    /// Sends the commit index again to a member whose last known commit index is `commit`: the member may have
    /// restarted since it received a greater one.
    pub fn forget_commit(&mut self, member: u64, commit: u64) {
        if let Some(progress) = self.node.raft.mut_prs().get_mut(member) {
            progress.committed_index = commit;
        }
    }

    /// The progress of the other members; empty unless this replica leads.
    pub fn progress(&self) -> impl Iterator<Item = MemberProgress> + '_ {
        let me = self.node.raft.id;
        let is_leader = self.is_leader();
        self.node.raft.prs().iter().filter(move |(id, _)| is_leader && **id != me).map(|(id, progress)| {
            let is_streaming = progress.state == ProgressState::Replicate;
            MemberProgress {
                replica: *id,
                matched: progress.matched,
                committed: progress.committed_index,
                sent: if is_streaming { progress.next_idx.saturating_sub(1) } else { progress.matched },
            }
        })
    }

    /// The addresses that [`Self::progress`] reads, for now; empty unless this replica leads.
    pub fn progress_at(&self) -> Range<usize> {
        if !self.is_leader() {
            return 0..0;
        }
        let members = self.node.raft.prs().iter();
        let addresses = members.map(|(_, progress)| std::ptr::from_ref(progress).addr());
        let ends = addresses.fold((usize::MAX, 0), |(low, high), address| (low.min(address), high.max(address)));
        // The hash table's own bytes come after its last place, which may be empty.
        ends.0.min(ends.1)..ends.1 + 2 * size_of::<Progress>()
    }

    /// How many voters are known to hold an entry durably, and how many are required. In a joint configuration the
    /// larger set counts. Both are 0 if this replica does not lead and so cannot know.
    pub fn acknowledgements(&self, index: u64) -> (u32, u32) {
        let members = self.members();
        let required = (members.voters.len().max(members.voters_outgoing.len()) / 2 + 1) as u32;
        if !self.is_leader() {
            return (0, required);
        }
        let progress = self.node.raft.prs();
        let holds = |voter: &u64| progress.get(*voter).is_some_and(|progress| progress.matched >= index);
        (self.all_voters().filter(holds).count() as u32, required)
    }

    /// Whether [`Self::take_lacking`] would return any member.
    pub fn has_lacking(&self) -> bool {
        self.node.store().has_lacking()
    }

    /// Members that lack entries which are no longer in this leader's log, and so need a copy of the data. Each call
    /// empties the set.
    pub fn take_lacking(&mut self) -> BTreeSet<u64> {
        self.node.store().take_lacking()
    }

    /// The message by which a member reports to its leader how much it holds, as after its data was replaced by a copy;
    /// `None` if no leader is known. Applied entries are committed, so this is a valid acknowledgement of everything up
    /// to there, as far as the log is durable.
    pub fn acknowledge_copy(&self) -> Option<Message> {
        let raft = &self.node.raft;
        if raft.leader_id == INVALID_ID || self.is_leader() {
            return None;
        }
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgAppendResponse);
        (message.from, message.to, message.term) = (raft.id, raft.leader_id, raft.term);
        let index = raft.raft_log.applied.min(self.durable_index());
        let log_term = raft.raft_log.term(index).ok().filter(|_| index > 0)?;
        (message.index, message.log_term, message.commit) = (index, log_term, raft.raft_log.committed);
        Some(message)
    }

    /// The index of the last entry known to be committed.
    pub fn commit_index(&self) -> u64 {
        self.node.raft.raft_log.committed
    }

    /// Whether no other voter exists, so that nobody else can be elected.
    pub fn is_sole_voter(&self) -> bool {
        let members = self.members();
        members.voters == [self.node.raft.id] && members.voters_outgoing.is_empty()
    }

    /// The current term.
    pub fn term(&self) -> Term {
        Term(self.node.raft.term)
    }

    /// The replica that leads, 0 if unknown.
    pub fn leader(&self) -> u64 {
        self.node.raft.leader_id
    }

    /// The index of the last entry that is durable here.
    pub fn durable_index(&self) -> u64 {
        self.node.store().last().index
    }

    /// The index of the log's last entry.
    pub fn last_index(&self) -> u64 {
        self.node.raft.raft_log.last_index()
    }
}
