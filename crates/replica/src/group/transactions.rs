//! A replica's part in transactions over several tablets: it keeps their records, and while it leads it answers their
//! calls ([`diorite_transact`]).
//!
//! ```text
//! calls, writes ─▶ admit ─▶ Leader ─▶ run ─▶ steps to propose, answers, questions to other tablets
//! applied steps ─▶ Records (every replica) ─▶ after_apply ─▶ Leader
//! ```
//!
//! Always true: a tablet that no transaction has touched pays for none of this but one look per turn. A leader's state
//! is of one term and is dropped with it. Steps are proposed in the order in which the leader wants them; one that
//! cannot be proposed now stays first. A program is evaluated once nothing that it reads is in flight: writes that the
//! leader has admitted are known by their keys, and those that it has not seen by the log's index. Left out: the
//! protocol itself, and how other tablets are reached ([`TransactionPeers`]).

mod calls;
mod ending;
mod run;

use crate::group::pins::PinnedTablet;
use crate::group::proposal::{Proposal, Waiter};
use crate::group::replica::Replica;
use crate::group::turn::Turn;
use diorite_base::TabletId;
use diorite_base::bytes::Malformed;
use diorite_base::write::{KvError, Waited};
use diorite_raft::Term;
use diorite_storage::{Engine, ScanRange, StorageError, TabletData, TabletSnapshot as _};
use diorite_transact::leader::{Asker, Leader};
use diorite_transact::locks::LockLimits;
use diorite_transact::message::{Program, Status};
use diorite_transact::records::{KEY_PREFIX, Records};
use diorite_transact::step::{Ending, Step};
use diorite_transact::targets::Targets;
use diorite_transact::timing::Timing;
use diorite_transact::wire::PinId;
use diorite_transact::{Home, Participant, TransactionId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The most calls that wait for an answer in one tablet.
const MAX_ASKERS: usize = 10_000;
/// A question to another tablet is repeated after this, nanoseconds.
const ASK_AGAIN_NS: u64 = 500_000_000;
/// Between two looks for what is old, nanoseconds.
const SWEEP_NS: u64 = 50_000_000;

/// What the leader of a tablet asks of another tablet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerCall {
    /// What has become of a transaction that is prepared here. [`crate::Core::transaction_learned`] takes the answer.
    Ask {
        /// Where the home is found.
        home: Home,
        /// The transaction.
        id: TransactionId,
        /// The stamp of the prepare, microseconds.
        prepared_us: i64,
    },
    /// To finish. [`crate::Core::transaction_finished`] takes the answer.
    Finish {
        /// The tablet.
        participant: Participant,
        /// The transaction.
        id: TransactionId,
        /// How it has ended.
        ending: Ending,
    },
}

/// Reaches the leaders of other tablets.
pub trait TransactionPeers: Send + Sync + 'static {
    /// Sends a call for the tablet that is led here. It may get lost: it is repeated. Must not wait.
    fn call(&self, tablet: TabletId, call: PeerCall);
}

/// See the top of this module.
#[derive(Default)]
pub(crate) struct Transactions {
    pub(crate) records: Records,
    /// Applied steps that the leader has not seen yet.
    applied: Vec<Step>,
    led: Option<Box<Led>>,
    /// The tablet is to end: no transaction begins until then, nanoseconds.
    drains_until_ns: u64,
    /// Calls that wait for the end of that.
    held: Vec<Proposal>,
}

/// The state of a leader.
struct Led {
    term: Term,
    leader: Leader,
    askers: BTreeMap<Asker, Waiter>,
    next_tag: u64,
    /// Writes that wait for locks, by their tags.
    writes: BTreeMap<u64, Proposal>,
    /// Writes that are to be proposed in this turn.
    admitted: Vec<u64>,
    /// Writes in the log, each with an index that is not before its entry's.
    in_flight: VecDeque<(u64, u64)>,
    /// The index of the last entry with a write that the leader has not seen.
    unseen_index: u64,
    /// Such a write is to be proposed in this turn.
    has_unseen: bool,
    evaluations: VecDeque<(TransactionId, Program)>,
    steps: VecDeque<(Step, i64)>,
    pins: VecDeque<PendingPin>,
    asks: Asks,
}

/// Questions to other tablets.
#[derive(Default)]
struct Asks {
    /// When each was asked last.
    sent: BTreeMap<(TransactionId, TabletId), u64>,
    swept_ns: u64,
}

/// A read waits until everything up to an index is applied, to see that and no more.
struct PendingPin {
    index: u64,
    targets: Targets,
    proposal: Proposal,
}

impl Transactions {
    /// The records in a tablet's data.
    pub(crate) fn load<T: TabletData>(data: &Arc<T>) -> Result<Records, StorageError> {
        let end = Records::end_of_keys();
        let range = ScanRange { start: &KEY_PREFIX, end: &end, reverse: false, expected_entries: 0 };
        let mut stored = Vec::new();
        data.snapshot().scan(&range, &mut |key, value| {
            if Records::is_record(key) {
                stored.push((key.to_vec(), value.to_vec()));
            }
            true
        })?;
        let stored = stored.iter().map(|(key, value)| (key.as_slice(), value.as_slice()));
        Records::load(stored).map_err(|Malformed| StorageError::Corrupt("a record of a transaction".to_owned()))
    }

    pub(crate) fn note_applied(&mut self, step: Step) {
        if self.led.is_some() {
            self.applied.push(step);
        }
    }

    /// Whether something of a transaction is here.
    fn is_quiet(&self) -> bool {
        self.records.is_empty()
            && self.held.is_empty()
            && self.led.as_ref().is_none_or(|led| {
                led.leader.is_idle()
                    && led.askers.is_empty()
                    && led.writes.is_empty()
                    && led.steps.is_empty()
                    && led.pins.is_empty()
                    && led.evaluations.is_empty()
            })
    }

    /// Whether something is to be proposed that is not among the replica's fresh writes.
    fn has_steps(&self) -> bool {
        self.led.as_ref().is_some_and(|led| !led.steps.is_empty())
    }

    /// The index at which the first waiting read wants the data.
    pub(crate) fn next_pin(&self) -> Option<u64> {
        self.led.as_ref()?.pins.front().map(|pin| pin.index)
    }
}

impl Led {
    fn new(tablet: TabletId, term: Term, records: &Records, last_index: u64, now_ns: u64) -> Self {
        let (limits, timing) = (LockLimits::default(), Timing::default());
        let mut leader = Leader::new(tablet, term.0, records, limits, timing, now_ns);
        leader.ready();
        Self {
            term,
            leader,
            askers: BTreeMap::new(),
            next_tag: 0,
            writes: BTreeMap::new(),
            admitted: Vec::new(),
            in_flight: VecDeque::new(),
            unseen_index: last_index,
            has_unseen: false,
            evaluations: VecDeque::new(),
            steps: VecDeque::new(),
            pins: VecDeque::new(),
            asks: Asks::default(),
        }
    }

    fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }
}

impl<E: Engine> Replica<E> {
    /// Whether transactions need this leader to be visited from time to time.
    pub(crate) fn has_transactions(&self) -> bool {
        self.group.is_leader() && (!self.transactions.is_quiet() || self.has_pins())
    }

    fn has_pins(&self) -> bool {
        self.transactions.led.is_some() && !self.handle.pins.is_empty()
    }

    /// Whether transactions have something to propose.
    pub(crate) fn has_steps(&self) -> bool {
        self.transactions.has_steps()
    }

    /// Drops the state of a former term, and makes that of this term if `wanted` or if records ask for it. Returns
    /// whether this replica may answer calls now.
    fn may_lead_transactions(&mut self, turn: &mut Turn<E>, wanted: bool) -> bool {
        let term = self.group.term();
        let is_over = |led: &Led| led.term != term;
        let is_leader = self.group.is_leader() && !self.has_released() && self.failure.is_none();
        if self.transactions.led.as_deref().is_some_and(|led| is_over(led) || !is_leader) {
            self.stop_leading_transactions(turn);
        }
        let may = is_leader && self.may_propose() && self.may_stamp();
        if may && self.transactions.led.is_none() && (wanted || !self.transactions.records.is_empty()) {
            let (last, now_ns) = (self.group.last_index(), turn.now_ns());
            let led = Led::new(self.id(), term, &self.transactions.records, last, now_ns);
            self.transactions.led = Some(Box::new(led));
        }
        may && self.transactions.led.is_some()
    }

    /// Another replica leads, or will: whoever waits here is answered that the outcome is not known, and writes that
    /// have waited for locks go to the new leader.
    pub(crate) fn stop_leading_transactions(&mut self, turn: &mut Turn<E>) {
        let leader = self.leader_elsewhere(turn.context.node);
        let refused = std::mem::take(&mut self.transactions.held);
        turn.refused.extend(refused.into_iter().map(|proposal| proposal.refuse(leader)));
        self.transactions.applied.clear();
        let Some(led) = self.transactions.led.take() else { return };
        turn.outcomes.fail(led.askers.into_values(), &KvError::Timeout(Waited::ended()));
        let pins = led.pins.into_iter().map(|pin| pin.proposal);
        turn.refused.extend(led.writes.into_values().chain(pins).map(|proposal| proposal.refuse(leader)));
    }

    /// The home of a transaction has answered [`PeerCall::Ask`].
    pub(crate) fn transaction_learned(
        &mut self,
        turn: &mut Turn<E>,
        id: TransactionId,
        prepared_us: i64,
        status: Status,
    ) {
        if self.may_lead_transactions(turn, false)
            && let Some(led) = self.transactions.led.as_deref_mut()
        {
            led.leader.learned(&self.transactions.records, id, prepared_us, status);
            self.run_transactions(turn);
        }
    }

    /// A participant has answered [`PeerCall::Finish`].
    pub(crate) fn transaction_finished(&mut self, turn: &mut Turn<E>, id: TransactionId, participant: TabletId) {
        if self.may_lead_transactions(turn, false)
            && let Some(led) = self.transactions.led.as_deref_mut()
        {
            led.leader.finished(id, participant);
            self.run_transactions(turn);
        }
    }

    /// Some time has passed.
    pub(crate) fn sweep_transactions(&mut self, turn: &mut Turn<E>, now_ns: u64) {
        let is_concerned = self.transactions.led.is_some() || !self.transactions.records.is_empty();
        if !is_concerned || !self.may_lead_transactions(turn, false) {
            return;
        }
        self.handle.pins.expire(now_ns);
        if now_ns >= self.transactions.drains_until_ns && !self.transactions.held.is_empty() {
            self.writes.fresh.append(&mut self.transactions.held);
            turn.touch(self);
        }
        let Some(led) = self.transactions.led.as_deref_mut() else { return };
        let due = led.askers.extract_if(.., |_, waiter| waiter.deadline_ns <= now_ns);
        turn.outcomes.fail(due.map(|(_, waiter)| waiter), &KvError::Timeout(Waited::in_vain(0)));
        if now_ns < led.asks.swept_ns + SWEEP_NS {
            return;
        }
        led.asks.swept_ns = now_ns;
        led.asks.sent.retain(|_, sent_ns| now_ns < *sent_ns + ASK_AGAIN_NS);
        led.leader.sweep(&self.transactions.records, now_ns);
        self.run_transactions(turn);
        turn.touch(self);
    }

    /// Takes the snapshots of the reads that wait for what is applied now.
    fn take_due_pins(&mut self, turn: &mut Turn<E>) {
        loop {
            let applied = self.applied.index;
            let Some(led) = self.transactions.led.as_deref_mut() else { return };
            let Some(pin) = led.pins.pop_front_if(|pin| pin.index <= applied) else { return };
            self.take_pin(turn, pin);
        }
    }

    /// Keeps a snapshot of what is applied now for a read.
    fn pin(&self, turn: &Turn<E>, now_ns: u64) -> Option<PinId> {
        let (snapshot, evaluator) = (self.handle.data.snapshot(), Arc::clone(&self.evaluator));
        let of_state = (self.applied.newest_explicit_us, self.applied.flags);
        let pinned = PinnedTablet::new(snapshot, &self.transactions.records, evaluator, of_state, now_ns);
        let pin = turn.context.next_pin();
        self.handle.pins.add(pin, pinned).then_some(pin)
    }
}
