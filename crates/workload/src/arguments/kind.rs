//! The workloads by name, and what differs between them when the command line does not say it.
//!
//! Always true: a workload has the name, the threads, the number of keys and the time to live that it has in
//! yb-sample-apps; the workloads that Diorite cannot run yet are refused by name, with the reason.

use std::str::FromStr;

use crate::data::MIN_VALUE_BYTES;

/// Keys by default, as in yb-sample-apps.
const DEFAULT_KEYS: u64 = 2_000_000;
/// The time to live of points by default, in seconds.
const DAY_S: u64 = 86_400;
/// Workloads of yb-sample-apps that look rows up, or count them, by an index over all tablets.
const NEED_GLOBAL_INDEXES: [&str; 4] =
    ["CassandraSecondaryIndex", "CassandraUniqueSecondaryIndex", "CassandraInserts", "CassandraEventData"];

/// The workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadKind {
    /// Single rows by key.
    KeyValue,
    /// Single rows by partition key and three clustering columns.
    RangeKeyValue,
    /// Logged batches of rows of different keys.
    BatchKeyValue,
    /// Points of many streams, written in batches and read by time range.
    Timeseries,
    /// Points of a few metrics, written in batches of one partition and read backwards.
    BatchTimeseries,
    /// Two rows written by one transaction block and read together.
    TransactionalKeyValue,
    /// A few rows, each written by one transaction block after the other.
    TransactionalRestartRead,
    /// The coupons of a customer in all stores, written in one batch and read by store.
    Personalization,
    /// The newest point of many tickers.
    StockTicker,
    /// Single rows of users with password and time.
    UserId,
}

impl WorkloadKind {
    /// The name that `--workload` takes, whatever its case.
    pub fn name(self) -> &'static str {
        match self {
            Self::KeyValue => "CassandraKeyValue",
            Self::RangeKeyValue => "CassandraRangeKeyValue",
            Self::BatchKeyValue => "CassandraBatchKeyValue",
            Self::Timeseries => "CassandraTimeseries",
            Self::BatchTimeseries => "CassandraBatchTimeseries",
            Self::TransactionalKeyValue => "CassandraTransactionalKeyValue",
            Self::TransactionalRestartRead => "CassandraTransactionalRestartRead",
            Self::Personalization => "CassandraPersonalization",
            Self::StockTicker => "CassandraStockTicker",
            Self::UserId => "CassandraUserId",
        }
    }

    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::KeyValue,
        Self::RangeKeyValue,
        Self::BatchKeyValue,
        Self::Timeseries,
        Self::BatchTimeseries,
        Self::TransactionalKeyValue,
        Self::TransactionalRestartRead,
        Self::Personalization,
        Self::StockTicker,
        Self::UserId,
    ];

    /// Readers and writers when the command line names none.
    pub(super) fn default_threads(self) -> (usize, usize) {
        match self {
            Self::Timeseries => (1, 16),
            Self::BatchTimeseries => (2, 16),
            Self::TransactionalRestartRead => (6, 12),
            Self::StockTicker => (32, 4),
            _ => (24, 2),
        }
    }

    /// Keys in all when the command line does not say how many.
    pub(super) fn default_keys(self) -> u64 {
        if self == Self::TransactionalRestartRead { 10 } else { DEFAULT_KEYS }
    }

    /// Rows of one batch when the command line does not say how many.
    pub(super) fn default_batch_size(self) -> usize {
        if self == Self::BatchTimeseries { 500 } else { 10 }
    }

    /// The time to live of rows when the command line does not give one, in seconds.
    pub(super) fn default_ttl_s(self) -> Option<u64> {
        self.has_series().then_some(DAY_S)
    }

    /// Whether its rows are points of series, which each run begins anew, instead of rows with numbered keys.
    pub fn has_series(self) -> bool {
        matches!(self, Self::Timeseries | Self::BatchTimeseries | Self::StockTicker)
    }

    /// Bytes of a value, if `asked` are asked for.
    pub fn value_size(self, asked: usize) -> usize {
        // A password says its key and version, and nothing else.
        if self == Self::UserId { MIN_VALUE_BYTES } else { asked }
    }
}

impl FromStr for WorkloadKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(name) = NEED_GLOBAL_INDEXES.into_iter().find(|name| name.eq_ignore_ascii_case(text)) {
            return Err(format!("{name} needs global indexes, which Diorite does not have yet"));
        }
        let found = Self::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no workload is called {text:?}; there are {names}")
        })
    }
}
