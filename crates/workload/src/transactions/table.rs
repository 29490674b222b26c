//! Tables of pairs of rows, and the kinds of requests that write and read them.
//!
//! Always true: one kind of request writes a table; reads and checks run when no write of their table is under way.

use std::sync::Arc;

use diorite_base::random::SplitMix64;
use scylla::client::session::Session;
use scylla::response::PagingState;
use scylla::statement::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;

use super::pairs::{Expectation, PairRow, PairShape, Written};
use crate::WorkloadError;
use crate::error::{Failure, Problem, Violation};
use crate::latency::OperationKind;
use crate::session::{batch, execute_schema, prepare, rows_of};
use crate::workloads::scratch::Scratch;

/// How many pairs a check reads.
const CHECKED_PAIRS: usize = 200;

/// What a table has beside its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableKind {
    /// Nothing.
    Plain,
    /// `transactions = {'enabled': true}`.
    Transactional,
    /// An index on the column `n`.
    Indexed,
    /// Both.
    TransactionalIndexed,
    /// `transactions = {'enabled': true}`, and a unique index on the column `n`.
    UniqueIndexed,
    /// `transactions = {'enabled': true}`, and a materialized view with `n` in its key.
    Viewed,
    /// `transactions = {'enabled': true}`, and an index on the column `n` that has all columns.
    Covering,
    /// `transactions = {'enabled': true}`, and four more columns like `n`, each of them with an index.
    FiveIndexes,
}

impl TableKind {
    fn has_transactions(self) -> bool {
        !matches!(self, Self::Plain | Self::Indexed)
    }

    /// The columns that have an index.
    fn indexed(self) -> &'static [&'static str] {
        match self {
            Self::Plain | Self::Transactional | Self::Viewed => &[],
            Self::Indexed | Self::TransactionalIndexed | Self::UniqueIndexed | Self::Covering => &["n"],
            Self::FiveIndexes => &["n", "n2", "n3", "n4", "n5"],
        }
    }

    /// The columns beside those of all tables.
    fn more_columns(self) -> &'static [&'static str] {
        if self == Self::FiveIndexes { &self.indexed()[1..] } else { &[] }
    }
}

/// The kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `INSERT` of the first row of a pair.
    Insert,
    /// `BEGIN TRANSACTION … END TRANSACTION` with both rows.
    Block,
    /// A `LOGGED` batch of both rows.
    LoggedBatch,
    /// An `UNLOGGED` batch of both rows.
    UnloggedBatch,
    /// `SELECT` of the first row.
    Read,
    /// `SELECT … WHERE k IN (…)` of both rows.
    ReadPair,
    /// `SELECT … WHERE n = …` of the first row.
    ReadByIndex,
}

impl Operation {
    /// Whether it reads or writes.
    pub fn kind(self) -> OperationKind {
        match self {
            Self::Read | Self::ReadPair | Self::ReadByIndex => OperationKind::Read,
            _ => OperationKind::Write,
        }
    }

    /// How many rows it reads or writes.
    pub fn rows(self) -> usize {
        if matches!(self, Self::Insert | Self::Read | Self::ReadByIndex) { 1 } else { 2 }
    }
}

/// A table of pairs.
pub struct PairTable {
    session: Arc<Session>,
    name: String,
    kind: TableKind,
    shape: PairShape,
    /// What writes it.
    writer: Operation,
    written: Written,
    /// Reads a pair with its `writetime`.
    check: PreparedStatement,
}

impl PairTable {
    /// Makes the table anew, in the keyspace of the session, for rows that `writer` will write.
    pub async fn create(
        session: &Arc<Session>,
        name: &str,
        kind: TableKind,
        shape: &PairShape,
        writer: Operation,
    ) -> Result<Self, WorkloadError> {
        if kind == TableKind::Viewed {
            execute_schema(session, &format!("DROP MATERIALIZED VIEW IF EXISTS {name}_by_n;")).await?;
        }
        execute_schema(session, &format!("DROP TABLE IF EXISTS {name};")).await?;
        for statement in schema(name, kind, shape.tablets()) {
            execute_schema(session, &statement).await?;
        }
        let check = format!("SELECT k, n, v, writetime(v) FROM {name} WHERE k IN (?, ?);");
        Ok(Self {
            session: Arc::clone(session),
            name: name.to_owned(),
            kind,
            shape: shape.clone(),
            writer,
            written: Written::default(),
            check: prepare(session, &check, Consistency::Quorum).await?,
        })
    }

    /// What must be found of a pair by a read of its first `rows` rows.
    fn expected(&self, pair: u64, rows: usize) -> Expectation {
        let rows = rows.min(self.writer.rows());
        Expectation {
            rows,
            is_acknowledged: self.written.is_acknowledged(pair),
            // A table without transactions may show a batch of unknown outcome in part.
            is_all_or_none: rows == 2 && self.writer == Operation::Block,
            has_one_time: matches!(self.writer, Operation::Block | Operation::LoggedBatch),
        }
    }

    /// Reads some of the pairs and checks that what was acknowledged is there, and of a transaction all or nothing.
    pub async fn verify(&self, random: &mut SplitMix64) -> Result<(), WorkloadError> {
        for pair in self.written.sample(CHECKED_PAIRS, random) {
            let numbers = self.shape.numbers(pair);
            let keys = numbers.map(|number| self.shape.key(number));
            let answer = self.session.execute_unpaged(&self.check, (&keys[0], &keys[1])).await;
            let answer =
                answer.map_err(|error| WorkloadError::Server(format!("{} of {}: {error}", keys[0], self.name)));
            let checked = rows_of(answer?).and_then(|rows| {
                let mut times_us = [None; 2];
                let rows = rows.rows::<(&str, i64, &[u8], i64)>().map_err(Problem::shape)?;
                for row in rows {
                    let (key, number, value, time_us) = row.map_err(Problem::shape)?;
                    times_us[self.shape.check_row(numbers, key, number, value)?] = Some(time_us);
                }
                Ok(times_us)
            });
            self.judge(pair, numbers, 2, checked).map_err(|violation| WorkloadError::Violation(Box::new(violation)))?;
        }
        Ok(())
    }

    /// Turns what was found of a pair into a violation if it is not what must be found.
    fn judge(
        &self,
        pair: u64,
        numbers: [u64; 2],
        rows: usize,
        found: Result<[Option<i64>; 2], Problem>,
    ) -> Result<(), Violation> {
        let checked = match found {
            Ok(times_us) => self.expected(pair, rows).check(times_us),
            Err(problem) => Err((0, problem)),
        };
        checked.map_err(|(place, problem)| {
            let key = format!("{} of {}", self.shape.key(numbers[place]), self.name);
            Violation { key, problem }
        })
    }
}

/// The statements that make a table.
fn schema(name: &str, kind: TableKind, tablets: u32) -> Vec<String> {
    let transactions = if kind.has_transactions() { " AND transactions = {'enabled': true}" } else { "" };
    let more: String = kind.more_columns().iter().map(|column| format!("{column} bigint, ")).collect();
    let columns = format!("k varchar, n bigint, {more}v blob, primary key (k)");
    let table = format!("CREATE TABLE {name} ({columns}) WITH tablets = {tablets}{transactions};");
    let unique = if kind == TableKind::UniqueIndexed { "UNIQUE " } else { "" };
    let include = if kind == TableKind::Covering { " INCLUDE (v)" } else { "" };
    let index = |column: &&str| format!("CREATE {unique}INDEX {name}_by_{column} ON {name} ({column}){include};");
    let view = (kind == TableKind::Viewed).then(|| {
        format!(
            "CREATE MATERIALIZED VIEW {name}_by_n AS SELECT * FROM {name} WHERE n IS NOT NULL AND k IS NOT NULL \
             PRIMARY KEY (n, k) WITH tablets = {tablets};"
        )
    });
    [table].into_iter().chain(kind.indexed().iter().map(index)).chain(view).collect()
}

/// A table and one kind of request.
pub struct PairStep {
    table: Arc<PairTable>,
    operation: Operation,
    statement: Statement,
}

enum Statement {
    Prepared(PreparedStatement),
    Batch(Batch),
}

impl PairStep {
    /// Prepares the requests. What writes must be the table's own kind.
    pub async fn prepare(table: &Arc<PairTable>, operation: Operation) -> Result<Self, WorkloadError> {
        let is_read = operation.kind() == OperationKind::Read;
        assert!(is_read || operation == table.writer, "one kind of request writes a table");
        let (session, name) = (&table.session, &table.name);
        let prepared = prepare(session, &statement(operation, name, table.kind), Consistency::Quorum).await?;
        let statement = match operation {
            Operation::LoggedBatch => Statement::Batch(batch(BatchType::Logged, &prepared, 2)),
            Operation::UnloggedBatch => Statement::Batch(batch(BatchType::Unlogged, &prepared, 2)),
            _ => Statement::Prepared(prepared),
        };
        Ok(Self { table: Arc::clone(table), operation, statement })
    }

    /// Sends one request; how many rows it wrote or read.
    pub(crate) async fn operate(&self, scratch: &mut Scratch) -> Result<u64, Failure> {
        match self.operation.kind() {
            OperationKind::Read => self.read(&mut scratch.random).await,
            OperationKind::Write => self.write().await,
        }
    }

    async fn write(&self) -> Result<u64, Failure> {
        let table = &self.table;
        let pair = table.written.begin();
        let sent = match &self.statement {
            Statement::Prepared(insert) if self.operation == Operation::Insert => {
                let PairRow { key, number, value } = table.shape.row(table.shape.numbers(pair)[0]);
                match table.kind {
                    TableKind::FiveIndexes => {
                        let values = (key, number, value, number, number, number, number);
                        table.session.execute_unpaged(insert, values).await
                    }
                    _ => table.session.execute_unpaged(insert, (key, number, value)).await,
                }
            }
            Statement::Prepared(block) => {
                let [first, second] = table.shape.numbers(pair).map(|number| table.shape.row(number));
                let values = (first.key, first.number, first.value, second.key, second.number, second.value);
                table.session.execute_unpaged(block, values).await
            }
            Statement::Batch(batch) => {
                let rows = table.shape.numbers(pair).map(|number| table.shape.row(number));
                let values = rows.map(|row| (row.key, row.number, row.value));
                table.session.batch(batch, &values[..]).await
            }
        };
        match sent {
            Ok(_) => Ok(self.operation.rows() as u64),
            Err(error) => {
                table.written.fail(pair);
                Err(Failure::request(error))
            }
        }
    }

    async fn read(&self, random: &mut SplitMix64) -> Result<u64, Failure> {
        let (table, rows) = (&self.table, self.operation.rows());
        let Statement::Prepared(select) = &self.statement else { unreachable!("batches only write") };
        let pair = table.written.choose(random).ok_or(Failure::Nothing)?;
        let numbers = table.shape.numbers(pair);
        let [first, second] = numbers.map(|number| table.shape.key(number));
        let answer = match self.operation {
            // One page: a driver asks for pages unless it is told otherwise.
            Operation::ReadByIndex => {
                let number = table.shape.row(numbers[0]).number;
                let paged = table.session.execute_single_page(select, (number,), PagingState::start()).await;
                paged.map(|(answer, _)| answer)
            }
            _ if rows == 1 => table.session.execute_unpaged(select, (first,)).await,
            _ => table.session.execute_unpaged(select, (first, second)).await,
        };
        let answer = answer.map_err(Failure::request)?;
        let found = rows_of(answer).and_then(|found| {
            let mut times_us = [None; 2];
            for row in found.rows::<(&str, i64, &[u8])>().map_err(Problem::shape)? {
                let (key, number, value) = row.map_err(Problem::shape)?;
                times_us[table.shape.check_row(numbers, key, number, value)?] = Some(0);
            }
            Ok(times_us)
        });
        table.judge(pair, numbers, rows, found).map_err(Failure::Violation)?;
        Ok(rows as u64)
    }
}

/// What is prepared for a kind of request; of a batch, one of its statements.
fn statement(operation: Operation, table: &str, kind: TableKind) -> String {
    match operation {
        Operation::Insert | Operation::LoggedBatch | Operation::UnloggedBatch => {
            let more: String = kind.more_columns().iter().map(|column| format!(", {column}")).collect();
            let markers = ", ?".repeat(kind.more_columns().len());
            format!("INSERT INTO {table} (k, n, v{more}) VALUES (?, ?, ?{markers});")
        }
        // As CassandraTransactionalKeyValue of yb-sample-apps.
        Operation::Block => format!(
            "BEGIN TRANSACTION  INSERT INTO {table} (k, n, v) VALUES (:k1, :n1, :v1);  \
             INSERT INTO {table} (k, n, v) VALUES (:k2, :n2, :v2);END TRANSACTION;"
        ),
        Operation::Read => format!("SELECT k, n, v FROM {table} WHERE k = ?;"),
        Operation::ReadPair => format!("SELECT k, n, v FROM {table} WHERE k IN (?, ?);"),
        Operation::ReadByIndex => format!("SELECT k, n, v FROM {table} WHERE n = ?;"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_differ_in_one_thing_only() {
        let columns = "(k varchar, n bigint, v blob, primary key (k)) WITH tablets = 4";
        let plain = format!("CREATE TABLE t {columns};");
        assert_eq!(schema("t", TableKind::Plain, 4), [plain.as_str()]);
        let transactional = format!("CREATE TABLE t {columns} AND transactions = {{'enabled': true}};");
        assert_eq!(schema("t", TableKind::Transactional, 4), [transactional]);
        let index = "CREATE INDEX t_by_n ON t (n);";
        assert_eq!(schema("t", TableKind::Indexed, 4), [plain.as_str(), index]);
        let both = schema("t", TableKind::TransactionalIndexed, 4);
        assert_eq!(both, [schema("t", TableKind::Transactional, 4)[0].as_str(), index]);
        let five = schema("t", TableKind::FiveIndexes, 4);
        assert!(five[0].contains("n2 bigint, n3 bigint, n4 bigint, n5 bigint, v blob"), "{five:?}");
        assert_eq!((five.len(), five[5].as_str()), (6, "CREATE INDEX t_by_n5 ON t (n5);"));
        let viewed = schema("t", TableKind::Viewed, 4);
        assert_eq!(viewed[0], schema("t", TableKind::Transactional, 4)[0]);
        assert!(viewed[1].starts_with("CREATE MATERIALIZED VIEW t_by_n AS SELECT * FROM t WHERE"), "{viewed:?}");
        let covering = schema("t", TableKind::Covering, 4);
        assert_eq!(covering[0], schema("t", TableKind::Transactional, 4)[0]);
        assert_eq!(covering[1], "CREATE INDEX t_by_n ON t (n) INCLUDE (v);");
        let insert = statement(Operation::Insert, "t", TableKind::FiveIndexes);
        assert_eq!(insert, "INSERT INTO t (k, n, v, n2, n3, n4, n5) VALUES (?, ?, ?, ?, ?, ?, ?);");
    }

    #[test]
    fn a_block_has_markers_by_name_numbered_through() {
        let block = statement(Operation::Block, "t", TableKind::Transactional);
        assert!(block.starts_with("BEGIN TRANSACTION  INSERT INTO t (k, n, v) VALUES (:k1, :n1, :v1);"), "{block}");
        assert!(block.ends_with("VALUES (:k2, :n2, :v2);END TRANSACTION;"), "{block}");
    }
}
