//! One execution of a `SELECT`: its plan, its values, and where it reads.
//!
//! Always true: what is fetched at a time is bounded in bytes and entries. Left out: which partitions and ranges are read
//! ([`super::select`], [`super::scan`]), and what becomes of the rows ([`super::collect`]).

use super::collect::{Collector, Step};
use super::evaluate::Scope;
use super::filter::BoundFilter;
pub use super::homes::tablet_of;
use super::keys::{KeyRange, PartitionKey};
use super::paging::PagingState;
use super::partial::Limits;
use super::source::Source;
use crate::budget::Budget;
use crate::error::invalid;
use crate::kv::several::{self, Several, Span};
use crate::kv::{Fetch, FetchRows, IndexScan, Kv, ScanChunk, ScanRequest};
use crate::plan::index::IndexPlan;
use crate::plan::select::{SelectPlan, check_limit};
use crate::plan::term::{Bound, Evaluated, Term};
use crate::program::PARTITION_DELETIONS;
use diorite_base::TabletId;
use diorite_cql::protocol::CqlError;
use diorite_model::key;
use diorite_model::schema::TabletRange;
use std::sync::Arc;

/// How many partitions, or parts of one, are read at a time.
pub(super) const PARALLEL_PIECES: usize = 16;

/// The most bytes of one chunk of a scan.
pub const CHUNK_BYTES: usize = 1 << 20;

/// The most entries of one chunk when it is not known how many are needed.
pub const CHUNK_ENTRIES: usize = 8_192;

/// The same of the hidden view of a covering index: storage keeps in its cache what short scans have read.
const INDEX_CHUNK_ENTRIES: usize = 1_000;

/// The fixed cost of an entry, as bytes.
const ENTRY_BYTES: usize = 64;

/// Entries are processed on the thread that serves the connection if their bytes, times the steps for each, are at most
/// this: a fraction of a millisecond.
pub(super) const INLINE_BYTES: usize = 256 << 10;

/// The client's request for a page.
#[derive(Debug, Clone, Copy)]
pub struct PageRequest<'a> {
    /// The most rows; `None`: all.
    pub page_size: Option<u32>,
    /// Where the former page ended.
    pub state: Option<&'a [u8]>,
    /// A page ends after the row that brings it to this many bytes (a result without paging fails at [`MAX_RESULT_BYTES`]).
    pub max_bytes: usize,
}

/// The inputs of one page of a read.
pub(super) struct Page<'p> {
    pub(super) filters: &'p [BoundFilter<'p>],
    pub(super) limits: Limits,
    pub(super) request: &'p PageRequest<'p>,
    /// Where the former page ended.
    pub(super) state: Option<PagingState>,
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
    /// Only rows that an index names are read.
    pub(super) by: Option<Arc<IndexScan>>,
}

/// The largest result that is returned without paging.
pub const MAX_RESULT_BYTES: usize = 240 << 20;

/// One execution of a `SELECT`.
pub struct Read<'a, K: Kv> {
    /// The plan.
    pub plan: &'a SelectPlan,
    /// The index of the plan that names the rows.
    pub index: Option<&'a IndexPlan>,
    /// Bound values.
    pub bound: &'a Bound<'a>,
    /// Where to read.
    pub source: &'a Source<'a, K>,
    /// The tablets of the table, by token.
    pub tablets: &'a [TabletRange],
}

impl<K: Kv> Read<'_, K> {
    /// The budget of the request: memory, steps, time.
    pub(super) fn budget(&self) -> &Budget {
        self.bound.environment.budget
    }

    pub(super) fn scope(&self) -> Scope<'_> {
        Scope { table: &self.plan.table, bound: self.bound, aggregates: &[] }
    }

    /// The error of what is made of a tablet's answer: it names the place of a malformed row.
    pub(super) fn in_tablet(&self, tablet: TabletId) -> impl Fn(CqlError) -> CqlError {
        move |error| self.source.in_tablet(error, self.plan.table.table(), tablet)
    }

    /// The same for a partition.
    pub(super) fn in_partition(&self, partition: &PartitionKey) -> impl Fn(CqlError) -> CqlError {
        let token = partition.token;
        move |error| self.in_tablet(tablet_of(self.tablets, token))(error)
    }

    pub(super) fn limits(&self, page: &PageRequest<'_>, state: Option<&PagingState>) -> Result<Limits, CqlError> {
        let limit = |term: &Option<Term>, name: &str| match term {
            None => Ok(u64::MAX),
            Some(term) => match term.evaluate(self.bound)? {
                Evaluated::Unset => Ok(u64::MAX),
                value => check_limit(value.bytes().as_deref(), name).map(u64::from),
            },
        };
        let rows = limit(&self.plan.limits.total, "[limit]")?;
        let rows_per_partition = limit(&self.plan.limits.per_partition, "[per_partition_limit]")?;
        let is_sorted = !self.plan.ordering.is_empty();
        let page_rows = page.page_size.map_or(u64::MAX, u64::from);
        if is_sorted && page_rows < rows {
            return Err(invalid(
                "Cannot page queries with both ORDER BY and a IN restriction on the partition key; you must either remove the ORDER BY or the IN and sort client side, or disable paging for this query",
            ));
        }
        Ok(Limits {
            // If rows are sorted, the limit applies after sorting. An aggregate gives one row, which every limit allows.
            rows: match state.and_then(|state| state.remaining) {
                _ if is_sorted || self.plan.is_one_row() => u64::MAX,
                Some(remaining) => remaining.min(rows),
                None => rows,
            },
            rows_per_partition,
            offset: match state {
                Some(state) => state.offset,
                None => limit(&self.plan.limits.offset, "[offset]")
                    .map(|offset| if offset == u64::MAX { 0 } else { offset })?,
            },
            page_rows: if is_sorted { u64::MAX } else { page_rows },
            page_bytes: if page.page_size.is_some() { page.max_bytes } else { usize::MAX },
        })
    }

    /// Feeds entries to the collector: those of the chunk or, if `row` is given, the row with that key,
    /// whose value is the chunk's buffer. Much work is done on a thread for long work.
    pub(super) async fn consume(
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

    /// The ranges of a partition, from where the former page ended, in the order in which they are read.
    pub(super) fn in_order(&self, ranges: &[KeyRange], after: Option<&[u8]>) -> Vec<KeyRange> {
        let mut clipped: Vec<KeyRange> =
            ranges.iter().filter_map(|range| range.beyond(after, self.plan.is_reversed)).collect();
        if self.plan.is_reversed {
            clipped.reverse();
        }
        clipped
    }

    /// A fetch of what the read needs of a partition beside its rows: header and static row.
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

    pub(super) fn chunk_fetch(&self, start: &[u8], end: &[u8], max_entries: usize) -> FetchRows {
        if start >= end {
            return FetchRows::Nothing;
        }
        let (start, end, reverse) = (start.to_vec(), end.to_vec(), self.plan.is_reversed);
        FetchRows::Range(ScanRequest { start, end, reverse, max_entries, max_bytes: CHUNK_BYTES })
    }

    /// A fetch of the rows of a range that an index names. `partition`: in which the last entry was read.
    pub(super) fn index_fetch(
        &self,
        by: &IndexScan,
        (start, end): (&[u8], &[u8]),
        partition: &[u8],
        max_entries: usize,
    ) -> FetchRows {
        if start >= end {
            return FetchRows::Nothing;
        }
        let is_within = !partition.is_empty() && start.len() > partition.len() && start.starts_with(partition);
        let partition_len = if is_within { partition.len() } else { 0 };
        let (start, end, max_bytes) = (start.to_vec(), end.to_vec(), CHUNK_BYTES);
        FetchRows::Index(IndexScan { start, end, partition_len, max_entries, max_bytes, ..by.clone() })
    }

    pub(super) fn several_fetch(&self, spans: &[Span], max_entries: usize, max_bytes: usize) -> FetchRows {
        let (spans, reverse) = (several::encode(spans), self.plan.is_reversed);
        FetchRows::Several(Several { spans, reverse, max_entries, max_bytes })
    }

    /// How many entries to ask for: not many more than are wanted, when every entry is likely to give a row.
    pub(super) fn chunk_entries(&self, collector: &Collector<'_>) -> usize {
        let is_of_index = self.plan.table.table().index_of.is_some();
        let most = if is_of_index { INDEX_CHUNK_ENTRIES } else { CHUNK_ENTRIES };
        if self.plan.is_one_row()
            || self.plan.grouping.is_some()
            || self.plan.is_distinct
            || (!self.plan.restrictions.filters.is_empty() && self.index.is_none())
        {
            return most;
        }
        let wanted = collector.page_rows_left().saturating_add(collector.offset_left()).saturating_add(2);
        usize::try_from(wanted).unwrap_or(most).clamp(4, most)
    }
}

pub(super) fn check_result_size(collector: &Collector<'_>, page: &PageRequest<'_>) -> Result<(), CqlError> {
    if page.page_size.is_none() && collector.body.len() > MAX_RESULT_BYTES {
        return Err(invalid(format!("the result is larger than {MAX_RESULT_BYTES} bytes: use paging or a LIMIT")));
    }
    Ok(())
}
