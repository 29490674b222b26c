//! Writes on their way into the log, and who waits for them.

use diorite_base::mutation::Mutation;
use diorite_base::program::{Target, Unprovable};
use diorite_base::write::WriteSink;
use diorite_base::{GroupId, NodeId, TabletId};
use std::sync::Arc;

/// Who waits for a write.
pub(crate) struct Waiter {
    pub(crate) sink: Arc<dyn WriteSink>,
    pub(crate) token: u64,
    /// Nobody waits for it any longer than that, on the monotonic clock; [`NO_DEADLINE`]: as long as writes are waited for.
    pub(crate) deadline_ns: u64,
}

/// Of a write whose request says no time by which it ends.
pub const NO_DEADLINE: u64 = u64::MAX;

/// A write on its way into the log.
pub struct Proposal {
    pub(crate) tablet: TabletId,
    pub(crate) mutation: Mutation,
    pub(crate) waiter: Waiter,
}

impl Proposal {
    /// A write of `tablet`, whose outcome goes to `sink` under `token`; none of what its replicas could not apply.
    pub fn new(tablet: TabletId, mutation: Mutation, sink: Arc<dyn WriteSink>, token: u64) -> Result<Self, Unprovable> {
        let target = if GroupId::from(tablet) == GroupId::CATALOG { Target::Catalog } else { Target::Rows };
        mutation.check_for(target)?;
        Ok(Self { tablet, mutation, waiter: Waiter { sink, token, deadline_ns: NO_DEADLINE } })
    }

    /// Ends at this time of the monotonic clock: it is not proposed any more, and nobody is told the outcome of what was.
    pub fn until(mut self, deadline_ns: u64) -> Self {
        self.waiter.deadline_ns = deadline_ns;
        self
    }

    /// The size of what is to be written.
    pub fn size_bytes(&self) -> usize {
        self.mutation.size_bytes()
    }

    pub(crate) fn refuse(self, leader: Option<NodeId>) -> Refused {
        let Waiter { sink, token, deadline_ns } = self.waiter;
        Refused { tablet: self.tablet, mutation: self.mutation, sink, token, deadline_ns, leader }
    }
}

/// A write that this node's replica could not propose because it does not lead. Nothing was done with it.
pub struct Refused {
    /// The tablet.
    pub tablet: TabletId,
    /// The write, as submitted.
    pub mutation: Mutation,
    /// Where its outcome goes.
    pub sink: Arc<dyn WriteSink>,
    /// What names it there.
    pub token: u64,
    /// When it ends, on the monotonic clock; [`NO_DEADLINE`] if nobody says.
    pub deadline_ns: u64,
    /// Who leads the tablet, if known.
    pub leader: Option<NodeId>,
}

/// Finds another way for writes that were submitted to a replica that does not lead.
pub trait Reroute: Send + Sync + 'static {
    /// Takes over (and empties) `refused`; their sinks are told by whoever finishes them. Must not wait.
    fn reroute(&self, refused: &mut Vec<Refused>);
}
