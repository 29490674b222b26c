//! Options of a run: planted bugs, and parts to leave out.

use crate::faults::FaultKind;
use diorite_control::planted::Planted as ControlPlanted;
use diorite_replica::Planted;

/// A bug that a test plants, to check that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planting {
    /// The log is written, but not synced.
    SkipFsync,
    /// A node that was restarted votes and campaigns at once.
    IgnoreRestartWait,
    /// The last applied entry is applied again after a restart.
    ApplyTwice,
    /// A node that led answers reads until it knows of another leader.
    AnswerWithoutLease,
    /// Clocks are off by more than leases allow for.
    FastClock,
    /// A replica that was moved away and has come back, without its log, votes and campaigns at once.
    ForgetFloor,
    /// A replica that came back without its log votes like any other. About one seed in 2,000 shows it; the random
    /// schedules of `diorite_raft` do at once.
    VoteWithoutCondition,
    /// A tablet that is split keeps its lease, and still answers reads.
    KeepLeaseWhenSplit,
    /// A child begins without the entries that its parent's log received after the preparation.
    ForgetParentsLog,
    /// The log of a child that began as a copy is truncated by its parent's durable index.
    KeepOwnInMemory,
    /// A tablet is not closed before the changed rows are copied in a merge.
    NeverClose,
    /// A member that has joined is sent no heartbeats.
    ForgetHeartbeatTarget,
    /// A node that was away is ready before its copy of the catalog has caught up.
    ReadyTooEarly,
    /// The actions for a placement are repeated after they were undone.
    PlaceTwice,
    /// A change of the catalog is answered before the other nodes serve it.
    ServeStaleCatalog,
    /// A node that was removed keeps its vote in the catalog's group.
    KeepRetiredVoter,
    /// The end of an earlier life of a node is taken for the end of its current one.
    BelieveAnyEnd,
    /// Compactions remove what expires soon.
    CompactEarly,
    /// A new replica uses the wanted members as its initial voters.
    BeginAsWanted,
    /// If a log makes no progress, the followers are freed and the lease is not revoked.
    FreeWithoutRevoking,
    /// A replica that is opened on another disk after a failure remembers nothing.
    ForgetWithDisk,
    /// A router sends a write with an unknown outcome again.
    ResendUnknown,
    /// A change of a tablet's data does not change its version.
    KeepVersion,
    /// A snapshot shows rows that a transaction has written, without their index entries.
    PinWithoutEntries,
    /// A transaction does not test what was read of unique columns.
    LeaveTestsOut,
    /// A covering index is taken for complete at once.
    CoverEarly,
    /// The level is raised although a member is down.
    RaiseOverDown,
    /// The level is raised by itself although an operator holds it.
    RaiseAlthoughHeld,
}

impl Planting {
    /// All of them, with the names by which they are asked for.
    pub const ALL: [(&'static str, Planting); 28] = [
        ("skip-fsync", Planting::SkipFsync),
        ("ignore-restart-wait", Planting::IgnoreRestartWait),
        ("apply-twice", Planting::ApplyTwice),
        ("answer-without-lease", Planting::AnswerWithoutLease),
        ("fast-clock", Planting::FastClock),
        ("forget-floor", Planting::ForgetFloor),
        ("vote-without-condition", Planting::VoteWithoutCondition),
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
        ("keep-version", Planting::KeepVersion),
        ("pin-without-entries", Planting::PinWithoutEntries),
        ("leave-tests-out", Planting::LeaveTestsOut),
        ("cover-early", Planting::CoverEarly),
        ("raise-over-down", Planting::RaiseOverDown),
        ("raise-although-held", Planting::RaiseAlthoughHeld),
    ];

    pub(crate) fn in_the_control_plane(self) -> ControlPlanted {
        ControlPlanted {
            forget_heartbeat_target: self == Planting::ForgetHeartbeatTarget,
            ready_too_early: self == Planting::ReadyTooEarly,
            place_twice: self == Planting::PlaceTwice,
            serve_stale_catalog: self == Planting::ServeStaleCatalog,
            keep_retired_voter: self == Planting::KeepRetiredVoter,
            resend_unknown: self == Planting::ResendUnknown,
            raise_over_members_that_are_down: self == Planting::RaiseOverDown,
            raise_although_held: self == Planting::RaiseAlthoughHeld,
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
            vote_without_condition: self == Planting::VoteWithoutCondition,
            keep_lease_when_split: self == Planting::KeepLeaseWhenSplit,
            forget_parents_log: self == Planting::ForgetParentsLog,
            keep_own_in_memory: self == Planting::KeepOwnInMemory,
            free_without_revoking: self == Planting::FreeWithoutRevoking,
            keep_version: self == Planting::KeepVersion,
            pin_without_entries: self == Planting::PinWithoutEntries,
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
    /// Whether only the clients' answers and the final data are judged.
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
