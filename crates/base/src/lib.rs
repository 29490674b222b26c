//! The base of all other crates: identifiers, the clock and randomness seams, the hybrid clock, size limits, accounts
//! of memory, the encoded form of a tablet write, bounds on connections, credentials, and small byte-level encodings.
//!
//! Always true: nothing here does I/O (but for the lock of a file, [`file_lock`]), spawns, or knows what a row, a Raft group or a CQL statement is.
//! Wall clocks, sleeps and random sources are read only behind the seams defined here ([`clock`], [`random`]);
//! `clippy.toml` bans them elsewhere, because the deterministic simulation replaces them.

pub mod account;
pub mod basic;
pub mod bytes;
pub mod caught;
pub mod clock;
pub mod connections;
pub mod file_lock;
pub mod hex;
pub mod horizon;
pub mod ids;
pub mod level;
pub mod limits;
pub mod measure;
pub mod mutation;
pub mod program;
pub mod random;
pub mod row_index;
pub mod text;
pub mod write;

pub use clock::{Clock, HybridClock, SystemClock, TrustedClock};
pub use file_lock::FileLock;
pub use horizon::Horizon;
pub use ids::{GroupId, NodeId, TableId, TabletId};
pub use level::{Hold, Level, Levels};
