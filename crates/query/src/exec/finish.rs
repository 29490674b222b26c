//! From a collector to the rows of a page: ordering, paging state, and the one row of an aggregate.
//!
//! Always true: a page that is not the last says where the next begins.

use super::cells::put_cells;
use super::collect::{Collector, SortableRow};
use super::evaluate::Scope;
use super::paging::PagingState;
use super::read::{PageRequest, Read};
use super::row::RowData;
use crate::kv::Kv;
use crate::plan::select::check_limit;
use diorite_cql::protocol::{CqlError, Rows};
use diorite_model::value;
use std::cmp::Ordering;
use std::sync::Arc;

pub(super) fn finish_aggregates<K: Kv>(read: &Read<'_, K>, mut collector: Collector<'_>) -> Result<Rows, CqlError> {
    let selection = &read.plan.selection;
    let states = std::mem::take(&mut collector.states);
    let mut results = Vec::with_capacity(states.len());
    for (state, aggregate) in states.into_iter().zip(&selection.aggregates) {
        results.push(state.finish(aggregate)?);
    }
    let row = collector.first_row.take().unwrap_or_else(|| RowData::new(selection.reads.clone(), false));
    let scope = Scope { aggregates: &results, ..read.scope() };
    let mut rows = Rows::new(Arc::clone(&selection.metadata));
    // There is one row, which any OFFSET leaves out.
    if collector.offset_left() == 0 {
        put_cells(&scope, selection, &row, &mut rows.body)?;
        rows.row_count = 1;
    }
    Ok(rows)
}

pub(super) async fn finish<K: Kv>(
    read: &Read<'_, K>,
    mut collector: Collector<'_>,
    page: &PageRequest<'_>,
    is_last: bool,
) -> Result<Rows, CqlError> {
    if read.plan.is_one_row() {
        return finish_aggregates(read, collector);
    }
    let mut rows = Rows::new(Arc::clone(&read.plan.selection.metadata));
    if !read.plan.ordering.is_empty() {
        let limit = read.limits(page, None)?;
        let wanted = if read.plan.limits.total.is_some() { sorted_limit(read)? } else { limit.rows };
        let sortable = std::mem::take(&mut collector.sortable);
        let left_out = usize::try_from(collector.offset_left()).unwrap_or(usize::MAX);
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let work = || sorted(read, sortable, left_out, wanted, &mut rows);
        read.source.run_long(work).await?;
        return Ok(rows);
    }
    if !is_last && !collector.is_finished() && collector.is_full() {
        let no_limit = |rows: u64| (rows != u64::MAX).then_some(rows);
        let state = PagingState {
            table: read.plan.table.table().id.0,
            remaining: no_limit(collector.rows_left()),
            remaining_in_partition: no_limit(collector.left_in_partition()),
            offset: collector.offset_left(),
            partition_len: collector.partition().len(),
            key: collector.position().to_vec(),
        };
        rows.paging_state = Some(state.encode());
    }
    rows.row_count = collector.row_count;
    rows.body = std::mem::take(&mut collector.body);
    Ok(rows)
}

/// Sorts rows, and puts the wanted ones into the result.
fn sorted<K: Kv>(
    read: &Read<'_, K>,
    mut sortable: Vec<SortableRow>,
    left_out: usize,
    wanted: usize,
    rows: &mut Rows,
) -> Result<(), CqlError> {
    let budget = read.budget();
    sortable.sort_by(|a, b| compare_sortable(read, a, b));
    let is_wanted = |at: &usize| *at >= left_out && at - left_out < wanted;
    for (_, row) in sortable.into_iter().enumerate().filter(|(at, _)| is_wanted(at)) {
        budget.check()?;
        budget.reserve(&mut rows.body, row.cells.len())?;
        rows.body.extend_from_slice(&row.cells);
        rows.row_count += 1;
    }
    Ok(())
}

fn sorted_limit<K: Kv>(read: &Read<'_, K>) -> Result<u64, CqlError> {
    match &read.plan.limits.total {
        Some(term) => check_limit(term.evaluate(read.bound)?.bytes().as_deref(), "[limit]").map(u64::from),
        None => Ok(u64::MAX),
    }
}

fn compare_sortable<K: Kv>(read: &Read<'_, K>, a: &SortableRow, b: &SortableRow) -> Ordering {
    for ((&(at, is_descending), a), b) in read.plan.ordering.iter().zip(&a.order).zip(&b.order) {
        let ordering = match (a, b) {
            (Some(a), Some(b)) => value::compare(&read.plan.table.column(at).data_type, a, b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        };
        if ordering != Ordering::Equal {
            return if is_descending { ordering.reverse() } else { ordering };
        }
    }
    Ordering::Equal
}
