//! The workloads by name, and what differs between them when the command line does not say it.
//!
//! Always true: a workload has the name, the threads, the number of keys and the time to live that it has in
//! yb-sample-apps.

use std::str::FromStr;

use crate::data::MIN_VALUE_BYTES;

/// Keys by default, as in yb-sample-apps.
const DEFAULT_KEYS: u64 = 2_000_000;
/// The time to live of points by default, in seconds.
const DAY_S: u64 = 86_400;
/// Bytes of a value by default; in CassandraEventData as in yb-sample-apps.
const VALUE_BYTES: usize = 256;
const EVENT_VALUE_BYTES: usize = 3_000;

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
    /// Single rows, found by their value.
    SecondaryIndex,
    /// Single rows, found by their value, which no two rows have.
    UniqueSecondaryIndex,
    /// Single rows with several values that have indexes.
    Inserts,
    /// Events of devices, written in batches of one partition and read backwards by type.
    EventData,
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
            Self::SecondaryIndex => "CassandraSecondaryIndex",
            Self::UniqueSecondaryIndex => "CassandraUniqueSecondaryIndex",
            Self::Inserts => "CassandraInserts",
            Self::EventData => "CassandraEventData",
        }
    }

    /// All of them.
    pub const ALL: [Self; 14] = [
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
        Self::SecondaryIndex,
        Self::UniqueSecondaryIndex,
        Self::Inserts,
        Self::EventData,
    ];

    /// Readers and writers when the command line names none.
    pub(super) fn default_threads(self) -> (usize, usize) {
        match self {
            Self::Timeseries => (1, 16),
            Self::BatchTimeseries | Self::EventData => (2, 16),
            Self::Inserts => (2, 2),
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
        match self {
            Self::BatchTimeseries => 500,
            Self::EventData => 25,
            Self::SecondaryIndex | Self::UniqueSecondaryIndex | Self::Inserts => 1,
            _ => 10,
        }
    }

    /// Rows of one read of a series when the command line does not say how many.
    pub(super) fn default_read_batch_size(self) -> usize {
        if self == Self::EventData { 25 } else { 100 }
    }

    /// The time to live of rows when the command line does not give one, in seconds.
    pub(super) fn default_ttl_s(self) -> Option<u64> {
        self.has_series().then_some(DAY_S)
    }

    /// Whether its rows are points of series, which each run begins anew, instead of rows with numbered keys.
    pub fn has_series(self) -> bool {
        matches!(self, Self::Timeseries | Self::BatchTimeseries | Self::StockTicker | Self::EventData)
    }

    /// Whether its rows are found by their value.
    pub fn reads_by_value(self) -> bool {
        matches!(self, Self::SecondaryIndex | Self::UniqueSecondaryIndex)
    }

    /// Bytes of a value, if the command line asks for `asked`.
    pub fn value_size(self, asked: Option<usize>) -> usize {
        match self {
            // A password says its key and version, and nothing else.
            Self::UserId => MIN_VALUE_BYTES,
            Self::EventData => asked.unwrap_or(EVENT_VALUE_BYTES),
            _ => asked.unwrap_or(VALUE_BYTES),
        }
    }
}

impl FromStr for WorkloadKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no workload is called {text:?}; there are {names}")
        })
    }
}
