//! How many rows the units of a workload have: batches, customers, tickers, pages of points.
//!
//! Always true: the defaults are those of yb-sample-apps, except those that a workload has for itself.

use super::WorkloadKind;
use crate::WorkloadError;

/// The flags.
#[allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags, reason = "texts of --help")]
#[derive(Debug, Clone, clap::Args)]
pub struct ShapeArguments {
    /// Rows of one batch [default: 10; CassandraBatchTimeseries 500].
    #[arg(long, alias = "batch_size")]
    pub batch_size: Option<usize>,
    /// Rows of one read, in CassandraBatchTimeseries.
    #[arg(long, alias = "read_batch_size", default_value_t = DataShape::default().read_batch_size)]
    pub read_batch_size: usize,
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
    /// Rows of one read of a series.
    pub read_batch_size: usize,
    pub tickers: usize,
    pub stores: usize,
    pub coupons_per_store: usize,
}

impl Default for DataShape {
    /// With one row in a batch.
    fn default() -> Self {
        Self { batch_size: 1, read_batch_size: 100, tickers: 10_000, stores: 1, coupons_per_store: 150 }
    }
}

impl ShapeArguments {
    /// Checks the flags and fills in the defaults of the workload.
    pub(super) fn shape(&self, kind: WorkloadKind) -> Result<DataShape, WorkloadError> {
        let shape = DataShape {
            batch_size: self.batch_size.unwrap_or(kind.default_batch_size()),
            read_batch_size: self.read_batch_size,
            tickers: self.num_ticker_symbols,
            stores: self.num_stores,
            coupons_per_store: self.num_new_coupons_per_customer.checked_div(self.num_stores).unwrap_or(0),
        };
        let DataShape { batch_size, read_batch_size, tickers, stores, coupons_per_store } = shape;
        let refuse = |message: &str| Err(WorkloadError::Arguments(message.to_owned()));
        if [batch_size, read_batch_size, tickers, stores].contains(&0) {
            return refuse("--batch_size, --read_batch_size, --num_ticker_symbols and --num_stores must be at least 1");
        }
        if i32::try_from(read_batch_size).is_err() {
            return refuse("--read_batch_size must be below 2147483648");
        }
        if coupons_per_store == 0 {
            return refuse("--num_new_coupons_per_customer must be at least --num_stores");
        }
        Ok(shape)
    }
}
