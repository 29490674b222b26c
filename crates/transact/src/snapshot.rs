//! A read of rows of several tablets as of one stamp, without versions of rows: the side of the reading node.
//!
//! Every tablet is *pinned* at a stamp T: its leader promises to stamp nothing at or below T any more, and keeps a
//! snapshot of what it had stamped until then. A tablet that has stamped above T refuses, and the read begins again
//! with a greater T. A prepare in a snapshot with a stamp of at most T is resolved by its home, at T: "not yet" then
//! means that a commit, if there is one, is stamped above T.
//!
//! Promises are in the memory of leaders. So the read counts how long each lease lasts at least, from when it *sent*
//! the question; if a lease may have ended before the last tablet was pinned, all are pinned again.
//!
//! Always true: of a committed transaction the read shows all rows or none. Nothing is missed that was acknowledged
//! before the read began: a transaction that was prepared when all tablets were pinned for the first time, and that its
//! home reports as committed above T, may have been, so the read begins again above it. One that was prepared later was
//! not committed when the read began, and a commit above T of it is not shown: otherwise a read of tablets that are
//! written to all the time would hardly ever end. A home that reports "aborted" may have forgotten a commit, because the prepare has been finished
//! since the snapshot was taken; so the read begins again, and finds the prepare no longer. Left out: the rows, and the
//! snapshots themselves.

use crate::ids::{Home, TransactionId};
use crate::message::Status;
use crate::planted::Planted;
use diorite_base::TabletId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A prepare in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Staged {
    /// The transaction.
    pub id: TransactionId,
    /// The stamp of the prepare, microseconds.
    pub prepared_us: i64,
    /// Where the outcome is found.
    pub home: Home,
}

/// A prepare in one of the tablets of a read.
pub type StagedIn = (TabletId, TransactionId, i64);

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Pin a tablet, and call [`SnapshotRead::pinned`], [`SnapshotRead::too_late`] or [`SnapshotRead::failed`].
    Pin {
        /// The tablet.
        tablet: TabletId,
        /// Comes back with the answer.
        round: u32,
        /// The stamp, microseconds.
        at_us: i64,
    },
    /// Ask a home about a prepare, as of the stamp, and call [`SnapshotRead::resolved`] or [`SnapshotRead::failed`].
    Ask {
        /// Where the home is found.
        home: Home,
        /// The prepare.
        of: StagedIn,
        /// Comes back with the answer.
        round: u32,
        /// The stamp, microseconds.
        at_us: i64,
    },
    /// The read is complete: the rows of the snapshots, with the rows of these prepares over them.
    Done {
        /// The stamp, microseconds.
        at_us: i64,
        /// The prepares that are committed at or below the stamp, and the stamps of their commits.
        committed: BTreeMap<StagedIn, i64>,
    },
    /// The read has been begun again as often as it may be.
    GiveUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Pinned {
    sent_ns: u64,
    /// None until the tablet has answered.
    lease_ns: Option<u64>,
}

/// See the top of this module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotRead {
    at_us: i64,
    round: u32,
    rounds: u32,
    tablets: BTreeMap<TabletId, Pinned>,
    /// The prepares that the homes have not been asked about.
    found: BTreeMap<StagedIn, Home>,
    unresolved: BTreeSet<StagedIn>,
    committed: BTreeMap<StagedIn, i64>,
    /// The transactions that may have been acknowledged before the read began: those that were prepared when all tablets
    /// were pinned for the first time, but for those that were not committed after that. `None`: that has not happened.
    early: Option<BTreeSet<TransactionId>>,
    /// The greatest commit of such a transaction above the stamp.
    later_us: Option<i64>,
    planted: Planted,
    actions: VecDeque<Action>,
}

impl SnapshotRead {
    /// A read of these tablets at `at_us` or later, which is begun at most `rounds` times.
    pub fn new(tablets: impl IntoIterator<Item = TabletId>, at_us: i64, rounds: u32, now_ns: u64) -> Self {
        let pinned = Pinned { sent_ns: now_ns, lease_ns: None };
        let mut read = Self {
            at_us,
            round: 0,
            rounds,
            tablets: tablets.into_iter().map(|tablet| (tablet, pinned)).collect(),
            found: BTreeMap::new(),
            unresolved: BTreeSet::new(),
            committed: BTreeMap::new(),
            early: None,
            later_us: None,
            planted: Planted::default(),
            actions: VecDeque::new(),
        };
        read.begin(now_ns);
        read
    }

    /// Plants these bugs, in builds that can.
    pub fn plant(&mut self, planted: Planted) {
        self.planted = planted.allowed();
    }

    /// The next action.
    pub fn action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn begin(&mut self, now_ns: u64) {
        self.round += 1;
        self.found.clear();
        self.unresolved.clear();
        self.committed.clear();
        self.later_us = None;
        if self.round > self.rounds {
            return self.actions.push_back(Action::GiveUp);
        }
        for (tablet, pinned) in &mut self.tablets {
            *pinned = Pinned { sent_ns: now_ns, lease_ns: None };
            self.actions.push_back(Action::Pin { tablet: *tablet, round: self.round, at_us: self.at_us });
        }
    }

    /// A tablet has stamped above the read's stamp.
    pub fn too_late(&mut self, round: u32, newest_us: i64, now_ns: u64) {
        if round == self.round {
            self.at_us = self.at_us.max(newest_us);
            self.begin(now_ns);
        }
    }

    /// A question was not answered, or not where it could be.
    pub fn failed(&mut self, round: u32, now_ns: u64) {
        if round == self.round {
            self.begin(now_ns);
        }
    }

    /// A tablet is pinned: its promise lasts `lease_ns` from when it answered, at least, and these rows are staged.
    /// Returns false if its snapshot is of no use: the read has begun again, or has another of the tablet.
    #[must_use]
    pub fn pinned(&mut self, tablet: TabletId, round: u32, lease_ns: u64, staged: Vec<Staged>, now_ns: u64) -> bool {
        let of_round = self.tablets.get_mut(&tablet).filter(|_| round == self.round);
        let Some(pinned) = of_round.filter(|pinned| pinned.lease_ns.is_none()) else { return false };
        pinned.lease_ns = Some(lease_ns);
        let at_most = self.at_us;
        let relevant = staged.into_iter().filter(|staged| staged.prepared_us <= at_most);
        self.found.extend(relevant.map(|staged| ((tablet, staged.id, staged.prepared_us), staged.home)));
        if self.tablets.values().all(|pinned| pinned.lease_ns.is_some()) {
            self.all_pinned(now_ns);
        }
        true
    }

    fn all_pinned(&mut self, now_ns: u64) {
        let is_over = |pinned: &Pinned| pinned.lease_ns.is_some_and(|lease_ns| now_ns - pinned.sent_ns >= lease_ns);
        if self.tablets.values().any(is_over) && !self.planted.believe_promises {
            return self.begin(now_ns);
        }
        self.early.get_or_insert_with(|| self.found.keys().map(|(_, id, _)| *id).collect());
        for (of, home) in std::mem::take(&mut self.found) {
            self.unresolved.insert(of);
            self.actions.push_back(Action::Ask { home, of, round: self.round, at_us: self.at_us });
        }
        self.finish(now_ns);
    }

    /// A home has answered.
    pub fn resolved(&mut self, round: u32, of: StagedIn, status: Status, now_ns: u64) {
        if round != self.round || !self.unresolved.remove(&of) {
            return;
        }
        match status {
            Status::Committed(committed_us) if committed_us <= self.at_us => {
                self.committed.insert(of, committed_us);
            }
            Status::Committed(committed_us) => {
                let is_early = self.early.as_ref().is_some_and(|early| early.contains(&of.1));
                if is_early && !self.planted.miss_later_commits {
                    self.later_us = self.later_us.max(Some(committed_us));
                }
            }
            Status::NotYet => {
                if let Some(early) = &mut self.early {
                    early.remove(&of.1);
                }
            }
            // The snapshot may contain a prepare that has been finished since, and whose outcome is forgotten.
            Status::Aborted if !self.planted.believe_aborted => return self.begin(now_ns),
            Status::Aborted => {}
        }
        self.finish(now_ns);
    }

    fn finish(&mut self, now_ns: u64) {
        if self.unresolved.is_empty() {
            if let Some(later_us) = self.later_us.take() {
                return self.too_late(self.round, later_us, now_ns);
            }
            let committed = std::mem::take(&mut self.committed);
            // Late answers are of no round.
            self.round = self.rounds + 1;
            self.actions.push_back(Action::Done { at_us: self.at_us, committed });
        }
    }
}
