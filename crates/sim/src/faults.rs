//! The kinds of faults.

/// A kind of fault, or an operator's action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// A node's process ends at once and is started again; its machine may lose power with it.
    Crash,
    /// The power goes while the log is written.
    TornWrite,
    /// All nodes lose power at once.
    Blackout,
    /// A process does not run for a while, and then goes on.
    Pause,
    /// A machine sleeps for a while: its processes do not run, its monotonic clock goes on (as `CLOCK_BOOTTIME` does), its connections may break.
    Sleep,
    /// A machine is suspended for a while: its processes do not run, and its monotonic clock stops.
    Suspend,
    /// Some nodes cannot reach others for a while, in one or both directions.
    Partition,
    /// Connections between two nodes break.
    Cut,
    /// A disk takes long to sync for a while.
    SlowDisk,
    /// A disk syncs nothing for seconds, and then goes on.
    Hang,
    /// A disk fails: writes to it are lost until the node is started again.
    DiskFailure,
    /// A wall clock jumps, by hours at most.
    WallJump,
    /// A wall clock jumps by days.
    DayJump,
    /// A monotonic clock changes its rate, within what leases allow for.
    Rate,
    /// Another leader is wanted of a tablet.
    Members,
    /// Replicas are wanted on other nodes.
    Move,
    /// A node joins.
    Join,
    /// A node is drained and removed.
    Retire,
    /// A machine is lost for ever, and replaced.
    Lose,
    /// A node is put into another zone, or is to lead nothing for a while.
    Operate,
    /// A node is stopped in an orderly way and started again.
    Stop,
}

/// Kinds that can be forced in every seed. Machines sleep, disks fail and replicas move in a share of the seeds; the
/// others are in none: no lease is safe if a monotonic clock stops, and a known fault that days of difference between
/// wall clocks show is not fixed yet.
pub const FURTHER_KINDS: [(&str, FaultKind); 5] = [
    ("sleep", FaultKind::Sleep),
    ("suspend", FaultKind::Suspend),
    ("day-jump", FaultKind::DayJump),
    ("disk-failure", FaultKind::DiskFailure),
    ("move", FaultKind::Move),
];

/// The kinds of the usual mix.
pub const KINDS: [FaultKind; 17] = [
    FaultKind::Crash,
    FaultKind::TornWrite,
    FaultKind::Blackout,
    FaultKind::Pause,
    FaultKind::Partition,
    FaultKind::Cut,
    FaultKind::SlowDisk,
    FaultKind::Hang,
    FaultKind::WallJump,
    FaultKind::Rate,
    FaultKind::Members,
    FaultKind::Move,
    FaultKind::Join,
    FaultKind::Retire,
    FaultKind::Lose,
    FaultKind::Operate,
    FaultKind::Stop,
];
