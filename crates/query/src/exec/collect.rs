//! From entries to result rows: assembles the rows of a partition, drops deleted and expired ones, filters, aggregates or encodes them, and
//! counts down the limits.
//!
//! Entries come in key order (or, within a partition, in reverse): header, static row, rows. A partition that has only static columns
//! counts as one row, unless clustering or regular columns are restricted.
//!
//! Always true: synchronous; a page ends exactly after the entry that filled it, and [`Collector::position`] says where. Left out: where
//! entries come from ([`super::select`]).

use super::aggregate::State;
use super::cells::put_cells;
use super::evaluate::Scope;
use super::filter::BoundFilter;
use super::partial::{Group, Limits, Partial};
use super::row::RowData;
use crate::budget::Budget;
use crate::error::corrupt;
use crate::plan::restrictions::{Filter, filters_regular, mark_filter_reads};
use crate::plan::select::SelectPlan;
use crate::plan::selection::{Selector, mark_reads, uses_metadata};
use diorite_cql::protocol::CqlError;
use diorite_cql::protocol::rows::{put_cell, put_null};
use diorite_model::deletions::Deletions;
use diorite_model::key::{self, DecodedKey, RowKind};
use diorite_model::row::{LiveRow, NOTHING_DELETED};
use std::borrow::Cow;
use std::sync::Arc;

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// More entries are wanted.
    More,
    /// The page is full or the limit reached.
    Full,
}

/// Encoding this many values takes as long as decoding one.
const SELECTORS_PER_STEP: usize = 16;

/// A row that waits to be put in order.
#[derive(Debug)]
pub struct SortableRow {
    /// The values of the ordering columns.
    pub order: Vec<Option<Vec<u8>>>,
    /// The encoded cells.
    pub cells: Vec<u8>,
}

/// The outcome of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Emitted {
    /// It was counted, or added to its group.
    Counted,
    /// A filter rejected it, or `OFFSET` or a limit left it out.
    Skipped,
    /// It would begin a group, but the page is full: it belongs to the next page.
    Before,
}

/// See the top of this module.
pub struct Collector<'p> {
    plan: &'p SelectPlan,
    scope: Scope<'p>,
    filters: &'p [BoundFilter<'p>],
    now_s: u32,
    limits: Limits,
    reads_partition: bool,
    reads_clustering: bool,
    reads_row: bool,
    /// The most passes over each byte of a row, the decoding included.
    steps_per_byte: usize,
    /// See [`Collector::is_short`].
    work_bytes: usize,
    row: RowData,
    key: DecodedKey,
    partition: Vec<u8>,
    header: Option<Arc<[u8]>>,
    has_static: bool,
    has_rows: bool,
    is_partition_done: bool,
    left_in_partition: u64,
    position: Vec<u8>,
    /// The encoded rows.
    pub body: Vec<u8>,
    /// How many there are.
    pub row_count: u32,
    /// The rows, when they are to be put in order.
    pub sortable: Vec<SortableRow>,
    /// The states of the aggregates.
    pub states: Vec<State>,
    /// The first row, for columns that are selected beside aggregates.
    pub first_row: Option<RowData>,
    group: Option<Group>,
}

impl<'p> Collector<'p> {
    /// For one execution of `plan`, or a part of it.
    pub fn new(plan: &'p SelectPlan, scope: Scope<'p>, filters: &'p [BoundFilter<'p>], limits: Limits) -> Self {
        let mut reads = plan.selection.reads.clone();
        plan.restrictions.filters.iter().for_each(|filter| mark_filter_reads(filter, &mut reads));
        plan.ordering.iter().for_each(|(at, _)| reads[*at] = true);
        plan.grouping.iter().flatten().for_each(|selector| mark_reads(selector, &mut reads));
        let partition_columns = plan.table.partition_columns();
        let key_columns = plan.table.key_columns();
        let arguments = plan.selection.aggregates.iter().filter_map(|aggregate| aggregate.argument.as_ref());
        let records_elements = plan.selection.selectors.iter().chain(arguments).any(uses_metadata)
            || plan.restrictions.filters.iter().any(|filter| matches!(filter, Filter::Predicate(_)));
        Self {
            reads_partition: reads[..partition_columns].contains(&true),
            reads_clustering: reads[partition_columns..key_columns].contains(&true),
            reads_row: reads[partition_columns..].contains(&true),
            row: RowData::new(reads, records_elements),
            states: vec![State::default(); plan.selection.aggregates.len()],
            steps_per_byte: 1
                + filters.iter().map(BoundFilter::steps).fold(0, usize::saturating_add)
                + plan.selection.selectors.iter().map(Selector::nodes).sum::<usize>() / SELECTORS_PER_STEP,
            work_bytes: 0,
            now_s: scope.bound.environment.now_s,
            plan,
            scope,
            filters,
            limits,
            key: DecodedKey::default(),
            partition: Vec::new(),
            header: None,
            has_static: false,
            has_rows: false,
            is_partition_done: false,
            left_in_partition: limits.rows_per_partition,
            position: Vec::new(),
            body: Vec::new(),
            row_count: 0,
            sortable: Vec::new(),
            first_row: None,
            group: None,
        }
    }

    /// Whether this many bytes of entries may be processed on the connection's thread: together with those since it
    /// last returned false, they are at most `most` bytes of work.
    pub fn is_short(&mut self, bytes: usize, most: usize) -> bool {
        let work = bytes.saturating_mul(self.steps_per_byte).saturating_add(self.work_bytes);
        let is_short = work <= most;
        self.work_bytes = if is_short { work } else { 0 };
        is_short
    }

    /// Whether nothing more is wanted.
    pub fn is_full(&self) -> bool {
        self.limits.rows == 0
            || (!self.plan.is_one_row() && (self.limits.page_rows == 0 || self.body.len() >= self.limits.page_bytes))
    }

    /// Whether `LIMIT` is reached, so that no page follows.
    pub fn is_finished(&self) -> bool {
        self.limits.rows == 0
    }

    /// Rows that `LIMIT` still allows.
    pub fn rows_left(&self) -> u64 {
        self.limits.rows
    }

    /// Rows that are still wanted for this page.
    pub fn page_rows_left(&self) -> u64 {
        self.limits.page_rows.min(self.limits.rows)
    }

    /// Rows of the current partition that `PER PARTITION LIMIT` still allows.
    pub fn left_in_partition(&self) -> u64 {
        self.left_in_partition
    }

    /// Whether nothing more of the current partition is wanted.
    pub fn is_partition_done(&self) -> bool {
        self.is_partition_done
    }

    /// The current partition: token and partition columns.
    pub fn partition(&self) -> &[u8] {
        &self.partition
    }

    /// The last key that was processed.
    pub fn position(&self) -> &[u8] {
        &self.position
    }

    /// Begins a partition whose header and static row are known.
    pub fn begin_partition(
        &mut self,
        prefix: &[u8],
        header: Option<Vec<u8>>,
        static_row: Option<&[u8]>,
    ) -> Result<(), CqlError> {
        self.partition.clear();
        self.partition.extend_from_slice(prefix);
        self.header = header.map(Into::into);
        self.has_static = false;
        self.has_rows = false;
        self.is_partition_done = false;
        self.left_in_partition = self.limits.rows_per_partition;
        if self.reads_partition {
            let mut key = prefix.to_vec();
            key::push_static(&mut key);
            self.plan.table.layout().decode(&key, &mut self.key).map_err(corrupt)?;
        }
        self.row.begin_partition_with(&self.plan.table, self.reads_partition.then_some(&self.key));
        match static_row {
            Some(value) => self.take_static(value),
            None => Ok(()),
        }
    }

    /// Continues in a partition of which the former page had rows.
    pub fn resume_partition(&mut self, left: u64) {
        self.has_rows = true;
        self.left_in_partition = left;
        self.is_partition_done = left == 0;
    }

    /// Continues where another collector, perhaps of another node, stopped, with header and static row of the partition at that point.
    pub fn go_on(&mut self, from: Partial, header: Option<Vec<u8>>, static_row: Option<&[u8]>) -> Result<(), CqlError> {
        self.budget().take(from.held_bytes())?;
        if !from.partition.is_empty() {
            self.begin_partition(&from.partition, header, static_row)?;
            self.has_rows = from.has_rows;
            self.left_in_partition = from.left_in_partition;
            self.is_partition_done = from.is_partition_done;
        }
        self.position = from.position;
        if from.states.len() == self.states.len() {
            self.states = from.states;
        }
        self.first_row = from.first_row;
        self.group = from.group;
        Ok(())
    }

    /// The partial aggregate, from which another collector continues. It is no longer charged to this request.
    pub fn into_partial(self) -> Partial {
        let budget = self.budget();
        let body_bytes = self.body.capacity();
        let partial = self.parts();
        budget.give(partial.held_bytes() + body_bytes);
        partial
    }

    fn parts(self) -> Partial {
        Partial {
            limits: self.limits,
            partition: self.partition,
            has_rows: self.has_rows,
            left_in_partition: self.left_in_partition,
            is_partition_done: self.is_partition_done,
            position: self.position,
            states: self.states,
            first_row: self.first_row,
            group: self.group,
            body: self.body,
            row_count: self.row_count,
        }
    }

    fn take_static(&mut self, value: &[u8]) -> Result<(), CqlError> {
        if !self.plan.reads_statics {
            return Ok(());
        }
        let header = self.header.clone();
        let deleted_us = match &header {
            Some(header) => Deletions::decode(header).map_err(corrupt)?.static_deletion(value),
            None => NOTHING_DELETED,
        };
        let live = LiveRow::new(value, self.now_s, deleted_us).map_err(corrupt)?;
        if self.plan.table.row_exists(&live).map_err(corrupt)? {
            self.has_static = true;
            self.row.set_statics(&self.plan.table, &live)?;
        }
        Ok(())
    }

    /// Takes entries in scan order.
    pub fn consume<'e>(&mut self, entries: impl Iterator<Item = (&'e [u8], &'e [u8])>) -> Result<Step, CqlError> {
        let mut entries = entries.peekable();
        while let Some(&(key, _)) = entries.peek() {
            let partition_len = self.plan.table.layout().partition_len(key).map_err(corrupt)?;
            // A key that ends here would never be passed.
            key::kind_of(key, partition_len).map_err(corrupt)?;
            if key[..partition_len] != self.partition[..] {
                self.end_partition()?;
                if self.is_full() {
                    return Ok(Step::Full);
                }
                self.begin_partition(&key[..partition_len], None, None)?;
            }
            // Decoding the header once serves all rows up to the next partition or header.
            let header = self.header.clone();
            let deletions = match &header {
                Some(header) => Some(Deletions::decode(header).map_err(corrupt)?),
                None => None,
            };
            while let Some((key, value)) =
                entries.next_if(|(key, _)| key.len() > partition_len && key[..partition_len] == self.partition[..])
            {
                match key::kind_of(key, partition_len).map_err(corrupt)? {
                    RowKind::Header => {
                        self.header = Some(value.into());
                        break;
                    }
                    RowKind::Static => self.take_static(value)?,
                    RowKind::Regular => {
                        if self.take_row(key, partition_len, value, deletions.as_ref())? == Step::Full {
                            return Ok(Step::Full);
                        }
                    }
                }
            }
        }
        Ok(Step::More)
    }

    #[inline]
    fn take_row(
        &mut self,
        key: &[u8],
        partition_len: usize,
        value: &[u8],
        deletions: Option<&Deletions<'_>>,
    ) -> Result<Step, CqlError> {
        self.budget().check()?;
        if self.is_partition_done {
            return Ok(Step::More);
        }
        let deleted_us =
            deletions.map_or(NOTHING_DELETED, |found| found.deletion_for(&key[partition_len + 1..], value));
        let live = LiveRow::new(value, self.now_s, deleted_us).map_err(corrupt)?;
        if !self.plan.table.row_exists(&live).map_err(corrupt)? {
            return Ok(Step::More);
        }
        self.has_rows = true;
        if self.reads_row && !self.plan.is_distinct {
            self.row.begin_row(&self.plan.table);
            if self.reads_clustering {
                self.plan.table.layout().decode(key, &mut self.key).map_err(corrupt)?;
                self.row.set_clustering(&self.plan.table, &self.key);
            }
            self.row.set_regulars(&self.plan.table, &live)?;
        }
        match self.emit()? {
            // The position is that of the row before.
            Emitted::Before => return Ok(Step::Full),
            Emitted::Skipped => {}
            Emitted::Counted if self.plan.grouping.is_some() => {
                self.position.clear();
                self.position.extend_from_slice(key);
            }
            Emitted::Counted if self.is_full() => {
                self.position.clear();
                self.position.extend_from_slice(key);
                return Ok(Step::Full);
            }
            Emitted::Counted => {}
        }
        Ok(Step::More)
    }

    /// Ends the partition: emits it if only static columns are left, and its open group. The page may be full afterwards.
    pub fn end_partition(&mut self) -> Result<(), CqlError> {
        let restrictions = &self.plan.restrictions;
        let is_full_read = !restrictions.restricts_clustering && !self.restricts_regular();
        if !self.partition.is_empty() && self.has_static && !self.has_rows && !self.is_partition_done && is_full_read {
            self.row.begin_row(&self.plan.table);
            self.emit()?;
            self.is_partition_done = true;
        }
        self.close_group()?;
        self.position.clear();
        self.position.extend_from_slice(&self.partition);
        if !self.plan.is_reversed {
            key::push_partition_end(&mut self.position);
        }
        Ok(())
    }

    /// Whether filters ask for regular columns (filters on static columns do not make a read partial).
    fn restricts_regular(&self) -> bool {
        self.plan.restrictions.filters.iter().any(|filter| filters_regular(filter, &self.plan.table))
    }

    /// Filters, aggregates or encodes the current row.
    fn emit(&mut self) -> Result<Emitted, CqlError> {
        for filter in self.filters {
            // A filter may read a collection of millions of elements.
            self.budget().check()?;
            if !filter.accepts(&self.scope, &self.row)? {
                return Ok(Emitted::Skipped);
            }
        }
        if self.plan.grouping.is_some() {
            return self.add_to_group();
        }
        if self.plan.is_one_row() {
            for (state, aggregate) in self.states.iter_mut().zip(&self.plan.selection.aggregates) {
                state.add(aggregate, &self.scope, &self.row)?;
            }
            if self.first_row.is_none() && self.plan.selection.shows_columns() {
                self.budget().take(self.row.size_bytes())?;
                self.first_row = Some(self.row.clone());
            }
            self.count_in_partition();
            return Ok(Emitted::Counted);
        }
        self.count_in_partition();
        if self.is_left_out() {
            return Ok(Emitted::Skipped);
        }
        let row = std::mem::take(&mut self.row);
        let encoded = self.encode_row(&row, &[]);
        self.row = row;
        encoded.map(|()| Emitted::Counted)
    }

    /// The budget of the request.
    fn budget(&self) -> &'p Budget {
        self.scope.bound.environment.budget
    }

    /// Counts a row or group against `PER PARTITION LIMIT`.
    fn count_in_partition(&mut self) {
        if self.plan.is_distinct {
            self.left_in_partition = 0;
        } else if self.left_in_partition != u64::MAX {
            self.left_in_partition -= 1;
        }
        self.is_partition_done = self.left_in_partition == 0;
    }

    /// Whether `OFFSET` leaves out one more row.
    fn is_left_out(&mut self) -> bool {
        let is_left_out = self.limits.offset > 0 && self.plan.ordering.is_empty();
        self.limits.offset -= u64::from(is_left_out);
        is_left_out
    }

    /// Rows that `OFFSET` still leaves out.
    pub fn offset_left(&self) -> u64 {
        self.limits.offset
    }

    /// Adds the current row to its group, or begins the next one with it.
    fn add_to_group(&mut self) -> Result<Emitted, CqlError> {
        let mut key = Vec::new();
        for selector in self.plan.grouping.iter().flatten() {
            key.push(self.scope.evaluate(selector, &self.row)?.map(Cow::into_owned));
        }
        if self.group.as_ref().is_some_and(|group| group.key != key) {
            self.close_group()?;
            if self.is_partition_done {
                return Ok(Emitted::Skipped);
            }
            if self.is_full() {
                return Ok(Emitted::Before);
            }
        }
        if self.group.is_none() {
            let states = vec![State::default(); self.plan.selection.aggregates.len()];
            let group = Group { key, states, first_row: self.row.clone() };
            self.budget().take(group.held_bytes())?;
            self.group = Some(group);
        }
        if let Some(group) = &mut self.group {
            for (state, aggregate) in group.states.iter_mut().zip(&self.plan.selection.aggregates) {
                state.add(aggregate, &self.scope, &self.row)?;
            }
        }
        Ok(Emitted::Counted)
    }

    /// Encodes the group that is open, if there is one.
    fn close_group(&mut self) -> Result<(), CqlError> {
        let Some(group) = self.group.take() else { return Ok(()) };
        self.count_in_partition();
        if self.is_left_out() {
            return Ok(());
        }
        let group_bytes = group.held_bytes();
        let mut results = Vec::with_capacity(group.states.len());
        for (state, aggregate) in group.states.into_iter().zip(&self.plan.selection.aggregates) {
            results.push(state.finish(aggregate)?);
        }
        self.encode_row(&group.first_row, &results)?;
        self.budget().give(group_bytes);
        Ok(())
    }

    /// Encodes a row of the result and counts it.
    fn encode_row(&mut self, row: &RowData, aggregates: &[Option<Vec<u8>>]) -> Result<(), CqlError> {
        let start = self.body.len();
        match &self.plan.selection.plain_columns {
            Some(columns) => {
                // The size of the row before the row: a column may be selected many times.
                let cell_bytes = |column: &usize| 4 + row.value(*column).map_or(0, <[u8]>::len);
                self.budget().reserve(&mut self.body, columns.iter().map(cell_bytes).sum())?;
                for &column in columns {
                    match row.value(column) {
                        Some(value) => put_cell(&mut self.body, value),
                        None => put_null(&mut self.body),
                    }
                }
            }
            None => put_cells(&Scope { aggregates, ..self.scope }, &self.plan.selection, row, &mut self.body)?,
        }
        self.row_count += 1;
        if !self.plan.ordering.is_empty() {
            let order_bytes = |(at, _): &(usize, bool)| row.value(*at).map_or(0, <[u8]>::len) + size_of::<Vec<u8>>();
            let order_bytes: usize = self.plan.ordering.iter().map(order_bytes).sum();
            let row_bytes = size_of::<SortableRow>() + order_bytes + self.body.len() - start;
            self.budget().take(row_bytes)?;
            let order = self.plan.ordering.iter().map(|(at, _)| row.value(*at).map(<[u8]>::to_vec)).collect();
            let cells = self.body[start..].to_vec();
            self.body.truncate(start);
            self.sortable.push(SortableRow { order, cells });
        }
        if self.limits.rows != u64::MAX {
            self.limits.rows -= 1;
        }
        if self.limits.page_rows != u64::MAX {
            self.limits.page_rows -= 1;
        }
        Ok(())
    }
}
