//! A store thread: waits for its queue and drives its core.

use crate::catch_up::LogRead;
use crate::core::{Core, Input, TICK_NS};
use crate::describe::ReplicaState;
use crate::queue::Taken;
use crate::replica::{Members, Replica};
use crate::split::Split;
use crate::store::Inner;
use crate::upkeep;
use diorite_base::write::KvError;
use diorite_base::{NodeId, TabletId};
use diorite_raft::HardState;
use diorite_storage::{GroupReader, Rocks};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// Reads of the log under way at a time; the entries of as many are in memory at most.
pub(crate) const READS_AT_ONCE: usize = 16;

/// What a worker is told beside proposals and messages.
pub(crate) enum Command {
    /// Take this replica; answer when what is known to be committed is applied.
    Open(Box<Replica<Rocks>>, SyncSender<Result<(), KvError>>),
    /// Let go of this replica and its log records.
    Close(TabletId, SyncSender<Result<(), KvError>>),
    /// Let go of this replica, whose data a copy will replace.
    Detach(TabletId, SyncSender<Result<(), KvError>>),
    /// Let this tablet's log know the time, if it is led here.
    PassTime(TabletId),
    /// Let another replica lead.
    Yield(TabletId),
    /// Let go of this replica, which is about to be moved to another disk; answer what it must remember.
    Vacate(TabletId, SyncSender<Option<(HardState, (u64, u64))>>),
    /// Let go of this replica, whose disk has failed; answer what it must remember.
    Abandon(TabletId, SyncSender<Option<(HardState, (u64, u64))>>),
    /// What this replica has stored is damaged: it stops.
    Fail(TabletId, String),
    /// Ask these nodes whether they lead this tablet, of which nothing may be open here.
    Seek(TabletId, Vec<NodeId>),
    /// The tablet's data is durable up to this log index: the log may be cut there; if forced, even where other members lack entries.
    Flushed { tablet: TabletId, index: u64, force: bool },
    /// The members that the catalog wants.
    Members(TabletId, Members),
    /// Somebody reads from this follower: ask how far the leader is.
    Refresh(TabletId),
    /// The children of this tablet are prepared here: tell its leader.
    TellPrepared(TabletId),
    /// This replica of a new child is open: tell whoever is to lead.
    TellOpened(TabletId),
    /// Split this tablet, if it is led here.
    Split(TabletId, Split),
    /// Open this tablet again, if it is led here: its merge of this number was cancelled.
    Reopen(TabletId, u64),
    /// Say how this replica is.
    Describe(TabletId, SyncSender<Option<ReplicaState>>),
    /// This node's clock is off, or so no more.
    ClockIsOff(bool),
    /// Let others lead.
    Release(SyncSender<()>),
}

/// One store thread.
pub(crate) struct Worker {
    inner: Arc<Inner>,
    number: usize,
    core: Core<Rocks>,
    /// To the thread that reads from the log what members lack.
    reader: SyncSender<LogRead<GroupReader>>,
    /// What it is not asked for yet: for each tablet no more than it has members.
    reads: VecDeque<LogRead<GroupReader>>,
    /// How many reads it was asked for and has not answered.
    reading: usize,
}

impl Worker {
    pub(crate) fn new(inner: Arc<Inner>, number: usize, reader: SyncSender<LogRead<GroupReader>>) -> Self {
        let logs = inner.disks.iter().map(|disk| Arc::new(disk.log.clone())).collect();
        Self {
            core: Core::new(Arc::clone(&inner.context), logs),
            inner,
            number,
            reader,
            reads: VecDeque::new(),
            reading: 0,
        }
    }

    /// Runs until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        let (mut input, mut commands) = (Input::default(), Vec::new());
        let mut ticked_ns = 0;
        loop {
            let patience = self.core.wants_tick().then(|| Duration::from_nanos(TICK_NS));
            match self.inner.queues[self.number].take(&mut input, &mut commands, patience) {
                Taken::Closed => break,
                Taken::Nothing => {}
                Taken::Work => {
                    self.inner.wait_for_memory();
                    for command in commands.drain(..) {
                        self.command(command);
                    }
                    self.reading -= input.answers.len();
                    self.core.turn(&mut input);
                    upkeep::watch_space_while_writing(&self.inner);
                }
            }
            let now_ns = self.inner.context.clock.monotonic_ns();
            if self.core.wants_tick() && now_ns >= ticked_ns + TICK_NS {
                ticked_ns = now_ns;
                self.core.tick();
            }
            self.ask_for_reads();
        }
    }

    fn ask_for_reads(&mut self) {
        self.reads.extend(self.core.take_reads());
        while self.reading < READS_AT_ONCE
            && let Some(read) = self.reads.pop_front()
        {
            // The channel has room for as many, and the thread ends after this one.
            let _ = self.reader.send(read);
            self.reading += 1;
        }
    }

    fn command(&mut self, command: Command) {
        // Whoever asked may have given up waiting.
        match command {
            Command::Open(replica, reply) => {
                let _ = reply.send(self.core.open(replica));
            }
            Command::Close(tablet, reply) => {
                let _ = reply.send(self.core.close(tablet));
            }
            Command::Detach(tablet, reply) => {
                self.core.detach(tablet);
                let _ = reply.send(Ok(()));
            }
            Command::PassTime(tablet) => self.core.pass_time(tablet),
            Command::Yield(tablet) => self.core.give_way(tablet),
            Command::Vacate(tablet, reply) => {
                let _ = reply.send(self.core.vacate(tablet));
            }
            Command::Abandon(tablet, reply) => {
                let _ = reply.send(self.core.abandon(tablet));
            }
            Command::Fail(tablet, reason) => self.core.fail_damaged(tablet, reason),
            Command::Seek(tablet, nodes) => self.core.seek(tablet, &nodes),
            Command::Flushed { tablet, index, force } => self.core.truncate(tablet, index, force),
            Command::Refresh(tablet) => self.core.refresh(tablet),
            Command::TellPrepared(tablet) => self.core.tell_prepared(tablet),
            Command::TellOpened(tablet) => self.core.tell_opened(tablet),
            Command::Split(tablet, split) => self.core.split(tablet, &split),
            Command::Reopen(tablet, number) => self.core.reopen(tablet, number),
            Command::Members(tablet, members) => self.core.set_members(tablet, members),
            Command::Describe(tablet, reply) => {
                let _ = reply.send(self.core.describe(tablet));
            }
            Command::ClockIsOff(is_off) => self.core.set_clock_is_off(is_off),
            Command::Release(reply) => {
                self.core.release_all();
                let _ = reply.send(());
            }
        }
    }
}
