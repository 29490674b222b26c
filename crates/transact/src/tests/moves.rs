//! What may happen next in the model.

use super::client::{Outstanding, Reader, ReaderStage, WriterStage, is_answer};
use super::explore::System;
use super::quiet::Quiet;
use super::snapshots::{LEASE_NS, SnapshotStage};
use super::world::{Message, Source, World};
use crate::coordinator::Outcome;
use crate::leader::{Known, Seen};
use crate::locks::Wait;
use crate::message::{Reply, Request, Status};
use diorite_base::TabletId;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Longer than every timeout.
pub const JUMP_NS: u64 = 20_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    Deliver(usize),
    /// A message arrives, and will arrive again.
    Repeat(usize),
    Lose(usize),
    /// A request reaches the replica that led before.
    Misroute(usize),
    /// A coordinator no longer waits for the answer to a request.
    TimeOut(usize, usize),
    /// A commit that brings the home's part fails.
    Fail(usize),
    Die(usize),
    Apply(usize),
    /// Another replica leads a tablet, with so many of the entries that are not applied.
    ChangeLeader(usize, usize),
    Sweep(usize),
    Jump,
    Write(usize),
    Look(usize),
    Read(usize),
    /// A read of several tablets begins.
    Snapshot(usize),
    /// A leader is asked to let another replica lead at once.
    Transfer(usize),
}

/// The system that is explored.
pub struct Model {
    quiet: Quiet,
    /// Requests may reach the replica that led before.
    has_former_leaders: bool,
    /// A planted bug: readers read a row before they look at its lock.
    read_before_look: bool,
    pub reached: Reached,
}

/// What has happened in some state, so that scenarios that no longer reach it fail.
pub type Reached = BTreeSet<&'static str>;

/// The one move that has to be looked at, if the others lose nothing by waiting for it: a reply to a client that waits
/// for nothing else. It changes only that client, and messages are delayed as long as need be. Nothing can prevent it
/// once no more faults, deaths and timeouts may happen.
fn only(world: &World) -> Option<Move> {
    let is_safe = world.budget.faults == 0 && world.budget.jumps == 0;
    let is_next = |message: &Message| match message {
        Message::Reply { to: Source::Client(client), .. } => {
            matches!(&world.clients[*client].outstanding[..], [waits] if !waits.is_lost)
        }
        _ => false,
    };
    let at = world.network.iter().position(|it| is_safe && is_next(&it.message))?;
    Some(Move::Deliver(at))
}

impl Model {
    pub fn new(quiet: Quiet, has_former_leaders: bool, read_before_look: bool) -> Self {
        Self { quiet, has_former_leaders, read_before_look, reached: Reached::default() }
    }

    fn messages(&self, world: &World, moves: &mut Vec<Move>) {
        for (at, in_network) in world.network.iter().enumerate() {
            if world.budget.faults > 0 {
                moves.push(Move::Repeat(at));
                moves.push(Move::Lose(at));
                moves.extend(may_fail(&in_network.message).then_some(Move::Fail(at)));
            }
            if let Message::Request { to, request, .. } = &*in_network.message
                && self.has_former_leaders
                && world.tablets[*to].former.is_some()
                && matches!(request, Request::Status { .. } | Request::Finish { .. } | Request::Commit { .. })
            {
                moves.push(Move::Misroute(at));
            }
            moves.push(Move::Deliver(at));
        }
    }

    fn look(&self, world: &mut World, reader: usize) -> Result<(), String> {
        let reading = world.readers[reader].clone();
        let tablet = &world.tablets[reading.tablet];
        let (known, at_least_us) = match reading.stage {
            ReaderStage::New => (None, world.past.seen_us(reading.tablet, reading.key)),
            ReaderStage::Looks(known) => (known, reading.at_least_us),
            ReaderStage::HasRead { .. } => (None, reading.at_least_us),
            ReaderStage::Asks { .. } | ReaderStage::Reads { .. } | ReaderStage::Ended => return Ok(()),
        };
        let Ok(seen) = tablet.leader.look(&tablet.records, &[reading.key], known, true) else { return Ok(()) };
        let mut read_us = None;
        let (term, stored_us) = (tablet.term, tablet.rows[&reading.key].stamp_us);
        let stage = match (reading.stage, seen) {
            (ReaderStage::HasRead { term: of_term, stamp_us }, Seen::Stored) => {
                read_us = (of_term == term).then_some(stamp_us);
                ReaderStage::Ended
            }
            (ReaderStage::New, _) if self.read_before_look => ReaderStage::HasRead { term, stamp_us: stored_us },
            (_, Seen::Stored) => ReaderStage::Reads { term },
            (_, Seen::Staged { committed_us, .. }) => {
                read_us = Some(committed_us);
                ReaderStage::Ended
            }
            (_, Seen::Locked { id, prepared_us, .. }) => {
                let (from, to) = (Source::Reader(reader), world.index(id.tablet));
                let request = Request::Status { id, of: Some((tablet.id, prepared_us)), at_us: None };
                world.post(Message::Request { from, to, request });
                ReaderStage::Asks { id, prepared_us }
            }
        };
        world.readers[reader].stage = stage;
        world.readers[reader].at_least_us = at_least_us;
        read_us.map_or(Ok(()), |stamp_us| world.has_read(reading.tablet, reading.key, stamp_us, at_least_us))
    }

    fn apply_move(&self, world: &mut World, next: Move) -> Result<(), String> {
        match next {
            Move::Deliver(at) => {
                let message = world.network.remove(at).message;
                world.deliver(&message)
            }
            Move::Repeat(at) => {
                world.budget.faults -= 1;
                let message = Rc::clone(&world.network[at].message);
                world.deliver(&message)
            }
            Move::Lose(at) => {
                world.budget.faults -= 1;
                world.lose(at);
                Ok(())
            }
            Move::Misroute(at) => match &*world.network.remove(at).message {
                Message::Request { from, to, request } => world.deliver_to_former(*from, *to, request),
                _ => Ok(()),
            },
            Move::TimeOut(client, at) => world.time_out(client, at),
            Move::Fail(at) => {
                world.budget.faults -= 1;
                world.fail(at)
            }
            Move::Die(client) => {
                world.budget.faults -= 1;
                world.forget_coordinator(client);
                Ok(())
            }
            Move::Apply(tablet) => world.apply_next(tablet),
            Move::ChangeLeader(tablet, kept) => {
                world.budget.leader_changes -= 1;
                if !world.snapshots.is_empty() {
                    world.now_ns += LEASE_NS;
                }
                world.replace_leader(tablet, kept);
                Ok(())
            }
            Move::Sweep(tablet) => {
                world.budget.sweeps -= 1;
                world.sweep(tablet)
            }
            Move::Jump => {
                world.budget.jumps -= 1;
                world.now_ns += JUMP_NS;
                Ok(())
            }
            Move::Write(writer) => world.write(writer),
            Move::Look(reader) => self.look(world, reader),
            Move::Read(reader) => world.read(reader),
            Move::Snapshot(reader) => world.begin_snapshot(reader),
            Move::Transfer(tablet) => {
                world.transfer(tablet);
                Ok(())
            }
        }
    }
}

impl System for Model {
    type State = World;
    type Move = Move;

    fn moves(&self, world: &World) -> Vec<Move> {
        if let Some(next) = only(world) {
            return vec![next];
        }
        let mut moves = Vec::new();
        let budget = world.budget;
        for (at, tablet) in world.tablets.iter().enumerate() {
            if budget.leader_changes > 0 {
                moves.extend((0..=tablet.log.len()).map(|kept| Move::ChangeLeader(at, kept)));
            }
            if budget.sweeps > 0 && (!tablet.is_quiet() || world.now_ns > 0) {
                moves.push(Move::Sweep(at));
            }
        }
        if !world.snapshots.is_empty() && budget.leader_changes > 0 {
            let at_rest = world.tablets.iter().enumerate();
            let may_transfer = at_rest.filter(|(_, tablet)| tablet.log.is_empty() && tablet.leader.is_ready());
            moves.extend(may_transfer.map(|(at, _)| Move::Transfer(at)));
        }
        let new = world.snapshots.iter().enumerate().filter(|(_, reader)| reader.stage == SnapshotStage::New);
        moves.extend(new.map(|(at, _)| Move::Snapshot(at)));
        if budget.jumps > 0 {
            moves.push(Move::Jump);
        }
        for (at, client) in world.clients.iter().enumerate() {
            if client.coordinator.is_some() && client.has_started && budget.faults > 0 {
                moves.push(Move::Die(at));
            }
            let in_vain = client.outstanding.iter().enumerate().filter(|(_, it)| it.is_lost || budget.faults > 0);
            moves.extend(in_vain.map(|(waits, _)| Move::TimeOut(at, waits)));
        }
        for (at, writer) in world.writers.iter().enumerate() {
            moves.extend((writer.stage == WriterStage::New).then_some(Move::Write(at)));
        }
        for (at, reader) in world.readers.iter().enumerate() {
            match reader.stage {
                ReaderStage::New | ReaderStage::Looks(_) | ReaderStage::HasRead { .. } => moves.push(Move::Look(at)),
                ReaderStage::Reads { .. } => moves.push(Move::Read(at)),
                ReaderStage::Asks { .. } | ReaderStage::Ended => {}
            }
        }
        self.messages(world, &mut moves);
        let busy = world.tablets.iter().enumerate().filter(|(_, tablet)| !tablet.log.is_empty());
        moves.extend(busy.map(|(at, _)| Move::Apply(at)));
        moves
    }

    fn after(&self, world: &World, next: &Move) -> Result<World, String> {
        let mut after = world.clone();
        self.apply_move(&mut after, *next)?;
        Ok(after)
    }

    fn check(&mut self, world: &World) -> Result<(), String> {
        let answers = world.clients.iter().filter_map(|client| client.outcome);
        self.reached.extend(answers.map(|outcome| match outcome {
            Outcome::Applied(_) => "Applied",
            Outcome::ConditionFailed => "ConditionFailed",
            Outcome::Conflict => "Conflict",
            Outcome::Unavailable => "Unavailable",
            Outcome::Unknown => "Unknown",
        }));
        let is_staged =
            |reader: &Reader| matches!(reader.stage, ReaderStage::Looks(Some(known)) if is_committed(known));
        self.reached.extend(world.readers.iter().any(is_staged).then_some("read of a staged row"));
        self.reached.extend(world.past.has_snapshots().then_some("snapshot"));
        self.quiet.ends(world)
    }
}

fn may_fail(message: &Message) -> bool {
    matches!(message, Message::Request { request: Request::Commit { part: Some(_), .. }, .. })
}

fn is_committed(known: Known) -> bool {
    matches!(known.status, Status::Committed(_))
}

impl World {
    /// A message is lost: whoever waits for what it is, or asks for, waits in vain.
    fn lose(&mut self, at: usize) {
        match &*self.network.remove(at).message {
            Message::Request { from: Source::Client(client), request, .. } => self.mark_lost(*client, request),
            Message::Reply { from, to: Source::Client(client), reply } => {
                let mut answered = (*self.clients[*client]).clone();
                answered.receives(self.tablets[*from].id, reply);
                let client = Rc::make_mut(&mut self.clients[*client]);
                for waits in &mut client.outstanding {
                    waits.is_lost |= !answered.outstanding.iter().any(|other| other.request == waits.request);
                }
            }
            Message::Request { from: Source::Reader(reader), .. }
            | Message::Reply { to: Source::Reader(reader), .. } => {
                self.readers[*reader].stage = ReaderStage::Ended;
            }
            Message::Request { .. } | Message::Reply { .. } | Message::Pin { .. } | Message::PinAnswer { .. } => {}
        }
    }

    fn fail(&mut self, at: usize) -> Result<(), String> {
        let message = self.network.remove(at).message;
        let Message::Request { from: Source::Client(client), request: request @ Request::Commit { id, .. }, .. } =
            &*message
        else {
            return Ok(());
        };
        let failed = Rc::make_mut(&mut self.clients[*client]);
        failed.outstanding.retain(|waits| waits.request != *request);
        if let Some(coordinator) = &mut failed.coordinator {
            coordinator.commit_failed(*id);
        }
        self.run_coordinator(*client)
    }

    pub fn time_out(&mut self, client: usize, at: usize) -> Result<(), String> {
        let now_ns = self.now_ns;
        let waiting = Rc::make_mut(&mut self.clients[client]);
        let waits = waiting.outstanding.remove(at);
        if !waits.is_lost {
            self.budget.faults -= 1;
        }
        if let Some(coordinator) = &mut waiting.coordinator {
            coordinator.unanswered(waits.to, &waits.request, now_ns);
        }
        self.run_coordinator(client)
    }

    pub fn replace_leader(&mut self, at: usize, kept: usize) {
        let (timing, planted, now_ns) = (self.timing, self.planted, self.now_ns);
        let tablet = Rc::make_mut(&mut self.tablets[at]);
        tablet.change_leader(kept, timing, planted, now_ns);
        let id = tablet.id;
        self.replaced(at, id);
    }

    /// Whoever waits for the former leader waits in vain.
    fn replaced(&mut self, at: usize, id: TabletId) {
        for client in 0..self.clients.len() {
            let answers = |message: &Message, request: &Request| match message {
                Message::Reply { from, to: Source::Client(to), reply } => {
                    (*from, *to) == (at, client) && is_answer(reply, request)
                }
                _ => false,
            };
            let is_on_its_way =
                |waits: &Outstanding| self.network.iter().any(|it| answers(&it.message, &waits.request));
            let is_in_vain = |waits: &Outstanding| waits.to == id && !waits.is_lost && !is_on_its_way(waits);
            if self.clients[client].outstanding.iter().any(is_in_vain) {
                let client = Rc::make_mut(&mut self.clients[client]);
                client.outstanding.iter_mut().filter(|waits| is_in_vain(waits)).for_each(|waits| waits.is_lost = true);
            }
        }
        for writer in self.writers.iter_mut().filter(|writer| writer.tablet == at) {
            if writer.stage == WriterStage::Waits {
                writer.stage = WriterStage::Ended;
            }
        }
    }

    pub fn sweep(&mut self, at: usize) -> Result<(), String> {
        let now_ns = self.now_ns;
        let tablet = Rc::make_mut(&mut self.tablets[at]);
        tablet.leader.sweep(&tablet.records, now_ns);
        self.run_leader(at)
    }

    pub fn write(&mut self, writer: usize) -> Result<(), String> {
        let (at, key) = (self.writers[writer].tablet, self.writers[writer].key);
        let wait = Wait::Until(self.now_ns + self.timing.wait_ns);
        let is_accepted = Rc::make_mut(&mut self.tablets[at]).write(writer as u64, key, wait);
        self.writers[writer].stage = if is_accepted { WriterStage::Waits } else { WriterStage::Ended };
        self.run_leader(at)
    }

    /// The row is read some time after the lock was looked at; a reader checks that the lease has lasted.
    fn read(&mut self, reader: usize) -> Result<(), String> {
        let reading = self.readers[reader].clone();
        let ReaderStage::Reads { term } = reading.stage else { return Ok(()) };
        self.readers[reader].stage = ReaderStage::Ended;
        let tablet = &self.tablets[reading.tablet];
        let stamp_us = tablet.rows[&reading.key].stamp_us;
        if tablet.term != term {
            return Ok(());
        }
        self.has_read(reading.tablet, reading.key, stamp_us, reading.at_least_us)
    }

    /// The home has answered a reader.
    pub fn reader_learned(&mut self, reader: usize, reply: Reply) {
        if let (ReaderStage::Asks { id, prepared_us }, Reply::Status { id: of, status }) =
            (self.readers[reader].stage, reply)
            && id == of
        {
            self.readers[reader].stage = ReaderStage::Looks(Some(Known { id, prepared_us, status }));
        }
    }
}
