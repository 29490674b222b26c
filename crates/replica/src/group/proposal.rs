//! Writes that are to be proposed, and their waiters.

use diorite_base::mutation::Mutation;
use diorite_base::program::{Target, Unprovable};
use diorite_base::write::WriteSink;
use diorite_base::{GroupId, NodeId, TabletId};
use std::sync::Arc;

/// The receiver of a write's outcome.
pub(crate) struct Waiter {
    pub(crate) sink: Arc<dyn WriteSink>,
    pub(crate) token: u64,
    /// When the request ends, on the monotonic clock; [`NO_DEADLINE`]: at the write timeout.
    pub(crate) deadline_ns: u64,
}

/// The deadline of a write whose request has none.
pub const NO_DEADLINE: u64 = u64::MAX;

/// A write that is to be proposed.
pub struct Proposal {
    pub(crate) tablet: TabletId,
    pub(crate) mutation: Mutation,
    pub(crate) waiter: Waiter,
}

impl Proposal {
    /// A write to `tablet`, whose outcome goes to `sink` under the tag `token`; an error if replicas could not apply
    /// it.
    pub fn new(tablet: TabletId, mutation: Mutation, sink: Arc<dyn WriteSink>, token: u64) -> Result<Self, Unprovable> {
        let target = if GroupId::from(tablet) == GroupId::CATALOG { Target::Catalog } else { Target::Rows };
        mutation.check_for(target)?;
        Ok(Self { tablet, mutation, waiter: Waiter { sink, token, deadline_ns: NO_DEADLINE } })
    }

    /// Sets the end of the request, on the monotonic clock: the write is not proposed after it, and an outcome after it
    /// is not delivered.
    pub fn until(mut self, deadline_ns: u64) -> Self {
        self.waiter.deadline_ns = deadline_ns;
        self
    }

    /// The size of the entry's content in bytes.
    pub fn size_bytes(&self) -> usize {
        self.mutation.size_bytes()
    }

    pub(crate) fn refuse(self, leader: Option<NodeId>) -> Refused {
        let Waiter { sink, token, deadline_ns } = self.waiter;
        Refused { tablet: self.tablet, mutation: self.mutation, sink, token, deadline_ns, leader }
    }
}

/// A write that this node's replica could not propose because it does not lead. It had no effect.
pub struct Refused {
    /// The tablet.
    pub tablet: TabletId,
    /// The write, as submitted.
    pub mutation: Mutation,
    /// Where its outcome goes.
    pub sink: Arc<dyn WriteSink>,
    /// The tag of the write there.
    pub token: u64,
    /// The end of the request, on the monotonic clock; [`NO_DEADLINE`] if it has none.
    pub deadline_ns: u64,
    /// The tablet's leader, if known.
    pub leader: Option<NodeId>,
}

/// Reroutes writes that were submitted to a replica that does not lead.
pub trait Reroute: Send + Sync + 'static {
    /// Takes over (and empties) `refused`, and from then on answers their sinks. Must not wait.
    fn reroute(&self, refused: &mut Vec<Refused>);
}
