//! A state of the model: tablets, those who ask, messages in flight, and what the invariants need to know of the past.
//!
//! Everything that decides is the code of this crate. The model carries out actions: it stamps and appends steps,
//! evaluates programs on applied rows, and puts messages into the network, which loses, repeats and delays them.

use super::client::{Client, Reader, Writer, WriterStage};
use super::explore::Fingerprint;
use super::invariants::Past;
use super::snapshots::{PinAnswer, SnapshotReader};
use super::tablet::{Entry, Tablet};
use crate::coordinator::{self, Coordinator};
use crate::ids::TransactionId;
use crate::leader::{Action, Asker, Evaluated};
use crate::message::{Reply, Request};
use crate::peer::PeerCall;
use crate::planted::Planted;
use crate::timing::Timing;
use diorite_base::TabletId;
use std::rc::Rc;
use std::sync::Arc;

/// Who has asked, and receives the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    Client(usize),
    Reader(usize),
    /// The leader of a tablet asks about a prepare with this stamp.
    Participant(usize, i64),
    /// The home's leader finishes a participant.
    Sweep(usize),
    /// A read of several tablets asks about a prepare in one of them.
    Snapshot {
        reader: usize,
        round: u32,
        tablet: usize,
        prepared_us: i64,
    },
}

const READERS: u64 = 100;
const SWEEPS: u64 = 200;
const PARTICIPANTS: u64 = 1_000;
const SNAPSHOTS: u64 = 1_000_000;

impl Source {
    pub fn asker(self) -> Asker {
        Asker(match self {
            Self::Client(client) => client as u64,
            Self::Reader(reader) => READERS + reader as u64,
            Self::Sweep(tablet) => SWEEPS + tablet as u64,
            Self::Participant(tablet, stamp_us) => PARTICIPANTS * (1 + tablet as u64) + stamp_us as u64,
            Self::Snapshot { reader, round, tablet, prepared_us } => {
                let (reader, round) = (reader as u64 + 1, u64::from(round));
                reader * SNAPSHOTS + round * 100_000 + tablet as u64 * PARTICIPANTS + prepared_us as u64
            }
        })
    }

    fn of(asker: Asker) -> Self {
        match asker.0 {
            client @ 0..READERS => Self::Client(client as usize),
            reader @ READERS..SWEEPS => Self::Reader((reader - READERS) as usize),
            tablet @ SWEEPS..PARTICIPANTS => Self::Sweep((tablet - SWEEPS) as usize),
            other @ SNAPSHOTS.. => Self::Snapshot {
                reader: (other / SNAPSHOTS) as usize - 1,
                round: (other / 100_000 % 10) as u32,
                tablet: (other / PARTICIPANTS % 100) as usize,
                prepared_us: (other % PARTICIPANTS) as i64,
            },
            other => Self::Participant((other / PARTICIPANTS) as usize - 1, (other % PARTICIPANTS) as i64),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    Request { from: Source, to: usize, request: Request },
    Reply { from: usize, to: Source, reply: Reply },
    Pin { reader: usize, to: usize, round: u32, at_us: i64 },
    PinAnswer { reader: usize, from: usize, round: u32, answer: PinAnswer },
}

/// How many faults of each kind may still happen, and how many tasks may run by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Messages lost or repeated, coordinators that die, waits in vain.
    pub faults: u8,
    pub leader_changes: u8,
    /// Sweeps of a leader while others are busy.
    pub sweeps: u8,
    /// Jumps of time past all timeouts.
    pub jumps: u8,
}

/// Messages are kept in the order of their fingerprints: equal sets of messages are equal states.
#[derive(Clone, Debug)]
pub struct InNetwork {
    pub fingerprint: u128,
    pub message: Rc<Message>,
}

#[derive(Clone, Debug)]
pub struct World {
    pub tablets: Vec<Rc<Tablet>>,
    pub clients: Vec<Rc<Client>>,
    pub writers: Vec<Writer>,
    pub readers: Vec<Reader>,
    pub snapshots: Vec<SnapshotReader>,
    pub network: Vec<InNetwork>,
    pub now_ns: u64,
    pub budget: Budget,
    pub past: Rc<Past>,
    pub planted: Planted,
    pub timing: Timing,
}

impl std::hash::Hash for World {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.tablets.hash(state);
        self.clients.hash(state);
        self.writers.hash(state);
        self.readers.hash(state);
        self.snapshots.hash(state);
        state.write_usize(self.network.len());
        self.network.iter().for_each(|message| message.fingerprint.hash(state));
        self.now_ns.hash(state);
        self.budget.hash(state);
        self.past.hash(state);
    }
}

impl World {
    pub fn index(&self, tablet: TabletId) -> usize {
        self.tablets.iter().position(|it| it.id == tablet).expect("a tablet of the model")
    }

    pub fn post(&mut self, message: Message) {
        if let Message::Reply { to: Source::Client(client), .. } = message
            && self.clients[client].coordinator.is_none()
        {
            return;
        }
        let fingerprint = Fingerprint::of(&message);
        if let Err(at) = self.network.binary_search_by_key(&fingerprint, |it| it.fingerprint) {
            self.network.insert(at, InNetwork { fingerprint, message: Rc::new(message) });
        }
    }

    /// Passes a message to whom it is for.
    pub fn deliver(&mut self, message: &Message) -> Result<(), String> {
        match message {
            Message::Request { from, to, request } => {
                let now_ns = self.now_ns;
                let tablet = Rc::make_mut(&mut self.tablets[*to]);
                let answer = tablet.leader.request(&tablet.records, from.asker(), request.clone(), true, now_ns);
                if answer.is_err()
                    && let Source::Client(client) = from
                {
                    self.mark_lost(*client, request);
                }
                self.run_leader(*to)
            }
            Message::Reply { from, to, reply } => self.deliver_reply(*from, *to, *reply),
            Message::Pin { reader, to, round, at_us } => {
                self.pin(*reader, *to, *round, *at_us);
                Ok(())
            }
            Message::PinAnswer { reader, from, round, answer } => {
                self.pin_answered(*reader, *from, *round, answer.clone())
            }
        }
    }

    /// A request reaches a replica that no longer leads, and has no lease.
    pub fn deliver_to_former(&mut self, from: Source, to: usize, request: &Request) -> Result<(), String> {
        let now_ns = self.now_ns;
        let tablet = Rc::make_mut(&mut self.tablets[to]);
        let Some(former) = &mut tablet.former else { return Ok(()) };
        let (leader, records) = &mut **former;
        let is_refused = leader.request(records, from.asker(), request.clone(), false, now_ns).is_err();
        let mut replies = Vec::new();
        while let Some(action) = leader.action() {
            // What it appends is never committed.
            if let Action::Reply { to, reply, .. } = action {
                replies.push((Source::of(to), reply));
            }
        }
        if (is_refused || replies.is_empty())
            && let Source::Client(client) = from
        {
            self.mark_lost(client, request);
        }
        for (asker, reply) in replies {
            self.past_mut().replied(to, &reply)?;
            self.post(Message::Reply { from: to, to: asker, reply });
        }
        Ok(())
    }

    pub fn past_mut(&mut self) -> &mut Past {
        Rc::make_mut(&mut self.past)
    }

    fn deliver_reply(&mut self, from: usize, to: Source, reply: Reply) -> Result<(), String> {
        let from_id = self.tablets[from].id;
        match to {
            Source::Client(client) => {
                self.begin_next(&reply)?;
                let now_ns = self.now_ns;
                let asked = Rc::make_mut(&mut self.clients[client]);
                asked.receives(from_id, &reply);
                if let Some(coordinator) = &mut asked.coordinator {
                    coordinator.replied(from_id, reply, now_ns);
                }
                self.run_coordinator(client)
            }
            Source::Participant(tablet, prepared_us) => {
                let asked = Rc::make_mut(&mut self.tablets[tablet]);
                if let Reply::Status { id, status } = reply {
                    asked.leader.learned(&asked.records, id, prepared_us, status);
                }
                self.run_leader(tablet)
            }
            Source::Sweep(tablet) => {
                let asked = Rc::make_mut(&mut self.tablets[tablet]);
                if let Reply::Finished(id) = reply {
                    asked.leader.finished(id, from_id);
                }
                self.run_leader(tablet)
            }
            Source::Snapshot { .. } => self.snapshot_learned(to, reply),
            Source::Reader(reader) => {
                self.reader_learned(reader, reply);
                Ok(())
            }
        }
    }

    /// The answer to a commit brings a number, with which another transaction begins.
    fn begin_next(&mut self, reply: &Reply) -> Result<(), String> {
        let Reply::Committed { id, next: Some(number), .. } = reply else { return Ok(()) };
        let Some(next) = self.clients.iter().position(|client| client.is_next && !client.has_started) else {
            return Ok(());
        };
        let id = TransactionId { number: *number, ..*id };
        self.past_mut().issued(id, next)?;
        let (timing, planted, now_ns) = (self.timing, self.planted, self.now_ns);
        let begins = Rc::make_mut(&mut self.clients[next]);
        begins.has_started = true;
        let mut coordinator = Coordinator::new(Arc::clone(&begins.plan), timing, Some(id));
        coordinator.plant(planted);
        coordinator.start(now_ns);
        begins.coordinator = Some(coordinator);
        self.run_coordinator(next)
    }

    /// Nobody will answer this request.
    pub fn mark_lost(&mut self, client: usize, request: &Request) {
        let client = Rc::make_mut(&mut self.clients[client]);
        for waits in client.outstanding.iter_mut().filter(|waits| waits.request == *request) {
            waits.is_lost = true;
        }
    }

    /// Carries out what a coordinator asks for.
    pub fn run_coordinator(&mut self, client: usize) -> Result<(), String> {
        loop {
            let asked = Rc::make_mut(&mut self.clients[client]);
            let Some(coordinator) = &mut asked.coordinator else { return Ok(()) };
            match coordinator.action() {
                Some(coordinator::Action::Send(tablet, request)) => {
                    asked.sends(tablet, &request);
                    let to = self.index(tablet);
                    self.post(Message::Request { from: Source::Client(client), to, request });
                }
                Some(coordinator::Action::Ended(home, id)) => {
                    let (from, to) = (Source::Client(client), self.index(home));
                    self.post(Message::Request { from, to, request: Request::Forget(vec![id]) });
                }
                Some(coordinator::Action::Answer(outcome)) => {
                    if asked.outcome.replace(outcome).is_some() {
                        return Err(format!("client {client} is answered twice"));
                    }
                    self.answered(client, outcome)?;
                }
                None => {
                    if coordinator.has_ended() {
                        self.forget_coordinator(client);
                    }
                    return Ok(());
                }
            }
        }
    }

    /// A coordinator has ended or died: nobody takes what is sent to it.
    pub fn forget_coordinator(&mut self, client: usize) {
        let ended = Rc::make_mut(&mut self.clients[client]);
        ended.coordinator = None;
        ended.outstanding.clear();
        let is_for_it =
            |message: &Message| matches!(message, Message::Reply { to: Source::Client(to), .. } if *to == client);
        self.network.retain(|it| !is_for_it(&it.message));
    }

    /// Carries out what a leader asks for.
    pub fn run_leader(&mut self, at: usize) -> Result<(), String> {
        loop {
            let now_ns = self.now_ns;
            let tablet = Rc::make_mut(&mut self.tablets[at]);
            let Some(action) = tablet.leader.action() else { return Ok(()) };
            match action {
                Action::Propose { step, above_us } => {
                    tablet.append(step, above_us)?;
                }
                Action::Evaluate { id, program } => {
                    let evaluated = match tablet.evaluate(&program) {
                        Some(operations) => Evaluated::Operations(operations),
                        None => Evaluated::ConditionFailed(Vec::new()),
                    };
                    tablet.leader.evaluated(id, evaluated, now_ns);
                }
                Action::Reply { to, reply, .. } => {
                    let past = Rc::make_mut(&mut self.past);
                    past.replied(at, &reply)?;
                    if let (Source::Client(client), Reply::Reserved { id, .. }) = (Source::of(to), &reply) {
                        past.issued(*id, client)?;
                    }
                    self.post(Message::Reply { from: at, to: Source::of(to), reply });
                }
                Action::Call(PeerCall::Ask { id, prepared_us, .. }) => {
                    let of = Some((tablet.id, prepared_us));
                    let (from, to) = (Source::Participant(at, prepared_us), self.index(id.tablet));
                    self.post(Message::Request { from, to, request: Request::Status { id, of, at_us: None } });
                }
                Action::Call(PeerCall::Finish { participant, id, ending }) => {
                    let to = self.index(participant.tablet);
                    let request = Request::Finish { id, ending };
                    self.post(Message::Request { from: Source::Sweep(at), to, request });
                }
                Action::Admit(tag) => {
                    let stamp_us = tablet.stamp(tablet.leader.promised_us());
                    let Writer { key, value, .. } = self.writers[tag as usize];
                    tablet.log.push_back(Entry::Write { stamp_us, tag, key, value });
                }
                Action::Refuse(tag) => self.writers[tag as usize].stage = WriterStage::Ended,
            }
        }
    }

    /// The next entry of a tablet's log is committed and applied.
    pub fn apply_next(&mut self, at: usize) -> Result<(), String> {
        let now_ns = self.now_ns;
        let tablet = Rc::make_mut(&mut self.tablets[at]);
        let Some(entry) = tablet.log.pop_front() else { return Ok(()) };
        tablet.pins.iter_mut().for_each(|pin| pin.entries = pin.entries.saturating_sub(1));
        match entry {
            Entry::First => tablet.leader.ready(),
            Entry::Seal { stamp_us } => tablet.newest_us = tablet.newest_us.max(stamp_us),
            Entry::Step { stamp_us, step } => {
                tablet.newest_us = tablet.newest_us.max(stamp_us);
                let before = tablet.records.clone();
                let effects = tablet.records.apply(stamp_us, &step);
                tablet.leader.applied(&tablet.records, &step, now_ns);
                self.apply_effects(at, stamp_us, &step, effects, &before)?;
            }
            Entry::Write { stamp_us, tag, key, value } => {
                tablet.newest_us = tablet.newest_us.max(stamp_us);
                tablet.leader.written(tag);
                self.write_row(at, key, value, stamp_us, None)?;
                let writer = &mut self.writers[tag as usize];
                writer.stage = WriterStage::Written;
                self.past_mut().write_applied(at, key, value, stamp_us);
            }
        }
        self.take_snapshots(at);
        self.run_leader(at)
    }

    /// Writes a row, with the stamp that its write has, for a transaction or not.
    pub fn write_row(
        &mut self,
        at: usize,
        key: u8,
        value: i8,
        stamp_us: i64,
        of: Option<TransactionId>,
    ) -> Result<(), String> {
        let tablet = Rc::make_mut(&mut self.tablets[at]);
        tablet.newest_us = tablet.newest_us.max(stamp_us);
        tablet.clock_us = tablet.clock_us.max(stamp_us);
        let locked = tablet.records.locked().find(|(id, targets)| Some(*id) != of && targets.contains(&[key]));
        if let Some((id, _)) = locked {
            return Err(format!("row {key} of {} is written while {id} has prepared it", tablet.id));
        }
        let row = tablet.rows.get_mut(&key).expect("a row of the model");
        if row.stamp_us >= stamp_us {
            return Err(format!("row {key} of {} goes back from stamp {} to {stamp_us}", tablet.id, row.stamp_us));
        }
        row.value = value;
        row.stamp_us = stamp_us;
        Ok(())
    }
}
