//! The common flags of all scenarios, and the servers under test.
//!
//! Always true: how the servers acknowledge writes is named, or "not stated" for servers that run already.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use super::servers::{Servers, ServersOptions};
use crate::WorkloadError;
use crate::arguments::{ClientKind, ConnectionArguments};
use crate::data::MIN_VALUE_BYTES;
use crate::process::Sampler;

/// The flags of every scenario.
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
    /// Number of zones over which the started servers are spread, in turn [default: one].
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

/// The durability of a server that is started without durability flags.
const DEFAULT_DURABILITY: &str = "fsync before acknowledgement (default)";
/// The durability of a replicated cluster that is started without them.
const QUORUM_DURABILITY: &str = "fsync on a quorum before acknowledgement (default)";
/// Replicas of each row, if there are nodes for them.
const DEFAULT_REPLICATION: u32 = 3;

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
    fn remote_replication(&self) -> u32 {
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

pub(super) fn server_options(
    common: &CommonArguments,
    nodes: u32,
    executable: &Path,
    directory: &Path,
) -> ServersOptions {
    ServersOptions {
        executable: executable.to_path_buf(),
        data_directory: common.data_dir.clone().unwrap_or_else(|| directory.join("data")),
        listen: common.listen,
        nodes,
        spare: 0,
        zones: common.zones,
        replication: common.rf.unwrap_or(DEFAULT_REPLICATION.min(nodes)),
        extra_arguments: common.server_arg.clone(),
        log_directory: directory.to_path_buf(),
        share_session: false,
    }
}

pub(super) fn local_target(common: &CommonArguments, servers: &Servers, replication: u32) -> Target {
    let flag = common.server_arg.iter().any(|argument| argument.starts_with("--durability"));
    let durability = match (&common.durability_label, flag) {
        (Some(label), _) => label.clone(),
        (None, true) => common.server_arg.join(" "),
        (None, false) if replication > 1 => QUORUM_DURABILITY.to_owned(),
        (None, false) => DEFAULT_DURABILITY.to_owned(),
    };
    Target {
        contact_points: servers.contact_points(),
        process_ids: servers.process_ids(),
        data_directories: servers.data_directories(),
        durability,
        replication,
    }
}

pub(super) fn remote_target(common: &CommonArguments) -> Target {
    Target {
        contact_points: common.connection.contact_points(),
        process_ids: common.server_pid.clone(),
        data_directories: common.server_data_dir.clone(),
        durability: common.durability_label.clone().unwrap_or_else(|| "not stated".to_owned()),
        replication: common.remote_replication(),
    }
}

/// Checks the arguments that all scenarios share.
pub(super) fn check(common: &CommonArguments, records: Option<u64>) -> Result<(), WorkloadError> {
    if common.value_size < MIN_VALUE_BYTES {
        let message = format!("--value-size {} is too small: a value needs {MIN_VALUE_BYTES} bytes", common.value_size);
        return Err(WorkloadError::Arguments(message));
    }
    if common.connection.connections == 0 || records == Some(0) {
        return Err(WorkloadError::Arguments("--connections and --records must be at least 1".into()));
    }
    Ok(())
}
