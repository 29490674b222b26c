//! Copies of whole replicas: a member that lacks what is no longer in its leader's log is sent files.
//!
//! ```text
//! leader    ask a follower that has everything, or send itself                  (source.rs)
//! sender    checkpoint (hard links) ─▶ begin ─▶ pieces of what is missing ─▶ end   (send.rs)
//! receiver  have ─▶ credit, as fast as it may take it ─▶ stage, check, sync        (receive.rs, staged.rs)
//!           detach the replica, put the copy in its place, open it              (install.rs)
//! ```
//!
//! A checkpoint is of what has been flushed, unless the log no longer reaches back to that. The data itself says which log index it stands for, so that consensus takes no part: the receiver acknowledges that index, and the log goes on
//! from there. If the leader's log no longer reaches back to that index when all has come, the sender makes another checkpoint and sends what has changed.
//! Several copies are under way at a time. One rate, in bytes per second, holds for all that a node sends and, separately, for all that it receives: the
//! receiver gives out credit at that rate.
//!
//! Always true: a replica's data is replaced only by a complete, durable copy that is newer and whose every file has its sender's checksum; what is in flight per copy is bounded by a
//! window; a copy pins no log, and its checkpoint goes with it, however it ends (after a crash, at the next start). What was received is held for a while after a
//! copy has broken off, and goes when the replica goes, or at the latest with [`receiving::KEEP_NS`]. The catalog is not copied: its log is kept whole.
//! What moves between two disks of one node goes another way (`rehome.rs`), at the same rate.

pub(crate) mod asking;
pub(crate) mod checkpoint;
pub(crate) mod copies;
pub(crate) mod dispatch;
pub(crate) mod error;
pub(crate) mod install;
pub(crate) mod meter;
pub(crate) mod rate_limit;
pub(crate) mod receive;
pub(crate) mod receiving;
pub(crate) mod rehome;
pub(crate) mod send;
pub(crate) mod sending;
pub(crate) mod source;
pub(crate) mod staged;
pub(crate) mod wire;
