//! The shell of the nodes' routers, as `diorite_node::route` in production: it carries requests and answers between
//! nodes, lets replicas carry requests out, and passes on their outcomes.

use crate::cluster::Cluster;
use crate::program;
use crate::routing::{ANSWERS, Ended, Given, NodeView, Question, REQUESTS, Serving, TICK_NS, TIMEOUTS, Waits, Work};
use crate::step::Step;
use diorite_base::write::KvError;
use diorite_base::{NodeId, TabletId};
use diorite_control::routing::{Asked, Machine, Output};
use diorite_query::kv::Fetched;
use diorite_replica::{Leadership, Term};
use diorite_rpc::{Lane, Transport};
use diorite_storage::TabletData;

/// Whether a read with this error may be tried elsewhere: its replica has just ceased to lead.
fn is_refusal(error: &KvError) -> bool {
    matches!(error, KvError::NotLeader { .. } | KvError::Unavailable(_))
}

/// Whether the answer has to say the version of the data.
fn wants_version(question: &Question) -> bool {
    matches!(question, Question::Fetch(fetch) if fetch.wants_version)
}

impl Cluster {
    /// A node receives a request of its own client.
    pub fn ask_router(&mut self, node: NodeId, tablet: TabletId, work: Work) {
        let Some(life) = self.life(node) else { return };
        if life.leads(tablet) {
            return self.serve(node, tablet, Waits::Here(work, None));
        }
        self.route(node, None, |machine, view, now_ns| machine.submit(tablet, work, None, view, now_ns));
    }

    /// Lets a node's router take a step, and carries out its outputs. `given`: the result of a request that succeeds by
    /// that.
    fn route(&mut self, node: NodeId, given: Option<Given>, act: impl FnOnce(&mut Machine<Work>, &NodeView<'_>, u64)) {
        let Some(life) = self.life(node) else { return };
        life.route(act);
        self.take_outputs(node, given);
        self.send_requests(node);
        let now_ns = self.now_ns();
        let Some(life) = self.life(node) else { return };
        if life.router.waiting() != (0, 0) && !life.router_ticks {
            life.router_ticks = true;
            self.schedule(now_ns + TICK_NS, node, Step::RouterTick);
        }
    }

    fn take_outputs(&mut self, node: NodeId, given: Option<Given>) {
        let (now_ns, mut given) = (self.now_ns(), given);
        while let Some(output) = self.life(node).and_then(|life| life.router.output()) {
            match output {
                Output::Serve(request)
                    if self.life(node).is_some_and(|life| life.handles.contains_key(&request.tablet)) =>
                {
                    let Asked { tablet, work, deadline_ns, .. } = *request;
                    self.serve(node, tablet, Waits::Here(work, Some(deadline_ns)));
                }
                Output::Serve(request) => {
                    if let Some(life) = self.life(node) {
                        life.route(|machine, view, _| machine.not_open_here(request, view));
                    }
                }
                Output::End(work, Ok(())) => {
                    let given = given.take().expect("what has ended well was given something");
                    self.request_ended(now_ns, work.token, Ok(given));
                }
                Output::End(work, Err(error)) => self.request_ended(now_ns, work.token, Err(error)),
            }
        }
    }

    /// Sends the frames that a node's router has gathered.
    fn send_requests(&mut self, node: NodeId) {
        let others: Vec<NodeId> = self.nodes.keys().copied().filter(|other| *other != node).collect();
        for other in others {
            let Some(life) = self.life(node) else { return };
            let (number, messages) = (life.number, life.router.take_frame(other));
            let Some(first) = messages.first().map(|message| message.id) else { continue };
            let ids = first..first + messages.len() as u64;
            for message in messages {
                let hop = (node, number, other, message.id);
                self.routed.requests.insert(hop, (message.tablet, message.work));
            }
            let port = self.setting.network.port(node);
            if port.send(other, Lane::Requests, &frame(REQUESTS, number, ids.clone())).is_err() {
                for id in ids.clone() {
                    self.routed.requests.remove(&(node, number, other, id));
                }
                self.route(node, None, |machine, _, _| machine.not_sent(other, ids, true));
            }
        }
    }

    /// A frame of a router has come to a node.
    pub fn router_frame(&mut self, from: NodeId, at: NodeId, frame: &[u8]) {
        let mut words =
            frame[1..].chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
        let Some(number) = words.next() else { return };
        let ids: Vec<u64> = words.collect();
        for id in ids {
            match frame[0] {
                REQUESTS => {
                    if let Some((tablet, work)) = self.routed.requests.remove(&(from, number, at, id)) {
                        self.serve_other(at, tablet, work.question, (from, number, id));
                    }
                }
                _ => {
                    let Some(ended) = self.routed.answers.remove(&(at, number, from, id)) else { continue };
                    if self.life(at).is_none_or(|life| life.number != number) {
                        continue;
                    }
                    let (outcome, given) = match ended {
                        Ok(given) => (Ok(()), Some(given)),
                        Err(error) => (Err(error), None),
                    };
                    self.route(at, given, |machine, view, now_ns| machine.answered(from, id, outcome, view, now_ns));
                }
            }
        }
    }

    /// A node is to carry out what another has asked.
    fn serve_other(&mut self, node: NodeId, tablet: TabletId, question: Question, asked: (NodeId, u64, u64)) {
        let waits = Waits::There(asked.0, asked.1, asked.2);
        let Some(life) = self.life(node) else { return };
        let refused = match life.handles.get(&tablet) {
            None if life.served().placement(tablet).is_none() => Some(KvError::NoSuchTablet(tablet)),
            None => Some(KvError::NotLeader { tablet, leader: life.router.learned(tablet) }),
            Some(handle) if handle.leadership() != Leadership::Here => Some(refusal(tablet, handle.leadership())),
            Some(_) => None,
        };
        match refused {
            Some(error) => {
                self.served(Serving { node, tablet, question, waits, version: None }, Err(error));
            }
            None => self.begin_serving(Serving { node, tablet, question, waits, version: None }),
        }
    }

    fn serve(&mut self, node: NodeId, tablet: TabletId, waits: Waits) {
        let Waits::Here(work, _) = &waits else { return };
        let question = work.question.clone();
        self.begin_serving(Serving { node, tablet, question, waits, version: None });
    }

    fn begin_serving(&mut self, mut serving: Serving) {
        let (node, tablet, token) = (serving.node, serving.tablet, self.routed.next);
        self.routed.next += 1;
        let Some(life) = self.life(node) else { return };
        if let Question::Write(mutation) = &serving.question {
            life.submit(tablet, mutation.clone(), token);
            self.routed.serving.insert(token, serving);
            return self.wake(node);
        }
        let handle = life.handles.get(&tablet);
        if wants_version(&serving.question) {
            serving.version = handle.and_then(|handle| handle.version());
        }
        match handle.map(|handle| handle.begin_read()) {
            Some(Ok(term)) => {
                self.routed.serving.insert(token, serving);
                let at_ns = self.now_ns() + self.read_pause_ns();
                self.schedule(at_ns, node, Step::ReadValue(token, term));
                self.pause_in_read(node, false);
            }
            Some(Err(error)) => self.served(serving, Err(error)),
            None => self.served(serving, Err(KvError::NotLeader { tablet, leader: None })),
        }
    }

    /// A read takes its value.
    pub fn read_value(&mut self, token: u64, term: Term) {
        let Some(serving) = self.routed.serving.get(&token) else { return };
        let (node, tablet, question) = (serving.node, serving.tablet, serving.question.clone());
        let Some(handle) = self.life(node).and_then(|life| life.handles.get(&tablet)) else {
            return self.served_later(token, Err(KvError::NotLeader { tablet, leader: None }));
        };
        let given = match &question {
            Question::Read(key) => {
                let found = handle.data().get(&program::key(*key));
                let found = found.unwrap_or_else(|error| panic!("memory cannot be read: {error}"));
                Given::Value(found.and_then(|bytes| program::decode(&bytes)))
            }
            Question::Fetch(fetch) => match crate::rows::read(handle, fetch) {
                Ok(fetched) => Given::Fetched(fetched),
                Err(error) => return self.served_later(token, Err(error)),
            },
            Question::Write(_) => return,
        };
        let at_ns = self.now_ns() + self.read_pause_ns();
        self.schedule(at_ns, node, Step::ReadEnd(token, term, given));
        self.pause_in_read(node, true);
    }

    /// A read ends.
    pub fn read_end(&mut self, token: u64, term: Term, given: Given) {
        let Some(serving) = self.routed.serving.get(&token) else { return };
        let (node, tablet) = (serving.node, serving.tablet);
        let (before, wants_version) = (serving.version, wants_version(&serving.question));
        let handle = self.life(node).and_then(|life| life.handles.get(&tablet));
        let ended = match handle.map(|handle| handle.finish_read(term)) {
            Some(Ok(())) => Ok(given),
            Some(Err(error)) => Err(error),
            None => Err(KvError::NotLeader { tablet, leader: None }),
        };
        let version = handle.and_then(|handle| handle.version()).filter(|after| before == Some(*after));
        let ended = match ended {
            Ok(Given::Fetched(fetched)) if wants_version => Ok(Given::Fetched(Fetched { version, ..fetched })),
            ended => ended,
        };
        self.served_later(token, ended);
    }

    /// A replica has carried something out, or not.
    pub fn served_later(&mut self, token: u64, ended: Ended) {
        if let Some(serving) = self.routed.serving.remove(&token) {
            self.served(serving, ended);
        }
    }

    fn served(&mut self, serving: Serving, ended: Ended) {
        let Serving { node, tablet, question, waits, .. } = serving;
        let (now_ns, is_write) = (self.now_ns(), matches!(question, Question::Write(_)));
        match (waits, ended) {
            // For a write that was proposed this error means that it is certainly lost; its sender receives it.
            (Waits::Here(work, until_ns), Err(error))
                if matches!(error, KvError::NotLeader { .. }) || (!is_write && is_refusal(&error)) =>
            {
                let leader = match error {
                    KvError::NotLeader { leader, .. } => leader,
                    _ => None,
                };
                self.route(node, None, |machine, view, now_ns| {
                    let request = Asked::new(tablet, work, now_ns, &TIMEOUTS, until_ns);
                    machine.refused_here(request, leader, view, now_ns);
                });
            }
            (Waits::Here(work, _), ended) => self.request_ended(now_ns, work.token, ended),
            (Waits::There(asker, life, id), ended) => {
                let leadership = self.life(node).and_then(|life| life.handles.get(&tablet)).map(|it| it.leadership());
                let ended = match (ended, leadership) {
                    (Err(error), Some(leadership)) if !is_write && is_refusal(&error) => {
                        Err(refusal(tablet, leadership))
                    }
                    (ended, _) => ended,
                };
                self.routed.answers.insert((asker, life, node, id), ended);
                // If it is lost, the node that asked waits in vain.
                let _ = self.setting.network.port(node).send(asker, Lane::Requests, &frame(ANSWERS, life, id..id + 1));
            }
        }
    }

    /// A node's router retries requests that wait.
    pub fn router_tick(&mut self, node: NodeId) {
        if let Some(life) = self.life(node) {
            life.router_ticks = false;
        }
        self.route(node, None, |machine, view, now_ns| machine.tick(view, now_ns));
    }

    /// A node has found that another is up, or down.
    pub fn router_learns(&mut self, node: NodeId, other: NodeId, is_up: bool) {
        self.route(node, None, |machine, view, now_ns| match is_up {
            true => machine.node_up(view, now_ns),
            false => machine.node_down(other, view, now_ns),
        });
    }
}

/// The error of a replica that does not lead.
fn refusal(tablet: TabletId, leadership: Leadership) -> KvError {
    let leader = match leadership {
        Leadership::Elsewhere(node) => Some(node),
        Leadership::Here | Leadership::Unknown => None,
    };
    KvError::NotLeader { tablet, leader }
}

fn frame(kind: u8, life: u64, ids: std::ops::Range<u64>) -> Vec<u8> {
    let mut frame = vec![kind];
    for word in std::iter::once(life).chain(ids) {
        frame.extend_from_slice(&word.to_le_bytes());
    }
    frame
}
