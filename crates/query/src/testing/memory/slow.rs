//! What takes its time: reads of tablets whose leader is silent, which end at their deadlines, and the opening of tablets.
//!
//! Always true: while some leaders are silent, no read of other tablets begins after its deadline either; no change of the
//! catalog does, whether some are or not. Left out: writes.

use super::{MemoryKv, yield_once};
use crate::kv::KvError;
use diorite_base::TabletId;
use diorite_base::write::Waited;

/// How long a read takes at most, as on a node.
const READ_NS: u64 = 5_000_000_000;
/// How much time passes whenever a read that waits is polled.
const POLL_US: i64 = 1_000;

impl MemoryKv {
    /// From now on the leaders of these tablets are silent, and no others.
    pub fn silence(&self, tablets: &[TabletId]) {
        self.slow.lock().silent = tablets.to_vec();
    }

    /// From now on a change of the catalog is answered after so long.
    pub fn open_slowly(&self, opening_us: i64) {
        self.slow.lock().opening_us = opening_us;
    }

    /// Waits for the leader of a tablet, if it is silent: in vain.
    pub(super) async fn reached(&self, tablet: TabletId, deadline_ns: Option<u64>) -> Result<(), KvError> {
        let (is_quiet, is_silent) = {
            let slow = self.slow.lock();
            (!slow.silent.is_empty(), slow.silent.contains(&tablet))
        };
        let longest_ns = self.elapsed_ns() + READ_NS;
        let until_ns = deadline_ns.map_or(longest_ns, |deadline_ns| deadline_ns.min(longest_ns));
        while is_silent && self.elapsed_ns() < until_ns {
            self.elapse_us(POLL_US);
            yield_once().await;
        }
        let is_over = is_silent || is_quiet && self.elapsed_ns() >= until_ns;
        if is_over { Err(KvError::Timeout(Waited::in_vain(0))) } else { Ok(()) }
    }

    /// Refuses a change of the catalog whose time is over before it begins, as the catalog's leader does.
    pub(super) fn begun(&self, deadline_ns: Option<u64>) -> Result<(), KvError> {
        match deadline_ns.is_some_and(|deadline_ns| deadline_ns <= self.elapsed_ns()) {
            true => Err(KvError::Overloaded("the request ended before its write was proposed")),
            false => Ok(()),
        }
    }

    /// Lets the time pass that tablets take to open.
    pub(super) fn opened(&self) {
        let opening_us = self.slow.lock().opening_us;
        if opening_us > 0 {
            self.elapse_us(opening_us);
        }
    }
}
