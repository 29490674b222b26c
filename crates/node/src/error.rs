//! Why a node does not start: one clear line for the operator each.

use diorite_storage::StorageError;
use std::net::SocketAddr;
use thiserror::Error;

/// Why a node does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// A data directory or the log cannot be used.
    #[error("{0}")]
    Storage(#[from] StorageError),
    /// A port cannot be listened on.
    #[error("cannot listen for {what} on {address}: {source}")]
    Listen {
        /// CQL or HTTP.
        what: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The data directories do not belong together.
    #[error("{0}")]
    Directories(String),
    /// The catalog or a tablet cannot be served.
    #[error("cannot open {what}: {reason}")]
    Tablet {
        /// Which.
        what: String,
        /// Why not.
        reason: String,
    },
    /// The operating system refused something else.
    #[error("{0}: {1}")]
    System(&'static str, std::io::Error),
}
