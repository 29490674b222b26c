//! The command line of `diorite workload`: the flags of yb-sample-apps under their own names and in kebab-case, and ours.
//!
//! Always true: every flag that one of the published command lines uses is accepted and means the same; a count of -1
//! is endless; [`WorkloadArguments::settings`] refuses what cannot work before anything connects.
//!
//! Left out: flags of the SQL and Redis workloads, and the Java driver's own tuning.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::WorkloadError;
use crate::data::MIN_VALUE_BYTES;

mod kind;
mod shape;

pub use kind::WorkloadKind;
pub use shape::{DataShape, IndexShape, ShapeArguments};

/// Adds CQL's port to a contact point that names none.
fn with_port(node: &str) -> String {
    let is_bare_ipv6 = node.matches(':').count() > 1 && !node.starts_with('[');
    match node.rsplit_once(':') {
        Some((_, port)) if !is_bare_ipv6 && port.parse::<u16>().is_ok() => node.to_owned(),
        _ if is_bare_ipv6 => format!("[{node}]:9042"),
        _ => format!("{node}:9042"),
    }
}

/// A number of operations, keys or seconds; -1 is endless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count(pub Option<u64>);

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim() {
            "-1" => Ok(Self(None)),
            digits => digits
                .parse()
                .map(|count| Self(Some(count)))
                .map_err(|_| format!("{digits:?} is neither -1 (endless) nor a count")),
        }
    }
}

/// Which of the existing keys are read or overwritten.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Popularity {
    /// Each equally often.
    Uniform,
    /// Only the newest this many percent, each equally often.
    Recent { percent: f64 },
}

impl FromStr for Popularity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let lower = text.to_ascii_lowercase();
        match lower.split_once(':') {
            None if lower == "uniform" => Ok(Self::Uniform),
            None if lower == "recent" => Ok(Self::Recent { percent: 1.0 }),
            Some(("recent", percent)) => match percent.trim_end_matches('%').parse::<f64>() {
                Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Self::Recent { percent }),
                _ => Err(format!("{percent:?} is not a percentage above 0 and up to 100")),
            },
            _ => Err(format!("no popularity is called {text:?}; there are uniform and recent:<percent>")),
        }
    }
}

/// The CQL client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ClientKind {
    /// The Rust driver `scylla`, as an application would use it.
    Driver,
    /// A lean client that writes what is due on a connection at once; for machines where client and servers share cores.
    Pipelined,
}

/// Where the cluster is and how to talk to it.
#[allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags, reason = "texts of --help")]
#[derive(Debug, Clone, clap::Args)]
pub struct ConnectionArguments {
    /// Contact points, host[:port], separated by commas [workload's default: 127.0.0.1:9042].
    #[arg(long, value_delimiter = ',')]
    pub nodes: Vec<String>,
    /// Connections to each node.
    #[arg(long, alias = "concurrent-clients", alias = "concurrent_clients", default_value_t = 4)]
    pub connections: usize,
    /// User name for password authentication.
    #[arg(long)]
    pub username: Option<String>,
    /// Password for password authentication.
    #[arg(long)]
    pub password: Option<String>,
    /// A request that takes longer has failed, in milliseconds.
    #[arg(long, alias = "cql_read_timeout_ms", default_value_t = 12_000)]
    pub cql_read_timeout_ms: u64,
    /// Read at consistency ONE instead of QUORUM.
    #[arg(long, alias = "local_reads")]
    pub local_reads: bool,
    /// Replication factor of the keyspace, if it is created.
    #[arg(long, default_value_t = 1)]
    pub replication: u32,
    /// Keyspace to use; created if missing.
    #[arg(long, default_value = "ybdemo_keyspace")]
    pub keyspace: String,
    /// Send each request to the node that leads its tablet; --tablet-aware=false spreads them over all nodes
    /// [default: the driver does, the pipelined client does not].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub tablet_aware: Option<bool>,
    /// Let the driver retry as it does by default. Not a flag: a load generator that hides errors measures nothing.
    #[arg(skip)]
    pub retries: bool,
}

impl ConnectionArguments {
    /// The contact points, or this machine's.
    pub fn contact_points(&self) -> Vec<String> {
        let default = ["127.0.0.1:9042".to_owned()];
        let nodes = if self.nodes.is_empty() { &default[..] } else { &self.nodes };
        nodes.iter().map(|node| with_port(node)).collect()
    }
}

/// `diorite workload`: generates load and checks every value that it reads.
#[allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags, reason = "texts of --help")]
#[derive(Debug, Clone, clap::Args)]
pub struct WorkloadArguments {
    /// CassandraKeyValue, CassandraRangeKeyValue, CassandraBatchKeyValue, CassandraTimeseries, CassandraBatchTimeseries,
    /// CassandraTransactionalKeyValue, CassandraTransactionalRestartRead, CassandraPersonalization,
    /// CassandraStockTicker, CassandraUserId, CassandraSecondaryIndex, CassandraUniqueSecondaryIndex, CassandraInserts
    /// or CassandraEventData, in any case.
    #[arg(long, default_value = "CassandraKeyValue")]
    pub workload: WorkloadKind,
    #[command(flatten)]
    pub connection: ConnectionArguments,
    /// Size of a value in bytes, at least 16, where a row has one of free size [default: 256; CassandraEventData 3000].
    #[arg(long, alias = "value_size")]
    pub value_size: Option<usize>,
    /// Pad keys to this many bytes.
    #[arg(long, alias = "key_size", default_value_t = 0)]
    pub key_size: usize,
    /// Keys in all, -1 for endless; writes beyond them overwrite existing ones [default: 2000000;
    /// CassandraTransactionalRestartRead 10].
    #[arg(long, alias = "num_unique_keys", allow_negative_numbers = true)]
    pub num_unique_keys: Option<Count>,
    /// Writes in all, -1 for endless [default: 2000000, or endless if only reads are counted].
    #[arg(long, alias = "num_writes", allow_negative_numbers = true)]
    pub num_writes: Option<Count>,
    /// Reads in all, -1 for endless [default: 1500000, or as many as there is time for if only writes are counted].
    #[arg(long, alias = "num_reads", allow_negative_numbers = true)]
    pub num_reads: Option<Count>,
    /// Writers, each with one request in flight [default: 2; CassandraStockTicker 4,
    /// CassandraTransactionalRestartRead 12, CassandraTimeseries, CassandraBatchTimeseries and CassandraEventData 16].
    #[arg(long, alias = "num_threads_write")]
    pub num_threads_write: Option<usize>,
    /// Readers, each with one request in flight [default: 24; CassandraTimeseries 1, CassandraBatchTimeseries,
    /// CassandraInserts and CassandraEventData 2, CassandraTransactionalRestartRead 6, CassandraStockTicker 32].
    #[arg(long, alias = "num_threads_read")]
    pub num_threads_read: Option<usize>,
    /// Readers and writers together are this many, in the proportion of the two flags above.
    #[arg(long)]
    pub in_flight: Option<usize>,
    /// Keys up to this number exist already; with --nouuid or --uuid, as each run has an identifier of its own.
    #[arg(long, alias = "max_written_key", allow_negative_numbers = true)]
    pub max_written_key: Option<Count>,
    /// Read only, keys up to --max_written_key (or all of --num_unique_keys); with --nouuid or --uuid.
    #[arg(long, alias = "read_only")]
    pub read_only: bool,
    /// Keys start with "key" instead of an identifier of this run.
    #[arg(long)]
    pub nouuid: bool,
    /// Keys start with this instead of an identifier of this run.
    #[arg(long)]
    pub uuid: Option<String>,
    /// Time to live of the table's rows, in seconds [default: none; points of series 86400].
    #[arg(long, alias = "table_ttl_seconds", allow_negative_numbers = true)]
    pub table_ttl_seconds: Option<Count>,
    #[command(flatten)]
    pub shape: ShapeArguments,
    /// Drop this table and exit.
    #[arg(long, alias = "drop_table_name")]
    pub drop_table_name: Option<String>,
    /// Name of the table, instead of the workload's own.
    #[arg(long, alias = "create_table_name")]
    pub create_table_name: Option<String>,
    /// Tablets of the table, in Diorite (`WITH tablets = n`).
    #[arg(long)]
    pub tablets: Option<u32>,
    /// Start this many operations a second however long they take (open loop); latency runs from the intended start.
    #[arg(long)]
    pub rate: Option<f64>,
    /// Stop after this long: 90, 90s, 15m, 4h.
    #[arg(long, value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Which existing keys are read and overwritten: uniform, or recent:<percent> for the newest ones.
    #[arg(long, default_value = "uniform")]
    pub popularity: Popularity,
    /// The client to use.
    #[arg(long, value_enum, default_value_t = ClientKind::Driver)]
    pub client: ClientKind,
    /// Print the result as JSON on standard output; everything else goes to standard error.
    #[arg(long, alias = "output_json_metrics", alias = "output-json-metrics")]
    pub json: bool,
    /// Seed of key choice, for a run that can be repeated.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Write an HTML and a JSON report into this directory.
    #[arg(long)]
    pub report: Option<PathBuf>,
    /// How the servers acknowledge writes, named in the report.
    #[arg(long, default_value = "not stated")]
    pub durability_label: String,
    /// Staleness is checked for this many keys (4 bytes of memory each).
    #[arg(long, default_value_t = 128 << 20)]
    pub tracked_keys: u64,
    /// Accepted for compatibility; this client has no such policy.
    #[arg(long, alias = "disable_yb_load_balancing_policy", hide = true)]
    pub disable_yb_load_balancing_policy: bool,
}

/// The checked settings of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub writers: usize,
    pub readers: usize,
    /// `None` is endless.
    pub writes: Option<u64>,
    /// `None` is endless.
    pub reads: Option<u64>,
    /// Keys below this number exist.
    pub first_new: u64,
    /// New keys end before this number.
    pub end_new: u64,
    /// Keys to load before the readers start.
    pub preload: u64,
    /// Seconds; `None` for a table without one.
    pub ttl_s: Option<u64>,
    pub shape: DataShape,
}

/// Operations by default, as in yb-sample-apps.
const DEFAULT_WRITES: u64 = 2_000_000;
const DEFAULT_READS: u64 = 1_500_000;
/// The most requests in flight in an open loop, if not given.
const OPEN_LOOP_IN_FLIGHT: usize = 512;
/// How many keys a run without writers loads first if no flag says which keys exist.
const PRELOAD_KEYS: u64 = 100_000;
/// The number of keys of a workload whose keys have no end.
const ENDLESS_KEYS: u64 = u64::MAX / 2;

impl WorkloadArguments {
    /// Checks the flags against each other and fills in the defaults.
    pub fn settings(&self) -> Result<Settings, WorkloadError> {
        self.check()?;
        let (mut readers, mut writers) = self.workload.default_threads();
        readers = self.num_threads_read.unwrap_or(readers);
        writers = if self.read_only { 0 } else { self.num_threads_write.unwrap_or(writers) };
        // In an open loop the number of tasks only limits the requests in flight; with a few tasks the loop would be closed in effect.
        let has_threads = self.num_threads_read.is_some() || self.num_threads_write.is_some();
        let open_loop = (self.rate.is_some() && !has_threads).then_some(OPEN_LOOP_IN_FLIGHT);
        if let Some(in_flight) = self.in_flight.or(open_loop) {
            (writers, readers) = share(in_flight, writers, readers);
        }
        if writers + readers == 0 {
            return Err(WorkloadError::Arguments("there are neither readers nor writers".into()));
        }
        let (writes, reads) = self.budgets(writers, readers);
        let unique = self.unique_keys().0.unwrap_or(ENDLESS_KEYS);
        let written = match self.max_written_key {
            Some(Count(Some(key))) => key + 1,
            Some(Count(None)) => 0,
            None if self.read_only => unique,
            None => 0,
        };
        let pure_reads = writers == 0 && written == 0 && !self.workload.has_series();
        let ttl_s = match self.table_ttl_seconds {
            Some(Count(ttl)) => ttl.filter(|&seconds| seconds > 0),
            None => self.workload.default_ttl_s(),
        };
        Ok(Settings {
            writers,
            readers,
            writes,
            reads,
            first_new: written,
            end_new: unique.max(written),
            preload: if pure_reads { PRELOAD_KEYS.min(unique) } else { 0 },
            ttl_s,
            shape: self.shape.shape(self.workload)?,
        })
    }

    fn unique_keys(&self) -> Count {
        self.num_unique_keys.unwrap_or(Count(Some(self.workload.default_keys())))
    }

    /// The key prefix: "key", the given one, or an identifier of this run.
    pub fn key_prefix(&self, run: u64) -> String {
        match &self.uuid {
            Some(prefix) => prefix.clone(),
            None if self.nouuid => "key".to_owned(),
            None => format!("{run:016x}"),
        }
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let refuse = |message: String| Err(WorkloadError::Arguments(message));
        if let Some(size) = self.value_size.filter(|&size| size < MIN_VALUE_BYTES) {
            return refuse(format!(
                "--value_size {size} is too small: a value carries its key and version and needs {MIN_VALUE_BYTES} bytes"
            ));
        }
        if self.connection.connections == 0 || self.in_flight == Some(0) {
            return refuse("--connections and --in-flight must be at least 1".into());
        }
        if self.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            return refuse("--rate must be above 0 operations a second".into());
        }
        if self.unique_keys() == Count(Some(0)) {
            return refuse("--num_unique_keys must be at least 1, or -1 for endless".into());
        }
        if self.read_only && self.max_written_key.is_none() && self.unique_keys() == Count(None) {
            return refuse("--read_only needs --max_written_key or a finite --num_unique_keys".into());
        }
        if let Some(Count(Some(key))) = self.max_written_key
            && key >= ENDLESS_KEYS
        {
            return refuse(format!("--max_written_key {key} is too large: it must be below {ENDLESS_KEYS}"));
        }
        let are_keys_there = self.read_only || matches!(self.max_written_key, Some(Count(Some(_))));
        let is_prefix_known = self.nouuid || self.uuid.is_some();
        if are_keys_there && !is_prefix_known && !self.workload.has_series() {
            return refuse(
                "--read_only and --max_written_key mean keys of an earlier run: --nouuid or --uuid must say how they start".into(),
            );
        }
        if self.client == ClientKind::Pipelined && (self.workload != WorkloadKind::KeyValue || self.rate.is_some()) {
            return refuse("--client pipelined runs CassandraKeyValue in a closed loop only".into());
        }
        Ok(())
    }

    /// How many writes and reads end the run. A kind whose count is not given runs along until the counted one ends.
    fn budgets(&self, writers: usize, readers: usize) -> (Option<u64>, Option<u64>) {
        let timed = self.duration.is_some();
        let (writes, reads) = match (self.num_writes, self.num_reads) {
            (None, None) if timed => (None, None),
            (None, None) => (Some(DEFAULT_WRITES), Some(DEFAULT_READS)),
            (Some(writes), None) => (writes.0, (writers == 0).then_some(DEFAULT_READS)),
            (None, Some(reads)) => ((readers == 0).then_some(DEFAULT_WRITES), reads.0),
            (Some(writes), Some(reads)) => (writes.0, reads.0),
        };
        (writes, reads)
    }
}

/// Splits `in_flight` in the proportion of writers to readers; a side that is not 0 keeps at least one.
fn share(in_flight: usize, writers: usize, readers: usize) -> (usize, usize) {
    let total = writers + readers;
    if total == 0 || writers == 0 {
        return (0, if readers == 0 { 0 } else { in_flight });
    }
    if readers == 0 {
        return (in_flight, 0);
    }
    let writers = (in_flight * writers).div_ceil(total).clamp(1, in_flight.max(2) - 1);
    (writers, in_flight.saturating_sub(writers).max(1))
}

/// Reads `90`, `90s`, `15m`, `4h`, `500ms`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let seconds_per_unit = match &text[digits.len()..] {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        unit => return Err(format!("no unit of time is called {unit:?}; there are ms, s, m and h")),
    };
    match digits.trim().parse::<f64>() {
        Ok(count) if count > 0.0 && count.is_finite() => Ok(Duration::from_secs_f64(count * seconds_per_unit)),
        _ => Err(format!("{text:?} is not a duration above 0")),
    }
}

#[cfg(test)]
mod tests;
