//! A replica's state of transactions over several tablets: their records, and, while it leads, what the leader has to
//! answer and to propose.
//!
//! Always true: records are a function of the applied steps. Left out: what is done with all this ([`super::transact`]),
//! and the protocol ([`diorite_transact`]).

use crate::group::appended::AppendedSteps;
use crate::group::proposal::{Proposal, Waiter};
use diorite_base::TabletId;
use diorite_base::bytes::Malformed;
use diorite_raft::Term;
use diorite_storage::{ScanRange, StorageError, TabletData, TabletSnapshot as _};
use diorite_transact::TransactionId;
use diorite_transact::leader::{Asker, Leader};
use diorite_transact::locks::LockLimits;
use diorite_transact::message::Program;
use diorite_transact::records::{KEY_PREFIX, Records};
use diorite_transact::step::Step;
use diorite_transact::targets::Targets;
use diorite_transact::timing::Timing;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The most calls that wait for an answer in one tablet.
pub(crate) const MAX_ASKERS: usize = 10_000;
/// How long a write or a transaction waits for locks at most, nanoseconds.
pub(crate) const WAIT_NS: u64 = 1_800_000_000;
/// A question to another tablet is repeated after this, nanoseconds.
pub(crate) const ASK_AGAIN_NS: u64 = 500_000_000;
/// Between two looks for what is old, nanoseconds.
pub(crate) const SWEEP_NS: u64 = 50_000_000;

/// See the top of this module.
#[derive(Default)]
pub(crate) struct Transactions {
    pub(crate) records: Records,
    /// Applied steps that the leader has not seen yet.
    pub(crate) applied: Vec<Step>,
    pub(crate) led: Option<Box<Led>>,
    /// The numbers that were issued here: the term, and the next one in it.
    pub(crate) issued: (Term, u64),
    pub(crate) held: Held,
}

/// What is held back because the tablet is to end, or its lease.
#[derive(Default)]
pub(crate) struct Held {
    /// No transaction begins until then, nanoseconds.
    pub(crate) drains_until_ns: u64,
    /// The transactions that are to begin.
    pub(crate) calls: Vec<Proposal>,
    /// No snapshot is taken until then, nanoseconds.
    pub(crate) pins_until_ns: u64,
    /// The reads that want one.
    pub(crate) pins: Vec<Proposal>,
}

impl Held {
    /// What is held back no longer. `releases`: the leader is about to give its lease up.
    pub(crate) fn due(&mut self, now_ns: u64, releases: bool) -> Vec<Proposal> {
        let mut due = Vec::new();
        if now_ns >= self.drains_until_ns {
            due.append(&mut self.calls);
        }
        if now_ns >= self.pins_until_ns && !releases {
            due.append(&mut self.pins);
        }
        due
    }

    /// Everything.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Proposal> + use<> {
        std::mem::take(&mut self.calls).into_iter().chain(std::mem::take(&mut self.pins))
    }

    fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.pins.is_empty()
    }
}

/// The state of a leader.
pub(crate) struct Led {
    pub(crate) term: Term,
    pub(crate) leader: Leader,
    pub(crate) askers: BTreeMap<Asker, Waiter>,
    pub(crate) next_tag: u64,
    pub(crate) writes: WritesBeside,
    pub(crate) evaluations: VecDeque<(TransactionId, Program)>,
    pub(crate) steps: VecDeque<(Step, i64)>,
    pub(crate) appended: AppendedSteps,
    pub(crate) pins: VecDeque<PendingPin>,
    pub(crate) asks: Asks,
    /// About the bytes of the programs that wait, are reserved or are prepared.
    pub(crate) staged_bytes: usize,
}

/// Writes that are no transactions, by the tags that the leader knows them by.
pub(crate) struct WritesBeside {
    /// They wait for locks.
    pub(crate) waiting: BTreeMap<u64, Proposal>,
    /// They are to be proposed next. What they write is in flight from now on.
    pub(crate) admitted: Vec<(u64, Proposal)>,
    /// They are among the fresh writes of this turn.
    pub(crate) proposed: Vec<u64>,
    /// They are in the log, if they could be proposed, each with an index that is not before its entry's.
    pub(crate) in_flight: VecDeque<(u64, u64)>,
    pub(crate) unseen: Unseen,
}

/// Writes that the leader has not seen.
pub(crate) struct Unseen {
    /// The index of the last entry with one.
    pub(crate) index: u64,
    /// One is to be proposed in this turn.
    pub(crate) is_fresh: bool,
}

/// Questions to other tablets.
#[derive(Default)]
pub(crate) struct Asks {
    /// When each was asked last.
    pub(crate) sent: BTreeMap<(TransactionId, TabletId), u64>,
    pub(crate) swept_ns: u64,
}

/// A read waits until everything up to an index is applied, to see that and no more.
pub(crate) struct PendingPin {
    pub(crate) index: u64,
    pub(crate) targets: Targets,
    pub(crate) proposal: Proposal,
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
    pub(crate) fn is_quiet(&self) -> bool {
        self.records.is_empty()
            && self.held.is_empty()
            && self.led.as_ref().is_none_or(|led| {
                led.leader.is_idle()
                    && led.askers.is_empty()
                    && led.writes.waiting.is_empty()
                    && led.writes.admitted.is_empty()
                    && led.steps.is_empty()
                    && led.pins.is_empty()
                    && led.evaluations.is_empty()
            })
    }

    /// Whether something is to be proposed that is not among the replica's fresh writes.
    pub(crate) fn has_steps(&self) -> bool {
        self.led.as_ref().is_some_and(|led| !led.steps.is_empty() || !led.writes.admitted.is_empty())
    }

    /// The index at which the first waiting read wants the data.
    pub(crate) fn next_pin(&self) -> Option<u64> {
        self.led.as_ref()?.pins.front().map(|pin| pin.index)
    }
}

impl Led {
    /// The state of the leader of a term, which has issued numbers before if `issued` is of this term.
    pub(crate) fn new(
        (tablet, term): (TabletId, Term),
        issued: (Term, u64),
        records: &Records,
        last_index: u64,
        now_ns: u64,
    ) -> Self {
        let (limits, timing) = (LockLimits::default(), Timing::default());
        let mut leader = Leader::new(tablet, term.0, records, limits, timing, now_ns);
        leader.ready();
        if issued.0 == term {
            leader.continue_from(issued.1);
        }
        Self {
            term,
            leader,
            askers: BTreeMap::new(),
            next_tag: 0,
            writes: WritesBeside {
                waiting: BTreeMap::new(),
                admitted: Vec::new(),
                proposed: Vec::new(),
                in_flight: VecDeque::new(),
                unseen: Unseen { index: last_index, is_fresh: false },
            },
            evaluations: VecDeque::new(),
            steps: VecDeque::new(),
            appended: AppendedSteps::default(),
            pins: VecDeque::new(),
            asks: Asks::default(),
            staged_bytes: records.staged_bytes(),
        }
    }

    /// Counts the bytes of the programs again.
    pub(crate) fn measure_staged(&mut self, records: &Records) {
        let evaluated = self.evaluations.iter().map(|(_, program)| program.0.len());
        self.staged_bytes = self.leader.staged_bytes() + evaluated.sum::<usize>() + records.staged_bytes();
    }

    pub(crate) fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }
}
