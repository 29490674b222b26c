//! Why a copy, or a move to another disk, was not made.

use diorite_base::write::KvError;
use diorite_rpc::SendError;
use diorite_storage::StorageError;
use std::io;
use thiserror::Error;

/// Why a copy, or a move to another disk, was not made.
#[derive(Debug, Error)]
pub(crate) enum CopyError {
    /// Too many are under way; a later attempt may succeed.
    #[error("{0}")]
    Busy(&'static str),
    /// This node has no such replica (any more).
    #[error("there is no such replica here")]
    NoReplica,
    /// It was closed in the meantime.
    #[error("the replica was closed meanwhile")]
    Closed,
    /// The store is closing.
    #[error("the node is stopping")]
    Stopping,
    /// The copy was cancelled.
    #[error("it was cancelled")]
    Cancelled,
    /// The replica's data is newer, or changes faster than it can be copied.
    #[error("{0}")]
    Outdated(&'static str),
    /// The files of the former replica are still open.
    #[error("the old data is still being read")]
    InUse,
    /// Too little space is left.
    #[error("{0} bytes do not fit on the disk")]
    NoSpace(u64),
    /// The other node did not answer in time.
    #[error("no answer")]
    NoAnswer,
    /// The other node has ended it, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The other node does not keep to the protocol, or frames were lost.
    #[error("{0}")]
    Protocol(String),
    /// The leader is not known.
    #[error("the leader of the tablet is not known")]
    NoLeader,
    /// The operating system refused.
    #[error("cannot {action}: {source}")]
    Io {
        /// The action.
        action: String,
        /// The system's error.
        source: io::Error,
    },
    /// The replica could not be opened, and is set aside.
    #[error("it could not be opened and is set aside")]
    SetAside,
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Open(#[from] KvError),
    #[error(transparent)]
    Unreachable(#[from] SendError),
}

impl CopyError {
    /// For `map_err`: the operating system refused this action.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }
}
