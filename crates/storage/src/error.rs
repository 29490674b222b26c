//! Storage errors, sorted by what the operator or the caller can do.

use diorite_base::{Level, Levels};
use diorite_raft::{GroupError, LogReadError};
use rust_rocksdb::ErrorKind;
use std::path::PathBuf;
use thiserror::Error;

/// The errors of storage.
#[derive(Debug, Error)]
pub enum StorageError {
    /// Another process holds the directory.
    #[error("data directory {0} is in use by another process")]
    InUse(PathBuf),
    /// The directory contains foreign files, or belongs to another node or disk.
    #[error("data directory {path}: {reason}")]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The program does not know the level of the directory.
    #[error("data directory {path} is at level {found}, this program knows {known}: start {}", release_for(*.found, *.known))]
    OtherLevel {
        /// The directory.
        path: PathBuf,
        /// Its level.
        found: Level,
        /// The levels of the program.
        known: Levels,
    },
    /// The operating system refused an action.
    #[error("{action} {path}: {source}")]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// More tablets than the limit of open files allows.
    #[error("{most} tablets are open, as many as the limit of open files allows: raise it and restart the node")]
    TooManyTablets {
        /// The most that may be open.
        most: usize,
    },
    /// RocksDB reported an error.
    #[error("rocksdb: {0}")]
    Engine(#[from] rust_rocksdb::Error),
    /// The Raft log reported an error.
    #[error("raft log: {0}")]
    Log(String),
    /// Stored bytes have a form that no version has written.
    #[error("corrupt: {0}")]
    Corrupt(String),
}

impl StorageError {
    /// Whether stored data is damaged or missing: another attempt does not help, and other tablets on the disk may be
    /// intact. False for a lack of space, memory or file descriptors.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Corrupt(_) => true,
            Self::Engine(error) => match error.kind() {
                ErrorKind::Corruption => true,
                ErrorKind::IOError => {
                    let text = error.to_string();
                    text.contains("No such file") || text.contains("Input/output error")
                }
                _ => false,
            },
            Self::InUse(_)
            | Self::Foreign { .. }
            | Self::OtherLevel { .. }
            | Self::TooManyTablets { .. }
            | Self::Io { .. }
            | Self::Log(_) => false,
        }
    }
}

impl From<raft_engine::Error> for StorageError {
    fn from(error: raft_engine::Error) -> Self {
        use raft_engine::Error;
        match error {
            Error::Corruption(_) | Error::Codec(_) | Error::Protobuf(_) | Error::EntryNotFound => {
                StorageError::Corrupt(format!("raft log: {error}"))
            }
            error => StorageError::Log(error.to_string()),
        }
    }
}

impl From<LogReadError> for StorageError {
    fn from(error: LogReadError) -> Self {
        match error {
            LogReadError::Damaged(reason) => Self::Corrupt(reason),
            LogReadError::Failed(reason) => Self::Log(reason),
        }
    }
}

impl From<GroupError> for StorageError {
    fn from(error: GroupError) -> Self {
        let kind = if error.is_damage() { Self::Corrupt } else { Self::Log };
        kind(error.to_string())
    }
}

/// Which release of the program knows the level.
fn release_for(found: Level, known: Levels) -> &'static str {
    if found > known.greatest { "a newer diorite" } else { "the diorite of the release in between" }
}
