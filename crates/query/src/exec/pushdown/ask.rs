//! The asking side: one tablet after another, several at a time, and the combination of partial aggregates into one
//! answer.
//!
//! Always true: the answer does not depend on how many units are under way. If a unit returns more groups than are left
//! when its turn comes, it is asked again for the remaining ones. No piece names more than a bounded number of keys.
//! Left out: rows that are neither aggregated nor grouped.

use super::advance::{Next, Piece, go_on};
use super::task::{Reply, Task};
use super::unit::{Unit, statement_bytes};
use crate::budget::refused;
use crate::error::invalid;
use crate::exec::collect::Collector;
use crate::exec::filter::BoundFilter;
use crate::exec::finish::finish_aggregates;
use crate::exec::paging::PagingState;
use crate::exec::partial::{Limits, Partial};
use crate::exec::read::{INLINE_BYTES, MAX_RESULT_BYTES, PARALLEL_PIECES, PageRequest, Read};
use crate::kv::several::{self, Several, Span};
use crate::kv::{Fetch, FetchRows, Kv, ScanRequest};
use diorite_base::account::Held;
use diorite_cql::protocol::{CqlError, Rows};
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use std::sync::Arc;

/// How many tablets are aggregated at a time.
const PARALLEL_TABLETS: usize = 8;

/// The most bytes of a piece that is aggregated into a few states.
const AGGREGATE_BYTES: usize = 4 << 20;

const AGGREGATE_ENTRIES: usize = 1 << 16;

/// The most bytes of a piece that is aggregated into groups, of which there may be many.
const GROUP_BYTES: usize = 1 << 20;

const GROUP_ENTRIES: usize = 8_192;

/// The most keys and ranges that a piece names.
const MAX_SPANS: usize = 4_096;

/// Their most bytes.
const MAX_SPAN_BYTES: usize = 256 << 10;

/// A read whose rows are aggregated or grouped.
pub(in crate::exec) struct Asking<'r, K: Kv> {
    pub(in crate::exec) read: &'r Read<'r, K>,
    pub(in crate::exec) filters: &'r [BoundFilter<'r>],
}

/// The partial aggregate of a unit, and how it goes on.
struct Part<'b> {
    partial: Partial,
    next: Next,
    /// The memory of the partial aggregate, but for its body, which is charged until it is given back.
    _held: Held<'b>,
}

impl<K: Kv> Asking<'_, K> {
    /// Folds units into the rows of a page.
    pub(in crate::exec) async fn rows(
        &self,
        units: &[Unit],
        limits: Limits,
        page: &PageRequest<'_>,
    ) -> Result<Rows, CqlError> {
        match self.read.plan.grouping {
            None => self.one_row(units, limits).await,
            Some(_) => self.groups(units, limits, page).await,
        }
    }

    async fn one_row(&self, units: &[Unit], limits: Limits) -> Result<Rows, CqlError> {
        let budget = self.read.budget();
        let mut total = Collector::new(self.read.plan, self.read.scope(), self.filters, limits);
        let (mut running, mut waiting) = (FuturesOrdered::new(), units.iter());
        loop {
            while running.len() < PARALLEL_TABLETS
                && let Some(unit) = waiting.next()
            {
                running.push_back(self.unit(unit, unit.begin(limits)));
            }
            let Some(part) = running.next().await else { break };
            let Part { partial, _held, .. } = part?;
            let aggregates = &self.read.plan.selection.aggregates;
            for ((state, other), aggregate) in total.states.iter_mut().zip(partial.states).zip(aggregates) {
                state.merge(other, aggregate, budget)?;
            }
            if let Some(row) = partial.first_row.filter(|_| total.first_row.is_none()) {
                budget.take(row.size_bytes())?;
                total.first_row = Some(row);
            }
        }
        finish_aggregates(self.read, total)
    }

    async fn groups(&self, units: &[Unit], limits: Limits, page: &PageRequest<'_>) -> Result<Rows, CqlError> {
        let budget = self.read.budget();
        let mut left = limits;
        let mut rows = Rows::new(Arc::clone(&self.read.plan.selection.metadata));
        let mut running = FuturesOrdered::new();
        let mut started = 0;
        // Reading ahead pays only if the rest is needed; for small pages it is wasted.
        let most = usize::try_from(left.rows.min(left.page_rows)).unwrap_or(usize::MAX);
        let by_partition = units.first().is_some_and(|unit| unit.resumed.is_none() && !unit.partition.is_empty());
        let mut ahead = if by_partition { PARALLEL_PIECES.min(most) } else { 1 };
        for (at, unit) in units.iter().enumerate() {
            // How much is left out has to be known before anything is not.
            let wanted = if left.offset > 0 { 1 } else { ahead.max(1) };
            while running.len() < wanted && started < units.len() {
                running.push_back(self.unit(&units[started], units[started].begin(left)));
                started += 1;
            }
            let Some(asked) = running.next().await else { break };
            let mut part = asked?;
            if !fits(&part.partial, &left) {
                budget.give(part.partial.body.capacity());
                part = self.unit(unit, unit.begin(left)).await?;
            }
            let Part { partial, next, _held } = part;
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
            table: self.read.plan.table.table().id.0,
            remaining: no_limit(left.rows),
            remaining_in_partition: no_limit(partial.left_in_partition),
            offset: left.offset,
            partition_len: partial.partition.len(),
            key: partial.position.clone(),
        }
    }

    /// Folds a unit, piece by piece; it ends early once it has all that is wanted.
    async fn unit(&self, unit: &Unit, mut partial: Partial) -> Result<Part<'_>, CqlError> {
        let (mut body, mut row_count) = (Vec::new(), 0);
        let mut next = Next::Exhausted;
        let budget = self.read.budget();
        let _rest = budget.hold(unit.size_bytes())?;
        let mut held = budget.hold(partial.held_bytes())?;
        let mut rest = unit.spans.clone();
        let mut is_done = rest.is_empty();
        while !is_done && body.len() <= MAX_RESULT_BYTES {
            budget.check()?;
            let count = count_of_piece(&rest);
            (partial, next) = self.piece(unit, &rest[..count], count == rest.len(), partial).await?;
            drop(held);
            held = budget.hold(partial.held_bytes())?;
            if partial.limits.page_bytes != usize::MAX {
                // The bytes encoded for former pieces are not known to the next one.
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
                    rest = rest.into_iter().filter_map(|span| span.clipped(key, self.read.plan.is_reversed)).collect();
                }
            }
        }
        Ok(Part { partial: Partial { body, row_count, ..partial }, next, _held: held })
    }

    async fn piece(
        &self,
        unit: &Unit,
        spans: &[Span],
        ends_partition: bool,
        partial: Partial,
    ) -> Result<(Partial, Next), CqlError> {
        let mut request = match !partial.partition.is_empty() && !partial.is_partition_done {
            true => self.read.partition_fetch(&partial.partition),
            false => Fetch::default(),
        };
        let (max_entries, max_bytes) = match self.read.plan.grouping {
            None => (AGGREGATE_ENTRIES, AGGREGATE_BYTES),
            Some(_) => (GROUP_ENTRIES, GROUP_BYTES),
        };
        let reverse = self.read.plan.is_reversed;
        request.rows = match spans {
            [] => FetchRows::Nothing,
            [Span { start, end: Some(end), .. }] if start >= end => FetchRows::Nothing,
            [Span { start, end: Some(end), .. }] if let Some(by) = &unit.by => {
                self.read.index_fetch(by, (start, end), &partial.partition, max_entries)
            }
            [Span { start, end: Some(end), .. }] => {
                let (start, end) = (start.clone(), end.clone());
                FetchRows::Range(ScanRequest { start, end, reverse, max_entries, max_bytes })
            }
            spans => FetchRows::Several(Several { spans: several::encode(spans), reverse, max_entries, max_bytes }),
        };
        // While a task is encoded, the partial aggregate is there a third time.
        let task_bytes =
            self.read.plan.pushdown.as_ref().map_or(0, |_| statement_bytes(self.read) + partial.held_bytes());
        let mut held = self.read.budget().hold(2 * task_bytes)?;
        let aggregate = self.task(ends_partition, &partial);
        let mut fetched = self.read.source.fetch(unit.tablet, Fetch { aggregate, ..request.clone() }).await?;
        held.grow(fetched.to_be_charged()).map_err(refused)?;
        if let Some(reply) = &fetched.partial {
            let columns = self.read.plan.selection.shows.len();
            let decoded = Reply::decode(columns, reply);
            let unreadable =
                |_| CqlError::server(format!("the answer of {} to an aggregate cannot be decoded", unit.tablet));
            match decoded.map_err(unreadable)? {
                Reply::Done(partial, next) => return Ok((*partial, next)),
                Reply::Declined => {
                    fetched = self.read.source.fetch(unit.tablet, request).await?;
                    held.grow(fetched.to_be_charged()).map_err(refused)?;
                }
            }
        }
        let piece = Piece {
            header: fetched.header.as_deref(),
            static_row: fetched.static_row.as_deref(),
            chunk: &fetched.chunk,
            ends_partition,
        };
        let work = || go_on(partial, self.read.plan, self.read.scope(), self.filters, piece);
        let steps = self.filters.iter().map(BoundFilter::steps).fold(1, usize::saturating_add);
        let is_short = fetched.chunk.size_bytes().saturating_mul(steps) <= INLINE_BYTES;
        let folded = if is_short { work() } else { self.read.source.run_long(work).await };
        folded.map_err(self.read.in_tablet(unit.tablet))
    }

    /// The task for the leader; `None` if the rows are of no tablet.
    fn task(&self, ends_partition: bool, partial: &Partial) -> Option<Vec<u8>> {
        let pushdown = self.read.plan.pushdown.as_ref()?;
        let definition = self.read.plan.table.table();
        let mut encoded = Vec::new();
        partial.encode(&self.read.plan.selection.shows, &mut encoded);
        let task = Task {
            table: definition.id,
            version: definition.version,
            keyspace: pushdown.keyspace(),
            statement: pushdown.statement(),
            values: self.read.bound.values.to_vec(),
            now_us: self.read.bound.environment.now_us,
            now_s: self.read.bound.environment.now_s,
            ends_partition,
            left_ms: self.read.source.left_ms(self.read.budget()),
            partial: &encoded,
        };
        Some(task.encode())
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

/// Whether the rows of a unit's answer are within the remaining limits.
fn fits(partial: &Partial, left: &Limits) -> bool {
    let count = u64::from(partial.row_count);
    count <= left.rows && count <= left.page_rows
}

fn reduce(limit: &mut u64, by: u64) {
    if *limit != u64::MAX {
        *limit = limit.saturating_sub(by);
    }
}
