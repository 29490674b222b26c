//! `diorite bench`: fixed scenarios, measured per server-CPU-second and set beside published numbers.
//!
//! Always true: the durability mode is in every table, JSON and report; the load generator's own CPU is never counted
//! as the server's; a number that could not be measured is shown as such.
//!
//! Left out: starting more than one server; a cluster is given by `--nodes` and measured by `--server-pid`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::WorkloadError;
use crate::arguments::{ClientKind, ConnectionArguments};
use crate::report::Report;
use crate::status::say;

pub mod large_dataset;
pub mod local_server;
pub mod measure;
pub mod point;
pub mod published;

use large_dataset::LargeDatasetArguments;
use local_server::{LocalServer, LocalServerOptions};
use point::PointArguments;

/// `diorite bench`.
#[derive(Debug, Clone, clap::Args)]
pub struct BenchArguments {
    #[command(subcommand)]
    pub scenario: Scenario,
}

/// The scenarios.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Scenario {
    /// Load, random reads, recent reads and writes, as in the published runs on tens of billions of records.
    LargeDataset(LargeDatasetArguments),
    /// Point reads in cache and fsynced inserts, the two figures of the project's efficiency target.
    Point(PointArguments),
}

/// What every scenario takes.
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
    /// Where the server that is started keeps its data [default: in the report's directory, removed afterwards].
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
    /// Address that the server that is started listens on [default: the first free one from 127.0.0.1].
    #[arg(long)]
    pub listen: Option<String>,
    /// A further argument of the server that is started; may be repeated.
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
}

/// What a server started without durability flags does.
const DEFAULT_DURABILITY: &str = "fsync before acknowledgement (default)";

/// Runs a scenario. Without `--nodes`, `executable start` serves it.
pub async fn run(arguments: BenchArguments, executable: &Path) -> Result<ExitCode, WorkloadError> {
    let common = match &arguments.scenario {
        Scenario::LargeDataset(scenario) => &scenario.common,
        Scenario::Point(scenario) => &scenario.common,
    };
    let directory = common.report.clone().unwrap_or_else(measure::default_report_directory);
    std::fs::create_dir_all(&directory).map_err(|error| WorkloadError::file(&directory, error))?;
    let (target, server) = if common.connection.nodes.is_empty() {
        let server = LocalServer::spawn(&local_options(common, executable, &directory)).await?;
        (local_target(common, &server), Some(server))
    } else {
        (remote_target(common), None)
    };
    // Ctrl-C ends the phase under way, not the process, so the server is always stopped below.
    let result = match &arguments.scenario {
        Scenario::LargeDataset(scenario) => large_dataset::run(scenario, &target).await,
        Scenario::Point(scenario) => point::run(scenario, &target).await,
    };
    let (json, keep_data) = (common.json, common.data_dir.is_some());
    if let Some(server) = server {
        server.stop(keep_data || result.is_err()).await?;
    }
    conclude(&result?, &directory, json)
}

fn conclude(report: &Report, directory: &Path, json: bool) -> Result<ExitCode, WorkloadError> {
    report.write(directory)?;
    say(json, &report.table());
    say(json, &format!("report: {}", directory.join("report.html").display()));
    if json {
        let mut stdout = std::io::stdout();
        let written = std::io::Write::write_fmt(&mut stdout, format_args!("{}\n", report.to_json()));
        written.map_err(|error| WorkloadError::file(Path::new("standard output"), error))?;
    }
    Ok(if report.has_errors() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn local_options(common: &CommonArguments, executable: &Path, directory: &Path) -> LocalServerOptions {
    LocalServerOptions {
        executable: executable.to_path_buf(),
        data_directory: common.data_dir.clone().unwrap_or_else(|| directory.join("data")),
        listen: common.listen.clone(),
        extra_arguments: common.server_arg.clone(),
        log: directory.join("server.log"),
    }
}

fn local_target(common: &CommonArguments, server: &LocalServer) -> Target {
    let flag = common.server_arg.iter().any(|argument| argument.starts_with("--durability"));
    let durability = match (&common.durability_label, flag) {
        (Some(label), _) => label.clone(),
        (None, true) => common.server_arg.join(" "),
        (None, false) => DEFAULT_DURABILITY.to_owned(),
    };
    Target {
        contact_points: vec![server.contact_point()],
        process_ids: vec![server.process_id()],
        data_directories: vec![server.data_directory().to_path_buf()],
        durability,
    }
}

fn remote_target(common: &CommonArguments) -> Target {
    Target {
        contact_points: common.connection.contact_points(),
        process_ids: common.server_pid.clone(),
        data_directories: common.server_data_dir.clone(),
        durability: common.durability_label.clone().unwrap_or_else(|| "not stated".to_owned()),
    }
}
