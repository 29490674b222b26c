//! The commands of a node's replicas to the store threads that run them.

use crate::group::describe::ReplicaState;
use crate::group::memory::Memory;
use crate::group::replica::Replica;
use crate::group::split::Split;
use crate::group::wanted::Members;
use diorite_base::write::KvError;
use diorite_base::{NodeId, TabletId};
use diorite_storage::Rocks;
use diorite_transact::TransactionId;
use diorite_transact::message::Status;
use std::sync::mpsc::SyncSender;

/// The store threads of a node.
pub(crate) trait StoreThreads: Send + Sync + 'static {
    /// Sends a command to a store thread, by its number. A thread that has ended drops it, and with it the sender of
    /// the reply.
    fn command(&self, worker: usize, command: Command);
}

/// A command to a store thread, beside proposals and messages.
pub(crate) enum Command {
    /// Take this replica; answer when all entries that are known to be committed are applied.
    Open(Box<Replica<Rocks>>, SyncSender<Result<(), KvError>>),
    /// Close this replica: its log records are removed, except for what it must remember.
    Close(TabletId, SyncSender<Result<(), KvError>>),
    /// Detach this replica, whose data a copy will replace.
    Detach(TabletId, SyncSender<Result<(), KvError>>),
    /// Write the time to this tablet's log, if it is led here.
    PassTime(TabletId),
    /// Step down, so that another replica leads.
    StepDown(TabletId),
    /// Detach this replica, which is about to be moved to another disk; answer with what it must remember.
    DetachForMove(TabletId, SyncSender<Option<Memory>>),
    /// Detach this replica, which has failed or whose disk has; answer with what it must remember.
    DetachFailed(TabletId, SyncSender<Option<Memory>>),
    /// Stop this replica: its stored data is damaged.
    Fail(TabletId, String),
    /// Ask these voters which of them leads this tablet, of which no replica need be open here.
    SeekLeader(TabletId, Vec<NodeId>),
    /// The tablet's data is durable up to this log index: the log may be truncated there; if forced, even if other
    /// members lack entries.
    Flushed { tablet: TabletId, index: u64, force: bool },
    /// The members that the catalog wants.
    Members(TabletId, Members),
    /// A client reads from this follower: ask the leader for its position.
    Refresh(TabletId),
    /// The child tablets of this tablet are prepared here: notify its leader.
    AnnouncePrepared(TabletId),
    /// This replica of a new child tablet is open: notify the voter that is to lead.
    AnnounceOpened(TabletId),
    /// This replica was sent a copy that it does not need: notify its leader of what it holds.
    AnnounceData(TabletId),
    /// Split this tablet, if it is led here.
    Split(TabletId, Split),
    /// The home of a transaction that this tablet has prepared, with this stamp, has answered.
    TransactionLearned(TabletId, (TransactionId, i64), Status),
    /// A participant of a transaction whose home this tablet is has finished.
    TransactionFinished(TabletId, TransactionId, TabletId),
    /// Open this tablet again, if it is led here: its merge of this number was cancelled.
    Reopen(TabletId, u64),
    /// Answer with the state of this replica.
    Describe(TabletId, SyncSender<Option<ReplicaState>>),
    /// This node's clock is off, or no longer off.
    ClockIsOff(bool),
    /// Step down everywhere and campaign no more: the node is about to stop.
    StepDownAll(SyncSender<()>),
}
