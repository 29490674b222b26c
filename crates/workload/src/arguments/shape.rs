//! How many rows the units of a workload have (batches, customers, tickers, pages of points), and which indexes its table
//! has.
//!
//! Always true: the defaults are those of yb-sample-apps, except those that a workload has for itself.

use super::WorkloadKind;
use crate::WorkloadError;

/// The flags.
#[allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags, reason = "texts of --help")]
#[derive(Debug, Clone, clap::Args)]
pub struct ShapeArguments {
    /// Rows of one batch [default: 10; CassandraBatchTimeseries 500, CassandraEventData 25, CassandraSecondaryIndex,
    /// CassandraUniqueSecondaryIndex and CassandraInserts 1].
    #[arg(long, alias = "batch_size")]
    pub batch_size: Option<usize>,
    /// Write logged batches, in CassandraSecondaryIndex, CassandraUniqueSecondaryIndex and CassandraInserts.
    #[arg(long, alias = "batch_write")]
    pub batch_write: bool,
    /// Rows of one read, in CassandraBatchTimeseries and CassandraEventData [default: 100; CassandraEventData 25].
    #[arg(long, alias = "read_batch_size")]
    pub read_batch_size: Option<usize>,
    /// How many milliseconds of points a read is about, in CassandraBatchTimeseries and CassandraEventData.
    #[arg(long, alias = "read_back_delta_from_now", default_value_t = DataShape::default().read_span)]
    pub read_back_delta_from_now: u64,
    /// Devices, in CassandraEventData.
    #[arg(long, alias = "num_devices", default_value_t = DataShape::default().devices)]
    pub num_devices: usize,
    /// Types of events, in CassandraEventData.
    #[arg(long, alias = "num_event_types", default_value_t = DataShape::default().event_types)]
    pub num_event_types: u64,
    /// Columns with an index, in CassandraInserts; with none, it has one column without an index.
    #[arg(long, alias = "num_indexes", default_value_t = IndexShape::default().count)]
    pub num_indexes: usize,
    /// A table without transactions, and indexes with consistency_level 'user_enforced', in CassandraSecondaryIndex and
    /// CassandraInserts.
    #[arg(long, alias = "non_transactional_index")]
    pub non_transactional_index: bool,
    /// Tickers, in CassandraStockTicker.
    #[arg(long, alias = "num_ticker_symbols", default_value_t = DataShape::default().tickers)]
    pub num_ticker_symbols: usize,
    /// Stores, in CassandraPersonalization.
    #[arg(long, alias = "num_stores", default_value_t = DataShape::default().stores)]
    pub num_stores: usize,
    /// Coupons of a customer in all stores together, in CassandraPersonalization.
    #[arg(long, alias = "num_new_coupons_per_customer", default_value_t = DataShape::default().coupons_per_store)]
    pub num_new_coupons_per_customer: usize,
}

/// The checked numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataShape {
    /// Rows of one batch.
    pub batch_size: usize,
    /// Whether a write is a batch, where that is a choice.
    pub has_batches: bool,
    /// Rows of one read of a series.
    pub read_batch_size: usize,
    /// How many consecutive points of a series one read is about.
    pub read_span: u64,
    pub devices: usize,
    pub event_types: u64,
    pub indexes: IndexShape,
    pub tickers: usize,
    pub stores: usize,
    pub coupons_per_store: usize,
}

/// The indexes of a table, where a workload leaves them open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexShape {
    /// How many columns have one.
    pub count: usize,
    /// Whether the table has transactions.
    pub is_transactional: bool,
}

impl Default for DataShape {
    /// With one row in a batch.
    fn default() -> Self {
        Self {
            batch_size: 1,
            has_batches: false,
            read_batch_size: 100,
            read_span: 180,
            devices: 100,
            event_types: 100,
            indexes: IndexShape::default(),
            tickers: 10_000,
            stores: 1,
            coupons_per_store: 150,
        }
    }
}

impl Default for IndexShape {
    /// A table with transactions and without indexes.
    fn default() -> Self {
        Self { count: 0, is_transactional: true }
    }
}

impl ShapeArguments {
    /// Checks the flags and fills in the defaults of the workload.
    pub(super) fn shape(&self, kind: WorkloadKind) -> Result<DataShape, WorkloadError> {
        let shape = DataShape {
            batch_size: self.batch_size.unwrap_or(kind.default_batch_size()),
            has_batches: self.batch_write,
            read_batch_size: self.read_batch_size.unwrap_or(kind.default_read_batch_size()),
            read_span: self.read_back_delta_from_now,
            devices: self.num_devices,
            event_types: self.num_event_types,
            indexes: IndexShape { count: self.num_indexes, is_transactional: !self.non_transactional_index },
            tickers: self.num_ticker_symbols,
            stores: self.num_stores,
            coupons_per_store: self.num_new_coupons_per_customer.checked_div(self.num_stores).unwrap_or(0),
        };
        let refuse = |message: &str| Err(WorkloadError::Arguments(message.to_owned()));
        if [shape.batch_size, shape.read_batch_size, shape.tickers, shape.stores].contains(&0) {
            return refuse("--batch_size, --read_batch_size, --num_ticker_symbols and --num_stores must be at least 1");
        }
        if shape.devices == 0 || shape.event_types == 0 || shape.read_span == 0 {
            return refuse("--num_devices, --num_event_types and --read_back_delta_from_now must be at least 1");
        }
        if i32::try_from(shape.read_batch_size).is_err() {
            return refuse("--read_batch_size must be below 2147483648");
        }
        if shape.coupons_per_store == 0 {
            return refuse("--num_new_coupons_per_customer must be at least --num_stores");
        }
        Ok(shape)
    }
}
