//! The replicas that are set aside, and the state of their rebuilding.

use crate::group::memory::Memory;
use diorite_base::TabletId;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;

/// How soon after a replica was set aside the first step follows, nanoseconds, and how often it is examined afterwards.
pub(crate) const LOOK_NS: u64 = 1_000_000_000;
/// How long after an attempt that did not help the next one follows, nanoseconds. Doubled each time, up to the second
/// constant.
const AGAIN_NS: u64 = 10_000_000_000;
const AGAIN_AT_MOST_NS: u64 = 600_000_000_000;

/// A replica that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// The tablet.
    pub tablet: TabletId,
    /// The reason.
    pub reason: String,
    /// The index of its data directory.
    pub disk: usize,
    /// Whether it is being rebuilt from another replica.
    pub is_rebuilding: bool,
    /// Whether it is the only replica: it cannot be rebuilt, and serves the data that can be read.
    pub is_only: bool,
}

/// The state of one replica that is set aside.
#[derive(Debug)]
pub(crate) struct Aside {
    pub(crate) reason: String,
    pub(crate) disk: usize,
    pub(crate) is_damage: bool,
    pub(crate) is_only: bool,
    /// The index that another replica must have applied to be intact.
    pub(crate) needed: u64,
    /// What it must remember, once its core no longer holds it.
    pub(crate) memory: Option<Memory>,
    /// When the next step is due, nanoseconds.
    pub(crate) next_ns: u64,
    pub(crate) attempts: u32,
    pub(crate) is_rebuilding: bool,
}

/// Why a replica cannot be used.
pub(crate) struct Cause {
    pub(crate) reason: String,
    /// Whether its stored data is damaged, or cannot be applied.
    pub(crate) is_damage: bool,
    /// The index that another replica must have applied to be intact.
    pub(crate) needed: u64,
}

/// The replicas of a node that are set aside.
#[derive(Default)]
pub(crate) struct Asides(Mutex<BTreeMap<TabletId, Aside>>);

impl Asides {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<TabletId, Aside>> {
        self.0.lock()
    }

    /// Sets a replica aside. `memory`: what it must remember, if known.
    pub(crate) fn note(&self, tablet: TabletId, disk: usize, cause: Cause, memory: Option<Memory>, now_ns: u64) {
        let Cause { reason, is_damage, needed } = cause;
        tracing::error!(event = "aside", %tablet, reason, is_damage, "a replica is set aside; the others are served");
        let mut asides = self.lock();
        let before = asides.remove(&tablet);
        let attempts = before.as_ref().map_or(0, |aside| aside.attempts);
        let wait_ns = if attempts == 0 { LOOK_NS } else { again_ns(attempts) };
        let memory = memory.or_else(|| before.and_then(|aside| aside.memory));
        let next_ns = now_ns + wait_ns;
        let aside =
            Aside { reason, disk, is_damage, is_only: false, needed, memory, next_ns, attempts, is_rebuilding: false };
        asides.insert(tablet, aside);
    }

    /// Leaves a replica that was set aside as it is: it is the only one.
    pub(crate) fn keep_only(&self, tablet: TabletId) {
        if let Some(aside) = self.lock().get_mut(&tablet) {
            (aside.is_only, aside.next_ns) = (true, u64::MAX);
        }
    }

    pub(crate) fn list(&self) -> Vec<SetAside> {
        let status = |(tablet, aside): (&TabletId, &Aside)| SetAside {
            tablet: *tablet,
            reason: aside.reason.clone(),
            disk: aside.disk,
            is_rebuilding: aside.is_rebuilding,
            is_only: aside.is_only,
        };
        self.lock().iter().map(status).collect()
    }
}

pub(crate) fn again_ns(attempts: u32) -> u64 {
    AGAIN_NS.saturating_mul(1 << attempts.saturating_sub(1).min(16)).min(AGAIN_AT_MOST_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_become_rarer_up_to_a_bound() {
        let waits: Vec<u64> = (1..9).map(|attempts| again_ns(attempts) / 1_000_000_000).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 600, 600]);
        assert_eq!(again_ns(u32::MAX), AGAIN_AT_MOST_NS);
    }
}
