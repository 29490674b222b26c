//! `diorite bench transactions`: what transactions, local indexes and batches cost, of what single rows cost.
//!
//! The steps ([`steps`]) write one row, a row of a table with transactions, a row with an index, transaction blocks and
//! batches of two rows in two tablets; read one row and two; and add to one hot row from several clients. They run in
//! alternation ([`rounds`]): each round runs every step, and a figure is the median over the rounds of the ratio to the
//! step that it is compared with.
//!
//! Always true: all steps use the driver, and all but the hot row have as many requests in flight, so a ratio compares
//! requests and not clients; what a step has written is read and checked in each round, and the first wrong row ends
//! the run. Left out: conflicts other than those of the hot row.

pub mod rounds;
pub mod steps;

use std::sync::Arc;
use std::time::Duration;

use diorite_base::random::SplitMix64;

use super::common::check;
use super::large_dataset::replication_note;
use super::measure::Measurement;
use super::phase::PhaseSpec;
use super::{CommonArguments, Target};
use crate::WorkloadError;
use crate::arguments::{ClientKind, parse_duration};
use crate::command::client_name;
use crate::data::KeyFormat;
use crate::latency::OperationKind;
use crate::report::{Figure, Header, Report};
use crate::runner::Plan;
use crate::session::{connect, use_keyspace};
use crate::transactions::hot::Outcomes;
use crate::transactions::pairs::PairShape;
use rounds::{Round, Rounds, median, ratio};
use steps::{HOT_CLIENTS, HOT_ROW, Step, Steps};

/// Tablets of each table, unless the command line says.
const TABLETS: u32 = 8;
/// Transactions of the hot row per second.
const HOT_GOAL: f64 = 200.0;

/// `diorite bench transactions`.
#[derive(Debug, Clone, clap::Args)]
pub struct TransactionsArguments {
    #[command(flatten)]
    pub common: CommonArguments,
    /// Rows to load into each of the two tables that are read.
    #[arg(long, default_value_t = 100_000)]
    pub records: u64,
    /// Rounds, each of which runs every step.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// How long each step is measured in each round.
    #[arg(long, value_parser = parse_duration, default_value = "4s")]
    pub phase_duration: Duration,
    /// How long each step runs before the first round.
    #[arg(long, value_parser = parse_duration, default_value = "1s")]
    pub warm_up: Duration,
    /// Requests in flight over all connections, in every step but the hot row's.
    #[arg(long, default_value_t = 64)]
    pub in_flight: usize,
}

/// Runs all steps in alternation against `target`.
pub async fn run(arguments: &TransactionsArguments, target: &Target) -> Result<Report, WorkloadError> {
    arguments.check()?;
    let common = &arguments.common;
    let connection = common.connection(target);
    let session = Arc::new(connect(&connection, connection.connections).await?);
    use_keyspace(&session, &connection).await?;
    let shape = PairShape::new(KeyFormat::new("key", common.key_size), common.value_size, arguments.tablets());
    let steps = Steps::create(&session, &shape, arguments.records).await?;
    let mut measurement = Measurement::new(target.sampler(), common.json);
    let mut measured: Vec<Rounds> = steps.steps.iter().map(|_| Rounds::default()).collect();
    run_rounds(arguments, &steps, &mut measurement, &mut measured).await?;
    let of_steps = || std::iter::zip(&steps.steps, &measured);
    let whole = of_steps().filter_map(|(step, rounds)| {
        let spec = PhaseSpec { reference: step.reference(), ..arguments.phase(step, step.name.to_owned()) };
        rounds.whole(PhaseSpec { is_result: true, ..spec })
    });
    // A step runs for seconds in each round: in a chart over time that would be stripes.
    measurement.samples.clear();
    measurement.phases = whole.chain(std::mem::take(&mut measurement.phases)).collect();
    let by_name: Vec<_> = of_steps().map(|(step, rounds)| (step, rounds.rounds())).collect();
    let outcomes = steps.hot.outcomes();
    let (hot, starved) = hot_figures(&by_name, &outcomes);
    let figures = by_name.iter().flat_map(|(step, rounds)| ratios(step, rounds, &by_name)).chain(hot).collect();
    Ok(Report::new(header(arguments, target), measurement).with_figures(figures).with_unfinished(starved))
}

/// Loads, warms up, and runs the rounds, until all are done or Ctrl-C ends one.
async fn run_rounds(
    arguments: &TransactionsArguments,
    steps: &Steps,
    measurement: &mut Measurement,
    measured: &mut [Rounds],
) -> Result<(), WorkloadError> {
    let mut random = SplitMix64::new(arguments.common.seed);
    for (step, operations) in &steps.loads {
        let mut load = arguments.phase(step, step.name.to_owned());
        (load.plan.writes, load.plan.duration) = (Some(*operations), None);
        if measurement.phase(load, &step.executor).await?.interrupted {
            return Ok(());
        }
        step.verify(&mut random).await?;
    }
    for step in &steps.steps {
        let mut warm_up = arguments.phase(step, format!("{}-warm-up", step.name));
        warm_up.plan.duration = Some(arguments.warm_up);
        if measurement.phase(warm_up, &step.executor).await?.interrupted {
            return Ok(());
        }
    }
    for round in 1..=arguments.rounds {
        for (step, rounds) in std::iter::zip(&steps.steps, measured.iter_mut()) {
            let phase = arguments.phase(step, format!("{}-{round}", step.name));
            let outcome = measurement.phase(phase, &step.executor).await?;
            step.verify(&mut random).await?;
            if outcome.interrupted {
                return Ok(());
            }
            if let Some(phase) = measurement.phases.last() {
                rounds.add(phase.clone(), &outcome);
            }
        }
    }
    Ok(())
}

impl TransactionsArguments {
    /// Refuses arguments with which nothing can be measured.
    fn check(&self) -> Result<(), WorkloadError> {
        check(&self.common, Some(self.records))?;
        if self.in_flight == 0 {
            return Err(WorkloadError::Arguments("--in-flight must be at least 1".into()));
        }
        if self.tablets() < 2 {
            return Err(WorkloadError::Arguments("--tablets must be at least 2: blocks are over two tablets".into()));
        }
        Ok(())
    }

    fn tablets(&self) -> u32 {
        self.common.tablets.unwrap_or(TABLETS)
    }

    /// A step in one round.
    fn phase(&self, step: &Step, name: String) -> PhaseSpec {
        let in_flight = if step.is_hot() { HOT_CLIENTS } else { self.in_flight };
        let (writers, readers) = match step.kind {
            OperationKind::Write => (in_flight, 0),
            OperationKind::Read => (0, in_flight),
        };
        let plan = Plan {
            writers,
            readers,
            writes: None,
            reads: None,
            duration: Some(self.phase_duration),
            rate: None,
            seed: self.common.seed,
            until: None,
        };
        let description = format!("{}, {in_flight} in flight", step.description);
        // A block that waits too long for the hot row is refused, which is a result.
        let expects_errors = step.is_hot();
        PhaseSpec { is_result: false, expects_errors, ..PhaseSpec::new(name, description, plan) }
    }
}

/// A step compared with its base: processor time per operation, and p50.
fn ratios(step: &Step, rounds: &[Round], all: &[(&Step, Vec<Round>)]) -> Vec<Figure> {
    let Some(comparison) = step.comparison else { return Vec::new() };
    let base = all.iter().find(|(step, _)| step.name == comparison.base);
    let base = base.map_or(&[][..], |(_, rounds)| rounds);
    let goal = |most: Option<f64>| most.map(|most| format!("at most {most}")).unwrap_or_default();
    let (name, of) = (step.name, comparison.base);
    let cpu = ratio(rounds, base, |round| round.server_cpu_seconds_per_operation);
    vec![
        Figure::new(format!("{name}: server CPU per operation, of that of {of}"), cpu, "×")
            .with_goal(goal(comparison.cpu_at_most)),
        Figure::new(format!("{name}: p50, of that of {of}"), ratio(rounds, base, |round| round.p50_us), "×")
            .with_goal(goal(comparison.p50_at_most)),
    ]
}

/// The figures of the hot row, and whether clients were starved; nothing if it was not measured.
fn hot_figures(all: &[(&Step, Vec<Round>)], outcomes: &[Outcomes]) -> (Vec<Figure>, Vec<String>) {
    let rounds = all.iter().find(|(step, _)| step.is_hot()).map_or(&[][..], |(_, rounds)| rounds);
    if rounds.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let per_second = median(rounds.iter().map(|round| round.operations_per_second).collect());
    let rate = Figure::new(format!("{HOT_ROW}: transactions of {} clients", outcomes.len()), per_second, "per second");
    let figures = [vec![rate.with_goal(format!("at least {HOT_GOAL}"))], fairness(outcomes)].concat();
    (figures, starved(outcomes).into_iter().collect())
}

/// How evenly the clients of the hot row were served, and how many outcomes are unknown.
fn fairness(outcomes: &[Outcomes]) -> Vec<Figure> {
    let fewest = outcomes.iter().map(|outcomes| outcomes.acknowledged).min();
    let total: u64 = outcomes.iter().map(|outcomes| outcomes.acknowledged).sum();
    let mean = total as f64 / outcomes.len() as f64;
    let share = fewest.filter(|_| mean > 0.0).map(|fewest| fewest as f64 / mean * 100.0);
    let unknown: u64 = outcomes.iter().map(|outcomes| outcomes.unknown).sum();
    vec![
        Figure::new(format!("{HOT_ROW}: transactions of the client with the fewest, of the mean"), share, "%")
            .with_goal("above 0"),
        Figure::new(format!("{HOT_ROW}: transactions of unknown outcome"), unknown as f64, ""),
    ]
}

/// What to say if a client of the hot row carried out nothing.
fn starved(outcomes: &[Outcomes]) -> Option<String> {
    let starved = outcomes.iter().filter(|outcomes| outcomes.acknowledged == 0).count();
    let clients = outcomes.len();
    (starved > 0).then(|| format!("{HOT_ROW}: {starved} of {clients} clients carried out no transaction"))
}

fn header(arguments: &TransactionsArguments, target: &Target) -> Header {
    let common = &arguments.common;
    Header {
        title: "Transactions, indexes and batches".to_owned(),
        scenario: "transactions".to_owned(),
        client: client_name(ClientKind::Driver).to_owned(),
        connections: common.connection.connections,
        durability: target.durability.clone(),
        notes: vec![
            format!(
                "{} rounds of {} ms for each step, in alternation. A ratio is the median over the rounds; both sides of it are of the same \
                 round. An operation is one request, whatever the number of its rows.",
                arguments.rounds,
                arguments.phase_duration.as_millis(),
            ),
            format!(
                "Rows of {} bytes key, a bigint and {} bytes value, in tables of {} tablets; {} rows are loaded for the reads of each kind. \
                 {} requests in flight; the hot row has {HOT_CLIENTS} clients with one request each.",
                common.key_size,
                common.value_size,
                arguments.tablets(),
                arguments.records,
                arguments.in_flight,
            ),
            replication_note(target.replication),
        ],
        omissions: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(acknowledged: u64, unknown: u64) -> Outcomes {
        Outcomes { acknowledged, unknown }
    }

    #[test]
    fn the_client_with_the_fewest_transactions_is_compared_with_the_mean() {
        let figures = fairness(&[outcomes(10, 1), outcomes(30, 2)]);
        let values: Vec<_> = figures.iter().map(|figure| figure.value).collect();
        assert_eq!(values, [Some(50.0), Some(3.0)]);
        assert_eq!(fairness(&[outcomes(0, 0)])[0].value, None);
    }

    #[test]
    fn a_client_without_any_transaction_is_starved() {
        assert_eq!(starved(&[outcomes(1, 0), outcomes(2, 0)]), None);
        let text = starved(&[outcomes(1, 0), outcomes(0, 4)]);
        assert_eq!(text.as_deref(), Some("hot-row: 1 of 2 clients carried out no transaction"));
    }
}
