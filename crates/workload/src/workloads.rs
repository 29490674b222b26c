//! The row workloads over the driver: one row by key, one row by key and clustering columns, batches of rows.
//!
//! Always true: a write is acknowledged to [`KeyState`] only after the server answered; what a read may return is
//! looked up *before* the request is sent, so a write that finishes meanwhile cannot raise a false alarm.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use diorite_base::random::{Random, SplitMix64};
use scylla::client::session::Session;
use scylla::statement::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;

use crate::WorkloadError;
use crate::arguments::{Popularity, WorkloadKind};
use crate::data::{KeyFormat, Version, check_value, write_value};
use crate::error::{Failure, Problem, Violation};
use crate::key_state::{KeyState, WriteTicket};
use crate::latency::OperationKind;
use crate::session::{Statements, execute_schema, prepare};
use crate::timeseries::Timeseries;
use crate::transactions::hot::HotRow;
use crate::transactions::table::PairStep;

pub mod scratch;

pub use scratch::Scratch;

/// Everything about the rows of a run except how they travel.
#[derive(Clone)]
pub struct RowSet {
    pub keys: Arc<KeyState>,
    pub format: KeyFormat,
    pub value_size: usize,
    /// The bits of an `f64`: the newest percentage of the keys that is read and overwritten; 100 is all. It changes
    /// between the phases of a benchmark, while no task runs.
    recent_percent: Arc<AtomicU64>,
}

impl RowSet {
    /// Rows whose keys are chosen by `popularity`.
    pub fn new(keys: Arc<KeyState>, format: KeyFormat, value_size: usize, popularity: Popularity) -> Self {
        let rows = Self { keys, format, value_size, recent_percent: Arc::default() };
        rows.set_popularity(popularity);
        rows
    }

    /// Changes how keys are chosen, for every copy of this set.
    pub fn set_popularity(&self, popularity: Popularity) {
        let percent = match popularity {
            Popularity::Uniform => 100.0,
            Popularity::Recent { percent } => percent,
        };
        self.recent_percent.store(f64::to_bits(percent), Ordering::Relaxed);
    }

    /// The key to write next: a new one, or, when all exist, one to overwrite.
    pub fn next_write(&self, random: &mut SplitMix64) -> Option<WriteTicket> {
        if let Some(ticket) = self.keys.start_new() {
            return Some(ticket);
        }
        if !self.keys.exhausted() {
            return None;
        }
        // A key that is being written is passed over; with few keys and many writers all may be busy.
        (0..16).find_map(|_| self.keys.start_overwrite(self.choose(random)?))
    }

    /// The key to read next, and the oldest version that may be found there.
    pub fn next_read(&self, random: &mut SplitMix64) -> Option<(u64, Version)> {
        let number = self.choose(random)?;
        Some((number, self.keys.oldest_allowed(number)))
    }

    fn choose(&self, random: &mut SplitMix64) -> Option<u64> {
        let readable = self.keys.readable();
        if readable == 0 {
            return None;
        }
        let percent = f64::from_bits(self.recent_percent.load(Ordering::Relaxed));
        let hot = ((readable as f64 * percent / 100.0) as u64).clamp(1, readable);
        Some(readable - 1 - random.below(hot))
    }

    /// Checks the value found for key `number`; `None` is a missing row.
    pub fn check(&self, number: u64, oldest: Version, found: Option<&[u8]>) -> Result<(), Violation> {
        let problem = match found.map(|value| check_value(number, self.value_size, value)) {
            Some(Ok(version)) if version >= oldest => return Ok(()),
            None if self.keys.may_be_missing(number) => return Ok(()),
            Some(Ok(found)) => Problem::Stale { found, acknowledged: oldest },
            Some(Err(mismatch)) => Problem::Wrong(mismatch),
            None => Problem::Missing,
        };
        Err(Violation { key: self.format.name(number), problem })
    }

    /// A violation of the answer's shape.
    pub fn shape(&self, number: u64, detail: impl Into<String>) -> Violation {
        Violation { key: self.format.name(number), problem: Problem::Shape(detail.into()) }
    }
}

/// A workload over the driver, shared by all tasks.
#[allow(clippy::large_enum_variant, reason = "there is one per run, behind an Arc")]
pub enum Workload {
    Rows(RowWorkload),
    Timeseries(Timeseries),
    Pairs(PairStep),
    HotRow(Arc<HotRow>),
}

impl Workload {
    /// Runs one operation and returns how many rows it wrote or read.
    pub async fn operate(&self, kind: OperationKind, scratch: &mut Scratch) -> Result<u64, Failure> {
        match (self, kind) {
            (Self::Rows(rows), OperationKind::Read) => rows.read(scratch).await,
            (Self::Rows(rows), OperationKind::Write) if rows.batch.is_some() => rows.write_batch(scratch).await,
            (Self::Rows(rows), OperationKind::Write) => rows.write(scratch).await,
            (Self::Timeseries(series), OperationKind::Read) => series.read(scratch).await,
            (Self::Timeseries(series), OperationKind::Write) => series.write(scratch).await,
            (Self::Pairs(step), _) => step.operate(scratch).await,
            (Self::HotRow(hot), _) => hot.add(scratch.task).await,
        }
    }
}

/// CassandraKeyValue, CassandraRangeKeyValue and CassandraBatchKeyValue.
pub struct RowWorkload {
    session: Arc<Session>,
    rows: RowSet,
    insert: PreparedStatement,
    select: PreparedStatement,
    has_range: bool,
    /// A batch of the full size, and that size.
    batch: Option<(Batch, usize)>,
}

impl RowWorkload {
    /// Creates the table and prepares its statements.
    pub async fn new(
        session: Arc<Session>,
        rows: RowSet,
        kind: WorkloadKind,
        statements: &Statements,
        read_consistency: Consistency,
        batch_size: usize,
    ) -> Result<Self, WorkloadError> {
        execute_schema(&session, &statements.create_table).await?;
        let insert = prepare(&session, &statements.insert, Consistency::Quorum).await?;
        let select = prepare(&session, &statements.select, read_consistency).await?;
        let batch = (kind == WorkloadKind::BatchKeyValue).then(|| {
            let mut batch = Batch::new(BatchType::Logged);
            batch.set_consistency(Consistency::Quorum);
            (0..batch_size).for_each(|_| batch.append_statement(insert.clone()));
            (batch, batch_size)
        });
        Ok(Self { session, rows, insert, select, has_range: kind == WorkloadKind::RangeKeyValue, batch })
    }

    async fn write(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        let ticket = self.rows.next_write(&mut scratch.random).ok_or(Failure::Nothing)?;
        self.rows.format.write(ticket.number, &mut scratch.key);
        write_value(ticket.number, ticket.version, self.rows.value_size, &mut scratch.value);
        let (key, value) = (scratch.key.as_str(), scratch.value.as_slice());
        let answer = if self.has_range {
            self.session.execute_unpaged(&self.insert, (key, key, key, key, value)).await
        } else {
            self.session.execute_unpaged(&self.insert, (key, value)).await
        };
        match answer {
            Ok(_) => {
                self.rows.keys.acknowledge(ticket);
                Ok(1)
            }
            Err(error) => {
                self.rows.keys.give_up(ticket);
                Err(Failure::Request(error.to_string()))
            }
        }
    }

    async fn write_batch(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        let (batch, size) = self.batch.as_ref().expect("only batch workloads write batches");
        let size = *size;
        scratch.tickets.clear();
        scratch.rows.resize_with(size, Default::default);
        for (key, value) in &mut scratch.rows {
            let Some(ticket) = self.rows.next_write(&mut scratch.random) else { break };
            self.rows.format.write(ticket.number, key);
            write_value(ticket.number, ticket.version, self.rows.value_size, value);
            scratch.tickets.push(ticket);
        }
        let taken = scratch.tickets.len();
        if taken == 0 {
            return Err(Failure::Nothing);
        }
        let answer = if taken == size {
            self.session.batch(batch, &scratch.rows[..]).await
        } else {
            // The last keys of a load, or all others are being written.
            let mut shorter = Batch::new(BatchType::Logged);
            shorter.set_consistency(Consistency::Quorum);
            (0..taken).for_each(|_| shorter.append_statement(self.insert.clone()));
            self.session.batch(&shorter, &scratch.rows[..taken]).await
        };
        let finish = if answer.is_ok() { KeyState::acknowledge } else { KeyState::give_up };
        scratch.tickets.iter().for_each(|&ticket| finish(&self.rows.keys, ticket));
        answer.map(|_| taken as u64).map_err(|error| Failure::Request(error.to_string()))
    }

    async fn read(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        let (number, oldest) = self.rows.next_read(&mut scratch.random).ok_or(Failure::Nothing)?;
        self.rows.format.write(number, &mut scratch.key);
        let key = scratch.key.as_str();
        let answer = if self.has_range {
            self.session.execute_unpaged(&self.select, (key, key, key, key)).await
        } else {
            self.session.execute_unpaged(&self.select, (key,)).await
        };
        let answer = answer.map_err(|error| Failure::Request(error.to_string()))?;
        let violation = |detail: String| Failure::Violation(self.rows.shape(number, detail));
        let rows = answer.into_rows_result().map_err(|error| violation(error.to_string()))?;
        if rows.rows_num() > 1 {
            return Err(violation(format!("{} rows instead of one", rows.rows_num())));
        }
        let (found_key, value) = if self.has_range {
            let row = rows.maybe_first_row::<(&str, &str, &str, &str, &[u8])>();
            let row = row.map_err(|error| violation(error.to_string()))?;
            let same = row.is_none_or(|(_, r1, r2, r3, _)| [r1, r2, r3] == [key; 3]);
            if !same {
                return Err(violation("its clustering columns are of another row".into()));
            }
            row.map(|(key, _, _, _, value)| (key, value)).unzip()
        } else {
            let row = rows.maybe_first_row::<(&str, &[u8])>();
            row.map_err(|error| violation(error.to_string()))?.unzip()
        };
        if let Some(other) = found_key.filter(|&found| found != key) {
            return Err(violation(format!("the row of {other}")));
        }
        self.rows.check(number, oldest, value).map_err(Failure::Violation)?;
        Ok(1)
    }
}

#[cfg(test)]
mod tests;
