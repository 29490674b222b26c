//! A Raft group and its turn.

use crate::log::{LogReader, LogView, Recovered};
use crate::logger;
use raft::eraftpb::{Entry, HardState, Message};
use raft::{Config, RawNode, Ready, StateRole};
use thiserror::Error;

/// What a group needs to know of itself.
#[derive(Debug, Clone)]
pub struct GroupOptions {
    /// This replica's id within the group: the node's id.
    pub replica: u64,
    /// Ticks without hearing from the leader before an election.
    pub election_ticks: usize,
    /// Ticks between a leader's heartbeats.
    pub heartbeat_ticks: usize,
}

/// Why consensus refused.
#[derive(Debug, Error)]
pub enum GroupError {
    /// This replica does not lead the group: ask the leader.
    #[error("not the leader")]
    NotLeader,
    /// The log or a message contradicts what consensus knows: the replica must stop.
    #[error("consensus failed: {0}")]
    Broken(#[from] raft::Error),
}

/// What one turn asks of the caller.
#[derive(Debug)]
pub struct Step {
    /// To append to the log.
    pub entries: Vec<Entry>,
    /// To write to the log, if changed.
    pub hard_state: Option<HardState>,
    /// To send at once, before the log is durable.
    pub messages: Vec<Message>,
    /// To send once the log is durable.
    pub messages_after_persist: Vec<Message>,
    /// Already committed: to apply, in order, before those that [`Group::persisted`] returns.
    pub committed: Vec<Entry>,
    /// Whether the log must be fsynced before `persisted`.
    pub must_sync: bool,
    ready: Ready,
}

/// One replica of one group.
pub struct Group<L: LogReader> {
    node: RawNode<LogView<L>>,
}

impl<L: LogReader> Group<L> {
    /// A group that goes on from its durable state. What was applied was committed, even if the commit index recorded in the log, which is
    /// not waited for, is older.
    pub fn new(options: &GroupOptions, mut recovered: Recovered, log: L) -> Result<Self, GroupError> {
        recovered.hard_state.commit = recovered.hard_state.commit.max(recovered.applied).max(recovered.truncated.0);
        let config = Config {
            id: options.replica,
            election_tick: options.election_ticks,
            heartbeat_tick: options.heartbeat_ticks,
            applied: recovered.applied,
            max_size_per_msg: 1 << 20,
            max_inflight_msgs: 256,
            // A replay after a crash takes the log in pieces, not at once.
            max_committed_size_per_ready: 16 << 20,
            check_quorum: true,
            pre_vote: true,
            ..Config::default()
        };
        let node = RawNode::new(&config, LogView::new(recovered, log), &logger::logger())?;
        Ok(Self { node })
    }

    /// Starts an election at once. The only voter of a group calls it at start and leads as soon as its vote is durable.
    pub fn campaign(&mut self) -> Result<(), GroupError> {
        Ok(self.node.campaign()?)
    }

    /// Appends `data` to the leader's log; returns the entry's index.
    pub fn propose(&mut self, data: Vec<u8>) -> Result<u64, GroupError> {
        match self.node.propose(Vec::new(), data) {
            Ok(()) => Ok(self.node.raft.raft_log.last_index()),
            Err(raft::Error::ProposalDropped) => Err(GroupError::NotLeader),
            Err(other) => Err(other.into()),
        }
    }

    /// Takes a message from another replica.
    pub fn step(&mut self, message: Message) -> Result<(), GroupError> {
        Ok(self.node.step(message)?)
    }

    /// Advances logical time by one tick.
    pub fn tick(&mut self) {
        self.node.tick();
    }

    /// What there is to do, if anything.
    pub fn ready(&mut self) -> Option<Step> {
        if !self.node.has_ready() {
            return None;
        }
        let mut ready = self.node.ready();
        let entries = ready.take_entries();
        // A commit index that moved on its own need not reach the log: after a restart it is found again.
        let hard_state =
            ready.hs().cloned().filter(|state| !entries.is_empty() || self.node.store().is_new_vote(state));
        if let Some(hard_state) = &hard_state {
            self.node.mut_store().set_hard_state(hard_state.clone());
        }
        Some(Step {
            entries,
            hard_state,
            messages: ready.take_messages(),
            messages_after_persist: ready.take_persisted_messages(),
            committed: ready.take_committed_entries(),
            must_sync: ready.must_sync(),
            ready,
        })
    }

    /// The step's entries and hard state are durable. Returns what is committed by that, to be applied in order, and messages to send.
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

    /// Prepares to drop entries up to `index` (applied, and durable in the state machine) from the log. Returns the term to be
    /// recorded as truncated with it; `None` if they are gone already.
    pub fn truncate_to(&mut self, index: u64) -> Result<Option<u64>, GroupError> {
        if index <= self.node.store().truncated().0 {
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
        self.is_leader() && self.node.raft.raft_log.term(self.node.raft.raft_log.applied).ok() == Some(self.term())
    }

    /// Whether no other voter exists, so that nobody else can be elected.
    pub fn is_sole_voter(&self) -> bool {
        self.node.store().conf_state().voters == [self.node.raft.id]
    }

    /// The current term.
    pub fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// The replica that leads, 0 if unknown.
    pub fn leader(&self) -> u64 {
        self.node.raft.leader_id
    }

    /// The index of the log's last entry.
    pub fn last_index(&self) -> u64 {
        self.node.raft.raft_log.last_index()
    }
}
