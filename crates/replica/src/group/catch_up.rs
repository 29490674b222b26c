//! What members lack is read back from the log by a thread of its own, so that no write waits for that.

use crate::group::replica::Replica;
use diorite_base::TabletId;
use diorite_raft::{Entry, Fetch, LogReadError, LogReader};
use diorite_storage::{Engine, Log};

/// How often a read is tried: a file may be given back between finding an entry's place and reading it there.
const TRIES: usize = 3;

/// Entries of a tablet's log to be read for members that lack them.
pub struct LogRead<R> {
    tablet: TabletId,
    fetch: Fetch,
    reader: R,
}

/// What was read, for [`crate::Input`].
pub struct LogAnswer {
    pub(crate) tablet: TabletId,
    fetch: Fetch,
    entries: Result<Vec<Entry>, LogReadError>,
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

impl LogAnswer {
    pub(crate) fn into_parts(self) -> (Fetch, Result<Vec<Entry>, LogReadError>) {
        (self.fetch, self.entries)
    }
}

/// What members of a group lack.
pub(crate) fn reads_of<'a, E: Engine>(
    replica: &'a mut Replica<E>,
    log: &'a E::Log,
) -> impl Iterator<Item = LogRead<<E::Log as Log>::Reader>> + 'a {
    let (tablet, group_id) = (replica.id(), replica.group_id());
    let fetches = replica.group.take_fetches().into_iter();
    fetches.map(move |fetch| LogRead { tablet, fetch, reader: log.reader(group_id) })
}
