//! The leaders of the tablets in memory, for transactions: they carry out what [`diorite_transact`] decides.
//!
//! Always true: what is proposed is applied at once; a request that waits lets a little time pass each time it is polled, so that
//! waits end. Left out: changes of leaders, and leases that end.

use super::{Changes, MemoryKv, START_US, Tablet, yield_once};
use crate::exec::homes::tablet_of_home;
use crate::kv::several;
use crate::kv::{Fetch, FetchRows, KvError, PinnedRead, WriteReply, WriteSink};
use crate::program::TabletEvaluator;
use diorite_base::TabletId;
use diorite_base::mutation::{Body, EvaluationContext, Evaluator, Mutation, MutationRef};
use diorite_transact::TransactionId;
use diorite_transact::leader::promises::{Pin, staged};
use diorite_transact::leader::{Action, Asker, Evaluated, Leader};
use diorite_transact::locks::{Hold, LockLimits, Wait};
use diorite_transact::message::{Program, Reply, Request};
use diorite_transact::records::{Effect, Records};
use diorite_transact::step::{Operation, Step};
use diorite_transact::targets::{Target, Targets};
use diorite_transact::timing::Timing;
use diorite_transact::wire::{Answer, Call, PinId};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};

/// How much time passes whenever something that waits is polled.
const POLL_US: i64 = 20;
const SWEEP_US: i64 = 1_000;
const LEASE_NS: u64 = 1_000_000_000;

/// A tablet's leader, and what its replicas keep.
pub(super) struct Leading {
    leader: Leader,
    records: Records,
    pins: BTreeMap<u64, Pinned>,
}

/// A snapshot.
struct Pinned {
    tablet: Tablet,
    records: Records,
}

/// Who receives a reply.
enum To {
    Client,
    /// A tablet that has asked about this prepare.
    Learns(TabletId, TransactionId, i64),
    /// A home that has asked this participant to finish.
    Finishes(TabletId, TabletId),
}

/// A write that waits for rows.
struct Waiting {
    mutation: Mutation,
    sink: Option<(Arc<dyn WriteSink>, u64)>,
}

#[derive(Default)]
struct Shared {
    askers: HashMap<u64, To>,
    answers: HashMap<u64, Result<WriteReply, KvError>>,
    waiting: HashMap<u64, Waiting>,
    swept_us: i64,
}

/// See the top of this module.
#[derive(Default)]
pub struct Transactions {
    next: AtomicU64,
    shared: Mutex<Shared>,
    spawned: Mutex<Vec<BoxFuture<'static, ()>>>,
    /// As if this node died whenever work is to outlive its request.
    pub drops_spawned: AtomicBool,
    /// How many snapshots were taken.
    pub pins: AtomicU64,
}

type Tablets = HashMap<TabletId, Tablet>;

impl Tablet {
    fn leading(&mut self, id: TabletId, now_ns: u64) -> &mut Leading {
        self.leading.get_or_insert_with(|| {
            let (limits, records) = (LockLimits::default(), Records::default());
            let mut leader = Leader::new(id, 1, &records, limits, Timing::default(), now_ns);
            leader.ready();
            Box::new(Leading { leader, records, pins: BTreeMap::new() })
        })
    }

    pub(super) fn promised_us(&self) -> i64 {
        self.leading.as_ref().map_or(i64::MIN, |leading| leading.leader.promised_us())
    }

    pub(super) fn is_locked(&self, key: &[u8]) -> bool {
        let holder = self.leading.as_ref().and_then(|leading| leading.leader.locks().holder(key));
        matches!(holder, Some((_, Hold::Prepared)))
    }

    /// Whether a read meets something that is prepared.
    pub(super) fn meets_lock(&self, request: &Fetch) -> bool {
        let Some(leading) = &self.leading else { return false };
        let keys = request.header.iter().map(|(_, key)| key).chain(&request.static_row);
        let mut read: Vec<Target> = keys.map(|key| Target::Row(key.clone())).collect();
        let range = |start: &Vec<u8>, end: &Vec<u8>| Target::Range { start: start.clone(), end: end.clone() };
        match &request.rows {
            FetchRows::Nothing => {}
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
        leading.records.all_prepared().any(|(_, record)| record.prepare.targets.overlap(&read))
    }

    /// The tablet as a snapshot has it, with what was committed.
    pub(super) fn as_pinned(&self, read: &PinnedRead) -> Option<Self> {
        let pinned = self.leading.as_ref()?.pins.get(&read.pin.0)?;
        let mut tablet = pinned.tablet.copy();
        for it in read.committed.iter() {
            let record = pinned.records.prepared(&it.id).unwrap();
            assert_eq!(record.stamp_us, it.prepared_us, "a read names prepares of its snapshot");
            record.prepare.operations.iter().for_each(|operation| tablet.run(operation, it.committed_us));
        }
        Some(tablet)
    }

    fn copy(&self) -> Self {
        let Self { entries, flags, newest_explicit_us, newest_us, leading: _ } = self;
        let (entries, leading) = (entries.clone(), None);
        Self { entries, flags: *flags, newest_explicit_us: *newest_explicit_us, newest_us: *newest_us, leading }
    }

    fn run(&mut self, operation: &Operation, stamp_us: i64) {
        let newest_explicit_us = self.newest_explicit_us.unwrap_or(i64::MIN);
        let context = EvaluationContext { stamp_us, newest_explicit_us, now_s: operation.now_s };
        let mut changes = Changes::default();
        let reply = TabletEvaluator.evaluate(&operation.program, context, self, &mut changes).unwrap();
        assert!(TabletEvaluator.has_applied(&reply), "what is staged has one outcome");
        changes.0.into_iter().for_each(|change| change(self));
        self.newest_us = self.newest_us.max(stamp_us);
    }

    /// What a program writes now, or its refusal.
    fn evaluate(&self, program: &Program, stamp_us: i64) -> Result<Operation, Vec<u8>> {
        let context = EvaluationContext::new(stamp_us, self.newest_explicit_us.unwrap_or(i64::MIN));
        let reply = TabletEvaluator.evaluate(&program.0, context, self, &mut Changes::default()).unwrap();
        if !TabletEvaluator.has_applied(&reply) {
            return Err(reply);
        }
        let key = targets_of(program).iter().next().unwrap().start().to_vec();
        let program = TabletEvaluator.without_conditions(&program.0).unwrap_or_else(|| program.0.clone());
        Ok(Operation { key, now_s: context.now_s, program })
    }
}

fn targets_of(program: &Program) -> Targets {
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

/// What a write that is no transaction writes.
fn targets_written(mutation: &Mutation) -> Targets {
    match MutationRef::decode(mutation.as_bytes()).unwrap().body() {
        Body::Evaluated(program) => targets_of(&Program(program.to_vec())),
        Body::Blind(operations) => {
            Targets::new(operations.map(|operation| Target::Row(operation.unwrap().key.to_vec())).collect())
        }
        Body::Request(_) | Body::Step(_) => Targets::default(),
    }
}

impl MemoryKv {
    pub(super) fn elapsed_ns(&self) -> u64 {
        (self.now_us.load(Ordering::Relaxed) - START_US) as u64 * 1_000
    }

    /// A stamp of a tablet's log.
    pub(super) fn stamp(&self, above_us: i64) -> i64 {
        let last_us = self.last_stamp_us.load(Ordering::Relaxed).max(above_us);
        let stamp_us = self.now_us.load(Ordering::Relaxed).max(last_us + 1);
        self.last_stamp_us.store(stamp_us, Ordering::Relaxed);
        stamp_us
    }

    /// Lets time pass, and leaders look after what is old.
    pub fn elapse_us(&self, elapsed_us: i64) {
        let now_us = self.now_us.fetch_add(elapsed_us, Ordering::Relaxed) + elapsed_us;
        let (mut tablets, mut shared) = (self.tablets.lock(), self.transactions.shared.lock());
        if now_us - shared.swept_us < SWEEP_US {
            return;
        }
        shared.swept_us = now_us;
        let now_ns = self.elapsed_ns();
        for leading in tablets.values_mut().filter_map(|tablet| tablet.leading.as_mut()) {
            leading.leader.sweep(&leading.records, now_ns);
        }
        self.run_leaders(&mut tablets, &mut shared);
    }

    /// How many locks and records of transactions there are.
    pub fn held(&self) -> usize {
        let of = |leading: &Leading| {
            let records = leading.records.all_prepared().count() + leading.records.outcomes().count();
            records + usize::from(!leading.leader.is_idle())
        };
        self.tablets.lock().values().filter_map(|tablet| tablet.leading.as_deref()).map(of).sum()
    }

    pub(super) fn keep(&self, work: BoxFuture<'static, ()>) {
        if !self.transactions.drops_spawned.load(Ordering::Relaxed) {
            self.transactions.spawned.lock().push(work);
        }
    }

    /// Polls what was spawned. Returns whether something is left.
    pub fn run_spawned(&self) -> bool {
        let works = std::mem::take(&mut *self.transactions.spawned.lock());
        let mut context = Context::from_waker(Waker::noop());
        let left = works.into_iter().filter_map(|mut work| match work.as_mut().poll(&mut context) {
            std::task::Poll::Ready(()) => None,
            std::task::Poll::Pending => Some(work),
        });
        let left: Vec<_> = left.collect();
        let mut spawned = self.transactions.spawned.lock();
        spawned.extend(left);
        !spawned.is_empty()
    }

    /// Answers a request.
    pub(super) async fn call(&self, id: TabletId, call: &[u8]) -> Result<WriteReply, KvError> {
        let number = self.begin_call(id, Call::decode(call).unwrap());
        yield_once().await;
        self.answer(number).await
    }

    pub(super) async fn answer(&self, number: u64) -> Result<WriteReply, KvError> {
        loop {
            if let Some(answer) = self.transactions.shared.lock().answers.remove(&number) {
                return answer;
            }
            self.elapse_us(POLL_US);
            yield_once().await;
        }
    }

    fn number(&self) -> u64 {
        self.transactions.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn begin_call(&self, id: TabletId, call: Call) -> u64 {
        let (number, now_ns) = (self.number(), self.elapsed_ns());
        let (mut tablets, mut shared) = (self.tablets.lock(), self.transactions.shared.lock());
        let tablet = tablets.entry(id).or_default();
        let (copy, newest_us) = (tablet.copy(), tablet.newest_us);
        let leading = tablet.leading(id, now_ns);
        let answer = match call {
            Call::Pin(at_us, targets) => Some(match leading.leader.pin(at_us, newest_us, true).unwrap() {
                Pin::TooLate(newest_us) => Answer::TooLate(newest_us),
                Pin::Promised => {
                    self.transactions.pins.fetch_add(1, Ordering::Relaxed);
                    leading.pins.insert(number, Pinned { tablet: copy, records: leading.records.clone() });
                    let staged = staged(&leading.records, &targets);
                    Answer::Pinned { pin: PinId(number), lease_ns: LEASE_NS, staged }
                }
            }),
            Call::Unpin(pin) => {
                leading.pins.remove(&pin.0);
                Some(Answer::Done)
            }
            Call::Request(mut request) => {
                if let Request::Reserve { targets, program, .. } | Request::Prepare { targets, program, .. } =
                    &mut request
                {
                    *targets = targets_of(program);
                }
                let answer = matches!(request, Request::Release(_) | Request::Forget(_)).then_some(Answer::Done);
                shared.askers.insert(number, To::Client);
                leading.leader.request(&leading.records, Asker(number), request, true, now_ns).unwrap();
                answer
            }
        };
        shared.answers.extend(answer.map(|answer| (number, Ok(answer.encode()))));
        self.run_leaders(&mut tablets, &mut shared);
        number
    }

    /// Queues a write that meets locks; returns the number of its answer, or the write if it does not.
    pub(super) fn queue(
        &self,
        id: TabletId,
        mutation: Mutation,
        sink: Option<(Arc<dyn WriteSink>, u64)>,
    ) -> Result<u64, Mutation> {
        let now_ns = self.elapsed_ns();
        let (mut tablets, mut shared) = (self.tablets.lock(), self.transactions.shared.lock());
        let Some(leading) = tablets.get_mut(&id).and_then(|tablet| tablet.leading.as_mut()) else {
            return Err(mutation);
        };
        if leading.leader.locks().is_empty() {
            return Err(mutation);
        }
        let (number, targets) = (self.number(), targets_written(&mutation));
        shared.waiting.insert(number, Waiting { mutation, sink });
        leading.leader.write(number, &targets, Wait::Until(now_ns + Timing::default().wait_ns)).unwrap();
        self.run_leaders(&mut tablets, &mut shared);
        Ok(number)
    }

    fn run_leaders(&self, tablets: &mut Tablets, shared: &mut Shared) {
        loop {
            let mut led = tablets.iter_mut().filter_map(|(id, tablet)| Some((*id, tablet.leading.as_mut()?)));
            let Some((id, action)) = led.find_map(|(id, leading)| Some((id, leading.leader.action()?))) else { return };
            self.carry_out(tablets, shared, id, action);
        }
    }

    fn carry_out(&self, tablets: &mut Tablets, shared: &mut Shared, id: TabletId, action: Action) {
        let now_ns = self.elapsed_ns();
        match action {
            Action::Propose { step, above_us } => self.append(tablets.get_mut(&id).unwrap(), &step, above_us),
            Action::Evaluate { id: of, program } => {
                let tablet = tablets.get_mut(&id).unwrap();
                let evaluated = tablet.evaluate(&program, self.now_us.load(Ordering::Relaxed));
                let leading = tablet.leading(id, now_ns);
                let evaluated = match evaluated {
                    Ok(operation) => Evaluated::Operations(vec![operation]),
                    Err(refusal) => Evaluated::ConditionFailed(refusal),
                };
                leading.leader.evaluated(of, evaluated, now_ns);
            }
            Action::Reply { to, reply, of_program } => self.reply(tablets, shared, to, (reply, of_program)),
            Action::Ask { home, id: of, prepared_us } => {
                let Some(to) = tablet_of_home(&self.catalog.load(), of.tablet, &home) else { return };
                let request = Request::Status { id: of, of: Some((id, prepared_us)), at_us: None };
                self.ask(tablets, shared, to, (To::Learns(id, of, prepared_us), request));
            }
            Action::Finish { participant, id: of, ending } => {
                let to = participant.tablet;
                let request = Request::Finish { id: of, ending };
                self.ask(tablets, shared, to, (To::Finishes(id, to), request));
            }
            Action::Admit(number) => {
                let Waiting { mutation, sink } = shared.waiting.remove(&number).unwrap();
                let outcome = self.apply_to(tablets.get_mut(&id).unwrap(), mutation);
                tablets.get_mut(&id).unwrap().leading(id, now_ns).leader.written(number);
                end(shared, number, sink, outcome);
            }
            Action::Refuse(number) => {
                let Waiting { sink, .. } = shared.waiting.remove(&number).unwrap();
                end(shared, number, sink, Err(KvError::Overloaded("rows are held by transactions")));
            }
        }
    }

    fn append(&self, tablet: &mut Tablet, step: &Step, above_us: i64) {
        let stamp_us = self.stamp(above_us.max(tablet.promised_us()));
        let mut leading = tablet.leading.take().unwrap();
        tablet.newest_us = tablet.newest_us.max(stamp_us);
        for effect in leading.records.apply(stamp_us, step) {
            if let Effect::Write { stamp_us, operations } = effect {
                operations.iter().for_each(|operation| tablet.run(operation, stamp_us));
            }
        }
        leading.leader.applied(&leading.records, step, self.elapsed_ns());
        tablet.leading = Some(leading);
    }

    fn ask(&self, tablets: &mut Tablets, shared: &mut Shared, to: TabletId, (who, request): (To, Request)) {
        let (number, now_ns) = (self.number(), self.elapsed_ns());
        shared.askers.insert(number, who);
        let leading = tablets.entry(to).or_default().leading(to, now_ns);
        leading.leader.request(&leading.records, Asker(number), request, true, now_ns).unwrap();
    }

    fn reply(&self, tablets: &mut Tablets, shared: &mut Shared, to: Asker, (reply, of_program): (Reply, Vec<u8>)) {
        let now_ns = self.elapsed_ns();
        match (shared.askers.remove(&to.0).unwrap(), reply) {
            (To::Client, reply) => {
                shared.answers.insert(to.0, Ok(Answer::Reply { reply, of_program }.encode()));
            }
            (To::Learns(tablet, of, prepared_us), Reply::Status { status, .. }) => {
                let leading = tablets.get_mut(&tablet).unwrap().leading(tablet, now_ns);
                leading.leader.learned(&leading.records, of, prepared_us, status);
            }
            (To::Finishes(home, participant), Reply::Finished(of)) => {
                tablets.get_mut(&home).unwrap().leading(home, now_ns).leader.finished(of, participant);
            }
            _ => panic!("{reply:?} answers another question"),
        }
    }
}

fn end(
    shared: &mut Shared,
    number: u64,
    sink: Option<(Arc<dyn WriteSink>, u64)>,
    outcome: Result<WriteReply, KvError>,
) {
    match sink {
        Some((sink, token)) => sink.complete(&mut vec![(token, outcome)]),
        None => drop(shared.answers.insert(number, outcome)),
    }
}
