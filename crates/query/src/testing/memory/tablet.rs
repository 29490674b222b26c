//! A tablet in memory: its entries, and what its leader knows of transactions.
//!
//! Always true: entries are merged by the model's own fold. Left out: who asks, and when ([`super::leaders`]).

use crate::index::first_row;
use crate::kv::several;
use crate::kv::{Fetch, FetchRows, PinnedRead};
use crate::program::TabletEvaluator;
use diorite_base::TabletId;
use diorite_base::mutation::{EvaluationContext, EvaluationFailed, Evaluator, TabletChanges, TabletView};
use diorite_model::entry;
use diorite_transact::leader::Leader;
use diorite_transact::locks::LockLimits;
use diorite_transact::message::Program;
use diorite_transact::records::Records;
use diorite_transact::step::{Operation, Prepare};
use diorite_transact::targets::{Target, Targets};
use diorite_transact::timing::Timing;
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Tablet {
    pub entries: BTreeMap<Vec<u8>, Vec<u8>>,
    pub flags: u64,
    pub newest_explicit_us: Option<i64>,
    /// The newest stamp that was appended or finished here.
    pub newest_us: i64,
    /// What its leader knows of transactions, once there was one.
    pub leading: Option<Box<Leading>>,
}

/// A tablet's leader, and what its replicas keep.
pub struct Leading {
    pub leader: Leader,
    pub records: Records,
    pub pins: BTreeMap<u64, Pinned>,
}

/// A snapshot.
pub struct Pinned {
    pub tablet: Tablet,
    pub records: Records,
}

impl Tablet {
    pub fn merge(&mut self, key: &[u8], value: &[u8]) {
        self.fold(key, value);
        self.index(key, value);
    }

    pub fn fold(&mut self, key: &[u8], value: &[u8]) {
        let mut merged = Vec::new();
        entry::fold(self.entries.get(key).map(Vec::as_slice), [value], &mut merged).unwrap();
        self.entries.insert(key.to_vec(), merged);
    }

    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.entries.insert(key.to_vec(), value.to_vec());
        self.index(key, value);
    }
}

impl TabletView for Tablet {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EvaluationFailed> {
        Ok(self.entries.get(key).cloned())
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EvaluationFailed> {
        for (key, value) in self.entries.range(start.to_vec()..end.to_vec()) {
            if !visit(key, value) {
                break;
            }
        }
        Ok(())
    }
}

pub type Change = Box<dyn FnOnce(&mut Tablet)>;

#[derive(Default)]
pub struct Changes(pub Vec<Change>);

impl TabletChanges for Changes {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        let (key, value) = (key.to_vec(), value.to_vec());
        self.0.push(Box::new(move |tablet| tablet.put(&key, &value)));
    }

    fn merge(&mut self, key: &[u8], value: &[u8]) {
        let (key, value) = (key.to_vec(), value.to_vec());
        self.0.push(Box::new(move |tablet| tablet.merge(&key, &value)));
    }

    fn delete(&mut self, key: &[u8]) {
        let key = key.to_vec();
        self.0.push(Box::new(move |tablet| drop(tablet.entries.remove(&key))));
    }

    fn delete_range(&mut self, start: &[u8], end: &[u8]) {
        let (start, end) = (start.to_vec(), end.to_vec());
        self.0.push(Box::new(move |tablet| tablet.entries.retain(|key, _| *key < start || *key >= end)));
    }

    fn raise_flags(&mut self, flags: u64) {
        self.0.push(Box::new(move |tablet| tablet.flags |= flags));
    }

    fn raise_stamps(&mut self, _: i64, _: i64) {
        // Tablets in memory are not merged.
    }
}

impl Tablet {
    pub fn leading(&mut self, id: TabletId, now_ns: u64) -> &mut Leading {
        self.leading.get_or_insert_with(|| {
            let (limits, records) = (LockLimits::default(), Records::default());
            let mut leader = Leader::new(id, 1, &records, limits, Timing::default(), now_ns);
            leader.ready();
            Box::new(Leading { leader, records, pins: BTreeMap::new() })
        })
    }

    pub fn promised_us(&self) -> i64 {
        self.leading.as_ref().map_or(i64::MIN, |leading| leading.leader.promised_us())
    }

    pub fn is_locked(&self, key: &[u8]) -> bool {
        self.asked_about().any(|prepare| prepare.targets.contains(key))
    }

    /// What is prepared, and whose readers ask what has become of it.
    fn asked_about(&self) -> impl Iterator<Item = &Prepare> {
        let prepared = self.leading.iter().flat_map(|leading| leading.records.all_prepared());
        prepared.map(|(_, record)| &record.prepare).filter(|prepare| prepare.home.tells_readers)
    }

    /// Whether a read meets something that is prepared.
    pub fn meets_lock(&self, request: &Fetch) -> bool {
        let keys = request.header.iter().map(|(_, key)| key).chain(&request.static_row);
        let mut read: Vec<Target> = keys.map(|key| Target::Row(key.clone())).collect();
        let range = |start: &Vec<u8>, end: &Vec<u8>| Target::Range { start: start.clone(), end: end.clone() };
        match &request.rows {
            FetchRows::Nothing => {}
            FetchRows::Index(scan) => read.push(range(&first_row(scan).to_vec(), &scan.end)),
            FetchRows::One(key) => read.push(Target::Row(key.clone())),
            FetchRows::Range(scan) => read.push(range(&scan.start, &scan.end)),
            FetchRows::Several(named) => {
                let spans = several::decode(&named.spans).map(Result::unwrap);
                read.extend(spans.map(|span| match &span.end {
                    None => Target::Row(span.start.clone()),
                    Some(end) => range(&span.start, end),
                }));
            }
        }
        let read = Targets::new(read);
        self.asked_about().any(|prepare| prepare.targets.overlap(&read))
    }

    /// The tablet as a snapshot has it, with what was committed.
    pub fn as_pinned(&self, read: &PinnedRead) -> Option<Self> {
        let pinned = self.leading.as_ref()?.pins.get(&read.pin.0)?;
        let mut tablet = pinned.tablet.copy();
        for it in read.committed.iter() {
            let record = pinned.records.prepared(&it.id).unwrap();
            assert_eq!(record.stamp_us, it.prepared_us, "a read names prepares of its snapshot");
            record.prepare.operations.iter().for_each(|operation| tablet.run(operation, it.committed_us));
        }
        Some(tablet)
    }

    pub fn copy(&self) -> Self {
        let Self { entries, flags, newest_explicit_us, newest_us, leading: _ } = self;
        let (entries, leading) = (entries.clone(), None);
        Self { entries, flags: *flags, newest_explicit_us: *newest_explicit_us, newest_us: *newest_us, leading }
    }

    pub fn run(&mut self, operation: &Operation, stamp_us: i64) {
        let newest_explicit_us = self.newest_explicit_us.unwrap_or(i64::MIN);
        let context = EvaluationContext { stamp_us, newest_explicit_us, now_s: operation.now_s };
        let mut changes = Changes::default();
        let reply = TabletEvaluator.evaluate(&operation.program, context, self, &mut changes).unwrap();
        assert!(TabletEvaluator.has_applied(&reply), "what is staged has one outcome");
        changes.0.into_iter().for_each(|change| change(self));
        self.newest_us = self.newest_us.max(stamp_us);
    }

    /// What a program writes now, or its refusal.
    pub fn evaluate(&self, program: &Program, stamp_us: i64) -> Result<Operation, Vec<u8>> {
        let context = EvaluationContext::new(stamp_us, self.newest_explicit_us.unwrap_or(i64::MIN));
        let reply = TabletEvaluator.evaluate(&program.0, context, self, &mut Changes::default());
        let reply = reply.unwrap_or_else(|_| TabletEvaluator.reply_of_damage());
        if !TabletEvaluator.has_applied(&reply) {
            return Err(reply);
        }
        let key = targets_of(program).iter().next().unwrap().start().to_vec();
        let program = TabletEvaluator.without_conditions(&program.0).unwrap_or_else(|| program.0.clone());
        Ok(Operation { key, now_s: context.now_s, program })
    }
}

/// What a program reads or writes.
pub fn targets_of(program: &Program) -> Targets {
    let mut targets = Vec::new();
    let mut see = |start: &[u8], end: Option<&[u8]>| {
        targets.push(match end {
            None => Target::Row(start.to_vec()),
            Some(end) => Target::Range { start: start.to_vec(), end: end.to_vec() },
        });
    };
    TabletEvaluator.targets(&program.0, &mut see).unwrap();
    Targets::new(targets)
}
