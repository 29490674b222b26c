//! Why a node does not start: one clear line for the operator each.

use diorite_base::NodeId;
use diorite_control::membership::ReplicationFactorDiffers;
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
        /// CQL, HTTP or other nodes.
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
    /// The node cannot become a member of the cluster that it is to join.
    #[error("{0}")]
    Join(String),
    /// The other members do not let the node in.
    #[error("node {by} refuses this node: {reason}")]
    Refused {
        /// The member that said so.
        by: NodeId,
        /// Its reason.
        reason: String,
    },
    /// An operator has removed this node.
    #[error("node {0} was removed from the cluster; to join again it needs an empty data directory")]
    Removed(NodeId),
    /// The certificate or key for TLS cannot be used.
    #[error("cannot use TLS: {0}")]
    Tls(String),
    /// What was given differs from what the cluster was founded with.
    #[error("--rf {given} was given, but this cluster was first started with --rf {decided}: leave it out")]
    ReplicationFactor {
        /// On the command line.
        given: u32,
        /// In the catalog.
        decided: u32,
    },
    /// The operating system refused something else.
    #[error("{0}: {1}")]
    System(&'static str, std::io::Error),
}

impl From<ReplicationFactorDiffers> for StartError {
    fn from(ReplicationFactorDiffers { given, decided }: ReplicationFactorDiffers) -> Self {
        Self::ReplicationFactor { given, decided }
    }
}
