//! The `diorite` binary: parses the command line and hands over to the crate that does the work.

use clap::{Parser, Subcommand};
use diorite_node::StartOptions;
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
    Start(StartOptions),
}

fn main() -> ExitCode {
    if let Some(missing) = missing_processor_feature() {
        eprintln!("diorite: this binary needs a processor with {missing} (x86-64-v3, 2013 or later)");
        return ExitCode::FAILURE;
    }
    match CommandLine::parse().command {
        Command::Start(options) => match diorite_node::run(options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("diorite: {error}");
                ExitCode::FAILURE
            }
        },
    }
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
