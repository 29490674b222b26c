//! Forwards the consensus crate's `slog` records to `tracing`, at most at debug level: what matters to an operator
//! (leader changes) is logged by the replica layer in its own words.

use slog::{Drain, Logger, Never, OwnedKVList, Record, o};

struct Forward;

impl Drain for Forward {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record<'_>, _: &OwnedKVList) -> Result<(), Never> {
        if record.level().is_at_least(slog::Level::Warning) {
            tracing::debug!(target: "diorite_raft::core", "{}", record.msg());
        } else {
            tracing::trace!(target: "diorite_raft::core", "{}", record.msg());
        }
        Ok(())
    }
}

/// A logger for a group's core.
pub(crate) fn logger() -> Logger {
    Logger::root(Forward.fuse(), o!())
}
