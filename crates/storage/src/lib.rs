//! Durable storage of one node: data directories, one RocksDB per tablet replica over shared caches, threads and limits, and
//! the Raft log.
//!
//! Always true: RocksDB's own write-ahead log is off, and every batch carries the tablet's applied state, so that
//! RocksDB's content after a crash is exactly the prefix of the Raft log that its [`AppliedState`] names. Values are
//! opaque; [`ValueSemantics`] gives the meaning of merging and expiry. Nothing here knows CQL. Left out: replication,
//! and deciding when to flush.

mod ages;
mod applied;
mod brief;
pub mod companions;
mod counters;
mod data_view;
mod dead_rows;
mod directory;
mod disks_file;
mod distinct_keys;
mod engine;
mod error;
mod expiry;
mod files;
mod gaps;
mod hang;
mod keys;
mod listener;
mod live;
mod log_audit;
mod log_damage;
mod log_files;
mod log_freed;
mod log_queue;
mod looks;
mod measured;
mod memory;
mod memtable;
mod merging;
mod options;
mod precedence;
mod purging;
mod raft_log;
mod rate_limiter;
mod recorded;
mod refolding;
mod rocks;
mod semantics;
mod shared;
mod table_options;
mod tablet;
mod ttls;
mod windows;

pub use applied::{AppliedState, UNKNOWN_GRACE_S};
pub use brief::was_declined;
pub use counters::StorageCounters;
pub use data_view::DataView;
pub use directory::{DataDirectory, Identity, machine_boot};
pub use engine::{Engine, Log, LogRecords, ScanRange, TabletBatch, TabletData, TabletSnapshot};
pub use error::StorageError;
pub use files::{FileContents, TabletFiles};
pub use keys::{AFTER_ALL_KEYS, AFTER_KEYS_ABOUT_TABLETS, MEMBERS_KEY, SPLIT_KEY, absorbed_key, staged_key};
pub use listener::BeforeFlush;
pub use log_files::FILE_BYTES as LOG_FILE_BYTES;
pub use memory::{Memory, MemoryBatch, MemoryLog, MemoryReader, MemoryRecords, MemorySnapshot, MemoryTablet};
pub use options::StorageOptions;
pub use precedence::run_at_lower_priority;
pub use raft_log::{GroupReader, LogBatch, RaftLog};
pub use rocks::Rocks;
pub use rust_rocksdb::statistics::Ticker;
pub use semantics::{CompactionVerdict, ValueSemantics, Values};
pub use shared::Shared;
pub use table_options::{CompactionStyle, Compression, Filters, TableOptions};
pub use tablet::{Batch, Moment, PinnedValue, Tablet, TabletAt, TabletStatistics};

#[cfg(test)]
mod directory_tests;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod log_tests;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod window_tests;
