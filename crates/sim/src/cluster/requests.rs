//! Requests of clients, and their answers.

use crate::batches::FIRST_PART;
use crate::client::{Answer, Ask, Asked, batch_entries};
use crate::cluster::{Cluster, Event, Phase};
use crate::errands::FIRST_ERRAND;
use crate::nemesis::Fault;
use crate::ranges::token;
use crate::routing::{Ended, FIRST_SERVED, Given, Question, Work};
use crate::rows::{FIRST_ROW_TOKEN, RowEvent};
use crate::step::Step;
use diorite_base::{NodeId, TabletId};

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
        if self.clients.is_busy(client) {
            // What it asked last has an unknown outcome.
            self.clients.answered(client, None, &nodes, &mut self.dice);
        }
        let target = self.expected(tablet, ask.key());
        let asked = self.clients.ask(client, (tablet, target), ask, &nodes, &mut self.dice);
        self.trace.event(now_ns, 0, "ask", &asked.request.to_le_bytes(), || format!("{asked:?}"));
        let arrives_ns = now_ns + self.dice.range(20, 500) * US;
        self.queue.schedule(arrives_ns, Event::Request(asked));
        let timeout_ns = self.dice.milliseconds(200, 2_500);
        self.queue.schedule(now_ns + timeout_ns, Event::GiveUp(client, asked.request));
    }

    /// Which of the tablets that came of one has not taken a write in [`Phase::Recovery`].
    pub(crate) fn next_to_recover(&self, root: TabletId) -> Option<TabletId> {
        self.served_of(root).into_iter().find(|tablet| !self.recovered.contains(tablet))
    }

    /// Wakes the clients that check the recovery of new tablets.
    pub fn wake_inspectors(&mut self) {
        if self.phase == Phase::Recovery {
            let now_ns = self.now_ns();
            for place in 0..self.scenario.tablets.len() as u32 {
                self.queue.schedule(now_ns, Event::Act(self.scenario.clients + place));
            }
        }
    }

    /// The tablets that serve a root's keys, in order.
    pub fn served_of(&self, root: TabletId) -> Vec<TabletId> {
        let newest = &self.setting.newest;
        let entry = newest.tables().find(|entry| self.setting.ranges.root_of(entry.table.id) == Some(root));
        match entry {
            Some(entry) => entry.tablets.iter().map(|range| range.tablet).collect(),
            // Clients write to partitions of the tablets that there were in the beginning.
            None => vec![root],
        }
    }

    /// The tablet to which a node sends a key's request: according to the catalog that it serves, or to another
    /// version, like a statement that was planned earlier or is planned anew.
    pub fn planned(&mut self, node: NodeId, root: TabletId, key: u64) -> TabletId {
        let all = self.setting.ranges.holding(root, key);
        if all.len() > 1 && self.phase == Phase::Chaos && self.dice.chance(100) {
            return *self.dice.pick(&all);
        }
        let Some(life) = self.nodes[&node].life.as_ref() else { return root };
        let ranges = &self.setting.ranges;
        let entry = life.served().tables().find(|entry| ranges.root_of(entry.table.id) == Some(root));
        entry.map_or(root, |entry| entry.tablet_of(token(key)))
    }

    /// The tablet in which a client expects a key, by the newest catalog.
    fn expected(&self, root: TabletId, key: u64) -> TabletId {
        let served = self.served_of(root);
        let all = self.setting.ranges.holding(root, key);
        all.into_iter().find(|tablet| served.contains(tablet)).unwrap_or(root)
    }

    pub(crate) fn request(&mut self, asked: Asked) {
        let now_ns = self.now_ns();
        // A node that is not ready accepts no clients.
        if self.life(asked.node).is_none_or(|life| !life.is_ready()) {
            self.send_answer(now_ns, asked, Answer::Refused);
            return;
        }
        if let Ask::Batch(value) = asked.ask {
            return self.begin_batch(asked, batch_entries(value).to_vec());
        }
        let root = self.setting.ranges.of(asked.target).root;
        let tablet = self.planned(asked.node, root, asked.ask.key());
        let question = asked.ask.mutation().map_or(Question::Read(asked.ask.key()), Question::Write);
        self.waiting.insert(asked.request, asked);
        self.ask_router(asked.node, tablet, Work { token: asked.request, question });
    }

    /// Pauses the process now if it is to be paused during a read, before or after the read has taken its value.
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

    /// The delay of a read between two of its parts: usually 0.
    pub(crate) fn read_pause_ns(&mut self) -> u64 {
        if self.dice.chance(50) { self.dice.milliseconds(0, 5) } else { 0 }
    }

    pub(crate) fn reply(&mut self, leaves_ns: u64, token: u64, answer: Answer) {
        if token >= FIRST_SERVED {
            let ended = match answer {
                Answer::Written(reply) => Ok(Given::Written(reply)),
                Answer::Failed(error) => Err(error),
                Answer::Found(_) | Answer::Refused => return,
            };
            return self.leave(leaves_ns, token, ended);
        }
        if token >= FIRST_ERRAND {
            self.errand_done(token, answer);
        }
    }

    /// The outcome of an operation leaves the replica, once its disk is ready.
    fn leave(&mut self, leaves_ns: u64, token: u64, ended: Ended) {
        match self.routed.serving.get(&token).map(|serving| serving.node) {
            Some(node) if leaves_ns > self.now_ns() => self.schedule(leaves_ns, node, Step::Served(token, ended)),
            _ => self.served_later(token, ended),
        }
    }

    /// A request of a client has ended at the node that it was sent to.
    pub(crate) fn request_ended(&mut self, leaves_ns: u64, token: u64, ended: Ended) {
        if token >= FIRST_PART {
            return self.part_ended(leaves_ns, token, ended);
        }
        if token >= FIRST_ROW_TOKEN {
            return self.call_ended(leaves_ns, token, ended);
        }
        let Some(asked) = self.waiting.remove(&token) else { return };
        let answer = match ended {
            Ok(Given::Value(value)) => Answer::Found(value),
            Ok(Given::Written(reply)) => Answer::Written(reply),
            Ok(Given::Fetched(_)) => return,
            Err(error) => Answer::Failed(error),
        };
        self.send_answer(leaves_ns, asked, answer);
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
            // A refused client tries again a little later.
            Some(Answer::Refused | Answer::Failed(_)) => self.dice.milliseconds(2, 80),
            _ => self.dice.range(US, self.scenario.think_ns),
        };
        self.queue.schedule(now_ns + think_ns, Event::Act(client));
    }
}
