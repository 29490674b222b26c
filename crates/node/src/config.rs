//! What an operator can set about a node.

mod audit;
mod values;

use crate::machine;
pub use audit::{AuditCategory, AuditOption, AuditedTable};
use clap::{Args, ValueEnum};
pub use diorite_admin::gate::ChangesFrom;
use diorite_base::limits::{self, MAX_TABLETS_PER_TABLE};
pub use diorite_base::text::Size;
use serde::Serialize;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
pub use values::SamePort;

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurabilityOption {
    /// After an fsync that is shared by all writes in flight.
    Fsync,
    /// Before it is on disk; the log is synced each time this many milliseconds have passed.
    Interval(u64),
}

impl FromStr for DurabilityOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "fsync" => Ok(Self::Fsync),
            None if text == "interval" => Ok(Self::Interval(1_000)),
            Some(("interval", every_ms)) => match every_ms.trim_end_matches("ms").parse() {
                Ok(every_ms) if every_ms > 0 => Ok(Self::Interval(every_ms)),
                _ => Err(format!("'{every_ms}' is not a number of milliseconds")),
            },
            _ => Err("use fsync, interval or interval:MILLISECONDS".to_owned()),
        }
    }
}

impl fmt::Display for DurabilityOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fsync => write!(f, "fsync"),
            Self::Interval(every_ms) => write!(f, "interval:{every_ms}"),
        }
    }
}

impl Serialize for DurabilityOption {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The address at which other nodes reach a node, written `HOST` or `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    /// A name or an IP address.
    pub host: String,
    /// The node port, if it is not the usual one.
    pub port: Option<u16>,
}

impl NodeAddress {
    /// The usual node port.
    pub const DEFAULT_PORT: u16 = 7100;
}

impl From<SocketAddr> for NodeAddress {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: Some(address.port()) }
    }
}

impl FromStr for NodeAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.parse::<std::net::Ipv6Addr>().is_ok() {
            return Ok(Self { host: text.to_owned(), port: None });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => match port.parse() {
                Ok(port) => (host, Some(port)),
                Err(_) => return Err(format!("'{port}' is not a port")),
            },
            None => (text, None),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(format!("'{text}' is not HOST or HOST:PORT"));
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.port.unwrap_or(Self::DEFAULT_PORT);
        match self.host.contains(':') {
            true => write!(f, "[{}]:{port}", self.host),
            false => write!(f, "{}:{port}", self.host),
        }
    }
}

impl Serialize for NodeAddress {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn milliseconds(text: &str) -> Result<u64, String> {
    match text.trim_end_matches("ms").parse() {
        Ok(milliseconds) if milliseconds > 0 => Ok(milliseconds),
        _ => Err(format!("'{text}' is not a number of milliseconds")),
    }
}

/// The duration from which on requests are logged as slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowQueryOption(pub Option<u64>);

impl FromStr for SlowQueryOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        let number = text.trim_end_matches("ms").parse();
        number
            .map(|threshold_ms| Self(Some(threshold_ms)))
            .map_err(|_| "use a number of milliseconds, or off".to_owned())
    }
}

impl fmt::Display for SlowQueryOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(threshold_ms) => write!(f, "{threshold_ms}ms"),
            None => f.write_str("off"),
        }
    }
}

impl Serialize for SlowQueryOption {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A duration in milliseconds. The text is a number of milliseconds, or a number with a unit.
fn index_rate(text: &str) -> Result<Size, String> {
    let rate: Size = text.parse()?;
    limits::check_setting(&limits::INDEX_RATE, rate.0).map(|()| rate).map_err(|exceeded| exceeded.to_string())
}

fn duration_ms(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a duration such as 1500ms, 10s or 2m");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_ms = match unit {
        "" | "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => return Err(wrong()),
    };
    let ms = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_ms));
    ms.filter(|ms| (1..=MAX_REQUEST_TIMEOUT_MS).contains(ms)).ok_or_else(wrong)
}

/// The longest that a request may be allowed to take: a day.
const MAX_REQUEST_TIMEOUT_MS: u64 = 24 * 60 * 60 * 1_000;

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// Who may read metrics where clients have to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricsAccess {
    /// Everyone who reaches the port.
    Open,
    /// Whoever names the token of `--metrics-token-file`, and a role that may look at the cluster.
    Token,
    /// A role that may look at the cluster.
    Role,
}

impl fmt::Display for MetricsAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Token => "token",
            Self::Role => "role",
        })
    }
}

/// Options of `diorite start`.
#[allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags, reason = "texts of --help")]
#[derive(Args, Clone, Debug, Serialize)]
pub struct StartOptions {
    /// Directory for data and log; give it once per disk. Created if missing.
    #[arg(long, value_name = "DIR", required = true)]
    pub data_dir: Vec<PathBuf>,

    /// Address that all ports are opened on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub listen: IpAddr,

    /// Port for CQL clients.
    #[arg(long, value_name = "PORT", default_value_t = 9042)]
    pub cql_port: u16,

    /// Port for other nodes.
    #[arg(long, value_name = "PORT", default_value_t = NodeAddress::DEFAULT_PORT)]
    pub node_port: u16,

    /// A node of the cluster to join; may be given several times, in case one is down. Without it, a new directory
    /// becomes the first node of a new cluster. A node that is a member already asks these nodes for the others, in
    /// case their addresses have changed.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub join: Vec<NodeAddress>,

    /// File that holds a join token on its first line, as `diorite admin join-token` prints it. A node with certificates needs one to
    /// become a member, and none later. Also: DIORITE_START_JOIN_TOKEN, which holds the token itself.
    #[arg(long, value_name = "FILE")]
    pub join_token_file: Option<PathBuf>,

    /// The smallest replication factor that a keyspace may have, and the default of a keyspace that names none. It is
    /// fixed when the cluster is first started (1 if not given); another number is refused later.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub rf: Option<u32>,

    /// The address at which other nodes reach this one; the listening address and the node port if not given.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub advertise_node_address: Option<NodeAddress>,

    /// How much the clocks of two nodes may differ; nodes whose clocks differ more are refused.
    #[arg(long, value_name = "MILLISECONDS", default_value = "500ms", value_parser = milliseconds)]
    pub max_clock_skew: u64,

    /// Port for HTTP: metrics, health, pages, and requests of operators.
    #[arg(long, value_name = "PORT", default_value_t = 7000)]
    pub http_port: u16,

    /// A host name under which the HTTP port is reached, beside IP addresses, localhost, the machine's own name and
    /// that of --advertise-node-address; may be given several times. Requests for other names are refused, so that no
    /// page of another site can reach the node under a name of its own.
    #[arg(long, value_name = "NAME")]
    pub http_host: Vec<String>,

    /// From where the HTTP port accepts changes while clients need not log in: loopback (this machine), or anywhere. Otherwise it accepts them from roles with the permission.
    #[arg(long, value_name = "WHERE", value_enum, default_value_t = ChangesFrom::Loopback)]
    pub http_changes: ChangesFrom,

    /// Who may read /metrics where clients have to log in: open (whoever reaches the port), token (whoever sends the token of --metrics-token-file, as
    /// Authorization: Bearer TOKEN), or role (a role that has DESCRIBE on all keyspaces, which may always).
    #[arg(long, value_name = "WHO", value_enum, default_value_t = MetricsAccess::Open)]
    pub metrics_access: MetricsAccess,

    /// File that holds the token for metrics on its first line: at least 16 characters.
    #[arg(long, value_name = "FILE")]
    pub metrics_token_file: Option<PathBuf>,

    /// Name of the cluster; decided when it is first started.
    #[arg(long, value_name = "NAME", default_value = "diorite")]
    pub cluster_name: String,

    /// Data centre of this node, as drivers see it.
    #[arg(long, value_name = "NAME", default_value = "datacenter1")]
    pub data_center: String,

    /// Zone of this node; drivers see it as its rack.
    #[arg(long, value_name = "NAME", default_value = "rack1")]
    pub zone: String,

    /// When a write is acknowledged: fsync, or interval[:MILLISECONDS] (acknowledged before it is on disk).
    #[arg(long, value_name = "MODE", default_value = "fsync")]
    pub durability: DurabilityOption,

    /// Tablets per node that a new table is split into, unless it says WITH tablets = n.
    #[arg(long, value_name = "N", default_value_t = 8, visible_alias = "shards-per-node", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_TABLETS_PER_TABLE)))]
    pub tablets_per_node: u32,

    /// Nodes that share this machine, this one included: the defaults of --threads, --store-threads and --memory-limit
    /// are divided by it.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024), overrides_with = "nodes_per_machine")]
    pub nodes_per_machine: u32,

    /// Memory for caches, memtables and buffers together, at least 16MiB; half of the machine's memory if not given.
    #[arg(long, value_name = "SIZE", value_parser = values::memory_limit)]
    pub memory_limit: Option<Size>,

    /// Bytes per second that flushes and compactions together may write; 0 is no limit.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub compaction_rate: Size,

    /// Bytes of rows per second that may be read to build secondary indexes; 0 is no limit.
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = index_rate)]
    pub index_rate: Size,

    /// Percentage by which a tablet may exceed the size of its live data before it is compacted as a whole.
    #[arg(long, value_name = "PERCENT", default_value_t = 25)]
    pub space_amplification: i32,

    /// Size of the block cache, memtables included; half of --memory-limit if not given.
    #[arg(long, value_name = "SIZE")]
    pub block_cache: Option<Size>,

    /// Bits per key of Bloom filters, from 0 to 100, for tables without bloom_filter_fp_chance.
    #[arg(long, value_name = "BITS", default_value_t = 10.0, value_parser = values::bloom_bits)]
    pub bloom_bits: f64,

    /// Size of a data block before compression, for tables without chunk_length_in_kb.
    #[arg(long, value_name = "SIZE", default_value = "8KiB")]
    pub block_size: Size,

    /// The most log that a restart may have to replay, over all tablets. Beyond it, the tablets with the oldest
    /// unflushed writes are flushed.
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub replay_limit: Size,

    /// Days within which the node reads all its data once, to find damage while other replicas are intact; 0: only when
    /// an operator starts it.
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    pub scrub_days: u64,

    /// Free bytes below which a disk refuses writes.
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    pub disk_reserve: Size,

    /// Open the only replica of a tablet even if the Raft log of its disk is damaged: acknowledged writes may be
    /// missing. See `admin tablet`.
    #[arg(long)]
    pub accept_lost_log: bool,

    /// Percentage of a disk that stays free when replicas are moved to it.
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=90), overrides_with = "move_reserve")]
    pub move_reserve: u64,

    /// Threads that serve clients and other nodes; 0 is one per processor.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1024))]
    pub threads: u64,

    /// Threads that write the log and apply its entries; 0 is one per four processors.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub store_threads: usize,

    /// Reads of one disk that run at a time, each on a thread of its own; 0 is twelve for each serving thread, at
    /// least 24 and at most 256.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1024))]
    pub disk_read_threads: u64,

    /// Run a second, small process that notifies the other nodes when this one has ended, so that they do not wait
    /// until its leases expire.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub guard: bool,

    /// Let the system keep the memory of a process that has crashed (a core dump). It contains rows, and passwords that
    /// were being checked.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set)]
    pub core_dumps: bool,

    /// Read and write data files without the system's page cache (direct I/O), where the file system can. Data is then
    /// cached once, in the block cache.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub direct_reads: bool,

    /// Most CQL connections at a time, at least 1. --memory-limit allows one for each 256KiB, and never fewer than 1024.
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = values::connections)]
    pub max_connections: usize,

    /// Timeout of a client's request, such as 10s or 1500ms, on every node that carries it out. A statement may set a
    /// shorter one: USING TIMEOUT.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration_ms)]
    pub request_timeout: u64,

    /// Order writes by the timestamps that drivers attach to each request, instead of by the log.
    #[arg(long)]
    pub client_timestamps: bool,

    /// Create a cluster whose clients have to log in with the name and password of a role, and have its permissions. It has the role "cassandra" with the
    /// password "cassandra"; until that password is changed, only clients on this machine are accepted. The HTTP port asks for roles, too: those that
    /// have DESCRIBE on all keyspaces read, those that have ALTER on all keyspaces change. The option counts for the first node of a new cluster only; the
    /// cluster then decides for all nodes, and `diorite admin auth on|off` changes that.
    #[arg(long)]
    pub auth: bool,

    /// Directory with the certificates for traffic between nodes: ca.pem, node.pem and node.key, as `diorite certs node` makes it. Nodes then speak TLS 1.3 with each
    /// other and show their certificates. Required beyond loopback. The files are read again when they change, and at SIGHUP.
    #[arg(long, value_name = "DIR")]
    pub certs: Option<PathBuf>,

    /// Run without certificates beyond loopback: whoever reaches the port for other nodes can read and change everything.
    #[arg(long)]
    pub insecure: bool,

    /// Where to keep an audit log: a file, or journal (of systemd), or none.
    #[arg(long, value_name = "FILE|journal|none", default_value = "none")]
    pub audit: AuditOption,

    /// What to keep in the audit log.
    #[arg(
        long,
        value_name = "CATEGORY",
        value_enum,
        value_delimiter = ',',
        default_value = "logins,roles,schema,operations"
    )]
    pub audit_categories: Vec<AuditCategory>,

    /// Keep reads and writes of rows of these tables, too: KEYSPACE.TABLE, or KEYSPACE for all of its tables, as the catalog spells them. Such
    /// requests take longer, since none of them goes the short path.
    #[arg(long, value_name = "KEYSPACE[.TABLE]", value_delimiter = ',')]
    pub audit_tables: Vec<AuditedTable>,

    /// Size at which the file of the audit log is renamed to FILE.1; eight files are kept.
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    pub audit_size: Size,

    /// Certificate chain (PEM) for TLS with clients. It is read again when the file changes.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,

    /// Private key (PEM) of the certificate.
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,

    /// Certificate authorities (PEM): clients need a certificate that one of them has signed.
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_client_authorities: Option<PathBuf>,

    /// A client's certificate that names a role (`diorite certs client ROLE`) logs that role in, without a password, on
    /// the ports for CQL and HTTP.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set)]
    pub tls_client_roles: bool,

    /// The HTTP port speaks TLS, too, with the same certificate. There a client's certificate is optional.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set)]
    pub http_tls: bool,

    /// Log level, or directives such as info,diorite_storage=debug.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,

    /// Form of log lines.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// Log requests that take this long or longer, without their values; 0 logs all of them (ten a second at most), off none.
    #[arg(long, value_name = "MILLISECONDS", default_value = "500ms")]
    pub slow_query: SlowQueryOption,
}

impl StartOptions {
    /// Fails if two ports are the same.
    pub fn check_ports(&self) -> Result<(), SamePort> {
        let ports = [("cql-port", self.cql_port), ("node-port", self.node_port), ("http-port", self.http_port)];
        values::check_ports(&ports)
    }

    /// The memory limit in force, in bytes.
    pub fn memory_limit_bytes(&self) -> u64 {
        let share = || machine::memory_bytes() / 2 / u64::from(self.nodes_per_machine);
        self.memory_limit.map_or_else(share, |size| size.0)
    }

    /// How many threads serve clients and other nodes.
    pub(crate) fn serving_threads(&self) -> usize {
        if self.threads > 0 { self.threads as usize } else { self.processor_share() }
    }

    /// How many threads read from each disk.
    pub(crate) fn disk_read_threads(&self) -> usize {
        match self.disk_read_threads {
            // Of more threads, some are idle now and then, and each read has to wake one.
            0 => (12 * self.serving_threads()).clamp(24, 256),
            threads => threads as usize,
        }
    }

    /// How many threads write the log and apply its entries.
    pub(crate) fn writing_threads(&self) -> usize {
        if self.store_threads > 0 { self.store_threads } else { self.processor_share().div_ceil(4) }
    }

    fn processor_share(&self) -> usize {
        machine::processors().div_ceil(self.nodes_per_machine as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_addresses() {
        let address = |host: &str, port| Ok(NodeAddress { host: host.to_owned(), port });
        assert_eq!("db-1".parse(), address("db-1", None));
        assert_eq!("127.0.0.1:7101".parse(), address("127.0.0.1", Some(7_101)));
        assert_eq!("[::1]:7101".parse(), address("::1", Some(7_101)));
        assert_eq!("::1".parse(), address("::1", None));
        assert_eq!("::1".parse::<NodeAddress>().unwrap().to_string(), "[::1]:7100");
        for wrong in ["", ":7100", "db-1:port", "db 1"] {
            assert!(wrong.parse::<NodeAddress>().is_err(), "{wrong}");
        }
        assert_eq!((milliseconds("250"), milliseconds("250ms")), (Ok(250), Ok(250)));
        assert!(milliseconds("0").is_err() && milliseconds("soon").is_err());
    }

    #[test]
    fn former_names_of_options_are_read_for_one_release() {
        #[derive(clap::Parser)]
        struct Start {
            #[command(flatten)]
            options: StartOptions,
        }
        for name in ["--tablets-per-node", "--shards-per-node"] {
            let read = <Start as clap::Parser>::try_parse_from(["start", "--data-dir", "d", name, "3"]);
            assert_eq!(read.map(|start| start.options.tablets_per_node).ok(), Some(3), "{name}");
        }
    }

    #[test]
    fn request_timeouts() {
        assert_eq!((duration_ms("10s"), duration_ms("1500"), duration_ms("2m")), (Ok(10_000), Ok(1_500), Ok(120_000)));
        for wrong in ["", "0s", "ten", "s", "5h", "-1s", "999999999999999999s", "25000m"] {
            assert!(duration_ms(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn slow_query_thresholds() {
        for (text, wanted) in [("off", None), ("0", Some(0)), ("250", Some(250)), ("1000ms", Some(1_000))] {
            assert_eq!(text.parse(), Ok(SlowQueryOption(wanted)));
        }
        assert_eq!(
            (SlowQueryOption(Some(5)).to_string(), SlowQueryOption(None).to_string()),
            ("5ms".into(), "off".into())
        );
        assert!("soon".parse::<SlowQueryOption>().is_err());
    }

    #[test]
    fn durability_modes() {
        assert_eq!("fsync".parse(), Ok(DurabilityOption::Fsync));
        assert_eq!("interval".parse(), Ok(DurabilityOption::Interval(1_000)));
        assert_eq!("interval:50ms".parse(), Ok(DurabilityOption::Interval(50)));
        assert!("interval:0".parse::<DurabilityOption>().is_err());
        assert!("never".parse::<DurabilityOption>().is_err());
    }
}
