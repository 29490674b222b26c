//! Reads the entries that members lack from the log, on a thread of its own, so that no write waits for that.

use crate::group::replica::Replica;
use diorite_base::TabletId;
use diorite_raft::{Entry, Fetch, LogReadError, LogReader};
use diorite_storage::{Engine, Log};

/// How often a read is tried: a file may be freed between the look-up of an entry's place and the read.
const TRIES: usize = 3;

/// A read of entries of a tablet's log, for members that lack them.
pub struct LogRead<R> {
    tablet: TabletId,
    fetch: Fetch,
    reader: R,
}

/// The result of a read, for [`crate::Input`].
pub struct LogAnswer {
    pub(crate) tablet: TabletId,
    fetch: Fetch,
    entries: Result<Vec<Entry>, LogReadError>,
}

impl<R: LogReader> LogRead<R> {
    /// Carries out the read; waits for the disk.
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

impl LogAnswer {
    pub(crate) fn into_parts(self) -> (Fetch, Result<Vec<Entry>, LogReadError>) {
        (self.fetch, self.entries)
    }
}

/// The reads that members of a group need.
pub(crate) fn reads_of<'a, E: Engine>(
    replica: &'a mut Replica<E>,
    log: &'a E::Log,
) -> impl Iterator<Item = LogRead<<E::Log as Log>::Reader>> + 'a {
    let (tablet, group_id) = (replica.id(), replica.group_id());
    let fetches = replica.group.take_fetches().into_iter();
    fetches.map(move |fetch| LogRead { tablet, fetch, reader: log.reader(group_id) })
}
