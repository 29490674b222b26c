//! Which indexes are covering, and what has become of the rows that were there before one.
//!
//! Always true: only tables with transactions have covering indexes; the key of the hidden view consists of columns
//! whose values have one form each, so that a row is found in it by the values by which the local index finds it. Other
//! indexes with `INCLUDE` are local ones. Left out: keeping the view up to date, which is that of any materialized view
//! ([`crate::exec::modify::views`]), and which reads use it ([`crate::bind`]).

use super::context::Context;
use super::indexable::column_of;
use super::text::identifier;
use super::type_names::mentions_user_type;
use crate::error::{catalog_error, invalid, unreadable_outcome};
use crate::index::Specification;
use crate::kv::{Fetch, FetchRows, Kv, KvError};
use crate::table::has_transactions;
use diorite_base::level::Level;
use diorite_base::{TableId, TabletId};
use diorite_cluster::catalog::{Command, CoveringOutcome, Outcome};
use diorite_cql::language::ast::{CreateIndex, Direction, IndexColumn};
use diorite_cql::protocol::CqlError;
use diorite_model::index::specification_key;
use diorite_model::schema::{Clustered, Column, ColumnKind, Covering, CoveringState, Index, Order, Table};
use diorite_model::types::CqlType;
use futures::stream::{FuturesUnordered, StreamExt};
use std::collections::BTreeSet;

/// So many tablets are asked at a time.
pub(super) const ASKED_AT_A_TIME: usize = 16;
/// How long a statement waits for a tablet's answer: one whose leader is silent does not hold up what it asks others.
const ANSWER_NS: u64 = 1_000_000_000;

/// What a statement with `INCLUDE` makes of its index.
pub(super) enum Made {
    /// It is covering.
    Covering(Box<Covering>),
    /// It is a local index and no more; for the client, why, where it might have been covering.
    Local(Option<String>),
}

/// Whether equal values of a type are equal byte by byte, in keys as well.
fn is_exact(data_type: &CqlType) -> bool {
    matches!(
        data_type,
        CqlType::Ascii
            | CqlType::Text
            | CqlType::Blob
            | CqlType::Inet
            | CqlType::Bigint
            | CqlType::Int
            | CqlType::Smallint
            | CqlType::Tinyint
            | CqlType::Timestamp
            | CqlType::Date
            | CqlType::Time
            | CqlType::Uuid
            | CqlType::Timeuuid
    )
}

/// What the statement of an index asks for, which [`super::index`] has accepted.
///
/// # Errors
/// If a column does not exist, or one has an order that cannot have any.
pub(super) fn define(context: &Context<'_>, table: &Table, create: &CreateIndex) -> Result<Made, CqlError> {
    check_order(create)?;
    if create.include.is_empty() || !has_transactions(table) || context.catalog.level() < Level::RECORDED {
        return Ok(Made::Local(None));
    }
    covering(table, create)
}

/// Refuses an order of anything but the columns that follow the partition key of the index, and two orders of one.
fn check_order(create: &CreateIndex) -> Result<(), CqlError> {
    let mut earlier = BTreeSet::new();
    for (column, _) in &create.options.clustering_order {
        if !earlier.insert(column) {
            return Err(invalid(format!("Duplicate column '{column}' in CLUSTERING ORDER BY clause")));
        }
        if !create.clustering.iter().any(|named| matches!(named, IndexColumn::Column(name) if name == column)) {
            return Err(invalid("Only clustering key columns can be defined in CLUSTERING ORDER directive"));
        }
    }
    Ok(())
}

/// Whether an index answers from its view all reads that `wanted` would answer.
pub(super) fn covers(index: &Index, wanted: &Covering) -> bool {
    index.covering.as_ref().is_some_and(|covering| {
        !matches!(covering.state, CoveringState::Failed(_))
            && (&covering.partition, &covering.clustering) == (&wanted.partition, &wanted.clustering)
            && wanted.included.iter().all(|id| covering.included.contains(id))
    })
}

fn local(why: impl Into<String>) -> Result<Made, CqlError> {
    Ok(Made::Local(Some(why.into())))
}

/// The columns of the view, or why there can be none.
fn covering(table: &Table, create: &CreateIndex) -> Result<Made, CqlError> {
    if !create.where_clause.is_empty() {
        return local("it has a predicate".to_owned());
    }
    let mut key: Vec<&Column> = Vec::new();
    for named in create.partition.iter().chain(&create.clustering) {
        let IndexColumn::Column(name) = named else { return local("it is of a part of a column".to_owned()) };
        let column = column_of(table, name)?;
        if let Some(why) = unfit_for_key(column) {
            return local(why);
        }
        if key.iter().any(|known| known.id == column.id) {
            return local(format!("column {name} is named twice"));
        }
        key.push(column);
    }
    let (partition, clustering) = key.split_at(create.partition.len());
    let is_whole = table.partition_key().all(|column| partition.iter().any(|of| of.id == column.id));
    if is_whole {
        return local("rows are found by the partition key without it".to_owned());
    }
    // Those of the table's clustering columns have the form that keys have already.
    let of_table = table.partition_key().find_map(unfit_for_key);
    let of_table = of_table.or_else(|| table.clustering().find_map(unfit_for_clustering));
    if let Some(why) = of_table {
        return local(why);
    }
    let mut included = BTreeSet::new();
    for name in &create.include {
        let column = column_of(table, name)?;
        match column.kind {
            ColumnKind::Static => return local(format!("column {name} is static")),
            ColumnKind::Regular => drop(included.insert(column.id)),
            ColumnKind::PartitionKey | ColumnKind::Clustering(_) => {}
        }
    }
    let order = |column: &&Column| {
        let given = create.options.clustering_order.iter().find(|(name, _)| *name == column.name);
        let is_descending = given.is_some_and(|(_, direction)| *direction == Direction::Descending);
        Clustered { column: column.id, order: if is_descending { Order::Desc } else { Order::Asc } }
    };
    Ok(Made::Covering(Box::new(Covering {
        partition: partition.iter().map(|column| column.id).collect(),
        clustering: clustering.iter().map(order).collect(),
        included: included.into_iter().collect(),
        view: 0,
        state: CoveringState::Building,
    })))
}

/// Why a column cannot be named in the key of the view.
fn unfit_for_key(column: &Column) -> Option<String> {
    let name = &column.name;
    if column.kind == ColumnKind::Static {
        return Some(format!("column {name} is static"));
    }
    let is_exact = is_exact(&column.data_type);
    (!is_exact).then(|| format!("values of column {name} ({}) may be equal in several forms", column.data_type))
}

/// Why a clustering column of the table cannot be in the key of the view.
fn unfit_for_clustering(column: &Column) -> Option<String> {
    let has_user_type = mentions_user_type(&column.data_type);
    has_user_type.then(|| format!("clustering column {} has a user-defined type", column.name))
}

/// What a covering index is made of, with the parentheses around its partition key, as CQL text.
pub(super) fn key_text(table: &Table, index: &Index) -> Option<String> {
    let covering = index.covering.as_ref()?;
    let name = |id: u32| table.column_by_id(id).map(|column| identifier(&column.name)).unwrap_or_default();
    let partition = covering.partition.iter().map(|id| name(*id)).collect::<Vec<_>>().join(", ");
    let first = if covering.partition.len() > 1 { format!("({partition})") } else { partition };
    let others = covering.clustering.iter().map(|of| name(of.column));
    Some(std::iter::once(first).chain(others).collect::<Vec<_>>().join(", "))
}

/// The names of the included columns. Those of the table's key are in the view in any case, and one of them stands for a
/// list of nothing else.
pub(crate) fn include_text(table: &Table, index: &Index) -> Option<String> {
    let Some(covering) = &index.covering else { return index.options.get("include").cloned() };
    let all = covering.included.iter().filter_map(|id| table.column_by_id(*id));
    let names: Vec<String> = all.map(|column| identifier(&column.name)).collect();
    if names.is_empty() { table.partition_key().next().map(|of| identifier(&of.name)) } else { Some(names.join(", ")) }
}

/// The order of the view's rows, if it is not the usual one.
pub(super) fn order_text(table: &Table, index: &Index) -> Option<String> {
    let covering = index.covering.as_ref()?;
    covering.clustering.iter().find(|of| of.order == Order::Desc)?;
    let orders = covering.clustering.iter().filter_map(|of| {
        let order = if of.order == Order::Desc { "DESC" } else { "ASC" };
        Some(format!("{} {order}", identifier(&table.column_by_id(of.column)?.name)))
    });
    Some(orders.collect::<Vec<_>>().join(", "))
}

/// What has become of the rows that were there before a dependent of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Looked {
    /// All tablets that the table has now have compared all rows.
    Whole,
    /// Not all of them have.
    Going,
    /// It has failed in one: why.
    Failed(String),
}

/// The tablets of a table that are known to have compared their rows.
#[derive(Debug, Default)]
pub(crate) struct Known {
    done: BTreeSet<TabletId>,
    tablets: Vec<diorite_model::schema::TabletRange>,
}

impl Known {
    /// Asks the other tablets once; one that does not answer does not hide that another has failed. One that has taken
    /// over another's rows compares them as well: then all are asked again. If `until_ns` is given, it ends by then, and
    /// waits for no tablet for longer than a second. `None`: the table was dropped.
    pub(crate) async fn look<K: Kv>(
        &mut self,
        kv: &K,
        (table, id): (TableId, u64),
        until_ns: Option<u64>,
    ) -> Option<Looked> {
        let catalog = kv.catalog();
        let entry = catalog.table_by_id(table)?;
        if self.tablets != entry.tablets {
            self.done.clear();
            self.tablets.clone_from(&entry.tablets);
        }
        let left: Vec<TabletId> =
            entry.tablets.iter().map(|range| range.tablet).filter(|tablet| !self.done.contains(tablet)).collect();
        let mut left = left.into_iter();
        let mut asked = FuturesUnordered::new();
        asked.extend(left.by_ref().take(ASKED_AT_A_TIME).map(|tablet| specified(kv, tablet, id, until_ns)));
        while let Some((tablet, stored)) = asked.next().await {
            if until_ns.is_none_or(|until_ns| kv.monotonic_ns() < until_ns) {
                asked.extend(left.next().map(|tablet| specified(kv, tablet, id, until_ns)));
            }
            let Ok(Some(stored)) = stored else { continue };
            if let Some(why) = stored.failure() {
                return Some(Looked::Failed(why.to_owned()));
            }
            if stored.is_done() {
                self.done.insert(tablet);
            }
        }
        let is_whole = entry.tablets.iter().all(|range| self.done.contains(&range.tablet));
        Some(if is_whole { Looked::Whole } else { Looked::Going })
    }
}

/// What a tablet knows of a dependent of its table.
async fn specified<K: Kv>(
    kv: &K,
    tablet: TabletId,
    id: u64,
    until_ns: Option<u64>,
) -> (TabletId, Result<Option<Specification>, KvError>) {
    let stored = stored(kv, tablet, id, until_ns).await;
    (tablet, stored.map(|stored| stored.and_then(|stored| Specification::decode(&stored).ok())))
}

/// What is stored of it, undecoded. If `until_ns` is given, a tablet has to answer by then, and within a second.
pub(super) async fn stored<K: Kv>(
    kv: &K,
    tablet: TabletId,
    id: u64,
    until_ns: Option<u64>,
) -> Result<Option<Vec<u8>>, KvError> {
    let deadline_ns = until_ns.map(|until_ns| until_ns.min(kv.monotonic_ns().saturating_add(ANSWER_NS)));
    let fetch = Fetch { rows: FetchRows::One(specification_key(id)), deadline_ns, ..Fetch::default() };
    Ok(kv.fetch(tablet, fetch).await?.row)
}

/// Proposes what becomes of the hidden view of a covering index, which is to be known by `deadline_ns`.
///
/// # Errors
/// If it is not known whether that was carried out.
pub(crate) async fn finish<K: Kv>(
    kv: &K,
    (table, view): (TableId, u64),
    outcome: CoveringOutcome,
    deadline_ns: Option<u64>,
) -> Result<(), CqlError> {
    let reply = kv.change_catalog(&Command::FinishCovering { table, view, outcome }, deadline_ns).await;
    let reply = reply.map_err(|error| catalog_error(kv, &error))?;
    Outcome::decode(&reply).map_err(|error| unreadable_outcome(kv, &error))?;
    Ok(())
}

/// The warning about an index that is local only.
pub(super) fn local_warning(index: &str, why: &str) -> String {
    format!("the index {index} does not cover its columns: {why}; reads by it ask all tablets")
}

/// The warning about the order of an index that is local only, if its statement gives one.
pub(super) fn order_warning(index: &str, create: &CreateIndex) -> Option<String> {
    let is_given = !create.options.clustering_order.is_empty();
    is_given.then(|| {
        format!("CLUSTERING ORDER BY of the index {index} has no effect: rows come in the order of the table's keys")
    })
}
