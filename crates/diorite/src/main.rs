//! The `diorite` binary: parses the command line and calls the crate that does the work.

mod allocator;
mod config;
mod plan;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use config::{ConfigError, StartArguments};
use diorite_admin::command::AdminArguments;
use diorite_certs::command::CertsArguments;
use diorite_local::LocalArguments;
use diorite_node::{ConfigurationFile, Program};
use diorite_workload::{BenchArguments, WorkloadArguments, WorkloadError};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A strongly consistent wide-column database for dense nodes that speaks Cassandra's protocol.
#[derive(Parser)]
#[command(name = "diorite", version, about, propagate_version = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a node.
    Start(StartArguments),
    /// Check a node's configuration file.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Make, renew and show the certificates of a cluster's nodes and clients.
    Certs(CertsArguments),
    /// Run a cluster of several nodes on this machine.
    Local(LocalArguments),
    /// Observe and change a running cluster.
    Admin(AdminArguments),
    /// Put a load on any CQL cluster and check what it reads.
    Workload(WorkloadArguments),
    /// Run a benchmark scenario, on a node of its own or on a running cluster, and write a report.
    Bench(BenchArguments),
    /// Notify the other nodes when the node that has started this process has ended.
    #[command(hide = true)]
    Guard,
    /// Compute what a cluster needs and can do, and how long changes of it take.
    Plan(plan::PlanArguments),
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Read a file as `diorite start` would, start nothing, and say what is wrong with it.
    Check {
        /// The file.
        #[arg(long, value_name = "FILE", env = "DIORITE_CONFIG")]
        config: PathBuf,
        /// Print all options that result, as JSON.
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    if let Some(missing) = missing_processor_feature() {
        eprintln!("diorite: this binary needs a processor with {missing} (x86-64-v3, 2013 or later)");
        return ExitCode::FAILURE;
    }
    let matches = match matches() {
        Ok(matches) => matches,
        Err(error) => return fail(&error, 1),
    };
    let parsed = CommandLine::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match parsed.command {
        Command::Start(arguments) => start(arguments),
        Command::Config { command: ConfigCommand::Check { config, json } } => check(&config, json),
        Command::Certs(arguments) => match diorite_certs::command::run(arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, 1),
        },
        Command::Local(arguments) => with_executable(|executable| match diorite_local::run(arguments, executable) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, 1),
        }),
        Command::Admin(arguments) => match diorite_admin::command::run(&arguments) {
            Ok(code) => code,
            Err(error) => fail(&error, 1),
        },
        Command::Workload(arguments) => measured(diorite_workload::run(arguments)),
        Command::Bench(arguments) => {
            with_executable(|executable| measured(diorite_workload::bench::run(arguments, executable)))
        }
        Command::Guard => match diorite_node::guard() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, 1),
        },
        Command::Plan(arguments) => match plan::run(&arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error, 2),
        },
    }
}

/// The command line, with what the environment and a file say of the options of a node.
fn matches() -> Result<ArgMatches, ConfigError> {
    let arguments: Vec<String> = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    Ok(config::with_sources(CommandLine::command(), &arguments)?.get_matches())
}

fn start(StartArguments { config, options }: StartArguments) -> ExitCode {
    if let Err(error) = options.check_ports() {
        return fail(&error, 1);
    }
    let configuration = config::file(config).map(|path| ConfigurationFile {
        path,
        read: |path| config::read_again(path).map_err(|error| Box::new(error).into()),
    });
    let program = Program { allocator: allocator::ALLOCATOR, guard: guard(), configuration };
    match diorite_node::run(options, program) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, 1),
    }
}

fn check(path: &Path, json: bool) -> ExitCode {
    match config::check(path) {
        Ok(options) if json => {
            println!("{:#}", diorite_node::configuration(&options));
            ExitCode::SUCCESS
        }
        Ok(_) => {
            println!("{}: all options are valid", path.display());
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error, 1),
    }
}

/// Runs this very binary as a guard, also if its file is replaced meanwhile.
fn guard() -> std::process::Command {
    let mut command = std::process::Command::new("/proc/self/exe");
    command.arg("guard");
    command
}

/// For commands that start nodes: they run this very binary.
fn with_executable(command: impl FnOnce(&Path) -> ExitCode) -> ExitCode {
    match std::env::current_exe() {
        Ok(executable) => command(&executable),
        Err(error) => fail(&error, 1),
    }
}

/// The exit code of a load generator.
fn measured(outcome: Result<ExitCode, WorkloadError>) -> ExitCode {
    outcome.unwrap_or_else(|error| fail(&error, error.exit_code()))
}

fn fail(error: &dyn std::error::Error, code: u8) -> ExitCode {
    eprintln!("diorite: {error}");
    ExitCode::from(code)
}

/// The baseline that the binary is compiled for, checked before anything else could trip over it.
fn missing_processor_feature() -> Option<&'static str> {
    #[cfg(target_arch = "x86_64")]
    {
        if !std::arch::is_x86_feature_detected!("avx2") {
            return Some("AVX2");
        }
        if !std::arch::is_x86_feature_detected!("pclmulqdq") {
            return Some("PCLMULQDQ");
        }
    }
    None
}
