//! `diorite bench hostile`: the latency of an ordinary client's point reads while another client sends hostile
//! requests.
//!
//! One phase per class of hostile requests ([`classes`]): an open loop of point reads through the driver, and beside it
//! as many connections as asked for that send requests of that class, one after another. The first and the last phase
//! have no hostile client. Threads that send hostile requests run at lower priority, as if they ran on other machines:
//! the reads and the server are measured.
//!
//! Always true: a class runs for a bounded time, whatever the server does; its answers are in the report. Left out:
//! judging the answers: a refusal is as good as a result, as long as others are served.

pub mod attack;
pub mod classes;
mod processors;

use std::sync::Arc;
use std::time::Duration;

use diorite_base::clock::SystemClock;

use super::measure::Measurement;
use super::phase::PhaseSpec;
use super::point::executor;
use super::{CommonArguments, Target};
use crate::WorkloadError;
use crate::arguments::{ClientKind, Popularity, parse_duration};
use crate::command::{client_name, epoch_s};
use crate::data::KeyFormat;
use crate::key_state::KeyState;
use crate::latency::Summary;
use crate::report::{Figure, Header, PhaseResult, Report};
use crate::row_set::RowSet;
use crate::runner::{Executor, Plan};
use crate::session::{connect, execute_schema, use_keyspace};
use attack::{Answers, Attack};
use classes::{CLASSES, Class, TABLES};
use processors::{Processors, Used};

const TABLE: &str = "bystander";
/// The phase that the others are compared with.
const ALONE: &str = "alone";
const LOAD_WRITERS: usize = 64;
/// How long a phase that is over waits for outstanding answers.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
const MIB: f64 = 1_048_576.0;

/// `diorite bench hostile`.
#[derive(Debug, Clone, clap::Args)]
pub struct HostileArguments {
    #[command(flatten)]
    pub common: CommonArguments,
    /// Only these classes of hostile requests; may be repeated [default: all].
    #[arg(long, value_name = "NAME")]
    pub class: Vec<String>,
    /// How long each class runs.
    #[arg(long, value_parser = parse_duration, default_value = "10s")]
    pub class_duration: Duration,
    /// Connections that send hostile requests.
    #[arg(long, default_value_t = 4)]
    pub attackers: usize,
    /// Point reads of the ordinary client per second, in an open loop.
    #[arg(long, default_value_t = 500.0)]
    pub rate: f64,
    /// Rows that it reads.
    #[arg(long, default_value_t = 10_000)]
    pub records: u64,
    /// Memory limit of the started servers, and the target for the memory that they hold.
    #[arg(long, default_value = "1GiB")]
    pub memory_limit: String,
}

impl HostileArguments {
    /// The classes that are asked for.
    fn classes(&self) -> Result<Vec<&'static Class>, WorkloadError> {
        if let Some(unknown) = self.class.iter().find(|name| CLASSES.iter().all(|class| class.name != **name)) {
            let known: Vec<&str> = CLASSES.iter().map(|class| class.name).collect();
            return Err(WorkloadError::Arguments(format!("there is no class {unknown}, only {}", known.join(", "))));
        }
        let is_wanted = |class: &&Class| self.class.is_empty() || self.class.iter().any(|name| name == class.name);
        Ok(CLASSES.iter().filter(is_wanted).collect())
    }

    /// Arguments of the servers that are started.
    pub(super) fn server_arguments(&self) -> Vec<String> {
        vec!["--memory-limit".to_owned(), self.memory_limit.clone()]
    }

    fn plan(&self, writers: usize, readers: usize, writes: Option<u64>, duration: Option<Duration>) -> Plan {
        let rate = writes.is_none().then_some(self.rate);
        Plan { writers, readers, writes, reads: None, duration, rate, seed: self.common.seed, until: None }
    }

    fn phase(&self, name: &str, description: String) -> PhaseSpec {
        let plan = self.plan(0, 64, None, Some(self.class_duration));
        PhaseSpec { expects_errors: true, ..PhaseSpec::new(name, description, plan) }
    }
}

/// Runs all classes against `target`.
pub async fn run(arguments: &HostileArguments, target: &Target) -> Result<Report, WorkloadError> {
    let classes = arguments.classes()?;
    let common = CommonArguments { client: ClientKind::Driver, ..arguments.common.clone() };
    let keys = Arc::new(KeyState::new(epoch_s(&SystemClock::new()), 0, u64::MAX / 2, 256 << 20));
    let rows = RowSet::new(keys, KeyFormat::new("key", common.key_size), common.value_size, Popularity::Uniform);
    let executor = executor(&common, target, TABLE, common.tablets, None, &rows).await?;
    let connection = common.connection(target);
    let session = connect(&connection, 1).await?;
    use_keyspace(&session, &connection).await?;
    for table in TABLES {
        execute_schema(&session, table).await?;
    }
    let mut measurement = Measurement::new(target.sampler(), common.json);
    let load = arguments.plan(LOAD_WRITERS, 0, Some(arguments.records), None);
    let load = PhaseSpec::new("load", format!("{} records", arguments.records), load);
    measurement.phase(PhaseSpec { is_result: false, ..load }, &executor).await?;
    let mut used = vec![Used::default()];
    let began = Processors::now();
    measurement.phase(arguments.phase(ALONE, "nobody beside".to_owned()), &executor).await?;
    used.push(began.used());
    let mut answers = Vec::new();
    for class in classes {
        let attack = Attack::new(class, &target.contact_points[0], &connection.keyspace, arguments.attackers);
        let began = Processors::now();
        answers.push((class, beside(arguments, &mut measurement, &executor, &attack).await?));
        used.push(began.used());
    }
    let began = Processors::now();
    measurement.phase(arguments.phase("alone again", "nobody beside".to_owned()), &executor).await?;
    used.push(began.used());
    let peak = peak_bytes(&measurement);
    let figures = figures(&measurement.phases, &used, peak);
    let header = header(arguments, target, &answers);
    Ok(Report::new(header, measurement).with_figures(figures))
}

/// Runs one phase of reads together with one class of hostile requests.
async fn beside(
    arguments: &HostileArguments,
    measurement: &mut Measurement,
    executor: &Executor,
    attack: &Arc<Attack>,
) -> Result<Answers, WorkloadError> {
    attack.prepare().await;
    let spec = arguments.phase(attack.class.name, attack.class.what.to_owned());
    let attacking = attack.begin();
    let outcome = measurement.phase(spec, executor).await;
    attack.end(attacking, LAST_ANSWERS).await;
    outcome?;
    Ok(attack.answers())
}

/// The most memory that the servers held in any second.
fn peak_bytes(measurement: &Measurement) -> Option<f64> {
    measurement.samples.iter().filter_map(|sample| sample.server_resident_bytes).reduce(f64::max)
}

/// The figures of the phases, each with its processor use, compared with the phases without hostile requests.
fn figures(phases: &[PhaseResult], used: &[Used], peak: Option<f64>) -> Vec<Figure> {
    let resident = Figure::new("resident memory, most", peak.map(|bytes| bytes / MIB), "MiB");
    let mut figures = vec![resident.with_goal("below --memory-limit")];
    let alone = phases.iter().find(|phase| phase.name == ALONE).map(|phase| &phase.reads);
    for (phase, used) in phases.iter().zip(used).filter(|(phase, _)| phase.is_result) {
        let name = &phase.name;
        let mut read = |what: &str, limit: &str, of: fn(&Summary) -> u64| {
            let ms = |reads: &Summary| of(reads) as f64 / 1_000.0;
            let without = alone.map(|reads| format!("{limit}{:.2} alone", ms(reads))).unwrap_or_default();
            figures.push(Figure::new(format!("{name}: {what} of others"), ms(&phase.reads), "ms").with_goal(without));
        };
        read("p50", "", |reads| reads.p50_us);
        read("p99", "at most 20; ", |reads| reads.p99_us);
        read("p99.9", "", |reads| reads.p999_us);
        read("longest", "", |reads| reads.max_us);
        figures.push(Figure::new(format!("{name}: failed reads of others"), phase.reads.errors as f64, ""));
        figures.push(Figure::new(format!("{name}: server CPU"), phase.server_cpu_cores, "cores"));
        figures.push(Figure::new(format!("{name}: client CPU"), used.client, "cores"));
        let others = used.others(phase.server_cpu_cores);
        figures.push(Figure::new(format!("{name}: CPU of other processes"), others, "cores").with_goal("near 0"));
    }
    figures
}

/// The answers to a class, in one line.
fn answers_line(class: &Class, answers: &Answers) -> String {
    let mut by_count: Vec<(&String, &u64)> = answers.iter().collect();
    by_count.sort_by_key(|(text, count)| (std::cmp::Reverse(**count), (*text).clone()));
    let told: Vec<String> = by_count.iter().map(|(text, count)| format!("{count} × {text}")).collect();
    format!("{}: {}", class.name, if told.is_empty() { "no answer".to_owned() } else { told.join("; ") })
}

fn header(arguments: &HostileArguments, target: &Target, answers: &[(&Class, Answers)]) -> Header {
    let mut notes = vec![format!(
        "{} point reads per second of an ordinary client, beside {} connections that send hostile requests of one class for {} ms. Then, what was answered to them.",
        arguments.rate,
        arguments.attackers,
        arguments.class_duration.as_millis(),
    )];
    notes.extend(answers.iter().map(|(class, answers)| answers_line(class, answers)));
    Header {
        title: "Hostile clients".to_owned(),
        scenario: "hostile".to_owned(),
        client: client_name(ClientKind::Driver).to_owned(),
        connections: arguments.common.connection.connections,
        durability: target.durability.clone(),
        notes,
        omissions: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn answers_are_told_the_most_frequent_first() {
        let answers: Answers =
            BTreeMap::from([("rows".to_owned(), 2), ("refused".to_owned(), 7), ("done".to_owned(), 2)]);
        let name = CLASSES[0].name;
        assert_eq!(answers_line(&CLASSES[0], &answers), format!("{name}: 7 × refused; 2 × done; 2 × rows"));
        assert_eq!(answers_line(&CLASSES[0], &Answers::new()), format!("{name}: no answer"));
    }
}
