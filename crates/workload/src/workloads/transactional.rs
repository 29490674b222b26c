//! The workloads of transaction blocks: CassandraTransactionalKeyValue writes two rows with one block and reads both
//! with one request; CassandraTransactionalRestartRead writes a few rows, again and again, with one block each.
//!
//! Always true:
//!  - a row of a pair is `<key>_1` or `<key>_2`; the first has the version as its value, and both values add up to the
//!    key's number, as in yb-sample-apps, so that two rows of different writes or keys do not fit together;
//!  - a row of CassandraTransactionalRestartRead has the version as its value, which must not be newer than the newest
//!    one that was sent either;
//!  - a block that the server refused did nothing, so its key is written again; one whose outcome is unknown may take
//!    effect later, so its key is not, and a new key takes its place.

use std::sync::Arc;

use scylla::client::session::Session;
use scylla::response::query_result::QueryRowsResult;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;

use super::scratch::Scratch;
use crate::WorkloadError;
use crate::arguments::WorkloadKind;
use crate::data::Version;
use crate::error::{Failure, Problem};
use crate::row_set::RowSet;
use crate::session::{execute_schema, is_refused, prepare, rows_of};
use crate::statements::Statements;

/// The workload, shared by all tasks.
pub struct TransactionalRows {
    session: Arc<Session>,
    rows: RowSet,
    block: PreparedStatement,
    select: PreparedStatement,
    /// Two rows with each key, or one.
    has_pairs: bool,
}

/// One row of a pair as it is in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PairRow<'answer> {
    key: &'answer str,
    value: i64,
    written_us: i64,
}

impl TransactionalRows {
    /// Creates the table and prepares its statements.
    pub async fn new(
        session: Arc<Session>,
        rows: RowSet,
        kind: WorkloadKind,
        statements: &Statements,
        read_consistency: Consistency,
    ) -> Result<Self, WorkloadError> {
        execute_schema(&session, &statements.create_table).await?;
        let block = prepare(&session, &statements.insert, Consistency::Quorum).await?;
        let select = prepare(&session, &statements.select, read_consistency).await?;
        Ok(Self { session, rows, block, select, has_pairs: kind == WorkloadKind::TransactionalKeyValue })
    }

    /// Writes the rows of one key.
    pub(crate) async fn write(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        let ticket = self.rows.next_write(&mut scratch.random).ok_or(Failure::Nothing)?;
        self.rows.format.write(ticket.number, &mut scratch.key);
        let sent = if self.has_pairs {
            let ([first, second], [v1, v2]) = (pair_keys(&scratch.key), pair_values(ticket.number, ticket.version));
            self.session.execute_unpaged(&self.block, (first, v1, second, v2)).await
        } else {
            self.session.execute_unpaged(&self.block, (scratch.key.as_str(), ticket.version.0 as i64)).await
        };
        match sent {
            Ok(_) => {
                self.rows.keys.acknowledge(ticket);
                Ok(if self.has_pairs { 2 } else { 1 })
            }
            Err(error) => {
                let can_be_overwritten = is_refused(&error) && self.rows.keys.withdraw(ticket);
                if !can_be_overwritten {
                    self.rows.keys.give_up(ticket);
                    self.rows.keys.extend();
                }
                Err(Failure::request(error))
            }
        }
    }

    /// Reads the rows of one key and checks them.
    pub(crate) async fn read(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        let (number, oldest) = self.rows.next_read(&mut scratch.random).ok_or(Failure::Nothing)?;
        self.rows.format.write(number, &mut scratch.key);
        let key = scratch.key.as_str();
        let answer = if self.has_pairs {
            let keys = pair_keys(key);
            self.session.execute_unpaged(&self.select, (&keys[..],)).await
        } else {
            self.session.execute_unpaged(&self.select, (key,)).await
        };
        let rows = rows_of(answer.map_err(Failure::request)?);
        let found = rows.and_then(|rows| {
            if self.has_pairs {
                check_pair(number, &pair_keys(key), &pair_rows(&rows)?)
            } else {
                single_version(key, &rows)
            }
        });
        let checked = found.and_then(|version| self.rows.check_version(number, oldest, version));
        checked.map_err(|problem| Failure::violation(key, problem))?;
        Ok(if self.has_pairs { 2 } else { 1 })
    }
}

/// The keys of the two rows of a key.
fn pair_keys(key: &str) -> [String; 2] {
    [format!("{key}_1"), format!("{key}_2")]
}

/// The values of the two rows, which add up to the key's number.
fn pair_values(number: u64, version: Version) -> [i64; 2] {
    [version.0 as i64, number.wrapping_sub(version.0) as i64]
}

fn pair_rows(rows: &QueryRowsResult) -> Result<Vec<PairRow<'_>>, Problem> {
    let rows = rows.rows::<(&str, i64, i64)>().map_err(Problem::shape)?;
    rows.map(|row| {
        let (key, value, written_us) = row.map_err(Problem::shape)?;
        Ok(PairRow { key, value, written_us })
    })
    .collect()
}

/// Checks that rows of a pair are both there, in any order, and of one transaction, or none of them; its version.
fn check_pair(number: u64, keys: &[String; 2], rows: &[PairRow<'_>]) -> Result<Option<Version>, Problem> {
    if let Some(other) = rows.iter().find(|row| keys.iter().all(|key| key != row.key)) {
        return Err(Problem::shape(format!("the row of {}", other.key)));
    }
    let of_key = |key: &String| rows.iter().find(|row| row.key == key);
    let (first, second) = match (of_key(&keys[0]), of_key(&keys[1])) {
        (Some(first), Some(second)) if rows.len() == 2 => (first, second),
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(Problem::shape(format!("{} rows instead of two", rows.len()))),
        (Some(_), None) | (None, Some(_)) => return Err(Problem::shape("only one row of its transaction is there")),
    };
    let version = Version(first.value as u64);
    if pair_values(number, version) != [first.value, second.value] {
        let sum = first.value.wrapping_add(second.value);
        return Err(Problem::shape(format!(
            "the values {} and {} add up to {sum}, not to {number}",
            first.value, second.value
        )));
    }
    if first.written_us != second.written_us {
        let (first, second) = (first.written_us, second.written_us);
        return Err(Problem::shape(format!("the writetimes {first} and {second} of one transaction")));
    }
    Ok(Some(version))
}

fn single_version(key: &str, rows: &QueryRowsResult) -> Result<Option<Version>, Problem> {
    if rows.rows_num() > 1 {
        return Err(Problem::shape(format!("{} rows instead of one", rows.rows_num())));
    }
    let row = rows.maybe_first_row::<(&str, i64)>().map_err(Problem::shape)?;
    match row {
        Some((found, _)) if found != key => Err(Problem::shape(format!("the row of {found}"))),
        row => Ok(row.map(|(_, value)| Version(value as u64))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Version = Version(1_700_000_000 << 32 | 1);
    const NEW: Version = Version(1_700_000_000 << 32 | 2);

    fn check(number: u64, rows: &[(&str, i64, i64)]) -> Result<Option<Version>, Problem> {
        let rows: Vec<_> = rows.iter().map(|&(key, value, written_us)| PairRow { key, value, written_us }).collect();
        check_pair(number, &pair_keys("key:7"), &rows)
    }

    #[test]
    fn the_rows_of_one_transaction_fit_together_in_any_order() {
        let [v1, v2] = pair_values(7, NEW);
        assert_eq!(v1.wrapping_add(v2), 7);
        assert_eq!(check(7, &[("key:7_1", v1, 5), ("key:7_2", v2, 5)]), Ok(Some(NEW)));
        assert_eq!(check(7, &[("key:7_2", v2, 5), ("key:7_1", v1, 5)]), Ok(Some(NEW)));
        assert_eq!(check(7, &[]), Ok(None));
    }

    #[test]
    fn half_a_transaction_and_halves_of_two_are_found() {
        let ([old_1, old_2], [v1, v2]) = (pair_values(7, OLD), pair_values(7, NEW));
        for (rows, part) in [
            (vec![("key:7_1", v1, 5)], "only one row"),
            (vec![("key:7_2", v2, 5)], "only one row"),
            (vec![("key:7_1", old_1, 5), ("key:7_2", v2, 5)], "add up"),
            (vec![("key:7_1", v1, 5), ("key:7_2", old_2, 5)], "add up"),
            (vec![("key:7_1", v1, 5), ("key:7_2", v2, 6)], "writetimes 5 and 6"),
            (vec![("key:7_1", v1, 5), ("key:8_2", v2, 5)], "the row of key:8_2"),
            (vec![("key:7_1", v1, 5), ("key:7_2", v2, 5), ("key:7_2", v2, 5)], "3 rows"),
        ] {
            let problem = check(7, &rows);
            assert!(matches!(&problem, Err(Problem::Shape(detail)) if detail.contains(part)), "{part}: {problem:?}");
        }
        assert!(check(8, &[("key:7_1", v1, 5), ("key:7_2", v2, 5)]).is_err(), "values of another key");
    }
}
