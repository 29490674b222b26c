//! The side that asks: which keys are folded where, and how the parts become one answer.
//!
//! A unit is what can be folded by itself: a tablet (or the asked-for part of it), a named partition, or all that is named of one tablet. Several are under
//! way at a time; their parts are put together in order.
//!
//! Always true: what is answered does not depend on how many units are under way; of a unit that gave more groups than were left when its turn came, the
//! wanted ones are asked for again; no piece names more than a bounded number of keys. Left out: rows that are neither aggregated nor grouped.

use super::codec::{Reply, Task};
use super::partial::{Next, Partial, Piece};
use crate::budget::refused;
use crate::error::invalid;
use crate::exec::collect::{Collector, Limits};
use crate::exec::filter::BoundFilter;
use crate::exec::keys::{KeyRange, PartitionKey};
use crate::exec::paging::PagingState;
use crate::exec::select::{INLINE_BYTES, MAX_RESULT_BYTES, PARALLEL_PIECES, PageRequest, Read, TabletScan, tablet_of};
use crate::kv::several::{self, Several, Span};
use crate::kv::{Fetch, FetchRows, Kv, ScanRequest};
use crate::program::PARTITION_DELETIONS;
use diorite_base::TabletId;
use diorite_cql::protocol::{CqlError, Rows, Value};
use diorite_model::key;
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many tablets are folded at a time.
const PARALLEL_TABLETS: usize = 8;
/// The most bytes of a piece that is folded into a few states.
const AGGREGATE_BYTES: usize = 4 << 20;
const AGGREGATE_ENTRIES: usize = 1 << 16;
/// The most bytes of a piece that is folded into groups, which may be many.
const GROUP_BYTES: usize = 1 << 20;
const GROUP_ENTRIES: usize = 8_192;
/// The most bytes of statements that are sent along with the partitions of one statement.
const MAX_STATEMENT_BYTES: usize = 4 << 20;
/// The most keys and ranges that a piece names.
const MAX_SPANS: usize = 4_096;
/// Their most bytes.
const MAX_SPAN_BYTES: usize = 256 << 10;

/// What can be folded by itself.
#[derive(Debug)]
pub struct Unit {
    tablet: TabletId,
    /// What is to be read, in that order.
    spans: Vec<Span>,
    /// The partition that all is in, or that the first range begins in; empty if that is not known.
    partition: Vec<u8>,
    /// What the former page left of the partition's limit.
    resumed: Option<u64>,
}

impl Unit {
    /// A tablet, from where the former page ended.
    pub(in crate::exec) fn of_scan(scan: &TabletScan, state: Option<&PagingState>) -> Self {
        // The former page ended in a partition of this tablet.
        let state = state.filter(|state| scan.start.starts_with(&state.key));
        Self {
            tablet: scan.tablet,
            spans: vec![Span::range(scan.start.clone(), scan.end.clone())],
            partition: state.map(|state| state.key[..state.partition_len].to_vec()).unwrap_or_default(),
            resumed: state.map(|state| state.remaining_in_partition.unwrap_or(u64::MAX)),
        }
    }

    /// Rows and ranges of a partition.
    fn of_partition(tablet: TabletId, partition: &PartitionKey, ranges: &[KeyRange], resumed: Option<u64>) -> Self {
        let spans = ranges.iter().map(|range| range.span(&partition.prefix)).collect();
        Self { tablet, spans, partition: partition.prefix.clone(), resumed }
    }

    /// Memory of what it names.
    fn size_bytes(&self) -> usize {
        self.spans.iter().map(|span| size_of::<Span>() + span.size_bytes()).sum()
    }

    fn begin(&self, limits: Limits) -> Partial {
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

/// How many of the spans one piece asks for.
fn count_of_piece(spans: &[Span]) -> usize {
    let mut bytes = 0;
    let fits = |span: &&Span| {
        bytes += span.size_bytes();
        bytes <= MAX_SPAN_BYTES
    };
    spans.iter().take(MAX_SPANS).take_while(fits).count().max(1).min(spans.len())
}

/// Whether a unit gave no more than is left.
fn fits(partial: &Partial, left: &Limits) -> bool {
    let count = u64::from(partial.row_count);
    count <= left.rows && count <= left.page_rows
}

fn reduce(limit: &mut u64, by: u64) {
    if *limit != u64::MAX {
        *limit = limit.saturating_sub(by);
    }
}

impl<K: Kv> Read<'_, K> {
    /// The units of named partitions; `None` if there are rows to show, or to be put in order.
    pub(in crate::exec) fn partition_units(
        &self,
        partitions: &[PartitionKey],
        ranges: &[KeyRange],
        state: Option<&PagingState>,
    ) -> Result<Option<Vec<Unit>>, CqlError> {
        // The order of what is folded into one row shows only in a first row.
        let has_order = self.plan.grouping.is_some() || self.plan.selection.shows_columns();
        if !self.plan.selection.is_aggregate() && self.plan.grouping.is_none() {
            return Ok(None);
        }
        if !has_order && !self.plan.is_reversed && state.is_none() {
            return self.units_of_tablets(partitions, ranges).map(Some);
        }
        // Each partition is asked for with the statement: to bring the rows here takes less if that names very many.
        let is_long = partitions.len() > 1 && self.statement_bytes() > MAX_STATEMENT_BYTES / partitions.len();
        if has_order && (is_long || !self.plan.ordering.is_empty()) {
            return Ok(None);
        }
        let mut first = 0;
        if let Some(state) = state {
            let prefix = &state.key[..state.partition_len];
            let found = partitions.iter().position(|partition| partition.prefix == prefix);
            first = found.ok_or_else(|| CqlError::protocol("Invalid value for the paging state"))?;
        }
        let after = state.map(|state| &state.key[state.partition_len..]);
        self.charge_product(&partitions[first..], ranges)?;
        let (rest, all) = (self.in_order(ranges, after), self.in_order(ranges, None));
        let units = partitions[first..].iter().enumerate().map(|(number, partition)| {
            let resumed = state.filter(|_| number == 0);
            let ranges = if number == 0 { &rest } else { &all };
            let resumed = resumed.map(|state| state.remaining_in_partition.unwrap_or(u64::MAX));
            Unit::of_partition(tablet_of(self.tablets, partition.token), partition, ranges, resumed)
        });
        Ok(Some(units.collect()))
    }

    /// A unit for each tablet that has named partitions, with what is needed of each of them.
    fn units_of_tablets(&self, partitions: &[PartitionKey], ranges: &[KeyRange]) -> Result<Vec<Unit>, CqlError> {
        self.charge_product(partitions, ranges)?;
        let mut by_tablet: BTreeMap<TabletId, Vec<&PartitionKey>> = BTreeMap::new();
        for partition in partitions {
            by_tablet.entry(tablet_of(self.tablets, partition.token)).or_default().push(partition);
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
                spans.extend(self.plan.reads_statics.then(|| Span::key(with(key::push_static))));
                spans.extend(ranges.iter().map(|range| range.span(&partition.prefix)));
            }
            Unit { tablet, spans, partition: Vec::new(), resumed: None }
        });
        Ok(units.collect())
    }

    /// Takes memory for the spans that each partition has: its header, its static row, and all ranges.
    fn charge_product(&self, partitions: &[PartitionKey], ranges: &[KeyRange]) -> Result<(), CqlError> {
        let of_range = |range: &KeyRange| range.start.len() + range.end.as_ref().map_or(0, Vec::len);
        let range_bytes: usize = ranges.iter().map(of_range).sum();
        let spans = ranges.len() + 2;
        let of_partition = |partition: &PartitionKey| {
            let keys = partition.prefix.len().saturating_mul(2 * spans);
            keys.saturating_add(range_bytes).saturating_add(spans * size_of::<Span>())
        };
        self.budget().take(partitions.iter().map(of_partition).fold(0, usize::saturating_add))
    }

    /// Folds units into the rows of a page.
    pub(in crate::exec) async fn fold(
        &self,
        units: &[Unit],
        filters: &[BoundFilter<'_>],
        limits: Limits,
        page: &PageRequest<'_>,
    ) -> Result<Rows, CqlError> {
        match self.plan.grouping {
            None => self.fold_into_one(units, filters, limits).await,
            Some(_) => self.fold_into_groups(units, filters, limits, page).await,
        }
    }

    async fn fold_into_one(
        &self,
        units: &[Unit],
        filters: &[BoundFilter<'_>],
        limits: Limits,
    ) -> Result<Rows, CqlError> {
        let folds: Vec<_> = units.iter().map(|unit| self.fold_unit(unit, unit.begin(limits), filters)).collect();
        let mut folds = futures::stream::iter(folds).buffered(PARALLEL_TABLETS);
        let budget = self.budget();
        let mut total = Collector::new(self.plan, self.scope(), filters, limits);
        while let Some(part) = folds.next().await {
            let (part, _) = part?;
            let aggregates = &self.plan.selection.aggregates;
            for ((state, other), aggregate) in total.states.iter_mut().zip(part.states).zip(aggregates) {
                state.merge(other, aggregate, budget)?;
            }
            total.first_row = total.first_row.take().or(part.first_row);
        }
        self.finish_aggregates(total)
    }

    async fn fold_into_groups(
        &self,
        units: &[Unit],
        filters: &[BoundFilter<'_>],
        limits: Limits,
        page: &PageRequest<'_>,
    ) -> Result<Rows, CqlError> {
        let budget = self.budget();
        let mut left = limits;
        let mut rows = Rows::new(Arc::clone(&self.plan.selection.metadata));
        let mut running = FuturesOrdered::new();
        let mut started = 0;
        // Reading ahead is for those who turn out to need it, and in vain for small pages.
        let most = usize::try_from(left.rows.min(left.page_rows)).unwrap_or(usize::MAX);
        let by_partition = units.first().is_some_and(|unit| unit.resumed.is_none() && !unit.partition.is_empty());
        let mut ahead = if by_partition { PARALLEL_PIECES.min(most) } else { 1 };
        for (at, unit) in units.iter().enumerate() {
            // How much is left out has to be known before anything is not.
            let wanted = if left.offset > 0 { 1 } else { ahead.max(1) };
            while running.len() < wanted && started < units.len() {
                running.push_back(self.fold_unit(&units[started], units[started].begin(left), filters));
                started += 1;
            }
            let Some(folded) = running.next().await else { break };
            let (mut partial, mut next) = folded?;
            if !fits(&partial, &left) {
                budget.give(partial.body.capacity());
                (partial, next) = self.fold_unit(unit, unit.begin(left), filters).await?;
            }
            budget.reserve(&mut rows.body, partial.body.len())?;
            rows.body.extend_from_slice(&partial.body);
            budget.give(partial.body.capacity());
            rows.row_count += partial.row_count;
            reduce(&mut left.rows, partial.row_count.into());
            reduce(&mut left.page_rows, partial.row_count.into());
            if left.page_bytes != usize::MAX {
                left.page_bytes = left.page_bytes.saturating_sub(partial.body.len());
            }
            left.offset = if left.offset > 0 { partial.limits.offset } else { 0 };
            if page.page_size.is_none() && rows.body.len() > MAX_RESULT_BYTES {
                return Err(invalid(format!(
                    "the result is larger than {MAX_RESULT_BYTES} bytes: use paging or a LIMIT"
                )));
            }
            if left.rows == 0 {
                break;
            }
            let is_page_full = next == Next::Full || left.page_rows == 0 || left.page_bytes == 0;
            if is_page_full && (next == Next::Full || at + 1 < units.len()) {
                rows.paging_state = Some(self.paging_state(&left, &partial).encode());
                break;
            }
            ahead = (ahead * 2).min(PARALLEL_TABLETS.max(ahead));
        }
        Ok(rows)
    }

    fn paging_state(&self, left: &Limits, partial: &Partial) -> PagingState {
        let no_limit = |rows: u64| (rows != u64::MAX).then_some(rows);
        PagingState {
            table: self.plan.table.table().id.0,
            remaining: no_limit(left.rows),
            remaining_in_partition: no_limit(partial.left_in_partition),
            offset: left.offset,
            partition_len: partial.partition.len(),
            key: partial.position.clone(),
        }
    }

    /// Folds a unit, piece by piece; it ends early once it has all that is wanted.
    async fn fold_unit(
        &self,
        unit: &Unit,
        mut partial: Partial,
        filters: &[BoundFilter<'_>],
    ) -> Result<(Partial, Next), CqlError> {
        let (mut body, mut row_count) = (Vec::new(), 0);
        let mut next = Next::Exhausted;
        let budget = self.budget();
        let _rest = budget.hold(unit.size_bytes())?;
        let mut rest = unit.spans.clone();
        let mut is_done = rest.is_empty();
        while !is_done && body.len() <= MAX_RESULT_BYTES {
            budget.check()?;
            let count = count_of_piece(&rest);
            (partial, next) =
                self.fold_piece(unit.tablet, &rest[..count], count == rest.len(), partial, filters).await?;
            if partial.limits.page_bytes != usize::MAX {
                // What was encoded for former pieces is not seen by the next.
                partial.limits.page_bytes = partial.limits.page_bytes.saturating_sub(partial.body.len());
            }
            budget.reserve(&mut body, partial.body.len())?;
            body.append(&mut partial.body);
            partial.body = Vec::new();
            row_count += std::mem::take(&mut partial.row_count);
            match &next {
                Next::Full => break,
                Next::Exhausted => {
                    rest.drain(..count);
                    is_done = rest.is_empty();
                }
                // If nothing is left, a last piece without rows ends the partition.
                Next::From(key) => {
                    rest = rest.into_iter().filter_map(|span| span.clipped(key, self.plan.is_reversed)).collect();
                }
            }
        }
        Ok((Partial { body, row_count, ..partial }, next))
    }

    async fn fold_piece(
        &self,
        tablet: TabletId,
        spans: &[Span],
        ends_partition: bool,
        partial: Partial,
        filters: &[BoundFilter<'_>],
    ) -> Result<(Partial, Next), CqlError> {
        let mut request = match !partial.partition.is_empty() && !partial.is_partition_done {
            true => self.partition_fetch(&partial.partition),
            false => Fetch::default(),
        };
        let (max_entries, max_bytes) = match self.plan.grouping {
            None => (AGGREGATE_ENTRIES, AGGREGATE_BYTES),
            Some(_) => (GROUP_ENTRIES, GROUP_BYTES),
        };
        let reverse = self.plan.is_reversed;
        request.rows = match spans {
            [] => FetchRows::Nothing,
            [Span { start, end: Some(end), .. }] if start >= end => FetchRows::Nothing,
            [Span { start, end: Some(end), .. }] => {
                let (start, end) = (start.clone(), end.clone());
                FetchRows::Range(ScanRequest { start, end, reverse, max_entries, max_bytes })
            }
            spans => FetchRows::Several(Several { spans: several::encode(spans), reverse, max_entries, max_bytes }),
        };
        request.fold = self.task(ends_partition, &partial);
        let mut held = self.budget().hold(0)?;
        let mut fetched = self.source.fetch(tablet, request.clone()).await?;
        held.grow(fetched.size_bytes()).map_err(refused)?;
        if let Some(reply) = &fetched.folded {
            let columns = self.plan.selection.shows.len();
            let decoded = Reply::decode(columns, reply);
            match decoded.map_err(|_| CqlError::server("the answer to an aggregate cannot be decoded"))? {
                Reply::Done(partial, next) => return Ok((*partial, next)),
                Reply::Declined => {
                    request.fold = None;
                    fetched = self.source.fetch(tablet, request).await?;
                    held.grow(fetched.size_bytes()).map_err(refused)?;
                }
            }
        }
        let piece = Piece {
            header: fetched.header.as_deref(),
            static_row: fetched.static_row.as_deref(),
            chunk: &fetched.chunk,
            ends_partition,
        };
        let work = || partial.go_on(self.plan, self.scope(), filters, piece);
        let steps = filters.iter().map(BoundFilter::steps).fold(1, usize::saturating_add);
        if fetched.chunk.size_bytes().saturating_mul(steps) <= INLINE_BYTES {
            return work();
        }
        self.source.run_long(work).await
    }

    /// What of a task is the statement and its values.
    fn statement_bytes(&self) -> usize {
        let value_bytes = |value: &Value<'_>| if let Value::Set(bytes) = value { bytes.len() } else { 0 };
        let statement = self.plan.folded_by.as_ref().map_or(0, |folded_by| folded_by.statement.len());
        statement + self.bound.values.iter().map(value_bytes).sum::<usize>()
    }

    /// What the leader is asked to do; none if the rows are of no tablet.
    fn task(&self, ends_partition: bool, partial: &Partial) -> Option<Vec<u8>> {
        let folded_by = self.plan.folded_by.as_ref()?;
        let definition = self.plan.table.table();
        let mut encoded = Vec::new();
        partial.encode(&self.plan.selection.shows, &mut encoded);
        let task = Task {
            table: definition.id,
            version: definition.version,
            keyspace: &folded_by.keyspace,
            statement: &folded_by.statement,
            values: self.bound.values.to_vec(),
            now_us: self.bound.environment.now_us,
            now_s: self.bound.environment.now_s,
            ends_partition,
            left_ms: self.source.left_ms(self.budget()),
            partial: &encoded,
        };
        Some(task.encode())
    }
}
