//! `diorite workload`, from the parsed command line to the exit code.
//!
//! Always true: the exit code is 0 only if every request succeeded and every value was right; 1 if requests failed or
//! the run could not begin; 2 if a wrong, missing or stale value was read, which is then named on standard error.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use diorite_base::clock::{Clock, SystemClock};
use diorite_base::random::{Random, SplitMix64};
use scylla::client::session::Session;
use scylla::statement::Consistency;

use crate::WorkloadError;
use crate::arguments::{ClientKind, ConnectionArguments, DataShape, Settings, WorkloadArguments, WorkloadKind};
use crate::bench::measure::Measurement;
use crate::bench::phase::PhaseSpec;
use crate::data::KeyFormat;
use crate::key_state::KeyState;
use crate::pipelined::{NodeAddress, Pipelined};
use crate::process::Sampler;
use crate::report::{Header, Report};
use crate::row_set::RowSet;
use crate::runner::{Executor, Outcome, Plan, drive};
use crate::session::{connect, execute_schema, use_keyspace};
use crate::statements::Statements;
use crate::status::{StatusLine, result_table, say};
use crate::timeseries::Timeseries;
use crate::workloads::Workload;
use crate::workloads::batch_timeseries::BatchTimeseries;
use crate::workloads::event_data::EventData;
use crate::workloads::indexed_rows::IndexedRows;
use crate::workloads::personalization::Personalization;
use crate::workloads::rows::RowWorkload;
use crate::workloads::stock_ticker::StockTicker;
use crate::workloads::transactional::TransactionalRows;

/// Seconds since 1970, as far as versions keep them.
pub fn epoch_s(clock: &impl Clock) -> u32 {
    (clock.wall_us() / 1_000_000) as u32
}

/// Runs the workload; the error is for the caller to print.
pub fn run(arguments: WorkloadArguments) -> Result<ExitCode, WorkloadError> {
    block_on(carry_out(arguments))
}

/// Runs a command to its end on threads of its own. Here and not in the caller: the code of a future is compiled in the crate that runs it.
pub(crate) fn block_on<T>(command: impl Future<Output = Result<T, WorkloadError>>) -> Result<T, WorkloadError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("client").build();
    runtime.map_err(WorkloadError::Threads)?.block_on(command)
}

async fn carry_out(arguments: WorkloadArguments) -> Result<ExitCode, WorkloadError> {
    let settings = arguments.settings()?;
    if let Some(table) = &arguments.drop_table_name {
        let session = connect(&arguments.connection, 1).await?;
        use_keyspace(&session, &arguments.connection).await?;
        execute_schema(&session, &format!("DROP TABLE IF EXISTS {table};")).await?;
        say(arguments.json, &format!("dropped table {table}"));
        return Ok(ExitCode::SUCCESS);
    }
    let clock = SystemClock::new();
    let seed = arguments.seed.unwrap_or_else(|| SplitMix64::from_entropy().next_u64());
    let prefix = arguments.key_prefix(SplitMix64::from_entropy().next_u64());
    let keys = KeyState::new(epoch_s(&clock), settings.first_new, settings.end_new, arguments.tracked_keys);
    let format = KeyFormat::new(&prefix, arguments.key_size);
    let value_size = arguments.workload.value_size(arguments.value_size);
    let rows = RowSet::new(Arc::new(keys), format, value_size, arguments.popularity);
    let setup = Setup {
        connection: &arguments.connection,
        kind: arguments.workload,
        client: arguments.client,
        table: arguments.create_table_name.as_deref(),
        ttl_s: settings.ttl_s,
        tablets: arguments.tablets,
        shape: settings.shape,
        key_prefix: &prefix,
        start_ms: clock.wall_us() / 1_000,
    };
    let executor = setup.executor(&rows).await?;
    announce(&arguments, &settings, &prefix, seed);
    if settings.preload > 0 {
        preload(&executor, settings.preload, seed, arguments.json).await?;
    }
    let plan = plan(&arguments, &settings, seed);
    match &arguments.report {
        Some(directory) => run_with_report(&arguments, &executor, plan, directory).await,
        None => {
            let mut status = StatusLine::new(arguments.workload.name(), &plan, arguments.json);
            let outcome = drive(&executor, &plan, &mut status).await;
            status.finish();
            conclude(&arguments, &outcome?)
        }
    }
}

fn plan(arguments: &WorkloadArguments, settings: &Settings, seed: u64) -> Plan {
    Plan {
        writers: settings.writers,
        readers: settings.readers,
        writes: settings.writes,
        reads: settings.reads,
        duration: arguments.duration,
        rate: arguments.rate,
        seed,
        until: None,
    }
}

fn announce(arguments: &WorkloadArguments, settings: &Settings, prefix: &str, seed: u64) {
    let mode = match arguments.rate {
        Some(rate) => format!("open loop at {rate} ops/s, latency from the intended start"),
        None => "closed loop".to_owned(),
    };
    let text = format!(
        "{} on {}: {} writers, {} readers, {} connections per node, {mode}; keys {prefix}:<n>, values {} bytes; seed {seed}",
        arguments.workload.name(),
        arguments.connection.contact_points().join(", "),
        settings.writers,
        settings.readers,
        arguments.connection.connections,
        arguments.workload.value_size(arguments.value_size),
    );
    say(arguments.json, &text);
}

/// Loads keys for a run that only reads and was not told which exist.
async fn preload(executor: &Executor, keys: u64, seed: u64, json: bool) -> Result<(), WorkloadError> {
    let plan = Plan {
        writers: 16,
        readers: 0,
        writes: Some(keys),
        reads: None,
        duration: None,
        rate: None,
        seed,
        until: None,
    };
    let mut status = StatusLine::new("load for reads", &plan, json);
    let outcome = drive(executor, &plan, &mut status).await;
    status.finish();
    outcome.map(|_| ())
}

async fn run_with_report(
    arguments: &WorkloadArguments,
    executor: &Executor,
    plan: Plan,
    directory: &Path,
) -> Result<ExitCode, WorkloadError> {
    let mut measurement = Measurement::new(Sampler::default(), arguments.json);
    let phase = PhaseSpec::new(arguments.workload.name(), "diorite workload", plan);
    let outcome = measurement.phase(phase, executor).await?;
    let header = Header {
        title: arguments.workload.name().to_owned(),
        scenario: "workload".to_owned(),
        client: client_name(arguments.client).to_owned(),
        connections: arguments.connection.connections,
        durability: arguments.durability_label.clone(),
        notes: Vec::new(),
        omissions: Vec::new(),
    };
    let report = Report::new(header, measurement);
    report.write(directory)?;
    say(arguments.json, &format!("report: {}", directory.join("report.html").display()));
    conclude(arguments, &outcome)
}

/// How a report names a client.
pub fn client_name(client: ClientKind) -> &'static str {
    match client {
        ClientKind::Driver => "driver (Rust `scylla`)",
        ClientKind::Pipelined => "pipelined (one write per wake-up)",
    }
}

/// Prints the result and turns it into the exit code.
fn conclude(arguments: &WorkloadArguments, outcome: &Outcome) -> Result<ExitCode, WorkloadError> {
    say(arguments.json, &result_table(&outcome.tallies, outcome.seconds));
    if outcome.interrupted {
        say(arguments.json, "interrupted; what was done until then is counted");
    }
    for (message, times) in &outcome.errors {
        say(arguments.json, &format!("failed {times} times: {message}"));
    }
    if arguments.json {
        let result = serde_json::json!({
            "workload": arguments.workload.name(),
            "seconds": outcome.seconds,
            "interrupted": outcome.interrupted,
            "durability": arguments.durability_label,
            "reads": outcome.tallies.reads.summary(outcome.seconds),
            "writes": outcome.tallies.writes.summary(outcome.seconds),
            "errors": outcome.errors,
        });
        let mut stdout = std::io::stdout();
        let written = std::io::Write::write_fmt(&mut stdout, format_args!("{result:#}\n"));
        written.map_err(|error| WorkloadError::file(Path::new("standard output"), error))?;
    }
    let failed = outcome.tallies.reads.errors + outcome.tallies.writes.errors > 0;
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Everything needed to connect and create the table.
pub struct Setup<'setup> {
    pub connection: &'setup ConnectionArguments,
    pub kind: WorkloadKind,
    pub client: ClientKind,
    /// The table's name, or `None` for the workload's own.
    pub table: Option<&'setup str>,
    pub ttl_s: Option<u64>,
    pub tablets: Option<u32>,
    pub shape: DataShape,
    pub key_prefix: &'setup str,
    pub start_ms: i64,
}

impl Setup<'_> {
    /// Connects, creates keyspace and table, and prepares the statements.
    pub async fn executor(&self, rows: &RowSet) -> Result<Executor, WorkloadError> {
        let table = self.table.unwrap_or_else(|| Statements::default_table(self.kind));
        let statements = Statements::new(self.kind, table, self.ttl_s, self.tablets, self.shape.indexes);
        let connections = if self.client == ClientKind::Driver { self.connection.connections } else { 1 };
        let session = connect(self.connection, connections).await?;
        use_keyspace(&session, self.connection).await?;
        if self.client == ClientKind::Pipelined {
            execute_schema(&session, &statements.create_table).await?;
            let tablet_aware = self.connection.tablet_aware.unwrap_or(false);
            let nodes = if tablet_aware { cluster_nodes(&session) } else { self.contact_nodes() };
            // From here on only the pipelined connections are open.
            drop(session);
            let (keyspace, connections) = (&self.connection.keyspace, self.connection.connections);
            let rows = rows.clone();
            let pipelined = Pipelined::connect(&nodes, keyspace, connections, &statements, rows, tablet_aware).await?;
            return Ok(Executor::Pipelined(Arc::new(pipelined)));
        }
        Ok(Executor::Driver(Arc::new(self.workload(Arc::new(session), rows.clone(), &statements).await?)))
    }

    /// The workload over the driver.
    async fn workload(
        &self,
        session: Arc<Session>,
        rows: RowSet,
        statements: &Statements,
    ) -> Result<Workload, WorkloadError> {
        let consistency = if self.connection.local_reads { Consistency::One } else { Consistency::Quorum };
        let (prefix, shape, start_ms) = (self.key_prefix, self.shape, self.start_ms);
        Ok(match self.kind {
            WorkloadKind::Timeseries => {
                Workload::Timeseries(Timeseries::new(session, prefix, statements, consistency, start_ms).await?)
            }
            WorkloadKind::BatchTimeseries => Workload::BatchTimeseries(
                BatchTimeseries::new(session, prefix, statements, consistency, shape, start_ms).await?,
            ),
            WorkloadKind::StockTicker => {
                let tables = [statements, &self.minutely_statements()];
                let tickers = shape.tickers;
                let series = StockTicker::new(session, prefix, tables, consistency, tickers, start_ms);
                Workload::StockTicker(series.await?)
            }
            WorkloadKind::TransactionalKeyValue | WorkloadKind::TransactionalRestartRead => {
                let rows = TransactionalRows::new(session, rows, self.kind, statements, consistency);
                Workload::Transactional(rows.await?)
            }
            WorkloadKind::Personalization => {
                let coupons = Personalization::new(session, rows, statements, consistency, shape);
                Workload::Personalization(coupons.await?)
            }
            WorkloadKind::SecondaryIndex | WorkloadKind::UniqueSecondaryIndex | WorkloadKind::Inserts => {
                let rows = IndexedRows::new(session, rows, self.kind, statements, consistency, shape);
                Workload::Indexed(rows.await?)
            }
            WorkloadKind::EventData => {
                let size = rows.value_size;
                let events = EventData::new(session, prefix, statements, consistency, shape, size, start_ms);
                Workload::EventData(events.await?)
            }
            WorkloadKind::KeyValue
            | WorkloadKind::RangeKeyValue
            | WorkloadKind::BatchKeyValue
            | WorkloadKind::UserId => {
                let rows = RowWorkload::new(session, rows, self.kind, statements, consistency, shape.batch_size);
                Workload::Rows(rows.await?)
            }
        })
    }

    /// The statements of CassandraStockTicker's second table, whose rows live 60 times as long.
    fn minutely_statements(&self) -> Statements {
        let table = self.table.map_or_else(|| "stock_ticker_1min".to_owned(), |raw| format!("{raw}_1min"));
        let ttl_s = self.ttl_s.map(|seconds| seconds.saturating_mul(60));
        Statements::new(self.kind, &table, ttl_s, self.tablets, self.shape.indexes)
    }

    fn contact_nodes(&self) -> Vec<NodeAddress> {
        self.connection.contact_points().into_iter().map(NodeAddress::anonymous).collect()
    }
}

/// All nodes of the cluster, as the driver has learned them.
fn cluster_nodes(session: &Session) -> Vec<NodeAddress> {
    let state = session.get_cluster_state();
    let nodes = state.get_nodes_info().iter().map(|node| {
        let address = std::net::SocketAddr::new(node.address.ip(), node.address.port());
        NodeAddress { address: address.to_string(), host_id: node.host_id.into_bytes() }
    });
    nodes.collect()
}
