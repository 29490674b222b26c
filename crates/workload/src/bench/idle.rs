//! `diorite bench idle`: the cost of idle tablets.
//!
//! Processor time and resident memory of each server are taken twice, before tables are made and with as many tablet replicas
//! on each node as asked for; the difference is theirs.
//!
//! Always true: nothing is sent to the servers while they are measured; the client's own cost is not in the numbers.

use std::time::Duration;

use diorite_base::clock::{Clock, SystemClock};

use super::measure::Measurement;
use super::{CommonArguments, Target};
use crate::WorkloadError;
use crate::arguments::parse_duration;
use crate::process::{Sampler, Usage};
use crate::report::{Figure, Header, Report};
use crate::session::{connect, execute_schema, use_keyspace};
use crate::status::say;
use crate::timer::pause;

/// How often a table is asked for before its creation has failed.
const CREATE_TRIES: u32 = 6;

/// `diorite bench idle`.
#[derive(Debug, Clone, clap::Args)]
pub struct IdleArguments {
    #[command(flatten)]
    pub common: CommonArguments,
    /// Tablet replicas on each node.
    #[arg(long, default_value_t = 1_000)]
    pub replicas: u32,
    /// Tablets of each table that is created for that.
    #[arg(long, default_value_t = 50)]
    pub tablets_per_table: u32,
    /// How long the servers are measured, each time.
    #[arg(long, value_parser = parse_duration, default_value = "30s")]
    pub phase_duration: Duration,
    /// How long they are left alone before that.
    #[arg(long, value_parser = parse_duration, default_value = "10s")]
    pub rest: Duration,
}

/// One server over one measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
struct NodeCost {
    /// Percent of one core.
    cpu_percent: f64,
    resident_bytes: f64,
}

/// Measures `target` without and with tablets.
pub async fn run(arguments: &IdleArguments, target: &Target) -> Result<Report, WorkloadError> {
    let common = &arguments.common;
    if target.process_ids.is_empty() {
        return Err(WorkloadError::Arguments(
            "the servers' processes are measured; give each one's --server-pid".into(),
        ));
    }
    if arguments.replicas == 0 || arguments.tablets_per_table == 0 {
        return Err(WorkloadError::Arguments("--replicas and --tablets-per-table must be at least 1".into()));
    }
    let clock = SystemClock::new();
    let mut measurement = Measurement::new(Sampler::default(), common.json);
    say(common.json, "without tablets");
    let before = measure(arguments, target, &clock).await?;
    let create_start_ns = clock.monotonic_ns();
    let tablets = tablets(arguments, target);
    say(common.json, &format!("creating tables of {} tablets in all", tablets.iter().sum::<u32>()));
    create(common, target, &tablets).await?;
    let create_s = (clock.monotonic_ns() - create_start_ns) as f64 / 1e9;
    say(common.json, &format!("with {} tablet replicas on each node", replicas(&tablets, target)));
    let after = measure(arguments, target, &clock).await?;
    measurement.samples.clear();
    let figures = figures(&before, &after, replicas(&tablets, target), tablets.len(), create_s);
    Ok(Report::new(header(arguments, target), measurement).with_figures(figures))
}

/// The tablets of each table.
fn tablets(arguments: &IdleArguments, target: &Target) -> Vec<u32> {
    let copies = target.replication.clamp(1, target.nodes());
    let mut left = (arguments.replicas * target.nodes()).div_ceil(copies);
    let mut tables = Vec::new();
    while left > 0 {
        let tablets = left.min(arguments.tablets_per_table);
        tables.push(tablets);
        left -= tablets;
    }
    tables
}

/// Replicas on each node, if they are spread evenly.
fn replicas(tablets: &[u32], target: &Target) -> f64 {
    let copies = target.replication.clamp(1, target.nodes());
    f64::from(tablets.iter().sum::<u32>() * copies) / f64::from(target.nodes())
}

async fn create(common: &CommonArguments, target: &Target, tablets: &[u32]) -> Result<(), WorkloadError> {
    let connection = common.connection(target);
    let session = connect(&connection, 1).await?;
    use_keyspace(&session, &connection).await?;
    for (number, tablets) in tablets.iter().enumerate() {
        let columns = "k varchar, v blob, primary key (k)";
        let statement = format!("CREATE TABLE IF NOT EXISTS idle_{number} ({columns}) WITH tablets = {tablets};");
        let mut tries = 0;
        // Opening many tablets may take longer than a statement waits; then it is asked again.
        while let Err(error) = execute_schema(&session, &statement).await {
            tries += 1;
            if tries == CREATE_TRIES {
                return Err(error);
            }
            say(common.json, &format!("asked again: {error}"));
        }
    }
    Ok(())
}

/// Leaves the servers alone, then watches them. No connection is open.
async fn measure(
    arguments: &IdleArguments,
    target: &Target,
    clock: &SystemClock,
) -> Result<Vec<NodeCost>, WorkloadError> {
    pause(arguments.rest).await;
    let sample = || -> Vec<Usage> {
        let one = |&pid: &u32| Sampler::new(&[pid], &[]).sample();
        target.process_ids.iter().map(one).collect()
    };
    let (first, start_ns) = (sample(), clock.monotonic_ns());
    pause(arguments.phase_duration).await;
    let (last, end_ns) = (sample(), clock.monotonic_ns());
    let seconds = (end_ns - start_ns) as f64 / 1e9;
    let cost = |(first, last): (&Usage, &Usage)| {
        let used = last.cpu_seconds? - first.cpu_seconds?;
        Some(NodeCost { cpu_percent: used / seconds * 100.0, resident_bytes: last.resident_bytes? as f64 })
    };
    let costs: Option<Vec<NodeCost>> = first.iter().zip(&last).map(cost).collect();
    costs.ok_or_else(|| WorkloadError::Server("a server ended while it was measured".into()))
}

fn figures(before: &[NodeCost], after: &[NodeCost], replicas: f64, tables: usize, create_s: f64) -> Vec<Figure> {
    const KIB: f64 = 1_024.0;
    const MIB: f64 = KIB * KIB;
    let highest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let memory =
        |(before, after): (&NodeCost, &NodeCost)| (after.resident_bytes - before.resident_bytes) / replicas / KIB;
    let mut figures = vec![
        Figure::new(
            format!("CPU of a node with {replicas:.0} idle tablet replicas"),
            highest(&mut after.iter().map(|cost| cost.cpu_percent)),
            "% of a core",
        )
        .with_goal("at most 2"),
        Figure::new(
            "CPU of a node without tablets",
            highest(&mut before.iter().map(|cost| cost.cpu_percent)),
            "% of a core",
        ),
        Figure::new("memory of an idle tablet replica", highest(&mut before.iter().zip(after).map(memory)), "KiB")
            .with_goal("at most 1,024; target 256"),
        Figure::new(format!("time to create {tables} tables"), create_s, "s"),
    ];
    for (number, (before, after)) in before.iter().zip(after).enumerate() {
        let number = number + 1;
        figures.push(Figure::new(format!("node {number}: CPU without tablets"), before.cpu_percent, "% of a core"));
        figures.push(Figure::new(format!("node {number}: CPU with tablets"), after.cpu_percent, "% of a core"));
        figures.push(Figure::new(format!("node {number}: memory without tablets"), before.resident_bytes / MIB, "MiB"));
        figures.push(Figure::new(format!("node {number}: memory with tablets"), after.resident_bytes / MIB, "MiB"));
    }
    figures
}

fn header(arguments: &IdleArguments, target: &Target) -> Header {
    Header {
        title: "Idle tablets".to_owned(),
        scenario: "idle".to_owned(),
        client: "none while measuring".to_owned(),
        connections: 0,
        durability: target.durability.clone(),
        notes: vec![
            format!(
                "Each node is left alone for {} s and then watched for {} s, first without tables. The figures are of the node that \
                 needs most.",
                arguments.rest.as_secs(),
                arguments.phase_duration.as_secs()
            ),
            "Memory is the resident set; what a replica needs is the difference divided by the number of replicas."
                .to_owned(),
        ],
        omissions: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_replica_is_the_difference_on_the_node_that_needs_most() {
        let cost = |cpu_percent, mib: f64| NodeCost { cpu_percent, resident_bytes: mib * 1_048_576.0 };
        let (before, after) = ([cost(0.1, 50.0), cost(0.2, 60.0)], [cost(1.5, 150.0), cost(1.0, 180.0)]);
        let figures = figures(&before, &after, 1_000.0, 10, 2.0);
        let values: Vec<f64> = figures.iter().take(4).filter_map(|figure| figure.value).collect();
        assert_eq!(values, [1.5, 0.2, 120.0 * 1_024.0 / 1_000.0, 2.0]);
        assert_eq!(figures.len(), 4 + 8);
    }
}
