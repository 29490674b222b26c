//! Runs seeds of the simulation and prints the outcomes.

use clap::Parser;
use diorite_sim::{FURTHER_KINDS, FaultKind, Options, Planting, Reached, Report, run};
use std::process::ExitCode;

/// Simulates clusters. A seed always gives the same run; the hash of its trace shows it.
#[derive(Parser)]
#[command(name = "diorite-sim")]
struct Arguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 500)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Run this seed only, and print its trace.
    #[arg(long)]
    seed: Option<u64>,
    /// With --seed: the report only.
    #[arg(long)]
    quiet: bool,
    /// Continue after a seed that fails.
    #[arg(long)]
    keep_going: bool,
    /// Judge only by what clients see.
    #[arg(long)]
    clients_only: bool,
    /// Split no tablets.
    #[arg(long)]
    without_splits: bool,
    /// Merge no tablets.
    #[arg(long)]
    without_merges: bool,
    /// Acknowledge writes before they are durable, in every seed (`--durability interval`).
    #[arg(long)]
    interval: bool,
    /// Have real rows in every seed.
    #[arg(long)]
    rows: bool,
    /// Have this kind of fault in every seed: sleep, suspend or day-jump.
    #[arg(long, value_parser = further)]
    further: Option<FaultKind>,
    /// Plant a bug, which must be found.
    #[arg(long, value_parser = planting)]
    bug: Option<Planting>,
}

fn planting(name: &str) -> Result<Planting, String> {
    let names: Vec<&str> = Planting::ALL.iter().map(|(name, _)| *name).collect();
    let found = Planting::ALL.iter().find(|(known, _)| *known == name);
    found.map(|(_, planting)| *planting).ok_or_else(|| format!("one of {}", names.join(", ")))
}

fn further(name: &str) -> Result<FaultKind, String> {
    let names: Vec<&str> = FURTHER_KINDS.iter().map(|(name, _)| *name).collect();
    let found = FURTHER_KINDS.iter().find(|(known, _)| *known == name);
    found.map(|(_, kind)| *kind).ok_or_else(|| format!("one of {}", names.join(", ")))
}

fn show(report: &Report) {
    let tally = report.tally;
    println!(
        "seed {:<8} trace {:016x}  {:>7} events {:>3} faults  {:>5} reads {:>5} writes {:>5} refused {:>4} unknown  recovered in {} ms",
        report.seed,
        report.hash,
        report.events,
        report.faults,
        tally.reads,
        tally.writes,
        tally.refused,
        tally.unknown,
        report.recovery_ns.map_or_else(|| "-".to_owned(), |ns| (ns / 1_000_000).to_string()),
    );
    if let Some(finding) = &report.finding {
        println!("seed {} FAILED: {finding}", report.seed);
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (first, count) = arguments.seed.map_or((arguments.first, arguments.seeds), |seed| (seed, 1));
    let print = arguments.seed.is_some() && !arguments.quiet;
    let options = Options {
        bug: arguments.bug,
        print,
        clients_only: arguments.clients_only,
        without_splits: arguments.without_splits,
        without_merges: arguments.without_merges,
        interval: arguments.interval,
        rows: arguments.rows,
        further: arguments.further,
    };
    let mut failed = 0u64;
    let mut reached = Reached::default();
    for seed in first..first.saturating_add(count) {
        let report = run(seed, &options);
        show(&report);
        reached += report.reached;
        failed += u64::from(report.finding.is_some());
        if failed > 0 && !arguments.keep_going {
            break;
        }
    }
    println!("{reached:?}");
    println!("{failed} of {count} seeds failed");
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
