//! Copies of whole replicas: a member that lacks entries which are no longer in its leader's log is sent files.
//!
//! ```text
//! leader    ask a follower that has everything, or send itself                  (source.rs)
//! sender    checkpoint (hard links) ─▶ begin ─▶ pieces of what is missing ─▶ end   (send.rs)
//! receiver  have ─▶ credit, as fast as it may take it ─▶ stage, check, sync        (receive.rs, staged.rs)
//!           detach the replica, put the copy in its place, open it              (install.rs)
//! ```
//!
//! A checkpoint is of the flushed state, unless the log no longer reaches back to that. The data itself records its
//! applied index, so consensus takes no part: the receiver acknowledges that index, and the log continues from there.
//! If the leader's log no longer reaches back to that index when everything has arrived, the sender makes another
//! checkpoint and sends the difference. Several copies may be under way at a time. One rate limit, in bytes per second,
//! holds for everything that a node sends and, separately, for everything that it receives: the receiver grants credit
//! at that rate.
//!
//! Always true: a replica's data is replaced only by a complete, durable copy that is newer and whose every file has
//! its sender's checksum. A window bounds what is in flight for each copy. A copy keeps no log from being truncated,
//! and its checkpoint is removed with it, however it ends (after a crash, at the next start). What was received is held
//! for a while after a copy has broken off, at most for [`receiving::KEEP_NS`], and is removed with the replica. The
//! catalog is not copied: its log is kept as a whole. Replicas that move between two disks of one node are moved by
//! `rehome.rs`, under the same rate limit.

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
