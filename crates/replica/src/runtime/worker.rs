//! A store thread: waits for its queue and drives its core.

use crate::group::catch_up::LogRead;
use crate::lifecycle::command::Command;
use crate::lifecycle::replicas::NodeReplicas;
use crate::runtime::core::{Core, Input, TICK_NS};
use crate::runtime::measurements::Measurement;
use crate::runtime::memory_gate::MemoryGate;
use crate::runtime::queue::{Queues, Taken};
use diorite_storage::{GroupReader, Rocks};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// The most log reads under way at a time: the entries of this many reads are in memory.
pub(crate) const READS_AT_ONCE: usize = 16;

/// One store thread.
pub(crate) struct Worker {
    replicas: Arc<NodeReplicas>,
    queues: Arc<Queues>,
    memory: Arc<MemoryGate>,
    number: usize,
    core: Core<Rocks>,
    /// Sends to the thread that reads the entries that members lack.
    reader: SyncSender<LogRead<GroupReader>>,
    /// Reads that were not sent to it yet: for each tablet at most one for each member.
    reads: VecDeque<LogRead<GroupReader>>,
    /// The number of reads that were sent to it and are not answered.
    reading: usize,
    /// Sends to the thread that measures rows.
    measurer: SyncSender<Measurement>,
}

impl Worker {
    pub(crate) fn new(
        replicas: Arc<NodeReplicas>,
        queues: Arc<Queues>,
        memory: Arc<MemoryGate>,
        number: usize,
        reader: SyncSender<LogRead<GroupReader>>,
        measurer: SyncSender<Measurement>,
    ) -> Self {
        let logs = replicas.disks.iter().map(|disk| Arc::new(disk.log.clone())).collect();
        let core = Core::new(Arc::clone(&replicas.context), logs);
        Self { replicas, queues, memory, number, core, reader, reads: VecDeque::new(), reading: 0, measurer }
    }

    /// Runs until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        let (mut input, mut commands) = (Input::default(), Vec::new());
        let mut ticked_ns = 0;
        loop {
            let timeout = self.core.wants_tick().then(|| Duration::from_nanos(TICK_NS));
            match self.queues[self.number].take(&mut input, &mut commands, timeout) {
                Taken::Closed => break,
                Taken::Nothing => {}
                Taken::Work => {
                    self.memory.wait_for_memory(&self.replicas, &self.core.progress);
                    self.core.progress.begin();
                    for command in commands.drain(..) {
                        self.command(command);
                    }
                    self.reading -= input.answers.len();
                    self.core.turn(&mut input);
                    self.watch_space();
                }
            }
            let now_ns = self.replicas.context.clock.monotonic_ns();
            if self.core.wants_tick() && now_ns >= ticked_ns + TICK_NS {
                ticked_ns = now_ns;
                self.core.progress.begin();
                self.core.tick();
            }
            self.ask_for_reads();
            self.ask_for_sizes();
            // The thread waits for its queue next, without a limit, or for memory.
            self.core.progress.rest();
        }
    }

    fn watch_space(&self) {
        let position = self.replicas.context.log_position.load(Ordering::Relaxed);
        self.replicas.disks.watch_space_while_writing(position, self.replicas.options.disk_reserve_bytes);
    }

    fn ask_for_reads(&mut self) {
        self.reads.extend(self.core.take_reads());
        while self.reading < READS_AT_ONCE
            && let Some(read) = self.reads.pop_front()
        {
            // The channel has capacity for this many, and the other thread ends after this one.
            let _ = self.reader.send(read);
            self.reading += 1;
        }
    }

    fn ask_for_sizes(&mut self) {
        for read in self.core.take_measurements() {
            // The channel has capacity for all that the cores ask for at a time, and the other thread ends after this
            // one.
            let _ = self.measurer.send(Measurement { worker: self.number, read });
        }
    }

    fn command(&mut self, command: Command) {
        self.core.progress.step();
        // The sender of a command may no longer wait for the reply.
        match command {
            Command::Open(replica, reply) => {
                let _ = reply.send(self.core.open(replica));
            }
            Command::Close(tablet, reply) => {
                let _ = reply.send(self.core.close(tablet));
            }
            Command::Detach(tablet, reply) => {
                let _ = self.core.detach(tablet);
                let _ = reply.send(Ok(()));
            }
            Command::PassTime(tablet) => self.core.pass_time(tablet),
            Command::StepDown(tablet) => self.core.step_down(tablet),
            Command::DetachForMove(tablet, reply) => {
                let _ = reply.send(self.core.detach_for_move(tablet));
            }
            Command::DetachFailed(tablet, reply) => {
                let _ = reply.send(self.core.detach_failed(tablet));
            }
            Command::Fail(tablet, reason) => self.core.fail_damaged(tablet, reason),
            Command::SeekLeader(tablet, nodes) => self.core.seek_leader(tablet, &nodes),
            Command::Flushed { tablet, index, force } => self.core.truncate(tablet, index, force),
            Command::Refresh(tablet) => self.core.refresh(tablet),
            Command::AnnouncePrepared(tablet) => self.core.announce_prepared(tablet),
            Command::AnnounceOpened(tablet) => self.core.announce_opened(tablet),
            Command::AnnounceData(tablet) => self.core.announce_data(tablet),
            Command::Split(tablet, split) => self.core.split(tablet, &split),
            Command::TransactionLearned(tablet, of, status) => self.core.transaction_learned(tablet, of, status),
            Command::TransactionFinished(tablet, id, participant) => {
                self.core.transaction_finished(tablet, id, participant);
            }
            Command::Reopen(tablet, number) => self.core.reopen(tablet, number),
            Command::Members(tablet, members) => self.core.set_members(tablet, members),
            Command::Describe(tablet, reply) => {
                let _ = reply.send(self.core.describe(tablet));
            }
            Command::ClockIsOff(is_off) => self.core.set_clock_is_off(is_off),
            Command::StepDownAll(reply) => {
                self.core.step_down_for_stop();
                let _ = reply.send(());
            }
        }
    }
}
