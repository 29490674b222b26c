//! The outcome of a read or write of a tablet: the error kinds, each named by what the caller may do, and the sink
//! through which completed writes return in batches.

use crate::program::Unprovable;
use crate::{NodeId, TabletId};
use thiserror::Error;

/// Why a tablet has not carried out a request. The variants differ in what the caller may do. All but
/// [`KvError::Timeout`] and [`KvError::Storage`] promise that a write had no effect and never will have one.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum KvError {
    /// The tablet has no leader at the moment; retry.
    #[error("{0} has no leader at the moment")]
    Unavailable(TabletId),
    /// This replica does not lead the tablet, and has done nothing: ask the leader, if it is known.
    #[error("{tablet} is led elsewhere")]
    NotLeader {
        /// The tablet.
        tablet: TabletId,
        /// Its leader, as far as this replica knows.
        leader: Option<NodeId>,
    },
    /// A bounded queue is full; back off and retry.
    #[error("overloaded: {0}")]
    Overloaded(&'static str),
    /// The outcome is not known.
    #[error("{}", how_it_ended(.0))]
    Timeout(Waited),
    /// The tablet does not exist (any more): plan again with the current catalog.
    #[error("{0} does not exist")]
    NoSuchTablet(TabletId),
    /// The disk is full; reads and deletes still work.
    #[error("disk full: {0}")]
    DiskFull(String),
    /// The request is over a limit, which the text names. It had no effect, and never will have one.
    #[error("{0}")]
    TooLarge(String),
    /// Rows that a read wants are prepared by a transaction, or the snapshot that it names is not kept any more: the
    /// read goes on from a new snapshot.
    #[error("rows of {0} are held by a transaction")]
    Locked(TabletId),
    /// The tablet is still building the index that a read uses, and has too many rows to read them all: another index may
    /// serve the read.
    #[error("an index that this query needs is still being built: try again later, or use ALLOW FILTERING")]
    IndexBeingBuilt,
    /// The write takes no notice of a unique index or a view that the tablet maintains: plan it again. If the catalog has
    /// none that was left out, the tablet is about to drop it: send it again a moment later.
    #[error("the write was planned without a unique index or a view that its tablet has: try again")]
    Unmaintained,
    /// The storage reported an error, which needs an operator's attention.
    #[error("storage error: {0}")]
    Storage(String),
}

impl KvError {
    /// Whether it is certain that a write which failed with this error had no effect and never will have one.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Unavailable(_)
            | Self::NotLeader { .. }
            | Self::Overloaded(_)
            | Self::NoSuchTablet(_)
            | Self::DiskFull(_)
            | Self::TooLarge(_)
            | Self::Locked(_)
            | Self::IndexBeingBuilt
            | Self::Unmaintained => true,
            Self::Timeout(_) | Self::Storage(_) => false,
        }
    }

    /// Whether a write was refused because of how it was planned: its tablet does not exist any more, or maintains more. It
    /// is planned again.
    pub fn is_of_plan(&self) -> bool {
        matches!(self, Self::NoSuchTablet(_) | Self::Unmaintained)
    }
}

impl From<Unprovable> for KvError {
    fn from(error: Unprovable) -> Self {
        KvError::TooLarge(error.to_string())
    }
}

/// The progress of a request that has timed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waited {
    /// The duration of the wait, milliseconds.
    pub after_ms: u64,
    /// Replicas known to hold the write durably; 0 if the node that waited was not the tablet's leader.
    pub received: u32,
    /// Replicas that must hold it; 0 if the node that waited does not know.
    pub required: u32,
}

/// A wait of 0 ms means that the replica, the node, or a connection with it has ended, so that no answer can come.
fn how_it_ended(waited: &Waited) -> String {
    match waited.after_ms {
        0 => "the replica or the node that was asked has ended, or the connection with it".to_owned(),
        after_ms => format!("timed out after {after_ms} ms"),
    }
}

impl Waited {
    /// A wait of this duration; how far the request had got is unknown. At least 1 ms, as 0 means something else.
    pub fn in_vain(after_ms: u64) -> Self {
        Self { after_ms: after_ms.max(1), ..Self::default() }
    }

    /// No wait: the replica, the node, or a connection with it has ended, so that no answer can come.
    pub fn ended() -> Self {
        Self::default()
    }
}

/// The answer to an applied write: empty for a blind mutation, the evaluator's reply for an evaluated one.
pub type WriteReply = Vec<u8>;

/// One completed write: the tag given at submission, and the outcome.
pub type Completion = (u64, Result<WriteReply, KvError>);

/// Receives completed writes, many at a time, so that a connection is woken once for all of them.
pub trait WriteSink: Send + Sync {
    /// Takes (and empties) `done`.
    fn complete(&self, done: &mut Vec<Completion>);
}
