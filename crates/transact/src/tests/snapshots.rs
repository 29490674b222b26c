//! Reads of several tablets at one stamp in the model: pins at the tablets, and the reading nodes.
//!
//! A change of leader that nobody wanted takes as long as a lease; one that is wanted takes no time, and happens only
//! when the leader may give its lease up.

use super::invariants::version_after;
use super::tablet::Entry;
use super::world::{Message, Source, World};
use crate::leader::promises::{Pin, staged};
use crate::message::{Reply, Request};
use crate::snapshot::{Action, SnapshotRead, Staged};
use crate::targets::{Target, Targets};
use std::collections::BTreeMap;
use std::rc::Rc;

/// How long every lease lasts.
pub const LEASE_NS: u64 = 1_000_000;
/// The row that is read in each tablet.
pub const KEY: u8 = 0;

/// A pin that waits for the entries that were appended before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PendingPin {
    pub reader: usize,
    pub round: u32,
    pub entries: usize,
}

/// A read of the same row of several tablets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotReader {
    pub tablets: Vec<usize>,
    pub first_us: i64,
    pub rounds: u32,
    pub stage: SnapshotStage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SnapshotStage {
    New,
    Reading {
        read: Box<SnapshotRead>,
        /// The stamps of the row in the snapshots, by tablet.
        rows_us: BTreeMap<usize, i64>,
        /// What was acknowledged before the read began, by tablet.
        at_least_us: BTreeMap<usize, i64>,
    },
    Ended,
}

/// What a tablet answers a read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PinAnswer {
    TooLate(i64),
    Pinned { staged: Vec<Staged>, row_us: i64 },
    NotServing,
}

impl World {
    pub fn begin_snapshot(&mut self, reader: usize) -> Result<(), String> {
        let tablets = self.snapshots[reader].tablets.clone();
        let ids = tablets.iter().map(|tablet| self.tablets[*tablet].id);
        let SnapshotReader { first_us, rounds, .. } = self.snapshots[reader];
        let mut read = SnapshotRead::new(ids, first_us, rounds, self.now_ns);
        read.plant(self.planted);
        let at_least_us = tablets.iter().map(|tablet| (*tablet, self.past.seen_us(*tablet, KEY))).collect();
        self.snapshots[reader].stage =
            SnapshotStage::Reading { read: Box::new(read), rows_us: BTreeMap::new(), at_least_us };
        self.run_snapshot(reader)
    }

    fn run_snapshot(&mut self, reader: usize) -> Result<(), String> {
        loop {
            let SnapshotStage::Reading { read, rows_us, at_least_us } = &mut self.snapshots[reader].stage else {
                return Ok(());
            };
            match read.action() {
                None => return Ok(()),
                Some(Action::Pin { tablet, round, at_us }) => {
                    let to = self.index(tablet);
                    self.post(Message::Pin { reader, to, round, at_us });
                }
                Some(Action::Ask { of: (tablet, id, prepared_us), round, at_us, .. }) => {
                    let from = Source::Snapshot { reader, round, tablet: self.index(tablet), prepared_us };
                    let request = Request::Status { id, of: Some((tablet, prepared_us)), at_us: Some(at_us) };
                    self.post(Message::Request { from, to: self.index(id.tablet), request });
                }
                Some(Action::GiveUp) => {
                    self.snapshots[reader].stage = SnapshotStage::Ended;
                    return Ok(());
                }
                Some(Action::Done { at_us, committed }) => {
                    let (rows_us, at_least_us) = (rows_us.clone(), at_least_us.clone());
                    self.snapshots[reader].stage = SnapshotStage::Ended;
                    let staged = committed.iter().map(|((tablet, _, _), stamp_us)| (self.index(*tablet), *stamp_us));
                    let versions = version_after(rows_us, staged);
                    return self.has_read_snapshot(at_us, &versions, &at_least_us);
                }
            }
        }
    }

    /// A request to pin a tablet arrives.
    pub fn pin(&mut self, reader: usize, at: usize, round: u32, at_us: i64) {
        let tablet = Rc::make_mut(&mut self.tablets[at]);
        let newest_us = tablet.log.iter().filter_map(Entry::stamp_us).fold(tablet.newest_us, i64::max);
        match tablet.leader.pin(at_us, newest_us, true) {
            Ok(Pin::TooLate(newest_us)) => {
                self.post(Message::PinAnswer { reader, from: at, round, answer: PinAnswer::TooLate(newest_us) });
            }
            Ok(Pin::Promised) => {
                let pending = PendingPin { reader, round, entries: tablet.log.len() };
                tablet.pins.push(pending);
                self.take_snapshots(at);
            }
            Err(_) => self.post(Message::PinAnswer { reader, from: at, round, answer: PinAnswer::NotServing }),
        }
    }

    /// Answers the pins whose entries are applied.
    pub fn take_snapshots(&mut self, at: usize) {
        let tablet = Rc::make_mut(&mut self.tablets[at]);
        let is_due = |pin: &PendingPin| pin.entries == 0;
        let due: Vec<PendingPin> = tablet.pins.iter().filter(|pin| is_due(pin)).cloned().collect();
        tablet.pins.retain(|pin| !is_due(pin));
        let staged = staged(&tablet.records, &Targets::new(vec![Target::Row(vec![KEY])]));
        let row_us = tablet.rows[&KEY].stamp_us;
        for PendingPin { reader, round, .. } in due {
            let answer = PinAnswer::Pinned { staged: staged.clone(), row_us };
            self.post(Message::PinAnswer { reader, from: at, round, answer });
        }
    }

    pub fn pin_answered(&mut self, reader: usize, from: usize, round: u32, answer: PinAnswer) -> Result<(), String> {
        let (now_ns, tablet) = (self.now_ns, self.tablets[from].id);
        if let SnapshotStage::Reading { read, rows_us, .. } = &mut self.snapshots[reader].stage {
            match answer {
                PinAnswer::TooLate(newest_us) => read.too_late(round, newest_us, now_ns),
                PinAnswer::NotServing => read.failed(round, now_ns),
                PinAnswer::Pinned { staged, row_us } => {
                    if read.pinned(tablet, round, LEASE_NS, staged, now_ns) {
                        rows_us.insert(from, row_us);
                    }
                }
            }
        }
        self.run_snapshot(reader)
    }

    pub fn snapshot_learned(&mut self, source: Source, reply: Reply) -> Result<(), String> {
        let (Source::Snapshot { reader, round, tablet, prepared_us }, Reply::Status { id, status }) = (source, reply)
        else {
            return Ok(());
        };
        let (now_ns, tablet) = (self.now_ns, self.tablets[tablet].id);
        if let SnapshotStage::Reading { read, .. } = &mut self.snapshots[reader].stage {
            read.resolved(round, (tablet, id, prepared_us), status, now_ns);
        }
        self.run_snapshot(reader)
    }

    /// A leader is asked to give its lease up. It may have to leave an entry above its promises first.
    pub fn transfer(&mut self, at: usize) {
        let tablet = Rc::make_mut(&mut self.tablets[at]);
        if tablet.leader.may_give_up_lease(tablet.newest_us) {
            self.budget.leader_changes -= 1;
            self.replace_leader(at, 0);
        } else {
            let promised_us = tablet.leader.promised_us();
            let stamp_us = tablet.stamp(promised_us);
            tablet.log.push_back(Entry::Seal { stamp_us });
        }
    }
}
