//! The steps that nodes' processes take on their own, each in its event.

use crate::engine::SimEngine;
use crate::routing::{Ended, Given};
use diorite_base::{NodeId, TabletId};
use diorite_replica::{Core, Split, SplitMark, Term};

/// Something that a node does now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// It reports.
    Report,
    /// It balances, if it leads the catalog.
    Steer,
    /// It advances splits, and tells the catalog what is complete.
    Finish,
    /// It looks what is to be merged.
    Merge,
    /// It looks whether it is ready.
    GetReady,
    /// It sees to its replicas that are set aside.
    LookAfter,
}

/// What a process does on its own.
#[derive(Clone, Debug)]
pub enum Step {
    /// Sends heartbeats.
    Beat,
    /// Withdraws support that has lapsed.
    Expire,
    /// The core takes a turn.
    Turn,
    /// The core is to look at what is due.
    Tick,
    /// A read that has begun takes its value.
    ReadValue(u64, Term),
    /// A read ends.
    ReadEnd(u64, Term, Given),
    /// The outcome of what a replica has carried out leaves it.
    Served(u64, Ended),
    /// The router looks at what waits.
    RouterTick,
    /// What a member lacks is read from the log.
    ReadLog,
    /// A tablet is flushed, and its log cut.
    Flush(TabletId),
    /// What is to be a tablet's children is made beforehand.
    Prepare(TabletId),
    /// The next action on the way to the newest snapshot of the catalog is carried out.
    Follow,
    /// It is looked whether a node is still down, so that clients are told.
    StillDown(NodeId),
    /// What the node does now and then.
    Duty(Duty),
    /// The children of a tablet that was split are made.
    MakeChildren(SplitMark),
    /// The core is told something.
    Command(Command),
    /// The disk for which the core waits is ready.
    Synced,
    /// The log of a disk is to be synced, by a thread of its own.
    SyncLog(usize),
    /// What was in the log of a disk at this position, when it was this (true) time, is durable.
    LogSynced(usize, u64, u64),
    /// It is looked how the disks get on.
    WatchDisks,
    /// What was on a disk that has failed is opened on others.
    GiveUpDisk(usize),
}

/// What a core is told beside what its turns bring.
#[derive(Clone, Debug)]
pub enum Command {
    /// The tablet's data is durable up to this index: the log may be cut there; if forced, even where other members lack entries.
    Truncate(TabletId, u64, bool),
    /// Split this tablet.
    Split(TabletId, Split),
    /// Let others lead.
    Release,
}

impl Command {
    pub fn carry_out(self, core: &mut Core<SimEngine>) {
        match self {
            Self::Truncate(tablet, flushed, force) => core.truncate(tablet, flushed, force),
            Self::Split(tablet, split) => core.split(tablet, &split),
            Self::Release => core.step_down_for_stop(),
        }
    }
}
