//! `diorite bench failover`: `kill -9` of the node that leads most tablets, under load, again and again.
//!
//! Beside the load, one probe for each tablet writes its own key through the driver until that succeeds; the slowest probe
//! says when every tablet took writes again. Then the node is started again, and the next round begins when it has caught up.
//!
//! Always true: time runs from the kill, not from its discovery; the load retries as the driver does by default, and every
//! error that still reaches it is counted by kind; every row that it reads is checked, so a lost write ends the run.
//!
//! Left out: servers that were not started here, since nodes are killed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use diorite_base::clock::{Clock, SystemClock};
use futures::future::join_all;

use super::common::check;
use super::measure::Measurement;
use super::phase::PhaseSpec;
use super::probes::Probes;
use super::servers::Servers;
use super::{CommonArguments, Target};
use crate::WorkloadError;
use crate::arguments::{ClientKind, ConnectionArguments, DataShape, Popularity, WorkloadKind, parse_duration};
use crate::command::{Setup, client_name, epoch_s};
use crate::data::KeyFormat;
use crate::key_state::KeyState;
use crate::process::Sampler;
use crate::report::{Figure, Header, Report};
use crate::row_set::RowSet;
use crate::runner::Plan;
use crate::status::say;
use crate::timer::pause;

const TABLE: &str = "failover";
/// Tablets of the table for each node, unless `--tablets` says how many in all.
const TABLETS_PER_NODE: u32 = 8;
/// The metric of a node that says how many tablets it leads.
const LEADERS: &str = "diorite_tablets_led";

/// `diorite bench failover`.
#[derive(Debug, Clone, clap::Args)]
pub struct FailoverArguments {
    #[command(flatten)]
    pub common: CommonArguments,
    /// How often a node is killed.
    #[arg(long, default_value_t = 10)]
    pub kills: u32,
    /// How long nodes are left alone between the return of one and the next kill.
    #[arg(long, value_parser = parse_duration, default_value = "5s")]
    pub rest: Duration,
    /// Operations of the load per second, half of them reads.
    #[arg(long, default_value_t = 2_000.0)]
    pub rate: f64,
    /// Readers and writers of the load, each: the most requests in flight.
    #[arg(long, default_value_t = 64)]
    pub load_tasks: usize,
}

/// The measurements of one kill.
#[derive(Debug, Clone, PartialEq)]
struct Round {
    /// From 1.
    node: usize,
    /// Tablets that it led.
    led: Option<u64>,
    /// From the kill until a tablet took a write, of every tablet, ms.
    writable_ms: Vec<f64>,
    /// Until the node was ready again after its start, s.
    restart_s: f64,
}

impl Round {
    fn all_writable_ms(&self) -> f64 {
        self.writable_ms.iter().copied().fold(0.0, f64::max)
    }
}

/// Kills nodes of `servers` under load.
pub async fn run(
    arguments: &FailoverArguments,
    target: &Target,
    servers: &mut Servers,
) -> Result<Report, WorkloadError> {
    let common = &arguments.common;
    check(common, None)?;
    if servers.count() < 3 || target.replication < 3 || arguments.kills == 0 {
        let message = "a failover needs --nodes 3 and --rf 3 at least, and --kills at least 1";
        return Err(WorkloadError::Arguments(message.into()));
    }
    let clock = SystemClock::new();
    let tablets = common.tablets.unwrap_or(TABLETS_PER_NODE * target.nodes());
    let keys = Arc::new(KeyState::new(epoch_s(&clock), 0, u64::MAX / 2, 256 << 20));
    let rows = RowSet::new(keys, KeyFormat::new("key", common.key_size), common.value_size, Popularity::Uniform);
    let connection = ConnectionArguments { retries: true, ..common.connection(target) };
    let setup = Setup {
        connection: &connection,
        kind: WorkloadKind::KeyValue,
        client: ClientKind::Driver,
        table: Some(TABLE),
        ttl_s: None,
        tablets: Some(tablets),
        shape: DataShape::default(),
        key_prefix: "key",
        start_ms: clock.wall_us() / 1_000,
    };
    let executor = setup.executor(&rows).await?;
    let probes = Probes::connect(&common.connection(target), TABLE, tablets).await?;
    // Processes end and start during the run, so their processor time has no meaning.
    let sampler = Sampler::new(&[], &target.data_directories);
    let mut measurement = Measurement::new(sampler, common.json);
    let until = Arc::new(AtomicBool::new(false));
    let load = measurement.phase(load(arguments, &until), &executor);
    let rounds = async {
        let rounds = rounds(arguments, servers, &probes, &clock).await;
        until.store(true, Ordering::Relaxed);
        rounds
    };
    let (outcome, rounds) = tokio::join!(load, rounds);
    let figures = figures(&rounds?, &outcome?.errors);
    Ok(Report::new(header(arguments, target, tablets), measurement).with_figures(figures))
}

fn load(arguments: &FailoverArguments, until: &Arc<AtomicBool>) -> PhaseSpec {
    let plan = Plan {
        writers: arguments.load_tasks,
        readers: arguments.load_tasks,
        writes: None,
        reads: None,
        duration: None,
        rate: Some(arguments.rate),
        seed: arguments.common.seed,
        until: Some(Arc::clone(until)),
    };
    let description = format!("{} operations/s, {} kills", arguments.rate, arguments.kills);
    PhaseSpec { expects_errors: true, ..PhaseSpec::new("load-under-kills", description, plan) }
}

async fn rounds(
    arguments: &FailoverArguments,
    servers: &mut Servers,
    probes: &Probes,
    clock: &SystemClock,
) -> Result<Vec<Round>, WorkloadError> {
    let mut rounds = Vec::new();
    for round in 0..arguments.kills {
        pause(arguments.rest).await;
        // Also a proof that every tablet takes writes before the kill.
        probes.all_writable_ms(clock, clock.monotonic_ns()).await?;
        let (victim, led) = most_leaders(&servers.addresses(), round).await;
        let killed_ns = clock.monotonic_ns();
        servers.kill(victim).await?;
        let writable_ms = probes.all_writable_ms(clock, killed_ns).await?;
        let restart_ns = clock.monotonic_ns();
        servers.restart(victim).await?;
        let restart_s = (clock.monotonic_ns() - restart_ns) as f64 / 1e9;
        let done = Round { node: victim + 1, led, writable_ms, restart_s };
        let text = format!("kill {}: {}, {:.0} ms", round + 1, done.name(), done.all_writable_ms());
        say(arguments.common.json, &text);
        rounds.push(done);
    }
    Ok(rounds)
}

/// The node that leads most tablets, and how many it leads. If nodes do not report it, each node in turn.
async fn most_leaders(addresses: &[IpAddr], round: u32) -> (usize, Option<u64>) {
    let led = join_all(addresses.iter().map(async |&address| {
        let metrics = diorite_local::http::get(address, "/metrics").await?;
        diorite_local::http::metric(&metrics, LEADERS).map(|led| led as u64)
    }));
    let known = led.await.into_iter().enumerate().filter_map(|(index, led)| Some((index, led?)));
    match known.max_by_key(|&(_, led)| led) {
        Some((index, led)) => (index, Some(led)),
        None => (round as usize % addresses.len(), None),
    }
}

impl Round {
    fn name(&self) -> String {
        match self.led {
            Some(led) => format!("node {}, leader of {led} tablets", self.node),
            None => format!("node {}", self.node),
        }
    }
}

fn figures(rounds: &[Round], errors: &BTreeMap<String, u64>) -> Vec<Figure> {
    let mut times: Vec<f64> = rounds.iter().map(Round::all_writable_ms).collect();
    times.sort_by(f64::total_cmp);
    let mut figures = vec![
        Figure::new("every tablet takes writes again, median", median(&times), "ms").with_goal("at most 1,500"),
        Figure::new("every tablet takes writes again, slowest kill", times.last().copied(), "ms"),
    ];
    let kinds = errors_by_kind(errors);
    let total: u64 = kinds.values().sum();
    figures.push(Figure::new("errors that reached the load", total as f64, "").with_goal("timeouts only"));
    figures.extend(kinds.into_iter().map(|(kind, times)| Figure::new(format!("errors: {kind}"), times as f64, "")));
    for (number, round) in rounds.iter().enumerate() {
        let name = format!("kill {} ({})", number + 1, round.name());
        figures.push(Figure::new(format!("{name}: every tablet takes writes"), round.all_writable_ms(), "ms"));
        figures.push(Figure::new(format!("{name}: ready after its start"), round.restart_s, "s"));
    }
    figures
}

/// Of sorted numbers; between the two in the middle if there are two.
fn median(sorted: &[f64]) -> Option<f64> {
    let (lower, upper) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some((lower + upper) / 2.0)
}

/// How many errors of each sort there were.
pub(super) fn errors_by_kind(errors: &BTreeMap<String, u64>) -> BTreeMap<&'static str, u64> {
    let mut kinds = BTreeMap::new();
    for (message, times) in errors {
        *kinds.entry(kind(message)).or_default() += times;
    }
    kinds
}

/// The kind of error of a message, without addresses and numbers.
fn kind(message: &str) -> &'static str {
    const KINDS: [(&str, &str); 9] = [
        ("client timeout", "the client's time-out"),
        // "Not enough nodes responded in time" is not "not enough nodes are alive".
        ("in time to satisfy", "the server's time-out"),
        ("too long to respond", "the server's time-out"),
        ("timeout", "the server's time-out"),
        ("overloaded", "overloaded"),
        ("not enough nodes", "unavailable"),
        ("unavailable", "unavailable"),
        ("onnection", "connection lost"),
        ("failure", "the server's failure"),
    ];
    let lower = message.to_lowercase();
    KINDS.iter().find(|(part, _)| lower.contains(part)).map_or("others", |(_, kind)| kind)
}

fn header(arguments: &FailoverArguments, target: &Target, tablets: u32) -> Header {
    Header {
        title: "Failover".to_owned(),
        scenario: "failover".to_owned(),
        client: client_name(ClientKind::Driver).to_owned(),
        connections: arguments.common.connection.connections,
        durability: target.durability.clone(),
        notes: vec![
            format!(
                "{} nodes, replication factor {}, a table of {tablets} tablets. Time runs from `kill -9` of the node that leads most \
                 until a write of a key of each tablet has been acknowledged; servers, load and probes share the machine's cores.",
                target.nodes(),
                target.replication
            ),
            "The load goes through the driver with its default retries; every row that it reads is checked against what was acknowledged."
                .to_owned(),
        ],
        omissions: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_tablet_counts_in_a_kill_and_the_median_over_kills() {
        let round =
            |writable_ms: &[f64]| Round { node: 2, led: Some(8), writable_ms: writable_ms.to_vec(), restart_s: 1.0 };
        let rounds = [round(&[3.0, 900.0]), round(&[1_100.0, 2.0]), round(&[1.0, 500.0]), round(&[1_300.0])];
        let errors = BTreeMap::from([
            ("Request execution exceeded a client timeout of 12000ms".to_owned(), 2),
            (
                "Database returned an error: Not enough nodes responded to the write request in time to satisfy"
                    .to_owned(),
                3,
            ),
        ]);
        let figures = figures(&rounds, &errors);
        let value =
            |name: &str| figures.iter().find(|figure| figure.name.contains(name)).and_then(|figure| figure.value);
        assert_eq!(value("median"), Some(1_000.0));
        assert_eq!(value("slowest kill"), Some(1_300.0));
        assert_eq!(value("errors that reached"), Some(5.0));
        assert_eq!(value("the server's time-out"), Some(3.0));
        assert_eq!(value("kill 3 (node 2, leader of 8 tablets): every"), Some(500.0));
        assert_eq!(median(&[]), None);
    }
}
