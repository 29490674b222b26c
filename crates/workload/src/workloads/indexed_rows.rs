//! The workloads of rows whose values have indexes: CassandraSecondaryIndex and CassandraUniqueSecondaryIndex read their
//! rows by value; CassandraInserts reads them by key, and has an index on each of several columns, or none.
//!
//! Always true:
//!  - a value is a text of its column, its key and its version, so no two writes make the same one, and all values of a
//!    row are of one write;
//!  - a read by value asks for the version that was acknowledged last, and must find exactly that row; it may find none
//!    only if a later write of the key was sent before the answer, or the only write of the key failed;
//!  - a value that was overwritten before the read was sent finds nothing;
//!  - the value of a key that an earlier run wrote is first read by key.
//!
//! One read by value in 16 asks for the value before the last one, and one read of CassandraInserts in 16 is by value if
//! it has indexes; yb-sample-apps does neither, and its values do not change.

use std::sync::Arc;

use diorite_base::random::Random;
use scylla::client::session::Session;
use scylla::response::query_result::QueryRowsResult;
use scylla::statement::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::Row;

use super::scratch::Scratch;
use crate::WorkloadError;
use crate::arguments::{DataShape, WorkloadKind};
use crate::data::Version;
use crate::error::{Failure, Problem};
use crate::key_state::{KeyState, WriteTicket};
use crate::row_set::RowSet;
use crate::session::{batch, create_table, prepare, rows_of};
use crate::statements::{Statements, value_columns};

/// Of so many reads by value one asks for the value before the last one.
const READS_PER_OLD_VALUE: u64 = 16;
/// Of so many reads by key one is by value instead, where columns have indexes.
const READS_PER_READ_BY_INDEX: u64 = 16;

/// Rows with indexes, shared by all tasks.
pub struct IndexedRows {
    session: Arc<Session>,
    rows: RowSet,
    texts: RowTexts,
    insert: PreparedStatement,
    by_key: PreparedStatement,
    /// By the value of each column that has an index.
    by_value: Vec<PreparedStatement>,
    reads_by_value: bool,
    /// A batch of the full size, and that size.
    batch: Option<(Batch, usize)>,
}

/// The values of rows.
#[derive(Debug)]
struct RowTexts {
    /// The columns beside the key.
    columns: Vec<String>,
    /// Values are padded to this size.
    value_bytes: usize,
}

/// What a read by a value must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    /// The row of the value.
    Row,
    /// The row, or none, as it may have another value by now.
    RowOrNone,
    /// None: the value was replaced by that of this version before the read was sent.
    None { acknowledged: Version },
}

/// The columns of a row that was found, with their values.
type FoundRow<'row> = Vec<(&'row str, Option<&'row str>)>;

impl IndexedRows {
    /// Creates the table and its indexes and prepares the statements.
    pub async fn new(
        session: Arc<Session>,
        rows: RowSet,
        kind: WorkloadKind,
        statements: &Statements,
        read_consistency: Consistency,
        shape: DataShape,
    ) -> Result<Self, WorkloadError> {
        create_table(&session, statements).await?;
        let insert = prepare(&session, &statements.insert, Consistency::Quorum).await?;
        let select = prepare(&session, &statements.select, read_consistency).await?;
        let mut checks = Vec::with_capacity(statements.checks.len());
        for statement in &statements.checks {
            checks.push(prepare(&session, statement, read_consistency).await?);
        }
        let reads_by_value = kind.reads_by_value();
        let (by_key, by_value, texts) = if reads_by_value {
            let by_key = checks.pop().ok_or_else(|| WorkloadError::Setup("no statement reads by key".into()))?;
            (by_key, vec![select], RowTexts { columns: vec!["v".to_owned()], value_bytes: 0 })
        } else {
            let columns = value_columns(shape.indexes.count);
            (select, checks, RowTexts { columns, value_bytes: rows.value_size })
        };
        let size = shape.batch_size;
        let batch = shape.has_batches.then(|| (batch(BatchType::Logged, &insert, size), size));
        Ok(Self { session, rows, texts, insert, by_key, by_value, reads_by_value, batch })
    }

    /// Writes one row, or one batch of them.
    pub(crate) async fn write(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        let wanted = self.batch.as_ref().map_or(1, |(_, size)| *size);
        let tickets = std::iter::from_fn(|| self.rows.next_write(&mut scratch.random));
        let tickets: Vec<WriteTicket> = tickets.take(wanted).collect();
        let row = |ticket: &WriteTicket| self.texts.row(&self.rows.format.name(ticket.number), ticket.version);
        let written: Vec<Vec<String>> = tickets.iter().map(row).collect();
        let answer = match (&self.batch, &written[..]) {
            (_, []) => return Err(Failure::Nothing),
            (None, [row, ..]) => self.session.execute_unpaged(&self.insert, row).await,
            (Some((full, size)), all) if all.len() == *size => self.session.batch(full, all).await,
            (Some(_), all) => {
                // The last keys of a load, or all others are being written.
                let shorter = batch(BatchType::Logged, &self.insert, all.len());
                self.session.batch(&shorter, all).await
            }
        };
        let finish = if answer.is_ok() { KeyState::acknowledge } else { KeyState::give_up };
        tickets.iter().for_each(|&ticket| finish(&self.rows.keys, ticket));
        answer.map(|_| written.len() as u64).map_err(Failure::request)
    }

    /// Reads one row by key or by value and checks it.
    pub(crate) async fn read(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        let (number, oldest) = self.rows.next_read(&mut scratch.random).ok_or(Failure::Nothing)?;
        self.rows.format.write(number, &mut scratch.key);
        let has_indexes = !self.by_value.is_empty();
        let is_by_value = self.reads_by_value || has_indexes && scratch.random.below(READS_PER_READ_BY_INDEX) == 0;
        if !is_by_value {
            return self.read_by_key(number, oldest, &scratch.key).await.map(|_| 1);
        }
        let column = scratch.random.below(self.by_value.len() as u64) as usize;
        if oldest.count() > 1 && scratch.random.below(READS_PER_OLD_VALUE) == 0 {
            let before = Version::new(oldest.epoch_s(), oldest.count() - 1);
            let due = Some(Due::None { acknowledged: oldest });
            return self.read_by_value(number, column, before, due, &scratch.key).await;
        }
        let asked = if oldest == Version::default() {
            self.read_by_key(number, oldest, &scratch.key).await?
        } else {
            Some(oldest)
        };
        match asked {
            Some(asked) => self.read_by_value(number, column, asked, None, &scratch.key).await,
            None => Ok(1),
        }
    }

    /// Reads the row of a key and checks it; its version.
    async fn read_by_key(&self, number: u64, oldest: Version, key: &str) -> Result<Option<Version>, Failure> {
        let answer = self.session.execute_unpaged(&self.by_key, (key,)).await.map_err(Failure::request)?;
        let found = rows_of(answer).and_then(|rows| self.texts.version_of(key, &rows));
        let checked = found.and_then(|found| self.rows.check_version(number, oldest, found).map(|()| found));
        checked.map_err(|problem| Failure::violation(key, problem))
    }

    /// Reads the row that has the value of a version and checks it. `due` is what it must find, if that is known before.
    async fn read_by_value(
        &self,
        number: u64,
        column: usize,
        asked: Version,
        due: Option<Due>,
        key: &str,
    ) -> Result<u64, Failure> {
        let value = self.texts.value(column, key, asked);
        let answer = self.session.execute_unpaged(&self.by_value[column], (value.as_str(),)).await;
        let rows = rows_of(answer.map_err(Failure::request)?);
        let found = rows.and_then(|rows| self.texts.version_of(key, &rows));
        let may_differ = || self.rows.may_differ(number, asked);
        let due = due.unwrap_or_else(|| if may_differ() { Due::RowOrNone } else { Due::Row });
        let checked = found.and_then(|found| due.check(asked, found));
        checked.map_err(|problem| {
            let name = &self.texts.columns[column];
            Failure::violation(format!("{key}, read by its {name} of version {asked}"), problem)
        })?;
        Ok(1)
    }
}

impl Due {
    /// Checks the version of the row that the value of version `asked` has found.
    fn check(self, asked: Version, found: Option<Version>) -> Result<(), Problem> {
        match (self, found) {
            (_, Some(found)) if found != asked => {
                Err(Problem::shape(format!("its row has version {found}, and not the value that was asked for")))
            }
            (Self::None { acknowledged }, Some(found)) => Err(Problem::Stale { found, acknowledged }),
            (Self::Row, None) => Err(Problem::Missing),
            (Self::Row | Self::RowOrNone, Some(_)) | (Self::RowOrNone | Self::None { .. }, None) => Ok(()),
        }
    }
}

impl RowTexts {
    /// The value of a column.
    fn value(&self, column: usize, key: &str, version: Version) -> String {
        let mut value = format!("val{column}:{key}:{version}");
        // '_' is not a digit, so the version ends before it.
        value.extend(std::iter::repeat_n('_', self.value_bytes.saturating_sub(value.len())));
        value
    }

    /// The key and the values, as they are written.
    fn row(&self, key: &str, version: Version) -> Vec<String> {
        let values = (0..self.columns.len()).map(|column| self.value(column, key, version));
        std::iter::once(key.to_owned()).chain(values).collect()
    }

    /// The version that a value of the first column says.
    fn version_in(key: &str, value: &str) -> Option<Version> {
        let version = value.strip_prefix("val0:")?.strip_prefix(key)?.strip_prefix(':')?;
        let (epoch_s, count) = version.trim_end_matches('_').split_once('.')?;
        Some(Version::new(epoch_s.parse().ok()?, count.parse().ok()?))
    }

    /// The version of the only row of an answer, if there is one.
    fn version_of(&self, key: &str, rows: &QueryRowsResult) -> Result<Option<Version>, Problem> {
        if rows.rows_num() > 1 {
            return Err(Problem::shape(format!("{} rows instead of one", rows.rows_num())));
        }
        let Some(row) = rows.maybe_first_row::<Row>().map_err(Problem::shape)? else { return Ok(None) };
        let values = row.columns.iter().map(|value| value.as_ref().and_then(|value| value.as_text()));
        let names = rows.column_specs().iter().map(|column| column.name());
        let found: FoundRow<'_> = names.zip(values.map(|value| value.map(String::as_str))).collect();
        self.check(key, &found).map(Some)
    }

    /// Checks that a row has this key and all values of one write; its version.
    fn check(&self, key: &str, found: &FoundRow<'_>) -> Result<Version, Problem> {
        let value = |name: &str| {
            let found = found.iter().find(|(column, _)| *column == name);
            found.and_then(|(_, value)| *value).ok_or_else(|| Problem::shape(format!("it has no {name}")))
        };
        let found_key = value("k")?;
        if found_key != key {
            return Err(Problem::shape(format!("the row of {found_key}")));
        }
        let first = value(&self.columns[0])?;
        let version = Self::version_in(key, first);
        let version = version.ok_or_else(|| Problem::shape(format!("the value {first:?} was never written")))?;
        for (column, name) in self.columns.iter().enumerate() {
            let (found, written) = (value(name)?, self.value(column, key, version));
            if found != written {
                return Err(Problem::shape(format!(
                    "{name} is {found:?}, but the row of version {version} has {written:?}"
                )));
            }
        }
        if found.len() != 1 + self.columns.len() {
            return Err(Problem::shape(format!("{} columns instead of {}", found.len(), 1 + self.columns.len())));
        }
        Ok(version)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;

    const OLD: Version = Version(1_700_000_000 << 32 | 1);
    const NEW: Version = Version(1_700_000_000 << 32 | 2);

    fn texts(columns: usize, value_bytes: usize) -> RowTexts {
        RowTexts { columns: value_columns(columns), value_bytes }
    }

    fn check(texts: &RowTexts, key: &str, row: &[(&str, &str)]) -> Result<Version, Problem> {
        texts.check(key, &row.iter().map(|&(name, value)| (name, Some(value))).collect())
    }

    #[test]
    fn values_say_column_key_and_version_and_are_padded() {
        let texts = texts(3, 40);
        assert_eq!(texts.row("key:7", NEW)[2], "val1:key:7:1700000000.2_________________");
        let long = "key:7".repeat(20);
        assert!(texts.value(0, &long, NEW).len() > 40, "a value is never cut off");
        for key in ["key:7", "key:7____", &long] {
            assert_eq!(RowTexts::version_in(key, &texts.value(0, key, NEW)), Some(NEW));
        }
        for value in ["", "val0:key:7", "val0:key:7:", "val0:key:7:17", "val0:key:7:a.b", "val0:key:71:1.2"] {
            assert_eq!(RowTexts::version_in("key:7", value), None, "{value}");
        }
    }

    #[test]
    fn a_row_is_of_one_key_and_one_write_in_any_order_of_columns() {
        let texts = texts(2, 64);
        let ([_, old_0, old_1], [_, v0, v1]) =
            [OLD, NEW].map(|version| <[String; 3]>::try_from(texts.row("key:7", version)).unwrap()).into();
        assert_eq!(check(&texts, "key:7", &[("k", "key:7"), ("v0", &v0), ("v1", &v1)]), Ok(NEW));
        assert_eq!(check(&texts, "key:7", &[("v1", &old_1), ("k", "key:7"), ("v0", &old_0)]), Ok(OLD));
        for (row, part) in [
            (vec![("k", "key:8"), ("v0", v0.as_str()), ("v1", &v1)], "the row of key:8"),
            (vec![("k", "key:7"), ("v0", &v0), ("v1", &old_1)], "v1 is"),
            (vec![("k", "key:7"), ("v0", &old_0), ("v1", &v1)], "v1 is"),
            (vec![("k", "key:7"), ("v0", &v1), ("v1", &v0)], "never written"),
            (vec![("k", "key:7"), ("v0", v0.trim_end_matches('_')), ("v1", &v1)], "v0 is"),
            (vec![("k", "key:7"), ("v0", &v0)], "it has no v1"),
            (vec![("k", "key:7"), ("v0", &v0), ("v1", &v1), ("v2", "")], "4 columns instead of 3"),
        ] {
            let problem = check(&texts, "key:7", &row);
            assert!(matches!(&problem, Err(Problem::Shape(detail)) if detail.contains(part)), "{part}: {problem:?}");
        }
        let null = vec![("k", Some("key:7")), ("v0", Some(v0.as_str())), ("v1", None)];
        assert!(texts.check("key:7", &null).is_err(), "a null");
    }

    #[test]
    fn a_value_finds_its_row_until_it_is_overwritten() {
        assert_eq!(Due::Row.check(NEW, Some(NEW)), Ok(()));
        assert_eq!(Due::Row.check(NEW, None), Err(Problem::Missing));
        assert_eq!(Due::RowOrNone.check(NEW, Some(NEW)), Ok(()));
        assert_eq!(Due::RowOrNone.check(NEW, None), Ok(()));
        let replaced = Due::None { acknowledged: NEW };
        assert_eq!(replaced.check(OLD, None), Ok(()));
        assert_eq!(replaced.check(OLD, Some(OLD)), Err(Problem::Stale { found: OLD, acknowledged: NEW }));
        for due in [Due::Row, Due::RowOrNone, replaced] {
            assert!(matches!(due.check(OLD, Some(NEW)), Err(Problem::Shape(_))), "a row without the value");
        }
    }
}
