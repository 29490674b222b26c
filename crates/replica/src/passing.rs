//! Time passes: what a tablet's log is told of it beside the stamps of writes, and of `gc_grace_seconds`. Compaction knows no other time.
//!
//! Always true: only a leader says so, in an entry like any other; nobody waits for it. `gc_grace_seconds` goes with the next writes once it has
//! changed. An entry for the time alone is proposed once in [`IDLE_S`], by the leader of a tablet that is not written to and holds what time alone
//! would let go; all other idle tablets cost nothing.
//! Left out: what the time means for what is stored (`storage::expiry`).

use crate::core::Core;
use crate::entry::Payload;
use crate::handle::{Leadership, TabletHandle};
use crate::replica::Replica;
use diorite_base::TabletId;
use diorite_storage::{Engine, StorageError, UNKNOWN_GRACE_S};
use std::sync::atomic::Ordering;

/// The log of a tablet that holds what expires lags behind the clock by no more than this, about, seconds.
const IDLE_S: u32 = 86_400;

impl<E: Engine> Replica<E> {
    /// Lets the log know `gc_grace_seconds`, with the writes that are about to be proposed, if it does not.
    pub(crate) fn tell_grace(&mut self, payload: &mut Payload, wall_us: i64) {
        let wanted_s = self.handle.gc_grace_s.load(Ordering::Relaxed);
        let told = (self.group.term(), wanted_s);
        if wanted_s != UNKNOWN_GRACE_S && wanted_s != self.applied.gc_grace_s && self.told_grace != told {
            payload.push_time(self.stamps.stamp(wall_us), wanted_s);
            self.told_grace = told;
        }
    }
}

impl<E: Engine> Core<E> {
    /// Lets a tablet know the time, if it is led here and not written to.
    pub fn pass_time(&mut self, tablet: TabletId) {
        let wall_us = self.context.clock.wall_us();
        let Some(replica) = self.replicas.get_mut(&tablet) else { return };
        let may_propose = replica.may_propose() && replica.may_stamp() && replica.group.is_established_leader();
        if replica.failure.is_some() || !may_propose || !replica.fresh.is_empty() {
            return;
        }
        let mut payload = Payload::default();
        let wanted_s = replica.handle.gc_grace_s.load(Ordering::Relaxed);
        let grace_s = if wanted_s == UNKNOWN_GRACE_S { replica.applied.gc_grace_s } else { wanted_s };
        payload.push_time(replica.stamps.stamp(wall_us), grace_s);
        if let Err(error) = replica.group.propose(payload.take()) {
            tracing::debug!(%tablet, %error, "could not tell a tablet the time");
        }
        self.touch(tablet);
        self.advance();
    }
}

/// What an idle tablet needs to let go of what has expired.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    /// Its log is to be told the time, by this node, which leads it.
    pub(crate) entry: bool,
    /// What its log knows is to reach the disk.
    pub(crate) flush: bool,
}

/// Looks at one tablet, at this second.
pub(crate) fn due(handle: &TabletHandle, now_s: u32) -> Result<Due, StorageError> {
    if !handle.data.awaits_time() {
        return Ok(Due::default());
    }
    let applied_s = handle.data.applied_state()?.horizon.now_s;
    let flushed_s = handle.data.flushed_state()?.horizon.now_s;
    Ok(Due {
        entry: now_s.saturating_sub(applied_s) >= IDLE_S && handle.leadership() == Leadership::Here,
        flush: applied_s.saturating_sub(flushed_s) >= IDLE_S / 2,
    })
}
