//! The workloads over the driver, and one operation of each.
//!
//! Always true: what is written is known as acknowledged only after the server answered; what a read must find is
//! looked up before the request is sent.

use std::sync::Arc;

use crate::error::Failure;
use crate::latency::OperationKind;
use crate::timeseries::Timeseries;
use crate::transactions::hot::HotRow;
use crate::transactions::table::PairStep;

pub mod batch_timeseries;
mod batches;
pub mod event_data;
pub mod indexed_rows;
pub mod personalization;
pub mod rows;
pub mod scratch;
pub mod stock_ticker;
pub mod transactional;

use batch_timeseries::BatchTimeseries;
use event_data::EventData;
use indexed_rows::IndexedRows;
use personalization::Personalization;
use rows::RowWorkload;
pub use scratch::Scratch;
use stock_ticker::StockTicker;
use transactional::TransactionalRows;

/// A workload over the driver, shared by all tasks.
#[allow(clippy::large_enum_variant, reason = "there is one per run, behind an Arc")]
pub enum Workload {
    Rows(RowWorkload),
    Timeseries(Timeseries),
    BatchTimeseries(BatchTimeseries),
    StockTicker(StockTicker),
    Transactional(TransactionalRows),
    Personalization(Personalization),
    Indexed(IndexedRows),
    EventData(EventData),
    Pairs(PairStep),
    HotRow(Arc<HotRow>),
}

impl Workload {
    /// Runs one operation and returns how many rows it wrote or read.
    pub async fn operate(&self, kind: OperationKind, scratch: &mut Scratch) -> Result<u64, Failure> {
        match (self, kind) {
            (Self::Rows(rows), OperationKind::Read) => rows.read(scratch).await,
            (Self::Rows(rows), OperationKind::Write) => rows.write(scratch).await,
            (Self::Timeseries(series), OperationKind::Read) => series.read(scratch).await,
            (Self::Timeseries(series), OperationKind::Write) => series.write(scratch).await,
            (Self::BatchTimeseries(series), OperationKind::Read) => series.read(scratch).await,
            (Self::BatchTimeseries(series), OperationKind::Write) => series.write(scratch).await,
            (Self::StockTicker(tickers), OperationKind::Read) => tickers.read(scratch).await,
            (Self::StockTicker(tickers), OperationKind::Write) => tickers.write(scratch).await,
            (Self::Transactional(rows), OperationKind::Read) => rows.read(scratch).await,
            (Self::Transactional(rows), OperationKind::Write) => rows.write(scratch).await,
            (Self::Personalization(coupons), OperationKind::Read) => coupons.read(scratch).await,
            (Self::Personalization(coupons), OperationKind::Write) => coupons.write(scratch).await,
            (Self::Indexed(rows), OperationKind::Read) => rows.read(scratch).await,
            (Self::Indexed(rows), OperationKind::Write) => rows.write(scratch).await,
            (Self::EventData(events), OperationKind::Read) => events.read(scratch).await,
            (Self::EventData(events), OperationKind::Write) => events.write(scratch).await,
            (Self::Pairs(step), _) => step.operate(scratch).await,
            (Self::HotRow(hot), _) => hot.add(scratch.task).await,
        }
    }
}
