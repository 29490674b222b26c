//! Node processes on this machine: `diorite local`, which starts a cluster with one command, and the functions with
//! which the benchmarks start servers.
//!
//! A node is started with [`NodeOptions`] and becomes a [`NodeProcess`]; a [`Cluster`] is a directory that records such
//! nodes between commands. This crate is a client of the server: it uses only a node's command line, its HTTP port and
//! `/proc`.
//!
//! Always true: a signal reaches the process that was started here or none, even if its process id is in use again;
//! only files that were created here are removed; a node that does not become ready is reported with the end of its
//! log.
//!
//! Left out: nodes on other machines, and operating systems other than Linux.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

mod cluster;
mod command;
pub mod http;
mod node;
mod process;
mod status;

pub use cluster::{Cluster, Plan};
pub use command::{LocalArguments, run};
pub use node::{JoinToken, NodeOptions, free_address, membership, nth_address, share, wait_until_ready, zone};
pub use process::{NodeProcess, ProcessIdentity, ProcessStat, parse_stat};
pub use status::{NodeState, NodeStatus, node_status};

/// The port for CQL.
pub const CQL_PORT: u16 = 9042;
/// The port between nodes.
pub const NODE_PORT: u16 = 7100;
/// The port for metrics and health.
pub const HTTP_PORT: u16 = 7000;

/// How long a node may take until it is ready. Opening a large store takes a while.
pub const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a node may take to stop.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The arguments cannot be carried out.
    #[error("{0}")]
    Arguments(String),
    /// The directory cannot be used for the command.
    #[error("{0}")]
    Directory(String),
    /// A port that a node needs is in use.
    #[error(
        "port {port} on {address} is taken by another process; `diorite local up --address` chooses other addresses"
    )]
    PortTaken { address: IpAddr, port: u16 },
    /// The machine does not have the address.
    #[error("{0} is not an address of this machine")]
    NoSuchAddress(IpAddr),
    /// No address has all ports free.
    #[error(
        "ports {CQL_PORT}, {NODE_PORT} and {HTTP_PORT} are taken on all of 127.0.0.1 to 127.0.0.{last}; give an address"
    )]
    NoFreeAddress { last: u8 },
    /// A node ended before it was ready.
    #[error("the node on {address} ended{}: {log}", .status.map_or(String::new(), |status| format!(" with {status}")))]
    Ended { address: IpAddr, status: Option<ExitStatus>, log: String },
    /// A node took too long to become ready.
    #[error("the node on {address} was not ready within {} s: {log}", READY_TIMEOUT.as_secs())]
    NotReady { address: IpAddr, log: String },
    /// A node did not react to SIGTERM.
    #[error("process {pid} did not end within {} s of SIGTERM", STOP_TIMEOUT.as_secs())]
    DoesNotStop { pid: u32 },
    /// A command needs a node that runs.
    #[error("node {0} is not running")]
    NotRunning(u32),
    /// New nodes join with a token that a member makes.
    #[error("no member of the cluster runs that could make a join token for a new node: start one first")]
    NoMember,
    /// No join token can be made.
    #[error("cannot make a join token: {0}")]
    JoinToken(String),
    /// The answer holds no join token.
    #[error("node {0} has made no join token that is understood")]
    StrangeToken(u32),
    /// The system refused a signal.
    #[error("cannot {what} process {pid}: {error}")]
    Process { what: &'static str, pid: u32, error: std::io::Error },
    /// The system refused a resource that the command needs to wait.
    #[error("cannot start: {0}")]
    Threads(std::io::Error),
    /// Certificates cannot be made.
    #[error(transparent)]
    Certs(#[from] diorite_certs::CertsError),
    /// A file or directory cannot be read or written.
    #[error("{path}: {error}")]
    File { path: PathBuf, error: std::io::Error },
}

impl LocalError {
    pub(crate) fn file(path: &Path, error: std::io::Error) -> Self {
        Self::File { path: path.to_path_buf(), error }
    }
}

/// The default address of the first node.
pub const FIRST_ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Waits; the crate's only timer besides the time-outs of HTTP requests.
#[allow(clippy::disallowed_methods, reason = "waits for other processes, of which no event tells")]
pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}
