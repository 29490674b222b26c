//! `diorite bench tablets`: the point benchmark on tables of few and of many tablets, one after another.
//!
//! Always true: a table has the same number of tablets for every node, `--tablets-per-node`; all its leaders together are that
//! many per node, and its replicas the replication factor times as many. Each table is dropped before the next is made, so only
//! the number of tablets differs.

use std::sync::Arc;

use super::measure::Measurement;
use super::phase::PhaseSpec;
use super::point::{PointArguments, executor};
use super::{Target, large_dataset};
use crate::WorkloadError;
use crate::command::client_name;
use crate::report::{Figure, Header, PhaseResult, Report};
use crate::session::{connect, execute_schema, use_keyspace};

/// `diorite bench tablets`.
#[derive(Debug, Clone, clap::Args)]
pub struct TabletsArguments {
    #[command(flatten)]
    pub point: PointArguments,
    /// Tablets of a table for each node, one table after another.
    #[arg(long, value_delimiter = ',', default_value = "8,25,50,100,200")]
    pub tablets_per_node: Vec<u32>,
}

/// Runs load, reads and inserts for every number of tablets.
pub async fn run(arguments: &TabletsArguments, target: &Target) -> Result<Report, WorkloadError> {
    let point = &arguments.point;
    let common = &point.common;
    point.check()?;
    if common.tablets.is_some() || arguments.tablets_per_node.contains(&0) {
        let message = "give --tablets-per-node, each at least 1, and not --tablets";
        return Err(WorkloadError::Arguments(message.into()));
    }
    let tablet_aware = common.connection.tablet_aware.or(Some(true));
    let connection = common.connection(target);
    let session = Arc::new(connect(&connection, 1).await?);
    let mut measurement = Measurement::new(target.sampler(), common.json);
    'tables: for &per_node in &arguments.tablets_per_node {
        let (table, rows) = (format!("tablets_{per_node}"), point.rows());
        let tablets = Some(per_node * target.nodes());
        let executor = executor(common, target, &table, tablets, tablet_aware, &rows).await?;
        let named = |phase: PhaseSpec| PhaseSpec { name: format!("{}-{per_node}", phase.name), ..phase };
        let phases = [point.load(), point.warm_up(), point.read("read".into()), point.insert("insert".into())];
        for phase in phases {
            if measurement.phase(named(phase), &executor).await?.interrupted {
                break 'tables;
            }
        }
        drop(executor);
        use_keyspace(&session, &connection).await?;
        execute_schema(&session, &format!("DROP TABLE {table};")).await?;
    }
    let figures = ["read", "insert"].iter().flat_map(|kind| cliff(kind, &measurement.phases)).collect();
    Ok(Report::new(header(arguments, target), measurement).with_figures(figures))
}

/// The throughput with the most tablets in % of that with the fewest, for the phases of one kind.
fn cliff(kind: &str, phases: &[PhaseResult]) -> Vec<Figure> {
    let per_node = |phase: &PhaseResult| phase.name.strip_prefix(kind)?.strip_prefix('-')?.parse::<u32>().ok();
    let mut found: Vec<_> = phases.iter().filter_map(|phase| Some((per_node(phase)?, phase))).collect();
    found.sort_unstable_by_key(|&(per_node, _)| per_node);
    let (Some((few, first)), Some((many, last))) = (found.first(), found.last()) else { return Vec::new() };
    let left = |value: fn(&PhaseResult) -> Option<f64>| Some(value(last)? / value(first)? * 100.0);
    let name = |what: &str| format!("{kind}s{what} with {many} tablets per node, of those with {few}");
    vec![
        Figure::new(name(" per second"), left(|phase| Some(phase.operations_per_second())), "%")
            .with_goal("at least 70"),
        Figure::new(name(" per server-CPU-second"), left(|phase| phase.operations_per_server_cpu_second), "%"),
    ]
}

fn header(arguments: &TabletsArguments, target: &Target) -> Header {
    let common = &arguments.point.common;
    Header {
        title: "Few and many tablets".to_owned(),
        scenario: "tablets".to_owned(),
        client: client_name(common.client).to_owned(),
        connections: common.connection.connections,
        durability: target.durability.clone(),
        notes: vec![
            format!(
                "{} nodes; a table of n tablets per node has n × {} tablets in all, so each node leads n of them. {} records each.",
                target.nodes(),
                target.nodes(),
                arguments.point.records,
            ),
            large_dataset::replication_note(target.replication),
        ],
        omissions: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::published::Reference;
    use crate::latency::Tally;

    fn phase(name: &str, operations: f64) -> PhaseResult {
        let mut reads = Tally::default().summary(1.0);
        reads.operations_per_second = operations;
        PhaseResult {
            name: name.into(),
            description: String::new(),
            is_result: true,
            expects_errors: false,
            start_s: 0.0,
            end_s: 1.0,
            writers: 0,
            readers: 1,
            writes: Tally::default().summary(1.0),
            reads,
            server_cpu_seconds: None,
            server_cpu_cores: None,
            operations_per_server_cpu_second: None,
            server_resident_bytes: None,
            disk_read_bytes: None,
            disk_write_bytes: None,
            device_reads: None,
            device_writes: None,
            sst_bytes: None,
            reference: Reference::default(),
        }
    }

    #[test]
    fn the_cliff_is_between_the_fewest_and_the_most_tablets() {
        let phases = [phase("load-8", 9.0), phase("read-8", 200.0), phase("read-200", 150.0), phase("read-50", 10.0)];
        let figures = cliff("read", &phases);
        assert_eq!((figures[0].value, figures[1].value), (Some(75.0), None));
        assert!(figures[0].name.contains("200 tablets per node"), "{}", figures[0].name);
        assert!(cliff("insert", &phases).is_empty());
    }
}
