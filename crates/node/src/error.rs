//! Why a node does not start: one clear line for the operator each.

use diorite_base::NodeId;
use diorite_certs::CertsError;
use diorite_control::membership::ReplicationFactorDiffers;
use diorite_storage::StorageError;
use rustls::pki_types::pem;
use rustls::server::VerifierBuilderError;
use std::net::SocketAddr;
use std::path::PathBuf;
use thiserror::Error;

/// Why certificate and key for TLS cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read, or is not PEM.
    #[error("{}: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error.
        source: pem::Error,
    },
    /// A file holds no certificate.
    #[error("{}: there is no certificate in it", .0.display())]
    NoCertificate(PathBuf),
    /// A certificate cannot be used, or does not fit the key.
    #[error("{}: {source}", .path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The error.
        source: rustls::Error,
    },
    /// The certificates of a file cannot be authorities for clients.
    #[error("{}: {source}", .path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// The error.
        source: VerifierBuilderError,
    },
    /// An option needs others.
    #[error("{0} needs {1}")]
    Incomplete(&'static str, &'static str),
    /// The library does not support the versions of TLS.
    #[error(transparent)]
    Versions(rustls::Error),
}

/// Why a token for metrics, or to join, cannot be used.
#[derive(Debug, Error)]
pub enum TokenError {
    /// There is none.
    #[error("--metrics-access token needs a token: --metrics-token-file")]
    Missing,
    /// The file cannot be read.
    #[error("{}: {source}", .path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The text is no join token.
    #[error("{0}: there is no join token in it: `diorite admin join-token` prints one")]
    NotForJoining(String),
    /// It could be guessed.
    #[error("{}: the token for metrics has {found} characters, at least {least} are needed", .path.display())]
    Short {
        /// In which file.
        path: PathBuf,
        /// How many it has.
        found: usize,
        /// How many it needs.
        least: usize,
    },
}

/// Why a node does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The audit log cannot be written.
    #[error("cannot write the audit log to {to}: {source}")]
    Audit {
        /// The file, or the journal.
        to: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The token for metrics, or to join, cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// A data directory or the log cannot be used.
    #[error("{0}")]
    Storage(#[from] StorageError),
    /// A port cannot be listened on.
    #[error("cannot listen for {what} on {address}: {source}")]
    Listen {
        /// The use of the port: CQL, HTTP or other nodes.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// The error.
        source: std::io::Error,
    },
    /// The data directories do not belong together.
    #[error("{0}")]
    Directories(String),
    /// The catalog or a tablet cannot be served.
    #[error("cannot open {what}: {reason}")]
    Tablet {
        /// The catalog, or the tablets.
        what: String,
        /// The reason.
        reason: String,
    },
    /// The node cannot become a member of the cluster that it should join.
    #[error("{0}")]
    Join(String),
    /// The other members do not admit the node.
    #[error("node {by} refuses this node: {reason}")]
    Refused {
        /// The member that refused it.
        by: NodeId,
        /// Its reason.
        reason: String,
    },
    /// An operator has removed this node.
    #[error("node {0} was removed from the cluster; to join again it needs an empty data directory")]
    Removed(NodeId),
    /// The certificate or key for TLS cannot be used.
    #[error("cannot use TLS: {0}")]
    Tls(#[from] TlsError),
    /// The certificates for other nodes cannot be used.
    #[error("cannot use the certificates for other nodes: {0}")]
    Certificates(CertsError),
    /// Other nodes would be served without certificates beyond loopback.
    #[error(
        "other nodes are served at {address}, and everyone who reaches it could read and change everything: run `diorite certs init --dir certs` and \
         `diorite certs node {node} --dir certs`, and start with --certs certs/nodes/{node}; or start with --insecure"
    )]
    Open {
        /// Where they would be served.
        address: std::net::IpAddr,
        /// Where other nodes reach this one.
        node: String,
    },
    /// Both were given.
    #[error("--certs and --insecure exclude each other: leave one of them out")]
    SecureAndInsecure,
    /// A given value differs from the one that the cluster was first started with.
    #[error("--rf {given} was given, but this cluster was first started with --rf {decided}: leave it out")]
    ReplicationFactor {
        /// The number on the command line.
        given: u32,
        /// The number in the catalog.
        decided: u32,
    },
    /// Another request to the operating system failed: the attempt, and the error.
    #[error("{0}: {1}")]
    System(&'static str, std::io::Error),
}

impl From<ReplicationFactorDiffers> for StartError {
    fn from(ReplicationFactorDiffers { given, decided }: ReplicationFactorDiffers) -> Self {
        Self::ReplicationFactor { given, decided }
    }
}
