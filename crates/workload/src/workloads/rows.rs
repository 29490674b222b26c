//! The workloads of single rows: by key, by key and clustering columns, in batches, and of users with a password.
//!
//! Always true: a write is acknowledged to [`KeyState`] only after the server answered.
//!
//! A user's password is the value of its row in hexadecimal digits; the time of the update follows from the version in
//! the value, so that the two columns prove that one write made them.

use std::fmt::Write as _;
use std::sync::Arc;

use scylla::client::session::Session;
use scylla::response::query_result::QueryRowsResult;
use scylla::statement::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlTimestamp;

use super::scratch::Scratch;
use crate::WorkloadError;
use crate::arguments::WorkloadKind;
use crate::data::{MIN_VALUE_BYTES, Version, check_value, write_value};
use crate::error::{Failure, Problem};
use crate::key_state::KeyState;
use crate::row_set::RowSet;
use crate::session::{batch, execute_schema, prepare, rows_of};
use crate::statements::Statements;

/// The columns of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowForm {
    /// Key and value.
    Plain,
    /// Key, three clustering columns and value.
    Range,
    /// Name, password and time.
    User,
}

/// CassandraKeyValue, CassandraRangeKeyValue, CassandraBatchKeyValue and CassandraUserId.
pub struct RowWorkload {
    session: Arc<Session>,
    rows: RowSet,
    insert: PreparedStatement,
    select: PreparedStatement,
    form: RowForm,
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
        let of_full_size = (kind == WorkloadKind::BatchKeyValue).then(|| batch(BatchType::Logged, &insert, batch_size));
        let form = match kind {
            WorkloadKind::RangeKeyValue => RowForm::Range,
            WorkloadKind::UserId => RowForm::User,
            _ => RowForm::Plain,
        };
        let batch = of_full_size.map(|batch| (batch, batch_size));
        Ok(Self { session, rows, insert, select, form, batch })
    }

    /// Writes one row, or one batch of them.
    pub(crate) async fn write(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        match &self.batch {
            Some((batch, size)) => self.write_batch(batch, *size, scratch).await,
            None => self.write_row(scratch).await,
        }
    }

    async fn write_row(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        let ticket = self.rows.next_write(&mut scratch.random).ok_or(Failure::Nothing)?;
        self.rows.format.write(ticket.number, &mut scratch.key);
        write_value(ticket.number, ticket.version, self.rows.value_size, &mut scratch.value);
        let (key, value) = (scratch.key.as_str(), scratch.value.as_slice());
        let answer = match self.form {
            RowForm::Plain => self.session.execute_unpaged(&self.insert, (key, value)).await,
            RowForm::Range => self.session.execute_unpaged(&self.insert, (key, key, key, key, value)).await,
            RowForm::User => {
                let bound = (key, password(value), update_time(ticket.version));
                self.session.execute_unpaged(&self.insert, bound).await
            }
        };
        match answer {
            Ok(_) => {
                self.rows.keys.acknowledge(ticket);
                Ok(1)
            }
            Err(error) => {
                self.rows.keys.give_up(ticket);
                Err(Failure::request(error))
            }
        }
    }

    async fn write_batch(&self, full: &Batch, size: usize, scratch: &mut Scratch) -> Result<u64, Failure> {
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
            self.session.batch(full, &scratch.rows[..]).await
        } else {
            // The last keys of a load, or all others are being written.
            let shorter = batch(BatchType::Logged, &self.insert, taken);
            self.session.batch(&shorter, &scratch.rows[..taken]).await
        };
        let finish = if answer.is_ok() { KeyState::acknowledge } else { KeyState::give_up };
        scratch.tickets.iter().for_each(|&ticket| finish(&self.rows.keys, ticket));
        answer.map(|_| taken as u64).map_err(Failure::request)
    }

    /// Reads one row and checks it.
    pub(crate) async fn read(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        let (number, oldest) = self.rows.next_read(&mut scratch.random).ok_or(Failure::Nothing)?;
        self.rows.format.write(number, &mut scratch.key);
        let key = scratch.key.as_str();
        let answer = match self.form {
            RowForm::Range => self.session.execute_unpaged(&self.select, (key, key, key, key)).await,
            RowForm::Plain | RowForm::User => self.session.execute_unpaged(&self.select, (key,)).await,
        };
        let answer = answer.map_err(Failure::request)?;
        let violation = |problem| Failure::violation(key, problem);
        let rows = rows_of(answer).map_err(violation)?;
        if rows.rows_num() > 1 {
            return Err(violation(Problem::shape(format!("{} rows instead of one", rows.rows_num()))));
        }
        match self.form {
            RowForm::Plain => {
                let row = rows.maybe_first_row::<(&str, &[u8])>().map_err(Problem::shape).map_err(violation)?;
                self.check(number, oldest, key, row)
            }
            RowForm::Range => self.check(number, oldest, key, range_row(&rows, key).map_err(violation)?),
            RowForm::User => {
                let row = user_row(&rows, number).map_err(violation)?;
                self.check(number, oldest, key, row.as_ref().map(|(name, value)| (*name, value.as_slice())))
            }
        }
    }

    fn check(&self, number: u64, oldest: Version, key: &str, row: Option<(&str, &[u8])>) -> Result<u64, Failure> {
        let (found_key, value) = row.unzip();
        if let Some(other) = found_key.filter(|&found| found != key) {
            return Err(Failure::violation(key, Problem::shape(format!("the row of {other}"))));
        }
        self.rows.check(number, oldest, value).map_err(Failure::Violation)?;
        Ok(1)
    }
}

/// The key and the value of the row, whose clustering columns all repeat the key.
fn range_row<'rows>(rows: &'rows QueryRowsResult, key: &str) -> Result<Option<(&'rows str, &'rows [u8])>, Problem> {
    let row = rows.maybe_first_row::<(&str, &str, &str, &str, &[u8])>().map_err(Problem::shape)?;
    let Some((found, r1, r2, r3, value)) = row else { return Ok(None) };
    if [r1, r2, r3] != [key; 3] {
        return Err(Problem::shape("its clustering columns are of another row"));
    }
    Ok(Some((found, value)))
}

/// The name of the user and the value that the password says, if the time is that of its version.
fn user_row(rows: &QueryRowsResult, number: u64) -> Result<Option<(&str, [u8; MIN_VALUE_BYTES])>, Problem> {
    let row = rows.maybe_first_row::<(&str, &str, CqlTimestamp)>().map_err(Problem::shape)?;
    let Some((name, password, time)) = row else { return Ok(None) };
    Ok(Some((name, user_value(number, password, time)?)))
}

fn user_value(number: u64, password: &str, time: CqlTimestamp) -> Result<[u8; MIN_VALUE_BYTES], Problem> {
    let digits = Some(password).filter(|password| password.len() == 2 * MIN_VALUE_BYTES);
    let word = digits.and_then(|digits| u128::from_str_radix(digits, 16).ok());
    let value = word.ok_or_else(|| Problem::shape(format!("the password {password:?} is none")))?.to_be_bytes();
    let version = check_value(number, value.len(), &value).map_err(Problem::Wrong)?;
    if time != update_time(version) {
        return Err(Problem::shape(format!("update_time {}, but the password is of version {version}", time.0)));
    }
    Ok(value)
}

fn password(value: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * value.len());
    for byte in value {
        write!(digits, "{byte:02x}").expect("writing to a string does not fail");
    }
    digits
}

/// One millisecond later for each write of the key by one process.
fn update_time(version: Version) -> CqlTimestamp {
    CqlTimestamp(i64::from(version.epoch_s()) * 1_000 + i64::from(version.count()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;

    #[test]
    fn a_password_and_its_time_are_of_one_write_of_one_user() {
        let (old, new) = (Version::new(1_700_000_000, 1), Version::new(1_700_000_000, 2));
        let mut value = Vec::new();
        write_value(7, old, MIN_VALUE_BYTES, &mut value);
        let text = password(&value);
        assert_eq!(text.len(), 32);
        assert_eq!(user_value(7, &text, update_time(old)).unwrap()[..], value);
        assert!(matches!(user_value(7, &text, update_time(new)), Err(Problem::Shape(_))));
        assert!(matches!(user_value(8, &text, update_time(old)), Err(Problem::Wrong(_))));
        assert!(matches!(user_value(7, &text[1..], update_time(old)), Err(Problem::Shape(_))));
        let damaged = text.replace(|digit: char| digit.is_ascii_digit(), "f");
        assert!(user_value(7, &damaged, update_time(old)).is_err());
    }
}
