//! Dispatches frames of the bulk lane to their copies, and requests for copies to the leader's store.

use super::copies::Copies;
use super::wire::Frame;
use crate::context::CopyRequests;
use diorite_base::{NodeId, TabletId};
use std::sync::{Arc, Weak};

impl Copies {
    /// Takes a frame of the bulk lane.
    pub(crate) fn receive(self: &Arc<Self>, from: NodeId, bytes: &[u8]) {
        let Ok(frame) = Frame::decode(bytes) else {
            tracing::warn!(%from, "a malformed frame on the bulk lane");
            return;
        };
        match frame {
            Frame::Begin { copy, tablet, .. } => self.arrived(from, copy, Some(tablet), bytes),
            Frame::Piece { copy, .. }
            | Frame::Complete { copy, .. }
            | Frame::End { copy }
            | Frame::Alive { copy }
            | Frame::GivenUp { copy, .. } => {
                self.arrived(from, copy, None, bytes);
            }
            Frame::Have { .. } | Frame::Credit { .. } | Frame::Ended { .. } | Frame::Reached { .. } => {
                self.sending.lock().answered(from, &frame, self.now_ns());
            }
            Frame::Ask { copy, tablet, to, needed } => self.asked(from, copy, tablet, to, needed),
            Frame::Answer { copy, state, failure } => {
                self.asking.lock().answered(from, copy, state, failure, self.now_ns())
            }
            Frame::Reach { copy, tablet } => self.answer_reach(from, copy, tablet),
        }
    }
}

/// Passes requests on while the store lives.
pub(crate) struct Requests(pub(crate) Weak<Copies>);

impl CopyRequests for Requests {
    fn lacks(&self, tablet: TabletId, member: NodeId, able: &[NodeId]) {
        if let Some(copies) = self.0.upgrade() {
            copies.provide(tablet, member, able);
        }
    }
}
