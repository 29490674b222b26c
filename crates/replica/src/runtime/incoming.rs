//! Messages from replicas on other nodes, from their arrival until a store thread takes them.

use crate::group::wire::{Envelope, envelopes};
use crate::peers::liveness::Liveness;
use diorite_base::bytes::Malformed;
use diorite_base::{GroupId, NodeId};
use diorite_raft::Epoch;

/// A message from a replica on another node.
pub struct Incoming {
    pub(crate) from: NodeId,
    /// The epoch under which this node supported that one when the message arrived. A message may wait while the store
    /// thread waits for a disk, and the other node may have been restarted since.
    pub(crate) supported: Option<Epoch>,
    pub(crate) group: GroupId,
    pub(crate) envelope: Envelope,
}

impl Incoming {
    /// The messages of a frame of the Raft lane that has arrived now.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if that is no such frame.
    pub fn of_frame(liveness: &Liveness, from: NodeId, frame: &[u8]) -> Result<Vec<Self>, Malformed> {
        let supported = liveness.given_epoch(from.0);
        let arrived = |(group, envelope)| Self { from, supported, group, envelope };
        Ok(envelopes(frame)?.into_iter().map(arrived).collect())
    }
}
