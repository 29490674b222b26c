//! What members lack is read back from the log by a thread of its own, so that no write waits for that.

use crate::core::Core;
use crate::queue::Queue;
use crate::replica::Replica;
use diorite_base::{Clock, TabletId};
use diorite_raft::{Entry, Fetch, LogReader};
use diorite_storage::{Engine, GroupReader, Log, StorageError, run_at_lower_priority};
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// How often a read is tried: a file may be given back between finding an entry's place and reading it there.
const TRIES: usize = 3;

/// A disk that is slow must not be waited for twice.
const LONGEST_REST: Duration = Duration::from_millis(20);

/// Entries of a tablet's log to be read for members that lack them.
pub struct LogRead<R> {
    tablet: TabletId,
    fetch: Fetch,
    reader: R,
}

/// What was read, for [`crate::core::Input`].
pub struct LogAnswer {
    pub(crate) tablet: TabletId,
    fetch: Fetch,
    entries: Result<Vec<Entry>, String>,
}

impl<R: LogReader> LogRead<R> {
    /// Reads; waits for the disk.
    pub fn carry_out(self) -> LogAnswer {
        let mut entries = self.fetch.read(&self.reader);
        for _ in 1..TRIES {
            if entries.is_err() {
                entries = self.fetch.read(&self.reader);
            }
        }
        LogAnswer { tablet: self.tablet, fetch: self.fetch, entries }
    }
}

/// What members of a group lack.
pub(crate) fn reads_of<'a, E: Engine>(
    replica: &'a mut Replica<E>,
    log: &'a E::Log,
) -> impl Iterator<Item = LogRead<<E::Log as Log>::Reader>> + 'a {
    let (tablet, group_id) = (replica.id(), replica.group_id);
    let fetches = replica.group.take_fetches().into_iter();
    fetches.map(move |fetch| LogRead { tablet, fetch, reader: log.reader(group_id) })
}

impl<E: Engine> Core<E> {
    /// What is to be read from the log; the answers are for the next turns.
    pub fn take_reads(&mut self) -> Vec<LogRead<<E::Log as Log>::Reader>> {
        std::mem::take(&mut self.reads)
    }

    /// Sends what was read to those who lack it.
    pub(crate) fn take_answer(&mut self, answer: LogAnswer) {
        let LogAnswer { tablet, fetch, entries } = answer;
        let Some(replica) = self.replicas.get_mut(&tablet).filter(|replica| replica.failure.is_none()) else { return };
        if let Err(error) = replica.group.fetched(&fetch, entries) {
            self.fail(tablet, &StorageError::Log(error.to_string()));
        }
        self.touch(tablet);
    }
}

/// Carries out reads until the store thread that asks for them ends. Rests as long as it reads: what it reads is also to be sent, written and applied, by
/// threads that make way for nobody.
#[allow(
    clippy::disallowed_methods,
    reason = "a rest waits for nothing but time; it is short, so that the end of the store need not end it"
)]
pub(crate) fn read_back(clock: &dyn Clock, queue: &Queue, reads: &Receiver<LogRead<GroupReader>>) {
    run_at_lower_priority();
    while let Ok(read) = reads.recv() {
        let began_ns = clock.monotonic_ns();
        queue.answer(read.carry_out());
        let took_ns = clock.monotonic_ns().saturating_sub(began_ns);
        std::thread::sleep(Duration::from_nanos(took_ns).min(LONGEST_REST));
    }
}
