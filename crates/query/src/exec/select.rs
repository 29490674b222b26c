//! Execution of `SELECT`.
//!
//! Of named partitions (and rows) several are read at a time, those of one tablet together ([`super::together`]), and taken in order; everything else is a scan over token ranges, tablet after
//! tablet. What was read goes to a [`Collector`]. Aggregates and groups are folded where the rows are ([`super::fold`]).
//!
//! Always true: rows of a partition come from one tablet, so a page never mixes two states of a partition's header; memory is bounded by the
//! page and one chunk per tablet or partition being read. Left out: snapshots across pages (a page shows what is there when it is read).

use super::collect::{Collector, Limits, SortableRow, Step, put_cells};
use super::evaluate::Scope;
use super::filter::{self, BoundFilter};
use super::fold::Unit;
use super::keys::{KeyRange, PartitionKey, clustering_ranges, key_count, partition_keys};
use super::paging::PagingState;
use super::row::RowData;
use super::source::Source;
use crate::budget::{Budget, refused};
use crate::error::invalid;
use crate::kv::several::{self, Several, Span};
use crate::kv::{Fetch, FetchRows, Kv, ScanChunk, ScanRequest};
use crate::plan::restrictions::PartitionRestriction;
use crate::plan::select::{SelectPlan, check_limit};
use crate::plan::term::{Bound, Evaluated, Term};
use crate::program::PARTITION_DELETIONS;
use diorite_base::TabletId;
use diorite_base::account::Held;
use diorite_cql::protocol::{CqlError, Rows};
use diorite_model::key;
use diorite_model::schema::TabletRange;
use diorite_model::value;
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use std::cmp::Ordering;
use std::sync::Arc;

/// So many keys and ranges of a partition are read together, at one moment.
pub(super) const RANGES_AT_ONCE: usize = 1_000;
/// How many partitions, or such parts of one, are read at a time.
pub(super) const PARALLEL_PIECES: usize = 16;
/// The most bytes of one chunk of a scan.
pub(super) const CHUNK_BYTES: usize = 1 << 20;
/// The most entries of one chunk when it is not known how many are needed.
const CHUNK_ENTRIES: usize = 8_192;

/// What an entry costs beside its bytes, in the same measure.
const ENTRY_BYTES: usize = 64;
/// Entries are taken on the thread that serves the connection if their bytes, times what is done with each, are not more than this: a fraction of a millisecond.
pub(super) const INLINE_BYTES: usize = 256 << 10;
/// As many keys and values are made of a statement there.
const INLINE_KEYS: usize = 512;

/// What a client asks of the page.
#[derive(Debug, Clone, Copy)]
pub struct PageRequest<'a> {
    /// The most rows; `None`: all.
    pub page_size: Option<u32>,
    /// Where the former page ended.
    pub state: Option<&'a [u8]>,
    /// A page ends after the row that brings it to this many bytes (a result without paging fails at [`MAX_RESULT_BYTES`]).
    pub max_bytes: usize,
}

/// The largest result that is returned without paging.
pub const MAX_RESULT_BYTES: usize = 240 << 20;

/// One execution of a `SELECT`.
pub struct Read<'a, K> {
    /// The plan.
    pub plan: &'a SelectPlan,
    /// Bound values.
    pub bound: &'a Bound<'a>,
    /// Where to read.
    pub source: &'a Source<'a, K>,
    /// The tablets of the table, by token.
    pub tablets: &'a [TabletRange],
}

/// What is made of restrictions and bound values.
struct Prepared<'a> {
    filters: Vec<BoundFilter<'a>>,
    /// The named partitions, and the ranges of rows in each.
    named: Option<(Vec<PartitionKey>, Vec<KeyRange>)>,
}

/// A scan of (a part of) one tablet.
#[derive(Debug, Clone)]
pub(super) struct TabletScan {
    /// The tablet.
    pub(super) tablet: TabletId,
    /// The first key.
    pub(super) start: Vec<u8>,
    /// The first key after it.
    pub(super) end: Vec<u8>,
}

/// A row or range of a named partition.
pub(super) struct Piece<'p> {
    pub(super) partition: &'p PartitionKey,
    /// Read together, at one moment. None if the restrictions leave nothing of the partition.
    pub(super) ranges: &'p [KeyRange],
    /// The first of its partition, which brings header and static row.
    pub(super) is_first: bool,
    pub(super) is_last: bool,
    /// The former page ended in its partition.
    pub(super) is_resumed: bool,
}

/// What was read of a piece.
pub(super) struct Fetched<'p> {
    pub(super) piece: Piece<'p>,
    /// Its memory.
    pub(super) _held: Held<'p>,
    pub(super) header: Option<Vec<u8>>,
    pub(super) static_row: Option<Vec<u8>>,
    pub(super) found: Found,
}

pub(super) enum Found {
    Nothing,
    /// Key and value.
    Row(Vec<u8>, Vec<u8>),
    /// A range and its first chunk.
    Chunk(TabletScan, ScanChunk),
    /// Keys and ranges of a tablet and the first chunk of all of them.
    Several(TabletId, Vec<Span>, ScanChunk),
}

impl<K: Kv> Read<'_, K> {
    /// Reads a page.
    pub async fn execute(&self, page: PageRequest<'_>) -> Result<Rows, CqlError> {
        let state = page.state.map(PagingState::decode).transpose()?;
        if let Some(state) = &state
            && state.table != self.plan.table.table().id.0
        {
            return Err(CqlError::protocol("Invalid value for the paging state"));
        }
        let prepared = match key_count(&self.plan.restrictions, self.bound) > INLINE_KEYS {
            true => self.source.run_long(|| self.prepare()).await?,
            false => self.prepare()?,
        };
        let filters = prepared.filters;
        let limits = self.limits(&page, state.as_ref())?;
        if let Some((partitions, ranges)) = prepared.named {
            if let Some(units) = self.partition_units(&partitions, &ranges, state.as_ref())? {
                return self.fold(&units, &filters, limits, &page).await;
            }
            return self.named_partitions(&partitions, &ranges, &filters, limits, &page, state).await;
        }
        let scans = self.tablet_scans(state.as_ref())?;
        if self.plan.is_folded() || self.plan.grouping.is_some() {
            let units: Vec<Unit> = scans.iter().map(|scan| Unit::of_scan(scan, state.as_ref())).collect();
            return self.fold(&units, &filters, limits, &page).await;
        }
        self.page_of_scans(&scans, &filters, limits, &page, state).await
    }

    /// Makes filters and keys of the restrictions and the bound values.
    fn prepare(&self) -> Result<Prepared<'_>, CqlError> {
        let SelectPlan { table, restrictions, .. } = self.plan;
        let filters = filter::prepare(table, &restrictions.filters, self.bound)?;
        let named = match &restrictions.partition {
            PartitionRestriction::Keys(keys) => {
                let partitions = partition_keys(table, keys, self.bound)?;
                Some((partitions, clustering_ranges(table, restrictions, self.bound)?))
            }
            _ => None,
        };
        Ok(Prepared { filters, named })
    }

    /// What the request may use.
    pub(super) fn budget(&self) -> &Budget {
        self.bound.environment.budget
    }

    /// Feeds entries to the collector: those of a chunk, or the row with this key whose value is all that is in it. What is much work is done where it holds up
    /// nobody.
    async fn consume(
        &self,
        row: Option<&[u8]>,
        chunk: &ScanChunk,
        collector: &mut Collector<'_>,
    ) -> Result<Step, CqlError> {
        let bytes = chunk.buffer.len() + chunk.ends.len() * ENTRY_BYTES;
        let is_short = collector.is_short(bytes, INLINE_BYTES);
        let mut work = || match row {
            Some(key) => collector.consume(std::iter::once((key, chunk.buffer.as_slice()))),
            None => collector.consume(chunk.entries()),
        };
        if is_short {
            return work();
        }
        self.source.run_long(work).await
    }

    pub(super) fn scope(&self) -> Scope<'_> {
        Scope { table: &self.plan.table, bound: self.bound, aggregates: &[] }
    }

    fn limits(&self, page: &PageRequest<'_>, state: Option<&PagingState>) -> Result<Limits, CqlError> {
        let limit = |term: &Option<Term>, name: &str| match term {
            None => Ok(u64::MAX),
            Some(term) => match term.evaluate(self.bound)? {
                Evaluated::Unset => Ok(u64::MAX),
                value => check_limit(value.bytes().as_deref(), name).map(u64::from),
            },
        };
        let rows = limit(&self.plan.limit, "[limit]")?;
        let rows_per_partition = limit(&self.plan.per_partition_limit, "[per_partition_limit]")?;
        let is_sorted = !self.plan.ordering.is_empty();
        let page_rows = page.page_size.map_or(u64::MAX, u64::from);
        if is_sorted && page_rows < rows {
            return Err(invalid(
                "Cannot page queries with both ORDER BY and a IN restriction on the partition key; you must either remove the ORDER BY or the IN and sort client side, or disable paging for this query",
            ));
        }
        Ok(Limits {
            // What is sorted afterwards is cut afterwards; an aggregate gives one row, which every limit allows.
            rows: match state.and_then(|state| state.remaining) {
                _ if is_sorted || self.plan.is_folded() => u64::MAX,
                Some(remaining) => remaining.min(rows),
                None => rows,
            },
            rows_per_partition,
            offset: match state {
                Some(state) => state.offset,
                None => {
                    limit(&self.plan.offset, "[offset]").map(|offset| if offset == u64::MAX { 0 } else { offset })?
                }
            },
            page_rows: if is_sorted { u64::MAX } else { page_rows },
            page_bytes: if page.page_size.is_some() { page.max_bytes } else { usize::MAX },
        })
    }

    async fn named_partitions(
        &self,
        partitions: &[PartitionKey],
        ranges: &[KeyRange],
        filters: &[BoundFilter<'_>],
        limits: Limits,
        page: &PageRequest<'_>,
        state: Option<PagingState>,
    ) -> Result<Rows, CqlError> {
        let mut collector = Collector::new(self.plan, self.scope(), filters, limits);
        let mut first = 0;
        if let Some(state) = &state {
            let prefix = &state.key[..state.partition_len];
            let found = partitions.iter().position(|partition| partition.prefix == prefix);
            first = found.ok_or_else(|| CqlError::protocol("Invalid value for the paging state"))?;
        }
        let after = state.as_ref().map(|state| &state.key[state.partition_len..]);
        let (resumed, fresh) = (self.in_order(ranges, after), self.in_order(ranges, None));
        // What a former page has begun is read by itself.
        let mut ways = self.ways(partitions, first + usize::from(state.is_some()), &fresh)?;
        let mut pieces = partitions.iter().enumerate().skip(first).flat_map(|(number, partition)| {
            let ranges = if number == first { &resumed } else { &fresh };
            let count = ranges.len().div_ceil(RANGES_AT_ONCE).max(1);
            (0..count).map(move |at| {
                let piece = Piece {
                    partition,
                    ranges: &ranges[at * RANGES_AT_ONCE..ranges.len().min((at + 1) * RANGES_AT_ONCE)],
                    is_first: at == 0,
                    is_last: at + 1 == count,
                    is_resumed: number == first,
                };
                (number, piece)
            })
        });
        let entries = self.chunk_entries(&collector);
        let budget = self.budget();
        // Reading far ahead would be in vain when few rows are wanted.
        let parallel = usize::try_from(collector.page_rows_left()).unwrap_or(PARALLEL_PIECES).min(PARALLEL_PIECES);
        let mut running = FuturesOrdered::new();
        loop {
            while running.len() < parallel.max(1)
                && let Some((number, piece)) = pieces.next()
            {
                running.push_back(self.fetch_in(ways.take(number), piece, partitions, entries));
            }
            let Some(fetched) = running.next().await else { break };
            budget.check()?;
            let remaining = state.as_ref().map(|state| state.remaining_in_partition.unwrap_or(u64::MAX));
            let step = self.take_piece(fetched?, remaining, &mut collector).await?;
            check_result_size(&collector, page)?;
            if step == Step::Full {
                break;
            }
        }
        drop(running);
        let is_last = partitions.last().is_none_or(|last| last.prefix == collector.partition())
            && collector.position().len() == collector.partition().len() + usize::from(!self.plan.is_reversed);
        self.finish(collector, page, is_last).await
    }

    /// The ranges of a partition, from where the former page ended, in the order in which they are read.
    pub(super) fn in_order(&self, ranges: &[KeyRange], after: Option<&[u8]>) -> Vec<KeyRange> {
        let mut clipped: Vec<KeyRange> =
            ranges.iter().filter_map(|range| range.beyond(after, self.plan.is_reversed)).collect();
        if self.plan.is_reversed {
            clipped.reverse();
        }
        clipped
    }

    /// Reads the beginning of a piece: a row, or the first chunk of a range.
    pub(super) async fn fetch<'p>(&'p self, piece: Piece<'p>, entries: usize) -> Result<Fetched<'p>, CqlError> {
        let mut held = self.budget().hold(0)?;
        let tablet = tablet_of(self.tablets, piece.partition.token);
        let prefix = piece.partition.prefix.as_slice();
        let mut request = if piece.is_first { self.partition_fetch(prefix) } else { Fetch::default() };
        let (mut row_key, mut scan, mut spans) = (None, None, None);
        if let [range] = piece.ranges {
            let start = [prefix, &range.start].concat();
            match &range.end {
                None => {
                    request.rows = FetchRows::One(start.clone());
                    row_key = Some(start);
                }
                Some(end) => {
                    let end = [prefix, end].concat();
                    request.rows = self.chunk_fetch(&start, &end, entries);
                    scan = Some(TabletScan { tablet, start, end });
                }
            }
        } else if !piece.ranges.is_empty() {
            let named: Vec<Span> = piece.ranges.iter().map(|range| range.span(prefix)).collect();
            request.rows = self.several_fetch(&named, entries, CHUNK_BYTES);
            spans = Some(named);
        }
        let fetched = self.source.fetch(tablet, request).await?;
        held.grow(fetched.size_bytes()).map_err(refused)?;
        let found = match (row_key.zip(fetched.row), scan, spans) {
            (Some((key, value)), ..) => Found::Row(key, value),
            (None, Some(scan), _) => Found::Chunk(scan, fetched.chunk),
            (None, None, Some(spans)) => Found::Several(tablet, spans, fetched.chunk),
            (None, None, None) => Found::Nothing,
        };
        Ok(Fetched { piece, _held: held, header: fetched.header, static_row: fetched.static_row, found })
    }

    /// Feeds a piece to the collector, with the rest of its range. `remaining` is what the former page left of its partition's limit.
    async fn take_piece(
        &self,
        fetched: Fetched<'_>,
        remaining: Option<u64>,
        collector: &mut Collector<'_>,
    ) -> Result<Step, CqlError> {
        let Fetched { piece, _held, header, static_row, found } = fetched;
        if piece.is_first {
            collector.begin_partition(&piece.partition.prefix, header, static_row.as_deref())?;
            if let Some(remaining) = remaining.filter(|_| piece.is_resumed) {
                collector.resume_partition(remaining);
            }
        }
        if !collector.is_partition_done() {
            let step = match found {
                Found::Nothing => Step::More,
                Found::Row(key, value) => {
                    let row = ScanChunk { buffer: value, ends: Vec::new(), exhausted: true };
                    self.consume(Some(&key), &row, collector).await?
                }
                Found::Chunk(scan, chunk) => self.range(scan, Some(chunk), collector).await?,
                Found::Several(tablet, spans, chunk) => self.several(tablet, spans, chunk, collector).await?,
            };
            if step == Step::Full {
                return Ok(Step::Full);
            }
        }
        if piece.is_last {
            collector.end_partition()?;
            if collector.is_full() {
                return Ok(Step::Full);
            }
        }
        Ok(Step::More)
    }

    /// What is needed of a partition beside its rows.
    pub(super) fn partition_fetch(&self, prefix: &[u8]) -> Fetch {
        let with = |push: fn(&mut Vec<u8>)| {
            let mut key = Vec::with_capacity(prefix.len() + 1);
            key.extend_from_slice(prefix);
            push(&mut key);
            key
        };
        Fetch {
            header: Some((PARTITION_DELETIONS, with(key::push_header))),
            static_row: self.plan.reads_statics.then(|| with(key::push_static)),
            ..Fetch::default()
        }
    }

    fn chunk_fetch(&self, start: &[u8], end: &[u8], max_entries: usize) -> FetchRows {
        if start >= end {
            return FetchRows::Nothing;
        }
        let (start, end, reverse) = (start.to_vec(), end.to_vec(), self.plan.is_reversed);
        FetchRows::Range(ScanRequest { start, end, reverse, max_entries, max_bytes: CHUNK_BYTES })
    }

    pub(super) fn several_fetch(&self, spans: &[Span], max_entries: usize, max_bytes: usize) -> FetchRows {
        let (spans, reverse) = (several::encode(spans), self.plan.is_reversed);
        FetchRows::Several(Several { spans, reverse, max_entries, max_bytes })
    }

    /// Feeds keys and ranges of one partition to the collector, of which a first chunk has been read.
    async fn several(
        &self,
        tablet: TabletId,
        mut spans: Vec<Span>,
        mut chunk: ScanChunk,
        collector: &mut Collector<'_>,
    ) -> Result<Step, CqlError> {
        let is_reversed = self.plan.is_reversed;
        loop {
            if self.consume(None, &chunk, collector).await? == Step::Full {
                return Ok(Step::Full);
            }
            let Some((last, _)) = chunk.entries().last().filter(|_| !chunk.exhausted) else { break };
            let mut from = last.to_vec();
            if !is_reversed {
                from.push(0);
            }
            spans = spans.into_iter().filter_map(|span| span.clipped(&from, is_reversed)).collect();
            if spans.is_empty() || collector.is_partition_done() {
                break;
            }
            let rows = self.several_fetch(&spans, self.chunk_entries(collector), CHUNK_BYTES);
            chunk = self.source.fetch(tablet, Fetch { rows, ..Fetch::default() }).await?.chunk;
        }
        Ok(Step::More)
    }

    /// How many entries to ask for: not many more than are wanted, when every entry is likely to give a row.
    fn chunk_entries(&self, collector: &Collector<'_>) -> usize {
        if self.plan.is_folded()
            || self.plan.grouping.is_some()
            || self.plan.is_distinct
            || !self.plan.restrictions.filters.is_empty()
        {
            return CHUNK_ENTRIES;
        }
        let wanted = collector.page_rows_left().saturating_add(collector.offset_left()).saturating_add(2);
        usize::try_from(wanted).unwrap_or(CHUNK_ENTRIES).clamp(4, CHUNK_ENTRIES)
    }

    /// Feeds a range of one tablet to the collector; its first chunk may have been read before.
    async fn range(
        &self,
        scan: TabletScan,
        mut first: Option<ScanChunk>,
        collector: &mut Collector<'_>,
    ) -> Result<Step, CqlError> {
        let TabletScan { tablet, mut start, mut end } = scan;
        let is_reversed = self.plan.is_reversed;
        let mut entries = self.chunk_entries(collector);
        while start < end {
            self.budget().check()?;
            let mut held = self.budget().hold(0)?;
            let chunk = match first.take() {
                // It is charged by whoever read it.
                Some(chunk) => chunk,
                None => {
                    let rows = self.chunk_fetch(&start, &end, entries);
                    let chunk = self.source.fetch(tablet, Fetch { rows, ..Fetch::default() }).await?.chunk;
                    held.grow(chunk.size_bytes()).map_err(refused)?;
                    chunk
                }
            };
            if self.consume(None, &chunk, collector).await? == Step::Full {
                return Ok(Step::Full);
            }
            let Some(last) = chunk.entries().last().filter(|_| !chunk.exhausted) else { break };
            // What is stored here gives fewer rows than it has entries: deleted and expired ones lie close together.
            entries = entries.saturating_mul(4).min(CHUNK_ENTRIES);
            if is_reversed {
                end = last.0.to_vec();
            } else if collector.is_partition_done() && last.0.starts_with(collector.partition()) {
                start = collector.partition().to_vec();
                key::push_partition_end(&mut start);
            } else {
                start = last.0.to_vec();
                start.push(0);
            }
            if is_reversed && collector.is_partition_done() {
                break;
            }
        }
        Ok(Step::More)
    }

    /// The token range that is asked for: first and last token, both included; `None` if it is empty.
    fn token_range(&self) -> Result<Option<(i64, i64)>, CqlError> {
        let PartitionRestriction::Tokens { lower, upper } = &self.plan.restrictions.partition else {
            return Ok(Some((i64::MIN, i64::MAX)));
        };
        let token = |term: &Term| -> Result<i64, CqlError> {
            let wire = term.require(self.bound, "partition key token")?;
            let wire: [u8; 8] = (*wire).try_into().map_err(|_| invalid("Invalid token"))?;
            Ok(i64::from_be_bytes(wire))
        };
        let first = match lower {
            None => i64::MIN,
            Some((term, true)) => token(term)?,
            Some((term, false)) => match token(term)?.checked_add(1) {
                Some(first) => first,
                None => return Ok(None),
            },
        };
        let last = match upper {
            None => i64::MAX,
            // Below the first hash there is nothing.
            Some((term, _)) if term.is_token_of_hash() && token(term)? == i64::MIN => return Ok(None),
            // The ring's smallest token as an upper end means its end, as tools that split the ring write it.
            Some((term, is_inclusive)) => match (token(term)?, is_inclusive) {
                (i64::MIN, _) => i64::MAX,
                (last, true) => last,
                (last, false) => last - 1,
            },
        };
        Ok((first <= last).then_some((first, last)))
    }

    /// The scans that cover the token range, from where the former page ended.
    fn tablet_scans(&self, state: Option<&PagingState>) -> Result<Vec<TabletScan>, CqlError> {
        let Some((first, last)) = self.token_range()? else { return Ok(Vec::new()) };
        let mut scans = Vec::new();
        for (at, range) in self.tablets.iter().enumerate() {
            let next = self.tablets.get(at + 1).map(|next| next.first_token);
            let last_of_tablet = next.map_or(i64::MAX, |next| next - 1);
            let (from, to) = (range.first_token.max(first), last_of_tablet.min(last));
            if from > to {
                continue;
            }
            let (mut start, mut end) = (Vec::new(), Vec::new());
            key::push_token_start(from, &mut start);
            key::push_token_end(to, &mut end);
            if let Some(state) = state {
                if state.key >= end {
                    continue;
                }
                if state.key >= start {
                    start.clone_from(&state.key);
                    start.push(0);
                }
            }
            scans.push(TabletScan { tablet: range.tablet, start, end });
        }
        Ok(scans)
    }

    async fn page_of_scans(
        &self,
        scans: &[TabletScan],
        filters: &[BoundFilter<'_>],
        limits: Limits,
        page: &PageRequest<'_>,
        state: Option<PagingState>,
    ) -> Result<Rows, CqlError> {
        let mut collector = Collector::new(self.plan, self.scope(), filters, limits);
        let mut first = None;
        let mut held = self.budget().hold(0)?;
        if let Some(state) = &state
            && let Some(scan) = scans.first().filter(|scan| scan.start.starts_with(&state.key))
        {
            let prefix = &state.key[..state.partition_len];
            let rows = self.chunk_fetch(&scan.start, &scan.end, self.chunk_entries(&collector));
            let fetched = self.source.fetch(scan.tablet, Fetch { rows, ..self.partition_fetch(prefix) }).await?;
            held.grow(fetched.size_bytes()).map_err(refused)?;
            collector.begin_partition(prefix, fetched.header, fetched.static_row.as_deref())?;
            collector.resume_partition(state.remaining_in_partition.unwrap_or(u64::MAX));
            first = Some(fetched.chunk);
        }
        for scan in scans {
            if self.range(scan.clone(), first.take(), &mut collector).await? == Step::Full {
                return self.finish(collector, page, false).await;
            }
            check_result_size(&collector, page)?;
        }
        collector.end_partition()?;
        self.finish(collector, page, true).await
    }

    pub(super) fn finish_aggregates(&self, mut collector: Collector<'_>) -> Result<Rows, CqlError> {
        let selection = &self.plan.selection;
        let states = std::mem::take(&mut collector.states);
        let mut results = Vec::with_capacity(states.len());
        for (state, aggregate) in states.into_iter().zip(&selection.aggregates) {
            results.push(state.finish(aggregate)?);
        }
        let row = collector.first_row.take().unwrap_or_else(|| RowData::new(selection.reads.clone(), false));
        let scope = Scope { aggregates: &results, ..self.scope() };
        let mut rows = Rows::new(Arc::clone(&selection.metadata));
        // There is one row, which any OFFSET leaves out.
        if collector.offset_left() == 0 {
            put_cells(&scope, selection, &row, &mut rows.body)?;
            rows.row_count = 1;
        }
        Ok(rows)
    }

    async fn finish(
        &self,
        mut collector: Collector<'_>,
        page: &PageRequest<'_>,
        is_last: bool,
    ) -> Result<Rows, CqlError> {
        if self.plan.is_folded() {
            return self.finish_aggregates(collector);
        }
        let mut rows = Rows::new(Arc::clone(&self.plan.selection.metadata));
        if !self.plan.ordering.is_empty() {
            let limit = self.limits(page, None)?;
            let wanted = if self.plan.limit.is_some() { self.sorted_limit()? } else { limit.rows };
            let sortable = std::mem::take(&mut collector.sortable);
            let left_out = usize::try_from(collector.offset_left()).unwrap_or(usize::MAX);
            let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
            let work = || self.sorted(sortable, left_out, wanted, &mut rows);
            self.source.run_long(work).await?;
            return Ok(rows);
        }
        if !is_last && !collector.is_finished() && collector.is_full() {
            let no_limit = |rows: u64| (rows != u64::MAX).then_some(rows);
            let state = PagingState {
                table: self.plan.table.table().id.0,
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

    /// Puts rows in order, and those that are wanted into the result.
    fn sorted(
        &self,
        mut sortable: Vec<SortableRow>,
        left_out: usize,
        wanted: usize,
        rows: &mut Rows,
    ) -> Result<(), CqlError> {
        let budget = self.budget();
        sortable.sort_by(|a, b| self.compare_sortable(a, b));
        let is_wanted = |at: &usize| *at >= left_out && at - left_out < wanted;
        for (_, row) in sortable.into_iter().enumerate().filter(|(at, _)| is_wanted(at)) {
            budget.check()?;
            budget.reserve(&mut rows.body, row.cells.len())?;
            rows.body.extend_from_slice(&row.cells);
            rows.row_count += 1;
        }
        Ok(())
    }

    fn sorted_limit(&self) -> Result<u64, CqlError> {
        match &self.plan.limit {
            Some(term) => check_limit(term.evaluate(self.bound)?.bytes().as_deref(), "[limit]").map(u64::from),
            None => Ok(u64::MAX),
        }
    }

    fn compare_sortable(&self, a: &SortableRow, b: &SortableRow) -> Ordering {
        for ((&(at, is_descending), a), b) in self.plan.ordering.iter().zip(&a.order).zip(&b.order) {
            let ordering = match (a, b) {
                (Some(a), Some(b)) => value::compare(&self.plan.table.column(at).data_type, a, b),
                (a, b) => a.is_some().cmp(&b.is_some()),
            };
            if ordering != Ordering::Equal {
                return if is_descending { ordering.reverse() } else { ordering };
            }
        }
        Ordering::Equal
    }
}

fn check_result_size(collector: &Collector<'_>, page: &PageRequest<'_>) -> Result<(), CqlError> {
    if page.page_size.is_none() && collector.body.len() > MAX_RESULT_BYTES {
        return Err(invalid(format!("the result is larger than {MAX_RESULT_BYTES} bytes: use paging or a LIMIT")));
    }
    Ok(())
}

/// The tablet that holds a token.
pub fn tablet_of(tablets: &[TabletRange], token: i64) -> TabletId {
    let after = tablets.partition_point(|range| range.first_token <= token);
    tablets[after.saturating_sub(1)].tablet
}
