//! At any instant of true time, at most one node would answer reads of a key, and as one tablet only: neither two
//! replicas, nor a tablet and its child.
//!
//! A lease begins only in an event of its node, so it is enough to check after every event.

use super::Finding;
use crate::ranges::KeyRange;
use diorite_base::{NodeId, TabletId};

/// `holders` are the replicas whose lease check would pass now, those of paused nodes included, as they may be resumed.
pub fn check(at_ns: u64, holders: &[(TabletId, KeyRange, NodeId)]) -> Result<(), Finding> {
    for (at, (tablet, range, node)) in holders.iter().enumerate() {
        let other = holders[at + 1..].iter().find(|(_, other, _)| other.overlaps(range));
        if let Some((second, _, elsewhere)) = other {
            let message = format!("{tablet} on {node} and {second} on {elsewhere} have leases of the same keys");
            return Err(Finding { checker: "leaseholder", at_ns, message });
        }
    }
    Ok(())
}
