//! What every scenario is told, and the servers that it measures.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use crate::WorkloadError;
use crate::arguments::{ClientKind, ConnectionArguments};
use crate::process::Sampler;

/// What every scenario takes.
#[allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags, reason = "texts of --help")]
#[derive(Debug, Clone, clap::Args)]
pub struct CommonArguments {
    #[command(flatten)]
    pub connection: ConnectionArguments,
    /// Process id of a server to measure, with --nodes; may be repeated.
    #[arg(long)]
    pub server_pid: Vec<u32>,
    /// Data directory of a server to measure, with --nodes; may be repeated.
    #[arg(long)]
    pub server_data_dir: Vec<PathBuf>,
    /// Replication factor of the cluster that is started, and of the keyspace [default: 3, or fewer if there are fewer nodes].
    #[arg(long, value_name = "N")]
    pub rf: Option<u32>,
    /// Zones that the servers that are started are in by turns [default: all in the same].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub zones: Option<u32>,
    /// Where the servers that are started keep their data [default: in the report's directory, removed afterwards].
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
    /// Address of the first server that is started; others take the ones after it [default: the first free one from 127.0.0.1].
    #[arg(long)]
    pub listen: Option<Ipv4Addr>,
    /// A further argument of the servers that are started; may be repeated.
    #[arg(long, allow_hyphen_values = true)]
    pub server_arg: Vec<String>,
    /// How the servers acknowledge writes, named in the report.
    #[arg(long)]
    pub durability_label: Option<String>,
    /// The client to use.
    #[arg(long, value_enum, default_value_t = ClientKind::Pipelined)]
    pub client: ClientKind,
    /// Size of a key in bytes.
    #[arg(long, alias = "key_size", default_value_t = 50)]
    pub key_size: usize,
    /// Size of a value in bytes.
    #[arg(long, alias = "value_size", default_value_t = 256)]
    pub value_size: usize,
    /// Tablets of the table, in Diorite (`WITH tablets = n`).
    #[arg(long)]
    pub tablets: Option<u32>,
    /// Seed of key choice.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print the result as JSON on standard output; everything else goes to standard error.
    #[arg(long)]
    pub json: bool,
    /// Directory of the HTML and JSON report [default: bench-results/<date-time>].
    #[arg(long)]
    pub report: Option<PathBuf>,
}

/// The servers under test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// host:port of each contact point.
    pub contact_points: Vec<String>,
    /// Server processes on this machine; none if they run elsewhere.
    pub process_ids: Vec<u32>,
    /// Their data directories.
    pub data_directories: Vec<PathBuf>,
    /// How they acknowledge writes.
    pub durability: String,
    /// Replication factor of the keyspace.
    pub replication: u32,
}

impl Target {
    /// Samples its processes and directories.
    pub fn sampler(&self) -> Sampler {
        Sampler::new(&self.process_ids, &self.data_directories)
    }

    /// How many nodes the benchmark talks to.
    pub fn nodes(&self) -> u32 {
        self.contact_points.len() as u32
    }
}

impl CommonArguments {
    /// How many servers are to be started; none if the command line names some that run.
    pub(super) fn nodes_to_start(&self, default: u32) -> Result<Option<u32>, WorkloadError> {
        match &self.connection.nodes[..] {
            [] => Ok(Some(default)),
            [one] => match one.parse::<u32>() {
                Ok(0) => Err(WorkloadError::Arguments("--nodes is at least 1, or a list of addresses".into())),
                number => Ok(number.ok()),
            },
            _ => Ok(None),
        }
    }

    /// The replication factor of the keyspace on servers that run already.
    pub(super) fn remote_replication(&self) -> u32 {
        self.rf.unwrap_or(self.connection.replication)
    }

    /// How to talk to the servers under test.
    pub(super) fn connection(&self, target: &Target) -> ConnectionArguments {
        ConnectionArguments {
            nodes: target.contact_points.clone(),
            replication: target.replication,
            ..self.connection.clone()
        }
    }
}
