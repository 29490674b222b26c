//! The leaders of the tablets in memory, for transactions: they carry out what [`diorite_transact`] decides.
//!
//! Always true: what is proposed is applied at once; a request that waits lets a little time pass each time it is polled, so that
//! waits end. Left out: changes of leaders, and leases that end.

use super::shared::{Shared, To, Versions, Waiting};
use super::tablet::{Leading, Pinned, Tablet, targets_of};
use super::{MemoryKv, START_US, yield_once};
use crate::exec::homes::tablet_of_home;
use crate::kv::{KvError, WriteReply, WriteSink};
use diorite_base::TabletId;
use diorite_base::mutation::{Body, Mutation, MutationRef};
use diorite_transact::leader::promises::{Pin, staged};
use diorite_transact::leader::{Action, Asker, Evaluated};
use diorite_transact::locks::Wait;
use diorite_transact::message::{HomePart, Program, Reply, Request};
use diorite_transact::peer::PeerCall;
use diorite_transact::records::Effect;
use diorite_transact::step::Step;
use diorite_transact::targets::{Target, Targets};
use diorite_transact::timing::Timing;
use diorite_transact::wire::{Answer, Call, PinId};
use futures::future::BoxFuture;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};

/// How much time passes whenever something that waits is polled.
const POLL_US: i64 = 20;
const SWEEP_US: i64 = 1_000;
const LEASE_NS: u64 = 1_000_000_000;

type Tablets = HashMap<TabletId, Tablet>;

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
        // Some tests put the clock back beyond the start.
        u64::try_from(self.now_us.load(Ordering::Relaxed) - START_US).unwrap_or(0) * 1_000
    }

    /// How far the newest stamp of all logs is ahead of the clock.
    pub fn stamps_ahead_us(&self) -> i64 {
        self.last_stamp_us.load(Ordering::Relaxed) - self.now_us.load(Ordering::Relaxed)
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

    /// From now on, as if this node died whenever work is to outlive its request.
    pub fn drop_spawned(&self) {
        self.transactions.drops_spawned.store(true, Ordering::Relaxed);
    }

    /// From now on so much is known of the versions of tablets.
    pub fn set_versions(&self, versions: Versions) {
        *self.transactions.versions.lock() = versions;
    }

    /// From now on a cold read of every other tablet is polled so often in vain, beside once.
    pub fn set_cold_polls(&self, polls: usize) {
        self.transactions.cold_polls.store(polls, Ordering::Relaxed);
    }

    /// How many snapshots were taken.
    pub fn pin_count(&self) -> u64 {
        self.transactions.pins.load(Ordering::Relaxed)
    }

    /// Drops all snapshots, as if they had not been used for long.
    pub fn drop_pins(&self) {
        self.tablets.lock().values_mut().filter_map(|tablet| tablet.leading.as_mut()).for_each(|it| it.pins.clear());
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
                if let Request::Reserve { targets, program, .. }
                | Request::Prepare { targets, program, .. }
                | Request::Commit { part: Some(HomePart { targets, program, .. }), .. } = &mut request
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
                let evaluated = tablet.evaluate(
                    &program,
                    self.now_us.load(Ordering::Relaxed).max(self.last_stamp_us.load(Ordering::Relaxed) + 1),
                );
                let leading = tablet.leading(id, now_ns);
                let evaluated = match evaluated {
                    Ok(operation) => Evaluated::Operations(vec![operation]),
                    Err(refusal) => Evaluated::ConditionFailed(refusal),
                };
                leading.leader.evaluated(of, evaluated, now_ns);
            }
            Action::Reply { to, reply, of_program } => self.reply(tablets, shared, to, (reply, of_program)),
            Action::Call(PeerCall::Ask { home, id: of, prepared_us }) => {
                let Some(to) = tablet_of_home(&self.catalog.load(), of.tablet, &home) else { return };
                let request = Request::Status { id: of, of: Some((id, prepared_us)), at_us: None };
                self.ask(tablets, shared, to, (To::Learns(id, of, prepared_us), request));
            }
            Action::Call(PeerCall::Finish { participant, id: of, ending }) => {
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
