//! The steps that nodes' processes take on their own, each in its event.

use crate::engine::SimEngine;
use crate::routing::{Ended, Given};
use diorite_base::{NodeId, TabletId};
use diorite_replica::{Core, Split, SplitMark, Term};
use diorite_transact::TransactionId;
use diorite_transact::message::Status;

/// Something that a node does now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// It reports.
    Report,
    /// It balances, if it leads the catalog.
    Steer,
    /// The node advances splits and reports complete ones to the catalog.
    Finish,
    /// The node looks for merges to drive.
    Merge,
    /// It looks whether it is ready.
    GetReady,
    /// It sees to its replicas that are set aside.
    LookAfter,
}

/// The steps that a process takes on its own.
#[derive(Clone, Debug)]
pub enum Step {
    /// Sends heartbeats.
    Beat,
    /// Withdraws support that has lapsed.
    Expire,
    /// The core takes a turn.
    Turn,
    /// The core ticks.
    Tick,
    /// A read that has begun takes its value.
    ReadValue(u64, Term),
    /// A read ends.
    ReadEnd(u64, Term, Given),
    /// The outcome of what a replica has carried out leaves it.
    Served(u64, Ended),
    /// The router retries requests that wait.
    RouterTick,
    /// Entries that a member lacks are read from the log.
    ReadLog,
    /// A tablet is flushed, and its log cut.
    Flush(TabletId),
    /// The children of a tablet are prepared.
    Prepare(TabletId),
    /// The next action on the way to the newest snapshot of the catalog is carried out.
    Follow,
    /// The node checks whether another is still down, to notify clients.
    StillDown(NodeId),
    /// The node does a periodic duty.
    Duty(Duty),
    /// The children of a tablet that was split are made.
    MakeChildren(SplitMark),
    /// The core receives a command.
    Command(Command),
    /// The disk for which the core waits is ready.
    Synced,
    /// The log of a disk is to be synced, by a thread of its own.
    SyncLog(usize),
    /// The log of a disk is durable up to this position, as it was at this (true) time.
    LogSynced(usize, u64, u64),
    /// The node checks its disks for hanging writes.
    WatchDisks,
    /// The replicas of a failed disk are opened on others.
    GiveUpDisk(usize),
}

/// Messages to a core beside the results of its turns.
#[derive(Clone, Debug)]
pub enum Command {
    /// The tablet's data is durable up to this index: the log may be cut there; if forced, even where other members lack entries.
    Truncate(TabletId, u64, bool),
    /// Split this tablet.
    Split(TabletId, Split),
    /// Let others lead.
    Release,
    /// The home of a transaction that this tablet has prepared has answered.
    Learned(TabletId, (TransactionId, i64), Status),
    /// A participant of a transaction whose home this tablet is has finished.
    Finished(TabletId, TransactionId, TabletId),
}

impl Command {
    pub fn carry_out(self, core: &mut Core<SimEngine>) {
        match self {
            Self::Truncate(tablet, flushed, force) => core.truncate(tablet, flushed, force),
            Self::Split(tablet, split) => core.split(tablet, &split),
            Self::Release => core.step_down_for_stop(),
            Self::Learned(tablet, of, status) => core.transaction_learned(tablet, of, status),
            Self::Finished(tablet, id, participant) => core.transaction_finished(tablet, id, participant),
        }
    }
}
