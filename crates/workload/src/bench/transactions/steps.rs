//! The steps: their tables and requests, and what each is compared with.
//!
//! Always true: every step that writes has a table of its own; the tables have one shape and differ in what the step is
//! about. Tables are made anew, so that all rows are known.

use std::sync::Arc;

use diorite_base::random::SplitMix64;
use scylla::client::session::Session;

use super::super::published::{self, Reference};
use crate::WorkloadError;
use crate::latency::OperationKind;
use crate::runner::Executor;
use crate::transactions::hot::HotRow;
use crate::transactions::pairs::PairShape;
use crate::transactions::table::{Operation, PairStep, PairTable, TableKind};
use crate::workloads::Workload;

/// The name of the hot row's step.
pub const HOT_ROW: &str = "hot-row";
/// Clients that add to the hot row.
pub const HOT_CLIENTS: usize = 8;
/// Rows that one operation of a load writes.
const ROWS_OF_A_PAIR: u64 = 2;

/// What a step is compared with, in the same round, and the most that it may take of that.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    pub base: &'static str,
    /// Server-CPU-seconds per operation.
    pub cpu_at_most: Option<f64>,
    pub p50_at_most: Option<f64>,
}

/// One step as it is defined.
struct Definition {
    name: &'static str,
    description: &'static str,
    table: TableKind,
    operation: Operation,
    comparison: Option<Comparison>,
}

impl Definition {
    const fn new(
        name: &'static str,
        description: &'static str,
        (table, operation): (TableKind, Operation),
        comparison: Option<Comparison>,
    ) -> Self {
        Self { name, description, table, operation, comparison }
    }
}

const fn with(base: &'static str, cpu_at_most: Option<f64>, p50_at_most: Option<f64>) -> Option<Comparison> {
    Some(Comparison { base, cpu_at_most, p50_at_most })
}

/// The steps that write, each its own table.
const WRITES: [Definition; 11] = [
    Definition::new("insert", "one row, a plain table", (TableKind::Plain, Operation::Insert), None),
    Definition::new(
        "insert-transactional",
        "one row, a table with transactions",
        (TableKind::Transactional, Operation::Insert),
        with("insert", Some(1.02), None),
    ),
    Definition::new(
        "insert-indexed",
        "one row, a table with a local index",
        (TableKind::Indexed, Operation::Insert),
        with("insert", Some(1.6), None),
    ),
    Definition::new(
        "insert-indexed-transactional",
        "one row, a table with transactions and an index",
        (TableKind::TransactionalIndexed, Operation::Insert),
        with("insert", Some(4.0), Some(2.3)),
    ),
    Definition::new(
        "insert-unique-indexed",
        "one row, a table with transactions and a unique index",
        (TableKind::UniqueIndexed, Operation::Insert),
        with("insert", Some(4.0), Some(2.3)),
    ),
    Definition::new(
        "insert-viewed",
        "one row, a table with transactions and a materialized view",
        (TableKind::Viewed, Operation::Insert),
        with("insert", None, None),
    ),
    Definition::new(
        "insert-covering-indexed",
        "one row, a table with transactions and a covering index",
        (TableKind::Covering, Operation::Insert),
        with("insert", Some(4.0), None),
    ),
    Definition::new(
        "insert-five-indexes",
        "one row with four more columns, a table with transactions and five indexes",
        (TableKind::FiveIndexes, Operation::Insert),
        with("insert", Some(12.0), None),
    ),
    Definition::new(
        "block",
        "a transaction block of two rows in two tablets",
        (TableKind::Transactional, Operation::Block),
        with("insert", Some(3.5), Some(2.3)),
    ),
    Definition::new(
        "batch-logged",
        "a LOGGED batch of two rows in two tablets of a plain table",
        (TableKind::Plain, Operation::LoggedBatch),
        with("insert", None, None),
    ),
    Definition::new(
        "batch-unlogged",
        "an UNLOGGED batch of two rows in two tablets of a plain table",
        (TableKind::Plain, Operation::UnloggedBatch),
        with("insert", None, None),
    ),
];

/// The steps that read, of one table of each kind.
const READS: [Definition; 6] = [
    Definition::new("read", "one row by key, a plain table", (TableKind::Plain, Operation::Read), None),
    Definition::new(
        "read-transactional",
        "one row by key, a table with transactions",
        (TableKind::TransactionalIndexed, Operation::Read),
        with("read", None, None),
    ),
    Definition::new(
        "read-in",
        "two keys by IN, in two tablets of a plain table",
        (TableKind::Plain, Operation::ReadPair),
        with("read", None, None),
    ),
    Definition::new(
        "read-in-transactional",
        "two keys by IN, in two tablets of a table with transactions: of one moment",
        (TableKind::TransactionalIndexed, Operation::ReadPair),
        with("read-in", Some(1.5), None),
    ),
    Definition::new(
        "read-by-index",
        "one row by an indexed value, a table with transactions: of one moment in all tablets",
        (TableKind::TransactionalIndexed, Operation::ReadByIndex),
        with("read", Some(1.3), None),
    ),
    Definition::new(
        "read-by-covering-index",
        "one row by an indexed value, from the index alone",
        (TableKind::Covering, Operation::ReadByIndex),
        with("read", Some(1.3), None),
    ),
];

/// The tables that the reading steps share, and what loads them.
const LOADS: [(&str, TableKind, Operation); 3] = [
    ("load", TableKind::Plain, Operation::UnloggedBatch),
    ("load-transactional", TableKind::TransactionalIndexed, Operation::Block),
    ("load-covering", TableKind::Covering, Operation::Block),
];

/// One step, ready to run.
pub struct Step {
    pub name: &'static str,
    pub description: &'static str,
    pub kind: OperationKind,
    pub executor: Executor,
    pub comparison: Option<Comparison>,
    source: Source,
}

/// Whose rows a step writes or reads.
enum Source {
    Pairs(Arc<PairTable>),
    HotRow(Arc<HotRow>),
}

impl Step {
    async fn of_pairs(definition: &Definition, table: &Arc<PairTable>) -> Result<Self, WorkloadError> {
        let step = PairStep::prepare(table, definition.operation).await?;
        Ok(Self {
            name: definition.name,
            description: definition.description,
            kind: definition.operation.kind(),
            executor: Executor::Driver(Arc::new(Workload::Pairs(step))),
            comparison: definition.comparison,
            source: Source::Pairs(Arc::clone(table)),
        })
    }

    /// Whether all its clients write one row, so that some may be refused.
    pub fn is_hot(&self) -> bool {
        matches!(self.source, Source::HotRow(_))
    }

    /// Checks what it has written, or what it reads.
    pub async fn verify(&self, random: &mut SplitMix64) -> Result<(), WorkloadError> {
        match &self.source {
            Source::Pairs(table) => table.verify(random).await,
            Source::HotRow(hot) => hot.verify().await,
        }
    }

    /// The published rates that are nearest to it.
    pub fn reference(&self) -> Reference {
        match self.name {
            "insert-indexed" | "insert-indexed-transactional" | "insert-unique-indexed" | "insert-covering-indexed" => {
                published::indexed_write()
            }
            "block" => published::transaction(),
            _ => Reference::default(),
        }
    }
}

/// Everything that runs.
pub struct Steps {
    /// Each is run once, for so many operations.
    pub loads: Vec<(Step, u64)>,
    pub steps: Vec<Step>,
    pub hot: Arc<HotRow>,
}

impl Steps {
    /// Makes the tables and prepares all requests; `records` rows are to be loaded for reads.
    pub async fn create(session: &Arc<Session>, shape: &PairShape, records: u64) -> Result<Self, WorkloadError> {
        let (mut loads, mut steps, mut loaded) = (Vec::new(), Vec::new(), Vec::new());
        for definition in &WRITES {
            let name = table_name(definition.name);
            let table = PairTable::create(session, &name, definition.table, shape, definition.operation).await?;
            steps.push(Step::of_pairs(definition, &Arc::new(table)).await?);
        }
        for (name, kind, writer) in LOADS {
            let table = Arc::new(PairTable::create(session, &table_name(name), kind, shape, writer).await?);
            let load = Definition::new(name, "rows to read, in pairs", (kind, writer), None);
            loads.push((Step::of_pairs(&load, &table).await?, records.div_ceil(ROWS_OF_A_PAIR)));
            loaded.push((kind, table));
        }
        for definition in &READS {
            let table = loaded.iter().find(|(kind, _)| *kind == definition.table);
            let (_, table) = table.expect("a table of each kind that is read is loaded");
            steps.push(Step::of_pairs(definition, table).await?);
        }
        let hot = Arc::new(HotRow::create(session, &table_name(HOT_ROW), shape.tablets(), HOT_CLIENTS).await?);
        steps.push(Step {
            name: HOT_ROW,
            description: "a transaction block that adds to one row for all and one of its client, in two tablets",
            kind: OperationKind::Write,
            executor: Executor::Driver(Arc::new(Workload::HotRow(Arc::clone(&hot)))),
            comparison: None,
            source: Source::HotRow(Arc::clone(&hot)),
        });
        Ok(Self { loads, steps, hot })
    }
}

/// The name of a step's table.
fn table_name(step: &str) -> String {
    format!("transactions_{}", step.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_differ_and_a_step_is_compared_with_one_that_runs_before_it() {
        let mut seen = BTreeSet::new();
        for definition in WRITES.iter().chain(&READS) {
            assert!(definition.comparison.is_none_or(|with| seen.contains(with.base)), "{}", definition.name);
            assert!(seen.insert(definition.name), "{}", definition.name);
        }
    }

    #[test]
    fn what_is_read_is_loaded() {
        for definition in &READS {
            assert!(LOADS.iter().any(|(_, kind, _)| *kind == definition.table), "{}", definition.name);
        }
    }
}
