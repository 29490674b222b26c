//! Tablets whose leader is silent: a read of them ends at its deadline.
//!
//! Always true: while some are silent, no read of others begins after its deadline either. Left out: writes.

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
        *self.silent.lock() = tablets.to_vec();
    }

    /// Waits for the leader of a tablet, if it is silent: in vain.
    pub(super) async fn reached(&self, tablet: TabletId, deadline_ns: Option<u64>) -> Result<(), KvError> {
        let (is_quiet, is_silent) = {
            let silent = self.silent.lock();
            (!silent.is_empty(), silent.contains(&tablet))
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
}
