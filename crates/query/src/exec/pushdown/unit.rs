//! Units of aggregation: a tablet (or a part of it), a named partition, or all named keys of one tablet.
//!
//! Always true: a unit is of one tablet. Left out: asking for them ([`super::ask`]).

use crate::exec::keys::{KeyRange, PartitionKey};
use crate::exec::paging::PagingState;
use crate::exec::partial::{Limits, Partial};
use crate::exec::read::{Read, TabletScan, tablet_of};
use crate::kv::several::Span;
use crate::kv::{IndexScan, Kv};
use crate::program::PARTITION_DELETIONS;
use diorite_base::TabletId;
use diorite_cql::protocol::{CqlError, Value};
use diorite_model::key;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most bytes of statements that are sent along with the partitions of one statement.
const MAX_STATEMENT_BYTES: usize = 4 << 20;

/// A unit, which is aggregated by itself.
#[derive(Debug)]
pub struct Unit {
    pub(super) tablet: TabletId,
    /// The keys and ranges to read, in that order.
    pub(super) spans: Vec<Span>,
    /// The partition that all is in, or that the first range begins in; empty if that is not known.
    pub(super) partition: Vec<u8>,
    /// The rest of the partition's limit after the former page.
    pub(super) resumed: Option<u64>,
    /// Only rows that an index names are read.
    pub(super) by: Option<Arc<IndexScan>>,
}

impl Unit {
    /// A tablet, from where the former page ended.
    pub(in crate::exec) fn of_scan(scan: &TabletScan, state: Option<&PagingState>) -> Self {
        // The former page ended in a partition of this tablet.
        let state = state.filter(|state| state.is_in_partition() && scan.start.starts_with(&state.key));
        Self {
            tablet: scan.tablet,
            spans: vec![Span::range(scan.start.clone(), scan.end.clone())],
            partition: state.map(|state| state.key[..state.partition_len].to_vec()).unwrap_or_default(),
            resumed: state.map(|state| state.remaining_in_partition.unwrap_or(u64::MAX)),
            by: scan.by.clone(),
        }
    }

    /// Rows and ranges of a partition.
    fn of_partition(tablet: TabletId, partition: &PartitionKey, ranges: &[KeyRange], resumed: Option<u64>) -> Self {
        let spans = ranges.iter().map(|range| range.span(&partition.prefix)).collect();
        Self { tablet, spans, partition: partition.prefix.clone(), resumed, by: None }
    }

    /// The memory of its keys and ranges.
    pub(super) fn size_bytes(&self) -> usize {
        self.spans.iter().map(|span| size_of::<Span>() + span.size_bytes()).sum()
    }

    pub(super) fn begin(&self, limits: Limits) -> Partial {
        let left_in_partition = self.resumed.unwrap_or(limits.rows_per_partition);
        Partial {
            partition: self.partition.clone(),
            has_rows: self.resumed.is_some(),
            left_in_partition,
            is_partition_done: left_in_partition == 0,
            ..Partial::begin(limits)
        }
    }
}

/// The units of named partitions; `None` if there are rows to show, or to be put in order.
pub(in crate::exec) fn named_units<K: Kv>(
    read: &Read<'_, K>,
    partitions: &[PartitionKey],
    ranges: &[KeyRange],
    state: Option<&PagingState>,
) -> Result<Option<Vec<Unit>>, CqlError> {
    // The order of rows that are aggregated into one is visible only in a first row.
    let has_order = read.plan.grouping.is_some() || read.plan.selection.shows_columns();
    if !read.plan.selection.is_aggregate() && read.plan.grouping.is_none() {
        return Ok(None);
    }
    if !has_order && !read.plan.is_reversed && state.is_none() {
        return units_of_tablets(read, partitions, ranges).map(Some);
    }
    // Each partition is asked for with the statement: to bring the rows here takes less if that names very many.
    let is_long = partitions.len() > 1 && statement_bytes(read) > MAX_STATEMENT_BYTES / partitions.len();
    if has_order && (is_long || !read.plan.ordering.is_empty()) {
        return Ok(None);
    }
    let mut first = 0;
    if let Some(state) = state {
        let prefix = &state.key[..state.partition_len];
        let found = partitions.iter().position(|partition| partition.prefix == prefix);
        first = found.ok_or_else(|| CqlError::protocol("Invalid value for the paging state"))?;
    }
    let after = state.map(|state| &state.key[state.partition_len..]);
    charge_product(read, &partitions[first..], ranges)?;
    let (rest, all) = (read.in_order(ranges, after), read.in_order(ranges, None));
    let units = partitions[first..].iter().enumerate().map(|(number, partition)| {
        let resumed = state.filter(|_| number == 0);
        let ranges = if number == 0 { &rest } else { &all };
        let resumed = resumed.map(|state| state.remaining_in_partition.unwrap_or(u64::MAX));
        Unit::of_partition(tablet_of(read.tablets, partition.token), partition, ranges, resumed)
    });
    Ok(Some(units.collect()))
}

/// A unit for each tablet with named partitions, with the spans of each of them.
fn units_of_tablets<K: Kv>(
    read: &Read<'_, K>,
    partitions: &[PartitionKey],
    ranges: &[KeyRange],
) -> Result<Vec<Unit>, CqlError> {
    charge_product(read, partitions, ranges)?;
    let mut by_tablet: BTreeMap<TabletId, Vec<&PartitionKey>> = BTreeMap::new();
    for partition in partitions {
        by_tablet.entry(tablet_of(read.tablets, partition.token)).or_default().push(partition);
    }
    let units = by_tablet.into_iter().map(|(tablet, mut named)| {
        if let [partition] = named.as_slice() {
            return Unit::of_partition(tablet, partition, ranges, None);
        }
        named.sort_by(|a, b| a.prefix.cmp(&b.prefix));
        let mut spans = Vec::with_capacity(named.len() * (ranges.len() + 1));
        for partition in named {
            let with = |push: fn(&mut Vec<u8>)| {
                let mut key = partition.prefix.clone();
                push(&mut key);
                key
            };
            spans.push(Span::key_if(PARTITION_DELETIONS, with(key::push_header)));
            spans.extend(read.plan.reads_statics.then(|| Span::key(with(key::push_static))));
            spans.extend(ranges.iter().map(|range| range.span(&partition.prefix)));
        }
        Unit { tablet, spans, partition: Vec::new(), resumed: None, by: None }
    });
    Ok(units.collect())
}

/// Takes memory for the spans that each partition has: its header, its static row, and all ranges.
fn charge_product<K: Kv>(read: &Read<'_, K>, partitions: &[PartitionKey], ranges: &[KeyRange]) -> Result<(), CqlError> {
    let of_range = |range: &KeyRange| range.start.len() + range.end.as_ref().map_or(0, Vec::len);
    let range_bytes: usize = ranges.iter().map(of_range).sum();
    let spans = ranges.len() + 2;
    let of_partition = |partition: &PartitionKey| {
        let keys = partition.prefix.len().saturating_mul(2 * spans);
        keys.saturating_add(range_bytes).saturating_add(spans * size_of::<Span>())
    };
    read.budget().take(partitions.iter().map(of_partition).fold(0, usize::saturating_add))
}

/// The size of the statement and its values in a task.
pub(super) fn statement_bytes<K: Kv>(read: &Read<'_, K>) -> usize {
    let value_bytes = |value: &Value<'_>| if let Value::Set(bytes) = value { bytes.len() } else { 0 };
    let statement = read.plan.pushdown.as_ref().map_or(0, |pushdown| pushdown.statement().len());
    statement + read.bound.values.iter().map(value_bytes).sum::<usize>()
}
