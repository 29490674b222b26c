//! Carries out what the leader of transactions wants, and lets it know what was applied.

use super::{ASK_AGAIN_NS, Led, PeerCall};
use crate::group::entry::Payload;
use crate::group::replica::Replica;
use crate::group::turn::Turn;
use crate::group::view::View;
use crate::progress::WorkProgress;
use diorite_base::mutation::{self, EvaluationContext, seconds};
use diorite_base::write::KvError;
use diorite_storage::{Engine, StorageError};
use diorite_transact::TransactionId;
use diorite_transact::leader::{Action, Evaluated};
use diorite_transact::message::Program;
use diorite_transact::step::{Operation, encode_steps};
use diorite_transact::wire::Answer;

impl<E: Engine> Replica<E> {
    /// Carries out the leader's actions.
    pub(super) fn run_transactions(&mut self, turn: &mut Turn<E>) {
        while let Some(led) = self.transactions.led.as_deref_mut() {
            let Some(action) = led.leader.action() else { break };
            match action {
                Action::Propose { step, above_us } => led.steps.push_back((step, above_us)),
                Action::Evaluate { id, program } if !led.has_unseen && self.applied.index >= led.unseen_index => {
                    self.evaluate_for(turn, id, &program);
                }
                Action::Evaluate { id, program } => led.evaluations.push_back((id, program)),
                Action::Reply { to, reply, of_program } => {
                    if let Some(waiter) = led.askers.remove(&to) {
                        turn.outcomes.push(waiter, Ok(Answer::Reply { reply, of_program }.encode()));
                    }
                }
                Action::Ask { home, id, prepared_us } => {
                    let call = PeerCall::Ask { home, id, prepared_us };
                    Self::call_peer(turn, led, (id, id.tablet), (self.handle.id(), call));
                }
                Action::Finish { participant, id, ending } => {
                    let other = participant.tablet;
                    let call = PeerCall::Finish { participant, id, ending };
                    Self::call_peer(turn, led, (id, other), (self.handle.id(), call));
                }
                Action::Admit(tag) => {
                    if let Some(proposal) = led.writes.remove(&tag) {
                        self.writes.fresh.push(proposal);
                        led.admitted.push(tag);
                    }
                }
                Action::Refuse(tag) => {
                    if let Some(proposal) = led.writes.remove(&tag) {
                        let held = KvError::Overloaded("rows are held by transactions");
                        turn.outcomes.push(proposal.waiter, Err(held));
                    }
                }
            }
        }
    }

    fn call_peer(
        turn: &Turn<E>,
        led: &mut Led,
        key: (TransactionId, diorite_base::TabletId),
        (tablet, call): (diorite_base::TabletId, PeerCall),
    ) {
        let now_ns = turn.now_ns();
        if led.asks.sent.get(&key).is_some_and(|sent_ns| now_ns < sent_ns + ASK_AGAIN_NS) {
            return;
        }
        led.asks.sent.insert(key, now_ns);
        if let Some(peers) = turn.context.hooks.transactions.get() {
            peers.call(tablet, call);
        }
    }

    /// Runs a program on the rows as they are applied, and keeps what it would do.
    fn evaluate_for(&mut self, turn: &mut Turn<E>, id: TransactionId, Program(program): &Program) {
        let stamp_us = turn.began_wall_us.max(self.applied.newest_stamp_us + 1);
        let now_s = seconds(stamp_us);
        let context = EvaluationContext::new(stamp_us, self.applied.newest_explicit_us);
        let progress = WorkProgress::default();
        let view =
            View { data: &self.handle.data, samples: &self.handle.load.samples, nth: id.number, progress: &progress };
        let reply = match self.evaluator.reply(program, context, &view) {
            Ok(reply) => reply,
            Err(failed) => return self.fail(turn, &StorageError::Corrupt(failed.to_string())),
        };
        let Some(led) = self.transactions.led.as_deref_mut() else { return };
        let evaluated = match self.evaluator.has_applied(&reply) {
            false => Evaluated::ConditionFailed(reply),
            true => {
                let key = led.leader.first_key(id).unwrap_or_default();
                let program = self.evaluator.without_conditions(program).unwrap_or_else(|| program.clone());
                Evaluated::Operations(vec![Operation { key, now_s, program }])
            }
        };
        led.leader.evaluated(id, evaluated, turn.now_ns());
    }

    /// Proposes the steps that the leader wants, each as an entry of its own.
    pub(crate) fn propose_steps(&mut self, turn: &mut Turn<E>) {
        while let Some(led) = self.transactions.led.as_deref_mut() {
            let Some((step, above_us)) = led.steps.front() else { break };
            self.writes.stamps.observe(*above_us);
            let stamp_us = self.writes.stamps.stamp(turn.began_wall_us);
            let mut payload = Payload::default();
            payload.push_step(&mutation::step(stamp_us, &encode_steps(std::slice::from_ref(step))));
            if let Err(error) = self.group.propose(payload.take()) {
                tracing::debug!(tablet = %self.id(), %error, "a step of a transaction waits to be proposed");
                break;
            }
            led.steps.pop_front();
            self.writes.newest_us = stamp_us;
            self.writes.proposed_ns = turn.began_ns;
        }
    }

    /// The writes of this turn are in the log, up to its last index.
    pub(crate) fn note_written(&mut self) {
        let last = self.group.last_index();
        let Some(led) = self.transactions.led.as_deref_mut() else { return };
        led.in_flight.extend(led.admitted.drain(..).map(|tag| (last, tag)));
        if std::mem::take(&mut led.has_unseen) {
            led.unseen_index = last;
        }
    }

    /// Entries were applied: tells the leader what it waits for.
    pub(crate) fn after_apply(&mut self, turn: &mut Turn<E>) {
        if self.transactions.led.is_none() || !self.may_lead_transactions(turn, false) {
            return;
        }
        let (applied, now_ns) = (self.applied.index, turn.now_ns());
        let Some(led) = self.transactions.led.as_deref_mut() else { return };
        for step in std::mem::take(&mut self.transactions.applied) {
            led.leader.applied(&self.transactions.records, &step, now_ns);
        }
        while let Some((_, tag)) = led.in_flight.pop_front_if(|(index, _)| *index <= applied) {
            led.leader.written(tag);
        }
        if applied >= led.unseen_index {
            for (id, program) in std::mem::take(&mut led.evaluations) {
                self.evaluate_for(turn, id, &program);
            }
        }
        self.run_transactions(turn);
        self.take_due_pins(turn);
    }
}
