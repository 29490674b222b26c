//! Statements on their way through the cluster: a node carries each out, and its requests to tablets go through that node's router.

use super::clients::{Call, Open, Said, ended};
use super::event::RowEvent;
use super::kv::{Answered, Asked, Given, Knows};
use super::maintenance::keep_index;
use super::schema::{poll, response};
use super::statements::{BY_VALUE, Meaning, is_logged};
use crate::cluster::{Cluster, Event, Phase};
use crate::routing::{self, Question, Work};
use diorite_base::write::{KvError, Waited};
use diorite_base::{NodeId, TabletId};
use diorite_cql::protocol::client::ClientResponse;
use diorite_history::Ended;
use diorite_transact::version::DataVersion;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;

const US: u64 = 1_000;

impl Cluster {
    /// Something happens to a statement.
    pub fn row_event(&mut self, event: RowEvent) {
        match event {
            RowEvent::Act(client) => self.say(client),
            RowEvent::Arrive(token, node) => self.take_call(token, node),
            RowEvent::Answer(token, answer) => self.answered_call(token, answer),
            RowEvent::GiveUp(token) => {
                let Some(rows) = &mut self.rows else { return };
                let Some(call) = rows.calls.remove(&token) else { return };
                // The router answers in time, unless its process has ended: then the outcome is unknown.
                self.answer_call(&call, Err(KvError::Timeout(Waited::in_vain(2_000))));
            }
        }
    }

    fn row_later(&mut self, at_ns: u64, event: RowEvent) {
        self.queue.schedule(at_ns, Event::Row(event));
    }

    /// A client sends its next statement; in the phase of recovery those of tablets (after the usual ones) write to theirs.
    fn say(&mut self, client: u32) {
        let (now_ns, present) = (self.now_ns(), self.present());
        let own = client.checked_sub(self.scenario.clients).map(|at| self.scenario.tablets[at as usize]);
        if self.phase == Phase::Chaos {
            keep_index(self);
        }
        let Some(rows) = &mut self.rows else { return };
        if rows.open.contains_key(&client) {
            return;
        }
        let (statement, meaning) = match (self.phase, own) {
            (Phase::Chaos, None) => rows.choose(),
            (Phase::Recovery, Some(tablet)) if !self.recovered.contains(&tablet) => match rows.write_to(tablet) {
                Some(statement) => (statement, Meaning::Anything),
                None => {
                    // Tablets of counters are written to by their own statements; here it is checked only that they have a leader.
                    self.recovered.push(tablet);
                    return;
                }
            },
            _ => return,
        };
        self.trace.event(now_ns, 0, "say", statement.as_bytes(), || format!("client {client}: {statement}"));
        let running = rows.world.begin(&statement);
        let known = rows.nodes.get(&client).copied().filter(|node| present.contains(node) && rows.dice.chance(980));
        let node = known.unwrap_or_else(|| *rows.dice.pick(&present));
        rows.nodes.insert(client, node);
        let is_covered = statement.contains(BY_VALUE) && rows.knowledge(node, now_ns) == Knows::All;
        rows.open.insert(client, Open { running, meaning, node, is_covered, sent_ns: now_ns });
        self.go_on_with(client);
    }

    /// A statement goes on as far as it can.
    fn go_on_with(&mut self, client: u32) {
        let now_ns = self.now_ns();
        let open_node = self.rows.as_ref().and_then(|rows| rows.open.get(&client)).map(|open| open.node);
        let versions = open_node.map(|node| self.versions(node)).unwrap_or_default();
        let Some(rows) = &mut self.rows else { return };
        rows.world.kv.set_versions(versions);
        let node = open_node.and_then(|node| self.nodes.get(&node));
        if let Some(life) = node.and_then(|node| node.life.as_ref()) {
            let knows = open_node.map_or(Knows::Tables, |node| rows.knowledge(node, now_ns));
            rows.world.kv.follow(life.served(), knows);
        }
        let Some(open) = rows.open.get_mut(&client) else { return };
        let (polled, node) = (poll(&mut open.running), open.node);
        self.send_calls(client, node);
        match polled {
            Poll::Ready(answered) => self.said(client, answered),
            Poll::Pending => self.forget_coordinator(client, now_ns),
        }
    }

    /// The versions of the tablets that a node leads now.
    fn versions(&self, node: NodeId) -> BTreeMap<TabletId, DataVersion> {
        let lives = self.nodes.get(&node).and_then(|node| node.life.as_ref()).into_iter();
        let handles = lives.flat_map(|life| life.handles.iter());
        handles.filter_map(|(tablet, handle)| Some((*tablet, handle.version()?))).collect()
    }

    /// Sends the requests of a statement and of what has outlived it.
    fn send_calls(&mut self, client: u32, node: NodeId) {
        let now_ns = self.now_ns();
        let Some(rows) = &mut self.rows else { return };
        // Such work may end at any time.
        let begun = rows.world.kv.take_spawned().into_iter().filter(|_| rows.dice.chance(950));
        rows.spawned.extend(begun);
        rows.spawned.retain_mut(|work| {
            work.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending()
        });
        let mut later = Vec::new();
        for (number, tablet, asked) in rows.world.kv.take_new() {
            let token = rows.next_token;
            rows.next_token += 1;
            if let Asked::Pause(duration_ns) = asked {
                later.push((now_ns + duration_ns, RowEvent::Answer(token, Ok(Given::Nothing))));
            } else {
                let until_ns = now_ns + rows.dice.milliseconds(300, 2_500);
                later.push((until_ns, RowEvent::GiveUp(token)));
                later.push((now_ns + rows.dice.range(1, 50) * US, RowEvent::Arrive(token, node)));
            }
            rows.calls.insert(token, Call { client, number, node, tablet, asked });
        }
        for (at_ns, event) in later {
            self.row_later(at_ns, event);
        }
    }

    /// Now and then the node that coordinates a transaction forgets it, as if it had ended.
    fn forget_coordinator(&mut self, client: u32, now_ns: u64) {
        let Some(rows) = &mut self.rows else { return };
        let meaning = rows.open.get(&client).map(|open| open.meaning);
        let is_transaction = matches!(
            meaning,
            Some(Meaning::Open | Meaning::Move | Meaning::Several(_) | Meaning::Pair | Meaning::Claim)
        );
        if !is_transaction || !rows.dice.chance(10) {
            return;
        }
        let Some(open) = rows.open.remove(&client) else { return };
        let Open { meaning, sent_ns, .. } = open;
        rows.said.push(Said { meaning, ended: Ended::Unknown, sent_ns, answered_ns: now_ns });
        let after_ns = self.dice.milliseconds(2, 80);
        self.row_later(now_ns + after_ns, RowEvent::Act(client));
    }

    /// A client gets the answer to its statement.
    fn said(&mut self, client: u32, answered: diorite_query::engine::Answered) {
        let now_ns = self.now_ns();
        let Some(rows) = &mut self.rows else { return };
        let Some(open) = rows.open.remove(&client) else { return };
        let outcome = response(answered);
        let ended = outcome.as_ref().map_or_else(ended, |_| Ended::Done);
        let (is_scan, is_total) = (open.meaning == Meaning::Scan, open.meaning == Meaning::Total);
        let is_claims = open.meaning == Meaning::Claims;
        if !is_scan && !is_total && !is_claims {
            rows.said.push(Said { meaning: open.meaning, ended, sent_ns: open.sent_ns, answered_ns: now_ns });
        }
        if ended != Ended::Done {
            // It tries another node.
            rows.nodes.remove(&client);
        }
        let told = format!("{outcome:?}");
        self.trace.event(now_ns, 0, "told", told.as_bytes(), || format!("client {client}: {told}"));
        if let Ok(ClientResponse::Rows(read)) = &outcome
            && is_scan
            && let Err(finding) = self.judge_scan(open.sent_ns, &read.rows)
        {
            self.found = self.found.take().or(Some(finding));
        }
        if let Ok(ClientResponse::Rows(read)) = &outcome
            && is_total
        {
            let judged = self.judge_total(open.sent_ns, &read.rows);
            self.found = self.found.take().or(judged.err());
        }
        if let Ok(ClientResponse::Rows(read)) = &outcome
            && is_claims
        {
            let is_of_view = read.metadata.columns.first().is_some_and(|column| column.table == "uv");
            self.reached.view_rows += if is_of_view { read.rows.len() as u64 } else { 0 };
            self.reached.covered_rows += if open.is_covered { read.rows.len() as u64 } else { 0 };
            let judged = self.judge_claims(&read.rows);
            self.found = self.found.take().or(judged.err());
        }
        let is_logged = match open.meaning {
            Meaning::Several(number) => is_logged(number),
            meaning => meaning == Meaning::Pair,
        };
        self.reached.logged_batches += u64::from(is_logged && ended == Ended::Done);
        self.reached.transactions += u64::from(open.meaning == Meaning::Move && ended == Ended::Done);
        self.reached.claims += u64::from(open.meaning == Meaning::Claim && ended == Ended::Done);
        let is_duplicate = outcome.as_ref().is_err_and(|error| error.message.contains("Duplicate value"));
        self.reached.duplicates += u64::from(is_duplicate);
        let tally = &mut self.clients.tally;
        *(match ended {
            Ended::Done if is_scan || is_total || is_claims => &mut tally.reads,
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

    /// A request to a tablet arrives at the router of the node that carries the statement out.
    fn take_call(&mut self, token: u64, node: NodeId) {
        let now_ns = self.now_ns();
        let Some(call) = self.rows.as_ref().and_then(|rows| rows.calls.get(&token)) else { return };
        let (tablet, asked) = (call.tablet, call.asked.clone());
        if self.life(node).is_none_or(|life| !life.is_ready()) {
            return self.answer_later(now_ns, token, Err(KvError::Unavailable(tablet)));
        }
        let question = match asked {
            Asked::Write(mutation) => Question::Write(mutation),
            Asked::Fetch(fetch) => Question::Fetch(Arc::new(fetch)),
            Asked::Pause(_) => return,
        };
        self.ask_router(node, tablet, Work { token, question });
    }

    fn answer_later(&mut self, leaves_ns: u64, token: u64, answer: Answered) {
        let arrives_ns = leaves_ns + self.dice.range(20, 500) * US;
        self.row_later(arrives_ns, RowEvent::Answer(token, answer));
    }

    /// The router has ended a request to a tablet.
    pub fn call_ended(&mut self, leaves_ns: u64, token: u64, ended: routing::Ended) {
        let answer = match ended {
            Ok(routing::Given::Written(reply)) => Ok(Given::Written(reply)),
            Ok(routing::Given::Fetched(fetched)) => Ok(Given::Fetched(fetched)),
            Ok(routing::Given::Value(_)) => return,
            Err(error) => Err(error),
        };
        self.answer_later(leaves_ns, token, answer);
    }

    fn answered_call(&mut self, token: u64, answer: Answered) {
        let Some(rows) = &mut self.rows else { return };
        if let Some(call) = rows.calls.remove(&token) {
            self.answer_call(&call, answer);
        }
    }

    fn answer_call(&mut self, call: &Call, answer: Answered) {
        if let Some(rows) = &self.rows {
            rows.world.kv.answer(call.number, answer);
        }
        self.go_on_with(call.client);
        // It may be of work that has outlived its statement.
        self.send_calls(call.client, call.node);
    }

    /// The node that leads a tablet and would answer for it now.
    pub fn leader_of(&self, tablet: TabletId) -> Option<NodeId> {
        let leads = |node: &&crate::node::Node| {
            let handle = node.life.as_ref().and_then(|life| life.handles.get(&tablet));
            handle.is_some_and(|handle| handle.check(diorite_replica::Permit::Lease).is_ok())
        };
        self.nodes.values().find(leads).map(|node| node.id)
    }
}
