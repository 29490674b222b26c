//! What `EXPLAIN` tells of a plan, in the words of YCQL where it has them.
//!
//! Always true: a pure function of the plan, the table's tablets and the time; bound values are not looked at. Left out:
//! what only the tablets know: how many rows there are, and whether an index is complete in each.

use super::homes::tablet_of;
use super::keys::partition_keys;
use super::modify::unique::{no_arithmetic, no_timestamps};
use super::modify::{Defaults, given_timestamp};
use super::scan::token_range;
use super::write::expiry;
use crate::plan::explain::{ExplainPlan, Explained, joined};
use crate::plan::modify::{ModifyKind, ModifyPlan, Scope};
use crate::plan::operation::Change;
use crate::plan::restrictions::{ClusteringRestriction, PartitionRestriction, Restrictions};
use crate::plan::select::SelectPlan;
use crate::plan::term::{Bound, Term};
use crate::plan::values::{TupleValues, Values};
use crate::table::TableContext;
use diorite_cql::language::format::quote_identifier;
use diorite_cql::protocol::{CqlError, ResultMetadata, Rows};
use diorite_model::schema::TabletRange;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Keys are counted one by one up to this number.
const COUNTED_KEYS: usize = 512;
/// Lines are filled up to the length of the longest, or this many characters: `cqlsh` shows texts at the right.
const FILLED_CHARACTERS: usize = 200;

/// What is known beside the plan.
#[derive(Debug, Clone, Copy)]
pub struct Around<'a> {
    /// The tablets of the table, by token; `None`: its rows are made up when they are asked for.
    pub tablets: Option<&'a [TabletRange]>,
    /// How old the answer may be, at the consistency level of the request.
    pub staleness_ms: Option<u32>,
    /// What needs it is read in a snapshot.
    pub has_snapshots: bool,
}

/// Refuses a write that would be refused when it is carried out, as far as that is known without the values of markers.
pub fn check_write(plan: &ModifyPlan, bound: &Bound<'_>) -> Result<(), CqlError> {
    let table = &plan.table;
    let given = match &plan.timestamp {
        Some(term) if is_known(term) => given_timestamp(plan, bound, Defaults::default())?,
        _ => None,
    };
    if let Some(ttl) = plan.ttl.as_ref().filter(|ttl| is_known(ttl)) {
        expiry(Some(ttl), table.table(), bound.environment.now_s, bound)?;
    }
    for operation in &plan.operations {
        let id = table.column(operation.column).id;
        if matches!(operation.change, Change::Sum(..)) && table.is_unique_column(id) {
            return Err(no_arithmetic(table, id));
        }
    }
    if given.is_some() && plan.concerns_unique() { Err(no_timestamps(table)) } else { Ok(()) }
}

/// The lines as rows of text.
pub fn rows(
    plan: &ExplainPlan,
    columns: Arc<ResultMetadata>,
    around: Around<'_>,
    bound: &Bound<'_>,
) -> Result<Rows, CqlError> {
    let texts: usize =
        [&plan.keys, &plan.filters, &plan.indexes].iter().flat_map(|texts| texts.iter()).map(String::len).sum();
    bound.environment.budget.take(4 * (texts + plan.condition.as_ref().map_or(0, String::len)))?;
    let mut lines = lines(plan, around, bound)?;
    let length = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default().min(FILLED_CHARACTERS);
    let mut rows = Rows::new(columns);
    for line in &mut lines {
        let missing = length.saturating_sub(line.chars().count());
        line.extend(std::iter::repeat_n(' ', missing));
        rows.push_row([Some(line.as_bytes())]);
    }
    Ok(rows)
}

fn name_of(table: &TableContext) -> String {
    format!("{}.{}", quote_identifier(&table.table().keyspace), quote_identifier(&table.table().name))
}

/// How the rows of a table are found, if this covering index is read.
pub fn covering_path(table: &TableContext, index: &str) -> String {
    let keyspace = quote_identifier(&table.table().keyspace);
    format!("Index Only Scan using {keyspace}.{} on {}", quote_identifier(index), name_of(table))
}

/// What a write does with the rows of its table.
pub fn write_path(modify: &ModifyPlan) -> String {
    let name = name_of(&modify.table);
    match modify.kind {
        ModifyKind::Insert => format!("Insert on {name}"),
        ModifyKind::Update => format!("Update on {name}"),
        ModifyKind::Delete => format!("Delete on {name}"),
    }
}

fn lines(plan: &ExplainPlan, around: Around<'_>, bound: &Bound<'_>) -> Result<Vec<String>, CqlError> {
    let table = plan.of.table();
    let (head, scan, mut details) = match &plan.of {
        Explained::Select(select) => {
            let is_aggregated = select.selection.is_aggregate() || select.grouping.is_some();
            let head = match select.limits.total {
                _ if is_aggregated => Some("Aggregate".to_owned()),
                Some(_) => Some("Limit".to_owned()),
                None => None,
            };
            match plan.of.covering() {
                Some(covering) => {
                    let scan = covering_path(table, &covering.index);
                    (head, Some(scan), select_details(plan, &covering.plan, around, bound)?)
                }
                None => {
                    let details = select_details(plan, select, around, bound)?;
                    (head, Some(read_path(&select.restrictions, table)), details)
                }
            }
        }
        Explained::Modify(modify) => {
            let scan = match modify.kind {
                ModifyKind::Insert => None,
                ModifyKind::Update | ModifyKind::Delete => Some(read_path(&modify.restrictions, table)),
            };
            (Some(write_path(modify)), scan, modify_details(plan, modify, around, bound)?)
        }
    };
    let conditions = [("Key Conditions", &plan.keys), ("Filter", &plan.filters)];
    let conditions = conditions.into_iter().filter(|(_, conditions)| !conditions.is_empty());
    let mut all: Vec<String> = conditions.map(|(name, conditions)| format!("{name}: {}", joined(conditions))).collect();
    all.append(&mut details);
    // YCQL's form: what is done with the rows, and under it how they are found.
    let (first, indent) = match (head, scan) {
        (Some(head), Some(scan)) => (vec![head, format!("  ->  {scan}")], "        "),
        (head, scan) => (head.or(scan).into_iter().collect(), "  "),
    };
    Ok(first.into_iter().chain(all.into_iter().map(|line| format!("{indent}{line}"))).collect())
}

/// How the rows of a table are found, if no covering index is read.
pub fn read_path(restrictions: &Restrictions, table: &TableContext) -> String {
    let name = name_of(table);
    if let Some(index) = &restrictions.index {
        let keyspace = quote_identifier(&table.table().keyspace);
        return format!("Index Scan using {keyspace}.{} on {name}", quote_identifier(&index.name));
    }
    match &restrictions.partition {
        PartitionRestriction::Keys(_) if restrictions.fixed_clustering == table.clustering_columns() => {
            format!("Primary Key Lookup on {name}")
        }
        PartitionRestriction::Keys(_) | PartitionRestriction::Tokens { .. } => format!("Range Scan on {name}"),
        PartitionRestriction::All => format!("Seq Scan on {name}"),
    }
}

fn select_details(
    plan: &ExplainPlan,
    select: &SelectPlan,
    around: Around<'_>,
    bound: &Bound<'_>,
) -> Result<Vec<String>, CqlError> {
    let mut lines = plan.indexes.clone();
    if select.restrictions.index.as_ref().is_some_and(|index| index.may_scan) {
        lines.push("Not indexed yet: tablets are read row by row until they are (ALLOW FILTERING)".to_owned());
    }
    let Some(tablets) = around.tablets else {
        lines.push("Tablets: none, the node that is asked knows the rows".to_owned());
        return Ok(lines);
    };
    lines.push(tablets_line(&select.restrictions, &select.table, tablets, bound)?);
    if select.pushdown.is_some() {
        lines.push("Aggregated: by the leaders of the tablets".to_owned());
    }
    if !select.ordering.is_empty() {
        lines.push("Order: the rows of all partitions are sorted".to_owned());
    } else if select.is_reversed {
        lines.push("Order: partitions are read backwards".to_owned());
    }
    match around.staleness_ms {
        Some(staleness_ms) => {
            lines.push(format!("Replicas: any that is at most {staleness_ms} ms behind"));
        }
        None if !around.has_snapshots => {}
        None if is_one_row(&select.restrictions, &select.table) => {
            lines.push("Snapshot: none, it is one row".to_owned());
        }
        None => lines.push("Snapshot: all rows of a page are of one moment".to_owned()),
    }
    Ok(lines)
}

fn modify_details(
    plan: &ExplainPlan,
    modify: &ModifyPlan,
    around: Around<'_>,
    bound: &Bound<'_>,
) -> Result<Vec<String>, CqlError> {
    let mut lines = Vec::new();
    if let Some(condition) = &plan.condition {
        lines.push(format!("Condition: {condition}"));
    }
    if let Some(tablets) = around.tablets {
        lines.push(tablets_line(&modify.restrictions, &modify.table, tablets, bound)?);
    }
    if modify.concerns_dependents() {
        lines.extend(dependent_lines(modify));
        return Ok(lines);
    }
    lines.push(match (&modify.condition, modify.restrictions.has_partition_in()) {
        (Some(_), _) => "Transaction: lightweight, one entry of the log".to_owned(),
        (None, false) => "Transaction: none, one entry of the log".to_owned(),
        (None, true) => "Transaction: none, one entry of the log of each tablet by itself".to_owned(),
    });
    let reads_statics = match &modify.condition {
        Some(_) => modify.condition_is_static(),
        None => modify.scope == Scope::Statics,
    };
    lines.push(match (modify.condition.is_some() || modify.reads_row, reads_statics) {
        (false, _) => "Reads: nothing".to_owned(),
        (true, true) => "Reads: the static columns, in the same step".to_owned(),
        (true, false) => "Reads: the row, in the same step".to_owned(),
    });
    Ok(lines)
}

/// The tables that are written with the table's own, and what is read for that.
fn dependent_lines(modify: &ModifyPlan) -> Vec<String> {
    let mut lines = Vec::new();
    let table = modify.table.table();
    if modify.concerns_unique() {
        let names = table.unique_indexes().map(|(index, _)| index.name.as_str()).collect::<Vec<_>>().join(", ");
        lines.push(format!("Transaction: with the tables of the unique indexes ({names}), if their values change"));
    }
    if !modify.concerns_views() {
        lines.push("Reads: the unique columns of the rows, before".to_owned());
        return lines;
    }
    let views = table.named_views().map(|view| view.name.clone()).collect::<Vec<_>>().join(", ");
    if !views.is_empty() {
        lines.push(format!("Transaction: with the materialized views ({views}), if what they have changes"));
    }
    // One whose index was dropped is written until no node reads it.
    let indexes = table.hidden_views().filter_map(|(_, of)| Some(of?.0.name.as_str()));
    let indexes = indexes.collect::<Vec<_>>().join(", ");
    if !indexes.is_empty() {
        lines.push(format!("Transaction: with the covering indexes ({indexes}), if what they have changes"));
    }
    lines.push("Reads: the rows, before".to_owned());
    lines
}

/// Whether one row is named, by values of all its key columns.
fn is_one_row(restrictions: &Restrictions, table: &TableContext) -> bool {
    let is_one = |restriction: &ClusteringRestriction| match restriction {
        ClusteringRestriction::Values(values) => matches!(values, Values::One(_)),
        ClusteringRestriction::Tuples(_, TupleValues::Many(tuples)) => tuples.len() == 1,
        _ => false,
    };
    restrictions.has_keys()
        && !restrictions.has_partition_in()
        && restrictions.fixed_clustering == table.clustering_columns()
        && restrictions.clustering.iter().all(is_one)
}

/// How many of the tablets are asked, as far as that is known without values of markers.
fn tablets_line(
    restrictions: &Restrictions,
    table: &TableContext,
    tablets: &[TabletRange],
    bound: &Bound<'_>,
) -> Result<String, CqlError> {
    let all = tablets.len();
    let exactly = |count: usize| format!("Tablets: {count} of {all}");
    Ok(match &restrictions.partition {
        PartitionRestriction::All if all == 1 => exactly(1),
        PartitionRestriction::All => format!("Tablets: all {all}"),
        PartitionRestriction::Tokens { lower, upper } => {
            let mut bounds = lower.iter().chain(upper);
            if !bounds.all(|(term, _)| is_known(term)) {
                return Ok(format!("Tablets: those of the tokens, of {all}"));
            }
            let range = token_range(&restrictions.partition, bound)?;
            exactly(range.map_or(0, |(first, last)| tablets_within(tablets, first, last)))
        }
        PartitionRestriction::Keys(keys) => {
            let count = keys.iter().map(named_count).try_fold(1usize, |product, count| product.checked_mul(count?));
            let are_known = keys.iter().all(|values| match values {
                Values::One(term) | Values::List(term) => is_known(term),
                Values::Many(terms) => terms.iter().all(is_known),
            });
            match count {
                Some(count) if are_known && count <= COUNTED_KEYS => {
                    let partitions = partition_keys(table, keys, bound)?;
                    let asked: BTreeSet<_> =
                        partitions.iter().map(|partition| tablet_of(tablets, partition.token)).collect();
                    exactly(asked.len())
                }
                Some(1) => exactly(1),
                Some(count) => format!("Tablets: at most {} of {all}", count.min(all)),
                None => format!("Tablets: those of the keys, of {all}"),
            }
        }
    })
}

/// How many values are named; `None`: a marker decides.
fn named_count(values: &Values) -> Option<usize> {
    match values {
        Values::One(_) => Some(1),
        Values::Many(terms) => Some(terms.len()),
        Values::List(_) => None,
    }
}

/// Whether a term has a value without those of markers.
fn is_known(term: &Term) -> bool {
    match term {
        Term::Constant(_) => true,
        Term::Call(call) => call.arguments.iter().all(is_known),
        Term::Marker { .. } | Term::Compound(_) | Term::JsonColumn(_) => false,
    }
}

/// How many tablets have tokens of a range, both ends included.
fn tablets_within(tablets: &[TabletRange], first: i64, last: i64) -> usize {
    let until = |token: i64| tablets.partition_point(|range| range.first_token <= token);
    until(last) - until(first).saturating_sub(1)
}
