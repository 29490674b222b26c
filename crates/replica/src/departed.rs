//! Replicas that are closed while a leader elsewhere counts on them: it is told that they are gone.
//!
//! A lease stands on the support between nodes, and on what replicas have acknowledged under it. When a tablet is dropped, its replicas go as their nodes hear of that; a leader that is cut off from
//! the catalog, and not from their nodes, would answer reads for as long as the nodes support each other, of a tablet that clients were told is gone.
//!
//! Always true: a leader that is told forgets what the replica has acknowledged, and so its lease if too few are left; believing less than is true does no harm. It is told again for a
//! while, as frames may be lost; a node that hears of none of that within [`TIMES`] x [`AGAIN_NS`] hears nothing from this one, and has no support from it either. Left out: leaders of tablets that
//! have moved away, which know, and take no notice.

use crate::core::Core;
use crate::wire::Envelope;
use diorite_base::{GroupId, NodeId, TabletId};
use diorite_storage::Engine;
use std::collections::BTreeMap;

/// How often a leader is told.
const TIMES: u32 = 8;
/// How long until it is told again, nanoseconds.
const AGAIN_NS: u64 = 500_000_000;

#[derive(Debug)]
struct Telling {
    leader: u64,
    left: u32,
    next_ns: u64,
}

/// Who is still told of which replicas.
#[derive(Debug, Default)]
pub(crate) struct Departed(BTreeMap<TabletId, Telling>);

impl Departed {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<E: Engine> Core<E> {
    /// The replica has just been closed, durably.
    pub(crate) fn tell_departed(&mut self, tablet: TabletId) {
        let Some(leader) = self.promised.get(&tablet).map(|promise| promise.leader) else { return };
        if leader != self.context.node.0 {
            self.departed.0.insert(tablet, Telling { leader, left: TIMES, next_ns: 0 });
            self.tell_departed_again(self.context.clock.monotonic_ns());
            self.send();
        }
    }

    /// Tells those whom it is time to tell again.
    pub(crate) fn tell_departed_again(&mut self, now_ns: u64) {
        if self.departed.is_empty() {
            return;
        }
        let mut departed = std::mem::take(&mut self.departed.0);
        departed.retain(|tablet, telling| {
            // It may have come back: what it acknowledges counts again.
            if self.replicas.contains_key(tablet) || telling.left == 0 {
                return false;
            }
            if now_ns >= telling.next_ns {
                telling.left -= 1;
                telling.next_ns = now_ns + AGAIN_NS;
                self.post_envelope(NodeId(telling.leader), GroupId::from(*tablet), &Envelope::Lost { index: 0 });
            }
            true
        });
        self.departed.0 = departed;
    }
}
