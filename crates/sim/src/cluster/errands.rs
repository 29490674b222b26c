//! The nodes' own writes, under way.

use crate::client::Answer;
use crate::cluster::{Cluster, Event};
use crate::errands::{Ended, Errand, ErrandEvent, Purpose, TIMEOUT_MS, outcome};
use crate::joins::JoinEvent;
use crate::routing::{ANSWERS, REQUESTS};
use crate::schema::DdlEvent;
use crate::step::Command as CoreCommand;
use diorite_base::mutation::Mutation;
use diorite_base::write::{KvError, Waited};
use diorite_base::{Clock, NodeId, TabletId};
use diorite_cluster::catalog::{Command, Outcome, Rejection};
use diorite_control::replicas::CATALOG_TABLET;
use diorite_query::exec::homes::{self, Sending};
use diorite_replica::Leadership;
use diorite_rpc::{Lane, Transport};
use diorite_transact::peer::{PeerCall, PeerResult};
use diorite_transact::wire::{Answer as CallAnswer, Call};
use std::sync::Arc;

const MS: u64 = 1_000_000;

impl Cluster {
    /// Proposes a command to the catalog.
    pub fn propose(&mut self, node: NodeId, command: &Command, purpose: Purpose) {
        let now_ns = self.now_ns();
        self.trace.event(now_ns, node.0, "propose", &[], || format!("{command:?}"));
        let Some(level) = self.life(node).map(|life| life.newest().level()) else { return };
        let proven = command.proven_at(level).expect("commands here are within the limits, and of the level");
        self.begin_errand(node, CATALOG_TABLET, Mutation::evaluated(None, &proven), purpose);
    }

    /// Writes to a tablet, wherever it is led.
    pub fn begin_errand(&mut self, node: NodeId, tablet: TabletId, mutation: Mutation, purpose: Purpose) {
        let Some(life) = self.life(node).map(|life| life.number) else { return };
        let id = self.errands.next;
        self.errands.next += 1;
        let until_ns = self.now_ns() + TIMEOUT_MS * MS;
        let errand = Errand { node, life, tablet, mutation, purpose, until_ns, may_be_done: false, hint: None };
        self.errands.under_way.insert(id, errand);
        self.queue.schedule(until_ns, Event::Errand(ErrandEvent::GiveUp(id)));
        self.send_errand(id);
    }

    /// Something happens to a write.
    pub fn errand_event(&mut self, event: ErrandEvent) {
        match event {
            ErrandEvent::Send(id) => self.send_errand(id),
            ErrandEvent::GiveUp(id) => {
                let Some(errand) = self.errands.under_way.get(&id) else { return };
                let error = match errand.may_be_done {
                    true => KvError::Timeout(Waited::in_vain(TIMEOUT_MS)),
                    false => KvError::Unavailable(errand.tablet),
                };
                self.end_errand(id, Err(error));
            }
        }
    }

    /// Whether the process that waits for a write still runs; if not, the write is forgotten.
    fn is_awaited(&mut self, id: u64) -> bool {
        let Some(errand) = self.errands.under_way.get(&id) else { return false };
        let is_awaited = self.nodes[&errand.node].life.as_ref().is_some_and(|life| life.number == errand.life);
        if !is_awaited {
            let purpose = self.errands.under_way.remove(&id).map(|errand| errand.purpose);
            self.lost(purpose);
        }
        is_awaited
    }

    fn send_errand(&mut self, id: u64) {
        if !self.is_awaited(id) {
            return;
        }
        let Some(errand) = self.errands.under_way.get_mut(&id).filter(|errand| !errand.may_be_done) else { return };
        let (node, tablet, hint) = (errand.node, errand.tablet, errand.hint.take());
        let Some(life) = self.nodes[&node].life.as_ref() else { return };
        let known = match life.handles.get(&tablet).map(|handle| handle.leadership()) {
            Some(Leadership::Here) => Some(node),
            Some(Leadership::Elsewhere(leader)) => Some(leader),
            Some(Leadership::Unknown) | None => None,
        };
        let served = life.served();
        let holders: Vec<NodeId> = match tablet {
            CATALOG_TABLET => served.nodes().map(|node| node.id).collect(),
            tablet => served.placement(tablet).map(|placement| placement.holders().collect()).unwrap_or_default(),
        };
        // The assumed leader may have ended unnoticed; now and then another holder is asked. Nodes that are known to be down are not.
        let up: Vec<NodeId> =
            holders.iter().copied().filter(|holder| *holder == node || life.liveness().is_up(*holder)).collect();
        let holders = if up.is_empty() { holders } else { up };
        let any = (!holders.is_empty()).then(|| *self.dice.pick(&holders));
        let target = hint.or(known.filter(|_| any.is_none() || self.dice.chance(900))).or(any).unwrap_or(node);
        if target == node {
            return self.take_errand(id, node);
        }
        let port = self.setting.network.port(node);
        if port.send(target, Lane::Requests, &frame(0, id)).is_err() {
            return self.send_again(id);
        }
        if let Some(errand) = self.errands.under_way.get_mut(&id) {
            errand.may_be_done = true;
        }
    }

    fn send_again(&mut self, id: u64) {
        let after_ns = self.some_ms(5, 100);
        self.later(after_ns, Event::Errand(ErrandEvent::Send(id)));
    }

    /// A frame of requests has come to a node.
    pub fn request_frame(&mut self, from: NodeId, at: NodeId, frame: &[u8]) {
        if matches!(frame[0], REQUESTS | ANSWERS) {
            return self.router_frame(from, at, frame);
        }
        let id = u64::from_le_bytes(frame[1..9].try_into().expect("frames of requests have nine bytes"));
        match frame[0] {
            0 => self.take_errand(id, at),
            _ => {
                if let Some(answer) = self.errands.answers.remove(&id)
                    && self.errands.under_way.get(&id).is_some_and(|errand| errand.node == at)
                {
                    self.errand_answered(id, answer);
                }
            }
        }
    }

    /// A write has come to a node, which submits it to its replica.
    fn take_errand(&mut self, id: u64, at: NodeId) {
        let Some(errand) = self.errands.under_way.get_mut(&id) else { return };
        errand.may_be_done = true;
        let (tablet, mutation) = (errand.tablet, errand.mutation.clone());
        let Some(life) = self.life(at) else { return };
        life.submit(tablet, mutation, id);
        self.errand_places.insert(id, at);
        self.wake(at);
    }

    /// A replica has answered a write.
    pub fn errand_done(&mut self, id: u64, answer: Answer) {
        let Some(at) = self.errand_places.remove(&id) else { return };
        let Some(errand) = self.errands.under_way.get(&id) else { return };
        if errand.node == at {
            return self.errand_answered(id, answer);
        }
        let (to, port) = (errand.node, self.setting.network.port(at));
        self.errands.answers.insert(id, answer);
        // If it is lost, the outcome of the write is unknown.
        let _ = port.send(to, Lane::Requests, &frame(1, id));
    }

    /// The answer has come to the node that waits for it.
    fn errand_answered(&mut self, id: u64, answer: Answer) {
        if !self.is_awaited(id) {
            return;
        }
        let now_ns = self.now_ns();
        let Some(errand) = self.errands.under_way.get_mut(&id) else { return };
        let is_step = !matches!(errand.tablet, CATALOG_TABLET);
        let error = match answer {
            Answer::Written(reply) => return self.end_errand(id, Ok(reply)),
            Answer::Failed(error) => error,
            Answer::Found(_) | Answer::Refused => return,
        };
        match error {
            KvError::NotLeader { leader, .. } => errand.hint = leader,
            KvError::Unavailable(_) | KvError::Overloaded(_) => {}
            KvError::NoSuchTablet(_) if !is_step => {}
            error => return self.end_errand(id, Err(error)),
        }
        errand.may_be_done = false;
        if now_ns < errand.until_ns {
            self.send_again(id);
        }
    }

    fn end_errand(&mut self, id: u64, ended: Ended) {
        if !self.is_awaited(id) {
            return;
        }
        let Some(Errand { node, purpose, .. }) = self.errands.under_way.remove(&id) else { return };
        let now_ns = self.now_ns();
        self.trace.event(now_ns, node.0, "outcome", &id.to_le_bytes(), || match outcome_text(&purpose, &ended) {
            Some(text) => text,
            None => format!("{ended:?}"),
        });
        match purpose {
            Purpose::Nothing => {}
            Purpose::SetUp => self.operators.set_up(outcome(&ended).is_some()),
            Purpose::Move(tablet) => self.move_decided(tablet, outcome(&ended)),
            Purpose::Steering => self.proposed(node, outcome(&ended)),
            Purpose::Ask => {
                if matches!(outcome(&ended), Some(Outcome::Rejected { rejection: Rejection::NoSuchNode, .. })) {
                    return self.retire(node);
                }
                let version = outcome(&ended).map(|outcome| outcome.version());
                let Some(life) = self.life(node) else { return };
                let local_ns = Clock::monotonic_ns(&*life.clock);
                if let Some(readiness) = &mut life.control.readiness {
                    readiness.answered(version, local_ns);
                }
            }
            Purpose::Ddl(client) => self.ddl_decided(client, node, outcome(&ended)),
            Purpose::Join(number) => self.joined(number, node, outcome(&ended)),
            Purpose::Merge(drive) => self.step_ended(drive, ended),
            Purpose::Transaction(from, to, call) => self.peer_answered(node, (from, to), &call, ended),
            Purpose::UndoMerge(merge) => {
                if ended.is_ok() {
                    self.propose(node, &diorite_control::merging::end_cancelled(merge), Purpose::Nothing);
                }
            }
        }
    }

    /// Sends what the tablets of a node ask others.
    pub(crate) fn call_peers(&mut self, node: NodeId) {
        let Some(life) = self.life(node) else { return };
        let (served, now_us) = (Arc::clone(life.served()), Clock::wall_us(&*life.clock));
        let calls = life.take_peer_calls();
        for (from, call) in calls {
            match homes::sending(&served, from, &call, now_us) {
                Sending::To(tablet, request) => {
                    let mutation = Mutation::request(&Call::Request(request).encode());
                    self.reached.peer_calls += 1;
                    self.begin_errand(node, tablet, mutation, Purpose::Transaction(from, tablet, call));
                }
                Sending::Result(result) => self.tell_leader(node, from, result),
                Sending::Nothing => {}
            }
        }
    }

    /// A tablet has answered such a call, or not.
    pub(crate) fn peer_answered(
        &mut self,
        node: NodeId,
        (from, to): (TabletId, TabletId),
        call: &PeerCall,
        ended: Ended,
    ) {
        let Ok(Ok(CallAnswer::Reply { reply, .. })) = ended.map(|answer| CallAnswer::decode(&answer)) else { return };
        let now_us = self.life(node).map(|life| Clock::wall_us(&*life.clock));
        if let Some(result) = now_us.and_then(|now_us| homes::result_of(to, call, &reply, now_us)) {
            self.tell_leader(node, from, result);
        }
    }

    fn tell_leader(&mut self, node: NodeId, from: TabletId, result: PeerResult) {
        match result {
            PeerResult::Learned(id, prepared_us, status) => {
                self.command(node, CoreCommand::Learned(from, (id, prepared_us), status));
            }
            PeerResult::Finished(id, participant) => self.command(node, CoreCommand::Finished(from, id, participant)),
        }
    }

    /// The process that waited for a write has ended.
    fn lost(&mut self, purpose: Option<Purpose>) {
        match purpose {
            Some(Purpose::Ddl(client)) => {
                self.queue.schedule(self.setting.time.now_ns(), Event::Ddl(DdlEvent::Lost(client)))
            }
            Some(Purpose::Join(number)) => {
                self.queue.schedule(self.setting.time.now_ns(), Event::Join(JoinEvent::Ask(number)));
            }
            _ => {}
        }
    }
}

fn outcome_text(purpose: &Purpose, ended: &Ended) -> Option<String> {
    // Tablets reply to merge steps with something other than an outcome.
    let outcome = ended.as_ref().ok().and_then(|reply| Outcome::decode(reply).ok())?;
    Some(format!("{purpose:?}: {outcome:?}"))
}

fn frame(kind: u8, id: u64) -> Vec<u8> {
    let mut frame = vec![kind];
    frame.extend_from_slice(&id.to_le_bytes());
    frame
}
