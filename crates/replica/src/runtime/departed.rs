//! Notifies leaders on other nodes that replicas which they counted on have been closed here.
//!
//! A lease depends on the support between nodes, and on acknowledgements of replicas under that support. When a tablet
//! is dropped, each node closes its replica once it knows of the drop. A leader that cannot reach the catalog, but
//! still reaches these nodes, would answer reads of the dropped tablet for as long as the nodes support each other.
//!
//! Always true: a leader that is notified discards the acknowledgements of the replica, and ends its lease if too few
//! are left; discarding an acknowledgement is always safe. The notice is repeated, as frames may be lost; a node that
//! receives none within [`TIMES`] x [`AGAIN_NS`] receives nothing from this node, and so has no support from it either.
//! Left out: leaders of tablets that have moved away, which know of the move and ignore the notice.

use crate::group::turn::Outbox;
use crate::group::wire::Envelope;
use diorite_base::{GroupId, NodeId, TabletId};
use std::collections::BTreeMap;

/// How many times a leader is notified.
const TIMES: u32 = 8;
/// The time between two notices, nanoseconds.
const AGAIN_NS: u64 = 500_000_000;

#[derive(Debug)]
struct Notice {
    leader: u64,
    left: u32,
    next_ns: u64,
}

/// The leaders that are still to be notified, by closed replica.
#[derive(Debug, Default)]
pub(crate) struct Departed(BTreeMap<TabletId, Notice>);

impl Departed {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes that a replica which had made a promise to this leader has just been closed, durably.
    pub(crate) fn note(&mut self, tablet: TabletId, leader: u64) {
        self.0.insert(tablet, Notice { leader, left: TIMES, next_ns: 0 });
    }

    /// Posts the notices that are due. `is_here`: whether a replica has been opened again, so that its acknowledgements
    /// count.
    pub(crate) fn post(&mut self, outbox: &mut Outbox, now_ns: u64, is_here: impl Fn(TabletId) -> bool) {
        self.0.retain(|tablet, notice| {
            if is_here(*tablet) || notice.left == 0 {
                return false;
            }
            if now_ns >= notice.next_ns {
                notice.left -= 1;
                notice.next_ns = now_ns + AGAIN_NS;
                outbox.post_envelope(NodeId(notice.leader), GroupId::from(*tablet), &Envelope::Lost { index: 0 });
            }
            true
        });
    }
}
