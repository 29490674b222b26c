//! The exchange of frames between nodes: byte strings whose meaning is not known here.
//!
//! Between two nodes there is one one-way connection per [`Lane`] and direction, so that bulk data does not delay
//! heartbeats. [`tcp`] is the real network, [`memory`] connects several nodes of one process in tests. The bytes are
//! described in `docs/formats/rpc.md`.
//!
//! Always true: sending never waits; frames of one lane from one node to another arrive in the order in which they were sent, each at most
//! once, and any may be lost with its connection; what waits to be sent is bounded. A receiver learns of the end of each
//! connection, in either direction ([`ConnectionEvent`]).
//!
//! Left out: what certificates are and whom they belong to (`diorite_certs`); acknowledgements and retries (consensus and the callers' timeouts do that).

mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod hello;
pub mod memory;
pub mod tcp;

pub use frame::MAX_FRAME_BYTES;

use diorite_base::{Level, Levels, NodeId};
use thiserror::Error;

/// A lane: which connection between two nodes a frame travels on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// Heartbeats, and other messages that must not wait for bulk data.
    Control,
    /// Consensus messages.
    Raft,
    /// Requests of clients that are routed to another node, and the answers.
    Requests,
    /// Copies of whole replicas.
    Bulk,
    /// Operators' requests and reports, and reports for the balancer.
    Operations,
}

impl Lane {
    /// All lanes, each at the place that [`Lane::index`] names.
    pub const ALL: [Self; Self::COUNT] = [Self::Control, Self::Raft, Self::Requests, Self::Bulk, Self::Operations];

    /// How many there are.
    pub const COUNT: usize = 5;

    /// Its place in [`Lane::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// The name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Raft => "raft",
            Self::Requests => "requests",
            Self::Bulk => "bulk",
            Self::Operations => "operations",
        }
    }
}

/// Why a frame was not queued. No byte of it was sent or will be, so the caller may send it again. A frame that was
/// queued may still be lost.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum SendError {
    /// Too much waits to be sent to that node, or the frame is larger than [`MAX_FRAME_BYTES`].
    #[error("too much waits to be sent to the node")]
    Full,
    /// There is no connection at the moment.
    #[error("the node is not connected")]
    Down,
}

/// Carries frames to other nodes.
pub trait Transport: Send + Sync + 'static {
    /// Queues `frame` for `to`; never waits.
    fn send(&self, to: NodeId, lane: Lane, frame: &[u8]) -> Result<(), SendError>;

    /// Queues several frames for `to`, in this order; a transport may send them together. After an error none of them
    /// is sent; a transport that can guarantee this only for a later part treats that part as lost.
    fn send_many(&self, to: NodeId, lane: Lane, frames: &[&[u8]]) -> Result<(), SendError> {
        let Some((first, rest)) = frames.split_first() else { return Ok(()) };
        self.send(to, lane, first)?;
        let _ = rest.iter().try_for_each(|frame| self.send(to, lane, frame));
        Ok(())
    }

    /// The level of what may be said to `to` on `lane` now: the highest that the programs on both ends know. By
    /// default, both are this program.
    fn level(&self, _to: NodeId, _lane: Lane) -> Level {
        Levels::OWN.greatest
    }
}

/// What happens to one of the two connections of a lane to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEvent<'a> {
    /// Frames can be sent to the node.
    OutgoingBegan,
    /// Frames can no longer be sent to the node. Any that were sent on this connection may be lost; those in the kernel's
    /// buffers may still arrive, but not after a frame of the next connection.
    OutgoingEnded {
        /// The frames that were queued and of which certainly no byte was sent, in the order in which they were queued.
        unsent: &'a [&'a [u8]],
    },
    /// Frames that the node sends are received.
    IncomingBegan,
    /// No further frame of this connection is received. Any that the node has sent on it may be lost.
    IncomingEnded,
}

/// Takes frames from other nodes.
pub trait Receiver: Send + Sync + 'static {
    /// Takes one frame. Called in the order of arrival for each lane of each node; must not wait.
    fn receive(&self, from: NodeId, lane: Lane, frame: &[u8]);

    /// A connection of a lane to or from `node` has begun or ended. Must not wait. The events of a direction come one
    /// after the other: an end before the beginning of the next connection, and after every frame that was received on, or
    /// queued for, the connection that has ended.
    fn connection(&self, _node: NodeId, _lane: Lane, _event: ConnectionEvent<'_>) {}
}

/// The transport of a node without peers: nothing can be sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTransport;

impl Transport for NoTransport {
    fn send(&self, _: NodeId, _: Lane, _: &[u8]) -> Result<(), SendError> {
        Err(SendError::Down)
    }
}
