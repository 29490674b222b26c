//! Clients that change the schema.

use crate::checkers::Finding;
use crate::cluster::{Cluster, Event, Phase};
use crate::errands::Purpose;
use crate::life::Life;
use crate::schema::{Busy, Client, DdlEvent, finding};
use diorite_base::{Clock, NodeId};
use diorite_cluster::catalog::Outcome;
use diorite_control::answering::{Answering, Here, Progress};
use diorite_control::membership::Ready;

const MS: u64 = 1_000_000;
/// How long a client's request may take, from when its change is committed.
const REQUEST_NS: u64 = 8_000 * MS;

impl Cluster {
    /// Lets clients begin to change the schema.
    pub fn begin_ddl(&mut self) {
        for client in 0..self.scenario.ddl_clients {
            self.schema.clients.push(Client::default());
            let after_ns = self.some_ms(0, 500);
            self.later(after_ns, Event::Ddl(DdlEvent::Act(client)));
        }
    }

    /// Something happens to a client that changes the schema.
    pub fn ddl_event(&mut self, event: DdlEvent) {
        match event {
            DdlEvent::Act(client) => self.change_schema(client),
            DdlEvent::Look(client) => self.look_at_change(client),
            DdlEvent::Lost(client) => self.change_ended(client, None),
        }
    }

    fn change_schema(&mut self, client: u32) {
        let is_due = match self.phase {
            Phase::Chaos => true,
            Phase::Recovery => !self.schema.recovered.contains(&client),
            Phase::Inspection => false,
        };
        if !is_due || self.schema.clients[client as usize].busy.is_some() {
            return;
        }
        let present = self.present();
        let ready: Vec<NodeId> =
            present.into_iter().filter(|id| self.running(*id).is_some_and(Life::is_ready)).collect();
        if ready.is_empty() {
            return self.later(50 * MS, Event::Ddl(DdlEvent::Act(client)));
        }
        let node = *self.dice.pick(&ready);
        let (command, name, creates) = self.schema.choose(client, self.scenario.replicas, &mut self.dice);
        let (life, floor) = (self.life(node).map_or(0, |life| life.number), self.schema.told);
        if creates.is_some() {
            // Until the statement is answered its outcome is unknown.
            self.schema.certain.remove(&name);
        }
        self.schema.clients[client as usize].busy = Some(Busy { node, life, name, creates, floor, decided: None });
        self.propose(node, &command, Purpose::Ddl(client));
    }

    /// The catalog has answered the node that a client has asked.
    pub fn ddl_decided(&mut self, client: u32, node: NodeId, outcome: Option<Outcome>) {
        let control = self.setting.control;
        let Some(local_ns) = self.life(node).map(|life| life.clock.monotonic_ns()) else { return };
        let Some(outcome) = outcome else { return self.change_ended(client, None) };
        let Some(busy) = &mut self.schema.clients[client as usize].busy else { return };
        let answering = Answering::new(outcome.version(), local_ns, control).with_deadline(Some(local_ns + REQUEST_NS));
        busy.decided = Some((outcome, answering));
        self.look_at_change(client);
    }

    fn look_at_change(&mut self, client: u32) {
        let Some(busy) = &mut self.schema.clients[client as usize].busy else { return };
        let node = self.nodes.get_mut(&busy.node);
        let Some(node) = node.filter(|node| node.life.as_ref().is_some_and(|life| life.number == busy.life)) else {
            return self.change_ended(client, None);
        };
        let (Some((outcome, answering)), Some(life)) = (&mut busy.decided, &node.life) else { return };
        let here = Here { known: life.newest().version(), served: life.served().version() };
        let progress = if node.is_paused {
            Progress::Wait(std::time::Duration::ZERO)
        } else {
            answering.look(here, &life.control.peers, life.clock.monotonic_ns())
        };
        match progress {
            Progress::Wait(_) => self.later(10 * MS, Event::Ddl(DdlEvent::Look(client))),
            Progress::TimedOut => self.change_ended(client, None),
            Progress::Answer { behind } => {
                let (outcome, at) = (outcome.clone(), busy.node);
                if behind.is_empty()
                    && let Err(finding) = self.is_served_everywhere(at, outcome.version())
                {
                    self.found = self.found.take().or(Some(finding));
                }
                self.change_ended(client, Some(outcome));
            }
        }
    }

    /// Whether all nodes that clients take to be up serve a version.
    fn is_served_everywhere(&self, at: NodeId, version: u64) -> Result<(), Finding> {
        let now_ns = self.setting.time.now_ns();
        let Some(life) = self.nodes[&at].life.as_ref() else { return Ok(()) };
        for node in
            self.nodes.values().filter(|node| node.id == at || life.control.peers.served_version(node.id).is_some())
        {
            let Some(other) = node.life.as_ref().filter(|life| life.ready == Some(Ready::Current)) else { continue };
            let served = other.served().version();
            if served < version {
                let message = format!("{at} has answered version {version}; {} is up and serves {served}", node.id);
                return finding(now_ns, message);
            }
        }
        Ok(())
    }

    /// A client gets its answer, or none (`None`).
    fn change_ended(&mut self, client: u32, outcome: Option<Outcome>) {
        let now_ns = self.now_ns();
        let Some(busy) = self.schema.clients[client as usize].busy.take() else { return };
        self.trace.event(now_ns, 0, "ddl", &[], || format!("client {client}, {}: {outcome:?}", busy.name));
        let owned = &mut self.schema.clients[client as usize].keyspaces;
        match (&outcome, busy.creates) {
            (Some(Outcome::Applied { .. }), Some(exists)) => {
                owned.retain(|name| *name != busy.name);
                if exists {
                    owned.push(busy.name.clone());
                }
                self.schema.certain.insert(busy.name.clone(), exists);
            }
            (None, Some(false)) => owned.retain(|name| *name != busy.name),
            _ => {}
        }
        if let Some(outcome) = &outcome {
            self.schema.answered += 1;
            if outcome.version() < busy.floor && self.found.is_none() {
                let message = format!("a change has version {}; {} was answered before", outcome.version(), busy.floor);
                self.found = finding::<()>(now_ns, message).err();
            }
            self.schema.told = self.schema.told.max(outcome.version());
            if self.phase == Phase::Recovery {
                self.schema.recovered.insert(client);
            }
        }
        let after_ns = self.some_ms(10, 400);
        self.later(after_ns, Event::Ddl(DdlEvent::Act(client)));
    }
}
