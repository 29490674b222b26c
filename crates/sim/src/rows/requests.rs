//! Statements on their way through the cluster: what each asks of tablets goes to the node that is thought to lead, and elsewhere if that says no.

use super::clients::{Call, Open, Said, ended};
use super::event::RowEvent;
use super::kv::{Answered, Asked, Given, read};
use super::schema::{poll, response};
use super::statements::Meaning;
use crate::cluster::{Cluster, Event, Phase};
use diorite_base::write::{KvError, Waited};
use diorite_base::{NodeId, TabletId};
use diorite_history::Ended;
use diorite_replica::Term;
use std::task::Poll;

const US: u64 = 1_000;

impl Cluster {
    /// Something happens to a statement.
    pub fn row_event(&mut self, event: RowEvent) {
        match event {
            RowEvent::Act(client) => self.say(client),
            RowEvent::Arrive(token, node) => self.take_call(token, node),
            RowEvent::Read(token, node, term) => self.end_read_of_rows(token, node, term),
            RowEvent::Answer(token, answer) => self.heard_of_call(token, answer),
            RowEvent::Again(token) => self.send_call(token),
            RowEvent::GiveUp(token) => {
                let Some(rows) = &mut self.rows else { return };
                let Some(call) = rows.calls.remove(&token) else { return };
                let error = match call.may_be_done {
                    true => KvError::Timeout(Waited::in_vain(2_000)),
                    false => KvError::Unavailable(call.tablet),
                };
                self.answer_call(&call, Err(error));
            }
        }
    }

    fn row_later(&mut self, at_ns: u64, event: RowEvent) {
        self.queue.schedule(at_ns, Event::Row(event));
    }

    /// A client sends its next statement; in the phase of recovery those of tablets (after the usual ones) write to theirs.
    fn say(&mut self, client: u32) {
        let now_ns = self.now_ns();
        let own = client.checked_sub(self.scenario.clients).map(|at| self.scenario.tablets[at as usize]);
        let Some(rows) = &mut self.rows else { return };
        if rows.open.contains_key(&client) {
            return;
        }
        let (statement, meaning) = match (self.phase, own) {
            (Phase::Chaos, None) => rows.choose(),
            (Phase::Recovery, Some(tablet)) if !self.recovered.contains(&tablet) => match rows.write_to(tablet) {
                Some(statement) => (statement, Meaning::Anything),
                None => {
                    // Tablets of counters are written to by their own statements; that they have a leader is looked at.
                    self.recovered.push(tablet);
                    return;
                }
            },
            _ => return,
        };
        self.trace.event(now_ns, 0, "say", statement.as_bytes(), || format!("client {client}: {statement}"));
        let running = rows.world.begin(&statement);
        rows.open.insert(client, Open { running, meaning, sent_ns: now_ns });
        self.go_on_with(client);
    }

    /// A statement goes on as far as it can.
    fn go_on_with(&mut self, client: u32) {
        let now_ns = self.now_ns();
        let Some(rows) = &mut self.rows else { return };
        let Some(open) = rows.open.get_mut(&client) else { return };
        let polled = poll(&mut open.running);
        let mut tokens = Vec::new();
        for (number, tablet, asked) in rows.world.kv.take_new() {
            let until_ns = now_ns + rows.dice.milliseconds(300, 2_500);
            let token = rows.next_token;
            rows.next_token += 1;
            rows.calls.insert(token, Call { client, number, tablet, asked, may_be_done: false });
            tokens.push((token, until_ns));
        }
        for (token, until_ns) in tokens {
            self.row_later(until_ns, RowEvent::GiveUp(token));
            self.send_call(token);
        }
        if let Poll::Ready(answered) = polled {
            self.said(client, answered);
        }
    }

    /// A client gets the answer to its statement.
    fn said(&mut self, client: u32, answered: diorite_query::engine::Answered) {
        let now_ns = self.now_ns();
        let Some(rows) = &mut self.rows else { return };
        let Some(open) = rows.open.remove(&client) else { return };
        let outcome = response(answered);
        let ended = outcome.as_ref().map_or_else(ended, |_| Ended::Done);
        rows.said.push(Said { meaning: open.meaning, ended, sent_ns: open.sent_ns, answered_ns: now_ns });
        let told = format!("{outcome:?}");
        self.trace.event(now_ns, 0, "told", told.as_bytes(), || format!("client {client}: {told}"));
        let tally = &mut self.clients.tally;
        *(match ended {
            Ended::Done => &mut tally.writes,
            Ended::NotDone => &mut tally.refused,
            Ended::Unknown => &mut tally.unknown,
        }) += 1;
        if let Some(at) = client.checked_sub(self.scenario.clients).filter(|_| ended == Ended::Done) {
            self.recovered.push(self.scenario.tablets[at as usize]);
        }
        let think_ns = match ended {
            Ended::Done => self.dice.range(US, self.scenario.think_ns),
            _ => self.dice.milliseconds(2, 80),
        };
        self.row_later(now_ns + think_ns, RowEvent::Act(client));
    }

    /// Sends what is asked of a tablet to where it is thought to be led.
    fn send_call(&mut self, token: u64) {
        let (now_ns, present) = (self.now_ns(), self.present());
        let Some(rows) = &mut self.rows else { return };
        let Some(call) = rows.calls.get(&token) else { return };
        let known = rows.leaders.get(&call.tablet).copied().filter(|_| rows.dice.chance(950));
        let node = known.unwrap_or_else(|| *rows.dice.pick(&present));
        let arrives_ns = now_ns + rows.dice.range(20, 500) * US;
        self.row_later(arrives_ns, RowEvent::Arrive(token, node));
    }

    fn take_call(&mut self, token: u64, node: NodeId) {
        let now_ns = self.now_ns();
        let Some(call) = self.rows.as_ref().and_then(|rows| rows.calls.get(&token)) else { return };
        let (tablet, asked) = (call.tablet, call.asked.clone());
        let Some(life) = self.life(node) else {
            let refused = KvError::NotLeader { tablet, leader: None };
            return self.answer_later(now_ns, token, Err(refused));
        };
        match asked {
            Asked::Write(mutation) => {
                life.submit(tablet, mutation, token);
                if let Some(call) = self.rows.as_mut().and_then(|rows| rows.calls.get_mut(&token)) {
                    call.may_be_done = true;
                }
                self.wake(node);
            }
            Asked::Fetch(_) => {
                let begun = match life.handles.get(&tablet) {
                    Some(handle) => handle.begin_read(),
                    None => Err(KvError::NoSuchTablet(tablet)),
                };
                match begun {
                    Ok(term) => self.row_later(now_ns, RowEvent::Read(token, node, term)),
                    Err(error) => self.answer_later(now_ns, token, Err(error)),
                }
            }
        }
    }

    fn end_read_of_rows(&mut self, token: u64, node: NodeId, term: Term) {
        let now_ns = self.now_ns();
        let Some(call) = self.rows.as_ref().and_then(|rows| rows.calls.get(&token)) else { return };
        let (tablet, Asked::Fetch(fetch)) = (call.tablet, call.asked.clone()) else { return };
        let Some(handle) = self.life(node).and_then(|life| life.handles.get(&tablet)) else { return };
        let fetched = read(handle.data(), handle.flags(), &fetch);
        let answer = handle.finish_read(term).map(|()| Given::Fetched(fetched));
        self.answer_later(now_ns, token, answer);
    }

    fn answer_later(&mut self, leaves_ns: u64, token: u64, answer: Answered) {
        let arrives_ns = leaves_ns + self.dice.range(20, 500) * US;
        self.row_later(arrives_ns, RowEvent::Answer(token, answer));
    }

    /// A write of a statement has had an outcome at its node.
    pub fn row_written(&mut self, leaves_ns: u64, token: u64, outcome: Result<Vec<u8>, KvError>) {
        self.answer_later(leaves_ns, token, outcome.map(Given::Written));
    }

    fn heard_of_call(&mut self, token: u64, answer: Answered) {
        let now_ns = self.now_ns();
        let Some(rows) = &mut self.rows else { return };
        let Some(call) = rows.calls.get_mut(&token) else { return };
        if let Err(KvError::NotLeader { .. } | KvError::Unavailable(_) | KvError::NoSuchTablet(_)) = &answer {
            // Certainly not done there. The number stays with the next attempt: nothing of this one can come any more.
            call.may_be_done = false;
            let tablet = call.tablet;
            match answer {
                Err(KvError::NotLeader { leader: Some(leader), .. }) => rows.leaders.insert(tablet, leader),
                _ => rows.leaders.remove(&tablet),
            };
            let at_ns = now_ns + rows.dice.milliseconds(0, 60);
            return self.row_later(at_ns, RowEvent::Again(token));
        }
        if let Some(call) = rows.calls.remove(&token) {
            self.answer_call(&call, answer);
        }
    }

    fn answer_call(&mut self, call: &Call, answer: Answered) {
        if let Some(rows) = &self.rows {
            rows.world.kv.answer(call.number, answer);
        }
        self.go_on_with(call.client);
    }

    /// Whoever leads a tablet and would answer for it now.
    pub fn leader_of(&self, tablet: TabletId) -> Option<NodeId> {
        let leads = |node: &&crate::node::Node| {
            let handle = node.life.as_ref().and_then(|life| life.handles.get(&tablet));
            handle.is_some_and(|handle| handle.check(diorite_replica::Permit::Lease).is_ok())
        };
        self.nodes.values().find(leads).map(|node| node.id)
    }
}
