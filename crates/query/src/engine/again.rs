//! Planning again what was certainly not begun, because the schema or the tablets have changed since it was planned.
//!
//! Always true: nothing is planned again once four fifths of the request's time have passed, so that the client still gets the
//! error; each try after the first waits, for longer each time, and goes on at once when this node receives another version of
//! the catalog. Left out: what is planned again (the callers).

use super::request::OwnedRequest;
use crate::budget::Budget;
use crate::exec::parts::{Means, Progress};
use crate::kv::Kv;
use crate::plan::{Plan, Planned};
use diorite_cql::protocol::{CqlError, ErrorKind};
use futures::future::select;
use std::pin::pin;

/// The first wait before a further try, and the longest. A tablet defines and drops what it maintains within about a tenth of a
/// second.
const FIRST_PAUSE_NS: u64 = 1_000_000;
const MAX_PAUSE_NS: u64 = 64_000_000;
/// How long a request without a deadline is planned again.
const WITHOUT_DEADLINE_NS: u64 = 1_000_000_000;

/// Until when a request is planned again, on the monotonic clock.
fn until_ns(budget: &Budget, arrived_ns: u64, now_ns: u64) -> u64 {
    match budget.deadline() {
        Some(deadline_ns) => deadline_ns - deadline_ns.saturating_sub(arrived_ns) / 5,
        None => now_ns.saturating_add(WITHOUT_DEADLINE_NS),
    }
}

/// The further tries of a write.
pub(super) struct Again {
    until_ns: u64,
    pause_ns: u64,
}

impl Again {
    /// Of a write whose first try has failed now.
    pub(super) fn of<K: Kv>(kv: &K, means: &Means<'_>) -> Self {
        let until_ns = until_ns(means.budget, means.arrived_ns, kv.monotonic_ns());
        Self { until_ns, pause_ns: FIRST_PAUSE_NS }
    }

    /// Whether there is time for a further try.
    pub(super) fn has_time<K: Kv>(&self, kv: &K) -> bool {
        kv.monotonic_ns() < self.until_ns
    }

    /// Waits before a further try of what was planned with this version of the catalog, or a later one; returns false at once if
    /// there is no time for it.
    pub(super) async fn pause<K: Kv>(&mut self, kv: &K, version: u64) -> bool {
        let left_ns = self.until_ns.saturating_sub(kv.monotonic_ns());
        if left_ns == 0 {
            return false;
        }
        let pause = pin!(kv.pause(self.pause_ns.min(left_ns.max(FIRST_PAUSE_NS))));
        self.pause_ns = (2 * self.pause_ns).min(MAX_PAUSE_NS);
        let changed = pin!(kv.catalog_after(version));
        select(pause, changed).await;
        true
    }
}

/// Whether a write that failed with this error is to be planned again from its text: certainly nothing of it was done, and a
/// table has changed since it was planned.
pub(super) fn is_outdated<'p, K: Kv>(
    kv: &K,
    planned: impl IntoIterator<Item = &'p Planned>,
    (request, progress): (&OwnedRequest, &Progress),
    error: &CqlError,
) -> bool {
    let may_be_repeated = matches!(error.kind, ErrorKind::Overloaded | ErrorKind::Unavailable { .. });
    if !may_be_repeated || !progress.is_certain() || request.budget.ended().is_some() {
        return false;
    }
    let (catalog, now_ns) = (kv.catalog(), kv.monotonic_ns());
    let is_write = |planned: &Planned| matches!(planned.plan, Plan::Modify(_) | Plan::Batch(_) | Plan::Block(_));
    let mut writes = planned.into_iter().filter(|planned| is_write(planned));
    let is_outdated = now_ns < until_ns(&request.budget, request.arrived_ns, now_ns)
        && writes.any(|planned| !planned.is_current(&catalog));
    if is_outdated {
        request.budget.note("Its table has changed: planning it again");
    }
    is_outdated
}
