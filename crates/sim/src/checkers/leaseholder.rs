//! At any instant of true time at most one node would answer reads of a tablet.
//!
//! A lease begins only when a node does something, so it is enough to look after every event: whoever holds one too many holds it then.

use super::Finding;
use diorite_base::{NodeId, TabletId};

/// `holders` are the nodes whose lease check would pass now, those that are paused included: they could be resumed.
pub fn check(at_ns: u64, tablet: TabletId, holders: &[NodeId]) -> Result<(), Finding> {
    if holders.len() <= 1 {
        return Ok(());
    }
    Err(Finding { checker: "leaseholder", at_ns, message: format!("{tablet} has leases on {holders:?}") })
}
