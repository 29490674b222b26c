//! How a seed is run: which bugs are planted, and what is left out.

use crate::faults::FaultKind;
use diorite_control::planted::Planted as ControlPlanted;
use diorite_replica::Planted;

/// A bug that a test plants, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planting {
    /// The log is written, but not synced.
    SkipFsync,
    /// A node that was restarted votes and campaigns at once.
    IgnoreRestartWait,
    /// After a restart the last entry that was applied is applied again.
    ApplyTwice,
    /// A node that led answers reads until it knows of another leader.
    AnswerWithoutLease,
    /// Clocks are off by more than leases allow for.
    FastClock,
    /// A replica that was moved away and has come back, without its log, votes and campaigns at once.
    ForgetFloor,
    /// A tablet that is split keeps its lease, and answers on.
    KeepLeaseWhenSplit,
    /// A child begins without what its parent's log got since it was prepared.
    ForgetParentsLog,
    /// The log of a child that began as a copy is truncated by what is durable of its parent.
    KeepOwnInMemory,
    /// A tablet that is taken in by another is not closed before what has changed is copied.
    NeverClose,
    /// A member that has joined is sent no heartbeats.
    ForgetHeartbeatTarget,
    /// A node that was away is ready before its copy of the catalog has caught up.
    ReadyTooEarly,
    /// What a placement asks of a node is done again after it was undone.
    PlaceTwice,
    /// A change of the catalog is answered before the other nodes serve it.
    ServeStaleCatalog,
    /// A node that was removed keeps its vote in the catalog's group.
    KeepRetiredVoter,
    /// The end of an earlier life of a node is taken for the end of its current one.
    BelieveAnyEnd,
    /// Compactions remove what expires soon.
    CompactEarly,
    /// A replica that is new takes those for its first members that are wanted now.
    BeginAsWanted,
    /// Of a log that makes no progress the followers are freed, and the lease is not taken away.
    FreeWithoutRevoking,
    /// A replica that is opened on another disk, as its own has failed, remembers nothing.
    ForgetWithDisk,
    /// A router sends a write again of which nobody knows whether it was carried out.
    ResendUnknown,
}

impl Planting {
    /// All of them, with the names by which they are asked for.
    pub const ALL: [(&'static str, Planting); 21] = [
        ("skip-fsync", Planting::SkipFsync),
        ("ignore-restart-wait", Planting::IgnoreRestartWait),
        ("apply-twice", Planting::ApplyTwice),
        ("answer-without-lease", Planting::AnswerWithoutLease),
        ("fast-clock", Planting::FastClock),
        ("forget-floor", Planting::ForgetFloor),
        ("keep-lease-when-split", Planting::KeepLeaseWhenSplit),
        ("forget-parents-log", Planting::ForgetParentsLog),
        ("keep-own-in-memory", Planting::KeepOwnInMemory),
        ("never-close", Planting::NeverClose),
        ("forget-heartbeat-target", Planting::ForgetHeartbeatTarget),
        ("ready-too-early", Planting::ReadyTooEarly),
        ("place-twice", Planting::PlaceTwice),
        ("serve-stale-catalog", Planting::ServeStaleCatalog),
        ("keep-retired-voter", Planting::KeepRetiredVoter),
        ("believe-any-end", Planting::BelieveAnyEnd),
        ("compact-early", Planting::CompactEarly),
        ("begin-as-wanted", Planting::BeginAsWanted),
        ("free-without-revoking", Planting::FreeWithoutRevoking),
        ("forget-with-disk", Planting::ForgetWithDisk),
        ("resend-unknown", Planting::ResendUnknown),
    ];

    pub(crate) fn in_the_control_plane(self) -> ControlPlanted {
        ControlPlanted {
            forget_heartbeat_target: self == Planting::ForgetHeartbeatTarget,
            ready_too_early: self == Planting::ReadyTooEarly,
            place_twice: self == Planting::PlaceTwice,
            serve_stale_catalog: self == Planting::ServeStaleCatalog,
            keep_retired_voter: self == Planting::KeepRetiredVoter,
            resend_unknown: self == Planting::ResendUnknown,
            ..ControlPlanted::default()
        }
    }

    pub(crate) fn in_the_core(self) -> Planted {
        Planted {
            skip_fsync: self == Planting::SkipFsync,
            ignore_restart_wait: self == Planting::IgnoreRestartWait,
            apply_twice: self == Planting::ApplyTwice,
            answer_without_lease: self == Planting::AnswerWithoutLease,
            forget_floor: self == Planting::ForgetFloor,
            keep_lease_when_split: self == Planting::KeepLeaseWhenSplit,
            forget_parents_log: self == Planting::ForgetParentsLog,
            keep_own_in_memory: self == Planting::KeepOwnInMemory,
            free_without_revoking: self == Planting::FreeWithoutRevoking,
        }
    }
}

/// How to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A bug to plant.
    pub bug: Option<Planting>,
    /// Whether to print every event.
    pub print: bool,
    /// Whether to judge only by what clients see: answers, and what is there in the end.
    pub clients_only: bool,
    /// Whether no tablet is split, whatever the seed says, and so none merged.
    pub without_splits: bool,
    /// Whether no tablet is merged, whatever the seed says.
    pub without_merges: bool,
    /// Whether tablets hold real rows in every seed.
    pub rows: bool,
    /// A kind of fault that is in every seed, though not in the usual mix.
    pub further: Option<FaultKind>,
    /// Whether every seed acknowledges writes before they are durable (`--durability interval`).
    pub interval: bool,
}
