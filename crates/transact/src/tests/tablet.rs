//! A tablet of the model: its log beyond what is applied, its rows, and the replica that leads it.
//!
//! Entries of the log are lost only at a change of leader, from the end, and a new leader has those that are left in
//! its log before the first of its own. A leader that was replaced stays as `former`, without a lease.

use super::snapshots::PendingPin;
use crate::leader::Leader;
use crate::locks::{LockLimits, Owner, Wait};
use crate::message::Program;
use crate::planted::Planted;
use crate::records::Records;
use crate::step::{Operation, Step};
use crate::targets::{Target, Targets};
use crate::timing::Timing;
use diorite_base::TabletId;
use std::collections::{BTreeMap, VecDeque};

/// An entry that is appended and not applied.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// The first of a leader's term.
    First,
    Step {
        stamp_us: i64,
        step: Step,
    },
    /// Nothing but a stamp.
    Seal {
        stamp_us: i64,
    },
    /// A write that is no transaction.
    Write {
        stamp_us: i64,
        tag: u64,
        key: u8,
        value: i8,
    },
}

impl Entry {
    pub fn stamp_us(&self) -> Option<i64> {
        match self {
            Self::First => None,
            Self::Step { stamp_us, .. } | Self::Seal { stamp_us } | Self::Write { stamp_us, .. } => Some(*stamp_us),
        }
    }
}

/// A row with the stamp of its last write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    pub value: i8,
    pub stamp_us: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tablet {
    pub id: TabletId,
    pub term: u64,
    /// The newest stamp of the log, which the next leader's stamps exceed.
    pub newest_us: i64,
    /// The newest stamp of this leader.
    pub clock_us: i64,
    pub rows: BTreeMap<u8, Row>,
    pub records: Records,
    pub leader: Leader,
    pub former: Option<Box<(Leader, Records)>>,
    pub log: VecDeque<Entry>,
    /// Answers to commits bring numbers.
    pub issues: bool,
    /// Steps that are appended one after the other share an entry, and so its stamp.
    pub shares_entries: bool,
    pub pins: Vec<PendingPin>,
}

/// Increments of one row, unless it is below `least`.
pub fn program(key: u8, by: i8, least: i8) -> Program {
    Program(vec![key, by.to_le_bytes()[0], least.to_le_bytes()[0]])
}

pub fn targets(key: u8) -> Targets {
    Targets::new(vec![Target::Row(vec![key])])
}

/// The key and the increment of a program.
pub fn increment(program: &Program) -> (u8, i8) {
    (program.0[0], i8::from_le_bytes([program.0[1]]))
}

impl Tablet {
    pub fn new(id: TabletId, first_us: i64, keys: &[u8], timing: Timing, planted: Planted) -> Self {
        let mut leader = Leader::new(id, 1, &Records::default(), LockLimits::default(), timing, 0);
        leader.plant(planted);
        leader.ready();
        leader.stop_in_advance(0);
        Self {
            id,
            term: 1,
            newest_us: first_us,
            clock_us: first_us,
            rows: keys.iter().map(|key| (*key, Row { value: 0, stamp_us: i64::MIN })).collect(),
            records: Records::default(),
            leader,
            former: None,
            log: VecDeque::new(),
            issues: false,
            shares_entries: false,
            pins: Vec::new(),
        }
    }

    pub fn stamp(&mut self, above_us: i64) -> i64 {
        self.clock_us = self.clock_us.max(above_us) + 1;
        self.clock_us
    }

    /// Appends a step.
    pub fn append(&mut self, step: Step, above_us: i64) -> Result<(), String> {
        let last_us = match self.log.back() {
            Some(Entry::Step { stamp_us, .. }) if self.shares_entries && *stamp_us > above_us => Some(*stamp_us),
            _ => None,
        };
        if let Some(last_us) = last_us {
            let of_entry = self.log.iter().rev().map_while(|entry| match entry {
                Entry::Step { stamp_us, step } if *stamp_us == last_us => Some(step),
                _ => None,
            });
            let rows = self.rows_of(&step);
            if let Some(other) =
                of_entry.into_iter().find(|other| self.rows_of(other).iter().any(|row| rows.contains(row)))
            {
                return Err(format!("{step:?} and {other:?} share an entry and a row"));
            }
        }
        let stamp_us = last_us.unwrap_or_else(|| self.stamp(above_us));
        self.log.push_back(Entry::Step { stamp_us, step });
        Ok(())
    }

    /// The rows that a step concerns.
    fn rows_of(&self, step: &Step) -> Vec<u8> {
        let locked = |targets: &Targets| -> Vec<u8> {
            targets.iter().filter_map(|target| target.start().first().copied()).collect()
        };
        match step {
            Step::Prepare(prepare) => locked(&prepare.targets),
            Step::Commit(commit) => {
                self.leader.locks().held_by(&Owner::Transaction(commit.id)).map_or(Vec::new(), locked)
            }
            Step::Finish { id, .. } => self.records.prepared(id).map_or(Vec::new(), |it| locked(&it.prepare.targets)),
            Step::Forget(_) => Vec::new(),
        }
    }

    /// The rows that a program writes; none if its condition is not satisfied.
    pub fn evaluate(&self, program: &Program) -> Option<Vec<Operation>> {
        let (key, by) = increment(program);
        let stored = self.rows[&key].value;
        let written = vec![stored.wrapping_add(by).to_le_bytes()[0]];
        let operation = Operation { key: vec![key], now_s: 0, program: written };
        (stored >= i8::from_le_bytes([program.0[2]])).then(|| vec![operation])
    }

    /// Another replica leads from now on. It has the first `kept` entries beyond those that are applied.
    pub fn change_leader(&mut self, kept: usize, timing: Timing, planted: Planted, now_ns: u64) {
        self.term += 1;
        self.pins.clear();
        self.log.truncate(kept);
        let newest = self.log.iter().filter_map(Entry::stamp_us).max();
        // The slowest clock that the new leader may have.
        self.clock_us = newest.unwrap_or(self.newest_us).max(self.newest_us);
        self.log.push_back(Entry::First);
        let mut leader = Leader::new(self.id, self.term, &self.records, LockLimits::default(), timing, now_ns);
        leader.plant(planted);
        if !self.issues {
            leader.stop_in_advance(0);
        }
        if planted.reservation_survives {
            leader.take_over_reservations(&self.leader);
        }
        let former = std::mem::replace(&mut self.leader, leader);
        self.former = Some(Box::new((former, self.records.clone())));
    }

    /// Answers to commits bring numbers from now on.
    pub fn issue_in_advance(&mut self) {
        self.issues = true;
        self.leader.resume_in_advance();
    }

    /// A write that is no transaction; false if it is not accepted.
    pub fn write(&mut self, tag: u64, key: u8, wait: Wait) -> bool {
        self.leader.write(tag, &targets(key), wait).is_ok()
    }

    /// Whether nothing is locked, awaited, appended or recorded.
    pub fn is_quiet(&self) -> bool {
        let has_records = self.records.all_prepared().next().is_some() || self.records.outcomes().next().is_some();
        self.log.is_empty() && self.leader.is_idle() && !has_records
    }
}
