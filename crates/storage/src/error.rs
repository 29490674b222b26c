//! Storage errors, sorted by what the operator or caller can do.

use std::path::PathBuf;
use thiserror::Error;

/// Why storage did not do what was asked.
#[derive(Debug, Error)]
pub enum StorageError {
    /// Another process holds the directory.
    #[error("data directory {0} is in use by another process")]
    InUse(PathBuf),
    /// The directory holds something that is not ours, or of another node or disk.
    #[error("data directory {path}: {reason}")]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The directory was written by a newer version.
    #[error("data directory {path} has format {found}, this version reads up to {supported}: start a newer diorite")]
    NewerFormat {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format this version reads.
        supported: u32,
    },
    /// The operating system refused.
    #[error("{action} {path}: {source}")]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// RocksDB reported an error.
    #[error("rocksdb: {0}")]
    Engine(#[from] rust_rocksdb::Error),
    /// The Raft log reported an error.
    #[error("raft log: {0}")]
    Log(String),
    /// Stored bytes are not what this version wrote.
    #[error("corrupt: {0}")]
    Corrupt(String),
}

impl From<raft_engine::Error> for StorageError {
    fn from(error: raft_engine::Error) -> Self {
        StorageError::Log(error.to_string())
    }
}
