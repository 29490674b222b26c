//! `diorite bench`: fixed scenarios, measured per server-CPU-second and set beside published numbers.
//!
//! Always true: the durability mode is in every table, JSON and report; the load generator's own CPU is never counted
//! as the server's; a number that could not be measured is shown as such.
//!
//! Without `--nodes`, or with a number there, the servers are started here. Left out: starting servers on other machines; they
//! are given by `--nodes` and measured by `--server-pid` if they are on this one.

use std::path::Path;
use std::process::ExitCode;

use crate::WorkloadError;
use crate::command::block_on;
use crate::report::Report;
use crate::status::say;
use crate::timer::interruption;

pub mod changes;
pub mod common;
pub mod dense;
pub mod failover;
pub mod hostile;
pub mod idle;
pub mod large_dataset;
pub mod measure;
pub mod operator;
pub mod phase;
pub mod point;
pub mod probes;
pub mod published;
pub mod servers;
pub mod stopwatch;
pub mod tablets;
pub mod transactions;
pub mod watch;

pub use common::{CommonArguments, Target};
use common::{local_target, remote_target, server_options};
use dense::DenseArguments;
use failover::FailoverArguments;
use hostile::HostileArguments;
use idle::IdleArguments;
use large_dataset::LargeDatasetArguments;
use point::PointArguments;
use servers::{Servers, ServersOptions};
use tablets::TabletsArguments;
use transactions::TransactionsArguments;

/// `diorite bench`.
#[derive(Debug, Clone, clap::Args)]
pub struct BenchArguments {
    #[command(subcommand)]
    pub scenario: Scenario,
}

/// The scenarios.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Scenario {
    /// Load, random reads, recent reads, writes, one node more and one node less, as in the published runs on tens of billions of records.
    LargeDataset(LargeDatasetArguments),
    /// Point reads in cache and fsynced inserts, the two figures of the project's efficiency target.
    Point(PointArguments),
    /// The same figures for tables of few and of many tablets, to find out how the number of tablets matters.
    Tablets(TabletsArguments),
    /// The cost for a node of a thousand tablets without requests.
    Idle(IdleArguments),
    /// Kill the node that leads most tablets, under load, again and again: how long until every tablet takes writes.
    Failover(FailoverArguments),
    /// Much data on little memory: disk reads per read, index and filters per TB, deleted and expired rows, one hot row.
    Dense(DenseArguments),
    /// The latency of other clients' point reads while one client sends harmful requests.
    Hostile(HostileArguments),
    /// Transaction blocks, local indexes, batches and snapshots, compared with single rows; one hot row.
    Transactions(TransactionsArguments),
}

impl Scenario {
    fn common(&self) -> &CommonArguments {
        match self {
            Self::LargeDataset(scenario) => &scenario.common,
            Self::Point(scenario) => &scenario.common,
            Self::Tablets(scenario) => &scenario.point.common,
            Self::Idle(scenario) => &scenario.common,
            Self::Failover(scenario) => &scenario.common,
            Self::Hostile(scenario) => &scenario.common,
            Self::Dense(scenario) => &scenario.common,
            Self::Transactions(scenario) => &scenario.common,
        }
    }

    /// How many servers are started if the command line does not say.
    fn default_nodes(&self) -> u32 {
        match self {
            Self::Point(_) | Self::Hostile(_) | Self::Dense(_) | Self::Transactions(_) => 1,
            Self::LargeDataset(_) => 4,
            Self::Tablets(_) | Self::Idle(_) | Self::Failover(_) => 3,
        }
    }

    /// Further arguments of the servers that are started.
    fn server_arguments(&self) -> Vec<String> {
        match self {
            Self::Hostile(scenario) => scenario.server_arguments(),
            Self::Dense(scenario) => scenario.server_arguments(),
            _ => Vec::new(),
        }
    }

    /// How many addresses beside the servers' must be free, for nodes that are added.
    fn spare_addresses(&self, nodes: u32) -> u32 {
        u32::from(matches!(self, Self::LargeDataset(_)) && nodes > 1)
    }
}

/// Runs a scenario. Without addresses in `--nodes`, `executable start` serves it.
pub fn run(arguments: BenchArguments, executable: &Path) -> Result<ExitCode, WorkloadError> {
    block_on(carry_out(arguments, executable))
}

async fn carry_out(arguments: BenchArguments, executable: &Path) -> Result<ExitCode, WorkloadError> {
    let scenario = &arguments.scenario;
    let common = scenario.common();
    let directory = common.report.clone().unwrap_or_else(stopwatch::default_report_directory);
    std::fs::create_dir_all(&directory).map_err(|error| WorkloadError::file(&directory, error))?;
    let (target, mut servers) = match common.nodes_to_start(scenario.default_nodes())? {
        Some(nodes) => {
            let options = ServersOptions {
                spare: scenario.spare_addresses(nodes),
                extra_arguments: [scenario.server_arguments(), common.server_arg.clone()].concat(),
                // Priorities of threads are to count between client and server.
                share_session: matches!(scenario, Scenario::Hostile(_)),
                ..server_options(common, nodes, executable, &directory)
            };
            let servers = Servers::start(&options).await?;
            (local_target(common, &servers, options.replication), Some(servers))
        }
        None if common.zones.is_some() => {
            return Err(WorkloadError::Arguments("--zones is for servers that are started here".into()));
        }
        None => (remote_target(common), None),
    };
    // Ctrl-C ends the phase under way, not the process, so the servers are always stopped below.
    let result = match scenario {
        Scenario::LargeDataset(scenario) => large_dataset::run(scenario, &target, servers.as_mut()).await,
        Scenario::Point(scenario) => point::run(scenario, &target).await,
        Scenario::Tablets(scenario) => tablets::run(scenario, &target).await,
        Scenario::Transactions(scenario) => transactions::run(scenario, &target).await,
        Scenario::Idle(scenario) => interruptible(idle::run(scenario, &target)).await,
        Scenario::Dense(scenario) => interruptible(dense::run(scenario, &target, servers.as_mut())).await,
        Scenario::Hostile(scenario) => interruptible(hostile::run(scenario, &target)).await,
        Scenario::Failover(scenario) => match &mut servers {
            Some(servers) => interruptible(failover::run(scenario, &target, servers)).await,
            None => Err(WorkloadError::Arguments("the failover benchmark kills nodes, so it must start them".into())),
        },
    };
    let keep_data = common.data_dir.is_some();
    if let Some(servers) = servers {
        servers.stop(keep_data || result.is_err()).await?;
    }
    let report = result?;
    conclude(&report, &directory, common.json)?;
    Ok(if report.has_failed() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// For scenarios that are more than phases: Ctrl-C ends them without a report.
async fn interruptible(scenario: impl Future<Output = Result<Report, WorkloadError>>) -> Result<Report, WorkloadError> {
    tokio::select! {
        result = scenario => result,
        () = interruption() => Err(WorkloadError::Server("interrupted".to_owned())),
    }
}

fn conclude(report: &Report, directory: &Path, json: bool) -> Result<(), WorkloadError> {
    report.write(directory)?;
    say(json, &report.table());
    say(json, &format!("report: {}", directory.join("report.html").display()));
    if json {
        let mut stdout = std::io::stdout();
        let written = std::io::Write::write_fmt(&mut stdout, format_args!("{}\n", report.to_json()));
        written.map_err(|error| WorkloadError::file(Path::new("standard output"), error))?;
    }
    Ok(())
}
