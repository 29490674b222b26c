//! What makes an index unique; and what has become of the rows that were there before one, or before a view.
//!
//! Always true: only tables with transactions have unique indexes, and only columns with one value that are no part of
//! the key are unique; so two rows that have the same values are found by their writes alone. Left out: keeping the
//! index's table up to date ([`crate::exec::modify::unique`]).

use super::context::Context;
use super::covering::{Known, Looked};
use super::indexable::{check_type, column_of};
use crate::budget::Budget;
use crate::error::{invalid, not_supported};
use crate::kv::Kv;
use crate::table::has_transactions;
use diorite_base::TableId;
use diorite_base::level::Level;
use diorite_cql::language::ast::{CreateIndex, IndexColumn};
use diorite_cql::protocol::CqlError;
use diorite_model::schema::{ColumnKind, CoveringState, Table, TableEntry, Unique};
use diorite_model::types::CqlType;
use std::collections::BTreeSet;

/// How often, and at which intervals, it is looked whether rows have been compared.
pub(super) const LOOKS: usize = 100;
pub(super) const LOOK_NS: u64 = 50_000_000;
/// The most columns of a unique index.
const MAX_COLUMNS: usize = 16;
/// Each makes a transaction of a write.
const MAX_UNIQUE: usize = 8;

/// What a statement says to be unique.
pub(super) fn define(context: &Context<'_>, entry: &TableEntry, create: &CreateIndex) -> Result<Unique, CqlError> {
    let table = &entry.table;
    if !has_transactions(table) {
        return Err(invalid(format!(
            "a unique index needs transactions: ALTER TABLE {} WITH transactions = {{'enabled': true}}",
            table.name
        )));
    }
    if context.catalog.level() < Level::RECORDED {
        return Err(invalid("unique indexes need all nodes to run this release: see 'diorite admin upgrade'"));
    }
    if !create.where_clause.is_empty() {
        return Err(not_supported("a partial unique index"));
    }
    if table.defined_indexes().filter(|index| index.unique.is_some()).count() >= MAX_UNIQUE {
        return Err(invalid(format!("table {} has {MAX_UNIQUE} unique indexes, which is the maximum", table.name)));
    }
    let named = create.partition.iter().chain(&create.clustering);
    let columns = named.map(|named| unique_column(table, named)).collect::<Result<Vec<_>, _>>()?;
    if columns.len() > MAX_COLUMNS {
        return Err(invalid(format!("a unique index of more than {MAX_COLUMNS} columns is not supported")));
    }
    if columns.iter().collect::<BTreeSet<_>>().len() < columns.len() {
        return Err(invalid("a column is named twice"));
    }
    // The catalog makes the table.
    Ok(Unique { columns, table: TableId(0) })
}

fn unique_column(table: &Table, named: &IndexColumn) -> Result<u32, CqlError> {
    let IndexColumn::Column(name) = named else {
        return Err(not_supported("a unique index of a part of a column"));
    };
    let column = column_of(table, name)?;
    if column.kind != ColumnKind::Regular {
        return Err(not_supported(format!("a unique index of {name}, which is a static column or part of the key,")));
    }
    if matches!(column.data_type, CqlType::List(..) | CqlType::Set(..) | CqlType::Map(..)) {
        return Err(not_supported("a unique index of a collection"));
    }
    check_type(&column.data_type)?;
    Ok(column.id)
}

/// What is made of the rows that are there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// A unique index.
    Unique,
    /// A materialized view.
    View,
    /// The hidden view of a covering index.
    Covering,
}

impl Made {
    /// The error of a statement that has made it.
    pub(super) fn failed(self, name: &str, why: &str) -> CqlError {
        invalid(match self {
            // The reason names two rows that are alike.
            Self::Unique if why.starts_with("the rows ") => {
                format!("Execution Error. Duplicate value disallowed by unique index {name}: {why}")
            }
            Self::Unique => format!("the unique index {name} cannot be made: {why}"),
            Self::View | Self::Covering => format!("the materialized view {name} cannot be made: {why}"),
        })
    }

    /// The error of a statement whose work another one has undone.
    fn dropped(self, name: &str) -> CqlError {
        let what = match self {
            Self::Unique => "unique index",
            Self::View => "materialized view",
            Self::Covering => "index",
        };
        invalid(format!("the {what} {name} was dropped meanwhile"))
    }

    /// Whether a table has what was made with this number.
    fn is_left(self, table: &Table, id: u64) -> bool {
        match self {
            Self::Unique => table.unique_indexes().any(|(index, _)| index.id == id),
            Self::View => table.views.iter().any(|view| view.id == id),
            Self::Covering => {
                table.indexes.iter().filter_map(|index| index.covering.as_ref()).any(|covering| covering.view == id)
            }
        }
    }

    /// What the catalog has of it. A node may record that a covering index is ready, or has failed, before the statement
    /// sees it; of one that has failed the tablets know nothing any more.
    fn recorded(self, table: &Table, id: u64) -> Option<Built> {
        if self != Self::Covering {
            return None;
        }
        let mut covering = table.indexes.iter().filter_map(|index| index.covering.as_ref());
        match &covering.find(|covering| covering.view == id)?.state {
            CoveringState::Building => None,
            CoveringState::Ready => Some(Built::Whole),
            CoveringState::Failed(why) => Some(Built::Failed(why.clone())),
        }
    }

    fn going(self, table: &Table, name: &str) -> String {
        let Table { keyspace, name: of, .. } = table;
        let what = match self {
            Self::Unique => format!("compared for the unique index {name}"),
            Self::View => format!("added to the materialized view {name}"),
            Self::Covering => format!("added to the covering index {name}"),
        };
        format!("the rows of table {keyspace}.{of} are still being {what}: see 'diorite admin indexes'")
    }
}

/// What has become of the rows that were there before a unique index or a view.
#[derive(Debug)]
pub(super) enum Built {
    /// All were compared: no two have the same values, or the view has what follows from them.
    Whole,
    /// They are being compared: a warning.
    Going(String),
    /// Two have the same values, or something else is in the way.
    Failed(String),
}

/// Waits for some seconds until the rows that were there before a unique index or a view of a table, with that number
/// and name, have been compared.
///
/// # Errors
/// If it was dropped meanwhile, or if the time of the statement is over.
pub(super) async fn compared<K: Kv>(
    kv: &K,
    table: &Table,
    (made, id, name): (Made, u64, &str),
    budget: &Budget,
) -> Result<Built, CqlError> {
    let mut known = Known::default();
    for _ in 0..LOOKS {
        budget.check()?;
        let catalog = kv.catalog();
        let Some(entry) = catalog.table_by_id(table.id).filter(|entry| made.is_left(&entry.table, id)) else {
            return Err(made.dropped(name));
        };
        if let Some(built) = made.recorded(&entry.table, id) {
            return Ok(built);
        }
        match known.look(kv, table.id, id).await {
            None => return Err(made.dropped(name)),
            Some(Looked::Whole) => return Ok(Built::Whole),
            Some(Looked::Failed(why)) => return Ok(Built::Failed(why)),
            Some(Looked::Going) => kv.pause(LOOK_NS).await,
        }
    }
    Ok(Built::Going(made.going(table, name)))
}

/// Refuses to take transactions from a table that needs them.
pub(super) fn check_transactions(changed: &Table) -> Result<(), CqlError> {
    if has_transactions(changed) {
        return Ok(());
    }
    if let Some(index) = changed.defined_indexes().find(|index| index.unique.is_some()) {
        return Err(invalid(format!("the unique index {} needs the transactions of the table", index.name)));
    }
    if let Some(index) = changed.deferred_indexes.iter().find(|index| index.covering.is_some()) {
        return Err(invalid(format!("the covering index {} needs the transactions of the table", index.name)));
    }
    match changed.views.first() {
        Some(view) => Err(invalid(format!("the {} needs the transactions of the table", view.title()))),
        None => Ok(()),
    }
}
