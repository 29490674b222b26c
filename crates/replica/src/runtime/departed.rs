//! Replicas that are closed while a leader elsewhere counts on them: it is notified that they are gone.
//!
//! A lease depends on the support between nodes, and on what replicas have acknowledged under it. When a tablet is dropped, its replicas go as their nodes learn of that; a leader that cannot reach
//! the catalog, and still reaches their nodes, would answer reads for as long as the nodes support each other, of a tablet that clients were told is gone.
//!
//! Always true: a leader that is notified forgets what the replica has acknowledged, and so its lease if too few are left; believing less than is true does no harm. It is notified again for a
//! while, as frames may be lost; a node that receives none of these within [`TIMES`] x [`AGAIN_NS`] receives nothing from this one, and has no support from it either. Left out: leaders of tablets that
//! have moved away, which know, and take no notice.

use crate::group::turn::Outbox;
use crate::group::wire::Envelope;
use diorite_base::{GroupId, NodeId, TabletId};
use std::collections::BTreeMap;

/// How often a leader is notified.
const TIMES: u32 = 8;
/// How long until it is notified again, nanoseconds.
const AGAIN_NS: u64 = 500_000_000;

#[derive(Debug)]
struct Notice {
    leader: u64,
    left: u32,
    next_ns: u64,
}

/// Which leaders are still notified of which replicas.
#[derive(Debug, Default)]
pub(crate) struct Departed(BTreeMap<TabletId, Notice>);

impl Departed {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A replica has just been closed, durably, that had promised something to this leader.
    pub(crate) fn note(&mut self, tablet: TabletId, leader: u64) {
        self.0.insert(tablet, Notice { leader, left: TIMES, next_ns: 0 });
    }

    /// Posts to those leaders for which it is time. `is_here`: whether a replica has come back, so that what it acknowledges counts again.
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
