//! Requests of clients, and their answers.

use crate::client::{Answer, Ask, Asked};
use crate::cluster::{Cluster, Event, Phase};
use crate::errands::FIRST_ERRAND;
use crate::nemesis::Fault;
use crate::program;
use crate::rows::{FIRST_ROW_TOKEN, RowEvent};
use crate::step::Step;
use diorite_base::write::KvError;
use diorite_base::{NodeId, TabletId};
use diorite_replica::Term;
use diorite_storage::TabletData;

const US: u64 = 1_000;

impl Cluster {
    pub(crate) fn act(&mut self, client: u32) {
        let (now_ns, nodes) = (self.now_ns(), self.present());
        if self.rows.is_some() {
            return self.row_event(RowEvent::Act(client));
        }
        let own = client.checked_sub(self.scenario.clients).map(|at| self.scenario.tablets[at as usize]);
        let (tablet, ask) = match (self.phase, own) {
            (Phase::Chaos, None) => {
                let tablet = *self.dice.pick(&self.scenario.tablets);
                (tablet, self.clients.choose(client, tablet, &mut self.dice))
            }
            (Phase::Recovery, Some(tablet)) if !self.clients.is_busy(client) => match self.next_to_recover(tablet) {
                Some(part) => (tablet, self.clients.write_within(&self.setting.ranges.of(part))),
                None => return,
            },
            (Phase::Inspection, Some(tablet)) => match self.to_read.get(&client).and_then(|keys| keys.last()) {
                Some(key) => (tablet, Ask::Read(*key)),
                None => return,
            },
            _ => return,
        };
        let target = self.route(tablet, ask.key());
        let asked = self.clients.ask(client, (tablet, target), ask, &nodes, &mut self.dice);
        self.trace.event(now_ns, 0, "ask", &asked.request.to_le_bytes(), || format!("{asked:?}"));
        let arrives_ns = now_ns + self.dice.range(20, 500) * US;
        self.queue.schedule(arrives_ns, Event::Request(asked));
        let patience_ns = self.dice.milliseconds(200, 2_500);
        self.queue.schedule(now_ns + patience_ns, Event::GiveUp(client, asked.request));
    }

    /// Which of the tablets that came of one has not taken a write in [`Phase::Recovery`].
    pub(crate) fn next_to_recover(&self, root: TabletId) -> Option<TabletId> {
        self.served_of(root).into_iter().find(|tablet| !self.recovered.contains(tablet))
    }

    /// Lets the clients that see whether tablets recover see to those that are new.
    pub fn wake_inspectors(&mut self) {
        if self.phase == Phase::Recovery {
            let now_ns = self.now_ns();
            for place in 0..self.scenario.tablets.len() as u32 {
                self.queue.schedule(now_ns, Event::Act(self.scenario.clients + place));
            }
        }
    }

    /// The tablets that requests for a root's keys go to, in order.
    pub fn served_of(&self, root: TabletId) -> Vec<TabletId> {
        let newest = &self.setting.newest;
        let entry = newest.tables().find(|entry| self.setting.ranges.root_of(entry.table.id) == Some(root));
        match entry {
            Some(entry) => entry.tablets.iter().map(|range| range.tablet).collect(),
            // Tablets of rows are neither split nor merged.
            None => vec![root],
        }
    }

    /// Where a client sends what concerns a key: usually where the newest catalog says, sometimes where another did, or will.
    pub fn route(&mut self, root: TabletId, key: u64) -> TabletId {
        let all = self.setting.ranges.holding(root, key);
        if all.len() > 1 && self.phase == Phase::Chaos && self.dice.chance(100) {
            return *self.dice.pick(&all);
        }
        let served = self.served_of(root);
        all.into_iter().find(|tablet| served.contains(tablet)).unwrap_or(root)
    }

    pub(crate) fn request(&mut self, asked: Asked) {
        let now_ns = self.now_ns();
        let Some(life) = self.life(asked.node) else {
            self.send_answer(now_ns, asked, Answer::Refused);
            return;
        };
        match asked.ask.mutation() {
            Some(mutation) => {
                life.submit(asked.target, mutation, asked.request);
                self.waiting.insert(asked.request, asked);
                self.wake(asked.node);
            }
            None => match begin_read(life, asked.target) {
                Ok(term) => {
                    let at_ns = now_ns + self.read_pause_ns();
                    self.schedule(at_ns, asked.node, Step::ReadValue(asked, term));
                    self.pause_in_read(asked.node, false);
                }
                Err(error) => self.send_answer(now_ns, asked, Answer::Failed(error)),
            },
        }
    }

    /// Pauses the process now if it is to be paused in a read, before or after that has taken its value.
    pub(crate) fn pause_in_read(&mut self, node: NodeId, has_value: bool) {
        let Some(node) = self.nodes.get_mut(&node) else { return };
        if node.pauses_in_read.is_some_and(|(after_value, _)| after_value == has_value)
            && let Some((_, lasting_ns)) = node.pauses_in_read.take()
        {
            let id = node.id;
            self.pause(id, lasting_ns);
        }
    }

    /// Pauses a process, if it runs.
    pub fn pause(&mut self, id: NodeId, lasting_ns: u64) {
        let now_ns = self.now_ns();
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.life.is_some()) else { return };
        node.is_paused = true;
        self.trace.event(now_ns, id.0, "pause", &[], || format!("{} ms", lasting_ns / 1_000_000));
        self.queue.schedule(now_ns + lasting_ns, Event::Fault(Fault::Resume(id)));
    }

    /// How long a read is held up between two of its parts: hardly ever.
    pub(crate) fn read_pause_ns(&mut self) -> u64 {
        if self.dice.chance(50) { self.dice.milliseconds(0, 5) } else { 0 }
    }

    pub(crate) fn read_value(&mut self, asked: Asked, term: Term) {
        let Some(life) = self.life(asked.node) else { return };
        let Ask::Read(key) = asked.ask else { return };
        // A replica that was closed meanwhile says nothing more.
        let Some(handle) = life.handles.get(&asked.target) else { return };
        let found = handle.data().get(&program::key(key));
        let found = found.unwrap_or_else(|error| panic!("memory cannot be read: {error}"));
        let value = found.and_then(|bytes| program::decode(&bytes));
        let at_ns = self.now_ns() + self.read_pause_ns();
        self.schedule(at_ns, asked.node, Step::ReadEnd(asked, term, value));
        self.pause_in_read(asked.node, true);
    }

    pub(crate) fn read_end(&mut self, asked: Asked, term: Term, value: program::Value) {
        let now_ns = self.now_ns();
        let Some(life) = self.life(asked.node) else { return };
        let answer = match life.handles.get(&asked.target).map(|handle| handle.finish_read(term)) {
            Some(Ok(())) => Answer::Found(value),
            Some(Err(error)) => Answer::Failed(error),
            None => Answer::Failed(KvError::NoSuchTablet(asked.target)),
        };
        self.send_answer(now_ns, asked, answer);
    }

    pub(crate) fn reply(&mut self, leaves_ns: u64, token: u64, answer: Answer) {
        if token >= FIRST_ROW_TOKEN {
            let outcome = match answer {
                Answer::Written(reply) => Ok(reply),
                Answer::Failed(error) => Err(error),
                Answer::Found(_) | Answer::Refused => return,
            };
            return self.row_written(leaves_ns, token, outcome);
        }
        if token >= FIRST_ERRAND {
            return self.errand_done(token, answer);
        }
        if let Some(asked) = self.waiting.remove(&token) {
            self.send_answer(leaves_ns, asked, answer);
        }
    }

    pub(crate) fn send_answer(&mut self, leaves_ns: u64, asked: Asked, answer: Answer) {
        let arrives_ns = leaves_ns + self.dice.range(20, 500) * US;
        self.queue.schedule(arrives_ns, Event::Answer(asked, answer));
    }

    pub(crate) fn answered(&mut self, client: u32, request: u64, answer: Option<&Answer>) {
        if !self.clients.is_waiting(client, request) {
            return;
        }
        let (now_ns, nodes) = (self.now_ns(), self.present());
        let told = format!("{answer:?}");
        self.trace
            .event(now_ns, 0, "answer", told.as_bytes(), || format!("client {client}, request {request}: {told}"));
        let target = self.clients.target(client);
        let is_done = self.clients.answered(client, answer, &nodes, &mut self.dice);
        let own = client.checked_sub(self.scenario.clients).map(|at| self.scenario.tablets[at as usize]);
        match (self.phase, own) {
            (Phase::Recovery, Some(tablet)) if is_done => {
                self.recovered.extend(target);
                if self.next_to_recover(tablet).is_none() {
                    return;
                }
            }
            (Phase::Inspection, Some(_)) if is_done => {
                self.to_read.entry(client).or_default().pop();
            }
            _ => {}
        }
        let think_ns = match answer {
            // Whoever is refused tries again a little later.
            Some(Answer::Refused | Answer::Failed(_)) => self.dice.milliseconds(2, 80),
            _ => self.dice.range(US, self.scenario.think_ns),
        };
        self.queue.schedule(now_ns + think_ns, Event::Act(client));
    }
}

fn begin_read(life: &crate::life::Life, tablet: TabletId) -> Result<Term, KvError> {
    life.handles.get(&tablet).ok_or(KvError::NoSuchTablet(tablet))?.begin_read()
}
