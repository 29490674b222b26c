//! Promises to reads over several tablets: nothing is stamped at or below a stamp any more.
//!
//! A promise is in the leader's memory, and lasts as long as its lease. A leader that gives its lease up before it ends
//! has to leave an entry in the log that is stamped above its promises: the next leader stamps above that.

use super::{Leader, NotServing};
use crate::records::Records;
use crate::snapshot::Staged;
use crate::targets::Targets;

/// What becomes of a request to pin a tablet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pin {
    /// The tablet has stamped above it: this is its newest stamp, microseconds.
    TooLate(i64),
    /// Promised. The snapshot is to be taken when all that is appended now is applied, and nothing that is not.
    Promised,
}

impl Leader {
    /// A read wants the tablet as of a stamp. `newest_us` is the newest stamp that was appended or finished here.
    ///
    /// # Errors
    /// [`NotServing`]: as for [`Leader::request`].
    pub fn pin(&mut self, at_us: i64, newest_us: i64, has_lease: bool) -> Result<Pin, NotServing> {
        if !self.is_ready || !has_lease {
            return Err(NotServing);
        }
        if newest_us > at_us {
            return Ok(Pin::TooLate(newest_us));
        }
        self.promise(at_us);
        Ok(Pin::Promised)
    }

    pub(super) fn promise(&mut self, at_us: i64) {
        self.promised_us = self.promised_us.max(at_us);
    }

    /// Everything that is appended has to be stamped above this, microseconds.
    pub fn promised_us(&self) -> i64 {
        self.promised_us
    }

    /// Whether the leader may give up its lease before it ends, if the newest stamp that is applied is this one.
    /// Otherwise an entry stamped above [`Self::promised_us`] has to be applied first.
    pub fn may_give_up_lease(&self, applied_us: i64) -> bool {
        applied_us > self.promised_us || self.planted.promise_not_logged
    }
}

/// What a snapshot of a tablet has to keep of its prepares, for rows of these targets.
pub fn staged(records: &Records, targets: &Targets) -> Vec<Staged> {
    let is_read = |id| records.prepared(id).is_some_and(|record| record.prepare.targets.overlap(targets));
    let read = records.all_prepared().filter(|(id, _)| is_read(id));
    read.map(|(id, record)| Staged { id: *id, prepared_us: record.stamp_us, home: record.prepare.home.clone() })
        .collect()
}
